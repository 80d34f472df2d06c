"""Sources of each format: one that shows all it can hold, and so all that each conversion loses;
and any history.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st
from loss_formats import COLUMNS, KEY, TAGS, TRIED

from eventlog.model import Change, ChangeOp, Row

INSERT, UPDATE, DELETE, TRUNCATE, REFRESH = (
    ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE, ChangeOp.TRUNCATE, ChangeOp.REFRESH
)  # fmt: skip

# --- the log: rows as triggers write them ---------------------------------------------------------

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


# --- documents ------------------------------------------------------------------------------------

_EVENTS: Final = [
    '<add class-name="item" '
    'event-id="10"><association>id=1+code="a,b",table=item,schema=app</association><add-attr '
    'attr-name="name"><value>nut</value></add-attr><add-attr '
    'attr-name="item_tag.tag"><value>red</value><value>big</value></add-attr></add>',
    '<add class-name="item" '
    'event-id="11"><association>id=2+code=x,table=item,schema=app</association><add-attr '
    'attr-name="name"><value>nut</value></add-attr></add>',
    '<modify class-name="item" '
    'event-id="12"><association>id=3+code=x,table=item,schema=app</association>'
    '<modify-attr attr-name="price"><remove-value><value>1.50</value></remove-value>'
    "<add-value><value>1.75</value></add-value></modify-attr>"
    '<modify-attr attr-name="name"><add-value><value></value></add-value></modify-attr>'
    '<modify-attr attr-name="note"><remove-all-values/></modify-attr></modify>',
    '<modify class-name="item" '
    'event-id="13"><association>id=4+code=x,table=item,schema=app</association><modify-attr '
    'attr-name="made"><remove-value><value '
    'type="time">1715342400</value></remove-value></modify-attr><modify-attr '
    'attr-name="item_tag.tag"><remove-value><value>red</value></remove-value></modify-attr></modify>',
    '<modify class-name="item" '
    'event-id="14"><association>id=5+code=x,table=item,schema=app</association>'
    "<modify-attr "
    'attr-name="note"><remove-all-values/><add-value><value>new</value></add-value></modify-attr>'
    "</modify>",
    '<delete class-name="item" '
    'event-id="15"><association>id=7+code=x,table=item,schema=app</association></delete>',
]


def _make_documents(path: Path) -> None:
    source = '<source><product version="1">other</product></source>'
    path.write_text(
        "".join(
            f'<nds dtdversion="2.0">{source}<input>{event}</input></nds>\n' for event in _EVENTS
        )
    )


# --- changes, which the other formats' own writers put down ---------------------------------------

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


def _change(
    op: ChangeOp, before: Row | None = None, after: Row | None = None, **fields: Any
) -> Change:
    image = before if op is DELETE else after
    key = None if image is None else tuple((name, image[name]) for name in KEY)
    if op is UPDATE and "changed" not in fields:
        assert before is not None
        assert after is not None
        fields["changed"] = frozenset(
            name for name in after if name in before and before[name] != after[name]
        )
    return Change("app", "item", op, key, before, after, **fields)


def _transaction(id: str | None, *changes: Change, **fields: Any) -> list[Change]:
    """Changes of one transaction, numbered."""
    numbered = [
        change._replace(event_number=number, last_in_transaction=number == len(changes))
        for number, change in enumerate(changes, 1)
    ]
    return [
        change._replace(transaction_id=id, **{"commit_time": _AT, **fields}) for change in numbered
    ]


def _sequenced(changes: Iterable[Change]) -> list[Change]:
    """Changes at places of a change table's source."""
    return [
        change._replace(
            position=f"2024051012000001{number:019}", extras={"stream_position": f"log:{number}"}
        )
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
        f"{0xB2:032X}", _change(UPDATE, after=_row(8, name=None), changed=frozenset({"name"})),
        commit_time=None
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
                    UPDATE,
                    _part(_row(3), "name", "price"),
                    _part(_row(3, price=Decimal(2)), "name", "price", "note"),
                ),
                _change(
                    UPDATE,
                    _part(_row(12), "name"),
                    _part(_row(12, name="bolt", price=Decimal(2)), "name", "price"),
                    changed=frozenset({"name", "price"}),
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
                    _change(
                        UPDATE, after=_part(_row(8), "name", "price"), changed=frozenset({"name"})
                    ),
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
    _transaction(
        "A1",
        _change(INSERT, after=_row(1)),
        _UPDATED,
        _TRUNCATED,
        _REPEATED,
        _MOVED,
        _DELETED,
        user="2005",
    ),
    _transaction("A2", _change(UPDATE, _row(9), _row(9)), user="2005"),
]

_QUEUES: Final = [
    _transaction("2A", _change(INSERT, after=_row(1)), _REPEATED, _UPDATED, _MOVED, _DELETED),
    _transaction("2A", _change(INSERT, after=_row(9, note="a")), commit_time=None),
]

_EVENTS_OF_ALL: Final = [
    change._replace(position=f"e-{number}")
    for number, change in enumerate(
        (
            *_transaction(
                _HIGH_ID,
                _change(INSERT, after={**_part(_row(1), "name", "note"), TAGS: ("red", "big")}),
                _UPDATED,
                _REPEATED,
                _MOVED,
                _TRUNCATED,
                _DELETED,
                user="scott",
                commit_time=_AT.replace(microsecond=15_625),
            ),
            *_transaction(
                f"{0xB2:032X}",
                _change(UPDATE, after=_row(8, name=None), changed=frozenset({"name"})),
                user="2005",
            ),
            *_transaction(
                f"{0xB3:032X}",
                _change(INSERT, after=_row(12)),
                _change(UPDATE, _row(12), _row(12, name=None)),
            ),
            _change(UPDATE, after=_part(_row(13), "name", "note"), changed=frozenset({"name"})),
            _change(
                UPDATE,
                _part(_row(14, name="bolt"), "name"),
                _part(_row(14), "name", "note"),
                changed=frozenset({"name", "note"}),
            ),
            _change(DELETE, _part(_row(9))),
            _change(REFRESH, after=_row(10)),
        ),
        1,
    )
]


_EVENTS_OF_ROWS: Final = [
    change._replace(position=str(number), commit_time=_AT)
    for number, change in enumerate(
        (_change(INSERT, after=_row(1)), _UPDATED, _REPEATED, _TRUNCATED, _DELETED, _change(DELETE,
         _part(_row(8))), _change(REFRESH, after=_row(10)),
         *(_change(UPDATE, after=_row(number), changed=None) for number in (11, 12))), 1,
    )
]  # fmt: skip


def _make_topics(path: Path) -> None:
    """As Debezium's connector of PostgreSQL writes them beside ours: with txId, and of an update
    whose table has its default replica identity the key before it; a value out of line is not
    there.
    """
    TRIED["D"].write(_EVENTS_OF_ROWS, path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines[:2]:
        line["value"]["payload"]["source"]["txId"] = 555
    lines[-2]["value"]["payload"]["before"] = dict(lines[-2]["key"]["payload"])
    lines[-1]["value"]["payload"]["after"]["note"] = "__debezium_unavailable_value"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _in_parts(letter: str, parts: list[list[Change]]) -> Callable[[Path], None]:
    write = TRIED[letter].write_parts
    assert write is not None
    return lambda path: write(path, parts)


SAMPLES: Final[Mapping[str, Callable[[Path], None]]] = {
    "E": _make_log,
    "X": _make_documents,
    "T": lambda path: TRIED["T"].write(_TABLES, path),
    "K": lambda path: TRIED["K"].write(_MESSAGES, path),
    "G": _in_parts("G", _STREAMS),
    "L": _in_parts("L", _QUEUES),
    "C": lambda path: TRIED["C"].write(_EVENTS_OF_ALL, path),
    "D": _make_topics,
}
"""Letter -> what makes the source."""


# --- any history of the table, as a source can hold it --------------------------------------------

_OF_XML: Final = st.characters(
    codec="utf-8",
    exclude_categories=["Cc"],
    include_characters="\t\r\n",
    exclude_characters="\ufffe\uffff",
)
_OF_UNICODE: Final = st.characters(codec="utf-8") | st.sampled_from(
    "\0\x01\x7f\x85\u2028\ufffe\uffff"
)
_WITHOUT_NUL: Final = st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from(
    "\x01\x7f\ufffe\uffff"
)
_MOMENTS: Final = st.datetimes(datetime(1601, 1, 1), datetime(9000, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0)
)


def _values(characters: st.SearchStrategy[str]) -> Mapping[str, st.SearchStrategy[Any]]:
    text = st.text(characters, max_size=8)
    price = st.integers(-(10**6), 10**6).map(lambda cents: Decimal(cents) / 100)
    return {"name": text, "price": price, "made": _MOMENTS, "note": text}


_OTHERS: Final = tuple(name for name in COLUMNS if name not in KEY)
_OPS: Final = {
    "E": (INSERT, UPDATE, DELETE),
    "X": (INSERT, UPDATE, DELETE),
    "T": (INSERT, UPDATE, DELETE, TRUNCATE),
    "K": (INSERT, UPDATE, DELETE, REFRESH),
    "G": (INSERT, UPDATE, DELETE, TRUNCATE),
    "L": (INSERT, UPDATE, DELETE),
    "C": (INSERT, UPDATE, DELETE, TRUNCATE, REFRESH),
    "D": (INSERT, UPDATE, DELETE, TRUNCATE, REFRESH),
}
_TICKS: Final = {"E": 64, "X": 1, "T": 64, "K": 8, "G": 1, "L": 64, "C": 64, "D": 64}
"""Parts of a second that commit times of a source have; finer ones a Linter queue does not hold."""

_BIRTH: Final = datetime(1990, 1, 2, tzinfo=UTC)  # a queue counts from 1990


@st.composite
def histories(draw: st.DrawFn, letter: str, target: str) -> list[Change]:
    """Up to five changes of rows of their own: two of one row would become one where a log is
    folded.

    Only XML lacks characters, so all of Unicode is in what neither comes from XDS nor goes there;
    the images of GBase and Linter tell NULL by a byte 0.
    """
    characters = _OF_UNICODE if {letter, target}.isdisjoint("XGL") else _WITHOUT_NUL
    if "X" in (letter, target):
        characters = _OF_XML
    changes: list[Change] = []
    for number in range(draw(st.integers(0, 2))):
        size = draw(st.integers(1, 1 if letter in "EX" else 3))
        transaction = [
            _drawn_change(draw, letter, 10 * number + place, characters) for place in range(size)
        ]
        changes += _committed(draw, letter, number, transaction)
    if letter in "TK":
        changes = [
            change
            if change.op is REFRESH
            else change._replace(position=f"2024051012000001{place:019}")
            for place, change in enumerate(changes, 1)
        ]
    return changes


def _committed(draw: st.DrawFn, letter: str, number: int, changes: list[Change]) -> list[Change]:
    ticks = _TICKS[letter]
    count = draw(st.integers(0, 10**9))
    commit_time = None if letter == "X" else _BIRTH + timedelta(seconds=count // ticks) + timedelta(
        microseconds=count % ticks * (1_000_000 // ticks)
    )  # fmt: skip
    user = None
    if letter in "EGC":
        user = draw(st.sampled_from(["7", "2005"] if letter == "G" else [None, "2005", "scott"]))
    is_grouped = letter in "TKGLC"
    named = [
        change._replace(
            commit_time=commit_time,
            user=user,
            transaction_id=f"{number + 1:032X}" if is_grouped else None,
            event_number=place if is_grouped else None,
            last_in_transaction=place == len(changes) if is_grouped else None,
            position=str(number + 1),
        )
        for place, change in enumerate(changes, 1)
    ]
    return [_refreshed(change) if change.op is REFRESH else change for change in named]


def _refreshed(change: Change) -> Change:
    """A row of an initial load has no place, time or transaction."""
    return change._replace(
        position=None,
        commit_time=None,
        transaction_id=None,
        event_number=None,
        last_in_transaction=None,
    )


def _drawn_change(
    draw: st.DrawFn, letter: str, number: int, characters: st.SearchStrategy[str]
) -> Change:
    values = _values(characters)
    op = draw(st.sampled_from(_OPS[letter]))
    if op is TRUNCATE:
        return Change("app", "item", op)
    is_whole = letter in "TGLD"
    code = st.text(characters, min_size=1, max_size=6).filter(
        lambda text: "\0" not in text
    )  # which no key of a log has
    key = {"id": number, "code": draw(code)}
    known = (
        _OTHERS if is_whole else draw(st.lists(st.sampled_from(_OTHERS), min_size=1, unique=True))
    )
    row = {**key, **{name: draw(values[name] | st.none()) for name in known}}
    if op is not UPDATE:
        row[known[0]] = draw(
            values[known[0]]
        )  # a row of NULLs is no more than its key, but to some formats
    if op is DELETE:
        return _of(op, key, before=key if letter in "EX" else row)
    if op is not UPDATE:
        return _of(op, key, after=row)
    return _update(draw, letter, key, row, known, values)


def _of(op: ChangeOp, key: Row, **fields: Any) -> Change:
    return Change("app", "item", op, tuple(key.items()), **fields)


def _update(
    draw: st.DrawFn,
    letter: str,
    key: Row,
    after: Row,
    known: Any,
    values: Mapping[str, st.SearchStrategy[Any]],
) -> Change:
    names = draw(st.lists(st.sampled_from(sorted(known)), min_size=letter in "EXT", unique=True))
    if letter in "EX":
        after = {**key, **{name: after[name] for name in names}}
    before: dict[str, Any] | None = dict(after)
    assert before is not None
    for name in names:
        before[name] = draw(
            (values[name] | st.none()).filter(lambda old, new=after[name]: old != new)
        )
    changed = frozenset(names)
    # A row of NULLs that a key change inserts reads back from a log with one NULL of them known.
    if letter in "TKGLC" and any(after[name] is not None for name in known) and draw(st.booleans()):
        before["id"] = -1 - before["id"]
        changed |= {"id"}
    elif letter in "EXTKCD":
        unknown = (
            draw(st.sets(st.sampled_from(sorted(known)))) if letter not in "TD" else frozenset()
        )
        before = {name: value for name, value in before.items() if name not in unknown}
        if draw(st.booleans()) or (letter in "EXK" and before.keys() == key.keys()):
            before = None
    return _of(UPDATE, key, before=before, after=after, changed=changed)
