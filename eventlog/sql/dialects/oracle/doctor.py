"""The facts that ``doctor`` judges by, on Oracle: the statements of doctor.sql, none of which changes anything.

What only ``V$`` views tell, such as the open transactions of others, is not asked: an application's user sees none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.model import LogRow
from eventlog.sql.dialects.oracle.ddl import flight_sequence
from eventlog.sql.dialects.oracle.installed import MARKER, find_log, read_installed, shows_triggers
from eventlog.sql.dialects.oracle.lock import call, current_user
from eventlog.sql.dialects.oracle.log import may_run
from eventlog.sql.dialects.oracle.session import error_code, fetch, statements
from eventlog.sql.dialects.oracle.text import literal, own_name, qualified, quote_identifier
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
from eventlog.sql.log_table import LogTable


def begin_reading(conn: Connection, seconds: int) -> None:
    """Make the transaction that begins see one moment and change nothing; a call takes so many seconds at most."""
    driver: Any = conn.connection.driver_connection
    driver.call_timeout = seconds * 1000
    conn.exec_driver_sql("SET TRANSACTION READ ONLY")


# --- the session ------------------------------------------------------------------------------------------------------


def clock(conn: Connection) -> Clock:
    """The database's clock against this machine's."""
    before = time.time()
    ((there,),) = _rows(conn, "clock")
    after = time.time()
    return Clock(float(there) - (before + after) / 2, (after - before) / 2)


# --- the log ----------------------------------------------------------------------------------------------------------


def statuses(conn: Connection, log: LogTable, sample: int) -> list[StatusRows]:
    """The newest rows by status."""
    found = _rows(conn, "statuses", log, sample=sample)
    return [StatusRows(status, int(rows), _whole(first), _whole(last)) for status, rows, first, last in found]


def without_record_id(conn: Connection, log: LogTable, limit: int) -> Rows:
    """Rows N whose record_id is NULL or not positive."""
    ((rows, first, looked_at),) = _rows(conn, "without_record_id", log, limit=limit)
    return Rows(int(rows), _whole(first), int(looked_at))


def made_by(conn: Connection, log: LogTable, user: str, limit: int) -> Rows:
    """Which of the first rows N a perpetrator made."""
    ((rows, first, looked_at),) = _rows(conn, "made_by", log, perpetrator=user.rstrip(" "), limit=limit)
    return Rows(int(rows), _whole(first), int(looked_at))


def not_due(conn: Connection, log: LogTable, event_time_zone: str, limit: int) -> Due:
    """Which of the first rows N have an event_time that lies ahead of the database's clock."""
    ((rows, next_time, seconds, looked_at),) = _rows(conn, "not_due", log, event_time_zone, limit=limit)
    return Due(int(rows), next_time, None if seconds is None else float(seconds), int(looked_at))


def ahead(conn: Connection, log: LogTable, event_time_zone: str, sample: int) -> Ahead | None:
    """The latest event_time of the newest rows, against the database's clock; None if there is none."""
    found = _rows(conn, "ahead", log, event_time_zone, sample=sample)
    return Ahead(int(found[0][0]), found[0][1], float(found[0][2])) if found else None


def spelled_keys(conn: Connection, log: LogTable, sample: int) -> list[SpelledKey]:
    """Each spelling of a table_key among the newest rows."""
    found = _rows(conn, "spelled_keys", log, sample=sample)
    return [SpelledKey(name, key, int(rows), int(first)) for name, key, rows, first in found]


def indexes(conn: Connection, log: LogTable) -> list[Index]:
    """The indexes of the log."""
    columns: dict[str, list[str | None]] = {}
    valid: dict[str, bool] = {}
    for name, status, column in _rows(conn, "indexes", owner=log.schema, name=log.name):
        # The column of an expression has a name of the database's own.
        columns.setdefault(name, []).append(None if column.startswith("SYS_NC") else column)
        valid[name] = status != "UNUSABLE"
    return [Index(name, valid[name], tuple(found), None) for name, found in columns.items()]


def numberings(conn: Connection, log: LogTable) -> list[Numbering]:
    """The sequence that gives record_ids, if it is the one that `eventlog db upgrade` makes (spec/triggers.md 7)."""
    names = {"owner": log.schema, "name": own_name("seq_{}_1", log.name)}
    found = []
    for owner, name, cache, step, cycles, ordered, of_session in fetch(
        conn, statements("doctor.sql")["numberings"], names
    ):
        sequence = qualified(owner, name)
        # The cache is the instance's, and sessions take their numbers from it one by one.
        numbering = Numbering(sequence, 1, int(step), cycles == "Y")
        if of_session == "Y":
            disorder, mend = "gives every session the same numbers (SESSION)", "GLOBAL"
        elif _is_scaled(conn, names):
            disorder, mend = "puts instance and session into its numbers (SCALE)", "NOSCALE"
        elif ordered != "Y" and int(cache) > 0 and _is_cluster(conn):
            disorder, mend = f"has a cache of {cache} numbers on each instance of a cluster (NOORDER)", "ORDER"
        else:
            found.append(numbering)
            continue
        found.append(numbering._replace(disorder=disorder, mend=f"ALTER SEQUENCE {sequence} {mend}"))
    return found


_NO_COLUMN: Final = 904


def _is_scaled(conn: Connection, names: dict[str, str | None]) -> bool:
    try:
        return bool(fetch(conn, statements("doctor.sql")["scaled"], names))
    except DBAPIError as error:
        if error_code(error) != _NO_COLUMN:
            raise
        return False


def _is_cluster(conn: Connection) -> bool:
    # V$INSTANCE knows it too, which an application's user does not see.
    is_cluster = "CASE WHEN DBMS_UTILITY.IS_CLUSTER_DATABASE THEN 1 ELSE 0 END"
    return call(conn, f"BEGIN\n    :answer := {is_cluster};\nEND;") == 1


def reading_index(log: LogTable) -> str:
    """SQL that makes the index which the publisher reads by (spec/triggers.md 7)."""
    name = qualified(log.schema, own_name("idx_{}_1", log.name))
    columns = ", ".join(quote_identifier(_column(log, field)) for field in ("status", "record_id"))
    return f"CREATE INDEX {name} ON {qualified(log.schema, log.name)} ({columns}) ONLINE"


def row_index(log: LogTable) -> str:
    """SQL that makes the index by which single rows are found."""
    name = qualified(log.schema, own_name("idx_{}_4", log.name))
    column = quote_identifier(_column(log, "record_id"))
    return f"CREATE UNIQUE INDEX {name} ON {qualified(log.schema, log.name)} ({column}) ONLINE"


def serves_reading(log: LogTable, index: Index) -> bool:
    """Whether a window of rows N can be read by the index, in order."""
    return index.columns[:2] == (_column(log, "status"), _column(log, "record_id"))


def serves_rows(log: LogTable, index: Index) -> bool:
    """Whether rows can be found by their record_ids by the index."""
    return index.columns[0] == _column(log, "record_id")


def inflight_seconds(conn: Connection, log: LogTable) -> float | None:
    """The age of the oldest in-flight line."""
    ((seconds,),) = _rows(conn, "inflight", log)
    return None if seconds is None else float(seconds)


def transactions(conn: Connection, log: LogTable, limit: int) -> list[OpenTransaction]:
    """None: only V$TRANSACTION knows them."""
    return []


def storage(conn: Connection, log: LogTable) -> Storage | None:
    """The rows of the log by the optimizer's statistics, None if there are none."""
    found = _rows(conn, "storage", owner=log.schema, name=log.name)
    if not found or found[0][0] is None:
        return None
    return Storage(live=int(found[0][0]), dead=0, vacuumed=None, autovacuum=True)


# --- triggers ---------------------------------------------------------------------------------------------------------


def installed_triggers(conn: Connection, log: LogTable) -> list[InstalledTrigger]:
    """The triggers that write the log; one that does not compile counts as disabled."""
    there = read_installed(conn, find_log(conn, log))
    return [
        InstalledTrigger(
            ".".join(table),
            trigger.name,
            trigger.is_enabled and trigger.is_valid,
            f"ALTER TRIGGER {qualified(trigger.schema, trigger.name)} {'ENABLE' if trigger.is_valid else 'COMPILE'}",
        )
        for table in there.tables
        for trigger in there.on(table)
    ]


def sees_triggers(conn: Connection, schema: str) -> bool:
    """Whether ALL_TRIGGERS shows this user the triggers on a schema's tables."""
    return shows_triggers(conn, schema)


def orphans(conn: Connection) -> list[Orphan]:
    """Triggers of ours whose log is gone."""
    there = read_installed(conn, LogTable(None, "none", ()))
    found = []
    for triggers in there.triggers.values():
        for trigger in triggers:
            marked = MARKER.search(trigger.source or "")
            if marked is None or may_run(conn, f"SELECT 1 FROM {marked[3].rstrip()} WHERE 1 = 0"):  # noqa: S608 - quoted
                continue
            mend = f"DROP TRIGGER {qualified(trigger.schema, trigger.name)}"
            found.append(Orphan(".".join(trigger.table), trigger.name, marked[3].rstrip(), mend))
    return found


def partition_triggers(conn: Connection, log: LogTable) -> list[PartitionTrigger]:
    """None: a trigger of a partitioned table is that of all its partitions."""
    return []


def without_triggers(conn: Connection, schema: str, tables: Sequence[str]) -> list[str]:
    """Those of the tables that have no trigger at all."""
    there = read_installed(conn, LogTable(None, "none", ()))
    return [table for table in tables if not there.triggers.get((schema, table))]


def owned(_conn: Connection, schema: str, tables: Sequence[str], user: str) -> list[str]:
    """All of the tables or none: a schema is its user's."""
    return list(tables) if schema == user else []


# --- rights -----------------------------------------------------------------------------------------------------------


def unreadable(conn: Connection, schema: str, columns: Sequence[tuple[str, str]]) -> list[Unreadable]:
    """Which of the columns (table, column) this user may not read: Oracle grants whole tables, so all or none."""
    by_table: dict[str, list[str]] = {}
    for table, column in columns:
        by_table.setdefault(table, []).append(column)
    return [
        Unreadable(table, tuple(names))
        for table, names in by_table.items()
        if not may_run(conn, f"SELECT 1 FROM {qualified(schema, table)} WHERE 1 = 0")  # noqa: S608 - quoted names
    ]


def grants(conn: Connection, log: LogTable, deletes: bool) -> list[str]:
    """The GRANT statements that let this session's user publish the log (spec/event-log.md 8.4, 10)."""
    user = quote_identifier(current_user(conn))
    status = quote_identifier(_column(log, "status"))
    rights = f"SELECT, UPDATE ({status}){', DELETE' if deletes else ''}"
    return [
        f"GRANT {rights} ON {qualified(log.schema, log.name)} TO {user}",
        f"GRANT SELECT, INSERT ON {qualified(log.schema, log.error_table)} TO {user}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {qualified(log.schema, log.inflight_table)} TO {user}",
        f"GRANT SELECT ON {flight_sequence(log)} TO {user}",
        f"GRANT EXECUTE ON SYS.DBMS_LOCK TO {user}",
    ]


def rights_to_apply(conn: Connection, log: LogTable, schema: str, tables: Sequence[str]) -> list[str]:
    """What this session's user lacks to apply triggers to the tables, in words."""
    has = {row[0] for row in _rows(conn, "rights")}
    if "CREATE ANY TRIGGER" in has:
        return []
    user = current_user(conn)
    missing = [] if "CREATE TRIGGER" in has else ["the system privilege CREATE TRIGGER"]
    if schema != user:
        missing.append(f"CREATE ANY TRIGGER, since the tables stand in schema {schema} and this is {literal(user)}")
    return missing


# --- statements -------------------------------------------------------------------------------------------------------


def _column(log: LogTable, field: str) -> str:
    return log.columns[LogRow._fields.index(field)]


def _whole(number: Any) -> int | None:
    return None if number is None else int(number)


def _rows(
    conn: Connection, statement: str, log: LogTable | None = None, event_time_zone: str = "utc", **parameters: object
) -> list[tuple[Any, ...]]:
    text = statements("doctor.sql")[statement]
    if log is not None:
        names = {field: quote_identifier(_column(log, field)) for field in LogRow._fields}
        now = "CAST(SYSTIMESTAMP AS TIMESTAMP)" if event_time_zone == "local" else "SYS_EXTRACT_UTC(SYSTIMESTAMP)"
        inflight = qualified(log.schema, log.inflight_table)
        text = text.format(log=qualified(log.schema, log.name), inflight=inflight, now=now, **names)
    return fetch(conn, text, parameters)
