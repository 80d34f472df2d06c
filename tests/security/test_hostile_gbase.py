"""Streams of GBase 8s: whatever the records say, the reader gives changes or an error within its
bounds.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Callable
from random import Random
from typing import Final

import hostile
import pytest
from fuzzing import damaged
from hostile import Border

from eventlog.changes.json_form import to_json
from eventlog.errors import ConfigError, FormatError
from eventlog.gbase import layout, records
from eventlog.gbase.options import ReadOptions
from eventlog.gbase.reader import StreamReader

_INTEGER: Final = b"\0\0\0\1"
_TYPES: Final = (
    "integer", "varchar(9,0)", "lvarchar(40)", "decimal(9,3)", "datetime day to fraction(2)", "char(3)",
    "float", "int8", "date", "boolean", "interval day(3) to second", "money", "nonsense", "char(", '"', "",
)  # fmt: skip


def table(label: int, columns: int = 1) -> bytes:
    text = ",".join(f"c{number} integer" for number in range(columns))
    return records.tab_schem(label, text, 4 * columns, columns, 0)


def begin(tx: int) -> bytes:
    return records.control(records.BEGINTX, tx + 1, tx, 0, 0)


def row(number: int, seq: int, tx: int = 0, label: int = 0) -> bytes:
    return records.row(number, seq, tx, label, (), _INTEGER, "little")


START: Final = table(0) + begin(0)
COMMIT: Final = records.control(records.COMMTX, 9, 0, 0)
DISCARD: Final = records.control(records.DISCARD, 99, 0)

KNOWN: Final[dict[str, Callable[[], bytes]]] = {
    "a text of blanks": lambda: records.tab_schem(0, "a" + " " * 900_000 + "x", 0, 1, 0),
    "a text of brackets": lambda: records.tab_schem(0, "a (" + "(" * 900_000, 0, 1, 0),
    "a table described before each row": lambda: (
        START + b"".join(table(0, 1 + n % 2) + row(records.UPDBEF, n) for n in range(0, 50_000, 2))
    ),
    "many open transactions": lambda: b"".join(map(begin, range(200_000))),
    "updates whose first half is in the file": lambda: (
        START + row(records.UPDBEF, 5) * 9000 + row(records.UPDAFT, 5) * 9000 + COMMIT
    ),
    "sequences that fall": lambda: (
        START + (row(records.INSERT, 5) + row(records.INSERT, 4)) * 9000 + DISCARD * 9000 + COMMIT
    ),
    "updates of many tables, and discards": lambda: (
        b"".join(map(table, range(3000)))
        + begin(0)
        + b"".join(row(records.UPDBEF, 5, 0, label) for label in range(3000))
        + DISCARD * 30_000
        + COMMIT
    ),
}


def case(rnd: Random) -> bytes:
    parts = [table(0), table(1, 3)]
    for _ in range(rnd.randrange(1, 30)):
        seq, tx, label = rnd.randrange(1, 60), rnd.randrange(3), rnd.randrange(3)
        match rnd.randrange(7):
            case 0:
                columns = ", ".join(f"c{n} {rnd.choice(_TYPES)}" for n in range(rnd.randrange(4)))
                counts = [rnd.randrange(4), rnd.randrange(3)]
                parts.append(records.tab_schem(label, columns, 0, *counts))
            case 1:
                parts.append(begin(tx))
            case 2:
                parts.append(records.control(records.COMMTX, seq, tx, rnd.choice((0, 7, -(2**62)))))
            case 3:
                parts.append(records.control(records.DISCARD, seq, tx))
            case 4:
                sizes = [rnd.randrange(9) for _ in range(rnd.randrange(3))]
                payload = rnd.randbytes(rnd.choice((4, 12, sum(sizes), 40)))
                number = rnd.choice(sorted(records.ROWS))
                parts.append(records.row(number, seq, tx, label, sizes, payload, "little"))
            case _:
                number = rnd.choice(sorted(records.ROWS))
                parts.append(row(number, seq, tx) * rnd.choice((1, 2, 300)))
    data = b"".join(parts)
    return damaged(rnd, data) if rnd.random() < 0.3 else data


def read(data: bytes) -> None:
    options = ReadOptions(max_open_bytes=1 << 16, max_record=1 << 20, duplicate_begin="replace")
    reader = StreamReader(options)
    with contextlib.closing(reader):
        for at in range(0, len(data), 1 << 16):
            for change in reader.feed(data[at : at + (1 << 16)]):
                json.dumps(to_json(change))
        reader.finish()


STREAM: Final = Border(case, read, limit=320 << 20, factor=4, known=KNOWN, seconds=4)


def test_any_stream_gives_changes_or_an_error() -> None:
    hostile.generate(f"{__name__}.STREAM")


@pytest.mark.parametrize("known", KNOWN)
def test_no_stream_takes_more_memory_or_time_than_its_bounds(known: str) -> None:
    hostile.attack(f"{__name__}.STREAM", known)


def test_the_columns_of_all_descriptions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MOST_COLUMNS", 100)
    reader = StreamReader()
    list(reader.feed(table(0, 40) + table(1, 40)))
    with pytest.raises(FormatError, match="label 2 describe more than 100 columns"):
        list(reader.feed(table(2, 40)))


def test_transactions_that_find_no_room_for_files_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(**_: object) -> object:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    reader = StreamReader(ReadOptions(max_open_bytes=1000))
    with pytest.raises(ConfigError, match="temporary files: Too many open files; raise max_open"):
        list(reader.feed(START + row(records.INSERT, 5) * 9))


def test_records_that_describe_a_table_again_are_kept_once() -> None:
    reader = StreamReader()
    list(reader.feed(table(0)))
    first = reader.layouts[0]
    list(reader.feed(table(0) * 60_000))
    assert reader.layouts[0] is first
