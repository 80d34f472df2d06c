"""The names of documents in a directory or a store, and the owner of such a place
(spec/event-log.md 10).

A name contains the delivery and its (first) document, which the in-flight entry records, so that a
document which is sent again replaces itself. Delivery numbers are unique in one log only. So a
place records its owner. Without an owner, another log, or a log that was created again and counts
its deliveries from 1, would replace documents that have not been read yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.model import Document
from eventlog.publisher.sinks import Owner


def stem(delivery_no: int, document_no: int) -> str:
    """Return the name of a document without its suffix. Names sort like their numbers."""
    return f"{delivery_no:012d}-{document_no:06d}"


@dataclass(slots=True)
class OpenName:
    """The delivery whose successive documents are gathered under one name. ``document_no`` is the
    number of the last document. If numbers were left out, the next document gets another name, so
    that names sort like documents.

    ``was_there``: the name already exists, because a publisher was killed before it marked the
    rows. Only the first document may replace what has this name. Later documents get other names:
    readers remember the names that they have read, so events must never be added to an existing
    name.

    ``lost``: why documents that were answered have been dropped before a flush. The next flush
    raises this error; otherwise their events would count as received.
    """

    delivery_no: int = 0
    document_no: int = 0
    was_there: bool = False
    lost: ReceiverUnavailable | None = None

    def takes(self, document: Document) -> bool:
        """Return True if the document can be appended under this name."""
        return (
            document.delivery_no == self.delivery_no
            and document.document_no <= self.document_no + 1
            and not self.was_there
        )

    def change(self, flush: Callable[[], None]) -> None:
        """Flush before a document gets another name. Raises ReceiverUnavailable."""
        try:
            flush()
        except ReceiverUnavailable as lost:
            self.lost = lost
            raise


def refuse_another_owner(
    owner: Owner, marked: Owner, *, place: str, contents: str, marker: str
) -> None:
    """Raise ConfigError unless the marker of the place names this owner.

    For the message, ``place`` is for example "directory /srv/out", ``contents`` is "documents" or
    "objects", and ``marker`` is the file or object that records the owner.
    """
    if marked.identity != owner.identity:
        another = place.partition(" ")[0]
        whose = (
            f"{marked.name}, not to {owner.name}"
            if marked.name != owner.name
            else f"{marked.name} as it was before the log or its database was created again"
        )
        raise ConfigError(
            f"sink {place} belongs to {whose}, and the {contents} of both would replace one "
            f"another. Name another {another}; or, if both are the same log, moved or restored, "
            f"delete {marker}"
        )


def refuse_later_deliveries(
    owner: Owner,
    latest: int,
    newest_delivery: Callable[[int], int],
    *,
    place: str,
    contents: str,
    fix: str = "",
    beyond: int = 0,
) -> None:
    """Raise ConfigError if the place has contents of a delivery that the owner has not drawn yet.

    ``latest`` is the latest delivery that certainly has contents there; 0 = there are none, and
    ``newest_delivery`` is not called. ``newest_delivery`` returns the newest number that the owner
    has drawn. A log first draws numbers until they exceed the argument: ``latest``, or ``beyond``
    if deliveries up to ``beyond`` may have contents. ``fix`` ends the message.
    """
    if latest > 0 and latest > (newest := newest_delivery(max(latest, beyond))):
        another = place.partition(" ")[0]
        raise ConfigError(
            f"sink {place} has {contents} of delivery {latest}, but the newest delivery of "
            f"{owner.name} is {newest}: {owner.name} was created again or restored, and would "
            f"replace these {contents}. Name another {another}{fix}"
        )
