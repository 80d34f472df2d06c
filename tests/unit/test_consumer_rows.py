"""The rows of consumers and their entries, as registration, ``consumers reset`` and ``consumers
drop`` leave them (spec/event-log.md 13.2, 13.4). The log is a file of SQLite.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from shared import Run

from eventlog.core.ranges import Ranges, decode
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.sqlite import DIALECT
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers import consumers

Sql = Callable[..., list[tuple[Any, ...]]]
COLUMNS = "name, begins, done, moved, requeued, loaded, sink, classes, paused, masks"
PAUSE = '{"reason": "works", "by": "ann", "since": "2026-01-01T00:00:00+00:00"}'
OF_START = ("files", '["item"]', PAUSE, '{"masks": []}')
"""The values that outlast a reset: sink, classes, paused, masks."""
KINDS = {
    "delivery": '{"line_format":1,"documents":[{"number":1,"rows":[[7,7]],"counts":[1]}]}',
    "done": '{"set":"whole","rows":"[8]"}',
    "dead_letter": "{}",
}
"""Entries of ``<log>_inflight``: their kinds and contents."""
REQUEST = '{"rows": [[2, 3]], "objects": [], "classes": [], "begun": ""}'


@pytest.fixture
def sql(run: Run) -> Sql:
    """Run statements on a log that has had the rows 1 to 8, of which 5 was rolled back and 1 and 2
    were removed; return the rows of the last statement.
    """
    Path("eventlog.toml").write_text(
        '[database]\nurl = "sqlite:///source.db"\n[[watch]]\ntable = "item"\n'
    )

    def sql(*statements: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect("source.db")) as db, db:
            return [db.execute(one).fetchall() for one in statements][-1]

    sql("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
    assert run("db", "upgrade")[0] == run("triggers", "apply", "--yes")[0] == 0
    sql(
        *(
            "INSERT INTO eventlog (record_id, event_type, event_time, table_name, table_key) "
            f"VALUES ({row}, 4, '2026-01-01 00:00:0{row}.000', 'item', 'id=1')"
            for row in (1, 2, 3, 4, 6, 7, 8)
        ),
        "DELETE FROM eventlog WHERE record_id <= 2",
        "UPDATE eventlog_epoch SET removed = 2",
        "INSERT INTO eventlog_epoch (removed) SELECT 2 WHERE NOT EXISTS (SELECT 1 FROM eventlog_epoch)",
    )  # fmt: skip
    return sql


@contextmanager
def opened() -> Iterator[OpenLog]:
    engine = sa.create_engine("sqlite:///source.db")
    with engine.connect() as conn:
        db = DIALECT.open(conn)
        yield db.log(locate_log(db, name="eventlog", schema=None))
    engine.dispose()


def set_of(sql: Sql, name: str) -> tuple[int, Ranges]:
    ((done,),) = sql(f"SELECT done FROM eventlog_consumer WHERE name = '{name}'")
    return decode(done).floor, decode(done).ranges


@pytest.mark.parametrize(
    ("begins", "done"),
    [
        ("earliest", (0, [])),
        ("3", (2, [])),
        ("4", (3, [])),
        ("8", (7, [])),
        ("9", (8, [])),
        ("latest", (8, [])),
        ("snapshot", (8, [])),
        ("2026-01-01T00:00:03Z", (2, [])),
        ("2026-01-01T00:00:04Z", (3, [])),
        ("2026-01-01T00:00:05Z", (5, [])),
        ("2026-01-01T00:00:08Z", (7, [])),
        ("2026-01-01T00:00:09Z", (8, [])),
    ],
)
def test_a_new_consumer_has_done_each_row_before_its_beginning_and_no_other(
    sql: Sql, begins: str, done: tuple[int, Ranges]
) -> None:
    if begins[4:5] == "-":  # the time of removed rows is unknown
        sql("UPDATE eventlog_epoch SET removed = NULL")
    with opened() as log:
        consumers.register(log, "copy", begins)
        log.commit()
    assert set_of(sql, "copy") == done
    ((loaded,),) = sql("SELECT loaded FROM eventlog_consumer")
    assert loaded == ("{}" if begins == "snapshot" else None)


@pytest.mark.parametrize("begins", ["2", "10"])
def test_a_beginning_that_is_one_row_too_far_away_is_refused(sql: Sql, begins: str) -> None:
    with opened() as log, pytest.raises(Exception, match=f"start_from = {begins}: "):
        consumers.register(log, "copy", begins)
    assert sql("SELECT * FROM eventlog_consumer") == []


def register_all(sql: Sql) -> None:
    """The consumers copy and search with all columns and all kinds of entries, and entries of the
    publisher.
    """
    marks = ", ".join("?" * 11)
    row = ("earliest", "[8]", "2026-01-02 00:00:00.000", REQUEST, '{"class": "item"}', *OF_START)
    with closing(sqlite3.connect("source.db")) as db, db:
        db.executemany(
            f"INSERT INTO eventlog_consumer (begun, {COLUMNS}) VALUES ({marks})",
            [("2026-01-01 00:00:00.000", name, *row) for name in ("copy", "search")],
        )
        db.executemany(
            "INSERT INTO eventlog_inflight (owner, kind, content) VALUES (?, ?, ?)",
            [
                (owner, kind, KINDS[kind])
                for owner in ("copy", "search", None)
                for kind in KINDS
                if owner or kind != "done"
            ],
        )
        db.executemany(
            "INSERT INTO eventlog_error (record_id, code, message, consumer) VALUES (3, 'x', '', ?)",
            [("copy",), ("search",), (None,)],
        )


def entries(sql: Sql) -> list[tuple[Any, ...]]:
    return sql("SELECT owner, kind FROM eventlog_inflight ORDER BY entry_no")


OTHERS = [("search", kind) for kind in KINDS] + [(None, "delivery"), (None, "dead_letter")]


@pytest.mark.parametrize(
    ("begins", "done", "loaded"),
    [("earliest", "[0]", None), ("4", "[3]", None), ("snapshot", "[8]", "{}")],
)
def test_a_reset_begins_one_consumer_again_and_keeps_its_start_pause_masks_and_letters(
    sql: Sql, run: Run, begins: str, done: str, loaded: str | None
) -> None:
    register_all(sql)
    other = "SELECT * FROM eventlog_consumer WHERE name = 'search'"
    before = sql(other), sql("SELECT * FROM eventlog_error")
    assert run("consumers", "reset", "copy", "--start-from", begins, "--yes")[0] == 0
    ((begun, *row),) = sql(f"SELECT begun, {COLUMNS} FROM eventlog_consumer WHERE name = 'copy'")
    assert row == ["copy", begins, done, None, None, loaded, *OF_START]
    assert begun > "2026-06"
    assert (sql(other), sql("SELECT * FROM eventlog_error")) == before
    assert entries(sql) == [("copy", "dead_letter"), *OTHERS]


@pytest.mark.promise("command consumers drop")
def test_a_drop_takes_the_row_and_the_entries_of_one_consumer(sql: Sql, run: Run) -> None:
    register_all(sql)
    other = "SELECT * FROM eventlog_consumer WHERE name = 'search'"
    before = sql(other), sql("SELECT * FROM eventlog_error")
    assert run("consumers", "drop", "copy", "--yes")[0] == 0
    assert sql("SELECT * FROM eventlog_consumer") == before[0]
    assert (sql(other), sql("SELECT * FROM eventlog_error")) == before
    assert entries(sql) == OTHERS


@pytest.mark.promise("option consumers-reset--dry-run", "option consumers-drop--dry-run")
@pytest.mark.parametrize("words", [("reset", "copy", "--start-from", "4"), ("drop", "copy")])
def test_a_dry_run_of_a_reset_or_a_drop_changes_nothing(
    sql: Sql, run: Run, words: tuple[str, ...]
) -> None:
    register_all(sql)
    before = sql("SELECT * FROM eventlog_consumer"), entries(sql)
    assert run("consumers", *words, "--dry-run")[0] == 0
    assert (sql("SELECT * FROM eventlog_consumer"), entries(sql)) == before


def test_a_registration_begins_after_the_errors_of_an_earlier_one_of_its_name(sql: Sql) -> None:
    sql(
        "INSERT INTO eventlog_error (record_id, error_time, code, message, consumer) VALUES "
        "(3, '2090-01-01 00:00:00.001', 'x', '', 'copy'), "
        "(3, '2095-01-01 00:00:00.000', 'x', '', 'search')"
    )
    with opened() as log:
        consumers.register(log, "copy", "latest")
        log.commit()
        begun = consumers.begun_of(log, "copy")
    assert begun is not None
    assert f"{begun:%Y-%m-%d %H:%M:%S.%f}" == "2090-01-01 00:00:00.002000"


def test_a_consumer_protects_what_it_has_not_done_or_was_asked_for_again(sql: Sql) -> None:
    register_all(sql)
    sql("UPDATE eventlog_consumer SET done = '[7]', requeued = NULL WHERE name = 'search'")
    sql("DELETE FROM eventlog_inflight")
    with opened() as log:
        done = consumers.done_by_consumers(log)
        log.connection.rollback()
    assert {name: (one.floor, one.ranges) for name, one in done.items()} == {
        "copy": (1, [(4, 8)]),
        "search": (7, []),
    }


def test_the_list_of_consumers_counts_what_each_has_to_process(sql: Sql, run: Run) -> None:
    sql(
        "INSERT INTO eventlog_consumer (name, begun, begins, done, requeued) VALUES "
        "('all', '2026-01-01', 'latest', '[8]', NULL), "
        f"('again', '2026-01-01', 'latest', '[7]', '{REQUEST}'), "
        "('new', '2026-01-01', 'earliest', '[3,3,0]', NULL)"
    )
    listed = json.loads(run("consumers", "list", "--json")[1])["consumers"]
    fields = ("name", "begins", "rows_behind", "oldest_row", "done_up_to", "done_top", "ranges")
    assert [tuple(one[field] for field in fields) for one in listed] == [
        ("again", "latest", 2, 3, 1, 7, 1),  # row 2, which was requested too, is removed
        ("all", "latest", 0, None, 8, 8, 0),
        ("new", "earliest", 3, 4, 3, 6, 1),
    ]
