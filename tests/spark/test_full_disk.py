"""A disk that is full is named with its directory, whoever of a job's tasks writes there."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from eventlog.errors import EventlogError
from eventlog.spark import directory
from eventlog.spark.directory import Directory


def test_a_full_disk_is_named_with_its_directory(tmp_path: Path) -> None:
    (tmp_path / "part").symlink_to("/dev/full")
    stream = Directory(str(tmp_path)).open("part")
    with pytest.raises(EventlogError, match=rf"no space is left in {tmp_path}\. Free some space"):
        stream.write(b"x" * 1_000_000)
    with contextlib.suppress(EventlogError):
        stream.close()


def test_a_disk_that_is_full_when_a_file_is_renamed_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(directory, "sync_path", full)
    with pytest.raises(EventlogError, match=rf"no space is left in {tmp_path}\. Free some space"):
        Directory(str(tmp_path)).write("part", b"content")
