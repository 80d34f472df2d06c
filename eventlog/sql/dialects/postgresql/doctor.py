"""The facts that ``doctor`` judges by, on PostgreSQL: the statements of doctor.sql, none of which changes anything."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from sqlalchemy import Connection, text

from eventlog.model import LogRow
from eventlog.sql.dialects.postgresql.lock import current_user
from eventlog.sql.dialects.postgresql.log import due_until
from eventlog.sql.dialects.postgresql.text import qualified, quote_identifier
from eventlog.sql.health import (
    Ahead,
    Clock,
    Due,
    Index,
    InstalledTrigger,
    Numbering,
    OpenTransaction,
    Orphan,
    PartitionTrigger,
    Rows,
    SpelledKey,
    StatusRows,
    Storage,
    Unreadable,
)
from eventlog.sql.log_table import LogTable, cut_name


def begin_reading(conn: Connection, seconds: int) -> None:
    """Make the transaction that begins see one moment and change nothing; a statement takes so many seconds at most."""
    conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    conn.exec_driver_sql(f"SET LOCAL statement_timeout = '{int(seconds)}s'")


# --- the session ------------------------------------------------------------------------------------------------------


def clock(conn: Connection) -> Clock:
    """The database's clock against this machine's."""
    before = time.time()
    there = float(_rows(conn, "clock")[0].seconds)
    after = time.time()
    return Clock(there - (before + after) / 2, (after - before) / 2)


# --- the log ----------------------------------------------------------------------------------------------------------


def statuses(conn: Connection, log: LogTable, sample: int) -> list[StatusRows]:
    """The newest rows by status."""
    return [
        StatusRows(row.status, row.rows, _whole(row.first), _whole(row.last))
        for row in _rows(conn, "statuses", log, sample=sample)
    ]


def without_record_id(conn: Connection, log: LogTable, limit: int) -> Rows:
    """Rows N whose record_id is NULL or not positive."""
    (row,) = _rows(conn, "without_record_id", log, limit=limit)
    return Rows(row.rows, _whole(row.first), row.looked_at)


def made_by(conn: Connection, log: LogTable, user: str, limit: int) -> Rows:
    """Which of the first rows N a perpetrator made."""
    (row,) = _rows(conn, "made_by", log, user=user.rstrip(" "), limit=limit)
    return Rows(row.rows, _whole(row.first), row.looked_at)


def not_due(conn: Connection, log: LogTable, event_time_zone: str, limit: int) -> Due:
    """Which of the first rows N have an event_time that lies ahead of the database's clock."""
    now = due_until(conn, log, event_time_zone)
    (row,) = _rows(conn, "not_due", log, now=now, limit=limit)
    return Due(row.rows, row.next_time, row.next_seconds, row.looked_at)


def ahead(conn: Connection, log: LogTable, event_time_zone: str, sample: int) -> Ahead | None:
    """The latest event_time of the newest rows, against the database's clock; None if there is none."""
    now = due_until(conn, log, event_time_zone)
    found = _rows(conn, "ahead", log, now=now, sample=sample)
    return Ahead(int(found[0].record_id), found[0].event_time, found[0].seconds) if found else None


def spelled_keys(conn: Connection, log: LogTable, sample: int) -> list[SpelledKey]:
    """Each spelling of a table_key among the newest rows."""
    return [
        SpelledKey(row.table_name, row.table_key, row.rows, int(row.first))
        for row in _rows(conn, "spelled_keys", log, sample=sample)
    ]


def indexes(conn: Connection, log: LogTable) -> list[Index]:
    """The indexes of the log."""
    return [Index(row.name, row.is_valid, tuple(row.columns), row.predicate) for row in _rows(conn, "indexes", log=log)]


def numberings(conn: Connection, log: LogTable) -> list[Numbering]:
    """The sequences that give record_ids."""
    return [Numbering(*row) for row in _rows(conn, "numberings", log, column=_column(log, "record_id"))]


def reading_index(log: LogTable) -> str:
    """SQL that makes the index which the publisher reads by (spec/triggers.md 7)."""
    name = cut_name(f"idx_{log.name}_1", log.max_identifier)
    return (
        f"CREATE INDEX CONCURRENTLY {quote_identifier(name)} ON {qualified(log.schema, log.name)} "
        f"({quote_identifier(_column(log, 'record_id'))}) WHERE {quote_identifier(_column(log, 'status'))} = 'N'"
    )


def row_index(log: LogTable) -> str:
    """SQL that makes the index by which single rows are found."""
    column = quote_identifier(_column(log, "record_id"))
    return f"CREATE UNIQUE INDEX CONCURRENTLY ON {qualified(log.schema, log.name)} ({column})"


def serves_reading(log: LogTable, index: Index) -> bool:
    """Whether a window of rows N can be read by the index, in order: partial, or led by status."""
    record_id, status = _column(log, "record_id"), _column(log, "status")
    if index.predicate is None:
        return index.columns[:2] == (status, record_id)
    return index.columns[0] == record_id and _is_status_n(index.predicate, status)


def serves_rows(log: LogTable, index: Index) -> bool:
    """Whether rows can be found by their record_ids by the index."""
    return index.predicate is None and index.columns[0] == _column(log, "record_id")


def _is_status_n(predicate: str, status: str) -> bool:
    # As the server writes it: (status = 'N'::bpchar), ((status)::text = 'N'::text), and the guard of a log of ours
    predicate = re.sub(r" OR \(\(.+ !~ '\^\[A-Za-z\]\$'::text\) AND .+\(.+\)\)\)$", "", predicate)
    plain = re.sub(r"::(bpchar|text|character varying)|[()\s]", "", predicate)
    return plain in (f"{status}='N'", f"{quote_identifier(status)}='N'")


def inflight_seconds(conn: Connection, log: LogTable) -> float | None:
    """The age of the oldest in-flight line."""
    seconds = _rows(conn, "inflight", log)[0].seconds
    return None if seconds is None else float(seconds)


def transactions(conn: Connection, log: LogTable, limit: int) -> list[OpenTransaction]:
    """Open transactions of other sessions, the oldest first."""
    return [OpenTransaction(*row) for row in _rows(conn, "transactions", log, limit=limit)]


def storage(conn: Connection, log: LogTable) -> Storage | None:
    """The rows of the log by the server's statistics."""
    found = _rows(conn, "storage", log)
    return Storage(*found[0]) if found else None


# --- triggers ---------------------------------------------------------------------------------------------------------


def installed_triggers(conn: Connection, log: LogTable) -> list[InstalledTrigger]:
    """The triggers that write the log."""
    return [InstalledTrigger(*row) for row in _rows(conn, "installed_triggers", marker=_marker(log))]


def sees_triggers(conn: Connection, schema: str) -> bool:
    """Yes: the catalogue is everybody's."""
    return True


def orphans(conn: Connection) -> list[Orphan]:
    """Triggers of ours whose log is gone."""
    return [Orphan(*row) for row in _rows(conn, "orphans")]


def partition_triggers(conn: Connection, log: LogTable) -> list[PartitionTrigger]:
    """Partitions that lack a trigger of ours, or have it disabled."""
    return [PartitionTrigger(*row) for row in _rows(conn, "partition_triggers", marker=_marker(log))]


def _marker(log: LogTable) -> str:
    """The end of the comments that triggers.py writes."""
    return f" log {qualified(log.schema, log.name)}"


def without_triggers(conn: Connection, schema: str, tables: Sequence[str]) -> list[str]:
    """Those of the tables that have no trigger at all."""
    found = _rows(conn, "without_triggers", schema=quote_identifier(schema), tables=list(tables))
    return [row.name for row in found]


def owned(conn: Connection, schema: str, tables: Sequence[str], user: str) -> list[str]:
    """Those of the tables that belong to a role."""
    found = _rows(conn, "owned", schema=quote_identifier(schema), tables=list(tables), user=user)
    return [row.name for row in found]


# --- rights -----------------------------------------------------------------------------------------------------------


def unreadable(conn: Connection, schema: str, columns: Sequence[tuple[str, str]]) -> list[Unreadable]:
    """Which of the columns (table, column) this role may not read."""
    found = _rows(
        conn,
        "unreadable",
        schema=quote_identifier(schema),
        tables=[table for table, _ in columns],
        columns=[column for _, column in columns],
    )
    return [Unreadable(row.name, tuple(row.columns)) for row in found]


def grants(conn: Connection, log: LogTable, deletes: bool) -> list[str]:
    """The GRANT statements that let this session's user publish the log (spec/event-log.md 8.4, 10)."""
    user = quote_identifier(current_user(conn))
    status = quote_identifier(_column(log, "status"))
    rights = f"SELECT, UPDATE ({status}){', DELETE' if deletes else ''}"
    return [
        *([f"GRANT USAGE ON SCHEMA {quote_identifier(log.schema)} TO {user}"] if log.schema else []),
        f"GRANT {rights} ON {qualified(log.schema, log.name)} TO {user}",
        f"GRANT SELECT, INSERT ON {qualified(log.schema, log.error_table)} TO {user}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {qualified(log.schema, log.inflight_table)} TO {user}",
        f"GRANT USAGE ON SEQUENCE {qualified(log.schema, log.flight_sequence)} TO {user}",
    ]


def rights_to_apply(conn: Connection, log: LogTable, schema: str, tables: Sequence[str]) -> list[str]:
    """What this session's role lacks to apply triggers to the tables, in words."""
    (row,) = _rows(conn, "rights_to_apply", log, schema=quote_identifier(schema), tables=list(tables))
    missing = []
    if not row.may_create:
        missing.append(f"CREATE on schema {schema}")
    if not row.may_write:
        missing.append(f"INSERT on the log {log}")
    missing += [f"ownership of table {schema}.{table}" for table in row.foreign_tables]
    return missing


# --- statements -------------------------------------------------------------------------------------------------------


def _column(log: LogTable, field: str) -> str:
    return log.columns[LogRow._fields.index(field)]


def _whole(number: Any) -> int | None:
    return None if number is None else int(number)


def _rows(conn: Connection, name: str, log: LogTable | None = None, **parameters: object) -> Sequence[Any]:
    statement = _templates()[name]
    names: dict[str, str] = {}
    if log is not None:
        names = {field: quote_identifier(_column(log, field)) for field in LogRow._fields}
        names["log"] = qualified(log.schema, log.name)
        names["inflight"] = qualified(log.schema, log.inflight_table)
        if ":log" in statement:
            parameters["log"] = names["log"]
    # A colon in a name must not begin a parameter.
    escaped = {key: value.replace(":", "\\:") for key, value in names.items()}
    return conn.execute(text(statement.format(**escaped)), parameters).all()


@cache
def _templates() -> dict[str, str]:
    script = resources.files(__package__).joinpath("doctor.sql").read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- name: (\w+)$", script, flags=re.MULTILINE)
    return {name: sql.strip().rstrip(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)}
