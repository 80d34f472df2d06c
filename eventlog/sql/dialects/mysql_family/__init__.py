"""The common part of MariaDB and MySQL, both through PyMySQL: their capabilities and their log.

record_ids are AUTO_INCREMENT: each row draws one when it is logged, and a restart keeps the
counter. The comment of the source of flight numbers distinguishes this log from all others
(spec/triggers.md 7.4, spec/event-log.md 10). This package is not a database of its own: ``mariadb``
and ``mysql`` extend its classes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import mysql

from eventlog.core.catalog import Column
from eventlog.core.ranges import Ranges
from eventlog.core.values import ColumnType, Kind
from eventlog.model import LogRow
from eventlog.sql.dialects.mysql_family import text
from eventlog.sql.dialects.mysql_family.objects import FamilyObjects
from eventlog.sql.dialects.mysql_family.session import (
    FamilySessions,
    begin_snapshot,
    sees_triggers,
)
from eventlog.sql.dialects.stepwise import LOG_SQL
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import fetch, statements
from eventlog.sql.windows import Selection

_RANGES: Final = 500
"""The number of ranges of record_ids in one statement."""
_KEYS: Final = 500
"""The number of rows in one INSERT of a resync."""


def _text(length: int) -> sa.types.TypeEngine[str]:
    return mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")


class Family(FamilySessions, FamilyObjects):
    """A log on a server of MySQL's family."""

    capabilities = frozenset(
        {
            "server",
            "roles",
            "concurrent_writers",
            "single_precision",
            "exact_decimals",
            "time_types",
            "time_zones",
            "empty_text",
            "nul_characters",
            "binary_values",
            "owner_look_up",
            "upsert_captured",
        }
    )
    max_identifier = text.MAX_IDENTIFIER
    column_types: ClassVar = {
        "integer": sa.BigInteger(),
        "status": mysql.CHAR(1, charset="ascii", collation="ascii_bin"),
        "event_type": sa.SmallInteger(),
        "event_time": mysql.DATETIME(fsp=6),
        "time": mysql.DATETIME(fsp=6),
        "digest": mysql.CHAR(64, charset="ascii", collation="ascii_bin"),
        "name": _text(130),
        "code": _text(64),
        **dict.fromkeys(
            ("key", "text", "value"), mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin")
        ),
    }
    epilogue = ("COMMIT;",)
    log_sql: ClassVar = {
        **{name: re.sub(r":([a-z_]+)", r"%(\1)s", sql) for name, sql in LOG_SQL.items()},
        **statements(__package__, "log.sql"),
    }
    # The server's own zone, not the session's zone, which is UTC.
    local_now = "CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', @@GLOBAL.time_zone)"
    utc_now = text.UTC_NOW
    quote = staticmethod(text.quote_identifier)
    value_text = staticmethod(text.value_text)
    sees_triggers = staticmethod(sees_triggers)
    bindable = staticmethod(text.bindable)

    def bind(self, name: str) -> str:
        return f"%({name})s"

    def fold_name(self, name: str) -> str:
        return name.partition("@")[0]

    def value_size(self, text: str) -> str:
        return f"OCTET_LENGTH({text})"

    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        if field in ("record_id", "event_type"):
            if column_type is None or column_type.bits:
                return column
            # DECIMAL, which the driver gives as such: a number that is not a BIGINT is not an
            # event type
            is_short = f"{column} BETWEEN {-self.last_record_id} AND {self.last_record_id}"
            return (
                f"CASE WHEN {is_short} THEN CAST({column} AS SIGNED) "
                f"WHEN {column} IS NOT NULL THEN 0 END"
            )
        kind = ColumnType(Kind.TIMESTAMP if field == "event_time" else Kind.CHARACTER)
        return self.value_text(Column(field, column_type or kind), column)

    def log_times(self, column: str, *, is_zoned: bool) -> Mapping[str, str]:
        return {
            "new_time": text.UTC_NOW,
            "time": column,
            "is_due": f"({column} IS NULL OR {column} <= CAST(%(until)s AS DATETIME(6)))",
            "due_order": column,  # NULL sorts first
        }

    def due_time(self, event_time: str) -> str:
        return event_time.removesuffix("Z")  # an event_time with a zone is compared in UTC

    # The text of a few statements contains the ranges of record_ids, of which there may be
    # thousands, since there are no array binds.

    def read_rows(self, conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
        rows: list[LogRow] = []
        for condition in _conditions(log, ranges):
            rows += self.log_rows(conn, self.log_statement(log, "read_rows", ranges=condition), {})
        return sorted(rows, key=itemgetter(0))

    def read_columns(
        self, conn: Connection, log: LogTable, ranges: Ranges, fields: Sequence[str]
    ) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for condition in _conditions(log, ranges):
            statement = self.log_statement(
                log, "read_rows", fields=self.log_fields(log, fields), ranges=condition
            )
            rows += self.fetch(conn, statement, {})
        return sorted(rows, key=itemgetter(0))

    def mark(self, conn: Connection, log: LogTable, letter: str, ranges: Ranges) -> int:
        return self._change(conn, log, "mark", ranges, {"letter": letter})

    def delete(self, conn: Connection, log: LogTable, ranges: Ranges) -> int:
        return self._change(conn, log, "delete", ranges, {})

    def _change(
        self,
        conn: Connection,
        log: LogTable,
        name: str,
        ranges: Ranges,
        binds: Mapping[str, object],
    ) -> int:
        changed = 0
        for condition in _conditions(log, ranges):
            done = conn.exec_driver_sql(
                self.log_statement(log, name, ranges=condition), dict(binds)
            )
            changed += int(done.rowcount)
        return changed

    def write_keys(
        self, conn: Connection, log: LogTable, selection: Selection, keys: Sequence[str]
    ) -> None:
        head, _, row = self.log_statement(log, "write_key").partition("\nVALUES ")
        for start in range(0, len(keys), _KEYS):
            chunk = keys[start : start + _KEYS]
            rows = ", ".join(row.replace("%(table_key)s", f"%(key{n})s") for n in range(len(chunk)))
            binds = {f"key{n}": key for n, key in enumerate(chunk)}
            named = {"event_type": int(selection.event_type), "class_name": selection.class_name}
            conn.exec_driver_sql(f"{head}\nVALUES {rows}", {**named, **binds})

    # The tables of the log

    def record_id(self, log: LogTable, comment: str) -> sa.Column[Any]:
        return sa.Column(
            "record_id",
            self.column_types["integer"],
            primary_key=True,
            autoincrement=True,
            comment=comment,
        )

    def log_checks(self) -> Sequence[str]:
        code = f"ASCII({self.quote('status')})"
        return (
            f"{code} BETWEEN 65 AND 90 OR {code} BETWEEN 97 AND 122",
            "event_type BETWEEN 1 AND 8",
        )

    def create_queue_index(self, log: LogTable) -> str:
        # There are no partial indexes: the letter comes first, so that the rows N are together.
        index, table = self.quote(log.own_name("idx_{}_1")), self.quote(log.name)
        return (
            f"CREATE INDEX {index} ON {table} ({self.quote('status')}, {self.quote('record_id')})"
        )

    # The server commits every DDL statement by itself: a migration that broke off is run again from
    # its beginning.

    def guarded(self, conn: Connection, statement: str) -> str:
        made = re.sub(r"\A(\s*CREATE TABLE) (?!IF NOT EXISTS)", r"\1 IF NOT EXISTS ", statement)
        return re.sub(r"\A(\s*DROP TABLE) (?!IF EXISTS)", r"\1 IF EXISTS ", made)

    def half_made(self, conn: Connection, log: LogTable) -> bool:
        # A table of eventlog's columns that nobody has written to since.
        columns = {column["name"] for column in sa.inspect(conn).get_columns(log.name)}
        return columns == set(LogRow._fields)

    # The log in parts, each read by its own session (spec/event-log.md 8.6). No session can adopt
    # the snapshot of another one, so the session that begins the job passes on the
    # rows N that it has seen.

    shares_snapshots = False

    def export_snapshot(self, conn: Connection) -> str:
        self.join_snapshot(conn, "")
        return str(fetch(conn, f"SELECT CONCAT('{self.name}-', UTC_TIMESTAMP(6))", {})[0][0])

    def join_snapshot(self, conn: Connection, snapshot: str) -> None:
        begin_snapshot(conn)  # its moment is not before the snapshot's


def _conditions(log: LogTable, ranges: Ranges) -> list[str]:
    """Return SQL conditions for the rows of these record_ids, each for a part of the ranges."""
    record_id = text.bindable(text.quote_identifier(log.column("record_id")))
    single = [f"{record_id} BETWEEN {first:d} AND {last:d}" for first, last in ranges]
    return [
        " OR ".join(single[start : start + _RANGES]) for start in range(0, len(single), _RANGES)
    ]
