"""What an attempt to send documents leads to, and the heartbeat (spec/event-log.md 8.4)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from sqlalchemy.exc import DBAPIError

from eventlog.errors import FatalAnswer, ReceiverUnavailable
from eventlog.model import SUCCESS, Document, EventResult, Level
from eventlog.publisher.context.context import Counters
from eventlog.publisher.send.outbox import Mark
from eventlog.publisher.send.policy import E
from eventlog.publisher.sinks import Sink

_log = logging.getLogger("eventlog.publisher")


class DeliveryResult(Enum):
    DONE = "every event was answered, or is parked"
    RETRY = "the cycle stops: the receiver asked for a retry, or too many objects wait for one"
    UNAVAILABLE = "the cycle stops: the receiver is unavailable"
    FATAL = "the publisher stops: the receiver answered fatal"
    STOPPED = "the publisher was asked to stop"
    PAUSED = "the publisher was asked to pause"


class CycleRepeats(Exception):
    """A cycle ends and runs again, since something has changed or failed that concerns neither the
    receiver nor the session. The answers that the receiver has given still count.
    """


class StatementRefused(CycleRepeats):
    """The database has refused the statement that reads values back, and can run others; ``error``
    is the driver's.
    """

    def __init__(self, error: DBAPIError) -> None:
        super().__init__(str(error))
        self.error = error


class Delivered(NamedTuple):
    """How an attempt to send documents, or a whole cycle, has ended."""

    result: DeliveryResult
    reason: str = ""
    """The reason for a stop, for people."""
    more: bool = False
    """True if there is more to do immediately."""
    in_short: str = ""
    """The reason without the receiver's words, empty if there is no such text."""
    is_suspicious: bool = False
    """True if the receiver counts as unavailable because of a failure that the document may have
    caused.
    """
    advice: str = ""
    """The option to correct, as in ``ReceiverUnavailable``."""

    @classmethod
    def unavailable(cls, lost: ReceiverUnavailable) -> Delivered:
        """Return how an attempt has ended if the receiver is unavailable."""
        short = lost.in_short
        return cls(DeliveryResult.UNAVAILABLE, str(lost), in_short=short, advice=lost.advice)


STOPPED: Final = Delivered(DeliveryResult.STOPPED, "asked to stop")


def send_heartbeat(sink: Sink, document: Document, counters: Counters) -> bool:
    """Send the heartbeat (spec/xds.md 7), and return True if it was received. A heartbeat is never
    sent again.

    Raises FatalAnswer; any other answer, or none, has no effect.
    """
    try:
        answer = sink.send(document)
        sink.flush()
    except ReceiverUnavailable as failure:
        _log.warning("heartbeat: %s", failure, extra={"code": failure.code})
        return False
    counters.heartbeats_sent += 1
    if answer.general is not None and answer.general.level is Level.FATAL:
        raise FatalAnswer(
            f"the receiver answered fatal to a heartbeat: {answer.general.message or 'no message'}"
        )
    return True


def why_refused(result: EventResult) -> str:
    """Return the receiver's answer if it finally refused events, otherwise the empty text."""
    if result.level not in (Level.ERROR, Level.FATAL):
        return ""
    return result.message or f"the receiver answered {result.level.name.lower()}"


def as_flushed(
    marks: Iterable[Mark[E]], refused: Mapping[str, EventResult] | None, counters: Counters
) -> Iterator[Mark[E]]:
    """Yield the results of events after a flush.

    ``refused`` has results of the flush that replace answers. ``refused`` may name an event that
    follows an event with *retry*: the later event is sent again anyway.
    """
    if not refused:
        yield from marks
        return
    left = dict(refused)
    for result, events, document in marks:
        late = [event for event in events if event.sent_id in refused]
        for event in late:
            _count_flushed(result, left.pop(event.sent_id), counters)
            yield Mark(refused[event.sent_id], [event], document)
        kept = [event for event in events if event.sent_id not in refused] if late else events
        yield Mark(result, kept, document)
    for result in left.values():
        _count_flushed(SUCCESS, result, counters)


def _count_flushed(before: EventResult, after: EventResult, counters: Counters) -> None:
    counters.count_answers(before.level, -1)
    counters.count_answers(after.level, 1)
