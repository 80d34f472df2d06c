"""The machine that a simulation takes the place of: clock, chance, threads, the sessions of SQLite,
the disk and the object store. ``installed`` puts it under the product while its block runs.

Each transaction, each commit that wrote, each rename and each object put is a point of the
scheduler. A commit's point names the tables that it wrote, without the name of the log: ``COMMIT
inflight log``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from weakref import WeakKeyDictionary, proxy

import pauses
from ranges import WithRanges
from scheduler import BEGIN, Killed, Scheduler
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.util import LRUCache

from eventlog.cli.install.runs import triggers
from eventlog.core import clock
from eventlog.errors import ReceiverUnavailable
from eventlog.model import Answer, EventResult, Level
from eventlog.publisher import publisher
from eventlog.publisher.context.observer import Observer
from eventlog.publisher.declared import opening, trigger_plan
from eventlog.publisher.ledger import ledger
from eventlog.publisher.run import daemon
from eventlog.publisher.send import cycle, log_feed, marks, policy, serving, snapshot_chunks
from eventlog.publisher.send.outbox import Outbox
from eventlog.publisher.sinks import files as files_sink
from eventlog.publisher.sinks import objects as objects_sink
from eventlog.publisher.sinks.python import CallableSink
from eventlog.sql.connect import connection
from eventlog.sql.dialects.sqlite import SQLite
from eventlog.sql.dialects.sqlite import session as sqlite_session
from eventlog.sql.dialects.sqlite.database import SQLiteDatabase
from eventlog.sql.dialects.sqlite.log import SQLiteLog
from eventlog.sql.dialects.sqlite.triggers import SQLiteTriggers
from eventlog.sql.log_table import LogTable
from eventlog.sql.readers import followed_set

if TYPE_CHECKING:
    from world import World

_BUSY_SECONDS = 30.0
_WRITES = re.compile(
    r"\s*(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+[\"']?(?:eventlog_(\w+)|(eventlog)\b)"
)


_LOOKS = {"status", "errors", "list", "explain", "doctor"}
"""The words of commands that write nothing."""


class Machine(clock.Machine):
    """Virtual time, chance from the seed, and tasks in place of threads."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._random = world, random.Random(seed)

    def monotonic(self) -> float:
        return self._world.scheduler.now

    def cpu_time(self) -> float:
        return self._world.scheduler.now

    def unix_time(self) -> float:
        return BEGIN + self._world.scheduler.now + self._world.scheduler.leap

    def sleep(self, seconds: float) -> None:
        self._world.scheduler.point("sleep", seconds)

    def chance(self) -> float:
        return self._random.random()

    def random_hex(self, count: int) -> str:
        return self._random.randbytes(count).hex()

    def executor(self, most: int, name: str) -> Executor:
        return _Tasks(self._world)

    def wait_for_one(self, futures: Collection[Future[Any]]) -> None:
        self._wait(lambda: any(future.done() for future in futures))

    def wait_for_all(self, futures: Collection[Future[Any]]) -> None:
        if futures:
            self._wait(lambda: all(future.done() for future in futures))

    def _wait(self, is_ready: Callable[[], bool]) -> None:
        self._world.scheduler.point("wait for answers", is_ready=is_ready)


class _Tasks(Executor):
    """An executor whose threads are tasks of the process that made it."""

    def __init__(self, world: World) -> None:
        self._world, self._futures = world, list[Future[Any]]()

    def submit(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._futures.append(future)

        def work() -> None:
            try:
                future.set_result(run(*args, **kwargs))
            except Killed:
                raise
            except BaseException as error:
                future.set_exception(error)

        scheduler = self._world.scheduler
        assert scheduler.current is not None
        type(scheduler.current)(scheduler.current.process, work, scheduler)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        scheduler = self._world.scheduler
        if scheduler.current is not None and not scheduler.current.process.is_dead:
            scheduler.point(
                "wait for threads", is_ready=lambda: all(future.done() for future in self._futures)
            )


# --- SQLite ---------------------------------------------------------------------------------------


MONOTONIC = "monotonic"
_times = sqlite3.connect(":memory:", check_same_thread=False)


def _time_of(scheduler: Scheduler, line: str, moment: Any, *modifiers: str) -> Any:
    if moment in ("now", MONOTONIC):
        leap = scheduler.leap if moment == "now" else 0.0
        moment, modifiers = BEGIN + scheduler.now + leap, ("unixepoch", "subsec", *modifiers)
        modifiers = tuple(one for one in modifiers if one not in ("localtime", "subsec"))
    marks_of = ", ".join("?" * len(modifiers))
    sql = f"SELECT strftime(?, ?{', ' if modifiers else ''}{marks_of})"
    return _times.execute(sql, (line, moment, *modifiers)).fetchone()[0]


def with_virtual_time(session: sqlite3.Connection, scheduler: Scheduler) -> None:
    """Have ``now`` mean the simulated moment in the statements and triggers of a session, and
    ``monotonic`` this moment by a clock that never leaps."""

    told: dict[Any, Any] = {}

    def strftime(*given: Any) -> Any:
        if told.get(None) != (scheduler.now, scheduler.leap):
            told.clear()
            told[None] = scheduler.now, scheduler.leap
        if given not in told:
            told[given] = _time_of(scheduler, *given)
        return told[given]

    session.create_function("strftime", -1, strftime)


def _error(text: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


def _sessions_of(world: World) -> type[sqlite3.Connection]:
    """Return the class of sessions that hand control over, and fail when they are told to."""
    # The compiled statements of all worlds are kept, and with them the sessions of their engines.
    world = proxy(world)
    scheduler = proxy(world.scheduler)

    def run(session: Any, execute: Callable[..., Any], sql: str, args: tuple[Any, ...]) -> Any:
        task = scheduler.current
        if task is None:
            return execute(sql, *args)
        if written := _WRITES.match(sql):
            session.tables.add(written[1] or "log")
        process = task.process
        if process.is_dead:
            raise Killed
        if sql.startswith("PRAGMA busy_timeout"):
            return execute("SELECT 1")
        if (failing := process.failing) is not None and failing.comes(sql):
            process.failing, process.has_failed = None, True
            world.stats["faults"] += 1
            where = f", in {failing.within}" if failing.within else ""
            world.tell(f"{process.name}: a statement fails: {sql[:60]}{where}")
            raise _error("disk I/O error", sqlite3.SQLITE_IOERR)
        if sql.startswith("BEGIN"):
            scheduler.point(sql)
        until, rest = scheduler.now + _BUSY_SECONDS, 0.01
        while True:
            try:
                return execute(sql, *args)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or scheduler.now > until:
                    process.has_failed = True
                    world.stats["locked"] += error.sqlite_errorcode == sqlite3.SQLITE_BUSY
                    raise
            scheduler.point("busy", rest)
            rest = min(1.0, rest * 2)

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, *args: Any) -> Any:
            return run(self.connection, super().execute, sql, args)

        def executemany(self, sql: str, *args: Any) -> Any:
            return run(self.connection, super().executemany, sql, args)

    class Session(sqlite_session.SqliteSession):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._written, self.tables = 0, set[str]()
            super().__init__(*args, **{**kwargs, "timeout": 0})
            sqlite3.Connection.execute(self, "PRAGMA synchronous = OFF")
            with_virtual_time(self, scheduler)
            if scheduler.current is not None:
                scheduler.current.process.sessions.append(self)

        def cursor(self, factory: Any = None) -> Any:
            return super().cursor(Cursor)

        def commit(self) -> None:
            task = scheduler.current
            writes = self.in_transaction and self.total_changes != self._written
            tables = " ".join(sorted(self.tables))
            self.tables.clear()
            if task is None or not writes:
                super().commit()
                return
            process = task.process
            words = process.start.get("words", ())
            if "--dry-run" in words or _LOOKS.intersection(words):
                world.fail(f"{' '.join(words)} writes {tables}")
            scheduler.point(f"COMMIT {tables}")
            failing, process.failing_commit = process.failing_commit, ""
            process.has_failed |= bool(failing)
            world.stats["faults"] += bool(failing)
            if failing == "refused":
                world.tell(f"{process.name}: a commit fails")
                self.rollback()  # as SQLite does by itself
                raise _error("disk I/O error", sqlite3.SQLITE_IOERR)
            self._written = self.total_changes
            super().commit()
            if failing == "lost":
                world.tell(f"{process.name}: a commit takes effect, and its answer is lost")
                raise _error("disk I/O error", sqlite3.SQLITE_IOERR)
            scheduler.point(f"committed {tables}")

    return Session


_statements: Any = LRUCache(1000)


def _with_shared_statements(create_engine: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``create_engine`` for a simulation: engines share the statements that are compiled."""

    def create(*given: Any, **options: Any) -> Any:
        engine = create_engine(*given, **options)
        engine._compiled_cache = _statements
        return engine

    return create


_read: dict[Any, Any] = {}
_MAX_READ = 500
_triggers: dict[Any, Any] = {}
_TABLES = "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_master WHERE type <> 'trigger' ORDER BY rowid)"
_TRIGGERS = (
    "SELECT group_concat(sql, ';') || (SELECT coalesce(group_concat(table_name || content), '') FROM eventlog_captured) "
    "FROM (SELECT sql FROM sqlite_master ORDER BY rowid)"
)


def _read_once(
    world: World, read: Callable[..., Any], text: str, given_by: Callable[..., tuple[Any, Any]]
) -> Callable[..., Any]:
    """Return a function that reads the schema, for a simulation: what it reads of one schema is
    read once, and is one statement for the processes that take turns.

    ``text`` is the statement of all that it reads; ``given_by`` returns the session of its
    arguments, and those that count.
    """

    def read_of_text(*given: Any, **named: Any) -> Any:
        conn, what = given_by(*given, **named)
        key = read.__qualname__, conn.exec_driver_sql(text).scalar_one(), repr(what)
        if key not in _read:
            if len(_read) >= _MAX_READ:
                _read.clear()
            task, world.scheduler.current = world.scheduler.current, None
            try:
                _read[key] = read(*given, **named)
            finally:
                world.scheduler.current = task
        return _read[key]

    return read_of_text


def _opening(world: World) -> Callable[..., SQLiteDatabase]:
    """Return ``SQLite.open`` for a simulation: the database and its logs have writers that commit
    late, as those of other databases do.
    """

    class Log(SQLiteLog):
        def open_writers(self) -> frozenset[str]:
            return frozenset(world.application.late)

    class Database(WithRanges):
        reflect = _read_once(
            world,
            SQLiteDatabase.reflect,
            _TABLES,
            lambda db, schema: (db.connection, schema),
        )

        def log(self, table: LogTable) -> SQLiteLog:
            return Log(self, table)

        def are_open(self, writers: frozenset[str]) -> bool:
            return writers <= set(world.application.late)

    return lambda dialect, connection: Database(connection, dialect)


def _compiled_once(compile_declared: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``compile_declared`` for a simulation: what is declared is compiled once."""

    def compiled(dialect: Any, schema: Any, log: Any, declared: Any, others: Any = ()) -> Any:
        what = repr((schema, log, declared, sorted(others)))
        if what not in _triggers:
            _triggers[what] = compile_declared(dialect, schema, log, declared, others)
        return _triggers[what]

    return compiled


# --- files and objects ----------------------------------------------------------------------------


def _renaming(world: World, replace: Callable[..., None]) -> Callable[..., None]:
    def rename(source: Any, target: Any, **where: Any) -> None:
        name = Path(target).name
        world.scheduler.point(f"rename {name}")
        replace(source, target, **where)
        world.disk.is_renamed(name)
        world.scheduler.point(f"renamed {name}")

    return rename


def _store_of(world: World) -> type:
    """Return the class of object stores of this world."""

    class Store:
        def __init__(self, options: objects_sink.ObjectOptions) -> None:
            self.bucket_url = options.bucket_url
            self._objects = world.objects

        def put(self, name: str, content: bytes) -> None:
            world.scheduler.point(f"put {name}")
            world.refuse_if_away("the store is unavailable")
            world.tell(f"  put {name}")
            self._objects[name] = content
            world.scheduler.point(f"put done {name}")

        def has(self, name: str) -> bool:
            return name in self._objects

        def state(self, *, is_open: bool = False) -> dict[str, Any] | None:
            content = self._objects.get(objects_sink.STATE)
            return None if content is None else json.loads(content)

        def write_state(self, state: Mapping[str, Any], *, at_start: bool = False) -> None:
            world.scheduler.point("put the state")
            self._objects[objects_sink.STATE] = json.dumps(state).encode()
            world.scheduler.point("the state is put")

    return Store


def _sending(world: World, send: Callable[..., Any]) -> Callable[..., Any]:
    def send_document(sink: Any, document: Any) -> Any:
        world.readers.note(document)
        world.scheduler.point(f"send {document.delivery_no}-{document.document_no}")
        world.refuse_if_away("the disk is full")
        return send(sink, document)

    return send_document


_BOUNDS = {
    "keys of a chunk": (snapshot_chunks, "MAX_KEYS"),
    "ranges of a small set": (ledger, "SMALL"),
    "rows shown at once": (followed_set, "MAX_SHOWN"),
}


def _receiving_records(world: World, send: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``send`` of a function's sink that takes records: the auditor reads their numbers, and
    an event that the format cannot hold is refused."""

    def send_records(sink: Any, document: Any) -> Any:
        if not document.records:
            return send(sink, document)
        refused = {}
        for event_id, records in zip(document.event_ids, document.records, strict=True):
            if isinstance(records, EventResult):
                refused[event_id] = records
            elif world.converting is None and world.scheduler.current is not None:
                told = [json.loads(record.value)["message"] for record in records]
                numbers = [one["headers"]["changeSequence"] for one in told if "headers" in one]
                process = world.scheduler.current.process.name
                world.auditor.numbers(process, document.delivery_no, event_id, numbers)
        ids = [event_id for event_id in document.event_ids if event_id not in refused]
        kept = tuple(
            one
            for one in document.events
            # a new key is two events for the function
            if one.event_id in ids or one.event_id.removesuffix(".2") in ids
        )
        if not kept:
            return Answer(results=refused)
        answer = send(sink, document._replace(event_ids=ids, make_events=lambda: kept))
        return dataclasses.replace(answer, results={**answer.results, **refused})

    return send_records


def _flushing(world: World) -> Callable[[Any], Any]:
    """Return ``flush`` of a function's sink: its receiver may refuse events at this moment."""

    def flush(_: Any) -> Any:
        task = world.scheduler.current
        if task is None or world.converting is not None:
            return None
        name = task.process.name.partition("'")[0]
        receivers = {**world.receivers, world.followed.receiver.name: world.followed.receiver}
        return receivers.get(name, receivers["receiver"]).flush()

    return flush


class Watching(Observer):
    """An observer that wants all that a publisher can tell, and has it look at its queue."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._next = scheduler, 0.0

    @property
    def wants_event_times(self) -> bool:
        return True

    def delivery_begins(self, delivery: Any, event_times: Any) -> None:
        """Nothing: the publisher counts and reads for it."""

    def measure_due(self) -> float | None:
        return max(0.0, self._next - self._scheduler.now)

    def measured(self, measured: Any) -> None:
        self._next = self._scheduler.now + 15


class Stop:
    """The request to stop that a process of the simulation waits for."""

    def __init__(self, world: World, process: Any) -> None:
        self._world, self._process = world, process

    def is_set(self) -> bool:
        return bool(self._process.is_stopping)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._process.is_stopping:
            self._world.scheduler.point("rest", 3600.0 if timeout is None else timeout)
        return self.is_set()


@contextmanager
def installed(world: World, seed: int, bounds: Mapping[str, int]) -> Iterator[None]:
    """Put the machine of a world under the product while the block runs. ``bounds`` are sizes in
    the product, by the names of ``_BOUNDS``, that are to be others."""
    random.seed(seed)
    told_options, told_send = opening.publisher_options, log_feed.LogFeed.send
    add_outcomes, told_rebuilt = marks.Marks.add_outcomes, Outbox.rebuilt
    told_rebuild, told_record = log_feed.rebuild, cycle.record_new
    told_put_back, told_build = log_feed.LogFeed.put_back, log_feed.build_recorded
    told_invalid, told_halves = marks.Marks.add_invalid, policy.halves
    told_recover, told_save = daemon.recover, log_feed.LogFeed.save
    told_settle_and_save, told_renumber = serving.Sender.settle, log_feed.renumber
    contexts: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    renamed: dict[Any, list[Any]] = {}
    auditor, at_sending = world.auditor, world.auditor.at_sending
    told_settle, reported_liveness = Outbox.settle, publisher.reported_liveness

    def observed(config: Any) -> Any:
        task = world.scheduler.current
        observer = None if task is None else task.process.start.get("observer")
        return reported_liveness(config) if observer is None else nullcontext(observer)

    def options(*args: Any) -> Any:
        from dataclasses import replace

        told = told_options(*args)
        task = world.scheduler.current
        return told if task is None else replace(told, **task.process.start.get("bounds", {}))

    def send(feed: Any, document: Any) -> Any:
        consumer, events = feed.context.ledger.consumer, document.events
        is_single = feed.context.output.is_single
        if world.converting is None:
            # an object of a snapshot has no rows
            auditor.sends(consumer, [event for event in events if event.ids])
            at_sending.sends(
                consumer, document.place[0], document.number, events, is_single=is_single
            )
        else:
            world.converting.meanings.append(events)
        answer = told_send(feed, document)
        if world.converting is None and not is_single:
            at_sending.has_name(consumer, document.place[0], document.number, events)
        return answer

    def rebuild(context: Any, delivery: Any, events: Any) -> Any:
        found = told_rebuild(context, delivery, events)
        if context.ledger.consumer and world.converting is None:
            available = [one for one in found.events if one.event_id not in found.waiting]
            auditor.builds(context.ledger.consumer, available)
        return found

    def recorded(session: Any, *args: Any, **kwargs: Any) -> Any:
        delivery = told_record(session, *args, **kwargs)
        if delivery is not None and world.converting is None:
            auditor.builds(session.context.ledger.consumer, delivery.events())
            auditor.records(session.context.ledger.consumer, delivery.events())
            at_sending.is_built(session.context.ledger.consumer, delivery.events())
        return delivery

    def built(context: Any, events: Any) -> Any:
        rebuilt = told_build(context, events)
        if world.converting is None:
            at_sending.is_built(context.ledger.consumer, rebuilt.events)
        return rebuilt

    def recover(context: Any) -> Any:
        latest, leap = world.scheduler.now + context.options.retry_max, world.scheduler.leap
        state = told_recover(context)
        contexts[state.outbox] = context
        of_process().clear()  # what could not be written is lost, as by a kill
        auditor.recovers(context.ledger.consumer)
        at_sending.recovers(context.ledger.consumer, context.epoch, latest, leap)
        return state

    def renumber(log: Any, delivery: Any, number: int, epoch: str, consumer: str) -> Any:
        auditor.renumbers(consumer, delivery.number, delivery.epoch, number)
        return told_renumber(log, delivery, number, epoch, consumer)

    def halves(document: Any, attempts: Any) -> Any:
        parts = told_halves(document, attempts)
        if not hasattr(document.events[0], "event_id"):  # of a source
            return parts
        before = {event.event_id: event.attempts for event in document.events}
        now = [(event.event_id, event.attempts) for part in parts for event in part.events]
        new = [(event_id, number) for event_id, number in now if number > before[event_id]]
        of_process().append((document.place[0], new))
        return parts

    def put_back(feed: Any, events: Any) -> Any:
        events = told_put_back(feed, events)
        auditor.builds(feed.context.ledger.consumer, events)
        return events

    def needs_no_event(rows: list[int]) -> None:
        if world.converting is None:
            auditor.needs_no_event(rows)
        else:
            world.converting.idle += rows

    def settle(outbox: Any, document: Any, outcome: Any, now: float) -> Any:
        settled = told_settle(outbox, document, outcome, now)
        context, delivery_no = contexts.get(outbox), document.place[0]
        if context is None:
            return settled
        if settled.given_up:
            auditor.gives_up(context.ledger.consumer, document.events)
        if (judged := settled.judged) is not None:
            if judged.answered and not context.output.is_single:
                names = [event.event_id for event in document.events]
                consumer = context.ledger.consumer
                at_sending.is_answered(consumer, delivery_no, document.number, names)
            new = [
                (event.event_id, event.attempts + 1)
                for result, event in judged.unsettled
                if result.level is not Level.RETRY
            ]
            of_process().append((delivery_no, new))
        return settled

    def of_process() -> list[Any]:
        task = world.scheduler.current
        return renamed.setdefault(None if task is None else task.process, [])

    def note_renamed() -> None:
        while found := of_process():
            at_sending.has_new_numbers(*found.pop())

    def settle_and_save(sender: Any, document: Any, outcome: Any) -> None:
        told_settle_and_save(sender, document, outcome)
        note_renamed()

    def save(feed: Any) -> None:
        seen = pauses.paused(world)
        told_save(feed)
        note_renamed()
        if (task := world.scheduler.current) is not None:
            standing = feed.session.state.outbox.standing()
            begun = [one.document for one in standing if one.why == "it is being sent"]
            in_air = {(one.place[0], one.number) for one in begun}
            pauses.is_seen(task.process, seen, in_air)
        at_sending.is_recorded()

    def outcomes(self: Any, several: Any) -> None:
        several = list(several)
        for one in several:
            needs_no_event([*one.dropped, *one.gone, *one.noop])
        add_outcomes(self, several)

    def add_invalid(self: Any, invalid: Any) -> None:
        if (task := world.scheduler.current) is not None:
            auditor.is_invalid(task.process.name, [one.record_id for one in invalid])
        told_invalid(self, invalid)

    def rebuilt(outbox: Any, document: Any, events: Any, idle: Any = (), held: Any = ()) -> Any:
        needs_no_event([row for event in idle for row in event.ids])
        return told_rebuilt(outbox, document, events, idle, held)

    with ExitStack() as stack:
        stack.enter_context(clock.simulated(Machine(world, seed)))

        def put(target: Any, name: str, value: Any) -> None:
            stack.enter_context(patch.object(target, name, value))

        for name, bound in bounds.items():
            put(*_BOUNDS[name], bound)
        put(sqlite_session, "SqliteSession", _sessions_of(world))
        # Statements that are compiled are known by their dialect: those of all engines are alike.
        put(SQLiteDialect, "__hash__", lambda _: 1)
        put(SQLiteDialect, "__eq__", lambda one, other: type(one) is type(other))
        put(connection, "create_engine", _with_shared_statements(connection.create_engine))
        put(SQLite, "open", _opening(world))
        put(
            opening,
            "locate_log",
            _read_once(world, opening.locate_log, _TABLES, lambda db, **how: (db.connection, how)),
        )
        plan_once = _read_once(
            world,
            trigger_plan.plan_triggers,
            _TRIGGERS,
            lambda log, config: (log.connection, (config.watches, config.format, log.table)),
        )
        put(trigger_plan, "plan_triggers", plan_once)
        put(triggers, "plan_triggers", plan_once)
        put(
            SQLiteTriggers,
            "compile_declared",
            _compiled_once(SQLiteTriggers.compile_declared),
        )
        put(os, "replace", _renaming(world, os.replace))
        put(Path, "open", world.disk.opening(Path.open))
        put(Path, "unlink", world.disk.unlinking(Path.unlink))
        put(objects_sink, "ObjectStore", _store_of(world))
        put(files_sink, "sync_file", world.disk.sync_file)
        put(files_sink, "sync_path", world.disk.sync_path)
        for sink in (files_sink.DocumentFiles, files_sink.LineFiles, objects_sink.ObjectsSink):
            put(sink, "send", _sending(world, sink.send))
        if world.plan["format"] == "qlik-messages":
            put(CallableSink, "takes_records", True)
            put(CallableSink, "send", _receiving_records(world, CallableSink.send))
        put(CallableSink, "flush", _flushing(world))
        put(opening, "publisher_options", options)
        put(publisher, "reported_liveness", observed)
        put(daemon, "recover", recover)
        put(log_feed, "renumber", renumber)
        put(cycle, "record_new", recorded)
        put(log_feed, "build_recorded", built)
        put(log_feed, "rebuild", rebuild)
        put(log_feed.LogFeed, "put_back", put_back)
        put(log_feed.LogFeed, "send", send)
        put(log_feed.LogFeed, "save", save)
        put(policy, "halves", halves)
        put(Outbox, "settle", settle)
        put(serving.Sender, "settle", settle_and_save)
        put(Outbox, "rebuilt", rebuilt)
        put(marks.Marks, "add_outcomes", outcomes)
        put(marks.Marks, "add_invalid", add_invalid)
        yield


__all__ = ["Machine", "ReceiverUnavailable", "Stop", "installed"]
