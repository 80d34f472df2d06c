"""What MySQL alone does in its own way (spec/triggers.md 7.4, docs/databases/mysql-and-mariadb.md)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import mysql_servers
import pytest
import sqlalchemy as sa
from platforms import Logged, Platform, opened
from shared import opened_log

from eventlog.errors import PublisherAlreadyRunning
from eventlog.publisher.context.context import Counters
from eventlog.publisher.context.observer import Measured
from eventlog.publisher.declared.opening import open_context
from eventlog.sql.log.internal_tables import next_number
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.port.rights import Addition, Purpose, demanded
from eventlog.sql.triggers import triggers_of

pytestmark = pytest.mark.night


@pytest.fixture(scope="module")
def mysql_server(
    started_server: Callable[[str], mysql_servers.Server],
) -> mysql_servers.Server:
    return started_server("mysql")


@pytest.fixture
def mysql(mysql_server: mysql_servers.Server, tmp_path: Path) -> Iterator[Platform]:
    with (
        mysql_server.database() as url,
        opened(load_dialect("mysql"), sa.create_engine(url), tmp_path) as made,
    ):
        made.install()
        yield made


@pytest.fixture
def family_of_rows(mysql: Platform) -> Platform:
    """A parent, its children by a key that cascades, and a value of theirs in a child table."""
    mysql.run(
        "CREATE TABLE dept (id int PRIMARY KEY, name varchar(20))",
        "CREATE TABLE emp (id int PRIMARY KEY, dept int, name varchar(20),"
        " FOREIGN KEY (dept) REFERENCES dept (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE phone (emp int, no varchar(20), UNIQUE (emp, no),"
        " FOREIGN KEY (emp) REFERENCES emp (id) ON DELETE CASCADE)",
        "INSERT INTO dept VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO emp VALUES (10, 1, 'x'), (11, 1, 'y'), (12, 2, 'z')",
        "INSERT INTO phone VALUES (10, '555'), (12, '556')",
    )
    mysql.apply(mysql.plan({"table": "dept"}, {"table": "emp"}))
    return mysql


def in_session(platform: Platform, *statements: str) -> list[Logged]:
    """What the statements of one session log."""
    platform.rows()
    with platform.engine.begin() as conn:
        for statement in statements:
            conn.exec_driver_sql(statement)
    return [(int(row.event_type or 0), str(row.table_key), *row[7:10]) for row in platform.rows()]


def test_lock_tables_of_a_watched_table_keeps_others_off_the_log(
    family_of_rows: Platform,
) -> None:
    family_of_rows.run("CREATE TABLE other (id int PRIMARY KEY)")
    family_of_rows.apply(
        family_of_rows.plan({"table": "dept"}, {"table": "emp"}, {"table": "other"})
    )
    with (
        family_of_rows.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as locking,
        family_of_rows.engine.connect() as writing,
    ):
        writing.exec_driver_sql("SET SESSION lock_wait_timeout = 1")
        locking.exec_driver_sql("LOCK TABLES emp WRITE")
        for statement in ("INSERT INTO other VALUES (1)", "SELECT count(*) FROM eventlog"):
            with pytest.raises(sa.exc.OperationalError, match="1205"):
                writing.exec_driver_sql(statement)
        locking.exec_driver_sql("UNLOCK TABLES")
        writing.exec_driver_sql("INSERT INTO other VALUES (1)")


FIRED = "SET SESSION enable_cascade_triggers = ON"


def test_rows_whose_triggers_the_server_fires_itself_are_logged_once(
    family_of_rows: Platform,
) -> None:
    rows = in_session(family_of_rows, FIRED, "DELETE FROM dept WHERE id = 1")
    assert sorted(row[:2] for row in rows if row[0] == 4) == [
        (4, "id=1"),
        (4, "id=10"),
        (4, "id=11"),
    ]


def test_a_key_that_the_server_hands_on_with_triggers_is_logged_once(
    family_of_rows: Platform,
) -> None:
    rows = in_session(family_of_rows, FIRED, "UPDATE dept SET id = 7 WHERE id = 1")
    assert sorted(row for row in rows if row[1] in ("id=10", "id=11")) == [
        (2, "id=10", "dept", "1", "7"),
        (2, "id=11", "dept", "1", "7"),
    ]


def test_the_children_that_a_replaced_parent_keeps_come_back(family_of_rows: Platform) -> None:
    """The server itself leaves them, and fires the triggers of a delete."""
    rows = in_session(family_of_rows, "REPLACE INTO dept VALUES (1, 'new')")
    with family_of_rows.engine.connect() as conn:
        kept = [id_ for (id_,) in conn.exec_driver_sql("SELECT id FROM emp WHERE dept = 1")]
    assert kept == [10, 11]
    assert [row[:2] for row in rows if row[0] in (4, 5)] == [
        *[(4, "id=10"), (4, "id=11"), (4, "id=1")],
        *[(5, "id=10"), (5, "id=11")],
    ]


def test_the_values_that_a_replaced_owner_keeps_are_read_back(family_of_rows: Platform) -> None:
    rows = in_session(family_of_rows, "REPLACE INTO emp VALUES (10, 1, 'new')")
    with family_of_rows.engine.connect() as conn:
        assert conn.exec_driver_sql("SELECT no FROM phone WHERE emp = 10").scalar() == "555"
    assert (8, "id=10", "phone.no", None, None) in rows


def test_triggers_that_are_replaced_while_writers_write_lose_nothing(mysql: Platform) -> None:
    """Between DROP and CREATE the table is locked."""
    mysql.run("CREATE TABLE t (k int AUTO_INCREMENT PRIMARY KEY, v int, w int)")
    mysql.watch("t")
    mysql.rows()
    written: list[int] = []
    stop = threading.Event()

    def write() -> None:
        with mysql.engine.connect() as conn:
            while not stop.is_set():
                conn.exec_driver_sql("INSERT INTO t (v, w) VALUES (1, 1)")
                conn.commit()
                written.append(1)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(8):
        mysql.watch("t", **({"exclude": ["w"]} if n % 2 == 0 else {}))
    stop.set()
    for thread in threads:
        thread.join(60)
    logged = {row.table_key for row in mysql.rows()}
    assert len(written) > 8
    assert len(logged) == len(written)


def test_a_session_that_applies_has_its_mode_and_no_lock_afterwards(mysql: Platform) -> None:
    mysql.run("CREATE TABLE t (k int PRIMARY KEY)", "CREATE TABLE u (k int PRIMARY KEY)")
    plan = mysql.plan({"table": "t"})
    with mysql.ours.connect() as conn:
        before = conn.exec_driver_sql("SELECT @@SESSION.sql_mode").scalar()
        triggers_of(mysql.dialect).apply(conn, plan, 5.0)
        assert conn.exec_driver_sql("SELECT @@SESSION.sql_mode").scalar() == before
        assert conn.exec_driver_sql("SELECT COUNT(*) FROM u").scalar() == 0


def test_deliveries_go_on_after_a_crash_although_their_table_is_empty(
    mysql: Platform, mysql_server: mysql_servers.Server
) -> None:
    mysql_server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    with mysql.session() as (conn, log):
        first = [next_number(opened_log(conn, log)) for _ in range(3)][-1]
        conn.commit()
        conn.exec_driver_sql("DELETE FROM eventlog_delivery")
        conn.commit()
    mysql.ours.dispose()
    mysql_server.stop(kill=True)
    mysql_server.start()
    with mysql.session() as (conn, log):
        assert next_number(opened_log(conn, log)) > first


def test_rights_that_a_role_gives_count(
    mysql: Platform, mysql_server: mysql_servers.Server
) -> None:
    mysql.run("CREATE TABLE t (k int PRIMARY KEY)")
    mysql_server.run(
        "CREATE ROLE IF NOT EXISTS makers",
        "GRANT ALL PRIVILEGES ON app.* TO makers",
        "CREATE USER member@localhost IDENTIFIED BY 'member' DEFAULT ROLE makers",
    )
    try:
        mysql.engine = sa.create_engine(
            mysql.engine.url.set(username="member", password="member"), poolclass=sa.NullPool
        )
        with mysql.session() as (conn, log):
            assert mysql.dialect.open(conn).sees_triggers("")
            needed = demanded(Purpose.PUBLISHER, Addition.DELETE_FROM_LOG)
            assert mysql.dialect.open(conn).log(log).lacking(needed) == []
        mysql.watch("t")
    finally:
        mysql_server.run("DROP USER member@localhost", "DROP ROLE makers")


@contextmanager
def running(server: mysql_servers.Server, statement: str) -> Iterator[int]:
    """A session that runs a statement, which sleeps, until the block ends; its number."""
    with sa.create_engine(server.url.set(database="app"), poolclass=sa.NullPool).connect() as conn:
        session = int(conn.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one())

        def sleep() -> None:
            with suppress(sa.exc.DBAPIError):
                conn.exec_driver_sql(statement)

        sleeping = threading.Thread(target=sleep)
        sleeping.start()
        with sa.create_engine(server.url, poolclass=sa.NullPool).connect() as other:
            shown = f"SELECT state FROM performance_schema.processlist WHERE id = {session}"
            while other.exec_driver_sql(shown).scalar_one() != "User sleep":
                time.sleep(0.01)
            try:
                yield session
            finally:
                other.exec_driver_sql(f"KILL QUERY {session}")
                sleeping.join()


@pytest.mark.parametrize(
    "statement",
    ["SELECT SLEEP(60), '\U0001f600'", "UPDATE t SET v = CONCAT('\U0001f600', SLEEP(60))"],
    ids=["no transaction", "transaction"],
)
def test_a_publisher_starts_and_names_the_holder_of_the_lock_while_a_statement_with_an_emoji_runs(
    mysql: Platform, mysql_server: mysql_servers.Server, statement: str
) -> None:
    mysql.run("CREATE TABLE t (k int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    mysql.watch("t")
    mysql.run("INSERT INTO t VALUES (2, 'b')")
    # The superuser has PROCESS, and sees all transactions.
    mysql.engine = sa.create_engine(mysql_server.url.set(database="app"), poolclass=sa.NullPool)
    config = mysql.config()
    with running(mysql_server, statement), open_context(config, Counters()) as held:
        Measured.read(held.log)
        session = held.log.db.session_id()
        with (
            pytest.raises(
                PublisherAlreadyRunning,
                match=rf"published by session {session}, user root, from localhost",
            ),
            open_context(config, Counters()),
        ):
            pass
        # A consumer waits for a transaction that the server cannot list.
        assert statement.startswith("UPDATE") or held.log.hidden_writers() is None


def test_a_publisher_is_refused_at_a_server_that_is_read_only(
    mysql: Platform, mysql_server: mysql_servers.Server
) -> None:
    mysql_server.run("SET GLOBAL read_only = 1")
    try:
        with mysql.session() as (conn, _):
            assert (
                mysql.dialect.open(conn).read_only() == "the server is read_only, as a replica is"
            )
    finally:
        mysql_server.run("SET GLOBAL read_only = 0")
