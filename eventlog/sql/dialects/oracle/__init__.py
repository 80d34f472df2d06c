"""Oracle, 12.2 and later, through python-oracledb in its thin mode: its capabilities and its log.

record_ids and the numbers of deliveries come from sequences. The triggers of a log call functions
of this log (spec/triggers.md 7, spec/event-log.md 10). The database snapshot of a bulk job is a
system change number: every session reads AS OF this number, as long as the database keeps the undo
data (spec/event-log.md 12).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy import URL, Connection
from sqlalchemy.dialects import oracle
from sqlalchemy.types import TypeEngine

from eventlog.core.catalog import Column
from eventlog.core.extras import install_command
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConfigError
from eventlog.sql.connect.connection import unreadable_part
from eventlog.sql.dialects.oracle import script, text
from eventlog.sql.dialects.oracle.database import OracleDatabase
from eventlog.sql.dialects.oracle.objects import OracleObjects, values_statement
from eventlog.sql.dialects.oracle.session import ANSWERS, OracleSessions, has_log
from eventlog.sql.dialects.oracle.text import scn
from eventlog.sql.dialects.oracle.triggers import TRIGGERS, create_functions
from eventlog.sql.dialects.stepwise import BATCH_ROWS, trigger_answers
from eventlog.sql.log_table import QUEUE_INDEX, LogTable, named_after
from eventlog.sql.port.log_parts import LogPart, arrow_schema
from eventlog.sql.port.sql_files import log_statements

if TYPE_CHECKING:
    import pyarrow as pa


_EXISTS: Final = -955
_NO_SEQUENCE: Final = -2289
_NO_OBJECT: Final = -4043
"""The numbers of ORA- errors for objects that already exist, or do not exist."""

_number: Any = oracle.NUMBER  # SQL without types in its signature
_INTEGER: Final[TypeEngine[Any]] = _number(38, 0)


class Oracle(OracleSessions, OracleObjects):
    """Oracle, through python-oracledb in its thin mode."""

    name = "oracle"
    capabilities = frozenset(
        {
            "server",
            "schemas",
            "roles",
            "sequences",
            "concurrent_writers",
            "statement_capture",
            "nul_characters",
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
    answers: ClassVar = {**ANSWERS, **trigger_answers(TRIGGERS, has_log)}
    column_types: ClassVar = {
        "integer": _INTEGER,
        "status": sa.CHAR(1),
        "event_type": _number(1, 0),
        "event_time": oracle.TIMESTAMP(),
        "time": oracle.TIMESTAMP(),
        "digest": sa.CHAR(64),
        "name": oracle.VARCHAR2(261),
        "key": oracle.VARCHAR2(4000),
        "code": oracle.VARCHAR2(64),
        "value": sa.CLOB(),
        "text": sa.CLOB(),
    }
    queue_by_expression = True
    prologue = script.PROLOGUE
    epilogue = ("COMMIT;",)
    as_script = staticmethod(script.rerunnable)
    placed = staticmethod(script.placed)
    constraint_names: ClassVar = {
        "pk": "%(pk_of)s",
        "pk_of": lambda _, table: _constraint("pk_{}", table),
        "ck": "%(ck_of)s",
        "ck_of": lambda _, table: _constraint(f"ck_{{}}_{_checks(table)}", table),
    }
    log_sql = log_statements(__package__)
    last_record_id = 10**38 - 1
    local_now = "CAST(SYSTIMESTAMP AS TIMESTAMP)"  # in the server's own zone, not the session's
    utc_now = text.UTC_NOW
    quote = staticmethod(text.quote_identifier)
    fold_name = staticmethod(text.fold_name)
    spelled = staticmethod(text.spelled)
    value_text = staticmethod(text.value_text)
    condition_token = text.CONDITION_TOKEN
    values_statement = staticmethod(values_statement)

    def open(self, connection: Connection) -> OracleDatabase:
        return OracleDatabase(connection, self)

    def log_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        if field == "event_time":
            return self.value_text(Column(field, column_type or ColumnType(Kind.TIMESTAMP)), column)
        return text.short_integer(column, 4) if field == "event_type" else column

    def log_times(self, column: str, *, is_zoned: bool) -> Mapping[str, str]:
        # It is compared as a moment, whatever its zone is; its texts are in UTC.
        time = f"SYS_EXTRACT_UTC({column})" if is_zoned else column
        until = "TO_TIMESTAMP(:until, 'SYYYY-MM-DD HH24:MI:SS.FF9')"
        return {
            "new_time": text.new_time(is_zoned=is_zoned),
            "time": time,
            "is_due": f"({time} IS NULL OR {time} <= {until})",
            "due_order": f"{time} NULLS FIRST",
        }

    # The tables of the log

    def record_id(self, log: LogTable, comment: str) -> sa.Column[Any]:
        numbers = sa.text(f"{text.number_sequence(log)}.NEXTVAL")
        return sa.Column(
            "record_id",
            _INTEGER,
            server_default=numbers,
            primary_key=True,
            autoincrement=False,
            comment=comment,
        )

    def create_queue_index(self, log: LogTable) -> str:
        status, record_id = (self.quote(log.column(field)) for field in ("status", "record_id"))
        index = text.qualified(log.schema, log.own_name(QUEUE_INDEX))
        table = text.qualified(log.schema, log.name)
        # An index has no entries for NULL, so this one contains only rows with status N; a marked
        # row leaves it.
        return f"CREATE INDEX {index} ON {table} (CASE {status} WHEN 'N' THEN {record_id} END)"

    def before_log(self, log: LogTable) -> list[str]:
        return [_create_sequence(text.number_sequence(log))]

    def drop_before_log(self, log: LogTable) -> list[str]:
        return [_drop_sequence(text.number_sequence(log))]

    after_log = staticmethod(create_functions)

    def drop_after_log(self, log: LogTable) -> list[str]:
        functions = (text.quote_function(log), text.base64_function(log))
        return [script.unless(f"DROP FUNCTION {name}", _NO_OBJECT) for name in functions]

    def after_internal_tables(self, log: LogTable) -> list[str]:
        return [_create_sequence(text.qualified(log.schema, log.number_sequence))]

    def drop_after_internal_tables(self, log: LogTable) -> list[str]:
        return [_drop_sequence(text.qualified(log.schema, log.number_sequence))]

    def next_number(self, schema: str | None, sequence: str) -> str:
        return f"{text.qualified(schema, sequence)}.NEXTVAL"

    numbers_sorted_rows = False

    # The log in parts, as Arrow batches by the data frames of python-oracledb

    def read_part(
        self,
        url: URL,
        log: LogTable,
        snapshot: str | None,
        status: str | None,
        part: LogPart,
        fields: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        try:
            import oracledb
            import pyarrow as pa
        except ImportError as error:
            raise ConfigError(
                f"Arrow or the driver is not installed ({error}): "
                f"{install_command('oracle', 'spark')}"
            ) from error
        schema = arrow_schema(fields)
        statement = self.part_as_of(log, snapshot, status, fields)
        bounds = {"first": part.first, "last": part.last}
        try:
            with oracledb.connect(**self.driver_arguments(url)) as connection:
                with connection.cursor() as cursor:
                    for setting in self.session:
                        cursor.execute(setting)
                for frame in connection.fetch_df_batches(statement, bounds, size=BATCH_ROWS):
                    yield from typed(pa.table(frame), schema).to_batches()
        except (oracledb.Error, OSError) as error:
            # OSError is included because the thin mode passes on errors of the socket.
            raise unreadable_part(log, part, url, error) from None

    def part_as_of(
        self, log: LogTable, snapshot: str | None, status: str | None, fields: Sequence[str]
    ) -> str:
        """Return the statement that reads a part of the log as it was at a database snapshot."""
        as_of = "" if snapshot is None else f" AS OF SCN {scn(snapshot)}"
        return self.part_statement(log, status, fields, as_of=as_of)

    def part_field(self, log: LogTable, field: str) -> str:
        column = self.quote(log.column(field))
        match field:
            case "record_id":
                return f"CAST({column} AS NUMBER(18))"  # the driver then returns an integer
            case "event_type":
                return text.short_integer(column, 18)
            case "event_time":
                return (
                    f"CAST({self.log_times(column, is_zoned=log.has_zoned_time)['time']} AS "
                    "TIMESTAMP(6))"
                )
            case _:
                return super().part_field(log, field)


def _constraint(pattern: str, table: sa.Table) -> str:
    return named_after(pattern, str(table.name), text.MAX_IDENTIFIER, upper=True)


def _checks(table: sa.Table) -> int:
    """Return the number of CHECKs of a table, which equals the number in the name of the newest
    CHECK.
    """
    return sum(isinstance(one, sa.CheckConstraint) for one in table.constraints)


def _create_sequence(name: str) -> str:
    # The cache belongs to the instance, so later requests get greater numbers; with ORDER this also
    # holds among the instances of a cluster. NOCACHE would update the dictionary with every number
    # (spec/triggers.md 7).
    return script.unless(f"CREATE SEQUENCE {name} CACHE 1000 ORDER", _EXISTS)


def _drop_sequence(name: str) -> str:
    return script.unless(f"DROP SEQUENCE {name}", _NO_SEQUENCE)


def typed(table: Any, schema: Any) -> Any:
    """Convert a data frame to the names and types of the schema; the driver returns wider types."""
    return table.rename_columns(schema.names).cast(schema, safe=False)


DIALECT: Final = Oracle()
