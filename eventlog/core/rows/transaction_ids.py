"""The transactions that wrote the rows of a log, as formats show them (spec/event-log.md 1.5)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from eventlog.core.rows.event_ids import epoch_of
from eventlog.core.rows.events import Outgoing

_HALF = 16
"""The number of hex digits of a number of 64 bits."""


def transaction_of(event: Outgoing, transactions: Mapping[int, str | None]) -> str | None:
    """Return the number of the transaction that wrote the last row of an event, as the database's
    text; None = unknown. ``transactions`` are as in ``Origins``.
    """
    if not transactions:
        return None
    return next(
        (transactions[record_id] for record_id in reversed(event.ids) if record_id in transactions),
        None,
    )


def transaction_text(event: Outgoing, transactions: Mapping[int, str | None]) -> str | None:
    """Return the transaction of an event as ``<epoch>:<number>``, or as ``<number>`` in the first
    epoch; None = unknown.
    """
    number = transaction_of(event, transactions)
    if number is None:
        return None
    epoch = epoch_of(event.event_id)
    return f"{epoch}:{number}" if epoch else number


def transaction_digits(event: Outgoing, transactions: Mapping[int, str | None]) -> str | None:
    """Return the transaction of an event as ``digits_of`` writes it, None = unknown."""
    number = transaction_of(event, transactions)
    return None if number is None else digits_of(number, epoch_of(event.event_id))


@lru_cache(maxsize=256)  # the rows of a transaction come together
def digits_of(number: str, epoch: str) -> str:
    """Return the 32 upper-case hex digits of a transaction. The first half is zero in the first
    epoch of the log; in a later epoch it is the hash of the epoch. The second half is the number of
    the transaction.
    """
    if not epoch:
        return f"{int(number):032X}"
    from hashlib import sha256  # loads OpenSSL, which takes long, and most logs have no epoch

    return sha256(epoch.encode()).hexdigest()[:_HALF].upper() + f"{int(number):016X}"
