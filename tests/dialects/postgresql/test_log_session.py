"""A publisher's session: the statements of its log that run without SQLAlchemy leave the session as
SQLAlchemy's own do (spec/event-log.md 8.1).
"""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection
from written_log import EVERYTHING, write

from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.dialects.postgresql.log_session import begin_log_session, run_alone
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.open_log import OpenLog

_ONE = "SELECT %(number)s::int"


@pytest.fixture
def log(conn: Connection, opened: LogTable) -> OpenLog:
    write(conn, (1, "N"), (2, "N"), (3, "N"))
    conn.commit()
    begin_log_session(conn)
    return DIALECT.open(conn).log(opened)


def numbers(log: OpenLog) -> list[int]:
    rows = log.poll(EVERYTHING, ("record_id",), "")
    assert rows is not None
    return [number for chunk in rows for (number, *_) in chunk]


def test_a_poll_begins_no_transaction(log: OpenLog) -> None:
    assert numbers(log) == [1, 2, 3]
    assert not log.connection.in_transaction()


def test_what_follows_it_is_one_transaction(log: OpenLog) -> None:
    numbers(log)
    log.mark("S", [(1, 1)])
    log.mark("S", [(2, 2)])
    log.connection.rollback()
    assert numbers(log) == [1, 2, 3]


def test_many_rows_of_one_statement_are_one_transaction(log: OpenLog) -> None:
    numbers(log)
    statement = f'UPDATE "{log.table.name}" SET status = %(to)s WHERE record_id = %(row)s'
    log.connection.exec_driver_sql(statement, [{"to": "S", "row": 1}, {"to": "S", "row": 2}])
    log.connection.rollback()
    assert numbers(log) == [1, 2, 3]


def test_verbatim_text_is_in_a_transaction(log: OpenLog) -> None:
    numbers(log)
    log.connection.exec_driver_sql(
        f"UPDATE \"{log.table.name}\" SET status = 'S'", execution_options={"no_parameters": True}
    )
    log.connection.rollback()
    assert numbers(log) == [1, 2, 3]


def test_in_a_transaction_it_does_not_run(log: OpenLog) -> None:
    log.mark("S", [(1, 1)])
    assert run_alone(log.connection, _ONE, {"number": 1}) is None
    assert numbers(log) == [2, 3]
    log.connection.rollback()
    assert numbers(log) == [1, 2, 3]


def test_only_a_publishers_session_runs_it(conn: Connection, opened: LogTable) -> None:
    conn.commit()
    assert run_alone(conn, _ONE, {"number": 1}) is None


@pytest.mark.parametrize("to", ["connection", "engine", "class"])
def test_whoever_listens_to_statements_gets_each_of_them(log: OpenLog, to: str) -> None:
    heard: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        heard.append(statement)

    targets = {"connection": log.connection, "engine": log.connection.engine, "class": sa.Engine}
    sa.event.listen(targets[to], "before_cursor_execute", note)
    try:
        assert numbers(log) == [1, 2, 3]
    finally:
        sa.event.remove(targets[to], "before_cursor_execute", note)
    assert len(heard) == 1


def test_an_error_of_the_server_is_sqlalchemys_and_the_session_goes_on(log: OpenLog) -> None:
    with pytest.raises(sa.exc.ProgrammingError, match="no_such_table") as raised:
        run_alone(log.connection, "SELECT FROM no_such_table WHERE 1 = %(number)s", {"number": 1})
    assert not raised.value.connection_invalidated
    log.connection.rollback()
    assert numbers(log) == [1, 2, 3]


def test_a_lost_session_is_invalid_for_sqlalchemy_too(log: OpenLog, engine: sa.Engine) -> None:
    session = log.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    log.commit()
    with engine.connect() as other:
        other.execute(sa.select(sa.func.pg_terminate_backend(session, 10_000)))
    with pytest.raises(sa.exc.OperationalError) as raised:
        numbers(log)
    assert raised.value.connection_invalidated
    assert log.connection.invalidated
