"""The declarations of watches, and the columns that they exclude (spec/triggers.md 1)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Final, Literal

from eventlog.core.catalog import Database, Table, match_name
from eventlog.core.catalog.builder import key_columns, missing_table, value_column
from eventlog.errors import ConfigError, TriggerError, together
from eventlog.model import LOG_COLUMNS
from eventlog.sql.connect.locate import ENTRY_COLUMNS
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.sql_files import grouped

Style = Literal["field", "remove_all", "field_query_back", "row_query_back"]

LOGS_VALUES: Final[Collection[Style]] = ("field", "remove_all")
"""The styles whose rows contain the values. In the other styles, values are read back when the rows
are published.
"""

Capture = Literal["row", "statement"]

MAX_BINARY_BYTES: Final = 16 * 1024 * 1024
"""The default limit on the bytes of a binary value that triggers log."""


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """A class whose changes are logged (spec/triggers.md 1, 3).

    Child attributes are named ``child.column``. Names match exactly, or without case if only one
    matches.
    """

    table: str
    """The table, or the view, which needs ``base``."""
    row_style: Style = "field"
    trigger_level: Capture = "row"
    columns: tuple[str, ...] | None = None
    """The logged attributes, None = all."""
    exclude: tuple[str, ...] = ()
    """The attributes to leave out."""
    capture: tuple[str, ...] = ()
    """The columns that are logged, but that no document contains."""
    membership: tuple[str, ...] = ()
    """The columns of a view, or of its main base table, that decide whether an object enters or
    leaves the view.
    """
    base: Mapping[str, Mapping[str, str]] | None = None
    """The base tables of a view: base table -> its columns -> the view's columns. A base table of
    another schema is named ``schema.table``.
    """
    capture_replicated: bool = False
    """True if changes that a replication applies are logged, too."""
    lob_values: bool = False
    """True if LOBs are logged by value, in databases that have LOB types."""
    lob_capture_always: bool = False
    """True if each change of another column in the row also logs the LOB, to be read back. This is
    needed because a write through a locator fires no trigger (spec/triggers.md 6.1).
    """
    max_binary_bytes: int = MAX_BINARY_BYTES
    """The size in bytes of the largest binary value that is logged (spec/triggers.md 6.2)."""


def excluded_columns(
    database: Database, watch: WatchedTable, tables: Collection[str] | None = None
) -> Mapping[str, Collection[str]]:
    """Return the columns that one watch does not log, by table: the argument ``exclude`` of
    ``build_catalog``.

    A column of a child table is listed under the child table's name. ``tables`` are the classes as
    in ``build_catalog``, None = all tables with a key. Raises TriggerError for a name that is not
    an attribute of the class, and for a key column.
    """
    present = {table.name: table for table in database.tables}
    table = match_name(watch.table, present)
    if table is None or not (watch.columns is not None or watch.exclude or watch.capture):
        return {}
    errors: list[TriggerError] = []
    names = attribute_names(database, present[table], tables)
    gone = _named(watch, "exclude", watch.exclude, names, errors)
    keys = {(table, column.name) for column in key_columns(present[table])}
    errors += (
        TriggerError(
            f"watch {watch.table}, exclude: {key!r} is a key column, which cannot be excluded; "
            "remove it from exclude"
        )
        for _, key in sorted(gone & keys)
    )
    if watch.columns is not None:
        kept = _named(watch, "columns", watch.columns, names, errors)
        gone |= set(names.values()) - kept - keys
    captured = _named(watch, "capture", watch.capture, names, errors)
    errors += (
        TriggerError(
            f"watch {watch.table}, capture: "
            f"{column if owner == table else f'{owner}.{column}'!r} is not a column of {table}, "
            "or is a key column; remove it from capture"
        )
        for owner, column in sorted(captured)
        if owner != table or (owner, column) in keys
    )
    gone -= captured
    if errors:
        raise together(errors)
    excluded: defaultdict[str, set[str]] = defaultdict(set)
    for owner, column in gone:
        excluded[owner].add(column)
    return excluded


def columns_named(table: Table, names: Iterable[str]) -> frozenset[str]:
    """Return the columns of a table whose names match these names exactly or case-insensitively."""
    present = [column.name for column in table.columns]
    found = (match_name(name, present) for name in names)
    return frozenset(name for name in found if name is not None)


def attribute_names(
    database: Database, table: Table, tables: Collection[str] | None
) -> dict[str, tuple[str, str]]:
    """Return the table and column of each attribute of a class, by its name in the watch.

    ``tables`` is as in ``excluded_columns``.
    """
    names = {column.name: (table.name, column.name) for column in table.columns}
    for other in database.tables:
        value = value_column(other, table)
        if value is not None and not (
            other.primary_key if tables is None else match_name(other.name, tables)
        ):
            names[f"{other.name}.{value.name}"] = (other.name, value.name)
    return names


def _named(
    watch: WatchedTable,
    option: str,
    names: Iterable[str],
    known: Mapping[str, tuple[str, str]],
    errors: list[TriggerError],
) -> set[tuple[str, str]]:
    """Return the tables and columns of the named attributes; each unknown name adds an error."""
    attributes = set()
    for name in names:
        match = match_name(name, known)
        if match is None:
            errors.append(
                TriggerError(
                    f"watch {watch.table}, {option}: {name!r} is not an attribute of the class; it "
                    f"has {', '.join(known)}"
                )
            )
        else:
            attributes.add(known[match])
    return attributes


# --- tables by pattern ----------------------------------------------------------------------------

_WILDCARDS: Final = re.compile(r"[*?\[]")

_OWN_COLUMNS: Final = tuple(
    frozenset(columns.split())
    for columns in (
        "record_id error_time code message",
        " ".join(ENTRY_COLUMNS),
        "epoch server raised",
        "digest class_name selection started position rows_written",
        "schema_name table_name captured content",
        "source token delivery_no saved",
        "source event_id error_time code message content",
        "version_num",
    )
)
"""The columns of each table that belongs to eventlog or Alembic instead of an application."""


@dataclass(frozen=True, slots=True)
class TableChoice:
    """The tables that the patterns of one watch select."""

    tables: tuple[str, ...]
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The attributes whose child tables are not watched, by class. Names are as in
    ``WatchedTable.exclude``.
    """
    without_key: tuple[str, ...] = ()
    """The matching tables that are not classes, since they have no primary key."""
    refused: Mapping[str, ConfigError] = field(default_factory=dict)
    """The names and patterns that do not select a class, each with the reason."""


def choose_tables(
    database: Database,
    patterns: Sequence[str],
    without: Sequence[str] = (),
    *,
    watched: Collection[str] = (),
    others: Collection[str] = (),
    ignore: Collection[str] = (),
) -> TableChoice:
    """Return the tables of a schema that patterns select, except the tables that ``without``
    selects (docs/guides/choose-tables.md).

    A name of a table selects that table. Any other text is a pattern (``*``, ``?``, ``[...]``). A
    pattern does not match views, names in ``ignore``, and child tables of a class. ``watched`` are
    tables of another watch, which these patterns skip; ``others`` are tables that patterns of other
    watches may select.
    """
    tables = _tables_of(database, ignore)
    refused: dict[str, ConfigError] = {}
    named, matched = _matching(database, tables, patterns, refused)
    gone_by_name, gone = _matching(database, tables, without, refused, may_miss=True)
    gone |= gone_by_name
    chosen = {name for name in named | matched if name not in gone and name not in watched}
    classes = {name for name in (*chosen, *others) if tables[name].primary_key} | set(watched)
    decided: dict[str, bool] = dict.fromkeys((*named, *watched), False)

    def is_child(name: str) -> bool:
        if name not in decided:
            decided[name] = (
                False  # if tables refer to each other in a circle, the first is not a child
            )
            owner, _ = _owner(tables[name], tables)
            decided[name] = owner in classes and owner != name and not is_child(owner)
        return decided[name]

    children = {name for name in sorted(chosen) if is_child(name)}
    keyless = sorted(name for name in chosen - children if not tables[name].primary_key)
    refused |= {
        name: ConfigError(f"{name!r} cannot be a class: it has no primary key")
        for name in keyless
        if name in named
    }
    parents = tuple(sorted(chosen - children - set(keyless)))
    if not refused and not parents:
        reason = "each is excluded, in another [[watch]], a child table, or without a primary key"
        listed = ", ".join(patterns)
        refused[listed] = ConfigError(f"{listed} selects no table: {reason}")
    return TableChoice(parents, _left_out(tables, parents, gone), tuple(keyless), refused)


def matching_tables(
    database: Database, patterns: Sequence[str], without: Sequence[str], ignore: Collection[str]
) -> set[str]:
    """Return all tables that patterns match, including child tables and tables without a key;
    invalid patterns are ignored.
    """
    tables = _tables_of(database, ignore)
    named, matched = _matching(database, tables, patterns, {})
    gone_by_name, gone = _matching(database, tables, without, {})
    return (named | matched) - gone_by_name - gone


def _tables_of(database: Database, ignore: Collection[str]) -> dict[str, Table]:
    """Return the tables by name, without views and without the names in ``ignore``."""
    return {
        table.name: table
        for table in database.tables
        if table.kind == "table" and table.name not in ignore
    }


def internal_tables(database: Database, log: LogTable) -> frozenset[str]:
    """Return the tables of a schema that patterns must not match: the tables of this log and of
    other logs, and the version tables of migrations.

    They are recognized by their columns, since a log may have any name.
    """
    internal = set(log.own_tables)
    for table in database.tables:
        columns = frozenset(column.name.casefold() for column in table.columns)
        if columns >= frozenset(LOG_COLUMNS) or columns in _OWN_COLUMNS:
            internal.add(table.name)
        if columns == frozenset(ENTRY_COLUMNS):
            name = re.sub("_(inflight|state)$", "", table.name, flags=re.IGNORECASE)
            internal |= {*LogTable(None, name, (), (), log.max_identifier, log.upper).own_tables}
    return frozenset(internal)


def _matching(
    database: Database,
    tables: Mapping[str, Table],
    patterns: Iterable[str],
    refused: dict[str, ConfigError],
    *,
    may_miss: bool = False,
) -> tuple[set[str], set[str]]:
    """Return the tables selected by name, and the tables selected by pattern. Add the texts that
    select no table to ``refused``.

    With ``may_miss`` a pattern without a match is accepted.
    """
    named: set[str] = set()
    matched: set[str] = set()
    kinds = {table.name: table.kind for table in database.tables}
    for pattern in patterns:
        exact = match_name(pattern, kinds)
        if exact is not None and exact in tables:
            named.add(exact)
        elif exact is not None and not may_miss:
            what = (
                "a view: write a separate [[watch]] with view = ... and base"
                if kinds[exact] == "view"
                else ("an internal table of eventlog or of a migration tool")
            )
            refused[pattern] = ConfigError(f"{exact!r} is {what}")
        elif exact is None and not _WILDCARDS.search(pattern):
            refused[pattern] = ConfigError(missing_table(database, pattern))
        elif exact is None:
            like = _like(pattern, tables)
            matched |= like
            if not like and not may_miss:
                where = "" if database.schema is None else f" of schema {database.schema}"
                advice = "; patterns match names without the schema" if "." in pattern else ""
                refused[pattern] = ConfigError(f"no table{where} matches {pattern!r}{advice}")
    return named, matched


def _like(pattern: str, names: Iterable[str]) -> set[str]:
    """Return the names that match a pattern exactly. If none matches, return the names that match
    case-insensitively.
    """
    exactly = re.compile(translate(pattern))
    same_case = {name for name in names if exactly.match(name)}
    if same_case:
        return same_case
    folded = re.compile(translate(pattern.casefold()))
    return {name for name in names if folded.match(name.casefold())}


def _owner(table: Table, tables: Mapping[str, Table]) -> tuple[str, str]:
    """Return the owner of which this table could be a child table, and the column with the values
    (spec/xds.md 5).

    Both are empty if there is no such owner.
    """
    owner = tables.get(table.foreign_keys[0].table) if table.foreign_keys else None
    value = None if owner is None else value_column(table, owner)
    return ("", "") if owner is None or value is None else (owner.name, value.name)


def _left_out(
    tables: Mapping[str, Table], classes: Collection[str], gone: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    owners = ((name, *_owner(tables[name], tables)) for name in sorted(gone))
    attributes_of = grouped(
        (owner, f"{name}.{value}")
        for name, owner, value in owners
        if owner in classes and owner != name
    )
    return {owner: tuple(attributes) for owner, attributes in attributes_of.items()}
