"""A publisher that is watched: what its monitor says while it drains, waits, is cut off and is
killed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from cutting_proxy import cutting_proxy
from monitored import metrics, pause, read, watched, write_and_resume
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from publishers import backend, make_log, process, runs, write
from receiver import Receiver, answer, reply, status
from shared import PATIENCE, free_port, wait_until

from eventlog.publisher.monitor.openmetrics import SOURCE_LAG


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


def test_what_was_published_is_in_the_metrics_and_on_the_status(
    log: sa.Engine, tmp_path: Path
) -> None:
    pause(log)
    with watched(log, tmp_path) as (_, address, ask):
        write_and_resume(log, address, 1, 2, 3)
        wait_until(
            lambda: metrics(address)["eventlog_rows_published_total"] == 3,
            "three rows are published",
        )
        empty = "resting: the queue is empty, woken by the database"
        wait_until(
            lambda: ask("/status.json")["state"]["words"] == empty, "a look sees the queue empty"
        )
        told = ask("/status.json")
        assert (told["log"], told["sink"], told["format"], told["is_ready"]) == (
            "eventlog",
            "files",
            "xds",
            True,
        )
        assert told["counters"]["events_sent"] == 3
        assert {each["level"] for each in told["sent"]} == {"success"}
        values = metrics(address)
        assert values["eventlog_answers_total"] == 3
        assert (
            values["eventlog_send_duration_seconds_count"]
            == values["eventlog_documents_sent_total"]
        )
        assert values["eventlog_window_seconds_count"] > 0
        assert (
            0
            < values["eventlog_delivery_latency_seconds_count"]
            <= values["eventlog_documents_sent_total"]
        )
        assert 0 < values["eventlog_delivery_latency_seconds_sum"] < 60


def test_a_receiver_that_becomes_unavailable_is_reported_and_is_not_death(
    log: sa.Engine, tmp_path: Path
) -> None:
    dead = f"http://127.0.0.1:{free_port()}/xds"
    with watched(log, tmp_path, sink__type="http", sink__url=dead, retry_initial=30) as (
        _,
        address,
        ask,
    ):
        write(log, 1)
        wait_until(lambda: ask("/status.json")["state"]["name"] == "waiting", "it waits")
        state = ask("/status.json")["state"]
        assert state["words"].startswith("The receiver has not answered for ")
        assert "refused" in state["words"]
        assert 0 < state["next_try_seconds"] <= 30
        assert read(f"{address}/livez") == (200, "ok\n")
        assert ask("/status.json")["backoffs"]["receiver"] == 1
        assert metrics(address)["eventlog_in_flight_rows"] == 1


def test_what_comes_while_the_receiver_is_unavailable_is_seen_before_the_next_try(
    log: sa.Engine, tmp_path: Path
) -> None:
    dead = f"http://127.0.0.1:{free_port()}/xds"
    with watched(
        log, tmp_path, sink__type="http", sink__url=dead, retry_initial=60, retry_max=60
    ) as (_, _, ask):
        write(log, 1)
        wait_until(lambda: ask("/status.json")["state"]["name"] == "waiting", "it waits")
        write(log, 2, 3)
        wait_until(lambda: ask("/status.json")["queue_rows"] == 3, "the queue is looked at")
        assert ask("/status.json")["backoffs"]["receiver"] == 1
        assert ask("/status.json")["state"]["next_try_seconds"] > 0


def test_a_parked_object_is_shown_with_its_next_try(log: sa.Engine, tmp_path: Path) -> None:
    locked = reply(200, answer(status("retry", "1", "the mailbox is locked")))
    pause(log)
    with (
        Receiver(lambda _: locked) as receiver,
        watched(
            log,
            tmp_path,
            sink__type="http",
            sink__url=receiver.url,
            retry_initial=60,
            monitor__show_values=True,
        ) as (
            _,
            address,
            ask,
        ),
    ):
        write_and_resume(log, address, 1)
        wait_until(lambda: ask("/status.json")["parked"], "it is parked")
        (parked,) = ask("/status.json")["parked"]
        assert (parked["class"], parked["key"], parked["attempts"], parked["reason"]) == (
            "usr", "idu=1", 1, "the mailbox is locked",
        )  # fmt: skip
        assert 0 < parked["next_try_seconds"] <= 60
        (told,) = ask("/rows/1.json")["seen"]["attempts"]
        assert (told["level"], told["message"], told["delivery"], told["status"]) == (
            "retry",
            "the mailbox is locked",
            2,  # the pause before it had number 1
            "200 OK",
        )
        assert "the mailbox is locked" in told["answer"]


def test_a_database_that_cuts_the_connection_is_reported_until_it_is_back(
    log: sa.Engine, tmp_path: Path
) -> None:
    with watched(log, tmp_path) as (_, address, ask):
        with log.connect() as conn:
            conn.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": backend(log)[0]})
        wait_until(
            lambda: metrics(address)["eventlog_reconnects_total"] == 1, "it has connected again"
        )
        assert ask("/status.json")["backoffs"]["database"] >= 1
        wait_until(lambda: read(f"{address}/readyz")[0] == 200, "it is ready again")
        write(log, 1)
        wait_until(
            lambda: metrics(address)["eventlog_rows_published_total"] == 1, "it publishes again"
        )


def test_a_database_that_is_unavailable_at_the_start_is_waited_for(
    log: sa.Engine, tmp_path: Path
) -> None:
    port = free_port()
    log_url = sa.make_url(log.url)
    away = sa.create_engine(
        log_url.set(drivername="postgresql+psycopg", host="127.0.0.1", port=port, query={})
    )
    write(log, 1)
    with watched(away, tmp_path, first="/livez", stderr=PIPE, retry_initial=0.1, retry_max=0.2) as (
        running,
        address,
        ask,
    ):
        wait_until(lambda: ask("/status.json")["backoffs"]["database"] >= 3, "it tries repeatedly")
        assert read(f"{address}/livez")[0] == 200
        assert read(f"{address}/readyz")[0] == 503
        with cutting_proxy(log_url, port):
            wait_until(lambda: read(f"{address}/readyz")[0] == 200, "it is ready")
            wait_until(
                lambda: metrics(address)["eventlog_rows_published_total"] == 1, "it publishes"
            )
            running.terminate()
            _, lines = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0
    assert lines.count(b"waiting for it") == 1  # a line at once, the next after a minute
    assert b"Traceback" not in lines


def test_a_database_that_nobody_made_ends_a_daemon_at_its_start(
    log: sa.Engine, tmp_path: Path
) -> None:
    gone = sa.create_engine(sa.make_url(log.url).set(database="nobody_made_it"))
    with process(gone, tmp_path, stderr=PIPE) as running:
        _, lines = running.communicate(timeout=PATIENCE)
    assert running.returncode == 1
    assert b"create the database, or correct the URL" in lines


DEPLOY = Path(__file__).parents[2] / "deploy"
SELECTED = re.compile(r"\b(eventlog_[a-z_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|=)\s*"([^"]*)"')


def selectors() -> set[tuple[str, str]]:
    """The metrics that rules and dashboard name, each with its label matchers."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "eventlog.rules.yml").read_text())
    panels = json.loads((DEPLOY / "grafana" / "eventlog.json").read_text())["panels"]
    texts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    texts += [target["expr"] for panel in panels for target in panel["targets"]]
    return {match for text in texts for match in SELECTED.findall(text)}


def on_the_page() -> set[str]:
    """The metrics of a publisher that docs/reference/metrics.md lists."""
    return set(
        re.findall(
            r'id="metric-(\w+)"',
            (DEPLOY.parent / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8"),
        )
    )


def test_rules_dashboard_and_page_name_metrics_and_labels_that_a_scrape_has(
    log: sa.Engine, tmp_path: Path
) -> None:
    with watched(log, tmp_path) as (_, address, ask):
        write(log, 1)
        wait_until(
            lambda: metrics(address)["eventlog_rows_published_total"] == 1, "a row is published"
        )
        wait_until(
            lambda: ask("/status.json")["checked_seconds_ago"] is not None,
            "the queue has been looked at",
        )
        scrape = list(text_string_to_metric_families(read(f"{address}/metrics")[1]))
        samples = [sample for family in scrape for sample in family.samples]
    endings = {"counter": "_total", "info": "_info"}
    of_sources = {name for name, _ in SOURCE_LAG.values()}  # of a publisher that follows one
    verified = {name for name in on_the_page() if name.startswith("eventlog_verif")}  # of a target
    # Of a log that was measured for an hour.
    later = {"eventlog_log_growth_bytes_per_day", "eventlog_keep_bytes_reached_seconds"}
    assert {
        family.name + endings.get(family.type, "") for family in scrape
    } == on_the_page() - of_sources - verified - later
    named = selectors()
    assert len(named) > 20
    for name, matchers in named:
        labels = [sample.labels for sample in samples if sample.name == name]
        for label, how, value in MATCHER.findall(matchers):
            if not value.startswith("$"):  # a variable of the dashboard
                one_of = value.split("|") if how == "=~" else [value]
                assert set(one_of) <= {each[label] for each in labels}, (name, matchers)
            labels = [each for each in labels if label in each]
        assert labels, (name, matchers)


def test_when_the_publisher_is_killed_nobody_answers_and_nobody_holds_the_lock(
    log: sa.Engine, tmp_path: Path
) -> None:
    with watched(log, tmp_path) as (running, address, _):
        running.kill()
        running.wait()
        assert read(f"{address}/metrics")[0] == 0
        wait_until(lambda: not runs(log), "the lock is free")


def test_a_delivery_that_hangs_is_seen_and_the_database_can_still_be_asked(
    log: sa.Engine, tmp_path: Path
) -> None:
    with Receiver(lambda _: receiver.closing.wait() and b"") as receiver:
        options = {"sink__type": "http", "sink__url": receiver.url}
        with watched(log, tmp_path, **options) as (_, address, ask):
            write(log, 1, 2)
            wait_until(lambda: receiver.requests, "the receiver has been asked")
            wait_until(lambda: ask("/status.json")["deliveries"], "the delivery is seen")
            assert ask("/status.json")["deliveries"][0]["rows"] == 2
            row = ask("/rows/1.json")
            assert row["state"].startswith("in flight as event 1")
            assert row["row"]["table_key"] == "•••"
            assert "idu=" not in json.dumps(row)
            assert ask("/queue.json")["rows"] == [
                {"class": "usr", "status": "N", "meaning": "waits", "rows": 2}
            ]
            assert ask("/errors.json") == {
                "errors": [],
                "searched": "the newest 2,000 error rows, and the newest 10,000 rows of the log",
            }
            assert {"code", "level", "message", "command"} <= ask("/doctor.json")["findings"][
                0
            ].keys()
            code, body = read(f"{address}/rows/99.json")
            assert (code, "has no row 99" in json.loads(body)["error"]) == (404, True)
            receiver.closing.set()


def test_an_address_that_others_can_reach_is_refused_without_a_token(
    log: sa.Engine, tmp_path: Path
) -> None:
    with process(log, tmp_path, stderr=PIPE, monitor__listen="0.0.0.0:0") as running:
        _, said = running.communicate(timeout=60)
    assert running.returncode == 2
    assert "EVENTLOG_MONITOR_TOKEN" in said.decode()


def test_one_run_reports_that_a_daemon_publishes_the_log(log: sa.Engine, tmp_path: Path) -> None:
    with watched(log, tmp_path) as (_, address, _ask):
        listen = address.removeprefix("http://")
        with process(
            log, tmp_path / "other", "--once", stderr=PIPE, monitor__listen=listen
        ) as once:
            _, lines = once.communicate(timeout=60)
    assert once.returncode == 1
    assert b"is already being published" in lines
    assert b"Address already in use" not in lines
