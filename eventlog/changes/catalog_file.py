"""Catalogues in JSON: the tables of a schema in a file, as an option of formats, of a source and of commands."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from eventlog.core.catalog import Catalog, Column, Database, ForeignKey, Table, build_catalog
from eventlog.core.options import Kind, Option, instance_of
from eventlog.core.values import parse_type
from eventlog.errors import ConfigError, number_of, with_location

CatalogOption: TypeAlias = str | Database | Mapping[str, Any] | None
"""A JSON catalogue: its path, its content (the form of the ``database`` member of spec/xds.md 9), or what it means."""


CATALOG: Final = Option(
    None,
    Kind(instance_of(str, Database, Mapping), "a path, or an object"),
    "JSON catalogue of the tables: their columns, types and keys",
)


def database_of(option: CatalogOption) -> Database | None:
    """The tables that the option ``catalog`` names, None without it. Raises ConfigError."""
    if option is None or isinstance(option, Database):
        return option
    if isinstance(option, Mapping):
        return database_from_json(option)
    try:
        return database_from_json(read_catalog(Path(option)))
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from None


def catalog_of(option: CatalogOption, **building: Any) -> Catalog | None:
    """The classes of the tables that the option ``catalog`` names, None without it. ``building``: more for
    ``build_catalog``. Raises ConfigError.
    """
    database = database_of(option)
    return None if database is None else build_catalog(database, **building)


def read_catalog(path: Path) -> Mapping[str, Any]:
    """The content of a catalogue file, or of its member ``database``. Raises ConfigError."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"the catalog {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the catalog {path} is not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("database", value), dict):
        raise ConfigError(f"the catalog {path} is no JSON object")
    content: Mapping[str, Any] = value.get("database", value)
    return content


def database_from_json(value: Mapping[str, Any]) -> Database:
    """A database from the form of the ``database`` member of the ``xds/`` cases (spec/xds.md 9).

    Raises ConfigError that names the member which is missing, unknown or not of its form.
    """
    _refuse_unknown("database", value, {"dialect", "schema", "tables"})
    dialect = value.get("dialect")
    if not isinstance(dialect, str):
        raise _no_member("database", value, "dialect", "a text such as postgresql")
    schema = value.get("schema")
    if schema is not None:
        schema = _name("database", value, "schema")
    tables = tuple(map(_table_from_json, _objects("database", value, "tables")))
    _refuse_twice("database", "table", [table.name for table in tables])
    return Database(dialect, schema, tables)


def _table_from_json(value: Mapping[str, Any]) -> Table:
    name = _name("table", value, "name")
    what = f"table {name!r}"
    _refuse_unknown("table", value, {"name", "kind", "columns", "primary_key", "foreign_keys", "unique_keys"})
    kind = value.get("kind")
    if kind not in ("table", "view"):
        raise _no_member(what, value, "kind", "table or view")
    columns = tuple(_column_from_json(what, column) for column in _objects(what, value, "columns"))
    positions = {column.name: position for position, column in enumerate(columns)}
    _refuse_twice(what, "column", [column.name for column in columns])
    primary_key = _names(what, value, "primary_key") if value.get("primary_key") else ()
    _refuse_twice(what, "key column", primary_key)
    keys = _objects(what, value, "foreign_keys") if value.get("foreign_keys") else ()
    foreign_keys = [_foreign_key_from_json(f"a foreign key of {what}", key) for key in keys]
    for column in (*primary_key, *(column for key in foreign_keys for column in key.columns)):
        if column not in positions:
            raise ConfigError(f"{what} of the catalog has no column {column!r}")
    unique_keys = value.get("unique_keys") or ()
    if not isinstance(unique_keys, list | tuple):
        raise _no_member(what, value, "unique_keys", "a list of lists of names")
    unique = tuple(_names(what, {"unique_keys": key}, "unique_keys") for key in unique_keys)
    return Table(
        name=name,
        kind=kind,
        columns=columns,
        primary_key=primary_key,
        foreign_keys=tuple(sorted(foreign_keys, key=lambda key: positions[key.columns[0]])),
        unique_keys=unique + ((primary_key,) if primary_key else ()),
    )


def _column_from_json(table: str, value: Mapping[str, Any]) -> Column:
    name = _name(f"column of {table}", value, "name")
    what = f"column {name!r} of {table}"
    _refuse_unknown("column", value, {"name", "type"})
    if not isinstance(value.get("type"), str):
        raise _no_member(what, value, "type", "a text such as varchar(64)")
    try:
        return Column(name, parse_type(value["type"]))
    except ConfigError as error:
        raise with_location(error, f"{what} of the catalog") from None


def _foreign_key_from_json(what: str, value: Mapping[str, Any]) -> ForeignKey:
    _refuse_unknown("foreign key", value, {"columns", "table", "ref_columns"})
    columns, ref_columns = _names(what, value, "columns"), _names(what, value, "ref_columns")
    if len(columns) != len(ref_columns):
        referred = number_of(len(ref_columns), "ref_column")
        raise ConfigError(f"{what} of the catalog has {number_of(len(columns), 'column')} and {referred}")
    return ForeignKey(columns, _name(what, value, "table"), ref_columns)


def _no_member(what: str, value: Mapping[str, Any], member: str, needed: str) -> ConfigError:
    if member not in value:
        return ConfigError(f"{what} of the catalog lacks the member {member!r}: {needed} is needed")
    return ConfigError(f"{member} of {what} of the catalog is {reprlib.repr(value[member])}: {needed} is needed")


def _name(what: str, value: Mapping[str, Any], member: str) -> str:
    name = value.get(member)
    if not isinstance(name, str) or not name:
        raise _no_member(what, value, member, "a name")
    return name


def _names(what: str, value: Mapping[str, Any], member: str) -> tuple[str, ...]:
    names = value.get(member)
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise _no_member(what, value, member, "a list of names")
    return tuple(names)


def _objects(what: str, value: Mapping[str, Any], member: str) -> Sequence[Mapping[str, Any]]:
    objects = value.get(member)
    if not isinstance(objects, list | tuple) or not all(isinstance(one, Mapping) for one in objects):
        raise _no_member(what, value, member, "a list of objects")
    return objects


def _refuse_twice(what: str, kind: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise ConfigError(f"{what} of the catalog has the {kind} {twice!r} twice")


def _refuse_unknown(what: str, value: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(str(name) for name in set(value) - known)
    if unknown:
        raise ConfigError(
            f"unknown member {unknown[0]!r} in a {what} of the catalog; known: {', '.join(sorted(known))}"
        )
