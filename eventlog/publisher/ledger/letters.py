"""Dead letters: events that became E, as entries that wait for the second sink
(spec/event-log.md 8.7, 10).

An entry names the rows of its event; the event is built when its letter is sent. The entry is
written in the transaction that writes the E and its error row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from eventlog.core.ranges import ids_of, to_ranges
from eventlog.publisher.ledger.delivery import ENTRY_FORMAT, new_nonce, refuse_newer
from eventlog.sql.log.errors import count_refusals
from eventlog.sql.log.internal_tables import (
    EntryKind,
    Waiting,
    add_entries,
    count_waiting,
    delete_entry,
    read_entries,
    unreadable,
)
from eventlog.sql.port.open_log import OpenLog

COUNTED: Final = 100_000
"""The maximum number of letters that are counted."""


class Letter(NamedTuple):
    """An event that became E, or an invalid row."""

    event_id: str
    """The event-id in the document that was sent."""
    code: str
    message: str
    """The message, as in the error row."""
    rows: Sequence[int] = ()
    """The record_ids of the event; none for an object of a snapshot."""
    attempts: int = 0
    """The number of times that the event was sent."""
    is_row: bool = False
    """True for an invalid row, from which no event is built."""
    refusal: int = 1
    """The number of the refusal: the event may be queued and refused again."""
    number: int = 0
    """The number of the letter's entry, 0 = the letter is not recorded yet."""
    moment: datetime | None = None
    """The time in UTC at which the event became E."""
    nonce: str = ""
    """A random text, as a delivery has it (spec/event-log.md 8.4)."""

    @property
    def key(self) -> str:
        """The key of the letter, which no other letter of the reader has."""
        return f"{self.event_id}/{self.refusal}"


def add_letters(
    log: OpenLog, letters: Sequence[Letter], consumer: str, *, needs_nonces: bool
) -> None:
    """Write the entries of new letters. Call this before the error rows of their events are
    written. Nothing is committed.
    """
    if not letters:
        return
    earlier = count_refusals(
        log,
        sorted({letter.rows[0] for letter in letters if letter.rows}),
        sorted({letter.event_id for letter in letters if not letter.rows}),
        consumer,
    )
    last = log.draw_numbers(len(letters))
    contents = {}
    for number, letter in enumerate(letters, last - len(letters) + 1):
        known: int | str = letter.rows[0] if letter.rows else letter.event_id
        refusal, nonce = earlier.get(known, 0) + 1, new_nonce(is_needed=needs_nonces)
        contents[number] = encode(letter._replace(refusal=refusal, nonce=nonce))
    add_entries(log, EntryKind.DEAD_LETTER, contents, consumer)


def read_letters(log: OpenLog, consumer: str, most: int) -> list[Letter]:
    """Return the first letters of the publisher (empty name) or a consumer, at most ``most``.

    Raises DatabaseError for an entry that cannot be read.
    """
    found = []
    for entry in read_entries(log, EntryKind.DEAD_LETTER, consumer, most):
        try:
            letter = decode(entry.number, entry.content)
        except (TypeError, ValueError, KeyError) as error:
            raise unreadable(log, EntryKind.DEAD_LETTER, entry.number, error) from None
        found.append(letter._replace(number=entry.number, moment=entry.started))
    return found


def remove_letters(log: OpenLog, numbers: Sequence[int]) -> None:
    """Delete the entries of letters that are confirmed, or that were refused themselves."""
    for number in numbers:
        delete_entry(log, EntryKind.DEAD_LETTER, number)


def waiting_letters(log: OpenLog, consumer: str) -> Waiting:
    """Return how many letters wait, at most ``COUNTED``, and how long the first one has waited."""
    return count_waiting(log, EntryKind.DEAD_LETTER, consumer, COUNTED)


def encode(letter: Letter) -> str:
    """Return the content of the entry of kind ``dead_letter``."""
    content: dict[str, object] = {
        "line_format": ENTRY_FORMAT,
        "event_id": letter.event_id,
        "code": letter.code,
        "message": letter.message,
        "rows": to_ranges(letter.rows),
        "attempts": letter.attempts,
        "refusal": letter.refusal,
    }
    if letter.is_row:
        content["is_row"] = True
    if letter.nonce:
        content["nonce"] = letter.nonce
    return json.dumps(content, separators=(",", ":"))


def decode(number: int, content: str) -> Letter:
    """Return the letter of an entry. Raises DatabaseError for a newer format, and TypeError,
    ValueError or KeyError for a content that cannot be read.
    """
    entry: Mapping[str, Any] = json.loads(content)
    refuse_newer(number, entry)
    return Letter(
        str(entry["event_id"]),
        str(entry["code"]),
        str(entry["message"]),
        _ids(entry["rows"]),
        int(entry["attempts"]),
        bool(entry.get("is_row", False)),
        int(entry["refusal"]),
        nonce=str(entry.get("nonce", "")),
    )


def _ids(ranges: Sequence[Sequence[int]]) -> list[int]:
    return list(ids_of((int(first), int(last)) for first, last in ranges))
