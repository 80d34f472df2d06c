"""The filters that a reader has been allowed to use. An entry of ``<log>_state`` has their digests
(spec/event-log.md 15.3).

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from eventlog.core.catalog.filters import Filter, digest_of
from eventlog.sql.log.internal_tables import (
    EntryKind,
    add_entry,
    delete_entry,
    next_number,
    read_entries,
    unreadable,
)
from eventlog.sql.port.open_log import OpenLog


class AcceptedFilters(NamedTuple):
    """The filters that a reader may use. ``tables`` has the digest of the filter of each table;
    None = an earlier version recorded only one digest of all filters.
    """

    digest: str = ""
    tables: Mapping[str, str] | None = None

    def changed(self, filters: Sequence[Filter]) -> list[str] | None:
        """Return the tables whose accepted filter is missing or differs from ``filters``; None =
        unknown.
        """
        if self.tables is None and self.digest:
            return None
        before, now = dict(self.tables or {}), _by_table(filters)
        return sorted(name for name in before | now if before.get(name) != now.get(name))


def _by_table(filters: Sequence[Filter]) -> dict[str, str]:
    return {one.table: digest_of([one]) for one in filters}


def accepted_filters(log: OpenLog, consumer: str | None) -> AcceptedFilters:
    """Return the filters that a reader may use. Raises DatabaseError for an entry that cannot be
    read.
    """
    accepted = AcceptedFilters()
    for entry in read_entries(log, EntryKind.FILTERS, consumer or ""):
        try:
            content = json.loads(entry.content)
            accepted = AcceptedFilters(str(content["digest"]), content.get("tables"))
        except (TypeError, ValueError, KeyError) as error:
            raise unreadable(log, EntryKind.FILTERS, entry.number, error) from None
    return accepted


def accept_filters(log: OpenLog, consumer: str | None, filters: Sequence[Filter]) -> None:
    """Record the filters that a reader may use from now on."""
    for entry in read_entries(log, EntryKind.FILTERS, consumer or ""):
        delete_entry(log, EntryKind.FILTERS, entry.number)
    if filters:
        content = json.dumps({"digest": digest_of(filters), "tables": _by_table(filters)})
        add_entry(log, EntryKind.FILTERS, next_number(log), content, consumer or "")
