"""Requests to send rows again, which ``requeue`` writes and a running publisher takes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy.exc import DBAPIError

from eventlog.core.ranges import to_ranges
from eventlog.sql.log.internal_tables import (
    EntryKind,
    add_entry,
    delete_entry,
    next_number,
    read_entries,
    unreadable,
)
from eventlog.sql.port.driver_errors import is_refused
from eventlog.sql.port.open_log import OpenLog


def record_requeue_request(log: OpenLog, ids: Sequence[int]) -> None:
    """Record a request for the publisher: these rows were set back to N (spec/event-log.md 8.1).

    No request is recorded in databases where a publisher does not remember which rows are done. Nor
    is one recorded by a role that may not write it; the publisher then finds the rows later.
    """
    if "consumers" not in log.dialect.capabilities:
        return
    try:
        with log.connection.begin_nested():
            content = json.dumps({"ranges": to_ranges(ids)})
            add_entry(log, EntryKind.REQUEST, next_number(log), content)
    except DBAPIError as error:
        if not is_refused(log.connection, error):
            raise


def take_requests(log: OpenLog) -> list[tuple[int, int]]:
    """Return the rows of all requests of ``record_requeue_request`` as ranges, and delete these
    requests.

    Raises DatabaseError for a request that cannot be read.
    """
    log.db.choose_plans()  # the window that is read next is in the same transaction
    rows: list[tuple[int, int]] = []
    for request in read_entries(log, EntryKind.REQUEST):
        try:
            ranges = json.loads(request.content)["ranges"]
            rows += [(int(first), int(last)) for first, last in ranges]
        except (TypeError, ValueError, KeyError) as error:
            raise unreadable(log, EntryKind.REQUEST, request.number, error) from None
        delete_entry(log, EntryKind.REQUEST, request.number)
    return rows
