"""What was compiled against what is installed: both as records, and what became of a table's columns in words."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from eventlog.sql.triggers.declared import TableTriggers

MARKER: Final = re.compile("-- eventlog sha256:([0-9a-f]{64}) log (.*)")
"""The comment in the text of our triggers: the hash of what was compiled, and the log that they write, as SQL."""

TableName = tuple[str, str]
"""Schema and table; the schema is empty if the database has none, or if it is the session's."""


@dataclass(frozen=True, slots=True)
class CompiledTrigger:
    """One trigger as SQL. ``digest``: the hash of ``statement``, which stands in it (``MARKER``)."""

    name: str
    operation: str
    statement: str
    digest: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """The triggers of one declaration on one table. ``schema``: the table's, None = the session's."""

    schema: str | None
    declared: TableTriggers
    triggers: tuple[CompiledTrigger, ...]

    @property
    def place(self) -> TableName:
        return self.schema or "", self.declared.table.name


@dataclass(frozen=True, slots=True)
class StoredTrigger:
    """A trigger as a database has it. ``text``: its SQL, empty if the database does not show it.

    ``type`` and ``event`` are when it fires, in the database's words, and ``follows`` schema and name of the triggers
    that it fires after, if the database tells.
    """

    schema: str
    name: str
    table: TableName
    text: str = ""
    is_enabled: bool = True
    is_valid: bool = True
    type: str = ""
    event: str = ""
    follows: frozenset[TableName] = frozenset()

    @property
    def digest(self) -> str | None:
        """The hash of what was compiled; None if it is none of ours, of whichever log."""
        marker = MARKER.search(self.text)
        return None if marker is None else marker[1]

    @property
    def log(self) -> str | None:
        """The log that it writes, as SQL; None if it is none of ours."""
        marker = MARKER.search(self.text)
        return None if marker is None else marker[2].rstrip()


@dataclass(frozen=True, slots=True)
class Installed:
    """All triggers, by table in the order of their names; those that write ``log`` (SQL) among them are ours."""

    triggers: Mapping[TableName, Sequence[StoredTrigger]]
    log: str

    def on(self, table: TableName) -> list[StoredTrigger]:
        """Ours on a table."""
        return [trigger for trigger in self.triggers.get(table, ()) if trigger.log == self.log]

    @property
    def ours(self) -> list[StoredTrigger]:
        """Ours, in the order of tables and names."""
        return [trigger for table in self.tables for trigger in self.on(table)]

    @property
    def tables(self) -> list[TableName]:
        """The tables that have triggers of ours."""
        return [table for table in sorted(self.triggers) if self.on(table)]

    @property
    def taken(self) -> frozenset[TableName]:
        """Schema and name of the triggers that are not ours."""
        others = (trigger for several in self.triggers.values() for trigger in several if trigger.log != self.log)
        return frozenset((trigger.schema, trigger.name) for trigger in others)


def behind_marker(text: str) -> str:
    """What is behind the marker of one of our triggers."""
    marker = MARKER.search(text)
    return "" if marker is None else text[marker.end() :].rstrip()


class _OfTable(Protocol):
    @property
    def place(self) -> TableName: ...


T = TypeVar("T", bound=_OfTable)


def by_table(compiled: Iterable[T]) -> list[list[T]]:
    """What is declared for each table, in the order of the first."""
    tables: defaultdict[TableName, list[T]] = defaultdict(list)
    for one in compiled:
        tables[one.place].append(one)
    return list(tables.values())


def sha256(text: str) -> str:
    """The hash of what was compiled."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(digests: Iterable[str]) -> str:
    """One hash of those of a table's triggers."""
    return sha256("\n".join(sorted(digests)))


# --- what became of columns -------------------------------------------------------------------------------------------

Columns = Mapping[str, str]
"""Column name -> its type as the database spells it, in the table's order."""


def _changes(before: Columns, now: Columns, new: str, unwatched: Iterable[str] = ()) -> tuple[str, ...]:
    """What became of the columns of one table, in words. ``new``: what is said of a column that was not there before.

    A column that is gone counts as renamed if one of its type has come in its place, behind the same column: a
    catalogue does not tell that from a column dropped and another one added.
    """
    lost = [name for name in before if name not in now]
    gained = [name for name in now if name not in before]
    renamed = []
    for old in tuple(lost):
        place = (before[old], _neighbour(old, before, now))
        name = next((name for name in gained if (now[name], _neighbour(name, now, before)) == place), None)
        if name is not None:
            renamed.append((old, name))
            lost.remove(old)
            gained.remove(name)
    retyped = [name for name in before if name in now and before[name] != now[name]]
    return (
        *(f"column {old} is called {name} now (or was dropped, and {name} added)" for old, name in renamed),
        *(f"column {name} is gone" for name in lost),
        *(f"column {name} is watched no longer" for name in unwatched),
        *(f"column {name} ({now[name]}) is {new}" for name in gained),
        *(f"column {name} is {now[name]} now, and was {before[name]}" for name in retyped),
    )


def _neighbour(name: str, columns: Columns, others: Columns) -> str | None:
    """The nearest column before this one that the others have too."""
    names = list(columns)
    return next((other for other in reversed(names[: names.index(name)]) if other in others), None)


def in_words(before: Columns, now: Columns) -> tuple[str, ...]:
    """What became of the columns that a publisher knows, each without its subject: ``column x (text) is new``."""
    return _changes(before, now, "new")


def declared_otherwise(before: Columns, now: Columns, present: Collection[str]) -> tuple[str, ...]:
    """Why triggers that were compiled for other columns, or for the same, are not as declared.

    ``before`` is empty if it is not known; ``present``: all columns of the table, watched or not.
    """
    unwatched = [name for name in before if name not in now and name in present]
    watched = {name: before[name] for name in before if name not in unwatched}
    words = _changes(watched, now if before else {}, "new to the watch, and not captured yet", unwatched)
    return words or ("the watch, its table or the templates have changed",)


def gone(before: Columns, present: Collection[str]) -> tuple[str, ...]:
    """The columns that triggers were compiled for and that the table has no more."""
    return tuple(name for name in before if name not in present)


def key_in_words(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """What became of a class's key, in words; empty if its columns are the same."""
    if tuple(before) == tuple(now):
        return ()
    names = (", ".join(now), ", ".join(before))
    return (f"the key is {names[0]} now, and was {names[1]}: rows that were logged by the old one become E",)
