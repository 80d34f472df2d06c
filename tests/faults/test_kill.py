"""kill -9 of the publisher between any two steps of a delivery (spec/event-log.md 8.4, 10, 12)."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from lxml import etree
from processes import start
from publishers import install, write_config
from replay import Replay
from shared import each_step, execute, fetch, one_of_each, statuses, url_of

from eventlog.config.load import load
from eventlog.publisher.ledger.delivery import decode
from eventlog.publisher.sinks.files import MARKER

TABLES = (
    "CREATE TABLE usr (id integer PRIMARY KEY, a text, b text)",
    "INSERT INTO usr VALUES (1, 'a1', 'b1'), (2, 'a2', 'b2'), (3, 'a3', 'b3')",
)
# Three deliveries of one to three documents, one of them of rows that make no event; queried-back
# rows do not change.
QUEUE = """
    INSERT INTO eventlog (event_type, table_name, table_key, column_name, old_value, new_value, perpetrator) VALUES
    (1, 'usr', 'id=9', 'a', NULL, 'x', 'app'), (1, 'usr', 'id=9', 'b', NULL, 'y', 'app'), (6, 'usr', 'id=1', NULL, NULL,
    NULL, 'app'), (2, 'usr', 'id=9', 'a', 'x', 'z', 'app'), (8, 'usr', 'id=9', 'b', NULL, NULL, 'app'),
    (4, 'usr', 'id=9', NULL, NULL, NULL, 'app'), (9 - 8, 'nobody', 'id=9', 'a', NULL, NULL, 'app'),
    (2, 'usr', 'id=2', 'a', 'q', 'a2', 'app'), (8, 'usr', 'id=2', 'b', NULL, NULL, 'app'),
    (6, 'usr', 'id=3', NULL, NULL, NULL, 'app')"""
LATER = """
    INSERT INTO eventlog (event_type, table_name, table_key, column_name, old_value, new_value, perpetrator) VALUES
    (2, 'usr', 'id=2', 'b', 'p', 'b2', 'app'), (8, 'usr', 'id=1', 'a', NULL, NULL, 'app')"""
FINAL = {f"id={i},table=usr,schema=public": {"a": [f"a{i}"], "b": [f"b{i}"]} for i in (1, 2, 3)}


class Publisher:
    """The driver, and everything that was ever to be seen of an event-id: its rows and its text."""

    marker = MARKER

    def __init__(
        self, database: sa.Engine, directory: Path, file_layout: str, **options: Any
    ) -> None:
        self.database = database
        self.documents = directory / "documents"
        self.config_file = write_config(
            directory,
            url_of(database),
            sink=self.sink(file_layout),
            publisher={"batch_size": 2, "delivery_rows": 5, **options},
        )
        execute(database, *TABLES)
        install(load(self.config_file, {}))
        self.rows_of: dict[str, Any] = {}
        self.text_of: dict[str, str] = {}
        self.process = start(
            [
                sys.executable,
                str(Path(__file__).with_name("kill_driver.py")),
                str(self.config_file),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def sink(self, file_layout: str) -> dict[str, Any]:
        return {"type": "files", "directory": "documents", "file_layout": file_layout}

    def clear(self) -> None:
        for path in self.documents.glob("*"):
            path.unlink()

    def markers(self) -> list[str]:
        return [path.name for path in self.documents.iterdir() if path.name.startswith(".")]

    def close(self) -> None:
        self.process.communicate()

    def reset(self) -> None:
        execute(
            self.database,
            "TRUNCATE eventlog, eventlog_inflight, eventlog_error RESTART IDENTITY",
            QUEUE,
        )
        self.clear()
        self.rows_of, self.text_of = {}, {}

    def publish(self, last_step: int = 0) -> str:
        """Publish once, dying at a step; what it died at, or ``done``."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{last_step}\n")
        self.process.stdin.flush()
        told = self.process.stdout.readline().strip()
        assert last_step < 0 or told == "done" or told.startswith("killed: "), told
        self.look()
        return told

    def look(self) -> None:
        """No event-id means two sets of rows, in the entry or in a document."""
        for (content,) in fetch(self.database, "SELECT content FROM eventlog_inflight"):
            for event in decode(0, content).events():
                made_of = list(event.ids), list(event.dropped), event.attempts
                assert self.rows_of.setdefault(event.event_id, made_of) == made_of
        for body in self.bodies():
            for event in etree.fromstring(body).iterfind("input/*"):
                text = etree.tostring(event, encoding="unicode")
                event_id = event.attrib["event-id"]
                assert self.text_of.setdefault(event_id, text) == text

    def bodies(self) -> list[bytes]:
        """The documents in the order of their names; every file is whole."""
        found = []
        for path in sorted(
            path for path in self.documents.glob("*") if not path.name.startswith(".")
        ):
            content = path.read_bytes()
            if path.suffix == ".xmll":
                assert content.endswith(b"\n")
                found += content.splitlines()
            else:
                found.append(content)
        return found

    def come_later(self) -> set[str]:
        """Log further rows of the objects of events 8 and 3; the event-ids that they must get if
        these were recorded.

        What was not recorded before they came is folded with them.
        """
        recorded = {event_id for event_id in ("3", "8") if event_id in self.rows_of}
        recorded |= {str(i) for i, status in statuses(self.database).items() if status == "S"}
        execute(self.database, LATER)
        return {later for earlier, later in (("8", "11"), ("3", "12")) if earlier in recorded}

    def check_end(self, later: set[str] | frozenset[str] = frozenset()) -> None:
        ends = statuses(self.database)
        assert ends == {**dict.fromkeys(ends, "S"), 7: "E"}
        assert fetch(self.database, "SELECT record_id, code FROM eventlog_error") == [
            (7, "unknown_table")
        ]
        assert fetch(self.database, "SELECT * FROM eventlog_inflight") == []
        assert self.markers() == [self.marker]
        replay = Replay()
        replay.documents(self.bodies())
        assert replay.objects == FINAL
        # Files of documents that were sent again have replaced themselves: no event is in two of
        # them.
        assert replay.repeated == 0
        assert set(replay.applied) == {"1", "3", "4", "6", "8", "10"} | later

    def steps(self) -> list[str]:
        """Publish to the end; the names of the steps."""
        self.publish()
        self.reset()
        names = self.publish(-1).split("; ")
        self.check_end()
        return names

    def die_at(self, steps: Iterable[int]) -> list[str]:
        """Publish again for each of these steps, dying at it, and to the end; the names of the
        steps.
        """
        names = []
        for step in steps:
            self.reset()
            names.append(self.publish(step).removeprefix("killed: "))
            later = self.come_later()
            assert self.publish() == "done"
            self.check_end(later)
        return names


@contextmanager
def publisher(
    database: sa.Engine, directory: Path, file_layout: str, **options: Any
) -> Iterator[Publisher]:
    started = Publisher(database, directory, file_layout, **options)
    try:
        yield started
    finally:
        started.close()


def among(*parts: str) -> Callable[[Sequence[str]], list[int]]:
    """One of each of the steps whose names have one of these parts."""

    def chosen(names: Sequence[str]) -> list[int]:
        return [
            number
            for number in one_of_each(names)
            if any(part in names[number - 1] for part in parts)
        ]

    return chosen


EACH = pytest.mark.night
"""At which steps of a run to die: in CI at one of each name, by another form at those alone that
differ by it.
"""


@pytest.mark.promise(
    "guarantee A crash of the publisher loses nothing",
    "guarantee After a crash the same events have the same event-ids",
)
@pytest.mark.parametrize(
    ("file_layout", "mark_interval", "chosen"),
    [
        pytest.param("lines", 0, one_of_each, id="lines-one_of_each"),
        pytest.param(
            "documents",
            1000,
            among("sent", "file", "fsynced", "mark", "struck"),
            id="documents-its_steps",
        ),
        pytest.param("lines", 0, each_step, id="lines-each_step", marks=EACH),
        pytest.param("documents", 1000, each_step, id="documents-each_step", marks=EACH),
    ],
)
def test_killed_at_any_step_everything_is_published_and_no_event_id_has_two_meanings(
    database: sa.Engine,
    tmp_path: Path,
    file_layout: str,
    mark_interval: int,
    chosen: Callable[[Sequence[str]], list[int]],
) -> None:
    with publisher(database, tmp_path, file_layout, mark_interval=mark_interval) as killed:
        steps = killed.steps()
        names = killed.die_at(chosen(steps))
    assert len(set(names)) > 10
    assert set(steps) >= {
        "the owner's file is fsynced",
        "the directory is owned",
        "the entry is committed",
        "before a document is sent",
        "after a document is sent",
        "after a file is fsynced",
        "before a file is renamed",
        "after a file is renamed",
        "before the marks",
        "rows are marked",
        "the entry is struck",
        "the marks are committed",
    }


# A kill at each kind of step is above, in CI.
@pytest.mark.night
@pytest.mark.parametrize("file_layout", ["lines", "documents"])
def test_killed_repeatedly_everything_is_published(
    database: sa.Engine, tmp_path: Path, file_layout: str
) -> None:
    with publisher(database, tmp_path, file_layout) as killed:
        deaths = []
        for seed in range(6):
            chance = random.Random(seed)
            killed.reset()
            for _ in range(15):
                if (told := killed.publish(chance.randint(1, 30))) == "done":
                    break
                deaths.append((seed, told))
            else:
                assert killed.publish() == "done"
            killed.check_end()
        assert len(deaths) > 12
