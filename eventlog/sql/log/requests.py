"""Requests to send rows and objects again (spec/event-log.md 8.1, 13.4). Requests to the publisher
are entries of ``<log>_state``. A consumer's request is in the consumer's row; the lock of this row
protects the request. The statement that reads a window also checks whether its reader has a request
(``OpenLog.poll``).

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy.exc import DBAPIError

from eventlog.core.ranges import Ranges, RecordSet
from eventlog.errors import DatabaseError
from eventlog.sql.log.internal_tables import (
    EntryKind,
    add_entry,
    consumer_field,
    consumers_of,
    delete_entry,
    next_number,
    read_entries,
    unreadable,
    update_consumer,
)
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.driver_errors import is_refused
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import OF_LOG, OF_LOG_ALONE


class ResendRequest(NamedTuple):
    """A request to send again: rows, by ranges of record_ids; objects of a consumer's snapshot, by
    event-ids; and all objects of classes. ``begun`` is the time in the event-ids of the objects of
    classes.
    """

    rows: Ranges = ()
    objects: Sequence[str] = ()
    classes: Sequence[str] = ()
    begun: str = ""

    @classmethod
    def decode(cls, text: str | None) -> ResendRequest:
        """Parse the text of a request, None = no request. Raises KeyError, TypeError, ValueError
        for another text.
        """
        if text is None:
            return cls()
        request = {"objects": (), "classes": (), "begun": "", **json.loads(text)}
        # A publisher's request had only ``ranges``, and may be left from then.
        rows = request["ranges"] if "ranges" in request else request["rows"]
        return cls(
            [(int(first), int(last)) for first, last in rows],
            [str(one) for one in request["objects"]],
            [str(one) for one in request["classes"]],
            str(request["begun"]),
        )

    def encode(self) -> str:
        return json.dumps(self._asdict())

    def joined(self, other: ResendRequest) -> ResendRequest:
        """Return one request for all that this request and ``other`` ask for."""
        rows = RecordSet(0, self.rows)
        rows.add(other.rows)
        return ResendRequest(
            rows.spans,
            [*dict.fromkeys([*self.objects, *other.objects])],
            [*dict.fromkeys([*self.classes, *other.classes])],
            max(self.begun, other.begun),
        )


def ask_again(log: OpenLog, asked: ResendRequest, consumer: str = "") -> bool:
    """Ask a consumer, empty = the publisher, to send again, in addition to earlier requests.

    In databases where the publisher does not remember which rows are done, no request to the
    publisher is written. If this role may not write a request, the function returns False, and the
    publisher finds the rows that were set back to N only later.
    """
    if consumer:
        before = ResendRequest.decode(_requested(log, consumer, is_locked=True))
        update_consumer(log, consumer, {"requeued": before.joined(asked).encode()})
        return True
    if "consumers" not in log.dialect.capabilities:
        return True
    try:
        with log.connection.begin_nested():
            add_entry(log, EntryKind.REQUEST, next_number(log), asked.encode())
    except DBAPIError as error:
        if not is_refused(log.connection, error):
            raise
        return False
    return True


def take_requests(log: OpenLog, consumer: str = "") -> ResendRequest:
    """Return what a consumer, empty = the publisher, was asked to send again, and delete the
    requests.

    Raises DatabaseError for a request that cannot be read.
    """
    if consumer:
        requested = _requested(log, consumer)
        # A request that is made in the meantime is read next time.
        is_same = consumers_of(log.table).c.requeued == requested
        is_taken = requested is not None and update_consumer(
            log, consumer, {"requeued": None}, is_same
        )
        return ResendRequest.decode(requested if is_taken else None)
    log.db.choose_plans()  # the window that is read next is in the same transaction
    asked = ResendRequest()
    for entry in read_entries(log, EntryKind.REQUEST):
        try:
            asked = asked.joined(ResendRequest.decode(entry.content))
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(log, EntryKind.REQUEST, entry.number, error) from None
        delete_entry(log, EntryKind.REQUEST, entry.number)
    return asked


def is_requested(log: OpenLog, consumer: str = "") -> bool:
    """Return True if a consumer, empty = the publisher, was asked to send again and has not taken
    the request yet. Until the transaction ends, no other session can ask the consumer.
    """
    if consumer:
        return _requested(log, consumer, is_locked=True) is not None
    return bool(read_entries(log, EntryKind.REQUEST))


def _requested(log: OpenLog, consumer: str, *, is_locked: bool = False) -> str | None:
    """Return the column ``requeued`` of a consumer's row. With ``is_locked`` no other session can
    change the row until the transaction ends.

    Raises DatabaseError if the row was deleted.
    """
    statement = consumer_field(log.table, "requeued", consumer)
    row = log.connection.execute(
        statement.with_for_update() if is_locked else statement,
        execution_options=OF_LOG if is_locked else OF_LOG_ALONE,
    ).first()
    if row is None:
        raise consumer_gone(log.table, consumer)
    requested: str | None = row.requeued
    return requested


def consumer_gone(log: LogTable, name: str) -> DatabaseError:
    """Return the error to raise for a consumer whose row was deleted."""
    return DatabaseError(
        f"consumer {name!r} of the log {log} no longer exists: its row in {log.consumer_table} "
        "was deleted. Register it again by starting it"
    )
