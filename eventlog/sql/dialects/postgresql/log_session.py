"""A publisher's session of PostgreSQL: the statements of its log are prepared, with plans that only
use an index; all other statements run as in any session (spec/event-log.md 8.1).

PostgreSQL reads the planner's settings when it plans a statement. A prepared statement is planned
again whenever one of its tables was changed or analysed. So the settings are active whenever a
prepared statement runs, not only the first time. The settings are switched when another kind of
statement follows, which costs a round trip. While changes flow and no values are read back, only
statements of the log run.

The plan is generic, so that it is made again only when the tables change. The plan must be right
for a log of any size: if only an index may be used, there is only one plan.

This is a hot path: a change takes three statements of the log, and SQLAlchemy needs 0.1 ms for
each. So ``run_alone`` gives these statements to the driver directly. The price: there are two ways
to run a statement, and an error is passed to SQLAlchemy afterwards, as if SQLAlchemy had run the
statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine, event

from eventlog.sql.port.sql_files import ALONE, FIRST, KIND, Binds, Options, StatementKind

OTHER_PLANS: Final = ("enable_seqscan", "enable_bitmapscan", "enable_sort")
"""The planner's methods that are switched off: with them, the statement of a window would read and
sort all rows, and then keep the first rows.
"""
_BY_INDEX: Final = {**dict.fromkeys(OTHER_PLANS, "off"), "plan_cache_mode": "force_generic_plan"}
_SET: Final = "SELECT " + ", ".join(
    f"pg_catalog.set_config('{name}', %({name})s, false)" for name in _BY_INDEX
)
_USUAL: Final = "SELECT " + ", ".join(f"pg_catalog.current_setting('{name}')" for name in _BY_INDEX)
_NEVER_BY_ITSELF: Final = 2**31
"""The driver prepares a statement after this number of executions. The number is so high that the
driver never prepares a statement by itself.
"""
_STALE: Final = frozenset({"0A000", "26000"})
"""The SQLSTATEs for a prepared statement whose result types have changed, or that no longer exists
in the session.
"""
_FAILED: Final = "eventlog_failed"
"""The execution option with the error of a statement that was run without SQLAlchemy: the error is
raised in place of running the statement, so that SQLAlchemy treats it as any other error.
"""
_CACHED_PLAN: Final = "cached plan must not change result type"
_sessions: Final[WeakKeyDictionary[psycopg.Connection[Any], LogSession]] = WeakKeyDictionary()
"""The sessions of publishers, by the driver's connections."""


@dataclass(slots=True)
class LogSession:
    """The planner's settings in a publisher's session."""

    usual: Mapping[str, str]
    """The settings for all statements except the statements of the log."""
    by_index: bool | None = None
    """True if the settings for the log's statements are active, None = unknown."""

    def choose_plans(self, cursor: psycopg.Cursor[Any], kind: StatementKind) -> None:
        """Change the settings, if the next statement needs other settings."""
        wanted = kind is not StatementKind.OTHER
        if kind is not StatementKind.NEUTRAL and self.by_index is not wanted:
            cursor.execute(_SET, _BY_INDEX if wanted else self.usual)
            self.by_index = wanted


class _Statement(NamedTuple):
    """A statement to run. ``first`` is the text of a statement that runs before this statement,
    with the same parameters.
    """

    text: str
    parameters: Any
    kind: StatementKind
    first: str | None


def begin_log_session(conn: Connection) -> None:
    """Turn a session into a publisher's session, and commit."""
    driver = driver_of(conn)
    if driver in _sessions:
        return
    usual = dict(zip(_BY_INDEX, conn.exec_driver_sql(_USUAL).one(), strict=True))
    conn.commit()
    driver.prepare_threshold = _NEVER_BY_ITSELF
    _sessions[driver] = LogSession(usual)


def driver_of(conn: Connection) -> psycopg.Connection[Any]:
    """Return the driver's connection."""
    driver = conn.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def is_log_session(conn: Connection) -> bool:
    """Return True for a publisher's session, which runs each statement with the plans of the
    statement's kind.
    """
    return driver_of(conn) in _sessions


def listen(engine: Engine) -> None:
    """Let the sessions of an engine run each statement with the plans of the statement's kind."""

    @event.listens_for(engine, "do_execute")
    def execute(
        cursor: psycopg.Cursor[Any], statement: str, parameters: Any, context: Any
    ) -> bool | None:
        session = _sessions.get(cursor.connection)
        options = context.execution_options
        if session is None and FIRST not in options:
            return None
        if session is None:
            _run_after(options[FIRST], cursor, statement, parameters, None)
        else:
            _run(session, cursor, statement, parameters, options)
        return True

    @event.listens_for(engine, "do_execute_no_params")
    def execute_verbatim(cursor: psycopg.Cursor[Any], statement: str, context: Any) -> None:
        _choose_plans(cursor, context)

    @event.listens_for(engine, "do_executemany")
    def execute_many(
        cursor: psycopg.Cursor[Any], statement: str, parameters: Any, context: Any
    ) -> None:
        _choose_plans(cursor, context)

    @event.listens_for(engine, "rollback")
    def rolled_back(conn: Connection) -> None:
        forget_plans(conn)

    @event.listens_for(engine, "rollback_savepoint")
    def rolled_back_to(conn: Connection, name: str, context: object) -> None:
        forget_plans(conn)


def _choose_plans(cursor: psycopg.Cursor[Any], context: Any) -> None:
    session = _sessions.get(cursor.connection)
    if session is not None:
        _begin_transaction(cursor.connection)
        session.choose_plans(cursor, context.execution_options.get(KIND, StatementKind.OTHER))


def forget_plans(conn: Connection) -> None:
    """Record that a transaction was rolled back. The rollback also undoes the settings that were
    changed in the transaction.
    """
    if conn.invalidated or (session := _sessions.get(driver := driver_of(conn))) is None:
        return
    if driver.pgconn.transaction_status != TransactionStatus.IDLE:
        session.by_index = None


def _run(
    session: LogSession,
    cursor: psycopg.Cursor[Any],
    statement: str,
    parameters: Any,
    options: Options,
) -> None:
    if (error := options.get(_FAILED)) is not None:
        raise error
    wanted = _Statement(
        statement, parameters, options.get(KIND, StatementKind.OTHER), options.get(FIRST)
    )
    if ALONE in options and _may_be_alone(cursor.connection, wanted):
        _execute_alone(session, cursor, wanted)
    else:
        _begin_transaction(cursor.connection)
        _execute(session, cursor, wanted)


def run_alone(
    conn: Connection,
    statement: str,
    parameters: Binds,
    first: str | None = None,
) -> psycopg.Cursor[Any] | None:
    """Run a statement of the log as a transaction by itself, as ``OF_LOG_ALONE`` and ``FIRST`` let
    it run, but without SQLAlchemy. SQLAlchemy needs more time for a statement than the driver does.

    Returns None, and runs nothing, if this is not possible: if the session is not a publisher's
    session, if a transaction has begun, or if somebody listens to the statements of the connection.
    Errors are raised as SQLAlchemy raises them.
    """
    if conn.invalidated or conn.in_transaction() or conn.dispatch.before_cursor_execute:
        return None
    driver = driver_of(conn)
    session = _sessions.get(driver)
    wanted = _Statement(statement, parameters, StatementKind.LOG, first)
    if session is None or not _may_be_alone(driver, wanted):
        return None
    cursor = driver.cursor()
    try:
        _execute_alone(session, cursor, wanted)
    except (psycopg.Error, OSError) as error:
        conn.exec_driver_sql(statement, dict(parameters), execution_options={_FAILED: error})
        raise
    return cursor


def _may_be_alone(driver: psycopg.Connection[Any], statement: _Statement) -> bool:
    """Return True if no transaction has begun, and the driver can send the statement together with
    the statement before it.
    """
    is_single = statement.first is None or psycopg.Pipeline.is_supported()
    return is_single and driver.pgconn.transaction_status == TransactionStatus.IDLE


def _execute(session: LogSession, cursor: psycopg.Cursor[Any], statement: _Statement) -> None:
    text, parameters, kind, first = statement
    session.choose_plans(cursor, kind)
    prepare = True if kind is StatementKind.LOG else None
    if first is None:
        cursor.execute(text, parameters, prepare=prepare)
    else:
        _run_after(first, cursor, text, parameters, prepare)


def _execute_alone(session: LogSession, cursor: psycopg.Cursor[Any], statement: _Statement) -> None:
    """Execute a statement as a transaction by itself. If the server's prepared form of the
    statement is stale, execute the statement again without the prepared form.

    The driver stays in autocommit mode until ``_begin_transaction``, since changing the mode takes
    time.
    """
    driver = cursor.connection
    if not driver.autocommit:
        driver.autocommit = True
    try:
        _execute(session, cursor, statement)
    except psycopg.Error as error:
        if not is_stale(error):
            raise
        _forget_statements(cursor)
        session.by_index = None
        _execute(session, cursor, statement)


def _begin_transaction(driver: psycopg.Connection[Any]) -> None:
    """Let the next statement begin a transaction, if none has begun."""
    if driver.autocommit:
        driver.autocommit = False


def _run_after(
    first: str,
    cursor: psycopg.Cursor[Any],
    statement: str,
    parameters: Any,
    prepare: bool | None,
) -> None:
    """Run a statement after the statement ``first``, in one transaction.

    If libpq can, both statements are sent in one round trip. Each statement has its own database
    snapshot: the server begins the second statement when the first has ended.
    """
    driver = cursor.connection
    with driver.pipeline() if psycopg.Pipeline.is_supported() else nullcontext():
        driver.cursor().execute(first, parameters, prepare=prepare)
        cursor.execute(statement, parameters, prepare=prepare)


def is_stale(error: BaseException) -> bool:
    """Return True if the server refused a prepared statement because it is out of date: after
    ``_forget_statements`` the statement can be run in a new transaction.
    """
    sqlstate = getattr(error, "sqlstate", None)
    return sqlstate in _STALE and (sqlstate != "0A000" or _CACHED_PLAN in str(error))


def _forget_statements(cursor: psycopg.Cursor[Any]) -> None:
    """Make the driver forget all prepared statements, as it does after a rollback."""
    driver = cursor.connection
    driver.autocommit = False
    cursor.execute("SELECT 1")
    driver.rollback()
    driver.autocommit = True
