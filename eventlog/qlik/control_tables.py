"""The control tables beside change tables: attrep_cdc_partitions and attrep_ddl_history (spec/qlik.md 4).

attrep_cdc_partitions lists the partitions that have ended, which are cut by the time of change_seq.
attrep_ddl_history says which column list a mask was written with. Its DETAILS is a JSON document whose ``columns`` name
what a DDL statement did: by the column's old name an ``action`` ADD, DROP or ALTER, ``columnNewName`` of a renamed one,
``ordinal`` its place (Qlik help, "DDL history"). So the list before a statement is the list after it with the statement
undone, and the present list is where that begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from eventlog.core.moments import EPOCH
from eventlog.core.typed import whole_number
from eventlog.errors import FormatError, ValueRange, shown, with_location
from eventlog.files.text import parsed_json
from eventlog.qlik import sequence

# --- attrep_cdc_partitions --------------------------------------------------------------------------------------------


CONTROL_TABLE: Final = "attrep_cdc_partitions"
_FORM: Final = "%Y%m%dT%H%M%S"


class Partitioning(NamedTuple):
    """Boundaries are ``base + k * seconds``, in UTC, naive."""

    seconds: int = 3600
    base: datetime = EPOCH


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


CONTROL_COLUMNS: Final = tuple(name.upper() for name in ControlRow._fields)


def partition_at(time: datetime, partitioning: Partitioning) -> Partition:
    """The partition of a moment (naive: UTC). Raises ValueRange if it would reach beyond the calendar."""
    step = timedelta(seconds=partitioning.seconds)
    try:
        start = partitioning.base + (time.replace(tzinfo=None) - partitioning.base) // step * step
        return Partition(start, start + step)
    except OverflowError:
        raise ValueRange(f"the partition of {time} lies outside the years 0001 to 9999") from None


def partition_of(change_seq: str, partitioning: Partitioning) -> Partition:
    """The partition of a change: that of the time in its change_seq. Raises BadSequence, ValueRange."""
    time, _ = sequence.parse(change_seq)
    return partition_at(time, partitioning)


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


# --- attrep_ddl_history -----------------------------------------------------------------------------------------------


HISTORY_TABLE: Final = "attrep_ddl_history"


class DdlEntry(NamedTuple):
    """One row of attrep_ddl_history, as far as column lists need it; ``details`` is the JSON document."""

    change_seq: str
    table_owner: str | None
    table_name: str
    ddl_type: str
    details: Mapping[str, Any]


ColumnList: TypeAlias = tuple[str | None, ...]
"""The columns of a table in order by their present names; None = one that is no longer there."""

ColumnHistory: TypeAlias = tuple[Sequence[str], Sequence[ColumnList]]
"""The change_seq of each entry, and the column lists of the table: the first before all entries, one behind each."""


def entry_of(row: Mapping[str, Any]) -> DdlEntry:
    """An entry from a row by column names, in any letter case. Raises FormatError."""
    fields = {name.upper(): value for name, value in row.items()}
    details = fields.get("DETAILS")
    what = f"DETAILS in {HISTORY_TABLE} of {shown(str(fields.get('TABLE_NAME')))}"
    try:
        document = parsed_json(details) if isinstance(details, str | bytes) and details else details or {}
    except FormatError as error:
        raise with_location(error, what) from None
    if not isinstance(document, Mapping):
        raise FormatError(f"{what} is no JSON object")
    try:
        return DdlEntry(
            sequence.check(str(fields["CHANGE_SEQ"])),
            fields.get("TABLE_OWNER"),
            fields["TABLE_NAME"],
            str(fields.get("DDL_TYPE") or ""),
            document,
        )
    except KeyError as missing:
        raise FormatError(f"a row of {HISTORY_TABLE} lacks the column {missing}") from None


def column_history(present: Sequence[str], entries: Iterable[DdlEntry]) -> ColumnHistory:
    """The lists of one table from its present columns and its entries. Raises FormatError."""
    ordered = sorted(entries, key=lambda entry: entry.change_seq)
    names: list[tuple[str, str | None]] = [(name, name) for name in present]  # name at the time, present name
    lists = [tuple(now for _, now in names)]
    for entry in reversed(ordered):
        names = _undone(names, entry)
        lists.append(tuple(now for _, now in names))
    return [entry.change_seq for entry in ordered], lists[::-1]


def _undone(names: list[tuple[str, str | None]], entry: DdlEntry) -> list[tuple[str, str | None]]:
    columns = entry.details.get("columns") or {}
    if not isinstance(columns, Mapping) or not all(isinstance(column, Mapping) for column in columns.values()):
        raise FormatError(f"DETAILS of {entry.table_name!r} at {entry.change_seq} has no object of columns")
    for column in columns.values():
        ordinal, new_name = column.get("ordinal") or 0, column.get("columnNewName") or ""
        if not isinstance(new_name, str) or whole_number(ordinal, 9) is None:
            raise FormatError(
                f"DETAILS of {entry.table_name!r} at {entry.change_seq} has a column whose columnNewName is no text or "
                f"whose ordinal is no number: {shown(str(dict(column)))}"
            )
    added = {name for name, column in columns.items() if _action(column) == "ADD"}
    renamed = {column["columnNewName"]: name for name, column in columns.items() if column.get("columnNewName")}
    result = [(renamed.get(name, name), now) for name, now in names if name not in added]
    dropped = [(int(column.get("ordinal") or 0), name) for name, column in columns.items() if _action(column) == "DROP"]
    for ordinal, name in sorted(dropped):
        place = ordinal - 1 if ordinal > 0 else len(result)
        result.insert(place, (name, None))
    return result


def _action(column: Mapping[str, Any]) -> str:
    return str(column.get("action") or "").upper()
