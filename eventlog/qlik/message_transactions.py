"""Changes of messages, gathered into transactions again: topics and partitions mix them (spec/qlik.md 5.7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from eventlog.model import Change


class Transaction(NamedTuple):
    """The changes of a transaction by their counters, each once. ``transaction_id`` None: a change that knows none."""

    transaction_id: str | None
    changes: tuple[Change, ...]
    is_complete: bool


def gather_transactions(changes: Iterable[Change]) -> Iterator[Transaction]:
    """Transactions as they become complete; at the end of the input those that have not, as far as they came.

    Complete is one whose last event is there and as many counters as that one's counter. An id that comes again after
    that is another transaction. A change without id or counter is a transaction of its own.
    """
    gathered: dict[str, dict[int, Change]] = {}
    totals: dict[str, int] = {}
    for change in changes:
        name, number = change.transaction_id, change.event_number
        if name is None or number is None:
            yield Transaction(name, (change,), is_complete=True)
            continue
        group = gathered.setdefault(name, {})
        group.setdefault(number, change)
        if change.last_in_transaction:
            totals[name] = number
        if len(group) == totals.get(name):
            del gathered[name], totals[name]
            yield Transaction(name, _in_order(group), is_complete=True)
    for name, group in gathered.items():
        yield Transaction(name, _in_order(group), is_complete=False)


def _in_order(group: dict[int, Change]) -> tuple[Change, ...]:
    return tuple(group[number] for number in sorted(group))
