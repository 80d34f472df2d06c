"""Numbers with huge exponents: a few bytes of which digits would fill gigabytes
(spec/change-model.md 5.1).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial

import pytest

from eventlog.changes.json_form import value_to_json
from eventlog.core.values.typed_values import to_text, whole_number
from eventlog.errors import EventlogError
from eventlog.gbase.layout import parse_type
from eventlog.gbase.values import codec
from eventlog.linter.codec import Typ
from eventlog.linter.dispatch_tables import ColumnAttrs, integer
from eventlog.linter.writer import column_value
from eventlog.model import Value
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.values import json_writer


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        (Decimal("7.0"), 7),
        (Decimal("1e19"), 10**19),
        (Decimal("0e999999999"), 0),
        (Decimal("7.5"), None),
        (Decimal("1e20"), None),
        (10**20, None),
        (Decimal("1e999999999"), None),
        (Decimal("NaN"), None),
        ("7", None),
    ],
)
def test_a_whole_number_has_twenty_digits_at_most(value: object, number: int | None) -> None:
    assert whole_number(value) == number


HUGE = Decimal("1e999999999")


@pytest.mark.parametrize(
    "write",
    [
        to_text,
        value_to_json,
        codec(parse_type("int8", "n")).write,
        partial(column_value, column=ColumnAttrs("n", 1, Typ.INTEGER, 0, 8), truncated=str),
        partial(column_value, column=ColumnAttrs("n", 1, Typ.VARCHAR, 0, 8), truncated=str),
        partial(integer, "LEN1"),
        json_writer(QlikColumn("n", "INT8")),
        json_writer(QlikColumn("n", "NUMERIC")),
    ],
)
def test_no_form_makes_digits_of_a_huge_exponent(write: Callable[[Value], object]) -> None:
    with pytest.raises(EventlogError):
        write(HUGE)
