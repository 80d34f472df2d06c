"""A class that the configured format cannot write is reported before a row is logged: by `triggers
plan` and by `doctor` (spec/event-log.md 5.1).
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from eventlog.changes.json_form import database_from_json
from eventlog.cli import run
from eventlog.config.load import load
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import TYPE_NAMES
from eventlog.publisher.declared.class_trial import unwritable_classes
from eventlog.sql.connect.locate import new_log
from eventlog.sql.dialects.postgresql import DIALECT

TOO_WIDE: Final = 1030
"""More columns than a mask of Qlik messages has bits."""

CONFIG: Final = """
[database]
url = "sqlite:///app.db"

[sink]
type = "kafka"
brokers = "127.0.0.1:9"

[format]
type = "qlik-messages"

[format.qlik-messages]
encoding = "avro"
metadata = "registry"
registry = "http://127.0.0.1:9"

[[watch]]
table = "usr"

[[watch]]
table = "wide"
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration with a class that its format can write, and one that it cannot."""
    pytest.importorskip("fastavro")
    file = tmp_path / "eventlog.toml"
    file.write_text(CONFIG)
    columns = ", ".join(f"c{number} INTEGER" for number in range(TOO_WIDE))
    with closing(sqlite3.connect(tmp_path / "app.db")) as conn:
        conn.execute("CREATE TABLE usr (idu INTEGER PRIMARY KEY, n NUMERIC(2,4))")
        conn.execute(f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {columns})")
    return str(file)


def test_plan_warns_of_a_class_that_the_format_cannot_write(
    config: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["--config", config, "triggers", "plan"]) == 0
    said = "".join(capfd.readouterr())
    assert "warning: wide cannot be written as qlik-messages" in said
    assert "usr cannot" not in said


def test_doctor_reports_a_class_that_the_format_cannot_write(
    config: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["--quiet", "--config", config, "db", "upgrade"]) == 0
    capfd.readouterr()
    run(["--config", config, "doctor", "--json"])
    findings = json.loads(capfd.readouterr().out)["findings"]
    found = [one for one in findings if one["code"] == "class_unwritable"]
    assert [one["text"].partition(" ")[0] for one in found] == ["wide"]


FORMATS: Final = {
    "xds": "",
    "cloudevents": "",
    "debezium": "",
    "qlik-messages": 'brokers = "none:9"\n[format.qlik-messages]\nencoding = "avro"',
}


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_can_write_a_class_of_any_types_and_keys(tmp_path: Path, format: str) -> None:
    if format == "qlik-messages":
        pytest.importorskip("fastavro")
    names = sorted({name for names in TYPE_NAMES.values() for name in names.split(", ")})
    sized = ["numeric(2,4)", "numeric(5,-2)", "numeric(1000,0)", "text[]", "numeric(9,2)[]"]
    types = [*names, *sized]
    columns = [{"name": f"c{n}", "type": type} for n, type in enumerate(types)]
    tables = [
        {"name": "t", "kind": "table", "primary_key": ["c0"], "columns": columns},
        *(
            {"name": f"k{n}", "kind": "table", "primary_key": ["id"],
             "columns": [{"name": "id", "type": type}, {"name": "v", "type": "text"}]}
            for n, type in enumerate(types)
        ),
    ]  # fmt: skip
    described = {"dialect": "postgresql", "schema": "app", "tables": tables}
    file, (sink, _, rest) = tmp_path / "eventlog.toml", FORMATS[format].partition("\n")
    file.write_text(
        f'[sink]\ntype = "{"kafka" if sink else "stdout"}"\n{sink}\n'
        f'[format]\ntype = "{format}"\n{rest}\n'
    )
    catalog = build_catalog(database_from_json(described))
    log = new_log(DIALECT, "app", "eventlog")
    assert list(unwritable_classes(load(file, {}), catalog, log)) == []
