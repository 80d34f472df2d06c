"""Who has the log, and how a session is opened on a real server (spec/event-log.md 12)."""

from __future__ import annotations

import socket
import threading
import time

import pytest
import sqlalchemy as sa
from shared import PATIENCE
from sqlalchemy import Connection, Engine, make_url

from eventlog.errors import ConfigError, DatabaseError, DatabaseUnavailable, ServerUnavailable
from eventlog.sql import migrations
from eventlog.sql.connect.connection import connect, dialect_of
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.driver_errors import load_dialect

# The lock


def test_one_session_has_the_log(engine: Engine, conn: Connection, opened: LogTable) -> None:
    with engine.connect() as other:
        assert DIALECT.open(conn).log(opened).try_lock()
        assert DIALECT.open(conn).log(opened).try_lock()  # again, by the same session
        assert not DIALECT.open(other).log(opened).try_lock()
        assert DIALECT.open(conn).log(opened).holds_lock()
        assert not DIALECT.open(other).log(opened).holds_lock()
        conn.rollback()
        assert DIALECT.open(conn).log(opened).holds_lock()
        DIALECT.open(other).log(opened).unlock()
        assert not DIALECT.open(other).log(opened).try_lock()
        DIALECT.open(conn).log(opened).unlock()
        DIALECT.open(conn).log(opened).unlock()
        assert DIALECT.open(other).log(opened).try_lock()
    # The other session is gone as soon as the server has noticed.
    until = time.monotonic() + PATIENCE
    while not DIALECT.open(conn).log(opened).try_lock():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_two_logs_are_two_locks(engine: Engine, conn: Connection, opened: LogTable) -> None:
    migrations.upgrade(conn, log_table="second")
    conn.commit()
    second = locate_log(DIALECT.open(conn), name="second")
    assert DIALECT.open(conn).log(opened).try_lock()
    with engine.connect() as other:
        assert DIALECT.open(other).log(second).try_lock()
        assert not DIALECT.open(other).log(opened).try_lock()


def test_the_user_is_the_one_of_the_session(conn: Connection) -> None:
    user = conn.engine.url.username or conn.execute(sa.text("SELECT session_user")).scalar()
    conn.execute(sa.text("SET ROLE pg_monitor"))
    assert DIALECT.open(conn).current_user() == user


# Connecting


def test_sessions_show_values_as_triggers_write_them(conn: Connection) -> None:
    conn.execute(
        sa.text(
            "ALTER ROLE CURRENT_USER IN DATABASE "
            + conn.engine.url.database
            + " SET DateStyle = 'German'"
        )
    )
    conn.commit()
    with conn.engine.connect() as new:
        shown = {
            name: new.execute(sa.text(f"SHOW {name}")).scalar()
            for name in (
                "TimeZone",
                "DateStyle",
                "IntervalStyle",
                "extra_float_digits",
                "bytea_output",
                "jit",
                "application_name",
            )
        }
    assert shown == {
        "TimeZone": "UTC",
        "DateStyle": "ISO, YMD",
        "IntervalStyle": "postgres",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "jit": "off",
        "application_name": "eventlog",
    }


def test_an_unknown_database_is_refused_with_advice(database: Engine) -> None:
    engine = connect(database.url.set(database="no such database"), password="hunter2")
    with pytest.raises(DatabaseError) as refused:
        engine.connect()
    assert not isinstance(refused.value, DatabaseUnavailable)
    assert "cannot connect to database 'no such database'" in str(refused.value)
    assert "does not exist; create the database, or correct the URL" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_server_that_is_not_there_is_unavailable() -> None:
    engine = connect("postgresql://publisher:hunter2@127.0.0.1:1/hr", connect_timeout=2)
    with pytest.raises(ServerUnavailable) as refused:
        engine.connect()
    assert "cannot connect to database 'hr' at 127.0.0.1:1: " in str(refused.value)
    assert "check host and port" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_server_that_is_starting_up_is_unavailable() -> None:
    fields = b"SFATAL\0C57P03\0Mthe database system is starting up\0\0"
    message = b"E" + (4 + len(fields)).to_bytes(4, "big") + fields
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            with listening.accept()[0] as client:
                client.recv(4096)
                client.sendall(message)

        answering = threading.Thread(target=refuse)
        answering.start()
        port = listening.getsockname()[1]
        engine = connect(f"postgresql://publisher@127.0.0.1:{port}/hr?sslmode=disable")
        with pytest.raises(ServerUnavailable, match="the database system is starting up"):
            engine.connect()
        answering.join()


def test_an_unknown_user_is_refused(database: Engine) -> None:
    engine = connect(database.url.set(username="nobody at all"))
    with pytest.raises(DatabaseError, match=r"role .* does not exist|authentication failed"):
        engine.connect()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mssql://u@h/d", "'mssql' is not supported: use one of postgresql, "),
        (
            "postgresql+psycopg2://u@h/d",
            r"the driver postgresql\+psycopg2; write postgresql\+psycopg://",
        ),
        ("no url hunter2", "the database URL cannot be read"),
        ("postgresql://u:hunter2@h:port/d", "the database URL cannot be read"),
    ],
)
def test_a_url_that_is_not_ours_is_refused_without_showing_it(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        connect(url)
    assert "hunter2" not in str(refused.value)


def test_dialects_are_found_by_name_and_url() -> None:
    assert load_dialect("postgresql") is DIALECT
    assert dialect_of(make_url("postgresql+psycopg://u@h/d")) is DIALECT
    assert dialect_of("postgres://u@h/d") is DIALECT
