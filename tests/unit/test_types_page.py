"""The page of payloads and types is what the code makes (docs/formats/payloads.md); what it has for
each format is no mistake of its generator.
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from eventlog.core.values import parse_type

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "formats" / "payloads.md").read_text(encoding="utf-8")
GENERATOR = runpy.run_path(str(ROOT / "scripts" / "formats_reference.py"))
BLOCKS = re.findall(
    r"^<!-- reference: payload_(\w+) -->\n(.*?)^<!-- end", PAGE, re.MULTILINE | re.DOTALL
)


def shown(change: str, format: str) -> str:
    """What the page shows of a change in a format."""
    parts = re.split(r"(?m)^`([\w-]+)`$", dict(BLOCKS)[change])
    return dict(zip(parts[1::2], parts[2::2], strict=True))[format]


@pytest.mark.parametrize(("name", "of_databases", "text"), GENERATOR["TYPES"])
def test_every_type_of_the_page_is_one_of_a_catalog_with_a_value_that_all_formats_can_read(
    name: str, of_databases: str, text: str
) -> None:
    parse_type(name)
    cells = " | ".join(f"`{one}`" for one in (text, *GENERATOR["published"](name, text)))
    assert f"| `{name}` | {of_databases} | {cells} |" in PAGE


def test_a_decimal_has_the_type_that_each_format_promises() -> None:
    assert GENERATOR["published"]("decimal(9,2)", "1.50") == (
        "string 1.50", '"1.50"', '"AJY="', '"1.50"',
    )  # fmt: skip


def test_the_page_shows_four_changes_in_seven_formats() -> None:
    assert [change for change, _ in BLOCKS] == ["insert", "update", "new_key", "delete"]
    for change, _ in BLOCKS:
        for format in (
            "xds", "cloudevents", "debezium", "qlik-messages", "qlik-change-table", "gbase",
            "linter",
        ):  # fmt: skip
            assert shown(change, format).strip(), (change, format)


def test_an_update_of_the_key_is_a_delete_and_an_insert_in_what_is_published() -> None:
    assert re.findall(r'"type": "eventlog\.(\w+)"', shown("new_key", "cloudevents")) == [
        "delete",
        "insert",
    ]
    assert re.findall(r'"op": "(\w)"', shown("new_key", "debezium")) == ["d", "c"]
    assert re.findall(r"<(delete|add) ", shown("new_key", "xds")) == ["delete", "add"]


def test_every_payload_in_json_is_json() -> None:
    for change, _ in BLOCKS:
        for format in ("cloudevents", "debezium", "qlik-messages"):
            text = shown(change, format).partition("```json\n")[2].partition("```")[0]
            decoder, rest = json.JSONDecoder(), text.strip()
            while rest:
                _, end = decoder.raw_decode(rest)
                rest = rest[end:].strip()
