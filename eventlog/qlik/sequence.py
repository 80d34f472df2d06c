"""The position of a change: its change sequence, its partition, and its number in a transaction
(formats/qlik.md 3, 4, 5.7, 7).

A writer's state never runs backwards. A delivery of a publisher must have the same sequences when
it is sent again, so it records its first sequence (spec/event-log.md 10). The time in the first
sequence is the time of the delivery, or of an earlier delivery if the clock goes back. The number
in it follows from the number of the delivery, which never goes back, even across restarts.

Every row and every message needs a sequence. So tuples are made by ``tuple.__new__``, from their
fields by position, and numbers are padded by ``zfill``, in half the time of an f-string.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from eventlog.core.values.moments import EPOCH
from eventlog.errors import FormatError, NotExpressible, shown
from eventlog.model import Change, ChangeOp

PREFIX_LENGTH: Final = 16
LENGTH: Final = 35
_DIGITS: Final = LENGTH - PREFIX_LENGTH
UNKNOWN_TIME: Final = "1970010100000000"
"""The prefix of the sequence of a change whose commit time is unknown."""

_LAST_NUMBER: Final = 10**19 - 1
_JUMP: Final = 10**12
"""The step by which a new epoch raises the change number: as many numbers as 100 deliveries have.
"""
_new: Final = tuple.__new__


def parse(text: str) -> tuple[datetime, int]:
    """Return the time and the number of a change sequence. The time is aware, in UTC, to the
    hundredth of a second.

    Raises FormatError if the text is not 35 ASCII digits or has no date and time.
    """
    if len(text) != LENGTH or not (text.isascii() and text.isdigit()):
        raise FormatError(
            f"change sequence {shown(text)} is not {LENGTH} digits", code="bad_sequence"
        )
    try:
        time = datetime(
            int(text[:4]), int(text[4:6]), int(text[6:8]), int(text[8:10]), int(text[10:12]),
            int(text[12:14]), int(text[14:16]) * 10_000, UTC,
        )  # fmt: skip
    except ValueError:
        raise FormatError(
            f"change sequence {shown(text)} does not begin with a date and time",
            code="bad_sequence",
        ) from None
    return time, int(text[PREFIX_LENGTH:])


def check(text: str) -> str:
    """Return the text itself if it is a change sequence. Raises FormatError."""
    parse(text)
    return text


def is_sequence(text: str | None) -> bool:
    """Return True if the text, such as a change's position, is a change sequence."""
    if text is None or len(text) != LENGTH:
        return False
    try:
        parse(text)
    except FormatError:
        return False
    return True


def time_prefix(time: datetime | None) -> str:
    """Return the prefix ``YYYYMMDDHHmmSShh`` of a moment, which is in UTC if it is naive. Digits
    beyond hundredths are cut off. None is the unknown time.
    """
    if time is None:
        return UNKNOWN_TIME
    if time.tzinfo is not None and time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    hundredths = _TWO_DIGITS[time.microsecond // 10_000]
    return _to_second(time.toordinal(), time.hour, time.minute, time.second) + hundredths


@lru_cache(maxsize=256)  # many changes share a second
def _to_second(day: int, hour: int, minute: int, second: int) -> str:
    return f"{date.fromordinal(day).isoformat().replace('-', '')}{hour:02}{minute:02}{second:02}"


_NO_DIGITS: Final = str.maketrans("", "", "-:T.")


def timestamp_prefix(timestamp: str) -> str:
    """Return the prefix of a change whose header ``timestamp`` is this text,
    ``YYYY-MM-DDTHH:MM:SS.mmm``.
    """
    return timestamp[:22].translate(_NO_DIGITS)


_TWO_DIGITS: Final = tuple(f"{number:02}" for number in range(100))


def last_sequence_of(moment: datetime) -> str:
    """Return the greatest change sequence of a moment, which is in UTC if it is naive. This
    sequence is the bound for ``as_of`` (formats/qlik.md 6).
    """
    return time_prefix(moment) + "9" * (LENGTH - PREFIX_LENGTH)


class WriterState(NamedTuple):
    """The numbering of a writer so far: its greatest time prefix, and its last number.

    The state is saved together with the output.
    """

    prefix: str = ""
    number: int = 0


def next_sequence(
    state: WriterState, prefix: str, *, with_before: bool = False
) -> tuple[WriterState, str]:
    """Return the state after one written change, and the sequence of this change.

    ``prefix`` is the prefix of the change's time; if the clock goes back, the prefix in ``state``
    is used. With ``with_before``, the change is an update with its before image, which uses two
    numbers and has the second number. Raises FormatError.
    """
    greatest, last = state
    if prefix < greatest:
        prefix = greatest
    number = last + (2 if with_before else 1)
    if number > _LAST_NUMBER:
        raise FormatError(
            f"change number {number} has more than 19 digits; begin a new task with its own state",
            code="sequence_exhausted",
        )
    return _new(WriterState, (prefix, number)), prefix + str(number).zfill(_DIGITS)


def raise_to(state: WriterState, sequence: str) -> WriterState:
    """Return the state, raised to at least the sequence that a change already has. Raises
    FormatError.
    """
    stored = resume(sequence)
    return WriterState(max(state.prefix, stored.prefix), max(state.number, stored.number))


def raised_to(state: WriterState, raised: datetime | None) -> WriterState:
    """Return the state, raised to at least the moment at which the epoch of a log was made. None =
    the log has no epoch.

    If the state is raised, its number is raised by 10^12, too.
    """
    prefix = "" if raised is None else time_prefix(raised)
    return WriterState(prefix, state.number + _JUMP) if state.prefix < prefix else state


def resume(sequence: str | None) -> WriterState:
    """Return the state that the highest stored change sequence shows, for a writer without a saved
    state. None = no sequence is stored.

    Raises FormatError.
    """
    if sequence is None:
        return WriterState()
    check(sequence)
    return WriterState(sequence[:PREFIX_LENGTH], int(sequence[PREFIX_LENGTH:]))


# --- partitions -----------------------------------------------------------------------------------

CONTROL_TABLE: Final = "attrep_cdc_partitions"
"""The table of the partitions that have ended. The time in a change_seq decides its partition."""

_PARTITION_TIME: Final = "%Y%m%dT%H%M%S"


class ControlRow(NamedTuple):
    """A row of attrep_cdc_partitions: a partition of a table, which has ended. The fields are in
    the order of the columns.
    """

    server_name: str | None
    task_name: str | None
    partition_name: str
    partition_start_time: datetime
    partition_end_time: datetime
    table_owner: str | None
    table_name: str


CONTROL_COLUMNS: Final = tuple(name.upper() for name in ControlRow._fields)

Partition: TypeAlias = tuple[datetime, datetime]
"""The start and end of a partition: ``start <= t < end``, both naive and in UTC."""


def partition_at(time: datetime, seconds: int = 3600, base: datetime = EPOCH) -> Partition:
    """Return the partition of a moment, which is in UTC if it is naive. Partitions begin at ``base
    + k * seconds``; ``base`` is naive and in UTC.

    Raises NotExpressible if the partition would reach beyond the calendar.
    """
    step = timedelta(seconds=seconds)
    try:
        start = base + (time.replace(tzinfo=None) - base) // step * step
        return start, start + step
    except OverflowError:
        raise NotExpressible(
            f"the partition of {time} lies outside the years 0001 to 9999", code="value_range"
        ) from None


def partition_name(partition: Partition) -> str:
    """Return the name ``YYYYMMDDTHHMMSS_YYYYMMDDTHHMMSS`` of a partition."""
    return "_".join(
        time.isoformat(timespec="seconds").replace("-", "").replace(":", "") for time in partition
    )


def partition_of(change_seq: str, seconds: int = 3600, base: datetime = EPOCH) -> str:
    """Return the name of the partition to which the time in a change_seq belongs.

    Raises FormatError, NotExpressible.
    """
    time, _ = parse(change_seq)
    return partition_name(partition_at(time, seconds, base))


def parse_partition_name(name: str) -> Partition:
    """Return the bounds in a partition's name. Raises FormatError."""
    start, _, end = name.partition("_")
    try:
        partition = (
            datetime.strptime(start, _PARTITION_TIME),
            datetime.strptime(end, _PARTITION_TIME),
        )
    except ValueError:
        partition = None
    if partition is None or partition_name(partition) != name:
        raise FormatError(f"partition name {shown(name)} is not YYYYMMDDTHHMMSS_YYYYMMDDTHHMMSS")
    return partition


def has_ended(partition: Partition, state: WriterState) -> bool:
    """Return True if no more rows can be appended to a partition, since the state has reached its
    end.
    """
    _, end = partition
    return state.prefix >= time_prefix(end)


# --- sequences of a publisher's deliveries --------------------------------------------------------


_OF_A_DELIVERY: Final = 10**10
"""The number of change numbers that belong to one delivery: more than twice the number of its rows.
"""

_STEP: Final = 2
"""The number of change numbers that belong to one event. An update with its before image uses two
numbers and has the second; every event has room for this.
"""


def first_sequence(delivery_no: int, before: str, now: datetime) -> str:
    """Return the sequence of the first event of the delivery with this number.

    ``before`` is the first sequence of the previous delivery, empty if it is unknown. ``now`` is in
    UTC. Raises FormatError.
    """
    number = delivery_no * _OF_A_DELIVERY + _STEP
    if number + _OF_A_DELIVERY >= 10**_DIGITS:
        raise FormatError(
            f"no change numbers are left for delivery {delivery_no}; begin a new task with its own "
            "log",
            code="sequence_exhausted",
        )
    return f"{max(before[:PREFIX_LENGTH], time_prefix(now))}{number:019}"


def sequence_at(first: str, place: int) -> str:
    """Return the sequence of the event at a place of the delivery; places count from 1."""
    return sequences(first)(place)


def sequences(first: str) -> Callable[[int], str]:
    """Return a function from the place of an event to its sequence, for many events of one
    delivery.
    """
    prefix, before = first[:PREFIX_LENGTH], int(first[PREFIX_LENGTH:]) - _STEP
    return lambda place: prefix + str(before + _STEP * place).zfill(_DIGITS)


# --- transactions ---------------------------------------------------------------------------------


UNKNOWN_TRANSACTION: Final = "0" * 32

_HEX_DIGITS: Final = "0123456789abcdefABCDEF"


@lru_cache(maxsize=256)  # the changes of a transaction come together
def transaction_text(transaction_id: str | None) -> str:
    """Return a transaction id as 32 upper-case hex digits. Up to 32 hex digits are padded, other
    text is hashed, and None becomes 32 zeros (spec/change-model.md 4).
    """
    if transaction_id is None:
        return UNKNOWN_TRANSACTION
    if 0 < len(transaction_id) <= 32 and not transaction_id.strip(_HEX_DIGITS):
        return transaction_id.upper().zfill(32)
    from hashlib import sha256  # loads OpenSSL, which takes long, and few texts are hashed

    return sha256(transaction_id.encode()).hexdigest()[:32].upper()


def transaction_from_text(text: str | None) -> str | None:
    """Return the transaction id that a stored text means. Return None for NULL, empty text and
    zeros, which mean that the id is unknown.
    """
    if not text or not text.strip("0"):
        return None
    return text


class Waiting(NamedTuple):
    """A row that is not a change yet: a before image whose update may still follow. The fields are
    its change_seq and its transaction.
    """

    position: str
    transaction_id: str | None


def count_events(changes: Iterable[Change | Waiting], *, input_complete: bool) -> Iterator[Change]:
    """Yield the changes with event_number and last_in_transaction. The changes must come in
    change_seq order over all tables.

    Consecutive changes with the same transaction id are a transaction. TRUNCATE and changes without
    transaction id are not counted. If the input is not declared complete, more changes of its last
    transaction may follow, so the last counted change keeps its own last_in_transaction, usually
    None. A row that waits is not yielded, but ends the transaction before it if it belongs to
    another transaction. One counted change is held back at a time.
    """
    # The last counted change of the run, and the uncounted changes after it.
    pending: deque[Change] = deque()
    run: str | None = None
    number = 0
    for change in changes:
        if change.transaction_id != run:
            yield from _released(pending, last=True)
            run, number = change.transaction_id, 0
        if isinstance(change, Waiting):
            continue
        if run is None or change.op is ChangeOp.TRUNCATE:
            if pending:
                pending.append(change)
            else:
                yield change
            continue
        yield from _released(pending, last=False)
        number += 1
        pending.append(change._replace(event_number=number))
    yield from _released(pending, last=True if input_complete else None)


def _released(pending: deque[Change], *, last: bool | None) -> Iterator[Change]:
    if pending:
        counted = pending.popleft()
        yield counted if last is None else counted._replace(last_in_transaction=last)
        while pending:
            yield pending.popleft()
