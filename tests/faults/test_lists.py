"""The lists of the status page: rows and documents, the newest first, paged by key, each page bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from monitored import watched
from publishers import configuration, make_log, write
from receiver import Receiver, answer, reply, status
from shared import execute, statuses, wait_until

from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_unlocked
from eventlog.publisher.inspect.listing import Listed, Wanted, list_rows
from eventlog.publisher.inspect.refusals import read_refusals


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


EVERYTHING = Wanted()


def listed(log: sa.Engine, wanted: Wanted = EVERYTHING, most: int = 50) -> Listed:
    with open_unlocked(configuration(log), Counters()) as context:
        return list_rows(context, wanted, most)


def ids(page: Listed) -> list[int]:
    return [row.record_id for row in page.rows]


def test_rows_are_listed_the_newest_first_and_a_page_begins_where_the_last_one_ended(
    log: sa.Engine,
) -> None:
    write(log, *range(1, 8))
    page = listed(log, most=3)
    assert (ids(page), page.older, page.searched) == (
        [7, 6, 5], 5, "3 rows, from 5 to before 8",
    )  # fmt: skip
    page = listed(log, Wanted(before=5), most=3)
    assert (ids(page), page.older) == ([4, 3, 2], 2)
    page = listed(log, Wanted(before=2), most=3)
    assert (ids(page), page.older, page.searched) == (
        [1],
        None,
        "1 row, from the first to before 2",
    )


def test_rows_are_chosen_by_class_status_and_time(log: sa.Engine) -> None:
    write(log, *range(1, 5))
    execute(
        log,
        "UPDATE eventlog SET status = 'S' WHERE record_id = 2",
        "UPDATE eventlog SET event_time = '2026-03-01 12:00:00' WHERE record_id = 3",
    )
    assert ids(listed(log, Wanted(status="S"))) == [2]
    assert ids(listed(log, Wanted(class_name="usr", until="2026-03-01"))) == [3]
    assert ids(listed(log, Wanted(since="2026-03-01 12", until="2026-03-01 12"))) == [3]
    assert ids(listed(log, Wanted(since="2026-03-02"))) == [4, 2, 1]
    assert ids(listed(log, Wanted(class_name="nobody"))) == []


def test_a_page_reads_no_more_than_5000_rows_and_names_them(log: sa.Engine) -> None:
    execute(
        log,
        "INSERT INTO eventlog (event_type, table_name, table_key, status) "
        "SELECT 5, 'usr', 'idu=' || i, CASE WHEN i = 1 THEN 'W' ELSE 'S' END "
        "FROM generate_series(1, 6000) AS i",
    )
    page = listed(log, Wanted(status="W"))
    assert (ids(page), page.older) == ([], 1001)
    assert page.searched == "5,000 rows, from 1,001 to before 6,001"
    assert ids(listed(log, Wanted(status="W", before=page.older))) == [1]


def test_refused_rows_are_found_by_their_error_rows_wherever_they_are(log: sa.Engine) -> None:
    write(log, 1, 2, 3)
    execute(
        log,
        "UPDATE eventlog SET status = 'E' WHERE record_id < 3",
        "INSERT INTO eventlog_error (record_id, code, message) "
        "VALUES (1, 'receiver', 'no'), (2, 'bad_value', 'x'), (3, 'receiver', 'old'), "
        "(99, 'receiver', 'purged')",
    )
    page = listed(log, Wanted(status="refused"))
    assert [(row.record_id, row.code, row.message) for row in page.rows] == [
        (2, "bad_value", "x"), (1, "receiver", "no"),
    ]  # fmt: skip
    assert page.searched == "4 refused rows, from the first to before 100"
    assert ids(listed(log, Wanted(status="E"), most=1)) == [2]


def test_refused_rows_are_grouped_by_the_status_line_and_not_by_what_the_answer_quotes(
    log: sa.Engine,
) -> None:
    write(log, 1, 2, 3)
    refused = "the receiver answers 422 Unprocessable Entity"
    execute(
        log,
        "UPDATE eventlog SET status = 'E'",
        "INSERT INTO eventlog_error (record_id, code, message) VALUES "
        f"(1, 'receiver', '{refused}; Jack is locked'), (2, 'receiver', '{refused}; Alice left'), "
        "(3, 'receiver', 'the receiver answers 409 Conflict; Jack is locked')",
    )
    with open_unlocked(configuration(log), Counters()) as context:
        groups = read_refusals(context.log, 100)
    assert [(group.rows, group.message) for group in groups] == [
        (2, f"{refused}; Alice left"),
        (1, "the receiver answers 409 Conflict; Jack is locked"),
    ]


def test_a_command_for_a_refused_row_is_a_trial_if_the_rows_after_it_are_too_many_to_be_read(
    log: sa.Engine,
) -> None:
    write(log, *range(1, 8))
    execute(
        log,
        "UPDATE eventlog SET status = 'E' WHERE record_id IN (1, 2)",
        "INSERT INTO eventlog_error (record_id, code, message) VALUES (2, 'receiver', 'no')",
    )
    with open_unlocked(configuration(log), Counters()) as context:
        bounded = read_refusals(context.log, 100, within=3)
        whole = read_refusals(context.log, 100)
    assert [(one.example, one.commands) for one in bounded] == [
        (2, ("eventlog requeue --status E --ids 2 --dry-run",)),
    ], "row 1 has no error row, and was not read"
    assert {(one.example, one.commands) for one in whole} == {
        (2, ("eventlog requeue --status E --ids 2",)),
        (1, ("eventlog requeue --status E --ids 1",)),
    }


def test_the_monitor_pages_rows_and_documents_and_hides_what_it_must(
    log: sa.Engine, tmp_path: Path
) -> None:
    refused = status("error", "1", "Jack is gone")
    with Receiver(lambda request: reply(200, answer(refused))) as receiver:
        http = {"sink__type": "http", "sink__url": receiver.url}
        with watched(log, tmp_path, **http) as (_, _, ask):
            write(log, 1, 2)
            wait_until(lambda: sorted(statuses(log).values()) == ["E", "S"], "they are answered")
            (row,) = ask("/rows.json?status=refused&class=usr")["rows"]
            assert (row["record_id"], row["key"], row["message"]) == (1, "•••", "•••")
            assert ask("/rows.json?before=2")["rows"][0]["record_id"] == 1
            wait_until(lambda: ask("/documents.json?answer=error")["documents"], "it is listed")
            (document,) = ask("/documents.json?answer=error")["documents"]
            assert (document["level"], document["events"]) == ("error", 2)
            assert ask("/documents.json?answer=fatal") == {"documents": [], "older": None}
            assert ask(f"/documents.json?before={document['at']}")["documents"] == []
