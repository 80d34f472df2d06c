"""Why the auditor lets something be: each reason, and the share of the schedules that may need it at
most.

An excuse is needed where a check would have failed without it. One that is needed far more often
than it was when its share was set hides what it was not made for: of 220 schedules 25 needed
``FAILED_PROCESS``, 23 ``REFUSED``, 12 ``LOST``, and no other excuse was needed by more than 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class Excuse(Enum):
    """A reason, and the greatest share of the schedules that need it."""

    def __init__(self, words: str, share: float) -> None:
        self.words, self.share = words, share

    # Objects that a receiver has otherwise than the tables at the end.
    LOST = "lost by a restore or the publisher's own", 0.2
    REFUSED = "refused", 0.3
    REFUSED_BY_FORMAT = "refused by the format", 0.15
    GIVEN_UP = "given up", 0.15
    OUTDATED = "taken after later ones", 0.05
    NOT_LOGGED = "not logged", 0.05
    KEY_RENAMED = "key renamed", 0.05
    UNAVAILABLE = "unavailable", 0.05
    # What happens before.
    MORE_AFTER_RESTART = "a document that comes again with more events after a restart", 0.05
    OLD_FILE = "sent from the file of before a restore", 0.1
    REPEATED = "applied again after a restore", 0.1
    OBJECT_DIFFERS = "applied again, or late, of an object that may differ", 0.15
    WENT_BACK = "late after the format refused it", 0.1
    UNRECORDED = "late after a refusal that nobody recorded", 0.1
    LATE_UNDER_FIRST_ID = "a late request under an id that a new one has replaced", 0.15
    ANSWER_LOST = "back to an older state after a lost answer", 0.15
    INVALID_AFTER_CHANGE = "invalid rows after a change of the schema", 0.2
    READ_BEFORE_SYNC = "a name that was read before its directory was synced", 0.02
    FAILED_PROCESS = "counters of a process that has failed", 0.4


ENOUGH = 200
"""The schedules from which on a share means something."""
_SPREAD = 3.0
"""The standard deviations that chance may add to a share."""


def too_often(needed: Mapping[Excuse, int], schedules: int) -> Mapping[Excuse, int]:
    """Return the excuses that more of the schedules have needed than may, with their numbers."""
    if schedules < ENOUGH:
        return MappingProxyType({})
    return {
        excuse: count
        for excuse, count in needed.items()
        if count > most_of(schedules, excuse.share)
    }


def most_of(schedules: int, share: float) -> float:
    """Return how many of the schedules may need an excuse with this share."""
    return schedules * share + _SPREAD * (schedules * share) ** 0.5


__all__ = ["ENOUGH", "Excuse", "most_of", "too_often"]
