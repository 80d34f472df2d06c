"""Dead letters: every event that becomes E, and every invalid row, reaches the second sink once it is
there, and the first one never waits for it (spec/event-log.md 8.7).
"""

from __future__ import annotations

import json
import re
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import mysql_servers
import pytest
import sqlalchemy as sa
from kafka_cluster import cluster, quiet_clients
from processes import EVENTLOG, start
from publishers import install, running, write_config
from receiver import Receiver, Request, Script, accept, answer, in_turn, reply, status
from shared import PATIENCE, Run, execute, fetch, in_ci, url_of, wait_until

from eventlog import FatalAnswer, Publisher
from eventlog.config.load import load
from eventlog.errors import Paused
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_unlocked
from eventlog.publisher.inspect.explanation import explain

Sections = dict[str, Any]
TABLES: Final = (
    "CREATE TABLE usr (id integer PRIMARY KEY, name varchar(99), email varchar(99))",
    "CREATE TABLE doc (id integer PRIMARY KEY, title varchar(99))",
)
BAD_KEY: Final = (
    "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value, perpetrator) "
    "VALUES (1, 'usr', 'id=two', 'email', 'ann@example.org', 'app')"
)


def refusing(*event_ids: str, why: str = "no such tenant") -> Script:
    """The script of a receiver that refuses these events."""
    body = answer(*(status("error", one, why) for one in event_ids))
    return lambda _: reply(200, body)


def in_status(code: int, *headers: str) -> Script:
    return lambda _: reply(code, b"", *headers)


class Log:
    """A log whose publisher has two sinks."""

    def __init__(self, database: sa.Engine, place: Path, *, exists: bool = False) -> None:
        self.database, self.place = database, place
        if not exists:
            execute(database, *TABLES)

    @property
    def directory(self) -> Path:
        return self.place / "letters"

    def config(self, url: str, **sections: Any) -> Sections:
        defaults: Sections = {
            "database": {"url": url_of(self.database)},
            "publisher": {"allow_loopback": True, "retry_initial": 0.01},
            "sink": {"type": "http", "url": url},
            "dead_letter": {"type": "files", "directory": str(self.directory)},
            "watch": [{"table": "usr"}, {"table": "doc"}],
        }
        return {name: one for name, one in {**defaults, **sections}.items() if one is not None}

    def install(self) -> None:
        install(load(self.config("http://nobody.invalid/"), {}))

    def insert(self, *ids: int) -> None:
        for one in ids:
            execute(
                self.database, f"INSERT INTO usr VALUES ({one}, 'name {one}', '{one}@example.org')"
            )

    def publish(self, script: Script = accept, **sections: Any) -> Publisher:
        """One run with this receiver."""
        with Receiver(script) as receiver:
            publisher = Publisher.from_config(self.config(receiver.url, **sections), environ={})
            publisher.run_once()
            return publisher

    def lines(self) -> list[dict[str, Any]]:
        """The letters in the files, in their order."""
        files = sorted(self.directory.glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def waiting(self) -> list[dict[str, Any]]:
        """The entries of letters."""
        rows = self.select("SELECT content FROM eventlog_inflight WHERE kind = 'dead_letter'")
        return [json.loads(content) for (content,) in rows]

    def select(self, statement: str) -> list[tuple[Any, ...]]:
        return fetch(self.database, statement)

    def statuses(self) -> dict[int, str]:
        return dict(self.select("SELECT record_id, status FROM eventlog"))  # type: ignore[arg-type]

    def codes(self) -> list[tuple[int, str]]:
        return self.select("SELECT record_id, code FROM eventlog_error ORDER BY error_time, code")  # type: ignore[return-value]


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    yield engine
    engine.dispose()


@pytest.fixture
def log(sqlite: sa.Engine, tmp_path: Path) -> Log:
    made = Log(sqlite, tmp_path)
    made.install()
    return made


@pytest.fixture
def postgres_log(logged: sa.Engine, tmp_path: Path) -> Log:
    made = Log(logged, tmp_path)
    made.install()
    return made


@pytest.fixture
def mariadb_log(
    started_server: Callable[[str], mysql_servers.Server], tmp_path: Path
) -> Iterator[Log]:
    with started_server("mariadb").database() as url:
        engine = sa.create_engine(url)
        made = Log(engine, tmp_path)
        made.install()
        yield made
        engine.dispose()


@pytest.fixture(params=in_ci(["log", "postgres_log", "mariadb_log"], "log", "postgres_log"))
def either(request: pytest.FixtureRequest) -> Log:
    made: Log = request.getfixturevalue(request.param)
    return made


def age(moment: str) -> float:
    """How many seconds ago that was."""
    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()


def facts(line: dict[str, Any]) -> tuple[str, str, str, int]:
    return line["key"], line["code"], line["record_ids"], line["attempts"]


# --- which letters there are ----------------------------------------------------------------------


def test_a_refused_event_is_a_line_with_its_reason_and_the_event(either: Log) -> None:
    either.insert(1, 2)
    either.publish(refusing("1"))
    (letter,) = either.lines()
    assert 0 <= age(letter.pop("moment")) < PATIENCE
    event = letter.pop("event")
    assert letter == {
        "key": "1/1",
        "event_id": "1",
        "code": "receiver",
        "message": "no such tenant",
        "record_ids": "1-2",
        "attempts": 1,
    }
    assert '<add class-name="usr" event-id="1">' in event
    assert re.findall("<value[^>]*>([^<]*)", event) == ["name 1", "1@example.org"]
    assert not either.waiting()


def test_a_letter_names_each_row_of_its_event_and_no_row_of_others(log: Log) -> None:
    log.insert(1, 2)
    log.publish()
    execute(
        log.database,
        "UPDATE usr SET name = 'a' WHERE id = 1",
        "UPDATE usr SET name = 'b' WHERE id = 2",
        "UPDATE usr SET email = 'c' WHERE id = 1",
    )
    log.publish(refusing("5"))
    (letter,) = log.lines()
    assert facts(letter) == ("5/1", "receiver", "5,7", 1)
    assert log.statuses() == {**dict.fromkeys((1, 2, 3, 4, 6), "S"), 5: "E", 7: "E"}


def test_a_letter_counts_the_attempts_at_its_event(log: Log) -> None:
    log.insert(1)
    later = reply(200, answer(status("retry", "1", "later")))
    with Receiver(in_turn(lambda _: later, lambda _: later, refusing("1"))) as receiver:
        with running(Publisher.from_config(log.config(receiver.url), environ={})):
            wait_until(log.lines)
        assert len(receiver.requests) == 3
    (letter,) = log.lines()
    assert facts(letter) == ("1/1", "receiver", "1-2", 3)


def test_an_invalid_row_is_a_line_with_its_columns(either: Log) -> None:
    execute(either.database, BAD_KEY)
    either.publish()
    (letter,) = either.lines()
    (row,) = letter.pop("rows")
    assert 0 <= age(letter.pop("moment")) < PATIENCE
    assert letter == {
        "key": "1/1",
        "event_id": "1",
        "code": "bad_table_key",
        "message": "bad_value at offset 3 of table_key 'id=two': id: 'two' is not an integer",
        "record_ids": "1",
        "attempts": 0,
    }
    assert row.pop("event_time")
    assert row == {
        "record_id": 1,
        "status": "E",
        "event_type": 1,
        "perpetrator": "app",
        "table_name": "usr",
        "table_key": "id=two",
        "column_name": "email",
        "old_value": None,
        "new_value": "ann@example.org",
    }


def test_an_event_that_is_given_up_has_the_event_id_under_which_it_was_sent(log: Log) -> None:
    log.insert(1, 2, 3)

    def fails(request: Request) -> bytes:
        return reply(500) if "name 1" in request.body else reply(200, answer())

    once = {"allow_loopback": True, "retry_initial": 0.01, "retry_max": 0.01, "max_attempts": 2}
    with Receiver(fails) as receiver:
        config = log.config(receiver.url, publisher={**once, "batch_size": 1})
        publisher = Publisher.from_config(config, environ={})
        with running(publisher):
            wait_until(log.lines)
    (letter,) = log.lines()
    assert letter["key"] == "1/1"
    assert letter["attempts"] >= 2
    assert "given up" in letter["message"]


def test_a_fatal_answer_has_no_letter(log: Log) -> None:
    log.insert(1)
    body = answer(status("fatal", "1", "stop"))
    with pytest.raises(FatalAnswer):
        log.publish(lambda _: reply(200, body))
    assert log.statuses()[1] == "F"
    assert not log.waiting()
    assert not log.lines()


def test_a_skipped_event_has_no_letter(log: Log, run: Run) -> None:
    log.insert(1)
    parked = answer(status("retry", "1", "later"))
    with Receiver(lambda _: reply(200, parked)) as receiver:
        sections = log.config(receiver.url)
        with pytest.raises(Exception, match="left"):
            Publisher.from_config(sections, environ={}).run_once()
        file = written(log.place, sections)
        assert run("--config", str(file), "skip", "1", "--reason", "old", "--yes")[0] == 0
        Publisher.from_config(sections, environ={}).run_once()
    assert log.statuses()[1] == "E"
    assert not log.lines()


def test_without_a_second_sink_no_entry_is_written(log: Log) -> None:
    log.insert(1)
    log.publish(refusing("1"), dead_letter=None)
    assert log.statuses()[1] == "E"
    assert not log.waiting()


def test_an_event_that_is_requeued_and_refused_again_is_another_letter(
    either: Log, run: Run
) -> None:
    either.insert(1)
    either.publish(refusing("1"))
    file = written(either.place, either.config("http://nobody.invalid/"))
    assert run("--config", str(file), "requeue", "--status", "E")[0] == 0
    either.publish(refusing("1"))
    assert [letter["key"] for letter in either.lines()] == ["1/1", "1/2"]


def test_the_key_of_a_letter_counts_the_refusals_of_its_event_alone(log: Log, run: Run) -> None:
    """Neither those by another reader's receiver nor that of a letter."""
    log.insert(1)
    with Receiver(in_status(422)) as second:
        log.publish(refusing("1"), dead_letter={"type": "http", "url": second.url})
    crm = Log(log.database, log.place / "crm", exists=True)
    crm.publish(refusing("1"), source={"consumer": "crm", "start_from": "earliest"})
    file = written(log.place, log.config("http://nobody.invalid/"))
    assert run("--config", str(file), "requeue", "--status", "E")[0] == 0
    log.publish(refusing("1"))
    assert [letter["key"] for letter in (*crm.lines(), *log.lines())] == ["1/1", "1/2"]


def test_a_refused_object_of_a_snapshot_has_a_letter_with_its_event(log: Log) -> None:
    log.insert(7)

    def refuse_all(request: Request) -> bytes:
        event_id = request.body.partition('event-id="')[2].partition('"')[0]
        return reply(200, answer(status("error", event_id, "no")))

    log.publish(refuse_all, source={"consumer": "crm", "start_from": "snapshot"})
    (letter,) = log.lines()
    assert letter["key"].startswith("snapshot.")
    assert letter["key"].endswith(".usr.id=7/1")
    assert letter["record_ids"] == ""
    assert "7@example.org" in letter["event"]


# --- what is one transaction, and what survives a kill --------------------------------------------


def test_an_e_is_not_written_without_its_letter(postgres_log: Log) -> None:
    execute(
        postgres_log.database,
        "CREATE FUNCTION no_letter() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE 'no letter'; END$$",
        "CREATE TRIGGER no_letter BEFORE INSERT ON eventlog_inflight FOR EACH ROW "
        "WHEN (NEW.kind = 'dead_letter') EXECUTE FUNCTION no_letter()",
    )
    postgres_log.insert(1)
    with pytest.raises(Exception, match="no letter"):
        postgres_log.publish(refusing("1"))
    assert set(postgres_log.statuses().values()) == {"N"}
    assert not postgres_log.codes()


def test_a_letter_that_a_killed_process_was_sending_is_sent_again_under_its_key(
    either: Log,
) -> None:
    either.insert(1)
    with Receiver(refusing("1")) as first, Receiver(lambda _: second.silence()) as second:
        sections = either.config(first.url, dead_letter={"type": "http", "url": second.url})
        file = written(either.place, sections)
        with start([EVENTLOG, "--config", str(file), "publish"]) as process:
            wait_until(lambda: second.requests)
            assert set(either.statuses().values()) == {"E"}, "marked while the letter is sent"
            assert either.codes()
            process.kill()
            process.wait(PATIENCE)
        assert [one["event_id"] for one in either.waiting()] == ["1"]
        key = second.requests[0].headers["Dead-Letter-Key"]
    with Receiver() as again:
        either.publish(dead_letter={"type": "http", "url": again.url})
        assert [one.headers["Dead-Letter-Key"] for one in again.requests] == [key]
    assert not either.waiting()


# --- nothing waits for the second sink ------------------------------------------------------------


def test_changes_are_published_while_the_second_sink_does_not_answer(either: Log) -> None:
    either.insert(1)
    hangs = threading.Event()

    def later(request: Request) -> Iterable[bytes]:
        hangs.wait(PATIENCE)
        yield reply(200)

    with Receiver(refusing("1")) as first, Receiver(later) as second:
        sections = either.config(first.url, dead_letter={"type": "http", "url": second.url})
        with running(Publisher.from_config(sections, environ={})):
            wait_until(lambda: second.requests)
            either.insert(2, 3)
            wait_until(lambda: list(either.statuses().values()).count("S") == 4)
            assert len(either.waiting()) == 1
            hangs.set()
            wait_until(lambda: not either.waiting())
    assert len(second.requests) == 1


def test_letters_wait_for_a_second_sink_that_is_down_and_come_in_their_order(
    either: Log,
) -> None:
    either.insert(1, 2, 3)
    down = in_turn(*[in_status(503)] * 3, accept)
    refused = refusing("1", "3", "5")
    with Receiver(refused) as first, Receiver(down) as second:
        sections = either.config(first.url, dead_letter={"type": "http", "url": second.url})
        with running(Publisher.from_config(sections, environ={})):
            wait_until(lambda: len(second.requests) >= 6)
            wait_until(lambda: not either.waiting())
    keys = [one.headers["Dead-Letter-Key"] for one in second.requests]
    assert keys == ["1/1", "1/1", "1/1", "1/1", "3/1", "5/1"]


def test_a_second_sink_that_fails_leaves_its_letters_for_the_next_run(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.insert(1)
    with Receiver(in_status(503)) as second:
        log.publish(refusing("1"), dead_letter={"type": "http", "url": second.url})
    assert "1 dead letter left for the next run" in caplog.text
    assert "dead letters wait: " in caplog.text
    assert len(log.waiting()) == 1
    log.publish()
    assert [letter["key"] for letter in log.lines()] == ["1/1"]


def test_the_name_of_a_letter_does_not_depend_on_the_letters_between(log: Log) -> None:
    """A reader of files would not look again at the name of a letter that is gone since."""
    log.insert(1, 2, 3)
    with Receiver(in_status(503)) as second:
        log.publish(refusing("1", "3", "5"), dead_letter={"type": "http", "url": second.url})
    execute(log.database, "DELETE FROM eventlog_inflight WHERE content LIKE '%\"3\"%'")
    assert len(log.waiting()) == 2
    sink = {"type": "files", "directory": str(log.directory), "file_layout": "documents"}
    log.publish(dead_letter=sink)
    first, third = sorted(log.directory.glob("*.json"))
    assert json.loads(first.read_bytes())["key"] == "1/1"
    assert first.stem.endswith("-000001")
    assert json.loads(third.read_bytes())["key"] == "5/1"
    assert third.stem.endswith("-000003")


def test_a_start_without_the_second_sink_warns_about_letters_that_wait(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.insert(1)
    with Receiver(in_status(503)) as second:
        log.publish(refusing("1"), dead_letter={"type": "http", "url": second.url})
    log.publish(dead_letter=None)
    assert "1 dead letter from an earlier run not sent" in caplog.text
    assert len(log.waiting()) == 1


def test_letters_wait_while_the_publisher_is_paused(log: Log, run: Run) -> None:
    log.insert(1)
    with Receiver(in_status(503)) as second:
        log.publish(refusing("1"), dead_letter={"type": "http", "url": second.url})
    file = str(written(log.place, log.config("http://nobody.invalid/")))
    assert run("--config", file, "pause", "--reason", "the index is rebuilt")[0] == 0
    with Receiver() as first, pytest.raises(Paused):
        Publisher.from_config(log.config(first.url), environ={}).run_once()
    assert not log.lines()
    assert run("--config", file, "resume")[0] == 0
    log.publish()
    assert [letter["key"] for letter in log.lines()] == ["1/1"]


# --- a letter that is refused itself --------------------------------------------------------------


def test_a_refused_letter_has_an_error_row_and_ends(
    either: Log, caplog: pytest.LogCaptureFixture
) -> None:
    either.insert(1)
    with Receiver(in_status(422)) as second:
        either.publish(refusing("1"), dead_letter={"type": "http", "url": second.url})
        assert len(second.requests) == 1
    assert not either.waiting()
    assert either.codes() == [(1, "receiver"), (2, "receiver"), (1, "dead_letter")]
    assert "dead letter 1/1 was refused: the receiver answers 422" in caplog.text


def test_a_refused_letter_of_a_consumer_is_an_error_of_this_consumer(log: Log) -> None:
    log.insert(1)
    consumer = {"consumer": "crm", "start_from": "earliest"}
    with Receiver(in_status(422)) as second:
        hook = {"type": "http", "url": second.url}
        log.publish(refusing("1"), dead_letter=hook, source=consumer)
    errors = "SELECT record_id, code, consumer FROM eventlog_error ORDER BY code DESC, record_id"
    assert log.select(errors) == [
        (1, "receiver", "crm"),
        (2, "receiver", "crm"),
        (1, "dead_letter", "crm"),
    ]


def test_a_refused_letter_changes_nothing_about_its_row(log: Log, run: Run) -> None:
    log.insert(1)
    with Receiver(in_status(422)) as second:
        sections = log.config("http://nobody.invalid/")
        log.publish(refusing("1"), dead_letter={"type": "http", "url": second.url})
    file = written(log.place, sections)
    _, listed, _ = run("--config", str(file), "errors", "--json")
    (group,) = json.loads(listed)["errors"]
    assert (group["code"], group["rows"]) == ("receiver", 2)
    with open_unlocked(load(sections, {}), Counters()) as context:
        explained = explain(context, 1)
    assert any("dead letter 1/1 was refused" in note for note in explained.notes)


def test_each_of_the_two_sinks_gets_the_token_of_its_client(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST", "SECOND"):
        monkeypatch.setenv(f"CLIENT_{name}", f"secret-{name.lower()}")

    def issuing(token: str) -> Script:
        content = {"access_token": token, "token_type": "bearer", "expires_in": 3600}
        return lambda _: reply(200, json.dumps(content).encode())

    def client(endpoint: Receiver, name: str) -> Sections:
        return {
            "token_url": endpoint.url,
            "client_id": name,
            "client_secret": f"env:CLIENT_{name.upper()}",
            "scope": f"write-{name}",
            "auth": "post",
        }

    def asked(endpoint: Receiver) -> list[dict[str, list[str]]]:
        return [parse_qs(one.body) for one in endpoint.requests]

    log.insert(1)
    with (
        Receiver(issuing("t-first")) as endpoint,
        Receiver(issuing("t-second")) as other,
        Receiver(refusing("1")) as first,
        Receiver(in_status(204)) as second,
    ):
        sink = {"type": "http", "url": first.url, "oauth": client(endpoint, "first")}
        hook = {"type": "http", "url": second.url, "oauth": client(other, "second")}
        Publisher.from_config(log.config("", sink=sink, dead_letter=hook), environ={}).run_once()
    assert [one.headers["Authorization"] for one in first.requests] == ["Bearer t-first"]
    assert [one.headers["Authorization"] for one in second.requests] == ["Bearer t-second"]
    for endpoint_of, name in ((endpoint, "first"), (other, "second")):
        assert asked(endpoint_of) == [
            {
                "grant_type": ["client_credentials"],
                "client_id": [name],
                "client_secret": [f"secret-{name}"],
                "scope": [f"write-{name}"],
            }
        ]


def test_explain_shows_the_refusals_and_letters_of_its_reader_alone(log: Log) -> None:
    log.insert(1)
    crm: Sections = {"source": {"consumer": "crm", "start_from": "earliest"}}
    with Receiver(in_status(422)) as second:
        hook = {"type": "http", "url": second.url}
        log.publish(refusing("1", why="unknown"), dead_letter=None)
        log.publish(refusing("1", why="too late"), dead_letter=hook, **crm)
    shown = {}
    for name, of_reader in (("publisher", {}), ("crm", crm)):
        config = load(log.config("http://nobody.invalid/", **of_reader), {})
        with open_unlocked(config, Counters()) as context:
            explained = explain(context, 1)
        errors = [(one.code, one.message) for one in explained.errors]
        letters = [note.partition(" was")[0] for note in explained.notes if "letter" in note]
        shown[name] = errors, letters
    assert shown == {
        "publisher": ([("receiver", "unknown")], []),
        "crm": ([("receiver", "too late")], ["dead letter 1/1"]),
    }


# --- where letters go -----------------------------------------------------------------------------


def test_over_http_the_event_is_the_body_and_the_reason_is_in_headers(log: Log) -> None:
    log.insert(1)
    with Receiver(in_status(204)) as second:
        log.publish(
            refusing("1", why="größer\nals"), dead_letter={"type": "http", "url": second.url}
        )
    (request,) = second.requests
    assert request.body.startswith("<?xml")
    assert request.headers["Content-Type"].startswith("application/xml")
    named = {
        name: value for name, value in request.headers.items() if name.startswith("Dead-Letter-")
    }
    moment = named.pop("Dead-Letter-Moment")
    assert moment.endswith("Z")
    assert named == {
        "Dead-Letter-Key": "1/1",
        "Dead-Letter-Event-Id": "1",
        "Dead-Letter-Code": "receiver",
        "Dead-Letter-Message": "gr%C3%B6%C3%9Fer%0Aals",
        "Dead-Letter-Record-Ids": "1-2",
        "Dead-Letter-Attempts": "1",
    }


def test_the_web_hook_of_a_chat_gets_a_sentence(log: Log) -> None:
    log.insert(1)
    with Receiver(lambda _: reply(200, b"ok")) as second:
        chat = {"type": "http", "url": second.url, "chat_member": "text"}
        log.publish(refusing("1"), dead_letter=chat)
    (request,) = second.requests
    assert request.headers["Content-Type"] == "application/json"
    assert json.loads(request.body) == {
        "text": "Event 1 (record_ids 1-2) was not accepted: receiver: no such tenant"
    }


def test_a_chat_gets_no_markup_of_a_key_or_a_receiver(log: Log) -> None:
    log.insert(1)
    with Receiver(lambda _: reply(200, b"ok")) as second:
        chat = {"type": "http", "url": second.url, "chat_member": "text"}
        log.publish(refusing("1", why="&lt;!channel&gt; &amp; co"), dead_letter=chat)
    (request,) = second.requests
    text = json.loads(request.body)["text"]
    assert text.endswith("receiver: &lt;!channel&gt; &amp; co")


def test_a_topic_gets_a_record_with_the_key_of_the_letter(log: Log) -> None:
    quiet_clients()
    log.insert(1)
    with cluster() as brokers:
        topic = {"type": "kafka", "brokers": brokers.brokers, "topic": "refused"}
        log.publish(refusing("1"), dead_letter=topic)
        (record,) = brokers.messages("refused", 1)
    headers = dict(record.headers() or ())
    assert record.key() == b"1/1"
    assert record.value().startswith(b"<?xml")
    assert headers["dead_letter_message"] == b"no such tenant"
    assert headers["dead_letter_record_ids"] == b"1-2"


# --- the examples of the guide --------------------------------------------------------------------

GUIDE: Final = Path(__file__).parents[2] / "docs" / "guides" / "receivers.md"


def example(name: str, **own: str) -> Sections:
    """The section of an example, with addresses of this machine."""
    page = GUIDE.read_text(encoding="utf-8")
    block = page.partition(f"<!-- letters: {name} -->\n```toml\n")[2].partition("```")[0]
    section: Sections = tomllib.loads(block)["dead_letter"]
    assert section.keys() >= own.keys()
    return section | own


def test_the_guides_chat_gets_a_letter(log: Log) -> None:
    log.insert(1)
    with Receiver(lambda _: reply(200, b"ok")) as second:
        log.publish(refusing("1"), dead_letter=example("chat", url=second.url))
    (request,) = second.requests
    assert "no such tenant" in json.loads(request.body)["text"]


def test_the_guides_file_gets_the_line_that_the_guide_shows(log: Log) -> None:
    log.insert(1)
    log.publish(refusing("1"), dead_letter=example("file", directory=str(log.directory)))
    (letter,) = log.lines()
    page = GUIDE.read_text(encoding="utf-8").splitlines()
    line = next(one for one in page if one.startswith('{"key"'))
    assert list(json.loads(line)) == list(letter)


# --- what an operator sees ------------------------------------------------------------------------


def test_status_and_health_show_the_letters_that_wait(log: Log, run: Run) -> None:
    log.insert(1)
    with Receiver(in_status(503)) as second:
        log.publish(refusing("1"), dead_letter={"type": "http", "url": second.url})
    execute(
        log.database,
        "UPDATE eventlog_inflight SET started = datetime('now', '-2 hours')",
    )
    file = str(written(log.place, log.config("http://nobody.invalid/")))
    _, shown, _ = run("--config", file, "status")
    assert "1 dead letter waiting, the oldest for 2 hours" in shown
    assert "1 dead letter waits for the sink of [dead_letter]" in shown
    status = json.loads(run("--config", file, "status", "--json")[1])
    assert status["dead_letters"] == 1
    assert status["health"]["severity"] == "error"


def test_doctor_tries_both_sinks(log: Log, run: Run) -> None:
    with Receiver() as first:
        hook = {"type": "http", "url": "http://127.0.0.1:9/hook", "timeout": 1}
        file = str(written(log.place, log.config(first.url, dead_letter=hook)))
        code, shown, _ = run("--config", file, "doctor", "--receiver")
    assert code == 4
    sink, letters = shown.splitlines()
    assert sink.startswith("sink http: ")
    assert letters.startswith("error: dead letters, sink http: http://127.0.0.1:9/hook")


# --- values that a letter may not show ------------------------------------------------------------


SHOWN: Final = {
    "record_id", "status", "event_type", "event_time", "perpetrator", "table_name", "column_name",
}  # fmt: skip
"""What a letter shows of each row."""
MASK: Final = [{"table": "usr", "columns": ["email"], "how": "redact"}]


def test_a_letter_has_masked_values(log: Log) -> None:
    log.insert(1)
    log.publish(refusing("1"), mask=MASK)
    (letter,) = log.lines()
    assert "1@example.org" not in letter["event"]
    assert "***" in letter["event"]


def test_rows_in_place_of_an_event_that_cannot_be_built_any_more_have_masked_values(
    log: Log,
) -> None:
    log.insert(1)
    with Receiver(in_status(503)) as second:
        hook = {"type": "http", "url": second.url}
        log.publish(refusing("1"), dead_letter=hook, mask=MASK)
    execute(log.database, "UPDATE eventlog SET new_value = char(1) WHERE column_name = 'name'")
    log.publish(mask=MASK)
    (letter,) = log.lines()
    values = {row["column_name"]: row["new_value"] for row in letter["rows"]}
    assert values == {"name": "\x01", "email": "***"}


@pytest.mark.parametrize(
    "row",
    [
        "(1, 'usr', 'id=two', 'email', 'ann@example.org', 'app')",
        "(1, 'usr', 'id=5', 'mail', 'ann@example.org', 'app')",
        "(1, 'person', 'id=5', 'email', 'ann@example.org', 'app')",
        "(1, 'usr', 'email=ann@example.org', 'name', 'ann', 'app')",
        "(1, 'usr', 'id=5', NULL, 'ann@example.org', 'app')",
    ],
)
def test_with_masks_a_row_of_an_unknown_class_column_or_key_has_neither_key_nor_values(
    log: Log, row: str
) -> None:
    execute(
        log.database,
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value, "
        f"perpetrator) VALUES {row}",
    )
    log.publish(mask=MASK)
    (letter,) = log.lines()
    assert letter["rows"][0].keys() == SHOWN
    assert "ann@" not in json.dumps(letter)


@pytest.mark.parametrize(
    "hidden",
    [
        {"mask": [{"table": "usr", "columns": ["mail"], "how": "redact"}]},
        {"filter": [{"table": "usr", "where": "mail = 'ann@example.org'"}]},
    ],
    ids=["mask", "filter"],
)
def test_if_a_class_with_a_mask_or_filter_is_unavailable_a_row_of_an_unknown_class_has_no_values(
    log: Log, run: Run, hidden: Sections
) -> None:
    """It may be a row of this class."""
    file = written(log.place, log.config("http://nobody.invalid/", **hidden))
    assert run("--config", str(file), "filter", "accept")[0] == 0
    execute(log.database, BAD_KEY.replace("'usr'", "'person'"))
    log.publish(**hidden)
    (letter,) = log.lines()
    assert letter["code"] == "unknown_table"
    assert letter["rows"][0].keys() == SHOWN
    assert "ann@" not in json.dumps(letter)


@pytest.mark.parametrize("changes", [True, False])
def test_with_filters_the_row_of_another_readers_object_has_neither_key_nor_values(
    log: Log, run: Run, changes: bool
) -> None:
    log.insert(1, 2)
    own_only = {"table": "usr", "where": "id = 1", "changes": changes}
    sections = log.config("http://nobody.invalid/", filter=[own_only])
    file = written(log.place, sections)
    assert run("--config", str(file), "filter", "accept")[0] == 0
    for key in (1, 2):
        execute(
            log.database,
            "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value, "
            f"perpetrator) VALUES (1, 'usr', 'id={key}', 'name', char(1), 'app')",
        )
    log.publish(filter=sections["filter"])
    own, other = log.lines()
    assert own["rows"][0].keys() == SHOWN | {"table_key", "old_value", "new_value"}
    assert (own["rows"][0]["table_key"], own["rows"][0]["new_value"]) == ("id=1", "\x01")
    assert other["rows"][0].keys() == SHOWN


# --- consumers, and rows that are gone ------------------------------------------------------------


def test_letters_of_a_consumer_stay_with_a_reset_and_go_with_a_drop(log: Log, run: Run) -> None:
    consumer = {"source": {"consumer": "crm", "start_from": "earliest"}}
    log.insert(1)
    with Receiver(in_status(503)) as second:
        hook = {"type": "http", "url": second.url}
        log.publish(refusing("1"), dead_letter=hook, **consumer)
    log.publish()
    assert not log.lines(), "the publisher does not send them"
    file = str(written(log.place, log.config("http://nobody.invalid/")))
    reset = ("consumers", "reset", "crm", "--start-from", "latest", "--yes")
    assert run("--config", file, *reset)[0] == 0
    assert len(log.waiting()) == 1
    assert run("--config", file, "consumers", "drop", "crm", "--yes")[0] == 0
    assert not log.waiting()


def test_rows_that_are_gone_leave_the_ids_and_the_reason(log: Log) -> None:
    log.insert(1)
    with Receiver(in_status(503)) as second:
        log.publish(refusing("1"), dead_letter={"type": "http", "url": second.url})
    execute(log.database, "DELETE FROM eventlog")
    log.publish()
    (letter,) = log.lines()
    assert facts(letter) == ("1/1", "receiver", "1-2", 1)
    assert letter["rows"] == []


def written(place: Path, sections: Sections) -> Path:
    """The configuration as a file."""
    arrays = {name: one for name, one in sections.items() if isinstance(one, list)}
    tables = {name: one for name, one in sections.items() if isinstance(one, dict)}
    url = tables.pop("database")["url"]
    file = write_config(place, url, arrays.get("watch", ()), **tables)
    for name in arrays.keys() - {"watch"}:
        for one in arrays[name]:
            lines = [f"{key} = {json.dumps(value)}" for key, value in one.items()]
            file.write_text("\n".join([file.read_text(), f"[[{name}]]", *lines]))
    return file
