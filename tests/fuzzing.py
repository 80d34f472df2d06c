"""Damage for the tests of readers: bytes that are changed, cut and put in, values replaced by
others of any type.

A case is a record; a file has ``OF_A_FILE`` of them, and its number is the seed it was made by.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from time import process_time
from typing import Any, Final

import pytest

from eventlog.changes.format import Format, Report
from eventlog.changes.json_form import to_json
from eventlog.errors import EventlogError

CASES: Final = [
    pytest.param(250, id="quick"),
    pytest.param(1_000_000, id="long", marks=[pytest.mark.night, pytest.mark.timeout(7200)]),
]
OF_A_FILE: Final = 20
_LONGEST: Final = 2.0
"""Seconds of the processor that a file may take: what is small is read at once."""

_RAW: Final = [
    "1e99999", "-1e9999999", "1e-9999999", "Infinity", "-Infinity", "NaN", "-0", "9" * 5000,
    "[" * 99 + "]" * 99, "[" * 3000 + "]" * 3000, '{"a":' * 150 + "1" + "}" * 150,
    "1e99999999999999999999", "0e999999",
]  # fmt: skip
ODD: Final[list[Any]] = [
    None,
    True,
    False,
    0,
    -1,
    7,
    2**31,
    2**63,
    2**64,
    10**40,
    1.5,
    -0.0,
    "",
    " ",
    "x",
    "\ud800",
    "\0",
    "0",
    "-1",
    "1" * 50,
    "1e300000000",
    "Infinity",
    "NaN",
    "FF",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31 23:59:59-14:00",
    "2024-13-01",
    "99:99",
    "INSERT",
    "UPDATE",
    "DELETE",
    "TRUNCATE",
    "REFRESH",
    "id=1",
    "id=\ud800",
    "\ud800=1",
    "id=1+",
    "item",
    "a.b",
    [],
    {},
    [[]],
    [1],
    ["x"],
    [["id", 1]],
    [["id", []]],
    {"a": 1},
    "MD",
    "DT",
    "atMSG",
    "U",
    "B",
    "D",
    "T",
    "0x",
    768,
    "{}",
    '{"type":"record"}',
    '"null"',
    {"id": {"hex": "00"}},
    {"hex": "00"},
    {"hex": 7},
    *(f"RAW{number}" for number in range(len(_RAW))),
]
_BYTES: Final = (
    b'"',
    b"\n",
    b",",
    b"{",
    b"[",
    b"\\u",
    b"\\ud800",
    b"\xff",
    b"\xed\xa0\x80",
    b"9" * 30,
    b"1e",
    b"\0",
)
_XML: Final = (
    b"<",
    b"&",
    b"]]>",
    b"<!--",
    b"<a/>",
    b"<value/>",
    b"&#x0;",
    b"<!DOCTYPE a>",
    b' type="int"',
    b"</nds>",
)


def dumped(value: Any) -> bytes:
    """JSON of a value, with numbers and nesting that ``json`` does not write by itself."""
    text = json.dumps(value)
    for number, raw in enumerate(_RAW):
        text = text.replace(f'"RAW{number}"', raw)
    return text.encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where a value can be replaced: container and key."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def changed(rnd: Random, value: Any) -> Any:
    """A JSON value, itself changed: members of other types, left out and renamed."""

    def odd() -> Any:
        return copy.deepcopy(rnd.choice(ODD))

    for _ in range(rnd.randrange(1, 4)):
        places = list(_places(value))
        if not places:
            return odd()
        container, key = rnd.choice(places)
        match rnd.randrange(8):
            case 0 if isinstance(container, dict):
                del container[key]
            case 1 if isinstance(container, dict):
                container[str(odd())] = container.pop(key)
            case _:
                container[key] = odd()
    return value


def replaced(rnd: Random, line: bytes) -> bytes:
    """A line of JSON, ``changed``."""
    return dumped(changed(rnd, json.loads(line)))


def damaged(rnd: Random, content: bytes) -> bytes:
    """Bytes that are changed, left out, put in, doubled; sometimes the end is missing."""
    data = bytearray(content)
    put = _BYTES + _XML if b"<" in content else _BYTES
    for _ in range(rnd.randrange(1, 5)):
        at, length = rnd.randrange(len(data) + 1), rnd.choice((1, 1, 2, 9))
        match rnd.randrange(5):
            case 0:
                data[at : at + length] = rnd.randbytes(length)
            case 1:
                data[at : at + rnd.choice((0, length))] = rnd.choice(put)
            case 2:
                del data[at : at + length]
            case 3 if at < len(data):
                data[at] ^= 1 << rnd.randrange(8)
            case _:
                data[at:at] = data[at : at + length * 5]
    return bytes(data[: rnd.randrange(len(data) + 1)] if rnd.random() < 0.1 else data)


def lines_of(rnd: Random, good: Callable[[int], bytes]) -> bytes:
    """A file of good lines, numbered, of which every second is damaged or holds other types."""
    lines = [good(number) for number in range(1, 2 * OF_A_FILE + 1)]
    for place in range(1, 2 * OF_A_FILE, 2):
        lines[place] = (replaced if rnd.random() < 0.7 else damaged)(rnd, lines[place])
    return b"\n".join(lines)


def read(format: Format, source: Path, options: dict[str, Any]) -> int:
    """How many changes a reader gives before it refuses what is left; each has its JSON form."""
    number = 0
    with contextlib.suppress(EventlogError):
        for change in format.read(str(source), options, Report()):
            json.dumps(to_json(change))
            number += 1
    return number


def run(
    cases: int,
    path: Path,
    case: Callable[[Random], bytes],
    reading: Callable[[Random], int],
    least: float = 0.1,
) -> None:
    """Write files that ``case`` makes and read them by ``reading``: it ends in time, and gives
    ``least`` changes a record on the average, since what is good is read, whatever stands beside
    it.
    """
    given = 0
    for seed in range(cases // OF_A_FILE):
        content = case(Random(seed))
        path.write_bytes(content)
        begun = process_time()
        try:
            given += reading(Random(seed))
        except Exception as error:
            raise AssertionError(f"file {seed}: {content[:3000]!r}") from error
        assert process_time() - begun < _LONGEST, f"file {seed}: {content[:3000]!r}"
    assert given >= cases * least
