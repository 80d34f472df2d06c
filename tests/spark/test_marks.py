"""Exactly the rows that were read are marked, and of them only those that still wait
(spec/event-log.md 8.4, 12).
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from backlog_job import (
    LOG,
    config_of,
    convert,
    copy,
    documents_of,
    errors,
    events_of,
    fetch,
    log_rows,
    publish,
    random_rows,
    statuses,
    statuses_of,
)
from shared import in_ci

from eventlog.errors import EventlogError, PublisherAlreadyRunning
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.spark.backlog import claim
from eventlog.spark.directory import JobDirectory

_LATE = (
    f"INSERT INTO {LOG} (event_type, table_name, table_key, column_name, new_value) VALUES (1, "
    "'usr', %s, 'fname', 'x')"
)


@pytest.mark.promise("spark mark_backlog")
def test_nothing_is_marked_unless_asked_for_and_a_rerun_only_marks(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, random_rows(1_000, seed=5))
    out = tmp_path / "out"
    first = convert(config_of(log), out)
    assert set(statuses(log).values()) == {"N"}
    documents = documents_of(out)

    again = convert(config_of(log), out, mark=True)
    assert (first.resumed, again.resumed) == (False, True)
    assert statuses(log) == statuses_of(out, first)
    assert documents_of(out) == documents
    assert again.marked == 1_000

    assert convert(config_of(log), out, mark=True).marked == 0


def test_a_row_committed_late_inside_the_range_is_not_marked_and_is_published_later(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, random_rows(1_000, seed=6))
    with log.connect() as late, log.connect() as early:
        late.exec_driver_sql(_LATE, ("idu=1",))  # has its record_id now, and is not committed
        early.exec_driver_sql(_LATE, ("idu=2",))
        early.commit()
        (late_id,) = late.exec_driver_sql(f"SELECT max(record_id) FROM {LOG}").one()
        finish = JobDirectory.finish

        def commit_then_finish(*arguments: object) -> None:
            late.commit()  # after the snapshot, before the marks
            finish(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(JobDirectory, "finish", commit_then_finish)
        out = tmp_path / "out"
        report = convert(config_of(log), out, mark=True)
    late_id = min(i for i, letter in statuses(log).items() if letter == "N")
    assert report.manifest.parts[-1].last > late_id
    assert [i for i, letter in statuses(log).items() if letter == "N"] == [late_id]
    assert late_id not in statuses_of(out, report)
    (event,) = publish(config_of(log))
    assert f'event-id="{late_id}"' in event


def test_concurrent_writers_lose_nothing_and_are_never_marked_unread(
    log: sa.Engine, tmp_path: Path
) -> None:
    log_rows(log, random_rows(1_000, seed=7))
    out = tmp_path / "out"
    stop = threading.Event()

    def write(number: int) -> None:
        with log.connect() as connection:
            key = 0
            while not stop.is_set():
                key += 1
                for _ in range(5):
                    connection.exec_driver_sql(_LATE, (f"idu={number * 10_000_000 + key}",))
                connection.commit()

    writers = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
    for writer in writers:
        writer.start()
    try:
        report = convert(config_of(log), out, mark=True)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    read = statuses_of(out, report)
    after = statuses(log)
    assert {i: letter for i, letter in after.items() if letter != "N"} == read
    assert len(after) > len(read)
    sent = list(events_of(documents_of(out))) + publish(config_of(log))
    assert len({event.split('event-id="')[1].split('"')[0] for event in sent}) == len(sent)
    assert "N" not in statuses(log).values()


@pytest.mark.parametrize("number", in_ci([1_500, 3_000], 1_500))
def test_marks_that_were_interrupted_are_completed_once(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log_rows(log, random_rows(number, seed=9))
    out = tmp_path / "out"
    monkeypatch.setattr(claim, "BATCH_ROWS", number // 6)
    written = []

    def write_and_die(*arguments: object) -> int:
        written.append(arguments)
        if len(written) == 4:
            raise EventlogError("killed")
        return write(*arguments)  # type: ignore[arg-type]

    write = claim.write_marks
    monkeypatch.setattr(claim, "write_marks", write_and_die)
    with pytest.raises(EventlogError, match="killed"):
        convert(config_of(log), out, mark=True, connections=1)
    assert set(statuses(log).values()) > {"N"}
    monkeypatch.setattr(claim, "write_marks", write)

    report = convert(config_of(log), out, mark=True)
    assert report.resumed
    assert statuses(log) == statuses_of(out, report)
    bad = [record_id for record_id, _, _ in errors(log)]
    assert len(bad) == len(set(bad)) == list(statuses(log).values()).count("E")


@pytest.mark.parametrize("given", [{}, {"publisher__loopback_action": "mark"}])
def test_rows_are_deleted_if_the_log_must_stay_small(
    log: sa.Engine, tmp_path: Path, given: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    log_rows(log, random_rows(800, seed=10))
    own = {
        int(i)
        for (i,) in fetch(log, f"SELECT record_id FROM {LOG} WHERE perpetrator = 'publisher'")
    }
    out = tmp_path / "out"
    report = convert(config_of(log, publisher__delete_from_log="yes", **given), out, mark=True)
    bad = {i for i, letter in statuses_of(out, report).items() if letter == "E"}
    assert bad
    assert own
    # Loopback rows are deleted only if that is set explicitly; otherwise they stay, with a warning
    # (spec/event-log.md 8.3).
    assert statuses(log) == {
        **dict.fromkeys(bad, "E"),
        **({} if given else dict.fromkeys(own, "S")),
    }
    assert ("without being published" in caplog.text) == (not given)


def test_a_backlog_with_only_loopback_rows_is_reported(
    log: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log_rows(log, [(n, 2, "publisher", "usr", "idu=1", "fname", None, "x") for n in (1, 2)])
    report = convert(config_of(log), tmp_path / "out")
    assert report.manifest.totals["events"] == 0
    assert "2 rows would be marked S without being published, because 'publisher'" in caplog.text


@pytest.mark.parametrize(("loopback_action", "letter"), [("mark", "S"), ("keep", "N")])
def test_loopback_rows_are_consumed_or_left(
    log: sa.Engine, tmp_path: Path, loopback_action: str, letter: str
) -> None:
    log_rows(log, random_rows(800, seed=11))
    config = config_of(log, publisher__loopback_action=loopback_action)
    report = convert(config, tmp_path / "out", mark=True)
    own = {i for (i,) in fetch(log, f"SELECT record_id FROM {LOG} WHERE perpetrator = 'publisher'")}
    after = statuses(log)
    assert own
    assert {after[int(str(i))] for i in own} == {letter}
    assert "N" not in {after[i] for i in after if i not in own}
    assert report.manifest.totals["rows_loopback"] == (len(own) if letter == "S" else 0)


def test_a_job_and_a_publisher_exclude_each_other(log: sa.Engine, tmp_path: Path) -> None:
    log_rows(log, random_rows(100, seed=12))
    with (
        open_context(config_of(log), Counters()),
        pytest.raises(PublisherAlreadyRunning, match="already being published"),
    ):
        convert(config_of(log), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_column_order_of_layout_3_5_is_read_as_well(log: sa.Engine, tmp_path: Path) -> None:
    log_rows(log, random_rows(1_000, seed=13))
    with log.begin() as connection:
        connection.exec_driver_sql("""
            CREATE TABLE hr.old (rid numeric(12) PRIMARY KEY, tkey text, st char(4) DEFAULT 'N', etype numeric(3),
                                 etime timestamptz, perp varchar(40), tname text, cname text, ov text, nv text)""")
        connection.exec_driver_sql(f"""
            INSERT INTO hr.old SELECT record_id, table_key, status, event_type, event_time, perpetrator, table_name,
                                      column_name, old_value, new_value FROM {LOG}""")
        from eventlog.sql import migrations

        migrations.upgrade(connection, log_table="old", schema="hr", existing_log=True)
    plain, old = tmp_path / "plain", tmp_path / "old"
    copy(config_of(log), plain)
    convert(config_of(log, database__log_table="old", publisher__layout="3.5"), old, mark=True)
    assert documents_of(plain) == documents_of(old)
    assert {str(letter).strip() for (letter,) in fetch(log, "SELECT st FROM hr.old")} == {"S", "E"}
