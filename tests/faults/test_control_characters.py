"""Text with control characters, which only XML has no form for (spec/event-log.md 5, spec/xds.md
8).
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import install, write_config
from shared import execute, fetch, url_of

from eventlog.config.load import load
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once

BELL = "a\x01\x07\x1fb\ufffe"


@pytest.fixture
def database(logged: sa.Engine) -> sa.Engine:
    return logged


def test_the_update_that_repairs_a_value_is_sent_and_leaves_only_the_new_value(
    database: sa.Engine, tmp_path: Path
) -> None:
    execute(
        database,
        "CREATE TABLE usr (idu integer PRIMARY KEY, fname text)",
        "CREATE TABLE usr_phone (idu integer REFERENCES usr, phone text, PRIMARY KEY (idu, phone))",
    )
    sent = tmp_path / "sent"
    path = write_config(
        tmp_path, url_of(database), [{"table": "usr"}],
        sink={"type": "files", "directory": str(sent), "file_layout": "lines"},
        publisher={"allow_loopback": True}, format={"type": "xds"},
    )  # fmt: skip
    config = load(path, {})
    install(config)
    with database.begin() as connection:
        for statement in (
            "INSERT INTO usr VALUES (1, 'Jack')",
            "INSERT INTO usr_phone VALUES (1, '555'), (1, :bell)",
            "UPDATE usr SET fname = :bell",
            "UPDATE usr SET fname = 'Jim'",
            "UPDATE usr_phone SET phone = '556' WHERE phone = :bell",
        ):
            connection.execute(sa.text(statement), {"bell": BELL} if ":" in statement else {})
    with open_context(config, Counters()) as context, closing(open_sink(config, None)) as sink:  # type: ignore[arg-type]
        publish_once(context, sink)
    assert fetch(database, "SELECT status, count(*) FROM eventlog GROUP BY 1 ORDER BY 1") == [
        ("E", 2),
        ("S", 4),
    ]
    assert context.counters.old_unreadable == 2
    text = "".join(file.read_text() for file in sorted(sent.glob("*.xmll")))
    assert "<remove-value>" not in text
    repaired = '<remove-all-values/><add-value><value type="string">Jim</value></add-value>'
    assert repaired in text
    assert '<add-value><value type="string">556</value></add-value>' in text


@pytest.mark.parametrize(
    ("format", "of_new"),
    [
        (
            {"type": "cloudevents", "cloudevents": {"mode": "structured"}},
            lambda event: event["data"]["columns"]["fname"]["new"],
        ),
        (
            {"type": "debezium", "debezium": {"schemas_enable": False}},
            lambda event: event["after"]["fname"],
        ),
        ({"type": "xds"}, None),
    ],
)
def test_json_carries_what_xml_cannot(
    database: sa.Engine, tmp_path: Path, format: dict[str, Any], of_new: Any
) -> None:
    execute(database, "CREATE TABLE usr (code text PRIMARY KEY, fname text)")
    sent = tmp_path / "sent"
    path = write_config(
        tmp_path, url_of(database), [{"table": "usr"}],
        sink={"type": "files", "directory": str(sent), "file_layout": "lines"},
        publisher={"allow_loopback": True}, format=format,
    )  # fmt: skip
    config = load(path, {})
    install(config)
    with database.begin() as connection:
        connection.execute(
            sa.text("INSERT INTO usr VALUES (:code, :fname)"), {"code": f"k{BELL}", "fname": BELL}
        )
    with open_context(config, Counters()) as context, closing(open_sink(config, None)) as sink:  # type: ignore[arg-type]
        publish_once(context, sink)
    letters = fetch(database, "SELECT DISTINCT status FROM eventlog")
    if of_new is None:
        assert letters == [("E",)]
        assert fetch(database, "SELECT DISTINCT code FROM eventlog_error") == [("bad_xml_char",)]
        return
    assert letters == [("S",)]
    (line,) = (line for file in sent.glob("*.jsonl") for line in file.read_text().splitlines())
    assert of_new(json.loads(line)) == BELL
