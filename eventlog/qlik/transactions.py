"""Transactions: the id as both Qlik formats write it, and event counters of changes that have none (spec/qlik.md 7)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from eventlog.model import Change, ChangeOp

UNKNOWN_TRANSACTION: Final = "0" * 32

_HEX_DIGITS: Final = "0123456789abcdefABCDEF"


@lru_cache(maxsize=256)  # the changes of a transaction come together
def transaction_text(transaction_id: str | None) -> str:
    """32 upper-case hex digits: up to 32 hex digits are padded, other text is hashed, None is 32 zeros.

    (spec/change-model.md 4)
    """
    if transaction_id is None:
        return UNKNOWN_TRANSACTION
    if 0 < len(transaction_id) <= 32 and not transaction_id.strip(_HEX_DIGITS):
        return transaction_id.upper().zfill(32)
    return sha256(transaction_id.encode()).hexdigest()[:32].upper()


def transaction_from_text(text: str | None) -> str | None:
    """The id of a stored text: NULL, empty text and zeros, in which "not known" is written, are None."""
    if not text or not text.strip("0"):
        return None
    return text


class Waiting(NamedTuple):
    """A row that is no change yet, a before image whose update may come: its change_seq and its transaction."""

    position: str
    transaction_id: str | None


def count_events(changes: Iterable[Change | Waiting], *, input_complete: bool) -> Iterator[Change]:
    """The changes, in change_seq order over all tables, with event_number and last_in_transaction.

    Consecutive changes of one transaction id are a transaction; TRUNCATE is not counted, and neither is a change
    without transaction id. Where the input is not declared complete, the last counted change of a transaction that
    reaches its end keeps its own last_in_transaction, None as a rule, since more may come. A row that waits is not
    given, but ends another transaction before it. One change is held back at a time.
    """
    held: deque[Change] = deque()  # the last counted change of the run, and what follows it uncounted
    run: str | None = None
    number = 0
    for change in changes:
        if change.transaction_id != run:
            yield from _released(held, last=True)
            run, number = change.transaction_id, 0
        if isinstance(change, Waiting):
            continue
        if run is None or change.op is ChangeOp.TRUNCATE:
            if held:
                held.append(change)
            else:
                yield change
            continue
        yield from _released(held, last=False)
        number += 1
        held.append(change._replace(event_number=number))
    yield from _released(held, last=True if input_complete else None)


def _released(held: deque[Change], *, last: bool | None) -> Iterator[Change]:
    if held:
        counted = held.popleft()
        yield counted if last is None else counted._replace(last_in_transaction=last)
        while held:
            yield held.popleft()
