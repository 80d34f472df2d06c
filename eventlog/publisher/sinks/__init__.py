"""Where documents go. A sink takes one document at a time and answers for its events."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from eventlog.answer import Answer
from eventlog.model import Event


class Document(NamedTuple):
    """One envelope, rendered. ``flight`` and ``envelope`` are its numbers in the in-flight line."""

    flight: int
    envelope: int
    events: tuple[Event, ...]
    body: str


class Sink(Protocol):
    """A receiver of documents.

    ``send`` raises ReceiverAway when there is no usable answer. What has been answered counts only after ``flush``,
    which makes it durable and is called before rows are marked; it raises ReceiverAway too.
    """

    def send(self, document: Document) -> Answer: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...
