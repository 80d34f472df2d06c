"""The actions of the status page, over HTTP: who may ask for them, and that each is the request of
the command of its name (docs/operate/monitor.md).
"""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from monitored import watched
from publishers import Collecting, configuration, install, opened, write
from receiver import Receiver, answer, reply
from shared import PATIENCE, Run, execute, fetch, free_port, refused, url_of, wait_until

from eventlog.cli.context import changing_log
from eventlog.config.load import load
from eventlog.errors import ConfigError, DatabaseError, Paused, ReceiverUnavailable
from eventlog.model import Answer, EventResult, Level
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.inspect.pausing import pause_reader
from eventlog.publisher.monitor import monitoring
from eventlog.publisher.monitor.actions import FORGERY, Actions
from eventlog.publisher.run.daemon import publish_once
from eventlog.publisher.run.liveness import LivenessClock
from eventlog.sql import migrations

TOKENS = "anna:secret-of-anna\nben:secret-of-ben\n"
ASKED: Mapping[str, dict[str, Any]] = {
    "requeue": {"rows": [1]},
    "skip": {"events": ["2"], "reason": "no such mailbox"},
    "resync": {"row": 1},
    "pause": {"reason": "the index is rebuilt"},
    "resume": {},
}
every_action = pytest.mark.parametrize("action", ASKED)


def make_log(engine: sa.Engine) -> None:
    """Two objects, with rows 1 and 2: the receiver has refused row 1, and wants row 2 later."""
    execute(engine, "CREATE TABLE usr (idu integer PRIMARY KEY, fname text)")
    execute(engine, "INSERT INTO usr VALUES (1, 'Jack'), (2, 'Jill')")
    migrations.upgrade(engine, log_table="eventlog")
    write(engine, 1, 2)
    answers = {"1": EventResult(Level.ERROR, "no"), "2": EventResult(Level.RETRY, "locked")}
    with (
        opened(configuration(engine, allow_loopback=True)) as context,
        refused(ReceiverUnavailable),
    ):
        publish_once(context, Collecting(lambda _: Answer(answers)))


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as engine:
        yield engine


@dataclass
class Client:
    """A client of the page, with a token, on its origin."""

    address: str
    token: str | None = "secret-of-anna"
    origin: str = ""
    forgery: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.origin = self.origin or self.address

    def offered(self) -> Any:
        """What the page may ask for; the client keeps the token against forgery."""
        code, found = self.send("/actions.json", None)
        assert code == 200
        self.forgery = found["forgery_token"]
        return found

    def state(self) -> str:
        """What the publisher does."""
        code, found = self.send("/status.json", None)
        assert code == 200
        return str(found["state"]["name"])

    def act(self, action: str, asked: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        body = ASKED[action] if asked is None else asked
        return self.send(f"/actions/{action}", json.dumps(body).encode())

    def send(self, path: str, body: bytes | None) -> tuple[int, Any]:
        headers = {
            "Authorization": None if self.token is None else f"Bearer {self.token}",
            "Origin": self.origin,
            "Content-Type": "application/json",
            FORGERY: self.forgery,
            **self.headers,
        }
        sent = {name: value for name, value in headers.items() if value}
        request = urllib.request.Request(self.address + path, body, sent)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
                return error.code, json.loads(text) if text.startswith("{") else text


@contextmanager
def page(log: sa.Engine, directory: Path, mode: int = 0o600, **options: object) -> Iterator[str]:
    """The address of the monitor of a publisher that does not work: nothing changes but by
    actions. ``mode`` is that of the file of tokens.
    """
    (directory / "tokens").write_text(TOKENS)
    (directory / "tokens").chmod(mode)
    listen = f"127.0.0.1:{free_port()}"
    flags = {
        "monitor.listen": listen,
        "monitor.tokens_file": str(directory / "tokens"),
        "monitor.database_url": url_of(log),
        **{name.replace("__", "."): str(value) for name, value in options.items()},
    }
    config = load(None, {}, {"database.url": url_of(log)} | flags)
    with monitoring(config, listen, Counters(), LivenessClock(60), planned_triggers):
        yield f"http://{listen}"


def content(log: sa.Engine) -> list[Any]:
    """What an action may change."""
    tables = ("eventlog", "eventlog_error", "eventlog_state", "eventlog_inflight")
    return [fetch(log, f"SELECT * FROM {one} ORDER BY 1, 2") for one in tables]


# --- who may act ----------------------------------------------------------------------------------


def test_only_a_named_token_on_this_origin_with_the_token_against_forgery_may_act(
    log: sa.Engine, tmp_path: Path
) -> None:
    with page(log, tmp_path) as address:
        anna, ben = Client(address), Client(address, "secret-of-ben")
        assert anna.offered()["user"] == "anna"
        assert ben.offered()["user"] == "ben"
        forgery, of_ben = anna.forgery, ben.forgery
        assert forgery != of_ben
        cases = (
            (Client(address, None, forgery=forgery), 401),
            (Client(address, "guessed", forgery=forgery), 401),
            (Client(address), 403),
            (Client(address, forgery="guessed"), 403),
            (Client(address, forgery=of_ben), 403),
            (Client(address, origin="http://evil.example", forgery=forgery), 403),
            (Client(address, origin="null", forgery=forgery), 403),
            (Client(address, forgery=forgery, headers={"Origin": ""}), 403),
            (Client(address, forgery=forgery, headers={"Sec-Fetch-Site": "cross-site"}), 403),
            (Client(address, forgery=forgery, headers={"Content-Type": "text/plain"}), 403),
            (Client(address, forgery=forgery, headers={"Host": "evil.example"}), 421),
        )
        for action in ASKED:
            before = content(log)
            for client, expected in cases:
                code, told = client.act(action)
                assert code == expected, (action, client, told)
            assert content(log) == before, action
            code, told = anna.act(action)
            assert (code, bool(told["done"])) == (200, True), action


def test_a_token_without_a_name_reads_and_does_not_act(log: sa.Engine, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("unnamed")
    with page(log, tmp_path, monitor__token_file=tmp_path / "token") as address:
        client = Client(address, "unnamed")
        assert client.offered() == {"user": None, "actions": [], "forgery_token": None}
        code, told = client.act("pause")
        assert (code, "a token with a name" in told["error"]) == (403, True)


def test_without_a_role_there_are_no_actions(log: sa.Engine, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKENS)
    listen = f"127.0.0.1:{free_port()}"
    tokens = {"database.url": url_of(log), "monitor.tokens_file": str(tmp_path / "tokens")}
    config = load(None, {}, tokens)
    with monitoring(config, listen, Counters(), LivenessClock(60), planned_triggers):
        client = Client(f"http://{listen}")
        assert client.offered()["actions"] == []
        assert client.act("pause")[0] == 404


def test_a_role_for_actions_needs_named_tokens(log: sa.Engine) -> None:
    config = load(None, {}, {"database.url": url_of(log), "monitor.database_url": url_of(log)})
    with (
        refused(ConfigError, "which record who acts"),
        monitoring(config, "127.0.0.1:0", Counters(), LivenessClock(60), planned_triggers),
    ):
        raise AssertionError


def test_the_page_logs_in_with_a_named_token_and_acts_with_its_cookie(
    log: sa.Engine, tmp_path: Path
) -> None:
    with page(log, tmp_path) as address:
        opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(), urllib.request.HTTPRedirectHandler()
        )
        opener.open(f"{address}/login", b"token=secret-of-ben", timeout=PATIENCE).close()
        with opener.open(f"{address}/actions.json", timeout=PATIENCE) as response:
            offered = json.loads(response.read())
        assert offered["user"] == "ben"
        headers = {
            "Origin": address, "Content-Type": "application/json", FORGERY: offered["forgery_token"]
        }  # fmt: skip
        request = urllib.request.Request(f"{address}/actions/resume", b"{}", headers)
        with opener.open(request, timeout=PATIENCE) as response:
            assert json.loads(response.read())["done"] == "the publisher is not paused"


def test_what_an_action_needs_is_named(log: sa.Engine, tmp_path: Path) -> None:
    wrong = {
        "requeue": {"rows": ["1"]},
        "skip": {"events": ["2"], "reason": " "},
        "resync": {"row": "1"},
        "pause": {},
        "resume": {"consumer": 7},
    }
    with page(log, tmp_path) as address:
        client = Client(address)
        client.offered()
        for action in ASKED:
            code, told = client.act(action, wrong[action])
            assert (code, bool(told["error"])) == (400, True), action


# --- what each does -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "[" * 16_000,
        '{"reason":"\\ud800"}',
        '{"reason":"x","events":["\\ud800"]}',
        '{"class":"usr","key":"idu=\\udfff"}',
        '{"reason":"x","\\ud800":1}',
    ],
    ids=["deep", "reason", "event", "key", "name"],
)
def test_a_request_that_is_no_json_of_unicode_text_is_refused(
    log: sa.Engine, tmp_path: Path, body: str
) -> None:
    with page(log, tmp_path) as address:
        client = Client(address)
        client.offered()
        before = content(log)
        for action in ASKED:
            code, answered = client.send(f"/actions/{action}", body.encode())
            assert (code, "JSON" in answered["error"]) == (400, True), action
        assert content(log) == before


def test_an_unknown_row_is_not_found_and_a_bad_question_is_refused(
    log: sa.Engine, tmp_path: Path
) -> None:
    cases = {
        "/rows/1.json": 200,
        "/rows/999.json": 404,
        "/rows/snapshot.20260101000000.usr.idu=1.json": 404,
        "/rows/x.json": 400,
        "/rows.json?before=1.e2": 200,
        "/search.json?key=usr.idu=7": 200,
        "/search.json?key=usr.idu=x": 400,
        "/search.json?key=": 400,
    }
    with page(log, tmp_path) as address:
        assert {path: Client(address).send(path, None)[0] for path in cases} == cases


# --- tokens and the role for actions --------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "postgresql+psycopg://nobody@127.0.0.1:1/hr",
        "postgresql+psycopg:///hr?host=%ff",
        "sqlite:////nowhere/hr.db",
    ],
)
def test_a_wrong_database_url_for_actions_is_a_warning_and_the_publisher_works(
    log: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    with page(log, tmp_path, monitor__database_url=url) as address:
        wait_until(lambda: "monitor.database_url: the actions" in caplog.text, "it is reported")
        client = Client(address)
        client.offered()
        assert client.act("resume")[0] == 409
        assert client.state() == "connecting"


def test_a_role_without_rights_for_actions_is_a_warning(
    log: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    execute(log, "CREATE ROLE without_rights LOGIN")
    try:
        url = log.url.set(username="without_rights")
        with page(log, tmp_path, monitor__database_url=url):
            wait_until(lambda: "actions of the status page are refused" in caplog.text, "a warning")
    finally:
        execute(log, "DROP ROLE without_rights")


def test_short_tokens_and_a_file_that_others_may_read_are_warned_about(
    log: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").write_text("sixteen-or-more.")
    (tmp_path / "token").chmod(0o600)
    with page(log, tmp_path, mode=0o644, monitor__token_file=tmp_path / "token"):
        pass
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert warnings == [
        "the token of anna in monitor.tokens has fewer than 16 characters and can be guessed",
        "the token of ben in monitor.tokens has fewer than 16 characters and can be guessed",
        f"monitor.tokens_file = {tmp_path / 'tokens'}: every user of this machine may read this "
        "file: run `chmod o-r` on it",
    ]


@pytest.mark.parametrize(("of_file", "of_directory"), [(0o602, 0o700), (0o600, 0o777)])
def test_a_file_of_tokens_that_others_may_write_or_replace_is_refused(
    log: sa.Engine, tmp_path: Path, of_file: int, of_directory: int
) -> None:
    tmp_path.chmod(of_directory)
    with refused(ConfigError, "and so add a token"), page(log, tmp_path, mode=of_file):
        raise AssertionError


def test_a_file_of_tokens_where_only_owners_replace_their_files_is_accepted(
    log: sa.Engine, tmp_path: Path
) -> None:
    tmp_path.chmod(0o1777)
    with page(log, tmp_path) as address:
        assert Client(address).offered()["user"] == "anna"


@contextmanager
def acting(log: sa.Engine, directory: Path) -> Iterator[Client]:
    with page(log, directory) as address:
        client = Client(address)
        client.offered()
        yield client


def test_requeue_puts_a_refused_row_back_once(
    log: sa.Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eventlog.publisher")
    with acting(log, tmp_path) as client:
        code, told = client.act("requeue")
        assert (code, told["done"]) == (200, "1 row set back to N, 0 logged again")
        assert client.act("requeue")[1]["done"] == "0 rows set back to N, 0 logged again"
    assert fetch(log, "SELECT status FROM eventlog ORDER BY record_id") == [("N",), ("N",)]
    assert "requeue by anna on the status page: 1 row set back" in caplog.text


def test_requeue_of_a_stale_row_is_refused_with_the_words_of_the_command(
    log: sa.Engine, tmp_path: Path, run: Run
) -> None:
    write(log, 1, event_type=2)
    execute(log, "UPDATE eventlog SET status = 'S' WHERE record_id = 3")
    with acting(log, tmp_path) as client:
        code, told = client.act("requeue")
    assert code == 409
    _, _, error = run("--database-url", url_of(log), "requeue", "--ids", "1")
    assert told["error"].partition(". Instead")[0] in error
    assert "eventlog resync usr --key" in told["error"]


def test_skip_gives_up_a_parked_event_with_the_name_in_its_error_row(
    log: sa.Engine, tmp_path: Path, run: Run
) -> None:
    with acting(log, tmp_path) as client:
        code, told = client.act("skip")
        assert (code, told["done"]) == (200, "1 event given up: 1 row set to E")
        code, told = client.act("skip")
        assert (code, "has no row that can be given up" in told["error"]) == (409, True)
    words = "given up by hand by anna on the status page: no such mailbox"
    messages = [text for (text,) in fetch(log, "SELECT message FROM eventlog_error")]
    assert [one.partition("; ")[0] for one in messages if "anna" in one] == [words]
    _, out, _ = run("--database-url", url_of(log), "errors", "--json")
    assert words in out


def test_skip_of_a_refused_row_ends_its_alarm_with_the_name(log: sa.Engine, tmp_path: Path) -> None:
    with acting(log, tmp_path) as client:
        code, told = client.act("skip", {"rows": [1], "reason": "seen"})
        assert (code, told["done"]) == (200, "1 refused row skipped")
        code, told = client.act("skip", {"rows": [1], "reason": "seen"})
        assert (code, "were skipped before" in told["error"]) == (409, True)
    ((message,),) = fetch(log, "SELECT message FROM eventlog_error WHERE code = 'skipped'")
    assert message.startswith("given up by hand by anna on the status page: seen; ")


def test_resync_writes_the_object_of_a_row_and_settles_it_with_the_name(
    log: sa.Engine, tmp_path: Path
) -> None:
    with acting(log, tmp_path) as client:
        code, told = client.act("resync")
        assert (code, told["done"]) == (200, "1 row of type 5 written for usr")
        assert client.act("resync", {"class": "usr", "key": "idu=2"})[0] == 200
        assert client.act("resync")[0] == 200
        execute(log, "DELETE FROM usr WHERE idu = 1")
        code, told = client.act("resync")
        assert (code, "does not exist any more" in told["error"]) == (409, True)
        assert client.act("resync", {"row": 99})[0] == 409
    rows = "SELECT table_key FROM eventlog WHERE event_type = 5 ORDER BY record_id"
    assert fetch(log, rows) == [("idu=1",), ("idu=2",), ("idu=1",)]
    settled = "SELECT message FROM eventlog_error WHERE code = 'superseded' AND record_id = 1"
    assert {text.partition(", ")[2] for (text,) in fetch(log, settled)} == {
        "as anna on the status page asked"
    }


def test_pause_and_resume_name_who_asked(log: sa.Engine, tmp_path: Path) -> None:
    with acting(log, tmp_path) as client:
        code, told = client.act("pause")
        assert (code, told["done"].partition(" by ")[2]) == (
            200,
            "anna on the status page: the index is rebuilt",
        )
        code, told = client.act("pause")
        assert (code, told["code"]) == (409, "paused")
        assert "by anna on the status page: the index is rebuilt" in told["error"]
        with opened(configuration(log)) as context, refused(Paused, "anna on the status page"):
            publish_once(context, Collecting())
        assert "is resumed" in client.act("resume")[1]["done"]
        code, told = client.act("resume")
        assert (code, told["done"]) == (200, "the publisher is not paused")


def test_a_consumer_is_paused_from_the_page_of_the_publisher(
    log: sa.Engine, tmp_path: Path
) -> None:
    consumer = {"source.consumer": "search", "source.start_from": "earliest"}
    config = load(None, {}, {"database.url": url_of(log)} | consumer)
    with opened(config) as context:
        publish_once(context, Collecting())
    with acting(log, tmp_path) as client:
        code, told = client.act("pause", {"consumer": "search", "reason": "new index"})
        assert (code, told["done"].startswith("consumer search has been paused")) == (200, True)
        assert client.act("pause", {"consumer": "nobody", "reason": "new index"})[0] == 409
    with opened(config) as context, refused(Paused):
        publish_once(context, Collecting())


# --- a publisher that is killed --------------------------------------------------------------------


@every_action
def test_what_was_asked_of_a_publisher_that_is_killed_then_holds_for_the_next(
    log: sa.Engine, tmp_path: Path, action: str
) -> None:
    """The page is that of the publisher, which hangs at its receiver while it is asked and is killed
    then.
    """
    (tmp_path / "tokens").write_text(TOKENS)
    options = {
        "sink__type": "http",
        "allow_loopback": True,
        "retry_initial": 0.1,
        "monitor__tokens_file": tmp_path / "tokens",
        "monitor__database_url": url_of(log),
    }
    if action == "resume":
        with changing_log(configuration(log)) as changing:
            pause_reader(changing, None, "an upgrade", "ben")
            changing.commit()

    def hang(request: Any) -> Iterator[bytes]:
        hanging.closing.wait(PATIENCE)
        yield b""

    with (
        Receiver(hang) as hanging,
        watched(log, tmp_path, sink__url=hanging.url, **options) as running,
    ):
        process, address, _ = running
        if action != "resume":
            wait_until(lambda: len(hanging.requests) == 1, "event 2 is in the air")
        client = Client(address)
        client.offered()
        code, told = client.act(action)
        assert code == 200, told
        process.kill()
        process.wait(PATIENCE)
    with (
        Receiver(lambda _: reply(200, answer())) as receiver,
        watched(log, tmp_path, sink__url=receiver.url, **options) as running,
    ):
        if action == "pause":
            _, address, _ = running
            client = Client(address)
            client.offered()
            wait_until(lambda: client.state() == "paused")
            assert receiver.requests == []
            return
        expected = {
            "requeue": [("S",), ("S",)],
            "skip": [("E",), ("E",)],
            "resync": [("E",), ("S",), ("S",)],
            "resume": [("E",), ("S",)],
        }
        statuses = "SELECT status FROM eventlog ORDER BY record_id"
        wait_until(lambda: fetch(log, statuses) == expected[action])


# --- locks and schema changes ---------------------------------------------------------------------


def actions_of(log: sa.Engine, **sections: Any) -> Actions:
    """The actions on the log, whose statements take a second at most."""
    url = {"database": {"url": url_of(log)}, "monitor": {"database_url": url_of(log)}}
    return Actions(load({**url, **sections}, {}), seconds=1)


def test_an_action_that_waits_for_a_lock_ends_in_words_and_has_changed_nothing(
    log: sa.Engine,
) -> None:
    names, before = ("requeue", "skip", "resync"), content(log)

    def waits(action: str) -> None:
        with refused(DatabaseError, f"{action} did not end within 1 s, so nothing was changed"):
            actions_of(log).run(action, ASKED[action], "anna")

    with log.connect() as other, ThreadPoolExecutor() as together:
        other.execute(sa.text("LOCK TABLE eventlog IN ACCESS EXCLUSIVE MODE"))
        for ended in [together.submit(waits, action) for action in names]:
            ended.result(PATIENCE)
        other.rollback()
    assert content(log) == before
    for action in names:
        assert actions_of(log).run(action, ASKED[action], "anna").sentence


WATCH = {"watch": [{"table": "usr"}]}
CHANGES = {
    "renamed": "ALTER TABLE usr RENAME COLUMN fname TO first_name",
    "dropped": "ALTER TABLE usr DROP COLUMN fname",
}


def make_watched(engine: sa.Engine) -> None:
    """The triggers have logged an object of two columns, and a change of one: row 3, which the
    receiver has refused.
    """
    execute(engine, "CREATE TABLE usr (idu integer PRIMARY KEY, fname text, mail text)")
    config = load({"database": {"url": url_of(engine)}, **WATCH}, {})
    install(config)
    execute(engine, "INSERT INTO usr VALUES (1, 'Jack', 'j@example.org')")
    sent_once(engine)
    execute(engine, "UPDATE usr SET fname = 'Jill'")
    sent_once(engine, EventResult(Level.ERROR, "no"))


def sent_once(engine: sa.Engine, result: EventResult | None = None) -> list[str]:
    """Publish what waits, each event with this result; the bodies."""
    config = load({"database": {"url": url_of(engine)}, "publisher": {"allow_loopback": True}}, {})
    answer = Answer() if result is None else Answer(general=result)
    sink = Collecting(lambda _: answer)
    with opened(config) as context:
        publish_once(context, sink)
    return sink.bodies


def applied_again(engine: sa.Engine) -> None:
    """The triggers as the changed table needs them."""
    install(load({"database": {"url": url_of(engine)}, **WATCH}, {}))


@pytest.fixture
def watched_log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_watched) as engine:
        yield engine


def last_row(engine: sa.Engine) -> tuple[int, str]:
    ((row, status),) = fetch(
        engine, "SELECT record_id, status FROM eventlog ORDER BY record_id DESC LIMIT 1"
    )
    return row, status


@pytest.mark.parametrize("change", CHANGES)
def test_a_resync_during_a_schema_change_waits_in_words_and_then_sends_the_table_as_it_is(
    watched_log: sa.Engine, change: str
) -> None:
    row, status = last_row(watched_log)
    assert status == "E"
    actions = actions_of(watched_log, **WATCH)
    with watched_log.connect() as other:
        other.execute(sa.text(CHANGES[change]))
        with refused(DatabaseError, "resync did not end within 1 s, so nothing was changed"):
            actions.run("resync", {"row": row}, "anna")
        other.commit()
    assert last_row(watched_log) == (row, "E")
    applied_again(watched_log)
    assert actions.run("resync", {"row": row}, "anna").sentence.startswith("1 row of type 5")
    (body,) = sent_once(watched_log)
    assert "j@example.org" in body
    assert ("first_name" in body) is (change == "renamed")
    assert "fname" not in body
    codes = fetch(watched_log, f"SELECT code FROM eventlog_error WHERE record_id = {row}")
    assert [code for (code,) in codes] == ["receiver", "superseded"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_requeued_row_whose_column_is_gone_is_invalid_with_a_reason_and_can_be_skipped(
    watched_log: sa.Engine, change: str
) -> None:
    row, _ = last_row(watched_log)
    actions = actions_of(watched_log, **WATCH)
    execute(watched_log, CHANGES[change])
    applied_again(watched_log)
    assert actions.run("requeue", {"rows": [row]}, "anna").sentence.startswith("1 row set back")
    assert sent_once(watched_log) == []
    assert last_row(watched_log) == (row, "E")
    reasons = f"SELECT code FROM eventlog_error WHERE record_id = {row} ORDER BY error_time"
    assert fetch(watched_log, reasons)[-1][0] not in ("receiver", "put_back")
    asked = {"rows": [row], "reason": "the column is gone"}
    assert actions.run("skip", asked, "anna").sentence == "1 refused row skipped"
