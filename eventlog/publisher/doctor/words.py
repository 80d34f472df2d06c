"""Numbers, times and SQL literals as findings, and `eventlog status`, show them."""

from __future__ import annotations


def row_count(number: int) -> str:
    """``1 row``, ``1,234 rows``."""
    return "1 row" if number == 1 else f"{number:,} rows"


def age(seconds: float) -> str:
    """Seconds in the largest unit of which there are two: ``90.0 seconds``, ``2 hours``."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} seconds"


def literal(text: str) -> str:
    """A text as SQL writes it, for statements that are shown and not run."""
    return "'" + text.replace("'", "''") + "'"
