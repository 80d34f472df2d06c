"""Read what is installed in a database: the log, eventlog's triggers and functions, and the facts
about tables that the compiler of triggers needs.

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
from eventlog.sql.port.sql_files import qualified, quote_identifier, statements
from eventlog.sql.triggers import digest_of, missing_log
from eventlog.sql.triggers.declared import ChildTriggers, TableName, TableTriggers

MARKER: Final = re.compile(r"eventlog sha256:[0-9a-f]{64} (?=log |columns \{)")
"""The beginning of the comments on eventlog's triggers and functions, whichever log they write
to.
"""


def marker_of(log: LogTable, digest: str, columns: Mapping[str, str] | None = None) -> str:
    """Return the comment on triggers and functions: the log that they write to, and the hash of the
    compiled text.

    ``columns`` are the columns for which it was compiled, name -> type; only a function's comment
    lists them.
    """
    compiled_for = (
        "" if columns is None else f"columns {json.dumps(dict(columns), ensure_ascii=False)} "
    )
    return f"eventlog sha256:{digest} {compiled_for}log {qualified(log.schema, log.name)}"


def log_of(marker: str | None) -> str | None:
    """Return the log that a comment names, as SQL; None if it is not a comment of eventlog's."""
    if marker is None or not (beginning := MARKER.match(marker)):
        return None
    rest = marker[beginning.end() :]
    if rest.startswith("columns "):
        try:
            _, end = json.JSONDecoder().raw_decode(rest, len("columns "))
        except ValueError:  # changed by hand
            return None
        rest = rest[end + 1 :]
    return rest.removeprefix("log ")


def digest_of_markers(markers: Iterable[str]) -> str:
    """Return one hash of the hashes in the comments of a table's functions."""
    beginnings = filter(None, map(MARKER.match, markers))
    return digest_of(beginning[0].split()[1].removeprefix("sha256:") for beginning in beginnings)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a log and the watched schemas, in addition to their catalogue."""

    schema: str
    """The schema of the classes."""
    log: LogTable
    enums: frozenset[str]
    equality: Mapping[tuple[str, str, str], str]
    """The operators of unique keys by table and column."""
    foreign_keys: Mapping[tuple[str, str, str, str, str, str], str]
    """The operators of foreign keys, by the referring and the referred column."""
    with_heirs: frozenset[TableName]
    heirs: frozenset[TableName]
    """The tables that take part in inheritance: those that inherit, and those from which others
    inherit.
    """
    other_functions: frozenset[TableName]
    other_triggers: frozenset[tuple[str, str, str]]
    """The names of functions and triggers that belong to other programs."""
    readable: frozenset[TableName] = frozenset()
    """The tables that ``owner`` may read."""
    lockable: frozenset[TableName] = frozenset()
    """The tables that ``owner`` may lock row by row."""
    filtered: frozenset[TableName] = frozenset()
    """The tables that row level security filters for ``owner``."""
    partitions: Mapping[TableName, Mapping[TableName, bool]] = field(default_factory=dict)
    """The partitions of partitioned tables, at any depth, and whether this role may create triggers
    there.
    """
    owner: str = ""
    """The role that the triggers will run as."""
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
    """The trigger functions of one log, its triggers, and the triggers of others.

    They include functions and triggers of a log that does not exist any more, if it can only be
    this log under its former name.
    """

    functions: Mapping[int, Row[Any]]
    """The trigger functions of the log, by oid."""
    helpers: Mapping[TableName, Row[Any]]
    """The functions that check that a table has not changed, by schema and name."""
    ours: Mapping[TableName, Sequence[Row[Any]]]
    others: Mapping[TableName, Sequence[Row[Any]]]
    """The triggers of the log, and the triggers of other programs, by table."""
    quoting: Row[Any] | None
    """The key quoting function, if it was created with the triggers and not with the log."""
    lost: Mapping[TableName, Collection[str]]
    """The names, as SQL, of other logs that no longer exist, by the table whose triggers write to
    them.
    """

    def on(self, table: TableName) -> Sequence[Row[Any]]:
        """Return eventlog's triggers on a table."""
        return self.ours.get(table, ())

    def functions_on(self, table: TableName) -> list[Row[Any]]:
        """Return the functions of eventlog's triggers on a table."""
        used = {row.function for row in self.on(table)}
        return [row for oid, row in self.functions.items() if oid in used]


def columns_of(marker: str) -> dict[str, str]:
    """Return the columns, name -> type, in the comment of a function, none if it names none."""
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
    """Return the facts about the schema of the classes and about other schemas, and about the log
    if it exists.
    """
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
        # CREATE OR REPLACE would replace another program's function without warning, so its name
        # counts as taken.
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


def read_installed(
    conn: Connection, log: LogTable, takes: Callable[[TableName], bool] = lambda _: False
) -> InstalledFunctions:
    """Return the triggers and functions of a log, and the triggers of others on the same tables.

    ``takes`` returns True for tables whose triggers are taken over if their log does not exist any
    more.
    """
    rows = {row.oid: row for row in conn.execute(sql("functions"))}
    written = {oid: name for oid, row in rows.items() if (name := log_of(row.marker))}
    triggers = conn.execute(sql("triggers")).all()
    own = qualified(log.schema, log.name)
    gone = _gone(conn, set(written.values()) - {own})
    former = _former_functions(log, triggers, written, gone, takes) if gone else set()
    # The comment of a checking function has the log and the hash of the function that calls it.
    of_former = {(written[oid], _digest(rows[oid].marker)) for oid in former}
    ours = {
        oid: rows[oid]
        for oid, name in written.items()
        if name == own or (name, _digest(rows[oid].marker)) in of_former
    }
    helpers = {(row.schema, row.name): row for row in ours.values() if not row.is_trigger}
    quoting = helpers.pop((log.schema or "", log.own_name(QUOTE_FUNCTION)), None)
    functions = {oid: row for oid, row in ours.items() if row.is_trigger}
    on_ours: defaultdict[TableName, list[Row[Any]]] = defaultdict(list)
    on_others: defaultdict[TableName, list[Row[Any]]] = defaultdict(list)
    lost: defaultdict[TableName, dict[str, None]] = defaultdict(dict)
    for row in triggers:
        place = row.schema, row.table_name
        is_ours = log_of(row.marker) == own or row.function in functions
        (on_ours if is_ours else on_others)[place].append(row)
        if not is_ours and (name := written.get(row.function)) in gone and name is not None:
            lost[place][name] = None
    return InstalledFunctions(
        functions, helpers, dict(on_ours), dict(on_others), quoting, dict(lost)
    )


def _digest(marker: str) -> str:
    return marker.split(" ", 2)[1]


def _gone(conn: Connection, logs: Collection[str]) -> set[str]:
    """Return the logs among ``logs``, named as SQL, that are not tables of the database."""
    if not logs:
        return set()
    return set(logs) - set(conn.execute(sql("logs"), {"names": sorted(logs)}).scalars())


def _former_functions(
    log: LogTable,
    triggers: Iterable[Row[Any]],
    written: Mapping[int, str],
    gone: Collection[str],
    takes: Callable[[TableName], bool],
) -> set[int]:
    """Return the trigger functions, by oid, that were made for the log under a former name
    (spec/triggers.md 9.3).

    ``written`` has the log that each function writes to, as SQL, and ``gone`` the logs that are not
    tables. Functions on a table whose triggers write to the log under its present name are left
    out.
    """
    functions: defaultdict[TableName, set[int]] = defaultdict(set)
    for row in triggers:
        if row.function in written and takes((row.schema, row.table_name)):
            functions[row.schema, row.table_name].add(row.function)
    own = qualified(log.schema, log.name)
    former: set[int] = set()
    for of_table in functions.values():
        logs = {written[oid] for oid in of_table}
        if own not in logs and (name := _former_name(log, logs & set(gone))):
            former |= {oid for oid in of_table if written[oid] == name}
    return former


def _former_name(log: LogTable, gone: Collection[str]) -> str | None:
    """Return the former name of the log among these names, as SQL: its name in a schema that was
    renamed, or another name in its schema. None if there is no such name, or more than one.
    """
    name, schema = quote_identifier(log.name), f"{quote_identifier(log.schema or '')}."
    moved = [one for one in gone if one.endswith(f".{name}")]
    renamed = [one for one in gone if one.startswith(schema)]
    found = moved or renamed
    return found[0] if len(found) == 1 else None


def sql(name: str) -> TextClause:
    """Return a statement of installed.sql."""
    return text(statements(__package__, "installed.sql")[name])


# --- facts as literals ----------------------------------------------------------------------------

_EQUALS: Final = "OPERATOR(pg_catalog.=)"
_Columns = TypeVar("_Columns", bound=tuple[str, ...])
"""The schema, table and name of a column, or the same three of both columns of a foreign key."""


def facts_of(
    conn: Connection, database: Database, log: LogTable, tables: Collection[str]
) -> dict[str, Any]:
    """Return the facts about these tables that differ from the usual ones, as literals; empty if
    there is none. The log need not exist yet.
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
    """Return the columns of these tables whose values are compared by an unusual operator, with
    that operator.
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
