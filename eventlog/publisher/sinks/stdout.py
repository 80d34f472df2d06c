"""Documents to standard output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

from eventlog.config.load import Config
from eventlog.model import Answer, Document
from eventlog.publisher.sinks import Sink
from eventlog.publisher.sinks.files import as_receiver_away


def open_sink(_config: Config, stream: TextIO) -> Sink:
    """``[sink]`` of type ``stdout``."""
    return StreamSink(stream)


@dataclass(frozen=True, slots=True)
class StreamSink(Sink):
    """Writes documents to a text stream of the caller's; every event counts as success once it is flushed."""

    stream: TextIO

    def send(self, document: Document) -> Answer:
        with as_receiver_away("standard output"):
            # The form of files does not end its last line; the next document is to begin one.
            body = document.body if document.body.endswith(b"\n") else document.body + b"\n"
            binary = getattr(self.stream, "buffer", None)
            if binary is None:
                self.stream.write(body.decode())
            else:
                self.stream.flush()
                binary.write(body)
        return Answer()

    def flush(self) -> None:
        with as_receiver_away("standard output"):
            self.stream.flush()
