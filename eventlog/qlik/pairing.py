"""Before images and their updates: the rows of one change table, pair by pair (spec/qlik.md 6, 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from eventlog.errors import FormatError
from eventlog.qlik.change_rows import ChangeRow
from eventlog.qlik.errors import UnpairedBeforeImage


class Pair(NamedTuple):
    """One change of a change table: ``row`` with the before image of an update, None where there is none."""

    before: ChangeRow | None
    row: ChangeRow


def refuse(error: FormatError) -> None:
    """Raise what stands in the way: nothing is passed over."""
    raise error


def _pass(row: ChangeRow) -> None:
    pass


def pairs(
    rows: Iterable[ChangeRow],
    *,
    input_complete: bool,
    skip: Callable[[FormatError], None] = refuse,
    waits: Callable[[ChangeRow], None] = _pass,
    what: str,
) -> Iterator[Pair]:
    """The changes of one table's rows in change_seq order, a before image in front of its update.

    A before image at the very end of an input that is not declared complete waits for its update: it is not given, but
    ``waits`` is called with it.
    Every other one that is alone is an UnpairedBeforeImage, given to ``skip``, which raises it or goes on without
    the row.
    """
    before: ChangeRow | None = None
    for row in rows:
        if before is not None and (row.change_oper != "U" or row.change_seq != before.change_seq):
            skip(_unpaired(before, what))
            before = None
        if row.change_oper == "B":
            before = row
        else:
            yield Pair(before, row)
            before = None
    if before is not None and input_complete:
        skip(_unpaired(before, what))
    elif before is not None:
        waits(before)


def _unpaired(before: ChangeRow, what: str) -> UnpairedBeforeImage:
    return UnpairedBeforeImage(
        f"before image {before.change_seq} of {what} has no update row (U) of the same change_seq"
    )
