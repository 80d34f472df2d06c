"""What one format makes of groups after precedence, where they were folded: in the first or second stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from eventlog.core.events import CurrentRow, Decision, Outgoing, apply_precedence, asks_for_values
from eventlog.core.fold import Group, object_of
from eventlog.model import LogRow
from eventlog.publisher.context import Context
from eventlog.publisher.window import query_back
from eventlog.qlik.sequence import WriterState
from spark.job import Job
from spark.numbering import NOTHING, Numbered
from spark.part_files import OutputFile

Decided = tuple[Group, Decision | None, CurrentRow | None]
"""A group with what precedence decides of it, and the current row where that asks for one; None = it is gone."""

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
    return with_current(
        context, groups, [apply_precedence(group) if asks_for_values(group) else None for group in groups]
    )


def with_current(context: Context, groups: Sequence[Group], decisions: Sequence[Decision | None]) -> list[Decided]:
    """Groups and decisions with the current rows that they ask for."""
    pairs = list(zip(groups, decisions, strict=True))
    current = query_back(context, [(group, decision) for group, decision in pairs if decision is not None])
    if not current:
        return [(group, decision, None) for group, decision in pairs]
    return [(group, decision, current.get(object_of(group))) for group, decision in pairs]


def counts_of(events: Sequence[Outgoing]) -> Counter[str]:
    """How many events of which operation, and how many rows had which fate (spec/event-log.md 11)."""
    counts = Counter([event.operation for event in events if event.operation is not None])
    published = 0
    for event in events:
        published += len(event.contributed)
        if event.fates is not None:  # of few groups
            counts["rows_dropped"] += len(event.fates.dropped)
            counts["rows_gone"] += len(event.fates.gone)
            counts["rows_empty"] += len(event.fates.empty)
            counts["sv_conflicts"] += event.fates.conflicts
    counts["rows_published"] = published
    return counts


def bad_of(events: Sequence[Outgoing]) -> list[BadLine]:
    """The rows whose value read back cannot be written."""
    special = [event.fates for event in events if event.fates is not None]
    return [(row.record_id, row.code, row.message) for fates in special for row in fates.bad]
