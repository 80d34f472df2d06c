"""Operation codes, and the rows of one operation (formats/linter-queue.md 3, 4)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linter_queue import commit, read, rollback, row
from shared import refused

from eventlog.errors import ConfigError
from eventlog.linter.dispatch_tables import Destination, DispatchRow
from eventlog.linter.operations import FIELDS, parts
from eventlog.linter.writer import SystemLog

# TYP, LEN1, LEN2 of a row, and what each table says: an operation (op), the end of a transaction,
# or an error.
CODES = [
    (1, 2, 0, "op", "op"),
    (2, 2, 0, "op", "op"),
    (3, 1, 1, "op", "op"),
    (4, 0, 0, "end", "typ_contradiction"),
    (4, 2, 0, "typ_contradiction", "op"),
    (4, 0, 2, "typ_contradiction", "typ_contradiction"),
    (4, 1, 1, "typ_contradiction", "typ_contradiction"),
    (5, 0, 0, "unknown_operation", "end"),
    (5, 2, 0, "unknown_operation", "unknown_operation"),
    (7, 2, 0, "op", "unknown_operation"),
    (7, 0, 0, "op", "unknown_operation"),
    (8, 1, 1, "op", "unknown_operation"),
    (9, 2, 0, "op", "unknown_operation"),
    (10, 0, 0, "end", "unknown_operation"),
    (10, 2, 0, "typ_contradiction", "unknown_operation"),
    (0, 0, 0, "unknown_operation", "unknown_operation"),
    (6, 2, 0, "unknown_operation", "unknown_operation"),
    (11, 2, 0, "unknown_operation", "unknown_operation"),
    (-1, 2, 0, "unknown_operation", "unknown_operation"),
    (1, 1, 1, "typ_contradiction", "typ_contradiction"),
    (2, 1, 1, "typ_contradiction", "typ_contradiction"),
    (9, 1, 1, "typ_contradiction", "unknown_operation"),
    (1, 0, 0, "typ_contradiction", "typ_contradiction"),
    (2, 0, 0, "typ_contradiction", "typ_contradiction"),
    (3, 0, 2, "typ_contradiction", "typ_contradiction"),
    (3, 2, 0, "typ_contradiction", "typ_contradiction"),
    (9, 0, 0, "typ_contradiction", "unknown_operation"),
    (2, -1, 0, "bad_length", "bad_length"),
    (3, 1, -1, "bad_length", "bad_length"),
    (10, -1, 0, "bad_length", "unknown_operation"),
    (4, -1, 0, "bad_length", "bad_length"),
    (5, -1, 0, "unknown_operation", "bad_length"),
    (6, -1, 0, "unknown_operation", "unknown_operation"),
]


@pytest.mark.promise("option linter.reader.typ_table")
@pytest.mark.parametrize("table", ["fields", "prose"])
@pytest.mark.parametrize(("typ", "len1", "len2", "fields", "prose"), CODES)
def test_code_and_lengths(
    table: str, typ: int, len1: int, len2: int, fields: Any, prose: Any
) -> None:
    expected = fields if table == "fields" else prose
    given = row(typ, 100, b"ab", len1=len1, len2=len2)
    end = commit(200, typ=4 if table == "fields" else 5)
    if expected in ("op", "end"):
        made = read(given, end, typ_table=table)
        assert len(made) == (1 if expected == "op" and typ not in (7, 8) else 0)
    else:
        with refused(expected):
            read(given, end, typ_table=table)


def test_prose_warns_once_that_a_rollback_cannot_be_detected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ends = [commit(address, typ=5) for address in (200, 300)]
    with caplog.at_level(logging.WARNING):
        assert len(read(row(2, 100, b"a"), *ends, typ_table="prose")) == 1
    assert len(caplog.records) == 1


def test_an_unknown_table_of_codes_is_refused() -> None:
    with pytest.raises(ConfigError):
        read(typ_table="guess")


def rows_of(*shapes: tuple[int, int, int, int, bytes]) -> list[DispatchRow]:
    return [
        row(typ, 100, data, extdata=extdata, len1=len1, len2=len2)
        for typ, extdata, len1, len2, data in shapes
    ]


FULL = bytes(range(250)) * 14  # 3500 bytes, cut to 3400 below


@pytest.mark.promise("code error-missing_part")
@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (rows_of((2, 0, 1, 0, b"a"), (2, 2, 1, 0, b"a")), "missing_part"),
        (rows_of((2, 0, 1, 0, b"a"), (2, 0, 1, 0, b"a")), "missing_part"),
        (rows_of((2, 1, 1, 0, b"a")), "missing_part"),
        (rows_of((2, -1, 1, 0, b"a")), "missing_part"),
        (rows_of((2, 1, -1, 0, b"a")), "missing_part"),
        (rows_of((2, 0, 2, 0, b"a")), "bad_length"),
        (rows_of((2, 0, 3401, 0, FULL[:3400])), "bad_length"),
        (rows_of((2, 0, 3400, 0, FULL[:3400]), (2, 1, 3401, 0, FULL)), "bad_length"),
        (rows_of((2, 0, 1, 0, b"a"), (2, 1, -1, 0, b"a")), "bad_length"),
        (rows_of((2, 0, 1, 0, b"a"), (2, 1, 0, 1, b"a")), "typ_contradiction"),
        (rows_of((2, 0, 3400, 1, b"a")), "typ_contradiction"),
        (rows_of((3, 0, 4000, -500, b"a")), "bad_length"),
        (rows_of((3, 0, 4000, -4000, b"a")), "bad_length"),
    ],
)
def test_rows_that_are_no_operation(rows: list[DispatchRow], error: str) -> None:
    with refused(error, match="SYSLOG_ADDR 0:100"):
        parts(rows)


def test_under_totals_rows_are_padded_and_other_lengths_ignored() -> None:
    assert parts(rows_of((3, 0, 3402, 2, b"a"), (3, 1, -7, 99, b"bcde"))) == (
        b"a" + b"\0" * 3399 + b"bc",
        b"de",
    )


def test_exactly_3400_bytes_are_per_row() -> None:
    full = FULL[:3400]
    assert parts(rows_of((3, 0, 3400, 0, full), (3, 1, 0, 1, b"b"))) == (full, b"b")


def test_an_empty_first_row_may_go_on() -> None:
    assert parts(rows_of((2, 0, 0, 0, b""), (2, 1, 1, 0, b"a"))) == (b"a", b"")


@given(
    st.binary(min_size=1, max_size=9000),
    st.binary(min_size=1, max_size=9000),
    st.sampled_from(["per_row", "total"]),
    st.booleans(),
)
def test_what_is_written_in_rows_is_assembled_again(
    old: bytes, new: bytes, lengths: str, update: bool
) -> None:
    log = SystemLog("N", lengths)
    written = (old, new) if update else (old, b"")
    rows = list(
        log.operation(1, 1, bytes(6), 3 if update else 2, 7, 1, written, [Destination("", "", "T")])
    )
    assert all(len(row.data) == 3400 and row.extdata == number for number, row in enumerate(rows))
    assert parts(rows, FIELDS) == written


@pytest.mark.parametrize(
    "bad",
    [row(2, 100, b"a", len1=5), row(2, 100, b"a", extdata=1), row(1, 100, b"ab", len1=1, len2=1)],
)
def test_what_is_rolled_back_raises_nothing(bad: DispatchRow) -> None:
    assert read(bad, rollback(200)) == []
    assert len(read(bad, rollback(200), row(2, 300, b"a"), commit(400))) == 1


@pytest.mark.promise("code error-typ_contradiction")
def test_an_empty_four_is_judged_at_the_end_of_its_transaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    empty = row(4, 100, b"ab", len1=0, len2=0)
    with refused("typ_contradiction", match="check that typ_table = prose is right"):
        read(empty, commit(200, typ=5), typ_table="prose")
    other = row(2, 50, b"a", transaction=7)
    assert len(read(other, empty, commit(60, typ=5, transaction=7), typ_table="prose")) == 1
    assert "check that typ_table = prose is right" in caplog.text


def test_a_clear_blob_in_parts_may_begin_without_data() -> None:
    rows = [
        row(4, 100, b"", extdata=0, len1=0, len2=0),
        row(4, 100, b"ab", extdata=1, len1=2, len2=0),
    ]
    assert len(read(*rows, commit(200, typ=5), typ_table="prose")) == 1


def test_operations_dropped_at_the_end_are_not_checked() -> None:
    assert read(row(2, 100, b"a", len1=5), row(2, 150, b"a")) == []


@pytest.mark.promise("option linter.reader.order_by")
def test_a_row_with_another_address_ends_an_operation() -> None:
    with refused("missing_part", match="part 0 is missing"):
        read(
            row(2, 100, b"a"),
            row(2, 200, b"b", oper_date=b"\x42\x41\x4b\xaf\0\1"),
            row(2, 100, b"c", extdata=1, oper_date=b"\x42\x41\x4b\xaf\0\2"),
            commit(300, oper_date=b"\x42\x41\x4b\xaf\0\3"),
            order_by="oper_date",
        )


def test_operations_of_several_tables_at_one_address_are_distinguished() -> None:
    made = read(row(2, 100, b"a"), row(2, 100, b"b", tabnum_src=8), commit(200))
    assert [change.extras["part1"] for change in made] == [b"a", b"b"]


def test_what_is_not_looked_at_may_be_anything() -> None:
    strange = {"data": "no hex", "tabnum_src": "x", "rowid_src": "x", "blobatr": None}
    assert len(read(row(2, 100, b"a"), commit(200, **strange))) == 1
    with refused("bad_column_value"):
        read(row(2, 100, b"a", data="no hex"), commit(200))
    with refused("bad_column_value", match="TABNUM_SRC"):
        read(row(2, 100, b"a", tabnum_src="x"), commit(200))
