"""A small catalog and short forms of log rows, for the tests of the pure core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from eventlog.changes.json_form import database_from_json
from eventlog.core.catalog import Catalog, Database, ObjectClass
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.rows.checks import CheckedRow, check_rows
from eventlog.model import LogRow, queue_rows


def columns(text: str) -> list[dict[str, str]]:
    """``"id integer; name text"`` as columns."""
    pairs = (part.strip().partition(" ") for part in text.split(";"))
    return [{"name": name, "type": column_type} for name, _, column_type in pairs]


def table(
    name: str, text: str, key: str = "", references: Iterable[tuple[str, str, str]] = ()
) -> dict[str, Any]:
    """A table; names of several columns in ``key`` and ``references`` (columns, table, its columns)
    by blanks.
    """
    return {
        "name": name,
        "kind": "table",
        "columns": columns(text),
        "primary_key": key.split(),
        "foreign_keys": [
            {"columns": own.split(), "table": other, "ref_columns": refs.split()}
            for own, other, refs in references
        ],
    }


def view(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "kind": "view", "columns": columns(text)}


def database(*tables: dict[str, Any], schema: str | None = "indirect") -> Database:
    return database_from_json({"dialect": "postgresql", "schema": schema, "tables": list(tables)})


USR = table("usr", "idu integer; fname varchar(64); lname varchar(64); photo blob", "idu")
PHONE = table("usr_phone", "idu integer; phoneno varchar(32)", "", [("idu", "usr", "idu")])
ONLY_KEY = table("tag", "code char(4)", "code")


def catalog(**options: Any) -> Catalog:
    """usr with the child table usr_phone, and tag, which has a key and nothing else."""
    return build_catalog(database(USR, PHONE, ONLY_KEY), **options)


CATALOG = catalog()


def usr() -> ObjectClass:
    return CATALOG.class_named("usr")


def row(
    record_id: int,
    event_type: int | None,
    key: str | None = "idu=1",
    column: str | None = None,
    old: str | None = None,
    new: str | None = None,
    *,
    table: str | None = "usr",
    perpetrator: str | None = "app",
    status: str = "N",
) -> LogRow:
    """A row of the log."""
    return LogRow(record_id, status, event_type, None, perpetrator, table, key, column, old, new)


def good(rows: Sequence[LogRow], of: Catalog = CATALOG) -> list[CheckedRow]:
    """The rows as checked ones; none may be bad."""
    checked = check_rows(queue_rows(rows), of, None)
    assert not checked.invalid, checked.invalid
    return checked.valid
