"""The position of a source that is no log, in a file; and what positions, in a file or a table, tell of it.

The file is replaced whole and fsynced. Beside it are ``<name>.errors.jsonl``, one line a failure, and ``<name>.lock``,
held while a publisher runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import sqlalchemy as sa

from eventlog.errors import AnotherPublisher, ConfigError, EventlogError
from eventlog.files.atomic import sync_file, sync_path
from eventlog.sql.connection import as_database_errors, connect
from eventlog.sql.log_table import LogTable
from eventlog.sql.positions import POSITION_SECRET, Failure, PositionTables, Saved, TablePosition, tables
from eventlog.sql.registry import for_url

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
    """The file of failures beside a position."""
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


# --- what it tells of the source --------------------------------------------------------------------------------------

SHOWN: Final = 20
"""Of the failures so many, the newest, are shown."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A line of what did not reach the receiver and is not tried again."""

    time: datetime
    event_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a source at ``place``. ``moved``: when the position last moved, None if it never has.

    ``failures``: how many there are in all, None if this user may not read them; ``newest``: the last of them, the
    newest last.
    """

    place: str
    position: Saved
    moved: datetime | None
    publisher_runs: bool
    failures: int | None
    newest: tuple[Failed, ...]


def kept_in_file(path: Path, source: str) -> Kept:
    """What a position file and its file of failures hold. Raises ConfigError."""
    saved, moved = read_position(path, source)
    lines: deque[bytes] = deque(maxlen=SHOWN)
    number = 0
    try:
        with failures_of(path).open("rb") as file:
            for line in file:
                number += 1
                lines.append(line)
    except FileNotFoundError:
        pass
    except PermissionError:
        return Kept(str(path), saved, moved, is_locked(path), None, ())
    except OSError as error:
        raise ConfigError(f"{failures_of(path)} cannot be read: {error.strerror}") from error
    newest = tuple(one for line in lines if (one := _failed(line)) is not None)
    return Kept(str(path), saved, moved, is_locked(path), number, newest)


def _failed(line: bytes) -> Failed | None:
    """A failure from its line; None if the line is still being written."""
    try:
        content = json.loads(line)
        return Failed(datetime.fromisoformat(content["time"]), content["event_id"], content["code"], content["message"])
    except (ValueError, TypeError, KeyError):
        return None


def kept_in_table(url: sa.URL, table: str, source: str) -> Kept:
    """What a position table and its table of failures hold. Raises ConfigError, DatabaseError."""
    names = tables(table)
    place = names.position.fullname
    dialect = for_url(url)
    engine = connect(url, secret=POSITION_SECRET)
    try:
        with engine.connect() as connection, as_database_errors(connection):
            if not sa.inspect(connection).has_table(names.position.name, names.position.schema):
                return Kept(place, Saved(), None, False, 0, ())
            runs = dialect.is_locked(connection, LogTable(names.position.schema, names.position.name, ()))
            return _of_tables(connection, names, source, place, runs)
    finally:
        engine.dispose()


def _of_tables(connection: sa.Connection, names: PositionTables, source: str, place: str, runs: bool) -> Kept:
    position, failures = names
    saved = TablePosition(connection, names, source).load()
    moved = connection.execute(sa.select(position.c.saved).where(position.c.source == source)).scalar_one_or_none()
    of_source = failures.c.source == source
    number = connection.execute(sa.select(sa.func.count()).select_from(failures).where(of_source)).scalar_one()
    lines = connection.execute(
        sa.select(failures.c.error_time, failures.c.event_id, failures.c.code, failures.c.message)
        .where(of_source)
        .order_by(failures.c.error_time.desc())
        .limit(SHOWN)
    )
    newest = tuple(Failed(time.replace(tzinfo=UTC), *rest) for time, *rest in reversed(lines.all()))
    return Kept(place, saved, None if moved is None else moved.replace(tzinfo=UTC), runs, int(number), newest)
