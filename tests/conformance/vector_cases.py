"""A case of ``vectors/xds`` read strictly, what is expected of it, and the comparison of documents
(spec/xds.md 9).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lxml import etree
from old_names import in_new_names

from eventlog.changes.json_form import database_from_json
from eventlog.config.load import Config, load
from eventlog.config.settings import installed_options
from eventlog.core.catalog import Column, Database
from eventlog.core.values import parse_type
from eventlog.model import Answer
from eventlog.xds.reader import read_answer

# The types of the vectors (spec/xds.md 9).
_TYPE = re.compile(
    r"smallint|integer|bigint|decimal\(\d+,\d+\)|real|double|boolean|char\(\d+\)|varchar\(\d+\)|text|clob"
    r"|varbinary\(\d+\)|blob|date|time|timestamp|timestamptz|uuid|json"
)


@dataclass(frozen=True)
class Case:
    """One case. ``log_rows`` by the columns' names; ``statuses`` and ``errors`` are those expected
    afterwards.
    """

    options: Mapping[str, Any]
    database: Mapping[str, Any]
    log_columns: Sequence[tuple[str, str]]
    log_rows: Sequence[Mapping[str, Any]]
    contents: Mapping[str, Sequence[Mapping[str, Any]]]
    answer: str | None
    statuses: Mapping[int, str]
    errors: Sequence[tuple[int, str]]
    document: bytes

    @property
    def catalog(self) -> Database:
        return database_from_json(self.database)

    @property
    def columns_of_log(self) -> list[Column]:
        return [Column(name, parse_type(column_type)) for name, column_type in self.log_columns]

    def answer_to(self, event_ids: Collection[str]) -> Answer:
        """The receiver's answer to a document; without one in the case: success for all."""
        return Answer() if self.answer is None else read_answer(self.answer.encode(), event_ids)


def code_of(name: str) -> str:
    """Return the code of an error that vectors name as a class: ``BadMask`` is ``bad_mask``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Error")).lower()


def known_members(
    what: str, value: Mapping[str, Any], needed: Collection[str], optional: Collection[str] = ()
) -> Mapping[str, Any]:
    """The object itself. Raises AssertionError that names a member that is not known, or is
    missing.
    """
    assert isinstance(value, dict), f"{what} is not an object: {value!r}"
    unknown = sorted(set(value) - set(needed) - set(optional))
    assert not unknown, f"{what} has the member {unknown[0]!r}, which this harness does not know"
    missing = sorted(set(needed) - set(value))
    assert not missing, f"{what} lacks the member {missing[0]!r}"
    return value


def read_case(path: Path) -> Case:
    """The case and its document. Raises AssertionError for a member that the harness does not know,
    at any level.
    """
    case = known_members(
        path.name,
        json.loads(path.read_text(encoding="utf-8")),
        {"name", "options", "database", "log", "contents", "expect"},
        {"about", "answer"},
    )
    assert case["name"] == path.stem
    columns_by_table = _database_members(case["database"])
    log = known_members("log", case["log"], {"columns", "rows"})
    for _, column_type in log["columns"]:
        _known_type(column_type)
    names = [name for name, _ in log["columns"]]
    for table, rows in known_members("contents", case["contents"], (), columns_by_table).items():
        for row in rows:
            known_members(f"row of {table}", row, (), columns_by_table[table])
    expect = known_members("expect", case["expect"], {"status", "errors"})
    return Case(
        options=in_new_names(case["options"]),
        database=case["database"],
        log_columns=[(name, column_type) for name, column_type in log["columns"]],
        log_rows=[dict(zip(names, row, strict=True)) for row in log["rows"]],
        contents=case["contents"],
        answer=case.get("answer"),
        statuses={int(record_id): status for record_id, status in expect["status"].items()},
        errors=sorted(
            (line["record_id"], line["code"])
            for line in (
                known_members("error", error, {"record_id", "code"}) for error in expect["errors"]
            )
        ),
        document=path.with_suffix(".xml").read_bytes(),
    )


def _database_members(database: Mapping[str, Any]) -> dict[str, list[str]]:
    """The columns of each table, all members checked."""
    known_members("database", database, {"dialect", "schema", "tables"})
    columns_by_table = {}
    for table in database["tables"]:
        known_members("table", table, {"name", "kind", "columns"}, {"primary_key", "foreign_keys"})
        assert table["kind"] in ("table", "view"), f"kind {table['kind']!r} is not known"
        for column in table["columns"]:
            known_members("column", column, {"name", "type"})
            _known_type(column["type"])
        for key in table.get("foreign_keys") or ():
            known_members("foreign key", key, {"columns", "table", "ref_columns"})
        columns_by_table[table["name"]] = [column["name"] for column in table["columns"]]
    return columns_by_table


def _known_type(text: str) -> None:
    assert _TYPE.fullmatch(text), f"column type {text!r} is not known"


def configuration(case: Case, directory: Path, **database: str) -> Config:
    """The case's options as a configuration, read as from a file: an option that is not known is a
    ConfigError.

    ``directory`` takes the file; ``database`` are settings of its [database].
    """
    options = {"driver_user": "eventlog", **case.options, "product_version": "test"}
    sections: dict[str, dict[str, Any]] = {
        section: {} for section in ("database", "publisher", "format", "format.xds")
    }
    sections["database"] |= database
    for key, value in options.items():
        homes = (one for one in sections if key in installed_options(one))
        sections[next(homes, "publisher")][key] = value
    lines = [
        line
        for section, values in sections.items()
        for line in (
            f"[{section}]",
            *(
                f"{json.dumps(key)} = {_toml(one)}"
                for key, one in values.items()
                if one is not None
            ),
        )
    ]
    path = directory / "eventlog.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return load(path, {})


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items())
            + "}"
        )
    return json.dumps(value)


def log_text(value: Any) -> str | None:
    """A value of ``contents`` as log text: numbers and booleans are JSON's own, all else is text
    (spec/xds.md 9).
    """
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


Tree = tuple[str, dict[str, str], str, list[Any]]


def tree(document: bytes) -> Tree:
    """A document as what counts in comparison: names, attributes, texts, without white space
    between elements.
    """
    parser = etree.XMLParser(remove_comments=True, remove_pis=True, resolve_entities=False)
    return _tree(etree.fromstring(document, parser))


def _tree(element: etree._Element) -> Tree:
    children = [_tree(child) for child in element]
    text = element.text or ""
    if children:
        text = "".join(
            part
            for part in (text, *(child.tail or "" for child in element))
            if part.strip(" \t\r\n")
        )
    return (
        str(element.tag),
        {str(name): str(value) for name, value in element.attrib.items()},
        text,
        children,
    )
