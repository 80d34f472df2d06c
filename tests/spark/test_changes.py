"""The events of a log as rows of ``format("eventlog-changes")`` (spec/spark-changes.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="a stream needs PySpark 4.2 or later"
)

from backlog_job import LOG, SCHEMA, Collector, config_of, fetch, log_rows, random_rows
from pyspark.sql import SparkSession
from shared import in_ci, opened_log
from stream_engine import Engine, reader_of, rows_of

from eventlog.cli import run as run_command
from eventlog.errors import ConfigError, ConsumerRuns
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.spark import register
from eventlog.spark.changes import change_log
from eventlog.spark.changes.change_log import (
    ChangeLog,
    OtherEpoch,
    RowsRemoved,
    close_cached_connection,
)
from eventlog.spark.changes.change_offsets import offset_of
from eventlog.spark.changes.changes import ChangesDataSource
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql.database import PostgresDatabase
from eventlog.sql.log.epoch import read_removed
from eventlog.sql.port.driver_errors import open_database
from eventlog.sql.readers.consumers import highest_row, read_consumer


@pytest.fixture
def config(log: sa.Engine, tmp_path: Path) -> Iterator[str]:
    """A configuration of the log. The workers of Spark have the environment that Java was started
    with.
    """
    url = tmp_path / "url"
    url.write_text(log.url.set(password="secret3").render_as_string(hide_password=False))
    file = tmp_path / "eventlog.toml"
    database = f'[database]\nschema_name = "{SCHEMA}"\nurl_file = "{url}"\n'
    file.write_text(f'{database}[publisher]\ndriver_user = "publisher"\nbatch_size = 1\n')
    yield str(file)
    close_cached_connection()


def read_all(**options: object) -> list[dict[str, Any]]:
    """What ``spark.read`` gives, without Java."""
    source = ChangesDataSource({name: str(value) for name, value in options.items()})
    reader = source.reader(source.schema())
    return [row for partition in reader.partitions() for row in rows_of(reader.read(partition))]


def published(log: sa.Engine) -> list[str]:
    """The documents of a publisher that sends the queue once."""
    sink = Collector([])
    with (
        open_context(config_of(log, publisher__batch_size="1"), Counters()) as context,
        closing(sink),
    ):
        publish_once(context, sink)
    return [document.rstrip("\n") for document in sink.documents]


def execute(log: sa.Engine, statement: str) -> None:
    with log.begin() as connection:
        connection.exec_driver_sql(statement)


def insert(connection: sa.Connection, key: int, value: str = "x", event_type: int = 2) -> int:
    """Write a row of the log as a trigger does; its record_id."""
    return int(
        connection.exec_driver_sql(
            f"INSERT INTO {LOG} (event_type, table_name, table_key, column_name, new_value) "
            f"VALUES ({event_type}, 'usr', 'idu={key}', 'fname', '{value}') RETURNING record_id"
        ).scalar_one()
    )


def begin_of(reader: Any) -> Any:
    """The end of a query's first batch, which has no rows."""
    return reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())


def read_first(engine: Engine) -> None:
    """Run the first batch, and the one that has the first rows."""
    assert engine.step(lambda *_: None)
    assert engine.step(lambda *_: None)


def ids_of(rows: list[dict[str, Any]]) -> list[list[int]]:
    return [row["record_ids"] for row in rows]


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_ours", "hour"), [(True, 3), (False, 18)])
def test_local_times_are_those_of_another_program_in_the_zone_of_the_format(
    log: sa.Engine, config: str, is_ours: bool, hour: int
) -> None:
    log_rows(log, [(5, 4, "app", "usr", "idu=8", None, None, None)])
    execute(log, f"UPDATE {LOG} SET event_time = '2026-05-04 03:02:01'")
    if not is_ours:
        execute(log, f"ALTER TABLE {LOG} ALTER event_time SET DEFAULT now()")
    local = 'event_time_zone = "local"\n[format]\ntime_zone = "Asia/Tokyo"\n'
    Path(config).write_text(f"{Path(config).read_text()}{local}")
    (row,) = read_all(config=config)
    assert row["commit_time"] == datetime(2026, 5, 4 if is_ours else 3, hour, 2, 1, tzinfo=UTC)


@pytest.mark.promise("option eventlog-changes.config", "option eventlog-changes.xds")
@pytest.mark.parametrize("number", in_ci([1_000, 3_000], 1_000))
@pytest.mark.parametrize("partition_rows", [10_000, pytest.param(700, marks=pytest.mark.night), 97])
def test_the_documents_are_those_of_the_publisher_byte_for_byte(
    log: sa.Engine, config: str, partition_rows: int, number: int
) -> None:
    log_rows(log, random_rows(number, seed=210))
    rows = read_all(config=config, xds="true", partitionRows=partition_rows)
    assert [row["xds"] for row in rows] == published(log)


def test_a_row_has_all_fields_of_its_event(log: sa.Engine, config: str) -> None:
    log_rows(log, [
        (5, 1, "app", "usr", "idu=7", "fname", None, "Ann"),
        (6, 1, "app", "usr", "idu=7", "age", None, "031"),
        (7, 2, "other", "usr", "idu=7", "age", "31", "32"),
        (8, 4, None, "usr", "idu=8", None, None, None),
    ])  # fmt: skip
    execute(log, f"UPDATE {LOG} SET event_time = '2026-05-04 03:02:01.5'")
    add, modify, delete = read_all(config=config)
    assert add == {
        "position": 5, "event_id": "5", "record_ids": [5, 6], "class": "usr", "operation": "add",
        "key": {"idu": "7"}, "before": None, "after": {"idu": "7", "fname": "Ann", "age": "31"},
        "changed": ["age", "fname"],
        "commit_time": datetime(2026, 5, 4, 3, 2, 1, 500000, UTC),
        "perpetrator": "app",
    }  # fmt: skip
    assert (modify["before"], modify["after"]) == (
        {"idu": "7", "age": "31"},
        {"idu": "7", "age": "32"},
    )
    assert (modify["changed"], modify["perpetrator"]) == (["age"], "other")
    assert (delete["operation"], delete["before"], delete["after"]) == (
        "delete",
        {"idu": "8"},
        None,
    )


def test_an_add_that_has_the_whole_row_names_no_attributes(
    log: sa.Engine, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_FORMAT_XDS_INSERT_QUERY_BACK", "add")
    log_rows(log, [
        (1, 5, "app", "usr", "idu=1", None, None, None),  # read back
        (2, 1, "app", "usr", "idu=9001", "fname", None, None),  # an INSERT without values
        (3, 7, "app", "usr", "idu=2", "fname", None, None),
    ])  # fmt: skip
    rows = read_all(config=config)
    assert [row["changed"] for row in rows] == [None, None, ["fname"]]
    assert [row["after"].get("fname") for row in rows] == ["f1", None, "f2"]


@pytest.mark.promise("option eventlog-changes.class")
def test_with_a_class_images_are_structs_of_its_types(log: sa.Engine, config: str) -> None:
    log_rows(log, [
        (1, 1, "app", "usr", "idu=7", "fname", None, "Ann"),
        (2, 1, "app", "usr", "idu=7", "age", None, "31"),
        (3, 1, "app", "usr", "idu=7", "photo", None, "qqo="),
        (4, 1, "app", "usr_phone", "idu=7", "phoneno", None, "555"),
        (5, 1, "app", "grp", "idg=1+branch=B", "name", None, "x"),
    ])  # fmt: skip
    (row,) = read_all(config=config, **{"class": "usr"})
    assert row["after"] == {
        "idu": 7, "fname": "Ann", "lname": None, "age": 31, "photo": b"\xaa\xaa",
        "usr_phone.phoneno": ["555"],
    }  # fmt: skip


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"clas": "usr"}, "clas is not known; the nearest known one is class"),
        ({"class": "nobody"}, "class = 'nobody' is not in the configuration, which has"),
        (
            {"start_from": "soon"},
            'start_from = "soon" is not allowed; legal: earliest | latest | a record_id',
        ),
        (
            {"maxRowsPerBatch": "0"},
            'maxRowsPerBatch = "0" is not allowed; legal: a number, 1 or more',
        ),
        ({"consumer": "a b"}, 'consumer = "a b" is not allowed'),
        ({"config": "/nowhere.toml"}, "config = '/nowhere.toml': there is no such file"),
    ],
)
def test_an_invalid_option_is_refused_in_one_line(
    config: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        reader_of(**{"config": config, **options})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_options_of_a_stream_are_refused_in_a_batch_read(config: str) -> None:
    with pytest.raises(ConfigError, match="consumer works only with readStream"):
        read_all(config=config, consumer="lake")


def test_future_events_are_refused(
    log: sa.Engine, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_PUBLISHER_HANDLE_FUTURE_EVENTS", "true")
    with pytest.raises(
        ConfigError, match="handle_future_events cannot be used with format eventlog-changes"
    ):
        read_all(config=config)


# --- the stream -----------------------------------------------------------------------------------


@pytest.mark.promise("option eventlog-changes.maxRowsPerBatch")
@pytest.mark.parametrize("most", [1_000_000, pytest.param(400, marks=pytest.mark.night), 23])
def test_batches_of_any_size_give_the_events_of_the_publisher(
    log: sa.Engine, config: str, tmp_path: Path, most: int
) -> None:
    log_rows(log, random_rows(800, seed=211))
    engine = Engine(
        reader_of(config=config, xds="true", maxRowsPerBatch=most, partitionRows=150),
        tmp_path / "q",
    )
    assert [row["xds"] for row in engine.rest()] == published(log)
    assert (engine.number > 2) == (most < 800)


def test_a_first_group_that_is_long_open_is_read_to_its_end_in_few_steps(
    log: sa.Engine, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, [(i, 2, "app", "usr", f"idu={i}", "fname", None, "x") for i in range(1, 301)])
    steps: list[int] = []
    whole = ChangeLog.without_open

    def counted(self: ChangeLog, log: Any, rows: Any, last: int) -> Any:
        steps.append(last)
        return whole(self, log, rows, last)

    monkeypatch.setattr(ChangeLog, "without_open", counted)
    engine = Engine(reader_of(config=config, maxRowsPerBatch=4), tmp_path / "q")
    assert ids_of(engine.rest()) == [[i] for i in range(1, 301)]
    assert len(steps) < 10


def test_every_attempt_at_a_batch_has_the_same_rows(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, random_rows(400, seed=212))
    reader = reader_of(config=config, xds="true", partitionRows=50)
    start = begin_of(reader)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    attempts = []
    for _ in range(3):
        parts = reader.partitions(start, end)
        attempts.append([row for part in parts for row in rows_of(reader.read(part))])
        log_rows(log, [(9_000 + len(attempts), 2, "app", "usr", "idu=1", "fname", None, "later")])
    assert attempts[0] == attempts[1] == attempts[2]


def test_a_row_that_commits_late_is_read_in_its_gap(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    engine = Engine(reader_of(config=config), tmp_path / "q")
    with log.connect() as late, log.connect() as early:
        insert(late, 1)
        insert(early, 2)
        early.commit()
        assert ids_of(engine.rest()) == [[2]]
        late.commit()
        assert ids_of(engine.rest()) == [[1]]


def test_a_gap_that_stays_one_leaves_the_set(log: sa.Engine, config: str, tmp_path: Path) -> None:
    engine = Engine(reader_of(config=config), tmp_path / "q")
    with log.connect() as lost, log.connect() as other:
        insert(lost, 1)
        insert(other, 2)
        other.commit()
        assert ids_of(engine.rest()) == [[2]]
        assert offset_of(engine.start).done.ranges == [(2, 2)]
        lost.rollback()
        insert(other, 3)
        other.commit()
        assert ids_of(engine.rest()) == [[3]]
    assert (offset_of(engine.start).done.floor, offset_of(engine.start).done.ranges) == (3, [])


def test_a_batch_that_is_cut_holds_back_what_is_open(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    keys = (1, 2, 3, 3, 1)
    log_rows(log, [(i, 4 if i == 2 else 2, "app", "usr", f"idu={key}", "fname", None, "x")
                   for i, key in enumerate(keys, 1)])  # fmt: skip
    engine = Engine(reader_of(config=config, maxRowsPerBatch=4), tmp_path / "q")
    batches: list[list[list[int]]] = []
    while engine.step(lambda _, rows: batches.append(ids_of(rows))):
        pass
    assert [group for batch in batches for group in batch] == [[1, 5], [2], [3, 4]]


def test_a_batch_reads_on_while_its_first_group_is_open_though_others_write(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    names = [(key, column) for key in (1, 2) for column in ("fname", "lname")]
    log_rows(
        log,
        [
            (10 + i, 1, "app", "usr", f"idu={key}", column, None, "x")
            for i, (key, column) in enumerate(names)
        ],
    )
    with log.connect() as late:
        insert(late, 3)
        engine = Engine(reader_of(config=config, maxRowsPerBatch=3), tmp_path / "q")
        assert ids_of(engine.rest()) == [[10, 11], [12, 13]]


def test_a_batch_sees_what_has_ended_whatever_isolation_the_role_begins_with(
    log: sa.Engine, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c default_transaction_isolation=serializable")
    engine = Engine(reader_of(config=config), tmp_path / "q")
    monkeypatch.delenv("PGOPTIONS")
    with log.connect() as late, log.connect() as early:
        insert(late, 1)
        insert(early, 2)
        early.commit()

        def commit_behind(*arguments: Any) -> int:
            removed = read_removed(*arguments)
            late.commit()
            return removed

        monkeypatch.setattr(change_log, "read_removed", commit_behind)
        assert ids_of(engine.rest()) == [[1], [2]]


def test_a_crash_of_the_server_cannot_undo_a_row_of_a_batch(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    engine = Engine(reader_of(config=config), tmp_path / "q")
    engine.rest()
    with log.connect() as writer:
        writer.exec_driver_sql("SET LOCAL synchronous_commit = off")
        insert(writer, 1)
        writer.commit()
        engine.reader.latestOffset(engine.start, engine.limit)
        written = "SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()"
        assert writer.exec_driver_sql(written).scalar_one()


@pytest.mark.promise("option eventlog-changes.start_from")
def test_a_query_killed_in_its_first_batch_begins_at_the_same_position_again(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, [(5, 2, "app", "usr", "idu=1", "fname", None, "before")])

    def killed_query() -> Engine:
        return Engine(reader_of(config=config, start_from="latest"), tmp_path / "q", at)

    def at(where: str) -> None:
        if where == "behind the offsets":
            raise KeyboardInterrupt

    for number in (6, 7):
        engine = killed_query()  # asks where to begin
        log_rows(log, [(number, 4, "app", "usr", "idu=1", None, None, None)])
        with pytest.raises(KeyboardInterrupt):
            engine.step(lambda *_: None)
    again = Engine(reader_of(config=config, start_from="latest"), tmp_path / "q")
    assert ids_of(again.rest()) == [[6], [7]]


def test_the_first_batch_comes_immediately_and_has_no_rows(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    engine = Engine(reader_of(config=config), tmp_path / "q")
    batches: list[list[dict[str, Any]]] = []
    assert engine.step(lambda _, rows: batches.append(rows))
    assert not engine.step(lambda _, rows: batches.append(rows))
    assert batches == [[]]


def test_a_crash_of_the_server_cannot_undo_a_value_that_a_task_has_read_back(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, [(5, 6, "app", "usr", "idu=1", None, None, None)])
    reader = reader_of(config=config)
    start = begin_of(reader)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (part,) = reader.partitions(start, end)
    with log.connect() as writer:
        writer.exec_driver_sql("SET LOCAL synchronous_commit = off")
        writer.exec_driver_sql("UPDATE hr.usr SET fname = 'new' WHERE idu = 1")
        writer.commit()
        written = writer.exec_driver_sql("SELECT pg_current_wal_insert_lsn()").scalar_one()
        (row,) = rows_of(reader.read(part))
        assert row["after"]["fname"] == "new"
        assert writer.exec_driver_sql(
            f"SELECT pg_current_wal_flush_lsn() >= '{written}'"
        ).scalar_one()


def test_it_begins_at_the_given_position(log: sa.Engine, config: str, tmp_path: Path) -> None:
    log_rows(log, [(i, 2, "app", "usr", f"idu={i}", "fname", None, "x") for i in range(1, 6)])
    third = Engine(reader_of(config=config, start_from=4), tmp_path / "third")
    latest = Engine(reader_of(config=config, start_from="latest"), tmp_path / "latest")
    assert ids_of(third.rest()) == [[4], [5]]
    assert latest.rest() == []
    with log.connect() as writer:
        insert(writer, 6)
        writer.commit()
    assert ids_of(latest.rest()) == [[6]]
    execute(log, f"UPDATE {LOG}_epoch SET removed = 3")
    with pytest.raises(
        ConfigError, match="start_from = 3: rows up to record_id 3 have been purged"
    ):
        reader_of(config=config, start_from=3).initialOffset()


def test_it_begins_at_the_given_time(log: sa.Engine, config: str, tmp_path: Path) -> None:
    log_rows(log, [(i, 2, "app", "usr", f"idu={i}", "fname", None, "x") for i in range(1, 5)])
    execute(
        log, f"UPDATE {LOG} SET event_time = timestamp '2026-11-01' + record_id * interval '1 d'"
    )
    begin = {"config": config, "start_from": "2026-11-04T00:00Z"}
    stream = Engine(reader_of(**begin), tmp_path / "stream")
    lake = Engine(reader_of(**begin, consumer="lake"), tmp_path / "lake")
    assert ids_of(read_all(**begin)) == [[3], [4]]
    assert ids_of(stream.rest()) == [[3], [4]]
    assert ids_of(lake.rest()) == [[3], [4]]
    execute(log, f"UPDATE {LOG}_epoch SET removed = 2")
    with pytest.raises(ConfigError, match="earliest possible time is 2026-11-05T00:00:01Z"):
        read_all(**begin)


def test_a_row_that_was_open_at_the_time_of_a_beginning_is_read_when_it_commits(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    with log.connect() as late, log.connect() as writer:
        insert(late, 1)
        late.exec_driver_sql(f"UPDATE {LOG} SET event_time = '2026-11-01'")
        insert(writer, 2)
        writer.exec_driver_sql(f"UPDATE {LOG} SET event_time = '2026-11-05'")
        writer.commit()
        stream = Engine(reader_of(config=config, start_from="2026-11-04T00:00Z"), tmp_path / "q")
        read_first(stream)
        late.commit()
    assert ids_of(stream.rest()) == [[1]]


def test_what_the_log_still_holds_is_read_from_the_earliest_row(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, [(i, 2, "app", "usr", f"idu={i}", "fname", None, "x") for i in (2, 5, 6, 9)])
    execute(log, f"UPDATE {LOG}_epoch SET removed = 7")
    assert ids_of(Engine(reader_of(config=config), tmp_path / "q").rest()) == [[2], [5], [6], [9]]


def test_rows_that_were_removed_before_they_were_read_are_an_error(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, [(i, 2, "app", "usr", f"idu={i}", "fname", None, "x") for i in range(1, 11)])
    engine = Engine(reader_of(config=config, maxRowsPerBatch=4), tmp_path / "q")
    execute(log, f"UPDATE {LOG} SET event_type = 4")  # so that nothing is open
    read_first(engine)
    execute(log, f"UPDATE {LOG} SET status = 'S', event_time = '2020-01-01' WHERE record_id < 7")
    assert run_command(["--config", config, "purge", "--older-than", "1d", "--yes"]) == 0
    with pytest.raises(
        RowsRemoved,
        match=r"rows of the log .* up to record_id 6 have been purged, and the stream had read",
    ):
        engine.rest()


def test_rows_that_are_removed_while_a_batch_is_planned_are_an_error(
    log: sa.Engine, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_rows(log, [(i, 4, "app", "usr", f"idu={i}", None, None, None) for i in range(1, 11)])
    execute(log, f"UPDATE {LOG} SET status = 'S', event_time = '2020-01-01' WHERE record_id < 7")
    engine = Engine(reader_of(config=config), tmp_path / "q")

    def purge_before(*arguments: Any) -> int | None:
        assert run_command(["--config", config, "purge", "--older-than", "1d", "--yes"]) == 0
        return highest_row(*arguments)

    monkeypatch.setattr(change_log.consumers, "highest_row", purge_before)
    with pytest.raises(RowsRemoved, match="up to record_id 6 have been purged"):
        engine.rest()


def test_rows_that_are_removed_while_a_batch_runs_are_an_error(log: sa.Engine, config: str) -> None:
    log_rows(log, [(i, 2, "app", "usr", f"idu={i}", "fname", None, "x") for i in range(1, 11)])
    reader = reader_of(config=config)
    start = begin_of(reader)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (part,) = reader.partitions(start, end)
    execute(log, f"DELETE FROM {LOG} WHERE record_id = 4")
    with pytest.raises(RowsRemoved, match="record_ids 1 to 10 have 9 rows but had 10"):
        rows_of(reader.read(part))
    with pytest.raises(RowsRemoved, match="1 row of 10 between record_id 1 and 10"):
        reader.partitions(start, end)


def test_a_checkpoint_of_another_epoch_is_refused(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, random_rows(50, seed=213))
    Engine(reader_of(config=config), tmp_path / "q").rest()
    assert run_command(["--config", config, "db", "start-epoch"]) == 0
    with pytest.raises(
        OtherEpoch,
        match="the checkpoint is from epoch none of the log, but the log is now in epoch 2",
    ):
        Engine(reader_of(config=config), tmp_path / "q").rest()


def test_a_checkpoint_of_something_else_is_refused(config: str) -> None:
    reader = reader_of(config=config)
    with pytest.raises(
        ConfigError, match="the checkpoint has no valid offset of format eventlog-changes"
    ):
        reader.latestOffset({"position": 7}, reader.getDefaultReadLimit())


# --- a consumer -----------------------------------------------------------------------------------


def line_of(log: sa.Engine, name: str = "lake") -> Any:
    with log.connect() as connection:
        entry = read_consumer(
            opened_log(
                connection,
                locate_log(open_database(connection), name="eventlog", schema=SCHEMA),
            ),
            name,
        )
    assert entry is not None
    return entry.done


def test_a_second_query_of_a_consumer_is_refused(log: sa.Engine, config: str) -> None:
    first = reader_of(config=config, consumer="lake")
    first.initialOffset()
    with pytest.raises(ConsumerRuns, match=r"consumer 'lake' of the log .* is already being run"):
        reader_of(config=config, consumer="lake").initialOffset()
    first.stop()
    reader_of(config=config, consumer="lake").initialOffset()


def test_commit_marks_rows_as_done_and_never_undone(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, [(i, 4, "app", "usr", f"idu={i}", None, None, None) for i in range(1, 11)])
    reader = reader_of(config=config, consumer="lake", maxRowsPerBatch=4)
    engine = Engine(reader, tmp_path / "q")
    read_first(engine)
    first = engine.start
    engine.step(lambda *_: None)
    assert line_of(log).floor == 4
    reader.commit(engine.start)
    assert line_of(log).floor == 8
    reader.commit(first)
    assert line_of(log).floor == 8


def test_purge_keeps_what_a_consumer_has_not_read(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, [(i, 4, "app", "usr", f"idu={i}", None, None, None) for i in range(1, 11)])
    execute(log, f"UPDATE {LOG} SET status = 'S', event_time = '2020-01-01'")
    engine = Engine(reader_of(config=config, consumer="lake", maxRowsPerBatch=4), tmp_path / "q")
    read_first(engine)
    engine.reader.commit(engine.start)
    assert run_command(["--config", config, "purge", "--older-than", "1d", "--yes"]) == 0
    assert fetch(log, f"SELECT min(record_id) FROM {LOG}") == [(5,)]
    assert len(engine.rest()) == 6


def test_a_new_checkpoint_begins_where_its_consumer_is(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, [(i, 4, "app", "usr", f"idu={i}", None, None, None) for i in range(1, 11)])
    engine = Engine(reader_of(config=config, consumer="lake", maxRowsPerBatch=4), tmp_path / "q")
    read_first(engine)
    engine.reader.commit(engine.start)
    engine.reader.stop()
    again = Engine(reader_of(config=config, consumer="lake"), tmp_path / "another")
    assert ids_of(again.rest()) == [[i] for i in range(5, 11)]


def test_a_checkpoint_older_than_its_consumer_reads_the_rows_that_still_exist(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, [(i, 4, "app", "usr", f"idu={i}", None, None, None) for i in range(1, 11)])
    engine = Engine(reader_of(config=config, consumer="lake"), tmp_path / "q")
    engine.step(lambda *_: None)
    begin = engine.start
    engine.rest()
    engine.reader.commit(engine.start)
    assert engine.reader.latestOffset(begin, engine.limit)["rows"] == 10
    execute(log, f"UPDATE {LOG} SET status = 'S', event_time = '2020-01-01'")
    assert run_command(["--config", config, "purge", "--older-than", "1d", "--yes"]) == 0
    with pytest.raises(RowsRemoved):
        engine.reader.latestOffset(begin, engine.limit)


def test_a_consumer_that_was_dropped_has_protected_nothing(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, [(i, 4, "app", "usr", f"idu={i}", None, None, None) for i in range(1, 11)])
    engine = Engine(reader_of(config=config, consumer="lake", maxRowsPerBatch=4), tmp_path / "q")
    read_first(engine)
    engine.reader.stop()
    assert run_command(["--config", config, "consumers", "drop", "lake", "--yes"]) == 0
    execute(log, f"UPDATE {LOG} SET status = 'S', event_time = '2020-01-01' WHERE record_id < 7")
    assert run_command(["--config", config, "purge", "--older-than", "1d", "--yes"]) == 0
    for _ in range(2):  # however often the query is started
        again = Engine(reader_of(config=config, consumer="lake", maxRowsPerBatch=4), tmp_path / "q")
        with pytest.raises(
            RowsRemoved,
            match="up to record_id 6 have been purged, and the stream had read only up to 4",
        ):
            again.rest()


@pytest.mark.parametrize("start_from", ["latest", "earliest"])
def test_a_row_of_a_writer_that_was_open_before_rows_were_removed_is_read_when_it_commits(
    log: sa.Engine, config: str, tmp_path: Path, start_from: str
) -> None:
    with log.connect() as late, log.connect() as other:
        number = insert(late, 1)
        log_rows(log, [(i, 4, "app", "usr", f"idu={i}", None, None, None) for i in range(5, 9)])
        execute(log, f"UPDATE {LOG} SET status = 'S', event_time = '2020-01-01'")
        assert run_command(["--config", config, "purge", "--older-than", "1d", "--yes"]) == 0
        engine = Engine(reader_of(config=config, start_from=start_from), tmp_path / "q")
        assert engine.rest() == []
        late.commit()
        assert ids_of(engine.rest()) == [[number]]
        # Numbers that never had a row do not count as removed, however often the query starts.
        insert(other, 2)
        other.commit()
        assert (
            len(Engine(reader_of(config=config, start_from=start_from), tmp_path / "q").rest()) == 1
        )


def test_a_number_that_was_rolled_back_is_no_removed_row(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    engine = Engine(reader_of(config=config), tmp_path / "q")
    with log.connect() as lost, log.connect() as other:
        insert(lost, 1)
        insert(other, 2, event_type=4)
        other.commit()
        assert len(engine.rest()) == 1
        lost.rollback()
    assert engine.rest() == []  # nothing new: the offset keeps the gap
    assert offset_of(engine.start).done.ranges == [(2, 2)]
    execute(log, f"UPDATE {LOG} SET status = 'S', event_time = '2020-01-01'")
    assert run_command(["--config", config, "purge", "--older-than", "1d", "--yes"]) == 0
    assert engine.rest() == []
    with log.connect() as other:
        insert(other, 3)
        other.commit()
    assert len(engine.rest()) == 1


def test_a_row_that_commits_and_is_removed_unread_is_an_error(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    engine = Engine(reader_of(config=config), tmp_path / "q")
    with log.connect() as late, log.connect() as other:
        insert(late, 1, event_type=4)
        insert(other, 2, event_type=4)
        other.commit()
        assert len(engine.rest()) == 1
        late.commit()
    execute(log, f"UPDATE {LOG} SET status = 'S', event_time = '2020-01-01'")
    assert run_command(["--config", config, "purge", "--older-than", "1d", "--yes"]) == 0
    with pytest.raises(RowsRemoved, match="up to record_id 2 have been purged"):
        engine.rest()


def test_a_consumer_that_was_dropped_has_protected_nothing_whenever_its_query_was_killed_since(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, [(i, 4, "app", "usr", f"idu={i}", None, None, None) for i in range(1, 11)])
    options = {"config": config, "consumer": "lake", "maxRowsPerBatch": 4}
    engine = Engine(reader_of(**options), tmp_path / "q")
    read_first(engine)
    engine.reader.stop()
    assert run_command(["--config", config, "consumers", "drop", "lake", "--yes"]) == 0
    execute(log, f"UPDATE {LOG} SET status = 'S', event_time = '2020-01-01' WHERE record_id < 7")
    assert run_command(["--config", config, "purge", "--older-than", "1d", "--yes"]) == 0
    killed = reader_of(**options)
    killed.initialOffset()  # registers the consumer again, and is killed before the first check
    killed.stop()
    with pytest.raises(RowsRemoved, match="up to record_id 6 have been purged"):
        Engine(reader_of(**options), tmp_path / "q").rest()


def test_the_latest_row_is_where_a_query_begins_while_others_write(
    log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, [(i, 2, "app", "usr", f"idu={i}", "fname", None, "x") for i in range(5, 8)])
    execute(log, f"UPDATE {LOG}_epoch SET removed = 4")
    with log.connect() as late:
        number = insert(late, 1)
        engine = Engine(reader_of(config=config, start_from="latest"), tmp_path / "q")
        assert engine.rest() == []
        late.commit()
        assert ids_of(engine.rest()) == [[number]]


# --- Spark ----------------------------------------------------------------------------------------


def test_spark_reads_all_events(spark: SparkSession, log: sa.Engine, config: str) -> None:
    log_rows(log, random_rows(1_000, seed=214))
    register(spark)
    frame = (
        spark.read.format("eventlog-changes")
        .options(config=config, xds="true", partitionRows=300)
        .load()
    )
    assert frame.rdd.getNumPartitions() == 4
    assert [row.xds for row in frame.orderBy("position").collect()] == published(log)


def test_spark_follows_the_log_as_a_consumer_until_its_end(
    spark: SparkSession, log: sa.Engine, config: str, tmp_path: Path
) -> None:
    log_rows(log, random_rows(1_000, seed=215))
    register(spark)
    source = spark.readStream.format("eventlog-changes").options(
        config=config, consumer="lake", xds="true"
    )

    def follow() -> list[str]:
        found: list[str] = []
        query = (
            source.option("maxRowsPerBatch", 300)
            .load()
            .writeStream.foreachBatch(
                lambda frame, _: found.extend(r.xds for r in frame.orderBy("position").collect())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found

    assert follow() == published(log)
    log_rows(log, [(9_000, 2, "app", "usr", "idu=1", "fname", None, "later")])
    assert len(follow()) == 1
    assert line_of(log).top >= 9_000  # a stream records its end


def test_a_batch_that_is_repeated_is_there_once_by_the_example_of_the_guide(
    spark: SparkSession, tmp_path: Path
) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/spark.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"foreachBatch\(\s*(lambda batch, number: .*)", guide)
    write = eval(example.replace('f"changes/', f'f"{tmp_path}/changes/'))
    for number, rows in ((0, 3), (1, 5), (1, 5)):
        write(spark.range(rows), number)
    assert spark.read.parquet(f"{tmp_path}/changes").count() == 8


def test_no_plan_and_no_task_holds_a_password(spark: SparkSession, config: str) -> None:
    register(spark)
    frame = spark.read.format("eventlog-changes").option("config", config).load()
    assert "secret3" not in frame._jdf.queryExecution().toString()
    log = ChangeLog(config)
    assert b"secret3" not in log.classes()[2].content
    log.close()


def test_a_column_added_while_the_classes_are_read_is_in_the_next_batch(
    log: sa.Engine, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reflect = PostgresDatabase.reflect

    def and_then_changed(*of: Any) -> Any:
        found = reflect(*of)
        with log.begin() as conn:
            conn.exec_driver_sql(f"ALTER TABLE {SCHEMA}.usr ADD IF NOT EXISTS later text")
        return found

    monkeypatch.setattr(PostgresDatabase, "reflect", and_then_changed)
    with closing(ChangeLog(config)) as changes:
        known = []
        for _ in range(2):
            _, catalog, _ = changes.classes()
            (usr,) = (one for one in catalog.classes if one.name == "usr")
            known.append([attribute.name for attribute in usr.attributes])
    assert ["later" in names for names in known] == [False, True]
