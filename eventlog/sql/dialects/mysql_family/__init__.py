"""The common part of MariaDB and MySQL, both through PyMySQL: their capabilities and their log.

record_ids are AUTO_INCREMENT: each row draws a number when it is logged, and a restart keeps the
counter. The numbers of deliveries come from a sequence or a table, whose comment distinguishes this
log from all other logs (spec/triggers.md 7.4, spec/event-log.md 10). This package is not a separate
database: ``mariadb`` and ``mysql`` extend its classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from eventlog.core.catalog import Column
from eventlog.core.ranges import Ranges
from eventlog.core.values import ColumnType, Kind
from eventlog.sql.dialects.mysql_family import text
from eventlog.sql.dialects.mysql_family.objects import FamilyObjects, values_statement
from eventlog.sql.dialects.mysql_family.session import FamilySessions
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.sql_files import Binds, log_statements, with_format_binds


def _text(length: int) -> sa.types.TypeEngine[str]:
    return mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")


_WIDE: Final = 1_000
"""A gap with more than this number of record_ids is wide. The statement reads each wide gap by a
separate SELECT, which returns at most as many rows as the ``Window`` may have.
"""
_MAX_WIDE: Final = 20
"""The maximum number of gaps that are read by separate SELECTs, since each SELECT makes the
statement longer.
"""


def _split(window: Window) -> tuple[Ranges, Ranges]:
    """Divide the gaps of a window, except the last gap, into the first wide gaps and other gaps."""
    gaps = (window.gaps or ())[:-1]
    wide = [gap for gap in gaps if gap[1] - gap[0] >= _WIDE][:_MAX_WIDE]
    return wide, [gap for gap in gaps if gap not in wide]


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
            "consumers",
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
    log_sql = log_statements(__package__, with_format_binds)
    # This is the server's own zone; the session's zone is UTC.
    local_now = "CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', @@GLOBAL.time_zone)"
    utc_now = text.UTC_NOW
    quote = staticmethod(text.quote_identifier)
    value_text = staticmethod(text.value_text)
    bindable = staticmethod(text.bindable)
    condition_token = text.CONDITION_TOKEN
    values_statement = staticmethod(values_statement)

    def bind(self, name: str) -> str:
        return f"%({name})s"

    def fold_name(self, name: str) -> str:
        return name.partition("@")[0]

    def window_words(
        self, log: LogTable, window: Window, fields: Sequence[str]
    ) -> Mapping[str, str]:
        words = super().window_words(log, window, fields)
        wide = [
            self.log_statement(log, "wide_gap", first=str(first), last=str(last), **words)
            for first, last in _split(window)[0]
        ]
        return {**words, "wide": "\n".join(wide)}

    def window_parameters(self, window: Window) -> Binds:
        bounds = super().window_parameters(window)
        if window.statement != "read_gaps":
            return bounds
        return {**bounds, "gaps": json.dumps(_split(window)[1])}

    def value_size(self, text: str) -> str:
        return f"OCTET_LENGTH({text})"

    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        if field in ("record_id", "event_type"):
            if column_type is None or column_type.bits:
                return column
            # the driver returns a DECIMAL: a number that is not a BIGINT is not an event type
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

    # The tables of the log

    def record_id(self, log: LogTable, comment: str) -> sa.Column[Any]:
        return sa.Column(
            "record_id",
            self.column_types["integer"],
            primary_key=True,
            autoincrement=True,
            comment=comment,
        )

    def create_queue_index(self, log: LogTable) -> str:
        # There are no partial indexes. The status is the first column, so that rows with status N
        # are adjacent.
        index, table = self.quote(log.own_name("idx_{}_1")), self.quote(log.name)
        return (
            f"CREATE INDEX {index} ON {table} ({self.quote('status')}, {self.quote('record_id')})"
        )

    # The log in parts, each read by its own session (spec/event-log.md 8.6). No session can adopt
    # the database snapshot of another one, so the session that begins the job passes on the
    # record_ids with status N that it has seen.

    shares_snapshots = False
