"""The common part of all changes of a partitioned log of PostgreSQL: names, locks, and the
statements that make a leaf. The module ``leaves`` describes the CHECKs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from eventlog.errors import DatabaseError, LogInUse
from eventlog.sql.dialects.postgresql.log_session import OTHER_PLANS
from eventlog.sql.dialects.postgresql.rights import deny_others
from eventlog.sql.log_table import LogTable, cut_name
from eventlog.sql.port.driver_errors import for_message
from eventlog.sql.port.leaves import Leaf
from eventlog.sql.port.sql_files import (
    literal,
    qualified,
    quote_identifier,
    run_as_it_stands,
    statements,
)

if TYPE_CHECKING:
    from eventlog.sql.port.open_log import OpenLog


_SQL: Final = statements(__package__, "leaves.sql")
WAIT: Final = 20
"""The milliseconds that a change waits for the lock of the log. Writers that come later wait during
this time and during the change itself, which takes some milliseconds; so consecutive statements are
sent together.
"""
_LOCK_NOT_AVAILABLE: Final = "55P03"
_DEADLOCK: Final = "40P01"
_UNDEFINED_TABLE: Final = "42P01"
"""The SQLSTATE of a table that another session has dropped: two purges finish the same removal."""
_MAX_BYTES: Final = 55
"""The maximum number of bytes of the base of a leaf's name; the names of its indexes are longer."""

LOG_STORAGE: Final = {
    # A row is written twice: as N, and when it is marked. Marking cannot be a HOT update, since the
    # partial index depends on status. But with some free space the new version stays on the row's
    # page, and the log keeps its order on the disk.
    "fillfactor": "80",
    # Every marked row leaves a dead entry at the head of the partial index, which each window read
    # has to skip until vacuum has removed it. With the default, a fifth of the table, a long log
    # would have millions of them.
    "autovacuum_vacuum_scale_factor": "0.01",
    "autovacuum_vacuum_threshold": "10000",
    "autovacuum_analyze_scale_factor": "0.02",
    # Ten times the default: a vacuum that is slower than the publisher would never end.
    "autovacuum_vacuum_cost_limit": "2000",
    # With delete_from_log the end of the table empties repeatedly. Returning its pages to the
    # operating system takes a lock that blocks every writer, and the next rows need these pages
    # again.
    "vacuum_truncate": "false",
}
"""The storage parameters of the table of a log, and of each leaf."""


def storage_parameters(wanted: Mapping[str, str]) -> str:
    """Return storage parameters as SQL."""
    return ", ".join(f"{name} = {literal(value)}" for name, value in wanted.items())


def table_of(log: LogTable) -> str:
    """Return the quoted name of the table of a log."""
    return qualified(log.schema, log.name)


def sibling(log: LogTable, name: str) -> str:
    """Return the quoted name of a relation in the schema of a log."""
    return qualified(log.schema, name)


def columns_of(log: LogTable) -> tuple[str, str]:
    """Return the quoted names of the columns that hold record_id and status."""
    return quote_identifier(log.column("record_id")), quote_identifier(log.column("status"))


def _leaf_name(log: LogTable, number: int) -> str:
    return f"{cut_name(log.name, _MAX_BYTES - len(str(number)))}_{number}"


def check_name(log: LogTable) -> str:
    """Return the name of the CHECK of a leaf."""
    return log.own_name("chk_{}_leaf")


def check_function(log: LogTable) -> str:
    """Return the quoted name of the function that the CHECKs call."""
    return qualified(log.schema, log.own_name("proc_{}_leaf"))


def drop_function(log: LogTable) -> str:
    """Return the statement that drops the function of the CHECKs."""
    # A detached table that somebody keeps may still have the CHECK, which then goes with it.
    return f"DROP FUNCTION IF EXISTS {check_function(log)}(bigint) CASCADE"


def leaf_comment(log: LogTable) -> str:
    """Return the comment of a leaf. A table without this comment is never dropped."""
    return f"eventlog: leaf of the log {table_of(log)}"


def _number(number: int) -> str:
    return f"({number:d})::pg_catalog.int8"


def ask(log: OpenLog, question: str, **parameters: object) -> list[Any]:
    """Return the rows of a statement of ``leaves.sql``."""
    statement = _SQL[question]
    if ":log" in statement:
        parameters["log"] = table_of(log.table)
    return list(log.connection.execute(sa.text(statement), parameters).all())


def run(log: OpenLog, statement: str) -> None:
    """Run a statement without parameters."""
    run_as_it_stands(log.connection, statement)


def value_of(log: OpenLog, statement: str) -> int:
    """Return the number that a statement without parameters returns."""
    options = {"no_parameters": True}
    return int(log.connection.exec_driver_sql(statement, execution_options=options).scalar_one())


def copied_rows(log: OpenLog, source: str) -> tuple[str, str]:
    """Return, as SQL, the columns and values that copy the rows of a table into the log or a leaf.
    The name of the table is quoted. A row keeps its transaction id, if it has one
    (spec/event-log.md 1.5).
    """
    columns = [quote_identifier(name) for (name,) in ask(log, "columns", name=source)]
    values, own = list(columns), log.table.transaction_column
    if own is not None and (name := quote_identifier(own)) not in columns:
        columns.append(name)
        values.append("NULL")
    return ", ".join(columns), ", ".join(values)


def copy_rows(log: OpenLog, source: str, target: str, condition: str = "") -> None:
    """Copy the rows of a table into another table. ``condition`` is SQL that follows the name of
    ``source``.
    """
    columns, values = copied_rows(log, source)
    insert = f"INSERT INTO {target} ({columns})"
    run(log, f"{insert} SELECT {values} FROM {source} {condition}")  # noqa: S608 - quoted names


def owner_of(log: OpenLog) -> str:
    """Return the quoted owner of a log's table, who also owns the leaves."""
    return str(ask(log, "owner")[0][0])


def deny_table(log: OpenLog, name: str) -> None:
    """Take all rights on a table, and on the sequence of its identity column, from every role but
    the owner and the readers.
    """
    run(log, deny_others([name], readers=log.table.readers))


def sessions_in_words(sessions: Sequence[Any]) -> list[str]:
    return [
        f"prepared transaction {gid!r}"
        if gid is not None
        else f"session {pid}, user {user}, application {application!r}"
        + (f", transaction since {since:%Y-%m-%d %H:%M:%S}" if since else "")
        for pid, gid, user, application, since in sessions
    ]


@contextmanager
def changes(log: OpenLog) -> Iterator[None]:
    """Let the statements of this transaction wait only briefly for a lock, and roll back after an
    error. Raises LogInUse if another session has a lock.
    """
    try:
        run(log, f"SET LOCAL lock_timeout = '{WAIT}ms'")
        for plan in OTHER_PLANS:
            run(log, f"SET LOCAL {plan} = off")
        yield
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        log.connection.rollback()
        if state not in (_LOCK_NOT_AVAILABLE, _DEADLOCK, _UNDEFINED_TABLE):
            raise
        found = for_message(log.connection, lambda: sessions_in_words(ask(log, "holders"))) or ()
        log.connection.rollback()
        by = f" by {'; '.join(found)}" if found else ""
        raise LogInUse(f"the log {log} is in use{by}") from None
    except BaseException:
        log.connection.rollback()
        raise


def take(log: OpenLog) -> None:
    """Lock the table of a log for this session."""
    run(log, f"LOCK TABLE ONLY {table_of(log.table)} IN ACCESS EXCLUSIVE MODE")


def allow_inserts(log: OpenLog) -> None:
    """Let the function of the CHECKs return true."""
    run(log, _SQL["function"].format(function=check_function(log.table), condition="true"))


def attach(log: OpenLog, leaf: Leaf) -> None:
    """Verify with the index of its key that a leaf has no row outside of its range, then attach the
    leaf.
    """
    table, column = (
        sibling(log.table, leaf.name),
        quote_identifier(log.table.column("record_id")),
    )
    outside, inside = [], ["true"]
    if leaf.first is not None:
        outside.append(f"{column} < {leaf.first:d}")
        inside.append(f"$1 OPERATOR(pg_catalog.>=) {_number(leaf.first)}")
    if leaf.end is not None:
        outside.append(f"{column} >= {leaf.end:d}")
        inside.append(f"$1 OPERATOR(pg_catalog.<) {_number(leaf.end)}")
    # Each end needs its own index lookup: one index scan cannot find both.
    looks = [f"EXISTS (SELECT FROM {table} WHERE {condition})" for condition in outside]
    if looks and value_of(log, f"SELECT {' OR '.join(looks)}"):
        raise DatabaseError(
            f"the leaf {leaf.name}, a partition of the log {log}, has rows outside of its range "
            f"({' or '.join(outside)}), so nothing was changed. Correct these rows"
        )
    first = "MINVALUE" if leaf.first is None else f"{leaf.first:d}"
    end = "MAXVALUE" if leaf.end is None else f"{leaf.end:d}"
    function = _SQL["function"].format(
        function=check_function(log.table), condition=" AND ".join(inside)
    )
    attach = (
        f"ALTER TABLE {table_of(log.table)} ATTACH PARTITION {table} "
        f"FOR VALUES FROM ({first}) TO ({end})"
    )
    run(log, f"{function}; {attach}")


def create_leaf(log: OpenLog, name: str) -> None:
    """Create the table of a leaf, without a range."""
    table = sibling(log.table, name)
    run(
        log,
        f"CREATE TABLE {table} (LIKE {table_of(log.table)} INCLUDING ALL EXCLUDING IDENTITY "
        f"EXCLUDING COMMENTS) WITH ({storage_parameters(LOG_STORAGE)})",
    )
    run(log, f"COMMENT ON TABLE {table} IS {literal(leaf_comment(log.table))}")
    run(log, f"ALTER TABLE {table} OWNER TO {owner_of(log)}")
    deny_table(log, table)


def add_check(log: OpenLog, name: str) -> None:
    """Add the CHECK to a new, empty leaf, so that its bounds can be changed later without a
    scan.
    """
    column, _ = columns_of(log.table)
    run(
        log,
        f"ALTER TABLE {sibling(log.table, name)} "
        f"ADD CONSTRAINT {quote_identifier(check_name(log.table))} "
        f"CHECK ({check_function(log.table)}({column}))",
    )


def drop_check(log: OpenLog, table: str) -> None:
    """Drop the CHECK of a leaf, if it has one."""
    check = quote_identifier(check_name(log.table))
    run(log, f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {check}")


def free_names(log: OpenLog, first: int, count: int) -> list[str]:
    """Return names of leaves that no table has. The names are numbered from ``first`` on. A table
    that was detached keeps its name.
    """
    names = (_leaf_name(log.table, number) for number in itertools.count(first))
    free = (
        name for name in names if not ask(log, "has_relation", name=sibling(log.table, name))[0][0]
    )
    return list(itertools.islice(free, count))
