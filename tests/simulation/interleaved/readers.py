"""The publisher and a consumer, with their real code, and ``requeue``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from eventlog.core.ranges import RecordSet, to_ranges
from eventlog.errors import DatabaseError
from eventlog.model import Answer, Document, Event, EventResult, Level, Op
from eventlog.publisher.context.context import Context, Counters, Used
from eventlog.publisher.declared.opening import under_epoch
from eventlog.publisher.inspect.refusals import refused
from eventlog.publisher.ledger.in_flight import sent_ids
from eventlog.publisher.ledger.ledger import SetLedger, StatusLedger, ledger_of
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession
from eventlog.publisher.sinks import Sink
from eventlog.sql.log.requeue import requeue
from eventlog.sql.readers.consumers import lock_consumer, read_consumer, requeue_for
from interleaved.server import CONSUMER
from interleaved.stepping import Task
from interleaved.writers import Change

if TYPE_CHECKING:
    from interleaved.world import World

REST = "rest"
"""The place of a reader that has found nothing more to do."""
_RESTING = (REST, "sleep")
_SETTLED = "interleaved"
_IS_THERE = "SELECT FROM pg_stat_activity WHERE pid = %s"
_RARELY = 2
"""The visits up to which a place is rare."""
_MAX_POINTS = 500
"""The most statements of a reader between two rests: more are a busy loop."""


class Process:
    """A process of ours on one session: it is started, runs some statements at a time, and can be
    killed.
    """

    def __init__(self, name: str, kept: Context, world: World) -> None:
        self.name, self.kept, self.world = name, kept, world
        self.task: Task | None = None
        self._pid = 0
        self._visits = Counter[str]()
        """How often it has stood at each place."""

    def _start(self, run: Callable[[], None]) -> None:
        driver: Any = self.kept.log.connection.connection.driver_connection
        self._pid = driver.info.backend_pid
        self.task = Task(self.name, run, self.world.stepper)

    @property
    def is_running(self) -> bool:
        return self.task is not None

    @property
    def place(self) -> str:
        """The statement before which it stands."""
        return "" if self.task is None else self.task.at

    def run(self, points: int) -> None:
        """Run so many statements, less if it comes to rest, waits for a lock, or ends."""
        for _ in range(points):
            if self.task is None:
                return
            before = self.task.at
            self._will_run(before)
            self.task.resume()
            self.world.tell(f"{self.name}: {before}")
            self._visits[self.place] += 1
            if self.name == "publisher" and before.startswith("COMMIT error"):
                self.world.audit.marks()
            self._has_run(before)
            self._ended()
            if self.task is None or self.task.at in _RESTING:
                return
            if self.task.is_blocked:
                self.world.tell(f"{self.name} waits for another transaction")
                return

    def _will_run(self, place: str) -> None:
        """Note that the statement at a place is about to run."""

    def _has_run(self, place: str) -> None:
        """Note that the statement at a place has run."""

    def run_to_rest(self) -> None:
        """Run to the next rest, or to the end."""
        self.run(_MAX_POINTS)
        if self.task and self.task.at not in _RESTING and not self.task.is_blocked:
            self.world.fail(f"{self.name} does not come to rest: it is at {self.task.at}")

    def run_to_rare(self, number: int) -> None:
        """Run until it stands for the ``number``-th time at a place where it has hardly ever been,
        or comes to rest: a poll that finds nothing special has only common ones.
        """
        for _ in range(_MAX_POINTS):
            self.run(1)
            if self.task is None or self.task.at in _RESTING or self.task.is_blocked:
                return
            number -= self._visits[self.task.at] <= _RARELY
            if number <= 0:
                return

    def run_before(self, place: str) -> None:
        """Run until it stands at a place whose name begins so, or to the next rest."""
        for _ in range(_MAX_POINTS):
            self.run(1)
            if self.task is None or self.task.at in _RESTING or self.task.is_blocked:
                return
            if self.task.at.startswith(place):
                return

    def run_to_commit(self, number: int) -> None:
        """Run until the ``number``-th transaction that writes has committed, or to the next rest."""
        for _ in range(_MAX_POINTS):
            commits = self.place.startswith("COMMIT")
            self.run(1)
            if self.task is None or self.task.at in _RESTING or self.task.is_blocked:
                return
            number -= commits
            if number <= 0:
                return

    def go_on(self) -> None:
        """Let a statement end that has waited."""
        if self.task is not None and self.task.is_blocked:
            self.task.resume()
            self._ended()

    def _ended(self) -> None:
        task = self.task
        if task is not None and task.is_done:
            self.task = None
            if task.error is not None:
                self.world.fail(f"{self.name} ended: {task.error!r}")

    def kill(self) -> None:
        """End the process where it is, and wait until the server has ended its session."""
        if self.task is None:
            return
        self.world.tell(f"{self.name} is killed before {self.task.at}")
        self.lose()
        while self.world.control.execute(_IS_THERE, (self._pid,)).fetchone() is not None:
            pass

    def lose(self) -> None:
        """End the process and its session."""
        if self.task is not None:
            self.task.kill()
            self.task = None
        self.world.sessions.lose(self.kept)

    def leave(self) -> None:
        """End the process at the end of a schedule. The session of one at rest stays."""
        if self.task is not None and self.task.at == REST:
            self.task.kill()
            self.task = None
        self.kill()


class Reader(Process):
    """The publisher, or the consumer: its cycles, one after the other."""

    def __init__(
        self, name: str, kept: Context, world: World, options: dict[str, Any], begins: str
    ) -> None:
        super().__init__(name, kept, world)
        self._options, self.begins = options, begins
        self._has_durable_marks = world.schedule.get("durable_marks", False)
        self._ledger: StatusLedger | SetLedger | None = None
        self.lives = 0

    @property
    def followed(self) -> RecordSet | None:
        """The rows that are done, as the present process remembers them; None = it does not."""
        ledger = self._ledger
        return None if ledger is None or ledger.followed is None else ledger.followed.done

    @property
    def is_at_rest(self) -> bool:
        """True if it does nothing, and would begin with reading the log."""
        return self.task is None or self.task.at == REST

    def start(self) -> None:
        if not self.is_running:
            self.lives += 1
            self._start(self._work)

    def _work(self) -> None:
        kept, log = self.kept, self.kept.log
        if _SETTLED not in log.connection.info:  # a new session, after a kill
            log.db.begin_publishing()
            log.connection.info[_SETTLED] = True
        consumer = kept.ledger.consumer or None
        ledger = ledger_of(
            log, consumer, self.begins, by_number=True, durable_marks=self._has_durable_marks
        )
        assert isinstance(ledger, StatusLedger | SetLedger)
        self._ledger = ledger
        if self.begins == "latest":
            self.world.audit.begins(self.name)
        ledger.lock()
        ledger.register()
        self.world.audit.has_begun(self.name)
        options = replace(kept.options, **self._options)
        context = replace(kept, ledger=ledger, counters=Counters(), used=Used(), options=options)
        context = under_epoch(context, "")
        receiver = Receiver(self)
        session = PublisherSession(context, recover(context), receiver)
        while True:
            if not run_cycle(session).more:
                self.world.stepper.point(REST)
                self.world.now += self.world.schedule["rest"]


class Receiver(Sink):
    """The receiver of a reader. The schedule decides the answer to each event."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._world = reader, reader.world

    def send(self, document: Document) -> Answer:
        """Take a document. The reader may be killed before, and before it has the answer."""
        self._world.stepper.point("send")
        verdicts = {}
        for event in document.events:
            if event.class_name == "usr":
                self._world.tell(f"{self._reader.name} sends {event.event_id}: {event}")
                self._world.audit.receives_family(self._reader.name, event)
                continue
            changes = changes_of(event)
            level = self._world.answer(self._reader.name, changes)
            if level is not Level.SUCCESS:
                verdicts[event.event_id] = EventResult(level, "drawn")
            self._world.tell(f"{self._reader.name} sends {event.event_id}: {_told(changes)}, {level.name.lower()}")  # fmt: skip
            self._world.audit.receives(self._reader.name, self._reader.lives, event.event_id, changes, level)  # fmt: skip
        self._world.stepper.point("answer")
        return Answer(results=verdicts)


def changes_of(event: Event) -> list[Change]:
    """Return what an event says, change by change."""
    key = int(event.association.partition(",")[0].removeprefix("id="))
    return [
        Change(key, value)
        for attribute in event.attributes
        for step in attribute.steps
        if step.op is Op.ADD
        for value in step.values
    ]


def _told(changes: Sequence[Change]) -> str:
    return ", ".join(f"{change.key} = {change.value!r}" for change in changes)


COPIES = "copies"
FIRST_OF_CONSUMER = "first of cons"
"""A request of ``requeue --consumer`` for the first of the refused rows alone."""


class Operator(Process):
    """``eventlog requeue``: of rows that were refused, for the publisher or for the consumer, or of
    rows that were published, as copies.
    """

    def start(self, what: str) -> None:
        if not self.is_running:
            acts = {
                CONSUMER: self._for_consumer,
                FIRST_OF_CONSUMER: partial(self._for_consumer, is_first=True),
                COPIES: self._copies,
            }
            self._start(acts.get(what, self._for_publisher))

    def _for_publisher(self) -> None:
        log = self.kept.log
        log.lock_requeuing()
        done = requeue(log, ("E", "F"), in_flight=sent_ids(log))
        log.commit()
        self.world.tell(f"requeue: {done.set_back} rows")
        self.world.audit.requeued("publisher")

    def _for_consumer(self, *, is_first: bool = False) -> None:
        log = self.kept.log
        lock_consumer(log, CONSUMER)
        failed, _ = refused(log, consumer=CONSUMER)
        in_flight = sent_ids(log, CONSUMER)
        if (entry := read_consumer(log, CONSUMER)) is not None:
            asked = to_ranges(sorted(failed)[: 1 if is_first else None])
            requeue_for(log, entry, asked, failed=failed, in_flight=in_flight)
        log.commit()
        self.world.tell("requeue --consumer")
        self.world.audit.requeued(CONSUMER)

    def _copies(self) -> None:
        log = self.kept.log
        try:
            done = requeue(log, ("S",), in_flight=sent_ids(log))
        except DatabaseError as error:  # a transaction stays open for a minute
            log.connection.rollback()
            self.world.tell(f"requeue: {error}")
            return
        log.commit()
        self.world.tell(f"requeue --status S: {done.copied} copies")
        self.world.audit.copied()
