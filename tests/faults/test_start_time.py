"""Consumers that begin at a time: no row of this time or later is missed, whatever the order of
record_ids and commits (spec/event-log.md 13.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, configuration, make_log, opened, session, write
from shared import Run, execute, fetch, url_of

from eventlog.config.load import Config
from eventlog.errors import ConfigError
from eventlog.publisher.run.daemon import publish_once
from eventlog.sql import migrations


@pytest.fixture(params=["postgresql", "sqlite"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """The class ``usr`` and its log, on each database that can have consumers."""
    if request.param == "postgresql":
        yield request.getfixturevalue("pg_log")
        return
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    execute(engine, "CREATE TABLE usr (idu integer PRIMARY KEY, fname text)")
    migrations.upgrade(engine, log_table="eventlog")
    yield engine
    engine.dispose()


@pytest.fixture
def pg_log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as engine:
        yield engine


def consumer(engine: sa.Engine, start_from: str, name: str = "search", **options: object) -> Config:
    return configuration(
        engine,
        source__type="eventlog",
        source__consumer=name,
        source__start_from=start_from,
        **options,
    )


def consume(config: Config) -> list[str]:
    """The event-ids that one run sends."""
    sink = Collecting()
    with opened(config) as context:
        publish_once(context, sink)
    return sink.event_ids


def write_at(engine: sa.Engine, *times: str) -> None:
    """Write a row for each event_time, with the record_ids from 1 on."""
    write(engine, *range(1, len(times) + 1))
    for number, time in enumerate(times, 1):
        execute(engine, f"UPDATE eventlog SET event_time = '{time}' WHERE record_id = {number}")


def days(*numbers: int) -> list[str]:
    return [f"2026-11-{number:02} 08:00:00" for number in numbers]


def test_a_consumer_begins_with_the_first_row_of_a_time(log: sa.Engine) -> None:
    write_at(log, *days(1, 2, 3, 4, 5))
    assert consume(consumer(log, "2026-11-03T08:00Z")) == ["3", "4", "5"]
    assert consume(consumer(log, "2026-11-03T08:00:00.001Z", "later")) == ["4", "5"]
    assert consume(consumer(log, "2026-11-03T10:00+02:00", "zone")) == ["3", "4", "5"]
    assert consume(consumer(log, "2000-01-01T00:00Z", "old")) == ["1", "2", "3", "4", "5"]
    assert consume(consumer(log, "2026-11-06T00:00Z", "new")) == []


def test_a_row_with_a_lower_record_id_and_a_later_time_is_not_missed(log: sa.Engine) -> None:
    evening = ["2026-11-10 22:00:00", "2026-11-11 09:00:00", *["2026-11-10 23:00:00"] * 30]
    write_at(log, *days(1, 2), *evening, *days(12))
    assert consume(consumer(log, "2026-11-11T08:00Z")) == [str(one) for one in range(4, 36)]


def test_a_row_without_a_time_counts_as_later(pg_log: sa.Engine) -> None:
    execute(pg_log, "ALTER TABLE eventlog ALTER event_time DROP NOT NULL")
    write_at(pg_log, *days(1, 2, 4))
    execute(pg_log, "UPDATE eventlog SET event_time = NULL WHERE record_id = 2")
    assert consume(consumer(pg_log, "2026-11-04T00:00Z")) == ["2", "3"]


def test_local_times_are_taken_an_hour_earlier(pg_log: sa.Engine) -> None:
    log = pg_log
    execute(log, "ALTER TABLE eventlog ALTER event_time SET DEFAULT now()")  # as another program
    write_at(log, "2026-11-01 08:00:00", "2026-11-03 07:30:00", "2026-11-03 08:30:00")
    config = consumer(log, "2026-11-03T08:00Z", event_time_zone="local")
    assert consume(config)[-1:] == ["3"]
    assert "1" not in consume(consumer(log, "2026-11-03T08:00Z", "b", event_time_zone="local"))


def test_a_time_in_the_future_is_refused(log: sa.Engine) -> None:
    with pytest.raises(ConfigError, match="is in the future: the database's time is"):
        consume(consumer(log, "2999-01-01T00:00Z"))


def test_what_is_open_at_the_beginning_is_sent_when_it_commits(pg_log: sa.Engine) -> None:
    write_at(pg_log, *days(1))
    with session(pg_log) as late:
        late.execute(
            "INSERT INTO eventlog (event_type, event_time, table_name, table_key, column_name, "
            "new_value) VALUES (1, '2026-11-02', 'usr', 'idu=9', 'fname', 'x')"
        )
        write(pg_log, 3)
        execute(pg_log, "UPDATE eventlog SET event_time = '2026-11-05' WHERE record_id = 3")
        config = consumer(pg_log, "2026-11-04T00:00Z")
        assert consume(config) == ["3"]
        late.commit()
    assert consume(config) == ["2"]


def test_a_time_from_which_rows_were_removed_is_refused_with_the_earliest_one(
    log: sa.Engine, run: Run
) -> None:
    write_at(log, *days(1, 2, 3, 4, 5, 6))
    execute(
        log, "DELETE FROM eventlog WHERE record_id < 3", "UPDATE eventlog_epoch SET removed = 2"
    )
    earliest = "2026-11-04T08:00:01Z"  # a day after the lowest row that is left
    with pytest.raises(ConfigError, match=f"The earliest possible time is {earliest}"):
        consume(consumer(log, "2026-11-03T08:00Z"))
    assert consume(consumer(log, earliest)) == ["5", "6"]
    command = ("--database-url", url_of(log), "consumers", "reset", "search", "--yes")
    code, _, said = run(*command, "--start-from", "2026-11-03T08:00Z")
    assert (code, f"The earliest possible time is {earliest}" in said) == (2, True)


def test_where_no_old_row_is_left_no_time_is_possible(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    execute(
        log, "DELETE FROM eventlog WHERE record_id < 3", "UPDATE eventlog_epoch SET removed = 2"
    )
    with pytest.raises(ConfigError, match=r"No time is possible yet: .* the record_id 3"):
        consume(consumer(log, "2026-11-03T08:00Z"))


def test_a_consumer_is_reset_to_a_time(log: sa.Engine, run: Run) -> None:
    write_at(log, *days(1, 2, 3))
    assert consume(consumer(log, "earliest")) == ["1", "2", "3"]
    command = ("--database-url", url_of(log), "consumers", "reset", "search", "--yes")
    assert run(*command, "--start-from", "2026-11-02T08:00Z")[0] == 0
    assert consume(consumer(log, "earliest")) == ["2", "3"]
    assert fetch(log, "SELECT begins FROM eventlog_consumer") == [("2026-11-02T08:00:00Z",)]


def test_a_time_without_a_zone_is_refused(log: sa.Engine, run: Run) -> None:
    command = ("--database-url", url_of(log), "consumers", "reset", "search", "--yes")
    code, _, said = run(*command, "--start-from", "2026-11-02T08:00")
    assert (code, "a time with its zone, such as 2026-11-20T08:00Z" in said) == (2, True)


def test_the_first_row_is_found_in_a_long_log(pg_log: sa.Engine) -> None:
    execute(
        pg_log,
        "INSERT INTO eventlog (event_type, event_time, table_name, table_key, column_name, "
        "new_value) SELECT 1, timestamp '2026-01-01' + n * interval '10 minutes', 'usr', "
        "'idu=' || n, 'fname', 'x' FROM generate_series(1, 40000) AS n",
    )
    with opened(consumer(pg_log, "2026-10-05T00:00Z")) as context:
        context.ledger.recover()
        assert context.ledger.followed.done.floor == 277 * 144 - 1
