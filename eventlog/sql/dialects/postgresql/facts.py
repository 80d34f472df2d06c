"""What compiling needs to know of a database beyond its catalogue, as literals that a migration can hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

from sqlalchemy import Connection

from eventlog.core.catalog import Database
from eventlog.sql.dialects.postgresql.installed import Facts, Installed, read_facts, read_installed, unseen_log
from eventlog.sql.log_table import LogTable

_EQUALS: Final = "OPERATOR(pg_catalog.=)"


def facts_of(conn: Connection, database: Database, log: LogTable, tables: Collection[str]) -> dict[str, Any]:
    """What is not as in most databases, of these tables; empty if nothing is. The log need not be there yet."""
    schema = database.schema or ""
    places = {(schema, table) for table in tables}
    facts, installed = read_facts(conn, [schema]), read_installed(conn, unseen_log(log, schema))
    types = {column.type.sql for table in database.tables if table.name in tables for column in table.columns}
    found: dict[str, Any] = {
        "enums": sorted(facts.enums & types),
        "equality": [
            [*place[1:], operator]
            for place, operator in sorted(facts.equality.items())
            if operator != _EQUALS and place[:2] in places
        ],
        "foreign_keys": [
            [*ends, operator]
            for ends, operator in sorted(facts.foreign_keys.items())
            if operator != _EQUALS and ends[:2] in places
        ],
        "with_heirs": sorted(name for _, name in facts.with_heirs & places),
        "heirs": sorted(name for _, name in facts.heirs & places),
        "functions": sorted(
            name
            for (home, name), oid in facts.function_names.items()
            if home == schema
            and oid not in installed.functions
            and any(name.startswith(f"proc_{table}"[:50]) for table in tables)
        ),
        "triggers": sorted(
            [place[1], row.name]
            for place in places
            for row in installed.triggers.get(place, ())
            if (*place, row.name) not in installed.ours and row.name.startswith("_tgr_")
        ),
    }
    return {name: value for name, value in found.items() if value}


def from_literals(schema: str, literals: Mapping[str, Any]) -> tuple[Facts, Installed]:
    """The facts again, and the names of functions and triggers that are taken."""
    triggers: dict[tuple[str, str], list[Any]] = {}
    for table, name in literals.get("triggers", ()):
        triggers.setdefault((schema, table), []).append(SimpleNamespace(name=name))
    facts = Facts(
        enums=frozenset(literals.get("enums", ())),
        equality={(schema, table, column): operator for table, column, operator in literals.get("equality", ())},
        foreign_keys={
            cast("tuple[str, str, str, str, str, str]", tuple(ends)): operator
            for *ends, operator in literals.get("foreign_keys", ())
        },
        readable=frozenset(),
        lockable=frozenset(),
        filtered=frozenset(),
        with_heirs=frozenset((schema, name) for name in literals.get("with_heirs", ())),
        heirs=frozenset((schema, name) for name in literals.get("heirs", ())),
        function_names={(schema, name): -1 for name in literals.get("functions", ())},
        partitions={},
    )
    return facts, Installed({}, triggers, frozenset(), None)
