"""A publisher at its start, and a real PostgreSQL that takes no session, or no statement, yet
(spec/event-log.md 12.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from postgres_clusters import Server, programs, servers
from publishers import Collecting, configuration, is_drained, make_log, publishing, write
from shared import fetch, wait_until
from sqlalchemy import make_url

from eventlog.errors import DatabaseError, DatabaseUnavailable, ServerUnavailable
from eventlog.sql.connect.connection import connect
from eventlog.sql.port.driver_errors import as_database_errors

pytestmark = [
    pytest.mark.xdist_group("waiting"),  # one server for all
    pytest.mark.skipif(programs() is None, reason="no programs of PostgreSQL"),
]


@pytest.fixture(scope="module")
def server(watched_cluster: Path) -> Iterator[Server]:
    with servers(watched_cluster) as server:
        server.execute("CREATE ROLE pub LOGIN", "CREATE ROLE nolog", "CREATE DATABASE d")
        yield server


def as_pub(url: sa.URL) -> sa.URL:
    return url.set(username="pub")


def to_d(url: sa.URL) -> sa.URL:
    return as_pub(url).set(database="d")


def with_query(**query: str) -> Callable[[sa.URL], sa.URL]:
    return lambda url: as_pub(url).update_query_dict(query)


@dataclass(frozen=True)
class Case:
    """A publisher's URL, what the superuser does before, and what takes it back."""

    url: Callable[[sa.URL], sa.URL]
    before: str = "SELECT"
    after: str = "SELECT"


WAITS = {
    "the limit of the user": Case(
        as_pub, "ALTER ROLE pub CONNECTION LIMIT 0", "ALTER ROLE pub CONNECTION LIMIT -1"
    ),
    "the limit of the database": Case(
        to_d, "ALTER DATABASE d CONNECTION LIMIT 0", "ALTER DATABASE d CONNECTION LIMIT -1"
    ),
    "a database that takes no connections": Case(
        to_d, "ALTER DATABASE d ALLOW_CONNECTIONS false", "ALTER DATABASE d ALLOW_CONNECTIONS true"
    ),
    "a closed port": Case(lambda url: as_pub(url).set(port=1)),
    "an unknown host": Case(lambda url: as_pub(url).set(host="not-there.invalid")),
    "a standby that is not there": Case(with_query(target_session_attrs="standby")),
}

ENDS = {
    "no CONNECT": Case(
        to_d,
        "REVOKE CONNECT ON DATABASE d FROM PUBLIC",
        "GRANT CONNECT ON DATABASE d TO PUBLIC",
    ),
    "a user without LOGIN": Case(lambda url: url.set(username="nolog")),
    "an unknown user": Case(lambda url: url.set(username="nobody at all")),
    "an unknown database": Case(lambda url: as_pub(url).set(database="no such database")),
    "a wrong port": Case(lambda url: as_pub(url).set(port=70000)),
    "a wrong sslmode": Case(with_query(sslmode="maybe")),
    "no TLS": Case(with_query(sslmode="require")),
    "an unknown option": Case(with_query(nonsense="1")),
    "an unknown parameter": Case(with_query(options="-c nonsense=1")),
    "a wrong value": Case(with_query(options="-c work_mem=abc")),
    "a parameter of superusers": Case(with_query(options="-c lc_messages=C")),
}


def refusal(server: Server, case: Case) -> DatabaseError:
    server.execute(case.before, database="postgres")
    try:
        engine = connect(case.url(make_url(server.url)), connect_timeout=10)
        with pytest.raises(DatabaseError) as refused, as_database_errors(engine):
            engine.connect()
        return refused.value
    finally:
        server.execute(case.after, database="postgres")


@pytest.mark.parametrize("case", WAITS.values(), ids=WAITS)
def test_a_server_that_may_take_the_session_later_is_waited_for(server: Server, case: Case) -> None:
    assert isinstance(refusal(server, case), ServerUnavailable)


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS)
def test_a_wrong_url_or_a_missing_right_ends_the_publisher(server: Server, case: Case) -> None:
    assert not isinstance(refusal(server, case), DatabaseUnavailable)


def test_a_log_that_is_locked_when_the_publisher_starts_is_waited_for(
    database: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    make_log(database)
    write(database, 1)
    impatient = sa.create_engine(
        database.url.update_query_dict({"options": "-c lock_timeout=100"}), poolclass=sa.NullPool
    )
    with database.connect() as owner:
        owner.exec_driver_sql("LOCK TABLE eventlog IN ACCESS EXCLUSIVE MODE")
        settings = configuration(impatient, retry_initial=0.05, retry_max=0.05)
        with publishing(settings, Collecting()) as running:
            wait_until(
                lambda: running.error or "waiting for it" in caplog.text, "it waits for the lock"
            )
            owner.rollback()
            wait_until(lambda: is_drained(database, running), "it publishes")
    assert "lock timeout" in caplog.text


def test_a_session_that_is_ended_while_the_publisher_starts_is_opened_again(
    database: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    make_log(database)
    write(database, 1)
    with database.connect() as owner:
        owner.exec_driver_sql("LOCK TABLE eventlog IN ACCESS EXCLUSIVE MODE")
        settings = configuration(database, retry_initial=0.05, retry_max=0.05)
        with publishing(settings, Collecting()) as running:
            blocked = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'eventlog' AND wait_event_type = 'Lock'"
                " AND datname = current_database()"
            )
            wait_until(lambda: running.error or fetch(database, blocked), "it waits")
            owner.rollback()
            wait_until(lambda: is_drained(database, running), "it publishes")
    assert "waiting for it" in caplog.text
