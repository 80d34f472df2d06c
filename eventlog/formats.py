"""What a change format is to the converter: a reader and a writer of Changes, and the report of a conversion.

Each format's package holds one ``FORMAT``; ``eventlog.convert`` knows them by name.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

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

    def pass_over(self, error: EventlogError) -> None:
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
    hand to ``Report.pass_over``. They count in the report what they skip and lose, and ``read`` the changes it gives,
    ``write`` those it has written.
    """

    name: str
    read: Read
    write: Write


Options = TypeVar("Options")


def parse_options(kind: type[Options], given: Mapping[str, Any], what: str) -> Options:
    """Options as the dataclass ``kind``, whose fields are their names. ``what`` says whose they are, for messages.

    Raises ConfigError for an unknown name, with the nearest known one; values are checked by ``kind`` itself.
    """
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"do you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"option {name!r} of {what} is not known: {hint}")
    return kind(**given)


def check_types(options: Any, what: str) -> None:
    """Raise ConfigError for an option whose value is not of the type of its default, as far as that is a truth value, a
    number or a text. ``what`` as in ``parse_options``.
    """
    for one in fields(options):
        value = getattr(options, one.name)
        if isinstance(one.default, bool | int | str) and type(value) is not type(one.default):
            kind = {bool: "true or false", int: "a whole number", str: "a text"}[type(one.default)]
            raise ConfigError(f"option {one.name!r} of {what} is {value!r}: {kind} is needed")
