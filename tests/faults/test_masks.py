"""Masked columns: no reader of a log sees their values, whatever the format, the row style and the
database (spec/event-log.md 15.1).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
import verified
from publishers import install
from shared import execute, in_ci, url_of

from eventlog import Event, Publisher, convert
from eventlog.cli import run
from eventlog.cli.context import reading
from eventlog.config.load import load
from eventlog.errors import ConfigError
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_unlocked
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.inspect.explanation import explain
from eventlog.verify import VerifyOptions, verify

SECRET: Final = "a secret of at least sixteen"
GUIDE: Final = Path(__file__).parents[2] / "docs" / "guides" / "choose-tables.md"
STYLES: Final = ("field", "remove_all", "field_query_back", "row_query_back")
FORMATS: Final = ("xds", "cloudevents", "debezium")
PRIVATE: Final = (
    "ann@",
    "eve@",
    "555-0",
    "1971-",
    "1980-",
    "9988776655",
    "4433221155",
    "Rome",
    "Oslo",
)
"""Parts of the values that no receiver may see."""

TABLES: Final = (
    "CREATE TABLE customer (id integer PRIMARY KEY, name text, email text, city text, born date, card text)",
    "CREATE TABLE phone (customer integer REFERENCES customer, number text)",
)
CHANGES: Final = (
    "INSERT INTO customer VALUES (1, 'Ann', 'ann@example.org', 'Rome', '1971-02-03', '9988776655')",
    "INSERT INTO phone VALUES (1, '555-01')",
    "INSERT INTO phone VALUES (1, '555-02')",
    "UPDATE customer SET email = 'eve@example.org', city = 'Oslo', card = '4433221155', "
    "born = '1980-02-03'",
    "UPDATE phone SET number = '555-03' WHERE number = '555-01'",
    "DELETE FROM phone WHERE number = '555-02'",
    "UPDATE customer SET city = NULL",
)
MASKS: Final = [
    {"table": "customer", "columns": ["email", "born"], "how": "hash"},
    {"table": "phone", "columns": ["number"], "how": "hash"},
    {"table": "customer", "columns": ["city"], "how": "redact"},
    {"table": "customer", "columns": ["card"], "how": "last"},
]


def hashed(text: str) -> str:
    return hmac.new(SECRET.encode(), text.encode(), hashlib.sha256).hexdigest()


def configuration(url: str, **more: Any) -> dict[str, Any]:
    return {
        "database": {"url": url},
        "publisher": {"allow_loopback": True},
        "format": {"type": "xds", "mask_secret": SECRET},
        "watch": [{"table": "customer"}],
        "mask": MASKS,
        **more,
    }


@pytest.fixture
def database(tmp_path: Path) -> str:
    """The URL of a SQLite file with the tables."""
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as conn:
        for table in TABLES:
            conn.execute(table)
    return f"sqlite:///{file}"


def change(url: str, *statements: str) -> None:
    """Run each statement in a transaction."""
    engine = sa.create_engine(url)
    for statement in statements:
        execute(engine, statement)
    engine.dispose()


def sent(config: dict[str, Any]) -> tuple[list[str], list[Event]]:
    """The documents of a publisher that sends the queue once, and their events."""
    bodies: list[str] = []
    events: list[Event] = []

    def receive(body: bytes, several: Sequence[Event]) -> None:
        bodies.append(body.decode())
        events.extend(several)

    Publisher.from_config(config, sink=receive, environ={}).run_once()
    return bodies, events


def values_of(event: Event) -> dict[str, list[tuple[str, ...]]]:
    return {one.name: [step.values for step in one.steps] for one in event.attributes}


def shows(text: str) -> list[str]:
    """The private values in a text."""
    return [one for one in PRIVATE if one in text]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("format", in_ci(FORMATS, "xds"))
def test_no_document_has_a_masked_value(database: str, style: str, format: str) -> None:
    watch = {"table": "customer", "row_style": style}
    config = configuration(database, format={"type": format, "mask_secret": SECRET}, watch=[watch])
    install(load(config, {}))
    # Debezium's events hold no values of child tables.
    changes = [one for one in CHANGES if format != "debezium" or "phone" not in one]
    change(database, changes[0])
    bodies, _ = sent(config)
    change(database, *changes[1:])
    more, _ = sent(config)
    assert shows("".join(bodies + more)) == []
    for value in ("Ann", hashed("ann@example.org"), hashed("1971-02-03"), "***6655", "***"):
        assert value in "".join(bodies), value
    if style != "row_query_back":
        assert hashed("eve@example.org") in "".join(more)


def test_a_change_that_looks_alike_under_its_mask_is_an_update(database: str) -> None:
    config = configuration(database)
    install(load(config, {}))
    change(database, CHANGES[0])
    sent(config)
    change(database, "UPDATE customer SET city = 'Oslo'", "UPDATE customer SET city = city")
    _, events = sent(config)
    assert [values_of(event) for event in events] == [{"city": [("***",), ("***",)]}]


def test_a_change_of_a_column_that_is_masked_as_null_removes_its_values(database: str) -> None:
    mask = {"table": "customer", "columns": ["city"], "how": "null"}
    config = configuration(database, mask=[mask])
    install(load(config, {}))
    change(database, CHANGES[0])
    _, (added,) = sent(config)
    assert "city" not in values_of(added)
    change(database, "UPDATE customer SET city = 'Oslo'")
    bodies, (event,) = sent(config)
    assert values_of(event) == {"city": [()]}
    assert "<remove-all-values/>" in bodies[0]


def test_before_and_after_have_the_masked_values(database: str) -> None:
    config = configuration(database, format={"type": "debezium", "mask_secret": SECRET})
    install(load(config, {}))
    change(database, *CHANGES[:1], *CHANGES[3:4])
    bodies, _ = sent(config)
    change(database, "UPDATE customer SET email = 'ann@example.org', city = 'Rome', card = 'short'")
    bodies, _ = sent(config)
    (update,) = (json.loads(line) for body in bodies for line in body.splitlines())
    payload = update.get("payload", update)
    assert {name: payload["before"][name] for name in ("email", "city", "card")} == {
        "email": hashed("eve@example.org"), "city": "***", "card": "***1155",
    }  # fmt: skip
    assert {name: payload["after"][name] for name in ("email", "city", "card")} == {
        "email": hashed("ann@example.org"), "city": "***", "card": "***",
    }  # fmt: skip


def test_a_class_has_the_types_of_its_masks(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "eventlog.toml"
    file.write_text(
        f'[database]\nurl = "{database}"\n[format]\ntype = "debezium"\n[[watch]]\ntable = "customer"\n'
        '[[mask]]\ntable = "customer"\ncolumns = ["born"]\nhow = "redact"\n'
    )
    install(load(file, {}))
    with open_unlocked(load(file, {}), Counters()) as context:
        cls = context.catalog.class_named("customer")
    born = cls.table.column("born")
    assert (born.type.sql, born.type.sizes) == ("text", ())


def test_triggers_stay_as_they_are(database: str) -> None:
    config = configuration(database)
    install(load({**config, "mask": []}, {}))
    with reading(load(config, {})) as db:
        kinds = {one.kind for one in planned_triggers(db, load(config, {})).actions}
    assert kinds == {"unchanged"}


def test_a_consumer_sends_the_bytes_of_the_publisher(database: str) -> None:
    config = configuration(database)
    consumer = {**config, "source": {"consumer": "copy", "start_from": "earliest"}}
    install(load(config, {}))
    change(database, *CHANGES)
    of_publisher, _ = sent(config)
    of_consumer, _ = sent(consumer)
    assert [re.sub(r' event-id="[^"]*"', "", body) for body in of_consumer] == [
        re.sub(r' event-id="[^"]*"', "", body) for body in of_publisher
    ]


def test_a_snapshot_is_masked(database: str) -> None:
    config = configuration(database, source={"consumer": "copy", "start_from": "snapshot"})
    change(database, *CHANGES)
    install(load(config, {}))
    bodies, events = sent(config)
    assert shows("".join(bodies)) == []
    (event,) = events
    assert values_of(event)["email"] == [(hashed("eve@example.org"),)]
    assert values_of(event)["phone.number"] == [(hashed("555-03"),)]


def test_explain_shows_masked_values(database: str) -> None:
    config = load(configuration(database), {})
    install(config)
    change(database, *CHANGES)
    shown = ""
    with open_unlocked(config, Counters()) as context:
        engine = sa.create_engine(database)
        with engine.connect() as conn:
            ids = list(conn.exec_driver_sql("SELECT record_id FROM eventlog").scalars())
        engine.dispose()
        for record_id in ids:
            shown += repr(explain(context, record_id))
    assert shows(shown) == []
    assert hashed("ann@example.org") in shown


def test_a_row_that_belongs_to_no_column_has_no_values_in_explain(database: str) -> None:
    config = load(configuration(database), {})
    install(config)
    change(
        database,
        "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) "
        "VALUES (1, 'customer', 'id=1', 'mail', 'ann@example.org')",
    )
    with open_unlocked(config, Counters()) as context:
        explanation = explain(context, 1)
    assert explanation.row is not None
    assert explanation.row.new_value == "***"
    assert explanation.problem is not None
    assert explanation.problem.code == "unknown_column"


def test_a_value_that_its_column_cannot_have_is_masked_and_never_quoted(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = configuration(database)
    install(load(config, {}))
    change(database, "INSERT INTO customer (id, born) VALUES (1, '1971-99-99')")
    with caplog.at_level(logging.DEBUG):
        bodies, _ = sent(config)
    assert hashed("1971-99-99") in bodies[0]
    assert shows(caplog.text) == []


REFUSED: Final = [
    (["id"], "hash", "part of the object's key"),
    (["mail"], "hash", "not a column"),
]


@pytest.mark.parametrize(("columns", "how", "message"), REFUSED)
def test_a_class_with_a_mask_that_cannot_be_applied_waits(
    database: str, caplog: pytest.LogCaptureFixture, columns: list[str], how: str, message: str
) -> None:
    install(load(configuration(database), {}))
    change(database, *CHANGES)
    mask = {"table": "customer", "columns": columns, "how": how}
    bodies, _ = sent(configuration(database, mask=[mask]))
    assert bodies == []
    assert message in caplog.text


def test_values_of_a_child_table_are_not_made_alike(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    install(load(configuration(database), {}))
    change(database, *CHANGES)
    mask = {"table": "phone", "columns": ["number"], "how": "redact"}
    bodies, _ = sent(configuration(database, mask=[mask]))
    assert bodies == []
    assert "Use hash or null" in caplog.text


def test_a_mask_of_an_unknown_table_stops_the_start(database: str) -> None:
    install(load(configuration(database), {}))
    mask = {"table": "custmer", "columns": ["email"], "how": "hash"}
    with pytest.raises(ConfigError, match=r"\[\[mask\]\] custmer"):
        sent(configuration(database, mask=[mask]))


def test_a_hash_without_a_key_stops_the_start(database: str) -> None:
    install(load(configuration(database), {}))
    with pytest.raises(ConfigError, match="EVENTLOG_FORMAT_MASK_SECRET"):
        sent(configuration(database, format={"type": "xds"}))


def test_doctor_reports_a_mask_of_an_unknown_column(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(load(configuration(database), {}))
    file = tmp_path / "eventlog.toml"
    file.write_text(
        f'[database]\nurl = "{database}"\n[[watch]]\ntable = "customer"\n'
        '[[mask]]\ntable = "customer"\ncolumns = ["mail"]\nhow = "redact"\n'
    )
    run(["--config", str(file), "doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    found = [one["text"] for one in findings if one["code"].startswith("class_")]
    assert len(found) == 1
    assert "'mail' is not a column" in found[0]


# --- on PostgreSQL --------------------------------------------------------------------------------


@pytest.fixture
def source(logged: sa.Engine) -> Iterator[sa.Engine]:
    verified.run(logged, *TABLES)
    install(load(configuration(url_of(logged)), {}))
    verified.run(logged, *CHANGES)
    return logged


@pytest.mark.parametrize("target", ["cloudevents", "xds"])
def test_a_conversion_keeps_the_masks_of_what_a_receiver_got(
    database: str, tmp_path: Path, target: str
) -> None:
    config = configuration(database, format={"type": "debezium", "mask_secret": SECRET})
    config["watch"][0]["exclude"] = ["phone.number"]
    config["mask"] = [one for one in MASKS if one["table"] == "customer"]
    install(load(config, {}))
    change(database, CHANGES[0])
    bodies, _ = sent(config)
    got, made = tmp_path / "got.json", tmp_path / "made"
    got.write_text("".join(bodies))
    convert("debezium", target, got, made, {"reader": {"keys": {"customer": ["id"]}}})
    text = made.read_text()
    assert shows(text) == []
    assert hashed("ann@example.org") in text


def test_verify_masks_the_source(source: sa.Engine, database: str) -> None:
    config = configuration(url_of(source))
    verified.run(source, "DELETE FROM phone")
    sent(config)
    target = database.replace("app.db", "copy.db")
    change(
        target,
        "CREATE TABLE customer (id integer PRIMARY KEY, name text, email text, city text, born text, card text)",
        f"INSERT INTO customer VALUES (1, 'Ann', '{hashed('eve@example.org')}', NULL, "
        f"'{hashed('1980-02-03')}', '***1155')",
    )
    options = VerifyOptions(wait=0)
    assert verify(config, target, options=options, environ={}).differences == []
    change(target, "UPDATE customer SET email = 'eve@example.org'")
    (found,) = verify(config, target, options=options, environ={}).differences
    assert [(one.column, one.source) for one in found.columns] == [
        ("email", hashed("eve@example.org"))
    ]
    assert shows(str(found.columns[0].source)) == []
