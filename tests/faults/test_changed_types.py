"""The type of a column changes under a publisher that runs: no value is sent as another one
(spec/event-log.md 5.3).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa
from publishers import Collecting, install, is_drained, publishing, write_config
from shared import execute, fetch, in_ci, statuses, url_of, wait_until

from eventlog.config.load import Config, load
from eventlog.publisher.declared import catalog_watcher

ZONE = "America/New_York"


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


class Change(NamedTuple):
    """A column's type and the next one; a value that is logged before and one that comes after, and
    what is sent.
    """

    before: str
    after: str
    logged: str
    comes: str
    sent: tuple[str, str]
    using: str = "at"


NOON = "2024-01-01 12:34:56"
CHANGES = {
    "a timestamp gets a zone": Change(
        "timestamp",
        "timestamptz",
        NOON,
        "2024-01-01 20:00:00",
        (f"{NOON}.0", "2024-01-01 20:00:00.0"),
    ),
    "a timestamp loses its zone": Change(
        "timestamptz",
        "timestamp",
        NOON,
        "2024-01-01 20:00:00",
        (f"{NOON}.0", "2024-01-01 20:00:00.0"),
    ),
    "a date gets a time": Change(
        "date", "timestamp", "2024-02-29", NOON, ("2024-02-29", f"{NOON}.0")
    ),
    "a date gets a time and a zone": Change(
        "date", "timestamptz", "2024-02-29", NOON, ("2024-02-29", f"{NOON}.0")
    ),
    "a text becomes binary": Change(
        "text", "bytea", "aGk=", r"\x6869", ("aGk=", "aGk="), "convert_to(at, 'UTF8')"
    ),
    "binary becomes a text": Change(
        "bytea", "text", r"\x6869", "ho", ("aGk=", "ho"), "convert_from(at, 'UTF8')"
    ),
}


def watched(engine: sa.Engine, directory: Path, column_type: str) -> Config:
    execute(engine, f"CREATE TABLE usr (id integer PRIMARY KEY, at {column_type})")
    options = {"polling_interval": 1, "allow_loopback": True}
    form = {"time_zone": ZONE, "xds": {"time_syntax": "java"}}
    path = write_config(
        directory, url_of(engine), ({"table": "usr"},), publisher=options, format=form
    )
    config = load(path, {})
    install(config)
    return config


def values_of(text: str) -> list[str]:
    return re.findall(r"<value[^>]*>([^<]*)</value>", text)


@pytest.mark.parametrize("case", in_ci(CHANGES, *[*CHANGES][1::2]))
def test_the_current_value_is_read_back_after_a_type_change_that_the_publisher_has_not_read_yet(
    database: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(catalog_watcher, "CATALOG_INTERVAL", 3600.0)
    change = CHANGES[case]
    config = watched(database, tmp_path, change.before)
    sink = Collecting()
    with publishing(config, sink) as running:
        execute(
            database,
            f"SET LOCAL timezone = '{ZONE}'",
            f"INSERT INTO usr VALUES (1, '{change.logged}')",
        )
        wait_until(
            lambda: len(sink.documents) == 1 and is_drained(database, running),
            "the first row is sent",
        )
        execute(
            database,
            f"SET LOCAL timezone = '{ZONE}'",
            f"ALTER TABLE usr ALTER at TYPE {change.after} USING {change.using}::{change.after}",
            f"UPDATE usr SET at = '{change.comes}'",
        )
        assert fetch(database, "SELECT event_type FROM eventlog ORDER BY record_id") == [(1,), (6,)]
        wait_until(
            lambda: len(sink.documents) == 2 and is_drained(database, running),
            "the second row is sent",
        )
    assert set(statuses(database).values()) == {"S"}
    assert values_of(sink.bodies[0])[-1] == change.sent[0]
    assert values_of(sink.bodies[1])[-1] == change.sent[1]


OLD_ROWS = {
    "without a zone, of a column that has one now": ("timestamp", "timestamptz", NOON, f"{NOON}.0"),
    "with a zone, of a column that has none now": ("timestamptz", "timestamp", NOON, f"{NOON}.0"),
    "a date, of a column that has a time now": (
        "date",
        "timestamp",
        "2024-02-29",
        "2024-02-29 00:00:00.0",
    ),
    "a number, of a column of texts": ("integer", "text", "7", "7"),
}


@pytest.mark.parametrize("case", OLD_ROWS)
def test_a_row_that_was_logged_before_the_change_is_read_by_its_own_form(
    database: sa.Engine, tmp_path: Path, case: str
) -> None:
    before, after, value, sent = OLD_ROWS[case]
    config = watched(database, tmp_path, before)
    execute(database, f"SET LOCAL timezone = '{ZONE}'", f"INSERT INTO usr VALUES (1, '{value}')")
    execute(database, f"SET LOCAL timezone = '{ZONE}'", f"ALTER TABLE usr ALTER at TYPE {after}")
    sink = Collecting()
    with publishing(config, sink) as running:
        wait_until(lambda: is_drained(database, running), "the old row is sent")
    assert statuses(database) == {1: "S"}
    assert values_of(sink.bodies[0]) == [sent]


def test_a_time_of_day_that_a_date_cannot_hold_is_refused_with_what_to_do(
    database: sa.Engine, tmp_path: Path
) -> None:
    config = watched(database, tmp_path, "timestamp")
    execute(database, f"INSERT INTO usr VALUES (1, '{NOON}')", "ALTER TABLE usr ALTER at TYPE date")
    with publishing(config, Collecting()) as running:
        wait_until(lambda: is_drained(database, running), "the old row is judged")
    assert statuses(database) == {1: "E"}
    ((code, message),) = fetch(database, "SELECT code, message FROM eventlog_error")
    assert code == "bad_value"
    assert "had a time of day. Run `eventlog resync` to send the object" in message
