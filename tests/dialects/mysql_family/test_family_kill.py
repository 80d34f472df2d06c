"""A publisher that is killed with SIGKILL at each of its steps loses nothing, on MariaDB too
(spec/event-log.md 12).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from lxml import etree
from platforms import Platform
from shared import each_step, one_of_each

DRIVER = Path(__file__).parents[2] / "faults" / "kill_driver.py"
CHANGES = (
    "INSERT INTO usr VALUES (9, 'x', 'y')",
    "UPDATE usr SET a = 'z' WHERE id = 9",
    "DELETE FROM usr WHERE id = 9",
    "UPDATE usr SET a = 'new' WHERE id = 1",
    "UPDATE usr SET b = 'new' WHERE id = 2",
    "INSERT INTO usr VALUES (4, 'a4', NULL)",
)


@pytest.fixture
def queue(family: Platform) -> Platform:
    family.run(
        "CREATE TABLE usr (id int PRIMARY KEY, a varchar(10), b varchar(10))",
        "INSERT INTO usr VALUES (1, 'a1', 'b1'), (2, 'a2', 'b2')",
    )
    family.settings = {
        "publisher": {"batch_size": 2, "delivery_rows": 3, "allow_loopback": True},
        "sink": {"type": "files", "directory": str(family.place / "documents")},
    }
    family.watch("usr")
    family.config()
    return family


@pytest.fixture
def driver(queue: Platform) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(DRIVER), str(queue.place / "eventlog.toml")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def published(process: subprocess.Popen[str], last_step: int) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{last_step}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def fill(queue: Platform) -> None:
    """The same changes wait again, and nothing was published."""
    queue.run(
        "DELETE FROM eventlog",
        "DELETE FROM usr",
        "INSERT INTO usr VALUES (1, 'a1', 'b1'), (2, 'a2', 'b2')",
    )
    queue.run("DELETE FROM eventlog", *CHANGES)
    for path in (queue.place / "documents").glob("*"):
        path.unlink()


def found(queue: Platform) -> set[str]:
    """The events in the documents."""
    return {
        etree.tostring(event.find("association")).decode() + event.tag
        for path in sorted((queue.place / "documents").glob("*.xml"))
        for event in etree.parse(path).iterfind("input/*")
    }


@pytest.mark.parametrize("chosen", [one_of_each, pytest.param(each_step, marks=pytest.mark.night)])
def test_whenever_it_dies_every_event_arrives_and_every_row_is_marked(
    queue: Platform, driver: subprocess.Popen[str], chosen: Callable[[Sequence[str]], list[int]]
) -> None:
    assert published(driver, 0) == "done"
    fill(queue)
    steps = chosen(published(driver, -1).split("; "))
    expected = found(queue)
    for step in steps:
        fill(queue)
        assert published(driver, step).startswith("killed: ")
        assert published(driver, 0) == "done"
        with queue.engine.connect() as conn:
            asked = "SELECT status, COUNT(*) FROM eventlog GROUP BY status"
            assert [row[0] for row in conn.exec_driver_sql(asked)] == ["S"]
            assert conn.exec_driver_sql("SELECT COUNT(*) FROM eventlog_inflight").scalar() == 0
        assert found(queue) == expected
    assert len(steps) > 10
