"""The open writers of a log on MariaDB and MySQL (spec/event-log.md 13.6): which transactions may
still bring a row, and what a reader is refused.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import family_writers
import mysql_servers
import pytest
import sqlalchemy as sa
from family_writers import (
    CHANGES,
    WATCHES,
    Changes,
    Follower,
    Writers,
    changing,
    end_prepared,
    filled,
    out_of_order,
    rows,
    run,
    session,
)
from publishers import write_config
from shared import Unhesitating, execute, fetch, in_ci, url_of, wait_until

from eventlog.config.load import Config, load
from eventlog.core import clock
from eventlog.core.ranges import to_ranges
from eventlog.errors import LogTableError, ServerUnavailable
from eventlog.publisher.declared.opening import find_log
from eventlog.sql.connect.connection import connect
from eventlog.sql.dialects.mysql_family import writers as of_family
from eventlog.sql.dialects.mysql_family.log import MySQLFamilyLog
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers import consumers, followed_set

INSTRUMENT = "UPDATE performance_schema.setup_instruments SET enabled = '{}' WHERE name = 'wait/lock/metadata/sql/mdl'"
CONSUMER = (
    "UPDATE performance_schema.setup_consumers SET enabled = '{}' "
    "WHERE name = 'global_instrumentation'"
)
INSERT = "INSERT INTO usr (name) VALUES ('x')"
DURABLE = "--innodb-flush-log-at-trx-commit=1"
"""What a server that is killed must not lose."""


class Place:
    """A server with a log in its database ``app``, and its configuration."""

    def __init__(self, server: mysql_servers.Server, root: sa.Engine, config: Config) -> None:
        self.server, self.root, self.config = server, root, config

    @contextmanager
    def log(self, url: sa.URL | None = None) -> Iterator[OpenLog]:
        """The log in its own session."""
        engine = connect(url or self.root.url)
        with engine.connect() as conn:
            yield find_log(load_dialect(engine.dialect.name).open(conn), self.config)

    @contextmanager
    def writer(self, *statements: str) -> Iterator[family_writers.Session]:
        with closing(session(self.server)) as mine:
            run(mine, *statements)
            yield mine


@contextmanager
def place_on(server: mysql_servers.Server, directory: Path) -> Iterator[Place]:
    with filled(server, directory) as root:
        config = load(write_config(directory, url_of(root), WATCHES), {}, {})
        yield Place(server, root, config)


@pytest.fixture(autouse=True)
def _unhesitating() -> Iterator[None]:
    with clock.simulated(Unhesitating()):
        yield


@pytest.fixture
def place(family_server: mysql_servers.Server, tmp_path: Path) -> Iterator[Place]:
    with place_on(family_server, tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps are skipped as soon as their writers have been open for a moment."""
    monkeypatch.setattr(followed_set, "OLD", 0.05)


def missed(place: Place, follower: Follower) -> set[int]:
    with place.root.connect() as conn:
        return {record_id for record_id, _ in rows(conn)} - set(follower.read)


# --- who is open ----------------------------------------------------------------------------------


def test_a_transaction_is_open_from_its_first_row_to_its_end(place: Place) -> None:
    with place.log() as log, place.writer("BEGIN", "SELECT * FROM usr") as mine:
        assert log.open_writers() == frozenset()
        run(mine, INSERT)
        (name,) = log.open_writers() or ()
        run(mine, INSERT, "SAVEPOINT s", INSERT, "ROLLBACK TO s")
        assert log.open_writers() == {name}
        run(mine, "COMMIT")
        assert log.open_writers() == frozenset()


def test_rows_that_are_given_up_by_a_savepoint_hold_nobody(place: Place) -> None:
    with (
        place.log() as log,
        place.writer("BEGIN", "SAVEPOINT s", INSERT, "ROLLBACK TO s"),
    ):
        assert log.open_writers() == frozenset()


def test_a_session_that_is_ended_holds_nobody(place: Place) -> None:
    with place.log() as log, place.writer("BEGIN", INSERT) as mine, place.writer() as other:
        assert log.open_writers()
        run(other, f"KILL {mine.thread_id()}")
        until = time.monotonic() + 10
        while log.open_writers() and time.monotonic() < until:
            time.sleep(0.01)
        assert log.open_writers() == frozenset()


def test_a_table_that_is_locked_for_writing_counts_as_written(place: Place) -> None:
    with place.log() as log, place.writer() as mine:
        log.commit()
        run(mine, "LOCK TABLES numbers READ, usr WRITE")
        if log.dialect.name == "mariadb":  # MySQL locks the log, too: nobody reads it
            assert log.open_writers()
        run(mine, "UNLOCK TABLES")
        assert log.open_writers() == frozenset()


def test_a_writer_counts_while_all_tables_are_flushed_with_a_read_lock(place: Place) -> None:
    with place.log() as log, place.writer("BEGIN", INSERT) as mine, place.writer() as other:
        follower, writers = Follower(log), log.open_writers()
        assert writers
        log.commit()
        run(other, "FLUSH TABLES WITH READ LOCK")
        ending = threading.Thread(target=run, args=(mine, "COMMIT"))
        ending.start()
        for _ in range(5):
            follower.poll()
            time.sleep(0.05)
        assert log.open_writers() == writers  # its commit waits
        log.commit()
        run(other, "UNLOCK TABLES")
        ending.join()
        execute(place.root, INSERT)
        for _ in range(5):
            follower.poll()
        assert missed(place, follower) == set()


def test_the_publishers_own_session_is_not_among_the_writers(place: Place) -> None:
    with place.log() as log:
        log.mark("S", [(1, 10)])
        assert log.open_writers() == frozenset()
        log.connection.rollback()


@pytest.mark.parametrize("build", mysql_servers.params())
def test_a_prepared_transaction_is_open_until_it_is_ended_though_its_session_and_the_server_ended(
    tmp_path: Path, build: str
) -> None:
    with (
        mysql_servers.server(DURABLE, build=mysql_servers.BUILDS[build]) as server,
        place_on(server, tmp_path) as place,
    ):
        with place.writer("XA START 'x'", INSERT, "XA END 'x'", "XA PREPARE 'x'"):
            pass
        server.stop(kill=True)
        server.start(DURABLE)
        with place.log() as log, place.writer() as mine:
            follower = Follower(log)
            execute(place.root, INSERT)
            for _ in range(5):
                follower.poll()
            assert len(missed(place, follower)) == 0
            assert any(name.startswith("xa:1.1.0.") for name in log.open_writers() or ())
            run(mine, "XA COMMIT 'x'")
            for _ in range(5):
                follower.poll()
            assert log.open_writers() == frozenset()
            assert missed(place, follower) == set()
            assert not follower.followed.done.ranges


def test_a_transaction_that_is_prepared_between_two_checks_is_the_same_one(place: Place) -> None:
    with place.log() as log:
        follower = Follower(log)
        with place.writer("XA START 'x'", INSERT) as mine:
            execute(place.root, INSERT)
            follower.poll()
            seen = log.open_writers()
            run(mine, "XA END 'x'", "XA PREPARE 'x'")
        time.sleep(0.2)  # the session is gone, and its lock
        assert seen
        assert seen <= (log.open_writers() or frozenset())
        for _ in range(5):
            follower.poll()
        end_prepared(place.server)
        for _ in range(5):
            follower.poll()
        assert missed(place, follower) == set()


def test_another_transaction_that_stays_prepared_is_not_taken_for_one_that_has_ended(
    place: Place,
) -> None:
    with place.log() as log:
        with place.writer("XA START 'x'", INSERT, "XA END 'x'", "XA PREPARE 'x'"):
            pass
        before = log.open_writers() or frozenset()
        log.open_writers()
        with place.writer("BEGIN", INSERT) as mine:
            added = (log.open_writers() or frozenset()) - before
            run(mine, "COMMIT")
            assert added
            assert not added & (log.open_writers() or frozenset())
        end_prepared(place.server)


# --- whose gaps may be skipped --------------------------------------------------------------------


def test_a_writer_that_sleeps_is_certainly_open_and_one_that_runs_a_statement_is_not(
    place: Place,
) -> None:
    with (
        place.log() as log,
        place.writer("BEGIN", INSERT) as mine,
        place.writer("BEGIN") as busy,
    ):
        idle = log.open_writers() or frozenset()
        assert idle
        # A session has its answer a moment before the server shows it as sleeping.
        wait_until(lambda: log.db.are_open(idle))
        run(busy, INSERT)
        both = log.open_writers() or frozenset()
        wait_until(lambda: log.db.are_open(both))
        run(mine, "SELECT GET_LOCK('busy', 0)")
        # COM_QUERY, whose answer is read below
        busy._execute_command(3, "SELECT GET_LOCK('busy', 60)")
        wait_until(lambda: not log.db.are_open(both))
        assert log.open_writers() == both
        wait_until(lambda: log.db.are_open(idle))
        assert not log.db.are_open(both)
        run(mine, "SELECT RELEASE_LOCK('busy')")
        busy._read_query_result()
        run(mine, "COMMIT")
        assert not log.db.are_open(idle)


def test_a_new_session_does_not_wait_for_a_list_that_it_has_made_old_itself(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    time.sleep(0.25)  # nobody else reads innodb_trx
    monkeypatch.setattr(of_family, "sleep", lambda seconds: pytest.fail("the session waits"))
    with place.log() as log:
        consumers.check_possible(log)
        assert log.open_writers() == frozenset()


def test_a_prepared_transaction_is_never_certainly_open(place: Place) -> None:
    with (
        place.log() as log,
        place.writer("XA START 'x'", INSERT, "XA END 'x'", "XA PREPARE 'x'") as mine,
    ):
        assert not log.db.are_open(log.open_writers() or frozenset())
        run(mine, "XA ROLLBACK 'x'")


# --- a reader that follows ------------------------------------------------------------------------


def followed(
    place: Place, transactions: int, seed: int = 1, changes: Changes | None = None
) -> tuple[Follower, list[str]]:
    """A reader that has followed so many transactions, and more until each change of ``changes`` was
    made; and what the server refused the writers though nothing happened at the same time.
    """

    def enough() -> bool:
        return changes is None or changes.number >= len(CHANGES)

    with ExitStack() as sessions:
        log = sessions.enter_context(place.log())
        assert log.hidden_writers() is None
        follower = Follower(log)
        writers = Writers(place.server, transactions, seed, enough=enough)
        writers.start()
        while True:
            try:
                follower.follow(writers)
            except sa.exc.OperationalError as error:
                # MySQL may end a reader as the victim of a deadlock with the change.
                if changes is None or not log.dialect.passes(error.orig or error):
                    raise
                log = sessions.enter_context(place.log())
                follower.reconnect(log)
            else:
                break
        writers.join()
    return follower, writers.errors


def check_followed(
    place: Place, transactions: int, seed: int = 1, changes: Changes | None = None
) -> None:
    follower, errors = followed(place, transactions, seed, changes)
    with place.root.connect() as conn:
        truth = dict(rows(conn))
    assert not errors
    assert sorted(follower.read) == sorted(truth)
    assert out_of_order(follower.read, truth) == []
    assert not follower.followed.done.ranges  # every gap is closed
    assert follower.followed.done.floor >= max(truth)


def test_a_reader_misses_no_row_of_any_transaction(place: Place) -> None:
    check_followed(place, 1_500)


@pytest.mark.parametrize("mode", in_ci([0, 1, 2], 2))  # 1 is the default of other tests
@pytest.mark.parametrize("build", mysql_servers.params())
def test_a_reader_misses_no_row_in_any_mode_of_auto_increment(
    tmp_path: Path, build: str, mode: int
) -> None:
    option = f"--innodb-autoinc-lock-mode={mode}"
    with (
        mysql_servers.server(option, build=mysql_servers.BUILDS[build]) as server,
        place_on(server, tmp_path) as place,
    ):
        assert fetch(place.root, "SELECT @@innodb_autoinc_lock_mode") == [(mode,)]
        check_followed(place, 300, seed=20 + mode)


def test_a_reader_misses_no_row_while_the_log_is_changed(place: Place) -> None:
    with changing(place.server) as changes:
        check_followed(place, 600, seed=5, changes=changes)
    assert changes.number >= len(CHANGES)


def last_number(place: Place) -> int:
    """The highest record_id that was drawn for a row; the newest ones are given up."""
    with place.root.connect() as conn:
        for _ in range(3):
            conn.exec_driver_sql(INSERT)
        ((last,),) = conn.exec_driver_sql("SELECT MAX(record_id) FROM eventlog").all()
        conn.rollback()
    return int(last)


@pytest.mark.parametrize("build", mysql_servers.params())
def test_a_number_is_given_once_though_its_row_is_gone_and_the_log_or_the_server_begins_again(
    tmp_path: Path, build: str
) -> None:
    with (
        mysql_servers.server(DURABLE, build=mysql_servers.BUILDS[build]) as server,
        place_on(server, tmp_path) as place,
    ):

        def restart(*, kill: bool) -> None:
            server.stop(kill=kill)
            server.start(DURABLE)

        for again in (
            partial(restart, kill=False),
            partial(restart, kill=True),
            *(partial(execute, place.root, change) for change in CHANGES),
        ):
            execute(place.root, INSERT, INSERT)
            used = last_number(place)
            execute(place.root, "DELETE FROM eventlog ORDER BY record_id DESC LIMIT 2")
            again()
            execute(place.root, INSERT)
            ((given,),) = fetch(place.root, "SELECT MAX(record_id) FROM eventlog")
            assert given > used, again


@pytest.mark.night
def test_a_reader_misses_no_row_of_a_hundred_thousand_transactions(place: Place) -> None:
    check_followed(place, 100_000, seed=7)


def test_a_reader_that_reads_the_locks_before_the_highest_row_misses_rows(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, before = MySQLFamilyLog.open_writers, [frozenset[str]()]

    def earlier(log: MySQLFamilyLog) -> frozenset[str] | None:
        last, before[0] = before[0], real(log) or frozenset()
        return last

    monkeypatch.setattr(MySQLFamilyLog, "open_writers", earlier)
    with place.log() as log, place.writer() as mine:
        follower = Follower(log)
        follower.poll()
        run(mine, "BEGIN", INSERT)
        execute(place.root, INSERT)
        for _ in range(3):
            follower.poll()
        run(mine, "COMMIT")
        follower.poll()
        assert len(missed(place, follower)) == 1


def test_a_reader_without_the_prepared_transactions_misses_rows(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_family, "prepared_transactions", lambda conn, dialect: [])
    if place.root.dialect.name == "mysql":  # it keeps the lock for a while
        pytest.skip("MySQL shows a copy of the lock of a prepared transaction")
    with place.log() as log:
        follower = Follower(log)
        with place.writer("XA START 'x'", INSERT, "XA END 'x'", "XA PREPARE 'x'"):
            pass
        time.sleep(0.2)
        execute(place.root, INSERT)
        for _ in range(3):
            follower.poll()
        end_prepared(place.server)
        follower.poll()
        assert len(missed(place, follower)) == 1


def test_windows_of_many_gaps_have_the_rows_of_all_of_them_in_order(place: Place) -> None:
    for _ in range(4):
        execute(
            place.root,
            "INSERT INTO usr (num) SELECT a.n FROM numbers AS a, numbers AS b, numbers AS c",
        )
    with place.log() as log:
        ids = [
            one for (one,) in fetch(place.root, "SELECT record_id FROM eventlog ORDER BY record_id")
        ]
        log.mark("S", [(ids[0], ids[-1])])
        passed = to_ranges([one for one in ids if one % 3 == 0 and not 5_000 < one < 9_000])
        done = followed_set.FollowedSet()
        done.add(passed)
        wanted = [one for one in ids if one not in done.done]
        for limit in (10, 3_000, None):
            window = dataclasses.replace(followed_set.ANY_STATUS, limit=limit)
            found = consumers.shown_ids(log, window.outside(done.done, log.dialect.last_record_id))
            assert found == wanted[:limit]
        log.connection.rollback()


# --- what is refused ------------------------------------------------------------------------------


def refusal(place: Place, url: sa.URL | None = None) -> str:
    with place.log(url) as log, pytest.raises(LogTableError) as refused:
        consumers.check_possible(log)
    return str(refused.value)


@pytest.mark.parametrize("switch", [INSTRUMENT, CONSUMER])
def test_a_server_whose_locks_are_not_shown_is_refused_also_while_a_reader_runs(
    place: Place, switch: str
) -> None:
    with place.log() as log:
        consumers.check_possible(log)
        execute(place.root, switch.format("NO"))
        try:
            assert log.open_writers() is None
            assert "mdl=ON" in refusal(place)
        finally:
            execute(place.root, switch.format("YES"))
        assert log.open_writers() == frozenset()


def test_a_transaction_from_before_the_locks_were_switched_on_is_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_family, "PATIENCE", 1.0)
    execute(place.root, INSTRUMENT.format("NO"))
    with place.writer("BEGIN", INSERT) as mine:
        execute(place.root, INSTRUMENT.format("YES"))
        with (
            place.log() as log,
            pytest.raises(ServerUnavailable, match=f"session {mine.thread_id()}"),
        ):
            consumers.check_possible(log)
        run(mine, "COMMIT")
    with place.log() as log:
        consumers.check_possible(log)


def test_a_role_without_a_right_is_refused_with_the_right_and_the_command_that_prints_it(
    place: Place,
) -> None:
    execute(
        place.root,
        "CREATE USER reader IDENTIFIED BY 'reader'",
        "GRANT SELECT ON app.* TO reader",
        "GRANT SELECT ON performance_schema.threads TO reader",
    )
    url = place.root.url.set(username="reader", password="reader")
    try:
        told = refusal(place, url)
        assert "lacks SELECT on performance_schema.metadata_locks; " in told
        assert "PROCESS" in told
        assert ("XA_RECOVER_ADMIN" in told) == (place.root.dialect.name == "mysql")
        assert "threads" not in told
        assert "--purpose consumer`, run by the owner, prints the rights" in told
        with place.log() as log:
            granted = list(of_family.grants(log.dialect, "`reader`"))  # type: ignore[arg-type]
        execute(place.root, *granted)
        with place.log(url) as log:
            consumers.check_possible(log)
    finally:
        execute(place.root, "DROP USER reader")


HIDING: dict[str, tuple[str, list[str]]] = {
    "runs without performance_schema": ("", ["--performance-schema=off"]),
    "too small for all metadata locks": ("", ["--performance-schema-max-metadata-locks=20"]),
    "read_only": ("", ["--read-only=1"]),
    "Galera": ("mariadb", ["--wsrep-on=1", "--wsrep-provider=none", "--binlog-format=ROW"]),
    "replication group": (
        "mysql",
        [
            "--plugin-load-add=group_replication.so",
            "--group-replication-start-on-boot=OFF",
            "--group-replication-group-name=6a0b1c5e-9c1b-4a55-8c0f-0f4b2f1f7c11",
        ],
    ),
}
"""The settings of servers that hide writers, by words of the refusal; with the dialect that has
them, empty = each.
"""


@pytest.mark.parametrize("build", mysql_servers.params())
def test_a_server_that_hides_writers_is_refused(tmp_path: Path, build: str) -> None:
    with (
        mysql_servers.server(build=mysql_servers.BUILDS[build]) as server,
        place_on(server, tmp_path) as place,
    ):
        for words, (dialect, settings) in HIDING.items():
            if dialect not in ("", place.root.dialect.name):
                continue
            server.stop()
            server.start(*settings)
            with ExitStack() as stack:
                for _ in range(20):
                    stack.enter_context(place.writer("BEGIN", "SELECT * FROM usr, numbers"))
                assert words in refusal(place)
        server.stop()
        server.start()


REPLICATION = {
    "mariadb": (
        "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'nobody'",
        "START SLAVE",
        ("STOP SLAVE", "RESET SLAVE ALL"),
    ),
    "mysql": (
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_USER = 'nobody'",
        "START REPLICA",
        ("STOP REPLICA", "RESET REPLICA ALL"),
    ),
}
"""How a server becomes a replica, starts, and stops to be one."""


@pytest.mark.parametrize("build", mysql_servers.params())
def test_a_replica_is_refused(tmp_path: Path, build: str) -> None:
    with (
        mysql_servers.server("--server-id=2", build=mysql_servers.BUILDS[build]) as server,
        place_on(server, tmp_path) as place,
    ):
        become, start, stop = REPLICATION[place.root.dialect.name]
        execute(place.root, become)
        with place.log() as log:
            consumers.check_possible(log)
            execute(place.root, start)
            assert log.open_writers() is None
        assert "is a replica" in refusal(place)
        execute(place.root, *stop)
