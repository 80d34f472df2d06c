"""The filters that a reader has been allowed to use, by their digest, in an entry of
``<log>_state`` (spec/event-log.md 15.3).

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

import json

from eventlog.sql.log.internal_tables import (
    EntryKind,
    add_entry,
    delete_entry,
    next_number,
    read_entries,
    unreadable,
)
from eventlog.sql.port.open_log import OpenLog


def accepted_filters(log: OpenLog, consumer: str | None) -> str:
    """Return the digest of the filters that a reader may use, empty if none are recorded. Raises
    DatabaseError for an entry that cannot be read.
    """
    digest = ""
    for entry in read_entries(log, EntryKind.FILTERS, consumer or ""):
        try:
            digest = str(json.loads(entry.content)["digest"])
        except (TypeError, ValueError, KeyError) as error:
            raise unreadable(log, EntryKind.FILTERS, entry.number, error) from None
    return digest


def accept_filters(log: OpenLog, consumer: str | None, digest: str) -> None:
    """Record the digest of the filters that a reader may use from now on, empty = none."""
    for entry in read_entries(log, EntryKind.FILTERS, consumer or ""):
        delete_entry(log, EntryKind.FILTERS, entry.number)
    if digest:
        content = json.dumps({"digest": digest})
        add_entry(log, EntryKind.FILTERS, next_number(log), content, consumer or "")
