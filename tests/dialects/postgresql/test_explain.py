"""``eventlog explain RECORD_ID`` on a real PostgreSQL: one row explained (spec/event-log.md 5 to 8,
10).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from shared import execute

from eventlog import cli
from eventlog.model import LOG_COLUMNS
from eventlog.sql import migrations
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable

SCHEMA = """
CREATE SCHEMA hr;
CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text, lname text);
"""
CONFIG = """
[database]
schema_name = "hr"
[[watch]]
table = "usr"
"""
LOG = LogTable("hr", "eventlog", LOG_COLUMNS)

Show = Callable[..., dict[str, Any]]


def fill(database: sa.Engine) -> None:
    execute(database, SCHEMA)
    migrations.upgrade(database, log_table="eventlog", schema="hr")


@pytest.fixture
def home(
    filled_database: Any, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sa.Engine]:
    """A database with the schema above and a log, and a directory with its configuration."""
    Path("eventlog.toml").write_text(CONFIG)
    with filled_database(fill) as database:
        monkeypatch.setenv(
            "EVENTLOG_DATABASE_URL", database.url.render_as_string(hide_password=False)
        )
        yield database


@pytest.fixture
def show(home: sa.Engine, capfd: pytest.CaptureFixture[str]) -> Show:
    """``eventlog explain RECORD_ID --json`` as data; more arguments go before the command."""

    def show(record_id: int, *arguments: str) -> dict[str, Any]:
        capfd.readouterr()
        assert cli.run([*arguments, "explain", str(record_id), "--json"]) == 0
        found: dict[str, Any] = json.loads(capfd.readouterr().out)
        return found

    return show


def log(database: sa.Engine, *rows: tuple[object, ...]) -> None:
    """Rows of class usr: record_id, type, column, old, new; then status, perpetrator and key, if
    they are others.
    """
    with database.begin() as conn:
        for record_id, event_type, column, old, new, *rest in rows:
            status, perpetrator, key = (*rest, *("N", "app", "idu=1")[len(rest) :])
            conn.exec_driver_sql(
                "INSERT INTO hr.eventlog (record_id, event_type, column_name, old_value, "
                "new_value, status, perpetrator, table_name, table_key) VALUES (%s, %s, %s, %s, "
                "%s, %s, %s, 'usr', %s)",
                (record_id, event_type, column, old, new, status, perpetrator, key),
            )


def members(found: dict[str, Any]) -> dict[int, str]:
    return {member["record_id"]: member["outcome"] for member in found["members"]}


def test_a_row_that_waits_is_shown_with_its_group_and_its_document(
    home: sa.Engine, show: Show
) -> None:
    log(home, (1, 2, "fname", "Ada", "Eva"), (2, 2, "lname", None, "Frost", "N", "app", "idu=2"),
        (3, 2, "lname", None, "Snow", "N", "app", ' IDU = "01" '))  # fmt: skip
    found = show(3)
    assert found["state"] == "waits to be published; no publisher runs"
    assert (found["class_name"], found["key"], found["problem"]) == ("usr", "idu=1", None)
    assert (found["source"], found["event_id"], found["operation"]) == ("queue", "1", "modify")
    assert members(found) == {1: "makes the event", 3: "makes the event"}
    assert "Snow" in found["document"]
    assert "Eva" in found["document"]
    assert "Frost" not in found["document"]
    assert found["read_back"] is None


def test_precedence_is_explained_row_by_row(home: sa.Engine, show: Show) -> None:
    execute(home, "INSERT INTO hr.usr VALUES (1, 'Now', 'Frost')")
    log(
        home,
        (1, 2, "fname", "Ada", "Eva"),
        (2, 2, "lname", None, "Frost"),
        (3, 8, "fname", None, None),
    )
    found = show(1)
    assert members(found) == {
        1: "not used, because row 3 of type 8 reads the attribute from the table",
        2: "makes the event",
        3: "makes the event",
    }
    assert found["read_back"] == ["fname"]
    assert "Now" in found["document"]
    log(home, (4, 6, None, None, None))
    found = show(2)
    assert members(found)[2] == "not used, because row 4 of type 6 reads the whole object"
    assert found["event_id"] == "1"


def test_an_object_that_is_gone_has_no_document(home: sa.Engine, show: Show) -> None:
    log(home, (1, 6, None, None, None))
    found = show(1)
    assert members(found) == {1: "no effect: the object no longer exists"}
    assert (found["event_id"], found["document"]) == (None, None)


def test_a_change_below_a_second_is_reported(home: sa.Engine, show: Show) -> None:
    execute(home, "ALTER TABLE hr.usr ADD made timestamp")
    log(home, (1, 2, "made", "2024-05-06 07:08:09.1", "2024-05-06 07:08:09.2"))
    found = show(1)
    assert members(found) == {1: "no effect: it changes nothing"}
    assert any("nothing but the fraction of a second" in note for note in found["notes"])


def test_an_old_value_that_cannot_be_converted_is_reported(home: sa.Engine, show: Show) -> None:
    execute(home, "ALTER TABLE hr.usr ADD age integer")
    log(home, (1, 2, "age", "old", "5"))
    found = show(1)
    assert found["problem"] is None
    assert any(
        "old_value cannot be converted ('old' is not an integer)" in note for note in found["notes"]
    )
    assert "<remove-all-values/>" in found["document"]


@pytest.mark.parametrize("span", ["10000", "0"])
def test_a_group_ends_where_the_publisher_ends_it(home: sa.Engine, show: Show, span: str) -> None:
    log(home, (1, 2, "fname", "a", "b"), (2, 4, None, None, None), (3, 1, "fname", None, "c"),
        (900, 1, "lname", None, "d"), (2000, 1, "lname", None, "e"))  # fmt: skip
    option = ("--set", f"publisher.fold_span={span}")
    assert list(members(show(1, *option))) == [1]
    assert list(members(show(2, *option))) == [2]
    assert list(members(show(900, *option))) == [3, 900]
    assert list(members(show(2000, *option))) == [2000]


def test_where_a_group_begins_depends_on_all_before_it(home: sa.Engine, show: Show) -> None:
    # With a span of 10 the groups are {1, 9}, {12, 20}, {23}: looking only 10 back from 23 would
    # give {13...}.
    log(home, *((number, 2, "fname", "a", "b") for number in (1, 9, 12, 20, 23)))
    option = ("--set", "publisher.fold_span=10", "--set", "publisher.fold_distance=10")
    assert [list(members(show(number, *option))) for number in (9, 12, 20, 23)] == [
        [1, 9],
        [12, 20],
        [12, 20],
        [23],
    ]


def test_an_invalid_row_is_shown_with_the_check_that_fails(home: sa.Engine, show: Show) -> None:
    log(home, (1, 2, "fname", "Ada", "Eva", "N", "app", "idu=x"))
    found = show(1)
    assert found["problem"]["code"] == "bad_table_key"
    assert found["state"].startswith("will become E (bad_table_key): bad_value at offset 4")
    assert (found["source"], found["members"]) == (None, [])


def test_a_row_in_delivery_is_shown_as_it_was_recorded(home: sa.Engine, show: Show) -> None:
    execute(home, "INSERT INTO hr.usr VALUES (1, 'Now', 'Frost')")
    log(
        home,
        (1, 2, "fname", "Ada", "Eva"),
        (2, 8, "fname", None, None),
        (3, 2, "lname", None, "Later"),
    )
    events = '{"0":{"dropped":[[1,1]],"attempts":3}}'
    document_no = f'{{"number":4,"rows":[[1,2]],"counts":[2],"events":{events}}}'
    line = f'{{"line_format":1,"documents":[{document_no}]}}'
    execute(
        home,
        "INSERT INTO hr.eventlog_inflight (entry_no, kind, content) "
        f"VALUES (7, 'delivery', '{line}')",
    )
    found = show(1)
    assert found["in_flight"] == {
        "delivery": 7,
        "document": 4,
        "event_id": "1.3",
        "event_id_number": 3,
        "attempts": 0,
        "last_answer": "",
        "next_attempt": "",
        "limit": "",
    }
    assert (found["source"], found["event_id"]) == ("in_flight", "1.3")
    assert members(found) == {
        1: "not used, because row 2 of type 8 reads the attribute from the table",
        2: "makes the event",
    }
    assert "sent first when a publisher starts" in found["state"]
    assert "Later" not in found["document"]
    later = show(3)
    assert later["state"] == "waits for event 1.3 of its object, which is in flight or parked"
    assert (later["source"], later["event_id"]) == ("queue", "3")
    assert members(later) == {3: "makes the event"}  # the rows in flight are another event
    assert ("Later" in later["document"], "Now" in later["document"]) == (True, False)
    with home.connect() as publisher:
        assert DIALECT.open(publisher).log(LOG).try_lock()
        assert "sent without a final answer, or parked" in show(1)["state"]


def test_loopback_reserved_and_future_rows_say_why_they_are_left(
    home: sa.Engine, show: Show
) -> None:
    with home.connect() as conn:
        user = DIALECT.open(conn).current_user()
    log(
        home,
        (1, 2, "fname", "a", "b", "N", user),
        (2, 2, "fname", "a", "b", "n"),
        (3, 4, None, None, None),
    )
    execute(
        home,
        "UPDATE hr.eventlog SET event_time = event_time + interval '1 day' WHERE record_id = 3",
    )
    assert (
        show(1)["state"]
        == f"will be marked S without being published: made by {user!r}, the publisher's own user"
    )
    assert "loopback_action = keep" in show(1, "--set", "publisher.loopback_action=keep")["state"]
    assert (
        show(2)["state"] == "ignored: status 'n' is reserved, and only rows with status N are sent"
    )
    found = show(3, "--set", "publisher.handle_future_events=yes")
    assert found["state"].startswith("not due before ")
    assert found["source"] is None
    assert show(3)["state"].startswith("waits to be published")


def test_what_was_sent_for_a_processed_row_is_not_guessed(home: sa.Engine, show: Show) -> None:
    log(
        home,
        (1, 2, "fname", "Ada", "Eva", "S"),
        (2, 2, "lname", None, "Frost", "S"),
        (3, 2, "lname", "Frost", "Snow"),
    )
    found = show(1)
    assert found["state"] == "done: published and answered success, or without effect"
    assert found["source"] == "nearby"
    assert members(found) == {1: "done: status S", 2: "done: status S"}
    assert (found["event_id"], found["document"]) == (None, None)
    assert any("does not record which" in sentence for sentence in found["notes"])
    assert list(members(show(3))) == [3]


def test_the_only_processed_row_of_its_object_is_shown_with_what_was_sent(
    home: sa.Engine, show: Show
) -> None:
    log(home, (1, 2, "fname", "Ada", "Eva", "S"), (2, 2, "lname", None, "Frost", "E"))
    found = show(1)
    assert found["source"] == "reconstructed"
    assert "Eva" in found["document"]
    assert "Frost" not in found["document"]


def test_values_of_now_are_not_shown_as_what_was_sent(home: sa.Engine, show: Show) -> None:
    execute(home, "INSERT INTO hr.usr VALUES (1, 'Now', 'Frost')")
    log(home, (1, 6, None, None, None, "S"))
    assert (show(1)["source"], show(1)["document"]) == ("nearby", None)


def test_a_parked_event_is_shown_with_its_attempts_and_what_to_do(
    home: sa.Engine, show: Show
) -> None:
    log(home, (1, 2, "fname", "Ada", "Eva"), (2, 2, "lname", None, "Later"))
    parked = '{"tries":8,"answer":"500 no such mailbox","due":"2026-11-25T08:00:00"}'
    document_no = (
        f'{{"number":1,"rows":[[1,1]],"counts":[1],"events":{{"0":{{"parked":{parked}}}}}}}'
    )
    execute(
        home,
        "INSERT INTO hr.eventlog_inflight (entry_no, kind, content) "
        f"""VALUES (7, 'delivery', '{{"line_format":1,"documents":[{document_no}]}}')""",
    )
    for row in (1, 2):
        shown = show(row)
        state = shown["state"]
        assert "parked" in state
        assert "the receiver answered retry at least 8 times; no publisher runs" in state
        assert "the last answer: 500 no such mailbox" in state
        assert "the next attempt is due at 2026-11-25T08:00:00 UTC" in state
        (skip,) = shown["remedies"]
        assert skip["command"] == "eventlog skip 1 --reason REASON"
    assert show(1)["in_flight"]["attempts"] == 8
    assert cli.run(["skip", "1", "--reason", "poison"]) == 0
    (line,) = show(1)["errors"]
    assert "poison; the last answer: 500 no such mailbox" in line["message"]


def record(database: sa.Engine, number: int, document: str, owner: str = "NULL") -> None:
    content = f'{{"line_format":1,"documents":[{document}]}}'
    execute(
        database,
        "INSERT INTO hr.eventlog_inflight (entry_no, owner, kind, content) "
        f"VALUES ({number}, {owner}, 'delivery', '{content}')",
    )


def test_an_event_in_doubt_is_not_parked_and_an_event_of_a_part_is_before_it_was_sent_alone(
    home: sa.Engine, show: Show
) -> None:
    log(
        home,
        *((one, 2, "fname", "Ada", "Eva", "N", "app", f"idu={one}") for one in range(1, 5)),
        (5, 2, "lname", None, "Later", "N", "app", "idu=2"),
    )
    tried = '{{"tries":{},"answer":"500 no such mailbox"}}'
    record(home, 7, f'{{"number":1,"rows":[[1,1]],"counts":[1],"failures":{tried.format(4)}}}')
    record(home, 8, f'{{"number":1,"rows":[[2,3]],"counts":[1,1],"suspect":{tried.format(0)}}}')
    in_doubt, part, follower = (show(row)["state"] for row in (1, 2, 5))
    assert "parked" not in in_doubt
    assert in_doubt.startswith(
        "in flight as event 1 (delivery 7, document 1): the receiver failed for it and has "
        "answered no document since"
    )
    assert "sent alone" not in in_doubt
    assert part.startswith(
        "parked as event 2 (delivery 8, document 1): the receiver fails for a document of 2 events "
        "that it is part of"
    )
    assert follower.startswith("waits for event 2 of its object, which is parked: ")


def test_the_command_that_gives_a_consumer_s_event_up_names_the_consumer(
    home: sa.Engine, show: Show, capfd: pytest.CaptureFixture[str]
) -> None:
    log(home, (1, 2, "fname", "Ada", "Eva"), (2, 2, "lname", None, "Later"))
    execute(
        home,
        "INSERT INTO hr.eventlog_consumer (name, begins, done) VALUES ('search', 'earliest', '[0]')",
    )
    tried = '{"tries":3,"answer":"500 no such mailbox"}'
    record(home, 7, f'{{"number":1,"rows":[[1,1]],"counts":[1],"suspect":{tried}}}', "'search'")
    command = "eventlog skip --consumer search 1 --reason REASON"
    for row in (1, 2):
        capfd.readouterr()
        assert cli.run(["explain", str(row), "--consumer", "search"]) == 0
        said = capfd.readouterr().out
        assert command in said
        assert "eventlog skip 1" not in said
    capfd.readouterr()
    assert cli.run(["explain", "--key", "idu=1", "--consumer", "search"]) == 0
    assert command in capfd.readouterr().out


def test_an_event_that_has_had_all_its_attempts_waits_for_another_document(
    home: sa.Engine, show: Show
) -> None:
    log(home, (1, 2, "fname", "Ada", "Eva"))
    execute(
        home,
        "INSERT INTO hr.eventlog_inflight (entry_no, kind, content) VALUES (7, 'delivery', "
        """'{"line_format":1,"documents":[{"number":1,"rows":[[1,1]],"counts":[1],"""
        """"suspect":{"tries":3,"answer":"500 no such mailbox"}}]}')""",
    )
    assert "limit" not in show(1)["state"]
    Path("eventlog.toml").write_text(f"{CONFIG}\n[publisher]\nmax_attempts = 3\n")
    assert "limit 3: waits until another document is answered" in show(1)["state"]


def test_a_row_that_failed_is_shown_with_its_error_rows(home: sa.Engine, show: Show) -> None:
    log(
        home,
        (1, 2, "fname", "Ada", "Eva", "E"),
        (2, 2, "gone", "Ada", "Eva", "E"),
        (3, 4, None, None, None, "F"),
    )
    execute(
        home,
        "INSERT INTO hr.eventlog_error (record_id, error_time, code, message) VALUES (1, "
        "'2024-01-01', 'receiver', 'first'), (1, '2024-01-02', 'receiver', 'no such user'), (2, "
        "'2024-01-01', 'unknown_column', 'gone is not an attribute'), (3, '2024-01-01', 'receiver', "
        "'broken')",
    )
    found = show(1)
    assert [line["message"] for line in found["errors"]] == ["first", "no such user"]
    assert found["state"].startswith("the receiver answered error: no such user")
    assert show(2)["state"].startswith(
        "invalid (unknown_column): gone is not an attribute; not tried again"
    )
    assert show(2)["source"] is None
    assert show(3)["state"].startswith("the receiver answered fatal: broken")
    execute(home, "ALTER TABLE hr.usr ADD COLUMN gone text")
    assert "it passes the checks now" in show(2)["state"]


def test_for_people_the_explanation_ends_with_the_document(
    home: sa.Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    log(home, (1, 2, "fname", "Ada", "Eva"))
    assert cli.run(["explain", "1"]) == 0
    out, err = capfd.readouterr()
    explanation, _, document = out.partition("<?xml")
    assert err == ""
    assert explanation.startswith("row 1 of hr.eventlog: waits to be published;")
    assert "it makes the event 1 (modify):" in explanation
    assert document.endswith("</nds>\n")


def test_a_row_that_is_not_there_is_an_error_in_one_line(
    home: sa.Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["explain", "17"]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "the log hr.eventlog has no row 17" in err
    assert cli.run(["explain", "x"]) == 2


def test_nothing_is_changed_by_looking(home: sa.Engine, show: Show) -> None:
    log(home, (1, 2, "fname", "Ada", "Eva"))
    with home.connect() as conn:
        before = conn.exec_driver_sql("SELECT xmin::text, status FROM hr.eventlog").all()
        conn.commit()
        show(1)
        assert conn.exec_driver_sql("SELECT xmin::text, status FROM hr.eventlog").all() == before
        assert conn.exec_driver_sql("SELECT count(*) FROM hr.eventlog_inflight").scalar() == 0
