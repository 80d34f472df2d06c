"""The event-ids of a log, ``<record_id>[.e<epoch>][.<n>]`` (spec/event-log.md 7.4), and the
event-ids of a snapshot (13.3).

The epoch distinguishes the meanings of a record_id before and after the database lost its newest
transactions.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from eventlog.core.clock import random_hex

_SECOND: Final = "%Y%m%d%H%M%S"


def new_epoch(now: datetime) -> str:
    """Return a new epoch: the second in UTC and 32 random bits. ``now`` has a zone."""
    return now.astimezone(UTC).strftime(_SECOND) + random_hex(4)


def raised_at(epoch: str) -> datetime | None:
    """Return the time at which an epoch was made, None for the empty epoch.

    Raises ValueError for a text that is not an epoch.
    """
    return datetime.strptime(epoch[:14], _SECOND).replace(tzinfo=UTC) if epoch else None


def epoch_of(event_id: str) -> str:
    """Return the epoch in an event-id, empty for the first epoch."""
    _, _, after = event_id.partition(".e")
    return after.partition(".")[0]


def epoch_suffix(epoch: str) -> str:
    """Return the text that follows the record_id in event-ids of this epoch."""
    return f".e{epoch}" if epoch else ""


def attempt_of(event_id: str) -> int:
    """Return the attempt number in the event-id of a log's event, 1 if it has none."""
    _, _, last = event_id.partition(".")[2].rpartition(".")
    return int(last) if last.isdecimal() else 1


_SNAPSHOT: Final = "snapshot."


_RESENT: Final = "r"
"""The text that follows the time in the event-ids of a class that is sent again as a whole (15.3).
"""


def registered(begun: datetime) -> str:
    """Return the time ``begun`` of a consumer's registration, in UTC, as the event-ids of the
    consumer's snapshot spell it.
    """
    return begun.strftime(_SECOND)


def resent(now: datetime) -> str:
    """Return the time ``now``, in UTC, as the event-ids of a class spell it if the class is sent
    again as a whole from that time on.
    """
    return f"{now.strftime(_SECOND)}{_RESENT}{now.microsecond:06}"


def snapshot_id(begun: datetime, class_name: str, key: str) -> str:
    """Return the event-id of an object in the snapshot of a consumer that was registered at this
    time, in UTC.
    """
    return object_id_of(registered(begun), f"{class_name}.{key}")


def object_id_of(begun: str, text: str) -> str:
    """Return the event-id of an object in a snapshot. ``begun`` is the time as ``begun_of`` returns
    it; ``text`` is the object as ``object_text`` returns it.
    """
    return f"{_SNAPSHOT}{begun}.{text}"


def begun_of(event_id: str) -> str:
    """Return the time of the registration, spelled as in a snapshot's event-id."""
    return event_id.removeprefix(_SNAPSHOT).partition(".")[0]


def is_of_snapshot(event_id: str) -> bool:
    """Return True if an event belongs to a snapshot."""
    return event_id.startswith(_SNAPSHOT)


def may_delete(event_id: str) -> bool:
    """Return True if the event of a snapshot is a delete when its object does not exist for the
    reader. The event is a delete if the class is sent again as a whole, since the receiver may have
    the object.
    """
    return _RESENT in begun_of(event_id)


def object_text(event_id: str) -> str:
    """Return the part of a snapshot's event-id that names its object: the class, a full stop, and
    the key.
    """
    return event_id.removeprefix(_SNAPSHOT).partition(".")[2]


def without_key(event_id: str) -> str:
    """Return an event-id without key values. Without them, the event-id of an object in a snapshot
    ends with the class.
    """
    return ".".join(event_id.split(".", 3)[:3]) if is_of_snapshot(event_id) else event_id


_NAMED: Final = re.compile(r"0*([1-9][0-9]{0,17})(\.e[0-9a-f]+)?(\.[0-9]+)?", re.ASCII)


def row_or_object(text: str) -> int | str | None:
    """Return the record_id of a row, if the text is this record_id or the event-id of the row.
    Return the text itself if it is the event-id of an object in a consumer's snapshot, and None for
    any other text.
    """
    if is_of_snapshot(text):
        return text
    found = _NAMED.fullmatch(text)
    return None if found is None else int(found[1])


def record_id_of(event_id: str) -> int:
    """Return the record_id in the event-id of a log's event.

    Raises ValueError for an event of another source.
    """
    return int(event_id.partition(".")[0])
