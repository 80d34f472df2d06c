"""Partitions of change tables by the time of change_seq, and the control table that lists them (spec/qlik.md 4)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from eventlog.errors import ConfigError, FormatError, ValueRange, shown
from eventlog.qlik import sequence

CONTROL_TABLE: Final = "attrep_cdc_partitions"
CONTROL_COLUMNS: Final = (
    "SERVER_NAME", "TASK_NAME", "PARTITION_NAME", "PARTITION_START_TIME", "PARTITION_END_TIME", "TABLE_OWNER",
    "TABLE_NAME",
)  # fmt: skip

_FORM: Final = "%Y%m%dT%H%M%S"


@dataclass(frozen=True, slots=True)
class Partitioning:
    """Boundaries are ``base + k * seconds``, in UTC, naive. Raises ConfigError."""

    seconds: int = 3600
    base: datetime = datetime(1970, 1, 1)

    def __post_init__(self) -> None:
        if isinstance(self.seconds, bool) or not isinstance(self.seconds, int) or self.seconds < 1:
            raise ConfigError(f"partition_seconds is a number of seconds from 1, not {self.seconds!r}")
        if self.base.tzinfo is not None or self.base.microsecond:
            raise ConfigError(f"partition_base {self.base} is to be whole seconds of UTC without a zone")


class Partition(NamedTuple):
    """One partition: ``start <= t < end``, both naive and in UTC."""

    start: datetime
    end: datetime

    @property
    def name(self) -> str:
        """``YYYYMMDDTHHMMSS_YYYYMMDDTHHMMSS``."""
        return f"{_text(self.start)}_{_text(self.end)}"


class ControlRow(NamedTuple):
    """A row of attrep_cdc_partitions, columns in its order: a partition of a table that has ended."""

    server_name: str | None
    task_name: str | None
    partition_name: str
    partition_start_time: datetime
    partition_end_time: datetime
    table_owner: str | None
    table_name: str


def partition_at(time: datetime, partitioning: Partitioning) -> Partition:
    """The partition of a moment (naive: UTC). Raises ValueRange where it would reach beyond the calendar."""
    step = timedelta(seconds=partitioning.seconds)
    try:
        start = partitioning.base + (time.replace(tzinfo=None) - partitioning.base) // step * step
        return Partition(start, start + step)
    except OverflowError:
        raise ValueRange(f"the partition of {time} lies outside the years 0001 to 9999") from None


def partition_of(change_seq: str, partitioning: Partitioning) -> Partition:
    """The partition of a change: that of the time in its change_seq. Raises BadSequence, ValueRange."""
    return partition_at(sequence.parse(change_seq).time, partitioning)


def parse_partition_name(name: str) -> Partition:
    """The bounds in a partition's name. Raises FormatError."""
    start, underscore, end = name.partition("_")
    try:
        bounds = Partition(datetime.strptime(start, _FORM), datetime.strptime(end, _FORM))
    except ValueError:
        bounds = None
    if bounds is None or not underscore or bounds.name != name:
        raise FormatError(f"partition name {shown(name)} is not YYYYMMDDTHHMMSS_YYYYMMDDTHHMMSS")
    return bounds


def has_ended(partition: Partition, state: sequence.WriterState) -> bool:
    """Whether a writer can put no more rows into a partition: its prefix has reached the end."""
    return state.prefix >= sequence.time_prefix(partition.end)


def _text(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("-", "").replace(":", "")
