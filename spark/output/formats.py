"""What a format is to a backlog job: a module of this package, with the functions of ``OutputFormat``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol, cast

from eventlog.config.load import Config
from eventlog.core.events import Decided, Outgoing, QueryBack
from eventlog.errors import ConfigError
from eventlog.model import LogRow
from eventlog.qlik.sequence import WriterState
from spark.job import NOTHING, Job, Numbered
from spark.output.directory import Directory
from spark.output.part_files import OutputFile

BadLine = tuple[int, str, str]
"""record_id, code and message of a row that gets E."""

Counts = dict[str, int]

RECEIVER: Final = "receiver"
"""The code of a row whose event the format cannot hold (spec/event-log.md 10)."""


Columns = Mapping[str, Sequence[Any]]
"""What is to be written, as columns of equal length of numbers, texts and bytes. It waits for the third stage as an
Arrow stream, which tells whoever reads it nothing to do: the storage it waits on may be shared with others.
"""


class Rendered(NamedTuple):
    """What groups of one part became.

    ``blob``: what the third stage gets; None = nothing is written. ``bad``: rows that get E. ``taken``: what the blob
    takes of the numbering.
    """

    blob: Columns | None
    bad: list[BadLine]
    counts: Counts
    taken: Numbered = NOTHING


Render = Callable[[Sequence[Decided], Sequence[int], Mapping[int, LogRow], QueryBack], Rendered]
"""Groups in queue order, their places in it, and, for formats that need them, their rows as the log has them; what
reads rows of objects from the snapshot.
"""


class OutputFormat(Protocol):
    """One format. ``FORMS``: the forms that its files may have, the usual one first."""

    @property
    def FORMS(self) -> tuple[str, ...]: ...  # noqa: N802 - a constant of the module

    def read_options(self, config: Config, options: Mapping[str, Any], form: str) -> Any:
        """The writer's options, as configuration and request give them. Raises ConfigError."""
        ...

    def renderer(self, job: Job) -> Render:
        """What makes blobs of groups, in the stage that folds them."""
        ...

    def write(
        self,
        job: Job,
        directory: Directory,
        part: int,
        blobs: Sequence[Columns],
        before: Numbered,
        sequences: Mapping[int, str],
    ) -> tuple[list[OutputFile], Numbered]:
        """The blobs of a part in queue order as files, numbered on from ``before``; what is numbered at its end.

        ``sequences`` by place: those of messages that have been sent already, which keep them.
        """
        ...

    def folders(self, job: Job) -> list[str]:
        """The folders that the output may have. Raises FormatError, MaskTooWide for classes that it cannot hold."""
        ...

    def finish(self, job: Job, directory: Directory, files: Sequence[OutputFile], state: WriterState) -> list[str]:
        """Write what stands in the directory once; its names."""
        ...


FORMATS: Final[Mapping[str, str]] = {
    "xds": "spark.output.xds",
    "cloudevents": "spark.output.cloudevents",
    "debezium": "spark.output.debezium",
    "qlik-messages": "spark.output.messages",
    "qlik-change-table": "spark.output.tables",
}
"""The formats by name, with the module of each."""


def format_named(name: str, form: str | None = None) -> OutputFormat:
    """A format. Raises ConfigError if there is none of this name, or if it has no such form."""
    if name not in FORMATS:
        raise ConfigError(f"format {name!r} is unknown: use {', '.join(FORMATS)}")
    module = cast("OutputFormat", import_module(FORMATS[name]))
    if form is not None and form not in module.FORMS:
        raise ConfigError(f"form {form!r} is unknown: files of {name} are {', '.join(module.FORMS)}")
    return module


def counts_of(events: Sequence[Outgoing]) -> tuple[Counter[str], list[BadLine]]:
    """How many events of which operation, and how many rows had which fate (spec/event-log.md 11); the rows whose value
    read back cannot be written.
    """
    counts: Counter[str] = Counter([event.operation for event in events if event.operation is not None])
    published = sum([len(event.ids) for event in events if event.fates is None])
    bad: list[BadLine] = []
    for event in events:
        fates = event.fates
        if fates is not None:  # of few groups
            published += len(fates.contributed)
            counts["rows_dropped"] += len(fates.dropped)
            counts["rows_gone"] += len(fates.gone)
            counts["rows_empty"] += len(fates.empty)
            counts["sv_conflicts"] += fates.conflicts
            bad += [(row.record_id, row.code, row.message) for row in fates.bad]
    counts["rows_published"] = published
    return counts, bad
