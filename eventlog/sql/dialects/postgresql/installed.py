"""The installed objects of a database: the log, eventlog's triggers and functions, and facts on the
tables that compiling needs.

These facts can be written as literals, which a migration contains.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Connection, Row, TextClause, text

from eventlog.core.catalog import Database
from eventlog.sql.dialects.postgresql.text import QUOTE_FUNCTION
from eventlog.sql.log_table import LogTable
from eventlog.sql.statements import qualified, statements
from eventlog.sql.triggers import digest_of, missing_log
from eventlog.sql.triggers.declared import ChildTriggers, TableName, TableTriggers

MARKER: Final = re.compile(r"eventlog sha256:[0-9a-f]{64} (?=log |columns \{)")
"""The beginning of the comments on eventlog's triggers and functions, whichever log they write."""


def marker_of(log: LogTable, digest: str, columns: Mapping[str, str] | None = None) -> str:
    """Return the comment on triggers and functions: the log that they write, and the hash of the
    compiled text.

    ``columns`` are the columns for which it was compiled, name -> type; only a function's comment
    lists them.
    """
    compiled_for = (
        "" if columns is None else f"columns {json.dumps(dict(columns), ensure_ascii=False)} "
    )
    return f"eventlog sha256:{digest} {compiled_for}log {qualified(log.schema, log.name)}"


def _owns(log: LogTable, marker: str | None) -> bool:
    """Return True if a comment belongs to a trigger or function of this log."""
    return (
        marker is not None
        and bool(MARKER.match(marker))
        and marker.endswith(f" log {qualified(log.schema, log.name)}")
    )


def digest_of_markers(markers: Iterable[str]) -> str:
    """Return one hash of the hashes in the comments of a table's functions."""
    beginnings = filter(None, map(MARKER.match, markers))
    return digest_of(beginning[0].split()[1].removeprefix("sha256:") for beginning in beginnings)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts on a log and the watched schemas beyond their catalogue. ``schema`` is the schema of
    the classes.

    ``readable``, ``lockable`` (row by row), ``filtered`` (by row level security) and the heirs are
    sets of tables. ``equality`` has the operators of unique keys by table and column,
    ``foreign_keys`` the operators of foreign keys by both ends. ``other_functions`` and
    ``other_triggers`` are names in use by others. ``partitions`` has the partitions of partitioned
    tables, at any depth, and whether this role may create triggers there. ``owner`` is the role
    that the triggers will run as.
    """

    schema: str
    log: LogTable
    enums: frozenset[str]
    equality: Mapping[tuple[str, str, str], str]
    foreign_keys: Mapping[tuple[str, str, str, str, str, str], str]
    with_heirs: frozenset[TableName]
    heirs: frozenset[TableName]
    other_functions: frozenset[TableName]
    other_triggers: frozenset[tuple[str, str, str]]
    readable: frozenset[TableName] = frozenset()
    lockable: frozenset[TableName] = frozenset()
    filtered: frozenset[TableName] = frozenset()
    partitions: Mapping[TableName, Mapping[TableName, bool]] = field(default_factory=dict)
    owner: str = ""
    log_is_writable: bool = True
    has_quote_function: bool = True

    def place_of(self, triggers: TableTriggers) -> TableName:
        """Return the schema and name of a declaration's table."""
        return triggers.schema or self.schema, triggers.table.name

    def owner_of(self, triggers: ChildTriggers) -> TableName:
        """Return the schema and name of the table of the owners of a child table's rows."""
        return triggers.owner_schema or self.schema, triggers.owner.name

    def read_by(self, triggers: TableTriggers) -> set[TableName]:
        """Return the tables that triggers read."""
        owners = {self.owner_of(triggers)} if isinstance(triggers, ChildTriggers) else set()
        return {self.place_of(triggers)} | owners


@dataclass(frozen=True, slots=True)
class InstalledFunctions:
    """The trigger functions of one log, by oid; its triggers, and the triggers of others, by table.

    ``helpers`` are the functions that check that a table is unchanged, by schema and name.
    ``quoting`` is the key quoting function, if it was created with the triggers and not with the
    log.
    """

    functions: Mapping[int, Row[Any]]
    helpers: Mapping[TableName, Row[Any]]
    ours: Mapping[TableName, Sequence[Row[Any]]]
    others: Mapping[TableName, Sequence[Row[Any]]]
    quoting: Row[Any] | None

    def on(self, table: TableName) -> Sequence[Row[Any]]:
        """Return eventlog's triggers on a table."""
        return self.ours.get(table, ())

    def functions_on(self, table: TableName) -> list[Row[Any]]:
        """Return the functions of eventlog's triggers on a table."""
        used = {row.function for row in self.on(table)}
        return [row for oid, row in self.functions.items() if oid in used]


def columns_of(marker: str) -> dict[str, str]:
    """Return the columns, name -> type, in the comment of a function; empty for a function of an
    early release, whose comment has none.
    """
    _, has_columns, rest = marker.partition(" columns ")
    return json.JSONDecoder().raw_decode(rest)[0] if has_columns else {}


def find_log(conn: Connection, log: LogTable) -> LogTable:
    """Return the log with its schema and name in the database.

    Raises LogTableError if it does not exist.
    """
    row = _log_row(conn, log)
    if row is None:
        raise missing_log(log)
    return replace(log, schema=row.schema, name=row.name)


def _log_row(conn: Connection, log: LogTable) -> Row[Any] | None:
    names = {"schema": log.schema, "name": log.name, "quote_function": log.own_name(QUOTE_FUNCTION)}
    return conn.execute(sql("log"), names).first()


def read_facts(
    conn: Connection,
    log: LogTable,
    schema: str,
    installed: InstalledFunctions,
    others: Iterable[str] = (),
) -> Facts:
    """Return the facts on the classes' schema and on others, and on the log if it exists."""
    schemas = sorted({schema, *others})

    def rows(name: str) -> Sequence[Row[Any]]:
        return conn.execute(sql(name), {"schemas": schemas}).all()

    def tables_that(is_one: Callable[[Row[Any]], bool]) -> frozenset[TableName]:
        return frozenset((row.schema, row.name) for row in tables if is_one(row))

    log_row = _log_row(conn, log)
    tables = rows("tables")
    partitions: defaultdict[TableName, dict[TableName, bool]] = defaultdict(dict)
    for row in rows("partitions"):
        partitions[row.schema, row.table_name][row.own_schema, row.name] = row.may_have_triggers
    return Facts(
        schema=schema,
        log=log,
        enums=frozenset(row.name for row in conn.execute(sql("enums"))),
        equality={
            (row.schema, row.table_name, row.column_name): row.operator for row in rows("equality")
        },
        foreign_keys={tuple(row)[:6]: row.operator for row in rows("foreign_keys")},
        with_heirs=tables_that(lambda row: row.has_heirs),
        heirs=tables_that(lambda row: row.is_heir),
        # CREATE OR REPLACE would replace another's function without warning,
        # so its name counts as taken.
        other_functions=frozenset(
            (row.schema, row.name) for row in rows("names") if row.oid not in installed.functions
        ),
        other_triggers=frozenset(
            (*table, row.name) for table, of_table in installed.others.items() for row in of_table
        ),
        readable=tables_that(lambda row: row.is_readable),
        lockable=tables_that(lambda row: row.is_lockable),
        filtered=tables_that(lambda row: row.is_filtered),
        partitions=dict(partitions),
        owner="" if log_row is None else log_row.owner,
        log_is_writable=log_row is None or log_row.is_writable,
        has_quote_function=log_row is None or log_row.has_quote_function,
    )


def read_installed(conn: Connection, log: LogTable) -> InstalledFunctions:
    """Return the triggers and functions of a log, and the triggers of others on the same tables."""
    functions = {row.oid: row for row in conn.execute(sql("functions")) if _owns(log, row.marker)}
    helpers = {(row.schema, row.name): row for row in functions.values() if not row.is_trigger}
    quoting = helpers.pop((log.schema or "", log.own_name(QUOTE_FUNCTION)), None)
    functions = {oid: row for oid, row in functions.items() if row.is_trigger}
    ours: defaultdict[TableName, list[Row[Any]]] = defaultdict(list)
    others: defaultdict[TableName, list[Row[Any]]] = defaultdict(list)
    for row in conn.execute(sql("triggers")):
        is_ours = _owns(log, row.marker) or row.function in functions
        (ours if is_ours else others)[row.schema, row.table_name].append(row)
    return InstalledFunctions(functions, helpers, dict(ours), dict(others), quoting)


def sql(name: str) -> TextClause:
    """Return a statement of installed.sql."""
    return text(statements(__package__, "installed.sql")[name])


# --- facts as literals ----------------------------------------------------------------------------

_EQUALS: Final = "OPERATOR(pg_catalog.=)"
_Columns = TypeVar("_Columns", bound=tuple[str, ...])
"""The schema, table and column of a column, or these of both columns of a foreign key."""


def facts_of(
    conn: Connection, database: Database, log: LogTable, tables: Collection[str]
) -> dict[str, Any]:
    """Return the facts on these tables that differ from most databases, as literals; empty if none
    does. The log need not exist yet.
    """
    schema = database.schema or ""
    log = replace(log, schema=log.schema or schema)
    places = {(schema, table) for table in tables}
    facts = read_facts(conn, log, schema, read_installed(conn, log))
    types = {
        column.type.sql
        for table in database.tables
        if table.name in tables
        for column in table.columns
    }
    literals: dict[str, Any] = {
        "enums": sorted(facts.enums & types),
        "equality": [
            [*place[1:], operator] for place, operator in _unusual(facts.equality, places)
        ],
        "foreign_keys": [
            [*ends, operator] for ends, operator in _unusual(facts.foreign_keys, places)
        ],
        "with_heirs": _names(facts.with_heirs & places),
        "heirs": _names(facts.heirs & places),
        "functions": sorted(
            name
            for home, name in facts.other_functions
            if home == schema and any(name.startswith(f"proc_{table}"[:50]) for table in tables)
        ),
        "triggers": sorted(
            [table, name]
            for home, table, name in facts.other_triggers
            if (home, table) in places and name.startswith("_tgr_")
        ),
    }
    return {name: value for name, value in literals.items() if value}


def _names(places: Iterable[TableName]) -> list[str]:
    return sorted(name for _, name in places)


def _unusual(
    operators: Mapping[_Columns, str], places: Collection[TableName]
) -> list[tuple[_Columns, str]]:
    """Return the columns of these tables whose values are compared by another operator than the
    usual one, with that operator.
    """
    return [
        (columns, operator)
        for columns, operator in sorted(operators.items())
        if operator != _EQUALS and columns[:2] in places
    ]


def from_literals(schema: str, log: LogTable, literals: Mapping[str, Any]) -> Facts:
    """Return the facts from the literals of ``facts_of``."""
    return Facts(
        schema=schema,
        log=log,
        enums=frozenset(literals.get("enums", ())),
        equality={
            (schema, table, column): operator
            for table, column, operator in literals.get("equality", ())
        },
        foreign_keys={
            cast("tuple[str, str, str, str, str, str]", tuple(ends)): operator
            for *ends, operator in literals.get("foreign_keys", ())
        },
        with_heirs=frozenset((schema, name) for name in literals.get("with_heirs", ())),
        heirs=frozenset((schema, name) for name in literals.get("heirs", ())),
        other_functions=frozenset((schema, name) for name in literals.get("functions", ())),
        other_triggers=frozenset(
            (schema, table, name) for table, name in literals.get("triggers", ())
        ),
    )
