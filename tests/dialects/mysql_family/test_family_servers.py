"""Servers that are set up in another way: replicas, a binary log, names in lower case
(docs/databases/mysql-and-mariadb.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import mysql_servers
import pytest
import sqlalchemy as sa
from platforms import Platform, opened
from shared import Run, fetch, free_port, opened_log

from eventlog.config.load import load
from eventlog.errors import DatabaseError
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.port.questions import ask

pytestmark = pytest.mark.xdist_group("servers of MySQL's family")  # one binary log for all

TABLES = (
    "CREATE TABLE usr (id int PRIMARY KEY, name varchar(20))",
    "CREATE TABLE phone (id int, no varchar(20), UNIQUE (id, no),"
    " FOREIGN KEY (id) REFERENCES usr (id) ON DELETE CASCADE ON UPDATE CASCADE)",
)
CHANGES = (
    "INSERT INTO usr VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "INSERT INTO phone VALUES (1, '555'), (2, '556')",
    "UPDATE usr SET name = 'z' WHERE id > 1",
    "UPDATE usr SET id = 9 WHERE id = 2",
    "DELETE FROM usr WHERE id = 1",
)


@contextmanager
def platform_of(server: mysql_servers.Server, place: Path, *tables: str) -> Iterator[Platform]:
    with (
        server.database() as url,
        opened(
            load_dialect(server.build.dialect), sa.create_engine(url, poolclass=sa.NullPool), place
        ) as made,
    ):
        made.settings = {"publisher": {"allow_loopback": True}}
        made.install()
        made.run(*tables)
        yield made


def logged(engine: sa.Engine) -> list[tuple[object, ...]]:
    return fetch(
        engine,
        "SELECT event_type, table_key, column_name, old_value, new_value, perpetrator FROM "
        "eventlog",
    )


# --- replicas -------------------------------------------------------------------------------------


class Words(NamedTuple):
    """What a database calls the parts of a replication."""

    settings: tuple[str, ...]
    position: str
    wait: str
    state: str
    follow: tuple[str, ...]
    end: tuple[str, ...]
    server: str


WORDS = {
    "mariadb": Words(
        ("--log-slave-updates",),
        "SELECT @@gtid_binlog_pos",
        "SELECT MASTER_GTID_WAIT(%s, 60)",
        "SHOW SLAVE STATUS",
        (
            "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {port}, master_user = "
            "'repl', master_password = 'repl', master_use_gtid = slave_pos",
            "START SLAVE",
        ),
        ("STOP SLAVE", "RESET SLAVE ALL"),
        "server_id",
    ),
    "mysql": Words(
        ("--gtid-mode=ON", "--enforce-gtid-consistency=ON"),
        "SELECT @@GLOBAL.gtid_executed",
        "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 60)",
        "SHOW REPLICA STATUS",
        (
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, "
            "SOURCE_USER = 'repl', SOURCE_PASSWORD = 'repl', SOURCE_AUTO_POSITION = 1, "
            "GET_SOURCE_PUBLIC_KEY = 1",
            "START REPLICA",
        ),
        ("STOP REPLICA", "RESET REPLICA ALL"),
        "server_uuid",
    ),
}


class Pair(NamedTuple):
    """A server and its replica."""

    primary: mysql_servers.Server
    replica: mysql_servers.Server
    words: Words

    def follow(self) -> None:
        """Wait until the replica has all that the primary has."""
        with sa.create_engine(self.primary.url, poolclass=sa.NullPool).connect() as conn:
            position = conn.exec_driver_sql(self.words.position).scalar_one()
        with sa.create_engine(self.replica.url, poolclass=sa.NullPool).connect() as conn:
            waited = conn.exec_driver_sql(self.words.wait, (position,)).scalar_one()
            state = conn.exec_driver_sql(self.words.state).mappings().one()
            assert waited == 0, state["Last_SQL_Error"] or state["Last_IO_Error"]

    def promote(self, platform: Platform) -> None:
        """Let the replica take over, and the platform with it."""
        self.follow()
        self.primary.stop(kill=True)
        self.replica.run(*self.words.end, "SET GLOBAL read_only = 0")
        platform.__dict__.pop("ours", None)
        platform.engine = engine_of(self.replica)


def engine_of(server: mysql_servers.Server) -> sa.Engine:
    return sa.create_engine(
        server.url.set(username="app", password="app", database="app"), poolclass=sa.NullPool
    )


@contextmanager
def pair_of(name: str, *settings: str) -> Iterator[Pair]:
    build = mysql_servers.BUILDS[name]
    words = WORDS[build.dialect]
    port = free_port()
    common = (
        "--log-bin=binlog",
        *words.settings,
        "--log-bin-trust-function-creators=1",
        *settings,
    )
    with ExitStack() as stack:
        network = ("--skip-networking=0", "--bind-address=127.0.0.1", f"--port={port}")
        primary = stack.enter_context(
            mysql_servers.server(*common, "--server-id=1", *network, build=build)
        )
        replica = stack.enter_context(
            mysql_servers.server(*common, "--server-id=2", "--read-only", build=build)
        )
        primary.run(
            "CREATE USER repl@'127.0.0.1' IDENTIFIED BY 'repl'",
            "GRANT REPLICATION SLAVE ON *.* TO repl@'127.0.0.1'",
        )
        replica.run(*(statement.format(port=port) for statement in words.follow))
        yield Pair(primary, replica, words)


@pytest.mark.parametrize("name", mysql_servers.params())
def test_a_replica_has_the_log_of_its_primary_and_no_row_twice(tmp_path: Path, name: str) -> None:
    """Ours are never written by statements; those of an application may be, if its sessions are
    REPEATABLE READ.
    """
    with pair_of(name) as pair, platform_of(pair.primary, tmp_path, *TABLES) as platform:
        platform.watch("usr")
        for form in ("ROW", "MIXED", "STATEMENT"):
            platform.run("DELETE FROM usr", "DELETE FROM eventlog")
            pair.primary.run(f"SET GLOBAL binlog_format = {form}")  # of sessions from now on
            platform.run(*CHANGES)
            pair.follow()
            ours, theirs = logged(platform.engine), logged(engine_of(pair.replica))
            assert len(ours) > 8, form
            assert [row[:5] for row in theirs] == [row[:5] for row in ours], form
            # By statements the replica's own triggers write: under the name that the primary's
            # session had, or none.
            assert {row[5] for row in ours} == {"app"}, form
            assert form == "STATEMENT" or theirs == ours, form


@pytest.mark.parametrize("name", mysql_servers.params())
def test_a_replica_that_takes_over_is_another_server_of_the_same_log_and_gets_a_new_epoch(
    tmp_path: Path, run: Run, name: str
) -> None:
    def publish(platform: Platform) -> list[str]:
        platform.config()
        code, out, error = run(
            "-c", str(tmp_path / "eventlog.toml"), "--set", "sink.type=stdout", "publish", "--once"
        )
        assert code == 0, error
        return [part.partition('"')[0] for part in out.split('event-id="')[1:]]

    with pair_of(name, "--binlog-format=MIXED") as pair, ExitStack() as stack:
        platform = stack.enter_context(platform_of(pair.primary, tmp_path, *TABLES))
        platform.watch("usr")
        platform.run(CHANGES[0])
        before = publish(platform)
        with platform.session() as (conn, log):
            was = (
                platform.dialect.open(conn).log(log).identity(),
                platform.dialect.open(conn).log(log).server_parts(),
            )
        pair.follow()
        with pytest.raises(DatabaseError, match="read_only"):
            publish_at_replica(pair, platform)
        pair.promote(platform)
        with platform.session() as (conn, log):
            now = (
                platform.dialect.open(conn).log(log).identity(),
                platform.dialect.open(conn).log(log).server_parts(),
            )
        assert now[0] == was[0]
        server = pair.words.server
        assert was[1][server] != now[1][server]
        platform.run(CHANGES[2])
        after = publish(platform)
        assert all(one.isdecimal() for one in before)
        assert len(after) == 2
        assert all(".e2" in one for one in after)
        pair.primary.start("--server-id=1")  # whose database is dropped at the end


def publish_at_replica(pair: Pair, platform: Platform) -> None:
    """Open a publisher at the replica."""
    url = engine_of(pair.replica).url.render_as_string(hide_password=False)
    with open_context(
        load(platform.place / "eventlog.toml", {}, {"database.url": url}), Counters()
    ):
        pass


# --- the binary log -------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=mysql_servers.params())
def with_binary_log(request: pytest.FixtureRequest) -> Iterator[mysql_servers.Server]:
    """A server with a binary log."""
    with mysql_servers.server(
        "--log-bin=binlog",
        "--server-id=1",
        "--binlog-format=MIXED",
        build=mysql_servers.BUILDS[request.param],
    ) as made:
        yield made


def test_triggers_are_refused_with_the_right_that_the_binary_log_asks_for(
    with_binary_log: mysql_servers.Server, tmp_path: Path
) -> None:
    with_binary_log.run("SET GLOBAL log_bin_trust_function_creators = 0")
    with platform_of(with_binary_log, tmp_path, *TABLES) as platform:
        with pytest.raises(DatabaseError, match=r"log_bin_trust_function_creators"):
            platform.watch("usr")
        assert "log_bin_trust_function_creators is 0" in " ".join(rights_to_apply(platform))
        with_binary_log.run("SET GLOBAL log_bin_trust_function_creators = 1")
        platform.watch("usr")
        assert rights_to_apply(platform) == []
        assert platform.logged(CHANGES[0]) != []


def rights_to_apply(platform: Platform) -> list[str]:
    """What doctor finds missing for `triggers apply`."""
    with platform.session() as (conn, log):
        opened = opened_log(conn, log)
        return ask(opened, "rights_to_apply", str, tables=["usr"])


def test_a_publisher_is_refused_where_the_binary_log_takes_none_of_its_statements(
    with_binary_log: mysql_servers.Server, tmp_path: Path, run: Run
) -> None:
    with_binary_log.run("SET GLOBAL log_bin_trust_function_creators = 1")
    with platform_of(with_binary_log, tmp_path, *TABLES) as platform:
        platform.watch("usr")
        with_binary_log.run("SET GLOBAL binlog_format = STATEMENT")
        platform.run(CHANGES[0])
        platform.config()
        code, out, error = run(
            "-c", str(tmp_path / "eventlog.toml"), "--set", "sink.type=stdout", "publish", "--once"
        )
        assert (code, out) != (0, "")
        assert "event-id" not in out
        assert "set binlog_format = MIXED, or ROW" in error
        assert {letter for (letter,) in fetch(platform.engine, "SELECT status FROM eventlog")} == {
            "N"
        }


# --- names, definers ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mysql_servers.params("mariadb", "mariadb-11.8"))
def test_names_in_lower_case_are_those_of_the_log(tmp_path: Path, run: Run, name: str) -> None:
    with (
        mysql_servers.server(
            "--lower-case-table-names=1", build=mysql_servers.BUILDS[name]
        ) as server,
        platform_of(
            server, tmp_path, "CREATE TABLE Usr (Id int PRIMARY KEY, Name varchar(20))"
        ) as platform,
    ):
        platform.watch("usr")
        rows = platform.logged(
            "INSERT INTO USR VALUES (1, 'a')", "UPDATE uSr SET NAME = 'b'", "DELETE FROM usr"
        )
        assert rows == [
            (1, "Id=1", "Name", None, "a"),
            (2, "Id=1", "Name", "a", "b"),
            (4, "Id=1", None, None, None),
        ]
        assert {name for (name,) in fetch(platform.engine, "SELECT table_name FROM eventlog")} == {
            "usr"
        }
        assert platform.plan({"table": "usr"}).changes == ()
        code, out, error = run(
            "-c", str(tmp_path / "eventlog.toml"), "--set", "sink.type=stdout", "publish", "--once"
        )
        assert code == 0, error
        assert 'class-name="usr"' in out


def test_a_definer_that_is_dropped_fails_every_write_and_applying_again_fixes_it(
    family: Platform, family_server: mysql_servers.Server
) -> None:
    family.run(*TABLES)
    family_server.run(
        "CREATE USER owner@localhost IDENTIFIED BY 'owner'",
        "GRANT ALL PRIVILEGES ON app.* TO owner@localhost",
    )
    app = family.engine
    family.engine = sa.create_engine(
        app.url.set(username="owner", password="owner"), poolclass=sa.NullPool
    )
    family.watch("usr")
    family.close()
    family.engine = app
    family.__dict__.pop("ours")
    family_server.run("DROP USER owner@localhost")
    with pytest.raises(sa.exc.OperationalError, match="1449"):
        family.run(CHANGES[0])
    family.apply(family.plan())
    family.watch("usr")
    assert family.logged(CHANGES[0]) != []
