"""Rows that come in record_id order, folded a run at a time.

Groups leave as soon as no later row can join them, as from the publisher's windows (spec/event-log.md 8.2): a worker
holds few rows at once, which is faster too, since they stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Final

from eventlog.core.checks import CheckedRow
from eventlog.core.fold import Group, first_open, fold

RUN_ROWS: Final = 10_000
"""Rows that are folded at a time; those of open groups are folded again with the next ones."""


class Runs:
    """Rows that have come and not yet left in groups. ``at_a_time``: rows that are worth folding."""

    def __init__(self, fold_distance: int, fold_span: int, at_a_time: int = RUN_ROWS) -> None:
        self.rows: list[CheckedRow] = []
        self._distances = fold_distance, fold_span
        self._at_a_time = self._enough = at_a_time

    def take(self, rows: Sequence[CheckedRow]) -> list[Group]:
        """The groups, in queue order, that can leave now that these rows have come."""
        self.rows += rows
        if len(self.rows) < self._enough:
            return []
        groups = fold(self.rows, *self._distances)
        last, *_ = self.rows[-1]
        closed = first_open(groups, last, *self._distances)
        self.rows = sorted(chain.from_iterable(groups[closed:]), key=itemgetter(0))
        # Where groups stay open for long, not every run is worth folding all of them again.
        self._enough = max(self._at_a_time, 2 * len(self.rows))
        return groups[:closed]

    def finish(self) -> list[Group]:
        """The groups of the rows that are left, when no more will come."""
        groups = fold(self.rows, *self._distances)
        self.rows, self._enough = [], self._at_a_time
        return groups
