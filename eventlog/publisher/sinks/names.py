"""The names of documents in a directory or a store, and whose they are (spec/event-log.md 10).

A name has a flight and its (first) envelope, which the in-flight line records, so that an envelope
which is sent again replaces itself. Flight numbers are unique in one log only. So a place records
its owner. Otherwise another log, or a recreated one that counts its flights from 1 again, would
replace documents that nobody has read yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eventlog.errors import ConfigError
from eventlog.model import Document
from eventlog.publisher.sinks import Owner


def stem(flight: int, envelope: int) -> str:
    """Return the name of a document without its ending. Names sort as their numbers do."""
    return f"{flight:012d}-{envelope:06d}"


@dataclass(slots=True)
class OpenName:
    """The flight whose envelopes are gathered under one name.

    ``was_there``: the name is there already, of a publisher that was killed before its marks. Such
    a name is replaced by its first envelope alone: a name never gains events, for readers who
    remember the names that they have read.
    """

    flight: int = 0
    was_there: bool = False

    def takes(self, document: Document) -> bool:
        """Return True if the document goes under this name, behind what is gathered."""
        return document.flight == self.flight and not self.was_there


def refuse_another_owner(
    owner: Owner, marked: Owner, *, place: str, contents: str, marker: str
) -> None:
    """Raise ConfigError unless the place is marked as the owner's.

    ``place`` is for people, such as "directory /srv/out", ``contents`` are "documents" or
    "objects", and ``marker`` is where the owner is recorded.
    """
    if marked.identity != owner.identity:
        another = place.partition(" ")[0]
        whose = (
            f"{marked.name}, not of {owner.name}"
            if marked.name != owner.name
            else f"{marked.name} as it was before: the log or its database was made again since"
        )
        raise ConfigError(
            f"sink {place} is that of {whose}: their {contents} would "
            f"replace one another; name another {another}, or delete {marker} if it is the same "
            "one, moved or restored"
        )


def refuse_later_flights(
    owner: Owner,
    latest: int,
    newest_flight: Callable[[int], int],
    *,
    place: str,
    contents: str,
    fix: str = "",
    beyond: int = 0,
) -> None:
    """Raise ConfigError if the place has contents of a flight that the owner has not drawn yet.

    ``latest`` is the latest flight that surely has contents there, 0 without any: then
    ``newest_flight`` is not called. It returns the newest number that the owner has drawn; a log
    draws numbers until they are beyond its argument: ``latest``, or ``beyond`` if deliveries up to
    that may have contents. ``fix`` ends the message.
    """
    if latest > 0 and latest > (newest := newest_flight(max(latest, beyond))):
        another = place.partition(" ")[0]
        raise ConfigError(
            f"sink {place} has {contents} of flight {latest}, but {owner.name} has only come to "
            f"{newest}: it was made anew or restored, and would replace them; name another "
            f"{another}{fix}"
        )
