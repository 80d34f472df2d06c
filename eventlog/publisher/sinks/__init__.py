"""Where documents go. A sink takes a document and answers for its events.

Each type of sink is a module of its name here, with a function ``open_sink`` as below; its options stand in
``config.settings.SinkSettings``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple, Protocol, TextIO

from eventlog.config.load import Config
from eventlog.model import Answer, Event, KafkaRecord, Verdict


class Document(NamedTuple):
    """One envelope, rendered. ``flight`` and ``envelope`` are its numbers in the in-flight line.

    ``event_ids``: those of its events, none in a heartbeat. In a format of records ``body`` is empty and ``records``
    holds those of each event, or why it has none. ``make_events`` makes the events in their public form, for the few
    sinks that look at them. ``media_type`` and ``headers`` (names and values) go with ``body`` over HTTP. ``refused``:
    verdicts, error, of events that the format cannot hold and the body does not have, by event-id.
    """

    flight: int
    envelope: int
    event_ids: Sequence[str]
    body: str
    records: Sequence[tuple[KafkaRecord, ...] | Verdict] = ()
    make_events: Callable[[], tuple[Event, ...]] = tuple
    media_type: str = "application/xml; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    refused: Mapping[str, Verdict] = MappingProxyType({})

    @property
    def events(self) -> tuple[Event, ...]:
        return self.make_events()


class Sink(Protocol):
    """A receiver of documents. Sinks extend it, and say what is not as here.

    ``send`` raises ReceiverAway when there is no usable answer. What has been answered counts only after ``flush``,
    which makes it durable and is called before rows are marked; it raises ReceiverAway too. A sink that learns only
    then that an event is refused for good says so: an event-id and its verdict, error, which takes the place of the
    answer.
    """

    def send(self, document: Document) -> Answer: ...

    def flush(self) -> Mapping[str, Verdict] | None:
        """Nothing is kept back: what was answered is the receiver's."""
        return None

    def close(self) -> None:
        """There is nothing to end."""
        return None  # noqa: RET501 - an empty body would be abstract


def open_sink(config: Config, stream: TextIO) -> Sink:
    """The sink that the configuration names; ``stream`` is standard output. Raises ConfigError.

    Only its module is loaded: each brings libraries of its own, which take longer to load than all of the publisher.
    """
    sink: Sink = import_module(f"{__name__}.{config.sink.type}").open_sink(config, stream)
    return sink
