"""Documents to standard output, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

from eventlog.errors import ReceiverAway
from eventlog.model import Answer
from eventlog.publisher.sinks import Document


@dataclass(frozen=True, slots=True)
class StreamSink:
    """Writes documents to a text stream; every event counts as success once it is flushed."""

    stream: TextIO

    def send(self, document: Document) -> Answer:
        try:
            # The form of files does not end its last line; the next document is to begin one.
            self.stream.write(document.body if document.body.endswith("\n") else f"{document.body}\n")
        except OSError as error:
            raise ReceiverAway(f"standard output cannot be written: {error}") from error
        return Answer()

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError as error:
            raise ReceiverAway(f"standard output cannot be written: {error}") from error

    def close(self) -> None:
        """The stream belongs to the caller."""
