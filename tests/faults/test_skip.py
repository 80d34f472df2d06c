"""An event that is given up by hand: ``eventlog skip`` (spec/event-log.md 8.4)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, configuration, opened, write
from shared import Run, execute, fetch, url_of

from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Document, EventResult, Level
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession
from eventlog.sql import migrations


@pytest.fixture
def log(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    execute(engine, "CREATE TABLE usr (idu integer PRIMARY KEY, fname text)")
    migrations.upgrade(engine, log_table="eventlog")
    yield engine
    engine.dispose()


def failing(document: Document) -> Answer | None:
    if any(event.association.startswith("idu=2,") for event in document.events):
        raise ReceiverUnavailable("answers 500", is_suspicious=True)
    return None


def errors(engine: sa.Engine) -> list[tuple[object, ...]]:
    return [
        tuple(row)
        for row in fetch(engine, "SELECT record_id, code, message, event_id FROM eventlog_error")
    ]


@pytest.mark.parametrize("consumer", [None, "search"])
def test_a_parked_event_is_given_up_by_hand_and_later_ones_of_its_object_go_on(
    log: sa.Engine, run: Run, consumer: str | None
) -> None:
    named = (
        {} if consumer is None else {"source__consumer": consumer, "source__start_from": "earliest"}
    )
    config = configuration(
        log, batch_size=2, allow_loopback="yes", loopback_action="mark",
        **({} if consumer is None else {"source__type": "eventlog", **named}),
    )  # fmt: skip
    sink = Collecting(failing)
    of_consumer = () if consumer is None else ("--consumer", consumer)

    def command(*arguments: str) -> tuple[int, str, str]:
        return run("--database-url", url_of(log), *arguments)

    write(log, 1, 2, 3, 4)
    at_once = {"retry_initial": 0, "retry_max": 0}
    with opened(config, **at_once) as context:
        state = recover(context)
        for _ in range(10):
            run_cycle(PublisherSession(context, state, sink))
        assert [one.event_id for one in state.parked_objects()] == ["2"]
        if consumer is None:
            assert "answers 500" in command("status")[1]
            # The publisher runs meanwhile.
            code, out, _ = command("skip", "2", "--reason", "the mailbox is gone")
            assert (code, out) == (0, "event 2 is given up: 1 row set to E\n")
            run_cycle(PublisherSession(context, state, sink))
            assert not state.parked_objects()
    if consumer is not None:
        code, out, _ = command(
            "skip", "2", "--reason", "the mailbox is gone", *of_consumer, "--json"
        )
        assert (code, json.loads(out)["skipped"][0]["rows"]) == (0, 1)
    ((record_id, code_of_line, message, event_id),) = errors(log)
    assert (record_id, code_of_line, event_id) == (2, "skipped", "2.2")
    assert str(message).startswith("given up by hand by ")
    assert str(message).endswith(": the mailbox is gone; the last answer: answers 500")
    deliveries = "SELECT count(*) FROM eventlog_inflight WHERE kind = 'delivery'"
    assert fetch(log, deliveries) == [(0,)]
    assert "the mailbox is gone" in command("errors", *of_consumer)[1]
    # Put back, it is another event for a receiver that may have applied it.
    sink.on_send = lambda _: None
    assert command("requeue", *of_consumer)[0] == 0
    with opened(config, **at_once) as context:
        state = recover(context)
        run_cycle(PublisherSession(context, state, sink))
    assert sink.event_ids[-1] == "2.2"


@pytest.mark.parametrize("level", [Level.SUCCESS, Level.ERROR])
def test_an_event_that_is_given_up_while_it_is_in_the_air_goes_under_another_id(
    log: sa.Engine, run: Run, level: Level
) -> None:
    """The receiver may have applied it under its id, and the running publisher is not told. With an
    error its rows have the status that the publisher would give them.
    """

    def give_up(document: Document) -> Answer:
        sink.on_send = lambda _: None
        skipped = run("--database-url", url_of(log), "skip", "1", "--reason", "no need")
        assert skipped[0] == 0
        return Answer(general=EventResult(level, ""))

    sink = Collecting(give_up)
    write(log, 1)
    with opened(configuration(log)) as context:
        session = PublisherSession(context, recover(context), sink)
        run_cycle(session)
        assert fetch(log, "SELECT status FROM eventlog") == [("E",)]
        assert run("--database-url", url_of(log), "requeue")[0] == 0
        run_cycle(session)
    assert sink.event_ids == ["1", "1.2"]


@pytest.mark.parametrize("ids", ["1-2", "1"])
def test_an_event_that_is_put_back_before_its_next_attempt_goes_under_another_id(
    log: sa.Engine, run: Run, ids: str
) -> None:
    """The receiver may know its id with the rows of then, and the publisher has not seen the E."""

    def command(*arguments: str) -> None:
        assert run("--database-url", url_of(log), *arguments)[0] == 0

    sink = Collecting(lambda _: Answer(general=EventResult(Level.RETRY, "later")))
    with log.begin() as conn:
        conn.exec_driver_sql(
            "INSERT INTO eventlog (status, event_type, table_name, table_key, column_name, new_value) "
            "VALUES ('N', 1, 'usr', 'idu=1', 'fname', 'a'), ('N', 1, 'usr', 'idu=1', 'idu', '1')"
        )
    with opened(configuration(log), retry_initial=0, retry_max=0) as context:
        session = PublisherSession(context, recover(context), sink)
        run_cycle(session)
        command("skip", "1", "--reason", "no need")
        command("requeue", "--force", "--ids", ids)
        sink.on_send = lambda _: None
        run_cycle(session)
    assert sink.event_ids == ["1", "1.2"]
    assert fetch(log, "SELECT count(*) FROM eventlog_inflight WHERE kind = 'delivery'") == [(0,)]


def test_only_what_is_in_delivery_can_be_given_up(log: sa.Engine, run: Run) -> None:
    write(log, 1)
    code, _, error = run("--database-url", url_of(log), "skip", "1", "--reason", "no need")
    assert code == 2
    assert "no event 1 is in flight" in error
    assert errors(log) == []


def record(engine: sa.Engine, number: int, *documents: str, owner: str = "NULL") -> None:
    """An entry of a delivery, as a publisher that was stopped has left it."""
    content = f'{{"line_format":1,"documents":[{",".join(documents)}]}}'
    execute(
        engine,
        "INSERT INTO eventlog_inflight (entry_no, owner, kind, content) "
        f"VALUES ({number}, {owner}, 'delivery', '{content}')",
    )


def entry(engine: sa.Engine, number: int) -> list[dict[str, Any]]:
    ((content,),) = fetch(
        engine, f"SELECT content FROM eventlog_inflight WHERE entry_no = {number}"
    )
    documents: list[dict[str, Any]] = json.loads(content)["documents"]
    return documents


LATER = '{"tries":2,"answer":"later","due":"2999-11-25T08:00:00.000"}'


def test_the_rounds_of_a_doubt_outlive_the_event_that_they_were_recorded_with(
    log: sa.Engine, run: Run
) -> None:
    """While the receiver is in doubt, the number of rounds stands with one of the documents."""
    write(log, 1, 2)
    config = configuration(
        log, source__type="eventlog", source__consumer="search", source__start_from="earliest",
        allow_loopback="yes", loopback_action="mark",
    )  # fmt: skip
    with opened(config) as context:
        recover(context)
        context.log.commit()
    failures = '"failures":{{"tries":{},"answer":"answers 500"}}'
    for row, rounds in ((1, 4), (2, 2)):
        own = f'{{"number":1,"rows":[[{row},{row}]],"counts":[1],{failures.format(rounds)}}}'
        record(log, 100 + row, own, owner="'search'")
    skip = ("skip", "1", "--reason", "no need", "--consumer", "search")
    assert run("--database-url", url_of(log), *skip)[0] == 0
    assert fetch(log, "SELECT count(*) FROM eventlog_inflight WHERE entry_no = 101") == [(0,)]
    (left,) = entry(log, 102)
    assert left["failures"]["tries"] == 4


def test_status_counts_the_objects_that_are_parked_and_none_while_the_receiver_is_in_doubt(
    log: sa.Engine, run: Run
) -> None:
    def parked() -> list[str]:
        shown = json.loads(run("--database-url", url_of(log), "status", "--json")[1])
        conditions = shown["health"]["conditions"]
        return [one["text"] for one in conditions if one["name"] == "parked_objects"]

    write(log, 1, 1, 2)
    record(
        log, 101,
        '{"number":1,"rows":[[3,3]],"counts":[1],"failures":{"tries":4,"answer":"answers 500"}}',
    )  # fmt: skip
    assert parked() == []
    events = f'"events":{{"0":{{"parked":{LATER}}},"1":{{"parked":{LATER}}}}}'
    record(log, 102, f'{{"number":1,"rows":[[1,2]],"counts":[1,1],{events}}}')
    assert len(parked()) == 1
    assert parked()[0].startswith("1 object parked")
