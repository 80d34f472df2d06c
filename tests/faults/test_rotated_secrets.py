"""Secrets in files that are rotated while a publisher runs: they are taken up without a restart."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from monitored import metrics, watched
from publishers import Inbox, backend, configuration, make_log, publishing, write
from receiver import Receiver, Request, reply
from shared import PlainSink, execute, fetch, wait_until

from eventlog.config.load import connection_url, load, with_current_secrets
from eventlog.errors import DatabaseUnavailable
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.context.observer import Observer, WaitFor
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish
from eventlog.publisher.run.waiting import StopRequest

HTTP = {"sink__type": "http", "sink__response_format": "status"}
PUBLISHER = """DROP ROLE IF EXISTS rotated;
CREATE ROLE rotated LOGIN SUPERUSER"""


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


def put(file: Path, text: str) -> None:
    """As orchestrators do it: the new file appears whole in place of the old one."""
    new = file.with_name("new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


def by_status(log: sa.Engine) -> dict[str, int]:
    return dict(fetch(log, "SELECT trim(status), count(*) FROM eventlog GROUP BY 1"))


def test_a_password_is_read_again_out_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old\n", encoding="utf-8")
    environ = {
        "EVENTLOG_DATABASE_PASSWORD_FILE": str(file),
        "EVENTLOG_DATABASE_URL": "postgresql://u@h/d",
    }
    config = load(None, environ)
    assert connection_url(config.database).password == "old"
    put(file, "new\n")
    assert connection_url(with_current_secrets(config).database).password == "new"
    assert with_current_secrets(config, "sink").database.password == "old"


def test_a_secret_that_cannot_be_read_now_stays_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text("old", encoding="utf-8")
    environ = {"EVENTLOG_SINK_TYPE": "http", "EVENTLOG_SINK_URL": "https://receiver/"}
    config = load(None, {**environ, "EVENTLOG_SINK_TOKEN_FILE": str(file)})
    for spoil in (lambda: file.write_text("", encoding="utf-8"), file.unlink):
        spoil()
        assert with_current_secrets(config).sink.options.token == "old"
        assert "sink.token, read again" in caplog.records[-1].getMessage()


def test_a_flag_or_variable_beats_the_file_of_the_url_at_every_connect(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://a@h/d", encoding="utf-8")
    given = load(
        {"database": {"url_file": str(file)}}, {}, {"database.url": "postgresql://flag@h/d"}
    )
    assert connection_url(with_current_secrets(given).database).username == "flag"


def test_a_publisher_connects_again_with_the_url_that_its_file_holds_now(
    log: sa.Engine, tmp_path: Path
) -> None:
    execute(log, PUBLISHER)
    file = tmp_path / "url"
    file.write_text(log.url.render_as_string(hide_password=False), encoding="utf-8")
    config, inbox = load({"database": {"url_file": str(file)}}, {}), Inbox()
    with publishing(config, inbox):
        write(log, 1)
        assert inbox.take() == [1]
        put(file, log.url.set(username="rotated").render_as_string(hide_password=False))
        execute(log, f"SELECT pg_terminate_backend({backend(log)[0]})")
        write(log, 2)
        while inbox.take() != [2]:
            pass  # the first comes again where the session ended before its row was marked
        ((user,),) = fetch(
            log, f"SELECT usename FROM pg_stat_activity WHERE pid = {backend(log)[0]}"
        )
        assert user == "rotated"


@pytest.mark.parametrize("how", ["token", "header"])
def test_a_receivers_token_is_taken_up_with_the_next_document(
    log: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    file, expected = tmp_path / "token", ["first"]
    file.write_text("first", encoding="utf-8")
    options: dict[str, object] = {}
    if how == "token":
        monkeypatch.setitem(os.environ, "EVENTLOG_SINK_TOKEN_FILE", str(file))
    else:
        options["sink__secret_headers"] = f"X-Api-Key: file:{file}"

    def check(sent: Request) -> bytes:
        came = sent.headers["Authorization" if how == "token" else "X-Api-Key"] or ""
        return reply(204) if came.removeprefix("Bearer ") == expected[0] else reply(401)

    with (
        Receiver(check) as receiver,
        watched(log, tmp_path, **HTTP, **options, sink__url=receiver.url, retry_initial=0.2) as (
            _,
            address,
            ask,
        ),
    ):
        write(log, 1)
        wait_until(lambda: by_status(log) == {"S": 1}, "it is taken")
        expected[0] = "second"
        write(log, 2)
        wait_until(
            lambda: ask("/status.json")["state"]["name"] == "waiting", "the old one is refused"
        )
        put(file, "second")
        wait_until(lambda: by_status(log) == {"S": 2}, "the new one is taken")
        put(file, "third")
        expected[0] = "third"
        write(log, 3)
        wait_until(lambda: by_status(log) == {"S": 3}, "the next one too")
        assert metrics(address)["eventlog_backoffs_total"] >= 1


def test_retry_max_bounds_the_pauses_before_the_database_is_tried_again(log: sa.Engine) -> None:
    config, stop, pauses = configuration(log), StopRequest(), list[float]()
    is_there = True

    @contextmanager
    def opens() -> Iterator[Context]:
        nonlocal is_there
        if not is_there:
            raise DatabaseUnavailable("gone")
        with open_context(config, Counters()) as context:
            yield context
        is_there = False

    class Pauses(Observer):
        def connected(self, *, again: bool) -> None:
            execute(log, f"SELECT pg_terminate_backend({backend(log)[0]})")

        def waits(
            self, who: WaitFor, reason: str, until: float, in_short: str = "", advice: str = ""
        ) -> None:
            nonlocal is_there
            is_there = False
            pauses.append(until - time.monotonic())
            if len(pauses) == 8:
                stop.set()

    publish(opens, PlainSink, stop, observer=Pauses(), retry=(0.01, 0.05))
    assert len(pauses) == 8
    assert max(pauses) <= 0.05
    stop.close()
