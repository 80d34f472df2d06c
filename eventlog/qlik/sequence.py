"""Where a change stands: its change sequence, its partition, its place in a transaction (spec/qlik.md 3, 4, 5.7, 7).

A writer's state never runs backwards. A publisher's flights have to bear the same sequences when they are sent again:
a flight begins with a sequence that its in-flight line keeps (spec/event-log.md 10), whose time is that of the flight,
held where the clock goes back, and whose number follows from the flight's own, which never goes back, not even over
restarts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from eventlog.core.moments import EPOCH
from eventlog.errors import FormatError, ValueRange, shown
from eventlog.model import Change, ChangeOp


class BadSequence(FormatError):
    """A change_seq that is not 35 digits beginning with a date and time (spec/qlik.md 3)."""

    code = "bad_sequence"
    cure = "Store the change sequence as text, unchanged."


class SequenceExhausted(FormatError):
    """The change number of a task has reached its 19 digits (spec/qlik.md 3)."""

    code = "sequence_exhausted"
    cure = "Begin a new task with a log or a state of its own."


PREFIX_LENGTH: Final = 16
LENGTH: Final = 35
_DIGITS: Final = LENGTH - PREFIX_LENGTH
UNKNOWN_TIME: Final = "1970010100000000"
"""The prefix of a change whose commit time is not known."""

_LAST_NUMBER: Final = 10**19 - 1
_JUMP: Final = 10**12
"""Numbers that a new epoch passes over: as many as 100 flights have."""
_new: Final = tuple.__new__  # a NamedTuple from its fields, in less than half the time


def parse(text: str) -> tuple[datetime, int]:
    """The time of a change sequence, aware and in UTC, to the hundredth of a second; and its number.

    Raises BadSequence: not 35 ASCII digits, or no date and time.
    """
    if len(text) != LENGTH or not (text.isascii() and text.isdigit()):
        raise BadSequence(f"change sequence {shown(text)} is not {LENGTH} digits")
    try:
        time = datetime(
            int(text[:4]), int(text[4:6]), int(text[6:8]), int(text[8:10]), int(text[10:12]), int(text[12:14]),
            int(text[14:16]) * 10_000, UTC,
        )  # fmt: skip
    except ValueError:
        raise BadSequence(f"change sequence {shown(text)} does not begin with a date and time") from None
    return time, int(text[PREFIX_LENGTH:])


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


_NO_DIGITS: Final = str.maketrans("", "", "-:T.")


def timestamp_prefix(timestamp: str) -> str:
    """Return the prefix of a change that has this header ``timestamp``, ``YYYY-MM-DDTHH:MM:SS.mmm``."""
    return timestamp[:22].translate(_NO_DIGITS)


_TWO_DIGITS: Final = tuple(f"{number:02}" for number in range(100))


def last_sequence_of(moment: datetime) -> str:
    """The greatest change sequence of a moment (UTC where naive): the bound of ``as_of`` (spec/qlik.md 6)."""
    return time_prefix(moment) + "9" * (LENGTH - PREFIX_LENGTH)


class WriterState(NamedTuple):
    """What a writer has numbered so far: greatest time prefix and last number. Saved together with the output."""

    prefix: str = ""
    number: int = 0


def next_sequence(state: WriterState, prefix: str, *, with_before: bool = False) -> tuple[WriterState, str]:
    """The state afterwards and the sequence of one change that is written.

    ``prefix``: that of its time, held where the clock goes back. ``with_before``: an update written with its before
    image, which takes two numbers and bears the second. Raises SequenceExhausted.
    """
    greatest, last = state
    if prefix < greatest:
        prefix = greatest
    number = last + (2 if with_before else 1)
    if number > _LAST_NUMBER:
        raise SequenceExhausted(
            f"change number {number} has more than 19 digits; begin a new task with a state of its own"
        )
    return _new(WriterState, (prefix, number)), prefix + str(number).zfill(_DIGITS)


def raise_to(state: WriterState, sequence: str) -> WriterState:
    """The state not below a sequence that is kept as it is. Raises BadSequence."""
    stored = resume(sequence)
    return WriterState(max(state.prefix, stored.prefix), max(state.number, stored.number))


def raised_to(state: WriterState, raised: datetime | None) -> WriterState:
    """The state not before the moment at which the epoch of a log was drawn, None = it has none.

    What was numbered before the raise lies 10^12 numbers behind.
    """
    prefix = "" if raised is None else time_prefix(raised)
    return WriterState(prefix, state.number + _JUMP) if state.prefix < prefix else state


def resume(sequence: str | None) -> WriterState:
    """The state from the highest change sequence that is stored, where none was saved; None: nothing is stored.

    Raises BadSequence.
    """
    if sequence is None:
        return WriterState()
    check(sequence)
    return WriterState(sequence[:PREFIX_LENGTH], int(sequence[PREFIX_LENGTH:]))


# --- partitions -------------------------------------------------------------------------------------------------------

CONTROL_TABLE: Final = "attrep_cdc_partitions"
"""The table of the partitions that have ended; they are cut by the time of change_seq."""

_PARTITION_TIME: Final = "%Y%m%dT%H%M%S"


class ControlRow(NamedTuple):
    """A row of attrep_cdc_partitions, columns in its order: a partition of a table that has ended."""

    server_name: str | None
    task_name: str | None
    partition_name: str
    partition_start_time: datetime
    partition_end_time: datetime
    table_owner: str | None
    table_name: str


CONTROL_COLUMNS: Final = tuple(name.upper() for name in ControlRow._fields)

Partition: TypeAlias = tuple[datetime, datetime]
"""Start and end of a partition: ``start <= t < end``, both naive and in UTC."""


def partition_at(time: datetime, seconds: int = 3600, base: datetime = EPOCH) -> Partition:
    """The partition of a moment (naive: UTC). Partitions begin at ``base + k * seconds``, ``base`` naive and in UTC.

    Raises ValueRange if it would reach beyond the calendar.
    """
    step = timedelta(seconds=seconds)
    try:
        start = base + (time.replace(tzinfo=None) - base) // step * step
        return start, start + step
    except OverflowError:
        raise ValueRange(f"the partition of {time} lies outside the years 0001 to 9999") from None


def partition_name(partition: Partition) -> str:
    """``YYYYMMDDTHHMMSS_YYYYMMDDTHHMMSS``."""
    return "_".join(time.isoformat(timespec="seconds").replace("-", "").replace(":", "") for time in partition)


def partition_of(change_seq: str, seconds: int = 3600, base: datetime = EPOCH) -> str:
    """The name of a change's partition: that of the time in its change_seq. Raises BadSequence, ValueRange."""
    time, _ = parse(change_seq)
    return partition_name(partition_at(time, seconds, base))


def parse_partition_name(name: str) -> Partition:
    """The bounds in a partition's name. Raises FormatError."""
    start, _, end = name.partition("_")
    try:
        partition = datetime.strptime(start, _PARTITION_TIME), datetime.strptime(end, _PARTITION_TIME)
    except ValueError:
        partition = None
    if partition is None or partition_name(partition) != name:
        raise FormatError(f"partition name {shown(name)} is not YYYYMMDDTHHMMSS_YYYYMMDDTHHMMSS")
    return partition


def has_ended(partition: Partition, state: WriterState) -> bool:
    """Whether a writer can put no more rows into a partition: its prefix has reached the end."""
    _, end = partition
    return state.prefix >= time_prefix(end)


# --- of a publisher's flights -----------------------------------------------------------------------------------------


_OF_A_FLIGHT: Final = 10**10
"""Numbers that belong to one flight: more than twice its rows."""

_STEP: Final = 2
"""An update with its before image takes two numbers and bears the second; every event has room for one."""


def first_sequence(flight: int, before: str, now: datetime) -> str:
    """The sequence of a flight's first event.

    ``before``: that of the flight before, empty where none is known. ``now`` in UTC. Raises SequenceExhausted.
    """
    number = flight * _OF_A_FLIGHT + _STEP
    if number + _OF_A_FLIGHT >= 10**_DIGITS:
        raise SequenceExhausted(f"flight {flight} is beyond the change numbers; begin a new task with a log of its own")
    return f"{max(before[:PREFIX_LENGTH], time_prefix(now))}{number:019}"


def sequence_at(first: str, place: int) -> str:
    """The sequence of the event at a place of the flight, from 1."""
    return sequences(first)(place)


def sequences(first: str) -> Callable[[int], str]:
    """Place -> sequence, of many events of one flight."""
    prefix, before = first[:PREFIX_LENGTH], int(first[PREFIX_LENGTH:]) - _STEP
    # In half the time of an f-string with a width.
    return lambda place: prefix + str(before + _STEP * place).zfill(_DIGITS)


# --- transactions -----------------------------------------------------------------------------------------------------


UNKNOWN_TRANSACTION: Final = "0" * 32

_HEX_DIGITS: Final = "0123456789abcdefABCDEF"


@lru_cache(maxsize=256)  # the changes of a transaction come together
def transaction_text(transaction_id: str | None) -> str:
    """32 upper-case hex digits: up to 32 hex digits are padded, other text is hashed, None is 32 zeros.

    (spec/change-model.md 4)
    """
    if transaction_id is None:
        return UNKNOWN_TRANSACTION
    if 0 < len(transaction_id) <= 32 and not transaction_id.strip(_HEX_DIGITS):
        return transaction_id.upper().zfill(32)
    from hashlib import sha256  # with OpenSSL: few texts are hashed, and it takes long to load

    return sha256(transaction_id.encode()).hexdigest()[:32].upper()


def transaction_from_text(text: str | None) -> str | None:
    """The id of a stored text: NULL, empty text and zeros, in which "not known" is written, are None."""
    if not text or not text.strip("0"):
        return None
    return text


class Waiting(NamedTuple):
    """A row that is no change yet, a before image whose update may come: its change_seq and its transaction."""

    position: str
    transaction_id: str | None


def count_events(changes: Iterable[Change | Waiting], *, input_complete: bool) -> Iterator[Change]:
    """The changes, in change_seq order over all tables, with event_number and last_in_transaction.

    Consecutive changes of one transaction id are a transaction; TRUNCATE is not counted, and neither is a change
    without transaction id. Where the input is not declared complete, the last counted change of a transaction that
    reaches its end keeps its own last_in_transaction, None as a rule, since more may come. A row that waits is not
    given, but ends another transaction before it. One change is held back at a time.
    """
    held: deque[Change] = deque()  # the last counted change of the run, and what follows it uncounted
    run: str | None = None
    number = 0
    for change in changes:
        if change.transaction_id != run:
            yield from _released(held, last=True)
            run, number = change.transaction_id, 0
        if isinstance(change, Waiting):
            continue
        if run is None or change.op is ChangeOp.TRUNCATE:
            if held:
                held.append(change)
            else:
                yield change
            continue
        yield from _released(held, last=False)
        number += 1
        held.append(change._replace(event_number=number))
    yield from _released(held, last=True if input_complete else None)


def _released(held: deque[Change], *, last: bool | None) -> Iterator[Change]:
    if held:
        counted = held.popleft()
        yield counted if last is None else counted._replace(last_in_transaction=last)
        while held:
            yield held.popleft()
