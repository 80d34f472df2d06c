"""The facts that ``doctor`` judges by, on SQLite: the statements of doctor.sql, none of which changes anything."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from eventlog.model import LogRow
from eventlog.sql.dialects.sqlite.installed import all_triggers, read_installed
from eventlog.sql.dialects.sqlite.log import due_until
from eventlog.sql.dialects.sqlite.session import file_of
from eventlog.sql.dialects.sqlite.statements import read
from eventlog.sql.dialects.sqlite.text import quote_identifier
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
    """The transaction that begins sees one moment and changes nothing; it waits so many seconds for a lock."""
    conn.exec_driver_sql("PRAGMA query_only = ON")
    conn.exec_driver_sql(f"PRAGMA busy_timeout = {int(seconds) * 1000}")


# --- the log ----------------------------------------------------------------------------------------------------------


def clock(_conn: Connection) -> Clock:
    """The database's clock is this machine's."""
    return Clock(0.0, 0.0)


def statuses(conn: Connection, log: LogTable, sample: int) -> list[StatusRows]:
    """The newest rows by status."""
    return [StatusRows(*row) for row in _rows(conn, "statuses", log, sample=sample)]


def without_record_id(conn: Connection, log: LogTable, limit: int) -> Rows:
    """Rows N whose record_id is NULL or not positive."""
    (row,) = _rows(conn, "without_record_id", log, limit=limit)
    return Rows(*row)


def made_by(conn: Connection, log: LogTable, user: str, limit: int) -> Rows:
    """Which of the first rows N a perpetrator made."""
    (row,) = _rows(conn, "made_by", log, user=user.rstrip(" "), limit=limit)
    return Rows(*row)


def not_due(conn: Connection, log: LogTable, event_time_zone: str, limit: int) -> Due:
    """Which of the first rows N have an event_time that lies ahead of the clock."""
    (row,) = _rows(conn, "not_due", log, now=due_until(conn, log, event_time_zone), limit=limit)
    return Due(*row)


def ahead(conn: Connection, log: LogTable, event_time_zone: str, sample: int) -> Ahead | None:
    """The latest event_time of the newest rows, against the clock; None if there is none."""
    found = _rows(conn, "ahead", log, now=due_until(conn, log, event_time_zone), sample=sample)
    return Ahead(*found[0]) if found else None


def spelled_keys(conn: Connection, log: LogTable, sample: int) -> list[SpelledKey]:
    """Each spelling of a table_key among the newest rows."""
    return [SpelledKey(*row) for row in _rows(conn, "spelled_keys", log, sample=sample)]


def indexes(conn: Connection, log: LogTable) -> list[Index]:
    """The indexes of the log; its INTEGER PRIMARY KEY, which is the table itself, counts as one."""
    found: dict[str, tuple[list[str | None], str | None]] = {}
    keys = [row.name for row in conn.exec_driver_sql("SELECT name FROM pragma_table_info(?) WHERE pk", (log.name,))]
    if len(keys) == 1:
        found["primary key"] = ([keys[0]], None)
    for name, column, is_partial, sql in _rows(conn, "indexes", log, log_name=log.name):
        predicate = re.search(r"\bWHERE\b(.*)$", sql or "", re.DOTALL | re.IGNORECASE) if is_partial else None
        found.setdefault(name, ([], predicate[1].strip() if predicate else None))[0].append(column)
    return [Index(name, True, tuple(columns), predicate) for name, (columns, predicate) in found.items()]


def numberings(_conn: Connection, _log: LogTable) -> list[Numbering]:
    """No sequence gives record_ids."""
    return []


def reading_index(log: LogTable) -> str:
    """SQL that makes the index which the publisher reads by (spec/triggers.md 7)."""
    name = cut_name(f"idx_{log.name}_1", log.max_identifier)
    record_id, status = (quote_identifier(_column(log, field)) for field in ("record_id", "status"))
    return f"CREATE INDEX {quote_identifier(name)} ON {quote_identifier(log.name)} ({record_id}) WHERE {status} = 'N'"


def row_index(log: LogTable) -> str:
    """SQL that makes the index by which single rows are found."""
    name = cut_name(f"idx_{log.name}_4", log.max_identifier)
    record_id = quote_identifier(_column(log, "record_id"))
    return f"CREATE UNIQUE INDEX {quote_identifier(name)} ON {quote_identifier(log.name)} ({record_id})"


def serves_reading(log: LogTable, index: Index) -> bool:
    """Whether a window of rows N can be read by the index, in order: partial, or led by status."""
    record_id, status = _column(log, "record_id"), _column(log, "status")
    if index.predicate is None:
        return index.columns[:2] == (status, record_id)
    plain = re.sub(r'["\s()]', "", index.predicate)
    return index.columns[0] == record_id and plain == f"{status}='N'"


def serves_rows(log: LogTable, index: Index) -> bool:
    """Whether rows can be found by their record_ids by the index."""
    return index.predicate is None and index.columns[0] == _column(log, "record_id")


def inflight_seconds(conn: Connection, log: LogTable) -> float | None:
    """The age of the oldest in-flight line."""
    seconds: float | None = _rows(conn, "inflight", log)[0].seconds
    return seconds


def transactions(_conn: Connection, _log: LogTable, _limit: int) -> list[OpenTransaction]:
    """Other sessions are not to be seen."""
    return []


def storage(_conn: Connection, _log: LogTable) -> Storage | None:
    """Nothing dead is kept."""
    return None


# --- triggers ---------------------------------------------------------------------------------------------------------


def installed_triggers(conn: Connection, log: LogTable) -> list[InstalledTrigger]:
    """The triggers that write the log; SQLite cannot disable one."""
    return [InstalledTrigger(one.table, one.name, True, "") for one in read_installed(conn, log).ours]


def sees_triggers(conn: Connection, schema: str) -> bool:
    """Yes: the catalogue is everybody's."""
    return True


def orphans(conn: Connection) -> list[Orphan]:
    """Triggers of ours whose log is gone."""
    there = {quote_identifier(row.name) for row in _rows(conn, "tables")}
    found = []
    for trigger in all_triggers(conn):
        if trigger.marker is not None:
            log = trigger.marker.partition(" log ")[2]
            if log not in there:
                mend = f"DROP TRIGGER {quote_identifier(trigger.name)}"
                found.append(Orphan(trigger.table, trigger.name, log, mend))
    return found


def partition_triggers(_conn: Connection, _log: LogTable) -> list[PartitionTrigger]:
    """There are no partitions."""
    return []


def without_triggers(conn: Connection, _schema: str, tables: Sequence[str]) -> list[str]:
    """Those of the tables that have no trigger at all."""
    return [row.name for row in _rows(conn, "without_triggers", tables=json.dumps(list(tables)))]


def owned(_conn: Connection, _schema: str, _tables: Sequence[str], _user: str) -> list[str]:
    """None: a file has no users."""
    return []


# --- rights -----------------------------------------------------------------------------------------------------------


def unreadable(_conn: Connection, _schema: str, _columns: Sequence[tuple[str, str]]) -> list[Unreadable]:
    """Who reads the file reads all of it."""
    return []


def grants(conn: Connection, _log: LogTable, _deletes: bool) -> list[str]:
    """What lets this process publish: the right to write the file and its directory."""
    file = file_of(conn)
    return [] if file is None else [f"chmod u+rw {file} && chmod u+rwx {file.parent}"]


def rights_to_apply(conn: Connection, _log: LogTable, _schema: str, _tables: Sequence[str]) -> list[str]:
    """What this process lacks to apply triggers, in words."""
    file = file_of(conn)
    return [] if file is None or os.access(file, os.W_OK) else [f"write access to {str(file)!r}"]


# --- statements -------------------------------------------------------------------------------------------------------


def _column(log: LogTable, field: str) -> str:
    return log.columns[LogRow._fields.index(field)]


def _rows(conn: Connection, name: str, log: LogTable | None = None, **parameters: object) -> Sequence[Any]:
    names: dict[str, str] = {}
    if log is not None:
        names = {field: quote_identifier(_column(log, field)) for field in LogRow._fields}
        names |= {"log": quote_identifier(log.name), "inflight": quote_identifier(log.inflight_table)}
    return conn.exec_driver_sql(read("doctor.sql")[name].format(**names), parameters).all()
