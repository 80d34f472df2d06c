"""What is to be done to have the declared triggers, as SQL of a dialect (spec/triggers.md 9, 10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

LOCK_TIMEOUT: Final = 5.0
"""Seconds that applying waits for a table. Whoever writes it meanwhile waits behind."""

NO_LONGER_WATCHED: Final = "no longer watched"
"""Why the triggers of a table go that no watch names."""


def first_free(name_of: Callable[[int], str], is_taken: Callable[[str], bool]) -> str:
    """The first of the names 1, 2, ... that is not taken (spec/triggers.md 9)."""
    number = 1
    while is_taken(name := name_of(number)):
        number += 1
    return name


def one_line(comment: str) -> str:
    """A text as the rest of a comment's line."""
    return " ".join(comment.split())


@dataclass(frozen=True, slots=True)
class TableSql:
    """All that is declared for one table, as SQL. ``table`` as actions name it; ``digest``: a hash of the rest.

    ``create`` and ``drop``: statement by statement, functions before the triggers that call them and after them.
    """

    table: str
    digest: str
    create: tuple[str, ...]
    drop: tuple[str, ...]


class InstalledTrigger(NamedTuple):
    """One trigger of the log, with its own SQL and that of its function, None where a trigger has none."""

    table: str
    trigger: str
    function: str | None
    enabled: bool
    trigger_sql: str
    function_sql: str | None


@dataclass(frozen=True, slots=True)
class Action:
    """What is to be done for one table, and why. ``statements`` is SQL text, none if the table is ``unchanged``."""

    kind: Literal["create", "replace", "drop", "unchanged"]
    table: str
    reason: str
    statements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TriggerPlan:
    """What brings the database to what is declared. ``warnings`` and ``not_captured`` are sentences for people."""

    actions: tuple[Action, ...]
    warnings: tuple[str, ...] = ()
    not_captured: tuple[str, ...] = ()

    @classmethod
    def of_new(cls, tables: Iterable[TableSql]) -> TriggerPlan:
        """The plan for a database that has none of these triggers yet."""
        return cls(tuple(Action("create", one.table, "watched", one.create) for one in tables))

    @property
    def changes(self) -> tuple[Action, ...]:
        """The actions that do something."""
        return tuple(action for action in self.actions if action.statements)

    @property
    def unwatched(self) -> tuple[str, ...]:
        """The tables that are captured now and that no watch names any longer."""
        return tuple(action.table for action in self.actions if action.reason == NO_LONGER_WATCHED)
