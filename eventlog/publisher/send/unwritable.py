"""Classes whose events the format fails to write (spec/event-log.md 5.1).

A format reports an event that it cannot hold as the result of that event. An exception means that
the format cannot write the class, for example because a type of the class is unknown to the format.
Then this class is unavailable, and every other class is published.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from eventlog.core.rows.events import Outgoing
from eventlog.errors import EventlogError, ReceiverUnavailable
from eventlog.publisher.send.sending import CycleRepeats
from eventlog.registry import as_plugin_errors

_log = logging.getLogger("eventlog.publisher")


class UnwritableClasses(CycleRepeats):
    """The format has failed to write the events of some classes. Nothing was sent of the document
    with these events.

    ``errors`` has the error of each class by its name.
    """

    def __init__(self, errors: Mapping[str, EventlogError]) -> None:
        super().__init__("; ".join(f"{name}: {error}" for name, error in errors.items()))
        self.errors = errors


Written = TypeVar("Written")


def written(write: Callable[[Sequence[Outgoing]], Written], events: Sequence[Outgoing]) -> Written:
    """Return what ``write`` makes of the events of a document.

    Raises ReceiverUnavailable as ``write`` does. After any other exception the events of each class
    are tried alone. The function then raises UnwritableClasses with the classes that fail, or the
    first exception if no class fails.
    """
    try:
        return write(events)
    except ReceiverUnavailable:
        raise
    except Exception:
        by_class: dict[str, list[Outgoing]] = {}
        for event in events:
            by_class.setdefault(class_name_of(event), []).append(event)
        errors = {
            name: error
            for name, own in by_class.items()
            if (error := error_of(partial(write, own))) is not None
        }
        if not errors:
            raise
        raise UnwritableClasses(errors) from None


def class_name_of(event: Outgoing) -> str:
    """Return the name of the class of an event that is sent."""
    assert event.object_id is not None
    return event.object_id[0].name


def error_of(write: Callable[[], object]) -> EventlogError | None:
    """Return the error with which a format fails to write, None if it does not fail. Raises
    ReceiverUnavailable.
    """
    try:
        with as_plugin_errors():
            write()
    except ReceiverUnavailable:
        raise
    except EventlogError as error:
        return error
    except Exception as error:
        _log.error("the format failed", exc_info=error)
        return EventlogError(f"the format failed: {type(error).__name__}: {error}")
    return None
