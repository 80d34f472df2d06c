"""What a database has: the log, our triggers and functions, and what compiling them needs to know of the tables."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, TextClause, text

from eventlog.core.values import Kind
from eventlog.errors import LogTableError
from eventlog.sql.dialects.postgresql.text import MAX_IDENTIFIER, qualified, quote_identifier
from eventlog.sql.log_table import LogTable, cut_name

MARKER: Final = re.compile(r"eventlog sha256:[0-9a-f]{64} (?=log |columns \{)")
"""How the comments on our triggers and functions begin, whichever log they write."""

TableName = tuple[str, str]
"""Schema and table."""


@dataclass(frozen=True, slots=True)
class Log:
    """The log as its triggers see it. ``table`` and ``quote_function`` are SQL, ``now`` the SQL of event_time, of type
    ``now_type``.
    """

    schema: str
    name: str
    table: str
    columns: str
    now: str
    now_type: str
    quote_function: str
    owner: str
    is_writable: bool
    has_quote_function: bool

    def marker(self, digest: str, columns: Mapping[str, str] | None = None) -> str:
        """The comment on triggers and functions: whose they are, and the hash of what was compiled.

        ``columns``: those that it was compiled for, name -> type, told by a function's comment.
        """
        told = "" if columns is None else f"columns {json.dumps(dict(columns), ensure_ascii=False)} "
        return f"eventlog sha256:{digest} {told}log {self.table}"

    def owns(self, marker: str | None) -> bool:
        return marker is not None and bool(MARKER.match(marker)) and marker.endswith(f" log {self.table}")


class Partition(NamedTuple):
    """A partition of a watched table, at any depth. ``may_have_triggers``: this role may make and run them."""

    schema: str
    name: str
    may_have_triggers: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true of the watched schemas beyond their catalog.

    ``readable``, ``lockable`` (row by row), ``filtered`` (by row level security) and the heirs are sets of tables;
    ``equality`` the operators of unique keys by table and column; ``foreign_keys`` those of foreign keys by both ends;
    ``partitions`` those of partitioned tables.
    """

    enums: frozenset[str]
    equality: Mapping[tuple[str, str, str], str]
    foreign_keys: Mapping[tuple[str, str, str, str, str, str], str]
    readable: frozenset[TableName]
    lockable: frozenset[TableName]
    filtered: frozenset[TableName]
    with_heirs: frozenset[TableName]
    heirs: frozenset[TableName]
    function_names: Mapping[TableName, int]
    partitions: Mapping[TableName, Sequence[Partition]]


@dataclass(frozen=True, slots=True)
class Installed:
    """Trigger functions of one log, by oid; all triggers by table; the names of ours among them.

    ``quoting``: the key quoting function, if it was made with the triggers and not with the log.
    """

    functions: Mapping[int, Row[Any]]
    triggers: Mapping[TableName, Sequence[Row[Any]]]
    ours: frozenset[tuple[str, str, str]]
    quoting: Row[Any] | None

    def on(self, schema: str, table: str) -> list[Row[Any]]:
        """Our triggers on a table."""
        return [row for row in self.triggers.get((schema, table), ()) if (schema, table, row.name) in self.ours]

    def functions_on(self, schema: str, table: str) -> list[Row[Any]]:
        """The functions of our triggers on a table."""
        used = {row.function for row in self.on(schema, table)}
        return [row for oid, row in self.functions.items() if oid in used]


def columns_of(marker: str) -> dict[str, str]:
    """The columns, name -> type, that the comment of a function tells; none if it was made before comments did."""
    _, told, rest = marker.partition(" columns ")
    return json.JSONDecoder().raw_decode(rest)[0] if told else {}


def quote_function_name(log: LogTable) -> str:
    """The name of the key quoting function of a log, in the log's schema (spec/triggers.md 9)."""
    return cut_name(f"proc_{log.name}_quote", MAX_IDENTIFIER)


def find_log(conn: Connection, log: LogTable) -> Log:
    """The log as it is there. Raises LogTableError if it is not."""
    names = {"schema": log.schema, "name": log.name, "quote_function": quote_function_name(log)}
    row = conn.execute(sql("log"), names).first()
    if row is None:
        raise LogTableError(f"the log {log} is missing: run `eventlog db upgrade` first")
    found = LogTable(row.schema, row.name, log.columns, log.types)
    return _log(found, row.schema, row.owner, is_writable=row.is_writable, has_quote_function=row.has_quote_function)


def unseen_log(log: LogTable, schema: str) -> Log:
    """The log as `eventlog db upgrade` makes it, with no database to look. ``schema`` counts if it names none."""
    return _log(log, log.schema or schema, "", is_writable=True, has_quote_function=True)


def _log(log: LogTable, schema: str, owner: str, *, is_writable: bool, has_quote_function: bool) -> Log:
    _, *columns = log.columns  # record_id is the database's to number
    # A zoned column takes the moment itself: without its zone it would be taken for one of the session's.
    is_zoned = bool(log.types) and log.types[3].kind is Kind.TIMESTAMPTZ
    return Log(
        schema=schema,
        name=log.name,
        table=qualified(schema, log.name),
        columns=", ".join(map(quote_identifier, columns)),
        now="pg_catalog.clock_timestamp()" + ("" if is_zoned else " AT TIME ZONE 'UTC'"),
        now_type="pg_catalog.timestamptz" if is_zoned else "pg_catalog.timestamp",
        quote_function=qualified(schema, quote_function_name(log)),
        owner=owner,
        is_writable=is_writable,
        has_quote_function=has_quote_function,
    )


def read_facts(conn: Connection, schemas: Sequence[str]) -> Facts:
    """What is true of these schemas."""

    def rows(name: str) -> Sequence[Row[Any]]:
        return conn.execute(sql(name), {"schemas": list(schemas)}).all()

    tables = rows("tables")
    partitions: defaultdict[TableName, list[Partition]] = defaultdict(list)
    for row in rows("partitions"):
        partitions[row.schema, row.table_name].append(Partition(row.own_schema, row.name, row.may_have_triggers))
    return Facts(
        enums=frozenset(row.name for row in conn.execute(sql("enums"))),
        equality={(row.schema, row.table_name, row.column_name): row.operator for row in rows("equality")},
        foreign_keys={tuple(row)[:6]: row.operator for row in rows("foreign_keys")},
        readable=frozenset((row.schema, row.name) for row in tables if row.is_readable),
        lockable=frozenset((row.schema, row.name) for row in tables if row.is_lockable),
        filtered=frozenset((row.schema, row.name) for row in tables if row.is_filtered),
        with_heirs=frozenset((row.schema, row.name) for row in tables if row.has_heirs),
        heirs=frozenset((row.schema, row.name) for row in tables if row.is_heir),
        function_names={(row.schema, row.name): row.oid for row in rows("names")},
        partitions=dict(partitions),
    )


def read_installed(conn: Connection, log: Log) -> Installed:
    """The triggers and functions of a log, and the triggers of others beside them."""
    functions = {row.oid: row for row in conn.execute(sql("functions")) if log.owns(row.marker)}
    quoting = next((row for row in functions.values() if not row.is_trigger), None)
    functions = {oid: row for oid, row in functions.items() if row.is_trigger}
    triggers: defaultdict[TableName, list[Row[Any]]] = defaultdict(list)
    ours = set()
    for row in conn.execute(sql("triggers")):
        triggers[row.schema, row.table_name].append(row)
        if log.owns(row.marker) or row.function in functions:
            ours.add((row.schema, row.table_name, row.name))
    return Installed(functions, dict(triggers), frozenset(ours), quoting)


def sql(name: str) -> TextClause:
    """A statement of installed.sql."""
    return _statements()[name]


@cache
def _statements() -> dict[str, TextClause]:
    script = resources.files(__package__).joinpath("installed.sql").read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- name: (\w+)$", script, flags=re.MULTILINE)
    return {
        name: text(statement.rstrip().removesuffix(";"))
        for name, statement in zip(parts[::2], parts[1::2], strict=True)
    }
