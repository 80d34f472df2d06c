"""Windows: what is taken, what is held back, and that their size changes nothing (spec/event-log.md
8.1, 8.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from fake_log import fake_log
from fake_publisher import OUTPUT
from hypothesis import example, given, settings
from hypothesis import strategies as st
from samples import CATALOG, row, usr
from shared import examples

from eventlog.core.catalog import ObjectId
from eventlog.core.rows.events import ids_of
from eventlog.core.rows.fold import Group
from eventlog.model import ALL, LOG_COLUMNS, LogRow
from eventlog.publisher.context.context import Context, Counters, PublisherOptions
from eventlog.publisher.feeds.queue import WindowResult, read_window, split_groups
from eventlog.publisher.ledger.ledger import ledger_of
from eventlog.publisher.send.cycle import dry_run
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.log_operations import Window, counted_rows
from eventlog.xds.reader import read_events


@dataclass
class Queue:
    """Rows N in memory."""

    rows: list[LogRow]
    options: PublisherOptions = field(default_factory=PublisherOptions)

    def __post_init__(self) -> None:
        table = LogTable(None, "eventlog", LOG_COLUMNS)
        self.log = fake_log(table, lambda: self.rows)

    @property
    def reads(self) -> list[Window]:
        return self.log.reads

    @property
    def context(self) -> Context:
        return Context(
            log=self.log,
            ledger=ledger_of(self.log),
            catalog=CATALOG,
            options=self.options,
            output=OUTPUT,
            counters=Counters(),
        )

    def take(
        self,
        first: int = 1,
        in_flight: frozenset[int] = frozenset(),
        parked: set[ObjectId] | None = None,
    ) -> WindowResult:
        return read_window(self.context, first, None, in_flight, parked or set())

    def one_scan(
        self,
        in_flight: frozenset[int] = frozenset(),
        parked: set[ObjectId] | None = None,
        last: int | None = None,
    ) -> list[WindowResult]:
        """All windows of a scan; what each gives is marked before the next is read."""
        windows: list[WindowResult] = []
        first: int | None = 1
        while first is not None:
            taken = read_window(self.context, first, last, in_flight, parked or set())
            windows.append(taken)
            done = {record_id for group in taken.groups for record_id in ids_of(group)}
            done |= {bad.record_id for bad in taken.invalid} | set(taken.loopback)
            assert done or taken.next_first is None or taken.next_first > first, (
                "a window that makes no progress"
            )
            self.rows = [one for one in self.rows if one.record_id not in done]
            first = taken.next_first
        return windows


def queue(text: str, **options: Any) -> Queue:
    """``"1: 2 A, 2: 4 B"``: record_id, type and object."""
    parsed = (part.replace(":", "").split() for part in text.split(",") if part)
    rows = [row(int(i), int(kind), f"idu={ord(one)}", "fname", new="x") for i, kind, one in parsed]
    return Queue(rows, replace(PublisherOptions(), **options))


def ids(groups: list[Group]) -> list[list[int]]:
    return [ids_of(group) for group in groups]


def test_the_example_of_the_specification() -> None:
    taken = queue("1: 2 A, 2: 4 B, 3: 2 C, 4: 2 C, 5: 2 A", query_limit=4).take()
    assert (ids(taken.groups), taken.next_first) == ([[1, 5], [2], [3, 4]], None)
    held_back = queue("1: 4 A, 2: 4 B, 3: 2 C, 4: 2 C, 5: 2 A", query_limit=4)
    taken = held_back.take()
    assert (ids(taken.groups), taken.next_first) == ([[1], [2]], 3)
    assert ids(held_back.take(3).groups) == [[3, 4], [5]]


def test_a_window_that_is_not_full_holds_nothing_back() -> None:
    taken = queue("1: 2 A, 2: 2 B", query_limit=3).take()
    assert (ids(taken.groups), taken.next_first) == ([[1], [2]], None)


def test_an_empty_queue_gives_nothing() -> None:
    assert queue("").take() == WindowResult([], [], [], None)


def test_the_next_window_begins_at_the_first_row_that_is_held_back() -> None:
    # 3 stands before 4, which is sent with the group of 1, but after the first row that waits.
    taken = queue("1: 2 A, 2: 2 B, 3: 4 A, 4: 2 C", query_limit=3, fold_distance=10).take()
    assert (ids(taken.groups), taken.next_first) == ([[1]], 2)


def test_a_first_group_that_is_open_is_read_on_by_whole_windows() -> None:
    wide = queue(
        ", ".join(f"{i}: 2 A" for i in range(1, 12)), query_limit=3, fold_distance=1, fold_span=0
    )
    taken = wide.take()
    assert (ids(taken.groups), taken.next_first) == ([list(range(1, 12))], None)
    assert [(window.first, window.limit) for window in wide.reads] == [(1, 3), (1, None)]


def test_rows_in_delivery_and_rows_left_to_their_user_do_not_count() -> None:
    """The publisher and Spark ask the same function."""
    rows = [
        (record_id, 4, user, "usr", "idu=1", None, None, None)
        for record_id, user in ((1, "app"), (2, "me  "), (3, None), (4, "me"))
    ]
    assert [row[0] for row in counted_rows(rows, frozenset())] == [1, 2, 3, 4]
    assert [row[0] for row in counted_rows(rows, frozenset({3}))] == [1, 2, 4]
    assert [row[0] for row in counted_rows(rows, frozenset({1}), "me")] == [3]


def test_rows_in_delivery_are_not_folded_again_and_do_not_use_up_the_window() -> None:
    taken = queue("1: 2 A, 2: 2 A, 3: 2 A, 4: 4 B, 5: 4 C", query_limit=2).take(
        in_flight=frozenset({1, 2, 3})
    )
    assert ids(taken.groups) == [[4], [5]]


def test_rows_of_parked_objects_are_read_past() -> None:
    of_a = {(usr(), f"idu={ord('A')}")}
    parked = queue("1: 2 A, 2: 2 A, 3: 2 A, 4: 4 B, 5: 4 C", query_limit=2)
    assert ids(parked.take(parked=of_a).groups) == [[4], [5]]


@pytest.mark.promise("option publisher.driver_user")
def test_loopback_rows_that_are_left_never_count() -> None:
    rows = [row(i, 4, perpetrator="me") for i in range(1, 9)] + [row(9, 4)]
    options = PublisherOptions(query_limit=2, driver_user="me", leave_loopback=True)
    taken = Queue(rows, options).take()
    assert (ids(taken.groups), taken.loopback) == ([[9]], [])


def test_invalid_and_loopback_rows_are_returned_with_the_groups() -> None:
    rows = [row(1, 9), row(2, 4, perpetrator="me"), row(3, 4)]
    taken = Queue(rows, PublisherOptions(driver_user="me")).take()
    assert ([bad.record_id for bad in taken.invalid], taken.loopback, ids(taken.groups)) == (
        [1],
        [2],
        [[3]],
    )


def test_a_window_of_invalid_rows_only_is_given_out_by_itself() -> None:
    rows = [row(i, 9) for i in range(1, 5)] + [row(5, 4)]
    windows = Queue(rows, PublisherOptions(query_limit=2)).one_scan()
    assert [[bad.record_id for bad in taken.invalid] for taken in windows] == [[1, 2], [3, 4], []]


def test_without_limit_the_queue_is_read_in_bounded_windows() -> None:
    unlimited = queue("1: 2 A", query_limit=0)
    unlimited.take()
    assert [(window.first, window.limit) for window in unlimited.reads] == [(1, 10_000)]


def test_nothing_beyond_the_tail_of_the_scan_is_read() -> None:
    later = queue("1: 4 A, 2: 4 B, 3: 4 C")
    taken = read_window(later.context, 1, 2, frozenset(), set())
    assert (ids(taken.groups), taken.next_first) == ([[1], [2]], None)


def test_a_group_that_a_later_row_may_join_is_deferred_at_the_end_of_a_scan() -> None:
    later = queue("1: 4 A, 2: 2 B, 3: 4 C, 4: 2 B")
    taken = read_window(later.context, 1, 3, frozenset(), set())
    assert (ids(taken.groups), taken.next_first) == ([[1]], None)


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ([], 3, []),
        ([1, 1, 1, 1], 3, [3, 1]),
        ([2, 2], 3, [1, 1]),
        ([5, 1], 3, [1, 1]),
        ([1, 5, 1], 3, [1, 1, 1]),
    ],
)
def test_groups_are_split_into_deliveries_by_their_rows(
    sizes: list[int], most: int, expected: list[int]
) -> None:
    groups: list[Group] = [cast(Any, [None] * size) for size in sizes]
    runs = list(split_groups(groups, most, 1))
    assert [len(run) for run in runs] == expected
    assert [group for run in runs for group in run] == groups


@pytest.mark.parametrize(("most", "expected"), [(6, [1, 1]), (7, [2]), (8, [2])])
def test_groups_of_at_most_so_many_bytes_go_together(most: int, expected: list[int]) -> None:
    groups: list[Group] = [cast(Any, [(one, *[None] * 5)]) for one in (1, 2)]
    runs = split_groups(groups, 10, most, {1: 3, 2: 4})
    assert [len(run) for run in runs] == expected


# --- windows do not change the result -------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.integers(1, 9),
        st.sampled_from([1, 2, 2, 2, 3, 4, 5, 6, 7, 8, 8, 9]),  # 9: an invalid row
        st.sampled_from("AAABBCDEP"),  # P is parked
        st.sampled_from(["app", "app", "app", "me"]),
        st.booleans(),
    ),
    max_size=60,
)


def rows_of(drawn: list[tuple[int, int, str, str, bool]]) -> tuple[list[LogRow], frozenset[int]]:
    rows, in_flight, record_id = [], set(), 0
    for gap, kind, name, perpetrator, flies in drawn:
        record_id += gap
        rows.append(
            row(record_id, kind, f"idu={ord(name)}", "fname", new="x", perpetrator=perpetrator)
        )
        if (
            flies and name == "E"
        ):  # all rows of an object in flight were recorded before, or come later
            in_flight.add(record_id)
    return rows, frozenset(in_flight)


@settings(max_examples=examples(300))
@given(
    steps,
    st.integers(1, 70),
    st.sampled_from([0, 1, 2, 3, 5, 8, 13, 40, 1000]),
    st.sampled_from([0, 1, 2, 5, 10, 30, 10000]),
    st.booleans(),
)
def test_any_query_limit_gives_the_same_events_in_the_same_order(
    drawn: list[tuple[int, int, str, str, bool]], limit: int, distance: int, span: int, leave: bool
) -> None:
    rows, in_flight = rows_of(drawn)
    parked = {(usr(), f"idu={ord('P')}")}

    def groups(query_limit: int) -> tuple[list[list[int]], list[int], list[int]]:
        options = PublisherOptions(
            query_limit=query_limit,
            fold_distance=distance,
            fold_span=span,
            driver_user="me",
            leave_loopback=leave,
        )
        windows = Queue(list(rows), options).one_scan(in_flight, parked)
        return (
            [group for taken in windows for group in ids(taken.groups)],
            sorted({bad.record_id for taken in windows for bad in taken.invalid}),
            sorted({record_id for taken in windows for record_id in taken.loopback}),
        )

    assert groups(limit) == groups(len(rows) + 1)


@settings(max_examples=examples(100))
@example([(1, 2, "A", "app", False), (1, 2, "A", "app", False)], 1, 1, 1000, 10000)
@given(
    steps,
    st.integers(1, 70),
    st.integers(1, 60),
    st.sampled_from([0, 1, 2, 3, 5, 8, 1000]),
    st.sampled_from([0, 1, 2, 5, 10, 30, 10000]),
)
def test_a_scan_that_ends_before_the_queue_makes_no_other_groups(
    drawn: list[tuple[int, int, str, str, bool]], limit: int, last: int, distance: int, span: int
) -> None:
    rows, _ = rows_of(drawn)
    options = PublisherOptions(query_limit=limit, fold_distance=distance, fold_span=span)
    log = Queue(list(rows), options)
    groups = [
        group
        for end in (last, None)
        for taken in log.one_scan(last=end)
        for group in ids(taken.groups)
    ]
    whole = Queue(list(rows), replace(options, query_limit=len(rows) + 1)).take()
    assert sorted(groups) == sorted(ids(whole.groups))


@settings(max_examples=examples(100))
@example([(1, 2, "A", "app", False), (1, 2, "B", "app", False), (1, 2, "A", "app", False), (1, 4,
          "A", "app", False), (1, 4, "C", "app", False)], 4, 1000, 10000)  # fmt: skip
@given(steps, st.integers(1, 20), st.sampled_from([0, 2, 5, 1000]), st.sampled_from([0, 5, 10000]))
def test_a_dry_run_prints_what_a_run_would_send(
    drawn: list[tuple[int, int, str, str, bool]], limit: int, distance: int, span: int
) -> None:
    from fake_publisher import FakePublisher, Receiver

    # Only types that need nothing but the log.
    rows = [one for one in rows_of(drawn)[0] if one.event_type in (1, 2, 3, 4)]
    options = PublisherOptions(
        query_limit=limit,
        fold_distance=distance,
        fold_span=span,
        driver_user="me",
        batch_size=1,
        retry_initial=0,
    )
    fake = FakePublisher(options)
    fake.log(rows)
    printed = list(dry_run(fake.context()))
    assert set(fake.statuses().values()) <= {"N"}
    receiver = Receiver()
    fake.run(receiver)
    fake.close()
    ids = [event.event_id for document in printed for event in read_events(document).events]
    assert ids == [event_id for sent in receiver.sent for event_id in sent]


def test_remarks_come_with_the_rows_that_are_given() -> None:
    bad_old = [
        row(i, 2, f"idu={key}", "photo", old="*", new="qqo=") for i, key in ((1, 1), (2, 2), (3, 3))
    ]
    rows = [
        bad_old[0],
        row(2, 4, "idu=9"),
        bad_old[1]._replace(record_id=3),
        bad_old[2]._replace(record_id=2000),
    ]
    windows = Queue(rows, PublisherOptions(query_limit=3, fold_distance=2)).one_scan()
    told = [[remark.record_id for remark in taken.remarks] for taken in windows]
    given = [
        [record_id for group in taken.groups for record_id, _, _, _, old, _ in group if old is ALL]
        for taken in windows
    ]
    assert len(windows) > 1
    assert told == given
    assert [record_id for ids in told for record_id in ids] == [1, 3, 2000]
