"""The pause of a reader: a paused reader sends nothing until it is resumed (spec/event-log.md 8.8).
The publisher's pause is an entry of ``<log>_state``, a consumer's pause is in the consumer's row.
The statements that read a window or record a delivery also check whether their reader is paused
(``unasked_sql``).

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import NamedTuple

from eventlog.errors import DatabaseError, Paused
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
from eventlog.sql.log.requests import ResendRequest, ask_again, consumer_gone
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import OF_LOG_ALONE


class Pause(NamedTuple):
    """Why a reader sends nothing."""

    reason: str
    by: str
    """Who paused it."""
    since: datetime
    """The time of the pause, UTC, by the database's clock."""
    consumer: str = ""
    """The reader: a consumer, empty = the publisher."""

    @classmethod
    def decode(cls, text: str, consumer: str = "") -> Pause:
        """Parse the text of a pause. Raises KeyError, TypeError, ValueError for another text."""
        content = json.loads(text)
        since = datetime.fromisoformat(content["since"])
        return cls(str(content["reason"]), str(content["by"]), since, consumer)

    def encode(self) -> str:
        return json.dumps(self.as_data(), ensure_ascii=False)

    def as_data(self) -> dict[str, str]:
        """Return the pause as data for JSON."""
        return {"reason": self.reason, "by": self.by, "since": self.since.isoformat()}

    @property
    def reader(self) -> str:
        """The name of the reader in words."""
        return f"consumer {self.consumer}" if self.consumer else "the publisher"

    def __str__(self) -> str:
        since = f"{self.since:%Y-%m-%d %H:%M:%S} UTC"
        return f"{self.reader} has been paused since {since} by {self.by}: {self.reason}"


def read_pause(log: OpenLog, consumer: str = "") -> Pause | None:
    """Return the pause of a consumer, empty = of the publisher; None if it is not paused.

    Raises DatabaseError for a pause that cannot be read, and for a consumer that does not exist.
    """
    if consumer:
        row = log.connection.execute(
            consumer_field(log.table, "paused", consumer), execution_options=OF_LOG_ALONE
        ).first()
        if row is None:
            raise consumer_gone(log.table, consumer)
        return decode_of(consumer, row.paused)
    log.db.choose_plans()  # the window that is read next is in the same transaction
    for entry in read_entries(log, EntryKind.PAUSED):
        try:
            return Pause.decode(entry.content)
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(log, EntryKind.PAUSED, entry.number, error) from None
    return None


def seconds_of(log: OpenLog, pause: Pause | None) -> float:
    """Return how long a reader has been paused, by the database's clock."""
    if pause is None:
        return 0.0
    now = log.db.utc_now().replace(tzinfo=UTC)
    return max(0.0, (now - pause.since).total_seconds())


def decode_of(consumer: str, text: str | None) -> Pause | None:
    """Return the pause in a consumer's row, None = it is not paused. Raises DatabaseError."""
    try:
        return None if text is None else Pause.decode(text, consumer)
    except (KeyError, TypeError, ValueError) as error:
        raise DatabaseError(
            f"the pause of consumer {consumer!r} cannot be read ({error}). If its row was changed "
            "by hand, undo the change"
        ) from None


def pause(log: OpenLog, consumer: str, reason: str, by: str) -> Pause:
    """Pause a consumer that exists, empty = the publisher. From the commit on no delivery is
    recorded. Raises Paused if it is paused already.
    """
    now = log.db.utc_now()
    asked = Pause(reason, by, now.replace(tzinfo=UTC, microsecond=0), consumer)
    if consumer:
        is_free = consumers_of(log.table).c.paused.is_(None)
        is_done = update_consumer(log, consumer, {"paused": asked.encode()}, is_free)
    else:
        log.lock_requeuing()
        is_done = read_pause(log) is None
        if is_done:
            add_entry(log, EntryKind.PAUSED, next_number(log), asked.encode())
    if not is_done:
        raise Paused(f"log {log}: {read_pause(log, consumer)}")
    return asked


def resume(log: OpenLog, consumer: str = "") -> Pause | None:
    """End the pause of a consumer, empty = of the publisher, and return the pause; None = there was
    no pause.

    A reader that cannot record a delivery reads the reason in the same transaction. So the reason
    must not vanish before it is read: a lock keeps the publisher's pause until it is read, and a
    consumer gets an empty request to send again.
    """
    if not consumer:
        log.lock_requeuing()
    ended = read_pause(log, consumer)
    if ended is None:
        return None
    if consumer:
        ask_again(log, ResendRequest(), consumer)
        update_consumer(log, consumer, {"paused": None})
    for entry in () if consumer else read_entries(log, EntryKind.PAUSED):
        delete_entry(log, EntryKind.PAUSED, entry.number)
    return ended
