"""Follow a source that is not a log: read its changes, send their events, and move its position
according to the answers (spec/change-model.md 6).

The guarantees are the same as for a log (spec/event-log.md 12): every event is sent at least once,
the events of an object in their order; an event-id has one meaning; nothing is lost if the process
is killed at any moment. The position moves when everything before it is answered and flushed, or is
recorded with the position, such as the events of parked objects. After a crash, the events after
the position are sent again, with the same event-ids.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from eventlog.changes import json_form as change_json
from eventlog.changes.publishing import EventWriter
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.clock import monotonic
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
from eventlog.model import Change, Document
from eventlog.publisher.context.context import Counters, PublisherOptions
from eventlog.publisher.context.observer import (
    SILENT,
    Doing,
    Measured,
    Observer,
    WaitFor,
)
from eventlog.publisher.declared.configured_sink import SecondSink
from eventlog.publisher.run.liveness import ReportingSink
from eventlog.publisher.run.waiting import (
    HeartbeatTimer,
    Stop,
    keep_connected,
    soonest,
    wait_until,
)
from eventlog.publisher.send.letter_sender import LetterSender, letter_sender, warn_without_sink
from eventlog.publisher.send.sending import STOPPED, Delivered, DeliveryResult, send_heartbeat
from eventlog.publisher.send.serving import Sender, outbox_documents, parked_objects
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
from eventlog.publisher.stream.letters import SourceLetters
from eventlog.publisher.stream.output import StreamOutput, Written
from eventlog.publisher.stream.pending_event import (
    BEFORE_ALL,
    PendingEvent,
    ReadPosition,
)
from eventlog.publisher.stream.position import OpenPosition, TablePosition
from eventlog.publisher.stream.recorded import decode
from eventlog.publisher.stream.source_feed import SourceFeed
from eventlog.registry import as_plugin_errors, plugin_error

_log = logging.getLogger("eventlog.publisher")


_DEFAULTS: Final = ValueOptions("full", characters="unicode")


@dataclass(frozen=True, slots=True)
class Following:
    """A source, and the writer of its changes."""

    source: Stream
    open_writer: Callable[[], EventWriter[Any]]
    """A function that returns a new writer of the format."""
    catalog: Catalog | None
    """The classes, for keys and types. None = the classes are made from the source's own
    descriptions of its tables, with the options ``values``.
    """
    options: PublisherOptions
    """The publisher's options; only options about sending have an effect."""
    counters: Counters
    values: ValueOptions = _DEFAULTS


def follow(
    following: Following,
    open_position: OpenPosition,
    open_sink: Callable[[], Sink],
    stop: Stop,
    once: bool = False,
    observer: Observer = SILENT,
    *,
    standby: bool = False,
    open_letters: Callable[[], SecondSink] | None = None,
) -> None:
    """Publish the source until ``stop`` is set or it ends; with ``once`` up to its present end.

    A source or a position that fails is opened again with a back-off, from the last saved position.
    ``observer`` is called with the progress. With ``standby`` the function waits while another
    publisher has locked the position, except with ``once``. ``open_letters`` opens the sink of dead
    letters, None = there are none. Raises FatalAnswer, PublisherAlreadyRunning, and the errors of
    the source; with ``once``, also ReceiverUnavailable if events are left. Without ``once``,
    SourceUnavailable and DatabaseUnavailable are raised only if nothing has been read yet, and
    never for a database server that cannot be reached.
    """
    options = following.options

    def follow_connected(connected: Callable[[], bool]) -> None:
        with (
            open_position() as position,
            as_plugin_errors(),
            closing(open_sink()) as sink,
            letter_sender(open_letters, options, following.counters) as sender,
        ):
            if sender is None:
                warn_without_sink(position.waiting_letters().entries)
            reporting = ReportingSink(sink, observer)
            run = Run(following, position, reporting, stop, once, observer, sender)
            try:
                run.restore()
                with closing(run.steps()) as steps:
                    for step in steps:
                        connected()
                        run.apply(step)
                        if stop.is_set():
                            break
                run.finish()
            except (FatalAnswer, ReceiverUnavailable):
                run.finish_letters()
                raise
            run.finish_letters()

    failure = () if once else (SourceUnavailable, DatabaseUnavailable)
    stands_by_for = PublisherAlreadyRunning if standby and not once else ConsumerRuns
    retry = options.retry_initial, options.retry_max
    keep_connected(follow_connected, stop, failure, *retry, observer, stands_by_for)


# --- sending and saving ---------------------------------------------------------------------------


class Run:
    """One session of the connections: what is read, sent and saved."""

    def __init__(
        self,
        following: Following,
        position: TablePosition,
        sink: Sink,
        stop: Stop,
        once: bool,
        observer: Observer,
        sender: LetterSender | None,
    ) -> None:
        """Continue from the position, under a new delivery number."""
        options = following.options
        self.following, self.options, self.counters = following, options, following.counters
        self.stop, self.once, self.observer = stop, once, observer
        self.output = StreamOutput(following.open_writer(), following.catalog, following.values)
        self.feed = SourceFeed(position, sink, self.output, options, self.counters, observer)
        self.outbox, self.failures = self.feed.outbox, self.feed.failures
        self.output.writer.resume(self.feed.saved.numbered)
        self.sender = Sender(self.outbox, self.feed, options, self.counters, self._halted)
        self.heartbeat = HeartbeatTimer(options.heartbeat_interval, monotonic())
        self._position, self._sink = position, sink
        self._letters = sender
        if sender is not None:
            output = StreamOutput(sender.form.writer, following.catalog, following.values)
            sender.letters = SourceLetters(position, sender.form, output)
        self.feed.after_save = self.send_letters
        self._registry_failures = 0  # how often a registry did not answer

    def restore(self) -> None:
        """Read the recorded events, which are sent before the events that are read from the source.
        With ``once`` each event is tried now, whether it is due or not.

        Raises the errors of ``send_ready``, and ConfigError.
        """
        for entry_no, content in self._position.entries().items():
            document = decode(entry_no, content)
            self.feed.restore(entry_no, document, content)
            events: list[PendingEvent] = []
            for recorded in document.events:
                self.output.resume(recorded)
                read = Read(recorded.change, recorded.sent_id)
                written = self._written(read, BEFORE_ALL) or ()
                events += [
                    PendingEvent(number, *event)
                    for number, event in enumerate(written, recorded.number)
                ]
            if events:
                self.feed.add_recorded(events, document.tried, document.nonce)
        self.feed.begin_nonce()
        if self.once:
            self.outbox.retry_now()
        self.output.writer.resume(self.feed.saved.numbered)

    def send_all(self) -> None:
        """Send all events that need not wait, and save. Raises the errors of ``send_ready``."""
        self.send_ready(everything=True)

    def send_ready(self, *, everything: bool) -> None:
        """Send full documents, or with ``everything`` all events that need not wait, and save. Wait
        while the receiver is unavailable.

        Raises FatalAnswer, and with ``once`` ReceiverUnavailable.
        """
        while not self.stop.is_set():
            self.feed.pack(everything=everything)
            ended = self.sender.serve(is_empty=everything)
            self.outbox.rest()
            self.heartbeat.last = max(self.heartbeat.last, self.feed.sent_at)
            if ended is None or ended.result in (DeliveryResult.DONE, DeliveryResult.STOPPED):
                return
            if ended.result is DeliveryResult.FATAL:
                # a stream has no requeue: the position stays before the refused event
                self.save_now()
                raise FatalAnswer(f"the receiver answered fatal: {ended.reason}")
            self._wait_until_resumed(ended)
            if self.outbox.in_doubt and not self.once and not self.feed.is_enough:
                return  # the next event of the source may be the one that makes the decision

    def _halted(self) -> Delivered | None:
        return STOPPED if self.stop.is_set() else None

    def _wait_until_resumed(self, why: Delivered) -> None:
        """Wait after a stop. With ``once`` raise ReceiverUnavailable instead, unless the document
        may be the cause: further attempts show whether it is.
        """
        if self.once and not why.is_suspicious:
            self.save_now()
            raise ReceiverUnavailable(f"the rest of the source was not published: {why.reason}")
        until = self.outbox.resume_at
        wait_until(until, self.stop, why, self.observer, self.measure, self.send_letters)

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
                if self.once:
                    raise ReceiverUnavailable(
                        f"the rest of the source was not published: {failure}"
                    ) from None
                self._registry_failures += 1
                until = monotonic() + self.outbox.rules.back_off(self._registry_failures)
                why = Delivered.unavailable(failure)
                wait_until(until, self.stop, why, self.observer, self.measure)

    def not_sent(self, failure: Failure, number: int) -> None:
        """Record a change that makes no event, under its number; it is saved with the position
        after the change.
        """
        self.counters.rows_invalid += 1
        self.failures.make_no_event(number, failure)
        where = {"event_id": failure.event_id, "code": failure.code}
        _log.warning("%s is not sent: %s", failure.event_id, failure.message, extra=where)

    def save_now(self) -> None:
        """Save if the sink can be flushed; otherwise the events are sent again."""
        try:
            self.feed.save()
        except ReceiverUnavailable:
            self.outbox.put_back()

    def save_if_due(self) -> None:
        """Save if a save is due. Raises the errors of ``send_ready``."""
        if self.feed.is_save_due():
            try:
                self.feed.save()
            except ReceiverUnavailable as lost:
                self.outbox.put_back()
                self.outbox.pause(monotonic())
                self._wait_until_resumed(Delivered.unavailable(lost))

    def send_letters(self) -> float | None:
        """Do what can be done now about dead letters, and return the seconds until there is more to
        do, None = only a new letter changes anything.
        """
        return None if self._letters is None else self._letters.step()

    def finish_letters(self) -> None:
        """End the sending of letters; with ``once`` send them until none is left or one fails."""
        if self._letters is None:
            return
        if self.once:
            self._letters.drain(self.stop.is_set)
        self._letters.finish()

    def send_heartbeat(self) -> None:
        """Send the heartbeat. Raises FatalAnswer."""
        self.heartbeat.last = monotonic()
        number = self.feed.last_document_no + 1
        document = Document(self.feed.saved.delivery_no, number, (), self.output.writer.heartbeat)
        if send_heartbeat(self._sink, document, self.counters):
            self.feed.last_document_no = number

    # the steps of the source

    def steps(self) -> Generator[SourceStep, None, None]:
        """Yield the steps of the source.

        If the source fails permanently, send the changes read so far before the error is raised.
        """
        with closing(self.following.source.steps(self.feed.saved.token, once=self.once)) as steps:
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
            if step.token is not None and step.token != self.feed.saved.token:
                self.feed.mark(ReadPosition(step.token, self.output.writer.numbered))
                if self.feed.saved.token is None:
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
            self.not_sent(step, self.feed.take_number())
        else:
            self.add_events(step)
        if self.feed.is_enough:
            self.send_ready(everything=False)
        if self._is_too_far():
            self.send_all()  # what need not wait comes first
        while self._is_too_far() and not self.stop.is_set():
            self._wait_for_parked()

    def add_events(self, read: Read) -> None:
        """Add the events of a change. Raises the errors of ``_written``."""
        written = self._written(read, self.feed.next_number)
        if written is None:
            self.feed.take_number()
        elif not written:
            self.counters.rows_noop += 1
        for event in written or ():
            sent_id, _, part, *_ = event
            if self.failures.is_settled(self.feed.next_number, sent_id, part):
                self.feed.take_number()
            else:
                self.feed.add(*event)

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
        """Return True if too many events wait for parked events: reading must stop until the parked
        events are sent.
        """
        if self.feed.size < self.options.window_rows and not self.outbox.is_full:
            return False
        return any(True for _ in self.outbox.parked())

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
        due = self.outbox.next_due(now)
        self.measure()
        pause = soonest(
            seconds,
            None if due is None else due - now,
            self.heartbeat.seconds_left(now),
            self.observer.measure_due(),
            self.send_letters(),
        )
        if pause > 0:
            self.observer.does(Doing.RESTING)
            self.stop.wait(pause)
            self.observer.does(Doing.PUBLISHING)

    def measure(self) -> None:
        """Report the parked objects and the backlog to the observer, if a report is due."""
        if self.observer.measure_due() != 0.0:
            return
        begun = monotonic()
        try:
            with as_plugin_errors():
                backlog = self.following.source.backlog(self.feed.saved.token)
        except EventlogError:  # the reader of the source reports the error
            backlog = None
        number, unit = (None, None) if backlog is None else backlog
        seconds = monotonic() - begun
        letters = self._position.waiting_letters()
        self.observer.measured(
            Measured(
                parked=parked_objects(self.outbox, _name_of),
                outbox=outbox_documents(self.outbox),
                seconds=seconds,
                behind=number,
                behind_unit=unit,
                letters=letters.entries,
                oldest_letter_seconds=letters.seconds,
            )
        )

    def _wait_for_parked(self) -> None:
        """Wait until an event of a parked object is due, and send it. Raises ReceiverUnavailable
        with ``once``, unless it is not known yet for which events the receiver fails.
        """
        if self.once and self.outbox.untried_due() is None:
            self.save_now()
            left = number_of(len(parked_objects(self.outbox, _name_of)), "object")
            raise ReceiverUnavailable(
                f"{left} left to send: the receiver answers retry for the events, or fails for them"
            )
        now = monotonic()
        due = self.outbox.next_due(now) or now
        why = "it answers retry for the events of parked objects, or fails for them"
        self.observer.waits(WaitFor.RECEIVER, why, due, why)
        self.stop.wait(max(0.0, due - now))
        self.send_all()

    def finish(self) -> None:
        """Send the rest when the source has ended or the publisher must stop. Raises
        ReceiverUnavailable with ``once`` if events are left.
        """
        if not self.stop.is_set():
            self.send_all()
        while self.feed.size and not self.stop.is_set():
            self._wait_for_parked()
        self.feed.is_at_end = not self.stop.is_set()
        self.save_now()


def _name_of(event: PendingEvent) -> tuple[str, str]:
    """Return the name of an event's object for people; a source has no classes."""
    if not event.objects:
        return "", "all rows of a table"
    schema, table, key = event.objects[0]
    columns = "+".join(f"{name}={value}" for name, value in key)
    return "", f"{columns},table={table}{f',schema={schema}' if schema else ''}"
