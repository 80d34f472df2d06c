"""Rows of the event log -> changes: check, fold, precedence, query-back (spec/change-model.md 3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from eventlog.changes.format import Report
from eventlog.changes.from_rows import UNREAD, ReadGroup, group_reader, with_rows
from eventlog.core import table_key
from eventlog.core.catalog import Catalog, Column, Database, ForeignKey, Table
from eventlog.core.checks import FIELD_TYPES, CheckedRow, check_rows
from eventlog.core.events import CurrentRow, QueryBack, decide, ids_of
from eventlog.core.fold import AT_A_TIME, Group, RowFolder
from eventlog.core.values import ColumnType, Kind, check_xml
from eventlog.errors import BadTableKey, BadXmlChar, FormatError, RowError, with_location
from eventlog.log.options import LogReaderOptions
from eventlog.model import Change, LogRow, Status, queue_rows

_LETTERS: Final[frozenset[str]] = frozenset(Status)


def rows_to_changes(
    rows: Iterable[LogRow],
    catalog: Catalog,
    options: LogReaderOptions,
    query_back: QueryBack | None,
    report: Report,
    source: str,
) -> Iterator[Change]:
    """The changes of rows in ascending order of record_id, in the order of their groups' first rows (spec/event-log.md
    6, 8.3).

    ``query_back`` None = no connection: changes of types 5 to 8 come without their row. Bad rows are passed over.
    ``source``: whose rows they are, for messages.
    Raises FormatError for rows that are out of order.
    """
    schema = options.schema or catalog.schema
    read_group = group_reader(
        schema, options.time_zone, options.char_padding, lambda column: report.count(f"truncated {column}")
    )
    log_rows: dict[int, LogRow] = {}
    folder = RowFolder(options.fold_distance, options.fold_span)
    rows_of_status = _of_status(_ascending(rows, source, report), frozenset(options.status), report)
    while window := list(islice(rows_of_status, AT_A_TIME)):
        log_rows.update((row.record_id, row) for row in window)
        groups = folder.take(_checked(window, catalog, options.driver_user, report, source))
        yield from _changes(groups, log_rows, read_group, query_back, report, source)
        log_rows = {record_id: log_rows[record_id] for record_id in ids_of(folder.rows)}
    yield from _changes(folder.close(None), log_rows, read_group, query_back, report, source)


def _ascending(rows: Iterable[LogRow], source: str, report: Report) -> Iterator[LogRow]:
    last = 0
    for row in rows:
        if row.record_id <= last:
            if row.record_id == last:
                report.skip(FormatError(f"{source}: record_id {last} stands twice; the first row counts"))
                continue
            raise FormatError(
                f"{source}: record_id {row.record_id} stands behind record_id {last}: the rows are needed in ascending "
                "order of it; sort the file by it, or read with the option sort = true"
            )
        last = row.record_id
        yield row


def _of_status(rows: Iterable[LogRow], letters: frozenset[str], report: Report) -> Iterator[LogRow]:
    """Rows of the wanted statuses; CHAR padding is ignored (spec/event-log.md 2)."""
    for row in rows:
        status = row.status.rstrip(" ")
        if status in letters:
            yield row if status == row.status else row._replace(status=status)
        else:
            report.count("rows_not_taken" if status in _LETTERS else "rows_of_reserved_status")


def _checked(
    rows: Sequence[LogRow], catalog: Catalog, driver_user: str | None, report: Report, source: str
) -> list[CheckedRow]:
    checked = check_rows(queue_rows(rows), catalog, driver_user)
    for bad in checked.bad:
        report.skip(RowError(bad.code, f"{source}, record_id {bad.record_id}: {bad.message}"))
    if checked.loopback:
        report.count("rows_loopback", len(checked.loopback))
    for remark in checked.remarks:
        report.count(remark.counter)
    return checked.good


def _changes(
    groups: Sequence[Group],
    log_rows: Mapping[int, LogRow],
    read_group: ReadGroup,
    query_back: QueryBack | None,
    report: Report,
    source: str,
) -> Iterator[Change]:
    decided = decide(groups, (lambda *_: {}) if query_back is None else query_back)
    for group, decision, current in decided:
        row: CurrentRow | None = UNREAD
        if query_back is not None and decision is not None and decision.query_back is not None:
            row = current
        try:
            change = read_group(group, decision, row, log_rows)
        except FormatError as error:
            report.skip(with_location(error, source))
            continue
        if change is not None:
            yield with_rows(change, group, log_rows)
        else:
            report.count("groups_gone" if row is None else "groups_empty")


_TEXT = ColumnType(Kind.CHARACTER)


def inferred_database(rows: Iterable[LogRow], schema: str | None) -> Database:
    """Tables by table_name, key columns by the first table_key that can be read, columns by column_name.

    ``child.column`` is taken for the value of a child table, which is multi-valued (spec/xds.md 5).
    """
    keys: dict[str, tuple[str, ...]] = {}
    columns: dict[str, dict[str, str]] = {}
    for row in rows:
        name = row.table_name
        if not name or not _is_name(name):
            continue
        if name not in keys:
            try:
                key = tuple(part.name for part in table_key.parse(row.table_key))
            except BadTableKey:
                continue
            if not all(map(_is_name, key)):
                continue
            keys[name] = key
        if row.column_name and row.event_type in FIELD_TYPES and _is_name(row.column_name):
            columns.setdefault(name, {}).setdefault(row.column_name.casefold(), row.column_name)
    tables: list[Table] = []
    for name, key in keys.items():
        of_key = {column.casefold() for column in key}
        others = [column for folded, column in columns.get(name, {}).items() if folded not in of_key]
        of_children = [column for column in others if "." in column and column.partition(".")[0] not in keys]
        plain = [column for column in others if column not in of_children]
        tables.append(_table(name, (*key, *plain), key))
        tables += [_child(name, key, column) for column in of_children]
    return Database("", schema, tuple(tables))


def _is_name(text: str) -> bool:
    """Whether documents can carry it: a row with another name is bad by itself, and spoils no class."""
    try:
        check_xml(text)
    except BadXmlChar:
        return False
    return True


def _table(name: str, columns: Iterable[str], key: tuple[str, ...]) -> Table:
    return Table(name, "table", tuple(Column(column, _TEXT) for column in columns), key)


def _child(owner: str, key: tuple[str, ...], name: str) -> Table:
    table, _, column = name.partition(".")
    owner_columns = tuple(f"{owner}.{one}" for one in key)
    columns = tuple(Column(one, _TEXT) for one in (*owner_columns, column))
    return Table(table, "table", columns, (), (ForeignKey(owner_columns, owner, key),))
