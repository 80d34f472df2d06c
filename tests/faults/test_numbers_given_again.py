"""A sequence that is set back below what was published gives no event-id a second meaning; removed
rows alone draw no epoch (spec/event-log.md 7.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, configuration, make_log, write
from publishers import session as psycopg_session
from shared import PATIENCE, execute, fetch

from eventlog.config.load import Config
from eventlog.errors import DatabaseUnavailable
from eventlog.model import Document
from eventlog.publisher.context import used_ids as published
from eventlog.publisher.context.context import Counters, Used
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession


@pytest.fixture(params=["postgresql", "sqlite"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """The class ``usr`` and its log, on each database that shows the next number of a sequence."""
    if request.param == "postgresql":
        with request.getfixturevalue("filled_database")(make_log) as engine:
            yield engine
        return
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    make_log(engine)
    yield engine
    engine.dispose()


def by_time(engine: sa.Engine) -> Config:
    """A publisher that reads rows of any number at once."""
    return configuration(engine, handle_future_events=True)


def set_back(engine: sa.Engine) -> None:
    """Remove all rows, and give the numbers from 1 on again."""
    execute(engine, "DELETE FROM eventlog")
    execute(
        engine,
        "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'eventlog'"
        if engine.dialect.name == "sqlite"
        else "ALTER TABLE eventlog ALTER record_id RESTART WITH 1",
    )


def run_once(config: Config, used: Used) -> list[str]:
    """The event-ids of one connection of a process."""
    sink = Collecting()
    with open_context(config, Counters(), used) as context:
        publish_once(context, sink)
    return sink.event_ids


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "New event-ids carry the epoch" in text]


def test_a_process_that_connects_again_draws_an_epoch_for_numbers_that_come_again(
    log: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    used = Used()
    write(log, 1, 2, 3)
    assert run_once(configuration(log), used) == ["1", "2", "3"]
    set_back(log)
    write(log, 4)
    (event_id,) = run_once(configuration(log), used)
    assert event_id.startswith("1.e")
    (warning,) = warnings(caplog)
    assert "the next record_id is 2, and 3 was published before" in warning
    write(log, 5)
    assert [one.partition(".")[0] for one in run_once(configuration(log), used)] == ["2"]
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(("used_before", "more"), [(1, 100), (1000, 0)])
def test_deliveries_of_a_new_epoch_have_numbers_above_those_that_may_have_been_lost(
    log: sa.Engine, used_before: int, more: int
) -> None:
    used, sink = Used(), Collecting()
    write(log, 1, 2)
    run_once(configuration(log), used)
    used.delivery_no = max(used.delivery_no, used_before)
    set_back(log)
    write(log, 3)
    with open_context(configuration(log), Counters(), used) as context:
        publish_once(context, sink)
    assert sink.documents[0].delivery_no > used_before + more


def test_a_running_publisher_sends_no_row_that_has_a_published_number(log: sa.Engine) -> None:
    used, sink = Used(), Collecting()
    write(log, 1, 2, 3)
    with open_context(by_time(log), Counters(), used) as context:
        session = PublisherSession(context, recover(context), sink)
        run_cycle(session)
        set_back(log)
        write(log, 4)
        with pytest.raises(
            DatabaseUnavailable, match="the next record_id is 2, and 3 was published"
        ):
            run_cycle(session)
    assert sink.event_ids == ["1", "2", "3"]


def test_a_row_with_a_published_number_is_found_though_the_sequence_has_passed_it(
    log: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    used, sink = Used(), Collecting()
    write(log, 1, 2, 3)
    with open_context(configuration(log), Counters(), used) as context:
        session = PublisherSession(context, recover(context), sink)
        run_cycle(session)
        moments = used.published.moments
        moments[:] = [(number, at - 10 * PATIENCE) for number, at in moments]  # a while later
        set_back(log)
        write(log, 4, 5, 6, 7)
        session.state = recover(context)
        with pytest.raises(
            DatabaseUnavailable, match="record_id 1 was published before its row was"
        ):
            run_cycle(session)
    assert sink.event_ids == ["1", "2", "3"]
    assert [one.partition(".e")[:2] for one in run_once(configuration(log), used)] == [
        (str(number), ".e") for number in range(1, 5)
    ]
    assert len(warnings(caplog)) == 1


def test_removed_rows_alone_draw_no_epoch(log: sa.Engine, caplog: pytest.LogCaptureFixture) -> None:
    used = Used()
    write(log, 1, 2, 3)
    with open_context(configuration(log), Counters(), used) as context:
        session = PublisherSession(context, recover(context), Collecting())
        for _ in range(3):
            run_cycle(session)
    execute(log, "DELETE FROM eventlog WHERE record_id > 1")
    assert run_once(configuration(log), used) == []
    write(log, 4)
    assert run_once(configuration(log), used) == ["4"]
    assert warnings(caplog) == []


def test_a_row_that_is_set_to_n_by_hand_draws_no_epoch(
    log: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    used = Used()
    write(log, 1, 2, 3)
    run_once(configuration(log), used)
    execute(log, "UPDATE eventlog SET status = 'N' WHERE record_id = 2")
    assert run_once(configuration(log), used) == ["2"]
    assert warnings(caplog) == []


def test_a_younger_row_with_a_lower_number_of_a_cache_draws_no_epoch(
    filled_database: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "INTERVAL", 0.0)
    with filled_database(make_log) as engine:
        execute(engine, "ALTER SEQUENCE eventlog_record_id_seq CACHE 10")
        used, sink = Used(), Collecting()
        with open_context(configuration(engine), Counters(), used) as context:
            state = recover(context)
            with psycopg_session(engine) as first, psycopg_session(engine) as second:
                for one in (first, second, first):  # numbers 1, 11 and 2
                    one.execute(
                        "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (4, 'usr', 'idu=1')"
                    )
                    one.commit()
                    run_cycle(PublisherSession(context, state, sink))
        assert sink.event_ids == ["1", "11", "2"]
    assert warnings(caplog) == []


def test_rows_that_get_another_letter_while_they_are_sent_are_not_noted_as_removed(
    log: sa.Engine,
) -> None:
    def refuse(_: Document) -> None:
        execute(log, "UPDATE eventlog SET status = 'E'")

    write(log, 1, 2)
    with open_context(configuration(log, delete_from_log=True), Counters()) as context:
        publish_once(context, Collecting(refuse))
    assert fetch(log, "SELECT status FROM eventlog") == [("E",), ("E",)]
    assert fetch(log, "SELECT removed FROM eventlog_epoch") == [(None,)]


def test_a_new_process_draws_an_epoch_if_removed_numbers_come_again(
    log: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    write(log, 1, 2, 3)
    run_once(configuration(log, delete_from_log=True), Used())
    assert fetch(log, "SELECT removed FROM eventlog_epoch") == [(3,)]
    set_back(log)
    write(log, 4)
    assert run_once(configuration(log), Used())[0].startswith("1.e")
    (warning,) = warnings(caplog)
    assert "rows up to 3 were removed before" in warning
    run_once(configuration(log), Used())
    assert len(warnings(caplog)) == 1
