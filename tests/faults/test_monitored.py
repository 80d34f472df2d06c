"""A publisher that is watched: what its monitor says while it drains, waits, is cut off and is killed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from publishers import LONG, backend, make_log, process, runs, write
from receiver import Receiver, answer, reply, status
from shared import wait_until

Ask = Callable[[str], Any]


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


def read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as reply_:
            return reply_.status, reply_.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


@contextmanager
def watched(log: sa.Engine, directory: Path, **options: object) -> Iterator[tuple[subprocess.Popen[bytes], str, Ask]]:
    """A publisher process with a monitor: the process, where it listens, and what gives a path's JSON."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    options = {"monitor__listen": f"127.0.0.1:{port}", "monitor__interval": 1, "polling_interval": LONG, **options}
    with process(log, directory, **options) as running:

        def ask(path: str) -> Any:
            code, body = read(address + path)
            assert code == 200, (path, code, body)
            return json.loads(body)

        wait_until(lambda: read(f"{address}/readyz")[0] == 200, "the monitor is ready")
        yield running, address, ask


def metrics(address: str) -> dict[str, float]:
    """The samples of a scrape by name; of those with more labels than log and sink the sum."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(read(f"{address}/metrics")[1]):
        for sample in family.samples:
            values[sample.name] = values.get(sample.name, 0) + sample.value
    return values


def test_what_was_published_is_in_the_metrics_and_on_the_status(log: sa.Engine, tmp_path: Path) -> None:
    with watched(log, tmp_path) as (_, address, ask):
        write(log, 1, 2, 3)
        wait_until(lambda: metrics(address)["eventlog_rows_published_total"] == 3, "three rows are published")
        wait_until(lambda: ask("/status.json")["state"]["name"] == "resting", "it rests")
        told = ask("/status.json")
        assert (told["log"], told["sink"], told["format"], told["is_ready"]) == ("eventlog", "files", "xds", True)
        assert told["state"]["words"] == "resting: the queue is empty, woken by the database"
        assert told["counters"]["events_sent"] == 3
        assert {each["level"] for each in told["sent"]} == {"success"}
        values = metrics(address)
        assert values["eventlog_answers_total"] == 3
        assert values["eventlog_envelope_seconds_count"] == values["eventlog_documents_sent_total"]
        assert values["eventlog_window_seconds_count"] > 0
        assert values["eventlog_delay_seconds_count"] == values["eventlog_documents_sent_total"]
        assert 0 < values["eventlog_delay_seconds_sum"] < 60


def test_a_receiver_that_goes_away_is_told_and_is_not_death(log: sa.Engine, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        dead = f"http://127.0.0.1:{free.getsockname()[1]}/xds"
    with watched(log, tmp_path, sink__type="http", sink__url=dead, retry_initial=30) as (_, address, ask):
        write(log, 1)
        wait_until(lambda: ask("/status.json")["state"]["name"] == "waiting", "it waits")
        state = ask("/status.json")["state"]
        assert "the receiver: " in state["words"]
        assert "refused" in state["words"]
        assert 0 < state["next_try_seconds"] <= 30
        assert read(f"{address}/livez") == (200, "ok\n")
        assert ask("/status.json")["back_offs"]["receiver"] == 1
        assert metrics(address)["eventlog_in_flight_rows"] == 1


def test_a_parked_object_is_shown_with_its_next_try(log: sa.Engine, tmp_path: Path) -> None:
    locked = reply(200, answer(status("retry", "1", "the mailbox is locked")))
    with (
        Receiver(lambda _: locked) as receiver,
        watched(log, tmp_path, sink__type="http", sink__url=receiver.url, retry_initial=30, monitor__values=True) as (
            _,
            _,
            ask,
        ),
    ):
        write(log, 1)
        wait_until(lambda: ask("/status.json")["parked"], "it is parked")
        (parked,) = ask("/status.json")["parked"]
        assert (parked["class"], parked["key"], parked["tries"], parked["reason"]) == (
            "usr", "idu=1", 1, "the mailbox is locked",
        )  # fmt: skip
        assert 0 < parked["next_try_seconds"] <= 30
        (told,) = ask("/rows/1.json")["answers"]
        assert (told["level"], told["message"], told["flight"]) == ("retry", "the mailbox is locked", 1)


def test_a_database_that_cuts_the_connection_is_told_until_it_is_back(log: sa.Engine, tmp_path: Path) -> None:
    with watched(log, tmp_path) as (_, address, ask):
        with log.connect() as conn:
            conn.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": backend(log)[0]})
        wait_until(lambda: metrics(address)["eventlog_reconnects_total"] == 1, "it has connected again")
        assert ask("/status.json")["back_offs"]["database"] >= 1
        wait_until(lambda: read(f"{address}/readyz")[0] == 200, "it is ready again")
        write(log, 1)
        wait_until(lambda: metrics(address)["eventlog_rows_published_total"] == 1, "it publishes again")


def test_when_the_publisher_is_killed_nobody_answers_and_nobody_holds_the_lock(log: sa.Engine, tmp_path: Path) -> None:
    with watched(log, tmp_path) as (running, address, _):
        running.kill()
        running.wait()
        assert read(f"{address}/metrics")[0] == 0
        wait_until(lambda: not runs(log), "the lock is free")


def test_a_flight_that_hangs_is_seen_and_the_database_can_still_be_asked(log: sa.Engine, tmp_path: Path) -> None:
    with Receiver(lambda _: receiver.closing.wait() and b"") as receiver:
        options = {"sink__type": "http", "sink__url": receiver.url}
        with watched(log, tmp_path, **options) as (_, address, ask):
            write(log, 1, 2)
            wait_until(lambda: receiver.requests, "the receiver has been asked")
            wait_until(lambda: ask("/status.json")["flights"], "the flight is seen")
            assert ask("/status.json")["flights"][0]["rows"] == 2
            row = ask("/rows/1.json")
            assert row["state"].startswith("in flight as event 1")
            assert row["row"]["table_key"] == "•••"
            assert "idu=" not in json.dumps(row)
            assert ask("/queue.json")["rows"] == [{"class": "usr", "status": "N", "meaning": "waits", "rows": 2}]
            assert ask("/errors.json") == {"errors": []}
            assert {"code", "level", "message", "command"} <= ask("/doctor.json")["findings"][0].keys()
            code, body = read(f"{address}/rows/99.json")
            assert (code, json.loads(body)["code"]) == (502, "log_table")
            receiver.closing.set()


def test_an_address_that_others_can_reach_is_refused_without_a_token(log: sa.Engine, tmp_path: Path) -> None:
    with process(log, tmp_path, monitor__listen="0.0.0.0:0") as running:
        _, said = running.communicate(timeout=60)
    assert running.returncode == 2
    assert "EVENTLOG_MONITOR_TOKEN" in said.decode()


def top(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("eventlog")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_top_shows_what_the_monitor_says(log: sa.Engine, tmp_path: Path) -> None:
    with watched(log, tmp_path) as (_, address, _):
        write(log, 1, 2)
        wait_until(lambda: metrics(address)["eventlog_rows_published_total"] == 2, "it is published")
        shown = top("top", "--url", address)
    assert shown.returncode == 0, shown.stderr
    assert "eventlog: " in shown.stdout
    assert "rows published" in shown.stdout
    assert "newest envelopes" in shown.stdout
    assert "success" in shown.stdout


def test_top_of_a_monitor_that_is_gone_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    shown = top("top", "--url", address)
    assert shown.returncode == 1
    assert "does not answer" in shown.stderr


def test_top_from_the_database_alone_shows_the_queue(log: sa.Engine, tmp_path: Path) -> None:
    write(log, 1, 2)
    shown = top("--database-url", log.url.render_as_string(hide_password=False), "top")
    assert shown.returncode == 0, shown.stderr
    assert "no publisher runs" in shown.stdout
    assert "rows in the queue   2" in shown.stdout
