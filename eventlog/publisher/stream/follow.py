"""Follow a source that is not a log: read its changes, send their events, and move its position
according to the answers (spec/change-model.md 6).

The guarantees are those of a log (spec/event-log.md 12): every event is sent at least once, the
events of an object in their order; an event-id has one meaning; nothing is lost if the process is
killed at any moment. The position moves when everything before it is answered and flushed, or, as
the events of parked objects are, recorded with it. Events sent after it are sent again after a
crash, with the same event-ids.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from eventlog.changes import json_form as change_json
from eventlog.changes.publishing import EventWriter
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.clock import executor, monotonic
from eventlog.core.values import ValueOptions
from eventlog.errors import (
    ConsumerRuns,
    DatabaseUnavailable,
    EventlogError,
    FatalAnswer,
    FormatError,
    PublisherAlreadyRunning,
    ReceiverUnavailable,
    RowError,
    number_of,
)
from eventlog.model import Answer, Change, Document, EventResult, Level
from eventlog.publisher.context.context import Counters, PublisherOptions, Reports, stream_summary
from eventlog.publisher.context.observer import (
    SILENT,
    Doing,
    Measured,
    Observer,
    ParkedObject,
    WaitFor,
)
from eventlog.publisher.ledger.delivery import Tried, TriedKind, halves
from eventlog.publisher.run.liveness import ReportingSink
from eventlog.publisher.run.waiting import BackOff, HeartbeatTimer, Stop, keep_connected, soonest
from eventlog.publisher.send.database_clock import park_again
from eventlog.publisher.send.parking import Parking
from eventlog.publisher.send.sending import (
    Delivered,
    DeliveryResult,
    Judged,
    as_flushed,
    deliver,
    end_cycle,
    send_heartbeat,
    why_refused,
)
from eventlog.publisher.send.suspects import Suspects
from eventlog.publisher.sinks import Sink
from eventlog.publisher.stream import (
    Described,
    Failure,
    Mark,
    Read,
    SourceStep,
    SourceUnavailable,
    Stream,
)
from eventlog.publisher.stream.failures import Failures
from eventlog.publisher.stream.output import StreamOutput, Written
from eventlog.publisher.stream.pending import (
    BEFORE_ALL,
    FailedDocument,
    ObjectId,
    Passes,
    Pending,
    PendingEvent,
    ReadPosition,
)
from eventlog.publisher.stream.position import OpenPosition, Position, Saved
from eventlog.publisher.stream.recorded import RecordedDocument, RecordedEvent, decode, encode
from eventlog.registry import as_plugin_errors, plugin_error

_log = logging.getLogger("eventlog.publisher")


_DEFAULTS: Final = ValueOptions("full", characters="unicode")

_EntryKey: TypeAlias = tuple[tuple[int, ...], Tried | None]
"""The values on which an entry depends: the numbers of its events, which do not change, and the
attempts.
"""


def _key_of(document: RecordedDocument) -> _EntryKey:
    return tuple(event.number for event in document.events), document.tried


@dataclass(frozen=True, slots=True)
class Following:
    """A source, and the writer of its changes."""

    source: Stream
    open_writer: Callable[[], EventWriter[Any]]
    """A function that returns a new writer of the format."""
    catalog: Catalog | None
    """The classes, for keys and types. With None the source's own descriptions of its tables count,
    with ``values`` as for the format.
    """
    options: PublisherOptions
    """The publisher's options; only those about sending have an effect."""
    counters: Counters
    values: ValueOptions = _DEFAULTS


def follow(
    following: Following,
    open_position: OpenPosition,
    open_sink: Callable[[], Sink],
    stop: Stop,
    *,
    once: bool = False,
    observer: Observer = SILENT,
    standby: bool = False,
) -> None:
    """Publish the source until ``stop`` is set or it ends; with ``once`` up to its present end.

    A source or a position that fails is opened again with a back-off, from the last saved position.
    ``observer`` is called with the progress. With ``standby`` the function waits while another
    publisher has locked the position, except with ``once``. Raises FatalAnswer,
    PublisherAlreadyRunning, and the errors of the source except SourceUnavailable and
    DatabaseUnavailable. These two are raised if nothing has been read yet, except for a database
    server that cannot be reached, and with ``once``. With ``once`` it raises ReceiverUnavailable if
    events are left.
    """
    options = following.options

    def follow_connected(connected: Callable[[], bool]) -> None:
        with (
            open_position() as position,
            as_plugin_errors(),
            closing(open_sink()) as sink,
            executor(options.concurrency, "eventlog-send") as threads,
        ):
            reporting = ReportingSink(sink, observer)
            run = Run(following, position, reporting, threads, stop, once, observer)
            run.restore()
            with closing(run.steps()) as steps:
                for step in steps:
                    connected()
                    run.apply(step)
                    if stop.is_set():
                        break
            run.finish()

    failure = () if once else (SourceUnavailable, DatabaseUnavailable)
    stands_by_for = PublisherAlreadyRunning if standby and not once else ConsumerRuns
    retry = options.retry_initial, options.retry_max
    keep_connected(follow_connected, stop, failure, *retry, observer, stands_by_for)


# --- sending and saving ---------------------------------------------------------------------------


class Run:
    """One session of the connections: the unanswered events, and the values to save.

    ``saved`` has the stored values; its delivery is the present one, of which ``last_document_no``
    were sent.
    """

    def __init__(
        self,
        following: Following,
        position: Position,
        sink: Sink,
        threads: Executor,
        stop: Stop,
        once: bool,
        observer: Observer,
    ) -> None:
        """Continue from the position, under a new delivery number."""
        options = following.options
        self.following, self.options, self.counters = following, options, following.counters
        self.stop, self.once, self.observer = stop, once, observer
        saved = position.load()
        self.saved = saved._replace(delivery_no=saved.delivery_no + 1)
        position.save(self.saved)
        self.output = StreamOutput(following.open_writer(), following.catalog, following.values)
        self.output.writer.resume(saved.numbered)
        self.parking: Parking[ObjectId] = Parking(options.retry_initial, options.retry_max)
        self.suspects = Suspects(self.parking)
        self.pending = Pending(self.parking)
        self.heartbeat = HeartbeatTimer(options.heartbeat_interval, monotonic())
        self.last_document_no = 0
        self._position, self._sink, self._threads = position, sink, threads
        self.failures = Failures()
        self._has_refused = False  # True if an event was refused or given up since the last save
        self._is_at_end = False
        # Failures of events that were answered fatal, which are saved at once.
        self._fatal: list[Failure] = []
        self._back_off = BackOff(options.retry_initial, options.retry_max, observer)
        # True after the receiver was unavailable: each answer is then saved immediately, so that a
        # document that fails repeatedly does not cause earlier ones to be repeated.
        self._is_careful = False
        self._saved_at = monotonic()
        self._reports = Reports(self.counters)
        # The documents that are being sent, by their numbers, the greatest number given to one, the
        # recorded attempts at each, and the numbers of those that the receiver has failed for.
        self._sending: dict[int, Sequence[PendingEvent]] = {}
        self._number_given = 0
        self._tried: dict[int, Tried | None] = {}
        self._failed: set[int] = set()
        # The recorded attempts at events that got retry, by their numbers, and the entries as they
        # were last saved, with what they were made of.
        self._parked: dict[int, Tried] = {}
        self._entries: dict[int, tuple[_EntryKey, str]] = {}

    def restore(self) -> None:
        """Read the recorded events, which are sent before what is read from the source.

        Raises the errors of ``send_ready``, and ConfigError.
        """
        for entry_no, content in self._position.entries().items():
            document = decode(entry_no, content)
            self._entries[entry_no] = _key_of(document), content
            if document.settled:
                self.failures.restore(entry_no, content, document.settled)
                self.pending.pass_over(entry_no)
            events: list[PendingEvent] = []
            for recorded in document.events:
                if recorded.described is not None:
                    self.output.describe(recorded.described)
                self.output.writer.resume(recorded.numbered)
                read = Read(recorded.change, recorded.sent_id)
                written = self._written(read, BEFORE_ALL) or ()
                events += [
                    PendingEvent(number, *event)
                    for number, event in enumerate(written, recorded.number)
                ]
            if events:
                self._park_again(document, events)
                tried = document.tried
                is_parked = tried is not None and tried.kind is TriedKind.PARKED
                self.pending.restore(FailedDocument(events, None if is_parked else tried))
                if tried is not None and tried.kind is TriedKind.FAILURES:
                    self.suspects.failure_streak = max(self.suspects.failure_streak, tried.tries)
        self.output.writer.resume(self.saved.numbered)

    def _park_again(self, document: RecordedDocument, events: Sequence[PendingEvent]) -> None:
        """Park the objects of recorded events as they were before a restart. With ``once`` each
        event is tried now, due or not.
        """
        tried = document.tried
        if tried is None or tried.kind is TriedKind.FAILURES or self.once:
            return
        alone = None
        if tried.kind is TriedKind.PARKED:
            self._parked[events[0].number] = tried
        else:
            alone = tried.tries if len(events) == 1 else 0
        for event in events:
            clock = self._position.clock
            park_again(self.parking, clock, event.object_id, event.sent_id, tried, alone)

    @property
    def delivery_no(self) -> int:
        """The delivery number of the documents."""
        return self.saved.delivery_no

    @property
    def is_enough(self) -> bool:
        """True if the ready events fill as many documents as may be sent at the same time."""
        return self.pending.ready >= self.options.batch_size * self.options.concurrency

    def send_all(self) -> None:
        """Send all events that need not wait, and save. Raises the errors of ``send_ready``."""
        while True:
            self.send_ready(everything=True)
            try:
                self.save()
            except ReceiverUnavailable as lost:
                if self.stop.is_set():
                    return
                self._wait(lost)
            else:
                self._is_careful = False
                return

    def send_ready(self, *, everything: bool) -> None:
        """Send full documents, or with ``everything`` all that is ready; wait while the receiver is
        unavailable.

        Raises FatalAnswer, and with ``once`` ReceiverUnavailable.
        """
        while not self.stop.is_set() and (everything or self.is_enough):
            at_once = 1 if self._is_careful else self.options.concurrency
            may_try = self.suspects.may_try or not self.suspects.is_probing
            due = self.suspects.due(monotonic())
            documents = self.pending.documents(
                self.options.batch_size, at_once, due, may_try=may_try
            )
            if not documents and not (everything and self.suspects.is_probing):
                return
            ended = Delivered(DeliveryResult.DONE)
            if documents:
                ended = self._deliver(documents)
                if ended.result is DeliveryResult.DONE and self.suspects.is_probing:
                    continue  # another document decides, which may have to be read first
            ended = self._end_cycle(ended)
            result = ended.result
            if result is DeliveryResult.FATAL:
                # a stream has no requeue: the position stays before the refused event
                self.save_now()
                raise FatalAnswer(f"the receiver answered fatal: {ended.reason}")
            if result is DeliveryResult.UNAVAILABLE:
                # a sink that buffers documents until the flush may have lost all of them
                self._forget_answers()
                self._is_careful = True
            stops = result in (DeliveryResult.UNAVAILABLE, DeliveryResult.RETRY)
            # A refused event is saved before a later one of its object is sent.
            if stops or self._is_careful or self._has_refused or self._is_due():
                try:
                    self.save()
                except ReceiverUnavailable as lost:
                    if not stops:
                        ended = ended._replace(reason=str(lost), in_short=lost.in_short)
                    stops = True
            if stops:
                why = ReceiverUnavailable(
                    ended.reason, ended.in_short, is_suspicious=ended.is_suspicious
                )
                self._wait(why, ended.retry_after)
                if self.suspects.failure_streak and not self.once and not self.is_enough:
                    return  # the next event of the source may be the one that makes the decision

    def _deliver(self, documents: Sequence[Sequence[PendingEvent]]) -> Delivered:
        """Send documents, several at the same time, and put back their unanswered events."""
        before = self.last_document_no
        numbered = list(enumerate(documents, before + 1))
        self._sending, self._number_given = dict(numbered), before + len(documents)
        self._tried = {number: self.pending.attempts_at(events) for number, events in numbered}
        self._failed = set()
        try:
            several = self._threads if len(numbered) > 1 else None
            ended = deliver(numbered, self, self.stop.is_set, several)
        except ReceiverUnavailable as lost:
            ended = Delivered.unavailable(lost)
        for number, events in self._sending.items() if self.options.park else ():
            if number in self._failed or self.pending.is_set_aside(events):
                self.pending.keep_failed(events)
        self.pending.put_back_unanswered()
        if self.last_document_no > before:
            self.last_document_no = self._number_given
        return ended

    def _end_cycle(self, ended: Delivered) -> Delivered:
        """Return the result of a cycle, unless another document is still needed to decide about a
        suspect one.
        """
        end = end_cycle(ended, self.suspects, self.parking, self.options.isolate_after)
        if end.failed:
            events = self.pending.failed_with(end.failed)
            for part in halves(events) if end.is_cut else [events]:
                self.pending.fail(part, end.tried)
        return end.cycle

    def tried(self, document_no: int) -> Tried | None:
        return self._tried.get(document_no)

    def cut(
        self, document_no: int, events: Sequence[PendingEvent]
    ) -> list[tuple[int, Sequence[PendingEvent]]]:
        parts = list(enumerate(halves(events), self._number_given + 1))
        self._number_given += len(parts)
        del self._sending[document_no]
        self._sending |= parts
        self._tried |= dict.fromkeys(dict(parts), self._tried[document_no])
        return parts

    def send(self, document_no: int, events: Sequence[PendingEvent]) -> Answer:
        try:
            document = self.output.document(self.delivery_no, document_no, events)
            return self._sink.send(document)
        except ReceiverUnavailable as failure:
            if failure.is_suspicious:
                self._failed.add(document_no)
            raise

    def settle(
        self, document_no: int, events: Sequence[PendingEvent], judged: Judged[PendingEvent]
    ) -> str:
        """Settle the answers, as ``DocumentSender`` defines it. Events answered fatal are sent
        again, and so is a retry that is not parked.
        """
        self.last_document_no = max(self.last_document_no, document_no)
        self.heartbeat.last = monotonic()
        if judged.failed is not None:
            self._note_failure(events, judged.failed)
        for result, answered in judged.answered:
            if result.level is Level.FATAL:
                self._fatal += [self._failure(result, event) for event in answered]
            else:
                self._has_refused |= bool(why_refused(result))
                self.pending.answer(result, answered)
        self._has_refused |= bool(judged.given_up)
        for result, event in judged.given_up:
            self.counters.count_rows(result.level, 1)
            self._refuse(result, [event])
            self.pending.give_up(event)
        for event in judged.retried:
            if self.parking.is_waiting(event.object_id):
                self.pending.park(event)
                parked = self.parking.to_record(event.object_id, event.sent_id)
                if parked is not None:
                    due = self._position.clock.text_of(parked.due)
                    self._parked[event.number] = Tried(
                        parked.attempts, parked.reason, due, TriedKind.PARKED
                    )
        return ""

    def _note_failure(self, events: Sequence[PendingEvent], failed: Tried) -> None:
        """Record that the receiver has failed for a document that is isolated, or for a part of
        one. The halves become parts.
        """
        parked = self.parking.get(events[0].object_id)
        if parked is None:
            return
        tried = failed._replace(due=self._position.clock.text_of(parked.due))
        if not tried.tries:
            for half in halves(events):
                self.pending.fail(half, tried)
        elif self.parking.is_recorded(tried.tries):
            self.pending.fail(events, tried)

    def _piece(self, change: Change, event_id: str, object_class: ObjectClass | None) -> Any:
        """Return the format's piece of a change, None if the format writes nothing for it; wait
        while a registry is unavailable.

        Raises FormatError, RowError; ReceiverUnavailable with ``once``, or when the publisher must
        stop.
        """
        while True:
            try:
                return self.output.writer.piece_of(change, event_id, object_class)
            except ReceiverUnavailable as failure:
                if self.stop.is_set():
                    raise
                self._wait(failure)

    def not_sent(self, failure: Failure, number: int) -> None:
        """Record a change that makes no event, under a number of ``Pending``; it is saved with the
        position after it.
        """
        self.counters.rows_invalid += 1
        self.failures.make_no_event(number, failure)
        where = {"event_id": failure.event_id, "code": failure.code}
        _log.warning("%s is not sent: %s", failure.event_id, failure.message, extra=where)

    def save(self) -> None:
        """Make the answers final: flush, then save position and failures together.

        Raises ReceiverUnavailable if the flush fails; the events answered since the last flush are
        sent again.
        """
        self._saved_at = monotonic()
        answered = self.pending.answered
        if self.last_document_no:
            try:
                answered = as_flushed(answered, self._sink.flush(), self.counters)
            except ReceiverUnavailable:
                self._forget_answers()
                raise
        if answered:
            self._back_off.attempts = 0
        if self._parked:
            for _, events in answered:
                for each in events:
                    self._parked.pop(each.number, None)
        for result, events in answered:
            self.counters.count_rows(result.level, len(events))
        if self._reports.due() is not None:
            _log.info(
                "%s; %s parked",
                stream_summary(self.counters),
                number_of(self.pending.parked, "object"),
            )
        place = self.pending.flushed(self._passes())
        for result, events in answered:
            self._refuse(result, events)
        self._has_refused = False
        failures, settled = self.failures.take(self.pending.passed, is_at_end=self._is_at_end)
        failures += self._fatal
        entries = self._recorded() | {
            entry_no: (((), None), content) for entry_no, content in settled.items()
        }
        if (
            place is None
            and not failures
            and not self.last_document_no
            and entries.items() == self._entries.items()
        ):
            return
        token, numbered = (self.saved.token, self.saved.numbered) if place is None else place
        saved = Saved(token, self.saved.delivery_no + (1 if self.last_document_no else 0), numbered)
        begun = monotonic()
        contents = {number: content for number, (_, content) in entries.items()}
        ids = [event.sent_id for _, events in answered for event in events]
        self._position.save(saved, failures, contents, ids)
        self.observer.marked(monotonic() - begun)
        self.saved, self.last_document_no, self._entries = saved, 0, entries
        self._fatal = []

    def _passes(self) -> Passes:
        """Return the events that the position may pass because they are recorded."""
        if not self.options.park or self.suspects.is_probing:
            return Passes.ANSWERED
        return Passes.ALL if self.suspects.failure_streak > 1 else Passes.PARKED

    def _recorded(self) -> dict[int, tuple[_EntryKey, str]]:
        """Return the entries of the events without an answer that the position has passed."""
        entries = {}
        for events, tried in self.pending.recorded():
            first = events[0].number
            document = RecordedDocument(
                [
                    RecordedEvent(
                        each.number, each.sent_id, each.change, each.numbered, each.described
                    )
                    for each in events
                ],
                self._parked.get(first) if tried is None else tried,
            )
            key, known = _key_of(document), self._entries.get(first)
            if known is None or known[0] != key:
                known = key, encode(document)
            entries[first] = known
        return entries

    def save_now(self) -> None:
        """Save if the sink can be flushed; otherwise the events are sent again."""
        with suppress(ReceiverUnavailable):
            self.save()

    def save_if_due(self) -> None:
        """Save if it is time. Raises the errors of ``send_ready``."""
        if self._is_due():
            try:
                self.save()
            except ReceiverUnavailable as lost:
                self._wait(lost)

    def _is_due(self) -> bool:
        """Return True if ``mark_interval`` has passed, or ``delivery_rows`` events were answered,
        since the last save.
        """
        options = self.options
        return (
            monotonic() - self._saved_at >= options.mark_interval
            or sum(len(events) for _, events in self.pending.answered) >= options.delivery_rows
        )

    def _forget_answers(self) -> None:
        self.pending.forget_answers()
        self.output.writer.forget()
        self._fatal = []

    def _refuse(self, result: EventResult, events: Sequence[PendingEvent]) -> None:
        """Record events with a result that is an error."""
        if why_refused(result):
            for event in events:
                self.failures.refuse(event, self._failure(result, event))

    def _failure(self, result: EventResult, event: PendingEvent) -> Failure:
        content = self.output.writer.shown(event.piece)
        return Failure(event.sent_id, result.code, why_refused(result), content)

    def send_heartbeat(self) -> None:
        """Send the heartbeat. Raises FatalAnswer."""
        self.heartbeat.last = monotonic()
        document = Document(
            self.saved.delivery_no, self.last_document_no + 1, (), self.output.writer.heartbeat
        )
        if send_heartbeat(self._sink, document, self.counters):
            self.last_document_no += 1

    def _wait(self, why: ReceiverUnavailable, retry_after: float | None = None) -> None:
        """Wait after a stop. With ``once`` raise ReceiverUnavailable instead, unless the document
        may be the cause, which further attempts show.

        ``retry_after`` as in ``Delivered``.
        """
        if self.once and not why.is_suspicious:
            raise ReceiverUnavailable(f"the rest of the source was not published: {why}")
        self._back_off.wait(self.stop, str(why), retry_after, self.measure, why.in_short)

    # the steps of the source

    def steps(self) -> Generator[SourceStep, None, None]:
        """Yield the steps of the source.

        If it fails for good, send the changes read so far before the error is raised.
        """
        with closing(self.following.source.steps(self.saved.token, once=self.once)) as steps:
            try:
                yield from steps
            except (SourceUnavailable, DatabaseUnavailable):  # it will be read again
                raise
            except EventlogError:
                self.send_all()
                raise

    def apply(self, step: SourceStep) -> None:
        """Apply one step, and send if it fills documents, or if no more changes come for now."""
        if isinstance(step, Mark):
            if step.token is not None and step.token != self.saved.token:
                self.pending.mark(ReadPosition(step.token, self.output.writer.numbered))
                if self.saved.token is None:
                    self.save_now()  # the beginning of a stream, which cannot be determined later
            if step.is_idle:
                self._rest(step.rest)
            else:
                # also if there is nothing to send for a long time, as within a long transaction
                self.observer.progressed()
                self.save_if_due()
            return
        if isinstance(step, Described):
            self.output.describe(step)
            return
        self.counters.rows_read += 1
        if isinstance(step, Failure):
            self.not_sent(step, self.pending.take_number())
        else:
            self.add_events(step)
        if self.is_enough:
            self.send_ready(everything=False)
        if self._is_too_far():
            self.send_all()  # what need not wait comes first
        while self._is_too_far() and not self.stop.is_set():
            self._wait_for_parked()

    def add_events(self, read: Read) -> None:
        """Add the events of a change. Raises the errors of ``_written``."""
        written = self._written(read, self.pending.next_number)
        if written is None:
            self.pending.take_number()
        elif not written:
            self.counters.rows_noop += 1
        for event in written or ():
            sent_id, _, part, *_ = event
            if self.failures.is_settled(self.pending.next_number, sent_id, part):
                self.pending.take_number()
            else:
                self.pending.add(*event)

    def _written(self, read: Read, number: int) -> list[Written] | None:
        """Return the events of a change as the fields of ``PendingEvent`` after the number. A
        change that the format cannot hold is recorded as a failure under ``number``: the result is
        None, and the stream continues.

        Raises ConfigError for a table without a key, ReceiverUnavailable with ``once`` for a
        registry that does not answer.
        """
        change, object_class = self.output.complete(read.change)
        try:
            return self.output.events_of(change, object_class, read.event_id, self._piece)
        except (FormatError, RowError) as error:
            content = change_json.dumps(change)
            self.not_sent(Failure(read.event_id, error.code, str(error), content), number)
            return None
        except (EventlogError, MemoryError):
            raise
        except Exception as error:
            # A change that breaks its writer would break it again at each start.
            reported = plugin_error(error)
            code, why = FormatError.code, f"{type(error).__name__}: {error}"
            if reported is not None:
                code, why = reported.code, str(reported)
            self.not_sent(Failure(read.event_id, code, why), number)
            return None

    def _is_too_far(self) -> bool:
        """Return True if so many events wait for parked ones that reading must stop until the
        parked ones are sent.
        """
        pending = self.pending
        limit = self.options.window_rows
        return pending.parked > 0 and (
            pending.size >= limit or bool(self.parking.too_many(self.options.max_parked))
        )

    def _rest(self, seconds: float) -> None:
        """Send and save what is ready, then wait for more: at most ``seconds``, or until a parked
        object or a heartbeat is due.
        """
        self.send_all()
        if self.stop.is_set():
            return
        self.observer.progressed()
        now = monotonic()
        if self.heartbeat.is_due(now):
            self.send_heartbeat()
        due = self.pending.next_due()
        self.measure()
        pause = soonest(
            seconds,
            None if due is None else due - now,
            self.heartbeat.seconds_left(now),
            self.observer.measure_due(),
        )
        if pause > 0:
            self.observer.does(Doing.RESTING)
            self.stop.wait(pause)
            self.observer.does(Doing.PUBLISHING)

    def measure(self) -> None:
        """Report the parked objects and the backlog to the observer, if a report is due."""
        if self.observer.measure_due() != 0.0:
            return
        parked = [
            ParkedObject("", _named(one), each.due, each.attempts, each.reason, each.event_id)
            for one, each in self.parking.items()
        ]
        begun = monotonic()
        try:
            with as_plugin_errors():
                backlog = self.following.source.backlog(self.saved.token)
        except EventlogError:  # the reader of the source reports the error
            backlog = None
        number, unit = (None, None) if backlog is None else backlog
        self.observer.measured(
            Measured(parked=parked, seconds=monotonic() - begun, behind=number, behind_unit=unit)
        )

    def _wait_for_parked(self) -> None:
        """Wait until an event of a parked object is due, and send it. Raises ReceiverUnavailable
        with ``once``, unless it is not known yet for which events the receiver fails.
        """
        if self.once and self.parking.next_untried() is None:
            self.save_now()
            raise self._left()
        due = self.pending.next_due() or 0.0
        why = "it asked for the events of parked objects later, or fails for them"
        self.observer.waits(WaitFor.RECEIVER, why, due, why)
        self.stop.wait(max(0.0, due - monotonic()))
        self.send_all()

    def finish(self) -> None:
        """Send the rest when the source has ended or the publisher must stop. Raises
        ReceiverUnavailable with ``once`` if events are left.
        """
        if not self.stop.is_set():
            self.send_all()
        while self.pending.parked and not self.stop.is_set():
            self._wait_for_parked()
        self._is_at_end = not self.stop.is_set()
        self.save_now()

    def _left(self) -> ReceiverUnavailable:
        return ReceiverUnavailable(
            f"{number_of(self.pending.parked, 'object')} left: the receiver asked for their events "
            "later, or fails for them"
        )


def _named(one: ObjectId) -> str:
    """Return the name of an object for people."""
    if not one:
        return "all rows of a table"
    schema, table, key = one
    columns = "+".join(f"{name}={value}" for name, value in key)
    return f"{columns},table={table}{f',schema={schema}' if schema else ''}"
