"""Our own sinks pass the kit that others test theirs with."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventlog.model import Event
from eventlog.publisher.sinks import Opening
from eventlog.publisher.sinks.files import FileOptions, FilesSink
from eventlog.publisher.sinks.python import CallableSink, FunctionOptions
from eventlog.publisher.sinks.stdout import StreamOptions, StreamSink
from eventlog.testing.sink_kit import *  # noqa: F403
from eventlog.testing.sink_kit import SinkCase


class Receiver:
    """Keeps the event-ids of documents."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.is_away = False

    def __call__(self, body: bytes, events: Sequence[Event]) -> None:
        if self.is_away:
            raise OSError("nobody is there")
        self.received += [event.event_id for event in events if event.event_id not in self.received]

    @contextmanager
    def away(self) -> Iterator[None]:
        self.is_away = True
        yield
        self.is_away = False


RECEIVER = Receiver()


class ToPipe(StreamSink):
    """Writes to one stream, however often it is opened."""

    stream = io.StringIO()

    @classmethod
    def open(cls, options: StreamOptions, opening: Opening) -> ToPipe:
        return cls(cls.stream)


def event_ids(text: str) -> list[str]:
    return re.findall(r'event-id="([^"]+)"', text)


@pytest.fixture(params=["lines", "documents", "python", "stdout"])
def sink_case(request: pytest.FixtureRequest, tmp_path: Path) -> SinkCase:
    if request.param == "python":
        RECEIVER.__init__()  # type: ignore[misc]
        options = FunctionOptions(function=f"{__name__}:RECEIVER")
        return SinkCase(CallableSink, options, lambda: RECEIVER.received, RECEIVER.away)
    if request.param == "stdout":
        ToPipe.stream = io.StringIO()
        return SinkCase(ToPipe, StreamOptions(), lambda: event_ids(ToPipe.stream.getvalue()))

    def received() -> list[str]:
        files = sorted(file for file in tmp_path.iterdir() if not file.name.startswith("."))
        return [one for file in files for one in event_ids(file.read_text(encoding="utf-8"))]

    return SinkCase(FilesSink, FileOptions(directory=tmp_path, file_layout=request.param), received)
