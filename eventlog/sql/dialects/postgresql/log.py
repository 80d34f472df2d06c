"""A log on PostgreSQL in a session: its statements and its lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, CursorResult
from sqlalchemy.exc import DBAPIError

from eventlog.core.ranges import Ranges
from eventlog.model import LogRow, log_row
from eventlog.sql.dialects.postgresql import transaction_ids
from eventlog.sql.dialects.postgresql.log_session import run_alone
from eventlog.sql.dialects.postgresql.session import TIMELINE, system_identifier
from eventlog.sql.dialects.postgresql.text import bindable, bounds
from eventlog.sql.dialects.postgresql.unreadable import (
    enough_readable,
    expect_unreadable,
    fetch_readable,
    fetch_within,
    is_readable,
    is_unreadable,
    may_be_unreadable,
)
from eventlog.sql.log.internal_tables import committing_sql, unasked_sql
from eventlog.sql.port.database import LockHolder
from eventlog.sql.port.log_operations import ResyncBatch, Selection, Walk, WalkedKeys, Window
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.questions import Numbering, ask
from eventlog.sql.port.rights import NeededRights, Part, Right, Rights, name_of
from eventlog.sql.port.sql_files import (
    NEUTRAL,
    NEUTRAL_ALONE,
    OF_LOG,
    OF_LOG_ALONE,
    Binds,
    PlainRows,
    RowChunks,
    chunks_of,
    fetch,
    qualified,
    without_collector,
)
from eventlog.sql.port.sql_files import fetch_chunks as fetch_fragments

if TYPE_CHECKING:
    from eventlog.sql.dialects.postgresql import PostgreSQL
    from eventlog.sql.dialects.postgresql.database import PostgresDatabase

_AT_ONCE: Final = 1000
"""The number of rows of a window that exist in memory at the same time: they are fetched, checked
and released together.
"""
_MAX_POLLS: Final = 64
_CHEAP: Final = 1_000.0
"""If the planner's cost is below this limit, rows are counted instead of estimated. The limit is
the cost of a thousand pages, or of 40,000 rows.
"""
_DATABASE_AND_NUMBERS: Final = """
    SELECT concat_ws('/', d.oid, to_regclass(%(deliveries)s)::oid)
    FROM pg_catalog.pg_database AS d
    WHERE d.datname = current_database()"""
_LACKING: Final = """
    WITH home AS (
        SELECT coalesce(has_schema_privilege(%(schema)s::text, 'USAGE'), true) AS is_open
    )
    SELECT 0 FROM home WHERE NOT is_open
    UNION ALL
    SELECT number FROM home, unnest(
        %(kinds)s::text[], %(names)s::text[], %(rights)s::text[], %(columns)s::text[]
    ) WITH ORDINALITY AS asked (kind, name, wanted, column_name, number)
    WHERE CASE
        WHEN NOT is_open THEN false
        WHEN kind = 'sequence' THEN NOT has_sequence_privilege(name, wanted)
        WHEN kind = 'column' THEN NOT has_column_privilege(name, column_name, wanted)
        ELSE NOT has_table_privilege(name, wanted)
    END
    ORDER BY 1"""
"""The numbers of the rights that a session lacks. 0 = the right on the schema, without which the
server refuses to answer about the others.
"""
_IS_IDENTITY: Final = """
    SELECT attidentity <> '' FROM pg_catalog.pg_attribute
    WHERE attrelid = to_regclass(:log) AND attname = :column"""
_LOCK_CLASS: Final = int.from_bytes(b"Elog")
"""The first half of the key of a log's lock; the second half is the log's OID. The chance that
another program uses the same first half is 1 to 2^32.
"""
_LOCKS: Final = """
    SELECT FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
      AND classid = CAST(:class AS bigint)::oid
      AND objid = CAST(CAST(:log AS text) AS regclass)::oid
      AND objsubid = 2
      AND granted"""
_HOLDS_LOCK: Final = f"EXISTS ({_LOCKS} AND pid = pg_backend_pid())"
_KEY: Final = ":class, CAST(CAST(:log AS text) AS regclass)::oid::integer"
_CONSUMER_CLASS: Final = int.from_bytes(b"Econ")
"""The first half of the key of a consumer's lock; the second half is a hash of the log's OID and
the consumer's name.
"""
_REMOVAL_CLASS: Final = int.from_bytes(b"Erem")
"""The first half of the key of a lock; the second half is the log's OID. Because of this lock, no
consumer is registered while rows are removed, and no row is removed while a consumer is registered.
"""
_CONSUMER_KEY: Final = (
    "hashtext(CAST(CAST(:log AS text) AS regclass)::oid::text || '/' || CAST(:consumer AS text))"
)
_CONSUMER_LOCKS: Final = f"""
    SELECT FROM pg_catalog.pg_locks
    WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
      AND classid = CAST(:class AS bigint)::oid AND objid = ({_CONSUMER_KEY})::oid
      AND objsubid = 2 AND granted"""  # noqa: S608 - quoted names

_HOLDER: Final = """
    SELECT a.pid, coalesce(a.usename::text, ''), coalesce(a.application_name, ''),
           coalesce(host(a.client_addr), ''), a.backend_start,
           coalesce(a.application_name, '')
               NOT IN ('eventlog', current_setting('application_name'))
    FROM pg_catalog.pg_stat_activity AS a
    WHERE EXISTS ({locks} AND pg_locks.pid = a.pid)"""
"""The statement that reads the session with one of ``{locks}``, as the fields of a ``LockHolder``.
``{locks}`` is a SELECT of pg_locks that ends in its WHERE clause.
"""


class _Asked(NamedTuple):
    """A right that a session may have on a table, a sequence or a column."""

    kind: str
    name: str
    right: str
    words: str
    """The right in a message."""
    column: str | None = None


class PostgresLog(OpenLog):
    """A log on PostgreSQL."""

    db: PostgresDatabase
    dialect: PostgreSQL

    def identity(self) -> str:
        # A standby that takes over has the same identity; a restored dump has a different one.
        # Every role may read the cluster's identifier unless that right was revoked.
        parts = self._identity_parts()
        return "/".join(
            ["postgresql", *(parts[name] for name in ("cluster", "database") if name in parts)]
        )

    def server_parts(self) -> dict[str, str]:
        parts = self._identity_parts()
        try:
            with self.connection.begin_nested():
                parts["timeline"] = str(self.db.scalar(f"SELECT {TIMELINE}"))
        except DBAPIError as error:  # a server that only speaks PostgreSQL's protocol
            if error.connection_invalidated:
                raise
        return parts

    def try_lock(self) -> bool:
        # The session checks first, since a lock that is taken twice must be released twice.
        taken = f"SELECT CASE WHEN {_HOLDS_LOCK} THEN true ELSE pg_try_advisory_lock({_KEY}) END"
        return bool(self._ask_lock(taken).scalar_one())

    def is_locked(self) -> bool:
        return bool(self._ask_lock(f"SELECT EXISTS ({_LOCKS})").scalar_one())

    def read_lock_holder(self, consumer: str = "") -> LockHolder | None:
        locks = _CONSUMER_LOCKS if consumer else _LOCKS
        found = self._ask_lock(_HOLDER.format(locks=locks), consumer).first()
        return None if found is None else LockHolder(*found)

    def holds_lock(self) -> bool:
        return bool(self._ask_lock(f"SELECT {_HOLDS_LOCK}").scalar_one())

    def unlock(self) -> None:
        self._ask_lock(f"SELECT CASE WHEN {_HOLDS_LOCK} THEN pg_advisory_unlock({_KEY}) END")

    def try_consumer_lock(self, consumer: str) -> bool:
        taken = f"SELECT pg_try_advisory_lock(:class, {_CONSUMER_KEY})"
        return bool(self._ask_lock(taken, consumer).scalar_one())

    def is_consumer_locked(self, consumer: str) -> bool:
        locked = f"SELECT EXISTS ({_CONSUMER_LOCKS})"
        return bool(self._ask_lock(locked, consumer).scalar_one())

    def lock_registering(self) -> None:
        self._removal_lock("pg_advisory_xact_lock")

    def lock_removing(self) -> None:
        self._removal_lock("pg_advisory_xact_lock_shared")

    def lock_requeuing(self) -> None:
        self.connection.exec_driver_sql(
            self.statement("lock_requeuing"),
            {"table": qualified(self.table.schema, self.table.name)},
        )

    def next_record_id(self) -> int | None:
        following: list[int] = []
        for numbering in ask(self, "numberings", Numbering):
            if not _has_right(self.connection, "sequence", numbering.name, "SELECT"):
                return None
            number = f"last_value + CASE WHEN is_called THEN {int(numbering.increment)} ELSE 0 END"
            sequence = bindable(numbering.name)
            following.append(
                int(
                    self.db.scalar(f"SELECT {number} FROM {sequence}")  # noqa: S608 - quoted names
                )
            )
        return max(following, default=None)

    def lacking(self, needed: NeededRights) -> list[str]:
        asked = [one for part, right in needed for one in self._asked(part, right)]
        binds = {
            "schema": self.table.schema,
            "kinds": [one.kind for one in asked],
            "names": [one.name for one in asked],
            "rights": [one.right for one in asked],
            "columns": [one.column for one in asked],
        }
        words = [f"USAGE on schema {self.table.schema}", *(one.words for one in asked)]
        return [words[number] for (number,) in self.db.fetch(_LACKING, binds)]

    def _asked(self, part: Part, right: Right) -> Iterator[_Asked]:
        """Yield what the server is asked about a right on a part."""
        name = name_of(self.table, part)
        there = qualified(self.table.schema, name)
        if part is Part.NUMBERS:
            drawing = self.dialect.drawing
            yield _Asked("sequence", there, drawing, f"{drawing} on sequence {name}")
        elif right.columns:
            for column in map(self.table.column, right.columns):
                words = f"UPDATE on column {column} of table {name}"
                yield _Asked("column", there, "UPDATE", words, column)
        else:
            statement = right.statement
            yield _Asked("table", there, statement, f"{statement} on table {name}")

    def grants(self, rights: Rights, user: str) -> list[str]:
        statements = super().grants(rights, user)
        if self.table.schema is not None:
            statements.insert(
                0, f"GRANT USAGE ON SCHEMA {self.dialect.quote(self.table.schema)} TO {user}"
            )
        # Without a right on the schema, a role cannot see which sequence numbers the rows.
        if Part.RECORD_IDS in rights and (
            self.table.schema is None
            or _has_right(self.connection, "schema", self.table.schema, "USAGE")
        ):
            # An identity column needs no right on its sequence.
            is_identity = self.connection.execute(
                sa.text(_IS_IDENTITY),
                {
                    "log": qualified(self.table.schema, self.table.name),
                    "column": self.table.column("record_id"),
                },
            ).scalar()
            words = {Right.SELECT: "SELECT", Right.DRAW: "" if is_identity else "USAGE"}
            granted = ", ".join(
                words[one] for one in words if one in rights[Part.RECORD_IDS] and words[one]
            )
            statements += [
                f"GRANT {granted} ON SEQUENCE {numbering.name} TO {user}"
                for numbering in ask(self, "numberings", Numbering)
                if granted
            ]
        return statements

    def _granted_on(self, part: Part) -> Sequence[str]:
        named = super()._granted_on(part)
        return [f"SEQUENCE {name}" for name in named] if part is Part.NUMBERS else named

    def write_batch(self, walk: Walk, reached: str | None, limit: int) -> ResyncBatch:
        try:
            return self._write_batch(walk, reached, limit)
        except DBAPIError as error:
            if not is_unreadable(error):
                raise
        # The last key cannot be read: the batch ends at one that can, or at the end of the walk.
        keys, unreadable = self.walked_keys(walk, reached, limit)
        before = sum(place < len(keys) for place, _ in unreadable)
        if keys:
            return self._write_batch(walk, reached, len(keys) + before)
        return self._write_batch(walk, reached, None)

    def _write_batch(self, walk: Walk, reached: str | None, limit: int | None) -> ResyncBatch:
        """Log the next ``limit`` objects. None = all objects; the last key is then not returned."""
        statement = self.dialect.batch_statement(
            walk, continues=reached is not None, ends=limit is None
        )
        parameters = {
            "limit": limit,
            "class_name": walk.cls.name,
            **self.dialect._binds(walk, reached),
        }
        with self.db.names_as_logged(walk.cls.key):
            rows = fetch_within(self.connection, statement, parameters)
        written, last = rows[0] if rows else (0, reached)
        is_last = limit is None or written < limit
        return ResyncBatch(rows=written, missing=0, reached=last, is_last=is_last)

    def keys_after(self, walk: Walk, reached: str | None, limit: int) -> list[str]:
        return self.walked_keys(walk, reached, limit).keys

    def walked_keys(self, walk: Walk, reached: str | None, limit: int) -> WalkedKeys:
        if not may_be_unreadable(self.connection):
            return WalkedKeys([str(key) for (key,) in self._keys_after(walk, reached, limit)])
        keys: list[str] = []
        unreadable: list[tuple[int, str]] = []
        for (key,) in enough_readable(partial(self._keys_after, walk, reached), limit, 1):
            if is_readable(key):
                keys.append(key)
            else:
                unreadable.append((len(keys), key))
        return WalkedKeys(keys, unreadable)

    def _keys_after(self, walk: Walk, reached: str | None, limit: int) -> PlainRows:
        statement = self.dialect.batch_statement(walk, continues=reached is not None, writes=False)
        binds = {
            name: value
            for name, value in self.dialect._binds(walk, reached).items()
            if name != "event_type"
        }
        with self.db.names_as_logged(walk.cls.key):
            return fetch_readable(self.connection, statement, {"limit": limit, **binds})

    def estimate(self, walk: Walk, reached: str | None) -> int:
        # This is the number of rows that the planner expects. It has no statistics for a small
        # table that was never analysed, but counting such a table is cheap.
        ((plan,),) = self._fetch_walk(
            walk, reached, "EXPLAIN (FORMAT JSON) SELECT %(event_type)s::smallint"
        )
        expected = plan[0]["Plan"]
        if expected["Total Cost"] < _CHEAP:
            return self.count(walk, reached)
        return int(expected["Plan Rows"])

    def count(self, walk: Walk, reached: str | None) -> int:
        ((rows,),) = self._fetch_walk(walk, reached, "SELECT count(%(event_type)s::smallint)")
        return int(rows)

    def _fetch_walk(self, walk: Walk, reached: str | None, select: LiteralString) -> PlainRows:
        condition = self.dialect.walk_condition(walk, continues=reached is not None)
        return fetch(
            self.connection,
            f"{select} FROM {self.dialect.walk_rows(walk)} WHERE {condition}",
            self.dialect._binds(walk, reached),
        )

    def write_keys(self, selection: Selection, keys: Sequence[str]) -> None:
        parameters = {
            "event_type": int(selection.event_type),
            "class_name": selection.class_name,
            "keys": list(keys),
        }
        self.connection.exec_driver_sql(self.statement("write_keys"), parameters)

    def read_fields(self, window: Window, fields: Sequence[str]) -> Iterator[PlainRows]:
        # Rows as the driver returns them, and never more at a time than fit into the CPU's cache.
        self.db.choose_plans()
        statement = self.dialect.window_statement(self.table, window, fields)
        parameters = self.dialect.window_parameters(window)
        if may_be_unreadable(self.connection):
            return _in_parts(self._readable(statement, parameters, fields), _AT_ONCE)
        return fetch_fragments(self.connection, statement, parameters, _AT_ONCE, OF_LOG_ALONE)

    def _readable(self, statement: str, parameters: Binds, fields: Sequence[str]) -> PlainRows:
        """Return the rows of a statement on the log, including rows with unreadable texts. The
        first field of a row is record_id.
        """
        # A role's name may come from a database of another encoding.
        unsure = [place for place, name in enumerate(fields) if name == "perpetrator"]
        return fetch_readable(self.connection, statement, parameters, OF_LOG_ALONE, unsure=unsure)

    def log_rows(self, statement: str, parameters: Binds) -> list[LogRow]:
        self.db.choose_plans()
        with without_collector():
            return list(map(log_row, self._readable(statement, parameters, LogRow._fields)))

    def poll(
        self, window: Window, fields: Sequence[str], consumer: str
    ) -> Iterator[PlainRows] | None:
        parameters = dict(self.dialect.window_parameters(window))
        if consumer:
            parameters["owner"] = consumer
        statement = _poll_statement(self, window, tuple(fields), consumer)
        try:
            cursor = run_alone(self.connection, statement, parameters)
            if cursor is not None:
                fragments = chunks_of(cursor, _AT_ONCE)
            elif may_be_unreadable(self.connection):
                rows = fetch_within(self.connection, statement, parameters, OF_LOG_ALONE)
                fragments = _in_parts(rows, _AT_ONCE)
            else:
                fragments = fetch_fragments(
                    self.connection, statement, parameters, _AT_ONCE, OF_LOG_ALONE
                )
            first = next(fragments)
        except DBAPIError as error:
            if not is_unreadable(error):
                raise
            expect_unreadable(self.connection)
            return None
        (asked, *_), *rows = first
        if asked != 0:
            fragments.close()
            return None
        return chain([rows], fragments)

    def run_statement(
        self,
        name: str,
        parameters: Binds,
        *,
        alone: bool,
        first: str | None = None,
        **words: str,
    ) -> int | None:
        statement = self.statement(name, **words)
        before = None if first is None else self.statement(first)
        cursor = run_alone(self.connection, statement, parameters, before) if alone else None
        if cursor is None:
            return super().run_statement(name, parameters, alone=alone, first=first, **words)
        if cursor.description is None:
            return cursor.rowcount
        row = cursor.fetchone()
        return None if row is None else int(row[0])

    def end_delivery(
        self, status: str | None, ranges: Ranges, ended: int, *, durable: bool, alone: bool
    ) -> int:
        name = "delete_ending" if status is None else "mark_ending"
        parameters = {**bounds(ranges), "ended": ended}
        if status is not None:
            parameters["status"] = status
        self.db.choose_plans()
        changed = self.run_statement(
            name, parameters, alone=alone, is_committed=committing_sql(self, durable=durable)
        )
        return changed or 0

    def read_rows(self, ranges: Ranges) -> list[LogRow]:
        return self.log_rows(self.statement("read_rows"), bounds(ranges))

    def read_columns(self, ranges: Ranges, fields: Sequence[str]) -> PlainRows:
        self.db.choose_plans()
        statement = self.statement("read_rows", fields=self.dialect.log_fields(self.table, fields))
        return self._readable(statement, bounds(ranges), fields)

    def change_rows(self, statement: str, ranges: Ranges, **values: object) -> int:
        self.db.choose_plans()
        return self.connection.exec_driver_sql(
            statement, {**bounds(ranges), **values}, execution_options=OF_LOG
        ).rowcount

    def open_writers(self) -> frozenset[str] | None:
        statement = self.statement("open_writers")
        names = {
            name
            for (name,) in fetch(
                self.connection,
                statement,
                {"table": self.dialect.qualified(self.table.schema, self.table.name)},
                NEUTRAL_ALONE,
            )
        }
        return None if None in names else frozenset(names)

    def add_transaction_ids(self) -> None:
        transaction_ids.add(self)

    def next_number(self) -> int:
        name = {"name": qualified(self.table.schema, self.table.number_sequence)}
        return int(
            self.connection.execute(
                sa.text("SELECT nextval(CAST(CAST(:name AS text) AS regclass))"),
                name,
                execution_options=NEUTRAL,
            ).scalar_one()
        )

    def draw_numbers(self, number: int) -> int:
        statement = (
            "SELECT max(nextval(CAST(CAST(:name AS text) AS regclass))) FROM generate_series(1, "
            ":number)"
        )
        binds = {"name": qualified(self.table.schema, self.table.number_sequence), "number": number}
        return int(self.connection.execute(sa.text(statement), binds).scalar_one())

    def _identity_parts(self) -> dict[str, str]:
        """Return the facts that identify the database and its log: ``database``, and ``cluster`` if
        the role may read it.
        """
        deliveries = {"deliveries": qualified(self.table.schema, self.table.number_sequence)}
        parts = {"database": str(self.db.scalar(_DATABASE_AND_NUMBERS, deliveries))}
        if (cluster := system_identifier(self.connection)) is not None:
            parts["cluster"] = cluster
        return parts

    def _ask_lock(self, statement: str, consumer: str = "") -> CursorResult[Any]:
        """Run a statement about the lock of the log, or of a consumer."""
        parameters = {"log": qualified(self.table.schema, self.table.name)}
        whose = {"consumer": consumer, "class": _CONSUMER_CLASS}
        return self.connection.execute(
            sa.text(statement), {**parameters, **(whose if consumer else {"class": _LOCK_CLASS})}
        )

    def _removal_lock(self, function: str) -> None:
        statement = f"SELECT {function}(:class, CAST(CAST(:log AS text) AS regclass)::oid::integer)"
        self.connection.execute(
            sa.text(statement),
            {"class": _REMOVAL_CLASS, "log": qualified(self.table.schema, self.table.name)},
            execution_options=NEUTRAL,
        )


def _in_parts(rows: PlainRows, size: int) -> RowChunks:
    """Yield rows in lists of ``size``; the last list may be shorter."""
    yield from (rows[place : place + size] for place in range(0, len(rows), size))


_POLLS: Final[dict[tuple[object, ...], str]] = {}
"""The cached statements of polls: composing the text of a statement takes longer than
sending it.
"""


def _poll_statement(
    log: PostgresLog, window: Window, fields: tuple[str, ...], consumer: str
) -> str:
    kind = (window.statement, window.statuses, window.value_bytes)
    key = (log.table, *kind, fields, bool(consumer))
    if key not in _POLLS:
        if len(_POLLS) >= _MAX_POLLS:
            _POLLS.clear()
        _POLLS[key] = log.statement(
            "poll",
            unasked=unasked_sql(log, consumer),
            others=", NULL" * (len(fields) - (window.value_bytes is None)),
            window=log.dialect.window_statement(log.table, window, fields),
        )
    return _POLLS[key]


def _has_right(conn: Connection, kind: str, name: str, right: str) -> bool:
    statement = f"SELECT has_{kind}_privilege(%(name)s, %(right)s)"
    return bool(conn.exec_driver_sql(statement, {"name": name, "right": right}).scalar())
