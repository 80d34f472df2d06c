"""The page of an event of a followed source: the same object as in `eventlog explain --from`
(docs/operate/monitor.md, *One event*).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from followed_stream import PATIENCE, Receiver, Stream, failures, files, following, position_at
from shared import free_port
from test_follow_sources import configure
from test_follow_suspects import Failing

from eventlog import cli
from eventlog.config.load import load
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Level
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.monitor import monitoring
from eventlog.publisher.run.liveness import LivenessClock
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.stream.follow import follow

Ask = Callable[[str], tuple[int, Any]]


@contextmanager
def published(
    stream: Stream, place: Path, config: Path, receiver: Receiver, *, shows_values: bool = True
) -> Iterator[Ask]:
    """Ask the monitor of a publisher that has sent the stream as far as the receiver takes it."""
    listen = f"127.0.0.1:{free_port()}"
    lines = ["", "[monitor]", f'listen = "{listen}"', f"show_values = {shows_values}".lower()]
    config.write_text(config.read_text() + "\n".join(lines))

    def ask(path: str) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"http://{listen}{path}", timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    followed = following(files(stream.path), batch_size=2)
    watching = (load(config, {}), listen, Counters(), LivenessClock(60), planned_triggers)
    with monitoring(*watching) as observer:
        with pytest.raises(ReceiverUnavailable):
            follow(
                followed,
                position_at(place),
                receiver.sink,
                StopRequest(),
                once=True,
                observer=observer,
            )
        yield ask


def explained(
    config: Path, capfd: pytest.CaptureFixture[str], *arguments: str
) -> list[dict[str, Any]]:
    capfd.readouterr()
    assert cli.run(["-c", str(config), "explain", *arguments, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capfd.readouterr().out)["events"]
    return found


def test_the_page_shows_what_explain_prints_with_the_attempts_of_the_process(
    stream: Stream, tmp_path: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    stream.insert(1, 2, 3)
    with published(stream, place, config, Failing(2)) as ask:
        (found,) = ask("/search.json?key=item.id%3D2")[1]["objects"]
        assert (found["class_name"], found["key"]) == ("app.item", "id=2")
        (event,) = found["events"]
        code, shown = ask(f"/rows/{quote(event['event_id'], safe='')}.json")
        assert code == 200
        assert shown["state"] == event["state"]
        assert shown["change"]["after"] == {"id": 2, "name": "new"}
        assert "<add " in shown["document"]
        attempts = shown["seen"]["attempts"]
        assert {(one["level"], one["event_id"]) for one in attempts} == {
            ("no answer", event["event_id"])
        }
        assert all("no such mailbox" in one["message"] for one in attempts)
        assert explained(config, capfd, event["event_id"]) == [shown]
        assert cli.run(["-c", str(config), "explain", event["event_id"]]) == 0
        printed = capfd.readouterr().out
        assert "the newest attempts to send the event since the start of the publisher" in printed


def test_a_key_of_which_no_event_waits_is_answered_in_words(
    stream: Stream, tmp_path: Path, place: Path
) -> None:
    stream.insert(1, 2, 3)
    with published(stream, place, configure(tmp_path), Failing(2)) as ask:
        (nothing,) = ask("/search.json?key=id%3D1")[1]["objects"]
    assert nothing["events"] == []
    assert "no event of id=1 waits for an answer" in nothing["sentences"][0]


def test_an_event_that_was_refused_is_listed_and_explained(
    stream: Stream, tmp_path: Path, place: Path
) -> None:
    stream.insert(1, 2, 3)
    receiver = Receiver(k1=[Level.ERROR] * 9, k2=[OSError("gone")] * 99)
    with published(stream, place, configure(tmp_path), receiver) as ask:
        (listed,) = ask("/errors.json")[1]["errors"]
        assert (listed["code"], listed["rows"], listed["message"]) == ("receiver", 1, "because")
        assert listed["example"] == failures(place)[0]["event_id"]
        _, shown = ask(f"/rows/{quote(listed['example'], safe='')}.json")
        assert shown["state"].startswith("it failed (receiver): because; it is not tried again")
        assert [one["message"] for one in shown["errors"]] == ["because"]
        levels = [one["level"] for one in shown["seen"]["attempts"]]
        assert levels[0] == "error", "the newest first"
        assert set(levels[1:]) <= {"no answer"}, "of the document that failed for event 2"


def test_without_values_no_change_and_no_word_of_the_receiver_is_shown(
    stream: Stream, tmp_path: Path, place: Path
) -> None:
    stream.insert(1, 2, 3)
    config = configure(tmp_path)
    with published(stream, place, config, Failing(2), shows_values=False) as ask:
        (found,) = ask("/search.json?key=id%3D2")[1]["objects"]
        event_id = found["events"][0]["event_id"]
        _, shown = ask(f"/rows/{quote(event_id, safe='')}.json")
    assert (shown["event_id"], shown["change"], shown["key"]) == (event_id, None, "•••")
    assert shown["document"] == "•••"
    text = json.dumps(shown)
    assert "no such mailbox" not in text
    assert '"new"' not in text


def test_what_only_a_log_has_is_refused_in_words(
    stream: Stream, tmp_path: Path, place: Path
) -> None:
    stream.insert(1, 2)
    with published(stream, place, configure(tmp_path), Failing(2)) as ask:
        code, refused = ask("/queue.json")
        assert (code, "has no log" in refused["error"]) == (404, True)
        assert ask("/status.json")[1]["source"] == "gbase"
