"""The forms in which an HTTP receiver answers: what its status codes and its bodies mean."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from eventlog.model import Answer

ReadAnswer: TypeAlias = Callable[[bytes, Collection[str], int, Callable[[str], str]], Answer]
"""A function that returns the answer in a body. Its arguments: the body, the event-ids of the
document, the greatest size of the body in bytes, and a function that removes the characters that
logs and tables cannot store. If the body is not an answer, the function raises ReceiverUnavailable.
"""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """One form of answers (``sink.response_format``)."""

    accept: str
    """The ``Accept`` header of requests."""
    read: ReadAnswer | None
    """The function that reads the body of a response with a status code 2xx; None if the status
    code is the whole answer.
    """
    status_refuses: bool
    """True if the statuses 400, 409, 413 and 422 refuse the document, and 410 ends the publisher.
    False if a receiver refuses documents only in the bodies of its answers: then a status that
    refuses comes from another program, such as a proxy.
    """
