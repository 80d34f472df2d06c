"""Where a source without a log keeps its position if no database is named: one file, replaced whole and fsynced.

Beside it ``<name>.errors.jsonl``, one line a failure, and ``<name>.lock``, held while a publisher runs.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from eventlog.errors import AnotherPublisher, ConfigError
from eventlog.sql.state import Failure, Saved


class FilePosition:
    """The position of one source in a file."""

    __slots__ = ("_path", "_source")

    def __init__(self, path: Path, source: str) -> None:
        self._path, self._source = path, source

    def load(self) -> Saved:
        """What was saved last; of a file that is not there the beginning. Raises ConfigError, OSError."""
        try:
            content = json.loads(self._path.read_bytes())
            source, saved = content["source"], Saved(content["token"], int(content["flight"]))
        except FileNotFoundError:
            return Saved()
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"{self._path} holds no position ({error!r}): name another position_file, or put its content back"
            ) from None
        if source != self._source:
            raise ConfigError(
                f"{self._path} is the position of a source {source}, not {self._source}: name another position_file"
            )
        return saved

    def save(self, saved: Saved, failures: Sequence[Failure] = ()) -> None:
        """Write what failed, then the position. Durable when it returns. Raises OSError."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if failures:
            self._append([{"time": now, "source": self._source, **failure._asdict()} for failure in failures])
        content = {"source": self._source, "token": saved.token, "flight": saved.flight, "saved": now}
        temporary = self._path.with_name(f".{self._path.name}.part")
        with temporary.open("wb") as file:
            file.write(json.dumps(content).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        _sync_directory(self._path.parent)

    def _append(self, lines: Sequence[object]) -> None:
        path = failures_of(self._path)
        is_new = not path.exists()
        with path.open("ab") as file:
            file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            _sync_directory(path.parent)


def failures_of(path: Path) -> Path:
    """The file of failures beside a position."""
    return path.with_name(f"{path.name}.errors.jsonl")


@contextmanager
def position_file(path: Path, source: str) -> Iterator[FilePosition]:
    """The position of ``source`` in a file, locked against a second publisher until the block is left.

    Raises ConfigError for a place that cannot be written, AnotherPublisher.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError(
            f"position_file {path} cannot be locked: {lock}: {error.strerror}; name a file in a directory that is "
            "there and can be written"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AnotherPublisher(
                f"the position in {path} is another publisher's, which runs; "
                "stop it, or give this one another position_file"
            ) from None
        yield FilePosition(path, source)
    finally:
        os.close(descriptor)  # the lock file stays: one that is removed could be locked twice


def _sync_directory(directory: Path) -> None:
    """Make a new name durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
