"""Lines of a file from outside: numbered, of a length that memory holds, UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from eventlog.errors import FormatError

LONGEST: Final = 256 << 20
"""Bytes of the longest line that is read."""


def numbered_lines(file: BinaryIO, name: object, longest: int = LONGEST) -> Iterator[tuple[int, bytes]]:
    """The lines of ``file`` with their numbers from 1 on, blank ones left out; ``name`` is for messages.

    Raises FormatError for a line of more than ``longest`` bytes, OSError with the name.
    """
    number = 0
    try:
        while line := file.readline(longest + 1):
            number += 1
            if len(line) > longest:
                raise FormatError(f"{name}, line {number}: longer than {longest} bytes; is this a file of lines?")
            if not line.isspace():
                yield number, line
    except OSError as error:
        error.filename = error.filename or str(name)
        raise


def text_of(line: bytes) -> str:
    """The text of a line without a byte order mark; surrogates stay, as we write them. Raises FormatError."""
    try:
        return line.decode("utf-8-sig", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FormatError(f"not UTF-8: byte {error.object[error.start]:02X} at {error.start}") from None
