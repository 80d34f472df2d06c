"""What is known about one event, for the status page and ``eventlog explain``: both show the same
object, with the attempts of the running process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
import sqlalchemy as sa
from monitored import Ask, pause, read, watched, write_and_resume
from publishers import LONG, make_log, write
from receiver import Receiver, answer, reply, status
from shared import Run, url_of, wait_until

SECRET = "Jack is locked"
pytestmark = pytest.mark.xdist_group("event page")  # one publisher of each kind for all


class Mixed(NamedTuple):
    """A publisher whose receiver has refused row 1, parked row 2 and accepted row 3; its delivery
    is number 2, since a pause before it had number 1.
    """

    log: sa.Engine
    address: str
    ask: Ask


@contextmanager
def mixed(filled_database: Any, directory: Path, **options: object) -> Iterator[Mixed]:
    answers = [status("error", "1", "Jack is gone"), status("retry", "2", SECRET)]
    with (
        filled_database(make_log) as log,
        Receiver(lambda _: reply(200, answer(*answers))) as receiver,
    ):
        pause(log)
        http = {"sink__type": "http", "sink__url": receiver.url}
        rare = {"retry_initial": LONG, "retry_max": LONG}
        with watched(log, directory, **http, **rare, **options) as (_, address, ask):
            write_and_resume(log, address, 1, 2, 3)
            wait_until(lambda: ask("/status.json")["parked"], "row 2 is parked")
            yield Mixed(log, address, ask)


@pytest.fixture(scope="module")
def open_mixed(filled_database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    """Such a publisher that shows values."""
    directory = tmp_path_factory.mktemp("open")
    with mixed(filled_database, directory, monitor__show_values=True) as made:
        yield made


@pytest.fixture(scope="module")
def hidden_mixed(filled_database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    """Such a publisher that hides values."""
    with mixed(filled_database, tmp_path_factory.mktemp("hidden")) as made:
        yield made


def commands(explained: Any) -> list[str]:
    return [one["command"] for one in explained["remedies"]]


def test_an_event_has_its_attempts_what_it_waits_for_and_what_can_be_done(
    open_mixed: Mixed,
) -> None:
    ask = open_mixed.ask
    parked = ask("/rows/2.json")
    assert parked["seen"]["waits"].startswith(
        "in document 2 of delivery 2: it is sent again later: the receiver answered retry for "
        f"all of its events; 1 try, the last answer: {SECRET}; the next attempt is due in "
    )
    (attempt,) = parked["seen"]["attempts"]
    assert (attempt["level"], attempt["message"]) == ("retry", SECRET)
    assert (attempt["status"], attempt["events"]) == ("200 OK", 3)
    assert 'event-id="2"' in attempt["answer"]
    assert attempt["seconds"] > 0
    assert commands(parked) == ["eventlog skip 2 --reason REASON"]
    assert ask("/rows/2.5.json")["state"] == ask("/rows/2.json")["state"], "by its event-id"

    refused, done = ask("/rows/1.json"), ask("/rows/3.json")
    assert commands(refused) == ["eventlog requeue --status E --ids 1"]
    assert commands(done) == ["eventlog resync usr --key idu=3"]
    assert [one["level"] for one in done["seen"]["attempts"]] == ["success"]


def test_a_receiver_that_gives_no_answer_has_attempts_too(
    filled_database: Any, tmp_path: Path
) -> None:
    with (
        filled_database(make_log) as log,
        Receiver(lambda _: reply(503, b"busy", "Retry-After: 60")) as receiver,
    ):
        http = {"sink__type": "http", "sink__url": receiver.url, "retry_initial": 60}
        with watched(log, tmp_path, monitor__show_values=True, **http) as (_, _, ask):
            write(log, 1)
            wait_until(lambda: ask("/rows/1.json")["seen"]["attempts"], "it is tried")
            (attempt,) = ask("/rows/1.json")["seen"]["attempts"]
            assert (attempt["status"], attempt["answer"]) == ("503 Service Unavailable", "busy")
            receiver.script = lambda _: reply(401, b"who are you")


def test_without_values_no_word_of_the_receiver_no_key_and_no_document_is_shown(
    hidden_mixed: Mixed,
) -> None:
    _, address, ask = hidden_mixed
    for row in "123":
        text = read(f"{address}/rows/{row}.json")[1] + read(f"{address}/seen/{row}.json")[1]
        assert "Jack" not in text
        assert "idu=" not in text
    (attempt,) = ask("/rows/2.json")["seen"]["attempts"]
    assert (attempt["level"], attempt["status"], attempt["answer"]) == (
        "retry", "200 OK", "•••",
    )  # fmt: skip
    (remedy,) = ask("/rows/3.json")["remedies"]
    assert (remedy["name"], remedy["command"]) == ("resync", ""), "the command names the key"


def test_explain_prints_the_same_with_the_attempts_of_the_running_process(
    open_mixed: Mixed, run: Run
) -> None:
    log, address, ask = open_mixed
    asked = ("--database-url", url_of(log), "--set", f"monitor.listen={address[7:]}")
    out = run(*asked, "explain", "2.1")[1]
    assert "the publisher has the event in document 2 of delivery 2" in out
    assert "the newest attempts to send the event since the start of the publisher" in out
    assert SECRET in out
    assert "give it up: it is not sent, and its warning ends: eventlog skip 2 " in out
    told = json.loads(run(*asked, "explain", "2", "--json")[1])
    shown = ask("/rows/2.json")
    for name in ("state", "remedies", "members", "event_id", "document"):
        assert told[name] == shown[name], name
    assert told["seen"]["attempts"] == shown["seen"]["attempts"]
    alone = json.loads(run("--database-url", url_of(log), "explain", "2", "--json")[1])
    assert alone["seen"] is None, "nobody was asked"


def test_a_search_by_key_names_the_rows_and_the_range_that_it_read(
    open_mixed: Mixed, run: Run
) -> None:
    log, _, ask = open_mixed
    (found,) = ask(f"/search.json?key={quote('usr.idu=3')}")["objects"]
    assert (found["class_name"], found["key"]) == ("usr", "idu=3")
    assert [(row["record_id"], row["status"]) for row in found["rows"]] == [(3, "S")]
    assert found["searched"] == "the rows 1 to 3 of the log"
    assert found["sentences"]
    (nothing,) = ask(f"/search.json?key={quote('usr.idu=999')}")["objects"]
    assert (nothing["rows"], nothing["record_id"]) == ([], None)
    out = run("--database-url", url_of(log), "explain", "--key", "usr.idu=3")[1]
    assert "rows of the object, the newest first: 3" in out
    assert "searched: the rows 1 to 3 of the log" in out


def test_a_search_without_values_shows_rows_and_no_sentence(hidden_mixed: Mixed) -> None:
    ask = hidden_mixed.ask
    (found,) = ask("/search.json?key=idu%3D2")["objects"]
    assert (found["sentences"], [row["record_id"] for row in found["rows"]]) == ([], [2])
