"""What became of a table's columns, in words: what was known of them against what is there now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

Columns = Mapping[str, str]
"""Column name -> its type as the database spells it, in the table's order."""


class Differences(NamedTuple):
    """What became of columns. ``renamed``: old and new name, a guess; ``retyped``: name, old and new type."""

    gained: tuple[str, ...]
    lost: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    retyped: tuple[tuple[str, str, str], ...]


def differences(before: Columns, now: Columns) -> Differences:
    """What became of the columns of one table.

    A column that is gone counts as renamed if one of its type has come in its place, behind the same column: a
    catalogue does not tell that from a column dropped and another one added.
    """
    lost = [name for name in before if name not in now]
    gained = [name for name in now if name not in before]
    renamed = []
    for old in tuple(lost):
        place = (before[old], _neighbour(old, before, now))
        new = next((name for name in gained if (now[name], _neighbour(name, now, before)) == place), None)
        if new is not None:
            renamed.append((old, new))
            lost.remove(old)
            gained.remove(new)
    retyped = [(name, before[name], now[name]) for name in before if name in now and before[name] != now[name]]
    return Differences(tuple(gained), tuple(lost), tuple(renamed), tuple(retyped))


def _neighbour(name: str, columns: Columns, others: Columns) -> str | None:
    """The nearest column before this one that the others have too."""
    names = list(columns)
    return next((other for other in reversed(names[: names.index(name)]) if other in others), None)


def in_words(before: Columns, now: Columns) -> tuple[str, ...]:
    """What became of the columns that a publisher knows, each without its subject: ``column x (text) is new``."""
    found = differences(before, now)
    return (
        *map(_renamed, found.renamed),
        *(f"column {name} is gone" for name in found.lost),
        *(f"column {name} ({now[name]}) is new" for name in found.gained),
        *map(_retyped, found.retyped),
    )


def declared_otherwise(before: Columns, now: Columns, present: Collection[str]) -> tuple[str, ...]:
    """Why triggers that were compiled for other columns, or for the same, are not as declared.

    ``before`` is empty if it is not known; ``present``: all columns of the table, watched or not.
    """
    unwatched = [name for name in before if name not in now and name in present]
    found = differences({name: before[name] for name in before if name not in unwatched}, now if before else {})
    words = (
        *map(_renamed, found.renamed),
        *(f"column {name} is gone" for name in found.lost),
        *(f"column {name} is watched no longer" for name in unwatched),
        *(f"column {name} ({now[name]}) is new to the watch, and not captured yet" for name in found.gained),
        *map(_retyped, found.retyped),
    )
    return words or ("the watch, its table or the templates have changed",)


def gone(before: Columns, present: Collection[str]) -> tuple[str, ...]:
    """The columns that triggers were compiled for and that the table has no more."""
    return tuple(name for name in before if name not in present)


def _renamed(names: tuple[str, str]) -> str:
    return f"column {names[0]} is called {names[1]} now (or was dropped, and {names[1]} added)"


def _retyped(names: tuple[str, str, str]) -> str:
    return f"column {names[0]} is {names[2]} now, and was {names[1]}"


def key_in_words(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """The same of a key that has other columns; empty if it has not."""
    if tuple(before) == tuple(now):
        return ()
    names = (", ".join(now), ", ".join(before))
    return (f"the key is {names[0]} now, and was {names[1]}: rows that were logged by the old one become E",)
