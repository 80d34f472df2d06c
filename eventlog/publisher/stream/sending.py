"""One life of the connections of a publisher that follows a source: envelopes go out, answers come in, and the position
moves behind them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

from eventlog.changes.to_events import EventWriting
from eventlog.core.catalog import Catalog
from eventlog.errors import FatalAnswer, ReceiverAway
from eventlog.model import Answer, Level, Verdict
from eventlog.publisher.context import Counters, PublisherOptions
from eventlog.publisher.formats import XdsFormat
from eventlog.publisher.liveness import Progress
from eventlog.publisher.sinks import Document, Sink
from eventlog.publisher.stream.pending import Pending, Sending
from eventlog.publisher.stream.source import Source
from eventlog.publisher.wake import HeartbeatTimer, Stop, back_off
from eventlog.sql.positions import Failure, Saved
from eventlog.xds.writer import write_event

_log = logging.getLogger("eventlog.publisher")

_REPORT_INTERVAL: Final = 60.0
"""Seconds between log lines that tell what was done."""


class Position(Protocol):
    """Where the position of the source is kept, held by this publisher alone. Raises DatabaseError, PositionAway."""

    def load(self) -> Saved:
        """What was saved last."""
        ...

    def save(self, saved: Saved, failures: Sequence[Failure] = ()) -> None:
        """Make a position, and what failed up to it, durable."""
        ...


OpenPosition = Callable[[], AbstractContextManager[Position]]
"""Opens the position and keeps others away from it. Raises AnotherPublisher, ConfigError, DatabaseError."""


@dataclass(frozen=True, slots=True)
class Following:
    """What is followed, and how its changes become documents. ``options``: those that concern sending count.

    ``catalog``: the classes, for the types of values.
    """

    source: Source
    writing: EventWriting
    catalog: Catalog | None
    output: XdsFormat
    options: PublisherOptions
    counters: Counters


@dataclass(slots=True)
class Run:
    """One life of the connections: what was read and is not answered, and what is to be saved.

    ``saved``: as it is stored; its flight is the one in use, of which ``envelopes`` were sent. ``refused``: failures
    that came with answers since the last flush; ``unread``: those of changes that were never sent. ``attempts``: stops
    in a row without an answer. ``is_careful``: the receiver was away: each answer is saved, so that an envelope which
    fails again and again does not repeat those before it. ``saved_at``, ``told_at``: when it was last saved and
    reported, on a monotonic clock. ``threads`` send where several envelopes are in the air at once.
    """

    following: Following
    position: Position
    sink: Sink
    threads: Executor
    stop: Stop
    beat: Progress
    once: bool
    saved: Saved
    pending: Pending
    heartbeat: HeartbeatTimer
    envelopes: int = 0
    refused: list[Failure] = field(default_factory=list)
    unread: list[Failure] = field(default_factory=list)
    saved_at: float = field(default_factory=time.monotonic)
    attempts: int = 0
    is_careful: bool = False
    told_at: float = field(default_factory=time.monotonic)


def begin(
    following: Following, position: Position, sink: Sink, threads: Executor, stop: Stop, beat: Progress, once: bool
) -> Run:
    """Go on from the position, under a flight number that no document has borne yet."""
    saved = position.load()
    saved = saved._replace(flight=saved.flight + 1)
    position.save(saved)
    options = following.options
    pending = Pending(options.retry_initial, options.retry_max)
    heartbeat = HeartbeatTimer(options.heartbeat_interval, time.monotonic())
    return Run(following, position, sink, threads, stop, beat, once, saved, pending, heartbeat)


# --- sending ----------------------------------------------------------------------------------------------------------


def send(run: Run, *, everything: bool) -> None:
    """Send while envelopes are full, or what there is; a receiver that is away is waited for.

    Raises FatalAnswer, and with ``once`` ReceiverAway.
    """
    options, pending = run.following.options, run.pending
    while not run.stop.is_set() and (everything or is_enough(run)):
        at_once = 1 if run.is_careful else options.concurrency
        envelopes = pending.envelopes(options.batch_size, at_once, time.monotonic())
        if not envelopes:
            return
        why = _deliver(run, envelopes)
        if why is None and run.is_careful:
            why = save(run)
        if why is not None:
            save(run)
            _back_off(run, why)
        else:
            save_if_due(run)


def is_enough(run: Run) -> bool:
    """Whether enough is ready to fill as many envelopes as may be in the air at once."""
    return run.pending.ready >= run.following.options.batch_size * run.following.options.concurrency


def send_all(run: Run) -> None:
    """Send all that need not wait, and save. Raises as ``send``."""
    while True:
        send(run, everything=True)
        why = save(run)
        if why is None:
            run.is_careful = False
        if why is None or run.stop.is_set():
            return
        _back_off(run, why)


def _deliver(run: Run, envelopes: Sequence[Sequence[Sending]]) -> str | None:
    """Send envelopes at once and take all their answers; why sending has to stop, None = it need not.

    Raises FatalAnswer.
    """
    documents = [_document(run, number, sendings) for number, sendings in enumerate(envelopes, run.envelopes + 1)]
    send = partial(_send, run.sink)
    answers = list(run.threads.map(send, documents) if len(documents) > 1 else map(send, documents))
    back: list[Sending] = []
    away = why = fatal = None
    for sendings, answer in zip(envelopes, answers, strict=True):
        if isinstance(answer, ReceiverAway):
            back += sendings
            away = away or str(answer)
            continue
        judged = _judge(run, sendings, answer)
        back += judged.back
        why, fatal = why or judged.why, fatal or judged.fatal
    run.pending.put_back(back)
    if not all(isinstance(answer, ReceiverAway) for answer in answers):
        run.envelopes += len(envelopes)
        run.heartbeat.last = time.monotonic()
    if fatal is not None:
        save(run)  # there is no requeue for a stream: the position stays before what was refused so
        raise FatalAnswer(f"the receiver answered fatal: {fatal}")
    if away is not None:
        _forget_answers(run)  # a sink that keeps documents back until the flush may have lost them all
        run.is_careful = True
    return away or why


def _document(run: Run, number: int, sendings: Sequence[Sending]) -> Document:
    return run.following.output.document_of(run.saved.flight, number, [sending.event for sending in sendings])


def _send(sink: Sink, document: Document) -> Answer | ReceiverAway:
    try:
        return sink.send(document)
    except ReceiverAway as away:
        return away


class _Judged(NamedTuple):
    """What of an envelope is to be sent again at once; why sending has to stop, None = it need not; the message of an
    answer that is fatal.
    """

    back: Sequence[Sending] = ()
    why: str | None = None
    fatal: str | None = None


def _judge(run: Run, sendings: Sequence[Sending], answer: Answer) -> _Judged:
    """What becomes of each event of an envelope (spec/event-log.md 8.4)."""
    options, counters, pending = run.following.options, run.following.counters, run.pending
    if answer.unknown_ids:
        _log.warning("the answer names event-ids that are not in the envelope: %s", ", ".join(answer.unknown_ids[:10]))
    again: list[Sending] = []
    fatal: list[Sending] = []
    reason = None
    for sending in sendings:
        verdict = answer.verdict(sending.event.event_id)
        counters.count_answers(verdict.level, 1)
        if verdict.level is Level.RETRY:
            again.append(sending)
            continue
        if verdict.level in (Level.ERROR, Level.FATAL):
            run.refused.append(_refused(sending, verdict))
        if verdict.level is Level.FATAL:
            reason = verdict.message or "no message"
            fatal.append(sending)
            continue
        pending.answer(sending)
    counters.documents_sent += 1
    counters.events_sent += len(sendings)
    if len(again) + len(fatal) < len(sendings) and not answer.is_pending:
        _has_answered(run)
    if fatal:
        return _Judged([*fatal, *again], fatal=reason)
    if not again:
        return _Judged()
    if not options.park or (answer.general is not None and answer.general.level is Level.RETRY):
        return _Judged(again, f"event {again[0].event.event_id} is to be sent again later")
    now = time.monotonic()
    for sending in again:
        pending.park(sending, now)
        _log.info("event %s got retry: its object is parked", sending.event.event_id)
    return _Judged()


def _has_answered(run: Run) -> None:
    """The receiver has answered otherwise than by retry, which ends a back-off."""
    run.attempts = 0
    run.beat()


def _refused(sending: Sending, verdict: Verdict) -> Failure:
    message = verdict.message or f"the receiver answered {verdict.level.name.lower()}"
    return Failure(sending.event.event_id, "receiver", message, write_event(sending.event))


def _back_off(run: Run, why: str) -> None:
    """Wait after a stop; with ``once`` that is the end."""
    if run.once:
        raise ReceiverAway(f"the source was not published to its end: {why}")
    run.attempts += 1
    options = run.following.options
    pause = back_off(run.attempts, options.retry_initial, options.retry_max)
    _log.warning("%s; trying again in %g s", why, pause)
    run.stop.wait(pause)


# --- saving -----------------------------------------------------------------------------------------------------------


def save(run: Run) -> str | None:
    """Make what was answered count: flush, then save position and failures together. Why not, if the flush fails."""
    run.saved_at = time.monotonic()
    pending = run.pending
    if run.envelopes:
        try:
            late = run.sink.flush() or {}
        except ReceiverAway as away:
            _forget_answers(run)
            return str(away)
        if pending.answered:  # of a sink whose receiver speaks only now, too
            _has_answered(run)
        for sending in pending.answered if late else ():
            if (verdict := late.get(sending.event.event_id)) is not None:
                run.following.counters.count_answers(Level.SUCCESS, -1)
                run.following.counters.count_answers(verdict.level, 1)
                run.refused.append(_refused(sending, verdict))
    run.following.counters.rows_published += len(pending.answered)
    _report(run)
    token = pending.flushed()
    failures = [*run.unread, *run.refused]
    if token is None and not failures and not run.envelopes:
        return None
    flight = run.saved.flight + (1 if run.envelopes else 0)
    saved = Saved(run.saved.token if token is None else token, flight)
    run.position.save(saved, failures)
    run.saved, run.envelopes = saved, 0
    run.unread.clear()
    run.refused.clear()
    return None


def _forget_answers(run: Run) -> None:
    run.pending.forget_answers()
    run.refused.clear()


def _report(run: Run) -> None:
    """A line on what was done so far, at most each minute."""
    if time.monotonic() < run.told_at + _REPORT_INTERVAL:
        return
    run.told_at = time.monotonic()
    counters = run.following.counters
    _log.info(
        "%d changes read, %d events in %d documents sent, %d changes not sent, %d events refused; %d objects parked",
        counters.rows_read,
        counters.events_sent,
        counters.documents_sent,
        counters.rows_bad,
        counters.answers_error,
        run.pending.parked,
    )


def save_if_due(run: Run) -> None:
    """Save if ``mark_interval`` has passed, or ``flight_rows`` events were answered, since the last time.

    Raises as ``send``.
    """
    options = run.following.options
    if time.monotonic() - run.saved_at < options.mark_interval and len(run.pending.answered) < options.flight_rows:
        return
    why = save(run)
    if why is not None:
        _back_off(run, why)


def send_heartbeat(run: Run) -> None:
    """Send the heartbeat (spec/xds.md 7). Raises FatalAnswer; any other answer, and none at all, does not count."""
    run.heartbeat.last = time.monotonic()
    try:
        answer = run.sink.send(Document(run.saved.flight, run.envelopes + 1, (), run.following.output.heartbeat))
    except ReceiverAway as away:
        _log.warning("heartbeat: %s", away)
        return
    run.envelopes += 1
    run.following.counters.heartbeats_sent += 1
    if answer.general is not None and answer.general.level is Level.FATAL:
        raise FatalAnswer(f"the receiver answered fatal to a heartbeat: {answer.general.message or 'no message'}")


def not_sent(run: Run, failure: Failure) -> None:
    """A change makes no event: to be recorded with the position behind it."""
    run.following.counters.rows_bad += 1
    run.unread.append(failure)
    _log.warning("%s is not sent: %s", failure.event_id, failure.message)
