"""The queue beside a session that holds an old snapshot (spec/event-log.md 8.1): dead rows cannot
be removed then, and no statement of the publisher walks over them. Measured in blocks, without a
clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import sqlalchemy as sa
from publishers import Collecting, configuration, make_log, opened, session, write
from shared import Run, execute, fetch, in_ci, statuses, url_of

from eventlog.core.clock import monotonic
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.context.context import Context
from eventlog.publisher.ledger import ledger
from eventlog.publisher.ledger.ledger import StatusLedger
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession, PublisherState
from eventlog.sql.readers.followed_set import FollowedSet

AT_ONCE = 50
TABLES = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'eventlog%'"
FLUSH = "SELECT pg_stat_force_next_flush()"
LATE = "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) VALUES (2, 'usr', 'idu=9', 'fname', '{}')"
MANY = """INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value, perpetrator)
SELECT 2, 'usr', 'idu=' || n % 500 + 10, 'fname', 'Jack', CASE WHEN n % 2 = 0 THEN '{1}' END
FROM generate_series(1, {0}) AS n"""


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_unattended_log) as engine:
        yield engine


def make_unattended_log(engine: sa.Engine) -> None:
    """A log without autovacuum, which reads blocks, too."""
    make_log(engine)
    for (name,) in fetch(engine, TABLES):
        execute(engine, f"ALTER TABLE {name} SET (autovacuum_enabled = off)")


@pytest.fixture
def command(log: sa.Engine, run: Run) -> Callable[..., tuple[int, str, str]]:
    return lambda *arguments: run("--database-url", url_of(log), *arguments)


@pytest.fixture
def old_snapshot(log: sa.Engine) -> Iterator[None]:
    with session(log) as holding:
        holding.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holding.execute("SELECT 1")
        yield


def drain(context: Context, state: PublisherState, sink: Collecting) -> None:
    while run_cycle(PublisherSession(context, state, sink)).more:
        pass


def blocks(context: Context, tables: str = "eventlog%") -> int:
    """The blocks of the log and its internal tables that this session has read until now."""
    conn = context.log.connection
    conn.execute(sa.text(FLUSH))
    conn.commit()
    number = conn.execute(
        sa.text(
            "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::bigint "
            "FROM pg_statio_all_tables WHERE relname LIKE :tables"
        ),
        {"tables": tables},
    ).scalar_one()
    conn.commit()
    return int(number)


def polls(context: Context, state: PublisherState, sink: Collecting) -> float:
    """The blocks of a poll of an empty queue."""
    drain(context, state, sink)
    before = blocks(context)
    for _ in range(AT_ONCE):
        run_cycle(PublisherSession(context, state, sink))
        context.log.connection.commit()
    return (blocks(context) - before) / AT_ONCE


def events(log: sa.Engine, context: Context, state: PublisherState, sink: Collecting) -> float:
    """The blocks of an event that comes alone."""
    before = blocks(context)
    for _ in range(AT_ONCE):
        write(log, 1, event_type=2)
        execute(log, FLUSH)  # the writer's blocks count here, and none of them in a later poll
        drain(context, state, sink)
    return (blocks(context) - before) / AT_ONCE


def refused_for_now(document: Document) -> Answer:
    """Retry for object 7."""
    return Answer(
        results={
            event.event_id: EventResult(Level.RETRY, "later")
            for event in document.events
            if "idu=7," in event.association
        }
    )


ANALYZED = "statistics of a delivery under way"
LEFT = "loopback rows that are left"
PARKED = "a parked object"


@pytest.mark.usefixtures("old_snapshot")
@pytest.mark.parametrize(
    "beside", in_ci(["nothing", PARKED, LEFT, ANALYZED], PARKED, LEFT, ANALYZED)
)
def test_neither_a_poll_nor_an_event_costs_more_the_longer_the_snapshot_is_held(
    log: sa.Engine, beside: str
) -> None:
    def analyzed(document: Document) -> Answer:
        if found:
            execute(log, "ANALYZE eventlog_inflight")
        return refused_for_now(document)

    answers = {PARKED: refused_for_now, ANALYZED: analyzed}
    sink = Collecting(answers.get(beside, lambda document: None))
    left = {"driver_user": "us", "loopback_action": "keep"} if beside == LEFT else {}
    found = []
    with opened(configuration(log, **left), retry_initial=3600.0, retry_max=3600.0) as context:
        state = recover(context)
        write(log, 7, event_type=2)
        for rows in (2_000, 6_000):
            execute(log, MANY.format(rows, "us" if beside == LEFT else "them"), FLUSH)
            drain(context, state, sink)
            found.append((events(log, context, state, sink), polls(context, state, sink)))
        assert len(state.parked_objects()) == (beside in (PARKED, ANALYZED))
    (events_before, polls_before), (events_after, polls_after) = found
    # The writer's own blocks are among those of an event.
    assert (events_after < 60, polls_after < 12) == (True, True), found
    assert events_after < 1.2 * events_before + 5, found
    assert polls_after < 1.2 * polls_before + 1, found


@pytest.mark.night
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("old_snapshot")
def test_a_plan_that_was_made_on_an_empty_log_serves_a_million_marked_rows(
    log: sa.Engine,
) -> None:
    """The statements are prepared when the publisher connects, and keep their plans."""
    rows = 1_000_000
    sink = Collecting(lambda document: sink.documents.clear())
    with opened(configuration(log)) as context:
        state = recover(context)
        before = polls(context, state, sink)
        execute(log, MANY.format(rows, "them"))
        drain(context, state, sink)
        assert fetch(log, "SELECT count(*) FROM eventlog WHERE status = 'S'") == [(rows,)]
        found = (events(log, context, state, sink), polls(context, state, sink))
    assert (found[0] < 80, found[1] < 12) == (True, True), (before, found)


@pytest.mark.usefixtures("old_snapshot")
def test_deliveries_of_a_consumer_leave_nothing_that_later_ones_walk_over(log: sa.Engine) -> None:
    sink = Collecting()
    source = {
        "source__type": "eventlog",
        "source__consumer": "search",
        "source__start_from": "earliest",
    }
    with opened(configuration(log, **source)) as context:
        state = recover(context)
        for _ in range(400):
            write(log, 1, event_type=2)
            run_cycle(PublisherSession(context, state, sink))
        before = blocks(context, "eventlog_consumer")
        assert events(log, context, state, sink) < 60
        assert polls(context, state, sink) < 10
        # A look at its entry, a delivery, an event and a poll each, whatever was sent.
        looks = 4 * AT_ONCE + 2
        assert blocks(context, "eventlog_consumer") - before <= 2 * looks


@pytest.mark.usefixtures("old_snapshot")
def test_a_purge_reads_no_row_that_an_earlier_one_has_removed(log: sa.Engine, command: Run) -> None:
    def purged() -> tuple[int, int]:
        """The number of rows that a purge removes, and the blocks of the log that it reads."""
        before = blocks(context, "eventlog")
        answer = json.loads(command("purge", "--older-than", "0s", "--yes", "--json")[1])
        return answer["rows"], blocks(context, "eventlog") - before

    with opened(configuration(log)) as context:
        for rows in (20_000, 1):
            execute(log, MANY.format(rows, "them"), "UPDATE eventlog SET status = 'S'", FLUSH)
            removed, read = purged()
            assert removed == rows
        assert read < 40


# --- rows that were done, and are N again ---------------------------------------------------------


def followed(context: Context) -> FollowedSet:
    known = cast(StatusLedger, context.ledger).followed
    assert known is not None
    return known


@pytest.mark.parametrize("letter", ["E", "F"])
def test_a_publisher_that_runs_takes_what_is_requeued_at_once(
    log: sa.Engine, command: Run, letter: str
) -> None:
    answers = iter([Answer(results={"2": EventResult(Level.ERROR, "no")})])
    sink = Collecting(lambda document: next(answers, None))
    write(log, 1, 2, 3, event_type=2)
    with opened(configuration(log)) as context:
        state = recover(context)
        drain(context, state, sink)
        assert statuses(log) == {1: "S", 2: "E", 3: "S"}
        assert followed(context).done.floor == 3
        execute(log, f"UPDATE eventlog SET status = '{letter}' WHERE record_id = 2")
        command("requeue", "--status", letter)
        drain(context, state, sink)
        assert statuses(log) == {1: "S", 2: "S", 3: "S"}
        assert followed(context).done.floor == 3
    assert fetch(log, "SELECT count(*) FROM eventlog_inflight") == [(0,)]


@pytest.mark.parametrize("max_found", [2, 3])
def test_rows_that_are_set_to_n_by_hand_are_found_by_a_search(
    log: sa.Engine, monkeypatch: pytest.MonkeyPatch, max_found: int
) -> None:
    monkeypatch.setattr(ledger, "MAX_FOUND", max_found)
    sink = Collecting()
    write(log, 1, 2, 3, event_type=2)
    with opened(configuration(log)) as context:
        state = recover(context)
        drain(context, state, sink)
        execute(log, "UPDATE eventlog SET status = 'N' WHERE record_id > 1")
        drain(context, state, sink)
        assert sink.event_ids == ["1", "2", "3"]
        cast(StatusLedger, context.ledger).search_at = 0.0
        drain(context, state, sink)
        assert sink.event_ids == ["1", "2", "3", "2", "3"]
        # The next search is a minute away at least.
        assert cast(StatusLedger, context.ledger).search_at > monotonic() + 50


def test_an_insert_stays_one_event_however_many_rows_are_set_to_n_by_hand(
    log: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver would take a second add for the whole object. Gaps of the set that are close
    together are read as one, so the rest of the rows must be many.
    """
    monkeypatch.setattr(ledger, "MAX_FOUND", 4)
    sink = Collecting()
    write(log, *(key for key in range(200) for _ in "abc"))
    with opened(configuration(log)) as context:
        state = recover(context)
        drain(context, state, sink)
        execute(log, "UPDATE eventlog SET status = 'N'")
        cast(StatusLedger, context.ledger).search_at = 0.0
        while "N" in statuses(log).values():
            drain(context, state, sink)
    assert sink.event_ids == [str(first) for first in range(1, 600, 3)] * 2


def test_a_new_connection_remembers_nothing_and_reads_all(log: sa.Engine) -> None:
    sink = Collecting()
    write(log, 1, 2, 3, event_type=2)
    with opened(configuration(log)) as context:
        state = recover(context)
        drain(context, state, sink)
        # As by a failover that has lost a mark.
        execute(log, "UPDATE eventlog SET status = 'N' WHERE record_id = 2")
        state = recover(context)
        drain(context, state, sink)
    assert sink.event_ids == ["1", "2", "3", "2"]


def test_a_row_of_a_writer_that_is_open_is_waited_for_by_its_gap(log: sa.Engine) -> None:
    sink = Collecting()
    with session(log) as late, opened(configuration(log)) as context:
        state = recover(context)
        late.execute(LATE.format("late"))
        write(log, 2, 3, event_type=2)
        drain(context, state, sink)
        assert followed(context).done.floor == 0
        late.commit()
        drain(context, state, sink)
        assert followed(context).done.floor == 3
    assert sink.event_ids == ["2", "3", "1"]


@pytest.mark.parametrize(
    ("statement", "options"),
    [
        ("ALTER SEQUENCE eventlog_record_id_seq CACHE 20", {}),
        ("SELECT 1", {"handle_future_events": True}),
    ],
)
def test_where_numbers_tell_nothing_every_poll_looks_at_all_rows(
    log: sa.Engine, statement: str, options: dict[str, Any]
) -> None:
    execute(log, statement)
    with opened(configuration(log, **options)) as context:
        recover(context)
        assert cast(StatusLedger, context.ledger).followed is None
