"""What an attempt to send documents leads to, and the heartbeat (spec/event-log.md 8.4)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from sqlalchemy.exc import DBAPIError

from eventlog.core.clock import monotonic
from eventlog.errors import FatalAnswer, ReceiverUnavailable, number_of
from eventlog.model import SUCCESS, Document, EventResult, Level
from eventlog.publisher.context.context import Counters
from eventlog.publisher.send.outbox import Mark, Outbox
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


class Flushed(NamedTuple):
    """What a flush has shown."""

    results: Mapping[str, EventResult]
    """The results that replace answers, by event-id."""
    lost: ReceiverUnavailable | None = None
    """The failure after which only some events are confirmed, to be raised once these are marked.
    """


def flush(sink: Sink, outbox: Outbox[E]) -> Flushed:
    """Flush the sink, and put the events back into the outbox that the receiver does not have.
    Raises ReceiverUnavailable if it has none of them.
    """
    lost = None
    try:
        results = sink.flush() or {}
    except ReceiverUnavailable as failure:
        if not failure.answered:
            raise
        lost, results = failure, failure.answered
    if lost is not None or any(one.level is Level.RETRY for one in results.values()):
        taken = outbox.confirm(results, monotonic(), is_lost=lost is not None)
        log_places(results.values(), taken, is_news=True)
    return Flushed(results, lost)


def log_places(results: Iterable[EventResult], taken: int, *, is_news: bool) -> None:
    """Log how many events a receiver has taken, and what waits for each place; a warning if it is
    news.
    """
    found: dict[str, list[str]] = {}
    for one in results:
        if one.place:
            found.setdefault(one.place, []).append(one.message)
    for place, messages in found.items():
        _log.log(
            logging.WARNING if is_news else logging.INFO,
            "%s takes nothing: %s and later events of the same class wait; the receiver has taken "
            "%s: %s",
            place,
            number_of(len(messages), "event"),
            number_of(taken, "other event"),
            messages[0],
            extra={"code": ReceiverUnavailable.code},
        )


def as_flushed(
    marks: Iterable[Mark[E]], refused: Mapping[str, EventResult], counters: Counters
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
