"""Lines from outside: numbered, bounded, UTF-8."""

from __future__ import annotations

from io import BytesIO

import pytest

from eventlog.errors import FormatError
from eventlog.files.text import numbered_lines, text_of


def test_lines_have_the_numbers_of_an_editor_and_blank_ones_are_left_out() -> None:
    assert list(numbered_lines(BytesIO(b"a\n\n \r\nb"), "in")) == [(1, b"a\n"), (4, b"b")]


def test_no_more_than_the_longest_line_is_held() -> None:
    file = BytesIO(b"abc\n" + b"x" * 1000)
    found = numbered_lines(file, "in.jsonl", longest=4)
    assert next(found) == (1, b"abc\n")
    with pytest.raises(FormatError, match=r"in.jsonl, line 2: longer than 4 bytes"):
        next(found)
    assert file.tell() == 9


@pytest.mark.parametrize(
    ("line", "text"), [(b"\xef\xbb\xbf{}", "{}"), ("ж".encode(), "ж"), (b"\xed\xa0\x80", "\ud800")]
)
def test_text_is_utf_8_with_surrogates_and_without_a_byte_order_mark(
    line: bytes, text: str
) -> None:
    assert text_of(line) == text


@pytest.mark.parametrize("line", [b"\xff", b"a\xc3(", b"{}\x80"])
def test_bytes_that_are_no_text_are_named(line: bytes) -> None:
    with pytest.raises(FormatError, match=r"not UTF-8: byte [0-9A-F]{2} at [0-9]"):
        text_of(line)
