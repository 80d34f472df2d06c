"""What a consumer's own process, and the commands with its configuration, say: they speak of the consumer, and not of
the publisher's letters (spec/event-log.md 13.4; docs/consumers.md).
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
from publishers import make_log, write
from receiver import Receiver, Request, answer, reply, status
from shared import Run, execute, url_of, wait_until

Command = Callable[..., tuple[int, str, str]]
SOURCE = {"source__type": "eventlog", "source__consumer": "search", "source__begin": "snapshot"}


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


@pytest.fixture
def command(log: sa.Engine, run: Run) -> Command:
    """A command with the configuration of the consumer ``search``."""
    flags = [part for name, text in SOURCE.items() for part in ("--set", f"{name.replace('__', '.')}={text}")]
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
    with consuming(log, tmp_path, receiver, monitor__values="yes") as (_, address, ask):
        wait_until(lambda: ask("/status.json")["state"]["name"] == "resting", "the snapshot is sent")
        write(log, 3, 4)
        wait_until(lambda: metrics(address)["eventlog_rows_answered_total"] == 2, "two rows are answered")
        of_row, of_object = sorted(ask("/errors.json")["errors"], key=lambda group: str(group["example"]))
        assert (of_row["example"], of_row["command"]) == (2, "eventlog requeue --consumer search --ids 2")
        assert of_object["example"].endswith(".usr.idu=2")
        assert of_object["command"] == f"eventlog requeue --consumer search --event-id {of_object['example']}"
        assert ask("/rows/2.json")["state"].startswith("the receiver answered error: Alice is locked")
        assert ask("/rows/1.json")["state"].startswith("done")
        told = ask(f"/rows/{quote(of_object['example'], safe='')}.json")
        assert told["state"].startswith("the receiver answered error: Alice is locked")
        assert [one["message"] for one in told["answers"]] == ["Alice is locked"]
        assert "<add " in told["document"]


def test_the_keys_in_the_event_ids_of_a_snapshot_are_hidden_as_other_keys_are(
    log: sa.Engine, tmp_path: Path, receiver: Receiver
) -> None:
    execute(log, "INSERT INTO usr VALUES (2, 'b')")
    with consuming(log, tmp_path, receiver) as (_, _address, ask):
        wait_until(lambda: ask("/status.json")["state"]["name"] == "resting", "the snapshot is sent")
        assert "idu=" not in json.dumps(ask("/status.json"))
        (group,) = ask("/errors.json")["errors"]
        assert (group["rows"], group["command"]) == (1, "eventlog requeue --consumer search")
        assert "idu=" not in json.dumps(group)
