"""change_seq, changeSequence: parse, check, write; the writer's state that never runs backwards (spec/qlik.md 3)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from eventlog.errors import shown
from eventlog.qlik.errors import BadSequence, SequenceExhausted

PREFIX_LENGTH: Final = 16
LENGTH: Final = 35
UNKNOWN_TIME: Final = "1970010100000000"
"""The prefix of a change whose commit time is not known."""

_LAST_NUMBER: Final = 10**19 - 1
_new: Final = tuple.__new__  # a NamedTuple from its fields, in less than half the time


class Sequence(NamedTuple):
    """A change sequence taken apart: ``time`` in UTC, aware, to the hundredth of a second; ``number`` of the task."""

    time: datetime
    number: int


def parse(text: str) -> Sequence:
    """The time and number of a change sequence. Raises BadSequence: not 35 ASCII digits, or no date and time."""
    if len(text) != LENGTH or not (text.isascii() and text.isdigit()):
        raise BadSequence(f"change sequence {shown(text)} is not {LENGTH} digits")
    try:
        time = datetime(
            int(text[:4]), int(text[4:6]), int(text[6:8]), int(text[8:10]), int(text[10:12]), int(text[12:14]),
            int(text[14:16]) * 10_000, UTC,
        )  # fmt: skip
    except ValueError:
        raise BadSequence(f"change sequence {shown(text)} does not begin with a date and time") from None
    return Sequence(time, int(text[16:]))


def check(text: str) -> str:
    """The text itself, if it is a change sequence. Raises BadSequence."""
    parse(text)
    return text


def is_sequence(text: str | None) -> bool:
    """Whether the text, such as a change's position, is a change sequence."""
    if text is None or len(text) != LENGTH:
        return False
    try:
        parse(text)
    except BadSequence:
        return False
    return True


def time_prefix(time: datetime | None) -> str:
    """``YYYYMMDDHHmmSShh`` of a moment (UTC where naive), hundredths truncated; None is the time not known."""
    if time is None:
        return UNKNOWN_TIME
    if time.tzinfo is not None and time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    hundredths = _TWO_DIGITS[time.microsecond // 10_000]
    return _to_second(time.toordinal(), time.hour, time.minute, time.second) + hundredths


@lru_cache(maxsize=256)  # changes come many a second
def _to_second(day: int, hour: int, minute: int, second: int) -> str:
    return f"{date.fromordinal(day).isoformat().replace('-', '')}{hour:02}{minute:02}{second:02}"


_TWO_DIGITS: Final = tuple(f"{number:02}" for number in range(100))


def last_sequence_of(moment: datetime) -> str:
    """The greatest change sequence of a moment (UTC where naive): the bound of ``as_of`` (spec/qlik.md 6)."""
    return time_prefix(moment) + "9" * (LENGTH - PREFIX_LENGTH)


class WriterState(NamedTuple):
    """What a writer has numbered so far: greatest time prefix and last number. Saved together with the output."""

    prefix: str = ""
    number: int = 0


def next_sequence(
    state: WriterState, commit_time: datetime | None, *, with_before: bool = False
) -> tuple[WriterState, str]:
    """The state afterwards and the sequence of one change that is written.

    ``with_before``: an update written with its before image, which takes two numbers and bears the second. The prefix
    is held where the clock goes back. Raises SequenceExhausted.
    """
    greatest, last = state
    prefix = time_prefix(commit_time)
    if prefix < greatest:
        prefix = greatest
    number = last + (2 if with_before else 1)
    if number > _LAST_NUMBER:
        raise SequenceExhausted(
            f"change number {number} has more than 19 digits; begin a new task with a state of its own"
        )
    return _new(WriterState, (prefix, number)), f"{prefix}{number:019}"


def raise_to(state: WriterState, sequence: str) -> WriterState:
    """The state not below a sequence that is kept as it is. Raises BadSequence."""
    stored = resume(sequence)
    return WriterState(max(state.prefix, stored.prefix), max(state.number, stored.number))


def resume(sequence: str | None) -> WriterState:
    """The state from the highest change sequence that is stored, where none was saved; None: nothing is stored.

    Raises BadSequence.
    """
    if sequence is None:
        return WriterState()
    check(sequence)
    return WriterState(sequence[:PREFIX_LENGTH], int(sequence[PREFIX_LENGTH:]))
