"""A whole publisher without a server: log and internal tables in SQLite in memory, tables in dicts,
a receiver that judges.

The statements are those of the dialect of SQLite; transactions are real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import sqlalchemy as sa
from fake_log import FakeDatabase
from samples import CATALOG, row
from shared import Objects, PlainSink, apply_event

from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.ranges import Ranges, to_ranges
from eventlog.core.rows.events import Outgoing
from eventlog.model import (
    LOG_COLUMNS,
    Answer,
    Document,
    Event,
    EventResult,
    Level,
    LogRow,
    Operation,
)
from eventlog.publisher.context.context import Context, Counters, PublisherOptions
from eventlog.publisher.declared.opening import under_epoch
from eventlog.publisher.ledger.delivery import decode
from eventlog.publisher.ledger.ledger import ledger_of
from eventlog.publisher.send import session
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.sending import Delivered, DeliveryResult
from eventlog.publisher.send.session import PublisherSession, PublisherState
from eventlog.sql.dialects.sqlite import DIALECT
from eventlog.sql.dialects.sqlite.log import SQLiteLog
from eventlog.sql.log import internal_tables
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.dialect import CurrentRow
from eventlog.sql.port.log_operations import Window
from eventlog.xds.publish import XdsWriter
from eventlog.xds.writer import Header

LOG = LogTable(None, "eventlog", LOG_COLUMNS)
NO_WAIT = PublisherOptions(retry_initial=0, retry_max=0)
"""Objects that are parked are due at once, so that no test waits."""

Contents = dict[str, dict[str, list[str | None]]]
"""Canonical key -> attribute name -> values."""


def quiet() -> bool:
    return False


class Killed(BaseException):
    """The publisher is gone between two steps."""


@dataclass
class FakePublisher:
    """``contents``: the objects of class ``usr`` as they are now. ``step`` is called between any
    two steps.
    """

    options: PublisherOptions = NO_WAIT
    catalog: Catalog = CATALOG
    singly: bool = False
    writer: type[XdsWriter] = XdsWriter
    contents: Contents = field(default_factory=dict)
    step: Callable[[str], None] = lambda name: None
    queried: list[tuple[str, list[str], list[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
        self.connection = engine.connect()
        fields = ", ".join(
            (f"{name} INTEGER") if name in ("record_id", "event_type") else (f"{name} TEXT")
            for name in LOG_COLUMNS
        )
        self.connection.exec_driver_sql(f"CREATE TABLE eventlog ({fields})")
        self.connection.exec_driver_sql(
            "CREATE TABLE eventlog_error (error_time TEXT, "
            "record_id INTEGER, code TEXT, message TEXT, consumer TEXT, event_id TEXT)"
        )
        self.connection.exec_driver_sql(
            "CREATE TABLE eventlog_inflight "
            "(entry_no INTEGER, owner TEXT, kind TEXT, started TEXT, content TEXT)"
        )
        self.connection.exec_driver_sql(
            "CREATE TABLE eventlog_state "
            "(entry_no INTEGER, owner TEXT, kind TEXT, started TEXT, content TEXT)"
        )
        self.connection.exec_driver_sql(
            "CREATE TABLE eventlog_epoch (epoch TEXT, server TEXT, raised TEXT, removed INTEGER)"
        )
        self.connection.commit()
        self.counters = Counters()
        self._deliveries = count(1)
        self._log = SteppingLog(FakeDatabase(self.connection, DIALECT, self.read_back), LOG, self)
        self._ledger = ledger_of(self._log)

    def close(self) -> None:
        self.connection.close()
        self.connection.engine.dispose()

    # What a test does to the log, and sees of it.

    def log(self, rows: Iterable[LogRow]) -> None:
        marks = ", ".join("?" * len(LOG_COLUMNS))
        for one in rows:
            self.connection.exec_driver_sql(
                f"INSERT INTO eventlog VALUES ({marks})", tuple(one[: len(LOG_COLUMNS)])
            )
        self.connection.commit()

    def statuses(self) -> dict[int, str]:
        return dict(self._fetch("SELECT record_id, status FROM eventlog ORDER BY record_id"))

    def errors(self) -> list[tuple[int, str, str]]:
        return self._fetch("SELECT record_id, code, message FROM eventlog_error ORDER BY record_id")

    def in_flight(self) -> dict[int, Any]:
        """The deliveries of the lines in short: of each document its number and its events, these
        as event-id and ranges of record_ids, followed by what precedence dropped and the number of
        attempts where these say anything.
        """
        lines = self._fetch("SELECT entry_no, content FROM eventlog_inflight ORDER BY entry_no")
        return {
            number: [
                [document_no, list(map(_short, events))]
                for document_no, events in decode(number, text).documents.items()
            ]
            for number, text in lines
        }

    def contents_of_lines(self) -> list[str]:
        """The contents of the recorded deliveries."""
        return [
            content
            for (content,) in self._fetch("SELECT content FROM eventlog_inflight ORDER BY entry_no")
        ]

    def _fetch(self, statement: str) -> list[Any]:
        rows = [tuple(row) for row in self.connection.exec_driver_sql(statement)]
        self.connection.rollback()
        return rows

    # The publisher.

    def context(self) -> Context:
        output = self.writer(Header())
        output.is_single = self.singly
        context = Context(
            self._log, self.catalog, self.options, output, self.counters, self._ledger
        )
        return under_epoch(context, "")

    def start(self) -> PublisherState:
        return recover(self.context())

    def cycle(
        self, state: PublisherState, sink: Any, stopping: Callable[[], bool] = quiet
    ) -> Delivered:
        state.outbox.rests_until = 0.0  # others have had as much time as the last failure took
        with self.numbering_deliveries():
            return run_cycle(PublisherSession(self.context(), state, sink, stopping))

    @contextmanager
    def numbering_deliveries(self) -> Iterator[None]:
        """SQLite has no sequences."""
        original = session.next_number
        session.next_number = internal_tables.next_number = lambda _log: next(self._deliveries)
        try:
            yield
        finally:
            session.next_number = internal_tables.next_number = original

    def run(self, sink: Any, state: PublisherState | None = None, most: int = 200) -> Delivered:
        """Cycles until there is nothing left to do: no pass, nothing parked. Stops on anything but
        DONE.
        """
        state = state or self.start()
        for _ in range(most):
            ended = self.cycle(state, sink)
            if ended.result is not DeliveryResult.DONE or not (ended.more or state.outbox.count):
                return ended
        raise AssertionError(f"not done after {most} cycles: {state}")

    def read_back(
        self, object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> dict[str, CurrentRow]:
        names = [attribute.name for attribute in attributes]
        self.queried.append((object_class.name, list(keys), names))
        return {
            key: {name: list(self.contents[key].get(name, [None])) for name in names}
            for key in keys
            if key in self.contents
        }


@dataclass(frozen=True)
class SteppingLog(SQLiteLog):
    """The log of a fake publisher, with a step before each statement."""

    fake: FakePublisher

    def read_window(self, window: Window) -> list[LogRow]:
        self.fake.step("read")
        return super().read_window(window)

    def change_rows(self, statement: str, ranges: Ranges, **values: object) -> int:
        self.fake.step("mark")
        return super().change_rows(statement, ranges, **values)


def _short(event: Outgoing) -> list[Any]:
    ranges, dropped = (
        [list(pair) for pair in to_ranges(ids)] for ids in (event.ids, event.dropped)
    )
    parts: list[Any] = [event.event_id, ranges]
    if event.attempts != 1:
        return [*parts, dropped, event.attempts]
    return [*parts, dropped] if dropped else parts


OUTPUT = XdsWriter(Header())

Judge = Callable[[Event], str]


@dataclass
class Receiver(PlainSink):
    """Takes documents, judges each event, and applies what it does not refuse: once for each
    event-id.

    ``judge`` names a level; ``"away"`` loses the connection before anything is done, ``"lost"``
    afterwards.
    """

    judge: Judge = lambda event: "success"
    documents: list[Document] = field(default_factory=list)
    applied: dict[str, Event] = field(default_factory=dict)
    state: Objects = field(default_factory=dict)
    flushed: int = 0
    reads_back: bool = True
    step: Callable[[str], None] = lambda name: None

    def send(self, document: Document) -> Answer:
        from eventlog.errors import ReceiverUnavailable

        self.step("before send")
        levels = {event.event_id: self.judge(event) for event in document.events}
        if "lost" in levels.values():
            # Whoever refuses one event, applies a later one of its object and is then not heard
            # loses the order.
            levels = {
                name: "success" if level == "retry" else level for name, level in levels.items()
            }
        if "away" in levels.values():
            raise ReceiverUnavailable("away")
        self.documents.append(document)
        for event in document.events:
            if levels[event.event_id] in ("success", "warning", "lost"):
                self._apply(event)
        self.step("after send")
        if "lost" in levels.values():
            raise ReceiverUnavailable("lost")
        return Answer(
            {
                name: EventResult(Level[level.upper()], f"{level} of {name}")
                for name, level in levels.items()
            }
        )

    def flush(self) -> None:
        self.flushed = len(self.documents)

    @property
    def sent(self) -> list[list[str]]:
        """The event-ids of the documents."""
        return [[event.event_id for event in document.events] for document in self.documents]

    def _apply(self, event: Event) -> None:
        before = self.applied.setdefault(event.event_id, event)
        if before is not event:
            # What is queried back is read again.
            as_before = before.class_name, before.association
            assert as_before == (event.class_name, event.association)
            # An object that is gone is deleted (spec/event-log.md 8.4, *Built again*).
            is_gone = self.reads_back and Operation.DELETE in (before.operation, event.operation)
            assert before.operation == event.operation or is_gone
            if not self.reads_back:
                assert before == event, "one event-id means two sets of rows"
            return
        apply_event(self.state, event)


NewWorld = Callable[..., FakePublisher]
"""``new_world(rows, **options)``: a publisher whose log holds these rows."""


def with_options(**changed: Any) -> PublisherOptions:
    return replace(NO_WAIT, **changed)


def deliveries_of(state: PublisherState) -> Iterator[str]:
    for event in state.outbox.events():
        yield event.sent_id


def deletes(*objects: str) -> list[LogRow]:
    """A type 4 row for each object: its own event."""
    return [row(i, 4, f"idu={name}") for i, name in enumerate(objects, 1)]


def judge(**levels: str) -> Callable[[Any], str]:
    """The first answers by event-id, as ``e2="retry error"``; then success."""
    left = {name.removeprefix("e").replace("_", "."): text.split() for name, text in levels.items()}

    def level(event: Any) -> str:
        mine = left.get(event.event_id)
        return mine.pop(0) if mine else "success"

    return level


def updates(*steps: tuple[int, str, str, str]) -> list[LogRow]:
    return [row(i, 2, f"idu={name}", "fname", old, new) for i, name, old, new in steps]


class Answering(Receiver):
    """Gives one answer, then success."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer: Answer | None = answer

    def send(self, document: Document) -> Answer:
        super().send(document)
        answer, self.answer = self.answer, None
        return answer or Answer()
