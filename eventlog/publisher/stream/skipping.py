"""Give up an event of a followed source by hand, ``eventlog skip --from`` (spec/change-model.md
6.6).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from eventlog.changes import json_form as change_json
from eventlog.publisher.inspect.skipping import Skipped, taken, with_answer
from eventlog.publisher.send.database_clock import resumed, rounds_of, tried_of
from eventlog.publisher.send.outbox import Outbox
from eventlog.publisher.send.policy import Document, Rules
from eventlog.publisher.stream import Failure
from eventlog.publisher.stream.position import TablePosition
from eventlog.publisher.stream.recorded import RecordedDocument, RecordedEvent, decode, encode
from eventlog.sql.log.errors import SKIPPED


def skip_recorded(position: TablePosition, event_ids: Iterable[str], why: str) -> list[Skipped]:
    """Give up events without an answer that the position has passed: each becomes a failure that
    shows ``why``, and the later events of its object are sent. The caller has the position's lock,
    so that no publisher runs.

    Raises ConfigError if there is no such event; then no event is given up.
    """
    entries = dict(position.entries())
    clock, outbox = position.clock, Outbox[RecordedEvent](Rules(), is_recorded=False)
    nonces: dict[int, str] = {}
    for number, content in entries.items():
        events, tried, _, nonces[number] = decode(number, content)
        if events:
            outbox.add([resumed(Document((number,), events), tried, clock, inf)])
        if tried is not None:
            outbox.continue_rounds(rounds_of([tried]))
    skipped: list[Skipped] = []
    failures: list[Failure] = []
    for event, attempts in taken(outbox, event_ids):
        message = with_answer(why, attempts.answer)
        content = change_json.dumps(event.change)
        failures.append(Failure(event.sent_id, SKIPPED, message, content))
        skipped.append(Skipped(event.sent_id, 0, attempts.tries, attempts.answer))
    for number in outbox.record():
        del entries[number]
        for left in outbox.batch(number):
            tried, nonce = tried_of(left, outbox, clock), nonces[number]
            recorded = RecordedDocument(left.events, tried, nonce=nonce)
            entries[left.events[0].number] = encode(recorded)
    if skipped:
        position.save(position.load(), failures, entries)
    return skipped
