"""What a change format is to the converter: a reader and a writer of Changes, and the report of a conversion.

Each format's package holds one ``FORMAT``; ``eventlog.convert`` knows them by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from eventlog.errors import EventlogError, FormatError, RowError
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
