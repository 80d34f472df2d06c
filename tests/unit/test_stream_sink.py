"""The sink stdout: documents on standard output."""

from __future__ import annotations

import io

import pytest

from eventlog.model import Answer, Document
from eventlog.publisher.sinks.stdout import StreamSink


@pytest.mark.promise("sink stdout")
def test_each_document_begins_on_a_new_line_of_the_stream() -> None:
    written = io.BytesIO()
    sink = StreamSink(io.TextIOWrapper(written))
    for number, body in enumerate(["é, unfinished", "a line\n", "the last\n"], 1):
        assert sink.send(Document(3, number, (), body.encode())) == Answer()
    sink.flush()
    assert written.getvalue().decode() == "é, unfinished\na line\nthe last\n"
