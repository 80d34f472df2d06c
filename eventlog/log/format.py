"""The change format ``eventlog``: reader and writer (spec/change-model.md 2, 3.1, 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from eventlog.changes.format import Format, Report, counted, written
from eventlog.changes.images import refuse_without_row, refused_column, written_columns
from eventlog.changes.json_form import catalog_of, database_of
from eventlog.changes.keys import (
    class_of_change,
    existing_keys,
    key_text,
    keys_of,
    old_and_new_key,
    with_key,
)
from eventlog.changes.losses import Loss
from eventlog.core.catalog import Catalog, Database, ObjectClass
from eventlog.core.catalog.builder import build_catalog, complete_catalog
from eventlog.core.clock import utc_now
from eventlog.core.options import STYLES, GivenOptions, parse_options
from eventlog.core.values import ValueOptions, check_unicode
from eventlog.core.values.moments import time_zone_named
from eventlog.core.values.typed_values import is_multi_valued, to_text, values_of
from eventlog.errors import BadValue, ConfigError, NotExpressible, shown
from eventlog.files.text import spooled
from eventlog.log.reading import inferred_database, rows_to_changes
from eventlog.log.storage import (
    FILE_FORMATS,
    LogReaderOptions,
    LogWriterOptions,
    file_format_of,
    is_url,
    read_rows,
    write_rows,
)
from eventlog.model import (
    Change,
    ChangeOp,
    EventType,
    Key,
    LogRow,
    Row,
    Status,
    Value,
    changes_nothing,
)

if TYPE_CHECKING:
    from eventlog.log.live import LiveDatabase


def changes_of_sorted(
    rows: Iterable[LogRow], source: str, options: GivenOptions, report: Report
) -> Iterator[Change]:
    """Yield the changes of rows that were read from files. The rows are in the order of record_id.

    Raises FormatError, ConfigError, DatabaseError.
    """
    chosen = parse_options(LogReaderOptions, options, "the eventlog reader")
    with ExitStack() as stack:
        url = chosen.database_url
        database = None if url is None else stack.enter_context(_live(url, chosen.schema_name))
        tables = _tables(chosen, database)
        if tables is None:
            again = stack.enter_context(spooled(rows))
            rows, tables = again(), inferred_database(again(), chosen.schema)
        changes = _changes(rows, tables, (), database, chosen, report, source)
        yield from counted(changes, report, _changes)


def _live(url: str, schema: str | None) -> AbstractContextManager[LiveDatabase]:
    from eventlog.log.live import live  # a late import, since it imports SQLAlchemy

    return live(url, schema)


def _tables(options: LogReaderOptions, database: LiveDatabase | None) -> Database | None:
    """Return the tables of the option ``catalog``, or else of the database; None without either."""
    tables = database_of(options.catalog)
    return database.tables() if tables is None and database is not None else tables


def _changes(
    rows: Iterable[LogRow],
    tables: Database,
    ignored: Sequence[str],
    database: LiveDatabase | None,
    options: LogReaderOptions,
    report: Report,
    source: str,
) -> Iterator[Change]:
    catalog = complete_catalog(
        build_catalog(
            tables,
            tables=options.tables,
            values=ValueOptions(
                "full", options.time_zone, options.char_padding, options.special_times, "unicode"
            ),
            meta_identifiers=options.meta_identifiers,
            ignore=ignored,
        )
    )
    query_back = None if database is None else database.query_back
    return rows_to_changes(rows, catalog, options, query_back, report, source)


def _rows_of_files(source: str, options: LogReaderOptions, report: Report) -> Iterator[LogRow]:
    rows = read_rows(source, options, report.skip)
    return iter(sorted(rows, key=lambda row: row.record_id)) if options.sort else rows


class EventLogFormat(Format):
    """Rows of an event log, in files or a database (spec/event-log.md 2)."""

    name = "eventlog"
    title = "rows of an event log"
    schemes = None
    reader_options = (LogReaderOptions,)
    writer_options = (LogWriterOptions,)
    suffixes = frozenset({".jsonl", ".json", ".ndjson", ".csv", ".parquet"})
    loses = frozenset({
        Loss.NULLS, Loss.UNCHANGED, Loss.UNCHANGED_BEFORE, Loss.DELETED, Loss.REFRESH,
        Loss.KEY_CHANGE, Loss.TRANSACTION, Loss.POSITION,
    })  # fmt: skip

    def is_sorted_first(self, options: GivenOptions) -> bool:
        return bool(options.get("sort"))

    def output_place(self, name: str, options: GivenOptions) -> str:
        file_format = options.get("file_format") or FILE_FORMATS[0]
        if file_format not in FILE_FORMATS:
            raise ConfigError(
                f"file_format {file_format!r} is unknown: use one of {', '.join(FILE_FORMATS)}"
            )
        return f"{name}/rows.{file_format}"

    def read_changes(
        self, source: str, options: LogReaderOptions, report: Report
    ) -> Iterator[Change]:
        """Yield the changes of log rows in a file, in a directory of files, or in the live table of
        a database URL.
        """
        with ExitStack() as stack:
            url = source if is_url(source) else options.database_url
            database = None if url is None else stack.enter_context(_live(url, options.schema_name))
            if database is not None and is_url(source):
                log = database.log(options)
                rows, ignored = database.rows(log), log.own_tables
            else:
                rows, ignored = _rows_of_files(source, options, report), ()
            tables = _tables(options, database)
            if tables is None:
                tables = inferred_database(
                    _rows_of_files(source, options, Report()), options.schema
                )
            name = "the log" if is_url(source) else source  # the URL may contain a password
            yield from _changes(rows, tables, ignored, database, options, report, name)

    def write_changes(
        self, changes: Iterable[Change], target: str, options: LogWriterOptions, report: Report
    ) -> None:
        """Write changes as rows to a file, completely or not at all; or append the rows, in one
        transaction, to the live table of a database URL.
        """
        catalog = catalog_of(options.catalog)
        options = replace(
            options,
            schema=options.schema or (None if catalog is None else catalog.schema),
            existing_keys=keys_of(options.existing_keys, catalog),
        )
        holds_nul = True
        file_format = None if is_url(target) else file_format_of(target, options.file_format)
        now = utc_now()

        def rows_of(change: Change, _: str) -> list[LogRow]:
            nonlocal options
            if options.schema is None and change.schema is not None:
                options = replace(options, schema=change.schema)
            rows = change_to_rows(change, catalog, options, now)
            for row in rows:
                _check_text(row, holds_nul=holds_nul)
            return rows

        rows = written(changes, rows_of, report)
        if file_format is None:
            with _live(target, options.schema_name) as database:
                holds_nul = "nul_characters" in database.dialect.capabilities
                log = database.log(options)
                database.append(log, rows)
                database.connection.commit()
        else:
            numbered = (row._replace(record_id=number) for number, row in enumerate(rows, 1))
            write_rows(numbered, target, file_format)


FORMAT: Final = EventLogFormat()

# --- changes to rows, in the four styles ----------------------------------------------------------


def change_to_rows(
    change: Change, catalog: Catalog | None, options: LogWriterOptions, now: datetime
) -> list[LogRow]:
    """Return the rows that describe a change, no rows if the change has no effect
    (spec/change-model.md 4).

    The record_id of the rows is 0: the file writer or the database numbers the rows. A change that
    still has to be queried back keeps its types 5 to 8, whatever the style. If the schema of the
    log is known, changes of another schema are refused. ``options.existing_keys`` is a function of
    the table here. ``now`` has a zone, and is the event_time if the commit time is unknown. Raises
    NotExpressible, FormatError.
    """
    _refuse_other_schema(change, options.schema)
    object_class = class_of_change(catalog, change)
    moment = (change.commit_time or now).astimezone(time_zone_named(options.time_zone))
    event_time = to_text(moment.replace(tzinfo=None))
    writer = _RowWriter(
        change,
        object_class,
        event_time,
        *STYLES[options.row_styles.get(change.table, options.row_style)],
    )
    if change.op is ChangeOp.TRUNCATE:
        return [
            row
            for key in existing_keys(change, options.existing_keys)
            for row in writer.delete(key)
        ]
    if changes_nothing(change):
        return []
    to_query_back = change.after is None and change.extras.get("query_back")
    if not to_query_back:
        refuse_without_row(change)
    writer = writer._replace(change=with_key(change, object_class))
    old, new = old_and_new_key(writer.change)
    if change.op is ChangeOp.DELETE:
        return writer.delete(old)
    if to_query_back:
        return writer.query_back(new)
    after = change.after or {}
    if change.op is not ChangeOp.UPDATE or old != new:
        return [*(writer.delete(old) if old != new else ()), *writer.insert(new, after)]
    return writer.update(new, after, written_columns(writer.change))


def _refuse_other_schema(change: Change, schema: str | None) -> None:
    """Raise NotExpressible for a change whose schema is not the schema of the log."""
    if schema is not None and change.schema not in (None, schema):
        raise NotExpressible(
            f"{change.op} of {change.schema}.{change.table} at {change.position}: the log is for "
            f"schema {schema}; convert the tables of {change.schema} to a separate log"
        )


class _RowWriter(NamedTuple):
    """A writer of the rows of a change. The writer has the values that these rows share, and the
    event types of the style.
    """

    change: Change
    object_class: ObjectClass | None
    event_time: str
    insert_type: EventType
    update_type: EventType

    def delete(self, key: Key) -> list[LogRow]:
        return [self._row(EventType.DELETE_ROW, key)]

    def insert(self, key: Key, after: Row) -> list[LogRow]:
        """Return one row for each value that is not NULL. An object without values gets the row of
        spec/triggers.md 2.
        """
        kind = self.insert_type
        if kind == EventType.INSERT_ROW_QUERY_BACK:
            return [self._row(kind, key)]
        columns = [name for name in after if name not in dict(key)]
        if kind == EventType.INSERT_FIELD_QUERY_BACK:
            rows = [self._row(kind, key, name) for name in columns if after[name] not in (None, ())]
        else:
            rows = [
                self._row(kind, key, name, None, text)
                for name in columns
                for text in self._texts(name, after[name])
            ]
        if rows:
            return rows
        first = columns[0] if columns else self._first_column()
        return [self._row(EventType.INSERT_ROW_QUERY_BACK if first is None else kind, key, first)]

    def update(self, key: Key, after: Row, columns: list[str]) -> list[LogRow]:
        kind = self.update_type
        if kind == EventType.UPDATE_ROW_QUERY_BACK:
            many = [name for name in columns if is_multi_valued(after[name])]
            of_row = [self._row(kind, key)] if len(many) < len(columns) else []
            return of_row + [
                self._row(EventType.UPDATE_FIELD_QUERY_BACK, key, name) for name in many
            ]
        if kind == EventType.UPDATE_FIELD_QUERY_BACK:
            return [self._row(kind, key, name) for name in columns]
        return [row for name in columns for row in self._updated(kind, key, name, after[name])]

    def _updated(self, kind: int, key: Key, name: str, new: Value) -> list[LogRow]:
        """Return the rows of one column. If its old value is unknown, the first row has type 3."""
        before = self.change.before or {}
        is_known = name in before and name not in (self.change.extras.get("changed_unknown") or ())
        old_texts = self._texts(name, before.get(name)) if is_known else []
        new_texts = self._texts(name, new)
        if not is_multi_valued(new):
            kind = kind if is_known else EventType.UPDATE_FIELD_REMOVE_ALL
            return [
                self._row(kind, key, name, next(iter(old_texts), None), next(iter(new_texts), None))
            ]
        # A child table's column has one row for each value. Type 3, which removes the other values,
        # comes first only if they are unknown.
        first: list[LogRow] = []
        if not is_known:
            first = [
                self._row(
                    EventType.UPDATE_FIELD_REMOVE_ALL, key, name, None, next(iter(new_texts), None)
                )
            ]
            new_texts = new_texts[1:]
        return first + [
            self._row(EventType.UPDATE_FIELD, key, name, old, new)
            for old, new in zip_longest(old_texts, new_texts)
        ]

    def query_back(self, key: Key) -> list[LogRow]:
        """Return the rows of a change whose object was not read back: a row of type 5 or 6, or rows
        with the known values and rows of type 7 or 8.
        """
        extras = self.change.extras
        is_insert = self.change.op is not ChangeOp.UPDATE
        if extras["query_back"] == "row":
            kind = EventType.INSERT_ROW_QUERY_BACK if is_insert else EventType.UPDATE_ROW_QUERY_BACK
            return [self._row(kind, key)]
        known: Row = extras.get("known") or {}
        if is_insert:
            rows = [
                self._row(EventType.INSERT_FIELD, key, name, None, text)
                for name in known
                for text in self._texts(name, known[name])
            ]
        else:
            rows = [
                row
                for name in known
                for row in self._updated(EventType.UPDATE_FIELD, key, name, known[name])
            ]
        kind = EventType.INSERT_FIELD_QUERY_BACK if is_insert else EventType.UPDATE_FIELD_QUERY_BACK
        return rows + [self._row(kind, key, name) for name in extras.get("columns") or ()]

    def _texts(self, name: str, value: Value) -> list[str]:
        try:
            return [to_text(one) for one in values_of(value)]
        except BadValue as error:
            raise refused_column(self.change, name, error) from error

    def _first_column(self) -> str | None:
        """Return the first non-key column of the class; None if there is no such column, or if the
        class is unknown.
        """
        attributes = () if self.object_class is None else self.object_class.attributes
        return next(
            (one.name for one in attributes if not one.is_key and not one.multi_valued), None
        )

    def _row(
        self,
        kind: int,
        key: Key,
        column: str | None = None,
        old: str | None = None,
        new: str | None = None,
    ) -> LogRow:
        change = self.change
        text = key_text(change, key, self.object_class)
        return LogRow(
            0,
            Status.NEW,
            int(kind),
            self.event_time,
            change.user,
            change.table,
            text,
            column,
            old,
            new,
        )


def _check_text(row: LogRow, *, holds_nul: bool) -> None:
    """Raise NotExpressible for a row with text that no log can store.

    Half a surrogate pair has no UTF-8 form, and no reader of a log accepts it. U+0000 has no place
    in some databases (``holds_nul`` False).
    """
    for name, text in zip(LogRow._fields, row, strict=True):
        if not isinstance(text, str) or text.isprintable():
            continue
        what = None if holds_nul or "\0" not in text else "U+0000, which the database cannot store"
        try:
            check_unicode(text)
        except BadValue:
            what = "an unpaired surrogate, which UTF-8 cannot encode"
        if what is not None:
            raise NotExpressible(
                f"{name} of a row of {row.table_name!r} contains {what}: {shown(text)}"
            )
