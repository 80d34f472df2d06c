"""Describe changes of captured tables in words, and find uncaptured changes, which no trigger has
logged
(spec/triggers.md 9.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eventlog.core.options import toml
from eventlog.sql.port.sql_files import quote_identifier
from eventlog.sql.triggers.declared import ClassTriggers, TableTriggers

ANOTHER_TABLE: Final = (
    "when its triggers were made, another table had this name, or no table had it"
)
"""The reason if changes were not logged because the table took the name of a captured table."""
NEW_TO_CLASS: Final = "its rows were not captured with the class"
"""The reason if changes were not logged because the table joined a captured class."""


@dataclass(frozen=True, slots=True)
class Uncaptured:
    """Changes of a class, before a plan is applied, that no trigger has logged (spec/triggers.md
    9.1).
    """

    class_name: str
    reason: str
    """The reason in words."""
    where: str | None = None
    """SQL that selects the objects concerned, None = all objects."""
    column: str | None = None
    """The column of the class whose values are concerned, None = whole objects."""
    objects: bool = False
    """True if a receiver may lack objects, not only values."""
    deletes: bool = False
    """True if a receiver may still have objects that were deleted."""


# --- changes of columns ---------------------------------------------------------------------------

Columns = Mapping[str, str]
"""The columns of a table in their order: name -> type as the database spells it."""


def column_changes(
    before: Columns, now: Columns, new: str = "new", unwatched: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the changes of one table's columns, each as a phrase without the table's name:
    ``column x (text) is new``.

    ``new`` is the text for a column that did not exist before; ``unwatched`` are columns that no
    watch names any longer. A missing column is reported as renamed if a column of the same type has
    appeared in its place, which means after the same column. In a catalogue, a renamed column looks
    like a dropped column and an added column.
    """
    renamed = _renamed(before, now)
    lost = [name for name in before if name not in now and name not in renamed]
    gained = [name for name in now if name not in before and name not in renamed.values()]
    retyped = [name for name in before if name in now and before[name] != now[name]]
    return (
        *(
            f"column {old} is called {name} now (or was dropped, and {name} added)"
            for old, name in renamed.items()
        ),
        *(f"column {name} was dropped" for name in lost),
        *(f"column {name} is no longer watched" for name in unwatched),
        *(f"column {name} ({now[name]}) is {new}" for name in gained),
        *(f"column {name} is {now[name]} now, and was {before[name]}" for name in retyped),
    )


def _renamed(before: Columns, now: Columns) -> dict[str, str]:
    """Return the columns that are reported as renamed: old name -> new name."""
    gained = [name for name in now if name not in before]
    renamed: dict[str, str] = {}
    for old in before:
        place = (before[old], _neighbour(old, before, now))
        if old not in now:
            name = next(
                (name for name in gained if (now[name], _neighbour(name, now, before)) == place),
                None,
            )
            if name is not None:
                renamed[old] = name
                gained.remove(name)
    return renamed


def _neighbour(name: str, columns: Columns, others: Columns) -> str | None:
    """Return the nearest column before the column ``name`` that is also in ``others``."""
    names = list(columns)
    return next((other for other in reversed(names[: names.index(name)]) if other in others), None)


def declared_otherwise(before: Columns, now: Columns, present: Collection[str]) -> tuple[str, ...]:
    """Return the reasons why triggers, compiled for the columns ``before``, differ from the
    declaration.

    ``before`` is empty if it is unknown. ``present`` are all columns of the table, watched or not.
    """
    unwatched = [name for name in before if name not in now and name in present]
    watched = {name: before[name] for name in before if name not in unwatched}
    words = column_changes(
        watched, now if before else {}, "new in the watch and not captured yet", unwatched
    )
    return words or ("the watch, its table or the templates have changed",)


def uncaptured_columns(
    triggers: TableTriggers, before: Columns, now: Columns
) -> Iterator[Uncaptured]:
    """Yield the uncaptured changes of each column for which the triggers were not compiled. Yield
    nothing if it is unknown for which columns the triggers were compiled.
    """
    # A view's column keeps its name if the column of its base table is renamed, so rows that are
    # read back contain its values.
    renamed = set(_renamed(before, now).values()) & triggers.names.keys()
    is_object = isinstance(triggers, ClassTriggers)
    key = {column.name for column in triggers.key} if is_object else now.keys()
    for name in now:
        if before and name not in before and name not in renamed:
            log_name, table = triggers.names.get(name, name), triggers.table.name
            if isinstance(triggers, ClassTriggers) and log_name in triggers.deciding:
                yield uncaptured_member(triggers.class_name, table, log_name)
            else:
                yield uncaptured_column(
                    triggers.class_name, table, log_name, selects=name not in key
                )


def uncaptured_column(class_name: str, table: str, name: str, *, selects: bool) -> Uncaptured:
    """Return the uncaptured changes of a column whose values the triggers did not log. ``name`` is
    the name of the column in the log.

    ``selects`` means that only objects with a value are selected: the column is in the class's own
    table, and the receiver has no value under the column's name, except values that were read back.
    """
    return Uncaptured(
        class_name,
        f"column {name} of {table} had values before the triggers captured it",
        f"{quote_identifier(name)} IS NOT NULL" if selects else None,
        name if selects else None,
    )


def uncaptured_member(class_name: str, table: str, name: str) -> Uncaptured:
    """Return the uncaptured changes of a base table's column that the view does not have. By these
    changes, objects enter or leave the view.
    """
    return Uncaptured(
        class_name,
        f"column {name} of {table} decides which objects {class_name} has, and was not captured",
        objects=True,
        deletes=True,
    )


def uncaptured_table(triggers: TableTriggers, reason: str) -> Uncaptured:
    """Return the uncaptured changes of a table whose triggers did not fire, with this reason."""
    is_object = isinstance(triggers, ClassTriggers)
    return Uncaptured(
        triggers.class_name,
        f"{triggers.table.name}: {reason}",
        objects=is_object,
        deletes=is_object,
    )


def key_change(before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """Describe the change of a class's key in words; return nothing if the columns are the same."""
    if tuple(before) == tuple(now):
        return ()
    names = (", ".join(now), ", ".join(before))
    return (
        f"the key is {names[0]} now, and was {names[1]}: rows that were logged under the old key "
        f"get status E. Add previous_key = {toml(list(before))} to its [[watch]]; then `eventlog "
        "resync CLASS --deletes` deletes what the receiver has under the old key, and `eventlog "
        "resync CLASS` sends it under the new key",
    )
