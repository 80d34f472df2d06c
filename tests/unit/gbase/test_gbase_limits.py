"""Limits of the GBase format: one below, at and one above (formats/gbase-cdc.md 3)."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest

from eventlog.errors import FormatError, NotExpressible
from eventlog.gbase.layout import parse_type
from eventlog.gbase.packed import decimal_writer


def is_type(text: str) -> bool:
    with suppress(FormatError):
        parse_type(text, "a")
        return True
    return False


@pytest.mark.parametrize(
    ("text", "lowest", "highest"),
    [
        ("decimal({})", 1, 32),
        ("decimal({},1)", 1, 32),
        ("decimal(5,{})", 0, 5),
        ("interval hour({}) to minute", 1, 9),
        ("datetime second to fraction({})", 1, 5),
    ],
)
def test_a_type_has_numbers_up_to_its_limits(text: str, lowest: int, highest: int) -> None:
    numbers = [lowest - 1, lowest, highest, highest + 1]
    found = [is_type(text.format(number)) for number in numbers if number >= 0]
    assert found == [False, True, True, False][-len(found) :]


@pytest.mark.parametrize(
    ("text", "is_known"),
    [
        ("datetime hour to minute", True),
        ("datetime hour to hour", True),
        ("datetime minute to hour", False),
        ("interval year to month", True),
        ("interval month to month", True),
        ("interval month to day", False),
        ("interval day to day", True),
        ("interval day to hour", True),
    ],
)
def test_a_qualifier_goes_from_a_field_to_the_same_or_a_smaller_one(
    text: str, is_known: bool
) -> None:
    assert is_type(text) is is_known


@pytest.mark.parametrize(
    ("precision", "scale", "number", "fits"),
    [
        (5, 2, "999.99", True),
        (5, 2, "1000", False),
        (5, 2, "0.01", True),
        (5, 2, "0.001", False),
        (5, None, "12345", True),
        (5, None, "123456", False),
    ],
)
def test_a_decimal_has_as_many_digits_as_its_type(
    precision: int, scale: int | None, number: str, fits: bool
) -> None:
    if fits:
        assert decimal_writer(precision, scale)(Decimal(number))
    else:
        with pytest.raises(NotExpressible):
            decimal_writer(precision, scale)(Decimal(number))
