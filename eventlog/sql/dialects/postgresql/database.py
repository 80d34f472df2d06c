"""A database in a session of PostgreSQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from eventlog.core import table_key
from eventlog.core.catalog import Attribute, Catalog, Column, Database, ObjectClass
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import DatabaseError
from eventlog.sql.dialects.postgresql.log import PostgresLog
from eventlog.sql.dialects.postgresql.log_session import (
    OTHER_PLANS,
    begin_log_session,
    is_log_session,
)
from eventlog.sql.dialects.postgresql.objects import (
    column_type,
    objects_statement,
    range_statement,
    table_of,
)
from eventlog.sql.dialects.postgresql.rights import denied
from eventlog.sql.dialects.postgresql.search_path import unsafe_schemas
from eventlog.sql.dialects.postgresql.text import (
    CONDITION_TOKEN,
    ESCAPING_TOKEN,
    SEARCH_PATH,
    adopt,
    array_of,
    shows_names,
)
from eventlog.sql.dialects.postgresql.transaction_ids import HAS_COLUMN
from eventlog.sql.dialects.postgresql.unreadable import (
    all_texts,
    enough_readable,
    fetch_readable,
    is_readable,
    may_be_unreadable,
    storable_in,
)
from eventlog.sql.log_table import TRANSACTION_ID, LogTable
from eventlog.sql.port.database import UnsafeSchema
from eventlog.sql.port.dialect import CurrentRow, child_of
from eventlog.sql.port.log_operations import (
    UTF_8,
    FindKeys,
    KeyOrder,
    KeyValues,
    PresentKeys,
    RangeReader,
    order_of_values,
    range_binds,
)
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.snapshot_proof import SnapshotProof, proof_of
from eventlog.sql.port.sql_files import (
    AS_ANY,
    NEUTRAL,
    NEUTRAL_ALONE,
    OF_CURSOR,
    Binds,
    Options,
    PlainRow,
    PlainRows,
    RowChunks,
    by_relation,
    fetch,
    grouped,
    missing_schema,
    qualified,
    statements,
    without_collector,
)
from eventlog.sql.sql_text import why_not_one

if TYPE_CHECKING:
    from eventlog.sql.dialects.postgresql import PostgreSQL

_CLOSE: Final = "CLOSE eventlog_rows"
_TIMEOUTS: Final = "idle_in_transaction_session_timeout", "transaction_timeout", "statement_timeout"
_SQL: Final = statements(__package__, "reflect.sql")
PROOF: Final = statements(__package__, "snapshot.sql")["proof"]
"""The statement that reads the rows for ``proof_of``: the relations that a database snapshot may
not show as they were.
"""
_QUESTIONS: Final = ("columns", "unique_keys", "foreign_keys", "partitions")
_TABLES_THERE: Final = """
    SELECT c.relname::text FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = ANY (%(names)s::text[]) AND c.relkind IN ('r', 'p', 'f', 'v', 'm')
      AND CASE WHEN %(schema)s::text IS NULL THEN pg_table_is_visible(c.oid)
               ELSE n.nspname = %(schema)s::text END"""
_DURABLE: Final = """
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"""
_FLUSHED: Final = """
    SELECT pg_catalog.pg_logical_emit_message(true, 'eventlog', CAST('' AS text))
    WHERE pg_catalog.pg_current_wal_flush_lsn() < pg_catalog.pg_current_wal_insert_lsn()"""
_BY_INDEX: Final = "eventlog_by_index"
"""A key of ``Connection.info``. The value has the transaction or savepoint in which plans were
switched off, and the earlier settings.
"""


class PostgresDatabase(OpenDatabase):
    """A session of PostgreSQL."""

    dialect: PostgreSQL

    def log(self, table: LogTable) -> PostgresLog:
        return PostgresLog(self, table)

    def why_not_one(self, condition: str) -> str | None:
        session: Any = self.connection.connection.dbapi_connection
        is_plain = session.info.parameter_status("standard_conforming_strings") != "off"
        return why_not_one(condition, CONDITION_TOKEN if is_plain else ESCAPING_TOKEN)

    def denied(self) -> list[str]:
        return denied(self.connection)

    def begin_reading(self, seconds: int) -> None:
        self.connection.exec_driver_sql(
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        )
        self.limit_statements(seconds)

    def limit_statements(self, seconds: int) -> None:
        self.connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{int(seconds)}s'")

    def has_table(self, schema: str | None, name: str) -> bool:
        return not self.missing_tables(schema, (name,))

    def missing_tables(self, schema: str | None, names: Collection[str]) -> Collection[str]:
        there = self.fetch(_TABLES_THERE, {"schema": schema, "names": list(names)})
        return set(names) - {name for (name,) in there}

    def columns(self, schema: str | None, name: str) -> Sequence[Column]:
        statement = sa.text(_SQL["columns_of"])
        return [
            Column(row.name, _type_in_log(row))
            for row in self.connection.execute(statement, {"schema": schema, "name": name})
        ]

    def is_partitioned(self, schema: str | None, name: str) -> bool:
        statement = (
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_partitioned_table "
            "WHERE partrelid = to_regclass(%(name)s))"
        )
        named = {"name": qualified(schema, name)}
        return bool(self.scalar(statement, named))

    def transaction_column(self, schema: str | None, name: str) -> str | None:
        named = {"table": qualified(schema, name), "column": TRANSACTION_ID}
        found = self.scalar(HAS_COLUMN, named)
        return TRANSACTION_ID if found else None

    def choose_plans(self) -> None:
        """Allow only plans that use an index, if there is one, until the transaction ends or
        ``usual_plans`` is called.

        The settings are sent once per transaction, since sending costs a round trip. In a
        publisher's session the settings depend on the kind of each statement.
        """
        if is_log_session(self.connection) or _has_chosen_plans(self.connection):
            return
        read = ", ".join(f"current_setting('{name}')" for name in OTHER_PLANS)
        row = self.connection.exec_driver_sql(
            f"SELECT {read}, {_written()}", dict.fromkeys(OTHER_PLANS, "off")
        ).one()
        self.connection.info[_BY_INDEX] = (
            self.connection.get_nested_transaction() or self.connection.get_transaction(),
            row[: len(OTHER_PLANS)],
        )

    def session_id(self) -> str:
        return str(self.scalar("SELECT pg_backend_pid()"))

    def current_user(self) -> str:
        return str(self.scalar("SELECT session_user"))

    def fetch_texts(
        self,
        statement: sa.Executable,
        binds: Binds | None = None,
        options: Options = AS_ANY,
    ) -> Iterable[Sequence[Any]]:
        if may_be_unreadable(self.connection):
            return all_texts(self.connection, statement, binds or {})
        return super().fetch_texts(statement, binds, options)

    def storable(self, text: str) -> str:
        return storable_in(self.connection, super().storable(text))

    def unsafe_schemas(self) -> Sequence[UnsafeSchema]:
        return unsafe_schemas(self.connection)

    def has_user(self, name: str) -> bool:
        roles = "SELECT count(*) FROM pg_catalog.pg_roles WHERE rolname = %(name)s"
        return bool(self.scalar(roles, {"name": name}))

    def unverified(self) -> tuple[str, str, str] | None:
        driver: Any = self.connection.connection.driver_connection
        mode = driver.info.get_parameters().get("sslmode", "prefer")
        if mode == "verify-full" or driver.info.host.startswith("/"):
            return None
        has = "TLS, whose server is not verified" if driver.pgconn.ssl_in_use else "no TLS"
        return driver.info.host, f"{has} (sslmode={mode})", "sslmode=verify-full&sslrootcert=FILE"

    def is_standby(self) -> bool:
        return bool(self.scalar("SELECT pg_is_in_recovery()"))

    def read_only(self) -> str | None:
        settings = (
            "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
        )
        is_standby, is_read_only = self.connection.exec_driver_sql(settings).one()
        if is_standby:
            return "the server is a standby, which is read-only"
        return "default_transaction_read_only is on for this session" if is_read_only else None

    def begin_publishing(self) -> None:
        # Other sessions may commit without waiting for the disk. A commit here makes all earlier
        # commits durable, so that no event is sent whose transaction a crash would undo
        # (spec/event-log.md 12). The setting remote_apply stays, since it waits for even more.
        self.connection.exec_driver_sql(_DURABLE)
        # Each statement gets a new database snapshot, whatever the role's default is. A snapshot
        # that is taken after a transaction has ended shows its rows (spec/event-log.md 13.1).
        self.connection.exec_driver_sql(
            "SELECT set_config('default_transaction_isolation', 'read committed', false)"
        )

    def prepare_log_statements(self) -> None:
        begin_log_session(self.connection)

    def make_durable(self) -> None:
        # A transaction that has written WAL waits at its commit for all earlier WAL. Usually this
        # is free: the committing sessions have already waited for the disk.
        try:
            with self.connection.begin_nested():
                self.connection.exec_driver_sql(_FLUSHED)
        except DBAPIError as error:  # a server that only speaks PostgreSQL's protocol
            if error.connection_invalidated:
                raise

    def reflect(self, schema: str | None) -> Database:
        row = self.connection.execute(sa.text(_SQL["schema"]), {"schema": schema}).first()
        if row is None:
            raise missing_schema(schema)
        oid, name = row
        rows = {
            which: self.connection.execute(sa.text(_SQL[which]), {"schema": oid}).all()
            for which in _QUESTIONS
        }
        names: dict[int, dict[int, str]] = defaultdict(dict)
        for row in rows["columns"]:
            names[row.relation][row.position] = row.column_name

        if any(row.sql in ("money", "money[]") for row in rows["columns"]):
            point = self._point_of_money()
        else:
            point = 2
        columns = by_relation(rows["columns"])
        unique_keys = by_relation(rows["unique_keys"])
        foreign_keys = by_relation(rows["foreign_keys"])
        return Database(
            dialect=self.dialect.name,
            schema=name,
            tables=tuple(
                table_of(
                    oid,
                    of_table,
                    names[relation],
                    unique_keys[relation],
                    foreign_keys[relation],
                    point,
                )
                for relation, of_table in columns.items()
            ),
            partitions={
                row.partition: row.root
                if row.root_schema == oid
                else f"{row.root_schema_name}.{row.root}"
                for row in rows["partitions"]
            },
        )

    def foreign_tables(self, catalog: Catalog) -> dict[str, list[str]]:
        parameters = {"schema": catalog.schema, "tables": catalog.table_names}
        rows = self.connection.execute(sa.text(_SQL["foreign_tables"]), parameters)
        return grouped((name, ".".join(foreign)) for name, *foreign in rows)

    def _point_of_money(self) -> int:
        """Return how many digits a value of the type money has after the point: the digits of the
        currency of ``lc_monetary`` (spec/xds.md 6.1). The setting of the database counts, or else
        the setting with which the session began.
        """
        locale = self.connection.execute(sa.text(_SQL["monetary"])).scalar_one()
        try:
            with self.connection.begin_nested() as savepoint:
                changed = {"locale": locale}
                self.connection.exec_driver_sql(
                    "SELECT set_config('lc_monetary', %(locale)s, true)", changed
                )
                point = self.scalar("SELECT pg_catalog.scale(CAST(CAST(1 AS money) AS numeric))")
                savepoint.rollback()
        except DBAPIError as error:  # the server no longer has the locale
            if error.connection_invalidated:
                raise
            return 2
        return int(point)

    def fingerprint(self, catalog: Catalog) -> str:
        # A pattern may select the watched tables, so a new table may be a class: the names of the
        # schema's tables are included.
        parameters = {"schema": catalog.schema, "tables": catalog.table_names}
        return str(self.connection.execute(sa.text(_SQL["fingerprint"]), parameters).scalar_one())

    def read_current(
        self,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> dict[str, CurrentRow]:
        keys_and_texts = list(self.dialect.key_values(cls, keys))
        if not keys_and_texts:
            return {}
        names = [attribute.name for attribute in attributes]
        lists = [cls.is_view or child_of(cls, attribute) is not None for attribute in attributes]
        rows: dict[str, CurrentRow] = {}
        columns = zip(*(texts for _, texts in keys_and_texts), strict=True)
        for n, *values in self._found(schema, cls, tuple(attributes), columns):
            rows[keys_and_texts[n - 1][0]] = {
                name: (value or []) if is_list else [value]
                for name, value, is_list in zip(names, values, lists, strict=True)
            }
        return rows

    def _found(
        self,
        schema: str | None,
        cls: ObjectClass,
        read: tuple[Attribute, ...],
        keys: Iterable[Sequence[Any]],
    ) -> PlainRows:
        """Return the rows of ``objects_statement``; ``keys`` has the values of each key column."""
        usual_plans(self.connection)
        parameters = {f"k{i}": array_of(column) for i, column in enumerate(keys)}
        statement = objects_statement(schema, cls, read)
        columns = (*cls.key, *(attribute.column for attribute in read))
        with without_collector(), self.names_as_logged(columns):
            return fetch_readable(self.connection, statement, parameters)

    @contextmanager
    def names_as_logged(self, columns: Iterable[Column]) -> Iterator[None]:
        """Let statements read the values of columns as triggers log them: with the search path of
        triggers, if that matters (spec/triggers.md 6).
        """
        if not shows_names(columns):
            yield
            return
        changed = "set_config('search_path', %(path)s, true)"
        shown = f"SELECT current_setting('search_path'), {changed}"
        before = self.connection.exec_driver_sql(shown, {"path": SEARCH_PATH}).scalar_one()
        yield  # an error ends the transaction, and with it the setting
        self.connection.exec_driver_sql(f"SELECT {changed}", {"path": before})

    def read_ranges(
        self, schema: str | None, cls: ObjectClass, attributes: Sequence[Attribute]
    ) -> RangeReader | None:
        orders = self._key_orders(schema, cls)
        if orders is None:
            return None

        width = len(cls.key)

        def rows_of_range(statement: str, bounds: Binds, limit: int) -> PlainRows:
            wanted = {**bounds, "limit": limit}
            return fetch_readable(self.connection, statement, wanted, width=width)

        def read(behind: KeyValues | None, last: KeyValues | None, limit: int) -> PlainRows:
            usual_plans(self.connection)
            statement = range_statement(
                schema, cls, tuple(attributes), continues=behind is not None, ends=last is not None
            )
            bounds = range_binds(behind, last)
            columns = [attribute.column for attribute in attributes]
            with without_collector(), self.names_as_logged(columns):
                if not may_be_unreadable(self.connection):
                    rows = rows_of_range(statement, bounds, limit)
                else:
                    rows = [
                        row
                        for row in enough_readable(
                            partial(rows_of_range, statement, bounds), limit, width
                        )
                        if all(map(is_readable, row[:width]))
                    ]
            return self._objects_of_view(schema, cls, attributes, rows) if cls.is_view else rows

        return RangeReader(orders, read, *self._lookups(schema, cls, attributes))

    def _lookups(
        self, schema: str | None, cls: ObjectClass, attributes: Sequence[Attribute]
    ) -> tuple[FindKeys, PresentKeys]:
        """Return the functions that find objects by the values of their keys, which are integers
        and texts.
        """
        limits = [
            (i, 1 << (column.type.bits - 1))
            for i, column in enumerate(cls.key)
            if column.type.kind is Kind.INTEGER
        ]

        def rows_of(
            keys: Sequence[KeyValues], read: tuple[Attribute, ...]
        ) -> Iterator[tuple[KeyValues, PlainRow]]:
            for i, limit in limits:  # a cast would refuse other integers
                keys = [key for key in keys if -limit <= key[i] < limit]
            if not keys:
                return
            columns = (list(map(str, column)) for column in zip(*keys, strict=True))
            found = self._found(schema, cls, read, columns)
            for n, *texts in sorted(found, key=itemgetter(0)):
                yield keys[n - 1], tuple(texts)

        def find(keys: Sequence[KeyValues]) -> PlainRows:
            found = rows_of(keys, tuple(attributes))
            if not cls.is_view:
                return [key + texts for key, texts in found]
            return [
                (*key, *(one[0] if len(one) == 1 else one for one in texts)) for key, texts in found
            ]

        def present(keys: Sequence[KeyValues]) -> Collection[KeyValues]:
            return {key for key, _ in rows_of(keys, ())}

        return find, present

    def _key_orders(self, schema: str | None, cls: ObjectClass) -> tuple[KeyOrder, ...] | None:
        """Return the order of each key column; None if the order of a column is not known."""
        orders = {column.name: order_of_values(column) for column in cls.key}
        texts = [one for one in cls.key if one.type.kind is Kind.CHARACTER and one.deterministic]
        if texts:
            by_name = self._text_orders(schema, cls.table.name)
            orders |= {column.name: by_name.get(column.name) for column in texts}
        known = tuple(order for order in orders.values() if order is not None)
        return known if len(known) == len(orders) else None

    def _text_orders(self, schema: str | None, name: str) -> dict[str, KeyOrder]:
        """Return the order of texts in each column that has a collation, for a table or view."""
        version = "NULL"
        if (self.connection.dialect.server_version_info or ()) >= (15,):
            version = "pg_catalog.pg_database_collation_actual_version(d.oid)"
        statement = sa.text(_SQL["collations"].format(version_of_database=version))
        rows = self.connection.execute(statement, {"relation": qualified(schema, name)})
        return {column: _order_of_texts(*collation) for column, *collation in rows}

    def _objects_of_view(
        self,
        schema: str | None,
        cls: ObjectClass,
        attributes: Sequence[Attribute],
        rows: Sequence[PlainRow],
    ) -> PlainRows:
        """Return the objects of a view. The last value of each of ``rows`` is the number of rows of
        the object, and is left out. An object with several rows gets the values of all of them.
        """
        width = len(cls.key)
        keys = {
            row[:width]: table_key.key_text(
                (column.name, str(value)) for column, value in zip(cls.key, row, strict=False)
            )
            for row in rows
            if row[-1] != 1
        }
        if not keys:
            return [row[:-1] for row in rows]
        found = self.read_current(schema, cls, list(keys.values()), attributes)
        return [
            row[:-1]
            if row[-1] == 1
            else (*row[:width], *map(list, found[keys[row[:width]]].values()))
            for row in rows
        ]

    def fetch_chunks(self, statement: str, parameters: Binds, size: int) -> RowChunks:
        if not may_be_unreadable(self.connection):
            yield from self._chunks_of_cursor(statement, parameters, size)
            return
        # An unreadable text would end the cursor, and its database snapshot. So the cursor reads
        # the first column only, a number that identifies the row.
        numbers = f"SELECT number FROM ({statement}) AS numbered (number)"  # noqa: S608
        chunk = f"SELECT * FROM ({statement}) AS numbered (number) WHERE number = ANY (%(numbers)s)"  # noqa: S608
        with closing(self._chunks_of_cursor(numbers, parameters, size)) as chunks:
            for rows in chunks:
                if not rows:
                    continue
                wanted = {**parameters, "numbers": [number for (number,) in rows]}
                yield fetch_readable(self.connection, chunk, wanted)

    def _chunks_of_cursor(self, statement: str, parameters: Binds, size: int) -> RowChunks:
        # A server-side cursor returns later rows from the same database snapshot, and loads them
        # only when they are requested.
        self.connection.exec_driver_sql(
            f"DECLARE eventlog_rows NO SCROLL CURSOR FOR {statement}",
            dict(parameters),
            execution_options=OF_CURSOR,
        )
        is_full = True
        try:
            while is_full:
                with without_collector():
                    rows = fetch(self.connection, f"FETCH {size} FROM eventlog_rows", {}, NEUTRAL)
                is_full = len(rows) == size
                yield rows
        except GeneratorExit:
            # The caller may have stopped after an error: the transaction then accepts no statement,
            # and its cursors end with it.
            with suppress(SQLAlchemyError, DatabaseError):
                self.connection.exec_driver_sql(_CLOSE)
            raise
        # This is not in a finally block, so that errors of the cursor's statements are raised.
        self.connection.exec_driver_sql(_CLOSE)

    def are_open(self, writers: frozenset[str]) -> bool:
        return writers <= {
            name
            for (name,) in fetch(
                self.connection,
                self.dialect.log_sql["are_open"],
                {"writers": list(writers)},
                NEUTRAL_ALONE,
            )
        }

    def export_snapshot(self) -> str:
        # The database snapshot lives as long as the transaction, whatever the time-outs of the
        # session.
        snapshot = str(self.scalar("SELECT pg_catalog.pg_export_snapshot()"))
        self.connection.exec_driver_sql(
            "SELECT set_config(name, '0', true) FROM pg_catalog.pg_settings WHERE name = ANY "
            "(%(names)s)",
            {"names": list(_TIMEOUTS)},
        )
        return snapshot

    def join_snapshot(self, snapshot: str) -> None:
        self.connection.exec_driver_sql(adopt(snapshot))

    def prove_snapshot(self) -> SnapshotProof:
        return proof_of(self.fetch(PROOF, {}))


def _type_in_log(row: sa.Row[Any]) -> ColumnType:
    """Return the type of a column of a log, which may be any character type: ``name``, too."""
    found = column_type(row.type_name, row.typmod, row.sql)
    return (
        replace(found, kind=Kind.CHARACTER) if found.kind is Kind.OTHER and row.is_text else found
    )


def _order_of_texts(
    provider: str, locale: str, rules: str | None, version: str, encoding: str
) -> KeyOrder:
    """Return the order in which a collation sorts texts; ``provider`` is as in ``pg_collation``."""
    if provider == "b" or (provider == "c" and locale in ("C", "POSIX")):
        return UTF_8 if encoding == "UTF8" else f"bytes of {encoding}"
    return " ".join(filter(None, (encoding, provider, locale, version, rules)))


def usual_plans(conn: Connection) -> None:
    """Restore the settings that the log's statements have switched off in this transaction, since
    statements on other tables need other plans.
    """
    if _has_chosen_plans(conn):
        _, before = conn.info.pop(_BY_INDEX)
        conn.exec_driver_sql(f"SELECT {_written()}", dict(zip(OTHER_PLANS, before, strict=True)))


def _has_chosen_plans(conn: Connection) -> bool:
    transaction, _ = conn.info.get(_BY_INDEX, (None, ()))
    return transaction is not None and transaction in (
        conn.get_transaction(),
        conn.get_nested_transaction(),
    )


def _written() -> str:
    return ", ".join(f"set_config('{name}', %({name})s, true)" for name in OTHER_PLANS)
