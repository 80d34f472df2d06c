"""Masks: which bit is which column, four forms, at any width (formats/qlik.md 2)."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import refused

from eventlog.errors import FormatError
from eventlog.qlik import masks
from eventlog.qlik.masks import MaskLayout, layout

TEN = [f"c{number:02}" for number in range(1, 11)]
WIDEST = [f"c{number:04}" for number in range(1017)]


@st.composite
def layouts_with_columns(draw: st.DrawFn) -> tuple[MaskLayout, frozenset[str]]:
    names = [f"c{number}" for number in range(draw(st.integers(1, 1017)))]
    headers = draw(st.integers(0, min(7, 1024 - len(names))))
    return layout(names, headers), frozenset(draw(st.sets(st.sampled_from(names))))


@given(layouts_with_columns())
def test_every_form_reads_back(given: tuple[MaskLayout, frozenset[str]]) -> None:
    own, columns = given
    value, mask = own.bits(columns), (columns, 0)
    assert masks.read_text(own, masks.message_text(own, value)) == mask
    assert masks.read_text(own, masks.table_text(own, value)) == mask
    orders: list[Literal["little", "big"]] = ["little", "big"]
    for order in orders:
        assert masks.read_bytes(own, masks.message_bytes(own, value, order), order) == mask
        assert masks.read_bytes(own, masks.table_bytes(own, value, order), order) == mask
        assert (
            masks.read_bytes(own, masks.table_bytes(own, value, order) + b"\0", "little") == mask
            or order == "big"
        )


@given(layouts_with_columns())
def test_widths_are_those_of_the_format(given: tuple[MaskLayout, frozenset[str]]) -> None:
    own, columns = given
    value, size = own.bits(columns), own.width // 8 + 1
    assert len(masks.message_text(own, value)) == 2 * size
    assert len(masks.message_bytes(own, value)) == size
    assert not masks.table_bytes(own, value).endswith(b"\0")
    assert not masks.table_text(own, value).startswith("00") or not value


def test_1017_columns_after_seven_headers_fit() -> None:
    own = layout(WIDEST, 7)
    every = own.bits(frozenset(WIDEST))
    assert len(masks.table_bytes(own, every)) == 128
    assert masks.read_bytes(own, masks.table_bytes(own, every)) == (frozenset(WIDEST), 0)
    with refused("mask_too_wide", match="1024"):
        masks.check_capacity(layout([*WIDEST, "one_more"], 7))


def test_the_last_header_column_may_stand_beyond_the_mask() -> None:
    masks.check_capacity(MaskLayout((*(None,) * 7, *WIDEST, None)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x216", 0x216),
        ("0X0a", 10),
        ("216", 0x216),
        ("0216", 0x216),
        ("", 0),
        (None, 0),
        ("0x", 0),
        ("0" * 999, 0),
    ],
)
def test_text_is_read_tolerantly(text: str | None, value: int) -> None:
    assert masks.parse_text(text) == value


@pytest.mark.promise("code error-bad_mask")
@pytest.mark.parametrize("text", ["0G", "1_0", "+1", " 1", "１", "0x0x1", "-1", "z" * 200])
def test_what_is_no_hex_digit_is_refused(text: str) -> None:
    with refused("bad_mask"):
        masks.parse_text(text)


@pytest.mark.parametrize(
    ("data", "byteorder", "columns", "extra"),
    [
        (b"\x16\x02", "little", "c02 c03 c05 c10", 0),
        (b"\x02\x16", "big", "c02 c03 c05 c10", 0),
        (b"\x16\x02", "auto", "c02 c03 c05 c10", 0),  # only little fits
        (b"\x02\x16", "auto", "c02 c03 c05 c10", 0),  # only big fits
        (b"\x01\x01", "auto", "c01 c09", 0),  # both fit: little
        (
            b"\xff\xff\xff",
            "auto",
            "c01 c02 c03 c04 c05 c06 c07 c08 c09 c10",
            14,
        ),  # neither fits: little
        (b"\x00\x04", "little", "", 1),
        (None, "little", "", 0),
        (b"", "auto", "", 0),
    ],
)
def test_binary_is_read_in_both_orders(
    data: bytes | None, byteorder: masks.ByteOrder, columns: str, extra: int
) -> None:
    assert masks.read_bytes(layout(TEN), data, byteorder) == (frozenset(columns.split()), extra)


def test_bits_of_headers_are_ignored() -> None:
    own = MaskLayout((None, "a", None, "b", None))
    assert masks.read_bytes(own, b"\x1f") == (frozenset("ab"), 0)
    assert masks.read_bytes(own, b"\xff") == (frozenset("ab"), 3)


def test_a_column_that_is_not_in_the_list_is_refused() -> None:
    with pytest.raises(FormatError, match="'x'"):
        layout(["a"]).bits({"x"})
    with pytest.raises(FormatError, match="twice"):
        layout(["a", "a"])


def test_many_different_masks_are_not_kept() -> None:
    own = layout(WIDEST)
    for number in range(1000):
        columns = frozenset(WIDEST[place] for place in range(1017) if number >> (place % 10) & 1)
        assert own.decode(own.bits(columns)) == (columns, 0)
