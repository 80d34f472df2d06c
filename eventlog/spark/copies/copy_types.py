"""The columns of a live copy, and the rules that decide which changes of their types the copy takes
over (spec/spark-changes.md 6).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from eventlog.core.catalog import ObjectClass, row_of
from eventlog.core.ranges import RecordSet, decode
from eventlog.core.values import ColumnType, Kind, ValueOptions
from eventlog.core.values.typed_values import value_reader
from eventlog.errors import ConfigError
from eventlog.spark.changes.change_rows import spark_type
from eventlog.spark.session.arrow_types import arrow_schema
from eventlog.spark.session.in_tasks import Batches

ReadText = Callable[[str], Any]


class CopyError(ConfigError):
    """A table to which a live copy cannot be written."""

    code = "copy_refused"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a class's own table, and the readers of their texts.

    ``declared`` has the types of the database's catalogue, ``types`` has the Spark types.
    """

    types: t.StructType
    readers: Mapping[str, ReadText]
    key: tuple[str, ...]
    declared: Mapping[str, ColumnType]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the copy."""
        return arrow_schema(self.types)


def columns_of_class(object_class: ObjectClass, values: ValueOptions) -> Columns:
    """Return the columns of a class.

    ``values`` are the options with which the log's texts were made.
    """
    columns = row_of(object_class).columns
    return Columns(
        t.StructType([t.StructField(one.name, spark_type(one.type)) for one in columns]),
        {
            one.name: value_reader(one.type, values.time_zone, values.char_padding)
            for one in columns
        },
        tuple(column.name for column in object_class.key),
        {one.name: one.type for one in columns},
    )


class Note(NamedTuple):
    """What a copy records of its source, in the same commit as its rows."""

    key: tuple[str, ...]
    declared: Mapping[str, ColumnType]
    """The types, in the database's catalogue, with which the copy was last written, including
    columns that the class no longer has.
    """
    loaded: RecordSet
    """The rows of the log whose effect the last load contains."""
    load: int = 0
    """The number of the last load. A history counts the loads."""

    def as_text(self) -> str:
        """Return the note as the copy stores it."""
        types = {
            name: [str(one.kind), one.bits, one.sql] for name, one in sorted(self.declared.items())
        }
        return json.dumps(
            {"key": self.key, "types": types, "loaded": self.loaded.encode(), "load": self.load},
            separators=(",", ":"),
        )

    def after(self, columns: Columns) -> Note:
        """Return the note that the copy has when it has these columns."""
        return self._replace(key=columns.key, declared={**self.declared, **columns.declared})


def note_of(text: str | None) -> Note:
    """Return the note from its text. Raises CopyError for anything else."""
    try:
        stored = json.loads(text or "")
        declared = {
            name: ColumnType(Kind(kind), bits, sql)
            for name, (kind, bits, sql) in stored["types"].items()
        }
        return Note(tuple(stored["key"]), declared, decode(stored["loaded"]), stored.get("load", 0))
    except (ValueError, KeyError, TypeError) as error:
        raise CopyError(
            f"the copy has no readable record of its columns ({error}). Give live_copy another "
            "table, or remove this one"
        ) from None


def claimed_rows(done: str, note: str | None) -> RecordSet:
    """Return the rows of the log whose effect a copy contains: the rows that the stream had read at
    the last batch, and the rows that the last load contains (spec/verify.md 4.3).
    """
    rows = decode(done)
    rows.add(note_of(note).loaded.spans)
    return rows


# --- changes of types -----------------------------------------------------------------------------

_DIGITS: Final = {16: 5, 32: 10, 64: 19}
_SIZED: Final = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIME, Kind.BINARY})


def takes_over(old: ColumnType, new: ColumnType) -> bool:
    """Return True if each value of a column stays the same under its new type, and so does each
    text that was logged under the old type (spec/spark-changes.md 6).
    """
    if (old.kind, old.bits, old.sql) == (new.kind, new.bits, new.sql):
        return True
    match old.kind, new.kind:
        case Kind.INTEGER, Kind.INTEGER if new.bits:
            return 0 < old.bits <= new.bits
        case Kind.INTEGER, Kind.INTEGER:
            return (_DIGITS.get(old.bits) or (*old.sizes, 39)[0]) <= (*new.sizes, 38)[0]
        case Kind.INTEGER, Kind.EXACT:
            return isinstance(spark_type(new), t.DecimalType)
        case Kind.INTEGER, Kind.APPROXIMATE:
            return old.bits == 16 or (old.bits == 32 and new.bits == 64)
        case Kind.EXACT, Kind.EXACT:
            return bool(
                isinstance(spark_type(old), t.DecimalType)
                and isinstance(spark_type(new), t.DecimalType)
                and (*old.sizes, 0)[1] <= (*new.sizes, 0)[1]
            )
        case Kind.DATE, Kind.TIMESTAMP:
            return True
        case Kind.CHARACTER, Kind.CHARACTER:
            return not new.sizes or (bool(old.sizes) and old.sizes <= new.sizes)
        case kind, other if kind == other and kind in _SIZED:
            return bool(old.sizes) and bool(new.sizes) and old.sizes <= new.sizes
        case _:
            return False


def refused_changes(
    note: Note, key: tuple[str, ...], declared: Mapping[str, ColumnType]
) -> list[str]:
    """Return descriptions of the changes that a table cannot apply, in the key and in the columns,
    since the table was written.

    ``key`` is the present key of the class, ``declared`` has the types of its columns.
    """
    found = []
    if note.key != key:
        found.append(f"the key was {', '.join(note.key)} and is {', '.join(key)}")
    for name, new in declared.items():
        old = note.declared.get(name)
        if old is not None and not takes_over(old, new):
            found.append(f"column {name} was {_shown(old)} and is {_shown(new)}")
    return found


def _shown(column: ColumnType) -> str:
    return column.sql or str(column.kind)


def in_schema(batches: Batches, schema: pa.Schema) -> Batches:
    """Yield rows with the columns and types of a schema and unchanged values.

    Raises CopyError for a value that its new type cannot hold.
    """
    for batch in batches:
        arrays = []
        for field in schema:
            try:
                values = batch.column(field.name)
                if pa.types.is_integer(values.type) and pa.types.is_decimal(field.type):
                    # Otherwise Arrow needs digits for any integer.
                    values = pc.cast(values, pa.decimal128(19, 0))
                arrays.append(pc.cast(values, field.type, safe=True))
            except pa.ArrowException as error:
                raise CopyError(
                    f"column {field.name} of the copy has a value that {field.type} cannot hold "
                    f"({error}). To go on, {FIX}"
                ) from None
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


FIX: Final = (
    'give live_copy on_type_change="reload", which loads the class again into the same table in '
    "one commit, or a new checkpoint"
)
"""What to do if a copy cannot apply a change."""
FIX_WITH_HISTORY: Final = (
    "give live_copy another table and a new checkpoint; the old table and its history do not change"
)
"""What to do if a copy with a history cannot apply a change. The existing rows of the history have
no values of the new type.
"""
