"""The trigger templates of every dialect in each of their versions, and what is compiled by them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import eventlog.sql.dialects
from eventlog.changes.json_form import database_from_json
from eventlog.sql.connection import SUPPORTED, load_dialect
from eventlog.sql.migrations.operations import WatchDefinition, compile_definition, with_tables
from eventlog.sql.statements import TEMPLATE_VERSION, read_template
from eventlog.sql.triggers.watch import Watch

FROZEN = Path(__file__).with_name("frozen.json")
PACKAGES = Path(eventlog.sql.dialects.__file__).parent
NO_TRIGGERS = ("quote_function.sql.j2", "resync.sql.j2", "base64_function.sql.j2")
"""Templates of the log and of resyncs, which no watch uses."""

TYPES = (
    *("smallint", "integer", "bigint", "decimal(9,2)", "real", "double", "boolean", "char(3)", "varchar(40)", "text"),
    *("varbinary(20)", "date", "time", "timestamp", "timestamptz", "uuid", "json"),
)
CATALOGUE = {
    "schema": "hr",
    "tables": [
        {
            "name": "usr",
            "kind": "table",
            "columns": [
                {"name": "idu", "type": "integer"},
                {"name": "Na me'", "type": "varchar(20)"},
                *({"name": f"c{number}", "type": name} for number, name in enumerate(TYPES)),
            ],
            "primary_key": ["Na me'", "idu"],
        },
        {
            "name": "usr_phone",
            "kind": "table",
            "columns": [
                {"name": "idu", "type": "integer"},
                {"name": "who", "type": "varchar(20)"},
                {"name": "phoneno", "type": "text"},
            ],
            "foreign_keys": [{"columns": ["who", "idu"], "table": "usr", "ref_columns": ["Na me'", "idu"]}],
            "unique_keys": [["who", "idu", "phoneno"]],
        },
        {"name": "bare", "kind": "table", "columns": [{"name": "k", "type": "bigint"}], "primary_key": ["k"]},
    ],
}
"""Every type, a key of two columns, a child table, a class of its key alone."""

STYLES = ("field", "remove_all", "field_query_back", "row_query_back")


def names_in_use() -> list[str]:
    """Each dialect, and each of its templates that triggers are compiled by, with the version in use."""
    files = [file for file in PACKAGES.glob("*/*.j2") if file.name not in NO_TRIGGERS]
    names = [*SUPPORTED, *(file.relative_to(PACKAGES).as_posix() for file in files)]
    return [f"{name} v{TEMPLATE_VERSION}" for name in sorted(names)]


def hash_of(name: str) -> str:
    """The hash of a template in a version (``sqlite/trigger.sql.j2 v1``), or of what a dialect compiles by it."""
    place, _, version = name.rpartition(" v")
    dialect_name, is_template, template = place.partition("/")
    if not is_template:
        return sha256("\n".join(compiled(dialect_name, int(version))))
    return sha256(read_template(f"eventlog.sql.dialects.{dialect_name}", template, int(version)))


def compiled(dialect_name: str, version: int) -> Iterator[str]:
    """The SQL of watches of every style and capture."""
    dialect = load_dialect(dialect_name)
    has_schemas = "schemas" in dialect.capabilities
    database = database_from_json({**CATALOGUE, "dialect": dialect_name, "schema": "hr" if has_schemas else None})
    for capture in ("row", "statement"):
        if capture == "statement" and "statement_capture" not in dialect.capabilities:
            continue
        for style in STYLES:
            for table in ("usr", "bare"):
                watch = Watch(table, style=style, capture=capture)  # type: ignore[arg-type]
                definition = WatchDefinition(watch, "eventlog", database.schema, database.schema, None, version)
                for one in compile_definition(with_tables(definition, database), dialect_name):
                    yield from (*one.create, *one.drop)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
