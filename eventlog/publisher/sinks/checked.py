"""The sink of an installed package, whose answers are checked at the border
(docs/developers/extend.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eventlog.errors import WrongResult, check_result, kind_of
from eventlog.model import Answer, Document, EventResult
from eventlog.publisher.sinks import Sink


class CheckedSink(Sink):
    """A sink that passes everything to another sink, and checks what the other sink returns.

    Its methods raise WrongResult if a result is not what the method promises.
    """

    def __init__(self, sink: Any, opened_by: Callable[..., Any]) -> None:
        check_result(opened_by, sink, Sink, "an eventlog.publisher.sinks.Sink")
        self._sink: Sink = sink

    def send(self, document: Document) -> Answer:
        answer = self._sink.send(document)
        check_answer(self._sink.send, answer)
        return answer

    def flush(self) -> Mapping[str, EventResult] | None:
        refused = self._sink.flush()
        if refused is not None:
            _check_results(self._sink.flush, refused, "None or a mapping")
        return refused

    def close(self) -> None:
        self._sink.close()


def check_answer(send: Callable[..., Any], answer: object) -> None:
    """Raise WrongResult unless ``send`` has returned an answer that contains results."""
    check_result(send, answer, Answer, "an eventlog.Answer")
    assert isinstance(answer, Answer)
    _check_results(send, answer.results, "an answer with a mapping")
    if answer.general is not None:
        _check_event_result(send, answer.general)
    if not isinstance(answer.retry_after, int | float | None):
        raise WrongResult(
            send,
            f"returned an answer whose retry_after is {kind_of(answer.retry_after)}; a number of "
            "seconds is needed",
        )


def _check_results(method: Callable[..., Any], results: object, needed: str) -> None:
    check_result(method, results, Mapping, f"{needed} of event-ids to results")
    assert isinstance(results, Mapping)
    for event_id, result in results.items():
        if not isinstance(event_id, str):
            raise WrongResult(
                method,
                f"returned a result for {kind_of(event_id)}; the text of an event-id is needed",
            )
        _check_event_result(method, result)


def _check_event_result(method: Callable[..., Any], result: object) -> None:
    if not isinstance(result, EventResult):
        raise WrongResult(
            method, f"returned {kind_of(result)} as a result; an eventlog.EventResult is needed"
        )
