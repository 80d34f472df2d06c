"""Build the events of dead letters from their present rows and objects (spec/event-log.md 8.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy.exc import DBAPIError

from eventlog.changes.publishing import EventWriter
from eventlog.core.catalog import Catalog
from eventlog.core.catalog.masks import shown_row
from eventlog.core.ranges import to_ranges
from eventlog.core.rows.checks import check_rows
from eventlog.core.rows.event_ids import raised_at
from eventlog.core.rows.events import (
    Outgoing,
    build_event,
    decide,
    exists_for_reader,
    ids_of,
)
from eventlog.errors import BadTableKey
from eventlog.model import LogRow, Origins, origins_of, queue_rows
from eventlog.publisher.context.context import Context
from eventlog.publisher.feeds.read_back import with_current_rows
from eventlog.publisher.feeds.snapshot import build_objects, origins_of_objects
from eventlog.publisher.ledger.delivery import Delivery
from eventlog.publisher.ledger.letters import Letter


class BuiltLetter(NamedTuple):
    """A letter with its event."""

    letter: Letter
    event: Outgoing | None
    """None if the event cannot be built."""
    delivery: Delivery
    """The delivery of the event, which the writer needs, too."""
    catalog: Catalog
    rows: Sequence[Mapping[str, object]]
    """The rows that take the place of the event, with masked values."""
    is_hidden: bool
    """True if a key or a value is left out of the rows, so that no message may quote it."""


def build_letters(
    context: Context, letters: Sequence[Letter], writer: EventWriter[Any]
) -> list[BuiltLetter]:
    """Return letters with their events for this writer. The events have the present values.

    A letter has no event if its object or a row cannot be read. Ends the transaction.
    """
    context_of_letters = replace(context, output=writer)
    rows = _read_rows(context, letters)
    built = []
    for letter in letters:
        own = [rows[one] for one in letter.rows if one in rows]
        try:
            event, delivery = _build(context_of_letters, letter, own)
            shown, is_hidden = _shown(context, own)
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            context.log.connection.rollback()
            event, delivery = None, Delivery(letter.number, {})
            shown, is_hidden = [_without_values(row) for row in own], True
        built.append(BuiltLetter(letter, event, delivery, context.catalog, shown, is_hidden))
    context.log.commit()
    return built


def _read_rows(context: Context, letters: Sequence[Letter]) -> dict[int, LogRow]:
    ids = sorted(set(chain.from_iterable(letter.rows for letter in letters)))
    return {row.record_id: row for row in context.log.read_rows(to_ranges(ids))} if ids else {}


def _build(
    context: Context, letter: Letter, rows: Sequence[LogRow]
) -> tuple[Outgoing | None, Delivery]:
    """Return the event of a letter and its delivery; event None = it cannot be built any more."""
    first = context.output.first(letter.number, "", raised_at(context.epoch))
    place = 1 if first else 0
    event, origins = _of_rows(context, letter, rows) if letter.rows else _of_object(context, letter)
    delivery = Delivery(letter.number, {}, first, origins, epoch=context.epoch)
    if event is None:
        return None, delivery
    (event,), current_rows = with_current_rows(context, [event._replace(place=place)])
    invalid = () if event.outcomes is None else event.outcomes.invalid
    if event.operation is None or invalid:
        return None, delivery
    return event, delivery._replace(documents={1: [event]}, current_rows=current_rows)


def _of_rows(
    context: Context, letter: Letter, rows: Sequence[LogRow]
) -> tuple[Outgoing | None, Origins]:
    origins = origins_of(rows)
    checked = check_rows(queue_rows(rows), context.catalog, None).valid
    valid = dict(zip(ids_of(checked), checked, strict=True))
    if letter.is_row or any(one not in valid for one in letter.rows):
        return None, origins
    group = [valid[one] for one in letter.rows]
    ((_, decision, current),) = decide([group], context.query_back, [frozenset()])
    return build_event(group, context.options.events, decision, current, letter.event_id), origins


def _of_object(context: Context, letter: Letter) -> tuple[Outgoing | None, Origins]:
    origins = origins_of_objects(context)
    if letter.is_row:
        return None, origins
    recorded = Outgoing(letter.event_id, (), None, None, None)
    (event,), waiting = build_objects(context, [recorded])
    return None if waiting else event, origins


# --- rows in place of an event --------------------------------------------------------------------


def _shown(context: Context, rows: Sequence[LogRow]) -> tuple[list[Mapping[str, object]], bool]:
    """Return rows in the form in which this reader may show them. Also return True if the keys and
    values of a row are left out.
    """
    catalog = context.catalog
    # The class of an unknown name may be an unavailable one with a mask or a filter.
    is_restricted = (
        catalog.has_masks
        or bool(catalog.unavailable)
        or any(cls.condition is not None for cls in catalog.classes)
    )
    shown, is_hidden = [], False
    for row in rows:
        if is_restricted and not _may_be_shown(context, row):
            shown.append(_without_values(row))
            is_hidden = True
        else:
            shown.append(_members(shown_row(row, catalog)))
    return shown, is_hidden


def _may_be_shown(context: Context, row: LogRow) -> bool:
    """Return True if the masks and the condition for a row are known, and the row's object exists
    for the reader.
    """
    name = context.catalog.log_name(row.table_name) if row.table_name else None
    if name is None:
        return False
    cls = name.object_class
    if row.column_name is not None:
        attribute = name.attribute(row.column_name)
        if attribute is None or not attribute.is_written:
            return False
    elif row.old_value is not None or row.new_value is not None:
        return False
    try:
        key = cls.canonical_key(row.table_key)
    except BadTableKey:
        return False
    if cls.condition is None:
        return True
    return exists_for_reader(context.query_back(cls, [key], ()).get(key))


def _without_values(row: LogRow) -> Mapping[str, object]:
    left_out = ("table_key", "old_value", "new_value")
    return {name: value for name, value in _members(row).items() if name not in left_out}


def _members(row: LogRow) -> dict[str, object]:
    """Return a row for JSON, without a transaction id if the row has none."""
    members = row._asdict()
    if row.transaction_id is None:
        del members["transaction_id"]
    return members
