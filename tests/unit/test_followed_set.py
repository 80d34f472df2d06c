"""Gaps that are passed over and closed, whatever happens between any two statements
(spec/event-log.md 13.1).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from eventlog.core.ranges import RecordSet, to_ranges
from eventlog.sql.port import open_writers
from eventlog.sql.port.log_operations import ANY_STATUS, Window
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers import followed_set
from eventlog.sql.readers.consumers import shown_ids
from eventlog.sql.readers.followed_set import FollowedSet

WRITERS = 6
HAPPENS = {"draw": 10, "commit": 4, "let go": 8, "roll back": 1, "back to savepoint": 1}


@dataclass
class Transaction:
    """``drawn``: its numbers. Its rows are visible a moment before its locks are gone."""

    name: str
    drawn: list[int] = field(default_factory=list)
    visible: bool = False


class Database:
    """A log in which things happen between any two statements, as ``chance`` has it."""

    last_record_id = 2**63 - 1

    def __init__(self, chance: random.Random | None = None) -> None:
        self.chance = chance
        self.number = 0
        self.open: dict[int, Transaction] = {}
        self.rows: set[int] = set()
        self.transactions: list[Transaction] = []
        self.read: list[Window] = []

    def go_on(self) -> None:
        while self.chance is not None and self.chance.random() < 0.5:
            what, who = (
                self.chance.choices(list(HAPPENS), list(HAPPENS.values()))[0],
                self.chance.randint(1, WRITERS),
            )
            # The first one stays open for long.
            if who > 1 or what == "draw" or self.chance.random() < 0.1:
                self.do(what, who)

    def do(self, what: str, who: int) -> None:
        current = self.open.get(who)
        if what == "draw" and current is None:
            current = self.open[who] = Transaction(f"{who}/{len(self.transactions)}")
            self.transactions.append(current)
        if current is None or (current.visible and what != "let go"):
            return
        if what == "draw":
            self.number += 1
            current.drawn.append(self.number)
        elif what == "commit":
            self.rows.update(current.drawn)
            current.visible = True
        elif what == "back to savepoint":
            current.drawn.clear()
        elif what == "roll back" or current.visible:
            del self.open[who]

    # The log, and its database

    @property
    def db(self) -> Database:
        return self

    @property
    def dialect(self) -> Database:
        return self

    def open_writers(self) -> frozenset[str]:
        self.go_on()
        return frozenset(one.name for one in self.open.values())

    def are_open(self, writers: frozenset[str]) -> bool:
        self.go_on()
        return writers <= {one.name for one in self.open.values() if not one.visible}

    def read_fields(self, window: Window, fields: Sequence[str]) -> list[Any]:
        self.go_on()
        self.read.append(window)
        assert window.gaps is not None
        shown = sorted(
            one for one in self.rows if any(first <= one <= last for first, last in window.gaps)
        )
        return [[(one, 1) for one in shown[: window.limit]]]


def poll(
    database: Database, followed: FollowedSet, taken: set[int], limit: int | None = None
) -> None:
    """Look, read a window and, if it counts, take what it has: all that can be seen and was not
    taken.
    """
    log = cast(OpenLog, database)
    followed.poll(log)
    window = replace(ANY_STATUS, limit=limit).outside(followed.passed, database.last_record_id)
    ids = shown_ids(log, window)
    visible = sorted(database.rows - taken)[:limit]
    if followed.writers and not database.are_open(followed.writers):
        return
    assert ids == visible
    taken.update(ids)
    followed.add(to_ranges(ids))


# With small bounds, looks are dropped and a reading of gaps is cut, as with the limit of a window.
# With those of the product neither happens, whatever the limit.
@pytest.mark.parametrize(
    ("most_looks", "most_shown", "limit"),
    [
        (3, 2, None),
        (3, 2, 1),
        (3, 2, 3),
        (64, 10_000, 3),
        pytest.param(64, 10_000, None, marks=pytest.mark.night),
        pytest.param(64, 10_000, 1, marks=pytest.mark.night),
    ],
)
def test_each_row_is_read_once_when_it_can_be_seen(
    monkeypatch: pytest.MonkeyPatch, most_looks: int, most_shown: int, limit: int | None
) -> None:
    monkeypatch.setattr(followed_set, "OLD", 0.0)
    monkeypatch.setattr(open_writers, "MAX_MOMENTS", most_looks)
    monkeypatch.setattr(followed_set, "MAX_SHOWN", most_shown)
    for seed in range(150):
        chance = random.Random(seed)
        database, followed = Database(chance), FollowedSet()
        taken: set[int] = set()
        for _ in range(60):
            poll(database, followed, taken, limit)
            if taken and chance.random() < 0.05:
                out = chance.choice(sorted(taken))
                taken.discard(out)
                followed.discard([(out, out)])
            assert not [one for one in database.rows - taken if one in followed.done], seed
        database.chance = None
        database.open.clear()
        for _ in range(len(database.rows) + 5):
            poll(database, followed, taken, limit)
        assert taken == database.rows, seed
        assert (followed.done.floor, followed.done.ranges) == (max(taken, default=0), []), seed


def test_only_the_gaps_of_who_has_ended_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_set, "OLD", 0.0)
    database = Database()
    followed, taken = FollowedSet(), set[int]()
    for who in (1, 2, 1, 3, 1):  # 2 stays open behind 1, 4 and 5 behind 2
        database.do("draw", who)
    database.do("commit", 3)
    database.do("let go", 3)
    poll(database, followed, taken)
    poll(database, followed, taken)
    assert followed.done.ranges == [(4, 4)]
    assert (followed.passed.floor, followed.passed.ranges) == (4, [])
    for who in (4, 5):
        database.do("draw", who)
    database.do("commit", 5)
    database.do("let go", 5)
    poll(database, followed, taken)
    poll(database, followed, taken)
    assert followed.passed.floor == 7
    database.do("roll back", 4)
    database.read.clear()
    poll(database, followed, taken)
    assert [window.gaps for window in database.read] == [((5, 6),), ((8, database.last_record_id),)]
    assert followed.done.ranges == [(4, 4), (7, 7)]


def test_who_is_open_for_a_moment_is_not_relied_on() -> None:
    database = Database()
    followed, taken = FollowedSet(RecordSet(0, [(2, 2)])), {2}
    database.number = 2
    database.do("draw", 1)
    database.do("draw", 2)
    database.do("commit", 2)
    poll(database, followed, taken)
    assert followed.writers == frozenset()
    assert followed.passed.ranges == followed.done.ranges
