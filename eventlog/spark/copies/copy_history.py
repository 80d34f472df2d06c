"""The history of a live copy: a second table, to which each change appends a row. The versions of
objects, and the table as of a time, are read from the second table (spec/spark-changes.md 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, zip_longest
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as t

from eventlog.core.arguments import check_arguments
from eventlog.core.values.moments import aware_utc
from eventlog.errors import ConfigError
from eventlog.model import Operation
from eventlog.spark.changes.change_rows import spark_type
from eventlog.spark.copies.copy_source import ClassSource
from eventlog.spark.copies.copy_target import (
    CopyBatch,
    Key,
    KeyedChange,
    LastBatch,
    Values,
    plain_column,
    stored_keys,
)
from eventlog.spark.copies.copy_types import (
    FIX_WITH_HISTORY,
    CopyError,
    Note,
    in_schema,
    note_of,
    refused_changes,
)
from eventlog.spark.copies.delta_copy import DeltaCopy, DeltaFiles
from eventlog.spark.copies.iceberg_copy import IcebergCopy, IcebergFiles
from eventlog.spark.session.arguments import COPY, SESSION, TIME, check_pandas
from eventlog.spark.session.arrow_rows import structs_of
from eventlog.spark.session.arrow_types import arrow_schema
from eventlog.spark.session.in_tasks import Batches

Target: TypeAlias = DeltaCopy | IcebergCopy
"""A table to which a live copy can be written.

A commit contains the rows of a batch and the number of the batch. If two writers commit, one of
them fails.
"""

SUFFIX: Final = "_history"
"""The end of the name of a history. The name begins with the name of the copy."""
LOAD: Final = "_load"
BATCH: Final = "_batch"
POSITION: Final = "_position"
OPERATION: Final = "_operation"
COMMIT_TIME: Final = "_commit_time"
_OWN: Final = [
    t.StructField(LOAD, t.LongType()),
    t.StructField(BATCH, t.LongType()),
    t.StructField(POSITION, t.LongType()),
    t.StructField(OPERATION, t.StringType()),
    t.StructField(COMMIT_TIME, t.TimestampType()),
]
"""The columns that every history has in addition to the columns of the class."""

TRUNCATE: Final = "truncate"
"""The operation in the row that begins a load: this row empties the table."""
_BEFORE_ALL: Final = 0
"""The position in the row that begins a load. No change has this position, so the statistics of
files show which files contain rows that begin a load.
"""
LOADED: Final = "load"


class Load(NamedTuple):
    """A load in a history: its number, and the time at which it begins."""

    number: int
    begins: datetime


def loads_of(table: Target) -> list[Load]:
    """Return the loads of a history in order."""
    rows = [row for part in table.rows(POSITION, [_BEFORE_ALL]) for row in part.to_pylist()]
    numbers = sorted((row[LOAD], row[COMMIT_TIME]) for row in rows)
    begins = accumulate((time for _, time in numbers), max)
    return [Load(number, time) for (number, _), time in zip(numbers, begins, strict=True)]


# --- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class History:
    """The history of a copy. Each batch is written to the history first, while the copy still has
    the rows from before the batch.
    """

    source: ClassSource
    copy: Target

    @property
    def table(self) -> Target:
        """The table of the history."""
        return self.copy.sibling(SUFFIX)

    @property
    def content(self) -> str:
        """The description of the table's content."""
        return f"history of the {self.source.content}"

    def check(self, note: Note) -> None:
        """Raise CopyError if the history cannot apply the columns of a copy.

        ``note`` is the note of the copy.
        """
        own = {field.name for field in _OWN}
        if taken := sorted(name for name in note.declared if name.casefold() in own):
            raise CopyError(
                f"{self.source.class_name} has a column {taken[0]}, a name that every history "
                "uses. Start live_copy without history"
            )
        files = self.table.files()
        if files is None or files.note is None:  # the driver was killed after creating the table
            return
        if refused := refused_changes(note_of(files.note), note.key, note.declared):
            raise CopyError(
                f"the history of {self.source.class_name} cannot apply a change of columns: "
                f"{'; '.join(refused)}. Nothing was written. To go on, {FIX_WITH_HISTORY}"
            )

    def begin(self, query: str) -> None:
        """Bring the history to the state of the copy, as ``keep_step`` does, if the copy already
        has a batch of the query. The next batch would also bring the history to this state, but the
        batch comes only with new changes. Raises CopyError.
        """
        copy = self.copy.number_done(query, self.source.content)
        if copy is not None:
            self.keep_step(query, copy)

    def keep_step(self, query: str, copy: LastBatch) -> None:
        """Append the copy's rows as a load, unless the history already has the copy's load and last
        batch.

        ``copy`` is the last batch of the query in the copy. Raises CopyError.
        """
        table = self.table
        stored = table.number_done(query, self.content)
        if (
            stored is not None
            and stored.number >= copy.number
            and stored.note.loaded.encode() == copy.note.loaded.encode()
        ):
            return
        self.check(copy.note)
        number = 1
        if table.files() is not None:
            number += max((one.number for one in loads_of(table)), default=0)
        files = self.copy.files()
        assert files is not None
        columns = arrow_schema(_types_of(files.names, copy.note))
        schema = _with_own_columns(columns)
        own = {LOAD: number, BATCH: copy.number, COMMIT_TIME: self.source.moment()}
        recorded, _ = self.copy.done()  # read before the rows, which include at least these
        done = "" if recorded is None else recorded.encode()
        parts = in_schema(self.copy.rows(), columns)

        def rows() -> Batches:
            first = {**own, POSITION: _BEFORE_ALL, OPERATION: TRUNCATE}
            yield pa.RecordBatch.from_pylist([first], schema=schema)
            loaded = {**own, OPERATION: LOADED}
            for part in parts:
                same = [
                    pa.repeat(pa.scalar(loaded.get(one.name), one.type), len(part))
                    for one in _OWN_SCHEMA
                ]
                yield pa.RecordBatch.from_arrays([*same, *part.columns], schema=schema)

        behind = None if stored is None else stored.number
        batch, note = CopyBatch(query, copy.number, done), copy.note._replace(load=number)
        table.append(batch, self.content, schema, note, rows(), behind)

    def append(self, batch: CopyBatch, changes: Sequence[KeyedChange]) -> None:
        """Append one row per change of a batch, unless the history already has the batch.

        History and copy must both be in the state of the previous batch.
        """
        table = self.table
        stored = table.number_done(batch.query, self.content)
        if stored is None or stored.number >= batch.number or not changes:
            return
        columns = self.source.columns
        rows = self._rows(batch, stored.note.load, changes)
        schema = _with_own_columns(columns.schema)
        note = stored.note.after(columns)
        table.append(batch, self.content, schema, note, iter([rows.cast(schema)]), stored.number)

    def _rows(self, batch: CopyBatch, load: int, changes: Sequence[KeyedChange]) -> pa.RecordBatch:
        """Return the rows for changes in queue order."""
        columns = self.source.columns
        keys = stored_keys(columns, [one.key for one in changes])
        now = None
        if any(one.commit_time is None for one in changes):
            now = self.source.moment()
        state = self._before(changes, keys)
        rows: list[Values] = []
        for key, (_, change, operation, position, time) in zip(keys, changes, strict=True):
            values: Values = {}
            if change.is_gone:
                state.pop(key, None)
            else:
                known = {} if change.is_whole else state.get(key, {})
                values = state[key] = {**known, **change.values}
            own = {
                LOAD: load,
                BATCH: batch.number,
                POSITION: position,
                OPERATION: operation,
                COMMIT_TIME: now if time is None else time,
            }
            rows.append({**values, **dict(zip(columns.key, key, strict=True)), **own})
        types = t.StructType([*_OWN, *columns.types.fields])
        return pa.RecordBatch.from_struct_array(structs_of(rows, types, self.source.class_name))

    def _before(self, changes: Sequence[KeyedChange], keys: Sequence[Key]) -> dict[Key, Values]:
        """Return the copy's rows of the objects whose first change does not have the whole row."""
        columns = self.source.columns
        first = dict(zip(reversed(keys), reversed(changes), strict=True))
        wanted = {key for key, one in first.items() if not one.change.is_whole}
        if not wanted:
            return {}
        by = plain_column(columns)
        values = [] if by is None else list({key[columns.key.index(by)] for key in wanted})
        found: dict[Key, Values] = {}
        for before in self.copy.rows(by, values):
            # The copy may lack new columns of the class.
            schema = pa.schema([one for one in columns.schema if one.name in before.schema.names])
            part = next(in_schema(iter([before]), schema))
            there = zip(*(part.column(name).to_pylist() for name in columns.key), strict=True)
            is_wanted = pa.array([key in wanted for key in there], pa.bool_())
            for row in part.filter(is_wanted).to_pylist():
                found[tuple(row[name] for name in columns.key)] = row
        return found


_OWN_SCHEMA: Final = arrow_schema(t.StructType(_OWN))


def _with_own_columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*_OWN_SCHEMA, *schema])


def _types_of(names: Iterable[str], note: Note) -> t.StructType:
    """Return the columns of a table with the types that its note records, without the columns that
    every history has.
    """
    own = {field.name for field in _OWN}
    return t.StructType(
        [t.StructField(name, spark_type(note.declared[name])) for name in names if name not in own]
    )


# --- reading --------------------------------------------------------------------------------------

_FROM: Final = "_valid_from"
_TO: Final = "_valid_to"
_BEGINS: Final = "_load_begins"
_ENDS: Final = "_load_ends"


def history(
    spark: SparkSession,
    copy: Target,
    *,
    valid_from: str = "valid_from",
    valid_to: str = "valid_to",
) -> DataFrame:
    """Return the versions that the objects of a live copy have had, from its history as it is now.

    A version is a row of the class with the ``_operation`` and ``_position`` of the change that
    made it. ``valid_from`` and ``valid_to`` name the columns of the time of its validity; NULL =
    still valid. Raises ConfigError if the copy has no history, or if the class has a column with
    one of these names.
    """
    check_pandas()
    check_arguments("history", spark=(spark, SESSION), copy=(copy, COPY))
    read = _Reading.of(copy)
    for name in (valid_from, valid_to):
        if name.casefold() in {one.casefold() for one in read.types.names}:
            raise ConfigError(
                f"the class has a column {name}. Call history(..., valid_from=..., valid_to=...) "
                "with other names"
            )
    own = [F.col(OPERATION), F.col(POSITION)]
    times = [F.col(_FROM).alias(valid_from), F.col(_TO).alias(valid_to)]
    return read.versions(spark).select([*read.columns, *own, *times])


def as_of(spark: SparkSession, copy: Target, time: datetime) -> DataFrame:
    """Return the table of a live copy as it was at a time, from its history.

    ``time`` has a zone. For a time that the copy has not reached, the result is
    the newest state of the copy. Raises ConfigError if the copy has no history, or if the history
    begins later, or for a time without a zone.
    """
    check_pandas()
    check_arguments("as_of", spark=(spark, SESSION), copy=(copy, COPY), time=(time, TIME))
    read, moment = _Reading.of(copy), aware_utc(time)
    begins = read.loads[0].begins
    if moment < begins:
        raise ConfigError(
            f"the table as of {moment.isoformat()} is not known: its history begins at "
            f"{begins.isoformat()}"
        )
    then = F.lit(moment)
    is_valid = (F.col(_FROM) <= then) & (F.col(_TO).isNull() | (F.col(_TO) > then))
    return read.versions(spark).where(is_valid).select(read.columns)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The history as it is at the time of reading: its files, its loads, its key, and the columns
    of the class.
    """

    files: DeltaFiles | IcebergFiles
    loads: Sequence[Load]
    key: Sequence[str]
    types: t.StructType

    @classmethod
    def of(cls, copy: Target) -> _Reading:
        """Return the history of a copy. Raises ConfigError if the copy has no history."""
        table = copy.sibling(SUFFIX)
        files = table.files()
        loads = [] if files is None else loads_of(table)
        if files is None or not loads:
            raise ConfigError("the copy has no history. Start live_copy with history=True")
        note = note_of(files.note)
        return cls(files, loads, note.key, _types_of(files.names, note))

    @property
    def columns(self) -> list[Column]:
        """The columns of the class."""
        return [_column(name) for name in self.types.names]

    def versions(self, spark: SparkSession) -> DataFrame:
        """Return the versions, each with the times of its validity (spec/spark-changes.md 7). A
        version begins at the greatest commit_time of the object's rows up to its own row, since a
        clock may go back. The times of a version are within the times of its load.
        """
        rows = self._rows(spark).where(F.col(OPERATION) != TRUNCATE)
        ends = [one.begins for one in self.loads[1:]]
        loads = spark.createDataFrame(
            [(*one, end) for one, end in zip_longest(self.loads, ends)],
            f"{LOAD} bigint, {_BEGINS} timestamp, {_ENDS} timestamp",
        )
        of_object = Window.partitionBy(LOAD, *map(_column, self.key)).orderBy(BATCH, POSITION)
        up_to_it = of_object.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        latest = F.max(COMMIT_TIME).over(up_to_it)
        following = F.lead(_FROM).over(of_object)
        return (
            rows.join(F.broadcast(loads), LOAD)
            .withColumn(_FROM, F.least(F.greatest(latest, _BEGINS), _ENDS))
            .withColumn(_TO, F.coalesce(following, _ENDS))
            .where(F.col(OPERATION) != str(Operation.DELETE))
        )

    def _rows(self, spark: SparkSession) -> DataFrame:
        """Return all rows; the tasks that run at the same time share the files."""
        files, types = self.files, t.StructType([*_OWN, *self.types.fields])
        schema = arrow_schema(types)

        def read(parts: Batches) -> Batches:
            for part in parts:
                yield from in_schema(files.rows(part.column(0).to_pylist()), schema)

        return spark.range(files.count).mapInArrow(read, types)


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
