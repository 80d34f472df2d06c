"""Check, while a publisher runs, whether the triggers capture the tables in their present form
(spec/triggers.md 9.1).

If a column is added while no publisher runs, the next publisher has the column in its catalogue,
but no trigger captures it. Only a comparison of the triggers finds this column.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from eventlog.core.clock import monotonic
from eventlog.publisher.context.context import Context
from eventlog.publisher.context.observer import Differences
from eventlog.sql.port.open_log import OpenLog

_log = logging.getLogger("eventlog.publisher")

CAPTURE_INTERVAL: Final = 60.0
"""Seconds between two comparisons."""
CompareTriggers = Callable[[OpenLog], Differences]
"""A function that returns the differences between the installed and the declared triggers."""
_SHARE: Final = 100.0
"""The pause after a comparison is at least this many times the duration of the comparison, so that
slow comparisons are rare.
"""


class CaptureWatcher:
    """Warns about tables whose triggers differ from the declaration. The object outlives a
    connection.
    """

    __slots__ = ("_compare", "_next", "_warned")

    def __init__(self, compare: CompareTriggers | None) -> None:
        self._compare, self._next = compare, 0.0
        self._warned: frozenset[str] = frozenset()

    def compare_if_due(self, context: Context) -> None:
        """Compare the triggers if it is time: warn about each difference once, and report all
        differences to the observer.

        No transaction may be open, and none is left open.
        """
        begun = monotonic()
        if self._compare is None or begun < self._next:
            return
        differences = self._compare(context.log)
        context.log.commit()
        for sentence in differences.uncaptured:
            if sentence not in self._warned:
                _log.warning(
                    "%s. Changes are not logged as declared: run `eventlog triggers apply`, then "
                    "the `resync` commands that it prints",
                    sentence,
                )
        known = {str(error) for error in context.catalog.unavailable.values()}
        doubtful = frozenset(differences.refused).difference(known)
        for sentence in sorted(doubtful.difference(self._warned)):
            _log.warning(
                "%s. Correct the watch; until then, changes are published as the present triggers "
                "log them",
                sentence,
            )
        self._warned = frozenset(differences.uncaptured) | doubtful
        context.observer.compared(differences)
        now = monotonic()
        self._next = now + max(CAPTURE_INTERVAL, _SHARE * (now - begun))
