"""The feed of a followed source: its events from reading to answer, and its position, which follows
the answers (spec/change-model.md 6).

Events join the outbox as documents in which no object occurs twice; an event that concerns every
object, such as a TRUNCATE, is a document alone. The position moves when everything before it is
answered and flushed, or recorded with it. An event is recorded if it waits, or follows an event
that waits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, takewhile
from typing import Any, TypeAlias

from eventlog.core.clock import monotonic
from eventlog.errors import number_of
from eventlog.model import Answer, EventResult, Level
from eventlog.publisher.context.context import Counters, PublisherOptions, Reports, stream_summary
from eventlog.publisher.context.observer import Observer
from eventlog.publisher.ledger.delivery import Tried, new_nonce
from eventlog.publisher.send.database_clock import resumed, rounds_of, tried_of
from eventlog.publisher.send.outbox import Outbox, Settled
from eventlog.publisher.send.policy import EVERY, Document, tries_at
from eventlog.publisher.send.sending import Flushed, as_flushed, flush, why_refused
from eventlog.publisher.send.serving import rules_of
from eventlog.publisher.sinks import Sink
from eventlog.publisher.stream import Failure
from eventlog.publisher.stream.failures import Failures
from eventlog.publisher.stream.letters import encode_letter
from eventlog.publisher.stream.output import StreamOutput
from eventlog.publisher.stream.pending_event import (
    BEFORE_ALL,
    STEP,
    PendingEvent,
    ReadPosition,
)
from eventlog.publisher.stream.position import Saved, TablePosition
from eventlog.publisher.stream.recorded import RecordedDocument, RecordedEvent, encode

_log = logging.getLogger("eventlog.publisher")

_EntryKey: TypeAlias = tuple[tuple[int, ...], Tried | None, str]
"""The values on which an entry depends: the numbers of its events, which do not change, the
attempts, and the nonce.
"""


class SourceFeed:
    """The events of a source without an answer, and the values to save.

    ``saved`` has the stored values. The delivery in ``saved`` is the present delivery, of which
    ``last_document_no`` documents were sent.
    """

    def __init__(
        self,
        position: TablePosition,
        sink: Sink,
        output: StreamOutput,
        options: PublisherOptions,
        counters: Counters,
        observer: Observer,
    ) -> None:
        """Continue from the position, under a new delivery number."""
        self._position, self._sink, self.output = position, sink, output
        self._options, self._counters, self._observer = options, counters, observer
        saved = position.load()
        self.saved = saved._replace(delivery_no=saved.delivery_no + 1)
        position.save(self.saved)
        self.outbox = Outbox[PendingEvent](rules_of(options), is_recorded=False, keeps_fatal=True)
        self.failures = Failures()
        self.last_document_no = 0
        self.next_number = 0
        self.passed = 0
        """The saved position has passed the events with lower numbers. If an event among them has
        no answer, it is recorded with the position.
        """
        self.is_at_end = False
        self.sent_at = monotonic()
        """The time when the last document was answered."""
        self._ready: deque[PendingEvent] = deque()
        self._marks: deque[tuple[int, ReadPosition]] = deque()
        self._fatal: list[Failure] = []  # of events that were answered fatal, saved at once
        self._answered = 0  # events answered since the last save
        self._entries: dict[int, tuple[_EntryKey, str]] = {}  # as they were last saved
        # The nonce of the events that the position has not passed, empty if the sink needs none;
        # the nonces of documents that it has passed, by their batches; the number of the last event
        # that was sent under the first nonce.
        self._nonce, self._nonces, self._sent_to = "", dict[int, str](), BEFORE_ALL
        self.after_save: Callable[[], object] = lambda: None
        """A function that is called after each save, outside of a transaction."""
        self._saved_at = monotonic()
        self._reports = Reports(counters)

    # --- events that are read ---

    @property
    def size(self) -> int:
        """The number of events without an answer."""
        return self.outbox.size + len(self._ready)

    @property
    def is_enough(self) -> bool:
        """True if the ready events fill as many documents as may be sent at the same time."""
        return len(self._ready) >= self._options.batch_size * self._options.concurrency

    def take_number(self) -> int:
        """Return the number of the next change."""
        number = self.next_number
        self.next_number += STEP
        return number

    def add(self, *event: Any) -> None:
        """Add an event that was read. The arguments are the fields of ``PendingEvent`` after the
        number.
        """
        self._ready.append(PendingEvent(self.take_number(), *event))

    def restore(self, entry_no: int, document: RecordedDocument, content: str) -> None:
        """Restore an entry of the position. All entries are restored before events are read."""
        self._entries[entry_no] = _key_of(document), content
        if entry_no == BEFORE_ALL and self._options.needs_nonces:
            self._nonce = document.nonce
        if document.settled:
            self.failures.restore(entry_no, content, document.settled)
            self.pass_over(entry_no)

    def begin_nonce(self) -> None:
        """Save a nonce before anything is sent, unless the previous run has saved one: it may have
        sent events after the position.
        """
        if self._options.needs_nonces and not self._nonce:
            self._nonce = new_nonce(is_needed=True)
            self._entries |= self._entry_of_nonce()
            contents = {number: content for number, (_, content) in self._entries.items()}
            self._position.save(self.saved, entries=contents)

    def add_recorded(
        self, events: Sequence[PendingEvent], tried: Tried | None, nonce: str = ""
    ) -> None:
        """Add a document that was recorded, before events are read."""
        self.pass_over(events[-1].number)
        self._nonces[events[0].number] = nonce
        document = Document((events[0].number,), events)
        clock, longest = self._position.clock, self._options.retry_max
        self.outbox.add([resumed(document, tried, clock, longest)])
        self.outbox.continue_rounds(rounds_of([tried] if tried else []))

    def pass_over(self, number: int) -> None:
        """Give greater numbers than ``number`` to the events that are read from now on."""
        self.next_number = self.passed = max(self.next_number, number + STEP)

    def mark(self, place: ReadPosition) -> None:
        """Record that the source can be read again from ``place`` once all events so far are
        answered.
        """
        if self._marks and self._marks[-1][0] == self.next_number:
            self._marks.pop()
        self._marks.append((self.next_number, place))

    def pack(self, *, everything: bool) -> None:
        """Move ready events into the outbox: full documents, or with ``everything`` all events."""
        size = self._options.batch_size
        while len(self._ready) >= size or (everything and self._ready):
            events = [self._ready.popleft()]
            objects = set(events[0].queues)
            while self._ready and len(events) < size and EVERY not in objects:
                queues = self._ready[0].queues
                if EVERY in queues or not objects.isdisjoint(queues):
                    break
                objects.update(queues)
                events.append(self._ready.popleft())
            self.outbox.add([Document((events[0].number,), events)])

    # --- sending ---

    def prepare(self, document: Document[PendingEvent]) -> Document[PendingEvent]:
        """Return a document with the number under which it is sent."""
        self.last_document_no += 1
        self._sent_to = max(self._sent_to, document.events[-1].number)
        return document._replace(number=self.last_document_no)

    def send(self, document: Document[PendingEvent]) -> Answer:
        """Send a document. Raises ReceiverUnavailable."""
        written = self.output.document(self.saved.delivery_no, document.number, document.events)
        if nonce := self._nonce_of(document):
            written = written._replace(nonce=nonce)
        return self._sink.send(written)

    def settled(self, settled: Settled[PendingEvent]) -> None:
        """Record what an outcome has led to: an event that was answered fatal has a failure, and is
        sent again.
        """
        self.sent_at = monotonic()
        if settled.judged is None:
            return
        for result, events in settled.judged.answered:
            self._answered += len(events)
            if result.level is Level.FATAL:
                self._fatal += [self._failure(result, event) for event in events]

    def is_saved(self) -> bool:
        """Return True if every answer is saved, and the position cannot move."""
        can_move = self._marks and self._marks[0][0] <= self._first_not_passed()
        return self.outbox.is_saved and not can_move

    def is_save_due(self) -> bool:
        """Return True if ``mark_interval`` has passed, or ``delivery_rows`` events were answered,
        since the last save.
        """
        options = self._options
        return (
            monotonic() - self._saved_at >= options.mark_interval
            or self._answered >= options.delivery_rows
        )

    def lost(self) -> None:
        """Forget the fatal answers, and what the format has recorded, since the last save."""
        self.output.writer.forget()
        self._fatal = []

    # --- saving ---

    def save(self) -> None:
        """Make the answers final: flush, then save position and failures together.

        Raises ReceiverUnavailable if the sink has lost answers.
        """
        self._saved_at, self._answered = monotonic(), 0
        refused, lost = Flushed({}) if not self.last_document_no else flush(self._sink, self.outbox)
        answered = list(as_flushed(self.outbox.take_marks(), refused, self._counters))
        self.outbox.record()
        for result, events, document in answered:
            self._counters.count_rows(result.level, len(events))
            if why_refused(result):
                for event in events:
                    failure = self._failure(result, event)
                    self.failures.refuse(event, failure, tries_at(document))
        if self._reports.due() is not None:
            parked = (event for one in self.outbox.parked() for event in one.events)
            number = len({event.objects[:1] for event in parked})
            summary = stream_summary(self._counters)
            _log.info("%s; %s parked", summary, number_of(number, "object"))
        place = self._moved()
        failed, settled = self.failures.take(self.passed, is_at_end=self.is_at_end)
        failures = [*(one.failure for one in failed), *self._fatal]
        letters = []
        if self._options.dead_letters:
            needs_nonces = self._options.letters_need_nonces
            letters = [encode_letter(one, new_nonce(is_needed=needs_nonces)) for one in failed]
        self._renew_nonce()
        entries = self._recorded() | self._entry_of_nonce()
        entries |= {entry_no: (((), None, ""), content) for entry_no, content in settled.items()}
        is_same = entries.items() == self._entries.items()
        if place is None and not failures and not self.last_document_no and is_same:
            return
        token, numbered = (self.saved.token, self.saved.numbered) if place is None else place
        # A document in the air belongs to the present delivery.
        is_over = bool(self.last_document_no) and not self.outbox.in_air
        saved = Saved(token, self.saved.delivery_no + is_over, numbered)
        begun = monotonic()
        contents = {number: content for number, (_, content) in entries.items()}
        ids = [event.sent_id for _, events, _ in answered for event in events]
        self._position.save(saved, failures, contents, ids, letters)
        self._counters.letters_written += len(letters)
        self._observer.marked(monotonic() - begun)
        self.saved, self._entries = saved, entries
        if is_over:
            self.last_document_no = 0
        self._fatal = []
        self.after_save()
        if lost is not None:
            raise lost

    def _moved(self) -> ReadPosition | None:
        """Move to the newest place before which every event is answered or recorded, and return
        this place; None if the position stays.
        """
        first, place = self._first_not_passed(), None
        while self._marks and self._marks[0][0] <= first:
            self.passed, place = self._marks.popleft()
        return place

    def _nonce_of(self, document: Document[PendingEvent]) -> str:
        return self._nonces.get(document.place[0], self._nonce)

    def _entry_of_nonce(self) -> dict[int, tuple[_EntryKey, str]]:
        if not self._nonce:
            return {}
        document = RecordedDocument([], nonce=self._nonce)
        return {BEFORE_ALL: (_key_of(document), encode(document))}

    def _renew_nonce(self) -> None:
        """Take another nonce if the position has passed all events that were sent under the present
        nonce: no event that is read again was sent. Recorded documents keep their nonces.
        """
        if not self._nonce or not BEFORE_ALL < self._sent_to < self.passed:
            return
        outbox = self.outbox
        self._nonces = {
            batch: self._nonces.get(batch, self._nonce)
            for batch in outbox.batches
            if all(one.events[-1].number < self.passed for one in outbox.batch(batch))
        }
        self._nonce, self._sent_to = new_nonce(is_needed=True), BEFORE_ALL

    def _first_not_passed(self) -> int:
        """Return the number of the oldest event without an answer that the position cannot pass. If
        there is no such event, return the number of the next event.
        """
        outbox, passed, park = self.outbox, self.passed, self._options.park
        if park and outbox.rounds > 1:
            return self.next_number
        for batch in outbox.batches:  # each has the events before those of the next batch
            events = chain.from_iterable(document.events for document in outbox.batch(batch))
            left = {event.number for event in events if event.number >= passed}
            if left and park and not outbox.in_doubt:
                left -= {event.number for event in outbox.waiting(batch)}
            if left:
                return min(left)
        ready = (event.number for event in self._ready if event.number >= passed)
        return next(ready, self.next_number)

    def _recorded(self) -> dict[int, tuple[_EntryKey, str]]:
        """Return the entries of the events without an answer that the position has passed."""
        entries: dict[int, tuple[_EntryKey, str]] = {}
        joined = chain.from_iterable(map(self.outbox.batch, self.outbox.batches))
        ready = (Document((one.number,), [one]) for one in self._ready)
        passed = takewhile(lambda one: one.place[0] < self.passed, chain(joined, ready))
        for document in passed:
            events = [event for event in document.events if event.number < self.passed]
            if not events:
                continue
            recorded = RecordedDocument(
                [
                    RecordedEvent(
                        each.number, each.sent_id, each.change, each.numbered, each.described
                    )
                    for each in events
                ],
                tried_of(document, self.outbox, self._position.clock),
                nonce=self._nonce_of(document),
            )
            key, known = _key_of(recorded), self._entries.get(events[0].number)
            if known is None or known[0] != key:
                known = key, encode(recorded)
            entries[events[0].number] = known
        return entries

    def _failure(self, result: EventResult, event: PendingEvent) -> Failure:
        content = self.output.writer.shown(event.piece)
        return Failure(event.sent_id, "receiver", why_refused(result), content)


def _key_of(document: RecordedDocument) -> _EntryKey:
    return tuple(event.number for event in document.events), document.tried, document.nonce
