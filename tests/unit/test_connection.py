"""Which failures a publisher waits for, and which end it (spec/event-log.md 12)."""

from __future__ import annotations

import pytest

from eventlog.errors import (
    ConsumerRuns,
    DatabaseError,
    DatabaseUnavailable,
    EventlogError,
    LostSession,
    PublisherAlreadyRunning,
    ServerUnavailable,
)
from eventlog.publisher.run.waiting import Connection

NEW = Connection((DatabaseUnavailable,))
WORKING = NEW.connected()
GONE, RUNS, LOST = DatabaseUnavailable("gone"), PublisherAlreadyRunning("held"), LostSession("held")
REFUSED, NO_SERVER = DatabaseError("refused"), ServerUnavailable("no server")


def after(connection: Connection, *errors: EventlogError) -> Connection:
    for error in errors:
        failed = connection.failed(error, 100.0)
        assert failed is not None
        connection, _ = failed
    return connection


@pytest.mark.parametrize(
    ("connection", "error", "now", "line"),
    [
        (NEW, NO_SERVER, 100.0, "no server; waiting for it"),
        (after(NEW, NO_SERVER), NO_SERVER, 130.0, None),  # it was logged less than a minute ago
        (after(NEW, NO_SERVER), NO_SERVER, 160.0, "no server; waiting for it"),
        (WORKING, GONE, 100.0, "gone; connecting again"),
        (after(WORKING, GONE), GONE, 130.0, None),
        (after(WORKING, GONE), GONE, 160.0, "gone; connecting again"),
        (after(WORKING, GONE), NO_SERVER, 130.0, "no server; connecting again"),
        (after(WORKING, GONE), REFUSED, 100.0, "refused; trying again"),
        (after(WORKING, GONE), RUNS, 160.0, "held; trying again for 60 s"),
        (after(WORKING, GONE), LOST, 999.0, "held"),
        (after(WORKING, GONE, LOST), LOST, 999.0, None),
        (
            NEW,
            ConsumerRuns("held"),
            100.0,
            "held; waiting as its standby until it ends",
        ),
    ],
)
def test_such_a_failure_is_waited_for(
    connection: Connection, error: EventlogError, now: float, line: str | None
) -> None:
    failed = connection.failed(error, now)
    assert failed is not None
    assert failed[1].line == line


@pytest.mark.parametrize(
    ("connection", "error", "now"),
    [
        (NEW, GONE, 100.0),
        (NEW, REFUSED, 100.0),
        (NEW, RUNS, 100.0),
        (WORKING, REFUSED, 100.0),
        (after(WORKING, GONE), RUNS, 161.0),
        (after(WORKING, GONE).connected(), RUNS, 100.0),
    ],
)
def test_such_a_failure_ends_the_process(
    connection: Connection, error: EventlogError, now: float
) -> None:
    assert connection.failed(error, now) is None


def test_the_back_off_grows_with_each_failure_and_not_while_a_lock_is_waited_for() -> None:
    assert after(WORKING, GONE, GONE, REFUSED).attempts == 3
    assert after(WORKING, GONE, GONE, LOST, LOST).attempts == 1
