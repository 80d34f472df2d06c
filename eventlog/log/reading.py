"""Read rows of the event log as changes: check, fold, precedence, query-back (spec/change-model.md
3.1).

The publisher makes its events without this module: a modify contains every step of a repeated
column, while a Change contains only the net effect (``changes.net_effect``).

Reading is a hot path: rows and changes are tuples unpacked by position, a Change is made by
``tuple.__new__`` without its checks, and everything that follows from a class or an attribute is
looked up once (``lru_cache``). In return each unpacking repeats the order of the fields, and ``for
a, b in (row,)`` replaces an assignment inside a comprehension.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

from eventlog.changes.format import Report
from eventlog.changes.images import Count
from eventlog.changes.keys import key_reader
from eventlog.changes.net_effect import net_of_rows
from eventlog.core import table_key
from eventlog.core.catalog import Attribute, Catalog, Column, Database, ForeignKey, Table
from eventlog.core.rows.checks import (
    DELETE_ROW,
    FIELD_TYPES,
    INSERT_FIELD,
    INSERT_FIELD_QUERY_BACK,
    INSERT_ROW_QUERY_BACK,
    UPDATE_FIELD,
    UPDATE_ROW_QUERY_BACK,
    CheckedRow,
    Texts,
    check_rows,
)
from eventlog.core.rows.events import (
    READS,
    READS_ROW,
    REFRESHED,
    CurrentRow,
    Decision,
    FailedCondition,
    QueryBack,
    decide,
    exists_for_reader,
    has_whole_row,
    ids_of,
    in_words,
    is_removed,
    may_be_absent,
)
from eventlog.core.rows.fold import AT_A_TIME, Group, RowFolder
from eventlog.core.rows.transaction_ids import digits_of
from eventlog.core.values import ColumnType, Kind, is_unicode
from eventlog.core.values.typed_values import ReadValue, moment_reader, value_reader
from eventlog.errors import BadTableKey, BadValue, FormatError, RowError, with_location
from eventlog.log.storage import LogReaderOptions
from eventlog.model import (
    ALL,
    NO_EXTRAS,
    All,
    Change,
    ChangeOp,
    Key,
    LogRow,
    Names,
    RowDict,
    Status,
    Value,
    full_name,
    queue_rows,
    unpadded,
)

_STATUSES: Final[frozenset[str]] = frozenset(Status)


def rows_to_changes(
    rows: Iterable[LogRow],
    catalog: Catalog,
    options: LogReaderOptions,
    query_back: QueryBack | None,
    report: Report,
    source: str,
) -> Iterator[Change]:
    """Yield the changes of rows, in the order of the first rows of the groups (spec/event-log.md 6,
    8.3). The rows are in ascending order of record_id.

    Without a connection (``query_back`` None) changes of types 5 to 8 have no row. Invalid rows
    are reported and skipped. ``source`` names the origin of the rows in messages. Raises
    FormatError for rows that are out of order.
    """
    schema = options.schema or catalog.schema
    read_group = group_reader(
        schema,
        options.time_zone,
        options.char_padding,
        lambda column: report.count(f"truncated {column}"),
    )
    log_rows: dict[int, LogRow] = {}
    folder = RowFolder(options.fold_distance, options.fold_span)
    rows_of_status = _with_status(
        _ascending(rows, source, report), frozenset(options.status), report
    )
    while window := list(islice(rows_of_status, AT_A_TIME)):
        log_rows.update((row.record_id, row) for row in window)
        groups = folder.add(_checked(window, catalog, options.driver_user, report, source))
        yield from _changes(groups, log_rows, read_group, query_back, report, source)
        log_rows = {record_id: log_rows[record_id] for record_id in ids_of(folder.rows)}
    yield from _changes(folder.close(None), log_rows, read_group, query_back, report, source)


def _ascending(rows: Iterable[LogRow], source: str, report: Report) -> Iterator[LogRow]:
    last = 0
    for row in rows:
        if row.record_id <= last:
            if row.record_id == last:
                report.skip(
                    FormatError(f"{source}: record_id {last} is repeated; the first row counts")
                )
                continue
            raise FormatError(
                f"{source}: record_id {row.record_id} comes after record_id {last}. Rows must be "
                "in ascending record_id order: sort the file, or set sort = true"
            )
        last = row.record_id
        yield row


def _with_status(
    rows: Iterable[LogRow], statuses: frozenset[str], report: Report
) -> Iterator[LogRow]:
    """Yield the rows of the wanted statuses; CHAR padding is ignored (spec/event-log.md 2)."""
    for row in rows:
        status = unpadded(row.status)
        if status in statuses:
            yield row if status == row.status else row._replace(status=status)
        else:
            report.count("rows_not_taken" if status in _STATUSES else "rows_of_reserved_status")


def _checked(
    rows: Sequence[LogRow], catalog: Catalog, driver_user: str | None, report: Report, source: str
) -> list[CheckedRow]:
    checked = check_rows(queue_rows(rows), catalog, driver_user)
    for row in checked.invalid:
        report.skip(RowError(row.code, f"{source}, record_id {row.record_id}: {row.message}"))
    if checked.loopback:
        report.count("rows_loopback", len(checked.loopback))
    for remark in checked.remarks:
        report.count(remark.counter)
    return checked.valid


def _changes(
    groups: Sequence[Group],
    log_rows: _LogRows,
    read_group: _ReadGroup,
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


# --- from a group of rows to a change
# ----------------------------------------------------------------

# Names of the module, since looking up an enumeration's members is slow.
_INSERT, _UPDATE, _DELETE = ChangeOp.INSERT, ChangeOp.UPDATE, ChangeOp.DELETE
_REFRESH: Final = ChangeOp.REFRESH
_INSERTS: Final = frozenset((INSERT_FIELD, INSERT_ROW_QUERY_BACK, INSERT_FIELD_QUERY_BACK))
_MAX_ATTRIBUTES: Final = 4096
_new: Final = tuple.__new__  # makes a NamedTuple from its fields in less than half the time

UNREAD: Final[CurrentRow] = {}
"""The current row of an object that was not looked up, since there is no connection."""

_WITH_FRACTION: Final = frozenset((Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ))
_BEYOND_MICROSECONDS = re.compile(r"\.[0-9]{6}0*[1-9]")

_LogRows: TypeAlias = Mapping[int, LogRow]
_ReadGroup: TypeAlias = Callable[
    [Group, Decision | None, CurrentRow | None, _LogRows], Change | None
]
"""A function that returns the change of a group. Its arguments: the group, the decision of
precedence on the group, the current row of its object (None = deleted), and its log rows by
record_id.
"""


def group_reader(
    schema: str | None = None,
    time_zone: str = "UTC",
    char_padding: str = "trim",
    truncated: Count | None = None,
    epoch: str = "",
) -> _ReadGroup:
    """Return the function that makes the changes of groups; this function looks up once everything
    that depends only on the class.

    ``schema`` is the schema of the log. ``time_zone`` applies to times without a zone,
    ``char_padding`` applies to the blanks of CHAR (spec/xds.md 6). ``truncated`` is called with
    each column (``schema.table.column``) that has a fraction of more than six digits; six digits
    are kept. ``epoch`` is the log's epoch (spec/event-log.md 1.5). Raises ConfigError.

    The function returns None if the object is gone and no row of the group is left, or if its rows
    change nothing. If precedence asks for a row, the current row is the row that was read back, as
    ``build_event`` takes it. The current row is ``UNREAD`` without a connection: then ``after`` is
    None, ``extras["columns"]`` names the columns to read, and ``extras["known"]`` holds the values
    of the log. Time and user come from the group's first row, the transaction comes from its last
    row. The function raises FormatError, which names the first row.
    """
    read_moment = moment_reader(time_zone)

    @lru_cache(maxsize=_MAX_ATTRIBUTES)
    def value_of(attribute: Attribute) -> ReadValue:
        read = value_reader(attribute.column.type, time_zone, char_padding)
        if truncated is None or attribute.column.type.kind not in _WITH_FRACTION:
            return read
        name = f"{full_name(schema, attribute.table)}.{attribute.column.name}"

        def read_and_count(text: str) -> Value:
            if _BEYOND_MICROSECONDS.search(text):
                truncated(name)
            return read(text)

        return read_and_count

    def read(
        group: Group,
        decision: Decision | None,
        current: CurrentRow | None,
        log_rows: _LogRows,
    ) -> Change | None:
        rows: Sequence[CheckedRow] = group
        query_back = None
        is_filtered = current is not UNREAD and may_be_absent(group)
        if is_filtered and (whole := _of_condition(group, current)) is not None:
            rows, query_back, current = whole
        elif is_filtered and not exists_for_reader(current):
            return None
        elif decision is not None:
            rows, _, query_back = decision
            if query_back is not None and current is None:
                rows = [
                    row
                    for row in rows
                    for _, event_type, _, _, _, _ in (row,)
                    if event_type not in READS
                ]
        if not rows:
            return None
        first, _, (object_class, key_text), _, _, _ = group[0]
        first_row = log_rows[first]
        last, *_ = group[-1]
        number = log_rows[last].transaction_id
        event_time = first_row.event_time
        try:
            key = key_reader(object_class)(key_text)
            images = _images(rows, key, query_back, current, log_rows, value_of)
            commit_time = None if event_time is None else read_moment(event_time)
        except BadValue as error:
            raise FormatError(
                f"the change of row {first}, {object_class.name!r} {key_text}: {error}"
            ) from error
        if images is None:
            return None
        op, before, after, changed, extras = images
        # The change is valid by construction, so its checks are skipped.
        return _new(
            Change,
            (schema, object_class.name, op, key, before, after, changed, str(first),
             None if number is None else digits_of(number, epoch), None, None, commit_time,
             first_row.perpetrator, extras),
        )  # fmt: skip

    return read


def _of_condition(
    group: Group, current: CurrentRow | None
) -> tuple[Sequence[CheckedRow], Sequence[Attribute] | None, CurrentRow | None] | None:
    """Return the row that replaces the rows of a group whose object may be absent for the reader,
    and what was read back for this object. The row has type 4 if the object exists, but not for the
    reader. If the object may have begun to exist for the reader, the row means the whole current
    row: its type is 5 if the group inserts the object, otherwise the type of a refresh
    (spec/event-log.md 15.2, 15.4). None = nothing replaces the rows of the group.

    Raises RowError if the condition fails.
    """
    record_id, event_type, object_id, _, _, _ = group[0]
    object_class, _ = object_id
    if isinstance(current, FailedCondition):
        raise RowError("bad_filter", in_words(object_class, current))
    if is_removed(object_class, current):
        return [(record_id, DELETE_ROW, object_id, None, None, None)], None, None
    if not has_whole_row(group) or not exists_for_reader(current):
        return None
    kind = INSERT_ROW_QUERY_BACK if event_type in _INSERTS else REFRESHED
    written = tuple(one for one in object_class.attributes if one.is_written)
    return [(record_id, kind, object_id, None, None, None)], written, current


_ValueOf: TypeAlias = Callable[[Attribute], ReadValue]
_Images: TypeAlias = tuple[
    ChangeOp, RowDict | None, RowDict | None, frozenset[str] | None, Mapping[str, Any]
]
"""The operation, the row before the change, the row after it, the changed columns, the extras."""


def _images(
    rows: Sequence[CheckedRow],
    key: Key,
    query_back: Sequence[Attribute] | None,
    current: CurrentRow | None,
    log_rows: _LogRows,
    value_of: _ValueOf,
) -> _Images | None:
    _, kind, _, _, _, _ = rows[0]
    if kind == DELETE_ROW:
        return _DELETE, dict(key), None, None, NO_EXTRAS
    op = _INSERT if kind in _INSERTS else _REFRESH if kind == REFRESHED else _UPDATE
    old, new = _logged(rows, log_rows, value_of)
    after: RowDict | None = {**dict(key), **new}
    changed = frozenset(new)
    extras = NO_EXTRAS
    if query_back is not None and current is not None:
        named = [attribute for _, _, _, attribute, _, _ in rows if attribute is not None]
        changed |= {one.name for one in named if not _is_no_content(one)}
        after, extras = _queried_back(kind, dict(key), new, query_back, current, value_of)
    if op is not _UPDATE or kind == UPDATE_ROW_QUERY_BACK:
        return op, None, after, None, extras
    if not changed:
        return None
    return op, {**dict(key), **old} if old else None, after, changed, extras


def _queried_back(
    kind: int,
    key: RowDict,
    new: RowDict,
    query_back: Sequence[Attribute],
    current: CurrentRow,
    value_of: _ValueOf,
) -> tuple[RowDict | None, Mapping[str, Any]]:
    """Return the new row of a change that has columns to query back, and the extras that list what
    to read. The row is None if it was not read yet (spec/change-model.md 3.1).
    """
    is_row = kind in READS_ROW or kind == REFRESHED
    extras = {"query_back": "row" if is_row else "field"}
    if current is not UNREAD:
        read_back = {
            attribute.name: _read_back(attribute, current, value_of) for attribute in query_back
        }
        return {**key, **read_back, **new}, extras
    if kind in READS_ROW:
        return None, extras
    if query_back:
        columns = [attribute.name for attribute in query_back]
        return None, {**extras, "columns": columns, "known": new}
    return {**key, **new}, extras


def _is_no_content(attribute: Attribute) -> bool:
    """Return True for a column whose rows are no content: a key column, or a column that is logged
    only for conditions.
    """
    return attribute.is_key or not attribute.is_written


def _logged(
    rows: Sequence[CheckedRow], log_rows: _LogRows, value_of: _ValueOf
) -> tuple[RowDict, RowDict]:
    """Return the old and new values of the columns whose values the rows hold; rows of key columns
    are ignored (spec/xds.md 4.2).
    """
    logged: dict[Attribute, list[CheckedRow]] = {}
    for record_id, event_type, object_id, attribute, goes, comes in rows:
        if attribute is None or _is_no_content(attribute) or event_type in READS:
            continue
        log_row = log_rows[record_id]
        old: Texts | Literal[All.ALL] = None
        if goes is ALL:  # type 3, or type 2 with an unreadable old value (spec/xds.md 4.3)
            old = ALL
        elif event_type == UPDATE_FIELD:
            old = log_row.old_value
        new: Texts = log_row.new_value
        if attribute.mask is not None:  # only the checked row is masked
            old, new = goes, comes
        row = (record_id, event_type, object_id, attribute, old, new)
        if attribute in logged:
            logged[attribute].append(row)
        else:
            logged[attribute] = [row]
    before: RowDict = {}
    after: RowDict = {}
    for attribute, several in logged.items():
        name = attribute.name
        is_known, gone, after[name] = net_of_rows(attribute, several, value_of(attribute))
        if is_known:
            before[name] = gone
    return before, after


def _read_back(attribute: Attribute, current: CurrentRow, value_of: _ValueOf) -> Value:
    """Return the value that was read back. If a single-valued column has several values, return the
    one whose text sorts first (spec/xds.md 4.3).
    """
    texts = sorted({text for text in current[attribute.name] if text is not None})
    read = value_of(attribute)
    if attribute.multi_valued:
        return tuple(dict.fromkeys(map(read, texts)))
    return read(texts[0]) if texts else None


def with_rows(change: Change, group: Group, log_rows: _LogRows) -> Change:
    """Return the change of a group with more ``extras``: the record_ids, types and statuses of the
    group's rows, and the number of the transaction if it is known.
    """
    rows: dict[str, Any] = {
        "record_ids": ids_of(group),
        "types": [event_type for _, event_type, _, _, _, _ in group],
        "status": [log_rows[record_id].status for record_id in ids_of(group)],
    }
    last, *_ = group[-1]
    if (number := log_rows[last].transaction_id) is not None:
        rows["txId"] = int(number)
    return change._replace(extras={**rows, **change.extras})


# --- the tables of a log, inferred from its rows --------------------------------------------------

_TEXT = ColumnType(Kind.CHARACTER)


def inferred_database(rows: Iterable[LogRow], schema: str | None) -> Database:
    """Return the tables that rows name in table_name. The key columns of a table come from its
    first readable table_key, the other columns come from column_name.

    ``child.column`` is read as the value of a child table, which is multi-valued (spec/xds.md 5).
    """
    keys: dict[str, Names] = {}
    columns: dict[str, dict[str, str]] = {}
    for row in rows:
        name = row.table_name
        # A row with a name that no class can have is an invalid row, and affects no class.
        if not name or not is_unicode(name):
            continue
        if name not in keys:
            key = _key_columns(row.table_key)
            if key is None:
                continue
            keys[name] = key
        if row.column_name and row.event_type in FIELD_TYPES and is_unicode(row.column_name):
            columns.setdefault(name, {}).setdefault(row.column_name.casefold(), row.column_name)
    tables = [
        table
        for name, key in keys.items()
        for table in _inferred_tables(name, key, columns.get(name, {}), keys.keys())
    ]
    return Database("", schema, tuple(tables))


def _key_columns(text: str | None) -> Names | None:
    """Return the names of the columns of a table_key, None if the table_key is not readable."""
    try:
        names = tuple(part.name for part in table_key.parse(text))
    except BadTableKey:
        return None
    return names if all(map(is_unicode, names)) else None


def _inferred_tables(
    name: str, key: Names, columns: Mapping[str, str], classes: Collection[str]
) -> Iterator[Table]:
    """Yield the table of a class and its child tables. ``columns`` are the names that its rows have
    in column_name, by the same names in casefold form.
    """
    of_key = {column.casefold() for column in key}
    others = [column for folded, column in columns.items() if folded not in of_key]
    of_children = [
        column for column in others if "." in column and column.partition(".")[0] not in classes
    ]
    plain = [column for column in others if column not in of_children]
    yield Table(name, "table", tuple(Column(column, _TEXT) for column in (*key, *plain)), key)
    for column in of_children:
        yield _child(name, key, column)


def _child(owner: str, key: Names, name: str) -> Table:
    table, _, column = name.partition(".")
    owner_columns = tuple(f"{owner}.{one}" for one in key)
    columns = tuple(Column(one, _TEXT) for one in (*owner_columns, column))
    return Table(table, "table", columns, (), (ForeignKey(owner_columns, owner, key),))
