"""Refused rows and objects that a resync has logged again: the new row counts in place of the
refused row or object. For each reader, the outcome is what this reader did with the new row
(spec/event-log.md 11).

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import sqlalchemy as sa

from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.ranges import RecordSet, to_ranges
from eventlog.core.rows.event_ids import object_text
from eventlog.errors import BadTableKey
from eventlog.model import Status, unpadded
from eventlog.sql.log.errors import (
    PUT_BACK,
    SKIPPED,
    SUPERSEDED,
    add_errors,
    add_object_errors,
    newest_by_row,
)
from eventlog.sql.log.rows import FAILED, column_of
from eventlog.sql.port.log_operations import Selection
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import Part, Right
from eventlog.sql.readers.consumers import has_table, read_consumer, read_consumers

_LOGGED_AGAIN: Final = "`eventlog resync` has logged the object again"
_NO_MORE_COUNTED: Final = frozenset({PUT_BACK, SKIPPED, SUPERSEDED})
_DONE: Final = frozenset({Status.SUCCESS.value, Status.WARNING.value, *FAILED})


class LoggedAgain(NamedTuple):
    """What the receiver of one reader has refused: rows by record_id, and objects of a consumer's
    snapshot by event-id. The values are the record_ids of the new rows. ``reader`` is the consumer,
    empty = the publisher.
    """

    reader: str
    rows: Mapping[int, int]
    objects: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.rows) + len(self.objects)


def find_logged_again(
    log: OpenLog, catalog: Catalog, selection: Selection, after: int, most: int
) -> list[LoggedAgain]:
    """Return, for each reader, the refused rows and objects that this resync has logged again in
    rows above ``after``. Only the newest ``most`` error rows of each reader are read.
    """
    cls = catalog.class_named(selection.class_name)
    may_read = has_table(log) and not log.lacking([(Part.CONSUMER, Right.SELECT)])
    readers = ["", *(entry.name for entry in read_consumers(log))] if may_read else [""]
    keys = {one: _refused_keys(log, catalog, cls, one, most) for one in readers}
    if not any(keys.values()):
        return []
    new = _new_rows(log, selection, after)
    found = []
    for reader, refused in keys.items():
        again = {row: new[key] for row, key in refused.items() if key in new}
        rows = {row: number for row, number in again.items() if isinstance(row, int)}
        objects = {row: number for row, number in again.items() if isinstance(row, str)}
        found.append(LoggedAgain(reader, rows, objects))
    return [one for one in found if len(one)]


def note_logged_again(log: OpenLog, again: LoggedAgain, by: str = "") -> None:
    """Write an error row of code ``superseded`` for each refused row and object. ``by`` is who
    asked for the resync.
    """
    message = f"{_LOGGED_AGAIN}, as {by} asked" if by else _LOGGED_AGAIN
    rows = [(row, SUPERSEDED, message) for row in sorted(again.rows)]
    add_errors(log, rows, again.reader, new_rows=again.rows)
    objects = [(event_id, SUPERSEDED, message) for event_id in again.objects]
    add_object_errors(log, objects, again.reader, new_rows=again.objects)


def waiting_rows(log: OpenLog, ids: Collection[int], consumer: str = "") -> set[int]:
    """Return the given rows that a reader has not done; ``consumer`` empty = the publisher.

    A row that is no longer in the log counts as done.
    """
    if not ids:
        return set()
    present = log.read_columns(to_ranges(sorted(set(ids))), ("record_id", "status"))
    if not consumer:
        return {int(number) for number, status in present if unpadded(status) not in _DONE}
    entry = read_consumer(log, consumer)
    if entry is None:
        return set()
    asked = RecordSet(0, entry.requeued.rows)
    return {
        number
        for number in (int(one) for one, _ in present)
        if number not in entry.done or number in asked
    }


def _refused_keys(
    log: OpenLog, catalog: Catalog, cls: ObjectClass, reader: str, most: int
) -> dict[int | str, str]:
    """Return the keys of those objects of a class that the receiver of a reader has refused. A
    refused row is given by its record_id, a refused object of the reader's snapshot by its
    event-id.
    """
    refused = [
        row
        for row, entry in newest_by_row(log, most, reader).items()
        if entry.code not in _NO_MORE_COUNTED
    ]
    ids = sorted(row for row in refused if isinstance(row, int))
    named: dict[int | str, tuple[str | None, str | None]] = {}
    fields = ("record_id", "status", "table_name", "table_key")
    for number, status, table_name, table_key in log.read_columns(to_ranges(ids), fields):
        if reader or unpadded(status) in FAILED:
            named[int(number)] = (table_name, table_key)
    for row in refused:
        if isinstance(row, str):
            table_name, _, table_key = object_text(row).partition(".")
            named[row] = (table_name, table_key)
    keys = {row: _key_of(catalog, cls, *names) for row, names in named.items()}
    return {row: key for row, key in keys.items() if key is not None}


def _key_of(
    catalog: Catalog, cls: ObjectClass, table_name: str | None, table_key: str | None
) -> str | None:
    """Return the key of a class's object as a resync logs it; None if the texts name no object."""
    meant = None if table_name is None else catalog.log_name(table_name)
    if meant is None or meant.object_class is not cls:
        return None
    for form in (cls, cls.former):
        try:
            if form is not None:
                return form.canonical_key(table_key)
        except BadTableKey:
            continue
    return None


def _new_rows(log: OpenLog, selection: Selection, after: int) -> dict[str, int]:
    """Return the newest row above ``after`` of each object that the resync has logged, by key."""
    record_id = column_of(log.table, "record_id")
    key = column_of(log.table, "table_key")
    statement = (
        sa.select(record_id, key)
        .where(
            record_id > after,
            column_of(log.table, "table_name") == selection.class_name,
            column_of(log.table, "event_type") == int(selection.event_type),
        )
        .order_by(record_id)
    )
    return {str(text): int(number) for number, text in log.db.fetch_texts(statement)}
