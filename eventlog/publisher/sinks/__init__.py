"""Where documents go. A sink takes one document at a time and answers for its events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from eventlog.answer import Answer, Verdict
from eventlog.model import Event


class Record(NamedTuple):
    """A record of a topic."""

    topic: str
    key: bytes | None
    value: bytes


class Document(NamedTuple):
    """One envelope, rendered. ``flight`` and ``envelope`` are its numbers in the in-flight line.

    In a format of numbered records ``body`` is empty and ``records`` holds those of each event, or why it has none.
    """

    flight: int
    envelope: int
    events: tuple[Event, ...]
    body: str
    records: tuple[tuple[Record, ...] | Verdict, ...] = ()


class Sink(Protocol):
    """A receiver of documents.

    ``send`` raises ReceiverAway when there is no usable answer. What has been answered counts only after ``flush``,
    which makes it durable and is called before rows are marked; it raises ReceiverAway too. A sink that learns only
    then that an event is refused for good says so: an event-id and its verdict, error, which takes the place of the
    answer.
    """

    def send(self, document: Document) -> Answer: ...

    def flush(self) -> Mapping[str, Verdict] | None: ...

    def close(self) -> None: ...
