"""One source of each format that shows all it can hold, and so all that each conversion loses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from loss_forms import FORMS
from loss_table import KEY, TAGS

from eventlog.model import Change, ChangeOp, Row

INSERT, UPDATE, DELETE, TRUNCATE, REFRESH = (
    ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE, ChangeOp.TRUNCATE, ChangeOp.REFRESH
)  # fmt: skip

# --- the log: rows as triggers write them -----------------------------------------------------------------------------

_ROWS: Final = [
    # type, key, column, old, new, perpetrator
    (1, 'id=1+code="a,b"', "name", None, "nut", "scott"),
    (1, 'id=1+code="a,b"', "price", None, "1.50", "scott"),
    (1, 'id=1+code="a,b"', TAGS, None, "red", "scott"),
    (1, 'id=1+code="a,b"', TAGS, None, "big", "scott"),
    (1, "id=2+code=x", "name", None, None, "scott"),  # as triggers write a row of NULLs
    (2, "id=3+code=x", "price", "1.50", "1.75", "scott"),
    (2, "id=3+code=x", "name", None, "", "scott"),
    (3, "id=4+code=x", "note", None, "new", "2005"),
    (2, "id=4+code=x", "made", "2024-05-10 12:00:00", None, "2005"),
    (3, "id=5+code=x", "note", None, None, None),
    (2, "id=6+code=x", TAGS, "red", "blue", "scott"),
    (2, "id=7+code=x", TAGS, None, "red", "scott"),
    (4, "id=8+code=x", None, None, None, "scott"),
    (1, "id=9+code=x", "note", None, "a\nb", "scott"),
]


def _make_log(path: Path) -> None:
    with path.open("w") as file:
        for number, (event_type, key, column, old, new, user) in enumerate(_ROWS, 1):
            row = {
                "record_id": number,
                "status": "N",
                "event_type": event_type,
                "event_time": f"2024-05-10 12:00:{number // 2:02}.015625",
                "perpetrator": user,
                "table_name": "item",
                "table_key": key,
                "column_name": column,
                "old_value": old,
                "new_value": new,
            }
            file.write(json.dumps(row) + "\n")


# --- documents --------------------------------------------------------------------------------------------------------

_EVENTS: Final = [
    '<add class-name="item" event-id="10"><association>id=1+code="a,b",table=item,schema=app</association>'
    '<add-attr attr-name="name"><value>nut</value></add-attr>'
    '<add-attr attr-name="item_tag.tag"><value>red</value><value>big</value></add-attr></add>',
    '<add class-name="item" event-id="11"><association>id=2+code=x,table=item,schema=app</association>'
    '<add-attr attr-name="name"><value>nut</value></add-attr></add>',
    '<modify class-name="item" event-id="12"><association>id=3+code=x,table=item,schema=app</association>'
    '<modify-attr attr-name="price"><remove-value><value>1.50</value></remove-value>'
    "<add-value><value>1.75</value></add-value></modify-attr>"
    '<modify-attr attr-name="name"><add-value><value></value></add-value></modify-attr>'
    '<modify-attr attr-name="note"><remove-all-values/></modify-attr></modify>',
    '<modify class-name="item" event-id="13"><association>id=4+code=x,table=item,schema=app</association>'
    '<modify-attr attr-name="made"><remove-value><value type="time">1715342400</value></remove-value></modify-attr>'
    '<modify-attr attr-name="item_tag.tag"><remove-value><value>red</value></remove-value></modify-attr></modify>',
    '<modify class-name="item" event-id="14"><association>id=5+code=x,table=item,schema=app</association>'
    '<modify-attr attr-name="note"><remove-all-values/><add-value><value>new</value></add-value></modify-attr>'
    "</modify>",
    '<delete class-name="item" event-id="15"><association>id=7+code=x,table=item,schema=app</association></delete>',
]


def _make_documents(path: Path) -> None:
    source = '<source><product version="1">other</product></source>'
    path.write_text("".join(f'<nds dtdversion="2.0">{source}<input>{event}</input></nds>\n' for event in _EVENTS))


# --- changes, which the other formats' own writers put down -----------------------------------------------------------

_AT: Final = datetime(2024, 5, 10, 12, 0, 0, 15_625, UTC)
"""A 64th of a second: a queue counts in parts of 1/65536."""
_IN_MILLISECONDS: Final = _AT.replace(microsecond=125_000)


def _row(number: int, **values: Any) -> Row:
    return {
        "id": number,
        "code": "x",
        "name": "nut",
        "price": Decimal("1.50"),
        "made": datetime(2024, 5, 10, 12),
        "note": None,
        **values,
    }


def _change(op: ChangeOp, before: Row | None = None, after: Row | None = None, **fields: Any) -> Change:
    image = before if op is DELETE else after
    key = None if image is None else tuple((name, image[name]) for name in KEY)
    if op is UPDATE and "changed" not in fields:
        assert before is not None
        assert after is not None
        fields["changed"] = frozenset(name for name in after if name in before and before[name] != after[name])
    return Change("app", "item", op, key, before, after, **fields)


def _transaction(id: str | None, *changes: Change, **fields: Any) -> list[Change]:
    """Changes of one transaction, numbered."""
    numbered = [
        change._replace(event_number=number, last_in_transaction=number == len(changes))
        for number, change in enumerate(changes, 1)
    ]
    return [change._replace(transaction_id=id, **{"commit_time": _AT, **fields}) for change in numbered]


def _sequenced(changes: Iterable[Change]) -> list[Change]:
    """Changes at places of a change table's source."""
    return [
        change._replace(position=f"2024051012000001{number:019}", extras={"stream_position": f"log:{number}"})
        for number, change in enumerate(changes, 5)
    ]


_UPDATED: Final = _change(UPDATE, _row(3), _row(3, price=Decimal("1.75"), note=""))
_REPEATED: Final = _change(UPDATE, _row(4), _row(4))
_MOVED: Final = _change(UPDATE, _row(5), _row(6))
_DELETED: Final = _change(DELETE, _row(7))
_TRUNCATED: Final = _change(TRUNCATE)
_HIGH_ID: Final = "0123456789ABCDEF0123456789ABCDEF"

_TABLES: Final = _sequenced((
    *_transaction(_HIGH_ID, _change(INSERT, after=_row(1)), _UPDATED, _MOVED, _TRUNCATED, _DELETED),
    *_transaction(
        f"{0xB2:032X}", _change(UPDATE, after=_row(8, name=None), changed=frozenset({"name"})), commit_time=None
    ),
    *_transaction(None, _change(INSERT, after=_row(9))),
))  # fmt: skip


def _part(row: Row, *names: str) -> Row:
    """The key and these columns of a row, others not known."""
    return {name: row[name] for name in (*KEY, *names)}


_MESSAGES: Final = [
    *_sequenced(
        (
            *_transaction(
                _HIGH_ID,
                _change(INSERT, after=_part(_row(1), "name", "note")),
                _change(
                    UPDATE, _part(_row(3), "name", "price"), _part(_row(3, price=Decimal(2)), "name", "price", "note")
                ),
                _REPEATED,
                _MOVED,
                _change(DELETE, _part(_row(7), "name")),
                commit_time=_IN_MILLISECONDS,
            ),
            *(
                change._replace(event_number=None, last_in_transaction=None)
                for change in _transaction(
                    f"{0xB2:032X}",
                    _change(UPDATE, after=_part(_row(8), "name", "price"), changed=frozenset({"name"})),
                    _change(DELETE, _part(_row(9))),
                    commit_time=_IN_MILLISECONDS,
                )
            ),
        )
    ),
    _change(REFRESH, after=_row(10)),
    _change(REFRESH, after=_part(_row(11), "name")),
]

_STREAMS: Final = [
    _transaction("A1", _change(INSERT, after=_row(1)), _UPDATED, _TRUNCATED, _REPEATED, _MOVED, _DELETED, user="2005"),
    _transaction("A2", _change(UPDATE, _row(9), _row(9)), user="2005"),
]

_QUEUES: Final = [
    _transaction("2A", _change(INSERT, after=_row(1)), _REPEATED, _UPDATED, _MOVED, _DELETED),
    _transaction("2A", _change(INSERT, after=_row(9, note="a")), commit_time=None),
]


def _in_parts(letter: str, parts: list[list[Change]]) -> Callable[[Path], None]:
    write = FORMS[letter].write_parts
    assert write is not None
    return lambda path: write(path, parts)


SAMPLES: Final[Mapping[str, Callable[[Path], None]]] = {
    "E": _make_log,
    "X": _make_documents,
    "T": lambda path: FORMS["T"].write(_TABLES, path),
    "K": lambda path: FORMS["K"].write(_MESSAGES, path),
    "G": _in_parts("G", _STREAMS),
    "L": _in_parts("L", _QUEUES),
}
"""Letter -> what makes the source."""
