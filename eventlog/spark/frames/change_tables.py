"""Qlik change tables in files as DataFrames: their rows, their changes, and the live view
(formats/qlik.md 1, 4, 6).

The tables are in a directory as ``eventlog.qlik.tables.file_tables`` describes it, written by
``eventlog backlog``, by ``eventlog convert`` or by Qlik, in Parquet, CSV or JSON lines. Spark reads
the files; the functions of the row-by-row reader interpret the rows. Masks stay binary or text,
since no integer of Spark can hold a mask.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from eventlog.changes.format import Report
from eventlog.core.arguments import OPTIONS, PATH, Kind, check_arguments
from eventlog.core.options import parse_options
from eventlog.errors import ConfigError, FormatError, with_location
from eventlog.files.tabular import batch_rows, first_names, format_of, json_object
from eventlog.model import Change, full_name
from eventlog.qlik.masks import HISTORY_TABLE
from eventlog.qlik.sequence import LENGTH, last_sequence_of
from eventlog.qlik.tables import file_tables
from eventlog.qlik.tables.change_rows import (
    PARTITION_NAME,
    ChangeRow,
    TableLayout,
    header_name,
    header_text,
    row_reader,
)
from eventlog.qlik.tables.change_table_format import nothing_found
from eventlog.qlik.tables.change_tables import changes_of_rows, key_from_deletes, source_table
from eventlog.qlik.tables.change_tables import live_view as row_by_row
from eventlog.qlik.tables.file_tables import TableFiles
from eventlog.qlik.tables.stored_tables import (
    Reading,
    ReadOptions,
    layout_of,
    reading,
    stored_row_reader,
)
from eventlog.spark.frames.change_frame import SCHEMA, batches_of
from eventlog.spark.session.arguments import FRAME, MAYBE_TIME, SESSION, TEXTS, check_pandas
from eventlog.spark.session.arrow_types import arrow_schema
from eventlog.spark.session.in_tasks import Batches, rows_of_batch, tune_collector
from eventlog.spark.session.session import READS_TIMES, new_session

_TOGETHER: Final = 10_000
"""The number of rows that are collected before they are applied to their objects."""

_CSV: Final = {
    "header": True, "multiLine": True, "quote": '"', "escape": '"', "emptyValue": "",
    "nullValue": "\0null\0", "enforceSchema": False,
}  # fmt: skip
"""The CSV options. A quoted empty text is an empty text; NULL is an empty field without quotes, so
no text is taken for NULL. A file whose columns differ from the first file's is refused, since Spark
matches columns by position.
"""


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A change table in a directory: the schema and table names that its changes have, the schema
    name in the directory, and its path.
    """

    schema: str | None
    table: str
    stored_schema: str | None
    place: Path


_FOUND_TABLE: Final = Kind(
    lambda value: isinstance(value, FoundTable), "one of the tables that find_change_tables returns"
)


def find_change_tables(source: str, options: Mapping[str, Any] | None = None) -> list[FoundTable]:
    """Return the change tables of a directory that the options select. ``options`` are the options
    of the reader of ``qlik-change-table``. Raises ConfigError, FormatError.
    """
    check_arguments("find_change_tables", source=(source, PATH), options=(options, OPTIONS))
    return _found(source, _reading(options))


def _reading(options: Mapping[str, Any] | None) -> Reading:
    chosen = parse_options(ReadOptions, options or {}, "the reader of change tables")
    if not chosen.input_complete:
        raise ConfigError(
            "input_complete = false works only when tables are read row by row. Spark reads the "
            "files that exist: remove the option"
        )
    return reading(chosen, (), Report(strict=True))


def _found(source: str, context: Reading) -> list[FoundTable]:
    suffix, place = context.options.suffix, Path(source)
    if not place.is_dir():
        raise FormatError(f"{source} is not a directory of change tables")
    tables = []
    for entry in file_tables.table_entries(place, suffix):
        stored_schema, table = file_tables.table_names(entry, suffix)
        schema = context.names(stored_schema)
        if context.wants(schema, table):
            tables.append(FoundTable(schema, table, stored_schema, entry))
    return tables


# --- rows -----------------------------------------------------------------------------------------


def read_rows(
    spark: SparkSession, table: FoundTable, options: Mapping[str, Any] | None = None
) -> DataFrame:
    """Return the rows of a change table as they are stored; headers and data columns keep their
    names.

    With the option ``partitioned`` only the partitions that attrep_cdc_partitions lists are read.
    Raises FormatError.
    """
    check_arguments(
        "read_rows",
        spark=(spark, SESSION),
        table=(table, _FOUND_TABLE),
        options=(options, OPTIONS),
    )
    return _rows(spark, table, _reading(options))


def _rows(spark: SparkSession, table: FoundTable, context: Reading) -> DataFrame:
    options = context.options
    files = _files(table, options)
    file_tables.refuse_unread([files], options)
    by_format: dict[str, Path] = {}
    for part in files.parts:
        if part.path.suffix == ".zst":
            raise FormatError(
                f"{part.path}: Spark cannot read .zst. Decompress the file, or convert row by row"
            )
        by_format.setdefault(str(format_of(part.path)), part.path)
    frames = [
        _read_frame(spark, table, file_format, first, options)
        for file_format, first in by_format.items()
    ]
    rows = reduce(DataFrame.unionByName, frames)
    partition = options.header_prefix + PARTITION_NAME
    if (
        PARTITION_NAME in rows.columns
        and header_name(PARTITION_NAME, options.header_prefix) is None
    ):
        if any(
            header_name(column, options.header_prefix) == PARTITION_NAME for column in rows.columns
        ):
            rows = rows.drop(PARTITION_NAME)
        else:
            rows = rows.withColumnRenamed(PARTITION_NAME, partition)
    if options.partitioned:
        home = table.place.parent
        listed = file_tables.listed_partitions(home, table.stored_schema, table.table, options)
        stored_in = next(
            (c for c in rows.columns if header_name(c, options.header_prefix) == PARTITION_NAME),
            None,
        )
        if stored_in is None:
            name = full_name(table.schema, table.table)
            raise FormatError(
                f"the change table of {name} has no {partition}. "
                "Read the table without the option `partitioned`"
            )
        rows = rows.where(_named(rows, stored_in).isin(sorted(listed)))
    return rows


def _files(table: FoundTable, options: ReadOptions) -> TableFiles:
    return TableFiles(table.schema, table.table, file_tables.parts_of(table.place, options), None)


_NAMES: Final = {
    "parquet": "*.[pP][aA][rR][qQ][uU][eE][tT]",
    "csv": "*.[cC][sS][vV]{,.gz}",
    "json": "*.{[jJ][sS][oO][nN],[jJ][sS][oO][nN][lL],[nN][dD][jJ][sS][oO][nN]}{,.gz}",
}
"""Hadoop's patterns for the file names that ``format_of`` accepts, in upper or lower case."""


def _with_time(spark: SparkSession) -> SparkSession:
    """Return a session that reads columns of type TIME, which Spark refuses by default.

    The settings of the given session do not change; the returned session has these settings, too.
    """
    if spark.conf.get("spark.sql.timeType.enabled", "false") == "true":
        return spark
    own = new_session(spark)
    for name, value in {**spark.conf.getAll, "spark.sql.timeType.enabled": "true"}.items():
        if own.conf.isModifiable(name):
            own.conf.set(name, value)
    return own


def _read_frame(
    spark: SparkSession, table: FoundTable, file_format: str, first: Path, options: ReadOptions
) -> DataFrame:
    place = str(table.place)
    if file_format == "parquet":
        _refuse_times(first)
        spark = _with_time(spark)
    reader = spark.read.option("pathGlobFilter", _NAMES[file_format])
    reader = reader.option("recursiveFileLookup", False)
    match file_format:
        case "parquet":
            return reader.parquet(place)
        case "csv":
            return reader.options(**_CSV).csv(place)  # type: ignore[arg-type]
        case _:
            lines = reader.text(place).withColumn(_FILE, f.col("_metadata.file_name"))
            return _json_columns(lines, first, options)


def _refuse_times(file: Path) -> None:
    """Raise FormatError for a column type that this version of Spark does not support."""
    if READS_TIMES:
        return
    times = [field.name for field in pq.read_schema(file) if pa.types.is_time(field.type)]
    if times:
        raise FormatError(
            f"{file}: column {times[0]!r} is a time of day, which Spark reads from 4.1 on. "
            "Convert the table row by row"
        )


_FILE: Final = "_file"


def _json_columns(lines: DataFrame, first: Path, options: ReadOptions) -> DataFrame:
    """Return the members of objects, one object per line, as text: columns in the order of the
    first object, then further columns.

    Spark's own reader turns every value into text, so that a number could be mistaken for a mask in
    hex.
    """
    filled = lines.where(f.trim("value") != "")
    named = filled.select("value").mapInArrow(_member_names, "name string").distinct().collect()
    known = first_names(first)
    names = [*known, *sorted({row["name"] for row in named} - set(known))]
    others = [name for name in lines.columns if name not in ("value", _FILE)]
    members = [(name, header_name(name, options.header_prefix)) for name in names]
    places = [f"c{place}" for place in range(len(names) + len(others))]

    def read(batches: Batches) -> Batches:
        tune_collector()
        for batch in batches:
            rows = []
            texts, files = (batch.column(name).to_pylist() for name in ("value", _FILE))
            for line, file in zip(texts, files, strict=True):
                try:
                    row = json_object(line)
                    rows.append([header_text(header, row.get(name)) for name, header in members])
                except FormatError as error:
                    raise with_location(error, file) from None
            columns = list(zip(*rows, strict=True)) or [()] * len(names)
            arrays = [pa.array(column, pa.string()) for column in columns]
            arrays += [batch.column(name).cast(pa.string()) for name in others]
            yield pa.RecordBatch.from_arrays(arrays, names=places)

    schema = t.StructType([t.StructField(place, t.StringType()) for place in places])
    stored = filled.select("value", _FILE, *(_named(lines, name) for name in others))
    return stored.mapInArrow(read, schema).toDF(*names, *others)


def _member_names(batches: Batches) -> Batches:
    """Yield the names of the members of all objects, one object per line."""
    seen: dict[str, None] = {}
    for batch in batches:
        for line in batch.column(0).to_pylist():
            with contextlib.suppress(FormatError):  # raised when the rows are read
                seen.update(dict.fromkeys(json_object(line)))
    yield pa.RecordBatch.from_pydict({"name": pa.array(seen, pa.string())})


def _named(frame: DataFrame, column: str) -> Column:
    return frame[f"`{column.replace('`', '``')}`"]


# --- changes --------------------------------------------------------------------------------------


def read_change_table(
    spark: SparkSession, source: str, options: Mapping[str, Any] | None = None
) -> DataFrame:
    """Return the changes of all change tables of a directory (spec/change-model.md 1.2), with the
    same result as reading row by row.

    ``options`` are the options of the reader of ``qlik-change-table``. A query fails with
    FormatError for unreadable rows. Raises ConfigError, FormatError.
    """
    check_pandas()
    check_arguments(
        "read_change_table",
        spark=(spark, SESSION),
        source=(source, PATH),
        options=(options, OPTIONS),
    )
    context = _reading(options)
    home = Path(source)
    if home.name.endswith(context.options.suffix):
        home = home.parent
    if context.options.ddl_history:
        history = file_tables.control_rows(home, HISTORY_TABLE, context.options)
        context = reading(context.options, history, Report(strict=True))
    tables = _found(source, context)
    if not tables and not file_tables.is_written(Path(source)):
        raise nothing_found(source, context.options)
    if not tables:
        return spark.createDataFrame([], SCHEMA)
    return _counted(reduce(DataFrame.union, [_changes(spark, table, context) for table in tables]))


def _changes(spark: SparkSession, table: FoundTable, context: Reading) -> DataFrame:
    rows = _rows(spark, table, context)
    stored = rows.columns
    context = file_tables.with_metadata(context, [_files(table, context.options)])
    what = full_name(table.schema, table.table)
    layout = layout_of(rows.columns, context.options, what)
    source = source_table(
        table.schema, table.table, context, _deletes(rows, layout, context.options)
    )

    def read(batches: Batches) -> Batches:
        tune_collector()
        stored_rows = (row for batch in batches for row in batch_rows(batch, f"a batch of {what}"))
        table_rows = stored_row_reader(stored, table.schema, table.table, context)(stored_rows)
        # The input is complete, so no row waits for a later one.
        changes = changes_of_rows(table_rows, source, input_complete=True)
        yield from batches_of(cast("Iterator[Change]", changes))

    # A before image and its update come to the same task, one after the other.
    sequence, letter = _sequence(rows, layout), _letter(rows, layout)
    together = rows.repartition(sequence).sortWithinPartitions(sequence, letter != "B")
    # mapInArrow cannot handle names with a dot, so the columns are named by their positions.
    return together.toDF(*(f"c{place}" for place in range(len(stored)))).mapInArrow(read, SCHEMA)


def _header(rows: DataFrame, layout: TableLayout, name: str) -> Column:
    place = layout.headers.get(name)
    return f.lit(None).cast("string") if place is None else _named(rows, rows.columns[place])


def _sequence(rows: DataFrame, layout: TableLayout) -> Column:
    return f.lpad(_header(rows, layout, "change_seq").cast("string"), LENGTH, "0")


def _letter(rows: DataFrame, layout: TableLayout) -> Column:
    """Return the operation as one letter; B for BEFOREIMAGE."""
    letter = f.upper(f.trim(_header(rows, layout, "change_oper")))
    operation = f.upper(f.trim(_header(rows, layout, "operation")))
    named = f.when(operation == "BEFOREIMAGE", "B").otherwise(f.substring(operation, 1, 1))
    return f.coalesce(f.when(letter != "", letter), named, f.lit(""))


def _deletes(rows: DataFrame, layout: TableLayout, options: ReadOptions) -> Iterator[ChangeRow]:
    """Yield the deletes in the order of change_seq, without times. The masks of deletes mark the
    key columns.
    """
    read = row_reader(
        layout, byteorder=options.byteorder, counters=Report().counters, what="a change table"
    )
    deletes = rows.where(_letter(rows, layout) == "D").orderBy(_sequence(rows, layout))
    for row in deletes.toLocalIterator():
        # Spark gives its driver timestamps in the local zone, but without a zone.
        # They are not needed to find a key.
        yield read([None if isinstance(value, datetime) else value for value in row])


def _counted(changes: DataFrame) -> DataFrame:
    """Add event numbers: consecutive changes with the same transaction id are one transaction
    (formats/qlik.md 7).
    """
    counted = (f.col("op") != "TRUNCATE") & f.col("transaction_id").isNotNull()
    if changes.where(f.col("transaction_id").isNotNull()).isEmpty():
        return changes
    # A run begins wherever the transaction id changes in the order of all changes.
    every = Window.orderBy("position")
    begins = f.lag("transaction_id").over(every).eqNullSafe(f.col("transaction_id")) & (
        f.row_number().over(every) > 1
    )
    runs = changes.withColumn("_begins", f.when(begins, 0).otherwise(1))
    runs = runs.withColumn("_run", f.sum("_begins").over(every))
    in_run = Window.partitionBy("_run", "_counted").orderBy("position")
    runs = runs.withColumn("_counted", counted)
    number = f.row_number().over(in_run).cast("long")
    last = f.lead("position").over(in_run).isNull()
    return (
        runs.withColumn("event_number", f.when(f.col("_counted"), number))
        .withColumn("last_in_transaction", f.when(f.col("_counted"), last))
        .select(*SCHEMA.names)
    )


# --- live view ------------------------------------------------------------------------------------


def live_view(
    base: DataFrame,
    changes: DataFrame,
    as_of: datetime | None = None,
    *,
    key: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Apply to ``base`` the rows of its change table up to and including ``as_of`` (with a zone;
    None = all), and return the resulting state of the table, as
    ``eventlog.qlik.tables.change_tables`` does; columns that a row lacks are NULL.

    ``changes`` are rows from ``read_rows``. ``base`` is the table. The data columns have the names
    of the table's columns, and are cast to the types of these columns. ``key`` has the key columns,
    by default the columns in the mask of the first DELETE. ``options`` are ``header_prefix``,
    ``mask_offset`` and ``byteorder`` of the reader.

    Objects that an update of a key connects are brought up to date in one task. The driver keeps
    two hashes in memory for each update of a key. Raises FormatError if the key cannot be
    determined.
    """
    check_pandas()
    check_arguments(
        "live_view",
        base=(base, FRAME),
        changes=(changes, FRAME),
        as_of=(as_of, MAYBE_TIME),
        key=(key, TEXTS),
        options=(options, OPTIONS),
    )
    chosen = parse_options(ReadOptions, options or {}, "the reader of change tables")
    layout = layout_of(changes.columns, chosen, "the live view")
    rows = changes
    if as_of is not None:
        rows = rows.where(_sequence(rows, layout) <= last_sequence_of(as_of))
    names = tuple(key) if key is not None else key_from_deletes(_deletes(rows, layout, chosen))
    if not names:
        raise FormatError(
            "cannot determine the key: the change table has no DELETE. Pass the key columns in "
            "`key`"
        )
    for name in names:
        if name not in layout.names or name not in base.columns:
            raise FormatError(f"key column {name!r} must be in the base and in the change table")
    rows = _typed_as(rows, layout, base)
    truncated = rows.where(_letter(rows, layout) == "T").agg(f.max(_sequence(rows, layout))).head()
    if truncated is not None and truncated[0] is not None:
        rows, base = rows.where(_sequence(rows, layout) > truncated[0]), base.limit(0)
    columns = [*layout.names, *(name for name in base.columns if name not in layout.names)]
    together = _together(base, rows, layout, names)
    types = {
        **{field.name: field for field in rows.schema},
        **{field.name: field for field in base.schema},
    }
    schema = t.StructType([t.StructField(name, types[name].dataType) for name in columns])
    return together.mapInArrow(
        _bring_up_to_date(base.columns, rows.columns, chosen, names, schema), schema
    )


def _typed_as(rows: DataFrame, layout: TableLayout, base: DataFrame) -> DataFrame:
    """Return the rows with their data columns cast to the base's types."""
    types = {field.name: field.dataType for field in base.schema}
    data = dict(layout.data)
    return rows.select(
        *(
            _named(rows, name).cast(types[name]).alias(name)
            if name in data and name in types
            else _named(rows, name)
            for name in rows.columns
        )
    )


def _hash(frame: DataFrame, key: Sequence[str]) -> Column:
    """Return a hash of the key. If two keys have the same hash, their objects are brought up to
    date in the same task, each correctly.
    """
    types = {field.name: field.dataType for field in frame.schema}
    # Minus zero equals zero.
    is_real = {name: isinstance(types[name], t.FloatType | t.DoubleType) for name in key}
    columns = [_named(frame, name) + 0.0 if is_real[name] else _named(frame, name) for name in key]
    return f.xxhash64(*columns)


def _together(
    base: DataFrame, rows: DataFrame, layout: TableLayout, key: Sequence[str]
) -> DataFrame:
    """Return rows of base and change table as columns ``base`` and ``row`` of one frame. Objects
    that an update of a key connects are in one partition, next to each other.
    """
    spark = rows.sparkSession
    sequence, letter = _sequence(rows, layout), _letter(rows, layout)
    keyed = rows.select(sequence.alias("s"), letter.alias("o"), _hash(rows, key).alias("h"))
    before = keyed.where("o = 'B'")
    after = keyed.where("o = 'U'").withColumnsRenamed({"h": "n", "o": "p"})
    moved = before.join(after, "s").where("h <> n").select("h", "n").distinct()
    groups = _groups([(int(row[0]), int(row[1])) for row in moved.toLocalIterator()])
    whole = [
        f.struct(*(_named(frame, c).alias(f"c{n}") for n, c in enumerate(frame.columns)))
        for frame in (base, rows)
    ]
    base_type, row_type = (
        frame.select(s.alias("x")).schema["x"].dataType
        for frame, s in zip((base, rows), whole, strict=True)
    )
    every = base.select(
        _hash(base, key).alias("h"),
        f.lit("").alias("s"),
        whole[0].alias("base"),
        f.lit(None).cast(row_type).alias("row"),
    ).union(rows.select(_hash(rows, key), sequence, f.lit(None).cast(base_type), whole[1]))
    if groups:
        schema = t.StructType([t.StructField("h", t.LongType()), t.StructField("g", t.LongType())])
        every = every.join(
            f.broadcast(spark.createDataFrame(list(groups.items()), schema)), "h", "left"
        )
        every = every.withColumn("h", f.coalesce("g", "h")).drop("g")
    return every.repartition("h").sortWithinPartitions("h").select("h", "base", "row")


def _groups(moved: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return, for each key that an update of a key connects, the hash of its group by the hash of
    the key (union-find with path halving).
    """
    parent: dict[int, int] = {}

    def root(one: int) -> int:
        while (above := parent.setdefault(one, one)) != one:
            parent[one] = one = parent[above]
        return one

    for old, new in moved:
        parent[root(old)] = root(new)
    return {one: root(one) for one in list(parent)}


def _bring_up_to_date(
    base_columns: Sequence[str],
    columns: Sequence[str],
    options: ReadOptions,
    key: Sequence[str],
    schema: t.StructType,
) -> Any:
    """Return the function that a task runs: it brings groups of objects up to date with the
    row-by-row reader.
    """
    names = schema.names

    def run(batches: Batches) -> Batches:
        tune_collector()
        layout = layout_of(columns, options, "the live view")
        read = row_reader(
            layout, byteorder=options.byteorder, counters=Report().counters, what="the live view"
        )
        arrow = arrow_schema(schema)
        base: list[dict[str, Any]] = []
        rows: list[ChangeRow] = []

        def state() -> pa.RecordBatch:
            state_now = list(row_by_row(base, rows, key=key).values())
            arrays = [
                pa.array([row.get(n) for row in state_now], arrow.field(n).type) for n in names
            ]
            return pa.RecordBatch.from_arrays(arrays, schema=arrow)

        group = None
        for batch in batches:
            for hash_, base_row, row in rows_of_batch(batch):
                if hash_ != group and len(base) + len(rows) >= _TOGETHER:
                    yield state()
                    base, rows = [], []
                group = hash_
                if base_row is not None:
                    base.append(dict(zip(base_columns, base_row.values(), strict=True)))
                if row is not None:
                    rows.append(read(list(row.values())))
        yield state()

    return run
