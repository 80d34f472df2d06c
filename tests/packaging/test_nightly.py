"""make nightly: its parts, its limit, and the line that it ends with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from documents import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import nightly
from nightly import Part


def test_the_parts_take_at_most_ninety_minutes() -> None:
    rows = [sum(part.minutes for part in row) for row in nightly.ROWS]
    spare = 1 + nightly.LAST_WORDS / 60
    assert nightly.BY_DAY.minutes + max(rows) + spare <= 90


def test_a_part_that_fails_ends_no_other_and_the_last_line_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setattr(nightly, "BY_DAY", Part("day", 1, ("false",)))
    rows = ((Part("one", 1, ("sh", "-c", "echo seen")), Part("two", 1, ("sh", "-c", "exit 7"))),)
    monkeypatch.setattr(nightly, "ROWS", rows)
    assert nightly.main([]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "nightly without a commit: FAILED: day (exit code 1), two (exit code 7); 3 parts in 0 minutes"
    )
    assert (tmp_path / "build/nightly/one.txt").read_text() == "seen\n"
    assert nightly.main(["one"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(": good; 1 parts in 0 minutes")


def test_a_part_that_takes_longer_than_its_minutes_is_stopped_with_its_processes(
    tmp_path: Path,
) -> None:
    command = ("sh", "-c", "trap '' INT; sleep 300 & echo $!; wait")
    ended = nightly.run(Part("slow", 0.01, command), tmp_path, last_words=0.1)
    assert ended.failure == "stopped after 0.01 minutes"
    child = Path("/proc", (tmp_path / "slow.txt").read_text().strip(), "stat")
    # Killed; where nobody collects it, it stays as a zombie.
    assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_part_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert nightly.main(["mornings"]) == 2
    assert "there is no part mornings" in capsys.readouterr().out
