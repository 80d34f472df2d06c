"""The matrix of what each conversion loses (spec/change-model.md 5): a cell loses just what it
says.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Set
from pathlib import Path

import pytest
from hypothesis import given, settings
from loss_formats import LETTERS, TRIED, TriedFormat
from loss_matrix import (
    CODES,
    CODES_OF,
    LOSSES,
    MATRIX,
    NAMES_ONLY,
    has_several_values,
    lacks_columns,
    lose,
)
from loss_samples import SAMPLES, histories

from eventlog.changes.format import NothingWritten, Report
from eventlog.changes.losses import Loss, in_words
from eventlog.conversion import convert
from eventlog.model import Change, ChangeOp, Row
from eventlog.registry import FORMATS, format_named, names

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "convert.md"
CELLS = sorted(MATRIX)


def test_the_matrix_is_whole() -> None:
    assert set(MATRIX) == {(source, target) for source in LETTERS for target in LETTERS}
    assert set().union(*MATRIX.values()) == CODES.keys() == {code for code, _ in LOSSES}
    assert LETTERS.keys() == TRIED.keys() == SAMPLES.keys()
    assert set(LETTERS.values()) | {"jsonl"} == set(names(FORMATS))


def test_the_page_shows_the_matrix() -> None:
    letters = {name: letter for letter, name in LETTERS.items()}
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    told = {
        (letters[name], target): frozenset(cell.replace("none", "").split())
        for name, cells in rows
        for target, cell in zip(LETTERS, cells.split(" | "), strict=True)
    }
    assert told == MATRIX
    assert (
        dict(
            re.findall(
                r"^\| ([A-Z*]{3,4}|TIM-m?s) \| (.+) \| .*\|$", PAGE.read_text(), re.MULTILINE
            )
        )
        == CODES
    )


def converted(of: TriedFormat, to: TriedFormat, source: Path, written: Path) -> Report:
    maps = {"reader": of.reader, "writer": to.completing_writer}
    return convert(of.format, to.format, str(source), str(written), maps)


def compared(
    read: list[Change], native: list[Change], codes: frozenset[str], to: TriedFormat
) -> list[Change]:
    """What was read back, as it compares to the native changes without these codes: without what
    the target adds of its own, its position what is left of the native one.
    """
    expected = lose(native, codes - NAMES_ONLY, to.letter)
    if len(read) == len(expected):
        read = [
            to.gains(_with_unknown(change, wanted), wanted)._replace(
                position=to.kept(change, wanted.position)
            )
            for change, wanted in zip(read, expected, strict=True)
        ]
    return lose(read, codes & NAMES_ONLY, to.letter)


def _with_unknown(read: Change, expected: Change) -> Change:
    """Of an update that does not know what it changed all columns are written, as changed
    (spec/change-model.md 4).
    """
    return read._replace(changed=None) if expected.changed is None else read


def codes_of(source: str, target: str) -> frozenset[str]:
    """Those of the cell. Positions do not count in "none" (spec/change-model.md 5): rows of a log
    are numbered again.
    """
    return MATRIX[source, target] | ({"POS"} if source == target == "E" else frozenset())


@pytest.mark.parametrize(("source", "target"), CELLS)
def test_a_conversion_loses_what_its_cell_shows_and_nothing_else(
    source: str, target: str, tmp_path: Path
) -> None:
    of, to, codes = TRIED[source], TRIED[target], codes_of(source, target)
    SAMPLES[source](tmp_path / of.target)
    native = of.read(tmp_path / of.target)
    written = tmp_path / "written" / to.target
    written.parent.mkdir()
    report = converted(of, to, tmp_path / of.target, written)
    assert report.read == len(native)

    if "KEY" in codes:
        read = to.read(written, with_keys=False)
        assert compared(read, native, codes, to) == lose(native, codes, target)
        codes -= {"KEY"}
    read = to.read(written)
    assert compared(read, native, codes, to) == lose(native, codes, target)
    for code in codes:
        others = codes - {code}
        assert compared(read, native, others, to) != lose(native, others, target), (
            f"the source shows no {code}"
        )


@pytest.mark.parametrize(("source", "target"), CELLS)
def test_what_is_refused_without_help_is_what_lacks_columns_or_has_several_values(
    source: str, target: str, tmp_path: Path
) -> None:
    of, to, codes = TRIED[source], TRIED[target], MATRIX[source, target]
    SAMPLES[source](tmp_path / of.target)
    native = lose(of.read(tmp_path / of.target), codes & {"TRN"}, target)
    refused = [change for change in native if "MVA" in codes and has_several_values(change)]
    if not codes.isdisjoint({"INC", "INC*"}):
        refused += [
            change for change in native if change not in refused and lacks_columns(change, target)
        ]
        assert refused
    (tmp_path / "written").mkdir()
    report = convert(
        of.format, to.format, str(tmp_path / of.target), str(tmp_path / "written" / to.target),
        {"reader": of.reader, "writer": to.writer},
    )  # fmt: skip
    is_truncate_refused = "TRN" in codes and target in "EXL"
    assert report.counters["not_expressible"] == len(refused) + is_truncate_refused


OF_HISTORIES = [
    (source, [*LETTERS][(place + shift) % len(LETTERS)])
    for place, source in enumerate(LETTERS)
    for shift in (0, 3, 5)
]
"""Cells in which each format is read and written three times, once by itself. The sample of each
cell shows all that the cell contains, in CI too; histories of all cells are for the night.
"""

COUNTED = {"T": {"REF"}, "G": {"USR"}}
"""By target, the codes of CODES_OF that its writer counts itself: refresh_skipped, user_unknown."""


def shown(
    native: list[Change], codes: frozenset[str], target: str, but: Set[str] = frozenset()
) -> set[str]:
    """Those of the codes of CODES_OF that these changes show once rows are completed and split, and
    without those that the codes of ``but`` drop.
    """
    first = codes & {"MVA", "INC", "INC*", "KCH", *but}
    told = codes & set(CODES_OF.values()) - COUNTED.get(target, frozenset())
    return {
        code
        for code in told
        if lose(native, first | {code}, target) != lose(native, first - {code}, target)
    }


@pytest.mark.parametrize(
    ("source", "target", "examples"),
    [
        *((*cell, 4) for cell in OF_HISTORIES),
        *(pytest.param(*cell, 60, marks=pytest.mark.night) for cell in CELLS),
    ],
)
def test_any_history_loses_what_the_cell_contains(source: str, target: str, examples: int) -> None:
    of, to, codes = TRIED[source], TRIED[target], codes_of(source, target) - {"KEY"}

    @settings(max_examples=examples, deadline=None)
    @given(histories(source, target))
    def hold(history: list[Change]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path, written = Path(directory, of.target), Path(directory, "written", to.target)
            written.parent.mkdir()
            of.write(history, path)
            native = of.read(path)
            try:
                report = converted(of, to, path, written)
            except NothingWritten as nothing:  # the target holds none of these changes
                assert lose(native, codes, target) == []
                report = nothing.report
            else:
                assert compared(to.read(written), native, codes, to) == lose(native, codes, target)
            assert report.read == len(native)
            told = {CODES_OF[Loss(name)] for name in report.lost} - {"KEY"}
            # What is dropped is counted as that, and may be told beside it. Rows that are completed
            # by those of now may hide which columns changed, or show others.
            hidden = {"CHG"} if "INC" in codes or target == "L" else set()
            assert shown(native, codes, target, but={"TRN", "NOP"}) <= told | hidden
            # Of those that were passed over later, it is told too.
            if not (report.passed_over and format_named(to.format).is_written_later):
                assert told <= shown(native, codes, target) | hidden

    hold()


def test_what_is_lost_is_reported_in_a_sentence() -> None:
    assert in_words({}) == ""
    assert in_words({"user": 41, "commit_time": 41, "position": 1, "nulls": 3}) == (
        "commit time and user of 41 changes; position of 1 change; 3 columns without a value in "
        "new rows"
    )


KEY_ONLY = {"id": 1, "code": "x"}
OTHERS = ("name", "price", "made", "note")
NULLS = {**KEY_ONLY, **dict.fromkeys(OTHERS)}
TRANSACTION = {"transaction_id": f"{1:032X}", "event_number": 1, "last_in_transaction": True}


@pytest.mark.parametrize(
    ("source", "target", "op", "native", "back"),
    [
        ("X", "E", ChangeOp.INSERT, KEY_ONLY, {**KEY_ONLY, "name": None}),
        ("G", "T", ChangeOp.DELETE, NULLS, KEY_ONLY),
        ("T", "G", ChangeOp.DELETE, KEY_ONLY, NULLS),
        ("T", "L", ChangeOp.DELETE, KEY_ONLY, NULLS),
    ],
)
def test_rows_of_nulls_are_known_in_part_or_as_a_whole(
    tmp_path: Path, source: str, target: str, op: ChangeOp, native: Row, back: Row
) -> None:
    of, to = TRIED[source], TRIED[target]
    image = {"before" if op is ChangeOp.DELETE else "after": native}
    change = Change(
        "app",
        "item",
        op,
        tuple(KEY_ONLY.items()),
        **image,
        **(TRANSACTION if source != "X" else {}),
    )
    of.write([change], tmp_path / of.target)
    (read,) = of.read(tmp_path / of.target)
    assert (read.before or read.after) == native
    (tmp_path / "written").mkdir()
    converted(of, to, tmp_path / of.target, tmp_path / "written" / to.target)
    (read,) = to.read(tmp_path / "written" / to.target)
    assert (read.before or read.after) == back
