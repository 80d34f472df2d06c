"""A subscriber of a logical replication, whose apply worker fires row triggers only
(spec/triggers.md 7.1).

Two servers of their own: a publisher needs ``wal_level = logical``, which takes a restart.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pytest
import sqlalchemy as sa
from shared import PATIENCE, memory, opened_log, temporary_servers
from sqlalchemy import Connection
from trigger_log import LOG_DDL, Logged, Watched, fields, run

from eventlog.sql import embedded
from eventlog.sql.doctor import LogTrigger
from eventlog.sql.port.questions import ask
from eventlog.sql.triggers import TriggerPlan
from eventlog.sql.triggers.watch import WatchedTable

pytestmark = pytest.mark.xdist_group("logical_replication")

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str]]:
    """The URLs of a server that can publish, and of another one."""
    # Not pytest's own temporary directory: its path is too long for a socket, and closed to the
    # server's user.
    with temporary_servers("el-", memory()) as place:
        publisher = place / "a"
        with embedded.running(publisher) as url, _connected(url) as conn:
            run(conn, "ALTER SYSTEM SET wal_level = logical")
        with embedded.running(publisher) as source, embedded.running(place / "b") as target:
            yield source, target


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as conn:
        yield conn


@contextmanager
def _database(url: str) -> Iterator[Connection]:
    name = f"x{next(_numbers)}"
    with _connected(url) as admin:
        run(admin, f"CREATE DATABASE {name}")
        try:
            with _connected(
                sa.make_url(url).set(database=name).render_as_string(hide_password=False)
            ) as conn:
                yield conn
        finally:
            run(admin, f"DROP DATABASE {name} WITH (FORCE)")


@dataclass
class Replication:
    """A publisher of the tables ``t`` and ``tag``, and a subscriber to be, which has them too, and
    a log.
    """

    source: Connection
    target: Watched

    def watch(self, watch: WatchedTable) -> TriggerPlan:
        """Apply a plan on the subscriber: in a transaction, which CREATE SUBSCRIPTION cannot be
        in.
        """
        with self.target.conn.engine.execution_options(
            isolation_level="READ COMMITTED"
        ).begin() as conn:
            return replace(self.target, conn=conn).watch(watch)

    def subscribe(self) -> None:
        """Begin, with the rows that the publisher has by now."""
        url = self.source.engine.url
        there = f"host={url.query['host']} user={url.username} dbname={url.database}"
        name = f"s{next(_numbers)}"
        run(self.source, "CREATE PUBLICATION p FOR TABLE t, tag")
        run(self.target.conn, f"CREATE SUBSCRIPTION {name} CONNECTION '{there}' PUBLICATION p")
        self._wait()

    def replicated(self, *statements: str) -> list[Logged]:
        """What the subscriber logs of statements of the publisher."""
        self.target.rows()
        run(self.source, *statements)
        self._wait()
        return self.target.logged_by_now()

    def _wait(self) -> None:
        """Until the subscriber has the publisher's rows: applied and logged in one transaction."""
        until = time.monotonic() + PATIENCE
        while (wanted := _rows(self.source)) != (there := _rows(self.target.conn)):
            assert time.monotonic() < until, (wanted, there)
            time.sleep(0.05)

    def unsubscribe(self) -> None:
        for (name,) in self.target.conn.exec_driver_sql(
            "SELECT subname FROM pg_subscription"
        ).all():
            run(self.target.conn, f"DROP SUBSCRIPTION {name}")


def _rows(conn: Connection) -> list[tuple[object, ...]]:
    asked = "SELECT 't', id, name FROM t UNION ALL SELECT 'tag', id, v FROM tag ORDER BY 1, 2, 3"
    return [tuple(row) for row in conn.exec_driver_sql(asked)]


@pytest.fixture
def replication(servers: tuple[str, str]) -> Iterator[Replication]:
    with ExitStack() as open_:
        source, target = (open_.enter_context(_database(url)) for url in servers)
        for conn in (source, target):
            run(
                conn,
                "CREATE TABLE t (id integer PRIMARY KEY, name text)",
                "CREATE TABLE tag (id integer NOT NULL REFERENCES t, v text NOT NULL, UNIQUE (id, "
                "v))",
                "ALTER TABLE tag REPLICA IDENTITY FULL",
            )
        run(target, *LOG_DDL)
        made = Replication(source, Watched(target, trigger_level="statement"))
        open_.callback(made.unsubscribe)
        yield made


def test_what_a_subscriber_applies_is_logged_once_by_statement_triggers_row_by_row(
    replication: Replication,
) -> None:
    target = replication.target
    run(
        replication.source,
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO tag VALUES (1, 'x')",
    )
    plan = replication.watch(WatchedTable("t", capture_replicated=True))
    assert not any("replication" in sentence for sentence in plan.not_captured)
    assert [sentence for sentence in plan.warnings if "logged row by row" in sentence] == [
        (
            f"{table}: changes are logged by statement, but replicated changes are logged "
            "row by row, since an apply worker fires only row triggers"
        )
        for table in ("t", "tag")
    ]
    replication.subscribe()
    # The first synchronization is a COPY, which fires the triggers of statements too.
    assert sorted(target.logged_by_now()) == [
        *fields(1, "id=1", ("name", None, "a")),
        *fields(1, "id=2", ("name", None, "b")),
        *fields(2, "id=1", ("tag.v", None, "x")),
    ]
    assert replication.replicated(
        "INSERT INTO t VALUES (3, 'c'), (4, NULL)", "INSERT INTO tag VALUES (3, 'y')"
    ) == [
        *fields(1, "id=3", ("name", None, "c")),
        *fields(1, "id=4", ("name", None, None)),
        *fields(2, "id=3", ("tag.v", None, "y")),
    ]
    assert replication.replicated(
        "UPDATE t SET name = name || '!'", "UPDATE tag SET v = 'z' WHERE id = 3"
    ) == [
        *fields(2, "id=1", ("name", "a", "a!")),
        *fields(2, "id=2", ("name", "b", "b!")),
        *fields(2, "id=3", ("name", "c", "c!")),
        *fields(2, "id=3", ("tag.v", "y", "z")),
    ]
    assert replication.replicated(
        "DELETE FROM t WHERE id IN (2, 4)", "UPDATE t SET id = 5 WHERE name IS NULL"
    ) == [
        (4, "id=2", None, None, None),
        (4, "id=4", None, None, None),
    ]
    assert replication.replicated("TRUNCATE t, tag") == [
        (4, "id=1", None, None, None),
        (4, "id=3", None, None, None),
        (8, "id=1", "tag.v", None, None),
        (8, "id=3", "tag.v", None, None),
    ]


def test_what_applications_do_on_a_subscriber_is_logged_once_by_statement(
    replication: Replication,
) -> None:
    target = replication.target
    replication.watch(WatchedTable("t", capture_replicated=True))
    replication.subscribe()
    assert target.logged(
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')", "UPDATE t SET name = 'c'", "TRUNCATE t, tag"
    ) == [
        *fields(1, "id=1", ("name", None, "a")),
        *fields(1, "id=2", ("name", None, "b")),
        *fields(2, "id=1", ("name", "a", "c")),
        *fields(2, "id=2", ("name", "b", "c")),
        (4, "id=1", None, None, None),
        (4, "id=2", None, None, None),
    ]


def test_updates_of_a_key_that_may_shift_are_logged_on_a_subscriber(
    replication: Replication,
) -> None:
    replication = Replication(replication.source, Watched(replication.target.conn))
    target = replication.target
    run(
        target.conn,
        "ALTER TABLE tag DROP CONSTRAINT tag_id_fkey",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED",
    )
    plan = replication.watch(WatchedTable("t", capture_replicated=True))
    assert not any("replication" in sentence for sentence in plan.not_captured)
    assert any(
        "t: UPDATEs are logged by statement, but replicated changes" in one for one in plan.warnings
    )
    assert target.plan(WatchedTable("t", capture_replicated=True)).changes == ()
    # By a key that is deferrable an apply worker finds no row.
    run(replication.source, "ALTER TABLE t REPLICA IDENTITY FULL", "INSERT INTO t VALUES (1, 'a')")
    replication.subscribe()
    assert target.logged_by_now() == fields(1, "id=1", ("name", None, "a"))
    assert replication.replicated("UPDATE t SET name = 'b'", "UPDATE t SET id = 2") == [
        *fields(2, "id=1", ("name", "a", "b")),
        (4, "id=1", None, None, None),
        *fields(1, "id=2", ("name", None, "b")),
    ]
    assert target.logged("UPDATE t SET name = 'c'") == fields(2, "id=2", ("name", "b", "c"))


def installed_triggers(target: Watched) -> list[LogTrigger]:
    return ask(opened_log(target.conn, target.log), "installed_triggers", LogTrigger)


def test_triggers_that_only_missed_what_is_replicated_are_replaced(
    replication: Replication,
) -> None:
    target = replication.target
    replication.watch(WatchedTable("t", capture_replicated=True))
    (unchanged, *_) = target.plan(WatchedTable("t", capture_replicated=True)).actions
    assert unchanged.kind == "unchanged"
    assert all(trigger.enabled for trigger in installed_triggers(target))
    # As eventlog made them before: no trigger for rows, those of statements for all.
    run(
        target.conn,
        *(f"DROP TRIGGER _tgr_t_{operation}_2 ON t" for operation in "iud"),
        *(f"ALTER TABLE t ENABLE ALWAYS TRIGGER _tgr_t_{operation}_1" for operation in "iud"),
        "DROP FUNCTION proc_t_2",
    )
    (change,) = target.plan(WatchedTable("t", capture_replicated=True)).changes
    assert (change.kind, change.table) == ("replace", "public.t")
    replication.watch(WatchedTable("t", capture_replicated=True))
    assert target.plan(WatchedTable("t", capture_replicated=True)).changes == ()
    replication.watch(WatchedTable("t"))
    left = target.conn.exec_driver_sql(
        "SELECT tgname FROM pg_trigger WHERE tgenabled IN ('R', 'A')"
    ).all()
    assert left == []
    # One that fires for what is replicated alone is right next to another that logs all else, and
    # nowhere else.
    run(target.conn, "ALTER TABLE t ENABLE REPLICA TRIGGER _tgr_t_i_1")
    disabled = [one.trigger for one in installed_triggers(target) if not one.enabled]
    assert disabled == ["_tgr_t_i_1"]
