"""Oracle, 12.2 and later, by python-oracledb in its thin mode."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import ClassVar, Final

from sqlalchemy import Connection

from eventlog.core.catalog import Column
from eventlog.core.values import ColumnType, Kind
from eventlog.model import LogRow
from eventlog.sql.dialect import LogRows
from eventlog.sql.dialects.oracle import doctor, text
from eventlog.sql.dialects.oracle.bulk import OracleBulk
from eventlog.sql.dialects.oracle.query_back import OracleQueryBack
from eventlog.sql.dialects.oracle.reflect import OracleCatalog
from eventlog.sql.dialects.oracle.session import OracleSessions, chunks, fetch
from eventlog.sql.dialects.oracle.tables import OracleTables
from eventlog.sql.dialects.oracle.triggers import OracleTriggers, shows_triggers
from eventlog.sql.dialects.stepwise import LOG_SQL
from eventlog.sql.doctor.facts import Answer
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import statements
from eventlog.sql.windows import DuePlace, Ranges

_SHORT: Final = 50
"""How many record_ids a range has that is read id by id."""


class Oracle(OracleSessions, OracleCatalog, OracleTables, OracleBulk, OracleQueryBack):
    """Oracle by python-oracledb in its thin mode."""

    name = "oracle"
    capabilities = frozenset(
        {
            "server",
            "schemas",
            "roles",
            "sequences",
            "concurrent_writers",
            "statement_capture",
            "partitions",
            "deferrable_keys",
            "fixed_char",
            "single_precision",
            "exact_decimals",
            "time_types",
            "time_zones",
            "binary_values",
            "upsert_captured",
        }
    )
    max_identifier = text.MAX_IDENTIFIER
    lacks = frozenset({Kind.TIME, Kind.UUID})
    triggers = OracleTriggers()
    answers: ClassVar = doctor.ANSWERS
    log_sql: ClassVar = {**LOG_SQL, **statements(__package__, "log.sql")}
    last_record_id = 10**38 - 1
    local_now = "CAST(SYSTIMESTAMP AS TIMESTAMP)"  # of the server's own zone, not of the session's
    utc_now = text.UTC_NOW
    quote = staticmethod(text.quote_identifier)
    fold_name = staticmethod(text.fold_name)
    spelled = staticmethod(text.spelled)
    value_text = staticmethod(text.value_text)
    sees_triggers = staticmethod(shows_triggers)

    def fetch_answer(
        self, conn: Connection, statement: str, names: Mapping[str, str], binds: Mapping[str, object]
    ) -> Answer:
        return fetch(conn, statement.format(**names), binds)

    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        if field == "event_time":
            return self.value_text(Column(field, column_type or ColumnType(Kind.TIMESTAMP)), column)
        return text.short_integer(column, 4) if field == "event_type" else column

    def log_times(self, column: str, *, is_zoned: bool) -> Mapping[str, str]:
        # The moment itself, whatever zone it is told in; texts of it are in UTC.
        time = f"SYS_EXTRACT_UTC({column})" if is_zoned else column
        return {"time": time, "new_time": text.new_time(is_zoned=is_zoned)}

    def due_chunks(
        self, conn: Connection, log: LogTable, until: str, after: DuePlace | None, leave_user: str | None, size: int
    ) -> LogRows:
        if after is not None and after[0] is not None:
            # Of a log whose event_time has a zone: it is compared in UTC.
            after = (after[0].removesuffix("Z"), after[1])
        return super().due_chunks(conn, log, until, after, leave_user, size)

    def read_rows(self, conn: Connection, log: LogTable, ranges: Ranges) -> list[LogRow]:
        # The ids of the short ranges, of which there may be thousands, in IN lists.
        rows = super().read_rows(conn, log, [(first, last) for first, last in ranges if last - first >= _SHORT])
        short = [record_id for first, last in ranges if last - first < _SHORT for record_id in range(first, last + 1)]
        for ids in chunks(short):
            binds = {f"id{place}": record_id for place, record_id in enumerate(ids)}
            statement = self.log_statement(log, "read_ids", ids=", ".join(f":{bind}" for bind in binds))
            rows += self.log_rows(conn, statement, binds)
        return sorted(rows, key=itemgetter(0))


DIALECT: Final = Oracle()
