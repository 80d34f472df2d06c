"""A publisher's session of PostgreSQL: the statements of its log are prepared, with plans that use
an index alone; all others run as in any session (spec/event-log.md 8.1).

PostgreSQL reads the settings of the planner when it plans a statement. A prepared statement is
planned again whenever a table of it was changed or analysed. So the settings hold whenever such a
statement runs, and not only at first. They are changed where another kind of statement follows,
which costs a round trip: nothing of the kind runs while changes flow that ask for no values.

A generic plan is kept, so that only the tables' changes have it made again. It must serve a log of
any size: with an index and no other choice there is one plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Engine, event

from eventlog.sql.statements import ALONE, KIND, StatementKind

OTHER_PLANS: Final = ("enable_seqscan", "enable_bitmapscan", "enable_sort")
"""The plans that a window would use otherwise: they read all of its rows and sort them, and the
limit takes the first ones.
"""
_BY_INDEX: Final = {**dict.fromkeys(OTHER_PLANS, "off"), "plan_cache_mode": "force_generic_plan"}
_SET: Final = "SELECT " + ", ".join(
    f"pg_catalog.set_config('{name}', %({name})s, false)" for name in _BY_INDEX
)
_USUAL: Final = "SELECT " + ", ".join(f"pg_catalog.current_setting('{name}')" for name in _BY_INDEX)
_NEVER_BY_ITSELF: Final = 2**31
"""The executions after which the driver prepares a statement that does not ask for it."""
_STALE: Final = frozenset({"0A000", "26000"})
"""SQLSTATE of a prepared statement whose result has other types now, or that the session has not
any more.
"""
_CACHED_PLAN: Final = "cached plan must not change result type"
_sessions: Final[WeakKeyDictionary[psycopg.Connection[Any], LogSession]] = WeakKeyDictionary()
"""The sessions of publishers, by the driver's connections."""


@dataclass(slots=True)
class LogSession:
    """The planner's settings in a publisher's session."""

    usual: Mapping[str, str]
    """The settings that all but the log's statements run with."""
    by_index: bool | None = None
    """True if the settings of the log's statements hold, None = unknown."""

    def choose_plans(self, cursor: psycopg.Cursor[Any], kind: StatementKind) -> None:
        """Change the settings, if the next statement needs others."""
        wanted = kind is not StatementKind.OTHER
        if kind is not StatementKind.NEUTRAL and self.by_index is not wanted:
            cursor.execute(_SET, _BY_INDEX if wanted else self.usual)
            self.by_index = wanted


def begin_log_session(conn: Connection) -> None:
    """Make a session one of a publisher, and commit."""
    driver = _driver(conn)
    if driver in _sessions:
        return
    usual = dict(zip(_BY_INDEX, conn.exec_driver_sql(_USUAL).one(), strict=True))
    conn.commit()
    driver.prepare_threshold = _NEVER_BY_ITSELF
    _sessions[driver] = LogSession(usual)


def _driver(conn: Connection) -> psycopg.Connection[Any]:
    driver = conn.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def is_log_session(conn: Connection) -> bool:
    """Return True for a publisher's session: each of its statements gets the plans of its kind."""
    return _driver(conn) in _sessions


def listen(engine: Engine) -> None:
    """Have the sessions of an engine run their statements by their kinds."""

    @event.listens_for(engine, "do_execute")
    def execute(
        cursor: psycopg.Cursor[Any], statement: str, parameters: Any, context: Any
    ) -> bool | None:
        session = _sessions.get(cursor.connection)
        if session is None:
            return None
        _run(session, cursor, statement, parameters, context.execution_options)
        return True

    @event.listens_for(engine, "do_execute_no_params")
    def execute_as_it_stands(cursor: psycopg.Cursor[Any], statement: str, context: Any) -> None:
        _choose_plans(cursor, context)

    @event.listens_for(engine, "do_executemany")
    def execute_many(
        cursor: psycopg.Cursor[Any], statement: str, parameters: Any, context: Any
    ) -> None:
        _choose_plans(cursor, context)

    @event.listens_for(engine, "rollback")
    def rolled_back(conn: Connection) -> None:
        _forget_plans(conn)

    @event.listens_for(engine, "rollback_savepoint")
    def rolled_back_to(conn: Connection, name: str, context: object) -> None:
        _forget_plans(conn)


def _choose_plans(cursor: psycopg.Cursor[Any], context: Any) -> None:
    session = _sessions.get(cursor.connection)
    if session is not None:
        session.choose_plans(cursor, context.execution_options.get(KIND, StatementKind.OTHER))


def _forget_plans(conn: Connection) -> None:
    """Note that a transaction was taken back, and the settings that were changed in it."""
    if conn.invalidated or (session := _sessions.get(driver := _driver(conn))) is None:
        return
    if driver.pgconn.transaction_status != TransactionStatus.IDLE:
        session.by_index = None


def _run(
    session: LogSession,
    cursor: psycopg.Cursor[Any],
    statement: str,
    parameters: Any,
    options: Mapping[str, Any],
) -> None:
    kind = options.get(KIND, StatementKind.OTHER)
    prepare = True if kind is StatementKind.LOG else None
    driver = cursor.connection
    if ALONE not in options or driver.pgconn.transaction_status != TransactionStatus.IDLE:
        session.choose_plans(cursor, kind)
        cursor.execute(statement, parameters, prepare=prepare)
        return
    driver.autocommit = True
    try:
        session.choose_plans(cursor, kind)
        try:
            cursor.execute(statement, parameters, prepare=prepare)
        except psycopg.Error as error:
            if not is_stale(error):
                raise
            _forget_statements(cursor)
            session.by_index = None
            session.choose_plans(cursor, kind)
            cursor.execute(statement, parameters, prepare=prepare)
    finally:
        with suppress(psycopg.Error):  # of a connection that is lost
            driver.autocommit = False


def is_stale(error: BaseException) -> bool:
    """Return True for the refusal of a prepared statement that is not what it was: once all are
    forgotten, the same statement may be run in a new transaction.
    """
    sqlstate = getattr(error, "sqlstate", None)
    return sqlstate in _STALE and (sqlstate != "0A000" or _CACHED_PLAN in str(error))


def _forget_statements(cursor: psycopg.Cursor[Any]) -> None:
    """Have the driver forget all prepared statements, which it does where a transaction is rolled
    back.
    """
    driver = cursor.connection
    driver.autocommit = False
    cursor.execute("SELECT 1")
    driver.rollback()
    driver.autocommit = True
