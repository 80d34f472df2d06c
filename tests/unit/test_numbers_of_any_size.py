"""Numbers whose type other formats do not have, and numbers of more digits than Python converts to
an int: each format writes them, and reads back what it wrote (spec/change-model.md 5.1, qlik.md 5.4).
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from shared import refused

from eventlog.changes.format import Report
from eventlog.changes.json_form import loads
from eventlog.conversion import convert
from eventlog.core.values import parse_type
from eventlog.core.values.typed_values import value_reader
from eventlog.files.text import parsed_json
from eventlog.model import Change, ChangeOp, Value
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.messages.avro import avro_writer

LONG: Final = "7" * 5000
"""The text of a number that Python does not convert to an int."""


def catalog_with(type: str) -> dict[str, Any]:
    columns = [{"name": "id", "type": "integer"}, {"name": "v", "type": type}]
    table = {"name": "t", "kind": "table", "columns": columns, "primary_key": ["id"]}
    return {"dialect": "postgresql", "schema": "app", "tables": [table]}


def back_from(
    tmp_path: Path,
    format: str,
    type: str,
    value: str,
    writer: dict[str, Any],
    reader: dict[str, Any],
) -> tuple[Any, Report]:
    """The value in JSON lines after a conversion to ``format`` and back."""
    change = {"schema": "app", "table": "t", "op": "INSERT", "key": [["id", 1]]}
    source, there, back = (tmp_path / name for name in ("in.jsonl", "there.jsonl", "back.jsonl"))
    source.write_text(json.dumps({**change, "after": {"id": 1, "v": value}}) + "\n")
    of_catalog = {"catalog": catalog_with(type)}
    report = convert(
        "jsonl", format, str(source), str(there),
        {"reader": of_catalog, "writer": {**of_catalog, **writer}}, report=True,
    )  # fmt: skip
    convert(format, "jsonl", str(there), str(back), {"reader": reader})
    return json.loads(back.read_text())["after"]["v"], report


@pytest.mark.parametrize(
    ("type", "value", "sizes"),
    [
        ("numeric(2,4)", "0.0099", (4, 4)),
        ("numeric(2,4)", "-0.0099", (4, 4)),
        ("numeric(5,-2)", "9999900", (7, 0)),
        ("numeric(9,2)", "1.50", (9, 2)),
    ],
)
def test_an_avro_message_holds_a_decimal_of_any_scale(
    tmp_path: Path, type: str, value: str, sizes: tuple[int, int]
) -> None:
    pytest.importorskip("fastavro")
    back, report = back_from(tmp_path, "qlik-messages", type, value, {"encoding": "avro"}, {})
    assert (Decimal(back), report.counters) == (Decimal(value), {})
    metadata = bytes.fromhex(
        json.loads((tmp_path / "there.jsonl").read_text().splitlines()[0])["value"]["hex"]
    )
    precision, scale = sizes
    assert f'"precision":{precision},"scale":{scale}'.encode() in metadata.replace(b"\\", b"")


def test_a_number_beyond_its_column_is_refused_by_an_avro_message() -> None:
    write = avro_writer(QlikColumn("v", "NUMERIC", precision=2, scale=4), True)
    with refused("value_range", match=r"0\.0100 of column 'v' is not NUMERIC\(2, 4\)"):
        write(Decimal("0.0100"))


FORMATS: Final = [
    ("cloudevents", {}),
    ("debezium", {"schemas_enable": False}),
    ("debezium", {"decimal_handling_mode": "string"}),
    ("eventlog", {}),
    ("xds", {}),
    ("qlik-messages", {}),
]


@pytest.mark.parametrize(("format", "options"), FORMATS, ids=lambda one: str(one))
@pytest.mark.parametrize(
    ("type", "value"),
    [("numeric", LONG), ("numeric", f"-0.{LONG}"), ("numeric(1000,0)", f"-{LONG}")],
    ids=["whole", "fraction", "scale 0"],
)
def test_a_number_of_more_digits_than_an_int_comes_back(
    tmp_path: Path, format: str, options: dict[str, Any], type: str, value: str
) -> None:
    handling = {name: one for name, one in options.items() if name != "schemas_enable"}
    reader = {} if format == "qlik-messages" else {"catalog": catalog_with(type), **handling}
    back, report = back_from(tmp_path, format, type, value, options, reader)
    assert (str(back) if isinstance(back, str) else back, dict(report.counters)) == (value, {})


def test_json_with_a_number_of_more_digits_than_an_int_is_read() -> None:
    assert parsed_json(f'{{"a":[{LONG},1]}}') == {"a": [Decimal(LONG), 1]}
    line = f'{{"table":"t","op":"INSERT","key":[["id",1]],"after":{{"id":1,"v":-{LONG}}}}}'
    assert loads(line) == Change(
        None, "t", ChangeOp.INSERT, (("id", 1),), after={"id": 1, "v": Decimal(f"-{LONG}")}
    )
    with refused("invalid_format", match="not JSON: Expecting"):
        parsed_json(f'{{"a":{LONG},b}}')


def test_a_whole_number_of_more_digits_than_an_int_is_a_decimal() -> None:
    read = value_reader(parse_type("numeric(1000,0)", "postgresql"))
    values: list[Value] = [read("7" * 4300), read(LONG)]
    assert list(map(type, values)) == [int, Decimal]
