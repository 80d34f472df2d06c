"""Which rows of an object may go again, and how (spec/event-log.md 11)."""

from __future__ import annotations

import pytest

from eventlog.core.rows.requeue import LoggedRow, RowState, Way, judge

STANDINGS = {
    "S": RowState.DONE,
    "W": RowState.DONE,
    "N": RowState.WAITS,
    "E": RowState.REFUSED,
    "F": RowState.REFUSED,
    "X": RowState.IGNORED,
}


def judged(text: str) -> tuple[str, str]:
    """The stale rows and those that go in parts, as texts. A row is its type, letter and column;
    ``*`` says that it is to go again: ``"1Sa* 1Eb 2Na"``.
    """
    rows = []
    for number, one in enumerate(text.split(), 1):
        way = (Way.COPY if one[1] in "SW" else Way.BACK) if one.endswith("*") else None
        column = one[2:].rstrip("*") or None
        rows.append(LoggedRow(number, int(one[0]), column, STANDINGS[one[1]], way))
    judgement = judge(rows)
    return " ".join(map(str, judgement.stale)), " ".join(map(str, judgement.in_parts))


@pytest.mark.parametrize("later", "SWNEFX")
@pytest.mark.parametrize("letter", "EFSW")
def test_a_later_row_outdates_what_would_come_after_it(letter: str, later: str) -> None:
    # E and F go to their old place, in front of what waits; a copy of S and W goes behind it, and
    # behind what may go back to its old place.
    is_stale = later in ("SW" if letter in "EF" else "SWNEF")
    for row in ("2{}a*", "3{}a*", "4{}*"):
        assert judged(f"{row.format(letter)} 5{later}") == ("1" if is_stale else "", "")


@pytest.mark.parametrize(
    ("rows", "stale", "in_parts"),
    [
        ("4E* 1Sa", "1", ""),  # the delete of an object that is there again
        ("4E* 1Na", "", ""),
        ("4S* 4S* 4E*", "", ""),  # a delete does not outdate another
        ("2Ea* 4S", "1", ""),
        ("1Ea* 4S", "1", ""),
        ("2Ea* 2Ea*", "", ""),
        ("2Sa* 2Sa*", "1", ""),
        ("5E* 6S", "", ""),  # what is read back is the present state
        ("6S* 4N", "", ""),
        ("7Ea* 8Sa", "", ""),
    ],
)
def test_a_delete_and_what_is_read_back(rows: str, stale: str, in_parts: str) -> None:
    assert judged(rows) == (stale, in_parts)


@pytest.mark.parametrize(
    ("rows", "stale", "in_parts"),
    [
        ("1Sa* 1Sb*", "", ""),  # the whole insert
        ("1Ea* 1Eb*", "", ""),
        ("7Sa* 7Sb*", "", ""),
        ("1Sa 1Eb*", "", "2"),
        ("1Ea* 1Sb", "", "1"),  # a part of its own event does not outdate it
        ("1Sa* 1Sb", "", "1"),
        ("7Sa 7Eb*", "", "2"),
        ("1Ea 1Eb*", "", "2"),
        ("1Na 1Eb*", "", ""),  # what waits goes with it
        ("1Na 1Sb*", "", "2"),
        ("1Sa* 1Eb*", "", "1 2"),  # one goes back, one behind all
        ("1Ea* 1Sa", "1", ""),  # a column that comes again is of another insert
        ("1Sa* 1Sa*", "1", ""),
        ("1Sa* 1Sb* 1Sb*", "1 2", "3"),
        ("1Sa* 1Sb* 1Sa* 1Sb*", "1 2", ""),
        ("1Sa 2Sb 1Ec*", "", "3"),  # b went as a modify before
        ("1Sa 4S 1Sa* 1Sb*", "", ""),  # each life has an insert
        ("1Ea* 4S 1Sa* 1Sb*", "1", ""),
        ("1Sa* 1Sb* 2Nb", "1 2", ""),
        ("1Ea* 1Eb* 2Nb", "", ""),
        ("1Ea* 1Xb", "", "1"),
        ("7Sa* 8Sb", "", "1"),  # as an add it would replace the object, without b
        ("7Ea* 8Sb", "", "1"),
        ("7Ea* 8Nb", "", ""),
        ("7Ea* 8Eb*", "", ""),
        ("7Sa* 8Nb", "", "1"),
        ("7Sa* 7Sb* 8Sa", "", ""),  # what is read back is all that the object has
        ("7Sa* 7Sb* 8Sc", "", "1 2"),
        ("7Sa* 6S", "", "1"),  # it may have any column
        ("7Sa* 4S 7Sa 7Sb", "", "1"),
        ("7Sa* 4S", "", ""),
    ],
)
def test_the_rows_of_an_insert_go_together_or_as_a_modify(
    rows: str, stale: str, in_parts: str
) -> None:
    assert judged(rows) == (stale, in_parts)
