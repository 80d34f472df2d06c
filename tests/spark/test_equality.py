"""The same log gives the same events, by Spark and by the publisher, whatever the cutting
(spec/event-log.md 8.2).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from backlog_job import (
    LOG,
    SCHEMA,
    Row,
    config_of,
    convert,
    copy,
    documents_of,
    errors,
    events_of,
    fetch,
    leave_in_flight,
    log_rows,
    publish,
    random_rows,
    statuses,
    statuses_of,
)
from shared import Run, execute, in_ci, url_of


@pytest.mark.parametrize("number", [3_000, pytest.param(200_000, marks=pytest.mark.night)])
def test_a_job_and_the_publisher_send_the_same_events_byte_for_byte(
    log: sa.Engine, tmp_path: Path, number: int
) -> None:
    rows = random_rows(number, seed=4)
    head = [next(rows) for _ in range(number // 5)]
    log_rows(log, head)
    leave_in_flight(config_of(log), documents=3)
    log_rows(log, rows)
    assert fetch(log, f"SELECT count(*) FROM {LOG}_inflight") == [(1,)]

    chance = random.Random(8)
    reports = {}
    for run in range(2):
        config = config_of(log, publisher__batch_size=str(chance.randint(1, 128)))
        out = tmp_path / str(run)
        reports[out] = copy(config, out, partition_rows=chance.randint(number // 13, number // 2))
    before = statuses(log)
    sent = publish(
        config_of(log, publisher__query_limit=str(chance.randint(number // 20, number // 10)))
    )
    after = statuses(log)

    assert len(sent) > number / 4
    for out, report in reports.items():
        assert list(events_of(documents_of(out))) == sent
        became = statuses_of(out, report)
        assert became == {
            record_id: after[record_id] for record_id, letter in before.items() if letter == "N"
        }
        assert report.manifest.totals["rows_read"] + report.manifest.totals[
            "rows_in_flight"
        ] == len(became)
    assert "E" in after.values()


def test_the_recorded_delivery_comes_first_and_as_it_was_recorded(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, random_rows(2_000, seed=1))
    config = config_of(log, publisher__batch_size="10", publisher__mark_interval="0")
    sent = leave_in_flight(config, documents=5)
    # A later row of an object in a recorded delivery begins a separate event.
    log_rows(log, random_rows(100, seed=2, first=10_000))
    out = tmp_path / "out"
    report = convert(config, out, mark=True)
    ours = list(events_of(documents_of(out)))

    # The whole delivery without the events that were answered: no event has other rows than before.
    again = [int(event.split('event-id="')[1].split('"')[0].partition(".")[0]) for event in ours]
    boundary = report.manifest.in_flight[0].events
    assert again[:boundary] == sorted(again[:boundary])
    assert not {event.split('event-id="')[1].split('"')[0] for event in sent} & {
        str(i) for i in again
    }
    assert set(statuses(log).values()) == {"S", "E"}


def test_a_recorded_event_whose_object_is_deleted_is_a_delete_in_the_directory_too(
    log: sa.Engine, tmp_path: Path
) -> None:
    """The receiver of the publisher's first request may still work on it (spec/event-log.md 8.4)."""
    log_rows(log, [(1, 6, "app", "usr", "idu=1", None, None, None)])
    leave_in_flight(config_of(log), documents=0)
    execute(log, f"DELETE FROM {SCHEMA}.usr WHERE idu = 1")
    log_rows(log, [(2, 4, "app", "usr", "idu=1", None, None, None)])
    report = copy(config_of(log), tmp_path / "copy")
    sent = publish(config_of(log))
    assert list(events_of(documents_of(tmp_path / "copy"))) == sent
    assert [event.partition(" ")[0] for event in sent] == ["<delete", "<delete"]
    assert report.manifest.totals["delete"] == 2
    assert "rows_gone" not in report.manifest.totals


def test_in_a_new_epoch_a_job_writes_the_event_ids_that_the_publisher_would(
    log: sa.Engine, tmp_path: Path, run: Run, empty_home: Path
) -> None:
    """Events recorded before the new epoch keep their ids (spec/event-log.md 7.4)."""
    log_rows(log, random_rows(2_000, seed=1))
    leave_in_flight(config_of(log), documents=5)
    code, out, error = run(
        "--log-table", LOG, "--database-url", url_of(log), "db", "start-epoch", "--json"
    )
    assert code == 0, error
    epoch = json.loads(out)["epoch"]
    log_rows(log, random_rows(500, seed=2, first=10_000))
    copy(config_of(log), tmp_path / "copy")
    sent = publish(config_of(log))
    assert list(events_of(documents_of(tmp_path / "copy"))) == sent
    ids = [event.split('event-id="')[1].split('"')[0] for event in sent]
    of_epoch = [one for one in ids if one.endswith(f".e{epoch}")]
    assert 0 < len(of_epoch) < len(ids)
    assert all(one.isdecimal() for one in ids[: len(ids) - len(of_epoch)])


def test_marks_and_error_rows_are_those_of_the_publisher(log: sa.Engine, tmp_path: Path) -> None:
    log_rows(log, random_rows(2_000, seed=3))
    convert(config_of(log), tmp_path / "out", mark=True)
    by_job = statuses(log), errors(log)
    with log.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {LOG} SET status = 'N'")
        connection.exec_driver_sql(f"DELETE FROM {LOG}_error")
    publish(config_of(log))
    assert (statuses(log), errors(log)) == by_job


def rows_with_one_that_never_rests(number: int) -> Iterator[Row]:
    for record_id in range(1, number + 1):
        user = 1 if record_id % 10 == 1 else record_id
        yield record_id, 2, "app", "usr", f"idu={user}", "fname", str(record_id - 1), str(record_id)


@pytest.mark.parametrize("number", in_ci([8_000, 20_000], 8_000))
def test_a_group_without_a_bound_is_folded_as_the_publisher_folds_it(
    log: sa.Engine, tmp_path: Path, number: int
) -> None:
    log_rows(log, rows_with_one_that_never_rests(number))
    config = config_of(log, publisher__fold_span="0")
    copy(config, tmp_path / "out", partition_rows=number // 5)
    ours = list(events_of(documents_of(tmp_path / "out")))
    assert len(ours) == number * 9 // 10 + 1
    assert ours == publish(config)


def test_a_part_of_which_every_row_is_left_alone_is_no_obstacle(
    log: sa.Engine, tmp_path: Path
) -> None:
    users = ("app", "publisher", "app")
    log_rows(
        log,
        [(i + 1, 2, users[i // 50], "usr", f"idu={i + 1}", "fname", "a", "b") for i in range(150)],
    )
    config = config_of(log, publisher__loopback_action="keep")
    for format in ("xds", "qlik-messages"):
        report = copy(config, tmp_path / format, format=format, partition_rows=50)
        assert report.manifest.totals["events"] == 100
        assert [(part.first, part.last) for part in report.manifest.parts] == [(1, 50), (101, 150)]


def test_special_times_and_old_values_that_cannot_be_converted_are_sent_as_the_publisher_sends_them(
    log: sa.Engine, tmp_path: Path
) -> None:
    with log.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE hr.usr ADD until timestamptz")
    rows: list[Row] = [
        (1, 2, "app", "usr", "idu=1", "until", "infinity", "2024-01-01 00:00:00Z"),
        (2, 2, "app", "usr", "idu=2", "age", "old", "5"),
        (3, 2, "app", "usr", "idu=3", "age", "old", None),
        (4, 2, "app", "usr", "idu=4", "age", "old", "new"),
        (5, 2, "app", "usr", "idu=5", "until", "2024-01-01 00:00:00.1Z", "2024-01-01 00:00:00.2Z"),
    ]
    log_rows(log, rows)
    config = config_of(log)
    report = copy(config, tmp_path / "out")
    ours = list(events_of(documents_of(tmp_path / "out")))
    assert ours == publish(config)
    assert '<value type="string">infinity</value>' in ours[0]
    totals = report.manifest.totals
    assert (len(ours), totals["old_unreadable"], totals["rows_invalid"], totals["truncated"]) == (
        3,
        2,
        1,
        1,
    )
