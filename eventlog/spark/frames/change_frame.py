"""Changes as rows of a DataFrame (spec/change-model.md 1.2)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from eventlog.changes import json_form as change_json
from eventlog.changes.format import Report
from eventlog.conversion import in_own_options, read_options
from eventlog.core.arguments import NAME, OPTIONS, PATH_OR_URL, check_arguments
from eventlog.core.values.moments import aware_utc
from eventlog.model import Change
from eventlog.spark.frames.inputs import inputs
from eventlog.spark.frames.sorting import work_on
from eventlog.spark.session.arguments import SESSION, STRUCT, check_pandas
from eventlog.spark.session.arrow_rows import arrays_of, structs_of
from eventlog.spark.session.arrow_types import arrow_schema
from eventlog.spark.session.in_tasks import Batches, tune_collector

_TEXTS: Final = t.ArrayType(t.StringType())
_BATCH: Final = 1000

_TYPES: Final = {
    "changed": _TEXTS,
    "present": _TEXTS,
    "event_number": t.LongType(),
    "last_in_transaction": t.BooleanType(),
    "commit_time": t.TimestampType(),
}
"""The types of the columns that are not texts."""

SCHEMA: Final = t.StructType([
    t.StructField(name, _TYPES.get(name, t.StringType()))
    for name in (
        "schema", "table", "op", "key", "before", "after", "changed", "present", "position",
        "transaction_id", "event_number", "last_in_transaction", "commit_time", "user", "extras",
    )
])  # fmt: skip
"""The columns. ``key``, ``before``, ``after`` and ``extras`` are in the JSON form of
spec/change-model.md 1.1.
"""

_IMAGES: Final = ("before", "after")


def _schema_with(columns: t.StructType | None) -> t.StructType:
    """Return the columns of changes. With columns of the table, ``before`` and ``after`` are
    structs of these columns, and ``before_present`` and ``after_present`` list the columns that the
    image has.
    """
    if columns is None:
        return SCHEMA
    fields = [
        t.StructField(one.name, columns) if one.name in _IMAGES else one for one in SCHEMA.fields
    ]
    return t.StructType(fields + [t.StructField(f"{name}_present", _TEXTS) for name in _IMAGES])


def read_inputs(
    spark: SparkSession,
    format: str,
    source: str | Path,
    options: Mapping[str, Any] | None = None,
    *,
    columns: t.StructType | None = None,
    strict: bool = True,
    nulled: Accumulator[int] | None = None,
) -> DataFrame:
    """Return the changes of a file or of a directory of inputs. One task reads
    each input.

    ``options`` are the options of the format's reader, as in ``--options``. ``columns`` are the
    columns of the table, for structs in place of JSON; other columns of an image are left out. With
    ``strict`` an unreadable change fails the query, otherwise it is skipped. ``nulled`` counts
    values that become null because the types of a struct cannot hold them: special times
    (spec/xds.md 6.3), and NaN and infinity of decimals. Any other value that its type cannot hold
    unchanged fails the query. The rows of an input are in the order of the input. To order a
    whole source, sort by ``position`` (as a number if the source is an event log) and, where
    needed, by ``event_number``. Raises ConfigError; a query fails with FormatError.
    """
    check_pandas()
    check_arguments(
        "read_inputs",
        spark=(spark, SESSION),
        format=(format, NAME),
        source=(source, PATH_OR_URL),
        options=(options, OPTIONS),
        columns=(columns, STRUCT),
    )
    named = read_options({"reader": options or {}})["reader"]
    reader = in_own_options(format, "reader", named)
    frame, inputs_in = work_on(
        spark,
        inputs(format, str(source), reader),
        format,
        reader,
        strict=strict,
        catalog=named.get("catalog"),
    )
    schema = _schema_with(columns)

    def read(batches: Batches) -> Batches:
        tune_collector()
        for _, read_input in inputs_in(batches):
            yield from batches_of(read_input(Report(strict=strict)), columns, nulled)

    return frame.mapInArrow(read, schema)


def batches_of(
    changes: Iterable[Change],
    columns: t.StructType | None = None,
    nulled: Accumulator[int] | None = None,
) -> Batches:
    """Yield changes as batches (see ``batch_of``), a fixed number at a time."""
    rest = iter(changes)
    while several := list(islice(rest, _BATCH)):
        yield batch_of(several, columns, nulled)


def batch_of(
    changes: Sequence[Change],
    columns: t.StructType | None = None,
    nulled: Accumulator[int] | None = None,
) -> pa.RecordBatch:
    """Return changes as a batch of rows with the columns of ``_schema_with``. ``nulled`` is as in
    ``read_inputs``.

    Raises FormatError for a value that the type of its column cannot hold.
    """
    schema = arrow_schema(_schema_with(columns))
    objects = [change_json.to_json(change) for change in changes]
    data: dict[str, Any] = {name: [one.get(name) for one in objects] for name in SCHEMA.names}
    for name in ("key", *_IMAGES, "extras"):
        data[name] = [None if value is None else _text(value) for value in data[name]]
    data["present"] = [sorted(change.present) for change in changes]
    data["commit_time"] = [change.commit_time for change in changes]
    if columns is not None:
        for name in _IMAGES:
            images = [getattr(change, name) for change in changes]
            data[name] = structs_of(images, columns, changes[0].table, nulled)
            known = frozenset(columns.names)
            data[f"{name}_present"] = [
                None if image is None else sorted(known & image.keys()) for image in images
            ]
    return pa.RecordBatch.from_arrays(arrays_of(data, schema), schema=schema)


def change_of(row: Mapping[str, Any]) -> Change:
    """Return the change of a row, given as ``Row.asDict()`` in the JSON form. Raises
    FormatError.
    """
    members = dict(row)
    for name in ("key", *_IMAGES, "extras"):
        members[name] = None if row[name] is None else json.loads(row[name])
    moment: datetime | None = members.pop("commit_time")
    change = change_json.from_json(members)
    if moment is None:
        return change
    return change._replace(commit_time=aware_utc(moment))


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    has_surrogates = any("\ud800" <= character <= "\udfff" for character in text)
    return json.dumps(value) if has_surrogates else text  # Spark strings cannot hold surrogates
