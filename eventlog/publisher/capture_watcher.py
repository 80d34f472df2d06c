"""Whether the triggers capture the tables as they are, watched while a publisher runs
(spec/triggers.md 9.1).

A column that is added while no publisher runs is in the catalogue of the next one, and in no
trigger: only a comparison of the triggers finds it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from eventlog.core.clock import monotonic
from eventlog.publisher.context import Context
from eventlog.sql.open_database import OpenDatabase

_log = logging.getLogger("eventlog.publisher")

CAPTURE_INTERVAL: Final = 60.0
"""Seconds between two comparisons."""
Uncaptured = Callable[[OpenDatabase], Sequence[str]]
"""A function that returns sentences on tables whose triggers are not as declared."""
_SHARE: Final = 100.0
"""The pause after a comparison is at least this many times its duration, so that slow ones are
rare.
"""


class CaptureWatcher:
    """The warnings about tables whose triggers are not as declared. It outlives the connection."""

    __slots__ = ("_next", "_said", "_uncaptured")

    def __init__(self, uncaptured: Uncaptured | None) -> None:
        self._uncaptured, self._next = uncaptured, 0.0
        self._said: frozenset[str] = frozenset()

    def compare_if_due(self, context: Context) -> None:
        """Compare the triggers if it is time: warn of each difference once, and tell the observer.

        No transaction may be open, and none is left open.
        """
        begun = monotonic()
        if self._uncaptured is None or begun < self._next:
            return
        uncaptured = self._uncaptured(context.log.db)
        context.log.commit()
        for sentence in uncaptured:
            if sentence not in self._said:
                _log.warning(
                    "%s; what triggers do not log is not sent: `eventlog triggers apply` captures "
                    "it from then on, and names the resync that sends what was before",
                    sentence,
                )
        self._said = frozenset(uncaptured)
        context.observer.compared(uncaptured)
        now = monotonic()
        self._next = now + max(CAPTURE_INTERVAL, _SHARE * (now - begun))
