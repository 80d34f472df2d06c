"""Change sequences of a publisher's flights, which have to bear the same ones when they are sent again.

A flight begins with a sequence that its in-flight line keeps (spec/event-log.md 10). The time is that of the flight,
held where the clock goes back; the number follows from the flight's own, which never goes back, not even over restarts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from eventlog.qlik.errors import SequenceExhausted
from eventlog.qlik.sequence import LENGTH, PREFIX_LENGTH, time_prefix

_OF_A_FLIGHT: Final = 10**10
"""Numbers that belong to one flight: more than twice its rows."""

_STEP: Final = 2
"""An update with its before image takes two numbers and bears the second; every event has room for one."""

_DIGITS: Final = LENGTH - PREFIX_LENGTH


def first_sequence(flight: int, before: str, now: datetime) -> str:
    """The sequence of a flight's first event.

    ``before``: that of the flight before, empty where none is known. ``now`` in UTC. Raises SequenceExhausted.
    """
    number = flight * _OF_A_FLIGHT + _STEP
    if number + _OF_A_FLIGHT >= 10**_DIGITS:
        raise SequenceExhausted(f"flight {flight} is beyond the change numbers; begin a new task with a log of its own")
    return f"{max(before[:PREFIX_LENGTH], time_prefix(now))}{number:0{_DIGITS}}"


def sequence_at(first: str, place: int) -> str:
    """The sequence of the event at a place of the flight, from 1."""
    return sequences(first)(place)


def sequences(first: str) -> Callable[[int], str]:
    """Place -> sequence, of many events of one flight."""
    prefix, before = first[:PREFIX_LENGTH], int(first[PREFIX_LENGTH:]) - _STEP
    return lambda place: f"{prefix}{before + _STEP * place:0{_DIGITS}}"
