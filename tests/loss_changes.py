"""Histories of a table as each source can hold them, to try the loss matrix with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from hypothesis import strategies as st
from loss_table import COLUMNS, KEY

from eventlog.model import Change, ChangeOp, Row

INSERT, UPDATE, DELETE, TRUNCATE, REFRESH = (
    ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE, ChangeOp.TRUNCATE, ChangeOp.REFRESH
)  # fmt: skip

_TEXT: Final = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], include_characters="\t\r\n"), max_size=8)
_KEY_TEXT: Final = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=6)
_MOMENTS: Final = st.datetimes(datetime(1601, 1, 1), datetime(9000, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0)
)
_VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "name": _TEXT,
    "price": st.integers(-(10**6), 10**6).map(lambda cents: Decimal(cents) / 100),
    "made": _MOMENTS,
    "note": _TEXT,
}
_OTHERS: Final = tuple(name for name in COLUMNS if name not in KEY)
_OPS: Final = {
    "E": (INSERT, UPDATE, DELETE),
    "X": (INSERT, UPDATE, DELETE),
    "T": (INSERT, UPDATE, DELETE, TRUNCATE),
    "K": (INSERT, UPDATE, DELETE, REFRESH),
    "G": (INSERT, UPDATE, DELETE, TRUNCATE),
    "L": (INSERT, UPDATE, DELETE),
}
_TICKS: Final = {"E": 64, "X": 1, "T": 64, "K": 8, "G": 1, "L": 64}
"""Parts of a second that commit times of a source have; finer ones a Linter queue does not hold."""

_BIRTH: Final = datetime(1990, 1, 2, tzinfo=UTC)  # a queue counts from 1990


@st.composite
def histories(draw: st.DrawFn, letter: str) -> list[Change]:
    """Up to five changes of rows of their own: two of one row would become one where a log is folded."""
    changes: list[Change] = []
    for number in range(draw(st.integers(0, 2))):
        size = draw(st.integers(1, 1 if letter in "EX" else 3))
        transaction = [_change(draw, letter, 10 * number + place) for place in range(size)]
        changes += _committed(draw, letter, number, transaction)
    if letter in "TK":
        changes = [
            change if change.op is REFRESH else change._replace(position=f"2024051012000001{place:019}")
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
    if letter in "EG":
        user = draw(st.sampled_from(["7", "2005"] if letter == "G" else [None, "2005", "scott"]))
    is_grouped = letter in "TKGL"
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
        position=None, commit_time=None, transaction_id=None, event_number=None, last_in_transaction=None
    )


def _change(draw: st.DrawFn, letter: str, number: int) -> Change:
    op = draw(st.sampled_from(_OPS[letter]))
    if op is TRUNCATE:
        return Change("app", "item", op)
    is_whole = letter in "TGL"
    key = {"id": number, "code": draw(_KEY_TEXT)}
    known = _OTHERS if is_whole else draw(st.lists(st.sampled_from(_OTHERS), min_size=1, unique=True))
    row = {**key, **{name: draw(_VALUES[name] | st.none()) for name in known}}
    if op is not UPDATE:
        row[known[0]] = draw(_VALUES[known[0]])  # a row of NULLs is no more than its key, but to some formats
    if op is DELETE:
        return _of(op, key, before=key if letter in "EX" else row)
    if op is not UPDATE:
        return _of(op, key, after=row)
    return _update(draw, letter, key, row, known)


def _of(op: ChangeOp, key: Row, **fields: Any) -> Change:
    return Change("app", "item", op, tuple(key.items()), **fields)


def _update(draw: st.DrawFn, letter: str, key: Row, after: Row, known: Any) -> Change:
    names = draw(st.lists(st.sampled_from(sorted(known)), min_size=letter in "EXT", unique=True))
    if letter in "EX":
        after = {**key, **{name: after[name] for name in names}}
    before: dict[str, Any] | None = dict(after)
    assert before is not None
    for name in names:
        before[name] = draw((_VALUES[name] | st.none()).filter(lambda old, new=after[name]: old != new))
    changed = frozenset(names)
    # A row of NULLs that a key change inserts reads back from a log with one NULL of them known.
    if letter in "TKGL" and any(after[name] is not None for name in known) and draw(st.booleans()):
        before["id"] = -1 - before["id"]
        changed |= {"id"}
    elif letter in "EXTK":
        unknown = draw(st.sets(st.sampled_from(sorted(known)))) if letter != "T" else frozenset()
        before = {name: value for name, value in before.items() if name not in unknown}
        if draw(st.booleans()) or (letter in "EX" and before.keys() == key.keys()):
            before = None
    return _of(UPDATE, key, before=before, after=after, changed=changed)
