"""Changes as rows of Qlik change tables, as far as they do not depend on the order of all changes (spec/qlik.md 1).

What the first and second stage do for ``qlik-change-table``: groups become the rows of their tables as Arrow columns.
``spark.output.tables`` is the third.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from eventlog.core.catalog import ObjectClass
from eventlog.core.checks import CheckedRow
from eventlog.core.events import READS, CurrentRow, Decided, Decision, QueryBack, ids_of
from eventlog.core.fold import object_of
from eventlog.core.typed import is_multi_valued
from eventlog.errors import FormatError, NotExpressible, RowError, ValueRange, shown
from eventlog.log.reading import group_reader
from eventlog.model import Change, ChangeOp, LogRow, Operation, full_name
from eventlog.publisher.formats.qlik_messages import class_columns
from eventlog.qlik.change_rows import TableLayout, mask_writer
from eventlog.qlik.change_table_options import WriteOptions
from eventlog.qlik.change_tables import TargetTable, images_of
from eventlog.qlik.columns import CLASSES, QlikColumn
from eventlog.qlik.file_tables import file_name
from eventlog.qlik.sequence import time_prefix
from eventlog.qlik.stored_tables import layout_of_new
from eventlog.qlik.stored_values import arrow_type, converter
from spark.job import BadLine, Columns, Job, Numbered, arrow_bytes, catalog
from spark.output.formats import RECEIVER, Render, Rendered

_OPERATIONS: Final = {
    ChangeOp.INSERT: Operation.ADD,
    ChangeOp.UPDATE: Operation.MODIFY,
    ChangeOp.DELETE: Operation.DELETE,
}


def by_class(blob: Columns) -> dict[str, bytes]:
    """By the name of a class, the rows of its change table as an Arrow stream with the columns of ``_schema``."""
    return dict(zip(blob["class"], blob["rows"], strict=True))


@dataclass(frozen=True, slots=True)
class Table:
    """The change table of a class. ``folder`` within the output; ``columns`` its data columns, of these Arrow types."""

    schema: str | None
    name: str
    folder: str
    target: TargetTable
    layout: TableLayout
    columns: Sequence[QlikColumn]
    types: Sequence[pa.DataType]


def tables(job: Job) -> dict[str, Table]:
    """The change tables of all classes by name. Raises MaskTooWide, FormatError for what no change table can hold."""
    classes = catalog(job)
    return {cls.name: _table(cls, classes.schema, options_of(job)) for cls in classes.classes}


def options_of(job: Job) -> WriteOptions:
    """The options of the job's change tables."""
    options: WriteOptions = job.output.options
    return options


def _table(cls: ObjectClass, schema: str | None, options: WriteOptions) -> Table:
    columns = class_columns(cls)
    is_text = options.file_format != "parquet"
    return Table(
        schema,
        cls.name,
        f"{file_name(schema, cls.name)}{options.suffix}",
        TargetTable(cls.name, columns, options),
        layout_of_new(schema, cls.name, columns, options),
        columns,
        [pa.string() if is_text or column.type == "TIME" else arrow_type(column) for column in columns],
    )


def _fixed_columns(options: WriteOptions) -> list[tuple[str, pa.DataType]]:
    """The columns that every row has beside its data."""
    mask = pa.binary() if options.file_format == "parquet" else pa.string()
    return [("place", pa.int64()), ("numbers", pa.int64()), ("prefix", pa.string()), ("letter", pa.string()),
            ("mask", mask), ("position", pa.string()), ("time", pa.timestamp("us", "UTC"))]  # fmt: skip


def _schema(table: Table, options: WriteOptions) -> pa.Schema:
    """The schema of rows; data columns are named by their places, so that no two share a name."""
    data = [(str(place), type) for place, type in enumerate(table.types)]
    return pa.schema([*_fixed_columns(options), *data])


# --- first and second stage -------------------------------------------------------------------------------------------


def renderer(job: Job) -> Render:
    """The function that makes rows of the changes of groups."""
    options = options_of(job)
    settings = job.config.format
    read = group_reader(catalog(job).schema, settings.time_zone, settings.char_padding)
    change_tables = tables(job)
    writers = {name: _row_writer(table, options) for name, table in change_tables.items()}
    schemas = {name: _schema(table, options) for name, table in change_tables.items()}
    values = {name: _ValueWriter(table, options) for name, table in change_tables.items()}

    def render(
        decided: Sequence[Decided], places: Sequence[int], log_rows: Mapping[int, LogRow], query_back: QueryBack
    ) -> Rendered:
        try:
            return attempt(decided, places, log_rows, is_careful=False)
        except _NotStorable:
            return attempt(decided, places, log_rows, is_careful=True)

    def attempt(
        decided: Sequence[Decided], places: Sequence[int], log_rows: Mapping[int, LogRow], *, is_careful: bool
    ) -> Rendered:
        done: list[_Done] = []
        bad: list[BadLine] = []
        dropped = 0
        stored_by_class: dict[str, list[_Stored]] = {}
        for (group, decision, current), place in zip(decided, places, strict=True):
            object_class, _ = object_of(group)
            name = object_class.name
            surviving = group if decision is None else decision.surviving
            try:
                change = read(group, decision, current, log_rows)
                stored = () if change is None else writers[name](change, place)
                if is_careful:
                    values[name].check(stored)
            except (FormatError, RowError) as error:
                bad += [(record_id, RECEIVER, str(error)) for record_id in ids_of(surviving)]
                dropped += 0 if decision is None else len(decision.dropped)
                continue
            if stored:
                rows = stored_by_class.get(name)
                if rows is None:
                    rows = stored_by_class[name] = []
                rows += stored
            done.append((surviving, decision, current, change.op if stored and change is not None else None))
        counts = _counts_of(done)
        if dropped:
            counts["rows_dropped"] += dropped
        if not stored_by_class:
            return Rendered(None, bad, counts)
        numbers, prefix = 0, ""
        blob: dict[str, list[Any]] = {"class": [], "rows": []}
        for name, rows in stored_by_class.items():
            columns = values[name].columns(rows)
            numbers += sum(columns[_NUMBERS])
            prefix = max(prefix, max(columns[_PREFIX]))
            blob["class"].append(name)
            schema = schemas[name]
            arrays = [pa.array(column, type) for column, type in zip(columns, schema.types, strict=True)]
            blob["rows"].append(arrow_bytes(pa.RecordBatch.from_arrays(arrays, schema=schema)))
        return Rendered(blob, bad, counts, Numbered(numbers, prefix, frozenset(stored_by_class)))

    return render


_Stored = tuple[Any, ...]
"""A row as the third stage gets it: the values of ``_fixed_columns``, then those of the data columns."""

_NUMBERS, _PREFIX = 1, 2
"""Which of the fixed columns they are."""

_Done = tuple[Sequence[CheckedRow], Decision | None, CurrentRow | None, ChangeOp | None]
"""Surviving rows, what precedence decided, the current row, and the operation of the change, None = nothing is written.
"""


def _row_writer(table: Table, options: WriteOptions) -> Callable[[Change, int], Sequence[_Stored]]:
    """The function that gives the rows of a change at a place. It raises NotExpressible."""
    names = table.layout.names
    mask_form: Literal["binary", "text"] = "binary" if options.file_format == "parquet" else "text"
    mask = mask_writer(table.layout.masks, mask_form, options.byteorder, options.empty_mask)
    target = table.target
    uncounted: Counter[str] = Counter()

    def write(change: Change, place: int) -> Sequence[_Stored]:
        images = images_of(change, target, uncounted)
        position, moment = change.position, change.commit_time
        prefix = time_prefix(moment)
        numbers = len(images)
        rows = []
        for oper, bits, data in images:
            rows.append((place, numbers, prefix, oper, mask(bits), position, moment, *map(data.get, names)))
            numbers = 0  # a before image and its update bear the second of two numbers
        return rows

    return write


class _NotStorable(Exception):
    """Some row has a value that its column cannot hold; which row is still to be found."""


class _ValueWriter:
    """The values of a table's data columns as its files hold them, column by column."""

    def __init__(self, table: Table, options: WriteOptions) -> None:
        self._table = table
        self._fixed = len(_fixed_columns(options))
        self._what = full_name(table.schema, table.name)
        self._columns = [
            (
                _kept_class(column, type) if options.file_format == "parquet" else None,
                converter("csv" if type == pa.string() else options.file_format, [column], self._what),
                type,
            )
            for column, type in zip(table.columns, table.types, strict=True)
        ]

    def columns(self, rows: Sequence[_Stored]) -> list[Any]:
        """The columns of rows; data columns are arrays. Raises _NotStorable."""
        every = list(zip(*rows, strict=True))
        try:
            data = [
                pa.array(self._converted(column, kept, convert), type)
                for column, (kept, convert, type) in zip(every[self._fixed :], self._columns, strict=True)
            ]
        except (FormatError, RowError, pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise _NotStorable from error
        return [*every[: self._fixed], *data]

    def _converted(
        self, values: Sequence[Any], kept: type | None, convert: Callable[[Sequence[Any]], list[Any]]
    ) -> Any:
        if kept is not None and set(map(type, values)) <= {kept, type(None)}:
            return values
        return [convert((value,))[0] for value in values]

    def check(self, rows: Sequence[_Stored]) -> None:
        """Raises NotExpressible, ValueRange, BadValue for rows that cannot be stored."""
        for row in rows:
            values = row[self._fixed :]
            for name, value in zip(self._table.layout.names, values, strict=True):
                if is_multi_valued(value):
                    raise NotExpressible(
                        f"{name!r} of {self._what} has several values, which a change table cannot hold"
                    )
            for column, value, (_, convert, type) in zip(self._table.columns, values, self._columns, strict=True):
                stored = convert((value,))
                try:
                    pa.array(stored, type)
                except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                    raise ValueRange(
                        f"{shown(str(value))} of {self._what}.{column.name} is no {type}: {error}"
                    ) from None


def _kept_class(column: QlikColumn, type: pa.DataType) -> type | None:
    """The class whose values Parquet takes as they are, in the range that the column has; None = there is none."""
    if column.type == "NUMERIC" and not pa.types.is_decimal(type):
        return None
    return _KEPT.get(column.type)


_KEPT: Final[Mapping[str, type]] = {
    name: CLASSES[name]
    for name in ("INT2", "INT4", "INT8", "STRING", "WSTRING", "CLOB", "NCLOB", "NUMERIC", "BOOLEAN", "DATE", "REAL4",
                 "REAL8", "BYTES", "BLOB")
}  # fmt: skip


def _counts_of(done: Sequence[_Done]) -> Counter[str]:
    """How many changes of which operation, and what became of the rows of groups (spec/event-log.md 7.3)."""
    counts: Counter[str] = Counter([_OPERATIONS[op] for _, _, _, op in done if op is not None])
    published = 0
    for surviving, decision, current, op in done:
        rows = len(surviving)
        if decision is not None:
            if decision.query_back is not None and current is None:
                gone = sum(event_type in READS for _, event_type, _, _, _, _ in surviving)
                counts["rows_gone"] += gone
                rows -= gone
            counts["rows_dropped"] += len(decision.dropped)
        if op is None:
            counts["rows_empty"] += rows
        else:
            published += rows
    counts["rows_published"] = published
    return counts
