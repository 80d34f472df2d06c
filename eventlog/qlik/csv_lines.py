"""CSV that keeps NULL and empty text apart: NULL is nothing between the commas, text that needs it, ``""``, is quoted.

Otherwise RFC 4180; line breaks are LF on write, LF or CR LF on read. ``csv`` of Python 3.11 can tell neither apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from eventlog.errors import FormatError

Line = list[str | None]

_QUOTED: Final = re.compile('[",\r\n]|^\\s|\\s$')
_FIELD: Final = re.compile(r'(?:"((?:[^"]++|"")*+)"|([^",]*+))(,|\Z)')


def write_line(values: Sequence[str | None]) -> str:
    """One record with its line break."""
    return ",".join(map(_field, values)) + "\n"


def _field(value: str | None) -> str:
    if value is None:
        return ""
    if not value or _QUOTED.search(value):
        return '"' + value.replace('"', '""') + '"'
    return value


def read_lines(file: TextIO, name: str) -> Iterator[Line | FormatError]:
    """The records of a file that was opened with ``newline=""``, or why there is none; ``name`` is for messages."""
    lines: list[str] = []
    is_quoted = False
    for number, line in enumerate(file, 1):
        lines.append(line)
        is_quoted ^= line.count('"') % 2 == 1
        if is_quoted:  # a line break within quotes
            continue
        record = (line if len(lines) == 1 else "".join(lines)).removesuffix("\n").removesuffix("\r")
        if record:
            yield _record(record, f"{name} line {number}")
        lines.clear()
    if lines:
        yield FormatError(f"{name} ends within quotes; the file is not whole")


def _record(text: str, where: str) -> Line | FormatError:
    values: Line = []
    place = 0
    while True:
        match = _FIELD.match(text, place)
        if match is None:
            return FormatError(f"{where} is no CSV: quotes are not closed, or text stands beside them")
        quoted, bare, end = match.groups()
        values.append(quoted.replace('""', '"') if quoted is not None else bare or None)
        if not end:
            return values
        place = match.end()
