"""The stream of a source, whose steps are checked at the border (docs/developers/extend.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Any, Final

from eventlog.core.catalog import Table
from eventlog.errors import WrongResult, called, check_result, kind_of
from eventlog.model import Change
from eventlog.publisher.stream import Backlog, Described, Failure, Mark, Read, SourceStep, Stream

_LONGEST_ID: Final = 255
_UNITS: Final = ("bytes", "rows", "messages")


class CheckedStream:
    """A stream that passes on the steps of another stream, and checks each step.

    Its methods raise WrongResult for a step or a backlog that is not what the method promises.
    """

    def __init__(self, stream: Any, opened_by: Callable[..., Any]) -> None:
        for name in ("steps", "backlog"):
            if not callable(getattr(stream, name, None)):
                raise WrongResult(
                    opened_by, f"returned {kind_of(stream)}, which has no method {name}"
                )
        self._stream: Stream = stream

    def steps(self, token: Any, *, once: bool) -> Generator[SourceStep, None, None]:
        method = self._stream.steps
        steps = called(method, token, once=once)
        check_result(method, steps, Iterable, "an iterator of steps")
        if not hasattr(steps, "close"):
            steps = (step for step in steps)
        with closing(steps):
            for step in steps:
                _check_step(method, step)
                yield step

    def backlog(self, token: Any) -> Backlog | None:
        backlog = called(self._stream.backlog, token)
        if backlog is None:
            return None
        check_result(self._stream.backlog, backlog, Backlog, "Backlog or None")
        if not isinstance(backlog.number, int) or backlog.unit not in _UNITS:
            raise WrongResult(
                self._stream.backlog,
                f"returned {backlog!r}; an integer, and one of {', '.join(_UNITS)} is needed",
            )
        checked: Backlog = backlog
        return checked


def _check_step(method: Callable[..., Any], step: object) -> None:
    """Raise WrongResult unless a step is of a known type, with fields of their types."""
    match step:
        case Read(change, event_id):
            if not isinstance(change, Change):
                raise WrongResult(
                    method, f"yielded Read with {kind_of(change)}; an eventlog.Change is needed"
                )
            _check_id(method, event_id)
        case Failure(event_id, code, message, content):
            _check_id(method, event_id)
            for text in (code, message, content or ""):
                if not isinstance(text, str):
                    raise WrongResult(
                        method, f"yielded Failure with {kind_of(text)}; a text is needed"
                    )
        case Mark(token):
            try:
                json.dumps(token)
            except (TypeError, ValueError) as error:
                raise WrongResult(
                    method, f"yielded Mark with a token that JSON cannot hold: {error}"
                ) from None
        case Described(_, table):
            if not isinstance(table, Table):
                raise WrongResult(
                    method,
                    f"yielded Described with {kind_of(table)}; an eventlog.core.catalog.Table is "
                    "needed",
                )
        case _:
            raise WrongResult(
                method, f"yielded {kind_of(step)}; Read, Failure, Mark or Described is needed"
            )


def _check_id(method: Callable[..., Any], event_id: object) -> None:
    if not isinstance(event_id, str) or not 0 < len(event_id) <= _LONGEST_ID:
        found = repr(event_id) if isinstance(event_id, str) else kind_of(event_id)
        raise WrongResult(
            method,
            f"yielded a step with {found} as event-id; a text of 1 to {_LONGEST_ID} characters is "
            "needed",
        )
