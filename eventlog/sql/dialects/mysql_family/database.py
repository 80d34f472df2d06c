"""A database in a session of MySQL or MariaDB."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import DBAPIError

from eventlog.core.catalog import Attribute, Catalog, Database, ObjectClass
from eventlog.core.clock import monotonic, sleep
from eventlog.errors import DatabaseError
from eventlog.sql.dialects.mysql_family import writers as open_writers
from eventlog.sql.dialects.mysql_family.objects import range_statement, table_of
from eventlog.sql.dialects.mysql_family.session import (
    NO_RIGHT_ON_TABLE,
    begin_snapshot,
    error_code,
    sees_triggers,
)
from eventlog.sql.dialects.mysql_family.text import USER, bindable
from eventlog.sql.dialects.stepwise import KeyedDatabase, log_text
from eventlog.sql.port.log_operations import (
    INTEGERS,
    KeyValues,
    RangeReader,
    order_of_values,
    range_binds,
)
from eventlog.sql.port.snapshot_proof import PROVEN, SnapshotProof
from eventlog.sql.port.sql_files import PlainRows, by_relation, fetch, statements, without_collector

if TYPE_CHECKING:
    from eventlog.sql.dialects.mysql_family import Family

_SQL: Final = statements(__package__, "reflect.sql")
_FLUSHED_WITHIN: Final = 60.0
"""How many seconds to wait for the server to write its redo log to the disk; it tries to do so
every second.
"""


class MySQLFamilyDatabase(KeyedDatabase):
    """A session of MySQL or MariaDB."""

    dialect: Family

    @abstractmethod
    def writes_read_only(self) -> bool:
        """Return True if the user of a session may write although the server is read_only."""

    def begin_reading(self, seconds: int) -> None:
        self.connection.exec_driver_sql(self.dialect.reading_limit.format(seconds=int(seconds)))
        begin_snapshot(self.connection)

    def limit_statements(self, seconds: int) -> None:
        limits = (
            self.dialect.reading_limit.format(seconds=int(seconds)),
            f"SET SESSION innodb_lock_wait_timeout = {int(seconds)}",
            f"SET SESSION lock_wait_timeout = {int(seconds)}",
        )
        for limit in limits:
            self.connection.exec_driver_sql(limit)

    def make_durable(self) -> None:
        # A row becomes visible shortly before it is on the server's disk; with
        # innodb_flush_log_at_trx_commit = 0 or 2, up to a second before.
        reached, flushed = self._log_positions()
        until = monotonic() + _FLUSHED_WITHIN
        while flushed < reached:
            if monotonic() > until:
                raise DatabaseError(
                    f"the server has not written its redo log to the disk for {_FLUSHED_WITHIN:g} "
                    "s, so a crash could undo changes that were already read. Set "
                    "innodb_flush_log_at_trx_commit = 1"
                )
            sleep(0.01)
            _, flushed = self._log_positions()

    def _log_positions(self) -> tuple[int, int]:
        """Return two positions of the redo log: the log has been written up to the first position,
        and flushed to the disk up to the second.
        """
        names = self.dialect.redo_log_positions
        found = {
            str(name).lower(): int(value)
            for name, value in fetch(
                self.connection,
                f"SHOW GLOBAL STATUS WHERE variable_name IN ('{names[0]}', '{names[1]}')",
                {},
            )
        }
        return found[names[0].lower()], found[names[1].lower()]

    def are_open(self, writers: frozenset[str]) -> bool:
        return open_writers.are_open(self.connection, writers)

    def unverified(self) -> tuple[str, str, str] | None:
        driver: Any = self.connection.connection.driver_connection
        context = getattr(driver._sock, "context", None)  # of TLS
        if driver.unix_socket or (context is not None and context.check_hostname):
            return None
        has = "no TLS" if context is None else "TLS, whose server is not verified"
        return driver.host, has, "ssl_ca=FILE&ssl_check_hostname=true"

    def read_only(self) -> str | None:
        ((is_read_only, is_tx_read_only),) = fetch(
            self.connection, f"SELECT @@GLOBAL.read_only, {self.dialect.transaction_read_only}", {}
        )
        if is_tx_read_only:
            name = self.dialect.transaction_read_only.rpartition(".")[2]
            return f"{name} is on for its sessions"
        if is_read_only and not self.writes_read_only():
            return "the server is read_only, as a replica is"
        return None

    def current_user(self) -> str:
        return str(self.scalar(f"SELECT {USER}"))

    def session_id(self) -> str:
        return str(self.scalar("SELECT CONNECTION_ID()"))

    def reflect(self, schema: str | None) -> Database:
        by_table = {
            name: by_relation(self.connection.exec_driver_sql(bindable(_SQL[name])).all())
            for name in ("columns", "unique_keys", "foreign_keys")
        }
        tables = [
            table_of(name, columns, by_table["unique_keys"][name], by_table["foreign_keys"][name])
            for name, columns in by_table["columns"].items()
        ]
        return Database(dialect=self.dialect.name, schema=None, tables=tuple(tables))

    def fingerprint(self, catalog: Catalog) -> str:
        return str(self.scalar(bindable(_SQL["fingerprint"])))

    def read_ranges(
        self, schema: str | None, cls: ObjectClass, attributes: Sequence[Attribute]
    ) -> RangeReader | None:
        # UUIDs are not sorted by their text, and texts often without regard to case and blanks.
        orders = tuple(INTEGERS for column in cls.key if order_of_values(column) == INTEGERS)
        if cls.is_view or len(orders) < len(cls.key):
            return None
        columns, width = tuple(one.column for one in attributes), len(cls.key)

        def read(behind: KeyValues | None, last: KeyValues | None, limit: int) -> PlainRows:
            statement = range_statement(
                cls, columns, continues=behind is not None, ends=last is not None
            )
            bounds = range_binds(behind, last)
            with without_collector():
                rows = fetch(self.connection, statement, {"limit": limit, **bounds})
                return [(*row[:width], *map(log_text, row[width:])) for row in rows]

        return RangeReader(orders, read)

    # The server commits every DDL statement by itself: an interrupted migration is run again from
    # its beginning.

    def guarded(self, statement: str) -> str:
        made = re.sub(r"\A(\s*CREATE TABLE) (?!IF NOT EXISTS)", r"\1 IF NOT EXISTS ", statement)
        return re.sub(r"\A(\s*DROP TABLE) (?!IF EXISTS)", r"\1 IF EXISTS ", made)

    def has_table(self, schema: str | None, name: str) -> bool | None:
        try:
            return super().has_table(schema, name)
        except DBAPIError as error:
            # The server hides a table from a user who has no right on it.
            if error_code(error) != NO_RIGHT_ON_TABLE:
                raise
            return None

    def sees_triggers(self, schema: str) -> bool:
        return sees_triggers(self.connection, schema)

    def export_snapshot(self) -> str:
        self.join_snapshot("")
        return str(self.scalar(f"SELECT CONCAT('{self.dialect.name}-', UTC_TIMESTAMP(6))"))

    def join_snapshot(self, snapshot: str) -> None:
        begin_snapshot(self.connection)  # it is taken no earlier than the snapshot

    def prove_snapshot(self) -> SnapshotProof:
        # The server refuses a table that was made or rebuilt after the database snapshot (error
        # 1412).
        return PROVEN
