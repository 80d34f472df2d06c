"""What each conversion loses (spec/change-model.md 5) as data, and what each loss does to changes.

``MATRIX`` holds all 36 cells. A cell can be tried when both its formats have a ``Form`` in ``FORMS`` and all its codes
a function in ``LOSSES``; whoever adds a format adds its form, and the losses that its cells name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from eventlog.change_keys import written_columns
from eventlog.convert import format_named
from eventlog.formats import Report
from eventlog.model import Change, ChangeOp, Row, changes_nothing, moves_key, old_key

LETTERS: Final[Mapping[str, str]] = {
    "E": "eventlog",
    "X": "xds",
    "T": "qlik-change-table",
    "K": "qlik-messages",
    "G": "gbase",
    "L": "linter",
}

CODES: Final[Mapping[str, str]] = {
    "ABS": "a column that is not known becomes NULL (G, L: in deleted rows only)",
    "BEF": "before image of an UPDATE beyond the changed columns",
    "UNC": "unchanged columns of the after image of an UPDATE",
    "DEL": "non-key columns of a deleted row",
    "CHG": "the set of changed columns where it cannot be derived (before image unknown)",
    "NIN": "NULLs of an inserted row: not written, so read back as not known",
    "NOP": "updates that change nothing",
    "TRN": "TRUNCATE (E, X: one delete per key if the keys are given; K: skipped; L: refused or deletes)",
    "REF": "the difference between REFRESH and INSERT (T: REFRESH skipped by default)",
    "KCH": "a key change becomes DELETE + INSERT",
    "INC": "nothing is lost, but inserted and updated rows with unknown columns need complete, otherwise refused",
    "INC*": "the same, only where before images were off at the source",
    "MVA": "multi-valued attributes: refused with NotExpressible",
    "KEY": "which columns form the key (configuration needed to read it back)",
    "POS": "the source position (the target assigns its own)",
    "TXN": "transaction id, event number, last flag",
    "TXI": "the transaction id (grouping, order and last flag stay)",
    "CNT": "event number and last flag (grouping by id stays; recomputed on reading all tables)",
    "TIM": "commit time",
    "TIM-ms": "the part of the commit time below a millisecond",
    "TIM-s": "the part of the commit time below a second",
    "USR": "user; to G only a numeric id survives",
}

_TABLE: Final = """
from | E | X | T | K | G | L
E | none | NIN USR TIM | ABS MVA USR | MVA USR TIM-ms | INC ABS MVA CHG KEY POS TIM-s USR | INC ABS MVA CHG POS USR
X | POS | none | ABS MVA | MVA | INC ABS MVA CHG KEY POS | INC ABS MVA CHG POS
T | TRN BEF UNC DEL NIN KCH POS TXN | TRN BEF UNC DEL NIN KCH TXN TIM | none | TRN TIM-ms | CHG KEY POS TXI TIM-s | TRN INC* CHG POS TXI
K | REF BEF UNC DEL NIN NOP KCH POS TXN | REF BEF UNC DEL NIN NOP KCH TXN TIM | REF NOP ABS CNT | none | REF INC ABS CHG KEY POS TXI TIM-s | REF INC ABS CHG POS TXI
G | TRN BEF UNC DEL NIN NOP KCH POS TXN | TRN BEF UNC DEL NIN NOP KCH TXN TIM USR | NOP CNT USR | TRN USR | POS TXI | TRN POS TXI USR
L | BEF UNC DEL NIN NOP KCH POS TXN | BEF UNC DEL NIN NOP KCH TXN TIM | NOP CNT | TIM-ms | KEY POS TXI TIM-s | POS TXI
"""  # noqa: E501 - the table of the specification, cell by cell


def _matrix() -> dict[tuple[str, str], frozenset[str]]:
    heading, *lines = ([cell.strip() for cell in line.split("|")] for line in _TABLE.strip().splitlines())
    return {
        (source, target): frozenset() if cell == "none" else frozenset(cell.split())
        for source, *cells in lines
        for target, cell in zip(heading[1:], cells, strict=True)
    }


MATRIX: Final = _matrix()
"""(from, to) -> codes of what is lost."""


# What each code does to changes


def _each(lose: Callable[[Change], Change]) -> Callable[[list[Change]], list[Change]]:
    return lambda changes: [lose(change) for change in changes]


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
    return change._replace(after=_only(change.after, (*_key_names(change), *written_columns(change))))


def _deleted_key(change: Change) -> Change:
    return change._replace(before=dict(change.key or ())) if change.op is ChangeOp.DELETE else change


def _without_nulls(change: Change) -> Change:
    if change.op not in (ChangeOp.INSERT, ChangeOp.REFRESH):
        return change
    return change._replace(after={name: value for name, value in (change.after or {}).items() if value is not None})


def _split_key_changes(changes: list[Change]) -> list[Change]:
    return [part for change in changes for part in _parts(change)]


def _parts(change: Change) -> Iterator[Change]:
    if not moves_key(change):
        yield change
        return
    yield change._replace(op=ChangeOp.DELETE, key=old_key(change), after=None, changed=None)
    yield change._replace(op=ChangeOp.INSERT, before=None, changed=None)


def _refresh_as_insert(change: Change) -> Change:
    return change._replace(op=ChangeOp.INSERT) if change.op is ChangeOp.REFRESH else change


def _whole(unit: int) -> Callable[[Change], Change]:
    """Times in whole units of so many microseconds."""

    def cut(change: Change) -> Change:
        moment = change.commit_time
        if moment is None:
            return change
        return change._replace(commit_time=moment.replace(microsecond=moment.microsecond // unit * unit))

    return cut


LOSSES: dict[str, Callable[[list[Change]], list[Change]]] = {
    # In the order in which they are applied.
    "TRN": lambda changes: [change for change in changes if change.op is not ChangeOp.TRUNCATE],
    "NOP": lambda changes: [change for change in changes if not changes_nothing(change)],
    "REF": _each(_refresh_as_insert),
    "KCH": _split_key_changes,
    "BEF": _each(_before_of_changed),
    "UNC": _each(_after_of_changed),
    "DEL": _each(_deleted_key),
    "NIN": _each(_without_nulls),
    "TXN": _each(lambda change: change._replace(transaction_id=None, event_number=None, last_in_transaction=None)),
    "TXI": _each(lambda change: change._replace(transaction_id=None)),
    "CNT": _each(lambda change: change._replace(event_number=None, last_in_transaction=None)),
    "TIM": _each(lambda change: change._replace(commit_time=None)),
    "TIM-ms": _each(_whole(1000)),
    "TIM-s": _each(_whole(1_000_000)),
    "USR": _each(lambda change: change._replace(user=None)),
    "POS": _each(lambda change: change._replace(position=None)),
}
"""Code -> what becomes of changes; the codes whose function is still to be added are those of T, K, G and L."""


def lose(changes: Iterable[Change], codes: Iterable[str]) -> list[Change]:
    """The changes after these losses."""
    left = list(changes)
    wanted = frozenset(codes)
    for code, function in LOSSES.items():
        if code in wanted:
            left = function(left)
    return left


# Formats to try it with


@dataclass(frozen=True)
class Form:
    """A format to be tried: its letter, a source of it that shows all it can hold, and what to read and write it with.

    ``make`` writes the source; ``target`` is the name of the file or directory written; ``position`` what is left in a
    change that was read back of the position it was written from; ``gains`` what every change has after writing that
    it need not have had before.
    """

    letter: str
    target: str
    make: Callable[[Path], None]
    reader: Mapping[str, Any] = field(default_factory=dict)
    writer: Mapping[str, Any] = field(default_factory=dict)
    position: Callable[[Change], str | None] = lambda change: change.position
    gains: Callable[[Change, Change], Change] = lambda read, expected: read

    def read(self, path: Path, report: Report | None = None) -> list[Change]:
        """The changes of a source or of what was written."""
        return list(format_named(LETTERS[self.letter]).read(str(path), self.reader, report or Report(strict=True)))


FORMS: dict[str, Form] = {}
"""Letter -> form, filled by the modules that describe them."""


def cells() -> list[tuple[str, str]]:
    """The cells whose formats are there to be tried."""
    return [cell for cell in MATRIX if cell[0] in FORMS and cell[1] in FORMS]
