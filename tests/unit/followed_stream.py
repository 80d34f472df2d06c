"""A CDC stream in a file that grows, and a receiver that answers as it is told, for tests of
following.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lxml import etree

from eventlog.changes.publishing import EventWriter, Publishing
from eventlog.core.values import ValueOptions
from eventlog.gbase.options import ReadOptions
from eventlog.model import Answer, Event, EventResult, Level
from eventlog.publisher.context.context import Counters, PublisherOptions
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.sinks import Sink
from eventlog.publisher.sinks.python import CallableSink
from eventlog.publisher.stream import Stream as OpenedStream
from eventlog.publisher.stream.follow import Following, OpenPosition, follow
from eventlog.publisher.stream.position import Saved, position_table
from eventlog.publisher.stream.stream_files import StreamFiles
from eventlog.testing.gbase_emulator import CdcServer, Switches, Work
from eventlog.testing.gbase_workload import drain, open_session
from eventlog.xds.publish import XdsWriter
from eventlog.xds.writer import Header

ITEM = "shop:app.item"
OPTIONS = ReadOptions(labels={111: ITEM}, keys={"app.item": ["id"]})
PATIENCE = 60.0


class Stream:
    """An emulated server whose stream is appended to a file."""

    def __init__(self, path: Path, switches: Switches | None = None) -> None:
        self.path = path
        self.server = CdcServer(switches)
        self.server.create_table(ITEM, "id integer, name varchar(20)")
        self.server.cdc_set_fullrowlogging(ITEM, 1)
        self.session = open_session(self.server)
        path.touch()

    def begin(self) -> Work:
        return self.server.begin(1001)

    def insert(self, *keys: int, name: str = "new") -> None:
        """One transaction of inserts."""
        work = self.begin()
        for key in keys:
            work.insert(ITEM, {"id": key, "name": name})
        work.commit()
        self.write()

    def update(self, key: int, before: str, after: str) -> None:
        work = self.begin()
        work.update(ITEM, {"id": key, "name": before}, {"id": key, "name": after})
        work.commit()
        self.write()

    def write(self) -> None:
        """Append to the file what the server has logged."""
        with self.path.open("ab") as file:
            for data in drain(self.server, self.session):
                file.write(data)


def said(event: Event) -> str:
    """An event in short: operation, key and what its first attribute becomes."""
    key = event.association.partition(",")[0].removeprefix("id=")
    values = [
        value for attribute in event.attributes for step in attribute.steps for value in step.values
    ]
    return f"{event.operation} {key}{' ' + values[-1] if values else ''}"


class Receiver:
    """Takes documents. ``answers``: what an object's events get, one after the other, success when
    used up.

    ``heard``: what was answered otherwise than by retry; ``documents``: all that came.
    """

    def __init__(self, **answers: Sequence[Level | Exception]) -> None:
        self.answers = {key.removeprefix("k"): list(given) for key, given in answers.items()}
        self.heard: list[str] = []
        self.documents: list[list[str]] = []
        self.meanings: dict[str, set[str]] = defaultdict(set)
        self.stop = StopRequest()
        self.enough: Callable[[Receiver], bool] = lambda receiver: False

    def receive(self, body: bytes, events: Sequence[Event]) -> Answer:
        self.documents.append([said(event) for event in events])
        for event, element in zip(events, etree.fromstring(body).iterfind("input/*"), strict=True):
            self.meanings[event.event_id].add(etree.tostring(element, encoding="unicode"))
        verdicts = {}
        for event in events:
            own = self.answers.get(said(event).split()[1])
            level = own.pop(0) if own else Level.SUCCESS
            if isinstance(level, Exception):
                raise level
            verdicts[event.event_id] = EventResult(level, "because")
        self.heard += [said(e) for e in events if verdicts[e.event_id].level is not Level.RETRY]
        if self.enough(self):
            self.stop.set()
        return Answer(verdicts)

    def sink(self) -> Sink:
        return CallableSink(self.receive, "the receiver")


OUTPUT = XdsWriter(Header("eventlog", "test"), Publishing(ValueOptions()))
RECORDS = XdsWriter(Header("eventlog", "test"), Publishing(ValueOptions(), in_records=True))


def following(source: OpenedStream, output: EventWriter[Any] = OUTPUT, **options: Any) -> Following:
    chosen = {"retry_initial": 0.01, "retry_max": 0.02, **options}
    return Following(source, lambda: output, None, PublisherOptions(**chosen), Counters())


def files(path: Path, options: ReadOptions = OPTIONS) -> StreamFiles:
    return StreamFiles(path, options, rest=0.01)


def position_at(path: Path, source: str = "gbase") -> OpenPosition:
    """A position in a table of a SQLite file."""
    return partial(position_table, f"sqlite:///{path}", "eventlog_position", source)


def saved_at(path: Path, source: str = "gbase") -> Saved:
    with position_at(path, source)() as position:
        return position.load()


def token_at_open(path: Path) -> Any:
    """The token that a publisher which runs has saved; None if there is none yet."""
    if not path.exists():
        return None
    with closing(sqlite3.connect(path)) as connection:
        try:
            row = connection.execute("SELECT token FROM eventlog_position").fetchone()
        except sqlite3.OperationalError:  # the table is being made
            return None
    return None if row is None or row[0] is None else json.loads(row[0])


def save_at(path: Path, saved: Saved, source: str = "gbase") -> None:
    with position_at(path, source)() as position:
        position.save(saved)


def forget_files(path: Path) -> None:
    """Take the part ``capture`` out of the position's token."""
    saved = saved_at(path)
    token = {name: value for name, value in saved.token.items() if name != "capture"}
    save_at(path, saved._replace(token=token))


@contextmanager
def running(
    followed: Following, position: OpenPosition, receiver: Receiver, *, standby: bool = False
) -> Iterator[None]:
    """A publisher in a thread, which is asked to stop at the end and has to have ended well."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            follow(followed, position, receiver.sink, receiver.stop, standby=standby)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        receiver.stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert errors == []


def once(stream: Stream, place: Path, receiver: Receiver, **options: Any) -> Any:
    followed = following(files(stream.path), **options)
    with closing(StopRequest()) as stop:
        follow(followed, position_at(place), receiver.sink, stop, once=True)
    return followed.counters


def failures(place: Path) -> list[dict[str, Any]]:
    """What was recorded, in the order of the table."""
    if not place.exists():
        return []
    with closing(sqlite3.connect(place)) as connection:
        connection.row_factory = sqlite3.Row
        return [
            dict(row)
            for row in connection.execute("SELECT * FROM eventlog_position_error ORDER BY rowid")
        ]
