"""A disk that is full is named with its directory, whoever of a job's tasks writes there."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from eventlog.errors import EventlogError
from eventlog.spark.directory import Directory


def test_a_full_disk_is_named_with_its_directory(tmp_path: Path) -> None:
    (tmp_path / "part").symlink_to("/dev/full")
    stream = Directory(str(tmp_path)).open("part")
    with pytest.raises(EventlogError, match=f"no space is left in {tmp_path}; make room there"):
        stream.write(b"x" * 1_000_000)
    with contextlib.suppress(EventlogError):
        stream.close()
