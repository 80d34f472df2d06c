"""Event log and XDS as forms of the loss matrix: one source of each that shows all it can hold."""

from __future__ import annotations

import json
from pathlib import Path

from loss_matrix import FORMS, Form

from eventlog.model import Change

CATALOG = {
    "dialect": "postgresql",
    "schema": "app",
    "tables": [
        {
            "name": "item",
            "kind": "table",
            "columns": [
                {"name": "id", "type": "integer"},
                {"name": "code", "type": "varchar(9)"},
                {"name": "name", "type": "varchar(64)"},
                {"name": "price", "type": "decimal(9,2)"},
                {"name": "made", "type": "timestamp"},
                {"name": "photo", "type": "varbinary(64)"},
            ],
            "primary_key": ["id", "code"],
        },
        {
            "name": "item_tag",
            "kind": "table",
            "columns": [
                {"name": "id", "type": "integer"},
                {"name": "code", "type": "varchar(9)"},
                {"name": "tag", "type": "varchar(20)"},
            ],
            "primary_key": None,
            "foreign_keys": [{"columns": ["id", "code"], "table": "item", "ref_columns": ["id", "code"]}],
        },
    ],
}
"""A table with a key of two columns, and its child table."""

_ROWS = [
    # type, key, column, old, new
    (1, 'id=1+code="a,b"', "name", None, "nut"),
    (1, 'id=1+code="a,b"', "price", None, "1.50"),
    (1, 'id=1+code="a,b"', "item_tag.tag", None, "red"),
    (1, 'id=1+code="a,b"', "item_tag.tag", None, "big"),
    (1, "id=2+code=x", "name", None, None),  # as triggers write a row of NULLs
    (2, "id=3+code=x", "price", "1.50", "1.75"),
    (2, "id=3+code=x", "name", None, ""),
    (3, "id=4+code=x", "photo", None, "qqo="),
    (2, "id=4+code=x", "made", "2024-05-10 12:00:00", None),
    (2, "id=5+code=x", "item_tag.tag", "red", "blue"),
    (2, "id=6+code=x", "item_tag.tag", None, "red"),
    (4, "id=7+code=x", None, None, None),
]


def _make_log(path: Path) -> None:
    with path.open("w") as file:
        for number, (event_type, key, column, old, new) in enumerate(_ROWS, 1):
            row = {
                "record_id": number,
                "status": "N",
                "event_type": event_type,
                "event_time": f"2024-05-10 12:00:00.{number:06}",
                "perpetrator": "scott",
                "table_name": "item",
                "table_key": key,
                "column_name": column,
                "old_value": old,
                "new_value": new,
            }
            file.write(json.dumps(row) + "\n")


_EVENTS = [
    '<add class-name="item" event-id="10"><association>id=1+code="a,b",table=item,schema=app</association>'
    '<add-attr attr-name="name"><value>nut</value></add-attr>'
    '<add-attr attr-name="item_tag.tag"><value>red</value><value>big</value></add-attr></add>',
    '<modify class-name="item" event-id="11"><association>id=3+code=x,table=item,schema=app</association>'
    '<modify-attr attr-name="price"><remove-value><value>1.50</value></remove-value>'
    "<add-value><value>1.75</value></add-value></modify-attr>"
    '<modify-attr attr-name="name"><add-value><value></value></add-value></modify-attr>'
    '<modify-attr attr-name="photo"><remove-all-values/></modify-attr>'
    '<modify-attr attr-name="item_tag.tag"><remove-all-values/>'
    "<add-value><value>red</value><value>big</value></add-value></modify-attr></modify>",
    '<modify class-name="item" event-id="12"><association>id=4+code=x,table=item,schema=app</association>'
    '<modify-attr attr-name="made"><remove-value><value type="time">1715342400</value></remove-value></modify-attr>'
    '<modify-attr attr-name="item_tag.tag"><remove-value><value>red</value></remove-value></modify-attr></modify>',
    '<delete class-name="item" event-id="13"><association>id=7+code=x,table=item,schema=app</association></delete>',
]


def _make_documents(path: Path) -> None:
    source = '<source><product version="1">other</product></source>'
    path.write_text("".join(f'<nds dtdversion="2.0">{source}<input>{event}</input></nds>\n' for event in _EVENTS))


def _time_of_writing(read: Change, expected: Change) -> Change:
    """A change without a commit time is logged with the time of writing (spec/change-model.md 4)."""
    return read._replace(commit_time=None) if expected.commit_time is None else read


FORMS["E"] = Form("E", "log.jsonl", _make_log, {"catalog": CATALOG}, {"catalog": CATALOG}, gains=_time_of_writing)
FORMS["X"] = Form("X", "documents.xmll", _make_documents, {"catalog": CATALOG}, {"catalog": CATALOG})
