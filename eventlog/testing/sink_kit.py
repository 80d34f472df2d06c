"""The tests that a sink must pass: answers, flush before marks, an unavailable receiver, order,
bounded memory, close.
"""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any

import pytest

from eventlog.changes.format import Format
from eventlog.changes.publishing import Publishing
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Document, Level
from eventlog.publisher.sinks import Opening, Sink
from eventlog.registry import format_named
from eventlog.testing import samples

_MAX_MEMORY = 64 * 2**20


@dataclass(frozen=True)
class SinkCase:
    """A sink under test."""

    sink: type[Sink]
    options: Any
    """The options of the sink's class."""
    received: Callable[[], Collection[str]]
    """A function that returns the event-ids that the sink's receiver has stored; a list is in the
    order in which they arrived.
    """
    away: Callable[[], AbstractContextManager[object]] | None = None
    """A function that makes the receiver unavailable in a block, None = it is always available."""
    format: str = "xds"
    """The name of the format that is sent."""

    def open(self) -> Sink:
        """Open the sink with the case's options and format."""
        return self.sink.open(self.options, Opening(self._format(), io.StringIO()))

    def documents(self, number: int, size: int = 0) -> Iterator[Document]:
        """Yield documents of three events each, one document per delivery."""
        format, classes = self._format(), samples.catalog()
        kind = format.publish_options
        takes = self.sink
        publishing = Publishing(
            file_layout=getattr(self.options, "file_layout", "lines"),
            in_records=takes.takes_records,
            in_messages=takes.takes_several,
            has_headers=takes.has_headers,
        )
        writer = format.publish(None if kind is None else kind(), publishing)
        written = samples.events(classes, 3 * number, size)
        for at in range(number):
            own = written[3 * at : 3 * at + 3]
            delivery = samples.DeliverySample(
                at + 1, writer.first(at + 1, "", None), samples.origins(own)
            )
            yield writer.document(classes, delivery, 1, own)

    def _format(self) -> Format:
        return format_named(self.format)


def _deliver(sink: Sink, documents: Iterable[Document]) -> None:
    for document in documents:
        sink.send(document)
    sink.flush()


def test_every_event_is_answered_and_received_after_the_flush(sink_case: SinkCase) -> None:
    with closing(sink_case.open()) as sink:
        (document,) = sink_case.documents(1)
        answer = sink.send(document)
        refused = sink.flush() or {}
        assert [answer.result(one).level for one in document.event_ids] == [Level.SUCCESS] * 3
        assert not refused
        assert set(sink_case.received()) == {"1", "2", "3"}


def test_documents_are_received_in_order(sink_case: SinkCase) -> None:
    with closing(sink_case.open()) as sink:
        _deliver(sink, sink_case.documents(4))
    received, wanted = sink_case.received(), [str(number) for number in range(1, 13)]
    assert received == wanted if isinstance(received, list) else set(received) == set(wanted)


def test_documents_that_were_not_flushed_are_sent_again_and_not_lost(sink_case: SinkCase) -> None:
    with closing(sink_case.open()) as sink:
        for document in sink_case.documents(2):
            sink.send(document)  # the process ends here without a flush
    with closing(sink_case.open()) as sink:
        _deliver(sink, sink_case.documents(2))
    assert set(sink_case.received()) == {"1", "2", "3", "4", "5", "6"}


def test_an_unavailable_receiver_is_reported_and_nothing_is_lost(sink_case: SinkCase) -> None:
    if sink_case.away is None:
        pytest.skip("the receiver is never unavailable")
    (document,) = sink_case.documents(1)
    with closing(sink_case.open()) as sink:
        with sink_case.away(), pytest.raises(ReceiverUnavailable):
            _deliver(sink, [document])
        _deliver(sink, [document])
    assert set(sink_case.received()) == {"1", "2", "3"}


def test_memory_is_bounded_if_each_document_is_flushed(sink_case: SinkCase) -> None:
    with closing(sink_case.open()) as sink:
        tracemalloc.start()
        try:
            for document in sink_case.documents(40, size=100_000):
                _deliver(sink, [document])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < _MAX_MEMORY
