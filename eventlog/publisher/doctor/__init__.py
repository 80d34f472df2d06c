"""What ``doctor`` says of the facts: findings in words, each with what mends it. No input and no output here.

Every ``judge_`` function takes facts and gives findings; ``collect`` gathers the facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that ``doctor`` has to say. ``code`` is stable and fit for programs, ``text`` is for people.

    ``error``: changes are lost, or nothing is published. ``warning``: something is to be mended. ``info``: it is as it
    was configured, but good to know. ``mend``: commands, SQL or lines of the configuration that mend it, in order.
    """

    code: str
    severity: Severity
    text: str
    mend: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is looked at, and from where on something is worth saying.

    ``sample``: newest rows of the log that are looked at. ``rows``: first rows N that are looked at for one
    reason. ``statement``: seconds that one statement may take. ``shown``: examples in one finding. Seconds: ``clock``
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
