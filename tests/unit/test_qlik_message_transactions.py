"""Transactions gathered from messages that come mixed, twice, or not at all (spec/qlik.md 5.7)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from message_samples import UPDATE

from eventlog.model import Change
from eventlog.qlik.sequence import Transaction, gather_transactions


def change(name: str | None, number: int | None, last: bool | None = False) -> Change:
    return UPDATE._replace(transaction_id=name, event_number=number, last_in_transaction=last)


def gathered(*changes: Change) -> list[tuple[str | None, list[int | None], bool]]:
    return [
        (one.transaction_id, [change.event_number for change in one.changes], one.is_complete)
        for one in gather_transactions(changes)
    ]


def test_a_transaction_is_complete_with_its_last_event_and_all_counters() -> None:
    assert gathered(change("A", 2, True), change("B", 1, True), change("A", 1)) == [
        ("B", [1], True),
        ("A", [1, 2], True),
    ]


def test_duplicates_count_once_and_an_id_may_come_again() -> None:
    first = [change("A", 1), change("A", 1), change("A", 2, True)]
    assert gathered(*first, *first[1:]) == [("A", [1, 2], True), ("A", [1, 2], True)]


def test_what_does_not_become_complete_is_given_at_the_end() -> None:
    assert gathered(change("A", 3, True), change("A", 1), change("B", 1, None)) == [
        ("A", [1, 3], False), ("B", [1], False),
    ]  # fmt: skip


def test_changes_without_id_or_counter_stand_alone() -> None:
    assert gathered(change(None, None), change("A", None), change(None, 1)) == [
        (None, [None], True), ("A", [None], True), (None, [1], True),
    ]  # fmt: skip


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_order_gives_every_transaction_whole(sizes: list[int], random: object) -> None:
    changes = [
        change(f"T{name}", number, number == size) for name, size in enumerate(sizes) for number in range(1, size + 1)
    ]
    random.shuffle(changes)  # type: ignore[attr-defined]
    found: list[Transaction] = list(gather_transactions(changes))
    assert sorted((one.transaction_id, len(one.changes)) for one in found) == sorted(
        (f"T{name}", size) for name, size in enumerate(sizes)
    )  # type: ignore[type-var]
    assert all(one.is_complete for one in found)
