"""Parquet files: no page, no repeated value and no schema takes more memory or time than its
bounds.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import hostile
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzing import damaged
from hostile import Border

from eventlog.files import tabular


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def repeated(value: object, times: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array([value]))


def nested(depth: int) -> pa.Array:
    type = pa.int32()
    for _ in range(depth):
        type = pa.struct([("a", type)])
    return pa.nulls(3, type)


def lying(size: int) -> bytes:
    """A file in whose footer a page of ``size`` bytes has one byte."""
    column = pa.array([bytes(size)])
    data = parquet({"a": column}, compression="zstd", use_dictionary=False, write_statistics=False)
    metadata = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0)
    zigzag, true = 2 * metadata.total_uncompressed_size, b""
    while zigzag >> 7:
        true, zigzag = true + bytes([zigzag & 127 | 128]), zigzag >> 7
    true += bytes([zigzag])
    assert true in data
    return data.replace(true, b"\x82" + b"\x80" * (len(true) - 2) + b"\0")


KNOWN: Final[dict[str, Callable[[], bytes]]] = {
    "a long text in each row": lambda: parquet({"a": repeated("x" * 900_000, 2000)}),
    "long binary values of a fixed length": lambda: parquet(
        {"a": pa.array([bytes(100_000)] * 5000, pa.binary(100_000))}
    ),
    "a page that expands": lambda: parquet({"a": pa.array([bytes(80 << 20)])}, compression="zstd"),
    "a page that is longer than in the footer": lambda: lying(80 << 20),
    "many columns": lambda: parquet({f"c{n}": pa.nulls(10_000, pa.int8()) for n in range(1000)}),
    "lists of a million": lambda: parquet({"a": pa.array([[None] * 1_000_000] * 20)}),
    "a deep type": lambda: parquet({"a": nested(90)}),
    "a type that is too deep for Arrow": lambda: parquet({"a": nested(1000)}),
}

GOOD: Final = [
    parquet(
        {
            "n": pa.array([1, None, 3]),
            "t": pa.array(["a", None, "a"]),
            "b": pa.array([b"\xff", b"", None]),
            "d": pa.array([1, 2, None], pa.decimal128(9, 3)),
            "w": pa.array([1, None, 2], pa.timestamp("us")),
        },
        compression=compression,
        data_page_version=version,
        use_dictionary=use_dictionary,
    )
    for compression in ("none", "snappy", "zstd", "gzip")
    for version in ("1.0", "2.0")
    for use_dictionary in (True, False)
]


def case(rnd: Random) -> bytes:
    good = rnd.choice(GOOD)
    return damaged(rnd, good) if rnd.random() < 0.9 else good


def read(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.parquet"
        path.write_bytes(data)
        _, rows = tabular.read_parquet(path)
        for _ in rows:
            pass


FILES: Final = Border(case, read, limit=320 << 20, factor=100, known=KNOWN, seconds=4)


def test_any_parquet_file_is_read_or_refused() -> None:
    hostile.generate(f"{__name__}.FILES")


@pytest.mark.parametrize("known", KNOWN)
def test_a_parquet_file_that_expands_is_read_or_refused_within_the_bounds(known: str) -> None:
    hostile.attack(f"{__name__}.FILES", known)


def test_values_are_the_same_in_each_way_of_storing_them(tmp_path: Path) -> None:
    found = []
    for number, good in enumerate(GOOD):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(good)
        found.append(repr([row for _, row in tabular.read_parquet(path)[1]]))
    assert found == found[:1] * len(GOOD)
    assert found[0].startswith("[[1, 'a', b'\\xff', Decimal('1.000')")
