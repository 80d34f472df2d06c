"""Whatever comes, the readers of Qlik's formats give changes or pass it over, and go on, in time
(formats/qlik.md).

Bytes are changed, cut and put in, members and columns replaced by values of other types. A case is
a record; a file has twenty. The number of a file that fails is its seed.
"""

from __future__ import annotations

import contextlib
import gzip
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import fuzzing
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzing import CASES, ODD, OF_A_FILE, damaged, dumped, read, replaced
from message_samples import BEFORE, COLUMNS, DATA, HEADERS, UPDATE, envelope, write

from eventlog.changes.format import Format
from eventlog.qlik.messages import message_format
from eventlog.qlik.messages.message_files import line_of
from eventlog.qlik.tables import change_table_format

TYPES = {
    "id": "INT4", "name": "STRING", "price": "NUMERIC", "made": "DATETIME", "day": "DATE",
    "at": "TIME", "raw": "BYTES", "weight": "REAL8", "sold": "BOOLEAN", "big": "UINT8",
    "doc": "CLOB",
}  # fmt: skip
ROW = {
    "id": "7",
    "name": 'nut, "M3"\nsteel',
    "price": "1.50",
    "made": "2024-01-02 03:04:05.006",
    "day": "2024-01-02",
    "at": "03:04:05",
    "raw": "00FF",
    "weight": "0.1",
    "sold": "true",
    "big": "18446744073709551615",
    "doc": "text",
}
TYPED: dict[str, Any] = {
    "item": {
        "columns": [{"name": name, "type": type} for name, type in TYPES.items()],
        "key": ["id", "name"],
    }
}


def run(
    cases: int,
    format: Format,
    path: Path,
    source: Path,
    case: Callable[[Random], bytes],
    options: list[dict[str, Any]],
) -> None:
    fuzzing.run(cases, path, case, lambda rnd: read(format, source, rnd.choice(options)))


# --- messages -------------------------------------------------------------------------------------

PLAIN = [
    dumped(envelope({"data": DATA, "beforeData": BEFORE, "headers": HEADERS})),
    dumped(
        {
            "data": DATA,
            "headers": {**HEADERS, "operation": "INSERT"},
            "schema": "app",
            "table": "item",
        }
    ),
]
DESCRIBED = [line_of(message).rstrip() for message in write([UPDATE, UPDATE], columns=COLUMNS)]
MESSAGE_OPTIONS: list[dict[str, Any]] = [
    {"schema": "app", "table": "item"},
    {"schema": "app", "table": "item", "columns": COLUMNS},
]


def json_messages(rnd: Random) -> bytes:
    good = [*PLAIN, *DESCRIBED]
    bad = [
        (replaced if rnd.random() < 0.7 else damaged)(rnd, rnd.choice(good))
        for _ in range(OF_A_FILE)
    ]
    return b"\n".join([*DESCRIBED, *bad, *PLAIN])


AVRO = [message for logical in (True, False)
        for message in write([UPDATE, UPDATE], encoding="avro", columns=COLUMNS,
        logical_types=logical)]  # fmt: skip


def avro_messages(rnd: Random) -> bytes:
    """Values are damaged inside, so that what is broken is Avro and not the line."""
    bad = []
    for _ in range(OF_A_FILE):
        message = rnd.choice(AVRO)
        start = (
            message.value.index(b"{") if b"{" in message.value and rnd.random() < 0.8 else 0
        )  # the schemas' text
        bad.append(
            message._replace(value=message.value[:start] + damaged(rnd, message.value[start:]))
        )
    return b"".join(line_of(message) for message in [*AVRO, *bad, *AVRO])


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize("case", [json_messages, avro_messages])
def test_no_message_stops_the_reader(
    tmp_path: Path, cases: int, case: Callable[[Random], bytes]
) -> None:
    path = tmp_path / "m.jsonl"
    run(cases, message_format.FORMAT, path, path, case, MESSAGE_OPTIONS)


# --- change tables --------------------------------------------------------------------------------


def rows() -> list[dict[str, Any]]:
    """Of each operation one, an update twice, as text."""
    made = []
    for number, letter in ((1, "I"), (3, "B"), (3, "U"), (4, "U"), (5, "D"), (6, "T")):
        header = {
            "header__change_seq": f"2024051012000000{number:019}", "header__change_oper": letter,
            "header__change_mask": "0600", "header__stream_position": "p:1",
            "header__transaction_id": "A1".zfill(32),
            "header__timestamp": "2024-05-10 12:00:00.000000",
        }  # fmt: skip
        made.append(header | (ROW if letter != "T" else dict.fromkeys(ROW)))
    return made


def csv_of(lines: list[list[Any]]) -> bytes:
    return "\n".join(
        ",".join("" if one is None else '"{}"'.format(str(one).replace('"', '""')) for one in line)
        for line in lines
    ).encode()


def csv_table(rnd: Random) -> bytes:
    lines = [list(row.values()) for row in rows() * 4]
    for line in lines[:OF_A_FILE]:
        line[rnd.randrange(len(line))] = dumped(rnd.choice(ODD)).decode().strip('"')
    content = csv_of([list(rows()[0]), *lines])
    return damaged(rnd, content) if rnd.random() < 0.5 else content


def gzip_table(rnd: Random) -> bytes:
    content = csv_table(rnd)
    return (
        gzip.compress(content, 1) if rnd.random() < 0.8 else damaged(rnd, gzip.compress(content, 1))
    )


def json_table(rnd: Random) -> bytes:
    lines = [dumped(row) for row in rows() * 4]
    for at in range(OF_A_FILE):
        lines[at] = (replaced if rnd.random() < 0.7 else damaged)(rnd, lines[at])
    return b"\n".join(lines)


def parquet_columns(rnd: Random, columns: dict[str, Any]) -> None:
    """Columns of other types, with values that Python does not have."""
    number = OF_A_FILE
    name = rnd.choice(list(columns))
    integers = pa.array(
        [rnd.choice((0, 1, -1, 2**31 - 1, -(2**31))) for _ in range(number)], pa.int32()
    )
    longs = pa.array([rnd.choice((0, 1, -1, 2**62, -(2**62))) for _ in range(number)], pa.int64())
    half = pa.StringArray.from_buffers(
        number,
        pa.py_buffer(struct.pack(f"<{number + 1}i", *range(number + 1))),
        pa.py_buffer(b"a\xff\x80b\xc3d" * 4),
    )
    unit = rnd.choice(("s", "ms", "us", "ns"))
    columns[name] = rnd.choice([
        integers, longs, half, integers.cast(pa.date32()), longs.view(pa.timestamp(unit)),
        longs.view(pa.timestamp(unit, "UTC")), longs.view(pa.duration(unit)),
        pa.array([None] * number), pa.array([float("nan"), float("inf"), 1e300, 0.0,
        None] * (number // 5)), pa.array([[1]] * number), pa.array([{"a": 1}] * number),
        pa.array([Decimal(10) ** 70] * number, pa.decimal256(76, 2)),
        pa.array([b"\xff\0"] * number), pa.array([True] * number), longs.view(pa.time64("us")),
    ])  # fmt: skip


def parquet_table(path: Path) -> Callable[[Random], bytes]:
    def case(rnd: Random) -> bytes:
        good = (rows() * 4)[:OF_A_FILE]
        columns: dict[str, Any] = {
            name: pa.array([row[name] for row in good], pa.string()) for name in good[0]
        }
        for _ in range(rnd.randrange(3)):
            parquet_columns(rnd, columns)
        with contextlib.suppress(pa.ArrowException):  # what Parquet does not hold
            pq.write_table(pa.table(columns), path, store_schema=rnd.random() < 0.5)
        return path.read_bytes() if path.exists() else b""

    return case


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.parametrize(
    ("name", "case"),
    [("item__ct.csv", csv_table), ("item__ct.csv.gz", gzip_table), ("item__ct.jsonl", json_table)],
)
def test_no_row_stops_the_reader(
    tmp_path: Path, cases: int, name: str, case: Callable[[Random], bytes]
) -> None:
    run(cases, change_table_format.FORMAT, tmp_path / name, tmp_path, case, [{}, {"tables": TYPED}])


@pytest.mark.parametrize("cases", CASES)
def test_no_row_of_parquet_stops_the_reader(tmp_path: Path, cases: int) -> None:
    path = tmp_path / "item__ct.parquet"
    run(
        cases,
        change_table_format.FORMAT,
        path,
        tmp_path,
        parquet_table(path),
        [{}, {"tables": TYPED}],
    )


def metadata_file(rnd: Random) -> bytes:
    columns = [
        {
            "ordinal": ordinal,
            "name": name,
            "type": TYPES.get(name, "STRING"),
            "primaryKeyPos": int(name == "id"),
        }
        for ordinal, name in enumerate(rows()[0], 1)
    ]
    return (replaced if rnd.random() < 0.7 else damaged)(
        rnd,
        dumped(
            {
                "dfmVersion": "1.1",
                "dataInfo": {"sourceTable": "item", "tableVersion": 1, "columns": columns},
            }
        ),
    )


@pytest.mark.parametrize("cases", CASES)
def test_metadata_next_to_the_data_never_stop_the_reader(tmp_path: Path, cases: int) -> None:
    (tmp_path / "item__ct.csv").write_bytes(
        csv_of([list(rows()[0]), *(list(row.values()) for row in rows())])
    )
    run(cases, change_table_format.FORMAT, tmp_path / "item__ct.dfm", tmp_path, metadata_file, [{}])


def test_the_good_cases_are_read_whole(tmp_path: Path) -> None:
    """What is damaged above is good before."""
    for name, content in (
        ("item__ct.csv", csv_of([list(rows()[0]), *(list(row.values()) for row in rows())])),
        ("item__ct.jsonl", b"\n".join(dumped(row) for row in rows())),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        assert read(change_table_format.FORMAT, path, {"tables": TYPED}) == 5
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"\n".join([*PLAIN, *DESCRIBED]))
    assert read(message_format.FORMAT, path, MESSAGE_OPTIONS[1]) == 4
