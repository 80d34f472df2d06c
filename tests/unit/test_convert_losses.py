"""The matrix of what each conversion loses (spec/change-model.md 5): a cell loses just what it says."""

from __future__ import annotations

import re
from pathlib import Path

import loss_forms  # noqa: F401 - fills FORMS
import pytest
from loss_matrix import CODES, FORMS, LETTERS, LOSSES, MATRIX, Form, cells, lose

from eventlog.convert import FORMATS, convert
from eventlog.model import Change

ANYWHERE = frozenset({"MVA"})  # refused with an error of its own, not by losing a field


def test_the_matrix_is_whole_and_names_known_codes_only() -> None:
    assert set(MATRIX) == {(source, target) for source in LETTERS for target in LETTERS}
    assert frozenset().union(*MATRIX.values()) <= CODES.keys()
    assert LETTERS.keys() >= FORMS.keys()
    assert LOSSES.keys() <= CODES.keys()
    assert set(LETTERS.values()) | {"jsonl"} == FORMATS.keys()


PAGE = Path(__file__).parents[2] / "docs" / "convert-between-formats.md"


def test_the_page_says_what_the_matrix_says() -> None:
    letters = {name: letter for letter, name in LETTERS.items()}
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    told = {
        (letters[name], target): frozenset(cell.replace("none", "").split())
        for name, cells in rows
        for target, cell in zip(LETTERS, cells.split(" | "), strict=True)
    }
    assert told == MATRIX
    assert dict(re.findall(r"^\| ([A-Z*]{3,4}|TIM-m?s) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)) == CODES


def compared(changes: list[Change], form: Form, expected: list[Change], codes: frozenset[str]) -> list[Change]:
    """What was read back, brought to what both sides can be compared by."""
    if len(changes) == len(expected):
        changes = [form.gains(read, wanted) for read, wanted in zip(changes, expected, strict=True)]
    if "POS" in codes:
        return [change._replace(position=None) for change in changes]
    return [change._replace(position=(form.position(change) or "").partition(".")[0]) for change in changes]


@pytest.mark.parametrize(("source", "target"), cells())
def test_a_conversion_loses_what_its_cell_says_and_nothing_else(source: str, target: str, tmp_path: Path) -> None:
    of, to, codes = FORMS[source], FORMS[target], MATRIX[source, target] - ANYWHERE
    of.make(tmp_path / of.target)
    native = of.read(tmp_path / of.target)
    written = tmp_path / "written" / to.target
    written.parent.mkdir()
    report = convert(
        LETTERS[source], LETTERS[target], str(tmp_path / of.target), str(written),
        {"reader": of.reader, "writer": to.writer},
    )  # fmt: skip
    expected = lose(native, codes)
    back = compared(to.read(written), to, expected, codes)
    if "POS" not in codes and source == target == "E":
        expected, back = lose(expected, ["POS"]), lose(back, ["POS"])  # rows are numbered anew
    assert back == expected
    assert report.read == len(native)
    for code in codes:
        assert back != lose(native, codes - {code}), f"the source shows nothing of {code}"
