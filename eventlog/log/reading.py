"""Rows of the event log -> changes: check, fold, precedence, query-back (spec/change-model.md 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Final, TypeAlias

from eventlog.changes.format import Report
from eventlog.changes.from_rows import UNREAD, GroupReading, MaybeRow, ReadGroup, group_reader, with_rows
from eventlog.core.catalog import Attribute, Catalog, ObjectClass, ObjectId
from eventlog.core.checks import CheckedRow, check_rows
from eventlog.core.events import CurrentRow, Decision, apply_precedence, asks_for_values, ids_of
from eventlog.core.fold import Group, first_open, fold, object_of
from eventlog.errors import FormatError, RowError, with_location
from eventlog.model import Change, LogRow, Status, queue_rows

WINDOW: Final = 10_000
"""Rows folded at a time: windows do not change the result (spec/event-log.md 8.2), and memory stays bounded."""

QueryBack: TypeAlias = Callable[[ObjectClass, Sequence[str], Sequence[Attribute]], Mapping[str, CurrentRow]]
"""Class, canonical keys, attributes -> the current rows by key, gone objects left out."""

_LETTERS: Final = frozenset((Status.NEW, Status.SUCCESS, Status.WARNING, Status.ERROR, Status.FATAL))


@dataclass(frozen=True, slots=True)
class Folding:
    """What decides which rows become which groups (spec/event-log.md 6, 8.3, 9).

    ``status``: the letters of rows that are read. ``driver_user``: rows of this perpetrator are loopback, None = none.
    """

    fold_distance: int = 1000
    fold_span: int = 10000
    status: frozenset[str] = _LETTERS
    driver_user: str | None = None


def rows_to_changes(
    rows: Iterable[LogRow],
    catalog: Catalog,
    reading: GroupReading,
    folding: Folding,
    query_back: QueryBack | None,
    report: Report,
    source: str,
) -> Iterator[Change]:
    """The changes of rows in ascending order of record_id, in the order of their groups' first rows.

    ``query_back`` None = no connection: changes of types 5 to 8 come without their row. Bad rows are passed over.
    ``source``: whose rows they are, for messages.
    Raises FormatError for rows that are out of order.
    """
    read_group = group_reader(reading)
    log_rows: dict[int, LogRow] = {}
    good: list[CheckedRow] = []
    last = 0
    taken = _taken(_ascending(rows, source, report), folding, report)
    while True:
        window = list(islice(taken, WINDOW))
        if window:
            last = window[-1].record_id
            log_rows.update((row.record_id, row) for row in window)
            good += _checked(window, catalog, folding, report, source)
        groups = fold(good, folding.fold_distance, folding.fold_span)
        at_tail = len(window) < WINDOW
        closed = len(groups) if at_tail else first_open(groups, last, folding.fold_distance, folding.fold_span)
        yield from _changes(groups[:closed], log_rows, read_group, query_back, report, source)
        if at_tail:
            return
        good = sorted((row for group in groups[closed:] for row in group), key=itemgetter(0))
        log_rows = {record_id: log_rows[record_id] for record_id in ids_of(good)}


def _ascending(rows: Iterable[LogRow], source: str, report: Report) -> Iterator[LogRow]:
    last = 0
    for row in rows:
        if row.record_id <= last:
            if row.record_id == last:
                report.skip(FormatError(f"{source}: record_id {last} stands twice; the first row counts"))
                continue
            raise FormatError(
                f"{source}: record_id {row.record_id} stands behind record_id {last}: the rows are needed in ascending "
                "order of it; sort the file by it, or read with the option sort = true"
            )
        last = row.record_id
        yield row


def _taken(rows: Iterable[LogRow], folding: Folding, report: Report) -> Iterator[LogRow]:
    """Rows of the wanted statuses; CHAR padding is ignored (spec/event-log.md 2)."""
    for row in rows:
        status = row.status.rstrip(" ")
        if status in folding.status:
            yield row if status == row.status else row._replace(status=status)
        else:
            report.count("rows_not_taken" if status in _LETTERS else "rows_of_reserved_status")


def _checked(
    rows: Sequence[LogRow], catalog: Catalog, folding: Folding, report: Report, source: str
) -> list[CheckedRow]:
    checked = check_rows(queue_rows(rows), catalog, folding.driver_user)
    for bad in checked.bad:
        report.skip(RowError(bad.code, f"{source}, record_id {bad.record_id}: {bad.message}"))
    if checked.loopback:
        report.count("rows_loopback", len(checked.loopback))
    for remark in checked.remarks:
        report.count(remark.counter)
    return checked.good


def _changes(
    groups: Sequence[Group],
    log_rows: Mapping[int, LogRow],
    read_group: ReadGroup,
    query_back: QueryBack | None,
    report: Report,
    source: str,
) -> Iterator[Change]:
    decisions = [apply_precedence(group) if asks_for_values(group) else None for group in groups]
    current = {} if query_back is None else _read_back(groups, decisions, query_back)
    for group, decision in zip(groups, decisions, strict=True):
        row: MaybeRow = UNREAD
        if query_back is not None and decision is not None and decision.query_back is not None:
            row = current.get(object_of(group))
        try:
            change = read_group(group, decision, row, log_rows)
        except FormatError as error:
            report.skip(with_location(error, source))
            continue
        if change is not None:
            report.read += 1
            yield with_rows(change, group, log_rows)
        else:
            report.count("groups_gone" if row is None else "groups_empty")


def _read_back(
    groups: Sequence[Group], decisions: Sequence[Decision | None], query_back: QueryBack
) -> dict[ObjectId, CurrentRow]:
    """The current rows of all objects that precedence asks for: one question a class."""
    asked: dict[ObjectClass, tuple[dict[str, None], dict[Attribute, None]]] = {}
    for group, decision in zip(groups, decisions, strict=True):
        if decision is not None and decision.query_back is not None:
            object_class, key = object_of(group)
            keys, attributes = asked.setdefault(object_class, ({}, {}))
            keys[key] = None
            attributes.update(dict.fromkeys(decision.query_back))
    return {
        (object_class, key): row
        for object_class, (keys, attributes) in asked.items()
        for key, row in query_back(object_class, list(keys), list(attributes)).items()
    }
