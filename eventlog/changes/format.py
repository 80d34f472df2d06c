"""What a change format is to the converter: a reader and a writer of Changes, and the report of a conversion.

Each format's package holds one ``FORMAT``; ``eventlog.convert`` knows them by name.
"""

from __future__ import annotations

import collections.abc
import difflib
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from eventlog.errors import ConfigError, EventlogError, FormatError, RowError
from eventlog.model import Change


@dataclass(slots=True)
class Report:
    """What a conversion did: changes ``read`` and ``written``, and ``counters`` by reason.

    A counter is named after its reason (``truncate_skipped``), one that concerns a column
    ``reason table.column`` (``truncated app.item.made_at``). ``strict``: the first thing that cannot be read or written
    stops it. ``problems``: messages of the first things passed over, ``PROBLEMS_KEPT`` at most.
    """

    read: int = 0
    written: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    strict: bool = False
    problems: list[str] = field(default_factory=list)

    def count(self, reason: str, number: int = 1) -> None:
        """Count something skipped, lost or odd under its reason."""
        self.counters[reason] += number

    def skip(self, error: EventlogError) -> None:
        """Go on without what ``error`` refuses, counted under its code and column; raises it if ``strict``."""
        if self.strict:
            raise error
        code = error.row_code if isinstance(error, RowError) else error.code
        column = error.column if isinstance(error, FormatError) else None
        self.count(code if column is None else f"{code} {column}")
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(str(error))


PROBLEMS_KEPT: Final = 100

Read = Callable[[str, Mapping[str, Any], Report], Iterator[Change]]
Write = Callable[[Iterable[Change], str, Mapping[str, Any], Report], None]


@dataclass(frozen=True, slots=True)
class Format:
    """One format. ``read`` gives the changes of a source (a path, or a URL where the format has live sources), with
    the reader's options of ``--map``; ``write`` puts changes to a target, whole or not at all where that is a file.
    Both raise FormatError naming what and where, and ConfigError for their options; what they can go on without they
    hand to ``Report.skip``. They count in the report what they skip and lose, and ``read`` the changes it gives,
    ``write`` those it has written.
    """

    name: str
    read: Read
    write: Write


Options = TypeVar("Options")


def parse_options(kind: type[Options], given: Mapping[str, Any], what: str) -> Options:
    """Options as the dataclass ``kind``, whose fields are their names. ``what`` says whose they are, for messages.

    Raises ConfigError for an unknown name, with the nearest known one, and for a value that is not of the type that
    ``kind`` gives its field; what else is legal ``kind`` checks itself.
    """
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"do you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"option {name!r} of {what} is not known: {hint}")
    try:
        options = kind(**given)
    except (TypeError, ValueError, AttributeError, LookupError):  # its own checks take the types for granted
        _check_types(kind, given, what)
        raise
    _check_types(kind, given, what)
    return options


def check_charset(charset: str) -> None:
    """Raise ConfigError for what is no name of a character set that Python knows; ``hex`` and the like are none."""
    try:
        "".encode(charset)
    except (LookupError, TypeError, ValueError):
        raise ConfigError(f"charset {charset!r} is unknown; use a name such as utf-8 or gb18030") from None


def _check_types(kind: type, given: Mapping[str, Any], what: str) -> None:
    hints = _hints(kind)
    for one in fields(kind):
        if one.name in given and not _is_of(given[one.name], hints[one.name]):
            value = _VALUES.repr(given[one.name]) if one.repr else "of another type"  # a secret may stand in it
            raise ConfigError(f"option {one.name!r} of {what} is {value}: {_words(hints[one.name])[0]} is needed")


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


_VALUES: Final = reprlib.Repr()
_VALUES.maxstring = _VALUES.maxother = 60

_PLAIN: Final = (str, bool, int, float, list, dict, NoneType)
"""What JSON and TOML give. Whatever else is given from Python, an object with methods, is checked by who uses it."""


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, all the way down; lists are taken for tuples, whole numbers for floats."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_is_of(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is collections.abc.Mapping:
        return isinstance(value, Mapping) and all(
            _is_of(name, parts[0]) and _is_of(part, parts[1]) for name, part in value.items()
        )
    if origin is collections.abc.Callable:
        return callable(value)
    if origin in (collections.abc.Sequence, tuple):
        if not isinstance(value, list | tuple):
            return False
        if origin is tuple and parts[-1] is not Ellipsis:
            return len(value) == len(parts) and all(map(_is_of, value, parts))
        return all(_is_of(part, parts[0]) for part in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint in _PLAIN:
        return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    return not isinstance(value, _PLAIN)


_WORDS: Final[Mapping[Any, tuple[str, str]]] = {
    str: ("a text", "texts"),
    bool: ("true or false", "truth values"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    NoneType: ("null", "nulls"),
    Any: ("any value", "values"),
}


def _words(hint: Any) -> tuple[str, str]:
    """What a type is called in a message, one of it and several; objects that only Python has are left out."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        named = [_words(part) for part in parts if part in _WORDS or get_origin(part) is not None]
        one, several = zip(*(word for word in named if word[0] != "null"), strict=True)
        return " or ".join(one), " or ".join(several)
    if origin is Literal:
        return (" | ".join(map(str, parts)),) * 2
    if origin is collections.abc.Mapping:
        inner = _words(parts[1])[1]
        return f"an object of {inner}", f"objects of {inner}"
    if origin is collections.abc.Callable:
        return "a function", "functions"
    if origin in (collections.abc.Sequence, tuple):
        inner = _words(parts[0])[1]
        size = f"{len(parts)} " if origin is tuple and parts[-1] is not Ellipsis else ""
        return f"a list of {size}{inner}", f"lists of {size}{inner}"
    return _WORDS[hint]
