"""Schedules: who does what in which order, as data.

A schedule is a JSON object: options of the readers, and steps ``[who, what, ...]``. Any step can be
left out without changing what the others mean, so a schedule that fails shrinks by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Schedule = dict[str, Any]
Step = list[Any]


PLAIN, LEAVES, CRASH, FAMILIES = "plain", "leaves", "crash", "families"
KINDS = (PLAIN, LEAVES, CRASH, FAMILIES)
"""The kinds of schedules: with a log of one table, with one in leaves, with leaves and crashes, and
with child rows that may come before their owners.
"""
OWNERS = (11, 12, 13)
"""The keys of owners. They are not those of other objects."""
_LEVELS = ("read committed", "read committed", "repeatable read", "serializable")
_BEGINNINGS = (2, 4, 5, 5)
"""The numbers that a log in leaves gives first: the first leaf ends with 5."""


def has_leaves(schedule: Schedule) -> bool:
    """Return True if the log of a schedule is in leaves."""
    return "first" in schedule


def has_families(schedule: Schedule) -> bool:
    """Return True if a schedule has owners and child rows."""
    return "isolation" in schedule


def schedule_of(seed: int, kind: str = PLAIN) -> Schedule:
    """Return the schedule of a seed."""
    if kind == FAMILIES:
        return _schedule_with_families(seed)
    if kind != PLAIN:
        return _schedule_with_leaves(seed, kind)
    chance = Random(f"interleaved {seed}")
    features = {name for name in _FEATURES if chance.random() < 0.4}
    readers = chance.choice(
        [["publisher"], ["publisher"], ["cons"], ["cons"], ["publisher", "cons"]]
    )
    late = [name for name in readers if chance.random() < 0.35]
    return {
        "seed": seed,
        "options": {
            "query_limit": chance.choice([1, 2, 3, 10_000, 10_000]),
            "batch_size": chance.choice([1, 2, 128]),
            "delivery_rows": chance.choice([1, 2, 10_000, 10_000]),
            "fold_distance": chance.choice([0, 1000]),
            "mark_interval": chance.choice([0.0, 10.0]),
        },
        "begins": chance.choice(["earliest", "latest"]),
        "rest": chance.choice([0.6, 1.1, 1.1]),
        "errors": chance.choice([0.3, 0.8]) if "errors" in features else 0.0,
        "readers": readers,
        "running": [name for name in readers if name not in late],
        "steps": _Drawing(chance, features, readers, late).steps(),
    }


_FEATURES = ("prepared", "savepoints", "errors", "kills", "touches", "waits", "copies")


def _schedule_with_leaves(seed: int, kind: str) -> Schedule:
    """Return a schedule of a log in leaves."""
    chance = Random(f"{kind} {seed}")
    features = {name for name in _FEATURES if chance.random() < 0.4} - {"copies"}
    readers = chance.choice([["publisher"], ["publisher"], ["publisher", "cons"]])
    if kind == CRASH:
        readers = chance.choice([readers, readers, ["cons"]])
    late = [name for name in readers if chance.random() < 0.25]
    writers = [f"w{number}" for number in range(1, 4)]
    return {
        "seed": f"{kind}-{seed}",
        "options": {
            "query_limit": chance.choice([1, 3, 10_000]),
            "batch_size": chance.choice([1, 2, 128]),
            "delivery_rows": chance.choice([2, 10_000, 10_000]),
            "fold_distance": chance.choice([0, 1000]),
            "mark_interval": chance.choice([0.0, 10.0]),
        },
        "begins": chance.choice(["earliest", "latest"]),
        "rest": chance.choice([0.6, 1.1]),
        "errors": chance.choice([0.3, 0.8]) if "errors" in features else 0.0,
        "first": chance.choice(_BEGINNINGS),
        "durable_marks": kind == CRASH and chance.random() < 0.2,
        "hasty": [one for one in writers if kind == CRASH and chance.random() < 0.5],
        "readers": readers,
        "running": [name for name in readers if name not in late],
        "steps": _DrawingWithLeaves(chance, features, readers, late, kind).steps(),
    }


def _schedule_with_families(seed: int) -> Schedule:
    """Return a schedule of owners and child rows. Its readers begin with the first row, since a
    receiver that begins later does not know the objects.
    """
    plain = schedule_of(seed)
    chance = Random(f"{FAMILIES} {seed}")
    features = {name for name in _FEATURES if chance.random() < 0.4} - {"copies"}
    late = [name for name in plain["readers"] if name not in plain["running"]]
    return {
        **plain,
        "seed": f"{FAMILIES}-{seed}",
        "begins": "earliest",
        "errors": chance.choice([0.3, 0.8]) if "errors" in features else 0.0,
        "isolation": [chance.choice(_LEVELS) for _ in range(3)],
        "steps": _DrawingWithFamilies(chance, features, plain["readers"], late).steps(),
    }


class _Drawing:
    """What is known of a schedule while it is drawn: who runs, and which transactions are open."""

    most_steps = 14

    def __init__(
        self, chance: Random, features: set[str], readers: list[str], late: list[str]
    ) -> None:
        self._chance, self._features, self._late = chance, features, set(late)
        self._readers = readers
        self._keys = range(1, chance.choice([2, 3, 3]) + 1)
        self._locked: dict[str, list[int]] = {}
        """The open transactions by their writer, with the objects that they have changed."""
        self._prepared: list[list[int]] = []
        self._saved: set[str] = set()
        self._midway: set[str] = set()
        """The readers that stand in the middle of a poll."""
        self._has_committed = self._requeues = False
        self._requests = [*readers] if "errors" in features else []
        if "cons" in self._requests:
            self._requests.append("first of cons")
        if "copies" in features and "publisher" in readers:
            self._requests.append("copies")
        writers = [f"w{number}" for number in range(1, chance.choice([2, 3, 3]) + 1)]
        self._haste = {name: chance.choice([0.2, 1.0]) for name in writers}
        self._weights = {
            **dict.fromkeys(writers, 1.0),
            **dict.fromkeys(readers, 3.0 if len(readers) == 1 else 2.0),
            **({"requeue": 0.7} if self._requests else {}),
        }

    def steps(self) -> list[Step]:
        steps: list[Step] = []
        most = self._chance.randint(10, self.most_steps)
        while len(steps) < most:
            steps += self._steps()
        return steps

    def _steps(self) -> list[Step]:
        """Draw a step, or two of which the second passes the first: a transaction draws a number
        and stays open, and another one draws the next number and commits.
        """
        if self._midway and self._chance.random() < 0.15 and (both := self._two_writers()):
            return both
        return [self._step()]

    def _two_writers(self) -> list[Step]:
        writers = [name for name in self._haste if name not in self._locked]
        if len(writers) < 2 or not (keys := self._free_keys(writers[0])):
            return []
        first, second = self._chance.sample(writers, k=2)
        key = self._chance.choice(keys)
        self._locked[first] = [key]
        others = [one for one in self._free_keys(second) if one != key]
        self._has_committed |= bool(others)
        written = [[second, "write", self._chance.choice(others)]] if others else []
        return [[first, "update", key], *written]

    def _step(self) -> Step:
        weights = {**self._weights, "prepared": 0.7 * len(self._prepared)}
        if not self._has_committed:
            weights |= dict.fromkeys(self._readers, 0.7)
        for name in self._midway:  # what others do now is what a schedule is about
            weights[name] = 0.7
        (who,) = self._chance.choices(list(weights), list(weights.values()))
        if who == "prepared":
            del self._prepared[0]
            return [who, self._chance.choice(["commit", "commit", "rollback"])]
        if who == "requeue":
            self._requeues = not self._requeues
            if self._requeues:
                return [who, "start", self._chance.choice(self._requests)]
            return [who, *self._amount()]
        if who in self._readers:
            return self._of_reader(who)
        return self._of_writer(who) if who in self._haste else self._of_others(who)

    def _of_others(self, who: str) -> Step:
        """Draw a step of somebody who is only in schedules with leaves."""
        raise NotImplementedError

    def _amount(self) -> Step:
        """Draw how many times a process comes to rest, how many statements it runs, or at which of
        the places it stops where it has hardly ever been.
        """
        kind = self._chance.random()
        if kind < 0.4:
            return ["poll", self._chance.choice([1, 1, 2, 3])]
        if kind < 0.6:
            return ["rare", self._chance.choice([1, 1, 2, 3, 5, 8])]
        return ["run", self._chance.randint(1, 9)]

    def _of_reader(self, who: str) -> Step:
        if who in self._late:
            self._late.discard(who)
            return [who, "start"]
        if "kills" in self._features and self._chance.random() < 0.15:
            self._late.add(who)
            return [who, "kill"]
        amount = self._amount()
        if amount[0] != "poll":
            self._midway.add(who)
        else:
            self._midway.discard(who)
        return [who, *amount]

    def _of_writer(self, who: str) -> Step:
        own = self._locked.get(who)
        acts: dict[str, float] = {}
        if keys := self._free_keys(who):
            acts["update"] = 2.0
        if own is None and keys:
            acts["write"] = 2.0
        if own is not None:
            haste = 1.5 if self._midway else self._haste[who]
            acts |= {"commit": 1.5 * haste, "rollback": 1.0 * haste}
            if "savepoints" in self._features:
                acts["back" if who in self._saved else "savepoint"] = 1.5
            if "prepared" in self._features:
                acts["prepare"] = 1.5 * haste
        if "touches" in self._features or not acts:
            acts["touch"] = 0.7
        (act,) = self._chance.choices(list(acts), list(acts.values()))
        self._has_committed |= act in ("write", "commit")
        if act in ("write", "update"):
            key = self._chance.choice(keys)
            if act == "update":
                self._locked.setdefault(who, []).append(key)
            return [who, act, key]
        if act == "touch":
            self._locked.setdefault(who, [])
        elif act == "savepoint":
            self._saved.add(who)
        elif act != "back":
            changed = self._locked.pop(who, [])
            self._saved.discard(who)
            if act == "prepare":
                self._prepared.append(changed)
        return [who, act]

    def _free_keys(self, who: str) -> list[int]:
        """Return the objects that a writer may change now: in ascending order within a transaction,
        and only some schedules have writers wait for each other.
        """
        others = [keys for writer, keys in self._locked.items() if writer != who]
        taken = {key for keys in [*others, *self._prepared] for key in keys}
        least = max(self._locked.get(who, []), default=1)
        if "waits" in self._features:
            taken = set()
        return [key for key in self._keys if key >= least and key not in taken]


_POLLS_OF_PATIENCE = 36
"""The polls of a publisher after which a purge no longer waits for transactions to cut a leaf."""


class _DrawingWithLeaves(_Drawing):
    """What is known of a schedule with leaves while it is drawn."""

    most_steps = 28

    def __init__(
        self, chance: Random, features: set[str], readers: list[str], late: list[str], kind: str
    ) -> None:
        super().__init__(chance, features, readers, late)
        self._crashes = chance.choice([1, 1, 2]) if kind == CRASH else 0
        self._purges = False
        self._by_hand = 0
        if "publisher" in readers:
            self._weights["purge"] = 1.5
            self._by_hand = chance.choice([0, 1])

    def steps(self) -> list[Step]:
        steps = super().steps()
        if "purge" in self._weights and self._chance.random() < 0.7:  # cuts leaves of five numbers
            steps[:0] = [["purge", "start", "purge"], ["purge", "poll", 1]]
        while self._crashes:
            steps += [*self._started(), *self._crash()]
        return steps

    def _started(self) -> list[Step]:
        """Have all readers run that do not."""
        late = [[name, "start"] for name in self._readers if name in self._late]
        self._late.clear()
        return late

    def _committed(self) -> list[Step]:
        """Have all open transactions commit, which keep a leaf from being changed."""
        open_ones = [[name, "commit"] for name in self._locked]
        self._locked.clear()
        self._saved.clear()
        return open_ones

    def _steps(self) -> list[Step]:
        drawn = self._chance.random()
        if self._crashes and self._has_committed and drawn < 0.1:
            return self._crash()
        if self._by_hand and self._has_committed and drawn > 0.9:
            return self._detach()
        if "purge" in self._weights and self._locked and 0.8 < drawn < 0.85:
            return self._committed()
        if "purge" in self._weights and 0.68 < drawn < 0.78 and not self._purges:
            return self._removal()
        return super()._steps()

    def _crash(self) -> list[Step]:
        """Draw a crash, most often when a process has just committed."""
        self._crashes -= 1
        before: list[Step] = []
        running = [name for name in self._readers if name not in self._late]
        if self._purges and self._chance.random() < 0.6:
            before = [*self._committed(), ["purge", "to commit", self._chance.choice([1, 1, 2, 3, 4])]]  # fmt: skip
        elif running and self._chance.random() < 0.8:
            who = self._chance.choice(running)
            amount = self._chance.choice([["poll", 1], ["poll", 1], ["run", self._chance.randint(3, 12)]])  # fmt: skip
            before = [*self._written(), [who, *amount]]
        self._locked.clear()
        self._saved.clear()
        self._midway.clear()
        self._purges = self._requeues = False
        self._late |= {*self._readers}
        return [*before, ["server", "crash"]]

    def _detach(self) -> list[Step]:
        """Draw that a leaf is detached by hand while nobody reads the log, after a row of it has
        committed late.
        """
        self._by_hand -= 1
        self._midway.clear()
        first, second = self._chance.sample(list(self._haste), k=2)
        key, other = self._chance.sample(self._keys, k=2)
        polls = [[name, "poll", 2] for name in self._readers if name not in self._late]
        status = self._chance.choice(["E", "F"])
        steps = [*self._committed(), [first, "update", key], [second, "burst", other], *polls]
        steps += [[first, "commit"], ["hand", "detach", status]]
        if self._chance.random() < 0.7:  # a later leaf goes, so that its numbers have one again
            steps += [*self._written(), *self._written(), *self._written(), *polls]
            steps += [["purge", "start", "purge"], ["purge", "poll", 3]]
        return [*steps, ["purge", "start", "finish"], ["purge", "poll", 2]]

    def _removal(self) -> list[Step]:
        """Draw a purge that stands before the lock with which it removes a leaf, and what happens
        then: a row of the leaf commits late, or is asked for again.
        """
        first, second = self._chance.sample(list(self._haste), k=2)
        key, other = self._chance.sample(self._keys, k=2)
        steps = [*self._started(), *self._committed(), [first, "update", key]]
        steps += [[second, "burst", other], [second, "burst", other]]
        steps += [[name, "poll", 2] for name in self._readers if self._chance.random() < 0.9]
        steps += [["purge", "start", "purge"], ["purge", "poll", 1]]
        steps += [["publisher", "poll", _POLLS_OF_PATIENCE]]
        kind = self._chance.random()
        if kind < 0.3:
            steps += [[first, "commit"], ["publisher", "poll", 2]]
            place = self._chance.choice(["attach < remove", "_refuse_readers < remove", "COMMIT"])
            waiting = self._chance.choice([[second, "write", other], ["publisher", "poll", 1]])
            return [*steps, ["purge", "before", place], waiting, ["purge", "poll", 3]]
        if kind < 0.5:  # the next purge has to drop the table
            steps += [[first, "commit"], ["publisher", "poll", 2], ["purge", "before", "COMMIT epoch"]]  # fmt: skip
            return [*steps, ["purge", "run", 1], ["purge", "kill"], ["hand", "set back"]]
        steps.append(["purge", "before", "take < remove"])
        if self._requests and kind < 0.7:
            steps += [["requeue", "start", self._chance.choice(self._requests)]]
            steps += [["requeue", *self._amount()]]
        else:
            steps += [[first, self._chance.choice(["commit", "commit", "rollback"])]]
        return [*steps, ["purge", "poll", 2]]

    def _written(self) -> list[Step]:
        """Draw a transaction of one statement, or none."""
        writers = [name for name in self._haste if name not in self._locked]
        keys = self._free_keys(writers[0]) if writers else []
        if not keys or self._chance.random() < 0.3:
            return []
        act = self._chance.choice(["write", "burst"])
        return [[self._chance.choice(writers), act, self._chance.choice(keys)]]

    def _of_others(self, who: str) -> Step:
        if not self._purges or self._chance.random() < 0.1:
            self._purges = True
            return [who, "start", self._chance.choice(["purge", "purge", "purge", "finish"])]
        if "kills" in self._features and self._chance.random() < 0.15:
            self._purges = False
            return [who, "kill"]
        kind = self._chance.random()
        if kind < 0.4:
            self._purges = False
            return [who, "poll", self._chance.choice([1, 2, 5])]
        if kind < 0.6:
            return [who, "to commit", self._chance.choice([1, 1, 2, 3])]
        return [who, *(["rare", self._chance.randint(1, 20)] if kind < 0.8 else ["run", self._chance.randint(1, 60)])]  # fmt: skip

    def _of_writer(self, who: str) -> Step:
        step = super()._of_writer(who)
        if step[1] == "write" and self._chance.random() < 0.5:
            return [who, "burst", *step[2:]]
        return step


class _DrawingWithFamilies(_Drawing):
    """What is known of a schedule with families while it is drawn."""

    most_steps = 24

    def _steps(self) -> list[Step]:
        writers = [name for name in self._haste if name not in self._locked]
        if len(writers) < 2 or self._chance.random() > 0.4:
            return super()._steps()
        return self._family(*self._chance.sample(writers, k=2))

    def _family(self, who: str, other: str) -> list[Step]:
        """Draw the transaction of a writer: its child row comes before the owner, most often, which
        another session may insert, and then something happens to both.
        """
        key = self._chance.choice(OWNERS)
        steps: list[Step] = [[who, self._chance.choice(["delete", "savepoint", "child"]), key]]
        if steps[0][1] == "savepoint":
            steps = [[who, "touch"], [who, "savepoint"], [who, "child", key], [who, "back"]]
        steps += [[who, "child", key], *self._happens(who, key)]
        adopts = other if self._chance.random() < 0.4 else who
        steps.append([adopts, "owner", key])
        if adopts == other:
            steps.append([other, self._chance.choice(["commit", "commit", "rollback"])])
        steps += self._happens(who, key)
        if self._chance.random() < 0.3:
            self._locked[who] = []
            return steps
        self._has_committed = True
        return [*steps, [who, self._chance.choice(["commit", "commit", "commit", "rollback"])]]

    def _happens(self, who: str, key: int) -> list[Step]:
        """Draw what happens between two statements of a transaction."""
        steps: list[Step] = []
        while self._chance.random() < 0.45:
            act = self._chance.choice(["change", "change", "move", "delete", "child", "reader"])
            if act == "change":
                steps.append([who, f"change {self._chance.choice(['child', 'owner'])}", key])
            elif act == "move":
                moved = f"move {self._chance.choice(['child', 'owner'])}"
                steps.append([who, moved, *self._chance.sample(OWNERS, k=2)])
            elif act != "reader":
                steps.append([who, act, key])
            else:
                steps.append([self._chance.choice(self._readers), *self._amount()])
        return steps


def shrink(schedule: Schedule, failure_of: Callable[[Schedule], str | None]) -> Schedule:
    """Return a schedule without the steps and options that its failure does not need."""
    wanted = _kind(failure_of(schedule))

    def fails(other: Schedule) -> bool:
        return _kind(failure_of(other)) == wanted

    has_shrunk = True
    while has_shrunk:
        has_shrunk = False
        for place in reversed(range(len(schedule["steps"]))):
            steps = [*schedule["steps"]]
            del steps[place]
            if fails({**schedule, "steps": steps}):
                schedule, has_shrunk = {**schedule, "steps": steps}, True
    for name, plain in _PLAIN.items():
        other = {**schedule, "options": {**schedule["options"], name: plain}}
        if fails(other):
            schedule = other
    return schedule


_PLAIN = {"query_limit": 10_000, "batch_size": 128, "delivery_rows": 10_000, "fold_distance": 1000, "mark_interval": 10.0}  # fmt: skip


def _kind(failure: str | None) -> str | None:
    """Return a failure without its numbers and values."""
    return None if failure is None else "".join(one for one in failure if not one.isdigit())[:40]
