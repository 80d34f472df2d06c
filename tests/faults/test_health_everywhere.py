"""The health of a publisher is the same on every place that shows it (spec/event-log.md 11.2)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from monitored import Ask, pause, read, watched, write_and_resume
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from publishers import make_log, write, write_config
from receiver import Receiver, answer, reply, status
from shared import Run, execute, free_port, url_of, wait_until

TWO_REFUSED = "2 rows refused by the receiver"


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


def conditions(address: str) -> dict[str, str]:
    """The conditions that hold by a scrape, each with its severity."""
    families = text_string_to_metric_families(read(f"{address}/metrics")[1])
    samples = [sample for family in families for sample in family.samples]
    return {
        one.labels["condition"]: one.labels["severity"]
        for one in samples
        if one.name == "eventlog_condition" and one.value
    }


def sentences(health: dict[str, Any]) -> list[str]:
    return [one["text"] for one in health["conditions"]]


def shows(ask: Ask, *texts: str) -> None:
    wait_until(lambda: sentences(ask("/status.json")["health"]) == [*texts], f"{texts}")


def test_refused_rows_are_shown_in_the_same_words_everywhere(
    log: sa.Engine, tmp_path: Path, run: Run
) -> None:
    refused = reply(200, answer(status("error", "1", "no"), status("error", "2", "no")))
    with Receiver(lambda _: refused) as receiver:
        http = {"sink__type": "http", "sink__url": receiver.url}
        with watched(log, tmp_path, **http) as (_, address, ask):
            shows(ask)
            pause(log)
            write_and_resume(log, address, 1, 2)
            shows(ask, TWO_REFUSED)
            assert read(f"{address}/readyz") == (200, f"ready\nwarning: {TWO_REFUSED}\n")
            assert conditions(address) == {"refused_rows": "warning"}
            assert TWO_REFUSED in run("top", "--url", address)[1]
            database = ("--database-url", url_of(log))
            told = json.loads(run(*database, "status", "--json")[1])["health"]
            assert told == ask("/status.json")["health"]
            assert f"health: warning: {TWO_REFUSED}" in run(*database, "status")[1]
            assert TWO_REFUSED in run(*database, "top", "--database")[1]
            receiver.script = lambda _: reply(200, answer())
            pause(log)
            run(*database, "requeue", "--ids", "2")
            write_and_resume(log, address)
            shows(ask, "1 row refused by the receiver")


def test_tables_that_nobody_captures_are_an_error_everywhere(
    database: sa.Engine, empty_home: Path, run: Run
) -> None:
    execute(database, "CREATE TABLE usr (id integer PRIMARY KEY, name text)")
    settings = {"publisher": {"allow_loopback": True}}
    path = write_config(empty_home, url_of(database), ({"tables": ["*"]},), **settings)
    assert run("--config", str(path), "db", "upgrade")[0] == 0
    words = "1 table not captured as declared: changes are not logged (public.usr)"
    with watched(database, empty_home, arguments=("--config", str(path))) as (_, address, ask):
        shows(ask, words)
        assert read(f"{address}/readyz") == (200, f"ready\nerror: {words}\n")
        assert conditions(address) == {"uncaptured_tables": "error"}
        assert f"health: error: {words}" in run("--config", str(path), "status")[1]
        shown = run("--config", str(path), "top", "--database")[1]
        assert words in " ".join(shown.split())


def test_a_consumer_that_does_not_move_is_shown_by_the_publishers_monitor(
    log: sa.Engine, tmp_path: Path, run: Run
) -> None:
    of_consumer = ("source.type=eventlog", "source.consumer=search", "source.start_from=latest")
    sets = [part for one in (*of_consumer, "sink.type=stdout") for part in ("--set", one)]
    assert run("--database-url", url_of(log), *sets, "publish", "--once")[0] == 0
    execute(
        log,
        "UPDATE eventlog_consumer SET begun = begun - interval '1 hour'",
        "UPDATE eventlog_inflight SET started = started - interval '1 hour'",
    )
    write(log, 1, 2)
    with watched(log, tmp_path) as (_, _, ask):
        words = "consumer search does not run and has not moved for 60 minutes: 2 rows to do"
        shows(ask, words)
        (consumer,) = ask("/status.json")["consumers"]
        assert (consumer["name"], consumer["rows_behind"]) == ("search", 2)


REFUSED_TOKEN = "The receiver answers 401 Unauthorized for"


@contextmanager
def refused_token(log: sa.Engine, directory: Path, **options: object) -> Iterator[tuple[str, Ask]]:
    """A publisher whose receiver refuses its token, and that waits."""
    with Receiver(lambda _: reply(401, b"Jack may not")) as receiver:
        http = {"sink__type": "http", "sink__url": receiver.url, "retry_initial": 60}
        with watched(log, directory, retry_max=60, **http, **options) as (_, address, ask):
            write(log, 1)
            wait_until(lambda: ask("/status.json")["state"]["name"] == "waiting", "it waits")
            yield address, ask


def test_what_is_wrong_here_is_shown_everywhere_and_status_asks_the_monitor(
    log: sa.Engine, tmp_path: Path, run: Run
) -> None:
    with refused_token(log, tmp_path) as (address, ask):
        (condition,) = ask("/status.json")["health"]["conditions"]
        assert condition["name"] == "receiver_misconfigured"
        assert condition["text"].startswith(REFUSED_TOKEN)
        assert "EVENTLOG_SINK_TOKEN" in condition["action"]
        assert "Jack" not in json.dumps(condition)
        assert conditions(address) == {"receiver_misconfigured": "warning"}
        assert REFUSED_TOKEN in run("top", "--url", address)[1]
        monitor = ("--database-url", url_of(log), "--set", f"monitor.listen={address[7:]}")
        assert f"health: warning: {REFUSED_TOKEN}" in run(*monitor, "status")[1]
        told = json.loads(run(*monitor, "status", "--json")[1])
        assert told["process"] == {"asked": f"{address}/", "problem": ""}


def test_status_reads_the_health_file_where_there_is_no_monitor(
    log: sa.Engine, tmp_path: Path, run: Run
) -> None:
    file = tmp_path / "health"
    asked = ("--database-url", url_of(log), "--set", f"publisher.health_file={file}", "status")
    with refused_token(log, tmp_path, health_file=file):
        wait_until(lambda: REFUSED_TOKEN in run(*asked)[1], "it is in the file")
        told = json.loads(run(*asked, "--json")[1])
        assert told["process"] == {"asked": str(file), "problem": ""}
        names = [one["name"] for one in told["health"]["conditions"]]
        assert names == ["receiver_misconfigured"]


def test_status_names_what_only_the_process_can_show_if_it_cannot_be_asked(
    log: sa.Engine, tmp_path: Path, run: Run
) -> None:
    database = ("--database-url", url_of(log))
    with refused_token(log, tmp_path):
        shown = run(*database, "status")[1]
        assert "health: ok, by the database alone" in shown
        assert "only the process can show process_hangs, " in shown
        assert "neither monitor.listen nor publisher.health_file is set" in shown
        nobody = f"monitor.listen=127.0.0.1:{free_port()}"
        assert "does not answer" in run(*database, "--set", nobody, "status")[1]
    assert "only the process can show" not in run(*database, "status")[1], "no process runs"


def test_where_no_publisher_runs_the_database_alone_shows_it(log: sa.Engine, run: Run) -> None:
    database = ("--database-url", url_of(log))
    assert "health: warning: no publisher runs" in run(*database, "status")[1]
    write(log, 1)
    execute(log, "UPDATE eventlog SET event_time = event_time - interval '11 minutes'")
    told = json.loads(run(*database, "status", "--json")[1])["health"]
    assert told["severity"] == "error"
    assert [one["name"] for one in told["conditions"]] == ["no_progress", "no_publisher"]
