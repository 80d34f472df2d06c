"""Mark done rows in the log (spec/event-log.md 7.3).

This module is a hot path: the rows of every event are marked here. ``itemgetter`` reads one field
of all events of an answer in one pass. Nearly all events have no outcomes; then the rows of an
event are its ``ids``. The price: the positions of these fields are repeated at the top of the
module.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Final

from eventlog.core.rows.checks import InvalidRow
from eventlog.core.rows.event_ids import attempt_of, record_id_of
from eventlog.core.rows.events import Outgoing, RowOutcomes
from eventlog.model import EventResult, Status
from eventlog.publisher.context.context import Context, Counters, report_missing
from eventlog.publisher.ledger.letters import Letter, add_letters
from eventlog.publisher.send.policy import Document, has_letter, tries_at
from eventlog.publisher.send.sending import why_refused
from eventlog.sql.log.errors import PUT_BACK, add_errors, add_object_errors

_ids_of: Final = itemgetter(Outgoing._fields.index("ids"))
_outcomes_of: Final = itemgetter(Outgoing._fields.index("outcomes"))
_attempts_of: Final = itemgetter(Outgoing._fields.index("attempts"))


@dataclass(slots=True)
class Marks:
    """Marks and error rows that are collected and then written together (spec/event-log.md 7.3).
    Use a new object each time.
    """

    counters: Counters
    """The counters that count the rows (spec/event-log.md 7.3)."""
    statuses: dict[Status, list[int]] = field(default_factory=dict)
    retained: list[int] = field(default_factory=list)
    """The rows to be marked S that ``delete_from_log`` does not delete."""
    errors: list[InvalidRow] = field(default_factory=list)
    next_ids: dict[int, str] = field(default_factory=dict)
    """The event-ids with which refused events are sent again, by the record_id of their first row.
    Only event-ids that differ from the first event-ids are kept.
    """
    object_errors: list[tuple[str, str, str]] = field(default_factory=list)
    """The error rows for objects of a snapshot: event-id, code and message."""
    letters: list[Letter] = field(default_factory=list)
    """The rows and events that become E and are sent to the second sink, if there is such a sink
    (spec/event-log.md 8.7).
    """
    answered: list[Sequence[Outgoing]] = field(default_factory=list)
    """The events that were answered."""

    @property
    def has_any(self) -> bool:
        """True if there is anything to write."""
        return any(self.statuses.values()) or bool(self.retained or self.errors)

    def add(self, status: Status, record_ids: Iterable[int]) -> None:
        self.statuses.setdefault(status, []).extend(record_ids)

    def add_invalid(self, invalid: Sequence[InvalidRow]) -> None:
        """Add rows that failed a check, or whose value read back cannot be written: they get E and
        an error row each.
        """
        record_ids = [row.record_id for row in invalid]
        self.counters.rows_invalid += len(invalid)
        if self.counters.refused:
            self.counters.count_requeued(record_ids)
        self.counters.note_refused(record_ids)
        self.add(Status.ERROR, record_ids)
        self.errors += invalid
        self.letters += [
            Letter("", row.code, row.message, (row.record_id,), is_row=True) for row in invalid
        ]

    def add_answered(
        self, events: Sequence[Outgoing], result: EventResult, document: Document[Outgoing]
    ) -> None:
        """Add the rows of events that got an answer other than retry. ``document`` is the document
        in which they were sent. If other rows of the event take precedence over a row, this row
        gets S with any answer. Objects of a snapshot have no rows; refused objects get error rows.
        """
        if has_letter(result):
            self._add_letters(events, result, document)
        if events and not events[0].ids:
            self._add_objects(events, result)
            return
        self.answered.append(events)
        special = [outcomes for outcomes in map(_outcomes_of, events) if outcomes is not None]
        contributed = [event.contributed for event in events] if special else map(_ids_of, events)
        record_ids = list(chain.from_iterable(contributed))
        self.counters.count_rows(result.level, len(record_ids))
        if self.counters.refused:
            self.counters.count_requeued(record_ids)
        self.add(Status[result.level.name], record_ids)
        if message := why_refused(result):
            self.counters.note_refused(record_ids)
            self.errors.extend(
                InvalidRow(record_id, result.code, message) for record_id in record_ids
            )
            self._keep_attempts(events)
        self.add_outcomes(special)
        if any(outcomes.invalid for outcomes in special):
            self._keep_attempts(
                event for event in events if event.outcomes and event.outcomes.invalid
            )

    def _add_letters(
        self, events: Sequence[Outgoing], result: EventResult, document: Document[Outgoing]
    ) -> None:
        # An event that is given up has its next event-id by now.
        sent = {event.event_id: event.sent_id for event in document.events}
        tries, why = tries_at(document), why_refused(result)
        self.letters += [
            Letter(sent.get(one.event_id, one.sent_id), result.code, why, one.contributed, tries)
            for one in events
            if one.contributed or not one.ids
        ]

    def _add_objects(self, events: Sequence[Outgoing], result: EventResult) -> None:
        if message := why_refused(result):
            self.object_errors += [(event.event_id, result.code, message) for event in events]
        for event in events:
            if event.outcomes is not None:
                self.add_invalid_object(event.event_id, event.outcomes.invalid)

    def add_invalid_object(self, event_id: str, invalid: Sequence[InvalidRow]) -> None:
        """Add an object of a snapshot whose values or key cannot be written."""
        self.counters.rows_invalid += len(invalid)
        self.object_errors += [(event_id, one.code, one.message) for one in invalid]
        self.letters += [Letter(event_id, one.code, one.message, is_row=True) for one in invalid]

    def _keep_attempts(self, events: Iterable[Outgoing]) -> None:
        """Keep the attempt number under which the first row of a refused event is sent again
        (spec/event-log.md 7.4): the number of the refused attempt, which was not applied. A row
        that has become invalid since may have been applied in this attempt, so it is sent under the
        next number.
        """
        for event in events:
            first = record_id_of(event.event_id)
            invalid = () if event.outcomes is None else event.outcomes.invalid
            number = event.attempts + any(row.record_id == first for row in invalid)
            if number > 1:
                self.next_ids[first] = f"{event.event_id}.{number}"

    def _applied(self, known: Mapping[int, int]) -> dict[int, str]:
        """Return the later event-ids under which a consumer's receiver has applied events, by the
        record_id of the first row, unless their numbers are ``known``: if the rows are requested
        again, they need the next number (spec/event-log.md 7.4).
        """
        found: dict[int, str] = {}
        for events in self.answered:
            if max(map(_attempts_of, events), default=1) > 1:
                for event in events:
                    first = record_id_of(event.event_id)
                    if event.attempts > known.get(first, 1) and first not in self.next_ids:
                        found[first] = event.sent_id
        return found

    def add_outcomes(self, several: Iterable[RowOutcomes]) -> None:
        """Add the rows of events whose marks do not depend on an answer."""
        for outcomes in several:
            self.counters.rows_dropped += len(outcomes.dropped)
            self.counters.rows_gone += len(outcomes.gone)
            self.counters.rows_noop += len(outcomes.noop)
            self.counters.sv_conflicts += outcomes.conflicts
            self.add(Status.SUCCESS, (*outcomes.dropped, *outcomes.gone, *outcomes.noop))
            self.add_invalid(outcomes.invalid)

    def write(self, context: Context, ended: int | None = None) -> None:
        """Write the marks through the ledger in the present transaction, and the error rows with
        one statement. ``ended`` is the number of a delivery that is done.
        """
        deletes = context.options.delete_from_log
        errors: Sequence[tuple[int, str, str]] = self.errors
        applied = self._applied(context.attempts) if context.ledger.consumer else {}
        if applied:
            put_back = ((row, PUT_BACK, f"applied as event {one}") for row, one in applied.items())
            errors = [*errors, *put_back]
        alone = ended is not None and not errors and not self.object_errors
        unmarked = context.ledger.write(
            self.statuses, self.retained, deletes=deletes, ended=ended, alone=alone
        )
        if unmarked.gone:
            record_ids = [*chain(self.retained, *self.statuses.values())]
            report_missing(context, unmarked.gone, min(record_ids), max(record_ids))
        if unmarked.taken:
            # An operator has skipped them while they were being sent, so the receiver may have
            # applied this attempt.
            keep_next_attempts(context, chain.from_iterable(self.answered), unmarked.taken)
        if context.options.dead_letters:
            self._write_letters(context)
        if self.object_errors:
            add_object_errors(context.log, self.object_errors, context.ledger.consumer)
        if errors:
            add_errors(context.log, errors, context.ledger.consumer, self.next_ids | applied)
            known = context.attempts
            for row, event_id in self.next_ids.items():
                known[row] = max(known.get(row, 1), attempt_of(event_id))

    def _write_letters(self, context: Context) -> None:
        """Write the entries of letters. An invalid row gets the event-id that an event of this row
        alone would have.
        """
        suffix = context.options.events.id_suffix
        letters = [
            one._replace(event_id=f"{one.rows[0]}{suffix}") if not one.event_id else one
            for one in self.letters
        ]
        _add_letters(context, letters)


def _add_letters(context: Context, letters: Sequence[Letter]) -> None:
    needs_nonces = context.options.letters_need_nonces
    add_letters(context.log, letters, context.ledger.consumer, needs_nonces=needs_nonces)
    context.counters.letters_written += len(letters)


def refuse_objects(context: Context, refused: Sequence[tuple[str, str, str]]) -> None:
    """Write the error rows (event-id, code, message) and the letters of objects of a snapshot that
    make no event.
    """
    context.counters.rows_invalid += len(refused)
    if context.options.dead_letters:
        _add_letters(context, [Letter(*one, is_row=True) for one in refused])
    add_object_errors(context.log, refused, context.ledger.consumer)


def keep_next_attempts(
    context: Context, events: Iterable[Outgoing], given_up: Container[int]
) -> None:
    """Keep the next attempt number of events whose first rows an operator has skipped: if the rows
    are queued again, the receiver may have applied the last attempt (spec/event-log.md 7.4).
    """
    for event in events:
        if (first := record_id_of(event.event_id)) in given_up:
            context.attempts[first] = event.attempts + 1
