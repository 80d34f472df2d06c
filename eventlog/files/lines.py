"""Lines of a file from outside: numbered, of a length that memory holds, UTF-8; JSON in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, BinaryIO, Final

from eventlog.errors import FormatError

LONGEST: Final = 256 << 20
"""Bytes of the longest line that is read."""

DEEPEST: Final = 100
"""Levels of the deepest JSON that is read: what goes through values level by level stays within Python's stack."""


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


def parsed_json(text: str | bytes) -> Any:
    """The value of JSON from outside, numbers with a point or an exponent as Decimal. Raises FormatError."""
    try:
        value = json.loads(text, parse_float=Decimal)
    except RecursionError:
        raise _too_deep() from None
    except (ValueError, ArithmeticError) as error:
        raise FormatError(f"no JSON: {error or type(error).__name__}") from None
    # Whoever nests opens brackets, and few do.
    opened = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if opened > DEEPEST and _is_deep(value):
        raise _too_deep()
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [one for several in inner for one in several if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def _too_deep() -> FormatError:
    return FormatError(f"no JSON that is read: it is nested in more than {DEEPEST} levels")


def goes_on(line: bytes | str) -> bool:
    """Whether the first line of a file begins a value of JSON that goes on behind it, as pretty-printed files do."""
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    return text.strip().lstrip("\ufeff").replace(" ", "") in ("{", "[", "[{")


def pretty_printed(place: object) -> FormatError:
    """The one error of such a file."""
    return FormatError(
        f"{place}: no JSON in one line: what begins here goes on over further lines, as in a file that is printed for "
        "people; make a line of each value: jq -c . FILE, of an array jq -c '.[]' FILE"
    )
