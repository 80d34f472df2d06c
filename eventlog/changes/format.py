"""What a change format is to the converter: a reader and a writer of Changes, and the report of a conversion.

Each format's package holds one ``FORMAT``; ``eventlog.conversion`` knows them by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from eventlog.changes.keys import Key, class_of
from eventlog.core.catalog import Catalog
from eventlog.core.options import ANY, Option, parse_all_options
from eventlog.core.typed import value_reader
from eventlog.errors import ConfigError, EventlogError, FormatError, RowError
from eventlog.model import Change


@dataclass(slots=True)
class Report:
    """What a conversion did: changes ``read`` and ``written``, and ``counters`` by reason.

    A counter is named after its reason (``truncate_skipped``), one that concerns a column
    ``reason table.column`` (``truncated app.item.made_at``). ``strict``: the first thing that cannot be read or written
    stops it. ``problems``: messages of the first things passed over with their codes, ``PROBLEMS_KEPT`` at most.
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
            self.problems.append(f"{error} [{code}]")


PROBLEMS_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class Format:
    """One format. ``reader_options``, ``writer_options``: the classes that declare its options.

    ``reader(source, *options, report)`` gives the changes of a source, a path, or a URL where the format has live
    sources; ``writer(changes, target, *options, report)`` puts changes to a target, whole or not at all where that is a
    file. Both raise FormatError naming what and where; what they can go on without they hand to ``Report.skip``. They
    count in the report what they skip and lose, ``writer`` also the changes that it has written.
    """

    name: str
    reader: Callable[..., Iterator[Change]]
    writer: Callable[..., None]
    reader_options: tuple[type, ...]
    writer_options: tuple[type, ...]

    def read(self, source: str, options: Mapping[str, Any], report: Report) -> Iterator[Change]:
        """The changes of a source, counted, with the reader's options of ``--map``. Raises ConfigError for these."""
        chosen = parse_all_options(self.reader_options, options, f"the {self.name} reader")
        return counted(self.reader(source, *chosen, report), report)

    def write(self, changes: Iterable[Change], target: str, options: Mapping[str, Any], report: Report) -> None:
        """Put changes to a target, with the writer's options of ``--map``. Raises ConfigError for these."""
        chosen = parse_all_options(self.writer_options, options, f"the {self.name} writer")
        self.writer(changes, target, *chosen, report)


def counted(changes: Iterable[Change], report: Report) -> Iterator[Change]:
    """Changes as they are read."""
    for change in changes:
        report.read += 1
        yield change


Written = TypeVar("Written")


def written(
    changes: Iterable[Change], write: Callable[[Change, str], Sequence[Written]], report: Report
) -> Iterator[Written]:
    """What ``write`` makes of each change and its id, one after the other; a change that it refuses is passed over.

    The id is the position of the change, or its number if it has none.
    """
    for number, change in enumerate(changes, 1):
        try:
            parts = write(change, str(number) if change.position is None else change.position)
        except FormatError as error:
            report.skip(error)
            continue
        if parts:
            report.written += 1
        else:
            report.count("changes_nothing")
        yield from parts


# --- an option that formats share -------------------------------------------------------------------------------------

EXISTING_KEYS: Final = Option(None, ANY, "keys that a TRUNCATE deletes, by table, or a function of the table")


def keys_of(option: Any, catalog: Catalog | None) -> Callable[[str], Iterable[Key] | None] | None:
    """The option ``existing_keys`` as a function of the table: as it is, or from a mapping of tables to their keys,
    each an object of key columns, in key order. Raises ConfigError.
    """
    if option is None:
        return None
    if callable(option):
        function: Callable[[str], Iterable[Key] | None] = option
        return function
    if not isinstance(option, Mapping):
        raise ConfigError('existing_keys is an object of tables to lists of keys: {"item": [{"id": 7}]}')
    return {table: _keys(table, keys, catalog) for table, keys in option.items()}.get


def _keys(table: str, keys: Any, catalog: Catalog | None) -> list[Key]:
    if not isinstance(keys, list | tuple):
        raise ConfigError(f'the keys of {table!r} in existing_keys are no list, such as [{{"id": 7}}]')
    return [_key(table, key, catalog) for key in keys]


def _key(table: str, key: Any, catalog: Catalog | None) -> Key:
    if not isinstance(key, Mapping):
        raise ConfigError(f'a key of {table!r} in existing_keys is no object of its columns, such as {{"id": 7}}')
    object_class = class_of(catalog, table)
    types = {} if object_class is None else {column.name: column.type for column in object_class.key}
    return tuple(
        (name, value_reader(types[name])(value) if isinstance(value, str) and name in types else value)
        for name, value in key.items()
    )
