"""Rows that foreign keys delete or change: the server writes these rows itself, without firing the
triggers of the rows' tables (spec/triggers.md 7.4). So the triggers of the table that the statement
names log these changes.

A *way* leads from a watched table, foreign key by foreign key, up to another table. Deletes or key
changes in the other table reach rows of the watched table. A way continues as long as the rules of
the foreign keys pass on a DELETE or a new key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from dataclasses import field as with_field
from itertools import chain, groupby
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from eventlog.core.catalog import Column, Table
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import TriggerError
from eventlog.model import EventType
from eventlog.sql.dialects.mysql_family.text import fields, key_text, quote_identifier
from eventlog.sql.port.sql_files import equal, fetch, grouped, statements
from eventlog.sql.triggers.declared import ChildTriggers, ClassTriggers, TableTriggers

_SQL: Final = statements(__package__, "reflect.sql")
_ACTS: Final = ("CASCADE", "SET NULL", "SET DEFAULT")
FACT: Final = "cascades"
"""The facts for compiling triggers contain the foreign keys of this module under this name."""


@dataclass(frozen=True, slots=True)
class Link:
    """A foreign key by which a write to ``parent`` deletes or changes rows of ``child``."""

    child: str
    parent: str
    """The name of the table; ``database.table`` if the table is in another database."""
    columns: tuple[tuple[str, str], ...]
    """Pairs of the child's column and the column that it refers to."""
    on_delete: str
    on_update: str

    @property
    def refs(self) -> list[str]:
        """The columns of the parent to which the foreign key refers."""
        return [ref for _, ref in self.columns]


Way = tuple[Link, ...]
"""Foreign keys that lead from a watched table up to another table."""


def read_links(conn: Connection) -> tuple[Link, ...]:
    """Return the foreign keys of the session's database by which the server itself deletes or
    changes rows.
    """
    rows = fetch(conn, _SQL["cascades"], {})
    links = []
    for (child, _), of_key in groupby(rows, lambda row: (row[0], row[1])):
        several = list(of_key)
        _, _, parent_schema, parent, on_delete, on_update, _, _, home = several[0]
        name = parent if parent_schema == home else f"{parent_schema}.{parent}"
        links.append(
            Link(child, name, tuple((row[6], row[7]) for row in several), on_delete, on_update)
        )
    return tuple(links)


def as_fact(links: Iterable[Link]) -> list[dict[str, Any]]:
    """Serialize foreign keys as literals; ``from_fact`` reads them back."""
    return list(map(asdict, links))


def from_fact(value: Iterable[Mapping[str, Any]]) -> tuple[Link, ...]:
    """Return the foreign keys from the literals of ``as_fact``."""
    return tuple(
        Link(
            one["child"],
            one["parent"],
            tuple((a, b) for a, b in one["columns"]),
            one["on_delete"],
            one["on_update"],
        )
        for one in value
    )


def leading_to(links: Sequence[Link], tables: Iterable[str]) -> tuple[Link, ...]:
    """Return the foreign keys by which rows of these tables may be written, directly or
    indirectly.
    """
    wanted, found = set(tables), []
    while more := [link for link in links if link.child in wanted and link not in found]:
        found += more
        wanted |= {link.parent for link in more}
    return tuple(found)


# --- ways -----------------------------------------------------------------------------------------


class Source(NamedTuple):
    """How a trigger finds the rows: the row of the trigger's table from which the search starts
    (OLD or NEW), and the lock.
    """

    row: str
    lock: str


SHARED: Final = " LOCK IN SHARE MODE"
"""The end of a SELECT that sees rows as they are now, whatever the application's database snapshot
shows.

With FOR UPDATE the server would refuse a statement of the application that also reads the table
(error 1442).
"""

_SOURCES: Final = {
    **dict.fromkeys(("DELETE", "UPDATE"), Source("OLD", SHARED)),
    # If an INSERT took a lock, it would block writers that use other parents.
    "INSERT": Source("NEW", ""),
}


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect that foreign keys have on rows of a watched table.

    The cause of the effect is that a row of ``end`` is deleted or gets another key.
    """

    way: Way
    """The way from the watched table to ``end``, empty if ``end`` is the watched table."""
    end: str
    operation: str
    changed: tuple[tuple[str, str | None], ...] = ()
    """Pairs of a column that changes and the column of ``end`` whose new value it gets; None = the
    column becomes NULL. There are no pairs if the rows are deleted.
    """
    trees: Mapping[str, Sequence[Link]] = with_field(default_factory=dict)
    """For each table, its foreign keys to itself: if rows are deleted, these foreign keys delete
    other rows of the same table.
    """
    source: Source = with_field(default_factory=lambda: _SOURCES["DELETE"])

    @property
    def end_columns(self) -> list[str]:
        """The columns of ``end`` that a foreign key refers to."""
        own = self.trees.get(self.end, ())
        links = [*self.way[-1:], *own]
        return list(dict.fromkeys(column for link in links for _, column in link.columns))


def effects_on(table: str, links: Sequence[Link]) -> Iterator[Effect]:
    """Yield the effects that foreign keys have on the rows of one table. Raises TriggerError if a
    way leads in a circle.
    """
    if trees := _trees((), table, links):
        yield Effect((), table, "DELETE", trees=trees)
    for link in links:
        if link.child == table:
            yield from _deleted((link,), links)
            yield from _changed((link,), links)


def _trees(way: Way, table: str, links: Sequence[Link]) -> dict[str, list[Link]]:
    """Return, by table, the foreign keys by which a table on a way refers to itself. If rows of the
    table are deleted, these foreign keys delete other rows of the same table.
    """
    deleted = {link.parent for link in way}
    if not way or way[0].on_delete == "CASCADE":
        deleted.add(table)
    return grouped(
        (link.child, link)
        for link in links
        if link.child == link.parent and link.child in deleted and link.on_delete == "CASCADE"
    )


def _deleted(way: Way, links: Sequence[Link]) -> Iterator[Effect]:
    first, last = way[0], way[-1]
    if last.on_delete not in _ACTS or (
        len(way) == 1 and first.child == first.parent and first.on_delete == "CASCADE"
    ):
        return
    if last is not first and last.on_delete != "CASCADE":
        return  # the row between them is kept
    changed = (
        () if first.on_delete == "CASCADE" else tuple((column, None) for column, _ in first.columns)
    )
    yield Effect(way, last.parent, "DELETE", changed, _trees(way, first.child, links))
    for link in _above(way, links, by_update=False):
        yield from _deleted((*way, link), links)


def _changed(way: Way, links: Sequence[Link]) -> Iterator[Effect]:
    last = way[-1]
    # The server refuses the change if a row is its own parent.
    if last.on_update not in _ACTS or last.child == last.parent:
        return
    pairs = _composed(way)
    if not pairs:
        return
    is_lost = any(link.on_update != "CASCADE" for link in way)
    changed = tuple((column, None if is_lost else end) for column, end in pairs)
    yield Effect(way, last.parent, "UPDATE", changed)
    for link in _above(way, links, by_update=True):
        yield from _changed((*way, link), links)


def _composed(way: Way) -> list[tuple[str, str]]:
    """Return pairs of columns: a column of the watched table, and the column at the end of a way
    from which it gets its value.
    """
    pairs = list(way[0].columns)
    for link in way[1:]:
        further = dict(link.columns)
        pairs = [(column, further[reached]) for column, reached in pairs if reached in further]
    return pairs


def _above(way: Way, links: Sequence[Link], *, by_update: bool) -> Iterator[Link]:
    for link in links:
        if link.child != way[-1].parent or link.child == link.parent:
            continue
        rule = link.on_update if by_update else link.on_delete
        if rule in _ACTS and link.parent in {one.child for one in way}:
            path = " -> ".join([*(one.child for one in (*way, link)), link.parent])
            raise TriggerError(
                f"when a row of {link.parent} is deleted or changed, foreign keys in a circle "
                f"({path}) delete or change rows of {way[0].child}, and the server fires no "
                "trigger for these rows: make one of the keys ON DELETE RESTRICT and ON UPDATE "
                "RESTRICT"
            )
        yield link


# --- declarations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CascadeTriggers(ClassTriggers):
    """What the triggers of a table log for a class whose rows the server deletes or changes
    together with rows of the table.

    ``table`` is the table that the statement names; ``of`` is the declaration of the class.
    ``silence`` is an SQL condition: in a session in which it is true, the triggers log no rows of
    the class.
    """

    of: TableTriggers
    effects: tuple[Effect, ...]
    silence: str

    def logged_columns(self) -> dict[str, str]:
        return {}


def cascades_of(
    declared: Sequence[TableTriggers], links: Sequence[Link], silence: str
) -> tuple[list[CascadeTriggers], dict[str, TriggerError]]:
    """Return the cascades that triggers of other tables log for the declared classes. Also return,
    by class, the reason why the changes of a class cannot be logged this way. ``silence`` is an SQL
    condition: the triggers log nothing in a session in which the condition is true.
    """
    found: list[CascadeTriggers] = []
    refused: dict[str, TriggerError] = {}
    for one in declared:
        ends: dict[str, list[Effect]] = {}
        try:
            for effect in effects_on(one.table.name, links):
                if not _is_logged_by_owner(one, effect) and _may_affect(one, effect):
                    _refuse(one, effect)
                    ends.setdefault(effect.end, []).append(effect)
        except TriggerError as error:
            refused.setdefault(one.class_name, TriggerError(f"watch {one.class_name}: {error}"))
            continue
        for end, several in ends.items():
            columns = dict.fromkeys(column for effect in several for column in effect.end_columns)
            table = Table(
                end, "table", tuple(Column(name, ColumnType(Kind.OTHER)) for name in columns)
            )
            found.append(
                CascadeTriggers(
                    watch=one.watch,
                    class_name=one.class_name,
                    table=table,
                    key=(),
                    columns=(),
                    insert_type=EventType.INSERT_ROW_QUERY_BACK,
                    update_type=EventType.UPDATE_ROW_QUERY_BACK,
                    of=one,
                    effects=tuple(several),
                    silence=silence,
                )
            )
    return [one for one in found if one.class_name not in refused], refused


def _is_logged_by_owner(one: TableTriggers, effect: Effect) -> bool:
    """Return True if the effect on a child table is already logged by the triggers of its owner,
    which is the table of the class. A logged row of type 4 also deletes the values of the object,
    and after a new key the values are read back.
    """
    if not isinstance(one, ChildTriggers) or not effect.way:
        return False
    first = effect.way[0]
    owned = {(own.name, owner.name) for own, owner in zip(one.owner_columns, one.key, strict=True)}
    # On a longer way the server writes the owner's own row, which the owner's class handles.
    return first.parent == one.owner.name and set(first.columns) == owned


def _may_affect(one: TableTriggers, effect: Effect) -> bool:
    """Return True if the effect changes a logged column or the key, or deletes the row."""
    if not effect.changed:
        return True
    names = {column for column, _ in effect.changed}
    if isinstance(one, ChildTriggers):
        return bool(names & {one.column.name, *(column.name for column in one.owner_columns)})
    return bool(names & {column.name for column in (*one.key, *one.columns)})


def _refuse(one: TableTriggers, effect: Effect) -> None:
    if "." in effect.end:
        raise TriggerError(
            f"when a row of {effect.end} in another database is deleted or changed, a foreign key "
            f"deletes or changes rows of {one.table.name}, and the server fires no trigger for "
            "these rows: make the foreign key RESTRICT"
        )
    if not isinstance(one, ClassTriggers):
        return
    keys = {column.name for column in one.key}
    is_of_key = any(column in keys for column, _ in effect.changed)
    if one.may_repeat and (is_of_key or not effect.changed):
        raise TriggerError(
            f"when a row of {effect.end} is deleted or changed, a foreign key deletes rows of "
            f"{one.table.name} or changes their keys, and the server fires no trigger for these "
            "rows. Since several rows may belong to one object, the triggers cannot determine "
            "whether the object is deleted: make the foreign key RESTRICT"
        )
    if any(column in keys and end is None for column, end in effect.changed):
        raise TriggerError(
            f"a foreign key to {effect.end} sets the key of {one.table.name} to NULL, and the "
            "server fires no trigger for this change: make the foreign key ON DELETE CASCADE, or "
            "RESTRICT"
        )


# --- as SQL ---------------------------------------------------------------------------------------

_Logged = tuple[int, str, str | None]
"""The type, the key (old or new) and the attribute of a row of the log."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Rows that a trigger finds when another row is deleted or changed, and the log rows for each
    found row.
    """

    condition: str | None
    """The condition under which the trigger searches for the rows."""
    select: str
    """The statement that finds the rows, with their old and new keys."""
    rows: tuple[_Logged, ...]
    """The log rows for each found row."""


def followed(one: CascadeTriggers, operation: str) -> list[Followed]:
    """Return the rows that the trigger for an operation searches for. A row at the end of several
    ways is logged once.
    """
    several = [effect for effect in one.effects if effect.operation == operation]
    return _followed_rows(one, several, operation)


def kept(one: CascadeTriggers) -> list[Followed]:
    """Return the rows that a trigger AFTER INSERT searches for. This is for a server whose REPLACE
    keeps the rows that refer to the replaced row: the kept rows were logged as deleted, so they
    must be logged again.
    """
    several = [
        effect for effect in one.effects if effect.operation == "DELETE" and not effect.changed
    ]
    back = {int(EventType.DELETE_ROW): int(EventType.INSERT_ROW_QUERY_BACK)}
    return [
        replace(
            each, rows=tuple((back.get(kind, kind), key, name) for kind, key, name in each.rows)
        )
        for each in _followed_rows(one, several, "INSERT")
    ]


def _followed_rows(
    one: CascadeTriggers, several: Sequence[Effect], operation: str
) -> list[Followed]:
    """Return the rows that the trigger for an operation searches for because of several effects."""
    several = [replace(effect, source=_SOURCES[operation]) for effect in several]
    found = grouped((tuple(_rows(one.of, effect)), effect) for effect in several)
    return [_followed(one.of, alike, several, rows) for rows, alike in found.items()]


def _followed(
    one: TableTriggers,
    alike: Sequence[Effect],
    several: Sequence[Effect],
    rows: tuple[_Logged, ...],
) -> Followed:
    """Return the rows of the effects ``alike``. These are the effects among ``several`` that are
    logged in the same way.
    """
    conditions = [_condition(effect) for effect in alike]
    selects = []
    for effect in alike:
        key, new_key, joined = _keys(one, effect, several)
        select = (_deep if effect.trees else _flat)(
            one, effect, f"SELECT {key} AS old_key, {new_key} AS new_key", joined
        )
        selects.append(select)
    if len(selects) == 1:
        return Followed(conditions[0], selects[0], rows)
    # If the columns of a way have not changed, its rows have not changed either.
    parts = [
        f"SELECT u{place}.* FROM ({select}) AS u{place} WHERE {condition or '1 = 1'}"  # noqa: S608 - quoted names
        for place, (select, condition) in enumerate(zip(selects, conditions, strict=True))
    ]
    together = " OR ".join(dict.fromkeys(filter(None, conditions))) or None
    return Followed(together, " UNION ".join(parts), rows)


def _condition(effect: Effect) -> str | None:
    """Return an SQL condition that is true if an UPDATE also changes the rows of an effect; None
    for a DELETE, which always affects them.
    """
    if effect.operation == "DELETE":
        return None
    # Compare bytes, whatever the collation is: foreign keys also pass on a change of case.
    refs = [
        (f"OLD.{quote_identifier(end)}", f"NEW.{quote_identifier(end)}")
        for end in effect.end_columns
    ]
    return " OR ".join(f"NOT (BINARY {old} <=> BINARY {new})" for old, new in refs)


def _keys(one: TableTriggers, effect: Effect, several: Sequence[Effect]) -> tuple[str, str, str]:
    """Return SQL of a row's key, of its new key, and of the join that the key needs."""
    if isinstance(one, ChildTriggers):
        owned = equal(fields("o", one.key), fields("t0", one.owner_columns))
        text = key_text(one.log_key, fields("o", one.key))
        return text, "NULL", f" JOIN {quote_identifier(one.owner.name)} AS o ON {owned}"
    changed = {column for column, _ in effect.changed}
    is_rekeyed = any(column.name in changed for column in one.key)
    new = [_new_value(column.name, effect, several) for column in one.key]
    return (
        key_text(one.log_key, fields("t0", one.key)),
        key_text(one.log_key, new) if is_rekeyed else "NULL",
        "",
    )


def _new_value(column: str, effect: Effect, several: Sequence[Effect]) -> str:
    """Return SQL of the new value of a row's column. Other ways may change the row, too."""
    value = f"t0.{quote_identifier(column)}"
    for other in several:
        end = dict(other.changed).get(column)
        if end is not None:
            given = f"NEW.{quote_identifier(end)}"
            value = (
                given
                if other is effect
                else f"CASE WHEN {_is_reached(other)} THEN {given} ELSE {value} END"
            )
    return value


def _is_reached(effect: Effect) -> str:
    """Return an SQL condition that is true if a way leads to the row ``t0``."""
    first, *further = effect.way
    if not further:
        return _refers(first, "t0", "OLD")
    tables = ", ".join(
        f"{quote_identifier(link.child)} AS x{place}" for place, link in enumerate(further, 1)
    )
    conditions = [_refers(first, "t0", "x1")]
    for place, link in enumerate(further, 1):
        conditions.append(
            _refers(link, f"x{place}", f"x{place + 1}" if place < len(further) else "OLD")
        )
    return f"EXISTS (SELECT 1 FROM {tables} WHERE {' AND '.join(conditions)})"  # noqa: S608 - quoted names


def _flat(one: TableTriggers, effect: Effect, select: str, joined: str) -> str:
    """Return SQL that selects the affected rows of the watched table. The statement joins the other
    tables of the way; the last foreign key refers to the row for which the trigger fires.
    """
    source = f"{quote_identifier(one.table.name)} AS t0"
    for place, link in enumerate(effect.way[:-1]):
        source += (
            f" JOIN {quote_identifier(link.parent)} AS t{place + 1} ON "
            f"{_refers(link, f't{place}', f't{place + 1}')}"
        )
    last = f"t{len(effect.way) - 1}"
    row, lock = effect.source
    return f"{select} FROM {source}{joined} WHERE {_refers(effect.way[-1], last, row)}{lock}"


def _deep(one: TableTriggers, effect: Effect, select: str, joined: str) -> str:
    """Return SQL that selects the affected rows if deleting rows deletes other rows of the same
    table. The statement has a level for each table, from the end of the way to the watched table.

    The level of the watched table contains the affected rows. Each other level contains the deleted
    rows of its table; at the end of the way, the row for which the trigger fires is not in the
    level.
    """
    own = one.owner_columns if isinstance(one, ChildTriggers) else one.key
    tables = [one.table.name, *(link.parent for link in effect.way)]
    levels: dict[int, str] = {}
    for place in range(len(effect.way), -1, -1):
        table = tables[place]
        is_kept = place == 0 and effect.changed  # the rows of this table
        trees = () if is_kept else effect.trees.get(table, ())
        wanted = [column.name for column in own] if place == 0 else effect.way[place - 1].refs
        columns = ", ".join(
            f"r.{quote_identifier(column)}"
            for column in dict.fromkeys(chain(wanted, *(link.refs for link in trees)))
        )
        rows = f"(SELECT {columns} FROM {quote_identifier(table)} AS r"  # noqa: S608 - quoted names
        found = _rows_of_level(effect, place, trees, rows, has_next=place + 1 in levels)
        if found:
            levels[place] = f"w{place} AS ({' UNION '.join(found)})"
    return f"WITH RECURSIVE {', '.join(levels.values())} {select} FROM w0 AS t0{joined}"


def _rows_of_level(
    effect: Effect, place: int, trees: Sequence[Link], rows: str, *, has_next: bool
) -> list[str]:
    """Return SQL for each kind of rows in a level: rows that refer to the deleted row itself, to
    the next level, or to the same level. ``rows`` selects the columns of the level's table.
    """
    end = len(effect.way)
    to_deleted = trees if place == end else effect.way[-1:] if place == end - 1 else ()
    row, lock = effect.source
    found = [f"{rows} WHERE {_refers(link, 'r', row)}{lock})" for link in to_deleted]
    joins = [(link, f"w{place}") for link in trees]
    if has_next:
        joins.insert(0, (effect.way[place], f"w{place + 1}"))
    return found + [
        f"{rows} JOIN {level} ON {_refers(link, 'r', level)}{lock})" for link, level in joins
    ]


def _refers(link: Link, child: str, parent: str) -> str:
    """Return an SQL condition that is true if a row of the child refers to a row of the parent."""
    return " AND ".join(
        f"{child}.{quote_identifier(own)} = {parent}.{quote_identifier(ref)}"
        for own, ref in link.columns
    )


def _rows(one: TableTriggers, effect: Effect) -> Iterator[_Logged]:
    if isinstance(one, ChildTriggers):
        yield int(EventType.UPDATE_FIELD_QUERY_BACK), "old_key", one.attribute
        return
    names = {column for column, _ in effect.changed}
    if not names:
        yield int(EventType.DELETE_ROW), "old_key", None
    elif names & {column.name for column in one.key}:
        yield int(EventType.DELETE_ROW), "old_key", None
        yield int(EventType.INSERT_ROW_QUERY_BACK), "new_key", None
    elif one.update_type == EventType.UPDATE_ROW_QUERY_BACK:
        yield int(EventType.UPDATE_ROW_QUERY_BACK), "old_key", None
    else:
        for column in one.columns:
            if column.name in names:
                yield int(EventType.UPDATE_FIELD_QUERY_BACK), "old_key", one.log_names[column.name]
