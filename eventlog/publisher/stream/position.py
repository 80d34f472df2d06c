"""Where a source that is no log keeps its position, and beside it what was refused: a file, or tables of a database.

The file is replaced whole and fsynced. Beside it are ``<name>.errors.jsonl``, one line a failure, and ``<name>.lock``,
held while a publisher runs. The tables are ours alone and of plain types, so they are made on first use in whatever
database is named: it need not be one that has a log, and no migration knows of it. Whoever may not make tables has them
made by ``position_ddl``.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from eventlog.errors import AnotherPublisher, ConfigError, DatabaseError, EventlogError
from eventlog.files.atomic import sync_file, sync_path
from eventlog.publisher.stream import Backlog, Failure
from eventlog.sql.connection import (
    as_database_errors,
    connect,
    describe,
    dialect_of,
    load_dialect,
    parse_url,
    refuse_pooling,
    will_write,
)
from eventlog.sql.log_table import LogTable, split_name, storable


class Saved(NamedTuple):
    """What is kept of a source. ``token``: from where it is to be read again, in JSON's terms, None = from where it
    begins. ``flight``: number of the newest flight that may have been sent, 0 = none.
    """

    token: Any = None
    flight: int = 0


class PositionAway(EventlogError):
    """The position cannot be written now, as on a full disk. What was answered since will be sent again."""

    code = "position_away"
    cure = "Make room, or mend the rights, where the position is kept; the publisher tries again by itself."


class Position(Protocol):
    """Where the position of the source is kept, held by this publisher alone. Raises DatabaseError, PositionAway."""

    def load(self) -> Saved: ...

    def save(self, saved: Saved, failures: Sequence[Failure] = ()) -> None:
        """Make a position, and what failed up to it, durable."""
        ...


OpenPosition = Callable[[], AbstractContextManager[Position]]
"""Opens the position and keeps others away from it. Raises AnotherPublisher, ConfigError, DatabaseError."""


# --- in a file --------------------------------------------------------------------------------------------------------

_LOOKS: Final = 5
_LOOK: Final = 0.1
"""Seconds between looks whether the lock is free: `eventlog status` holds it for a moment."""


class FilePosition:
    """The position of one source in a file."""

    __slots__ = ("_moved", "_path", "_source", "_token")

    def __init__(self, path: Path, source: str) -> None:
        self._path, self._source = path, source
        self._token: Any = None
        self._moved: str | None = None

    def load(self) -> Saved:
        """What was saved last; of a file that is not there the beginning. Raises ConfigError."""
        saved, moved = _read_position(self._path, self._source)
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


def _read_position(path: Path, source: str) -> tuple[Saved, datetime | None]:
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


# --- in a table -------------------------------------------------------------------------------------------------------

_Tables = tuple[sa.Table, sa.Table]
"""That of the positions, and that of the failures."""


def _position_tables(name: str) -> _Tables:
    """The table of this name (``schema.name`` or ``name``), and that of failures, ``<name>_error``."""
    schema, table_name = split_name(name)
    metadata = sa.MetaData(schema=schema)
    position = sa.Table(
        table_name,
        metadata,
        sa.Column("source", sa.String(32), primary_key=True, comment="Format of the source"),
        sa.Column("token", sa.Text, comment="JSON: from where it is to be read again; null = from its beginning"),
        sa.Column("flight_no", sa.BigInteger, nullable=False, comment="Newest flight that may have been sent"),
        sa.Column("saved", sa.DateTime, nullable=False, comment="When the token last changed, in UTC"),
        comment="How far eventlog publish --from has come: all before it has been answered",
    )
    failures = sa.Table(
        f"{table_name}_error",
        metadata,
        sa.Column("source", sa.String(32), nullable=False, comment="Format of the source"),
        sa.Column("event_id", sa.String(255), nullable=False, comment="Of the event, or the place of the change"),
        sa.Column("error_time", sa.DateTime, nullable=False, comment="When it failed, in UTC"),
        sa.Column("code", sa.String(64), nullable=False, comment="Why: receiver, or the code of an error"),
        sa.Column("message", sa.Text, nullable=False, comment="Why, for people"),
        sa.Column("content", sa.Text, comment="The event as XDS, or the change as JSON"),
        comment=f"What of the source of {table_name} did not reach the receiver: one line a failure, "
        "never changed afterwards",
    )
    return position, failures


def position_ddl(name: str, database: str) -> str:
    """The statements that make both tables in a database of this name (``postgresql``, ``oracle``, ``sqlite``)."""
    dialect = sa.make_url(f"{load_dialect(database).driver}://").get_dialect()()
    return "".join(f"{str(CreateTable(table).compile(dialect=dialect)).strip()};\n" for table in _position_tables(name))


class TablePosition:
    """The position of one source in a table, held by a session that keeps a second publisher away."""

    __slots__ = ("_connection", "_source", "_tables", "_token")

    def __init__(self, connection: sa.Connection, tables: _Tables, source: str) -> None:
        self._connection, self._tables, self._source = connection, tables, source
        self._token: Any = None

    def load(self) -> Saved:
        """What was saved last. Raises DatabaseError, DatabaseAway."""
        table, _ = self._tables
        with as_database_errors(self._connection):
            statement = sa.select(table.c.token, table.c.flight_no).where(table.c.source == self._source)
            row = self._connection.execute(statement).one_or_none()
            self._connection.commit()
        if row is None:
            return Saved()
        try:
            self._token = None if row.token is None else json.loads(row.token)
        except ValueError:
            raise DatabaseError(f"the position in {table.fullname} is no JSON; was it changed by hand?") from None
        return Saved(self._token, int(row.flight_no))

    def save(self, saved: Saved, failures: Sequence[Failure] = ()) -> None:
        """Write the position and what failed up to it, in one transaction. Raises DatabaseError, DatabaseAway."""
        with as_database_errors(self._connection):
            self._write(saved, failures)
            self._connection.commit()
        self._token = saved.token

    def _write(self, saved: Saved, failures: Sequence[Failure]) -> None:
        (table, failed), now = self._tables, datetime.now(UTC).replace(tzinfo=None)
        token = None if saved.token is None else json.dumps(saved.token, separators=(",", ":"))
        values = {"token": token, "flight_no": saved.flight}
        changed = values if saved.token == self._token else {**values, "saved": now}
        execute = self._connection.execute
        if not execute(sa.update(table).where(table.c.source == self._source).values(changed)).rowcount:
            execute(sa.insert(table).values(source=self._source, **values, saved=now))
        if failures:
            lines = [{"source": self._source, "error_time": now, **_storable(failure)} for failure in failures]
            execute(sa.insert(failed), lines)


POSITION_SECRET: Final = "EVENTLOG_SOURCE_POSITION_PASSWORD or position_url_file"  # noqa: S105 - where it belongs
"""Where the password of the database that keeps the position belongs."""


@contextmanager
def position_table(url: str | sa.URL, name: str, source: str) -> Iterator[TablePosition]:
    """The position of ``source`` in the table ``name``, which is made with its companion where it is missing.

    The table is locked against a second publisher until the block is left. Raises ConfigError, DatabaseError,
    AnotherPublisher.
    """
    url, source_tables = parse_url(url), _position_tables(name)
    position, _ = source_tables
    dialect = dialect_of(url)
    dialect.prepare(url)
    engine = connect(url, secret=POSITION_SECRET)
    try:
        with as_database_errors(engine), engine.connect() as connection:
            will_write(connection)
            for table in source_tables:
                table.create(connection, checkfirst=True)
            connection.commit()
            if not dialect.try_lock(connection, LogTable(position.schema, position.name, ())):
                raise AnotherPublisher(
                    f"the position in {position.fullname} is another publisher's, which runs; "
                    "stop it, or give this one another position_table"
                )
            connection.commit()
            refuse_pooling(connection, dialect, describe(engine.url))
            yield TablePosition(connection, source_tables, source)
    finally:
        engine.dispose()


def _storable(failure: Failure) -> dict[str, str | None]:
    texts = {name: None if text is None else storable(text) for name, text in failure._asdict().items()}
    return {**texts, "event_id": (texts["event_id"] or "")[:255]}


# --- what `eventlog status --from` tells of a source ------------------------------------------------------------------

_SHOWN: Final = 20
"""Of the failures so many, the newest, are shown."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What is known of a source. ``place``: where its position is kept; ``moved``: when that last moved, None if never.

    ``failures``: how many there are in all, None if this user may not read them; ``newest``: the last of them with
    their times, the newest last. ``behind``: what the source holds behind the position, answered or not; None if that
    is unknown, for the reason ``unknown`` if that is an error.
    """

    source: str
    place: str
    position: Saved
    moved: datetime | None = None
    publisher_runs: bool = False
    failures: int | None = 0
    newest: Sequence[tuple[datetime, Failure]] = ()
    behind: Backlog | None = None
    unknown: str | None = None


def status_in_file(path: Path, source: str) -> SourceStatus:
    """What a position file and its file of failures hold. Raises ConfigError."""
    saved, moved = _read_position(path, source)
    status = SourceStatus(source, str(path), saved, moved, is_locked(path))
    lines: deque[bytes] = deque(maxlen=_SHOWN)
    number = 0
    try:
        with failures_of(path).open("rb") as file:
            for line in file:
                number += 1
                lines.append(line)
    except FileNotFoundError:
        return status
    except PermissionError:
        return replace(status, failures=None)
    except OSError as error:
        raise ConfigError(f"{failures_of(path)} cannot be read: {error.strerror}") from error
    return replace(status, failures=number, newest=[one for line in lines if (one := _failure(line)) is not None])


def _failure(line: bytes) -> tuple[datetime, Failure] | None:
    """A failure from its line; None if the line is still being written."""
    try:
        content = json.loads(line)
        failure = Failure(content["event_id"], content["code"], content["message"])
        return datetime.fromisoformat(content["time"]), failure
    except (ValueError, TypeError, KeyError):
        return None


def status_in_table(url: str, table: str, source: str) -> SourceStatus:
    """What a position table and its table of failures hold. Raises ConfigError, DatabaseError."""
    names = _position_tables(table)
    position, failures = names
    dialect = dialect_of(url)
    with as_database_errors(engine := connect(url, secret=POSITION_SECRET)), engine.connect() as connection:
        if not sa.inspect(connection).has_table(position.name, position.schema):
            return SourceStatus(source, position.fullname, Saved())
        runs = dialect.is_locked(connection, LogTable(position.schema, position.name, ()))
        saved = TablePosition(connection, names, source).load()
        moved = connection.scalar(sa.select(position.c.saved).where(position.c.source == source))
        of_source = failures.c.source == source
        number = connection.execute(sa.select(sa.func.count()).select_from(failures).where(of_source)).scalar_one()
        lines = connection.execute(
            sa.select(failures.c.error_time, failures.c.event_id, failures.c.code, failures.c.message)
            .where(of_source)
            .order_by(failures.c.error_time.desc())
            .limit(_SHOWN)
        )
        newest = [(at.replace(tzinfo=UTC), Failure(*rest)) for at, *rest in reversed(lines.all())]
    moved = None if moved is None else moved.replace(tzinfo=UTC)
    return SourceStatus(source, position.fullname, saved, moved, runs, int(number), newest)


def place_in_words(source: str, token: Any) -> str:
    """A position for people: from where the source is read again."""
    if token is None:
        return "where the source begins"
    try:
        return _in_words(source, token)
    except (AttributeError, KeyError, TypeError):  # changed by hand
        return json.dumps(token)


def _in_words(source: str, token: Any) -> str:
    if source == "linter":
        return f"behind the COMMIT at {token.get('restart') if isinstance(token, Mapping) else token}"
    if source != "gbase":
        return ", ".join(
            f"{topic} {' '.join(f'{number}:{offset}' for number, offset in partitions.items())}"
            for topic, partitions in token.items()
        )
    words = ", ".join(f"{name} {token.get(name) or 'none'}" for name in ("restart", "commit"))
    capture = token.get("capture")
    if capture is None:
        return words
    return f"{words}; byte {capture['restart']['offset']} of {capture['restart']['file']}"
