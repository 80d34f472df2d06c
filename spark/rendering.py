"""What one format makes of groups after precedence, where they were folded: in the first or second stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import repeat
from typing import Any, Final, NamedTuple

from eventlog.events import CurrentRow, Outcome, Precedence, apply_precedence
from eventlog.fold import Group
from eventlog.model import LogRow
from eventlog.publisher.context import Context
from eventlog.publisher.window import query_back
from eventlog.qlik.sequence import WriterState
from spark.job import Job
from spark.numbering import NOTHING, Numbered
from spark.part_files import OutputFile

Decided = tuple[Precedence, CurrentRow | None]
"""A group after precedence, with the current row where that asks for one; None = it is gone."""

BadLine = tuple[int, str, str]
"""record_id, code and message of a row that gets E."""

Counts = dict[str, int]


class Rendered(NamedTuple):
    """What groups of one part became.

    ``blob``: what the third stage gets, as marshal takes it; None = nothing is written. ``bad``: rows that get E.
    ``taken``: what the blob takes of the numbering.
    """

    blob: Any
    bad: list[BadLine]
    counts: Counts
    taken: Numbered = NOTHING


class Written(NamedTuple):
    """What the third stage wrote of a part, in queue order; ``state`` of the sequence writer at its end."""

    files: list[OutputFile]
    state: WriterState


Render = Callable[[Sequence[Decided], Sequence[int], Mapping[int, LogRow]], Rendered]
"""Groups in queue order, their places in it, and, for formats that need them, their rows as the log has them."""

FORMATS: Final[Mapping[str, str]] = {
    "xds": "spark.xds_output",
    "qlik-messages": "spark.message_output",
    "qlik-change-table": "spark.table_output",
}
"""The formats by name, with the module that has ``renderer`` and ``write`` of each."""

RECEIVER: Final = "receiver"
"""The code of a row whose event the format cannot hold (spec/event-log.md 10)."""


def module_of(job: Job) -> Any:
    """The module of the job's format: ``renderer(job)`` gives its ``Render``, ``write`` makes files of its blobs."""
    return import_module(FORMATS[job.output.format])


def decide(context: Context, groups: Sequence[Group]) -> list[Decided]:
    """Precedence, and the current rows of all groups that ask for them, in one statement a class."""
    options = context.options.events
    decided = [apply_precedence(group, options) for group in groups]
    return with_current(context, decided)


def with_current(context: Context, decided: Sequence[Precedence]) -> list[Decided]:
    """The decisions with the current rows that they ask for."""
    current = query_back(context, decided)
    if not current:
        return list(zip(decided, repeat(None)))
    return [(each, current.get((each.group.object_class, each.group.key))) for each in decided]


def counts_of(outcomes: Sequence[Outcome]) -> Counter[str]:
    """How many events of which operation, and how many rows had which fate (spec/event-log.md 11)."""
    counts = Counter([outcome.event.operation for outcome in outcomes if outcome.event is not None])
    published = 0
    for _, contributed, dropped, gone, empty, bad, conflicts in outcomes:
        published += len(contributed)
        if dropped or gone or empty or bad or conflicts:  # of few groups
            counts["rows_dropped"] += len(dropped)
            counts["rows_gone"] += len(gone)
            counts["rows_empty"] += len(empty)
            counts["sv_conflicts"] += conflicts
    counts["rows_published"] = published
    return counts


def bad_of(outcomes: Sequence[Outcome]) -> list[BadLine]:
    """The rows whose value read back cannot be written."""
    return [(row.record_id, row.code, row.message) for outcome in outcomes if outcome.bad for row in outcome.bad]
