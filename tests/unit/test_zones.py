"""The zone of a timestamptz comes through formats without zones, if both sides have a catalogue
(spec/change-model.md 5.1).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from eventlog import cli
from eventlog.changes.images import with_zones
from eventlog.changes.json_form import catalog_of
from eventlog.conversion import convert, read_changes, write_changes
from eventlog.core.values import parse_type
from eventlog.core.values.typed_values import typed_by
from eventlog.model import Change, ChangeOp

CATALOG: dict[str, Any] = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "item",
            "kind": "table",
            "columns": [
                {"name": "id", "type": "integer"},
                {"name": "made", "type": "timestamptz"},
                {"name": "local", "type": "timestamp"},
            ],
            "primary_key": ["id"],
        }
    ],
}
LOCAL = datetime(2024, 5, 10, 12, 30)
MADE = LOCAL.replace(tzinfo=UTC)
LATER = MADE.replace(hour=13)
CHANGE = Change(
    "app",
    "item",
    ChangeOp.UPDATE,
    (("id", 7),),
    {"id": 7, "made": MADE, "local": LOCAL},
    {"id": 7, "made": LATER, "local": LOCAL},
    frozenset({"made"}),
    "20240510120000000000000000000000012",
    "000000000000000000000000000000A1",
    1,
    True,
    MADE,
)
PLACES = [
    ("qlik-change-table", "tables", {"file_format": "csv"}),
    ("qlik-change-table", "tables", {"file_format": "json"}),
    ("qlik-change-table", "tables", {"file_format": "parquet"}),
    ("qlik-messages", "messages.jsonl", {}),
    ("qlik-messages", "messages.jsonl", {"encoding": "avro"}),
    ("gbase", "stream.bin", {}),
    ("linter", "queue", {"codec": "eventlog-emulator-1"}),
]
IDS = ["csv", "json", "parquet", "messages", "avro", "gbase", "linter"]


@pytest.fixture(params=PLACES, ids=IDS)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, dict[str, Any]]:
    """The change in a format without zones: the format, the place, and the options of its
    reader.
    """
    name, place, options = request.param
    path = tmp_path / place
    if name == "linter":
        path.mkdir()
    report = write_changes(name, [CHANGE], path, catalog=CATALOG, **options)
    assert report.written == 1, report.errors
    reader: dict[str, Any] = {"catalog": CATALOG}
    if name == "gbase":
        reader["labels"] = {"1": "app.item"}
    if name == "linter":
        reader |= options
    return name, str(path), reader


def test_a_change_is_read_with_the_zones_of_its_columns(
    stored: tuple[str, str, dict[str, Any]],
) -> None:
    name, path, reader = stored
    (change,) = read_changes(name, path, **reader)
    after = change.after or {}
    assert (after["made"], after["local"]) == (LATER, LOCAL)
    assert (change.before or {})["made"] == MADE


@pytest.mark.parametrize("target", ["cloudevents", "jsonl"])
def test_a_conversion_keeps_the_zone(
    stored: tuple[str, str, dict[str, Any]], tmp_path: Path, target: str
) -> None:
    name, path, reader = stored
    out = tmp_path / "out.jsonl"
    convert(name, target, path, str(out), {"reader": reader, "writer": {"catalog": CATALOG}})
    (line,) = map(json.loads, out.read_text().splitlines())
    made = (
        line["data"]["columns"]["made"]["new"] if target == "cloudevents" else line["after"]["made"]
    )
    assert made == "2024-05-10T13:30:00+00:00"


def test_parquet_change_tables_hold_the_zone(tmp_path: Path) -> None:
    write_changes(
        "qlik-change-table", [CHANGE], tmp_path / "t", catalog=CATALOG, file_format="parquet"
    )
    (part,) = (tmp_path / "t").rglob("*.parquet")
    types = {field.name: str(field.type) for field in pq.read_schema(part)}
    assert (types["made"], types["local"]) == ("timestamp[us, tz=UTC]", "timestamp[us]")
    (change,) = read_changes("qlik-change-table", tmp_path / "t")
    assert (change.after or {})["made"] == LATER


def test_words_and_times_that_have_a_zone_stay() -> None:
    catalog = catalog_of(CATALOG)
    assert catalog is not None
    item = catalog.class_named("item")
    special = CHANGE._replace(after={"id": 7, "made": "infinity", "local": LOCAL})
    assert with_zones(special, item) == special
    assert with_zones(special, None) is special
    assert typed_by(parse_type("timestamptz"), LOCAL) == MADE
    assert typed_by(parse_type("timestamp"), LOCAL) == LOCAL


def test_a_followed_source_gives_the_zones_of_its_catalogue(tmp_path: Path) -> None:
    write_changes("gbase", [CHANGE], tmp_path / "stream.bin", catalog=CATALOG)
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))
    config = tmp_path / "eventlog.toml"
    config.write_text(
        f"""
        [source]
        type = "gbase"
        path = "{tmp_path / "stream.bin"}"
        position_url = "sqlite:///{tmp_path / "position.db"}"
        catalog = "catalog.json"
        reader = {{ labels = {{ 1 = "app.item" }} }}
        [publisher]
        health_file = "health"
        [format]
        type = "cloudevents"
        [sink]
        type = "files"
        directory = "{tmp_path / "out"}"
        """
    )
    assert cli.run(["-c", str(config), "publish", "--once"]) == 0
    (document,) = (tmp_path / "out").glob("0*")
    columns = json.loads(document.read_text())["data"]["columns"]
    assert columns["made"] == {
        "old": "2024-05-10T12:30:00+00:00",
        "new": "2024-05-10T13:30:00+00:00",
    }
