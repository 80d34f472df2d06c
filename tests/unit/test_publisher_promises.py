"""The promises of spec/event-log.md 12 on random histories, answers and crashes, without a server.

Each history is played into tables, logged as triggers would, and published while it is still going
on. A receiver that remembers the event-ids it has applied must end with exactly what is in the
tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from fake_publisher import Contents, FakePublisher, Killed, Receiver, with_options
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import row

from eventlog.model import Event, LogRow
from eventlog.publisher.send.sending import DeliveryResult

COLUMNS = ("fname", "lname")
PHONE = "usr_phone.phoneno"

changes = st.lists(
    st.tuples(
        st.integers(1, 3),  # object
        st.sampled_from(["put", "put", "put", "delete", "phone"]),
        st.tuples(st.sampled_from([None, "", "a", "b"]), st.sampled_from([None, "x", "y"])),
        st.sampled_from(["field", "field", "remove_all", "field_query_back", "row_query_back"]),
        st.integers(1, 4),  # gap between record_ids
    ),
    max_size=30,
)
options = st.fixed_dictionaries(
    {
        "batch_size": st.sampled_from([1, 2, 3, 128]),
        "query_limit": st.sampled_from([1, 2, 5, 100]),
        "delivery_rows": st.sampled_from([1, 3, 100]),
        "mark_interval": st.sampled_from([0, 1000]),
        "fold_distance": st.sampled_from([0, 2, 5, 1000]),
        "fold_span": st.sampled_from([0, 3, 10000]),
        "park": st.booleans(),
        "delete_from_log": st.booleans(),
        "concurrency": st.sampled_from([1, 1, 3]),
    }
)

TYPES = {
    "field": (1, 2),
    "remove_all": (1, 3),
    "field_query_back": (7, 8),
    "row_query_back": (5, 6),
}


class Tables:
    """The tables, and what triggers would log of a change to them (spec/triggers.md 2)."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.record_id = 0

    def change(
        self, number: int, what: str, values: tuple[str | None, str | None], style: str, gap: int
    ) -> Iterator[LogRow]:
        key = f"idu={number}"
        insert, update = TYPES[style]
        before = self.contents.get(key)
        if what == "delete":
            if before is not None:
                del self.contents[key]
                yield row(self._next(gap), 4, key)
        elif what == "phone":
            if before is None:
                return
            own = before[PHONE]
            value = values[1] or "5"
            by_value = style in ("field", "remove_all")
            if value in own:
                own.remove(value)
                yield self._child(gap, key, value if by_value else None, None, by_value)
            else:
                own.append(value)
                yield self._child(gap, key, None, value if by_value else None, by_value)
        elif before is None:
            self.contents[key] = {"fname": [values[0]], "lname": [values[1]], PHONE: []}
            if insert == 5:
                yield row(self._next(gap), 5, key)
                return
            named = [
                (column, new)
                for column, new in zip(COLUMNS, values, strict=True)
                if new is not None
            ]
            for column, new in named or [("fname", None)]:
                yield row(self._next(gap), insert, key, column, None, new if insert == 1 else None)
        else:
            changed = [
                (c, before[c][0], new)
                for c, new in zip(COLUMNS, values, strict=True)
                if before[c][0] != new
            ]
            for column, _, new in changed:
                before[column] = [new]
            if changed and update == 6:
                yield row(self._next(gap), 6, key)
                return
            for column, old, new in changed:
                by_value = update in (2, 3)
                yield row(
                    self._next(gap),
                    update,
                    key,
                    column,
                    old if by_value else None,
                    new if by_value else None,
                )

    def _child(
        self, gap: int, key: str, old: str | None, new: str | None, by_value: bool
    ) -> LogRow:
        return row(self._next(gap), 2 if by_value else 8, key, PHONE, old, new)

    def _next(self, gap: int) -> int:
        self.record_id += gap
        return self.record_id


def state_of(contents: Contents) -> dict[str, dict[str, set[str]]]:
    """What a receiver should have of these objects."""
    return {
        f"{key},table=usr,schema=indirect": {
            name: present
            for name, values in columns.items()
            if (present := {v for v in values if v is not None})
        }
        for key, columns in contents.items()
    }


def publish(fake: FakePublisher, receiver: Receiver, history: list[Any], pace: int) -> None:
    """Play the history, a few changes between any two cycles, until everything is done; start again
    when killed.
    """
    tables = Tables(fake.contents)
    waiting = list(history)
    state = None
    for _ in range(2000):
        for change in waiting[:pace]:
            fake.log(tables.change(*change))
        del waiting[:pace]
        try:
            if state is None:
                state = fake.start()
            ended = fake.cycle(state, receiver)
        except Killed:
            fake.connection.rollback()
            state = None
            continue
        assert ended.result in (
            DeliveryResult.DONE,
            DeliveryResult.UNAVAILABLE,
            DeliveryResult.RETRY,
        )
        if (
            not waiting
            and ended.result is DeliveryResult.DONE
            and not ended.more
            and not state.outbox.count
        ):
            return
    raise AssertionError("not done")


def check_end(fake: FakePublisher, receiver: Receiver, deleted: bool) -> None:
    assert receiver.state == state_of(fake.contents)
    assert set(fake.statuses().values()) <= (set() if deleted else {"S"})
    assert fake.in_flight() == {}
    assert fake.errors() == []


@pytest.mark.promise("readme Each event is sent at least once")
@pytest.mark.parametrize("examples", [12, pytest.param(600, marks=pytest.mark.night)])
def test_whatever_is_sent_again_the_receiver_ends_with_what_is_in_the_tables(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(changes, options, st.integers(1, 8), st.randoms(use_true_random=False))
    def hold(history: list[Any], chosen: dict[str, Any], pace: int, random: Any) -> None:
        with closing(FakePublisher(with_options(**chosen))) as fake:

            def judge(event: Event) -> str:
                return str(
                    random.choice(["success", "success", "warning", "retry", "away", "lost"])
                )

            receiver = Receiver(judge)
            publish(fake, receiver, history, pace)
            # A warning leaves a W, which is as good as S.
            fake.connection.exec_driver_sql("UPDATE eventlog SET status = 'S' WHERE status = 'W'")
            fake.connection.commit()
            check_end(fake, receiver, chosen["delete_from_log"])

    hold()


@pytest.mark.promise("readme Nothing is lost")
@pytest.mark.parametrize("examples", [8, pytest.param(600, marks=pytest.mark.night)])
def test_whenever_the_publisher_is_killed_the_receiver_ends_with_what_is_in_the_tables(
    examples: int,
) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(changes, options, st.integers(1, 8), st.randoms(use_true_random=False))
    def hold(history: list[Any], chosen: dict[str, Any], pace: int, random: Any) -> None:
        # In the thread of a sink nobody can be killed alone.
        with closing(FakePublisher(with_options(**{**chosen, "concurrency": 1}))) as fake:

            def kill(_step: str) -> None:
                if random.random() < 0.15:
                    raise Killed

            fake.step = kill
            receiver = Receiver(
                lambda event: str(random.choice(["success", "success", "success", "away", "lost"]))
            )
            receiver.step = kill
            publish(fake, receiver, history, pace)
            check_end(fake, receiver, chosen["delete_from_log"])

    hold()
