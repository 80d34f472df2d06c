"""Which column list a mask was written with, from attrep_ddl_history (spec/qlik.md 4).

DETAILS is a JSON document whose ``columns`` name what a DDL statement did: by the column's old name an ``action`` ADD,
DROP or ALTER, ``columnNewName`` of a renamed one, ``ordinal`` its place (Qlik help, "DDL history"). So the list before
a statement is the list after it with the statement undone, and the present list is where that begins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventlog.errors import FormatError, shown, with_location
from eventlog.files.lines import parsed_json
from eventlog.qlik import sequence
from eventlog.qlik.message_values import whole_number

HISTORY_TABLE: Final = "attrep_ddl_history"


class DdlEntry(NamedTuple):
    """One row of attrep_ddl_history, as far as column lists need it; ``details`` is the JSON document."""

    change_seq: str
    table_owner: str | None
    table_name: str
    ddl_type: str
    details: Mapping[str, Any]


class ColumnHistory(NamedTuple):
    """The column lists of one table: ``lists[i]`` is in force from ``since[i-1]`` on, ``lists[0]`` before all entries.

    Columns bear their present names; one that is no longer there is None.
    """

    since: tuple[str, ...]
    lists: tuple[tuple[str | None, ...], ...]

    def in_force(self, change_seq: str) -> tuple[str | None, ...]:
        """The list after the last entry that is not above a row's change_seq."""
        return self.lists[bisect_right(self.since, change_seq)]


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
    return ColumnHistory(tuple(entry.change_seq for entry in ordered), tuple(reversed(lists)))


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
