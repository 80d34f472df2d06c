"""Dead letters of a followed source: each of its failures reaches the second sink (spec/event-log.md
8.7).
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from processes import EVENTLOG, start
from publishers import write_config
from receiver import Receiver, Request, accept, answer, in_turn, reply, status
from shared import PATIENCE, Run, wait_until
from test_follow_one_document import Objects

from eventlog import FatalAnswer, Publisher
from eventlog.testing.gbase_workload import T1, drain, new_server, open_session


class Source:
    """A source of objects with the keys 0 to 4, each inserted and then updated twice."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.source = Objects(place, 5).settings
        self.position = place / "position.db"

    def config(self, url: str, **sections: Any) -> dict[str, Any]:
        return {
            "source": {**self.source, "position_url": f"sqlite:///{self.position}"},
            "publisher": {"batch_size": 1, "retry_initial": 0.01},
            "sink": {"type": "http", "url": url},
            "dead_letter": {"type": "files", "directory": str(self.place / "letters")},
            **sections,
        }

    def publish(self, url: str, **sections: Any) -> None:
        Publisher.from_config(self.config(url, **sections), environ={}).run_once()

    def lines(self) -> list[dict[str, Any]]:
        files = sorted((self.place / "letters").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def select(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.position)) as conn:
            return conn.execute(statement).fetchall()

    def waiting(self) -> int:
        where = "source = 'gbase.letters'"
        return int(
            self.select(f"SELECT count(*) FROM eventlog_position_inflight WHERE {where}")[0][0]
        )

    def codes(self) -> list[str]:
        return [code for (code,) in self.select("SELECT code FROM eventlog_position_error")]


def refuses(*keys: int, level: str = "error") -> Any:
    """The script of a receiver that refuses the inserts of these objects."""

    def script(request: Request) -> bytes:
        event_id = re.findall('event-id="([^"]+)"', request.body)[0]
        key = int(re.findall("<association>c1=([0-9]+)", request.body)[0])
        is_insert = "<add " in request.body
        refused = is_insert and key in keys
        return reply(200, answer(*([status(level, event_id, "no")] if refused else [])))

    return script


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def test_a_refused_event_is_a_line_with_its_reason_and_the_event(source: Source) -> None:
    with Receiver(refuses(3)) as receiver:
        source.publish(receiver.url)
    (letter,) = source.lines()
    event, event_id = letter.pop("event"), letter["event_id"]
    assert letter.pop("moment").endswith("Z")
    assert letter == {
        "key": f"{event_id}/1",
        "event_id": event_id,
        "code": "receiver",
        "message": "no",
        "record_ids": "",
        "attempts": 1,
    }
    assert re.findall('event-id="([^"]+)"', event) == [event_id]
    assert re.findall("<association>c1=([0-9]+)", event) == ["3"]
    assert source.codes() == ["receiver"]
    assert not source.waiting()


def test_a_letter_of_a_killed_process_is_sent_again_under_its_key(source: Source) -> None:
    with Receiver(refuses(3)) as first, Receiver(lambda _: second.silence()) as second:
        sections = source.config(first.url, dead_letter={"type": "http", "url": second.url})
        file = write_config(source.place, "sqlite://", **sections)
        file.write_text(file.read_text().replace('[database]\nurl = "sqlite://"', ""))
        with start([EVENTLOG, "--config", str(file), "publish"]) as process:
            wait_until(lambda: second.requests)
            process.kill()
            process.wait(PATIENCE)
        assert source.codes() == ["receiver"]
        assert source.waiting() == 1
        key = second.requests[0].headers["Dead-Letter-Key"]
    with Receiver() as again, Receiver(accept) as first:
        source.publish(first.url, dead_letter={"type": "http", "url": again.url})
        assert [one.headers["Dead-Letter-Key"] for one in again.requests] == [key]
    assert not source.waiting()


def test_the_source_is_published_while_the_second_sink_fails(source: Source) -> None:
    down = in_turn(lambda _: reply(503), accept)
    with Receiver(refuses(0, 4)) as first, Receiver(lambda _: reply(503)) as second:
        source.publish(first.url, dead_letter={"type": "http", "url": second.url})
        assert len(first.requests) == 15
    assert source.waiting() == 2
    with Receiver(accept) as first, Receiver(down) as second:
        source.publish(first.url, dead_letter={"type": "http", "url": second.url})
    assert source.waiting() == 2, "a run ends with the first failure"
    with Receiver(accept) as first:
        source.publish(first.url)
    assert [re.findall("c1=([0-9]+)", one["event"])[0] for one in source.lines()] == ["0", "4"]


def test_a_start_without_the_second_sink_warns_about_letters_that_wait(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    with Receiver(refuses(3)) as first, Receiver(lambda _: reply(503)) as second:
        source.publish(first.url, dead_letter={"type": "http", "url": second.url})
        config = source.config(first.url)
        del config["dead_letter"]
        Publisher.from_config(config, environ={}).run_once()
    assert "1 dead letter from an earlier run not sent" in caplog.text
    assert source.waiting() == 1


def test_a_refused_letter_is_a_failure_and_ends(source: Source) -> None:
    with Receiver(refuses(3)) as first, Receiver(lambda _: reply(422)) as second:
        source.publish(first.url, dead_letter={"type": "http", "url": second.url})
    assert not source.waiting()
    assert sorted(source.codes()) == ["dead_letter", "receiver"]


def test_a_fatal_answer_has_no_letter(source: Source) -> None:
    with Receiver(refuses(0, level="fatal")) as first, pytest.raises(FatalAnswer):
        source.publish(first.url)
    assert not source.waiting()
    assert not source.lines()


def test_a_change_that_makes_no_event_is_a_line_with_the_change(source: Source) -> None:
    server = new_server()
    session = open_session(server)
    work = server.begin(1)
    work.insert(T1, {"c1": 1, "c2": "fine"})
    work.insert(T1, {"c1": 2, "c2": "\x01"})  # no character of XML
    work.commit()
    Path(source.source["path"]).write_bytes(b"".join(drain(server, session)))
    with Receiver() as receiver:
        source.publish(receiver.url)
    (letter,) = source.lines()
    assert (letter["code"], letter["attempts"]) == ("not_expressible", 0)
    assert letter["rows"][0]["after"] == {"c1": 2, "c2": "\x01"}
    assert "event" not in letter


def test_status_shows_the_letters_that_wait(source: Source, run: Run) -> None:
    with Receiver(refuses(3)) as first, Receiver(lambda _: reply(503)) as second:
        sections = source.config(first.url, dead_letter={"type": "http", "url": second.url})
        Publisher.from_config(sections, environ={}).run_once()
    file = write_config(source.place, "sqlite://", **sections)
    assert "1 dead letter waiting" in run("--config", str(file), "status")[1]
