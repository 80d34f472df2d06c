"""Sources that a publisher follows in place of a log, and the steps that are read from them.

A source is one class, in a module of this package with the name of the source. The class declares
the capabilities and the options of the source, and opens a ``Stream``, which yields changes and the
positions from which to read again. ``source_feed`` keeps the events of the changes from reading to
answer; ``follow`` sends these events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from eventlog.changes.format import Report
from eventlog.config.kinds import TABLE, URL
from eventlog.core.catalog import Table
from eventlog.core.options import PATH, TEXT, CheckedOptions, option
from eventlog.errors import ConfigError, EventlogError
from eventlog.model import Change


class SourceUnavailable(EventlogError):
    """The source cannot be read now."""

    code = "source_unavailable"


class SourceLost(EventlogError):
    """The source has lost changes that follow the position, so that the publisher cannot continue
    without a gap.
    """

    code = "source_lost"


class BadToken(ConfigError):
    """A position that belongs to another source."""


class Failure(NamedTuple):
    """A change or event of a source that did not reach the receiver and will not be tried again.

    ``code`` is ``receiver``, or the code of the error in reading or writing it. ``content`` is the
    event in its format, or the change as JSON; None if it could not be read.
    """

    event_id: str
    code: str
    message: str
    content: str | None = None


class Read(NamedTuple):
    """A change that was read.

    ``event_id`` is the base of the event-ids of the change's events. The same change always has the
    same base.
    """

    change: Change
    event_id: str


class Mark(NamedTuple):
    """A position in the source; everything before it has been yielded."""

    token: Any
    """The token from which reading can begin again, as a JSON value. None = no position is known
    yet.
    """
    is_idle: bool = False
    """True if the source has no more changes at the moment."""
    rest: float = 0.0
    """The seconds to wait before the next step is requested."""


class Described(NamedTuple):
    """The columns, types and key of a table. The step comes before the first change that has these
    columns, types and key.

    ``schema`` None = unknown.
    """

    schema: str | None
    table: Table


SourceStep: TypeAlias = Read | Failure | Mark | Described
"""A step of a stream. A failure is a change that cannot be read; the stream continues after it."""


class Backlog(NamedTuple):
    """The amount that a source contains after a position. ``unit`` is ``bytes``, ``rows`` or
    ``messages``; a metric exists for each of them.
    """

    number: int
    unit: str


class Stream(Protocol):
    """An opened source of changes.

    ``steps`` reads what follows ``token`` (None = from the beginning of the source) until it is
    closed; with ``once`` it ends at the present end of the source. If there is no step, ``steps``
    blocks for a few seconds at most. The next step is requested when the previous step was
    received, perhaps before the events of that step are answered. After SourceUnavailable and
    DatabaseUnavailable, ``steps`` may be called again. ``steps`` also raises SourceLost,
    FormatError, DatabaseError, ConfigError, and BadToken for the position.
    """

    def steps(self, token: Any, *, once: bool) -> Generator[SourceStep, None, None]: ...

    def backlog(self, token: Any) -> Backlog | None:
        """Return the amount after ``token`` now, None if the source cannot determine it.

        Raises the errors of ``steps``.
        """
        ...


# --- the class of a source ------------------------------------------------------------------------


class Gives(Enum):
    """A fact that a source may have and a format may need, in addition to the values of changes
    (spec/change-model.md 6.1).
    """

    TYPES = "types of columns"
    TIMES = "when a change was made"
    USERS = "who made it"
    WHOLE_ROWS = "all columns of the row after a change"


@dataclass(frozen=True, slots=True)
class StreamOptions(CheckedOptions):
    """Options of ``[source]`` that all followed sources have."""

    reader: Mapping[str, Any] | None = option(
        None, TABLE, "options of the format's reader, as those of convert --options",
        example={"keys": {"app.item": ["id"]}},
    )  # fmt: skip
    catalog: Path | None = option(
        None, PATH, "JSON catalogue of the tables, for keys and types", example="catalog.json"
    )
    position_url: str | None = option(
        None, URL, "database that keeps the position, such as a SQLite file; put a URL with a "
        "password into position_url_file", example="sqlite:////var/lib/eventlog/position.db",
    )  # fmt: skip
    position_table: str = option(
        "eventlog_position", TEXT, "table of the position; each publisher needs its own"
    )


class Source(ABC):
    """One kind of source. Each kind extends this class in a module with the name of the kind."""

    name: ClassVar[str]
    title: ClassVar[str]
    options: ClassVar[type] = StreamOptions
    """The class that declares the options that the source has in ``[source]``."""
    reader_format: ClassVar[str | None] = None
    """The format whose reader's options are in ``[source.reader]``, None if the source has none."""
    gives: ClassVar[frozenset[Gives]] = frozenset()
    """The facts that the source has of every change."""
    is_log: ClassVar[bool] = False
    """True if the source is the event log, which has a queue and marks in place of a position, and
    its options in ``[database]``.
    """

    @abstractmethod
    def open(self, options: Any, reader: Mapping[str, Any], report: Report) -> Stream:
        """Return the stream that the options name; it reads only when steps are requested.

        ``reader`` has the unparsed options of ``[source.reader]``. ``report`` gets the reader's
        counts. Raises ConfigError for options that are missing, wrong, or contradictory.
        """

    @classmethod
    def contradictions(cls, options: Any, source_of: Callable[[str], str]) -> Iterator[str]:
        """Yield the contradictions between options. ``source_of`` returns for the name of an option
        the place where the option was set.
        """
        yield from ()

    @classmethod
    def plain_hosts(cls, options: Any) -> Iterator[tuple[str, str]]:
        """Yield hosts as ``Sink.plain_hosts`` does."""
        yield from ()

    def kind(self, options: Any) -> str:
        """Return the kind of source that these options select, for people."""
        return self.title

    def unused(self, options: Any) -> frozenset[str]:
        """Return the names of the options that have no effect in combination with the other
        options.
        """
        return frozenset()

    def in_words(self, token: Any) -> str:
        """Return a position, which is not None, in words for people."""
        return str(token)
