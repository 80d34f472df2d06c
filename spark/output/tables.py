"""Change tables as files: what the three stages do for the format ``qlik-change-table`` (spec/qlik.md 1, 4).

The third stage sorts the rows of its part and adds what depends on the order of all changes: change_seq, and the
partition that follows from it. The output is the directory that ``eventlog.qlik.file_tables`` describes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.config.load import Config
from eventlog.core.options import parse_options, same_fields
from eventlog.errors import ConfigError
from eventlog.files.tabular import SUFFIXES, csv_line, json_line
from eventlog.qlik.change_rows import OPERATIONS, PARTITION_NAME
from eventlog.qlik.change_table_options import WriteOptions
from eventlog.qlik.control_tables import (
    CONTROL_TABLE,
    ControlRow,
    Partitioning,
    has_ended,
    parse_partition_name,
    partition_of,
)
from eventlog.qlik.file_tables import STATE_FILE, write_partitions
from eventlog.qlik.sequence import LENGTH, PREFIX_LENGTH, UNKNOWN_TRANSACTION, WriterState, resume
from spark.directory import Directory
from spark.job import Columns, Job, Numbered, OutputFile
from spark.output.formats import COMPRESS, PARQUET_FOOTER, OutputFormat, PartFiles
from spark.output.table_rows import Table, by_class, options_of, renderer, tables

_GROUP_ROWS: Final = 20_000
_NUMBER_LENGTH: Final = LENGTH - PREFIX_LENGTH


def read_options(config: Config, options: Mapping[str, Any], form: str) -> WriteOptions:
    """The options of ``[format]``; those of the request go before."""
    configured = {**same_fields(config.format, WriteOptions), **options, "file_format": form}
    chosen = parse_options(WriteOptions, configured, "the backlog's change tables")
    if chosen.tables or chosen.catalog is not None:
        raise ConfigError(
            "the change tables of a backlog have the columns of the database; leave out tables and catalog"
        )
    return chosen


def write(
    job: Job, directory: Directory, part: int, blobs: Sequence[Columns], before: Numbered, sequences: Mapping[int, str]
) -> tuple[list[OutputFile], Numbered]:
    """The rows of a part in queue order, numbered on from what was before, as files of their tables."""
    table_of = tables(job)
    streams = [by_class(blob) for blob in blobs]
    rows_by_class = {name: _sorted(_read(name, streams)) for name in sorted({name for one in streams for name in one})}
    if not rows_by_class:
        return [], before
    numbered = list(_sequences(list(rows_by_class.values()), before))
    files: list[OutputFile] = []
    for (name, rows), of_table in zip(rows_by_class.items(), numbered, strict=True):
        files += _write_table(job, directory, part, table_of[name], rows, of_table)
    prefix, number = resume(max(of_table[-1].as_py() for of_table in numbered))
    return files, Numbered(number, prefix)


def _read(name: str, streams: Sequence[Mapping[str, bytes]]) -> pa.Table:
    return pa.concat_tables([pa.ipc.open_stream(one[name]).read_all() for one in streams if name in one])


def _sorted(rows: pa.Table) -> pa.Table:
    """The rows in queue order; a before image, which takes the numbers, stands in front of its update."""
    return rows.take(pc.sort_indices(rows, [("place", "ascending"), ("numbers", "descending")])).combine_chunks()


def _sequences(tables: Sequence[pa.Table], before: Numbered) -> Iterator[pa.Array]:
    """The change_seq of each table's rows: one sequence over the rows of all tables (spec/qlik.md 3)."""
    every = pa.concat_tables(
        rows.select(["place", "numbers", "prefix"]).append_column("table", pa.array([n] * len(rows), pa.int32()))
        for n, rows in enumerate(tables)
    )
    every = _sorted(every)
    numbers = pc.add(pc.cumulative_sum(every["numbers"].cast(pa.uint64())), pa.scalar(before.number, pa.uint64()))
    prefixes = pc.cumulative_max(every["prefix"].cast(pa.int64()), start=int(before.prefix or 0))
    sequences = pc.binary_join_element_wise(
        pc.utf8_lpad(prefixes.cast(pa.string()), PREFIX_LENGTH, "0"),
        pc.utf8_lpad(numbers.cast(pa.string()), _NUMBER_LENGTH, "0"),
        "",
    )
    for n in range(len(tables)):
        yield sequences.filter(pc.equal(every["table"], n)).combine_chunks()


def _write_table(
    job: Job, directory: Directory, part: int, table: Table, rows: pa.Table, sequences: pa.Array
) -> list[OutputFile]:
    options = options_of(job)
    partitioning = options.partitioning()
    if partitioning is None:
        stored = _stored(table, options, rows, sequences, None)
        return _write_rows(job, directory, part, table.folder, stored, rows)
    files = []
    names = _partition_names(sequences, partitioning)
    stored = _stored(table, options, rows, sequences, names)
    for name, start, length in _runs(names):
        folder = f"{table.folder}/{PARTITION_NAME}={name}"
        files += _write_rows(job, directory, part, folder, stored.slice(start, length), rows.slice(start, length))
    return files


def _partition_names(sequences: pa.Array, partitioning: Partitioning) -> pa.Array:
    prefixes = pc.utf8_slice_codeunits(sequences, 0, PREFIX_LENGTH).dictionary_encode()
    names = [partition_of(prefix.ljust(LENGTH, "0"), partitioning).name for prefix in prefixes.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(prefixes.indices)


def _runs(names: pa.Array) -> Iterator[tuple[str, int, int]]:
    """Each partition with its first row and number of rows, which follow one another in the order of sequences."""
    start = 0
    for run in pc.value_counts(names).to_pylist():
        yield run["values"], start, run["counts"]
        start += run["counts"]


def _stored(
    table: Table, options: WriteOptions, rows: pa.Table, sequences: pa.Array, partitions: pa.Array | None
) -> pa.Table:
    """The rows with all columns of the change table, in its order."""
    is_text = options.file_format != "parquet"
    time = rows["time"].fill_null(0)
    letters = rows["letter"].combine_chunks().dictionary_encode()
    operations = pa.array([OPERATIONS[letter] for letter in letters.dictionary.to_pylist()], pa.string())
    headers: dict[str, Callable[[], Any]] = {
        "change_seq": lambda: sequences,
        "change_oper": lambda: rows["letter"],
        "change_mask": lambda: rows["mask"],
        "stream_position": lambda: rows["position"],
        "operation": lambda: operations.take(letters.indices),
        "transaction_id": lambda: pa.repeat(UNKNOWN_TRANSACTION, len(rows)),
        "timestamp": lambda: pc.strftime(time.cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S") if is_text else time,
        PARTITION_NAME: lambda: partitions,
    }
    columns = {place: headers[name]() for name, place in table.layout.headers.items()}
    columns |= {place: rows[str(n)] for n, (_, place) in enumerate(table.layout.data)}
    return pa.table([columns[place] for place in range(len(columns))], names=list(table.layout.columns))


def _write_rows(
    job: Job, directory: Directory, part: int, folder: str, stored: pa.Table, rows: pa.Table
) -> list[OutputFile]:
    """Rows as files of one folder."""
    output, file_format = job.output, options_of(job).file_format
    is_parquet = file_format == "parquet"
    compress = COMPRESS[output.compression]
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
    return "".join(map(write, zip(*(column.to_pylist() for column in block.columns), strict=True))).encode()


# --- at the end -------------------------------------------------------------------------------------------------------


def finish(job: Job, directory: Directory, files: Sequence[OutputFile], state: WriterState) -> list[str]:
    """The partitions that can be read, for ``attrep_cdc_partitions``, and the state of the sequence writer."""
    options = options_of(job)
    by_folder = {table.folder: table for table in tables(job).values()}
    rows = []
    for folder, name in sorted({tuple(file.name.split("/")[:2]) for file in files} if options.partitioned else ()):
        partition = parse_partition_name(name.partition("=")[2])
        if options.close_partitions or has_ended(partition, state):
            table = by_folder[folder]
            rows.append(ControlRow(options.server, options.task, partition.name, *partition, table.schema, table.name))
    written = [STATE_FILE]
    if rows:
        ordered = sorted(rows, key=lambda row: (row[3], row[-2:]))
        written.append(_write_control(job, directory, options.file_format, ordered))
    directory.write(STATE_FILE, (json.dumps(state._asdict()) + "\n").encode())
    return written


def _write_control(job: Job, directory: Directory, file_format: Any, rows: Sequence[ControlRow]) -> str:
    with tempfile.TemporaryDirectory(prefix="eventlog-") as place:
        path = Path(place) / f"part-000000-00001-{job.name}{SUFFIXES[file_format]}"
        write_partitions(path, file_format, rows)
        content = path.read_bytes()
    directory.make(CONTROL_TABLE)
    name = f"{CONTROL_TABLE}/{path.name}"
    directory.write(name, content)
    return name


def folders(job: Job) -> list[str]:
    """The names of the folders that the output may have."""
    return [CONTROL_TABLE, *(table.folder for table in tables(job).values())]


FORMAT: Final = OutputFormat(("parquet", "csv", "json"), read_options, renderer, write, folders=folders, finish=finish)
