"""What ``doctor`` asks of Oracle beside doctor.sql: sequences, triggers and rights, which take several statements.

What only ``V$`` views tell, such as the open transactions of others, is not asked: an application's user sees none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from eventlog.sql.dialects.oracle.session import call, current_user, error_code, fetch, may_run
from eventlog.sql.dialects.oracle.tables import NUMBERS
from eventlog.sql.dialects.oracle.text import qualified
from eventlog.sql.dialects.oracle.triggers import OracleTriggers
from eventlog.sql.dialects.stepwise import trigger_answers
from eventlog.sql.doctor.facts import Answer, AnswerFunction, Numbering
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import literal, statements

_SQL: Final = statements(__package__, "doctor.sql")

# --- the log ----------------------------------------------------------------------------------------------------------


def numberings(conn: Connection, log: LogTable) -> list[Numbering]:
    """The sequence that gives record_ids, if it is the one that `eventlog db upgrade` makes (spec/triggers.md 7)."""
    names = {"owner": log.schema, "name": log.own_name(NUMBERS)}
    answer = []
    for owner, name, cache, step, cycles, ordered, of_session in fetch(conn, _SQL["numberings"], names):
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
            answer.append(numbering)
            continue
        answer.append(numbering._replace(disorder=disorder, mend=f"ALTER SEQUENCE {sequence} {mend}"))
    return answer


_NO_COLUMN: Final = 904


def _is_scaled(conn: Connection, names: dict[str, str | None]) -> bool:
    try:
        return bool(fetch(conn, _SQL["scaled"], names))
    except DBAPIError as error:
        if error_code(error) != _NO_COLUMN:
            raise
        return False


def _is_cluster(conn: Connection) -> bool:
    # V$INSTANCE knows it too, which an application's user does not see.
    is_cluster = "CASE WHEN DBMS_UTILITY.IS_CLUSTER_DATABASE THEN 1 ELSE 0 END"
    return call(conn, f"BEGIN\n    :answer := {is_cluster};\nEND;") == 1


# --- triggers and rights ----------------------------------------------------------------------------------------------


def _has_log(conn: Connection, log: str) -> bool:
    return may_run(conn, f"SELECT 1 FROM {log} WHERE 1 = 0")  # noqa: S608 - quoted


def _owned(_conn: Connection, schema: str, tables: Sequence[str], user: str) -> list[tuple[str]]:
    """All of the tables or none of them: a schema belongs to its user."""
    return [(table,) for table in tables] if schema == user else []


def _unreadable(conn: Connection, schema: str, tables: Sequence[str], columns: Sequence[str], **_: Any) -> Answer:
    """The columns that this user may not read. Oracle grants whole tables: all columns of a table or none."""
    by_table: defaultdict[str, list[str]] = defaultdict(list)
    for table, column in zip(tables, columns, strict=True):
        by_table[table].append(column)
    for table, names in by_table.items():
        if not may_run(conn, f"SELECT 1 FROM {qualified(schema, table)} WHERE 1 = 0"):  # noqa: S608 - quoted names
            yield table, names


def _rights_to_apply(conn: Connection, schema: str, **_: Any) -> Iterator[tuple[str]]:
    """What this session's user lacks to apply triggers to tables of a schema, in words."""
    privileges = {row[0] for row in fetch(conn, _SQL["rights"])}
    if "CREATE ANY TRIGGER" in privileges:
        return
    user = current_user(conn)
    if "CREATE TRIGGER" not in privileges:
        yield ("the system privilege CREATE TRIGGER",)
    if schema != user:
        yield (f"CREATE ANY TRIGGER, since the tables stand in schema {schema} and this is {literal(user)}",)


ANSWERS: Final[Mapping[str, AnswerFunction]] = {
    "numberings": numberings,
    **trigger_answers(OracleTriggers(), _has_log),
    "owned": _owned,
    "unreadable": _unreadable,
    "rights_to_apply": _rights_to_apply,
}
