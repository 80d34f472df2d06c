"""In-flight lines (spec/event-log.md 7.4, 10)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import good, row

from eventlog.core.ranges import to_ranges
from eventlog.core.rows.event_ids import epoch_suffix
from eventlog.core.rows.events import EventOptions, Outgoing, apply_precedence, build_event
from eventlog.core.rows.fold import fold
from eventlog.errors import DatabaseError
from eventlog.model import SUCCESS
from eventlog.publisher.ledger.delivery import (
    Delivery,
    Tried,
    TriedKind,
    decode,
    encode,
    numbered,
    pack,
)
from eventlog.publisher.send.log_feed import add_recorded, entry_of
from eventlog.publisher.send.outbox import Outbox
from eventlog.publisher.send.policy import Rules

NO_CLOCK: Any = None
"""No event of these deliveries waits for a time."""


def recorded(
    event_id: str,
    ids: Sequence[int],
    dropped: Sequence[int] = (),
    attempts: int = 1,
    place: int = 0,
) -> Outgoing:
    """An event as its line gives it back."""
    return Outgoing(event_id, list(ids), None, None, None, None, tuple(dropped), attempts, place)


def simple(number: int) -> Outgoing:
    return recorded(str(number), [number])


def documents_of(*documents: dict[str, Any], first: str = "") -> str:
    line = {
        "line_format": 1,
        **({"first": first} if first else {}),
        "documents": list(documents),
    }
    return json.dumps(line, separators=(",", ":"))


def test_the_line_of_a_chunk_of_a_snapshot_gives_back_its_objects_and_their_numbers() -> None:
    names = [f"snapshot.20261124210929.usr.idu={key}" for key in range(1, 6)]
    events = [recorded(name, []) for name in names]
    delivery = pack(3, events, 2, "20261124210929000")
    content = encode(delivery)
    assert json.loads(content)["documents"][1] == {
        "number": 2,
        "objects": ["usr.idu=3", "usr.idu=4"],
        "place": 3,
    }
    assert [event.place for event in decode(3, content).events()] == [1, 2, 3, 4, 5]
    rest = rest_of(delivery, {2: delivery.documents[2][1:], 3: delivery.documents[3]})
    read = decode(3, encode(rest))
    assert [(number, [one.event_id for one in own]) for number, own in read.documents.items()] == [
        (4, names[3:4]),
        (5, names[4:]),
    ]
    assert [event.place for event in read.events()] == [4, 5]
    assert read.is_of_snapshot


def test_attempts_in_the_line_are_read_as_they_were_written() -> None:
    due = "2026-11-24T21:09:29.123"
    delivery = pack(3, [simple(1), simple(2), simple(3)], 1)._replace(
        tried={
            1: Tried(4, "answers 500", due),
            2: Tried(2, "x" * 400, kind=TriedKind.FAILURES),
        },
        parked={"3": Tried(8, "later", due, TriedKind.PARKED)},
    )
    read = decode(3, encode(delivery))
    assert (read.tried[1], read.parked) == (delivery.tried[1], delivery.parked)
    assert read.tried[2] == Tried(2, "x" * 300, kind=TriedKind.FAILURES)


def test_the_line_of_a_new_event_gives_back_its_rows_and_what_precedence_dropped() -> None:
    (group,) = fold(good([row(1, 2, column="fname", new="x"), row(3, 8, column="fname")]), 10, 0)
    event = build_event(group, EventOptions(), apply_precedence(group), {"fname": ["x"]})
    assert list(decode(1, encode(pack(1, [event], 1))).events()) == [recorded("1", [1, 3], [1])]


@pytest.mark.parametrize(("attempts", "sent_id"), [(1, "7"), (2, "7.2"), (3, "7.3"), (12, "7.12")])
def test_an_event_that_is_sent_again_under_a_changed_id_is_numbered(
    attempts: int, sent_id: str
) -> None:
    assert recorded("7", [7], attempts=attempts).sent_id == sent_id


@pytest.mark.parametrize(
    ("count", "size", "sizes"),
    [(0, 3, []), (1, 3, [1]), (3, 3, [3]), (4, 3, [3, 1]), (3, 1, [1, 1, 1])],
)
def test_documents_hold_up_to_batch_size_events_in_order(
    count: int, size: int, sizes: list[int]
) -> None:
    events = list(map(simple, range(1, count + 1)))
    delivery = pack(9, events, size)
    assert delivery.number == 9
    assert list(delivery.documents) == list(range(1, len(sizes) + 1))
    assert list(map(len, delivery.documents.values())) == sizes
    assert list(delivery.events()) == events


# Ranges hold what was read and nothing between: a row committed late belongs to none.
LINES = [
    ([{"number": 1, "rows": [[1, 2]], "counts": [2]}], [(1, [recorded("1", [1, 2])])]),
    (
        [
            {
                "number": 1,
                "rows": [[5, 9], [11, 11]],
                "counts": [6],
                "events": {"0": {"dropped": [[6, 6]]}},
            }
        ],
        [(1, [recorded("5", [5, 6, 7, 8, 9, 11], [6])])],
    ),
    (
        [{"number": 3, "rows": [[5, 6]], "counts": [1, 1], "events": {"1": {"attempts": 2}}}],
        [(3, [simple(5), recorded("6", [6], attempts=2)])],
    ),
    (
        [{"number": 1, "rows": [[4, 6]], "counts": [3], "events": {"0": {"id": "5"}}}],
        [(1, [recorded("5", [4, 5, 6])])],
    ),
    (
        [{"number": 1, "rows": [[1, 1], [3, 3], [2, 2]], "counts": [2, 1]}],
        [(1, [recorded("1", [1, 3]), simple(2)])],
    ),
    (
        [
            {"number": 1, "rows": [[1, 2]], "counts": [1, 1]},
            {"number": 4, "rows": [[3, 3]], "counts": [1]},
        ],
        [(1, [simple(1), simple(2)]), (4, [simple(3)])],
    ),
    ([], []),
]


@pytest.mark.parametrize(("line", "documents"), LINES)
def test_a_line_has_the_rows_of_each_document_and_what_is_special(
    line: list[dict[str, Any]], documents: list[tuple[int, list[Outgoing]]]
) -> None:
    delivery = Delivery(7, dict(documents))
    assert decode(7, documents_of(*line)) == delivery
    assert encode(delivery) == documents_of(*line)


def test_what_is_left_of_a_delivery_keeps_its_nonce() -> None:
    delivery = pack(1, [recorded("1", [1]), recorded("2", [2])], 1, nonce="5f0c")
    left = decode(2, encode(delivery))._replace(documents={1: delivery.documents[1]})
    assert json.loads(encode(left))["nonce"] == decode(2, encode(left)).nonce == "5f0c"
    assert "nonce" not in encode(pack(1, [recorded("1", [1])], 1))


def test_places_follow_each_other_unless_the_entry_specifies_others() -> None:
    delivery = pack(1, list(map(simple, range(1, 5))), 4, first="S")
    assert [event.place for event in delivery.events()] == [1, 2, 3, 4]
    left = delivery._replace(
        documents={1: [event for event in delivery.events() if event.place != 2]}
    )
    assert encode(left) == documents_of(
        {
            "number": 1,
            "rows": [[1, 1], [3, 4]],
            "counts": [1, 1, 1],
            "place": 1,
            "events": {"1": {"place": 3}},
        },
        first="S",
    )
    assert decode(1, encode(left)) == left


def test_a_delivery_of_another_format_gets_places_in_its_order() -> None:
    delivery = numbered(pack(1, list(map(simple, range(1, 4))), 2), "S")
    assert ([event.place for event in delivery.events()], delivery.first) == ([1, 2, 3], "S")


BROKEN = [
    "",
    "{",
    "1",
    "null",
    "[1]",
    "[[1]]",
    '[[1,[["1",[[1,2]]]]]]',
    '{"documents":[]}',
    '{"line_format":1}',
    '{"line_format":1,"documents":[1]}',
    documents_of({"number": 1}),
    documents_of({"number": 1, "rows": [[1, 2]], "counts": [1]}),
    documents_of({"number": 1, "rows": [[1, 2]], "counts": [2, 1]}),
    documents_of({"number": 1, "rows": [[1, 2]], "counts": [2, 0]}),
    documents_of({"number": 1, "rows": [[1]], "counts": [1]}),
    documents_of({"number": 1, "rows": [["a", 1]], "counts": [1]}),
    documents_of({"number": "a", "rows": [[1, 1]], "counts": [1]}),
    documents_of({"number": 1, "rows": [[1, 1]], "counts": [1], "events": [1]}),
]


@pytest.mark.parametrize("line", BROKEN)
def test_a_line_that_is_not_ours_is_refused_by_its_number(line: str) -> None:
    with pytest.raises(DatabaseError, match="in-flight entry 12 cannot be read"):
        decode(12, line)


def test_a_line_of_a_newer_version_stops_the_start_with_one_clear_line() -> None:
    with pytest.raises(
        DatabaseError,
        match="in-flight entry 12 is of format 2: a newer version of eventlog wrote it",
    ):
        decode(12, '{"line_format":2,"documents":[]}')


ids = st.lists(st.integers(1, 60), unique=True).map(sorted)
events = st.builds(
    lambda own, special_id, dropped, attempts, place: recorded(
        str(own[-1] if special_id else own[0]),
        own,
        [one for one in own if one in set(dropped)],
        attempts,
        place,
    ),
    st.lists(st.integers(1, 2**63 - 1), unique=True, min_size=1),
    st.booleans(),
    ids,
    st.integers(1, 5),
    st.integers(1, 9),
)


@given(
    st.lists(st.lists(events, min_size=1), max_size=5),
    st.sampled_from(["", "S"]),
    st.sampled_from([0, 11]),
)
def test_any_delivery_comes_back_from_its_line(
    documents: list[list[Outgoing]], first: str, last_number: int
) -> None:
    if not first:
        documents = [[event._replace(place=0) for event in own] for own in documents]
    by_number = {number * 2: own for number, own in enumerate(documents, 1)}
    delivery = Delivery(3, by_number, first, last_number=last_number)
    assert decode(3, encode(delivery)) == delivery


def rest_of(delivery: Delivery, left: Mapping[int, Sequence[Outgoing]]) -> Delivery:
    """The delivery as its entry records it when all other events have their results."""
    outbox = Outbox[Outgoing](Rules())
    add_recorded(outbox, delivery, {}, NO_CLOCK, inf)
    for number, own in delivery.documents.items():
        for event in own:
            if event not in left.get(number, ()):
                outbox.skip(event.sent_id, SUCCESS)
    changed = outbox.record().get(delivery.number)
    return delivery if changed is None else entry_of(delivery, *changed, outbox, NO_CLOCK)


def left_of(delivery: Delivery, *ids: int) -> dict[int, list[Outgoing]]:
    return {
        number: [event for event in own if event.ids[0] in ids]
        for number, own in delivery.documents.items()
    }


def numbers_of(delivery: Delivery) -> dict[int, list[str]]:
    return {number: [event.event_id for event in own] for number, own in delivery.documents.items()}


def test_what_is_left_of_a_document_and_all_after_it_get_new_numbers() -> None:
    delivery = pack(1, list(map(simple, range(1, 9))), 2)
    rest = rest_of(delivery, left_of(delivery, 1, 2, 4, 7, 8))
    assert numbers_of(rest) == {1: ["1", "2"], 5: ["4"], 6: ["7", "8"]}


def test_a_document_of_which_nothing_is_answered_keeps_its_number() -> None:
    delivery = pack(1, list(map(simple, range(1, 7))), 2)
    assert numbers_of(rest_of(delivery, left_of(delivery, 1, 2, 5, 6))) == {
        1: ["1", "2"],
        3: ["5", "6"],
    }


def test_the_number_of_a_document_that_was_answered_is_not_given_again_after_a_restart() -> None:
    delivery = pack(1, list(map(simple, range(1, 7))), 2)
    delivery = decode(1, encode(rest_of(delivery, left_of(delivery, 1, 2, 3, 4))))
    delivery = decode(1, encode(rest_of(delivery, left_of(delivery, 1, 2, 3, 4))))
    rest = rest_of(delivery, left_of(delivery, 2, 3, 4))
    assert numbers_of(rest) == {4: ["2"], 5: ["3", "4"]}


@given(st.lists(st.sets(st.integers(1, 12)), max_size=6))
def test_whatever_is_answered_a_number_never_means_two_sets_of_events(
    answered: list[set[int]],
) -> None:
    delivery = pack(1, list(map(simple, range(1, 13))), 3)
    sent: dict[int, set[str]] = {}
    for now in answered:
        for number, own in delivery.documents.items():
            ids = {event.event_id for event in own if event.ids[0] in now}
            assert not (ids and number in sent)
            if ids:
                sent[number] = ids
        left = left_of(delivery, *(set(range(1, 13)) - now))
        if not any(left.values()):
            break
        order = [event.ids[0] for own in left.values() for event in own]
        delivery = decode(1, encode(rest_of(delivery, left)))
        assert [event.ids[0] for event in delivery.events()] == order
        assert list(delivery.documents) == sorted(delivery.documents)


@given(ids)
def test_ranges_hold_the_ids_and_no_others(given_ids: list[int]) -> None:
    ranges = to_ranges(given_ids)
    assert [i for first, last in ranges for i in range(first, last + 1)] == given_ids
    assert all(after[0] > before[1] + 1 for before, after in pairwise(ranges))


def test_a_line_keeps_the_order_of_the_queue() -> None:
    # With handle_future_events record_ids do not ascend; the event is rebuilt from rows in this
    # order.
    order = [row(record_id, 2, column="fname", new="x") for record_id in range(20_000, 0, -1)]
    (group,) = fold(good(order), 1000, 0)
    (event,) = decode(1, encode(pack(1, [build_event(group, EventOptions())], 1))).events()
    assert (event.event_id, list(event.ids)) == ("20000", list(range(20_000, 0, -1)))


EPOCH = "202611212045009f3c01ab"


def test_a_line_keeps_the_epoch_that_its_events_were_named_under() -> None:
    options = EventOptions(id_suffix=epoch_suffix(EPOCH))
    events = [build_event(good([row(n, 2, column="fname", new="x")]), options) for n in (1, 2)]
    line = encode(pack(7, events, 1, epoch=EPOCH), is_plain=True)
    assert json.loads(line) == {
        "line_format": 1,
        "epoch": EPOCH,
        "documents": [{"number": n, "rows": [[n, n]], "counts": [1]} for n in (1, 2)],
    }
    delivery = decode(7, line)
    assert delivery.epoch == EPOCH
    assert [event.sent_id for event in delivery.events()] == [f"1.e{EPOCH}", f"2.e{EPOCH}"]
    again = [event._replace(attempts=2) for event in delivery.events()]
    assert again[0].sent_id == f"1.e{EPOCH}.2"
    assert decode(7, encode(delivery._replace(documents={1: again}))).documents == {1: again}


def test_a_line_of_before_the_raise_keeps_its_ids() -> None:
    event = build_event(good([row(1, 2, column="fname", new="x")]), EventOptions())
    assert [one.event_id for one in decode(7, encode(pack(7, [event], 1))).events()] == ["1"]
