"""What ``doctor`` finds wrong with a log and its database (spec/event-log.md 11).

``facts`` asks the database, by the statements of each dialect's ``doctor.sql``. ``log`` and ``capture`` judge the
answers: each ``judge_`` function makes findings of facts, without input or output. ``publisher.doctor`` holds the table
of checks, which joins the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that ``doctor`` has to say. ``code`` is stable and meant for programs, ``text`` is for people.

    ``mend``: commands, SQL or lines of the configuration that repair it, in order.
    """

    code: str
    severity: Severity
    text: str
    mend: tuple[str, ...] = ()


def error(code: str, text: str, *mend: str) -> Finding:
    """Changes are lost, or nothing is published."""
    return Finding(code, "error", text, mend)


def warning(code: str, text: str, *mend: str) -> Finding:
    """Something needs repair."""
    return Finding(code, "warning", text, mend)


def info(code: str, text: str, *mend: str) -> Finding:
    """It is as it was configured, but good to know."""
    return Finding(code, "info", text, mend)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much ``doctor`` looks at, and from which value on it says something.

    ``sample``: how many of the log's newest rows are looked at. ``rows``: how many of the first rows N each question
    looks at. ``statement``: seconds that one statement may take. ``shown``: examples in one finding. Seconds: ``clock``
    between database and machine, ``event_time`` ahead of the database, ``writing`` and ``reading`` of an open
    transaction, ``in_flight`` of an in-flight line while a publisher runs. ``dead``: dead rows of the log, if they are
    ``dead_share`` of the live ones too.
    """

    sample: int = 100_000
    rows: int = 10_000
    statement: int = 30
    shown: int = 5
    clock: float = 2.0
    event_time: float = 60.0
    writing: float = 60.0
    reading: float = 3600.0
    in_flight: float = 600.0
    dead: int = 100_000
    dead_share: float = 0.2


def age(seconds: float) -> str:
    """Seconds in the largest unit of which there are two: ``90.0 seconds``, ``2 hours``."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} seconds"
