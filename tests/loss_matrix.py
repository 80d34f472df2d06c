"""What each conversion loses (spec/change-model.md 5) as data, and what each loss does to
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from loss_formats import COLUMNS, KEY, complete

from eventlog.changes.images import written_columns
from eventlog.changes.losses import Loss
from eventlog.model import Change, ChangeOp, Row, changes_nothing, differing, old_key

CODES: Final[Mapping[str, str]] = {
    "ABS": "an unknown column becomes NULL (gbase, linter: only in deleted rows)",
    "BEF": "in the image before an UPDATE, the columns that did not change",
    "BEU": "the image before an UPDATE, if a changed column is unknown in it",
    "UNC": "in the image after an UPDATE, the columns that did not change",
    "DEL": "non-key columns of a deleted row",
    "CHG": "which columns changed, if the image before is unknown",
    "NIN": "NULLs of an inserted row: not written, so they read back as unknown",
    "NOP": "updates that change nothing",
    "TRN": (
        "TRUNCATE (eventlog, xds: one delete per key of existing_keys; qlik-messages: skipped; "
        "linter: refused, or deletes)"
    ),
    "REF": "the difference between REFRESH and INSERT (qlik-change-table: skipped by default)",
    "KCH": "a changed key becomes a DELETE and an INSERT",
    "INC": (
        "nothing, but an inserted or updated row with unknown columns needs the option complete, "
        "otherwise it is refused"
    ),
    "INC*": "the same, only if before images were off at the source",
    "MVA": "attributes with several values: refused as not_expressible",
    "KEY": "which columns are the key; an option gives them on reading",
    "POS": "the position at the source; the target assigns its own",
    "TXN": "transaction id, event number and the flag of the last event",
    "TXI": "the transaction id; groups, order and the flag of the last event stay",
    "CNT": "event number and the flag of the last event; reading all tables computes them",
    "TIM": "commit time",
    "TIM-ms": "the part of the commit time below a millisecond",
    "TIM-s": "the part of the commit time below a second",
    "USR": "user; gbase keeps a numeric id",
}

CODES_OF: Final[Mapping[Loss, str]] = {
    Loss.COMMIT_TIME: "TIM",
    Loss.MICROSECONDS: "TIM-ms",
    Loss.FRACTIONS: "TIM-s",
    Loss.USER: "USR",
    Loss.TRANSACTION: "TXN",
    Loss.TRANSACTION_ID: "TXI",
    Loss.POSITION: "POS",
    Loss.KEY: "KEY",
    Loss.CHANGED: "CHG",
    Loss.BEFORE: "BEU",
    Loss.NULLS: "NIN",
    Loss.UNCHANGED: "UNC",
    Loss.UNCHANGED_BEFORE: "BEF",
    Loss.DELETED: "DEL",
    Loss.REFRESH: "REF",
    Loss.KEY_CHANGE: "KCH",
}
"""The code of each loss that a conversion reports. What is skipped or refused is counted by its
writer; numbers within transactions (CNT) are computed again by the reader.
"""

_TABLE: Final = """
from | E | X | T | K | G | L | C | D
E | none | NIN USR TIM | ABS MVA USR | MVA USR TIM-ms | INC ABS MVA CHG KEY POS TIM-s USR | INC ABS MVA CHG POS USR | none | INC MVA BEU CHG USR
X | POS | none | ABS MVA | MVA | INC ABS MVA CHG KEY POS | INC ABS MVA CHG POS | none | INC MVA BEU CHG
T | TRN BEF UNC DEL NIN KCH POS TXN | TRN BEF UNC DEL NIN KCH TXN TIM | none | TRN TIM-ms | CHG KEY POS TXI TIM-s | TRN INC* CHG POS TXI | none | KCH CHG TXN
K | REF BEF UNC DEL NIN NOP KCH POS TXN | REF BEF UNC DEL NIN NOP KCH TXN TIM | REF NOP ABS CNT | none | REF INC ABS CHG KEY POS TXI TIM-s | REF INC ABS CHG POS TXI | none | INC BEU CHG KCH TXN
G | TRN BEF UNC DEL NIN NOP KCH POS TXN | TRN BEF UNC DEL NIN NOP KCH TXN TIM USR | NOP CNT USR | TRN USR | POS TXI | TRN POS TXI USR | none | KCH TXN USR
L | BEF UNC DEL NIN NOP KCH POS TXN | BEF UNC DEL NIN NOP KCH TXN TIM | NOP CNT | TIM-ms | KEY POS TXI TIM-s | POS TXI | none | KCH TXN
C | TRN REF BEF UNC DEL NIN NOP KCH POS TXN | TRN REF BEF UNC DEL NIN NOP KCH TXN TIM USR | REF NOP ABS MVA CNT USR | TRN MVA USR TIM-ms | REF INC ABS MVA CHG KEY POS TXI TIM-s USR | TRN REF INC ABS MVA CHG POS TXI USR | none | INC MVA BEU CHG KCH TXN USR
D | TRN REF BEF UNC DEL NIN NOP POS TXN | TRN REF BEF UNC DEL NIN NOP TXN TIM | REF NOP ABS CNT | TRN TIM-ms | REF INC ABS KEY POS TXI TIM-s | TRN REF INC ABS POS TXI | BEU | INC BEU TXN
"""


def _matrix() -> dict[tuple[str, str], frozenset[str]]:
    heading, *lines = (
        [cell.strip() for cell in line.split("|")] for line in _TABLE.strip().splitlines()
    )
    return {
        (source, target): frozenset() if cell == "none" else frozenset(cell.split())
        for source, *cells in lines
        for target, cell in zip(heading[1:], cells, strict=True)
    }


MATRIX: Final = _matrix()
"""(from, to) -> codes of what is lost."""


# What each code does to changes

Lose = Callable[[list[Change], str], list[Change]]
"""Changes, and the letter of the format they go to -> what is left of them."""


def _each(lose: Callable[[Change], Change]) -> Lose:
    return lambda changes, target: [lose(change) for change in changes]


def _without(dropped: Callable[[Change], bool]) -> Lose:
    return lambda changes, target: [change for change in changes if not dropped(change)]


def _only(row: Row | None, names: Iterable[str]) -> Row | None:
    kept = frozenset(names)
    return None if row is None else {name: value for name, value in row.items() if name in kept}


def _key_names(change: Change) -> tuple[str, ...]:
    return tuple(name for name, _ in change.key or ())


def _before_of_changed(change: Change) -> Change:
    if change.op is not ChangeOp.UPDATE or change.before is None:
        return change
    changed = written_columns(change)
    if not any(name in change.before for name in changed):
        return change._replace(before=None)
    return change._replace(before=_only(change.before, (*_key_names(change), *changed)))


def _after_of_changed(change: Change) -> Change:
    if change.op is not ChangeOp.UPDATE:
        return change
    return change._replace(
        after=_only(change.after, (*_key_names(change), *written_columns(change)))
    )


def _deleted_key(change: Change) -> Change:
    return (
        change._replace(before=dict(change.key or ())) if change.op is ChangeOp.DELETE else change
    )


def _is_inserted(change: Change) -> bool:
    return change.op in (ChangeOp.INSERT, ChangeOp.REFRESH)


def _without_nulls(change: Change) -> Change:
    if not _is_inserted(change):
        return change
    return change._replace(
        after={name: value for name, value in (change.after or {}).items() if value is not None}
    )


def _split_key_changes(changes: list[Change], target: str) -> list[Change]:
    return [part for change in changes for part in _parts(change)]


def _parts(change: Change) -> Iterator[Change]:
    if change.op is not ChangeOp.UPDATE or old_key(change) == change.key:
        yield change
        return
    yield change._replace(op=ChangeOp.DELETE, key=old_key(change), after=None, changed=None)
    yield change._replace(op=ChangeOp.INSERT, before=None, changed=None)


def _without_refresh(changes: list[Change], target: str) -> list[Change]:
    if target == "T":
        return [change for change in changes if change.op is not ChangeOp.REFRESH]
    return [
        change._replace(op=ChangeOp.INSERT) if change.op is ChangeOp.REFRESH else change
        for change in changes
    ]


def has_several_values(change: Change) -> bool:
    """Whether a change has a multi-valued attribute."""
    return any(
        isinstance(value, tuple)
        for image in (change.before, change.after)
        for value in (image or {}).values()
    )


def _completed(changes: list[Change], target: str) -> list[Change]:
    return [_complete(change, target) for change in changes]


def _complete(change: Change, target: str) -> Change:
    """Whole rows; L has no update without the row before it."""
    if change.after is None:
        return change
    if target == "D":
        return _completed_by_after(change)
    row = complete(change.schema, change.table, change.key)
    before = change.before
    if change.op is ChangeOp.UPDATE and (before is not None or target == "L"):
        before = {**row, **(before or {})}
    return change._replace(before=before, after={**row, **change.after})


def _completed_by_after(change: Change) -> Change:
    """Whole rows; what an UPDATE has not changed is before it as after it, where all changed
    columns are known.
    """
    after = {**complete(change.schema, change.table, change.key), **(change.after or {})}
    before = change.before
    if change.op is ChangeOp.UPDATE and before is not None and _knows_changed(change):
        before = {**after, **before}
    return change._replace(before=before, after=after)


def _knows_changed(change: Change) -> bool:
    before = change.before or {}
    changed = change.changed
    if changed is None:
        changed = differing(before, change.after or {})
    return changed is not None and before.keys() >= changed


def _before_where_known(change: Change) -> Change:
    if change.op is not ChangeOp.UPDATE or change.before is None or _knows_changed(change):
        return change
    return change._replace(before=None)


def lacks_columns(change: Change, target: str) -> bool:
    """Whether a change cannot be written without ``complete`` where rows are whole."""
    if target == "D":  # what an insert does not say is NULL
        return change.op is ChangeOp.UPDATE and not (change.after or {}).keys() >= COLUMNS.keys()
    return _complete(change, target) != change


def _unknown_as_null(changes: list[Change], target: str) -> list[Change]:
    return [
        change._replace(before=_whole_deleted(change, target))
        if change.op is ChangeOp.DELETE
        else change
        if target != "T"
        else change._replace(before=_whole(change.before), after=_whole(change.after))
        for change in changes
    ]


def _whole(row: Row | None) -> Row | None:
    return None if row is None else {**dict.fromkeys(COLUMNS), **row}


def _whole_deleted(change: Change, target: str) -> Row | None:
    """All columns; a change table shows the key alone where nothing else is there
    (spec/change-model.md 3.3).
    """
    known = change.before or {}
    if target == "T" and all(value is None for name, value in known.items() if name not in KEY):
        return _only(known, KEY)
    return _whole(known)


def _derived_changed(change: Change) -> Change:
    if change.op is not ChangeOp.UPDATE:
        return change
    derived = (
        None
        if change.before is None or change.after is None
        else differing(change.before, change.after)
    )
    return change._replace(changed=derived)


def _recounted(changes: list[Change], target: str) -> list[Change]:
    """Numbered by runs of one transaction id, of which TRUNCATE is none, as change tables are
    (formats/qlik.md 7).
    """
    return [
        change
        for transaction_id, run in groupby(changes, key=lambda change: change.transaction_id)
        for change in (
            run if transaction_id is None else _numbered(list(run), but=ChangeOp.TRUNCATE)
        )
    ]


def _numbered(changes: list[Change], but: ChangeOp | None = None) -> Iterator[Change]:
    total, number = sum(change.op is not but for change in changes), 0
    for change in changes:
        if change.op is but:
            yield change._replace(event_number=None, last_in_transaction=None)
            continue
        number += 1
        yield change._replace(event_number=number, last_in_transaction=number == total)


def _named_by_order(changes: list[Change], target: str) -> list[Change]:
    """Transactions named 1, 2, ...: what is left of their ids is which changes belong together."""
    named: list[Change] = []
    previous: Change | None = None
    number, ended = 0, False
    for change in changes:
        is_uncounted = change.op is ChangeOp.TRUNCATE and change.event_number is None
        same_id = previous is not None and previous.transaction_id == change.transaction_id
        if not same_id or (ended and not is_uncounted):
            number, ended = number + 1, False
        ended = ended or bool(change.last_in_transaction)
        previous = change
        named.append(
            change if change.transaction_id is None else change._replace(transaction_id=str(number))
        )
    return named


def _counted_by_name(changes: list[Change], target: str) -> list[Change]:
    """What is left of each transaction, named and numbered as the target does it, in its order."""
    runs = [list(run) for _, run in groupby(changes, key=lambda change: change.transaction_id)]
    return [
        change if change.transaction_id is None else change._replace(transaction_id=str(name))
        for name, run in enumerate(runs, 1)
        for change in (run if run[0].transaction_id is None else _numbered(run))
    ]


def _whole_units(unit: int) -> Callable[[Change], Change]:
    """Times in whole units of so many microseconds."""

    def cut(change: Change) -> Change:
        moment = change.commit_time
        if moment is None:
            return change
        return change._replace(
            commit_time=moment.replace(microsecond=moment.microsecond // unit * unit)
        )

    return cut


def _without_user(changes: list[Change], target: str) -> list[Change]:
    return [
        change._replace(
            user=change.user if target == "G" and (change.user or "").isdigit() else None
        )
        for change in changes
    ]


LOSSES: Final[tuple[tuple[str, Lose], ...]] = (
    # In the order in which they are applied; of what a code does in two steps, the second stands
    # after what drops changes.
    ("TXI", _named_by_order),
    ("TRN", _without(lambda change: change.op is ChangeOp.TRUNCATE)),
    ("NOP", _without(changes_nothing)),
    ("REF", _without_refresh),
    ("MVA", _without(has_several_values)),
    ("INC", _completed),
    ("INC*", _completed),
    ("KCH", _split_key_changes),
    ("BEU", _each(_before_where_known)),
    ("BEF", _each(_before_of_changed)),
    ("UNC", _each(_after_of_changed)),
    ("DEL", _each(_deleted_key)),
    ("NIN", _each(_without_nulls)),
    ("ABS", _unknown_as_null),
    ("CHG", _each(_derived_changed)),
    ("CNT", _recounted),
    ("TXI", _counted_by_name),
    (
        "TXN",
        _each(
            lambda change: change._replace(
                transaction_id=None, event_number=None, last_in_transaction=None
            )
        ),
    ),
    ("TIM", _each(lambda change: change._replace(commit_time=None))),
    ("TIM-ms", _each(_whole_units(1000))),
    ("TIM-s", _each(_whole_units(1_000_000))),
    ("USR", _without_user),
    ("KEY", _each(lambda change: change._replace(key=None))),
    ("POS", _each(lambda change: change._replace(position=None))),
)
"""Code -> what happens to changes."""

NAMES_ONLY: Final = frozenset({"POS", "TXI"})
"""Losses where the target has something of its own instead: what it has is no more compared."""


def lose(changes: Iterable[Change], codes: Iterable[str], target: str) -> list[Change]:
    """The changes after these losses on the way to a format."""
    left = list(changes)
    wanted = frozenset(codes)
    for code, function in LOSSES:
        if code in wanted:
            left = function(left, target)
    return left
