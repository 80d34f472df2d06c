"""What a change format is to the converter: a reader and a writer of Changes, and the report of a conversion.

Each format's package holds one ``FORMAT``; ``eventlog.convert`` knows them by name.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from eventlog.errors import ConfigError
from eventlog.model import Change


@dataclass(slots=True)
class Report:
    """What a conversion did: changes ``read`` and ``written``, and ``counters`` by reason.

    A counter is named after its reason (``truncate_skipped``), one that concerns a column
    ``reason table.column`` (``truncated app.item.made_at``).
    """

    read: int = 0
    written: int = 0
    counters: Counter[str] = field(default_factory=Counter)

    def count(self, reason: str, number: int = 1) -> None:
        """Count something skipped, lost or odd under its reason."""
        self.counters[reason] += number


Read = Callable[[str, Mapping[str, Any], Report], Iterator[Change]]
Write = Callable[[Iterable[Change], str, Mapping[str, Any], Report], None]


@dataclass(frozen=True, slots=True)
class Format:
    """One format. ``read`` gives the changes of a source (a path, or a URL where the format has live sources), with
    the reader's options of ``--map``; ``write`` puts changes to a target, whole or not at all where that is a file.
    Both raise FormatError naming what and where, and ConfigError for their options; they count in the report what they
    skip and lose, and ``read`` the changes it gives, ``write`` those it has written.
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
