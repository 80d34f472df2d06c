"""Pass documents to a Python function of the user, ``module:function`` (spec/event-log.md 8.4)."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eventlog.core.options import TEXT, option, shared
from eventlog.errors import ConfigError, ReceiverUnavailable, Reply, WrongResult, kind_of
from eventlog.model import Answer, Document, Event, answer_of
from eventlog.publisher.sinks import FILE_LAYOUT, Opening, Sink
from eventlog.publisher.sinks.checked import check_answer

Receive = Callable[[bytes, Sequence[Event]], str | bytes | Answer | None]
"""A function that receives the bytes of a document and its events. The function returns None
(success for all), an XDS answer (spec/xds.md 7) or an Answer.

The function may raise any exception if it could not receive the document. With ``concurrency`` > 1
several threads call it.
"""


@dataclass(frozen=True, slots=True)
class FunctionOptions:
    """Options of ``[sink]`` of type ``python``."""

    function: str | None = option(
        None,
        TEXT,
        "module:function, called with each document and its events",
        example="receivers.hr:receive",
    )
    file_layout: str = shared(FILE_LAYOUT)


class CallableSink(Sink):
    """A sink that calls a function with each document.

    ``target`` is the function's name in messages.
    """

    name = "python"
    title = "a function of Python"
    options = FunctionOptions
    needs = {"function": "which is called with each document"}  # noqa: RUF012 - read only
    takes_several = True

    def __init__(self, receive: Receive, target: str) -> None:
        self.receive, self.target = receive, target

    @classmethod
    def open(cls, options: FunctionOptions, opening: Opening) -> CallableSink:
        assert options.function is not None
        return load_callable(options.function, Path.cwd())

    def send(self, document: Document) -> Answer:
        """Return the function's answer.

        Raises ReceiverUnavailable if the function raises or returns another type. The document may
        be the cause, unless the function raises ReceiverUnavailable itself.
        """
        events = document.events
        try:
            answer = self.receive(document.body, events)
        except ReceiverUnavailable:
            raise
        except Exception as error:
            what = f"{self.target} raised"
            raise ReceiverUnavailable(
                f"{what} {_described(error)}",
                f"{what} {type(error).__name__}",
                is_suspicious=True,
            ) from error
        if answer is None:
            return Answer()
        event_ids = set(document.event_ids)
        halves = {event.event_id for event in events} - event_ids
        if isinstance(answer, Answer):
            try:
                check_answer(self.receive, answer)
            except WrongResult as wrong:
                raise ReceiverUnavailable(str(wrong), str(wrong), is_suspicious=True) from None
            return _for_whole_events(answer, event_ids, halves)
        if isinstance(answer, str | bytes):
            from eventlog.xds.reader import read_answer  # a late import, since it imports lxml

            try:
                read = read_answer(answer, event_ids | halves)
            except ReceiverUnavailable as unavailable:
                raise ReceiverUnavailable(
                    f"{self.target}: {unavailable}",
                    f"{self.target}: {unavailable.in_short}",
                    is_suspicious=True,
                ) from None
            shown = answer if isinstance(answer, str) else answer.decode("utf-8", "replace")
            reply = Reply.in_words("", shown)
            return replace(_for_whole_events(read, event_ids, halves), reply=reply)
        why = f"{self.target} returned {type(answer).__name__}; return None, str, bytes or Answer"
        raise ReceiverUnavailable(why, why, is_suspicious=True)


def _for_whole_events(answer: Answer, event_ids: Set[str], halves: Set[str]) -> Answer:
    """Return an answer with the results of the document's events. The ``unknown_ids`` of the answer
    are event-ids that the document does not have.

    If the format writes a change of the key as one event, the function still gets two events, a
    delete and an add. ``halves`` are the event-ids of the adds. The worse of the two results counts
    (spec/change-model.md 6.2).
    """
    whole = answer_of(
        (
            (event_id.removesuffix(".2") if event_id in halves else event_id, result)
            for event_id, result in answer.results.items()
        ),
        event_ids,
    )
    unknown_ids = (*answer.unknown_ids, *whole.unknown_ids)
    return replace(answer, results=whole.results, unknown_ids=unknown_ids)


def load_callable(target: str, directory: Path | None = None) -> CallableSink:
    """Return the sink of ``module:function``. Raises the errors of ``load_function``."""
    function = load_function(target, "sink.function", directory)
    check_receiver(function, f"sink.function {target!r}")
    return CallableSink(function, target)


def check_receiver(function: object, what: str) -> None:
    """Raise ConfigError unless a function can be called with a document and its events. ``what``
    names the function in the message.
    """
    if not callable(function):
        raise ConfigError(f"{what} is {kind_of(function)} and cannot be called")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{what} is a coroutine; name a function that returns the answer")
    try:
        inspect.signature(function).bind(b"", ())
    except ValueError:
        return  # a function in C that does not describe its arguments
    except TypeError as error:
        raise ConfigError(
            f"{what} cannot be called with a document and its events: {error}"
        ) from None


def load_function(target: str, option: str, directory: Path | None = None) -> Any:
    """Import the function ``module:function`` that an option names. Dots may follow the colon
    (``module:object.method``).

    ``directory`` is searched for the module after Python's own search path. Raises ConfigError if
    the module is missing or cannot be imported, or if the object cannot be called.
    """
    module_name, colon, path = target.partition(":")
    if not colon or not all(
        part.isidentifier() for part in [*module_name.split("."), *path.split(".")]
    ):
        raise ConfigError(
            f"{option} {target!r} must be module:function, such as receivers.hr:receive"
        )
    if directory is not None and str(directory) not in sys.path:
        sys.path.append(str(directory))
    function: Any = _import(f"{option} {target!r}", module_name, directory)
    reached = module_name
    for part in path.split("."):
        try:
            function = getattr(function, part)
        except AttributeError:
            place = getattr(function, "__file__", None)
            raise ConfigError(
                f"{option} {target!r}: {reached}{f' ({place})' if place else ''} has no {part}"
            ) from None
        reached = f"{reached}.{part}"
    if not callable(function):
        raise ConfigError(
            f"{option} {target!r} is a {type(function).__name__} and cannot be called"
        )
    if inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"{option} {target!r} is a coroutine; name a function that returns the answer"
        )
    return function


def _import(what: str, name: str, directory: Path | None) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The missing name makes the difference: if it is the module itself, or a package that
        # contains it, the option is wrong; if it is a module that it imports, the error is in the
        # user's code.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            places = "installed" if directory is None else f"installed nor in {directory}"
            negation = "not" if directory is None else "neither"
            raise ConfigError(f"{what}: module {error.name} is {negation} {places}") from error
        raise ConfigError(f"{what}: importing {name} raised {_described(error)}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{what}: importing {name} raised {_described(error)}") from error


def _described(error: BaseException) -> str:
    """Return the type and message of an error, and the place in the user's code that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = last.filename in (__file__, importlib.__file__) or last.filename.startswith("<frozen ")
    place = "" if ours else f" ({last.filename}, line {last.lineno})"
    message = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if message else ''}{message}{place}"
