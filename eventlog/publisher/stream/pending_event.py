"""An event of a followed source that is not answered yet, and the places between events from which
the source can be read again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any, Final, NamedTuple, Self, TypeAlias

from eventlog.model import Change
from eventlog.publisher.send.policy import EVERY
from eventlog.publisher.stream import Described

ObjectId: TypeAlias = tuple[Any, ...]
"""The object of an event: schema, table and key of a row."""

BEFORE_ALL: Final = -1
"""A number that every position has passed."""
STEP: Final = 2
"""The distance between the numbers of two events: a recorded event may become two events in another
format.
"""


class ReadPosition(NamedTuple):
    """A place from which the source can be read again, and the newest change number of the format
    up to this place.
    """

    token: Any
    numbered: str = ""


class PendingEvent(NamedTuple):
    """An event that was read."""

    number: int
    """The event's number in the order of the source."""
    sent_id: str
    objects: tuple[ObjectId, ...]
    """The objects of the event; empty = all objects."""
    change: Change
    piece: Any
    """The format's text or record of ``change``."""
    numbered: str = ""
    """The newest number before the event, for a format that numbers changes."""
    described: Described | None = None
    """The source's description of the change's table, None if it gave none."""

    @property
    def queues(self) -> Collection[Hashable]:
        """The objects whose later events must wait for this event."""
        return self.objects or (EVERY,)

    def again(self) -> Self:
        """Return the event itself, since the source determines the event-id."""
        return self
