"""Write documents to standard output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

from eventlog.core.options import shared
from eventlog.model import Answer, Document
from eventlog.publisher.sinks import FILE_LAYOUT, Opening, Sink, as_receiver_unavailable


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of ``[sink]`` of type ``stdout``."""

    file_layout: str = shared(FILE_LAYOUT)


class StreamSink(Sink):
    """A sink that writes documents to the caller's text stream.

    Every event is a success once it is flushed.
    """

    name = "stdout"
    title = "standard output"
    options = StreamOptions
    is_terminal = True

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @classmethod
    def open(cls, options: StreamOptions, opening: Opening) -> StreamSink:
        return cls(opening.stream)

    def send(self, document: Document) -> Answer:
        with as_receiver_unavailable("standard output"):
            # The body of file_layout "documents" has no end of line; the next document must begin
            # on a new line.
            body = document.body if document.body.endswith(b"\n") else document.body + b"\n"
            binary = getattr(self._stream, "buffer", None)
            if binary is None:
                self._stream.write(body.decode())
            else:
                self._stream.flush()
                binary.write(body)
        return Answer()

    def flush(self) -> None:
        with as_receiver_unavailable("standard output"):
            self._stream.flush()
