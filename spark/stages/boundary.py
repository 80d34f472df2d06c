"""Which rows of a part fold alike whatever the other parts hold, and which have to meet rows of others."""

from __future__ import annotations

from collections.abc import Sequence

from eventlog.core.catalog import ObjectId
from eventlog.core.checks import CheckedRow
from eventlog.core.fold import Group, first_id, open_groups
from eventlog.sql.dialect import Part


class Boundary:
    """Sets those groups of a part apart that may fold with rows of other parts; ``rows``: the rows of these groups.

    Rows fold only within ``fold_distance`` record_ids (spec/event-log.md 6): what lies further from both ends of a part
    folds alike whatever the other parts hold. Only the rows near the ends, few as a rule, have to meet those of others.

    The ``rows`` of all parts, folded together, give exactly the groups that are missing: they begin and end where
    groups do, and wherever rows of an object are left out between them, those lie more than ``fold_distance`` apart.
    """

    def __init__(self, part: Part, fold_distance: int, fold_span: int) -> None:
        self.rows: list[CheckedRow] = []
        self._distance, self._span = fold_distance, fold_span
        self._before, self._last = part.first - 1, part.last
        self._run_ends: dict[ObjectId, int] = {}
        self._reach = self._before

    def final(self, groups: Sequence[Group]) -> list[Group]:
        """The final ones of groups that no later row of the part joins. All groups of the part come in queue order."""
        final: list[Group] = []
        for index, group in enumerate(groups):
            if first_id(group) - self._reach > self._distance:  # as is every group behind it
                return [*final, *groups[index:]]
            if not self._may_begin_before(group):
                final.append(group)
        return final

    def final_at_end(self, groups: Sequence[Group]) -> list[Group]:
        """The final ones of the part's last groups."""
        still_open = set(open_groups(groups, self._last, self._distance, self._span))
        for index in still_open:
            self.rows += groups[index]
        return self.final([group for index, group in enumerate(groups) if index not in still_open])

    def _may_begin_before(self, group: Group) -> bool:
        """Whether the group, which is near such groups or the part before, belongs to a run of its object's rows, none
        too far from the next to fold, whose first one is near that part: where such a run is cut into groups depends on
        what it holds.
        """
        first, _, object_id, _, _, _ = group[0]
        if first - self._run_ends.get(object_id, self._before) > self._distance:
            return False
        last, *_ = group[-1]
        self._run_ends[object_id] = last
        self._reach = max(self._reach, last)
        self.rows += group
        return True
