"""The record of what `triggers apply` has captured. It shows which later changes no trigger has
logged (spec/triggers.md 9.1).

The text of a trigger shows the names of the columns that it was compiled for. The text does not
identify the table and the columns: two tables, or two columns, may have exchanged their names. So
``<log>_captured`` has one row per captured table: its columns, its key, and the numbers of the
table and its columns if the database numbers them. The numbers are valid only in the database that
assigned them. A restored dump has other numbers; there, columns are compared by name, type and
order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from eventlog.core.catalog import Database, match_name
from eventlog.core.catalog.builder import value_column
from eventlog.core.options import toml
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.quoted_names import quoted, schema_of
from eventlog.sql.triggers.declared import ClassTriggers, TableName, TableTriggers
from eventlog.sql.triggers.uncaptured import (
    ANOTHER_TABLE,
    Uncaptured,
    declared_otherwise,
    uncaptured_column,
    uncaptured_member,
)

_GONE: Final = "it had no triggers for a while"


class Partition(NamedTuple):
    """A partition of a table. ``where`` is SQL that selects its rows among the rows of the table.

    ``was_attached`` means that it was created as a separate table, so it may have had rows before
    it became a partition.
    """

    name: str
    where: str
    was_attached: bool


class Identity(NamedTuple):
    """The numbers that a database has for a table, its columns and its partitions.

    ``database`` identifies the database in which the numbers are valid; ``labels`` are the labels
    of columns whose type is an enumeration.
    """

    database: str
    table: int
    columns: Mapping[str, int]
    labels: Mapping[str, Sequence[str]]
    partitions: Mapping[int, Partition]


@dataclass(frozen=True, slots=True)
class CapturedClass:
    """A class whose rows the triggers of a table log.

    ``columns`` maps names in the log to columns of the table. ``key`` has the names of the key
    columns in the log; it is empty if the table only has values of the class's objects.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] = ()
    deciding: frozenset[str] = field(default=frozenset(), compare=False)
    """Those of ``columns`` that the class does not have (``ClassTriggers.deciding``)."""

    def named(self) -> str:
        """Return the name of the class, and whether the rows of the table are objects of the class
        or only values of objects.
        """
        return f"{'of' if self.key else 'values of'} {self.name}"


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table with triggers."""

    place: TableName
    types: Mapping[str, str]
    """The captured columns in their order, name -> type."""
    classes: tuple[CapturedClass, ...]
    digest: str | None = None
    """The hash of the triggers, None = the table has none."""
    identity: Identity | None = field(default=None, compare=False)
    """The numbers of the table, None in a database without numbers."""
    former: tuple[str, ...] = field(default=(), compare=False)
    """The names that the table may have had (``renamed_from``)."""

    @property
    def name(self) -> str:
        """The name of the table in the form that actions use."""
        return ".".join(filter(None, self.place))

    def content(self) -> str:
        """Return the content of the table's row in ``<log>_captured``, as JSON."""
        known: dict[str, Any] = {
            "digest": self.digest,
            "columns": list(map(list, self.types.items())),
            "classes": [
                {"name": one.name, "columns": dict(one.columns), "key": list(one.key)}
                for one in self.classes
            ],
        }
        if self.identity is not None:
            numbers, labels = self.identity.columns, self.identity.labels
            known |= {
                "database": self.identity.database,
                "table": self.identity.table,
                "numbers": {name: numbers[name] for name in self.types if name in numbers},
                "labels": {name: list(labels[name]) for name in self.types if name in labels},
                "partitions": sorted(self.identity.partitions),
            }
        return json.dumps(known, ensure_ascii=False)


def _from_content(place: TableName, content: str) -> CapturedTable:
    known = json.loads(content)
    identity = None
    if "table" in known:
        partitions = {oid: Partition("", "", was_attached=False) for oid in known["partitions"]}
        identity = Identity(
            known["database"], known["table"], known["numbers"], known["labels"], partitions
        )
    return CapturedTable(
        place,
        dict(known["columns"]),
        tuple(
            CapturedClass(one["name"], one["columns"], tuple(one["key"]))
            for one in known["classes"]
        ),
        known["digest"],
        identity,
    )


def as_captured(
    declared: Iterable[Sequence[TableTriggers]],
    schema: str | None,
    digests: Mapping[str, str],
    identities: Mapping[TableName, Identity],
    former: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[CapturedTable, ...]:
    """Return the present state of each declared table.

    ``schema`` is the schema of the classes; ``digests`` are the hashes of the installed triggers;
    ``former`` has the earlier names of classes and their child tables, by class.
    """
    tables = []
    for of_table in declared:
        first = of_table[0]
        place = (first.schema or schema or "", first.table.name)
        logged: dict[str, str] = {}
        classes: dict[tuple[str, bool], CapturedClass] = {}
        for one in of_table:
            logged |= one.logged_columns()
            which = one.class_name, isinstance(one, ClassTriggers)
            names = dict(classes[which].columns) if which in classes else {}
            names |= {one.names.get(name, name): name for name in one.logged_columns()}
            classes[which] = CapturedClass(one.class_name, names)
            if isinstance(one, ClassTriggers):
                key = tuple(column.name for column in one.log_key)
                classes[which] = CapturedClass(one.class_name, names, key, one.deciding)
        tables.append(
            CapturedTable(
                place,
                {
                    column.name: logged[column.name]
                    for column in first.table.columns
                    if column.name in logged
                },
                tuple(classes.values()),
                identity=identities.get(place),
                former=tuple(chain.from_iterable(former.get(name, ()) for name, _ in classes)),
            )
        )
    return tuple(replace(table, digest=digests.get(table.name)) for table in tables)


# --- the rows of <log>_captured
# --------------------------------------------------------------------


@lru_cache(maxsize=32)
def _table(log: LogTable) -> sa.TableClause:
    names = ("schema_name", "table_name", "content")
    return sa.table(quoted(log.captured_table), *map(sa.column, names), schema=schema_of(log))


def has_table(log: OpenLog) -> bool:
    """Return True if the log has the table of captured tables."""
    return log.may_have(log.table.captured_table)


def read_captured(log: OpenLog) -> tuple[CapturedTable, ...]:
    """Return the rows of ``<log>_captured``. The session must have the right to read them."""
    table = _table(log.table)
    entries = log.connection.execute(
        sa.select(table.c.schema_name, table.c.table_name, table.c.content)
    )
    return tuple(_from_content((schema or "", name), content) for schema, name, content in entries)


def forget_captured(log: OpenLog, place: TableName) -> None:
    """Delete the row of a table in ``<log>_captured``."""
    table, (schema, name) = _table(log.table), place
    of_schema = table.c.schema_name == schema if schema else table.c.schema_name.is_(None)
    log.connection.execute(sa.delete(table).where(table.c.table_name == name, of_schema))


def write_captured(log: OpenLog, captured: Iterable[CapturedTable]) -> None:
    """Write those rows of ``<log>_captured`` that have changed. The row of a renamed table gets the
    table's new name.
    """
    table, entries = _table(log.table), {one.place: one for one in read_captured(log)}
    changed, replaced = [], set()
    for now in captured:
        before = _entry_of(now, entries)
        if before is None or (before.place, before.content()) != (now.place, now.content()):
            changed.append(now)
            replaced |= {now.place} | ({before.place} if before is not None else set())
    for place in replaced:
        forget_captured(log, place)
    for now in changed:
        schema, name = now.place
        entry = {"schema_name": schema or None, "table_name": name, "content": now.content()}
        log.connection.execute(sa.insert(table).values(**entry))


# --- changes since the rows were written
# ------------------------------------------------------------


def uncaptured_since(
    entries: Iterable[CapturedTable], captured: Iterable[CapturedTable]
) -> dict[str, tuple[Uncaptured, ...]]:
    """Return, for each table of ``captured``, the changes that no trigger has logged since the
    table's row was written.
    """
    known = {one.place: one for one in entries}
    digests = {one.digest: one.place for one in known.values()}
    found = {}
    for now in captured:
        before = _entry_of(now, known)
        if before is not None:
            moved_here = digests.get(now.digest, before.place) != before.place
            found[now.name] = tuple(_uncaptured(before, now, is_another=moved_here))
    return found


def unlike_entries(
    entries: Iterable[CapturedTable],
    captured: Iterable[CapturedTable],
    present: Mapping[TableName, Collection[str]],
) -> tuple[str, ...]:
    """Return one sentence for each table whose columns differ from the columns in its row of
    ``<log>_captured``. ``present`` are all columns of each table, watched or not.
    """
    known, words = {one.place: one for one in entries}, []
    for now in captured:
        entry = known.get(now.place)
        if entry is None:
            words.append(f"{now.name} is watched, but `triggers apply` has not recorded it")
        elif list(entry.types.items()) != list(now.types.items()):
            changes = declared_otherwise(entry.types, now.types, present[now.place])
            words.append(f"{now.name}: {'; '.join(changes)}")
    return tuple(words)


def ended_captures(
    entries: Iterable[CapturedTable],
    captured: Iterable[CapturedTable],
    database: Database,
    watched: Collection[str],
    no_children: Mapping[str, str],
) -> dict[str, str]:
    """Return the recorded tables that are not captured any more although no watch was changed to
    leave them out, each with the reason (spec/triggers.md 9.1).

    ``captured`` are the declared tables, ``watched`` the tables that watches name or match.
    ``no_children`` has the reasons of the catalogue.
    """
    declared = {one.place for one in captured}
    present = {table.name: table for table in database.tables}
    named = {match_name(name, present) for name in watched}
    ended = {}
    for entry in entries:
        schema, name = entry.place
        if entry.place in declared or schema != (database.schema or "") or name not in present:
            continue
        for one in entry.classes:
            owner = present.get(one.name)
            if one.key and name in named and not present[name].primary_key:
                ended[entry.name] = "it has no primary key any more, so it is not a class"
            elif (
                not one.key
                and owner is not None
                and owner.kind == "table"
                and owner.name in named
                and value_column(present[name], owner) is None
            ):
                joined = f"its first foreign key does not refer to the key of {owner.name}"
                why = no_children.get(name, joined)
                ended[entry.name] = f"it is no longer a child table of {owner.name}: {why}"
    return ended


class Renamed(NamedTuple):
    """A recorded table that has another name now. ``watch`` is the table of the ``[[watch]]`` that
    needs ``renamed_from``: the table itself, or the owner of a child table.
    """

    former: str
    present: str
    watch: str


def renamed_tables(
    entries: Iterable[CapturedTable],
    database: Database,
    identities: Callable[[Collection[TableName]], Mapping[TableName, Identity]],
) -> tuple[Renamed, ...]:
    """Return the recorded tables of a schema that have other names now, found by their numbers.

    ``identities`` returns the numbers of tables; it is called only if a recorded table is missing.
    """
    recorded, schema = {one.place: one for one in entries}, database.schema or ""
    present = [(schema, table.name) for table in database.tables]
    missing = [
        recorded[place] for place in sorted(recorded) if place[0] == schema and place not in present
    ]
    numbers = identities([place for place in present if place not in recorded]) if missing else {}
    now = {identity[:2]: name for (_, name), identity in numbers.items()}
    return tuple(
        Renamed(one.place[1], name, name if any(cls.key for cls in one.classes) else owner)
        for one in missing
        for owner in [cls.name for cls in one.classes][:1]
        if one.identity is not None and (name := now.get(one.identity[:2])) is not None
    )


def recorded_keys(
    entries: Iterable[CapturedTable], tables: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return, by class, the key columns by which the triggers of these tables log objects. The
    columns have their names in the log.
    """
    own = (entry.classes for entry in entries if entry.place[1] in tables)
    return {one.name: one.key for one in chain.from_iterable(own) if one.key}


def _entry_of(
    now: CapturedTable, entries: Mapping[TableName, CapturedTable]
) -> CapturedTable | None:
    """Return the recorded row of a table. It is found by the table's name, otherwise by the table's
    number, otherwise by a former name of the table.
    """
    if now.place in entries:
        return entries[now.place]
    renamed = next((one for one in entries.values() if _is_same_table(one, now)), None)
    former = (entries.get((now.place[0], name)) for name in now.former)
    alike = (one for one in former if one is not None and any(_pairs(one.classes, now.classes)))
    return renamed or next(alike, None)


def _is_same_database(before: CapturedTable, now: CapturedTable) -> bool:
    return (
        before.identity is not None
        and now.identity is not None
        and before.identity.database == now.identity.database
    )


def _is_same_table(before: CapturedTable, now: CapturedTable) -> bool:
    return (
        before.identity is not None
        and now.identity is not None
        and before.identity[:2] == now.identity[:2]
    )


def _uncaptured(
    before: CapturedTable, now: CapturedTable, *, is_another: bool
) -> Iterator[Uncaptured]:
    """Yield the changes of a table that no trigger has logged since the table's row was written.
    ``is_another`` means that the name now belongs to another recorded table.
    """
    is_another |= _is_same_database(before, now) and not _is_same_table(before, now)
    if is_another or now.digest is None:
        reason = ANOTHER_TABLE if is_another else _GONE
        known = [one for _, one in _pairs(before.classes, now.classes)]
        yield from (_whole(now, one, reason) for one in (now.classes if is_another else known))
        return
    if before.digest != now.digest:
        return  # a migration or a script has created the triggers since
    for former, one in _pairs(before.classes, now.classes):
        if reason := _key_change(before, former, now, one):
            yield _whole(now, one, reason)
        yield from _uncaptured_of_class(before, former, now, one)
    yield from _uncaptured_of_partitions(before, now)


def _whole(table: CapturedTable, one: CapturedClass, reason: str) -> Uncaptured:
    is_object = bool(one.key)
    return Uncaptured(one.name, f"{table.place[1]}: {reason}", objects=is_object, deletes=is_object)


def _pairs(
    before: Sequence[CapturedClass], now: Sequence[CapturedClass]
) -> Iterator[tuple[CapturedClass, CapturedClass]]:
    """Yield pairs of a recorded class and a present class with the same name. If no names match and
    there is only one recorded and one present class, yield these two classes, since the class of a
    renamed table has another name.
    """
    names = {one.named(): one for one in before}
    for one in now:
        if one.named() in names:
            yield names[one.named()], one
        elif len(before) == len(now) == 1 and bool(before[0].key) is bool(one.key):
            yield before[0], one


def _key_change(
    before: CapturedTable, former: CapturedClass, now: CapturedTable, one: CapturedClass
) -> str:
    """Return the change of a class's key in words, empty if the key has the same columns in the
    same order.
    """
    if former.key != one.key:
        names = ", ".join(one.key), ", ".join(former.key)
        return (
            f"its key is {names[0]} now, and was {names[1]}; to delete the receiver's objects "
            f"under the old key, add previous_key = {toml(list(former.key))} to its [[watch]] and "
            "resync with --deletes"
        )
    if any(not _is_same_column(before, former, now, one, name) for name in one.key):
        return (
            f"its key {', '.join(one.key)} consists of other columns than before, although "
            "their names are the same"
        )
    if any(_has_lost_labels(before, former, now, one, name) for name in one.key):
        return f"labels of an enumeration in its key {', '.join(one.key)} were renamed"
    return ""


def _uncaptured_of_class(
    before: CapturedTable, former: CapturedClass, now: CapturedTable, one: CapturedClass
) -> Iterator[Uncaptured]:
    """Yield the uncaptured changes of a class's columns."""
    table, own = now.place[1], set(one.columns) - set(one.key) if one.key else set()
    for name in one.columns:
        is_same = name in former.columns and _is_same_column(before, former, now, one, name)
        if name in one.deciding:
            if not is_same:
                yield uncaptured_member(one.name, table, name)
        elif name not in former.columns:
            yield uncaptured_column(one.name, table, name, selects=name in own)
        elif not is_same:
            # Objects without a value are included: the receiver has values of the other column.
            yield Uncaptured(
                one.name,
                f"column {name} of {table} is not the column that was captured under this name",
            )
        elif _has_lost_labels(before, former, now, one, name):
            change = uncaptured_column(one.name, table, name, selects=name in own)
            reason = f"labels of the enumeration in column {name} of {table} were renamed"
            yield replace(change, reason=reason)


def _is_same_column(
    before: CapturedTable, former: CapturedClass, now: CapturedTable, one: CapturedClass, name: str
) -> bool:
    """Return True if a name in the log still belongs to the column that was captured. If the
    numbers of columns are valid, compare the column's number. Otherwise compare its place and, if
    another database has numbered the columns, its type.
    """
    column, present = former.columns[name], one.columns[name]
    if _is_same_table(before, now) and before.identity is not None and now.identity is not None:
        return before.identity.columns.get(column) == now.identity.columns.get(present)
    shared = {*before.types} & {*now.types}
    places = [[one for one in table.types if one in shared] for table in (before, now)]
    if column != present or column not in shared:
        return True  # a column of a view, made from a base table's column that was renamed
    is_typed = before.identity is not None
    return places[0].index(column) == places[1].index(column) and (
        not is_typed or before.types[column] == now.types[column]
    )


def _has_lost_labels(
    before: CapturedTable, former: CapturedClass, now: CapturedTable, one: CapturedClass, name: str
) -> bool:
    """Return True if some labels of a column's enumeration are missing or in another order."""
    if before.identity is None or now.identity is None or name not in former.columns:
        return False
    labels = before.identity.labels.get(former.columns[name], ())
    present = iter(now.identity.labels.get(one.columns[name], labels))
    return not all(label in present for label in labels)


def _uncaptured_of_partitions(before: CapturedTable, now: CapturedTable) -> Iterator[Uncaptured]:
    """Yield the uncaptured changes by partitions: no trigger fires for rows that are attached,
    detached or dropped with a partition.
    """
    if not _is_same_table(before, now) or before.identity is None or now.identity is None:
        return
    known, table = before.identity.partitions, now.place[1]
    came = [
        one for oid, one in now.identity.partitions.items() if oid not in known and one.was_attached
    ]
    has_gone = not known.keys() <= now.identity.partitions.keys()
    for one in now.classes:
        for partition in came:
            yield Uncaptured(
                one.name,
                f"{table}: partition {partition.name} was attached and may already have had rows",
                partition.where if one.key and one.name == table else None,
                objects=bool(one.key),
            )
        if has_gone and one.key:
            reason = f"{table}: a partition was detached or dropped with its rows"
            yield Uncaptured(one.name, reason, deletes=True)
