"""A followed source in the simulation: a source of changes, the publisher that follows it with its
position in a SQLite file, its receiver, and what has to hold of them (docs/spec/change-model.md 6).

The source is a list of transactions in memory, opened as any other source. It yields a position
after a transaction, now and then fails, also within a transaction, and has changes that cannot be
read. A TRUNCATE empties its table. Values have fractions, which no restart may lose.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from unittest.mock import patch

import once
from excuses import Excuse
from plans import OF_FORMATS, draw_options
from replicas import MOODS, Key, Receiver, Replica, object_of
from scheduler import BEGIN, Process

from eventlog import registry
from eventlog.core.catalog import table_of_types
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, Change, ChangeOp, Event, EventResult, Level, Operation
from eventlog.publisher.publisher import Publisher
from eventlog.publisher.send import serving
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
from eventlog.publisher.stream.output import StreamOutput
from eventlog.publisher.stream.source_feed import SourceFeed

if TYPE_CHECKING:
    from world import World

_MANY_KEYS = 12
"""The keys of changes that are sent at the same time."""
NAME = "follower"
"""The process that follows the source, and its receiver."""
TYPE = "changes"
"""The type of the source in a configuration."""
TABLE = "thing"
_COLUMNS = {
    "id": "integer", "name": "text", "note": "text", "amount": "numeric(10,3)", "at": "timestamp"
}  # fmt: skip
_UNREADABLE = "unreadable"
_OPTIONS = (
    "batch_size", "query_limit", "heartbeat_interval", "retry_initial", "retry_max", "on_retry", "max_parked",
    "concurrency", "delivery_rows", "mark_interval", "isolate_after", "max_attempts",
)  # fmt: skip
"""The options of a publisher that have an effect on a followed source."""

JOINS_NEW_KEY = ("cloudevents", "qlik-messages")
"""The formats in which a change of a key is one event, which the receiver sees as two."""
_HAS_TRUNCATE = ("debezium", "cloudevents")
"""The formats that have a TRUNCATE: ``xds`` refuses it, ``qlik-messages`` leaves it out."""
_WHOLE_TABLE: Key = (TABLE, "")
"""What a TRUNCATE is an event of."""
_PROCESSED = re.compile(r'(?<="op":".",)"ts_ms":\d+,"ts_us":\d+,"ts_ns":\d+,')
"""When Debezium has processed an event."""


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
        self.changes: dict[int, Change | None] = {}
        """All changes by their numbers."""
        self.rows: dict[int, dict[str, Any]] = {}
        self.away = 0.0
        """The probability with which the source cannot be read."""
        self.truncates: dict[int, Collection[int]] = {}
        """The keys of the rows that each TRUNCATE removed, by its number."""

    @property
    def last(self) -> int:
        """The number of the newest change, 0 = none."""
        return self.transactions[-1].last if self.transactions else 0

    def commit(
        self,
        chance: Random,
        size: int,
        changes: int = 0,
        truncate: float = 0.03,
        moves: float = 0.2,
    ) -> Transaction:
        """Make a transaction of so many changes (0 = a drawn number), of few rows of a table. With
        the probability ``moves`` a row that changes is deleted, and another one gets a new key.
        """
        first, changed = self.last + 1, dict[int, Change | None]()
        for number in range(first, first + (changes or chance.choice([1, 1, 2, 3, 8]))):
            if chance.random() < 0.03:
                changed[number] = None
            elif Random(f"truncate {first} {number}").random() < truncate:
                changed[number] = self._truncate(number, first)
            else:
                changed[number] = self._change(chance, number, first, size, moves)
        transaction = Transaction(changed)
        self.transactions.append(transaction)
        self.changes |= changed
        return transaction

    def _truncate(self, number: int, transaction: int) -> Change:
        self.truncates[number] = list(self.rows)
        self.rows.clear()
        return Change(
            schema="app", table=TABLE, op=ChangeOp.TRUNCATE, **_origin(number, transaction)
        )

    def _change(
        self, chance: Random, number: int, transaction: int, size: int, moves: float
    ) -> Change:
        key, own = chance.randint(1, size), Random(f"values {number}")
        before = self.rows.pop(key, None)
        new: dict[str, Any] = {
            "id": key,
            "name": f"n{number}",
            "note": None,
            "amount": own.choice([None, Decimal(number) / 8]),
            "at": _moment(number).replace(tzinfo=None),
        }
        after: dict[str, Any] | None = new
        if before is not None and chance.random() < moves:
            after = None
        elif before is not None:
            new["note"] = chance.choice([before["note"], f"n{number}", None])
            other = chance.randint(1, size)
            if chance.random() < moves and other not in self.rows:
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
            **_origin(number, transaction),
        )


def _origin(number: int, transaction: int) -> Mapping[str, Any]:
    """Return what a change has of its transaction."""
    return {
        "position": str(number),
        "transaction_id": str(transaction),
        "event_number": number - transaction + 1,
        "commit_time": _moment(transaction),
        "user": "app",
    }


def _moment(number: int) -> datetime:
    """Return a time, to the microsecond in most cases."""
    return datetime.fromtimestamp(BEGIN + number, UTC) + timedelta(
        microseconds=number * 7919 % 10**6
    )


def _text(value: Any) -> str:
    """Return the text of a value in an event."""
    if isinstance(value, datetime):
        return str(int(value.replace(tzinfo=UTC).timestamp()))
    return str(value)


class _Changes:
    """The opened source."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed

    def steps(self, token: Any, *, once: bool) -> Generator[SourceStep, None, None]:
        feed, point = self._followed.feed, self._followed.scheduler.point
        self._followed.is_read_from(token)
        yield Described("app", table_of_types(TABLE, _COLUMNS.items(), ["id"]))
        at = int(token or 0)

        def read(away: float) -> None:
            if away and self._followed.chance.random() < away:
                self._followed.scheduler.current.process.start["was_away"] = True
                raise SourceUnavailable("the source is unavailable")

        while True:
            point("reads the source")
            read(feed.away)
            for transaction in feed.transactions:
                if transaction.last <= at:
                    continue
                for number, change in transaction.changes.items():
                    read(feed.away / 8)
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


class _Table(Replica):
    """The rows that a receiver has, which a TRUNCATE removes all."""

    def apply(self, event: Event) -> bool:
        is_new = super().apply(event)
        if is_new and object_of(event) == _WHOLE_TABLE:
            self.objects.clear()
        return is_new


class _TableReceiver(Receiver):
    """A receiver that also understands a TRUNCATE, which a function gets as a document without
    events.
    """

    def __init__(self, followed: Followed) -> None:
        super().__init__(followed, NAME, is_strict=True)  # type: ignore[arg-type]
        self.replica = _Table()
        self._followed = followed
        self._kept: tuple[Process | None, list[Event]] = (None, [])
        """The events that it has accepted and not applied, and the process that has sent them."""

    def receive(self, body: bytes, events: Sequence[Event]) -> Answer | None:
        events = events or self._followed.truncates_in(body)
        self._followed.is_sent(events)
        if events and ("keeps" in self.mood or self.kept()):
            return self._keep(events)
        return super().receive(body, events)

    def kept(self) -> list[Event]:
        """Return the events that the process which runs will lose if it ends before a flush."""
        process, kept = self._kept
        return kept if process is self._followed.scheduler.current.process else []

    def accepted(self) -> set[str]:
        """Return the event-ids that it has accepted, and may refuse or lose at the flush."""
        process, late = self._late
        is_own = process is self._followed.scheduler.current.process
        return {event.event_id for event in self.kept()} | (late.keys() if is_own else set())

    def _keep(self, events: Sequence[Event]) -> None:
        """Accept events, which are applied at the next flush."""
        told = " ".join(event.event_id for event in events)
        self._tries.update(event.event_id for event in events)
        self._followed.tell(f"  {self.name} keeps {told}")
        scheduler = self._followed.scheduler
        self._kept = scheduler.current.process, [*self.kept(), *events]
        scheduler.point(f"answers {self.name} {events[0].event_id}")
        scheduler.current.process.answers["success"] += len(events)

    def flush(self) -> Mapping[str, EventResult] | None:
        if kept := self.kept():
            self._kept = None, []
            if self._draws("keeps", kept[0].event_id):
                self._followed.stats["a flush of a stream that fails"] += 1
                self._followed.tell(f"  {self.name} loses what it has kept")
                raise ReceiverUnavailable("the receiver has lost documents", "lost")
            self.apply(kept)
            self._followed.is_final(event.event_id for event in kept)
        return super().flush()


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
        self.format: str = world.plan.get("source_format", world.plan["format"])
        self.chance = Random(f"followed {world.plan['seed']}")
        self.receiver = _TableReceiver(self)
        self.path = world.directory / "position.db"
        self._meanings: dict[str, Event] = {}
        self._contents: dict[str, str] = {}
        """What the format has written of each event."""
        self._truncates: dict[bytes, str] = {}
        """The event-id of each document that has a TRUNCATE."""
        self._newest: dict[Key, int] = {}
        self._answered: set[str] = set()
        """The event-ids that were answered for good, at least once."""
        self._fatal: set[int] = set()
        """The changes of which an event was answered fatal, and none refused since."""
        self._refused_late: set[str] = set()
        """The event-ids that were refused at a flush."""
        self._skipped: set[str] = set()
        self._waiting: dict[Process, set[str]] = {}
        """The event-ids that each publisher sends later, since its receiver has answered retry."""

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
        send, settled, save = SourceFeed.send, SourceFeed.settled, SourceFeed.save
        settle, restore = serving.Sender.settle, follow.Run.restore
        at_sending = self._world.auditor.at_sending
        of_process: dict[Any, Any] = {}

        def sent(feed: Any, document: Any) -> Any:
            self._refuse_skipped(event.sent_id for event in document.events)
            numbers = feed.saved.delivery_no, document.number
            with at_sending.sends_of_source(*numbers, document.events):
                return send(feed, document)

        def settling(sender: Any, document: Any, outcome: Any) -> None:
            of_process[self.scheduler.current] = document
            if isinstance(sender._feed, SourceFeed) and sender._outbox.rules.park:
                self._note_retries([event.sent_id for event in document.events], outcome)
            settle(sender, document, outcome)

        def is_settled(feed: Any, outcome: Any) -> None:
            document = of_process[self.scheduler.current]
            if outcome.judged is not None and outcome.judged.answered:
                names = [event.sent_id for event in document.events]
                at_sending.is_answered(NAME, feed.saved.delivery_no, document.number, names)
            settled(feed, outcome)

        def saved(feed: Any) -> None:
            save(feed)
            at_sending.is_recorded()
            self._audit_attempts()

        def restored(run: Any) -> None:
            asked = self._ask("SELECT content FROM eventlog_position_inflight")
            latest, leap = self.scheduler.now + run.options.retry_max, self.scheduler.leap
            # When the session is opened again, no answer counts that was not recorded.
            self._waiting.get(self.scheduler.current.process, set()).intersection_update(
                event_id
                for entry in (json.loads(text) for (text,) in asked)
                if "due" in entry.get("parked", {})
                for event_id in _ids_in(entry)
            )
            restore(run)
            at_sending.follows((text for (text,) in asked), latest, leap)

        made = StreamOutput.document

        def document(output: StreamOutput, *numbers: Any) -> Any:
            *_, events = numbers
            for event in events:
                self.is_written(event.sent_id, output.writer, event.piece)
            found = made(output, *numbers)
            if not events[0].objects:
                self._truncates[found.body] = events[0].sent_id
            return found

        with (
            patch.dict(registry.BUILT_IN[registry.SOURCES], {TYPE: place}),
            patch.object(ChangesSource, "followed", self),
            patch.object(SourceFeed, "send", sent),
            patch.object(SourceFeed, "settled", is_settled),
            patch.object(SourceFeed, "save", saved),
            patch.object(serving.Sender, "settle", settling),
            patch.object(follow.Run, "restore", restored),
            patch.object(StreamOutput, "document", document),
        ):
            yield

    def _note_retries(self, event_ids: Sequence[str], outcome: Any) -> None:
        """Note which events of a document wait now, since the receiver has asked for them later. An
        event whose place takes nothing has no attempt that counts.
        """
        waiting = self._waiting.setdefault(self.scheduler.current.process, set())
        waiting.difference_update(event_ids)
        results = getattr(outcome, "results", {})
        if any(result.level is Level.FATAL for result in results.values()):
            return
        waiting.update(
            one
            for one, result in results.items()
            if one in event_ids and result.level is Level.RETRY and not result.place
        )

    def _audit_attempts(self) -> None:
        """Check that the entry of each event that waits has the attempts at it and the time of the
        next one, once it is written (docs/spec/event-log.md 8.4, Progress).
        """
        waiting = self._waiting.get(self.scheduler.current.process, set())
        for (text,) in self._ask("SELECT content FROM eventlog_position_inflight"):
            entry = json.loads(text)
            if not (ids := waiting.intersection(_ids_in(entry))):
                continue
            self._world.auditor.checks += 1
            if "due" not in entry.get("parked", {}):
                self.fail(
                    f"{sorted(ids)} got retry, and their entry has no time of the next attempt"
                )

    def _refuse_skipped(self, event_ids: Iterable[str]) -> None:
        """Check that no event is sent that an operator has given up."""
        if skipped := self._skipped.intersection(event_ids):
            self.fail(f"{sorted(skipped)} were skipped, and are sent")

    def is_written(self, event_id: str, writer: Any, piece: Any) -> None:
        """Check that the format writes the same of an event each time, also when the event was
        recorded: its numbers, and its values to the last digit.
        """
        if writer.in_records:  # MD comes again after a restart
            piece = piece[-1:]
            content = " ".join(str(record.value) for record in piece)
        else:
            content = _PROCESSED.sub("", writer.shown(piece))
        self._world.auditor.checks += 1
        before = self._contents.setdefault(event_id, content)
        if before != content:
            self.fail(f"{event_id} was written as {before}, and is written as {content}")

    def truncates_in(self, body: bytes) -> Sequence[Event]:
        """Return the TRUNCATE of a document that has no other event."""
        event_id = self._truncates.get(body)
        return [Event(Operation.DELETE, TABLE, "", event_id)] if event_id else []

    def config(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration of the publisher, and of the commands about it."""
        of_format = {name: options[name] for name in OF_FORMATS if name in options}
        if self.format != "xds":
            of_format["type"] = self.format
        return {
            "source": {"type": TYPE, "position_url": f"sqlite:///{self.path}"},
            "publisher": {name: value for name, value in options.items() if name in _OPTIONS},
            "sink": {"type": "python", "function": "receivers:receive"},
            **({"format": of_format} if of_format else {}),
        }

    def start(
        self,
        chance: Random | None,
        given: Mapping[str, Any] = MappingProxyType({}),
        *,
        is_once: bool = False,
    ) -> None:
        """Start the publisher that follows the source; without chances with plain options, but for
        those that are ``given``. With ``is_once`` it ends when it has sent what is there."""
        options: Mapping[str, Any] = {"concurrency": 1}
        if chance is not None:
            options, _ = draw_options(chance, self._world.plan, "python", is_consumer=True)
        options = {**options, **given}
        config = self.config({name: one for name, one in options.items() if name in _OPTIONS})
        self._note_entries()
        process = Process(NAME, {"bounds": {}, "once": is_once})
        self.tell(f"start {NAME} {config['publisher']}{' once' if is_once else ''}")
        self.stats["starts"] += 1

        def run() -> None:
            receive = self._world.received(process, self.receiver, options["concurrency"])
            publisher = Publisher.from_config(config, sink=receive, environ={})
            if self.format not in JOINS_NEW_KEY:
                process.counters = lambda: publisher.counters
            if is_once:
                once.run(self._world, process, publisher, self._unpublished)
            else:
                publisher.run(self._world.stop_of(process))

        self.scheduler.spawn(process, run)

    def _note_entries(self) -> None:
        """Count what a publisher finds recorded at its start: what waits has the time of its next
        attempt.
        """
        for (text,) in self._ask("SELECT content FROM eventlog_position_inflight"):
            entry = json.loads(text)
            self.stats["settled in source"] += len(entry.get("settled", ()))
            self.stats["recorded in source"] += len(_ids_in(entry))
            tried = entry.get("parked", entry.get("suspect", {}))
            if tried and "due" not in tried:
                self.fail(f"an entry of the position has no time of the next attempt: {text[:300]}")

    def is_read_from(self, token: Any) -> None:
        """Check the position from which the source is read: what is before it is answered, or
        stands in the tables of the position.
        """
        known = self._answered | self._skipped | self._recorded() | self._failures().keys()
        if lost := self._unanswered(range(1, int(token or 0) + 1), known):
            self.fail(f"the source is read from {token}, and no table has {lost[:10]}")

    # --- steps ---

    def commit(self, chance: Random, changes: Sequence[int] = ()) -> None:
        """The source gets a transaction, or several. A plan may say how many changes each has: no
        TRUNCATE, and no new keys.
        """
        for number in changes:
            self._commit(chance, self._world.plan["size"], number, 0.0, 0.0)
        for _ in () if changes else range(chance.choice([1, 1, 1, 5])):
            self._commit(chance, self._world.plan["size"])
        if NAME not in self.scheduler.processes:
            self.start(chance)

    def change_mood(self, chance: Random, answers: Mapping[str, float] | None = None) -> None:
        """The receiver answers otherwise from now on, or the source can be read or not. A plan may
        say what the receiver answers with which probability.
        """
        mood = chance.choice(self._world.plan.get("moods", sorted(MOODS)))
        self.receiver.mood = dict(MOODS[mood] if answers is None else answers)
        self.receiver.seed = chance.randrange(2**31)
        self.feed.away = chance.choice([0.0, 0.0, 0.0, 0.3]) if answers is None else 0.0
        self.tell(
            f"{NAME}'s receiver is {mood if answers is None else answers}, the source is unavailable "
            f"with probability {self.feed.away}"
        )

    def kill(self, chance: Random, **given: Any) -> None:
        """The publisher is killed where it is, and started again; a plan may say with which
        options."""
        if self._kill():
            self.start(chance, given)

    def _kill(self) -> bool:
        if (process := self.scheduler.processes.get(NAME)) is not None:
            self._world.kill(process)
        return process is not None

    def restart(self, chance: Random, **given: Any) -> None:
        """The publisher is stopped, and started again with other options; a plan may say which."""
        if (process := self.scheduler.processes.get(NAME)) is not None:
            self._world.stop(process)
            self.start(chance, given)

    def _begin_again(self, chance: Random, mood: Mapping[str, float], **given: Any) -> None:
        """Start the publisher with these options, and let its receiver answer so."""
        if (process := self.scheduler.processes.get(NAME)) is not None:
            self._world.stop(process)
        self.receiver.mood, self.receiver.seed = dict(mood), chance.randrange(2**31)
        self.feed.away = 0.0
        self.start(chance, given)

    def _commit(self, chance: Random, size: int, *how: Any) -> None:
        transaction = self.feed.commit(chance, size, *how)
        self.tell(f"the source commits {min(transaction.changes)} to {transaction.last}")

    def refuse(self, chance: Random) -> None:
        """The receiver refuses or fails for events of a transaction, of which the first may stand
        at the position, and the publisher is killed before the position passes them.
        """
        if chance.random() < 0.4:
            self._refuse_of_several(chance)
            return
        few = {"batch_size": chance.choice([1, 1, 2]), "query_limit": 10_000, "on_retry": "park"}
        mood = chance.choice([{"error": 0.6}, {"error": 0.6}, {"fail one": 1.0}])
        self._begin_again(chance, mood, max_attempts=1, isolate_after=1, **few)
        for _ in range(2):
            self._commit(chance, self._world.plan["size"], chance.choice([3, 8]))
            self.scheduler.run_to("committed position_error", chance.choice([1, 1, 2]), 60)
            if chance.random() < 0.8:
                self.kill(chance)

    def _refuse_of_several(self, chance: Random) -> None:
        """The receiver refuses events of several transactions at the same time, and asks for an
        earlier one later. The publisher is killed then, and when the position has passed a part of
        those that were refused.
        """
        given = {"query_limit": 10_000, "on_retry": "stop", "max_attempts": 0, "batch_size": 1}
        self._begin_again(chance, {"away": 1.0}, concurrency=1, **given)
        for _ in range(4):
            self._commit(chance, _MANY_KEYS, chance.choice([1, 2]), 0.0)
        self._begin_again(chance, {"error": 0.6, "retry": 0.3}, concurrency=4, **given)
        for mood in ({"retry": 0.2}, {"retry": 0.2}, {}):
            self.scheduler.run_to("committed position", chance.choice([1, 1, 2]), 60)
            self._kill()
            self._begin_again(chance, mood, concurrency=1, mark_interval=0, **given)

    def move_keys(self, chance: Random) -> None:
        """Rows get the keys of rows whose deletes wait, or are being sent."""
        given = {"concurrency": chance.choice([2, 4]), "batch_size": 1, "query_limit": 10_000}
        given |= {"on_retry": "park", "max_parked": 1000, "retry_initial": 20, "max_attempts": 0}
        self._begin_again(
            chance, chance.choice([{"retry one": 1.0}, {"retry one": 1.0}, {"slow": 0.7}]), **given
        )
        keys = chance.choice([3, 5])
        while not any(self.receiver.is_poison_key((TABLE, f"id={key + 1}")) for key in range(keys)):
            self.receiver.seed = chance.randrange(2**31)
        for _ in range(3):
            self._commit(chance, keys, 8, 0.0, 0.5)
            self.scheduler.run(chance.choice([20, 40]))
        self.receiver.mood = {}

    def refuse_unnamed(self, chance: Random) -> None:
        """The receiver refuses documents without naming an event, while it gets later ones."""
        given = {"concurrency": chance.choice([2, 4]), "batch_size": chance.choice([2, 3])}
        mood = {"error": 0.4, "unnamed": 1.0, "slow": 0.4}
        self._begin_again(chance, mood, query_limit=10_000, mark_interval=10, **given)
        for _ in range(2):
            self._commit(chance, _MANY_KEYS, 8, 0.0)
            self.scheduler.run(chance.choice([20, 40]))
        if chance.random() < 0.5:
            self.kill(chance)
        self.receiver.mood = {}

    def lose_at_flush(self, chance: Random) -> None:
        """The receiver accepts documents, and has lost some of them at the flush."""
        self._begin_again(chance, {"keeps": 0.5}, concurrency=chance.choice([1, 2]))
        for _ in range(3):
            self._commit(chance, self._world.plan["size"])
            self.scheduler.run_on(chance.choice([20, 40]))
            if chance.random() < 0.3:
                self.kill(chance)
        self.receiver.mood = {}

    def park(self, chance: Random) -> None:
        """The receiver asks for later of some rows for longer than a publisher lives."""
        given = {
            "batch_size": chance.choice([1, 5, 128]),
            "query_limit": 10_000,
            "on_retry": "park",
        }
        given |= {"retry_initial": chance.choice([1, 20]), "max_parked": 1000, "max_attempts": 0}
        mood = chance.choice([{"retry one": 1.0}, {"retry": 0.6}, {"fail one": 1.0}])
        self._begin_again(chance, mood, isolate_after=1, **given)
        for _ in range(3):
            self.commit(chance)
            self.scheduler.run_to("committed position_inflight", chance.choice([1, 2, 3]), 100)
            chance.choice([self.kill, self.restart])(chance)
        self.scheduler.run(chance.choice([0, 40]))
        self.receiver.mood = {}

    def truncate(self, chance: Random) -> None:
        """The table of the source is emptied while some of its rows wait or are being sent."""
        given = {"concurrency": chance.choice([1, 2, 4]), "query_limit": 10_000}
        names = ["good", "retry", "slow", "poisoned", "stumbles", "errors", "slow losses"]
        self._begin_again(chance, MOODS[chance.choice(names)], **given)
        for truncate in (0.0, 0.4, 0.0):
            self._commit(chance, self._world.plan["size"], chance.choice([1, 3, 8]), truncate)
            self.scheduler.run(chance.choice([0, 5, 15, 40]))
        if chance.random() < 0.5:
            chance.choice([self.kill, self.restart])(chance)
        self.scheduler.run(chance.choice([0, 40]))
        self.receiver.mood = {}

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
        key, number = object_of(event), _number(event.event_id)
        self._world.auditor.checks += 1
        of_all = key == _WHOLE_TABLE
        several = self._newest.values() if of_all else map(self._newest_of, (key, _WHOLE_TABLE))
        newest = max(several, default=0)
        is_unrecorded = event.event_id in self._refused_late
        if number < newest and not self._world.auditor.excuse(Excuse.UNRECORDED, is_unrecorded):
            self.fail(f"{event.event_id} of {key} comes after {newest} of the object")
        self._newest[key] = max(number, self._newest_of(key))

    def _newest_of(self, key: Key) -> int:
        return self._newest.get(key, 0)

    def is_sent(self, events: Sequence[Event]) -> None:
        """Check events as they arrive: none has a row in the table of failures. An event comes when
        each earlier one of its keys is answered or in its document, a TRUNCATE when all before it is
        answered, and all after it when it is.
        """
        failures, here = self._failures(), {_number(each.event_id) for each in events}
        for event in events:
            one, number = event.event_id, _number(event.event_id)
            self._world.auditor.checks += 1
            if one in failures and number not in self._fatal:
                self.fail(f"{one} was refused or given up, and is sent again")
            known = self._answered | self._skipped | failures.keys() | self.receiver.accepted()
            if object_of(event) == _WHOLE_TABLE:
                self._world.auditor.at_sending.waits_no_longer()  # what waits comes after it
                self.stats["truncates sent"] += 1
                before: Collection[int] = range(1, number)
            elif self.format in _HAS_TRUNCATE:
                before = [each for each in self.feed.truncates if each < number]
            else:
                before = []
            changes = self.feed.changes
            # A change that cannot be read has its failure once the position passes it.
            waited = {each for each in before if changes[each]}
            if self.format in JOINS_NEW_KEY:
                own = self._objects_of(one)
                waited |= {
                    each
                    for each in range(1, number)
                    if each not in here and own & self._objects_of(f"{TYPE}.{each}")
                }
            if left := self._unanswered(sorted(waited), known):
                self.fail(f"{one} is sent before {left[:10]} are answered")

    def _unanswered(self, numbers: Collection[int], known: Collection[str]) -> list[str]:
        """Return the event-ids of changes that need an answer or a failure, and have none."""
        changes, format = self.feed.changes, self.format
        left: list[str] = []
        for number in numbers:
            change = changes[number]
            if change is not None and change.op is ChangeOp.TRUNCATE and format == "qlik-messages":
                continue  # it has no message
            ids = [f"{TYPE}.{number}"]
            if change is not None and _has_new_key(change) and format not in JOINS_NEW_KEY:
                ids.append(f"{TYPE}.{number}.2")
            left += [one for one in ids if one not in known]
        return left

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
        levels: dict[str, Level] = {}
        for event in events:
            before = self._meanings.setdefault(event.event_id, event)
            if before != event:
                self.fail(f"event-id {event.event_id} had the content {before}, and has {event}")
            verdict = verdicts.get(event.event_id)
            levels[event.event_id] = level = others if verdict is None else verdict.level
            if level not in (Level.FATAL, Level.RETRY):
                self._answered.add(event.event_id)
        of_level = {
            each: {_number(one) for one, level in levels.items() if level is each}
            for each in (Level.ERROR, Level.FATAL)
        }
        self._fatal = self._fatal - of_level[Level.ERROR] | of_level[Level.FATAL]

    def is_final(self, event_ids: Iterable[str]) -> None:
        """Note events that a receiver has accepted before, and cannot lose any more."""
        self._answered.update(event_ids)

    def refuses(self, receiver: str, event_ids: Sequence[str]) -> None:
        """Note which of these events will be refused at a flush. Such an event is sent again only if
        the commit after the flush has failed; the receiver may have applied later ones by then.
        What is refused in an answer has its row before a later event of the object is sent
        (docs/spec/change-model.md 6.4).
        """
        self._refused_late.update(self.receiver.accepted().intersection(event_ids))

    def goes_back(self, receiver: str, key: Key) -> None:
        """Nothing: a strict receiver applies nothing that comes after a retry."""

    # --- the end ---

    def heal(self) -> None:
        """End all faults, and have somebody follow the source."""
        self.receiver.mood, self.feed.away = {}, 0.0
        if NAME not in self.scheduler.processes and self.feed.transactions:
            self.start(None)

    def _unpublished(self) -> Collection[str]:
        """Return the event-ids of changes after the position, and of events that it has passed."""
        token = self._ask("SELECT token FROM eventlog_position")
        reached = json.loads(token[0][0] or "0") if token else 0
        return {
            *self._recorded(),
            *(f"{TYPE}.{number}" for number in range(reached + 1, self.feed.last + 1)),
        }

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
        changes = self.feed.changes
        self._world.auditor.checks += len(changes)
        for number, change in changes.items():
            event_id = f"{TYPE}.{number}"
            if change is None and failures[event_id] != 1:
                self.fail(f"{event_id} has {failures[event_id]} failures, and needs one")
        known = self.receiver.replica.applied | failures.keys()
        for event_id in self._unanswered(changes.keys(), known):
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
        excused |= {self._key_of(one) for one in self._left_by_truncates()}
        has = {
            association: attributes
            for (_, association), attributes in self.receiver.replica.objects.items()
        }
        wants = {
            self._key_of(key): {
                name: [_text(value)]
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

    def _left_by_truncates(self) -> set[int]:
        """Return the keys of rows that a TRUNCATE removed and the receiver may still have, as it
        never got the TRUNCATE. A row that was inserted since is written as a whole.
        """
        there = self.receiver.replica.applied
        return {
            key
            for number, keys in self.feed.truncates.items()
            for key in keys
            if f"{TYPE}.{number}" not in there and key not in self.feed.rows
        }

    @staticmethod
    def _key_of(key: int) -> str:
        return f"id={key}"

    def _objects_of(self, event_id: str) -> set[int]:
        """Return the keys that the change of an event-id has touched."""
        change = self.feed.changes[_number(event_id)]
        images = () if change is None else (change.before, change.after)
        return {image["id"] for image in images if image}

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


def _has_new_key(change: Change) -> bool:
    before, after = change.before, change.after
    return before is not None and after is not None and before["id"] != after["id"]


def _number(event_id: str) -> int:
    """Return the number of the change of an event-id."""
    return int(event_id.split(".")[1])


def _ids_in(entry: Any) -> list[str]:
    """Return the event-ids of an entry of the position."""
    return [event["id"] for event in entry.get("events", ())]
