"""``eventlog verify`` proves that a snapshot shows the tables as they were, and reads a chunk again
if it does not (spec/verify.md 1.4).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import verified
from publishers import install
from shared import Run, fetch, met, url_of
from verified import WAYS, document, read_by, run

from eventlog.cli.context import transaction
from eventlog.config.load import load
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.inspect import key_explanation
from eventlog.verify import VerifyOptions, VerifyReport, verify
from eventlog.verify import session as sessions
from eventlog.verify.rule import UndoneRows
from eventlog.verify.targets.table import TableTarget

NewDatabase = Callable[[], AbstractContextManager[sa.Engine]]
FilledDatabase = Callable[[Callable[[sa.Engine], None]], AbstractContextManager[sa.Engine]]
OBJECTS = 30
CHUNK = 10
REWRITES = "ALTER TABLE item ALTER name TYPE text COLLATE \"C\" USING name || ''"


def fill_source(engine: sa.Engine) -> None:
    verified.fill_source(engine, OBJECTS)


def fill_copy(engine: sa.Engine) -> None:
    verified.fill(engine, OBJECTS)
    run(engine, "DELETE FROM item WHERE id = 25", "UPDATE item SET name = 'x' WHERE id = 26")


@pytest.fixture
def source(filled_database: FilledDatabase) -> Iterator[sa.Engine]:
    with filled_database(fill_source) as engine:
        yield engine


@pytest.fixture
def copy(filled_database: FilledDatabase) -> Iterator[sa.Engine]:
    with filled_database(fill_copy) as engine:
        yield engine


@pytest.fixture(autouse=True)
def _brief_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    verified.rest_briefly(monkeypatch)


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], *chunks: int) -> None:
    """Act in another session between the snapshot of these chunks and the reading of their objects;
    the reading of the rows that are not done at the beginning is chunk 0.
    """
    real, numbers = UndoneRows.read_new, iter(range(1000))

    def read_new(self: UndoneRows) -> None:
        if next(numbers) in chunks:
            self.log.connection.exec_driver_sql("SELECT 1")  # takes the snapshot
            act()
        real(self)

    monkeypatch.setattr(UndoneRows, "read_new", read_new)


def compare(source: sa.Engine, copy: sa.Engine, wait: float = 0, **more: Any) -> VerifyReport:
    options = VerifyOptions(wait=wait, batch=CHUNK)
    return verify(document(source), url_of(copy), environ={}, options=options, **more)


def found(report: VerifyReport) -> list[tuple[str, str]]:
    return sorted((one.kind.value, one.key) for one in report.differences)


DAMAGES = [("missing", "id=25"), ("value", "id=26")]


@pytest.mark.parametrize(("way", "chunk"), met(WAYS, [1, 2, 3]))
def test_damages_are_found_although_the_table_is_rewritten_while_a_chunk_is_read(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch, way: str, chunk: int
) -> None:
    read_by(monkeypatch, TableTarget, way)
    between(monkeypatch, lambda: run(source, REWRITES), chunk)
    report = compare(source, copy)
    numbers = report.classes["item"]
    assert (found(report), numbers.equal) == (DAMAGES, OBJECTS - 2)


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE new (LIKE item INCLUDING ALL); INSERT INTO new SELECT * FROM item; "
         "ALTER TABLE item RENAME TO old; ALTER TABLE new RENAME TO item"],
        ["SET session_replication_role = replica; CREATE TEMP TABLE kept AS SELECT * FROM item; "
         "TRUNCATE item; INSERT INTO item SELECT * FROM kept; DROP TABLE kept; "
         "RESET session_replication_role"],
        ["VACUUM FULL item"],
    ],
    ids=["a swap", "truncate", "vacuum full"],
)  # fmt: skip
def test_damages_are_found_although_the_table_is_replaced_while_a_chunk_is_read(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch, statements: list[str]
) -> None:
    def act() -> None:
        with source.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            for statement in statements:
                conn.exec_driver_sql(statement)

    between(monkeypatch, act, 3)
    report = compare(source, copy)
    assert (found(report), report.classes["item"].equal) == (DAMAGES, OBJECTS - 2)


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["ALTER TABLE item DETACH PARTITION late"],
         [("surplus", f"id={key}") for key in (*range(21, 25), *range(26, 31))]),
        (["ALTER TABLE item DETACH PARTITION late; CREATE TABLE new (LIKE late); "
          "INSERT INTO new SELECT * FROM late; "
          "ALTER TABLE item ATTACH PARTITION new FOR VALUES FROM (21) TO (100)"], DAMAGES),
    ],
    ids=["detach", "detach and attach"],
)  # fmt: skip
def test_partitions_that_change_while_a_chunk_is_read_are_compared_as_they_are_then(
    new_database: NewDatabase,
    copy: sa.Engine,
    monkeypatch: pytest.MonkeyPatch,
    statements: list[str],
    expected: list[tuple[str, str]],
) -> None:
    with new_database() as source:
        run(
            source,
            verified.TABLE + " PARTITION BY RANGE (id)",
            "CREATE TABLE early PARTITION OF item FOR VALUES FROM (0) TO (21)",
            "CREATE TABLE late PARTITION OF item FOR VALUES FROM (21) TO (100)",
            "INSERT INTO item SELECT n, 'item ' || n, n * 1.25, timestamp '2026-01-01 12:00:00' "
            f"+ n * interval '1 s' FROM generate_series(1, {OBJECTS}) AS n",
        )
        install(load(document(source), {}))
        between(monkeypatch, lambda: run(source, *statements), 3)
        report = compare(source, copy)
    assert (found(report), report.unproven) == (sorted(expected), [])


def test_an_object_stays_in_motion_although_the_log_is_rewritten_while_a_chunk_is_read(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(source, "UPDATE item SET name = 'later' WHERE id = 29")
    run(copy, "UPDATE item SET name = 'later' WHERE id = 29")
    rewrites = "ALTER TABLE eventlog ALTER old_value TYPE varchar USING old_value || ''"
    between(monkeypatch, lambda: run(source, rewrites), 1)
    report = compare(source, copy)
    assert found(report) == DAMAGES
    assert [(one.key, one.record_ids) for one in report.in_motion] == [("id=29", [1])]


def test_a_materialized_view_that_a_view_reads_is_proven(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_database() as source, new_database() as copy:
        verified.fill(source, OBJECTS)
        run(
            source,
            "CREATE MATERIALIZED VIEW kept AS SELECT id, name FROM item",
            "CREATE VIEW item_view AS SELECT id AS pk_id, name AS sv_name FROM kept",
        )
        config = document(source) | {"watch": [{"table": "item_view"}]}
        install(load(config, {}))
        run(copy, "CREATE TABLE item_view AS SELECT n AS pk_id, 'item ' || n AS name "
                  f"FROM generate_series(1, {OBJECTS}) AS n WHERE n <> 25")  # fmt: skip
        between(monkeypatch, lambda: run(source, "REFRESH MATERIALIZED VIEW kept"), 3)
        options = VerifyOptions(wait=0, batch=CHUNK)
        report = verify(config, url_of(copy), environ={}, options=options)
    assert (found(report), report.classes["item_view"].equal) == (
        [("missing", "pk_id=25")],
        OBJECTS - 1,
    )


def test_chunks_that_are_never_proven_make_the_result_undecided_with_their_range_of_keys(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    verified.run(copy, "UPDATE item SET name = 'item 26' WHERE id = 26")
    between(monkeypatch, lambda: verified.run(source, REWRITES), *range(2, 1000))
    report = compare(source, copy)
    (part,) = report.unproven
    assert (part.class_name, part.after, part.through) == ("item", "id=10", None)
    assert "public.item was rewritten" in part.reason
    assert (report.result, report.verified_through) == ("undecided", None)
    assert report.classes["item"].equal == CHUNK
    assert report.as_data()["unproven"] == [part.as_data()]


def test_a_chunk_is_read_again_as_long_as_it_may_wait(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    between(monkeypatch, lambda: run(source, REWRITES), 2, 3, 4)
    assert found(compare(source, copy, wait=60)) == DAMAGES


def test_the_command_names_the_ranges_that_were_not_compared(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    between(monkeypatch, lambda: verified.run(source, REWRITES), 2, 3)
    code, out, _ = run(
        "--config", settings(source, tmp_path), "verify", "--wait", "0", "--batch", str(CHUNK),
        "--target", url_of(copy), "--json",
    )  # fmt: skip
    assert json.loads(out)["unproven"][0]["through"] == "id=20"
    assert code == 4  # it has found the damages of the other chunk
    between(monkeypatch, lambda: verified.run(source, REWRITES), *range(1, 1000))
    code, out, _ = run(
        "--config", settings(source, tmp_path), "verify", "--wait", "0", "--batch", str(CHUNK),
        "--target", url_of(copy),
    )  # fmt: skip
    assert code == 5
    assert "not compared: item from the first key to the last key: public.item was rewritten" in out


def settings(source: sa.Engine, directory: Path) -> str:
    file = directory / "eventlog.toml"
    file.write_text(
        f'[database]\nurl = "{url_of(source)}"\n[publisher]\nallow_loopback = true\n'
        '[[watch]]\ntable = "item"\n'
    )
    return str(file)


def test_a_verification_that_was_stopped_keeps_the_ranges_that_were_not_compared(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sessions, "SAVED_EACH", 0.0)
    config, state, parts = load(document(source), {}), tmp_path / "progress", iter(range(9))

    def compared() -> VerifyReport:
        options = VerifyOptions(wait=0, batch=CHUNK)
        with closing(sessions.open_target(config, url_of(copy))) as target:
            return sessions.run_verification(
                config, target, options=options, state=state, started=lambda _: stop
            )

    def stop(_: int) -> None:
        if next(parts) == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        between(patched, lambda: run(source, REWRITES), 1, 2)
        with pytest.raises(KeyboardInterrupt):
            compared()
    report = compared()
    assert [(one.after, one.through) for one in report.unproven] == [(None, "id=10")]
    assert (found(report), report.classes["item"].equal) == (DAMAGES, OBJECTS - CHUNK - 2)


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_target_that_is_rewritten_while_it_is_read_has_no_false_differences(
    source: sa.Engine, copy: sa.Engine, isolation: str
) -> None:
    database = copy.url.database
    run(copy, f"ALTER DATABASE {database} SET default_transaction_isolation = '{isolation}'")
    reports: list[VerifyReport] = []
    with copy.connect() as other:
        other.exec_driver_sql(REWRITES)
        thread = threading.Thread(target=lambda: reports.append(compare(source, copy)))
        thread.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            f"AND datname = '{database}'"
        )
        until = time.monotonic() + 60
        while fetch(source, waiting) == [(0,)] and time.monotonic() < until:
            time.sleep(0.02)
        other.commit()
    thread.join(60)
    (report,) = reports
    assert (found(report), report.unconfirmed) == (DAMAGES, 0)


FOREIGN = (
    "CREATE FOREIGN DATA WRAPPER nothing",
    "CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing",
    "CREATE FOREIGN TABLE far (id integer, name text) SERVER nowhere",
    "CREATE VIEW near AS SELECT id, name FROM far",
    "CREATE VIEW item_view AS SELECT id AS pk_id, name AS sv_name FROM near",
)


def test_a_class_of_a_foreign_table_is_named_by_the_plan(source: sa.Engine) -> None:
    run(source, *FOREIGN)
    config = load(document(source) | {"watch": [{"table": "item"}, {"table": "item_view"}]}, {})
    with transaction(config) as db:
        planned = planned_triggers(db, config)
    (warning,) = [one for one in planned.warnings if "foreign" in one]
    assert warning.startswith("item_view shows rows of the foreign table public.far, which")


def test_a_foreign_table_that_was_read_is_named_by_the_report(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(source, *FOREIGN)
    real = UndoneRows.read_new

    def read_new(self: UndoneRows) -> None:
        real(self)
        # Without a handler nothing can be read, but preparing the statement locks the same tables.
        self.log.connection.exec_driver_sql("PREPARE far AS SELECT pk_id FROM item_view")
        self.log.connection.exec_driver_sql("DEALLOCATE far")

    monkeypatch.setattr(UndoneRows, "read_new", read_new)
    report = compare(source, copy)
    assert found(report) == DAMAGES
    assert report.foreign == ["public.far is a foreign table, which has no database snapshot"]


def test_explain_reads_an_object_again_whose_table_is_rewritten_meanwhile(
    source: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, times = key_explanation.rows_of, iter([1])

    def row(*arguments: Any) -> Any:
        found = real(*arguments)
        if next(times, None):
            run(source, REWRITES)
        return found

    monkeypatch.setattr(key_explanation, "rows_of", row)
    config = load(document(source), {})
    (answer,) = key_explanation.explain_key(config, "id=7", planned_triggers)
    assert "the table has no such object now" not in answer.sentences


# --- objects that differ in one check -------------------------------------------------------------


def test_an_object_that_has_differed_is_equal_only_if_two_checks_find_it_so(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A receiver that applies a change twice, as it may after an answer that was lost.
    names = iter(["item 26", "x", "x"])
    real = TableTarget.rows

    def rows(self: TableTarget, *arguments: Any) -> Any:
        run(copy, f"UPDATE item SET name = '{next(names, 'x')}' WHERE id = 26")
        return real(self, *arguments)

    monkeypatch.setattr(TableTarget, "rows", rows)
    assert found(compare(source, copy, wait=2)) == DAMAGES


@pytest.mark.parametrize("way", WAYS)
def test_each_object_is_counted_once(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    read_by(monkeypatch, TableTarget, way)
    between(monkeypatch, lambda: run(source, REWRITES), 2)
    run(source, "UPDATE item SET name = 'later' WHERE id IN (3, 17)")
    run(copy, "INSERT INTO item VALUES (90), (91)")
    numbers = compare(source, copy).classes["item"]
    assert (numbers.equal, numbers.in_motion) == (OBJECTS - 4, 2)
    assert (numbers.different, numbers.missing, numbers.surplus) == (1, 1, 2)


# --- many objects in motion -----------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_objects_that_stay_in_motion_are_read_once(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    read_by(monkeypatch, TableTarget, way)
    run(source, "UPDATE item SET price = price + 1")
    monkeypatch.setattr("eventlog.verify.verification.MAX_LISTED", 5)
    real, read, times = TableTarget.rows, 0, 0

    def rows(self: TableTarget, *arguments: Any) -> Any:
        nonlocal read
        read += 1
        return real(self, *arguments)

    def count(*arguments: Any) -> None:
        nonlocal times
        times += "event_time" in arguments[2]

    monkeypatch.setattr(TableTarget, "rows", rows)
    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    try:
        report = compare(source, copy, wait=0.3)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", count)
    assert (report.result, report.classes["item"].in_motion) == ("undecided", OBJECTS)
    assert [(one.key, len(one.record_ids)) for one in report.in_motion] == [
        (f"id={key}", 1) for key in (1, 10, 11, 12, 13)
    ]
    assert all(one.age is not None for one in report.in_motion)
    assert read == (OBJECTS / CHUNK if way == "keys" else 0)
    assert times == 1  # the times of all rows are read at once


def test_a_report_of_an_earlier_run_is_removed_when_the_next_one_fails(
    source: sa.Engine, copy: sa.Engine, run: Run, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    command = ("--config", settings(source, tmp_path), "verify", "--wait", "0", "--report")
    assert run(*command, str(report), "--target", url_of(copy))[0] == 4
    assert report.exists()
    verified.run(copy, "DROP TABLE item")
    assert run(*command, str(report), "--target", url_of(copy))[0] in (1, 2)
    assert not report.exists()
