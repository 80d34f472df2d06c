"""The log lines of a publisher: for people, for programs, and how much of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import LONG, backend, make_log, process, write
from receiver import Receiver, answer, reply, status
from shared import PATIENCE, statuses, wait_until


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


def said(log: sa.Engine, directory: Path, *first: str, **options: object) -> list[str]:
    with process(log, directory, "--once", first=first, stderr=PIPE, **options) as running:
        _, lines = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, lines.decode()
    return lines.decode().splitlines()


def test_lines_for_people_have_their_time_in_utc(log: sa.Engine, tmp_path: Path) -> None:
    write(log, 1)
    for line in said(log, tmp_path):
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARNING) ", line), line


def test_lines_for_programs_are_json_with_what_they_are_about(
    log: sa.Engine, tmp_path: Path
) -> None:
    write(log, 1)
    lines = [
        json.loads(line) for line in said(log, tmp_path, log__format="json", log__level="debug")
    ]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert {line["log"] for line in lines} == {"eventlog"}
    (delivery,) = [line for line in lines if "delivery" in line]
    assert (delivery["delivery"], delivery["level"]) == (1, "debug")
    assert "1 document ended" in delivery["message"]


def test_the_first_lines_show_what_differs_from_the_defaults_alone(
    log: sa.Engine, tmp_path: Path
) -> None:
    settings = [
        line.partition("settings ")[2]
        for line in said(log, tmp_path, "-v", batch_size=7)
        if "settings [" in line
    ]
    assert "[publisher]: batch_size = 7" in settings
    assert not any("heartbeat_interval" in line or "fold_distance" in line for line in settings)


def test_a_level_silences_what_is_below_it(log: sa.Engine, tmp_path: Path) -> None:
    write(log, 1)
    assert [line for line in said(log, tmp_path, log__level="warning") if " INFO " in line] == []


def test_twice_verbose_logs_each_statement_and_never_a_value(
    log: sa.Engine, tmp_path: Path
) -> None:
    write(log, 1)
    lines = said(log, tmp_path, "-vv")
    assert any(
        re.search(r"DEBUG 0\.\d+ s, \d+ rows: SELECT .* WHERE \"status\" = 'N'", line)
        for line in lines
    )
    assert not any("Jack" in line or "idu=1" in line for line in lines)
    assert not any(" rows: " in line for line in said(log, tmp_path, "-v"))


def test_the_line_of_a_parked_object_and_the_closing_line_say_what_is_left(
    log: sa.Engine, tmp_path: Path
) -> None:
    write(log, 1, 2)
    locked = reply(
        200, answer(status("error", "1", "no"), status("retry", "2", "the mailbox is locked"))
    )
    with Receiver(lambda _: locked) as receiver:
        options = {
            "sink__type": "http",
            "sink__url": receiver.url,
            "batch_size": 1,
            "log__format": "json",
        }
        with process(log, tmp_path, "--once", stderr=PIPE, **options) as running:
            _, lines = running.communicate(timeout=PATIENCE)
    told = [json.loads(line) for line in lines.decode().splitlines() if line.startswith("{")]
    (parked,) = [line for line in told if "parked" in line["message"] and "event_id" in line]
    assert (parked["delivery"], parked["document"], parked["event_id"]) == (1, 2, "2")
    assert "the mailbox is locked" in parked["message"]
    assert told[-1]["code"] == "receiver_unavailable"
    (closing,) = [line for line in told if "rows read:" in line["message"]]
    assert (closing["level"], closing["message"]) == (
        "warning",
        "2 rows read: 0 published, 1 refused, 1 waiting; 1 event and 1 to send again in 2 documents; "
        "1 object parked; "
        "`eventlog errors` shows the reasons; `eventlog status` shows what is parked",
    )


def test_a_lost_connection_is_a_line_with_its_code(log: sa.Engine, tmp_path: Path) -> None:
    write(log, 1)
    with process(log, tmp_path, stderr=PIPE, log__format="json", polling_interval=LONG) as running:
        assert running.stderr is not None
        wait_until(lambda: statuses(log) == {1: "S"}, "it publishes")
        with log.connect() as conn:
            conn.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": backend(log)[0]})
        while b"connecting again" not in (text := running.stderr.readline()):
            assert text
        line = json.loads(text)
        assert (line["code"], line["log"], line["level"]) == (
            "database_unavailable",
            "eventlog",
            "error",
        )


def test_a_refusal_is_a_json_line_with_its_code_too(log: sa.Engine, tmp_path: Path) -> None:
    with process(
        log, tmp_path, stderr=PIPE, log__format="json", database__log_table="nowhere"
    ) as running:
        _, lines = running.communicate(timeout=PATIENCE)
    assert running.returncode == 1
    assert json.loads(lines.decode().splitlines()[-1])["code"] == "log_table"
    assert "read;" not in lines.decode(), "nothing has begun, so nothing is summed up"
