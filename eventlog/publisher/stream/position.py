"""The saved position of a followed source, the events without an answer that it has passed, and its
failures: three tables of a database (spec/change-model.md 6.4, 6.6).

The tables belong to the publisher alone and have plain types, so they are created on first use in
the named database: it need not contain a log, and no migration includes them. A SQLite file will
do, and is created if it is missing. If the user may not create tables, someone else can create them
with ``position_ddl``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.schema import CreateTable

from eventlog.changes.json_form import value_to_json
from eventlog.core.clock import unix_time, utc_now
from eventlog.errors import DatabaseError
from eventlog.model import Change, full_name
from eventlog.publisher.ledger.in_flight import WaitingEvent
from eventlog.publisher.ledger.ledger import refused_lock, try_within
from eventlog.publisher.send.database_clock import DatabaseClock
from eventlog.publisher.stream import Backlog, Failure
from eventlog.publisher.stream.recorded import RecordedDocument, RecordedEvent, decode
from eventlog.sql.connect.connection import (
    connect,
    describe,
    dialect_of,
    parse_url,
    refuse_pooling,
    will_write,
)
from eventlog.sql.log.internal_tables import NONE_WAIT, Waiting
from eventlog.sql.log_table import LogTable, split_name
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.driver_errors import as_database_errors, load_dialect, open_database


class Saved(NamedTuple):
    """The saved values of a source."""

    token: Any = None
    """The place from which to read again, as a JSON value; None = the beginning."""
    delivery_no: int = 0
    """The number of the newest delivery that may have been sent, 0 = none."""
    numbered: str = ""
    """The newest number up to the token for a format that numbers changes, else empty."""


Entries: TypeAlias = Mapping[int, str]
"""The documents without an answer that a position has passed (``recorded``), by their numbers."""


class _Tables(NamedTuple):
    """The tables of a position."""

    position: sa.Table
    inflight: sa.Table
    failures: sa.Table


def position_tables(name: str) -> _Tables:
    """Return the table of this name (``schema.name`` or ``name``), the table ``<name>_inflight`` of
    the events without an answer, and the table ``<name>_error`` of the failures.
    """
    schema, table_name = split_name(name)
    metadata = sa.MetaData(schema=schema)
    position = sa.Table(
        table_name,
        metadata,
        sa.Column("source", sa.String(32), primary_key=True, comment="Format of the source"),
        sa.Column(
            "token",
            sa.Text,
            comment="JSON: where reading continues; null = at the beginning of the source",
        ),
        sa.Column(
            "delivery_no",
            sa.BigInteger,
            nullable=False,
            comment="Newest delivery that may have been sent",
        ),
        sa.Column(
            "numbered",
            sa.String(64),
            comment="Greatest number up to the token, of a format that numbers changes",
        ),
        sa.Column(
            "saved", sa.DateTime, nullable=False, comment="When the token last changed, in UTC"
        ),
        comment="Position of a followed source: everything before it has been answered",
    )
    inflight = sa.Table(
        f"{table_name}_inflight",
        metadata,
        sa.Column("source", sa.String(32), primary_key=True, comment="Format of the source"),
        sa.Column(
            "entry_no",
            sa.BigInteger,
            primary_key=True,
            autoincrement=False,
            comment="Number of the document, in the order of the source",
        ),
        sa.Column(
            "content",
            sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb"),
            nullable=False,
            comment="JSON: its events, and the attempts at it",
        ),
        comment=(
            f"Events without an answer that the position in {table_name} has passed: one row per "
            "document, sent before what is read"
        ),
    )
    failures = sa.Table(
        f"{table_name}_error",
        metadata,
        sa.Column("source", sa.String(32), nullable=False, comment="Format of the source"),
        sa.Column(
            "event_id",
            sa.String(255),
            nullable=False,
            comment="Event-id, or the place of the change",
        ),
        sa.Column("error_time", sa.DateTime, nullable=False, comment="When it failed, in UTC"),
        sa.Column(
            "code", sa.String(64), nullable=False, comment="Reason: receiver, or code of an error"
        ),
        sa.Column("message", sa.Text, nullable=False, comment="Reason in words"),
        sa.Column("content", sa.Text, comment="The event in its format, or the change as JSON"),
        comment=(
            f"Changes of the source of {table_name} that did not reach the receiver: one row per "
            "event, until it is accepted"
        ),
    )
    return _Tables(position, inflight, failures)


def position_ddl(name: str, database: str) -> str:
    """Return the statements that create the tables in a database of this kind (``postgresql``,
    ``oracle``, ``sqlite``).
    """
    dialect = sa.make_url(f"{load_dialect(database).driver}://").get_dialect()()
    return "".join(
        f"{str(CreateTable(table).compile(dialect=dialect)).strip()};\n"
        for table in position_tables(name)
    )


_REMEMBERED: Final = 10_000
"""How many of the newest failures are remembered. Only remembered failures are removed when their
events are answered later. The newest failures are the failures of the last runs.
"""


_OF_LETTERS: Final = ".letters"
"""The suffix of the name of a source in the entries of its dead letters. Because of the suffix,
these entries are not read as documents of the source.
"""


def moment_of(number: int) -> datetime:
    """Return the time (UTC) when the event of the dead letter with this number became a failure."""
    return datetime.fromtimestamp(number / 1_000_000, UTC)


class TablePosition:
    """The position of a source in a table, locked by a session against other publishers.

    ``clock`` is the clock of its database. Raises DatabaseError, DatabaseUnavailable.
    """

    def __init__(
        self, connection: sa.Connection, dialect: Dialect, tables: _Tables, source: str
    ) -> None:
        self._connection, self._tables, self._source = connection, tables, source
        self._of_letters = f"{source}{_OF_LETTERS}"
        self._last_letter = 0
        self._token: Any = None
        self._entries: dict[int, str] = {}  # the entries as they were last read or written
        self._failed: set[str] = set()  # the event-ids of the newest failures in the table
        self.clock = DatabaseClock(connection, dialect)

    def entries(self) -> Entries:
        """Return the entries, in their order."""
        with as_database_errors(self._connection):
            self.clock.start()
            self._entries = self._read_entries(self._source)
            self._connection.commit()
        return dict(self._entries)

    def _read_entries(self, source: str, most: int | None = None) -> dict[int, str]:
        """Return the first entries of a source, at most ``most``, in their order."""
        table = self._tables.inflight
        rows = self._connection.execute(
            sa.select(table.c.entry_no, table.c.content)
            .where(table.c.source == source)
            .order_by(table.c.entry_no)
            .limit(most)
        )
        return {int(entry_no): content for entry_no, content in rows}

    def load(self) -> Saved:
        """Return the last saved values."""
        table, failed = self._tables.position, self._tables.failures.c
        with as_database_errors(self._connection):
            kept = sa.select(table.c.token, table.c.delivery_no, table.c.numbered)
            statement = kept.where(table.c.source == self._source)
            row = self._connection.execute(statement).one_or_none()
            newest = (
                sa.select(failed.event_id)
                .where(failed.source == self._source)
                .order_by(failed.error_time.desc())
            )
            self._failed = set(self._connection.scalars(newest.limit(_REMEMBERED)))
            self._connection.commit()
        if row is None:
            return Saved()
        try:
            self._token = None if row.token is None else json.loads(row.token)
        except ValueError:
            raise DatabaseError(
                f"the position in {table.fullname} is not JSON. If it was changed by hand, "
                "restore it"
            ) from None
        return Saved(self._token, int(row.delivery_no), row.numbered or "")

    def save(
        self,
        saved: Saved,
        failures: Sequence[Failure] = (),
        entries: Entries | None = None,
        answered: Collection[str] = (),
        letters: Sequence[str] = (),
    ) -> None:
        """Save a position, the failures up to it, and its entries durably, in one transaction. If
        ``entries`` is None, the entries stay unchanged. ``letters`` are the contents of entries of
        new dead letters.

        ``answered`` are the event-ids of the events that were answered since the last save: if an
        earlier run recorded a failure of such an event, the failure is settled. An event has at
        most one failure: the failure from its last answer.
        """
        with as_database_errors(self._connection):
            rows = [self._storable(failure) for failure in failures]
            failed = {str(row["event_id"]) for row in rows}
            settled = self._failed & failed
            if self._failed:
                settled |= self._failed & {_storable_id(self._connection, one) for one in answered}
            self.write(saved)
            self._write_failures(rows, settled)
            if entries is not None:
                self._write_entries(entries)
            self._write_letters(letters)
            self._connection.commit()
        self._token = saved.token
        self._failed = self._failed - settled | failed
        if entries is not None:
            self._entries = dict(entries)

    def _write_entries(self, entries: Entries) -> None:
        """Write the entries that differ from the entries in the table."""
        before = self._entries
        changed = {one: text for one, text in entries.items() if before.get(one) != text}
        self._delete_entries(
            self._source, [one for one in before if one not in entries or one in changed]
        )
        self._add_entries(self._source, changed)

    def _delete_entries(self, source: str, numbers: Collection[int]) -> None:
        table = self._tables.inflight
        of_entry = sa.and_(table.c.source == source, table.c.entry_no == sa.bindparam("of_entry"))
        if numbers:
            self._connection.execute(
                sa.delete(table).where(of_entry), [{"of_entry": one} for one in numbers]
            )

    def _add_entries(self, source: str, entries: Entries) -> None:
        if entries:
            self._connection.execute(
                sa.insert(self._tables.inflight),
                [
                    {"source": source, "entry_no": number, "content": content}
                    for number, content in entries.items()
                ],
            )

    # --- dead letters, whose numbers are the microseconds of their moments ---

    def _write_letters(self, letters: Sequence[str]) -> None:
        if not letters:
            return
        table = self._tables.inflight
        newest = sa.select(sa.func.max(table.c.entry_no)).where(table.c.source == self._of_letters)
        last = self._connection.scalar(newest) or 0
        first = max(last + 1, self._last_letter + 1, int(unix_time() * 1_000_000))
        self._add_entries(self._of_letters, dict(enumerate(letters, first)))
        self._last_letter = first + len(letters) - 1

    def letters(self, most: int) -> Entries:
        """Return the first dead letters, at most ``most``."""
        with as_database_errors(self._connection):
            found = self._read_entries(self._of_letters, most)
            self._connection.commit()
        return found

    def remove_letters(self, numbers: Sequence[int], failures: Sequence[Failure]) -> None:
        """Delete the entries of dead letters, and write the failures of the letters that the second
        sink has refused.
        """
        with as_database_errors(self._connection):
            self._write_failures([self._storable(failure) for failure in failures], ())
            self._delete_entries(self._of_letters, numbers)
            self._connection.commit()

    def waiting_letters(self) -> Waiting:
        """Return how many dead letters wait, and how long the first one has waited."""
        table = self._tables.inflight
        statement = sa.select(sa.func.count(), sa.func.min(table.c.entry_no))
        with as_database_errors(self._connection):
            number, first = self._connection.execute(
                statement.where(table.c.source == self._of_letters)
            ).one()
            self._connection.commit()
        if not number:
            return NONE_WAIT
        return Waiting(int(number), max(0.0, unix_time() - int(first) / 1_000_000))

    def _write_failures(
        self, rows: Sequence[Mapping[str, str | None]], settled: Collection[str]
    ) -> None:
        """Write failures, in place of the failures of earlier runs."""
        table, now = self._tables.failures, utc_now().replace(tzinfo=None)
        if settled:
            of_event = sa.and_(
                table.c.source == self._source, table.c.event_id == sa.bindparam("of_event")
            )
            self._connection.execute(
                sa.delete(table).where(of_event), [{"of_event": one} for one in settled]
            )
        if rows:
            self._connection.execute(
                sa.insert(table),
                [{"source": self._source, "error_time": now, **row} for row in rows],
            )

    def write(self, saved: Saved) -> None:
        table, now = self._tables.position, utc_now().replace(tzinfo=None)
        token = None if saved.token is None else json.dumps(saved.token, separators=(",", ":"))
        values = {
            "token": token,
            "delivery_no": saved.delivery_no,
            "numbered": saved.numbered or None,
        }
        changed = values if saved.token == self._token else {**values, "saved": now}
        execute = self._connection.execute
        if not execute(
            sa.update(table).where(table.c.source == self._source).values(changed)
        ).rowcount:
            execute(sa.insert(table).values(source=self._source, **values, saved=now))

    def _storable(self, failure: Failure) -> dict[str, str | None]:
        database = open_database(self._connection)
        texts = {
            name: None if text is None else database.storable(text)
            for name, text in failure._asdict().items()
        }
        return {**texts, "event_id": _storable_id(self._connection, failure.event_id)}


class UnmovedPosition(TablePosition):
    """A position that is read and never saved, for a dry run, which has no dead letters."""

    def save(
        self,
        saved: Saved,
        failures: Sequence[Failure] = (),
        entries: Entries | None = None,
        answered: Collection[str] = (),
        letters: Sequence[str] = (),
    ) -> None:
        """Save nothing."""

    def waiting_letters(self) -> Waiting:
        return NONE_WAIT


OpenPosition = Callable[[], AbstractContextManager[TablePosition]]
"""A function that opens the position and locks out other publishers. Raises
PublisherAlreadyRunning, ConfigError, DatabaseError.
"""


def url_with_password(url: str, password: str | None) -> str:
    """Return a URL with its password from the settings. Raises ConfigError."""
    parsed = parse_url(url)
    if password is not None:
        parsed = parsed.set(password=password)
    return parsed.render_as_string(hide_password=False)


POSITION_SECRET: Final = "source.position_url_file"  # noqa: S105 - where it belongs
"""The setting for the password of the position's database, for messages."""


@contextmanager
def position_table(
    url: str | sa.URL, name: str, source: str, kind: type[TablePosition] = TablePosition
) -> Iterator[TablePosition]:
    """Open the position of ``source`` in the table ``name``, as an object of the class ``kind``.
    Missing tables are created.

    The table is locked against a second publisher until the block ends. Raises ConfigError,
    DatabaseError, PublisherAlreadyRunning.
    """
    url, source_tables = parse_url(url), position_tables(name)
    position = source_tables.position
    dialect = dialect_of(url)
    dialect.prepare(url)
    engine = connect(url, secret=POSITION_SECRET)
    try:
        with as_database_errors(engine), engine.connect() as connection:
            will_write(connection)
            for own in source_tables:
                own.create(connection, checkfirst=True)
            connection.commit()
            table = LogTable(position.schema, position.name, ())
            log = dialect.open(connection).log(table)
            if not try_within(log.try_lock, log):
                what = f"the position in {position.fullname}"
                way_out = (
                    "stop that publisher, wait for it with [publisher] standby = true (without "
                    "--once), or give this one another position_table"
                )
                raise refused_lock(what, "is locked", way_out, log.lock_holder())
            connection.commit()
            refuse_pooling(connection, dialect, describe(engine.url))
            yield kind(connection, dialect, source_tables, source)
    finally:
        engine.dispose()


def _storable_id(connection: sa.Connection, event_id: str) -> str:
    return open_database(connection).storable(event_id)[:255]


# --- the status of a source -----------------------------------------------------------------------

_SHOWN: Final = 20
"""How many of the newest failures a status shows."""


def key_in_words(change: Change) -> str:
    """Return the key of a change for people, empty if it has none."""
    return ",".join(f"{name}={value_to_json(value)}" for name, value in change.key or ())


def waiting_event(number: int, document: RecordedDocument, event: RecordedEvent) -> WaitingEvent:
    """Return an event of the document of an entry."""
    change = event.change
    table, key = full_name(change.schema, change.table), key_in_words(change)
    return WaitingEvent(number, event.sent_id, len(document.events), document.tried, table, key)


class SourceRecords(NamedTuple):
    """What the tables of a position record about the events of a source, and about one of these
    events.
    """

    place: str
    """The name of the table of the source's position."""
    position: Saved
    publisher_runs: bool
    documents: Mapping[int, RecordedDocument]
    """The documents without an answer that the position has passed, by their numbers."""
    failures: Sequence[tuple[datetime, Failure]]
    """The failures of the event, each with its time in UTC, the newest last."""
    max_attempts: int = 0
    """The option of the publisher."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The status of a source."""

    source: str
    place: str
    """The name of the table of the source's position."""
    position: Saved
    moved: datetime | None = None
    """The time when the position last moved, None = never."""
    publisher_runs: bool = False
    failures: int | None = 0
    """The total number of failures, None if this user may not read them."""
    newest: Sequence[tuple[datetime, Failure]] = ()
    """The last failures with their times, the newest last."""
    waiting: Sequence[WaitingEvent] = ()
    """The events without an answer that the position has passed."""
    behind: Backlog | None = None
    """How much the source contains after the position, whether answered or not; None if unknown."""
    unknown: str | None = None
    """The error that made ``behind`` unknown."""
    letters: Waiting = NONE_WAIT
    """The dead letters that wait for the second sink."""


class FailureGroup(NamedTuple):
    """The failures with one code."""

    code: str
    number: int
    newest: datetime
    """The time of the newest failure in UTC."""
    example: str
    """The event-id of the newest failure."""
    message: str
    """The message of the newest failure."""


def failures_in_table(url: str, table: str, source: str, most: int) -> list[FailureGroup]:
    """Return the newest ``most`` failures of a source in groups by code, the largest group first.

    Raises DatabaseError.
    """
    with _reading(url, table, source) as reading:
        if reading is None:
            return []
        rows = reading.connection.execute(_failures_of(reading.tables.failures, source).limit(most))
        groups: dict[str, FailureGroup] = {}
        for at, event_id, code, message in rows:
            first = groups.setdefault(
                code, FailureGroup(code, 0, at.replace(tzinfo=UTC), event_id, message)
            )
            groups[code] = first._replace(number=first.number + 1)
    return sorted(groups.values(), key=lambda group: (-group.number, group.code))


class _Reading(NamedTuple):
    """The tables of a position that is read, and not locked."""

    connection: sa.Connection
    dialect: Dialect
    tables: _Tables
    position: TablePosition

    def has(self, table: sa.Table) -> bool:
        return sa.inspect(self.connection).has_table(table.name, table.schema)

    def documents(self) -> dict[int, RecordedDocument]:
        """Return the documents of the entries, by their numbers. Raises DatabaseError."""
        entries = self.position.entries() if self.has(self.tables.inflight) else {}
        return {number: decode(number, content) for number, content in entries.items()}

    def is_locked(self) -> bool:
        """Return True if a publisher runs."""
        position = self.tables.position
        table = LogTable(position.schema, position.name, ())
        return self.dialect.open(self.connection).log(table).is_locked()


@contextmanager
def _reading(url: str, name: str, source: str) -> Iterator[_Reading | None]:
    """Open the position of ``source`` in the table ``name`` without its lock; None if the table
    does not exist yet.

    Raises ConfigError, DatabaseError.
    """
    dialect, tables = dialect_of(parse_url(url)), position_tables(name)
    if not dialect.is_there(parse_url(url)):
        yield None
        return
    with (
        as_database_errors(engine := connect(url, secret=POSITION_SECRET)),
        engine.connect() as connection,
    ):
        position = TablePosition(connection, dialect, tables, source)
        reading = _Reading(connection, dialect, tables, position)
        yield reading if reading.has(tables.position) else None


def records_in_table(url: str, table: str, source: str, event_id: str | None) -> SourceRecords:
    """Return what a position's tables record about a source, and about the event with this
    event-id.

    Raises ConfigError, DatabaseError.
    """
    with _reading(url, table, source) as reading:
        if reading is None:
            place = position_tables(table).position.fullname
            return SourceRecords(place, Saved(), False, {}, ())
        position, _, failures = reading.tables
        runs, saved = reading.is_locked(), reading.position.load()
        documents = reading.documents()
        rows: Sequence[Any] = ()
        if event_id is not None:
            stored_id = _storable_id(reading.connection, event_id)
            rows = reading.connection.execute(
                _failures_of(failures, source).where(failures.c.event_id == stored_id)
            ).all()
    return SourceRecords(position.fullname, saved, runs, documents, _with_times(rows))


def _failures_of(failures: sa.Table, source: str) -> sa.Select[Any]:
    """Return the statement that reads the failures of a source, the newest first."""
    columns = failures.c
    return (
        sa.select(columns.error_time, columns.event_id, columns.code, columns.message)
        .where(columns.source == source)
        .order_by(columns.error_time.desc())
    )


def _with_times(rows: Sequence[Any]) -> list[tuple[datetime, Failure]]:
    """Return the failures that were read, each with its time in UTC, the newest last."""
    return [(at.replace(tzinfo=UTC), Failure(*rest)) for at, *rest in reversed(rows)]


def status_in_table(url: str, table: str, source: str) -> SourceStatus:
    """Return the contents of a position table and its table of failures.

    Raises ConfigError, DatabaseError.
    """
    with _reading(url, table, source) as reading:
        if reading is None:
            return SourceStatus(source, position_tables(table).position.fullname, Saved())
        connection, (position, _, failures) = reading.connection, reading.tables
        runs, saved = reading.is_locked(), reading.position.load()
        waiting = [
            waiting_event(number, document, event)
            for number, document in reading.documents().items()
            for event in document.events
        ]
        letters = NONE_WAIT
        if reading.has(reading.tables.inflight):
            letters = reading.position.waiting_letters()
        moved = connection.scalar(sa.select(position.c.saved).where(position.c.source == source))
        number = connection.execute(
            sa.select(sa.func.count()).select_from(failures).where(failures.c.source == source)
        ).scalar_one()
        newest = connection.execute(_failures_of(failures, source).limit(_SHOWN)).all()
    moved = None if moved is None else moved.replace(tzinfo=UTC)
    return SourceStatus(
        source,
        position.fullname,
        saved,
        moved,
        runs,
        int(number),
        _with_times(newest),
        waiting=waiting,
        letters=letters,
    )
