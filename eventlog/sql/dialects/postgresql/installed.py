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
from typing import Any, Final, NamedTuple, TypeVar, cast

from sqlalchemy import Connection, Row, TextClause, text

from eventlog.core.catalog import Database
from eventlog.sql.dialects.postgresql.text import MAX_IDENTIFIER
from eventlog.sql.log_table import LogTable, cut_name
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import qualified, quote_identifier, statements
from eventlog.sql.triggers import missing_log
from eventlog.sql.triggers.declared import ChildTriggers, TableName, TableTriggers
from eventlog.sql.triggers.planner import Installed, StoredTrigger

MARKER: Final = re.compile(r"eventlog sha256:([0-9a-f]{64}) (?=log |columns \{)")
"""The beginning of the comments on eventlog's triggers and functions, whichever log they write
to.
"""


def marker_of(log: LogTable, digest: str, columns: Mapping[str, str] | None = None) -> str:
    """Return the comment on triggers and functions: the log that they write to, and the hash of the
    compiled text.

    ``columns`` are the columns for which the text was compiled, name -> type; only a function's
    comment lists them.
    """
    compiled_for = (
        "" if columns is None else f"columns {json.dumps(dict(columns), ensure_ascii=False)} "
    )
    return f"eventlog sha256:{digest} {compiled_for}log {qualified(log.schema, log.name)}"


class Mark(NamedTuple):
    """What the comment of a trigger or a function records: the hash, the columns (name -> type) for
    which it was compiled, and the log as SQL. ``columns`` is empty if the comment names no columns.
    """

    digest: str
    columns: Mapping[str, str]
    log: str


def mark_of(comment: str | None) -> Mark | None:
    """Return what a comment records, None if the comment was not made by eventlog."""
    if comment is None or not (beginning := MARKER.match(comment)):
        return None
    columns: Mapping[str, str] = {}
    rest = comment[beginning.end() :]
    if rest.startswith("columns "):
        try:
            columns, end = json.JSONDecoder().raw_decode(rest, len("columns "))
        except ValueError:  # changed by hand
            return None
        rest = rest[end + 1 :]
    return Mark(beginning[1], columns, rest.removeprefix("log "))


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
    """The tables that take part in inheritance: tables that inherit, and tables from which others
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
    is_superuser: bool = False
    """True if ``owner`` is a superuser, whose functions are given to the owners of the tables."""
    owners: Mapping[TableName, str] = field(default_factory=dict)
    """The owners of tables whose functions a superuser owns or makes, without superusers."""

    def place_of(self, triggers: TableTriggers) -> TableName:
        """Return the schema and name of a declaration's table."""
        return triggers.schema or self.schema, triggers.table.name

    def owner_of(self, triggers: ChildTriggers) -> TableName:
        """Return the schema and name of the table whose rows own the rows of a child table."""
        return triggers.owner_schema or self.schema, triggers.owner.name

    def read_by(self, triggers: TableTriggers) -> set[TableName]:
        """Return the tables that triggers read."""
        owners = {self.owner_of(triggers)} if isinstance(triggers, ChildTriggers) else set()
        return {self.place_of(triggers)} | owners


def find_log(log: OpenLog) -> OpenLog:
    """Return the log with its schema and name in the database.

    Raises LogTableError if it does not exist.
    """
    row = _log_row(log)
    if row is None:
        raise missing_log(log.table)
    return log.db.log(replace(log.table, schema=row.schema, name=row.name))


def _log_row(log: OpenLog) -> Row[Any] | None:
    names = {"schema": log.table.schema, "name": log.table.name}
    return log.connection.execute(sql("log"), names).first()


def read_facts(
    log: OpenLog, schema: str, installed: Installed, others: Iterable[str] = ()
) -> Facts:
    """Return the facts about the schema of the classes and about other schemas, and about the log
    if it exists.
    """
    schemas = sorted({schema, *others})

    def rows(name: str) -> Sequence[Row[Any]]:
        return log.connection.execute(sql(name), {"schemas": schemas}).all()

    def tables_that(is_one: Callable[[Row[Any]], bool]) -> frozenset[TableName]:
        return frozenset((row.schema, row.name) for row in tables if is_one(row))

    log_row = _log_row(log)
    tables = rows("tables")
    own = installed.functions()
    partitions: defaultdict[TableName, dict[TableName, bool]] = defaultdict(dict)
    for row in rows("partitions"):
        partitions[row.schema, row.table_name][row.own_schema, row.name] = row.may_have_triggers
    return Facts(
        schema=schema,
        log=log.table,
        enums=frozenset(row.name for row in log.connection.execute(sql("enums"))),
        equality={
            (row.schema, row.table_name, row.column_name): row.operator for row in rows("equality")
        },
        foreign_keys={tuple(row)[:6]: row.operator for row in rows("foreign_keys")},
        with_heirs=tables_that(lambda row: row.has_heirs),
        heirs=tables_that(lambda row: row.is_heir),
        # CREATE OR REPLACE would replace another program's function without warning, so its name
        # counts as taken.
        other_functions=frozenset(
            (row.schema, row.name) for row in rows("names") if (row.schema, row.name) not in own
        ),
        other_triggers=frozenset(
            (*table, one.name) for table, several in installed.others.items() for one in several
        ),
        readable=tables_that(lambda row: row.is_readable),
        lockable=tables_that(lambda row: row.is_lockable),
        filtered=tables_that(lambda row: row.is_filtered),
        partitions=dict(partitions),
        owner="" if log_row is None else log_row.owner,
        log_is_writable=log_row is None or log_row.is_writable,
        is_superuser=log_row is not None and log_row.is_superuser,
        owners={(row.schema, row.name): row.owner for row in tables if row.owner is not None},
    )


def fits_name(function: str) -> str:
    """Return the name of the function that checks that the table of a trigger function has not
    changed (spec/triggers.md 9).
    """
    return cut_name(f"{function}_fits", MAX_IDENTIFIER)


def stored_triggers(conn: Connection) -> tuple[list[StoredTrigger], list[StoredTrigger]]:
    """Return the triggers of all tables and partitions, and those functions of any log that no
    trigger calls.
    """
    functions = {
        row.oid: StoredTrigger(
            row.schema,
            row.name,
            (row.schema, row.name),
            row.shape,
            digest=mark.digest if row.is_trigger else None,
            log=mark.log,
            columns=mark.columns,
            kind="function",
            row=row,
        )
        for row in conn.execute(sql("functions"))
        if (mark := mark_of(row.marker))
    }
    checking = {one.key: one for one in functions.values() if not one.row.is_trigger}
    called = {
        oid: replace(one, helper=checking.get((one.schema, fits_name(one.name))))
        for oid, one in functions.items()
        if one.row.is_trigger
    }
    triggers = [
        _stored_trigger(row, called.get(row.function)) for row in conn.execute(sql("triggers"))
    ]
    used = {one.row.function for one in triggers}
    return triggers, [called.get(oid, one) for oid, one in functions.items() if oid not in used]


def _stored_trigger(row: Row[Any], function: StoredTrigger | None) -> StoredTrigger:
    # A trigger that was created by hand has no comment, but calls the function.
    mark = mark_of(row.marker) if function is None else function
    return StoredTrigger(
        row.schema,
        row.name,
        (row.schema, row.table_name),
        row.shape,
        is_enabled=row.enabled != "D",
        log=None if mark is None else mark.log,
        helper=function,
        is_partition=row.is_partition,
        is_in_hash=row.is_in_hash,
        row=row,
    )


def gone_logs(log: OpenLog, names: Collection[str]) -> set[str]:
    """Return the logs in ``names`` that are not tables in the database of ``log``. The names are
    SQL.
    """
    if not names:
        return set()
    found = log.connection.execute(sql("logs"), {"names": sorted(names)}).scalars()
    return set(names) - set(found)


def former_names(log: LogTable, gone: Collection[str]) -> list[str]:
    """Return the names in ``gone`` that are former names of the log, as SQL. They are made of the
    log's name and another schema, since a schema may have been renamed. If there are none, the
    other names in the log's schema are returned.
    """
    name, schema = quote_identifier(log.name), f"{quote_identifier(log.schema or '')}."
    moved = [one for one in gone if one.endswith(f".{name}")]
    return moved or [one for one in gone if one.startswith(schema)]


def sql(name: str) -> TextClause:
    """Return a statement of installed.sql."""
    return text(statements(__package__, "installed.sql")[name])


# --- facts as literals ----------------------------------------------------------------------------

_EQUALS: Final = "OPERATOR(pg_catalog.=)"
_Columns = TypeVar("_Columns", bound=tuple[str, ...])
"""The schema, table and name of a column, or of both columns of a foreign key."""


def facts_of(
    log: OpenLog, database: Database, tables: Collection[str], installed: Installed
) -> dict[str, Any]:
    """Return the facts about these tables that differ from the usual ones, as literals; empty if no
    fact differs. The log need not exist yet.
    """
    schema = database.schema or ""
    places = {(schema, table) for table in tables}
    facts = read_facts(log, schema, installed)
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
    """Return the columns of these tables whose values are compared by an unusual operator, together
    with the operator.
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
