"""In-flight records and their line (spec/event-log.md 7.4, 10)."""

from __future__ import annotations

from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import good, row

from eventlog.checks import BadRow
from eventlog.errors import DatabaseError
from eventlog.events import EventOptions, Outcome, apply_precedence, build_event
from eventlog.fold import fold
from eventlog.model import Event
from eventlog.publisher.flight import Envelope, Flight, Record, Sending, decode, encode, pack, record_of
from eventlog.sql.windows import to_ranges


def sending(event_id: str, sendings: int = 1) -> Sending:
    return Sending(Record(event_id, ((int(event_id), int(event_id)),), (), sendings), None, None, None)


def outcome(
    contributed: list[int],
    dropped: list[int] | None = None,
    gone: list[int] | None = None,
    bad: list[int] | None = None,
) -> Outcome:
    event = Event("delete", "usr", "idu=1", str(min(contributed)))
    return Outcome(
        event, contributed, dropped or [], gone or [], [], [BadRow(i, "bad_value", "") for i in bad or ()], 0
    )


RECORDS = [
    (outcome([1]), ((1, 1),), ()),
    (outcome([1, 2, 3]), ((1, 3),), ()),
    (outcome([1, 3]), ((1, 1), (3, 3)), ()),  # row 2, committed late, belongs to no range
    (outcome([2, 6], [1, 3, 5], [7], [4]), ((1, 7),), ((1, 1), (3, 3), (5, 5))),
    (outcome([10], [5], [7], [1]), ((1, 1), (5, 5), (7, 7), (10, 10)), ((5, 5),)),
]


@pytest.mark.parametrize(("made", "rows", "dropped"), RECORDS)
def test_a_record_names_exactly_the_rows_of_its_event(
    made: Outcome, rows: tuple[tuple[int, int], ...], dropped: tuple[tuple[int, int], ...]
) -> None:
    record = record_of(made)
    assert (record.rows, record.dropped, record.sendings) == (rows, dropped, 1)
    assert made.event is not None
    assert record.sent_id == made.event.event_id


def test_the_record_of_a_new_event_is_the_one_that_its_line_gives_back() -> None:
    (group,) = fold(good([row(1, 2, column="fname", new="x"), row(3, 8, column="fname")]), 10, 0)
    made = build_event(apply_precedence(group, EventOptions()), {"fname": ["x"]}, EventOptions())
    flight = pack(1, [Sending(record_of(made), None, made.event, made)], 1)
    (envelope,) = decode(1, encode(flight)).envelopes
    assert envelope.sendings[0].record == record_of(made)
    assert hash(envelope.sendings[0].record) == hash(record_of(made))


@pytest.mark.parametrize(("sendings", "sent_id"), [(1, "7"), (2, "7.2"), (3, "7.3"), (12, "7.12")])
def test_an_event_that_is_sent_again_under_a_changed_id_is_numbered(sendings: int, sent_id: str) -> None:
    assert sending("7", sendings).record.sent_id == sent_id


def test_a_group_without_event_has_no_record() -> None:
    with pytest.raises(ValueError, match="no record"):
        record_of(Outcome(None, [], [1], [], [], [], 0))


@pytest.mark.parametrize(
    ("count", "size", "sizes"), [(0, 3, []), (1, 3, [1]), (3, 3, [3]), (4, 3, [3, 1]), (3, 1, [1, 1, 1])]
)
def test_envelopes_hold_up_to_batch_size_events_in_order(count: int, size: int, sizes: list[int]) -> None:
    sendings = [sending(str(number)) for number in range(1, count + 1)]
    flight = pack(9, sendings, size)
    assert flight.number == 9
    assert [envelope.number for envelope in flight.envelopes] == list(range(1, len(sizes) + 1))
    assert [len(envelope.sendings) for envelope in flight.envelopes] == sizes
    assert [one for envelope in flight.envelopes for one in envelope.sendings] == sendings


LINES = [
    ('[[1,[["1",[[1,2]]]]]]', [(1, [Record("1", ((1, 2),))])]),
    ('[[1,[["5",[[5,9],[11,11]],[[6,6]]]]]]', [(1, [Record("5", ((5, 9), (11, 11)), ((6, 6),))])]),
    ('[[3,[["5",[[5,5]],[],2]]]]', [(3, [Record("5", ((5, 5),), (), 2)])]),
    (
        '[[1,[["1",[[1,1]]],["2",[[2,2]]]]],[4,[["3",[[3,3]]]]]]',
        [(1, [Record("1", ((1, 1),)), Record("2", ((2, 2),))]), (4, [Record("3", ((3, 3),))])],
    ),
    ("[]", []),
]


@pytest.mark.parametrize(("line", "envelopes"), LINES)
def test_a_line_is_json_of_envelopes_and_records(line: str, envelopes: list[tuple[int, list[Record]]]) -> None:
    flight = Flight(
        7,
        tuple(
            Envelope(number, tuple(Sending(record, None, None, None) for record in records))
            for number, records in envelopes
        ),
    )
    assert decode(7, line) == flight
    assert encode(flight) == line


BROKEN = [
    "",
    "{",
    "1",
    "null",
    "[1]",
    "[[1]]",
    '[["a",[]]]',
    '[[1,[["5"]]]]',
    '[[1,[["5",[1]]]]]',
    '[[1,[["5",[["a",1]]]]]]',
    '[[1,[["5",[[1,2,3]]]]]]',
    '[[1,[["5",[],[],1,1]]]]',
]


@pytest.mark.parametrize("line", BROKEN)
def test_a_line_that_is_not_ours_is_refused_by_its_number(line: str) -> None:
    with pytest.raises(DatabaseError, match="in-flight line 12 cannot be read"):
        decode(12, line)


ids = st.lists(st.integers(1, 60), unique=True).map(sorted)
records = st.builds(
    lambda own, dropped, sendings: Record(
        str(own[0]), tuple(to_ranges(own)), tuple(to_ranges([i for i in own if i in set(dropped)])), sendings
    ),
    st.lists(st.integers(1, 2**63 - 1), unique=True, min_size=1).map(sorted),
    ids,
    st.integers(1, 5),
)


@given(st.lists(st.lists(records, min_size=1), max_size=5))
def test_any_flight_comes_back_from_its_line(envelopes: list[list[Record]]) -> None:
    flight = Flight(
        3,
        tuple(
            Envelope(number * 2, tuple(Sending(record, None, None, None) for record in own))
            for number, own in enumerate(envelopes, 1)
        ),
    )
    assert decode(3, encode(flight)) == flight


@given(ids)
def test_ranges_hold_the_ids_and_no_others(given_ids: list[int]) -> None:
    ranges = to_ranges(given_ids)
    assert [i for first, last in ranges for i in range(first, last + 1)] == given_ids
    assert all(after[0] > before[1] + 1 for before, after in pairwise(ranges))


def test_a_record_in_the_order_of_the_queue_takes_time_by_its_rows() -> None:
    order = list(range(20_000, 0, -1))
    begun = process_time()
    record = record_of(outcome(order[::2], order[1::2]), order)
    assert process_time() - begun < 0.5  # it was 2 s by the places of a list; now a twentieth of one
    assert record.rows == tuple(to_ranges(order))
