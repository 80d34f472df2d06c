"""What ``requeue`` writes, row by row: the log, the requests and the error rows of each reader
(spec/event-log.md 8.3, 11, 13.4). The log is a file of SQLite.
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

from eventlog.core.rows.requeue import LoggedRow, RowState, Way
from eventlog.model import Status
from eventlog.sql.log.requeue import ObjectRow, judged_by_status

Sql = Callable[..., list[tuple[Any, ...]]]
OLD = "2020-01-01 00:00:00.000"
CONFIG = '[database]\nurl = "sqlite:///source.db"\n[publisher]\ndriver_user = "sync"\n'


@pytest.fixture
def sql() -> Sql:
    """Run statements on the log, and return the rows of the last one."""

    def sql(*statements: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect("source.db")) as db, db:
            return [db.execute(one).fetchall() for one in statements][-1]

    return sql


@pytest.fixture
def requeue(run: Run, sql: Sql) -> Callable[..., dict[str, Any]]:
    """``eventlog requeue``: its report without what is empty or zero. The log has one class."""
    Path("eventlog.toml").write_text(f'{CONFIG}[[watch]]\ntable = "item"\n')
    sql("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price TEXT)")
    assert run("db", "upgrade")[0] == run("triggers", "apply", "--yes")[0] == 0

    def requeue(*words: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(run("requeue", *words, "--json")[1])
        del told["is_requested"]
        return {name: value for name, value in told.items() if value and name != "commands"}

    return requeue


def log(sql: Sql, *rows: str) -> None:
    """Log rows from the first record_id on: ``status type key column user``; ``-`` is NULL."""
    for number, one in enumerate(rows, 1):
        status, event_type, key, column, user = (
            "NULL" if word == "-" else f"'{word}'" for word in one.split()
        )
        sql(
            f"INSERT INTO eventlog VALUES ({number}, {status}, {event_type}, '{OLD}', {user}, "
            f"'item', 'id=' || {key}, {column}, 'old {number}', 'new {number}')"
        )


def letters(sql: Sql) -> str:
    return "".join(status for (status,) in sql("SELECT status FROM eventlog ORDER BY record_id"))


def refused(*rows: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Refused rows by record_id, type and key."""
    return [
        {"record_id": number, "event_type": event_type, "table_name": "item", "table_key": f"id={key}"}
        for number, event_type, key in rows
    ]  # fmt: skip


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("is_chosen", [False, True])
@pytest.mark.parametrize(
    ("status", "state", "way"),
    [
        ("S", RowState.DONE, Way.COPY),
        ("W", RowState.DONE, Way.COPY),
        ("E", RowState.REFUSED, Way.BACK),
        ("F", RowState.REFUSED, Way.BACK),
        ("N", RowState.WAITS, None),
        ("x", RowState.IGNORED, None),
    ],
)
def test_a_waiting_row_that_is_in_flight_or_loopback_counts_as_done(
    status: str, state: RowState, way: Way | None, is_chosen: bool, is_own: bool, in_flight: bool
) -> None:
    row = ObjectRow(7, 2, "item", "id=1", "name", status, is_chosen and way is not None, is_own)
    expected = RowState.DONE if status == Status.NEW and (is_own or in_flight) else state
    judged = judged_by_status(frozenset({7} if in_flight else {6, 8}))
    assert judged(row) == LoggedRow(7, 2, "name", expected, way if row.is_chosen else None)


@pytest.mark.parametrize(
    ("user", "settings", "stays"),
    [("sync", (), True), ("app", (), False), ("sync", ("publisher.allow_loopback=true",), False)],
    ids=["loopback", "another user", "loopback is published"],
)
def test_a_row_before_a_waiting_loopback_row_of_its_object_is_refused(
    requeue: Any, sql: Sql, user: str, settings: tuple[str, ...], stays: bool
) -> None:
    log(sql, "E 2 1 name app", f"N 2 1 name {user}", "E 2 2 name app")
    told = requeue(*(word for one in settings for word in ("--set", one)))
    if stays:
        assert told == {"set_back": 1, "refused": refused((1, 2, 1))}
    else:
        assert told == {"set_back": 2}
    assert letters(sql) == ("ENN" if stays else "NNN")


def test_a_copy_is_the_row_as_it_was_logged_at_the_present_time(requeue: Any, sql: Sql) -> None:
    log(sql, "S 2 1 name app", "W 2 2 price sync", "S 4 3 - -", "S 1 4 name app", "S 1 4 price app")
    before = sql("SELECT * FROM eventlog")
    assert requeue("--status", "S,W", "--ids", "1-4") == {"copied": 4}
    after = sql("SELECT * FROM eventlog ORDER BY record_id")
    assert after[:5] == before
    assert all(row[3] > OLD for row in after[5:])
    assert [(*row[:3], *row[4:]) for row in after[5:]] == [
        (6, "N", 2, "app", "item", "id=1", "name", "old 1", "new 1"),
        (7, "N", 2, "sync", "item", "id=2", "price", "old 2", "new 2"),
        (8, "N", 4, None, "item", "id=3", None, "old 3", "new 3"),
        (9, "N", 2, "app", "item", "id=4", "name", None, "new 4"),  # without its other column
    ]


@pytest.mark.promise("option requeue--loopback")
def test_copies_of_loopback_rows_are_nobody_s_and_those_of_others_stay(
    requeue: Any, sql: Sql
) -> None:
    log(sql, "S 2 1 name sync", "S 2 2 name app", "E 2 3 name sync", "S 2 4 name sync")
    assert requeue("--loopback") == {"copied": 2}
    columns = "record_id, status, event_type, perpetrator, table_key, column_name, new_value"
    assert sql(f"SELECT {columns} FROM eventlog WHERE record_id > 4") == [
        (5, "N", 2, None, "id=1", "name", "new 1"),
        (6, "N", 2, None, "id=4", "name", "new 4"),
    ]
    assert letters(sql) == "SSESNN"


def test_a_row_that_is_set_back_is_otherwise_as_it_was(requeue: Any, sql: Sql) -> None:
    log(sql, "E 2 1 name app", "F 7 2 name app", "S 7 2 price app", "E 2 3 name app")
    before = sql("SELECT * FROM eventlog")
    assert requeue("--status", "E,F", "--ids", "1,2") == {"set_back": 2}
    assert (
        sql("SELECT * FROM eventlog")
        == [
            (1, "N", *before[0][2:]),
            (2, "N", 8, *before[1][3:8], None, "new 2"),  # its insert was sent without it
            *before[2:],
        ]
    )
    asked = sql("SELECT kind, owner, content FROM eventlog_state")
    assert [(kind, owner) for kind, owner, _ in asked] == [("request", None)]
    assert json.loads(asked[0][2])["rows"] == [[1, 2]]


def test_a_dry_run_reports_the_same_and_writes_nothing(requeue: Any, sql: Sql) -> None:
    log(sql, "E 2 1 name app", "S 2 1 name app", "F 2 2 name app", "W 2 3 name app")
    before = sql("SELECT * FROM eventlog")
    words = ("--status", "E,F,W")
    expected = {"set_back": 1, "copied": 1, "refused": refused((1, 2, 1))}
    assert requeue(*words, "--dry-run") == {**expected, "dry_run": True}
    assert sql("SELECT * FROM eventlog") == before
    assert sql("SELECT * FROM eventlog_state") == []
    assert requeue(*words) == expected


READERS = ("copy", "search", None)


def test_a_request_names_the_rows_and_their_next_event_ids_to_its_consumer_alone(
    requeue: Any, sql: Sql
) -> None:
    log(sql, *(f"S 2 {key} name app" for key in range(1, 7)))
    sql(
        "INSERT INTO eventlog_consumer (name, begun, begins, done) VALUES "
        f"('copy', '{OLD}', 'latest', '[5]'), ('search', '{OLD}', 'latest', '[6]')",
        # Rows 2 and 3 were refused by copy, the latter under its second number; row 4 by others.
        *(
            "INSERT INTO eventlog_error (record_id, error_time, code, message, consumer, event_id) "
            f"VALUES ({row}, '2026-01-01 00:00:0{place}', '{code}', '', {reader}, '{event_id}')"
            for place, (row, code, reader, event_id) in enumerate((
                (2, "receiver", "'copy'", "2"),
                (3, "requeued", "'copy'", "3.2"),
                (3, "receiver", "'copy'", "3.2"),
                (4, "receiver", "'search'", "4"),
                (4, "requeued", "'search'", "4.2"),
                (5, "receiver", "NULL", "5"),
            ))
        ),
    )  # fmt: skip
    written = sql("SELECT count(*) FROM eventlog_error")[0][0]
    others = "SELECT * FROM eventlog_consumer WHERE name = 'search'"
    before = sql("SELECT * FROM eventlog"), sql(others)
    # Row 6 is not done, so that it is sent anyway.
    assert requeue("--consumer", "copy", "--ids", "2-6") == {"set_back": 4}
    assert (sql("SELECT * FROM eventlog"), sql(others)) == before
    ((done, requeued),) = sql("SELECT done, requeued FROM eventlog_consumer WHERE name = 'copy'")
    assert done == "[5]"
    assert json.loads(requeued) == {"rows": [[2, 5]], "objects": [], "classes": [], "begun": ""}
    columns = "record_id, code, message, consumer, event_id"
    again = "requeued", "to be sent again", "copy"
    assert sql(f"SELECT {columns} FROM eventlog_error ORDER BY rowid")[written:] == [
        (2, *again, None),
        (3, *again, None),
        (4, *again, "4.2"),
        (5, *again, "5.2"),
    ]


@pytest.mark.promise("option several--consumer")
def test_without_ids_what_was_refused_for_the_consumer_is_asked_for(requeue: Any, sql: Sql) -> None:
    log(sql, *(f"S 2 {key} name app" for key in range(1, 6)))
    sql(
        "INSERT INTO eventlog_consumer (name, begun, begins, done) VALUES "
        f"('copy', '{OLD}', 'latest', '[5]'), ('search', '{OLD}', 'latest', '[5]')",
        "INSERT INTO eventlog_error (record_id, error_time, code, message, consumer) VALUES "
        "(1, '2026-01-01 00:00:00', 'receiver', '', 'copy'), "
        "(2, '2026-01-01 00:00:00', 'receiver', '', 'search'), "
        "(3, '2026-01-01 00:00:00', 'receiver', '', NULL), "
        "(4, '2019-01-01 00:00:00', 'receiver', '', 'copy')",  # before its registration
    )
    assert requeue("--consumer", "copy") == {"set_back": 1}
    asked = sql("SELECT name, requeued FROM eventlog_consumer ORDER BY name")
    assert [(name, text and json.loads(text)["rows"]) for name, text in asked] == [
        ("copy", [[1, 1]]),
        ("search", None),
    ]
