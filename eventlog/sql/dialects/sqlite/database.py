"""A database in a session of SQLite."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventlog.core.catalog import Catalog, ChildTable, Column, Database, ObjectClass
from eventlog.errors import DatabaseError, DatabaseUnavailable
from eventlog.sql.dialects.sqlite.log import SQLiteLog
from eventlog.sql.dialects.sqlite.objects import STORED, column_type, fetch_objects, table_of
from eventlog.sql.dialects.sqlite.session import file_of, opened_file, stat_of
from eventlog.sql.dialects.stepwise import StepwiseDatabase
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.snapshot_proof import PROVEN, SnapshotProof
from eventlog.sql.port.sql_files import by_relation, statements

if TYPE_CHECKING:
    from eventlog.sql.dialects.sqlite import SQLite

_MISSING: Final = """
    SELECT value FROM json_each(?) WHERE value COLLATE NOCASE NOT IN (
        SELECT name FROM main.sqlite_master WHERE type IN ('table', 'view'))"""
_COLUMNS: Final = """
    SELECT c.name, c.type, c.hidden
    FROM main.sqlite_master AS t JOIN pragma_table_xinfo(t.name, 'main') AS c
    WHERE t.type IN ('table', 'view') AND t.name = ? ORDER BY c.cid"""
_KEYS: Final = 1000
"""The number of keys in one statement."""


class SQLiteDatabase(StepwiseDatabase):
    """A session of SQLite."""

    dialect: SQLite

    def log(self, table: LogTable) -> SQLiteLog:
        return SQLiteLog(self, table)

    def begin_reading(self, seconds: int) -> None:
        self.connection.exec_driver_sql("PRAGMA query_only = ON")
        self.limit_statements(seconds)

    def limit_statements(self, seconds: int) -> None:
        # How long a statement waits for a lock.
        self.connection.exec_driver_sql(f"PRAGMA busy_timeout = {int(seconds) * 1000}")

    def session_id(self) -> str:
        return f"{os.getpid()}-{id(self.connection.connection.dbapi_connection)}"

    def refuse_replaced(self) -> None:
        path, opened = self.connection.engine.url.database, opened_file(self.connection)
        if not path or opened is None:
            return
        now = stat_of(Path(path))
        if now is not None and os.path.samestat(now, opened):
            return
        file = str(file_of(self.connection))
        if now is None:
            raise DatabaseUnavailable(
                f"the database file {file!r} no longer exists: it was moved or removed. Move it "
                "back, or correct the database URL"
            )
        raise DatabaseUnavailable(
            f"the database file {file!r} was replaced by another file, which will be opened"
        )

    def reflect(self, schema: str | None) -> Database:
        by_table = {
            name: by_relation(self.connection.exec_driver_sql(statement).all())
            for name, statement in statements(__package__, "reflect.sql").items()
        }
        keys = {
            name: tuple(row.name for row in sorted(columns, key=lambda row: row.pk) if row.pk)
            for name, columns in by_table["columns"].items()
        }
        tables = tuple(
            table_of(
                name, columns, keys, by_table["unique_keys"][name], by_table["foreign_keys"][name]
            )
            for name, columns in by_table["columns"].items()
        )
        return Database(dialect=self.dialect.name, schema=None, tables=tables)

    def missing_tables(self, schema: str | None, names: Collection[str]) -> Collection[str]:
        return [*self.connection.exec_driver_sql(_MISSING, (json.dumps([*names]),)).scalars()]

    def columns(self, schema: str | None, name: str) -> Sequence[Column]:
        rows = self.connection.exec_driver_sql(_COLUMNS, (name,))
        return [Column(row.name, column_type(row.type)) for row in rows if row.hidden in STORED]

    def fingerprint(self, catalog: Catalog) -> str:
        # This number rises with every change of the schema.
        return str(self.scalar("PRAGMA main.schema_version"))

    def read_values(
        self,
        schema: str | None,
        cls: ObjectClass,
        child: ChildTable | None,
        columns: tuple[Column, ...],
        keys: Sequence[tuple[Any, ...]],
    ) -> Iterator[tuple[int, Sequence[Any]]]:
        for first in range(0, len(keys), _KEYS):
            chunk = keys[first : first + _KEYS]
            binds = tuple(value for key in chunk for value in key)
            for n, *values in fetch_objects(
                self.connection, cls, child, columns, len(chunk), binds
            ):
                yield first + n, values

    def are_open(self, writers: frozenset[str]) -> bool:
        return not writers

    # Sessions cannot share a database snapshot, and need none here: SQLite has one writer at a
    # time, so record_ids are given in the order of commits, and no later row gets a record_id at or
    # below the highest visible one. No rows are marked while a job has locked the log, so its
    # parts, which end at that row, have the same rows of status N for every reader.

    def export_snapshot(self) -> str:
        # It is the version of the schema.
        return "sqlite-schema-" + str(self.scalar("PRAGMA main.schema_version"))

    def prove_snapshot(self) -> SnapshotProof:
        return PROVEN  # the schema is part of what a transaction sees

    def join_snapshot(self, snapshot: str) -> None:
        if self.export_snapshot() != snapshot:
            raise DatabaseError(
                "the schema of the database has changed since the job began: run the command again"
            )
