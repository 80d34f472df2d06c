"""Single values in the JSON of Connect: numbers, texts, bytes and truth values
(formats/debezium.md 3).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import inf
from typing import Any, Final, TypeAlias

from eventlog.core.values import float_or_special
from eventlog.model import Lob, Value

Encode = Callable[[Value], Any]
"""A function from a value other than NULL to its JSON.

The function raises ValueError, ArithmeticError, RowError.
"""

Decode = Callable[[Any], Value]
"""A function from JSON other than null to its value.

The function raises ValueError, ArithmeticError, RowError.
"""
Decoders: TypeAlias = Mapping[str, Decode]
"""Functions from JSON to values, by the names of columns or of types."""


def no(what: str) -> ValueError:
    """Return the error of a value that is not ``what``."""
    return ValueError(f"no {what}")


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise no("truth value")
    return value


def integer(bits: int) -> Callable[[Any], int]:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def whole(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise no("whole number")
        if not least <= value <= most:
            raise ValueError(f"beyond {bits} bits")
        return value

    return whole


int32, int64 = integer(32), integer(64)
FLOATS: Final = {"NaN": float("nan"), "Infinity": inf, "-Infinity": -inf}


def number_of(value: Any) -> int | float | Decimal:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        raise no("number")
    return value


def float_json(value: Value) -> Any:
    """Return a float as JsonConverter writes it: a value that JSON has no number for becomes a word
    such as NaN.
    """
    return float_or_special(float(number_of(value)))


def float_of(value: Any) -> float:
    return FLOATS[value] if isinstance(value, str) and value in FLOATS else float(number_of(value))


def text_of(value: Any) -> str:
    if not isinstance(value, str):
        raise no("text")
    return value


def base64_of(value: Value) -> str:
    data = value.data if isinstance(value, Lob) else value
    if not isinstance(data, bytes):
        raise no("bytes")
    return b64encode(data).decode("ascii")


def bytes_of(value: Any) -> bytes:
    return b64decode(text_of(value), validate=True)
