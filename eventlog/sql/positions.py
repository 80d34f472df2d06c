"""Where a source without a log keeps its position: a table of a database, and beside it one of what was refused.

The tables are ours alone and of plain types, so they are made on first use in whatever database is named: it need not
be one that has a log, and no migration knows of it. Whoever may not make tables has them made by ``ddl``. No function
commits but those that open: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from eventlog.errors import AnotherPublisher, DatabaseError
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

DEFAULT_TABLE: Final = "eventlog_position"


class Saved(NamedTuple):
    """What is kept of a source. ``token``: from where it is to be read again, in JSON's terms, None = from where it
    begins. ``flight``: number of the newest flight that may have been sent, 0 = none.
    """

    token: Any = None
    flight: int = 0


class Failure(NamedTuple):
    """Something of a source that did not reach the receiver and will not be tried again.

    ``code``: ``receiver``, or that of the error that stood against reading or writing it. ``content``: the event as XDS
    element, or the change as JSON; None where it could not be read.
    """

    event_id: str
    code: str
    message: str
    content: str | None = None


PositionTables = tuple[sa.Table, sa.Table]
"""That of the positions, and that of the failures."""


def tables(name: str) -> PositionTables:
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


def ddl(name: str, database: str) -> str:
    """The statements that make both tables in a database of this name (``postgresql``, ``oracle``, ``sqlite``)."""
    dialect = sa.make_url(f"{load_dialect(database).driver}://").get_dialect()()
    return "".join(f"{str(CreateTable(table).compile(dialect=dialect)).strip()};\n" for table in tables(name))


class TablePosition:
    """The position of one source in a table, held by a session that keeps a second publisher away."""

    __slots__ = ("_connection", "_source", "_tables", "_token")

    def __init__(self, connection: sa.Connection, tables: PositionTables, source: str) -> None:
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
            write(self._connection, self._tables, self._source, saved, failures, has_moved=saved.token != self._token)
            self._connection.commit()
        self._token = saved.token


def write(
    connection: sa.Connection,
    tables: PositionTables,
    source: str,
    saved: Saved,
    failures: Sequence[Failure] = (),
    *,
    has_moved: bool = True,
) -> None:
    """Write the position of a source and what failed up to it, in the current transaction.

    ``has_moved``: whether the token is another one than the one that is there.
    """
    (table, failed), now = tables, datetime.now(UTC).replace(tzinfo=None)
    token = None if saved.token is None else json.dumps(saved.token, separators=(",", ":"))
    values = {"token": token, "flight_no": saved.flight}
    changed = {**values, "saved": now} if has_moved else values
    if not connection.execute(sa.update(table).where(table.c.source == source).values(changed)).rowcount:
        connection.execute(sa.insert(table).values(source=source, **values, saved=now))
    if failures:
        lines = [{"source": source, "error_time": now, **_storable(failure)} for failure in failures]
        connection.execute(sa.insert(failed), lines)


POSITION_SECRET: Final = "EVENTLOG_SOURCE_POSITION_PASSWORD or position_url_file"  # noqa: S105 - where it belongs
"""Where the password of the database that keeps the position belongs."""


@contextmanager
def position_table(url: str | sa.URL, name: str, source: str) -> Iterator[TablePosition]:
    """The position of ``source`` in the table ``name``, which is made with its companion where it is missing.

    The table is locked against a second publisher until the block is left. Raises ConfigError, DatabaseError,
    AnotherPublisher.
    """
    url, source_tables = parse_url(url), tables(name)
    position, _ = source_tables
    dialect = dialect_of(url)
    dialect.prepare(url)
    engine = connect(url, secret=POSITION_SECRET)
    try:
        with engine.connect() as connection, as_database_errors(connection):
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
