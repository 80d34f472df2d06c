"""The net effect of the rows of a log on one column (spec/change-model.md 3.1): the one rule by
which rows become the values of a ``Change``.

The rule is applied to the checked rows of published events and, in ``log.reading``, to rows that
hold the texts of the log. The functions here are a hot path: nearly all columns have one row of one
value, so a single-valued column is read from the first and the last row, without steps, in 0.4 us
per column instead of 1.8 us (bench/RESULTS.md, "One path to JSON").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from eventlog.core.catalog import Attribute
from eventlog.core.rows.checks import CheckedRow
from eventlog.core.rows.events import public_steps
from eventlog.core.values.typed_values import ReadValue
from eventlog.model import ALL, Op, Operation, Value

_MODIFY: Final = Operation.MODIFY  # looking up an enumeration's member is slow

Net: TypeAlias = tuple[bool, Value, Value]
"""The net effect on an attribute: True if the old value is known, the old value, and the new value.
For a multi-valued attribute the values are tuples of the removed and of the added values.
"""

ValueStep: TypeAlias = tuple[Op, tuple[Value, ...]]
"""A step of an attribute, with typed values in place of texts."""


def net_of_rows(attribute: Attribute, rows: Sequence[CheckedRow], read: ReadValue) -> Net:
    """Return the net effect of the rows that a group has of one attribute. There is at least one
    row, and the rows are in queue order.

    The old value of a single-valued attribute is the old value of the first row, and its new value
    is the new value of the last row. A row between the first and the last row may be missing,
    because it is a loopback row, invalid or purged. So a row's old value may differ from the
    previous row's new value. ``read`` turns a text into a value. Raises the errors of ``read``.
    """
    if attribute.multi_valued:
        return net_of_many(
            (op, tuple(map(read, texts))) for op, texts in public_steps(rows, _MODIFY)
        )
    old, new = rows[0][4], rows[-1][5]
    if isinstance(old, tuple):  # it looks like the new value under a mask
        (old,) = old
    assert not isinstance(new, tuple)
    is_known = old is not ALL
    return (
        is_known,
        None if old is None or old is ALL else read(old),
        None if new is None else read(new),
    )


def net_of_many(steps: Iterable[ValueStep]) -> Net:
    """Return the net effect of steps on a multi-valued attribute.

    The net effect does not include values that remove-all-values removed, since they are unknown.
    """
    removed: list[Value] = []
    added: list[Value] = []
    is_known = True
    for op, values in steps:
        if op is Op.REMOVE_ALL:
            removed, added, is_known = [], [], False
            continue
        back, forth = (removed, added) if op is Op.ADD else (added, removed)
        for value in values:
            if value in back:
                back.remove(value)
            else:
                forth.append(value)
    return is_known, tuple(removed) if is_known else None, tuple(added)
