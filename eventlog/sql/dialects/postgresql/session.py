"""What a new session is set to."""

from __future__ import annotations

from typing import Final

SESSION: Final = (
    # What a session can change in the text of values: pinned to what the triggers pin it to (spec/triggers.md 6).
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET IntervalStyle = 'postgres'",
    "SET extra_float_digits = 1",
    "SET bytea_output = 'hex'",
    "SET lc_monetary = 'C'",
    # Statements here are short, and compiling one takes longer than running it.
    "SET jit = off",
)
