"""The report of a verification, its file of progress and its entry in the log, each compared as a
whole (spec/verify.md 1.2, 3.2, 5, 6). The source and the copy are files of SQLite.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from shared import Run

from eventlog.config.load import load
from eventlog.verify import VerifyOptions, VerifyReport
from eventlog.verify import session as sessions

KEYS = (1, 2, 3, 4)
SOURCE, COPY = "source.db", "copy.db"
LONG_AGO = "2026-01-02T03:04:05.678900+00:00"


def change(file: str, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        for statement in statements:
            db.execute(statement)


def logged(statement: str) -> list[Any]:
    with closing(sqlite3.connect(SOURCE)) as db:
        return db.execute(statement).fetchall()


@pytest.fixture(autouse=True)
def _equal_tables(run: Run) -> None:
    """A source with a log, and a copy that equals it. Row n of the log names object n, and is done."""
    Path("eventlog.toml").write_text(
        f'[database]\nurl = "sqlite:///{SOURCE}"\n[publisher]\nallow_loopback = true\n'
        '[[watch]]\ntable = "item"\n'
    )
    for file in (SOURCE, COPY):
        change(file, "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
        change(file, *(f"INSERT INTO item VALUES ({key}, 'item')" for key in KEYS))
    assert run("db", "upgrade")[0] == run("triggers", "apply", "--yes")[0] == 0
    for file in (SOURCE, COPY):
        change(file, *(f"UPDATE item SET name = 'item {key}' WHERE id = {key}" for key in KEYS))
    change(SOURCE, "UPDATE eventlog SET status = 'S', event_time = '2099-01-01 00:00:00'")


def register(*names: str) -> None:
    """Register consumers that have done all rows."""
    begins = "INSERT INTO eventlog_consumer (name, begins, done) VALUES (?, 'latest', '[4]')"
    with closing(sqlite3.connect(SOURCE)) as db, db:
        db.executemany(begins, [(name,) for name in names])


def compared(
    advance: Callable[[int], None] = lambda objects: None,
    *,
    consumer: str = "",
    state: Path | None = None,
) -> VerifyReport:
    """The report of a verification that reads one object after the other, and calls ``advance``
    after each.
    """
    config = load(Path("eventlog.toml"), {}, {"source.consumer": consumer} if consumer else {})
    with closing(sessions.open_target(config, f"sqlite:///{COPY}")) as target:
        return sessions.run_verification(
            config,
            target,
            options=VerifyOptions(wait=0, batch=1),
            state=state,
            started=lambda _: advance,
        )


def told(report: VerifyReport) -> dict[str, Any]:
    """All that a report has, except its names, the time that it took, and what is empty or zero."""
    report.shows_values = True
    data = dict(report.as_data())
    for name in ("log", "target", "seconds"):
        del data[name]
    if data["verified_through"] == data["begun"]:
        data["verified_through"] = "begun"
    del data["begun"]
    (numbers,) = data.pop("classes")
    data["numbers"] = {name: number for name, number in numbers.items() if number}
    return {name: value for name, value in data.items() if value}


def different(key: int, *record_ids: int, **more: Any) -> dict[str, Any]:
    """The difference of an object whose name is wrong in the copy."""
    columns = [{"column": "name", "source": f"item {key}", "target": "wrong"}]
    return {
        "class": "item", "key": f"id={key}", "kind": "value", "columns": columns,
        "record_ids": [*record_ids], **more,
    }  # fmt: skip


def moving(key: int, *record_ids: int) -> dict[str, Any]:
    return {"class": "item", "key": f"id={key}", "record_ids": [*record_ids], "age": 0.0}


def after_the_first_object(act: Callable[[], Any]) -> Callable[[int], None]:
    left = [act]

    def advance(_: int) -> None:
        if left:
            left.pop()()

    return advance


def test_a_report_counts_what_is_equal_different_missing_surplus_and_in_motion() -> None:
    change(
        COPY,
        "UPDATE item SET name = 'wrong' WHERE id = 1",
        "DELETE FROM item WHERE id = 2",
        "INSERT INTO item VALUES (9, 'surplus')",
    )
    change(SOURCE, "UPDATE eventlog SET status = 'N' WHERE record_id = 3")
    nothing = {"columns": [], "class": "item"}
    assert told(compared()) == {
        "reader": "publisher",
        "result": "different",
        "numbers": {
            "class": "item", "equal": 1, "different": 1, "missing": 1, "surplus": 1, "in_motion": 1
        },
        "differences": [
            different(1, 1),
            {**nothing, "key": "id=2", "kind": "missing", "record_ids": [2]},
            {**nothing, "key": "id=9", "kind": "surplus", "record_ids": []},
        ],
        "in_motion": [moving(3, 3)],
    }  # fmt: skip


def test_an_object_whose_done_row_is_queued_again_meanwhile_is_in_motion() -> None:
    def queue_again() -> None:
        change(SOURCE, "UPDATE eventlog SET status = 'N' WHERE record_id = 3")
        change(COPY, "UPDATE item SET name = 'wrong' WHERE id = 3")

    report = compared(after_the_first_object(queue_again))
    assert report.differences == []
    assert [one.as_data() for one in report.in_motion] == [moving(3, 3)]
    assert (report.result, report.verified_through) == ("undecided", None)


def test_an_object_that_a_consumer_is_asked_for_again_meanwhile_is_in_motion(run: Run) -> None:
    register("copy")

    def request() -> None:
        assert run("requeue", "--consumer", "copy", "--ids", "3")[0] == 0
        change(COPY, "UPDATE item SET name = 'wrong' WHERE id = 3")

    report = compared(after_the_first_object(request), consumer="copy")
    assert report.differences == []
    assert [one.as_data() for one in report.in_motion] == [moving(3, 3)]
    assert (report.result, report.verified_through) == ("undecided", None)


def test_a_difference_names_the_five_newest_rows_and_a_moving_object_the_five_oldest() -> None:
    for key in (1, 2) * 6:
        change(SOURCE, f"UPDATE item SET name = name || '' || '{key}' WHERE id = {key}")
    change(SOURCE, "UPDATE item SET name = 'item ' || id")
    change(SOURCE, "UPDATE eventlog SET event_time = '2099-01-01 00:00:00'")
    of_object = {
        key: [row for (row,) in logged(f"SELECT record_id FROM eventlog WHERE table_key = 'id={key}'")]
        for key in (1, 2)
    }  # fmt: skip
    change(SOURCE, "UPDATE eventlog SET status = 'S' WHERE table_key = 'id=1' OR record_id <= 4")
    change(COPY, "UPDATE item SET name = 'wrong' WHERE id IN (1, 2)")
    report = compared()
    assert report.differences[0].as_data(shows_values=True) == different(1, *of_object[1][-5:])
    assert [one.as_data() for one in report.in_motion] == [moving(2, *of_object[2][1:6])]


def test_a_verification_that_continues_proves_no_later_time_than_that_of_its_beginning() -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    state = Path("progress")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "SAVED_EACH", 0.0)
        with pytest.raises(KeyboardInterrupt):
            compared(stop, state=state)
    saved = json.loads(state.read_bytes())
    state.write_text(json.dumps(saved | {"begun": LONG_AGO}))
    report = compared(state=state)
    assert told(report) == {
        "reader": "publisher",
        "result": "equal",
        "verified_through": "begun",
        "numbers": {"class": "item", "equal": len(KEYS)},
    }
    assert report.begun.isoformat() == LONG_AGO
    ((kind, content),) = logged("SELECT kind, content FROM eventlog_state")
    assert (kind, json.loads(content)["verified_through"]) == ("verified", LONG_AGO)


def test_progress_is_saved_with_all_that_a_verification_continues_from() -> None:
    change(COPY, "UPDATE item SET name = 'wrong' WHERE id = 1")
    change(SOURCE, "UPDATE eventlog SET status = 'N' WHERE record_id = 2")
    state, saved = Path("progress"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "SAVED_EACH", 0.0)
        report = compared(lambda _: saved.append(json.loads(state.read_bytes())), state=state)
    assert not state.exists()
    assert saved[2] == {
        "log": "eventlog",
        "reader": "publisher",
        "target": f"database file '{COPY}'",
        "begun": report.begun.isoformat(),
        "class": "item",
        "position": "id=3",
        "equal": {"item": 1},
        "unproven": [],
        "waiting": [["item", "id=1"], ["item", "id=2"]],
    }


def test_the_entry_of_a_verification_has_the_numbers_of_its_report() -> None:
    change(
        COPY, "UPDATE item SET name = 'wrong' WHERE id IN (1, 2)", "DELETE FROM item WHERE id = 3"
    )
    change(SOURCE, "UPDATE eventlog SET status = 'E' WHERE record_id = 2")
    report = compared()
    known = different(2, 2, reason="its newest change was refused: E")
    assert [one.as_data(shows_values=True) for one in report.known] == [known]
    ((content,),) = logged("SELECT content FROM eventlog_state WHERE kind = 'verified'")
    assert json.loads(content) == {
        "reader": "publisher",
        "target": f"database file '{COPY}'",
        "result": "different",
        "verified_through": report.begun.isoformat(),
        "objects": 4,
        "differences": 2,
    }


def test_only_a_refusal_of_the_reader_since_its_registration_excuses_a_difference() -> None:
    register("copy", "search")
    change(COPY, "UPDATE item SET name = 'wrong'")
    change(
        SOURCE,
        "UPDATE eventlog SET status = 'E' WHERE record_id = 3",
        *(
            "INSERT INTO eventlog_error (error_time, record_id, code, message, consumer) "
            f"VALUES ('{year}-01-01 00:00:00.000000', {row}, 'receiver', 'no', {consumer})"
            for row, year, consumer in (
                (1, 2099, "'copy'"), (2, 2099, "'search'"), (3, 2099, "NULL"), (4, 2020, "'copy'")
            )
        ),
    )  # fmt: skip
    report = compared(consumer="copy")
    assert told(report) == {
        "reader": "copy",
        "result": "different",
        "verified_through": "begun",
        "numbers": {"class": "item", "different": 3, "known_different": 1},
        "differences": [different(key, key) for key in (2, 3, 4)],
        "known_different": [different(1, 1, reason="its newest change was refused: receiver")],
    }


def test_the_twenty_newest_verifications_are_kept_one_of_each_reader_and_target() -> None:
    for number in range(25):
        Path(f"copy{number}.db").write_bytes(Path(COPY).read_bytes())
    config = load(Path("eventlog.toml"), {})
    for number in (*range(22), 5, 23):
        with closing(sessions.open_target(config, f"sqlite:///copy{number}.db")) as target:
            sessions.run_verification(config, target)
    kept = [
        json.loads(content)["target"]
        for (content,) in logged("SELECT content FROM eventlog_state ORDER BY entry_no")
    ]
    numbers = [3, 4, *range(6, 22), 5, 23]
    assert kept == [f"database file 'copy{number}.db'" for number in numbers]


def test_repair_logs_one_row_for_each_object_that_differs_and_returns_their_number() -> None:
    change(
        COPY,
        "UPDATE item SET name = 'wrong' WHERE id = 1",
        "DELETE FROM item WHERE id = 2",
        "INSERT INTO item VALUES (8, 'surplus'), (9, 'surplus')",
    )
    config, report = load(Path("eventlog.toml"), {}), compared()
    new = "SELECT status, event_type, table_name, table_key FROM eventlog WHERE record_id > 4"
    again = [("N", 5, "item", "id=1"), ("N", 5, "item", "id=2")]
    assert (sessions.repair(config, report), report.repaired, logged(new)) == (2, 2, again)
    change(SOURCE, "DELETE FROM eventlog WHERE record_id > 4")
    gone = [("N", 4, "item", "id=8"), ("N", 4, "item", "id=9")]
    number = sessions.repair(config, report, surplus=True)
    assert (number, report.repaired, logged(new)) == (4, 4, [*again, *gone])
