"""A database that is not UTF-8 may have texts that cannot be converted to UTF-8: their rows are invalid,
and every other row is published (spec/event-log.md 5.6).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import Collecting, install, opened, write_config
from shared import Run, execute, fetch, in_ci, statuses, url_of

from eventlog.changes.format import Report
from eventlog.config.load import Config, load
from eventlog.model import Answer, Change, ChangeOp, EventResult, EventType, Level
from eventlog.publisher.run.daemon import publish_once
from eventlog.registry import format_named
from eventlog.sql.dialects.postgresql import unreadable
from eventlog.sql.port.log_operations import Selection

TABLES = (
    "CREATE TABLE usr (k text PRIMARY KEY, v text)",
    "CREATE TABLE usr_tag (k text REFERENCES usr, tag text, PRIMARY KEY (k, tag))",
)
ENCODINGS = {
    "WIN1252": ("81", "fc", "ü"),
    "SQL_ASCII": ("fc", "c3bc", "ü"),
    "EUC_JP": ("f5a1", "b0a1", "亜"),
}
"""By encoding, the bytes of no character, and the bytes of a character."""


class Foreign:
    """A database of an encoding, with texts in it that cannot be converted (``bad``) and that can."""

    def __init__(self, engine: sa.Engine, encoding: str, directory: Path) -> None:
        self.engine, self.directory = engine, directory
        bad, good, self.character = ENCODINGS[encoding]
        self.bad, self.good = (
            f"convert_from('\\x{one}', getdatabaseencoding())" for one in (bad, good)
        )
        if encoding == "EUC_JP":  # not of the encoding, so that only a cast makes such a text
            self.bad = f"convert_from('\\x{bad}', 'SQL_ASCII')"
        execute(engine, *TABLES)

    def config(
        self,
        *,
        publisher: dict[str, Any] | None = None,
        source: dict[str, Any] | None = None,
        **watch: Any,
    ) -> Config:
        path = write_config(
            self.directory, url_of(self.engine), [{"table": "usr", **watch}],
            publisher={"allow_loopback": True, **(publisher or {})}, format={"type": "cloudevents"},
            **({} if source is None else {"source": source}),
        )  # fmt: skip
        return load(path, {})

    def installed(self, **watch: Any) -> Config:
        config = self.config(**watch)
        install(config)
        return config

    def add(self, *rows: tuple[str, str]) -> None:
        execute(self.engine, *(f"INSERT INTO usr VALUES ({key}, {value})" for key, value in rows))


@pytest.fixture(params=[*ENCODINGS])
def foreign(new_database: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Foreign]:
    with new_database(encoding=request.param) as engine:
        yield Foreign(engine, request.param, tmp_path)


@pytest.fixture
def western(new_database: Any, tmp_path: Path) -> Iterator[Foreign]:
    with new_database(encoding="WIN1252") as engine:
        yield Foreign(engine, "WIN1252", tmp_path)


def published(config: Config, **answer: Any) -> list[dict[str, Any]]:
    """The data of the events of one run."""
    sink = Collecting(**answer)
    with opened(config) as context:
        publish_once(context, sink)
    return [json.loads(line)["data"] for body in sink.bodies for line in body.splitlines()]


def new_values(events: list[dict[str, Any]]) -> dict[str, Any]:
    return {event["key"]["k"]: event["columns"]["v"]["new"] for event in events}


def test_only_the_row_with_a_text_that_cannot_be_converted_is_invalid(foreign: Foreign) -> None:
    config = foreign.installed()
    foreign.add(
        ("'a'", foreign.good), ("'b'", foreign.bad), (foreign.bad, "'x'"), (foreign.good, "'y'")
    )
    assert new_values(published(config)) == {"a": foreign.character, foreign.character: "y"}
    assert statuses(foreign.engine) == {1: "S", 2: "E", 3: "E", 4: "S"}
    errors = fetch(foreign.engine, "SELECT record_id, code, message FROM eventlog_error ORDER BY 1")
    assert [(row, code) for row, code, _ in errors] == [(2, "bad_value"), (3, "bad_value")]
    assert all("is no character of the database's encoding" in message for *_, message in errors)


def test_a_scan_by_time_passes_over_such_a_row_too(western: Foreign) -> None:
    western.installed()
    western.add(("'a'", western.good), ("'b'", western.bad), ("'c'", "'c'"))
    due = western.config(publisher={"handle_future_events": True, "query_limit": 2})
    assert new_values(published(due)) == {"a": "ü", "c": "c"}
    assert statuses(western.engine) == {1: "S", 2: "E", 3: "S"}


def test_the_name_of_a_user_makes_no_row_invalid(western: Foreign) -> None:
    config = western.installed()
    columns = "event_type, table_name, table_key, column_name, new_value, perpetrator"
    values = f"1, 'usr', 'k=a', 'v', 'x', 'j' || {western.bad}"
    execute(western.engine, f"INSERT INTO eventlog ({columns}) VALUES ({values})")
    (event,) = published(config)
    assert event["user"] == "j\N{REPLACEMENT CHARACTER}"
    assert statuses(western.engine) == {1: "S"}


def test_the_user_of_a_converted_change_is_stored_as_far_as_the_encoding_has_its_characters(
    western: Foreign,
) -> None:
    western.installed()
    change = Change(
        "public", "usr", ChangeOp.INSERT, key=(("k", "a"),), after={"k": "a", "v": "x"}, user="ü 列"
    )
    format = format_named("eventlog")
    format.write(iter([change]), url_of(western.engine), {}, Report(strict=True))
    assert fetch(western.engine, "SELECT DISTINCT perpetrator FROM eventlog") == [("ü \\u5217",)]


def test_a_window_takes_three_statements(western: Foreign) -> None:
    config = western.installed()
    western.add(*((f"'{key}'", western.bad if key % 7 == 0 else "'x'") for key in range(100)))
    sent: list[str] = []
    with opened(config) as context:
        driver = unreadable.driver_of(context.log.connection)
        run = driver.cursor_factory.execute

        class Cursor(driver.cursor_factory):  # type: ignore[misc, name-defined]
            def execute(self, query: Any, *arguments: Any, **named: Any) -> Any:
                sent.append(str(query))
                return run(self, query, *arguments, **named)

        driver.cursor_factory = Cursor
        publish_once(context, Collecting())
    values = [query for query in sent if '"new_value"' in query and "SELECT" in query]
    assert len(values) <= 3 + 1, values  # the last one finds the queue empty
    assert sorted(statuses(western.engine).values()).count("E") == 15


@pytest.mark.parametrize("codec", in_ci([None, "latin-1"], None))
def test_without_the_servers_codec_the_rows_are_found_by_halves(
    western: Foreign, monkeypatch: pytest.MonkeyPatch, codec: str | None
) -> None:
    monkeypatch.setattr(unreadable, "codec_of", lambda encoding: codec)
    config = western.installed()
    western.add(
        *((f"'{key}'", western.bad if key in (3, 4, 9) else western.good) for key in range(12))
    )
    assert set(new_values(published(config)).values()) == {"ü"}
    assert [row for row, status in statuses(western.engine).items() if status == "E"] == [4, 5, 10]


def test_a_value_that_is_read_back_makes_only_its_own_row_invalid(western: Foreign) -> None:
    config = western.installed(row_style="row_query_back")
    western.add(("'a'", western.good), ("'b'", western.bad), (western.good, "'y'"), ("'d'", "'d'"))
    execute(
        western.engine, f"INSERT INTO usr_tag VALUES ('d', {western.bad}), ({western.good}, 't')"
    )
    events = published(config)
    columns: dict[str, Any] = {}
    for event in events:
        columns.setdefault(event["key"]["k"], {}).update(event["columns"])
    assert columns["a"]["v"] == {"new": western.character}
    assert columns[western.character] == {
        "v": {"new": "y"},
        "usr_tag.tag": {"new": ["t"], "whole": True},
    }
    assert {
        row: status for row, status in statuses(western.engine).items() if status == "E"
    } == dict.fromkeys((2, 4, 5), "E")


def test_a_snapshot_has_every_object_that_can_be_read(
    western: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventlog.publisher.send.snapshot_chunks.MAX_KEYS", 2)
    western.installed()
    western.add(
        ("'a'", western.good),
        ("'b'", western.bad),
        ("'c'", "'c'"),
        (western.good, "'y'"),
        (western.bad, "'x'"),
    )
    source = {"type": "eventlog", "consumer": "search", "start_from": "snapshot"}
    events = published(western.config(source=source))
    assert new_values(events) == {"a": western.character, "c": "c", western.character: "y"}
    errors = fetch(western.engine, "SELECT code, message FROM eventlog_error")
    assert len(errors) == 2
    assert {code for code, _ in errors} == {"bad_value"}


@pytest.mark.parametrize("size", in_ci([1, 2, 3, 10], 1, 3))
def test_a_resync_logs_every_object_whatever_its_key(western: Foreign, size: int) -> None:
    config = western.installed()
    western.add(
        ("'a'", "'a'"), (western.bad, "'x'"), (f"{western.bad} || 'y'", "'y'"), ("'c'", "'c'")
    )
    execute(western.engine, "DELETE FROM eventlog")
    with opened(config) as context:
        (usr,) = context.catalog.classes
        selection = Selection("usr", EventType.INSERT_ROW_QUERY_BACK)
        walk = context.log.start_walk("public", usr, selection)
        position, ended = None, False
        while not ended:
            batch = context.log.write_batch(walk, position, size)
            position, ended = batch.reached, batch.is_last
            context.log.commit()
    assert new_values(published(config)) == {"a": "a", "c": "c"}
    assert sorted(statuses(western.engine).values()) == ["E", "E", "S", "S"]


def test_the_commands_about_a_row_name_what_cannot_be_read(western: Foreign, run: Run) -> None:
    config = western.installed()
    western.add(("'a'", "'x'"), ("'b'", western.bad), (western.bad, "'x'"))
    arguments = ("--config", str(western.directory / "eventlog.toml"))
    for command in (
        ("status",),
        ("explain", "2"),
        ("explain", "3"),
        ("publish", "--once", "--dry-run"),
    ):
        code, out, err = run(*arguments, *command)
        assert code in (0, 1, 4), (command, code, out, err)
        assert "[database]" not in err, (command, err)
    published(config)
    for command in (
        ("errors",),
        ("explain", "2"),
        ("explain", "3", "--json"),
        ("doctor",),
        ("requeue", "--ids", "2"),
        ("status",),
    ):
        code, out, err = run(*arguments, *command)
        assert code in (0, 1, 4), (command, code, out, err)
        assert "has no equivalent" not in out + err, (command, out, err)
    published(config)
    assert statuses(western.engine) == {1: "S", 2: "E", 3: "E"}


REASON = "列 “name” € \N{GRINNING FACE} \0"


@pytest.mark.parametrize(
    ("encoding", "stored"),
    [
        ("LATIN1", r"\u5217 \u201cname\u201d \u20ac \ud83d\ude00 \ufffd"),
        ("WIN1252", r"\u5217 “name” € \ud83d\ude00 \ufffd"),
    ],
)
def test_the_reason_of_a_receiver_is_stored_as_far_as_the_encoding_has_its_characters(
    new_database: Any, tmp_path: Path, encoding: str, stored: str
) -> None:
    ENCODINGS.setdefault("LATIN1", ("", "fc", "ü"))
    with new_database(encoding=encoding) as engine:
        foreign = Foreign(engine, encoding, tmp_path)
        config = foreign.installed()
        foreign.add(("'a'", "'x'"))
        published(
            config,
            on_send=lambda sent: Answer(
                {one: EventResult(Level.ERROR, REASON) for one in sent.event_ids}
            ),
        )
        assert statuses(engine) == {1: "E"}
        assert fetch(engine, "SELECT message FROM eventlog_error") == [(stored,)]
