"""The numbers of the monitor against the database and the receiver's own record, and whose words it
does not tell.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import sqlalchemy as sa
from monitored import metrics, read, wake, watched
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from publishers import make_log, write
from receiver import Receiver, Request, reply
from shared import execute, fetch, in_ci, statuses, wait_until
from test_terminal import run

OK = reply(204)
WORDS = b'{"error": "Jack Miller, idu=2, is locked"}'
HTTP = {"sink__type": "http", "sink__response_format": "status"}


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


def refusing(*culprits: int) -> Callable[[Request], bytes]:
    names = set(map(str, culprits))
    return lambda sent: (
        reply(422, WORDS) if names & set(re.findall('event-id="([^"]*)"', sent.body)) else OK
    )


def answered(address: str) -> dict[str, float]:
    """Rows by their answer, as a scrape has them."""
    families = text_string_to_metric_families(read(f"{address}/metrics")[1])
    samples = [sample for family in families for sample in family.samples]
    return {
        one.labels["level"]: one.value
        for one in samples
        if one.name == "eventlog_rows_answered_total"
    }


def by_status(log: sa.Engine) -> dict[str, int]:
    return dict(fetch(log, "SELECT trim(status), count(*) FROM eventlog GROUP BY 1"))


def test_rows_documents_and_events_are_those_of_database_and_receiver(
    log: sa.Engine, tmp_path: Path
) -> None:
    with (
        Receiver(refusing(2, 77, 100)) as receiver,
        watched(log, tmp_path, **HTTP, sink__url=receiver.url) as (_, address, ask),
    ):
        write(log, *range(1, 129))
        wait_until(lambda: by_status(log) == {"S": 125, "E": 3}, "all are answered")
        wait_until(lambda: ask("/status.json")["state"]["name"] == "resting", "it rests")
        values, told = metrics(address), ask("/status.json")["counters"]
        assert answered(address) == {"success": 125, "warning": 0, "error": 3, "fatal": 0}
        assert (told["rows_success"], told["rows_error"], told["rows_published"]) == (125, 3, 125)
        assert values["eventlog_rows_published_total"] == 125
        assert values["eventlog_documents_sent_total"] == len(receiver.requests) > 20
        assert values["eventlog_answers_total"] == values["eventlog_events_sent_total"] == 128


def test_rows_that_are_put_back_are_counted_once_as_such(log: sa.Engine, tmp_path: Path) -> None:
    with (
        Receiver(refusing(2, 3)) as receiver,
        watched(log, tmp_path, **HTTP, sink__url=receiver.url) as (_, address, _),
    ):
        write(log, 1, 2, 3)
        wait_until(lambda: by_status(log) == {"S": 1, "E": 2}, "two are refused")
        assert metrics(address)["eventlog_rows_requeued_total"] == 0
        receiver.script = lambda _: OK
        shown = run("--database-url", log.url.render_as_string(hide_password=False), "requeue")
        assert shown.returncode == 0, shown.stderr
        write(log, 4)
        wake(log)
        wait_until(lambda: by_status(log) == {"S": 4}, "all are taken")
        values = metrics(address)
        assert answered(address) == {"success": 4, "warning": 0, "error": 2, "fatal": 0}
        assert values["eventlog_rows_requeued_total"] == 2
        distinct = sum(answered(address).values()) - values["eventlog_rows_requeued_total"]
        assert distinct == len(statuses(log))


def test_a_delivery_is_as_old_as_its_first_try(log: sa.Engine, tmp_path: Path) -> None:
    with (
        Receiver(lambda _: reply(500)) as receiver,
        watched(
            log, tmp_path, **HTTP, sink__url=receiver.url, retry_initial=0.2, retry_max=0.2
        ) as (_, address, ask),
    ):
        written = time.monotonic()
        write(log, 1, 2)
        wait_until(lambda: receiver.requests, "the first try")
        begun = time.monotonic()
        wait_until(lambda: len(receiver.requests) > 12, "more tries")
        least, asked = time.monotonic() - begun, time.monotonic()
        (delivery,) = ask("/status.json")["deliveries"]
        told = metrics(address)["eventlog_oldest_delivery_age_seconds"]
        (recorded,) = fetch(
            log,
            "SELECT extract(epoch FROM clock_timestamp() AT TIME ZONE 'UTC' - started) FROM "
            "eventlog_inflight",
        )
        now = time.monotonic()
        for seconds in (delivery["seconds"], told):
            assert least - 2 < seconds < now - written + 1
        assert -1 < float(recorded[0]) - told < now - asked + 2


def test_a_delivery_of_before_the_start_is_as_old_as_its_line(
    log: sa.Engine, tmp_path: Path
) -> None:
    options = {**HTTP, "retry_initial": 30}
    with Receiver(lambda _: reply(500)) as receiver:
        with watched(log, tmp_path, **options, sink__url=receiver.url):
            write(log, 1)
            wait_until(lambda: receiver.requests, "it is in flight")
        execute(log, "UPDATE eventlog_inflight SET started = started - interval '1 hour'")
        with watched(log, tmp_path, **options, sink__url=receiver.url) as (_, address, _):
            wait_until(
                lambda: metrics(address).get("eventlog_oldest_delivery_age_seconds", 0) > 3500,
                "it is an hour old",
            )
            assert metrics(address)["eventlog_oldest_delivery_age_seconds"] < 3700


def test_publisher_runs_is_true_while_it_holds_the_lock(log: sa.Engine, tmp_path: Path) -> None:
    with watched(log, tmp_path) as (_, _, ask):
        assert ask("/status.json")["publisher_runs"] is True
        assert ask("/status.json")["is_ready"] is True


def test_the_newest_rows_say_how_many_they_are(log: sa.Engine, tmp_path: Path) -> None:
    with watched(log, tmp_path) as (_, _, ask):
        write(log, 1, 2, 3)
        wait_until(lambda: by_status(log) == {"S": 3}, "all are done")
        told = ask("/queue.json")
        assert (told["newest"], told["most"]) == (3, 10_000)
        assert told["rows"] == [{"class": "usr", "status": "S", "meaning": "success", "rows": 3}]


# --- whose words are not told ---------------------------------------------------------------------


@pytest.mark.parametrize("code", in_ci([500, 503, 422], 503, 422))
def test_without_values_no_word_of_the_receiver_is_reported_anywhere(
    log: sa.Engine, tmp_path: Path, code: int
) -> None:
    with (
        Receiver(lambda _: reply(code, WORDS)) as receiver,
        watched(log, tmp_path, **HTTP, sink__url=receiver.url, retry_initial=30) as (
            _,
            address,
            ask,
        ),
    ):
        write(log, 1, 2)
        wait_until(
            lambda: (
                ask("/status.json")["state"]["name"] == ("resting" if code == 422 else "waiting")
            )
        )
        wait_until(lambda: ask("/status.json")["sent"] or code == 500, "the document is reported")
        state = ask("/status.json")["state"]
        if code != 422:
            assert state["words"].startswith(f"The receiver answers {code} ")
            assert f"the receiver answers {code}" in state["reason"]
        told = [
            read(address + path)[1]
            for path in ("/status.json", "/errors.json", "/rows/2.json", "/metrics")
        ]
        shown = [
            run("top", "--url", address).stdout,
            run("tail", "--url", address, "--no-follow").stdout,
        ]
        for text in told + shown:
            assert "Jack" not in text
            assert "locked" not in text


def test_with_values_the_receivers_words_are_reported(log: sa.Engine, tmp_path: Path) -> None:
    with (
        Receiver(lambda _: reply(503, WORDS)) as receiver,
        watched(
            log,
            tmp_path,
            **HTTP,
            sink__url=receiver.url,
            retry_initial=30,
            monitor__show_values=True,
        ) as (_, _, ask),
    ):
        write(log, 1)
        wait_until(lambda: ask("/status.json")["state"]["name"] == "waiting", "it waits")
        told = ask("/status.json")
        assert "Jack Miller" in told["state"]["reason"]
        assert "Jack Miller" in told["health"]["conditions"][0]["details"]


def test_the_log_of_halves_holds_the_status_and_no_word_of_the_receiver(
    log: sa.Engine, tmp_path: Path
) -> None:
    with (
        Receiver(refusing(2)) as receiver,
        watched(log, tmp_path, **HTTP, stderr=PIPE, sink__url=receiver.url) as (running, _, _),
    ):
        write(log, 1, 2, 3, 4)
        wait_until(lambda: by_status(log) == {"S": 3, "E": 1}, "the culprit is found")
        running.terminate()
        lines = running.communicate(timeout=60)[1].decode().splitlines()
    (halves,) = [line for line in lines if "in halves" in line]
    # The receiver's words for 422 are those of its Python: Entity, or Content from 3.13 on.
    said = f"422 {HTTPStatus(422).phrase}"
    assert halves.endswith(f"document 1 is sent in halves: the receiver answers {said}")


# --- what may be asked ----------------------------------------------------------------------------


def test_what_is_no_record_id_is_refused_in_words(log: sa.Engine, tmp_path: Path) -> None:
    with watched(log, tmp_path) as (_, address, _):
        for name in ("9" * 5000, "x", "1e3", "-1", "%E2%80%A8", "9" * 19):
            code, body = read(f"{address}/rows/{name}.json")
            assert code == 400, name
            assert "record_id" in json.loads(body)["error"]
