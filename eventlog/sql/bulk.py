"""The log in parts, read by many sessions at once: what a bulk job needs of a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventlog.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


class Part(NamedTuple):
    """A range of record_ids, both ends within it, and about how many rows of the status asked for it holds."""

    first: int
    last: int
    rows: int


WORTH_IT: Final = 10_000
"""Rows below which it does not pay to divide a part."""


def cut(total: int, rows: int, at_least: int) -> int:
    """The size of equal parts of ``total`` rows: at most ``rows``, and small enough for ``at_least`` parts."""
    wanted = max(-(-total // rows), min(at_least, -(-total // WORTH_IT)))
    return -(-total // wanted)


def is_letter(status: str) -> bool:
    """Whether this can be the status of a row."""
    return len(status) == 1 and status.isascii() and status.isalpha()


def check_letter(status: str) -> str:
    """The status letter itself. Raises ConfigError if it is none."""
    if not is_letter(status):
        raise ConfigError(f"status {status!r} is no letter: use N, S, W, E or F")
    return status


def arrow_schema(fields: Sequence[str]) -> pa.Schema:
    """Fields of ``LogRow`` in Arrow: record_id and event_type int64, event_time timestamp[us], all others text."""
    import pyarrow as pa

    types = {"record_id": pa.int64(), "event_type": pa.int64(), "event_time": pa.timestamp("us")}
    return pa.schema([pa.field(name, types.get(name, pa.string())) for name in fields])


def arrow_batch(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Rows with these fields, event_time as text, as one Arrow batch."""
    import pyarrow as pa

    schema = arrow_schema(fields)
    columns = zip(*rows, strict=True)
    arrays = [_array(field, column) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    if field.name != "event_time":
        return pa.array(values, field.type)
    texts = [text if text is None or text[:1].isdigit() else None for text in values]  # infinity is no timestamp
    return pa.array(texts, pa.string()).cast(field.type)
