"""``eventlog verify``: a target that equals the source is found equal while both change, and each
planted difference is found and repaired (spec/verify.md).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import verified
from publishers import install
from shared import Run, fetch, url_of, wait_until
from verified import WAYS, content, document, publish_once, published, read_by, run, writing

from eventlog import Publisher
from eventlog.config.load import load
from eventlog.errors import ReceiverUnavailable
from eventlog.exit_codes import ExitCode
from eventlog.model import Answer, Event, EventResult, Level
from eventlog.verify import VerifyOptions, VerifyReport, verify
from eventlog.verify import session as sessions
from eventlog.verify.targets.table import TableTarget
from eventlog.verify.verification import Verification

DRIVER = Path(__file__).with_name("verified_driver.py")
OBJECTS = 300
NewDatabase = Callable[[], AbstractContextManager[sa.Engine]]
FilledDatabase = Callable[[Callable[[sa.Engine], None]], AbstractContextManager[sa.Engine]]
AT_ONCE = VerifyOptions(wait=0)


def fill_source(engine: sa.Engine) -> None:
    verified.fill_source(engine, OBJECTS)


def fill_copy(engine: sa.Engine) -> None:
    verified.fill(engine, OBJECTS)


@pytest.fixture
def source(filled_database: FilledDatabase) -> Iterator[sa.Engine]:
    """The table ``item``, its log and its triggers."""
    with filled_database(fill_source) as engine:
        yield engine


@pytest.fixture
def copy(filled_database: FilledDatabase, source: sa.Engine) -> Iterator[sa.Engine]:
    """The same table in another database."""
    with filled_database(fill_copy) as engine:
        yield engine


@pytest.fixture(autouse=True)
def _brief_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    verified.rest_briefly(monkeypatch)


def compare(source: sa.Engine, copy: sa.Engine, **more: Any) -> VerifyReport:
    more = {"options": AT_ONCE, **more}
    return verify(document(source), url_of(copy), environ={}, **more)


def found(report: VerifyReport) -> list[tuple[str, str]]:
    return [(one.kind.value, one.key) for one in report.differences]


# --- while others write ---------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(30,), pytest.param((10, 100, 1000), marks=pytest.mark.night)])
@pytest.mark.parametrize("way", WAYS)
def test_while_others_write_planted_differences_alone_are_found(
    source: sa.Engine,
    copy: sa.Engine,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    sizes: tuple[int, ...],
) -> None:
    read_by(monkeypatch, TableTarget, way)
    # The writers leave these keys alone.
    run(source, "INSERT INTO item SELECT n, 'quiet' FROM generate_series(5001, 5010) AS n")
    with published(document(source), verified.Table(copy)), writing(source, OBJECTS):
        following = [
            compare(source, copy, options=VerifyOptions(wait=20, batch=size)) for size in sizes
        ]
        run(
            copy,
            "UPDATE item SET name = 'wrong' WHERE id = 5001",
            "DELETE FROM item WHERE id = 5002",
            "INSERT INTO item VALUES (6001, 'surplus')",
        )
        planted = compare(source, copy, options=VerifyOptions(wait=20))
    assert [found(report) for report in following] == [[]] * len(sizes)
    # Not even the first look finds a difference.
    assert [report.unconfirmed for report in following] == [0] * len(sizes)
    for report in following:
        assert report.classes["item"].equal > OBJECTS / 2
    assert sorted(found(planted)) == [
        ("missing", "id=5002"),
        ("surplus", "id=6001"),
        ("value", "id=5001"),
    ]


# --- how source and target are read ---------------------------------------------------------------

PARTS = "(area integer, code uuid, name text, made date, PRIMARY KEY (area, code))"


def parts(engine: sa.Engine, *further: str) -> None:
    """The table ``part`` with 40 rows in 4 areas."""
    run(
        engine,
        f"CREATE TABLE part {PARTS}",
        "INSERT INTO part SELECT mod(n, 4), CAST(md5(n::text) AS uuid), NULLIF('p' || n, 'p7'), "
        "date '2026-01-01' + n FROM generate_series(1, 40) AS n",
        *further,
    )


def told_alike(
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
    copy: sa.Engine,
    class_name: str,
    sizes: tuple[int, ...],
) -> tuple[Any, ...]:
    """What each way to read finds in a class by chunks of these sizes: the same."""
    told = []
    for size, way in itertools.product(sizes, WAYS):
        with monkeypatch.context() as patched:
            read_by(patched, TableTarget, way)
            options = VerifyOptions(wait=0, batch=size)
            report = verify(config, url_of(copy), environ={}, options=options)
            told.append(verified.told(report, class_name))
    assert told == [told[0]] * len(told)
    return told[0]


SIZES = [(2, 1000), pytest.param((1, 7), marks=pytest.mark.night)]


@pytest.mark.parametrize("sizes", SIZES)
def test_reading_by_ranges_finds_what_reading_by_keys_finds(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    with new_database() as engine, new_database() as other:
        config = document(engine) | {"watch": [{"table": "part"}]}
        parts(engine)
        install(load(config, {}))
        parts(
            other,
            "DELETE FROM part WHERE area = 1 OR made < date '2026-01-09'",
            "INSERT INTO part SELECT n, CAST(md5(n::text) AS uuid) FROM generate_series(-9, 9) AS n "
            "WHERE n NOT BETWEEN 0 AND 3",
            "UPDATE part SET name = NULL WHERE area = 2 AND made > date '2026-02-06'",
            "UPDATE part SET name = name || ' ' WHERE area = 3",
        )
        run(engine, "UPDATE part SET name = 'waits' WHERE made = date '2026-02-09'")
        differences, moving, numbers = told_alike(monkeypatch, config, other, "part", sizes)
    assert len(moving) == 1
    assert {kind for _, _, kind, _ in differences} == {"value", "missing", "surplus"}
    assert numbers["equal"] == 16


@pytest.mark.parametrize("sizes", SIZES)
def test_a_view_is_read_by_ranges_as_it_is_read_by_keys(
    new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    with new_database() as engine, new_database() as other:
        run(
            engine,
            "CREATE TABLE emp (id integer PRIMARY KEY, name text, hired date)",
            "CREATE TABLE phone (emp integer, no text)",
            "INSERT INTO emp SELECT n, NULLIF('e' || n, 'e7'), date '2026-01-01' + n "
            "FROM generate_series(1, 30) AS n",
            "INSERT INTO phone SELECT n, m || '-' || n FROM generate_series(1, 25) AS n, "
            "generate_series(1, 1 + mod(n, 3)) AS m",
            "CREATE VIEW emp_view AS SELECT id AS pk_id, name AS sv_name, hired AS sv_hired, "
            "no AS sv_no FROM emp LEFT JOIN phone ON emp = id",
        )
        config = document(engine) | {"watch": [{"table": "emp_view"}]}
        install(load(config, {}))
        run(
            other,
            "CREATE TABLE emp_view (pk_id integer PRIMARY KEY, name text, hired date, no text)",
            "INSERT INTO emp_view SELECT n, NULLIF('e' || n, 'e7'), date '2026-01-01' + n, "
            "CASE WHEN n <= 25 THEN '1-' || n END FROM generate_series(1, 40) AS n "
            "WHERE n NOT IN (4, 5)",
            "UPDATE emp_view SET no = '2-' || pk_id WHERE pk_id BETWEEN 10 AND 14",
            "UPDATE emp_view SET name = 'wrong' WHERE pk_id BETWEEN 20 AND 22",
        )
        _, _, numbers = told_alike(monkeypatch, config, other, "emp_view", sizes)
    assert numbers == {
        "class": "emp_view", "equal": 20, "different": 8, "missing": 2, "surplus": 10,
        "known_different": 0, "in_motion": 0,
    }  # fmt: skip


def test_rows_that_are_done_within_a_range_of_the_target_do_not_decide_it(
    source: sa.Engine, copy: sa.Engine
) -> None:
    # The target is read by ranges of two objects: 1 and 6 are read first. The source is read by
    # several parts of this range, and before the last of them object 6 changes on both sides.
    run(copy, "DELETE FROM item WHERE id BETWEEN 2 AND 5 OR id > 6")
    run(source, "DELETE FROM item WHERE id > 6")
    publish_once(document(source), verified.Table(copy))
    parts = 0

    def change(objects: int) -> None:
        nonlocal parts
        parts += 1
        if parts == 1:
            run(source, "UPDATE item SET name = 'new' WHERE id = 6")
            publish_once(document(source), verified.Table(copy))

    with closing(sessions.open_target(load(document(source), {}), url_of(copy))) as target:
        report = sessions.run_verification(
            load(document(source), {}),
            target,
            options=VerifyOptions(wait=0, batch=2),
            started=lambda objects: change,
        )
    assert found(report) == [("missing", f"id={number}") for number in range(2, 6)]
    assert (report.classes["item"].equal, report.unconfirmed) == (2, 0)


OTHER_SESSIONS = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""


@pytest.mark.parametrize("key", ["id integer", 'id text COLLATE "C"'])
def test_a_table_is_read_by_one_scan_of_source_and_target(
    new_database: NewDatabase, key: str
) -> None:
    # So many that the planner, which may know the table or not, prefers the index to a scan for each chunk.
    objects = 5000

    def read(engine: sa.Engine) -> int:
        # The numbers of a session that has ended are there; one that goes on keeps them for a while.
        engine.dispose()
        wait_until(lambda: fetch(engine, OTHER_SESSIONS) == [(0,)], "all sessions have ended")
        (row,) = fetch(
            engine,
            "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables "
            "WHERE relname = 'item'",
        )
        return int(row[0])

    with new_database() as source, new_database() as copy:
        for engine in (source, copy):
            verified.fill(engine, objects)
            run(engine, f"ALTER TABLE item ALTER {key.replace(' ', ' TYPE ', 1)}", "ANALYZE item")
        install(load(document(source), {}))
        before = read(source), read(copy)
        options = VerifyOptions(wait=0, batch=objects // 10)
        assert compare(source, copy, options=options).result == "equal"
        rows = read(source) - before[0], read(copy) - before[1]
    # Each row of the source was read once, and a second time where a small table is counted first.
    assert objects <= rows[0] <= 2.2 * objects
    assert objects <= rows[1] <= 1.2 * objects


# --- what is found --------------------------------------------------------------------------------


def test_an_equal_table_is_equal(source: sa.Engine, copy: sa.Engine) -> None:
    report = compare(source, copy)
    assert (report.result, report.exit_code) == ("equal", ExitCode.DONE)
    assert report.classes["item"].equal == OBJECTS
    assert report.verified_through == report.begun


def test_a_difference_is_named_with_its_column_both_values_and_its_rows(
    source: sa.Engine, copy: sa.Engine
) -> None:
    run(source, "UPDATE item SET name = 'right' WHERE id = 7")
    publish_once(document(source), verified.Table(copy))
    run(copy, "UPDATE item SET name = 'wrong' WHERE id = 7")
    (one,) = compare(source, copy).differences
    assert [(each.column, each.source, each.target) for each in one.columns] == [
        ("name", "right", "wrong")
    ]
    assert one.record_ids == [1]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["ALTER TABLE item DISABLE TRIGGER USER", "UPDATE item SET price = 0 WHERE id = 3",
          "DELETE FROM item WHERE id = 4", "ALTER TABLE item ENABLE TRIGGER USER"],
         [("surplus", "id=4"), ("value", "id=3")]),
        (["SET session_replication_role = replica; UPDATE item SET name = 'x' WHERE id = 5; "
          "RESET session_replication_role"], [("value", "id=5")]),
        (["ALTER TABLE item ALTER id TYPE bigint, ALTER price TYPE numeric USING price * 10",
          "DELETE FROM item WHERE id > 2"], [("value", "id=1"), ("value", "id=2")]),
    ],
    ids=["triggers off", "replica role", "using"],
)  # fmt: skip
def test_changes_that_no_trigger_saw_are_found(
    source: sa.Engine, copy: sa.Engine, statements: list[str], expected: list[tuple[str, str]]
) -> None:
    run(source, *statements)
    publish_once(document(source), verified.Table(copy))
    assert sorted(found(compare(source, copy))) == expected


def test_a_truncate_that_no_trigger_saw_is_found(source: sa.Engine, copy: sa.Engine) -> None:
    run(
        source,
        "ALTER TABLE item DISABLE TRIGGER USER",
        "TRUNCATE item",
        "ALTER TABLE item ENABLE TRIGGER USER",
    )
    report = compare(source, copy)
    assert report.classes["item"].surplus == OBJECTS


def test_an_object_whose_change_waits_is_in_motion_with_its_rows(
    source: sa.Engine, copy: sa.Engine
) -> None:
    run(source, "UPDATE item SET name = 'later' WHERE id = 9")
    report = compare(source, copy)
    assert (report.result, report.exit_code, report.verified_through) == (
        "undecided",
        ExitCode.UNDECIDED,
        None,
    )
    (moving,) = report.in_motion
    assert (moving.key, moving.record_ids) == ("id=9", [1])
    assert moving.age is not None


def test_a_change_that_was_refused_is_known_different(source: sa.Engine, copy: sa.Engine) -> None:
    run(source, "UPDATE item SET name = 'refused' WHERE id = 9", "UPDATE eventlog SET status = 'E'")
    report = compare(source, copy)
    assert report.result == "equal"
    assert [(one.key, one.reason) for one in report.known] == [
        ("id=9", "its newest change was refused: E")
    ]


def test_a_loopback_change_is_known_different(source: sa.Engine, copy: sa.Engine) -> None:
    config = document(source, allow_loopback=False, loopback_action="mark")
    run(source, "UPDATE item SET name = 'own' WHERE id = 9")
    publish_once(config, verified.Table(copy))
    report = verify(config, url_of(copy), environ={}, options=AT_ONCE)
    assert [(one.key, one.reason) for one in report.known] == [
        ("id=9", "its newest change was made by the publisher's own user")
    ]


# --- names and types ------------------------------------------------------------------------------


def test_a_map_names_other_tables_and_columns(
    new_database: NewDatabase, source: sa.Engine, copy: sa.Engine
) -> None:
    run(
        copy,
        "CREATE SCHEMA warehouse",
        "ALTER TABLE item RENAME TO goods",
        "ALTER TABLE goods RENAME id TO goods_id",
        "ALTER TABLE goods RENAME price TO cost",
        "ALTER TABLE goods ALTER cost TYPE numeric(20, 5)",
        "ALTER TABLE goods DROP made",
        "ALTER TABLE goods SET SCHEMA warehouse",
        "UPDATE warehouse.goods SET cost = 1 WHERE goods_id = 3",
    )
    map = {
        "tables": {
            "item": {
                "table": "warehouse.goods",
                "columns": {"id": "goods_id", "price": "cost"},
                "skip": ["made"],
            }
        }
    }
    report = compare(source, copy, map=map)
    assert found(report) == [("value", "id=3")]
    assert report.classes["item"].equal == OBJECTS - 1
    assert list(report.losses) == ["item.made"]


def test_a_table_in_sqlite_holds_the_same_values(source: sa.Engine, tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path / 'copy.db'}"
    engine = sa.create_engine(file)
    run(engine, "CREATE TABLE item (id integer PRIMARY KEY, name text, price numeric, made text)")
    with engine.begin() as conn:
        for row in content(source, "id, name, price::text, made::text"):
            conn.exec_driver_sql("INSERT INTO item VALUES (?, ?, ?, ?)", row)
    report = verify(document(source), file, environ={}, options=AT_ONCE)
    assert (report.result, report.classes["item"].equal) == ("equal", OBJECTS)


# --- the command ----------------------------------------------------------------------------------


def settings(source: sa.Engine, directory: Path) -> str:
    file = directory / "eventlog.toml"
    file.write_text(
        f'[database]\nurl = "{url_of(source)}"\n[publisher]\nallow_loopback = true\n'
        '[[watch]]\ntable = "item"\n'
    )
    return str(file)


def test_repair_writes_what_differs_to_the_log_and_surplus_only_if_asked(
    source: sa.Engine, copy: sa.Engine, run: Run, tmp_path: Path
) -> None:
    verified.run(
        copy,
        "UPDATE item SET name = 'wrong' WHERE id = 1",
        "DELETE FROM item WHERE id = 2",
        "INSERT INTO item VALUES (900, 'surplus')",
    )
    command = ("--config", settings(source, tmp_path), "verify", "--wait", "0", "--target")
    code, out, _ = run(*command, url_of(copy), "--repair")
    assert code == ExitCode.NO
    assert "1 surplus object left" in out
    publish_once(document(source), verified.Table(copy))
    assert run(*command, url_of(copy), "--repair=surplus")[0] == ExitCode.NO
    publish_once(document(source), verified.Table(copy))
    assert run(*command, url_of(copy))[0] == 0
    assert content(source) == content(copy)


def test_a_verification_without_an_equal_object_has_a_line_for_that(
    source: sa.Engine, copy: sa.Engine, run: Run, tmp_path: Path
) -> None:
    command = ("--config", settings(source, tmp_path), "verify", "--wait", "0", "--target")
    _, out, _ = run(*command, url_of(copy))
    assert "the target equals the source; verified" in out
    for engine in (source, copy):
        verified.run(engine, "DELETE FROM item")
    publish_once(document(source), verified.Table(copy))
    code, out, _ = run(*command, url_of(copy))
    assert code == 0
    assert "no difference was found, but 0 objects are equal: check the classes" in out


def test_a_report_has_hashes_where_values_are_hidden(
    source: sa.Engine, copy: sa.Engine, run: Run, tmp_path: Path
) -> None:
    verified.run(copy, "UPDATE item SET name = 'wrong' WHERE id = 1")
    file = tmp_path / "report.json"
    command = ("--config", settings(source, tmp_path), "verify", "--wait", "0", "--target")
    code, out, _ = run(*command, url_of(copy), "--json", "--report", str(file))
    assert code == ExitCode.NO
    assert "wrong" not in out
    assert json.loads(out) == json.loads(file.read_text())
    (column,) = json.loads(out)["differences"][0]["columns"]
    assert column["target"].startswith("sha256:")
    _, out, _ = run(*command, url_of(copy), "--show-values")
    assert "name: item 1 in the source, wrong in the target" in out
    assert re.search(r"; verified through [\d-]{10} [\d:]{8} UTC \(", out)


def test_the_target_may_stand_in_a_variable(
    source: sa.Engine, copy: sa.Engine, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_TARGET", url_of(copy))
    code, _, err = run("--config", settings(source, tmp_path), "verify", "--wait", "0")
    assert (code, err) == (0, "")


def test_status_shows_the_last_verification_of_each_target(
    source: sa.Engine, copy: sa.Engine, run: Run, tmp_path: Path
) -> None:
    verified.run(copy, "UPDATE item SET name = 'wrong' WHERE id = 1")
    compare(source, copy)
    verified.run(copy, "UPDATE item SET name = 'item 1' WHERE id = 1")
    compare(source, copy)
    _, out, _ = run("--config", settings(source, tmp_path), "status", "--json")
    (one,) = json.loads(out)["verified"]
    assert (one["result"], one["objects"], one["differences"]) == ("equal", OBJECTS, 0)
    assert one["verified_through"] is not None
    _, out, _ = run("--config", settings(source, tmp_path), "status")
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.search(rf"verified at {moment}: .* is equal, verified through {moment}$", out, re.M)


# --- stops, and rows that go ----------------------------------------------------------------------


def test_a_verification_keeps_the_rows_of_the_log_and_leaves_no_consumer(
    source: sa.Engine, copy: sa.Engine
) -> None:
    config = document(source, delete_from_log=True)
    with published(config, verified.Table(copy)), writing(source, OBJECTS):
        reports = [
            verify(config, url_of(copy), environ={}, options=VerifyOptions(wait=20, batch=60))
            for _ in range(2)
        ]
    assert [found(report) for report in reports] == [[], []]
    assert fetch(source, "SELECT count(*) FROM eventlog_consumer") == [(0,)]


@pytest.mark.parametrize("way", WAYS)
def test_a_verification_that_was_stopped_continues_and_finds_what_it_had_found(
    source: sa.Engine, copy: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    read_by(monkeypatch, TableTarget, way)
    monkeypatch.setattr(sessions, "SAVED_EACH", 0.0)
    run(copy, "UPDATE item SET name = 'wrong' WHERE id IN (2, 290)")
    state = tmp_path / "progress"
    config = load(document(source), {})
    read: list[int] = []

    def started(_: int) -> Any:
        def advance(objects: int) -> None:
            read.append(objects)
            if sum(read) == 150:
                raise KeyboardInterrupt

        return advance

    def again(started: Any) -> VerifyReport:
        with closing(sessions.open_target(config, url_of(copy))) as target:
            options = VerifyOptions(wait=0, batch=50)
            return sessions.run_verification(
                config, target, (), options, state=state, started=started
            )

    with pytest.raises(KeyboardInterrupt):
        again(started)
    read.clear()
    report = again(lambda _: read.append)
    assert sorted(found(report)) == [("value", "id=2"), ("value", "id=290")]
    assert report.classes["item"].equal == OBJECTS - 2
    assert sum(read) == OBJECTS - 150
    assert not state.exists()


@pytest.mark.parametrize("is_first", [True, False])
def test_an_object_that_a_consumer_was_asked_to_send_again_is_in_motion(
    source: sa.Engine,
    copy: sa.Engine,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    is_first: bool,
) -> None:
    """The request is made before the verification, or between its two checks of the object."""
    config = document(source) | {"source": {"type": "eventlog", "consumer": "copy"}}
    verified.run(source, "UPDATE item SET name = 'new' WHERE id = 1")
    publish_once(config, verified.Table(copy))
    ids = str(fetch(source, "SELECT max(record_id) FROM eventlog")[0][0])
    file = settings(source, tmp_path)
    request = ("--config", file, "requeue", "--consumer", "copy", "--ids", ids)
    if is_first:
        assert run(*request)[0] == 0
    else:
        wait = Verification.wait

        def requested(self: Verification, *given: Any) -> None:
            assert run(*request)[0] == 0
            wait(self, *given)

        monkeypatch.setattr(Verification, "wait", requested)
    verified.run(copy, "UPDATE item SET name = 'wrong' WHERE id = 1")
    report = verify(config, url_of(copy), environ={}, options=VerifyOptions(wait=0.1))
    assert [(one.class_name, one.key) for one in report.in_motion] == [("item", "id=1")]
    assert found(report) == []


def test_an_object_of_a_snapshot_that_has_no_answer_yet_is_in_motion(
    source: sa.Engine, copy: sa.Engine
) -> None:
    config = document(source) | {
        "source": {"type": "eventlog", "consumer": "copy", "start_from": "snapshot"}
    }
    apply = verified.Table(copy)

    def receive(body: bytes, events: Sequence[Event]) -> Answer | None:
        later = {
            one.event_id: EventResult(Level.RETRY)
            for one in events
            if one.event_id.endswith("id=7")
        }
        apply(body, [one for one in events if one.event_id not in later])
        return Answer(later)

    verified.run(copy, "DELETE FROM item")
    with pytest.raises(ReceiverUnavailable):
        Publisher.from_config(config, sink=receive).run_once()
    apply.session.close()
    report = verify(config, url_of(copy), environ={}, options=AT_ONCE)
    assert [(one.class_name, one.key) for one in report.in_motion] == [("item", "id=7")]
    assert found(report) == []
    verified.run(copy, "DELETE FROM item WHERE id = 8")
    report = verify(config, url_of(copy), environ={}, options=AT_ONCE)
    assert found(report) == [("missing", "id=8")]


def test_a_consumer_that_a_killed_verification_left_is_dropped_by_the_next_one(
    source: sa.Engine, copy: sa.Engine
) -> None:
    run(
        source,
        "INSERT INTO eventlog_consumer (name, begins, done) VALUES ('verify-dead', 'latest', '[0]')",
    )
    compare(source, copy)
    assert fetch(source, "SELECT count(*) FROM eventlog_consumer") == [(0,)]


def test_numbers_that_are_never_given_leave_no_object_in_motion(
    source: sa.Engine, copy: sa.Engine
) -> None:
    with source.connect() as conn:
        for _ in range(3):
            conn.exec_driver_sql("UPDATE item SET price = price + 1")
            conn.rollback()
    run(source, "UPDATE item SET price = price + 1 WHERE id = 1")
    publish_once(document(source), verified.Table(copy))
    report = compare(source, copy)
    assert (report.result, report.classes["item"].equal) == ("equal", OBJECTS)


NUMBERS = "pg_get_serial_sequence('eventlog', 'record_id')"


@pytest.mark.parametrize("cache", [1, 20], ids=["writers are known", "writers are unknown"])
def test_a_late_commit_among_100000_rolled_back_numbers_is_in_motion(
    source: sa.Engine, copy: sa.Engine, monkeypatch: pytest.MonkeyPatch, cache: int
) -> None:
    # Where a session keeps numbers, any session may still write into a gap: it stays open.
    run(
        source,
        f"DO $$ BEGIN EXECUTE format('ALTER SEQUENCE %s CACHE {cache}', {NUMBERS}); END $$".replace(
            "%", "%%"
        ),
    )
    late = source.connect()
    late.exec_driver_sql("UPDATE item SET name = 'late' WHERE id = 250")
    run(
        source,
        f"""DO $$ BEGIN FOR n IN 1..2000 LOOP
            UPDATE item SET price = n WHERE id = 1 + mod(n, 200);
            PERFORM nextval({NUMBERS}) FROM generate_series(1, 50);
        END LOOP; END $$""",
    )
    publish_once(document(source), verified.Table(copy))
    read = TableTarget.range_reader

    def range_reader(self: TableTarget, cls: Any) -> Any:
        reader = read(self, cls)
        assert reader is not None

        def read_range(behind: Any, last: Any, limit: int) -> Any:
            if behind is not None and late.in_transaction():
                late.commit()
            return reader.read(behind, last, limit)

        return reader._replace(read=read_range)

    monkeypatch.setattr(TableTarget, "range_reader", range_reader)
    report = compare(source, copy, options=VerifyOptions(wait=0, batch=100))
    late.close()
    assert (report.result, report.classes["item"].equal) == ("undecided", OBJECTS - 1)
    assert [(one.key, one.record_ids) for one in report.in_motion] == [("id=250", [1])]
    monkeypatch.setattr(TableTarget, "range_reader", read)
    publish_once(document(source), verified.Table(copy))
    assert compare(source, copy).result == "equal"


@contextmanager
def killed_often(config: dict[str, Any], copy: sa.Engine) -> Iterator[list[int]]:
    """A publisher in a process, killed and started again at random moments. Yields the number of
    kills.
    """
    stop, kills = threading.Event(), [0]
    chance = random.Random(7)
    command = [sys.executable, str(DRIVER), json.dumps(config), url_of(copy)]

    def work() -> None:
        while not stop.is_set():
            with subprocess.Popen(command) as process:
                stop.wait(4 + chance.random() * 6)
                process.kill()
            kills[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield kills
    finally:
        stop.set()
        thread.join(60)


@contextmanager
def purging(config: str) -> Iterator[None]:
    """A purge of all done rows, each second."""
    stop = threading.Event()
    command = [sys.executable, "-m", "eventlog", "--quiet", "--config", config]
    command += ["purge", "--older-than", "1s", "--yes"]

    def work() -> None:
        while not stop.is_set():
            assert subprocess.run(command, capture_output=True).returncode == 0
            stop.wait(1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


@pytest.mark.night
@pytest.mark.timeout(3600)
def test_a_million_decided_objects_give_no_false_alarm_while_publishers_die_and_rows_are_purged(
    new_database: NewDatabase, tmp_path: Path
) -> None:
    objects, decided, reports = 50_000, 0, []
    with new_database() as engine, new_database() as other:
        verified.fill(engine, objects)
        verified.fill(other, objects)
        config = document(engine)
        install(load(config, {}))
        file = settings(engine, tmp_path)
        with (
            killed_often(config, other) as kills,
            purging(file),
            writing(engine, 5_000),
        ):
            while decided < int(os.environ.get("EVENTLOG_VERIFY_DECIDED", "1000000")):
                options = VerifyOptions(wait=30, batch=2_000)
                reports.append(verify(config, url_of(other), environ={}, options=options))
                decided += reports[-1].classes["item"].equal
        assert kills[0] > 2
    assert [found(report) for report in reports] == [[]] * len(reports)
    assert sum(report.unconfirmed for report in reports) == 0
