"""Changes as rows of Qlik change tables in files (formats/qlik.md 1, 4).

The first two stages make the rows of tables, as Arrow columns. The third stage sorts the rows of
its part and adds the values that depend on the order of all changes: change_seq, and the partition,
which depends on change_seq. The output is the directory that ``eventlog.qlik.tables.file_tables``
describes.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.changes.format import Format
from eventlog.config.load import Config
from eventlog.config.publishing import publish_options
from eventlog.core.catalog import ObjectClass
from eventlog.core.options import parse_options, same_fields
from eventlog.core.rows.checks import CheckedRow
from eventlog.core.rows.event_ids import epoch_of
from eventlog.core.rows.events import (
    READS,
    CurrentRow,
    Decided,
    Decision,
    QueryBack,
    ids_of,
    may_be_absent,
)
from eventlog.core.rows.fold import object_of
from eventlog.core.values.typed_values import is_multi_valued
from eventlog.errors import ConfigError, FormatError, NotExpressible, RowError, shown
from eventlog.files.compression import COMPRESSIONS
from eventlog.files.tabular import SUFFIXES, csv_line, json_line
from eventlog.log.reading import group_reader
from eventlog.model import Change, ChangeOp, Operation, full_name
from eventlog.qlik.columns import CLASSES, QlikColumn
from eventlog.qlik.messages.publish import class_columns
from eventlog.qlik.sequence import (
    CONTROL_TABLE,
    LENGTH,
    PREFIX_LENGTH,
    WriterState,
    resume,
    time_prefix,
    transaction_text,
)
from eventlog.qlik.tables.change_rows import OPERATIONS, PARTITION_NAME, TableLayout, mask_writer
from eventlog.qlik.tables.change_tables import TargetTable, images_of
from eventlog.qlik.tables.file_tables import STATE_FILE, file_name, write_partitions
from eventlog.qlik.tables.stored_tables import WriteOptions, ended_partition, layout_of_new
from eventlog.qlik.values import arrow_type, converter
from eventlog.spark.backlog.job import (
    NOTHING,
    Columns,
    Job,
    Numbered,
    OutputFile,
    RowFailure,
    arrow_bytes,
    catalog,
    read_arrow,
)
from eventlog.spark.backlog.output import (
    PARQUET_FOOTER,
    RECEIVER,
    LogRows,
    OutputFormat,
    PartFiles,
    Render,
    Rendered,
    Written,
)
from eventlog.spark.directory import Directory

_OPERATIONS: Final = {
    ChangeOp.INSERT: Operation.ADD,
    ChangeOp.UPDATE: Operation.MODIFY,
    ChangeOp.DELETE: Operation.DELETE,
}
_GROUP_ROWS: Final = 20_000
_NUMBER_LENGTH: Final = LENGTH - PREFIX_LENGTH


def _read_options(config: Config, options: Mapping[str, Any], file_layout: str) -> WriteOptions:
    """Return the options of ``[format]``; options of the request take precedence."""
    configured = {
        **same_fields(publish_options(config), WriteOptions),
        **options,
        "file_format": file_layout,
    }
    chosen = parse_options(WriteOptions, configured, "the backlog's change tables")
    if chosen.tables or chosen.catalog is not None:
        raise ConfigError(
            "the change tables of a backlog have the columns of the database. "
            "Leave out tables and catalog"
        )
    return chosen


@dataclass(frozen=True, slots=True)
class _Table:
    """The change table of a class. ``folder`` is within the output; ``columns`` are its data
    columns, ``types`` are the Arrow types of these columns.
    """

    schema: str | None
    name: str
    folder: str
    target: TargetTable
    layout: TableLayout
    columns: Sequence[QlikColumn]
    types: Sequence[pa.DataType]


def _tables(job: Job) -> dict[str, _Table]:
    """Return the change tables of all classes by name. Raises FormatError for classes
    that no change table can hold.
    """
    classes = catalog(job)
    return {cls.name: _table(cls, classes.schema, job.output.options) for cls in classes.classes}


def _table(cls: ObjectClass, schema: str | None, options: WriteOptions) -> _Table:
    columns = class_columns(cls)
    is_text = options.file_format != "parquet"
    return _Table(
        schema,
        cls.name,
        f"{file_name(schema, cls.name)}{options.suffix}",
        TargetTable(cls.name, columns, options),
        layout_of_new(schema, cls.name, columns, options),
        columns,
        [
            pa.string() if is_text or column.type == "TIME" else arrow_type(column)
            for column in columns
        ],
    )


def _folders(job: Job) -> list[str]:
    """Return the names of the folders that the output may have."""
    return [CONTROL_TABLE, *(table.folder for table in _tables(job).values())]


# --- first and second stage: rows -----------------------------------------------------------------

_Stored = tuple[Any, ...]
"""A row for the third stage: the values of ``_fixed_columns``, then the values of the
data columns.
"""


def _fixed_columns(options: WriteOptions) -> list[tuple[str, pa.DataType]]:
    """Return the columns that every row has in addition to its data."""
    mask = pa.binary() if options.file_format == "parquet" else pa.string()
    return [
        ("place", pa.int64()),
        ("numbers", pa.int64()),
        ("prefix", pa.string()),
        ("letter", pa.string()),
        ("mask", mask),
        ("position", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        ("transaction", pa.string()),
    ]


_NUMBERS, _PREFIX = 1, 2
"""The indexes of the fixed columns ``numbers`` and ``prefix``."""


def _renderer(job: Job) -> Render:
    """Return the function that makes the rows for the changes of groups."""
    settings = job.config.format
    epoch = epoch_of(job.options.events.id_suffix)
    read = group_reader(catalog(job).schema, settings.time_zone, settings.char_padding, epoch=epoch)
    writers = {
        name: _TableWriter(table, job.output.options) for name, table in _tables(job).items()
    }

    def render(
        decided: Sequence[Decided],
        places: Sequence[int],
        log_rows: LogRows,
        query_back: QueryBack,
    ) -> Rendered:
        try:
            return attempt(decided, places, log_rows, is_careful=False)
        except _NotStorable:
            return attempt(decided, places, log_rows, is_careful=True)

    def attempt(
        decided: Sequence[Decided],
        places: Sequence[int],
        log_rows: LogRows,
        *,
        is_careful: bool,
    ) -> Rendered:
        done: list[_Done] = []
        failures: list[RowFailure] = []
        dropped = 0
        stored_by_class: defaultdict[str, list[_Stored]] = defaultdict(list)
        for (group, decision, current), place in zip(decided, places, strict=True):
            object_class, _ = object_of(group)
            name = object_class.name
            surviving = group if decision is None else decision.surviving
            try:
                change = read(group, decision, current, log_rows)
                if change is not None and change.op is ChangeOp.REFRESH:
                    change = change._replace(op=ChangeOp.INSERT)  # tables may leave REFRESH out
                stored = () if change is None else writers[name].rows(change, place)
                if is_careful:
                    writers[name].check(stored)
            except (FormatError, RowError) as error:
                code = error.code if error.code == "bad_filter" else RECEIVER
                failures += [(record_id, code, str(error)) for record_id in ids_of(surviving)]
                dropped += 0 if decision is None else len(decision.dropped)
                continue
            if stored:
                stored_by_class[name] += stored
            op = change.op if stored and change is not None else None
            done.append((surviving, decision, current, op))
        counts = _counts_of(done)
        if dropped:
            counts["rows_dropped"] += dropped
        if not stored_by_class:
            return None, failures, counts, NOTHING
        blob, numbered = _as_streams(writers, stored_by_class)
        return blob, failures, counts, numbered

    return render


def _as_streams(
    writers: Mapping[str, _TableWriter], stored_by_class: Mapping[str, Sequence[_Stored]]
) -> tuple[Columns, Numbered]:
    """Return the rows as an Arrow stream for each class, and the numbers that they use.

    Raises _NotStorable.
    """
    numbers, prefix = 0, ""
    streams = []
    for name, rows in stored_by_class.items():
        stream, used, latest = writers[name].stream(rows)
        numbers += used
        prefix = max(prefix, latest)
        streams.append(stream)
    names = list(stored_by_class)
    return {"class": names, "rows": streams}, Numbered(numbers, prefix, frozenset(names))


_Done = tuple[Sequence[CheckedRow], Decision | None, CurrentRow | None, ChangeOp | None]
"""The surviving rows of a group, the decision of precedence, the current row, and the operation of
the change (None = nothing is written).
"""


def _counts_of(done: Sequence[_Done]) -> Counter[str]:
    """Return the number of changes by operation, and the number of rows by outcome
    (spec/event-log.md 7.3).
    """
    counts: Counter[str] = Counter([_OPERATIONS[op] for _, _, _, op in done if op is not None])
    published = 0
    for surviving, decision, current, op in done:
        rows = len(surviving)
        if decision is not None:
            is_filtered = bool(surviving) and may_be_absent(list(surviving))
            if is_filtered and op is None:
                counts["rows_gone"] += rows
                rows = 0
            elif decision.query_back is not None and current is None:
                gone = sum(event_type in READS for _, event_type, _, _, _, _ in surviving)
                counts["rows_gone"] += gone
                rows -= gone
            counts["rows_dropped"] += len(decision.dropped)
        if op is None:
            counts["rows_noop"] += rows
        else:
            published += rows
    counts["rows_published"] = published
    return counts


def _row_writer(table: _Table, options: WriteOptions) -> Callable[[Change, int], Sequence[_Stored]]:
    """Return the function that makes the rows of a change, given the change and its place. The
    function raises NotExpressible.
    """
    names = table.layout.names
    mask_form: Literal["binary", "text"] = "binary" if options.file_format == "parquet" else "text"
    mask = mask_writer(table.layout.masks, mask_form, options)
    target = table.target
    uncounted: Counter[str] = Counter()

    def write(change: Change, place: int) -> Sequence[_Stored]:
        images = images_of(change, target, uncounted)
        position, moment = change.position, change.commit_time
        prefix, transaction = time_prefix(moment), transaction_text(change.transaction_id)
        numbers = len(images)
        rows = []
        for oper, bits, data in images:
            fixed = place, numbers, prefix, oper, mask(bits), position, moment, transaction
            rows.append((*fixed, *map(data.get, names)))
            numbers = 0  # a before image takes two numbers; it and its update have the second
        return rows

    return write


class _NotStorable(Exception):
    """One of several rows has a value that its column cannot hold."""


class _TableWriter:
    """A writer of the changes of a table. ``rows`` returns the rows of a change, ``stream`` returns
    the content of rows for files, column by column.
    """

    def __init__(self, table: _Table, options: WriteOptions) -> None:
        self.rows = _row_writer(table, options)
        self._table = table
        fixed = _fixed_columns(options)
        self._fixed = len(fixed)
        # Data columns are named by their positions, so that all names are different.
        self._schema = pa.schema(
            [*fixed, *((str(place), type) for place, type in enumerate(table.types))]
        )
        self._what = full_name(table.schema, table.name)
        self._columns = [
            (
                _kept_class(column, type) if options.file_format == "parquet" else None,
                converter(
                    "csv" if type == pa.string() else options.file_format, [column], self._what
                ),
                type,
            )
            for column, type in zip(table.columns, table.types, strict=True)
        ]

    def stream(self, rows: Sequence[_Stored]) -> tuple[bytes, int, str]:
        """Return rows as an Arrow stream, the count of numbers that they use, and the latest
        time prefix of these numbers. Raises _NotStorable.
        """
        every = list(zip(*rows, strict=True))
        try:
            data = [
                pa.array(self._converted(column, kept, convert), type)
                for column, (kept, convert, type) in zip(
                    every[self._fixed :], self._columns, strict=True
                )
            ]
        except (
            FormatError,
            RowError,
            pa.ArrowException,
            ValueError,
            TypeError,
            OverflowError,
        ) as error:
            raise _NotStorable from error
        fixed = [
            pa.array(column, type)
            for column, type in zip(every[: self._fixed], self._schema.types, strict=False)
        ]
        batch = pa.RecordBatch.from_arrays([*fixed, *data], schema=self._schema)
        return arrow_bytes(batch), sum(every[_NUMBERS]), max(every[_PREFIX])

    def _converted(
        self,
        values: Sequence[Any],
        kept: type | None,
        convert: Callable[[Sequence[Any]], list[Any]],
    ) -> Any:
        if kept is not None and set(map(type, values)) <= {kept, type(None)}:
            return values
        return [convert((value,))[0] for value in values]

    def check(self, rows: Sequence[_Stored]) -> None:
        """Raise NotExpressible, BadValue for rows that cannot be stored."""
        for row in rows:
            values = row[self._fixed :]
            for name, value in zip(self._table.layout.names, values, strict=True):
                if is_multi_valued(value):
                    raise NotExpressible(
                        f"{name!r} of {self._what} has several values, "
                        "which a change table cannot hold"
                    )
            for column, value, (_, convert, type) in zip(
                self._table.columns, values, self._columns, strict=True
            ):
                stored = convert((value,))
                try:
                    pa.array(stored, type)
                except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                    raise NotExpressible(
                        f"{shown(value)} of {self._what}.{column.name} is not {type}: {error}",
                        code="value_range",
                    ) from None


_KEPT: Final[Mapping[str, type]] = {
    name: CLASSES[name]
    for name in ("INT2", "INT4", "INT8", "STRING", "WSTRING", "CLOB", "NCLOB", "NUMERIC", "BOOLEAN",
                 "DATE", "REAL4", "REAL8", "BYTES", "BLOB")
}  # fmt: skip


def _kept_class(column: QlikColumn, type: pa.DataType) -> type | None:
    """Return the Python class whose values Parquet takes unchanged if they are in the column's
    range; None if there is no such class.
    """
    if column.type == "NUMERIC" and not pa.types.is_decimal(type):
        return None
    return _KEPT.get(column.type)


# --- third stage: files ---------------------------------------------------------------------------


def _write(
    job: Job,
    directory: Directory,
    part: int,
    blobs: Sequence[Columns],
    before: Numbered,
    sequences: Mapping[int, str],
) -> Written:
    """Write the rows of a part to files of their tables. The rows are in queue order, and are
    numbered after ``before``.
    """
    table_of = _tables(job)
    streams = [dict(zip(blob["class"], blob["rows"], strict=True)) for blob in blobs]
    rows_by_class = {}
    for name in sorted({name for one in streams for name in one}):
        rows = (read_arrow(one[name]) for one in streams if name in one)
        rows_by_class[name] = _sorted(pa.concat_tables(rows))
    if not rows_by_class:
        return [], before
    numbered = list(_sequences(list(rows_by_class.values()), before))
    files: list[OutputFile] = []
    for (name, rows), of_table in zip(rows_by_class.items(), numbered, strict=True):
        files += _write_table(job, directory, part, table_of[name], rows, of_table)
    prefix, number = resume(max(of_table[-1].as_py() for of_table in numbered))
    return files, Numbered(number, prefix)


def _sorted(rows: pa.Table) -> pa.Table:
    """Return the rows in queue order; a before image comes first, since it is numbered first."""
    return rows.take(
        pc.sort_indices(rows, [("place", "ascending"), ("numbers", "descending")])
    ).combine_chunks()


def _sequences(tables: Sequence[pa.Table], before: Numbered) -> Iterator[pa.Array]:
    """Yield, for each table, the change_seq of its rows. All tables have one common sequence
    (formats/qlik.md 3).
    """
    every = pa.concat_tables(
        rows.select(["place", "numbers", "prefix"]).append_column(
            "table", pa.array([n] * len(rows), pa.int32())
        )
        for n, rows in enumerate(tables)
    )
    every = _sorted(every)
    numbers = pc.add(
        pc.cumulative_sum(every["numbers"].cast(pa.uint64())), pa.scalar(before.number, pa.uint64())
    )
    prefixes = pc.cumulative_max(every["prefix"].cast(pa.int64()), start=int(before.prefix or 0))
    sequences = pc.binary_join_element_wise(
        pc.utf8_lpad(prefixes.cast(pa.string()), PREFIX_LENGTH, "0"),
        pc.utf8_lpad(numbers.cast(pa.string()), _NUMBER_LENGTH, "0"),
        "",
    )
    for n in range(len(tables)):
        yield sequences.filter(pc.equal(every["table"], n)).combine_chunks()


def _write_table(
    job: Job, directory: Directory, part: int, table: _Table, rows: pa.Table, sequences: pa.Array
) -> list[OutputFile]:
    options: WriteOptions = job.output.options
    partition_of = options.partition_names()
    if partition_of is None:
        stored = _stored(table, options, rows, sequences, None)
        return _write_rows(job, directory, part, table.folder, stored, rows)
    files = []
    prefixes = pc.utf8_slice_codeunits(sequences, 0, PREFIX_LENGTH).dictionary_encode()
    partitions = [
        partition_of(prefix.ljust(LENGTH, "0")) for prefix in prefixes.dictionary.to_pylist()
    ]
    names = pa.array(partitions, pa.string()).take(prefixes.indices)
    stored = _stored(table, options, rows, sequences, names)
    start = 0
    for run in pc.value_counts(names).to_pylist():  # in the order of sequences
        name, length = run["values"], run["counts"]
        folder = f"{table.folder}/{PARTITION_NAME}={name}"
        files += _write_rows(
            job, directory, part, folder, stored.slice(start, length), rows.slice(start, length)
        )
        start += length
    return files


def _stored(
    table: _Table,
    options: WriteOptions,
    rows: pa.Table,
    sequences: pa.Array,
    partitions: pa.Array | None,
) -> pa.Table:
    """Return the rows with all columns of the change table, in the order of the change table."""
    is_text = options.file_format != "parquet"
    time = rows["time"].fill_null(0)
    letters = rows["letter"].combine_chunks().dictionary_encode()
    operations = pa.array(
        [OPERATIONS[letter] for letter in letters.dictionary.to_pylist()], pa.string()
    )
    headers: dict[str, Callable[[], Any]] = {
        "change_seq": lambda: sequences,
        "change_oper": lambda: rows["letter"],
        "change_mask": lambda: rows["mask"],
        "stream_position": lambda: rows["position"],
        "operation": lambda: operations.take(letters.indices),
        "transaction_id": lambda: rows["transaction"],
        "timestamp": lambda: (
            pc.strftime(time.cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S") if is_text else time
        ),
        PARTITION_NAME: lambda: partitions,
    }
    columns = {place: headers[name]() for name, place in table.layout.headers.items()}
    columns |= {place: rows[str(n)] for n, (_, place) in enumerate(table.layout.data)}
    return pa.table(
        [columns[place] for place in range(len(columns))], names=list(table.layout.columns)
    )


def _write_rows(
    job: Job, directory: Directory, part: int, folder: str, stored: pa.Table, rows: pa.Table
) -> list[OutputFile]:
    """Write rows to files of one folder."""
    output, file_format = job.output, job.output.options.file_format
    is_parquet = file_format == "parquet"
    compress = COMPRESSIONS[output.compression].compress
    header = compress(csv_line(stored.column_names).encode()) if file_format == "csv" else b""
    directory.make(folder)

    def put(block: pa.Table, block_rows: pa.Table) -> None:
        text = b"" if is_parquet else compress(_text(block, file_format))
        size = block.nbytes + PARQUET_FOOTER if is_parquet else len(header) + len(text)
        if size > output.max_bytes and len(block) > 1:
            half = len(block) // 2
            put(block.slice(0, half), block_rows.slice(0, half))
            put(block.slice(half), block_rows.slice(half))
            return
        changes = pc.sum(pc.greater(block_rows["numbers"], 0)).as_py() or 0
        about = changes, len(block), block_rows["place"][0].as_py(), block_rows["place"][-1].as_py()
        if is_parquet:
            files.put_table(block, block.nbytes, *about)
        else:
            files.put(text, *about)

    with PartFiles(job, directory, part, SUFFIXES[file_format], folder, header=header) as files:
        for start in range(0, len(stored), _GROUP_ROWS):
            put(stored.slice(start, _GROUP_ROWS), rows.slice(start, _GROUP_ROWS))
    return files.files


def _text(block: pa.Table, file_format: str) -> bytes:
    write = csv_line if file_format == "csv" else partial(json_line, block.column_names)
    return "".join(
        map(write, zip(*(column.to_pylist() for column in block.columns), strict=True))
    ).encode()


# --- at the end -----------------------------------------------------------------------------------


def _finish(
    job: Job, directory: Directory, files: Sequence[OutputFile], state: WriterState
) -> list[str]:
    """Write the list of readable partitions, ``attrep_cdc_partitions``, and the state of the
    sequence writer. Returns the names of the written files.
    """
    options: WriteOptions = job.output.options
    by_folder = {table.folder: table for table in _tables(job).values()}
    rows = []
    for folder, name in sorted(
        {tuple(file.name.split("/")[:2]) for file in files} if options.partitioned else ()
    ):
        table = by_folder[folder]
        row = ended_partition(table.schema, table.name, name.partition("=")[2], options, state)
        if row is not None:
            rows.append(row)
    written = [STATE_FILE]
    if rows:
        file_format: Any = options.file_format
        with tempfile.TemporaryDirectory(prefix="eventlog-") as place:
            path = Path(place) / f"part-000000-00001-{job.name}{SUFFIXES[file_format]}"
            ordered = sorted(rows, key=lambda row: (row[3], row[-2:]))
            write_partitions(path, file_format, ordered)
            content = path.read_bytes()
        directory.make(CONTROL_TABLE)
        written.append(f"{CONTROL_TABLE}/{path.name}")
        directory.write(written[-1], content)
    directory.write(STATE_FILE, (json.dumps(state._asdict()) + "\n").encode())
    return written


def output_of(format: Format) -> OutputFormat:
    """Return the functions of change tables for a backlog job."""
    file_layouts = "parquet", "csv", "json"
    return OutputFormat(
        file_layouts, _read_options, _renderer, _write, folders=_folders, finish=_finish
    )
