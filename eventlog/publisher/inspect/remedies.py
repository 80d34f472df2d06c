"""What can be done about one event: the commands that ``explain`` and the page of an event name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from eventlog.core.catalog import Catalog
from eventlog.model import LogRow, Status, unpadded
from eventlog.publisher.context.context import Context
from eventlog.publisher.inspect.refusals import commands_for
from eventlog.sql.log.errors import PUT_BACK, SUPERSEDED, ErrorRow

_TEXTS: Final = {
    "requeue": "send it again",
    "resync": "send the object as it is now",
    "skip": "give it up: it is not sent, and its warning ends",
}


_DRY: Final = (
    "see whether the event may be sent again; this depends on later rows of its object, which were "
    "not read"
)


class Remedy(NamedTuple):
    """A command that does something about an event."""

    name: str
    """The name of the command: requeue, resync or skip."""
    command: str
    text: str
    """What the command does."""


def remedies_of(
    context: Context,
    row: LogRow | None,
    event_id: str,
    errors: Sequence[ErrorRow],
    within: int | None = None,
) -> Iterator[Remedy]:
    """Yield what can be done about a row that is not in flight, or about the object of a snapshot
    with this ``event_id``. ``errors`` are the error rows of the row or object, the newest last.
    ``within`` is as in ``read_refusals``.
    """
    consumer, last = context.ledger.consumer, errors[-1] if errors else None
    is_refused = last is not None and last.code not in (PUT_BACK, SUPERSEDED)
    if row is None:
        if is_refused:
            whose = f"--consumer {shlex.quote(consumer)}"
            yield remedy(f"eventlog requeue {whose} --event-id {shlex.quote(event_id)}")
        return
    status = Status.ERROR if consumer and is_refused else unpadded(row.status)
    if status in (Status.ERROR, Status.FATAL):
        own_user, catalog = context.options.driver_user or "", context.catalog
        commands = commands_for(context.log, row, last, consumer, own_user, catalog, within)
        yield from map(remedy, commands)
    elif status in (Status.SUCCESS, Status.WARNING):
        yield from _resync(context.catalog, row)


def _resync(catalog: Catalog, row: LogRow) -> Iterator[Remedy]:
    found = catalog.log_name(row.table_name) if row.table_name else None
    if found is not None and row.table_key is not None:
        key = shlex.quote(row.table_key)
        yield remedy(f"eventlog resync {shlex.quote(found.object_class.name)} --key {key}")


def skipping(event_id: str, consumer: str) -> Remedy:
    """Return the remedy for an event that is in flight: the command that gives it up."""
    whose = f"--consumer {shlex.quote(consumer)} " if consumer else ""
    return remedy(f"eventlog skip {whose}{shlex.quote(event_id)} --reason REASON")


def remedy(command: str) -> Remedy:
    """Return a command of ``eventlog`` with what it does."""
    name = command.split()[1]
    return Remedy(name, command, _DRY if command.endswith("--dry-run") else _TEXTS[name])
