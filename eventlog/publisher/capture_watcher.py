"""Check while a publisher runs whether the triggers capture the tables as they are
(spec/triggers.md 9.1).

A column that is added while no publisher runs is in the catalogue of the next publisher but in no
trigger, so only a comparison of the triggers finds it.
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

    __slots__ = ("_next", "_uncaptured", "_warned")

    def __init__(self, uncaptured: Uncaptured | None) -> None:
        self._uncaptured, self._next = uncaptured, 0.0
        self._warned: frozenset[str] = frozenset()

    def compare_if_due(self, context: Context) -> None:
        """Compare the triggers if it is time: warn of each difference once, and report all of them
        to the observer.

        No transaction may be open, and none is left open.
        """
        begun = monotonic()
        if self._uncaptured is None or begun < self._next:
            return
        uncaptured = self._uncaptured(context.log.db)
        context.log.commit()
        for sentence in uncaptured:
            if sentence not in self._warned:
                _log.warning(
                    "%s; these changes are not captured. Run `eventlog triggers apply`, then the "
                    "`resync` commands that it prints",
                    sentence,
                )
        self._warned = frozenset(uncaptured)
        context.observer.compared(uncaptured)
        now = monotonic()
        self._next = now + max(CAPTURE_INTERVAL, _SHARE * (now - begun))
