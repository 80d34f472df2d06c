"""The JSON forms of changes and catalogues.

Test vectors, logs and the format ``jsonl`` contain changes (spec/change-model.md 1.1). A catalogue
contains the tables of a schema (spec/xds.md 9). A catalogue is an option of formats, sources and
commands.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from eventlog.changes.images import column_types, with_types
from eventlog.changes.keys import class_of_change
from eventlog.core.catalog import Catalog, Column, Database, ForeignKey, Table
from eventlog.core.catalog.builder import build_catalog, complete_catalog
from eventlog.core.options import (
    REQUIRED,
    STRING,
    CheckedOptions,
    Option,
    OptionKind,
    choice,
    instance_of,
    list_of,
    option,
    parse_name,
    parse_options,
)
from eventlog.core.values import (
    TYPE_NAMES,
    ColumnType,
    float_or_special,
    is_money,
    parse_type,
)
from eventlog.core.values.json_bytes import json_value
from eventlog.core.values.moments import aware_utc, without_zeros
from eventlog.core.values.typed_values import decimal_text
from eventlog.errors import ConfigError, FormatError, RowError, kind_of, number_of, with_location
from eventlog.model import Change, ChangeOp, JsonDict, JsonObject, Lob, Names, Row, Value

Of = TypeVar("Of")


def to_json(change: Change) -> JsonDict:
    """Return the JSON object of a change: all its fields in order. A value without a type in JSON
    becomes text.
    """
    return {
        "schema": change.schema,
        "table": change.table,
        "op": change.op.value,
        "key": None
        if change.key is None
        else [[name, value_to_json(value)] for name, value in change.key],
        "before": _row_to_json(change.before),
        "after": _row_to_json(change.after),
        "changed": None if change.changed is None else sorted(change.changed),
        "position": change.position,
        "transaction_id": change.transaction_id,
        "event_number": change.event_number,
        "last_in_transaction": change.last_in_transaction,
        "commit_time": None if change.commit_time is None else utc_text(change.commit_time),
        "user": change.user,
        "extras": {name: _extra_to_json(value) for name, value in change.extras.items()},
    }


def dumps(change: Change) -> str:
    """Return a change as one line of JSON, without the line break."""
    return json.dumps(to_json(change), ensure_ascii=False, separators=(",", ":"))


def from_json(value: JsonObject) -> Change:
    """Return the change of a JSON object. Missing members are None, unknown members are ignored.

    Text stays text: JSON does not distinguish dates and decimals from text. Raises FormatError.
    """
    if not isinstance(value, Mapping):
        raise FormatError(f"a change is a JSON object, not {type(value).__name__}")
    table, op, commit_time = value.get("table"), value.get("op"), value.get("commit_time")
    if not isinstance(table, str):
        raise FormatError(f"a change needs the name of its table as text, not {table!r}")
    if not isinstance(op, str) or op not in ChangeOp.__members__:
        raise FormatError(
            f"op of a change of {table!r} is {op!r}; use one of {', '.join(ChangeOp.__members__)}"
        )
    try:
        key, changed = member(value, "key", list), member(value, "changed", list)
        return Change(
            member(value, "schema", str),
            table,
            ChangeOp(op),
            None if key is None else tuple(_key_part(part) for part in key),
            _row_from_json(member(value, "before", dict)),
            _row_from_json(member(value, "after", dict)),
            None if changed is None else frozenset(changed),
            member(value, "position", str),
            member(value, "transaction_id", str),
            member(value, "event_number", int),
            member(value, "last_in_transaction", bool),
            None if commit_time is None else aware_utc(datetime.fromisoformat(commit_time)),
            member(value, "user", str),
            {
                name: _extra_from_json(part)
                for name, part in (member(value, "extras", dict) or {}).items()
            },
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FormatError(f"the change of {table!r} cannot be read: {error}") from error


def loads(line: str | bytes) -> Change:
    """Return the change of one line of JSON. Raises FormatError."""
    try:
        value = json_value(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the line is not JSON: {error}") from None
    return from_json(value)


def typed_change(change: Change, catalog: Catalog | None) -> Change:
    """Return a change from JSON, with its values converted to the types of the catalogue's columns.

    Raises FormatError.
    """
    object_class = class_of_change(catalog, change)
    if object_class is None:
        return change
    try:
        return with_types(change, column_types(object_class), reads_texts=True)
    except RowError as error:
        raise FormatError(
            f"{change.op} of {change.table!r} at {change.position}: {error}"
        ) from error


def value_to_json(value: Value) -> Any:
    """Return the JSON of a column's value: Decimal, date and time as text, bytes as ``{"hex":
    "00FF"}``, several values as an array.

    Floats that JSON cannot write as numbers become the texts NaN, Infinity and -Infinity
    (spec/xds.md 6.1).
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return float_or_special(value)
        case Decimal():
            return decimal_text(value)
        case bytes(data) | Lob(data):
            return {"hex": data.hex().upper()}
        case datetime() | time():
            return without_zeros(value.isoformat())
        case date():
            return value.isoformat()
        case tuple():
            return [value_to_json(part) for part in value]


def value_from_json(value: Any) -> Value:
    """Return the value whose JSON ``value_to_json`` wrote; text stays text."""
    if isinstance(value, dict):
        if value.keys() != {"hex"}:
            raise ValueError(
                f"a JSON object with the members {', '.join(value) or 'none'} is not a value; "
                'write bytes as {"hex": "..."}'
            )
        return bytes.fromhex(value["hex"])
    if isinstance(value, list):
        return tuple(value_from_json(part) for part in value)
    plain: Value = value
    return plain


def member(value: JsonObject, name: str, kind: type[Of]) -> Of | None:
    """Return the member, None if it is missing or null. Raises TypeError if the member has another
    type than ``kind``.
    """
    part = value.get(name)
    if part is None or (isinstance(part, kind) and (kind is bool or not isinstance(part, bool))):
        return part
    raise TypeError(f"{name} is {part!r:.60}, which is not of type {kind.__name__}")


def _key_part(part: Any) -> tuple[str, Value]:
    if not isinstance(part, list) or len(part) != 2 or not isinstance(part[0], str):
        raise TypeError(f"{part!r} is not a [column, value] pair of a key")
    return part[0], value_from_json(part[1])


def _row_to_json(row: Row | None) -> JsonDict | None:
    return None if row is None else {name: value_to_json(value) for name, value in row.items()}


def _row_from_json(row: JsonObject | None) -> Row | None:
    return None if row is None else {name: value_from_json(value) for name, value in row.items()}


def _extra_to_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _extra_to_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, Lob):
        return [_extra_to_json(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(value)
    return value_to_json(value)


def _extra_from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"hex"}:
            return bytes.fromhex(value["hex"])
        return {name: _extra_from_json(part) for name, part in value.items()}
    return [_extra_from_json(part) for part in value] if isinstance(value, list) else value


def utc_text(moment: datetime) -> str:
    """Return a moment as text in UTC (RFC 3339 5.6), without trailing zeros in its fraction."""
    return without_zeros(aware_utc(moment).isoformat().removesuffix("+00:00")) + "Z"


# --- catalogues -----------------------------------------------------------------------------------

CatalogOption: TypeAlias = str | Database | JsonObject | None
"""A JSON catalogue: its path, its content (in the form of the ``database`` member of spec/xds.md
9), or the parsed Database.
"""


CATALOG: Final = Option(
    None,
    OptionKind(instance_of(str, Database, Mapping), "a path, or an object"),
    "JSON catalogue of the tables: their columns, types and keys",
)


def database_of(option: CatalogOption) -> Database | None:
    """Return the tables that the option ``catalog`` names, None without the option.

    Raises ConfigError.
    """
    if option is None or isinstance(option, Database):
        return option
    if isinstance(option, Mapping):
        return database_from_json(option)
    if not isinstance(option, str | os.PathLike):
        raise ConfigError(f"catalog is {kind_of(option)}; give a path, or an object of tables")
    try:
        return database_from_json(read_catalog(Path(option)))
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from None


def catalog_of(option: CatalogOption, **building: Any) -> Catalog | None:
    """Return the classes of the tables that the option ``catalog`` names, None without the option.
    ``building`` holds further arguments of ``build_catalog``. Raises ConfigError.
    """
    database = database_of(option)
    return None if database is None else complete_catalog(build_catalog(database, **building))


def read_catalog(path: Path) -> JsonObject:
    """Return the content of a catalogue file, or of its member ``database``. Raises ConfigError."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the catalog {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the catalog {path} is not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("database", value), dict):
        raise ConfigError(f"the catalog {path} is not a JSON object")
    content: JsonObject = value.get("database", value)
    return content


def _parse_name_list(value: Any) -> Names:
    names = tuple(map(parse_name, instance_of(list, tuple)(value)))
    if not names:
        raise ValueError
    return names


def _parse_name_lists(value: Any) -> tuple[Names, ...]:
    return tuple(map(_parse_name_list, instance_of(list, tuple)(value)))


def _optional_names(kind: OptionKind) -> OptionKind:
    """Return the kind that accepts what ``kind`` accepts, and also null and an empty list for no
    names.
    """
    return OptionKind(lambda value: kind.parse(value) if value else (), kind.legal)


_NAME: Final = OptionKind(parse_name, "a name")
_NAME_LIST: Final = OptionKind(_parse_name_list, "a list of names")
_NAME_LISTS: Final = OptionKind(_parse_name_lists, "a list of lists of names")
_TYPE: Final = OptionKind(STRING.parse, "a text such as varchar(64)")


@dataclass(frozen=True, slots=True)
class _ColumnForm(CheckedOptions):
    """A column in JSON."""

    name: str = option(REQUIRED, _NAME, "name of the column")
    type: str = option(REQUIRED, _TYPE, "type as the database has it")


@dataclass(frozen=True, slots=True)
class _ForeignKeyForm(CheckedOptions):
    """A foreign key in JSON."""

    columns: Names = option(REQUIRED, _NAME_LIST, "its columns")
    table: str = option(REQUIRED, _NAME, "referenced table")
    ref_columns: Names = option(REQUIRED, _NAME_LIST, "referenced columns")


@dataclass(frozen=True, slots=True)
class _TableForm(CheckedOptions):
    """A table or view in JSON."""

    name: str = option(REQUIRED, _NAME, "name of the table")
    kind: Literal["table", "view"] = option(REQUIRED, choice("table", "view"), "table or view")
    columns: tuple[_ColumnForm, ...] = option(REQUIRED, list_of(_ColumnForm, "column"), "columns")
    primary_key: Names = option((), _optional_names(_NAME_LIST), "columns of the primary key")
    foreign_keys: tuple[_ForeignKeyForm, ...] = option(
        (), _optional_names(list_of(_ForeignKeyForm, "foreign key")), "foreign keys"
    )
    unique_keys: tuple[Names, ...] = option(
        (), _optional_names(_NAME_LISTS), "columns of each unique key"
    )


@dataclass(frozen=True, slots=True)
class _DatabaseForm(CheckedOptions):
    """The tables of a schema in JSON."""

    dialect: str = option(
        REQUIRED, OptionKind(STRING.parse, "a text such as postgresql"), "database"
    )
    schema: str | None = option(None, _NAME, "schema of the tables")
    tables: tuple[_TableForm, ...] = option(REQUIRED, list_of(_TableForm, "table"), "tables")


def database_from_json(value: JsonObject) -> Database:
    """Return a database from its JSON form: the member ``database`` of the ``xds/`` cases
    (spec/xds.md 9).

    Raises ConfigError that names the missing, unknown or malformed members.
    """
    form = parse_options(_DatabaseForm, value, "the catalog")
    _refuse_twice("the catalog", "table", [table.name for table in form.tables])
    tables = tuple(_table(table, form.dialect) for table in form.tables)
    return Database(form.dialect, form.schema, tables)


def database_to_json(database: Database) -> JsonDict:
    """Return a database in the form that ``database_from_json`` reads.

    A type that cannot be recognized by its name, such as an enumeration, gets the name of another
    type of the same kind.
    """
    schema = {} if database.schema is None else {"schema": database.schema}
    tables = [_table_to_json(table, database.dialect) for table in database.tables]
    return {"dialect": database.dialect, **schema, "tables": tables}


def _table_to_json(table: Table, dialect: str) -> JsonDict:
    keys = [list(key) for key in table.unique_keys if key != table.primary_key]
    foreign_keys = [
        {"columns": list(key.columns), "table": key.table, "ref_columns": list(key.ref_columns)}
        for key in table.foreign_keys
    ]
    members = {
        "primary_key": list(table.primary_key), "foreign_keys": foreign_keys, "unique_keys": keys,
    }  # fmt: skip
    return {
        "name": table.name,
        "kind": table.kind,
        "columns": [
            {"name": column.name, "type": _type_to_json(column.type, dialect)}
            for column in table.columns
        ],
        **{name: member for name, member in members.items() if member},
    }


def _type_to_json(type: ColumnType, dialect: str) -> str:
    """Return the database's own name of a type, or the name of another type of the same kind."""
    if is_money(type):
        return type.sql.replace("money", f"money({type.point})")
    of_kind = TYPE_NAMES.get((type.kind, type.bits), "numeric(38)").split(", ")
    for text in (type.sql, *of_kind):
        with suppress(ConfigError):
            parsed = parse_type(text, dialect)
            if (parsed.kind, parsed.bits) == (type.kind, type.bits):
                return text
    return of_kind[0]


def _table(form: _TableForm, dialect: str) -> Table:
    where = f"the catalog: table {form.name!r}"
    columns = tuple(_column(column, dialect, where) for column in form.columns)
    positions = {column.name: position for position, column in enumerate(columns)}
    _refuse_twice(where, "column", [column.name for column in columns])
    _refuse_twice(where, "key column", form.primary_key)
    foreign_keys = [_foreign_key(key, where) for key in form.foreign_keys]
    for name in (*form.primary_key, *(name for key in foreign_keys for name in key.columns)):
        if name not in positions:
            raise ConfigError(f"{where} has no column {name!r}")
    return Table(
        name=form.name,
        kind=form.kind,
        columns=columns,
        primary_key=form.primary_key,
        foreign_keys=tuple(sorted(foreign_keys, key=lambda key: positions[key.columns[0]])),
        unique_keys=form.unique_keys + ((form.primary_key,) if form.primary_key else ()),
    )


def _column(form: _ColumnForm, dialect: str, where: str) -> Column:
    try:
        return Column(form.name, parse_type(form.type, dialect))
    except ConfigError as error:
        raise with_location(error, f"{where}: column {form.name!r}") from None


def _foreign_key(form: _ForeignKeyForm, where: str) -> ForeignKey:
    if len(form.columns) != len(form.ref_columns):
        referred = number_of(len(form.ref_columns), "ref_column")
        raise ConfigError(
            f"{where}: a foreign key has {number_of(len(form.columns), 'column')} and {referred}"
        )
    return ForeignKey(form.columns, form.table, form.ref_columns)


def _refuse_twice(where: str, kind: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise ConfigError(f"{where} has the {kind} {twice!r} twice")
