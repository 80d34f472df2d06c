"""Faults of the product: each applies, and is tried with the schedules that reach its lines, in a copy of the product."""

from __future__ import annotations

import re
import subprocess
import sys
from difflib import unified_diff
from pathlib import Path

import pytest
from entries import Request, Rows, sets_of
from faulty import (
    BY_TESTS,
    INTERLEAVED,
    OF_OUTBOX,
    OF_SIMULATION,
    Change,
    DoesNotApply,
    Fault,
    changed_files,
    faults,
)
from reach import is_reached, touched_spans

HERE = Path(__file__).parent
MODULE = """\
LIMIT = 3


class Option:
    size: int = 4


def first(given):
    # A comment.
    if given > LIMIT:
        return [
            given,
        ]
    return []


def second(option):
    return option.size
"""


def spans(tmp_path: Path, old: str, new: str) -> list[tuple[int, int]]:
    """Return the lines of the module that have to run if one text of it becomes another."""
    for tree, text in (("before", MODULE), ("after", MODULE.replace(old, new))):
        (tmp_path / tree / "eventlog").mkdir(parents=True)
        (tmp_path / tree / "eventlog" / "module.py").write_text(text)
    found = touched_spans(tmp_path / "before", tmp_path / "after")
    return [(first, last) for _, first, last in found]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("            given,\n", "", [(11, 13)]),
        ("given > LIMIT", "given < LIMIT", [(10, 10)]),
        ("    return []", "    given += 1\n    return []", [(11, 13), (14, 14)]),
        ("def first(given)", "def first(given, more=0)", [(10, 14)]),
        ("LIMIT = 3", "LIMIT = 2", [(10, 10)]),
        ("size: int = 4", "size: int = 5", [(18, 18)]),
        ("# A comment.", "# Another.", []),
    ],
)
def test_a_patch_is_reached_by_its_statements_and_a_constant_by_who_reads_it(
    tmp_path: Path, old: str, new: str, lines: list[tuple[int, int]]
) -> None:
    assert spans(tmp_path, old, new) == lines


def test_a_schedule_reaches_a_span_by_any_line_of_it() -> None:
    ran = {"eventlog/module.py": 1 << 12}
    assert is_reached([("eventlog/module.py", 11, 13)], ran)
    assert not is_reached([("eventlog/module.py", 13, 14), ("eventlog/other.py", 12, 12)], ran)


def test_the_set_of_a_consumer_is_its_newest_lines() -> None:
    assert Rows.of("[2,2,1,3,0]").ranges == [(1, 2), (4, 5), (8, 8)]
    sets = sets_of(
        [("one", "[9]"), ("other", "[3]")],
        [
            ("one", '{"set":"recent","rows":"[0,7,0]"}'),
            ("one", '{"set":"whole","rows":"[2]"}'),
        ],
    )
    assert {name: list(rows) for name, rows in sets.items()} == {
        "one": [1, 2, 7],
        "other": [1, 2, 3],
    }
    assert list(Request.of('{"rows":[[3,4]],"objects":["a"]}').rows) == [3, 4]


@pytest.mark.parametrize("file", [*OF_SIMULATION, *INTERLEAVED, *OF_OUTBOX, *BY_TESTS])
def test_each_fault_applies_to_the_product(file: str) -> None:
    for name, fault in faults(file).items():
        for path, text in changed_files(fault).items():
            if path.suffix == ".py":
                compile(text, f"{name}: {path}", "exec")


@pytest.mark.parametrize(
    ("inside", "text", "number"),
    [
        ("Marks.add", "no such text", 0),
        ("Marks.add_answered", "def add(self, status: Status", 0),
        ("no_such_function", "def add(self, status: Status", 0),
        ("LogFeed", "self", 0),  # it has it more than once
    ],
)
def test_a_fault_that_no_longer_applies_is_reported(inside: str, text: str, number: int) -> None:
    fault = Fault("a fault", (Change(inside, text, ""),))
    with pytest.raises(DoesNotApply, match=f"'a fault': {number} definitions {inside} have"):
        changed_files(fault)


def test_the_changes_of_a_fault_add_up_in_one_file() -> None:
    changes = (
        Change("Marks.add", "def add(self, status", "def add(self, letter"),
        Change("Marks.add", "setdefault(status, ", "setdefault(letter, "),
    )
    (text,) = changed_files(Fault("a fault", changes)).values()
    assert "def add(self, letter: Status" in text
    assert "self.statuses.setdefault(letter, [])" in text


def test_a_patch_runs_in_a_copy_of_the_product(tmp_path: Path) -> None:
    patch = tmp_path / "nothing_is_marked.patch"
    path = "eventlog/publisher/send/marks.py"
    text = (HERE.parents[1] / path).read_text()
    place = "self.counters.count_rows(result"
    lines = unified_diff(
        text.splitlines(keepends=True),
        text.replace(place, "raise KeyError(result").splitlines(keepends=True),
        f"a/{path}",
        f"b/{path}",
    )
    patch.write_text("".join(lines))
    done = subprocess.run(
        [
            sys.executable,
            HERE / "patches.py",
            patch,
            "--seeds",
            "14-14",  # a short one
            "--cache",
            tmp_path / "cache",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"nothing_is_marked \| found +\|    1     1      1 .*KeyError", done.stdout), (
        done.stdout + done.stderr
    )
    assert (HERE.parents[1] / path).read_text() == text
