"""Sources that a publisher follows in place of a log: a stream of changes, and from where to read it again."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, Protocol, TypeAlias

from eventlog.errors import ConfigError, EventlogError
from eventlog.model import Change
from eventlog.publisher.stream.position import Failure


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


Step: TypeAlias = Read | Failure | Mark
"""A failure is a change that cannot be read; the stream goes on behind it."""


class Backlog(NamedTuple):
    """How much a source holds behind a position: so many ``unit``s."""

    number: int
    unit: str


class Source(Protocol):
    """A source of changes.

    ``steps`` reads from behind ``token``, None = from where the source begins, until it is closed; with ``once`` it
    ends where the source ends now. It never blocks for more than some seconds without a step. A step is asked for when
    the one before has been taken, not when it has been answered. Raises SourceAway and DatabaseAway, after which it may
    be called again, SourceLost, FormatError, DatabaseError, ConfigError, of these BadToken for the position.
    """

    def steps(self, token: Any, *, once: bool) -> Generator[Step, None, None]: ...

    def backlog(self, token: Any) -> Backlog | None:
        """What lies behind ``token`` now, None if the source cannot tell. Raises as ``steps``."""
        ...
