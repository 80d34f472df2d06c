"""Compressed files of rows: no line and no file that expands takes more memory or time than its
bounds.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import hostile
import pyarrow
import pytest
from fuzzing import ODD, damaged, dumped
from hostile import Border

from eventlog.files import tabular

KINDS: Final = ("csv.gz", "jsonl.gz", "csv.zst", "jsonl.zst")


def packed(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + compressed(kind, content)


def compressed(kind: int, content: bytes) -> bytes:
    if kind < 2:
        return gzip.compress(content, 1, mtime=0)
    return bytes(pyarrow.Codec("zstd").compress(content, asbytes=True))


def repeated(kind: int, head: bytes, block: bytes, times: int) -> bytes:
    """``head``, and then a block of a megabyte many times: compressed once, written many times."""
    block *= (1 << 20) // len(block)
    return packed(kind, head) + compressed(kind, block) * times


KNOWN: Final[dict[str, Callable[[], bytes]]] = {
    "one line of 255 MB": lambda: repeated(1, b'{"a":"', b"x", 255),
    "one line of 255 MB in zstd": lambda: repeated(3, b'{"a":"', b"x", 255),
    "one line of empty objects": lambda: packed(1, b'{"a":[' + b"{}," * 1_000_000 + b"{}]}\n"),
    "one CSV record of quotes": lambda: repeated(0, b'a\n"', b'""', 255),
    "many blank lines": lambda: repeated(3, b"a\n", b"\n", 300),
    "other members in each line": lambda: packed(
        1, b"".join(b'{"a%d":1}\n' % number for number in range(20_000))
    ),
}


def case(rnd: Random) -> bytes:
    kind = rnd.randrange(4)
    if kind % 2:
        lines = [dumped({"a": rnd.choice(ODD), rnd.choice("ab"): rnd.choice(ODD)}) for _ in "12345"]
    else:
        lines = [b"a,b", *(json.dumps(str(rnd.choice(ODD))).encode() + b"," for _ in "12345")]
    content = b"\n".join(lines)
    match rnd.randrange(4):
        case 0:
            content = damaged(rnd, content)
        case 1:
            at = rnd.randrange(len(content))
            times = rnd.choice((1 << 10, 1 << 16, 9 << 20))
            content = (
                content[:at] + rnd.choice((b"[", b" ", b'"', b"\n", b"a")) * times + content[at:]
            )
    data = packed(kind, content)
    return data[:1] + damaged(rnd, data[1:]) if rnd.random() < 0.3 else data


def read(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"rows.{KINDS[data[0]]}"
        path.write_bytes(data[1:])
        _, rows = tabular.read_rows(path)
        for _ in rows:
            pass


FILES: Final = Border(case, read, limit=448 << 20, factor=8, known=KNOWN, seconds=5)


def test_any_compressed_file_is_read_or_refused() -> None:
    hostile.generate(f"{__name__}.FILES")


@pytest.mark.parametrize("known", KNOWN)
def test_an_expanding_file_is_refused_within_the_bounds(known: str) -> None:
    hostile.attack(f"{__name__}.FILES", known)
