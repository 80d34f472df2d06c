"""Text in files from outside: numbered lines of bounded length, and the JSON in them; and
spools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, TypeVar

from eventlog.core.values.json_bytes import json_value
from eventlog.errors import ConfigError, FormatError, with_location

LONGEST: Final = 256 << 20
"""The number of bytes of the longest line that is read."""

DEEPEST: Final = 100
"""The depth of the deepest JSON that is read.

The limit keeps recursive functions within Python's stack.
"""


def numbered_lines(
    file: BinaryIO, name: object, longest: int = LONGEST
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of ``file`` that are not blank, with their numbers from 1 on; ``name`` is for
    messages.

    Raises FormatError for a line of more than ``longest`` bytes, and OSError, which names the file.
    """
    number = 0
    try:
        while line := file.readline(longest + 1):
            number += 1
            if len(line) > longest:
                hint = ", or decompress it" if longest < LONGEST else ""
                raise FormatError(
                    f"{name}, line {number}: longer than {longest} bytes; check that this is a "
                    f"file of lines{hint}"
                )
            if not line.isspace():
                yield number, line
    except OSError as error:
        error.filename = error.filename or str(name)
        raise


def read_on(file: BinaryIO, begun: bytes | bytearray, longest: int = LONGEST) -> bytes:
    """Return what has been read of a file and the rest of it, but not much more than ``longest``
    bytes. A single read would take memory for all of them before.
    """
    content = bytearray(begun)
    while len(content) <= longest and (more := file.read(1 << 20)):
        content += more
    return bytes(content)


def text_of(line: bytes) -> str:
    """Return the text of a line without a byte order mark; surrogates stay, as we write them.

    Raises FormatError.
    """
    try:
        return line.decode("utf-8-sig", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"not UTF-8: byte {error.object[error.start]:02X} at {error.start}"
        ) from None


def parsed_json(text: str | bytes) -> Any:
    """Return the value of JSON from outside; numbers with a point or an exponent, and numbers with
    more digits than Python converts to an int, are Decimal.

    Raises FormatError.
    """
    try:
        value = json_value(text, Decimal)
    except RecursionError:
        raise _too_deep() from None
    except (ValueError, ArithmeticError) as error:
        raise FormatError(f"not JSON: {error or type(error).__name__}") from None
    # Deep JSON has many opening brackets, so most texts pass without inspecting the value.
    opened = (
        text.count("[") + text.count("{")
        if isinstance(text, str)
        else text.count(b"[") + text.count(b"{")
    )
    if opened > DEEPEST and _is_deep(value):
        raise _too_deep()
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        inner = [
            one.values() if isinstance(one, dict) else one
            for one in level
            if isinstance(one, dict | list)
        ]
        level = [one for several in inner for one in several if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def _too_deep() -> FormatError:
    return FormatError(
        f"not JSON that can be read: it is nested in more than {DEEPEST} levels; flatten it"
    )


def continues(line: bytes | str) -> bool:
    """Return True if the first line of a file begins a JSON value that continues on the next line,
    as in pretty-printed files.
    """
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    return text.strip().lstrip("\ufeff").replace(" ", "") in ("{", "[", "[{")


def pretty_printed(place: object) -> FormatError:
    """Return the error of a pretty-printed file."""
    return FormatError(
        f"{place}: not JSON on one line: the value that begins here continues on further lines, as "
        "in a pretty-printed file. Write one value per line: jq -c . FILE, or for an array "
        "jq -c '.[]' FILE"
    )


_NUMBER: Final = re.compile("([0-9]+)")


def order_of(name: str) -> tuple[tuple[str | int, ...], str]:
    """Return the sort key of a file's name: 9 comes before 10, and no two names are equal."""
    return tuple(
        int(part) if index % 2 else part for index, part in enumerate(_NUMBER.split(name))
    ), name


def files_in(directory: Path, suffixes: Collection[str] | None = None) -> list[Path]:
    """Return the files of a directory in their order; ``suffixes`` (lower-case, None = all) selects
    the files.

    Files whose names begin with ``_`` or ``.`` are left out: they belong to the program that wrote
    the directory. Raises OSError.
    """
    files = (
        one
        for one in directory.iterdir()
        if one.is_file()
        and not one.name.startswith(("_", "."))
        and (suffixes is None or one.suffix.lower() in suffixes)
    )
    return sorted(files, key=lambda file: order_of(file.name))


T = TypeVar("T")


def source_files(source: Path, what: str, suffixes: Collection[str] | None = None) -> list[Path]:
    """Return the files of a source, at least one: the source itself if it is a file, or the files
    of the directory as ``files_in`` returns them.

    ``what`` is the expected content, for messages. Raises FormatError for an empty directory,
    ConfigError for a directory without a file of these suffixes; OSError.
    """
    if not source.is_dir():
        return [source]
    files = files_in(source, suffixes)
    if not files:
        kind = FormatError if suffixes is None else ConfigError
        raise kind(f"the directory {source} contains no {what}")
    return files


Refuse: TypeAlias = Callable[[FormatError], None]
"""A function that records the error of input that cannot be read. The function may raise this
error.
"""


def parsed_lines(
    source: Path, what: str, parse: Callable[[bytes], T], refuse: Refuse
) -> Iterator[tuple[str, T]]:
    """Yield the result of ``parse`` for each line of a file, or of a directory's files, with the
    place of the line.

    A FormatError of ``parse`` goes to ``refuse`` with the place of the line; the error of a
    pretty-printed file also goes to ``refuse``. ``what`` is as in ``source_files``. Raises
    FormatError for a file that cannot be read.
    """
    try:
        for file in source_files(source, what):
            with file.open("rb") as lines:
                for number, line in numbered_lines(lines, file):
                    place = f"{file}, line {number}"
                    try:
                        parsed = parse(line)
                    except FormatError as error:
                        if number == 1 and continues(line):
                            refuse(pretty_printed(place))
                            break
                        refuse(with_location(error, place))
                    else:
                        yield place, parsed
    except OSError as error:
        raise FormatError(f"{source} cannot be read: {error.strerror}") from error


# --- spools ---------------------------------------------------------------------------------------

_TOGETHER: Final = 500
_BYTES_IN_MEMORY: Final = 16 << 20


@contextmanager
def spooled(things: Iterable[T]) -> Iterator[Callable[[], Iterator[T]]]:
    """Read all items at the start of the block, and yield a function that returns them again, from
    the first item on.

    Memory is bounded: further items go to a file. Only one caller may read the items at a time. The
    items must be picklable.
    """
    # Few callers need these modules, and the configuration loads this one.
    import pickle
    import tempfile

    with tempfile.SpooledTemporaryFile(_BYTES_IN_MEMORY, prefix="eventlog-") as file:
        left = iter(things)
        while several := list(islice(left, _TOGETHER)):
            pickle.dump(several, file, pickle.HIGHEST_PROTOCOL)

        def again() -> Iterator[T]:
            file.seek(0)
            while True:
                try:
                    several = pickle.load(file)  # noqa: S301 - a file without a name, written above
                except EOFError:
                    return
                yield from several

        yield again
