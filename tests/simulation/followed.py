"""A followed source in the simulation: a source of changes, the publisher that follows it with its
position in a SQLite file, its receiver, and what has to hold of them (docs/spec/change-model.md 6).

The source is a list of transactions in memory, opened as any other source. It yields a position
after a transaction, now and then fails, and has changes that cannot be read.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from unittest.mock import patch

from plans import OF_FORMATS, draw_options
from replicas import MOODS, Key, Receiver, object_of
from scheduler import BEGIN, Process

from eventlog import registry
from eventlog.core.catalog import table_of_types
from eventlog.model import Change, ChangeOp, Event, EventResult, Level
from eventlog.publisher.daemon import Publisher
from eventlog.publisher.stream import (
    Backlog,
    Described,
    Failure,
    Gives,
    Mark,
    Read,
    Source,
    SourceStep,
    SourceUnavailable,
    follow,
)

if TYPE_CHECKING:
    from world import World

NAME = "follower"
"""The process that follows the source, and its receiver."""
TYPE = "changes"
"""The type of the source in a configuration."""
TABLE = "thing"
_COLUMNS = {"id": "integer", "name": "text", "note": "text"}
_UNREADABLE = "unreadable"
_OPTIONS = (
    "batch_size", "query_limit", "heartbeat_interval", "retry_initial", "retry_max", "on_retry", "max_parked",
    "concurrency", "delivery_rows", "mark_interval", "isolate_after", "max_attempts",
)  # fmt: skip
"""The options of a publisher that have an effect on a followed source."""

_JOINS_NEW_KEY = ("cloudevents", "qlik-messages")
"""The formats in which a change of a key is one event, which the receiver sees as two."""


class Transaction(NamedTuple):
    """Changes that were committed together, by their numbers. None = a change that cannot be
    read.
    """

    changes: Mapping[int, Change | None]

    @property
    def last(self) -> int:
        return max(self.changes)


class Feed:
    """The transactions of the source, and the rows that they leave."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self.rows: dict[int, dict[str, Any]] = {}
        self.away = 0.0
        """The probability with which the source cannot be read."""

    @property
    def last(self) -> int:
        """The number of the newest change, 0 = none."""
        return self.transactions[-1].last if self.transactions else 0

    def commit(self, chance: Random, size: int) -> Transaction:
        """Make a transaction of some changes, of few rows of a table."""
        first, changes = self.last + 1, dict[int, Change | None]()
        for number in range(first, first + chance.choice([1, 1, 2, 3, 8])):
            changes[number] = (
                None if chance.random() < 0.03 else self._change(chance, number, first, size)
            )
        transaction = Transaction(changes)
        self.transactions.append(transaction)
        return transaction

    def _change(self, chance: Random, number: int, transaction: int, size: int) -> Change:
        key = chance.randint(1, size)
        before, new = self.rows.pop(key, None), {"id": key, "name": f"n{number}", "note": None}
        after: dict[str, Any] | None = new
        if before is not None and chance.random() < 0.2:
            after = None
        elif before is not None:
            new["note"] = chance.choice([before["note"], f"n{number}", None])
            other = chance.randint(1, size)
            if chance.random() < 0.1 and other not in self.rows:
                new["id"] = other
        if after is not None:
            self.rows[after["id"]] = after
        op = ChangeOp.DELETE
        if after is not None:
            op = ChangeOp.INSERT if before is None else ChangeOp.UPDATE
        image: Mapping[str, Any] = before or new if after is None else after
        changed = None
        if op is ChangeOp.UPDATE and before is not None:
            changed = frozenset(name for name in _COLUMNS if before[name] != new[name])
        return Change(
            schema="app",
            table=TABLE,
            op=op,
            key=(("id", image["id"]),),
            before=before,
            after=after,
            changed=changed,
            position=str(number),
            transaction_id=str(transaction),
            event_number=number - transaction + 1,
            commit_time=datetime.fromtimestamp(BEGIN + number, UTC),
            user="app",
        )


class _Changes:
    """The opened source."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed

    def steps(self, token: Any, *, once: bool) -> Generator[SourceStep, None, None]:
        feed, point = self._followed.feed, self._followed.scheduler.point
        self._followed.is_read_from(token)
        yield Described("app", table_of_types(TABLE, _COLUMNS.items(), ["id"]))
        at = int(token or 0)
        while True:
            point("reads the source")
            if self._followed.chance.random() < feed.away:
                raise SourceUnavailable("the source is unavailable")
            for transaction in feed.transactions:
                if transaction.last <= at:
                    continue
                for number, change in transaction.changes.items():
                    event_id = f"{TYPE}.{number}"
                    yield (
                        Failure(event_id, _UNREADABLE, "it cannot be read")
                        if change is None
                        else Read(change, event_id)
                    )
                at = transaction.last
                yield Mark(at)
            yield Mark(at, is_idle=True, rest=1.0)

    def backlog(self, token: Any) -> Backlog:
        return Backlog(self._followed.feed.last - int(token or 0), "rows")


class ChangesSource(Source):
    """The kind of source; ``followed`` has the feed of the world."""

    name = TYPE
    title = "the changes of the simulation"
    gives = frozenset(Gives)
    followed: ClassVar[Any] = None

    def open(self, options: Any, reader: Mapping[str, Any], report: Any) -> _Changes:
        return _Changes(self.followed)


class Followed:
    """The source, who follows it, and the auditor of what its receiver gets.

    It is the world and the auditor of the receiver, whose events have no rows of a log.
    """

    def __init__(self, world: World) -> None:
        self._world, self.feed = world, Feed()
        self.chance = Random(f"followed {world.plan['seed']}")
        self.receiver = Receiver(self, NAME, is_strict=True)  # type: ignore[arg-type]
        self.path = world.directory / "position.db"
        self._meanings: dict[str, Event] = {}
        self._newest: dict[Key, int] = {}
        self._answered: set[str] = set()
        """The event-ids that were answered for good, at least once."""
        self._skipped: set[str] = set()

    # --- the world of its receiver ---

    @property
    def scheduler(self) -> Any:
        return self._world.scheduler

    @property
    def stats(self) -> Counter[str]:
        return self._world.stats

    @property
    def auditor(self) -> Followed:
        return self

    def tell(self, what: str) -> None:
        self._world.tell(what)

    def fail(self, why: str) -> None:
        self._world.fail(why)

    # --- who follows ---

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have the source of this world be a kind of source while the block runs."""
        place = f"{ChangesSource.__module__}:{ChangesSource.__name__}"
        send, settle = follow.Run.send, follow.Run.settle
        save, restore = follow.Run.save, follow.Run.restore
        at_sending = self._world.auditor.at_sending

        def sent(run: Any, document_no: int, events: Any) -> Any:
            self._refuse_skipped(event.sent_id for event in events)
            at_sending.sends_of_source(run.delivery_no, document_no, events)
            return send(run, document_no, events)

        def settled(run: Any, document_no: int, events: Any, judged: Any) -> Any:
            if judged.answered:
                names = [event.sent_id for event in events]
                at_sending.is_answered(NAME, run.delivery_no, document_no, names)
            return settle(run, document_no, events, judged)

        def saved(run: Any) -> None:
            save(run)
            at_sending.is_recorded()

        def restored(run: Any) -> None:
            entries = (
                text for (text,) in self._ask("SELECT content FROM eventlog_position_inflight")
            )
            at_sending.follows(entries, run.options.retry_max)
            restore(run)

        with (
            patch.dict(registry._BUILT_IN[registry.SOURCES], {TYPE: place}),
            patch.object(ChangesSource, "followed", self),
            patch.object(follow.Run, "send", sent),
            patch.object(follow.Run, "settle", settled),
            patch.object(follow.Run, "save", saved),
            patch.object(follow.Run, "restore", restored),
        ):
            yield

    def _refuse_skipped(self, event_ids: Iterable[str]) -> None:
        """Check that no event is sent that an operator has given up."""
        if skipped := self._skipped.intersection(event_ids):
            self.fail(f"{sorted(skipped)} were skipped, and are sent")

    def config(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration of the publisher, and of the commands about it."""
        of_format = {name: options[name] for name in OF_FORMATS if name in options}
        if (format := self._world.plan["format"]) != "xds":
            of_format["type"] = format
        return {
            "source": {"type": TYPE, "position_url": f"sqlite:///{self.path}"},
            "publisher": {name: value for name, value in options.items() if name in _OPTIONS},
            "sink": {"type": "python", "function": "receivers:receive"},
            **({"format": of_format} if of_format else {}),
        }

    def start(self, chance: Random | None) -> None:
        """Start the publisher that follows the source; without chances with plain options."""
        options: Mapping[str, Any] = {"concurrency": 1}
        if chance is not None:
            options, _ = draw_options(chance, self._world.plan, "python", is_consumer=True)
        config = self.config({name: one for name, one in options.items() if name in _OPTIONS})
        process = Process(NAME, {"bounds": {}})
        self.tell(f"start {NAME} {config['publisher']}")
        self.stats["starts"] += 1

        def run() -> None:
            receive = self._world.received(process, self.receiver, options.get("concurrency", 1))
            publisher = Publisher.from_config(config, sink=receive, environ={})
            if self._world.plan["format"] not in _JOINS_NEW_KEY:
                process.counters = lambda: publisher.counters
            publisher.run(self._world.stop_of(process))

        self.scheduler.spawn(process, run)

    def is_read_from(self, token: Any) -> None:
        """Check the position from which the source is read: what is before it is answered, or
        stands in the tables of the position.
        """
        known = self._answered | self._skipped | self._recorded() | self._failures().keys()
        lost = [
            event_id
            for event_id in self._event_ids(until=int(token or 0))
            if not known & {event_id, f"{event_id}.2"}
        ]
        if lost:
            self.fail(f"the source is read from {token}, and no table has {lost[:10]}")

    def _event_ids(self, until: int) -> list[str]:
        return [
            f"{TYPE}.{number}"
            for transaction in self.feed.transactions
            for number in transaction.changes
            if number <= until
        ]

    # --- steps ---

    def commit(self, chance: Random) -> None:
        """The source gets a transaction, or several."""
        for _ in range(chance.choice([1, 1, 1, 5])):
            transaction = self.feed.commit(chance, self._world.plan["size"])
            self.tell(f"the source commits {min(transaction.changes)} to {transaction.last}")
        if NAME not in self.scheduler.processes:
            self.start(chance)

    def change_mood(self, chance: Random) -> None:
        """The receiver answers otherwise from now on, or the source can be read or not."""
        mood = chance.choice(self._world.plan.get("moods", sorted(MOODS)))
        self.receiver.mood, self.receiver.seed = dict(MOODS[mood]), chance.randrange(2**31)
        self.feed.away = chance.choice([0.0, 0.0, 0.0, 0.3])
        self.tell(
            f"{NAME}'s receiver is {mood}, the source is unavailable with probability {self.feed.away}"
        )

    def kill(self, chance: Random) -> None:
        """The publisher is killed where it is, and started again."""
        if (process := self.scheduler.processes.get(NAME)) is not None:
            self._world.kill(process)
            self.start(chance)

    def restart(self, chance: Random) -> None:
        """The publisher is stopped, and started again with other options."""
        if (process := self.scheduler.processes.get(NAME)) is not None:
            self._world.stop(process)
            self.start(chance)

    def skip(self, chance: Random) -> None:
        """An operator gives up an event that the position has passed: the source's error table
        gets it, and it is not sent any more.
        """
        if (process := self.scheduler.processes.get(NAME)) is None:
            return
        self._world.stop(process)
        if waiting := sorted(self._recorded()):
            one = chance.choice(waiting)
            words = ("skip", one, "--reason", "by hand")
            command = self._world.command(*words, config=self.config({}))
            self._world.wait_for_commands()
            if command.exit_code == 0:
                self._skipped.add(one)
        self.start(chance)

    def look(self, chance: Random) -> None:
        """An operator looks at the status of the source."""
        if self.path.exists():
            self._world.command("status", "--json", config=self.config({}))
            self._world.wait_for_commands()

    # --- the auditor of the receiver ---

    def is_applied(self, receiver: str, event: Event, is_in_order: bool) -> None:
        """Check an event that is applied for the first time: those of an object come in order."""
        key, number = object_of(event), int(event.event_id.split(".")[1])
        self._world.auditor.checks += 1
        newest = self._newest.get(key, 0)
        if number < newest:
            self.fail(f"{event.event_id} of {key} comes after {newest} of the object")
        self._newest[key] = max(number, newest)

    def is_answered(
        self,
        receiver: str,
        events: Sequence[Event],
        verdicts: Mapping[str, EventResult],
        others: Level = Level.SUCCESS,
    ) -> None:
        """Note the answer that has left the receiver, and check that an event-id has one
        meaning.
        """
        self._world.auditor.is_answered(NAME, events, verdicts, others)
        for event in events:
            before = self._meanings.setdefault(event.event_id, event)
            if before != event:
                self.fail(f"event-id {event.event_id} had the content {before}, and has {event}")
            verdict = verdicts.get(event.event_id)
            level = others if verdict is None else verdict.level
            if level not in (Level.FATAL, Level.RETRY):
                self._answered.add(event.event_id)

    def refuses(self, receiver: str, event_ids: Sequence[str]) -> None:
        """Nothing: a refused event is not sent again, or before all later ones of its object."""

    def goes_back(self, receiver: str, key: Key) -> None:
        """Nothing: a strict receiver applies nothing that comes after a retry."""

    # --- the end ---

    def heal(self) -> None:
        """End all faults, and have somebody follow the source."""
        self.receiver.mood, self.feed.away = {}, 0.0
        if NAME not in self.scheduler.processes and self.feed.transactions:
            self.start(None)

    def undone(self) -> str:
        """Return what of the source is not published yet, empty if all is."""
        if not self.feed.transactions:
            return ""
        token = self._ask("SELECT token FROM eventlog_position")
        reached = json.loads(token[0][0] or "0") if token else 0
        if reached != self.feed.last:
            return f"the source up to {self.feed.last}: the position is {reached}"
        waiting = sorted(self._recorded())
        return f"events {waiting[:10]} that the position has passed" if waiting else ""

    def audit(self) -> None:
        """Check that each change was applied or has one failure, and that the receiver has what the
        source has, but for the objects of failures.
        """
        failures = self._failures()
        there = self.receiver.replica.applied
        for transaction in self.feed.transactions:
            for number, change in transaction.changes.items():
                self._world.auditor.checks += 1
                event_id = f"{TYPE}.{number}"
                ids = {event_id, f"{event_id}.2"}
                if change is None:
                    if failures[event_id] != 1:
                        self.fail(f"{event_id} has {failures[event_id]} failures, and needs one")
                elif not ids & (there | failures.keys()):
                    self.fail(f"{event_id} was not applied, and has no failure")
        for event_id, count in failures.items():
            if count > 1:
                self.fail(f"{event_id} has {count} failures")
        for one in self._skipped - failures.keys():
            self.fail(f"{one} was skipped, and has no failure")
        self._compare(failures)

    def _compare(self, failures: Counter[str]) -> None:
        excused = {self._key_of(one) for name in failures for one in self._objects_of(name)}
        excused |= {key[1] for key in self.receiver.replica.refused}
        has = {
            association: attributes
            for (_, association), attributes in self.receiver.replica.objects.items()
        }
        wants = {
            self._key_of(key): {
                name: [str(value)]
                for name, value in row.items()
                if value is not None and name != "id"
            }
            for key, row in self.feed.rows.items()
        }
        for key in sorted((has.keys() | wants.keys()) - excused):
            self._world.auditor.checks += 1
            of = {name: one for name, one in has.get(key, {}).items() if name != "id"}
            if (key in has) != (key in wants) or of != wants.get(key, {}):
                self.fail(f"{NAME}'s receiver has of {key} {has.get(key)}, not {wants.get(key)}")

    @staticmethod
    def _key_of(key: int) -> str:
        return f"id={key}"

    def _objects_of(self, event_id: str) -> set[int]:
        """Return the keys that the change of an event-id has touched."""
        number = int(event_id.split(".")[1])
        found = set[int]()
        for transaction in self.feed.transactions:
            if (change := transaction.changes.get(number)) is not None:
                found |= {image["id"] for image in (change.before, change.after) if image}
        return found

    # --- its tables ---

    def _recorded(self) -> set[str]:
        """Return the event-ids of the events that the position has passed without an answer."""
        lines = self._ask("SELECT content FROM eventlog_position_inflight")
        return {one for (text,) in lines for one in _ids_in(json.loads(text))}

    def _failures(self) -> Counter[str]:
        return Counter(one for (one,) in self._ask("SELECT event_id FROM eventlog_position_error"))

    def _ask(self, sql: str) -> list[Any]:
        """Return the rows of a statement, none before the tables are there."""
        if not self.path.exists():
            return []
        with contextlib.closing(sqlite3.connect(self.path)) as session:
            try:
                return session.execute(sql).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []
                raise


def _ids_in(entry: Any) -> list[str]:
    """Return the event-ids of an entry of the position."""
    return [event["id"] for event in entry.get("events", ())]
