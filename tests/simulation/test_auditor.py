"""The parts of the auditor that a schedule cannot show: what it reads, and what it lets be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from at_sending import AtSending
from disk import Disk
from entries import events_in_position, events_of_entry, seconds_of
from excuses import ENOUGH, Excuse, too_often
from plans import plan_of
from scheduler import Process, Scheduler
from world import World as WholeWorld

from eventlog.core.rows.events import Outgoing
from eventlog.errors import ReceiverUnavailable
from eventlog.publisher.ledger.delivery import Delivery, Tried, TriedKind, encode


def event(*rows: int, attempts: int = 1, dropped: tuple[int, ...] = ()) -> Outgoing:
    name = f"{rows[0]}.e1"
    return Outgoing(name, rows, None, None, None, dropped=dropped, attempts=attempts)


def test_the_events_of_an_entry_are_those_that_the_publisher_wrote() -> None:
    delivery = Delivery(
        7,
        {1: [event(1, 3), event(2, attempts=2)], 4: [event(9, 10)]},
        epoch="1",
        parked={"2.e1": Tried(2, "later", "2026-11-26T10:00:00.250", TriedKind.PARKED)},
        tried={4: Tried(1, "failed", "2026-11-26T10:00:01.000")},
    )
    assert events_of_entry(encode(delivery)) == {
        "1.e1": (1, (1, 3), ""),
        "2.e1": (2, (2,), "2026-11-26T10:00:00.250"),
        "9.e1": (1, (9, 10), "2026-11-26T10:00:01.000"),
    }


def test_the_objects_of_a_snapshot_are_events_without_rows() -> None:
    one = event(1)._replace(event_id="snapshot.20261126100000.part.id=1", ids=(), attempts=2)
    content = encode(Delivery(7, {1: [one]}))
    assert events_of_entry(content) == {one.event_id: (2, (), "")}


def test_times_of_entries_are_in_utc() -> None:
    content = '{"events":[{"id":"a.1"},{"id":"a.2"}],"parked":{"due":"2026-11-26T10:00:00.250"}}'
    assert [name for name, _ in events_in_position(content)] == ["a.1", "a.2"]
    assert seconds_of("1970-01-01T00:00:10.250") == 10.25


def test_an_excuse_may_be_needed_by_its_share_of_the_schedules_and_by_chance_a_few_more() -> None:
    share = Excuse.GIVEN_UP.share
    often = {Excuse.GIVEN_UP: int(ENOUGH * share * 3), Excuse.LOST: 0}
    assert list(too_often(often, ENOUGH)) == [Excuse.GIVEN_UP]
    assert not too_often(often, ENOUGH - 1)
    assert not too_often({Excuse.GIVEN_UP: int(ENOUGH * share) + 1}, ENOUGH)


class World(SimpleNamespace):
    """The parts of a world that a disk and the checks at sending need."""

    def __init__(self, directory: Path) -> None:
        super().__init__(scheduler=Scheduler(0, lambda: None), looked=0, failures=[], away=False)
        self.auditor = SimpleNamespace(checks=0, looked_at=Counter[str]())
        self.stats = Counter[str]()
        self.readers = SimpleNamespace(look=self._look)
        self.disk = Disk(self, directory)  # type: ignore[arg-type]

    def _look(self) -> None:
        self.looked += 1

    def refuse_if_away(self, why: str) -> None:
        if self.away:
            raise ReceiverUnavailable(why, why)

    def fail(self, why: str) -> None:
        self.failures.append(why)

    def process(self, run: Any) -> Process:
        process = Process("publisher", {})
        self.scheduler.spawn(process, run)
        return process


@pytest.mark.parametrize(
    ("place", "content"), [("opened", b""), ("half", b"01"), ("sync", b"0123")]
)
def test_a_process_that_is_killed_within_a_write_leaves_what_is_written_by_then(
    tmp_path: Path, place: str, content: bytes
) -> None:
    world = World(tmp_path)
    path = tmp_path / "000000000001-000001.xml"
    opened, unlinked = world.disk.opening(Path.open), world.disk.unlinking(Path.unlink)

    def write() -> None:
        try:
            with opened(path, "wb") as file:
                file.write(b"0123")
                world.disk.sync_file(file)
        finally:
            unlinked(path)

    process = world.process(write)
    world.scheduler.run_to(place, 1, 10)
    assert process.places == [f"{place} {path.name}"]
    world.scheduler.end(process)
    assert (path.read_bytes(), world.looked) == (content, 1)


def test_a_disk_that_is_full_within_a_write_keeps_the_first_half(tmp_path: Path) -> None:
    world = World(tmp_path)
    path = tmp_path / ".000000000001-000001.xml.part"
    world.away = True
    told: list[str] = []

    def write() -> None:
        try:
            with world.disk.opening(Path.open)(path, "wb") as file:
                file.write(b"0123")
        except OSError as error:
            told.append(error.strerror)

    world.process(write)
    world.scheduler.run(10)
    assert (told, path.read_bytes()) == (["the disk is full"], b"01")


def test_a_number_of_a_document_gains_no_event_once_its_answer_is_recorded(tmp_path: Path) -> None:
    world = World(tmp_path)
    checks = AtSending(world)  # type: ignore[arg-type]

    def sends(*names: str) -> None:
        with checks.sends_of_source(3, 1, [SimpleNamespace(sent_id=name) for name in names]):
            pass

    def run() -> None:
        sends("a")
        sends("b")
        checks.is_answered("follower", 3, 1, ["b"])
        sends("b")
        checks.is_recorded()
        sends("b")
        assert not world.failures
        sends("a")

    process = world.process(run)
    world.scheduler.run(3)
    assert process.error is None
    assert world.failures == ["document 3-1 of follower had the events ['b'], and has ['a']"]


def test_no_two_documents_of_a_source_have_one_number_while_they_are_sent(tmp_path: Path) -> None:
    world = World(tmp_path)
    checks = AtSending(world)  # type: ignore[arg-type]
    one, other = (SimpleNamespace(sent_id=name) for name in "ab")

    def run() -> None:
        with checks.sends_of_source(3, 2, [one]), checks.sends_of_source(3, 2, [other]):
            pass

    process = world.process(run)
    world.scheduler.run(3)
    assert process.error is None
    assert world.failures == [
        "document 3-2 has the events ['b'], and one of the same number has ['a']"
    ]


def test_what_the_format_refused_may_differ_once_its_rows_are_removed() -> None:
    world = WholeWorld({**plan_of(1), "format": "qlik-messages", "steps": []})
    session = world.application.session
    for statement in (
        "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (4, 'doc', 'code=a')",
        "INSERT INTO eventlog_error (record_id, code, message) SELECT record_id, 'receiver', 'several' FROM eventlog",
        "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (4, 'doc', 'code=b')",
        "DELETE FROM eventlog",
        "DELETE FROM eventlog_error",
    ):
        session.execute(statement)
    assert world.auditor._refused_objects() == {("doc", "code=a")}
