"""Sources that a publisher follows in place of a log: what a source is, and what is read of it.

A source is one class in a module of its name here. It says what it can give and which options it has, and opens a
``Stream``: the changes, and from where to read them again. ``pending`` keeps their events between being read and being
answered; ``follow`` sends them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from eventlog.changes.format import Report
from eventlog.config.kinds import SECRET, TABLE, URL
from eventlog.core.catalog import Table
from eventlog.core.options import PATH, TEXT, CheckedOptions, option
from eventlog.errors import ConfigError, EventlogError
from eventlog.model import Change


class SourceAway(EventlogError):
    """The source cannot be read now."""

    code = "source_away"
    cure = "Wait: the publisher opens it again by itself. If it lasts, check the source and [source]."


class SourceLost(EventlogError):
    """The source no longer holds what follows the position, so that to go on would lose changes."""

    code = "source_lost"
    cure = "Put the files back as they were read. If they are gone, load the tables anew and begin at a new position."


class BadToken(ConfigError):
    """A position that is not of this source."""


class Failure(NamedTuple):
    """Something of a source that did not reach the receiver and will not be tried again.

    ``code``: ``receiver``, or that of the error that stood against reading or writing it. ``content``: the event in its
    format, or the change as JSON; None where it could not be read.
    """

    event_id: str
    code: str
    message: str
    content: str | None = None


class Read(NamedTuple):
    """A change that was read. ``event_id``: what its events are named after, always the same for the same change."""

    change: Change
    event_id: str


class Mark(NamedTuple):
    """All that came so far need not be read again from ``token`` on (in JSON's terms; None: no place is known yet).

    ``is_idle``: there is no more at the moment; ``rest``: seconds to wait before the next step is asked for.
    """

    token: Any
    is_idle: bool = False
    rest: float = 0.0


class Described(NamedTuple):
    """The columns, types and key of a table, before the first change that has them. ``schema`` None = not known."""

    schema: str | None
    table: Table


Step: TypeAlias = Read | Failure | Mark | Described
"""A failure is a change that cannot be read; the stream goes on behind it."""


class Backlog(NamedTuple):
    """How much a source holds behind a position: so many ``unit``s."""

    number: int
    unit: str


class Stream(Protocol):
    """An opened source of changes.

    ``steps`` reads from behind ``token``, None = from where the source begins, until it is closed; with ``once`` it
    ends where the source ends now. It never blocks for more than some seconds without a step. A step is asked for when
    the one before has been taken, not when it has been answered. Raises SourceAway and DatabaseAway, after which it may
    be called again, SourceLost, FormatError, DatabaseError, ConfigError, of these BadToken for the position.
    """

    def steps(self, token: Any, *, once: bool) -> Generator[Step, None, None]: ...

    def backlog(self, token: Any) -> Backlog | None:
        """What lies behind ``token`` now, None if the source cannot tell. Raises as ``steps``."""
        ...


# --- what a source is -------------------------------------------------------------------------------------------------


class Gives(Enum):
    """What a source knows of its changes beside the values; a format may need it (spec/change-model.md 6.1)."""

    TYPES = "types of columns"
    TIMES = "when a change was made"
    USERS = "who made it"
    WHOLE_ROWS = "all columns of the row after a change"


@dataclass(frozen=True, slots=True)
class StreamOptions(CheckedOptions):
    """Options of ``[source]`` that all followed sources have."""

    reader: Mapping[str, Any] | None = option(
        None, TABLE, "options of the format's reader, as those of convert --map",
        example={"keys": {"app.item": ["id"]}},
    )  # fmt: skip
    catalog: Path | None = option(
        None, PATH, "JSON catalogue of the tables, for keys and types", example="catalog.json"
    )
    position_url: str | None = option(
        None, URL, "database that keeps the position, such as a SQLite file; password: "
        "EVENTLOG_SOURCE_POSITION_PASSWORD", example="sqlite:////var/lib/eventlog/position.db",
    )  # fmt: skip
    position_url_file: Path | None = option(
        None, PATH, "file that holds that URL, in place of position_url", example="/run/secrets/position-url"
    )
    position_password: str | None = option(None, SECRET, "password of position_url", secret=True)
    position_table: str = option("eventlog_position", TEXT, "table of the position, one a publisher")


class Source(ABC):
    """All that is known of one kind of source. A kind extends it in a module of its name.

    ``options``: the class that declares its options of ``[source]``. ``reader_format``: the format whose reader's
    options stand in ``[source.reader]``, None if it has none. ``gives``: what it knows of every change. ``is_log``: it
    is the event log, which has a queue and marks in place of a position, and options in ``[database]``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    options: ClassVar[type] = StreamOptions
    reader_format: ClassVar[str | None] = None
    gives: ClassVar[frozenset[Gives]]
    is_log: ClassVar[bool] = False

    @abstractmethod
    def open(self, options: Any, reader: Mapping[str, Any], report: Report) -> Stream:
        """Return the stream that the options name; it is read when it is asked for steps.

        ``reader``: the options of ``[source.reader]``, not parsed yet. ``report`` gets what the reader counts. Raises
        ConfigError for what is missing, wrong, or does not go together.
        """

    @classmethod
    def contradictions(cls, options: Any, source_of: Callable[[str], str]) -> Iterator[str]:
        """Yield what no option can say of itself. ``source_of`` says where the option of a name came from."""
        yield from ()

    def kind(self, options: Any) -> str:
        """Return what is followed with these options, for people."""
        return self.title

    def unused(self, options: Any) -> frozenset[str]:
        """Return the names of the options that have no meaning beside the others."""
        return frozenset()

    def in_words(self, token: Any) -> str:
        """Return a position, which is not None, for people."""
        return str(token)
