"""What a receiver says of the events of one envelope (spec/event-log.md 8.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class Level(IntEnum):
    """The levels of an answer; of several for one event the greatest, which is the worst, counts."""

    SUCCESS = 0
    WARNING = 1
    ERROR = 2
    RETRY = 3
    FATAL = 4


class Verdict(NamedTuple):
    """A level and its message, which goes to the error table when the level is error or fatal."""

    level: Level
    message: str = ""


SUCCESS = Verdict(Level.SUCCESS)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one envelope.

    ``verdicts``: by event-id, the worst of those that name it. ``general``: the worst of those without event-id,
    which count for every event; None = there were none. ``unknown_ids``: event-ids that are not in the envelope.
    ``ignored``: how many elements were something else than a status. ``is_pending``: the receiver itself has not
    spoken yet, which it does when the sink is flushed.
    """

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    general: Verdict | None = None
    unknown_ids: tuple[str, ...] = ()
    ignored: int = 0
    is_pending: bool = False

    def verdict(self, event_id: str) -> Verdict:
        """The worst that was said of this event; success if nothing was."""
        own = self.verdicts.get(event_id, SUCCESS)
        if self.general is not None and self.general.level > own.level:
            return self.general
        return own
