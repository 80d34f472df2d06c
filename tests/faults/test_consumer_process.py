"""What a consumer's own process, and the commands with its configuration, say: they speak of the
consumer, and not of the publisher's letters (spec/event-log.md 13.4; docs/guides/consumers.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa
from monitored import metrics, watched
from publishers import make_log, session, write
from receiver import Receiver, Request, answer, reply, status
from shared import Run, execute, url_of, wait_until

Command = Callable[..., tuple[int, str, str]]
SOURCE = {
    "source__type": "eventlog",
    "source__consumer": "search",
    "source__start_from": "snapshot",
}


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


@pytest.fixture
def command(log: sa.Engine, run: Run) -> Command:
    """A command with the configuration of the consumer ``search``."""
    flags = [
        part
        for name, text in SOURCE.items()
        for part in ("--set", f"{name.replace('__', '.')}={text}")
    ]
    return lambda *arguments: run("--database-url", url_of(log), *flags, *arguments)


def refuse_twos(request: Request) -> bytes:
    """Answer error to the events of row 2, and of the object 2 of a snapshot."""
    ids = re.findall(r'event-id="(2|snapshot[^"]*idu=2)"', request.body)
    return reply(200, answer(*(status("error", one, "Alice is locked") for one in ids)))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(refuse_twos) as started:
        yield started


def consuming(
    log: sa.Engine, directory: Path, receiver: Receiver, **options: object
) -> AbstractContextManager[tuple[Any, str, Callable[[str], Any]]]:
    """The process of the consumer ``search``, which begins with a snapshot, and its monitor."""
    return watched(log, directory, **SOURCE, sink__type="http", sink__url=receiver.url, **options)


def test_the_monitor_of_a_consumer_is_about_what_was_refused_for_it(
    log: sa.Engine, tmp_path: Path, receiver: Receiver
) -> None:
    execute(log, "INSERT INTO usr VALUES (1, 'a'), (2, 'b')")
    with consuming(log, tmp_path, receiver, monitor__show_values="yes") as (_, address, ask):
        wait_until(
            lambda: ask("/status.json")["state"]["name"] == "resting", "the snapshot is sent"
        )
        write(log, 3, 4)
        wait_until(
            lambda: metrics(address)["eventlog_rows_answered_total"] == 2, "two rows are answered"
        )
        of_row, of_object = sorted(
            ask("/errors.json")["errors"], key=lambda group: str(group["example"])
        )
        assert (of_row["example"], of_row["commands"]) == (
            2,
            ["eventlog requeue --consumer search --ids 2"],
        )
        assert of_object["example"].endswith(".usr.idu=2")
        assert of_object["commands"] == [
            f"eventlog requeue --consumer search --event-id {of_object['example']}"
        ]
        assert ask("/rows/2.json")["state"].startswith(
            "the receiver answered error: Alice is locked"
        )
        assert ask("/rows/1.json")["state"].startswith("done")
        told = ask(f"/rows/{quote(of_object['example'], safe='')}.json")
        assert told["state"].startswith("the receiver answered error: Alice is locked")
        assert [one["message"] for one in told["seen"]["attempts"]] == ["Alice is locked"]
        assert "<add " in told["document"]


def test_the_keys_in_the_event_ids_of_a_snapshot_are_hidden_as_other_keys_are(
    log: sa.Engine, tmp_path: Path, receiver: Receiver
) -> None:
    execute(log, "INSERT INTO usr VALUES (2, 'b')")
    with consuming(log, tmp_path, receiver) as (_, _address, ask):
        wait_until(
            lambda: ask("/status.json")["state"]["name"] == "resting", "the snapshot is sent"
        )
        assert "idu=" not in json.dumps(ask("/status.json"))
        (group,) = ask("/errors.json")["errors"]
        assert (group["rows"], group["commands"]) == (1, ["eventlog requeue --consumer search"])
        assert "idu=" not in json.dumps(group)


def test_status_is_about_the_consumer_that_the_configuration_names(
    log: sa.Engine, tmp_path: Path, receiver: Receiver, command: Command
) -> None:
    write(log, 1)
    assert "consumer search: the consumer is not registered yet" in command("status")[1]
    with consuming(log, tmp_path, receiver) as (_, _address, ask):
        wait_until(lambda: ask("/status.json")["state"]["name"] == "resting", "it rests")
        assert "consumer search: it runs" in command("status")[1].splitlines()[0]
    wait_until(lambda: "it does not run" in command("status")[1], "its session is gone")
    write(log, 3, 4)
    said = command("status")[1]
    assert "consumer search does not run: 2 rows behind" in said
    assert "new: to be published" not in said
    told = json.loads(command("status", "--json")[1])
    assert (told["queue_rows"], told["publisher_runs"], told["rows"]) == (2, False, None)
    shown = command("top", "--database")[1]
    assert "it does not run" in shown


def test_doctor_is_about_the_consumer_that_the_configuration_names(
    log: sa.Engine, tmp_path: Path, receiver: Receiver, command: Command
) -> None:
    assert "consumer search is not registered yet" in command("doctor")[1]
    with consuming(log, tmp_path, receiver) as (_, _address, ask):
        wait_until(lambda: ask("/status.json")["state"]["name"] == "resting", "it rests")
        codes = {one["code"] for one in ask("/doctor.json")["findings"]}
        assert "no_publisher" not in codes
    execute(log, "UPDATE eventlog SET status = 'S'")
    write(log, 7)
    execute(
        log,
        "INSERT INTO eventlog (event_type, table_name, table_key, status) VALUES (9, 'usr', "
        "'idu=1', 'S')",
    )
    wait_until(lambda: "it does not run" in command("status")[1], "its session is gone")
    said = command("doctor")[1]
    assert "consumer search has 2 rows to do and is not running" in said
    assert "1 row that consumer search has to process is invalid (bad_event_type)" in said


def test_doctor_grants_a_consumer_what_it_needs_and_no_right_to_change_the_log(
    log: sa.Engine, command: Command
) -> None:
    user = f"reader_{log.url.database}"
    execute(log, f"CREATE ROLE {user} LOGIN", f"GRANT SELECT ON usr TO {user}")
    try:
        url = log.url.set(username=user).render_as_string(hide_password=False)
        _, said, _ = command("--database-url", url, "doctor", "--json")
        (finding,) = (
            one for one in json.loads(said)["findings"] if one["code"] == "rights_publish"
        )
        assert not [line for line in finding["fix"] if "UPDATE (" in line]
        execute(log, *(line for line in finding["fix"] if line.startswith("GRANT ")))
        _, said, _ = command("--database-url", url, "doctor", "--json")
        assert "rights_publish" not in {one["code"] for one in json.loads(said)["findings"]}
        # Of tables outside its classes it reads nothing.
        execute(log, "CREATE TABLE other (id integer PRIMARY KEY, name text)")
        flags = ("--database-url", url, "--set", "source.classes=usr")
        assert "may not read other" not in command(*flags, "doctor")[1]
        assert "may not read other" in command("--database-url", url, "doctor")[1]
    finally:
        execute(log, f"DROP OWNED BY {user}", f"DROP ROLE {user}")


def test_who_keeps_gaps_in_the_set_is_named_with_its_age(
    log: sa.Engine, tmp_path: Path, receiver: Receiver, command: Command
) -> None:
    late = "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (5, 'usr', 'idu=9')"
    with session(log) as open_session:
        open_session.execute(late)
        write(log, 3)
        with consuming(log, tmp_path, receiver) as (_, address, ask):
            write(log, 4)
            wait_until(
                lambda: metrics(address)["eventlog_rows_answered_total"] > 0,
                "what lies behind is sent",
            )
            wait_until(
                lambda: ask("/status.json")["oldest_open_transaction"], "the page names the writer"
            )
            told = ask("/status.json")
            assert (told["ranges"], "(writer)" in told["oldest_open_transaction"]) == (1, True)
            assert metrics(address)["eventlog_consumer_ranges"] == 1
            assert metrics(address)["eventlog_oldest_open_transaction_age_seconds"] > 0
            assert (
                f"{told['oldest_open_transaction']} has had a transaction open for"
                in command("status")[1]
            )
        open_session.rollback()
