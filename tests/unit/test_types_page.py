"""The page of types says what the formats make of a value (docs/types.md)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from eventlog.cloudevents.values import JsonEncoding, text_converter
from eventlog.core.json_bytes import json_bytes
from eventlog.core.typed import value_reader
from eventlog.core.values import ValueOptions, converter, parse_type, xds_type
from eventlog.debezium.fields import field_of

PAGE = Path(__file__).parents[2] / "docs" / "types.md"
ROWS = re.findall(
    r"^\| `([^`]+)` \| [^|]+ \| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \|$",
    PAGE.read_text(),
    re.MULTILINE,
)


def of(name: str, text: str) -> tuple[str, str, str]:
    """What XDS, CloudEvents and Debezium make of the log's text of a column."""
    type, values = parse_type(name), ValueOptions()
    xds = f"{xds_type(type, values)} {converter(type, values)(text)}"
    debezium = field_of(type).encode(value_reader(type)(text))
    return (
        xds,
        json_bytes(text_converter(type, JsonEncoding())(text)).decode(),
        json.dumps(debezium),
    )


def test_the_page_has_rows() -> None:
    assert len(ROWS) >= 15


@pytest.mark.parametrize(("name", "text", "xds", "cloudevents", "debezium"), ROWS)
def test_a_row_of_the_page_is_what_the_code_makes(
    name: str, text: str, xds: str, cloudevents: str, debezium: str
) -> None:
    assert of(name, text) == (xds, cloudevents, debezium)
