"""The position of a source that is no log, in a file.

The file is replaced whole and fsynced. Beside it are ``<name>.errors.jsonl``, one line a failure, and ``<name>.lock``,
held while a publisher runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from eventlog.errors import AnotherPublisher, ConfigError, EventlogError
from eventlog.files.atomic import sync_file, sync_path
from eventlog.sql.positions import Failure, Saved

_LOOKS: Final = 5
_LOOK: Final = 0.1
"""Seconds between looks whether the lock is free: `eventlog status` holds it for a moment."""


class PositionAway(EventlogError):
    """The position cannot be written now, as on a full disk. What was answered since will be sent again."""

    code = "position_away"
    cure = "Make room, or mend the rights, where the position is kept; the publisher tries again by itself."


class FilePosition:
    """The position of one source in a file."""

    __slots__ = ("_moved", "_path", "_source", "_token")

    def __init__(self, path: Path, source: str) -> None:
        self._path, self._source = path, source
        self._token: Any = None
        self._moved: str | None = None

    def load(self) -> Saved:
        """What was saved last; of a file that is not there the beginning. Raises ConfigError."""
        saved, moved = read_position(self._path, self._source)
        self._token, self._moved = saved.token, None if moved is None else moved.isoformat()
        return saved

    def save(self, saved: Saved, failures: Sequence[Failure] = ()) -> None:
        """Write what failed, then the position. Durable when it returns. Raises PositionAway."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if saved.token != self._token or self._moved is None:
            self._token, self._moved = saved.token, now
        content = {"source": self._source, "token": saved.token, "flight": saved.flight, "saved": self._moved}
        temporary = self._path.with_name(f".{self._path.name}.part")
        try:
            if failures:
                self._append([{"time": now, "source": self._source, **failure._asdict()} for failure in failures])
            with temporary.open("wb") as file:
                file.write(json.dumps(content).encode() + b"\n")
                sync_file(file)
            temporary.replace(self._path)
            sync_path(self._path.parent)
        except OSError as error:
            raise PositionAway(f"the position {self._path} cannot be written: {error.strerror}") from error

    def _append(self, lines: Sequence[object]) -> None:
        path = failures_of(self._path)
        is_new = not path.exists()
        # What failed holds data of the source: for this user only.
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as file:
            _cut_torn_line(file)
            file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            sync_file(file)
        if is_new:
            sync_path(path.parent)


def read_position(path: Path, source: str) -> tuple[Saved, datetime | None]:
    """What was saved last of ``source``, and when its token changed; of a file that is not there the beginning.

    Raises ConfigError.
    """
    try:
        content = json.loads(path.read_bytes())
        other, saved = content["source"], Saved(content["token"], int(content["flight"]))
        moment = datetime.fromisoformat(content["saved"]) if "saved" in content else None
    except FileNotFoundError:
        return Saved(), None
    except OSError as error:
        raise ConfigError(f"position_file {path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} holds no position ({error!r}): put its content back, or name another position_file, with which "
            "the source is read from where it begins"
        ) from None
    if other != source:
        raise ConfigError(f"{path} is the position of a source {other}, not {source}: name another position_file")
    return saved, moment


def is_locked(path: Path) -> bool:
    """Whether a publisher has the position in this file. Raises ConfigError if that cannot be told."""
    try:
        descriptor = os.open(_lock_of(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigError(f"position_file {path}: {_lock_of(path)}: {error.strerror}") from error
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def failures_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.errors.jsonl")


@contextmanager
def position_file(path: Path, source: str) -> Iterator[FilePosition]:
    """The position of ``source`` in a file, locked against a second publisher until the block is left.

    Raises ConfigError for a place that cannot be written, AnotherPublisher.
    """
    lock = _lock_of(path)
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError(
            f"position_file {path} cannot be locked: {lock}: {error.strerror}; name a file in a directory that is "
            "there and can be written"
        ) from error
    try:
        looks = 1
        while not _try_lock(descriptor, fcntl.LOCK_EX):
            if looks >= _LOOKS:
                raise AnotherPublisher(
                    f"the position in {path} is another publisher's, which runs; "
                    "stop it, or give this one another position_file"
                )
            looks += 1
            time.sleep(_LOOK)
        yield FilePosition(path, source)
    finally:
        os.close(descriptor)  # the lock file stays: one that is removed could be locked twice


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _cut_torn_line(file: BinaryIO) -> None:
    """Go to the end of a file of lines; what a crash or a full disk has left of a last one comes again and is cut."""
    end = kept = file.seek(0, os.SEEK_END)
    while kept:
        start = max(0, kept - 4096)
        file.seek(start)
        newline = file.read(kept - start).rfind(b"\n")
        kept = start if newline < 0 else start + newline + 1
        if newline >= 0:
            break
    if kept != end:
        file.truncate(kept)
    file.seek(kept)
