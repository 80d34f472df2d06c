"""The forms in which an HTTP receiver answers: what its status codes and its bodies mean."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from eventlog.model import Answer

ReadAnswer: TypeAlias = Callable[[bytes, Collection[str], int, Callable[[str], str]], Answer]
"""A function of a body, the event-ids of the document, the greatest size of the body in bytes, and
a function that removes characters which logs and tables cannot store. It returns the answer. For a
body that is not an answer it raises the error that the receiver is unavailable.
"""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """One form of answers (``sink.response_format``)."""

    accept: str
    """The ``Accept`` header of requests."""
    read: ReadAnswer | None
    """Reads the body of a response 2xx; None if the status code is the whole answer."""
    status_refuses: bool
    """True if the statuses 400, 409, 413 and 422 refuse the document, and 410 ends the publisher.
    False if a receiver refuses documents only in bodies: then such a status comes from something
    else, such as a proxy.
    """
