"""A log and a watch as a migration holds them, to give the same SQL for ever.

Beside what is declared a watch holds the tables as they were when the migration was written, and the version of the
templates. All of it can be written as Python literals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from sqlalchemy import Connection

from eventlog.core.catalog import Column, Database, ForeignKey, Table, build_catalog, match_name
from eventlog.core.options import STYLES
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConfigError, TriggerError
from eventlog.sql.connection import load_dialect
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import new_log
from eventlog.sql.statements import TEMPLATE_VERSION, templates_of
from eventlog.sql.triggers import TableSql
from eventlog.sql.triggers.watch import Watch

Literals = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LogDefinition:
    """What is to be known of a log to make it, or to bring it up to date.

    ``log`` as ``log_table`` of the configuration; ``schema`` None: the connection's current one. ``revisions`` of
    eventlog's own migrations, one a branch, none = the newest; ``before``: those that had been reached, none = there
    was no log.
    """

    log: str
    schema: str | None
    revisions: tuple[str, ...]
    before: tuple[str, ...] = ()

    @property
    def label(self) -> tuple[str, str | None]:
        """What Alembic shows of an operation on it."""
        return self.log, self.schema

    def arguments(self) -> tuple[str, dict[str, Any]]:
        """The first argument of the operation's call in a migration, and its keywords."""
        keywords = {"schema": self.schema, "revisions": list(self.revisions), "before": list(self.before)}
        return self.log, {name: value for name, value in keywords.items() if value}


@dataclass(frozen=True, slots=True)
class WatchDefinition:
    """What is to be known of a watch to compile it.

    ``log`` and ``log_schema`` name the log, ``schema`` is that of the watched tables, None where the database has no
    schemas. ``tables``: the class's own table, its child tables or its base tables; None = as the database has them
    when the migration runs. ``facts``: what else the dialect needs to know of them.
    """

    watch: Watch
    log: str
    log_schema: str | None
    schema: str | None
    tables: tuple[Table, ...] | None
    template_version: int = TEMPLATE_VERSION
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> tuple[str, str]:
        """What Alembic shows of an operation on it."""
        return self.watch.table, self.log

    def arguments(self) -> tuple[str, dict[str, Any]]:
        """The first argument of the operation's call in a migration, and its keywords but for those that would have
        their default.
        """
        keywords = {
            **_unusual(self.watch, Watch(self.watch.table)),
            "log": self.log,
            "log_schema": self.log_schema,
            "schema": self.schema,
            "tables": _plain(self.tables),
            "facts": _plain(self.facts) or None,
            "template_version": self.template_version,
        }
        return self.watch.table, {name: value for name, value in keywords.items() if value is not None}


def compile_definition(definition: WatchDefinition, dialect_name: str) -> tuple[TableSql, ...]:
    """The SQL of a watch, table by table. Raises TriggerError for a watch that cannot be, ConfigError."""
    assert definition.tables is not None
    dialect = load_dialect(dialect_name)
    log = new_log(dialect, definition.log_schema or definition.schema, definition.log)
    database = Database(dialect.name, definition.schema, definition.tables)
    catalog = build_catalog(database, tables=[definition.watch.table])
    with templates_of(definition.template_version):
        return dialect.triggers.compile(database, catalog, log, (definition.watch,), definition.facts)


def with_facts(definition: WatchDefinition, dialect: Dialect, conn: Connection, database: Database) -> WatchDefinition:
    """The definition with its tables, and what else compiling it needs to know of them, as they are now.

    Raises TriggerError as ``with_tables`` does.
    """
    definition = with_tables(definition, database)
    log = new_log(dialect, definition.log_schema or definition.schema, definition.log)
    facts = dialect.triggers.facts(conn, database, log, [table.name for table in definition.tables or ()])
    return replace(definition, facts=facts)


def with_tables(definition: WatchDefinition, database: Database) -> WatchDefinition:
    """The definition with the tables that its watch needs, as ``database`` has them.

    Raises TriggerError if the table is missing or can be no class.
    """
    present = {table.name: table for table in database.tables}
    name = match_name(definition.watch.table, present)
    if name is None:
        raise TriggerError(f"watch {definition.watch.table}: there is no such table; make it before it is watched")
    try:
        cls = build_catalog(database, tables=[name]).classes[0]
    except ConfigError as error:
        raise TriggerError(f"watch {name}: {error}") from error
    needed = [present[name], *(child.table for child in cls.children)]
    for base in definition.watch.base or ():
        base_name = match_name(base, present)
        if base_name is None:
            raise TriggerError(f"watch {name}: there is no base table {base!r} in the schema of the view")
        needed.append(present[base_name])
    return replace(definition, schema=database.schema, tables=tuple(needed))


# --- as literals ------------------------------------------------------------------------------------------------------

WATCH_OPTIONS: Final = tuple(one.name for one in fields(Watch) if one.name != "table")
"""What may be said of a watch beside its table."""


def from_literals(table: str, arguments: Literals) -> WatchDefinition:
    """What ``op.watch_table(table, **arguments)`` means. Raises TriggerError for an argument that is unknown."""
    others = dict(arguments)
    tables = others.pop("tables", None)
    definition = WatchDefinition(
        watch=watch_of(table, {name: others.pop(name) for name in WATCH_OPTIONS if name in others}),
        log=others.pop("log", "eventlog"),
        log_schema=others.pop("log_schema", None),
        schema=others.pop("schema", None),
        tables=None if tables is None else tuple(map(_table_from_literals, tables)),
        template_version=others.pop("template_version", TEMPLATE_VERSION),
        facts=others.pop("facts", {}),
    )
    if others:
        raise TriggerError(f"watch_table({table!r}): {min(others)!r} is no argument of it")
    return definition


def watch_of(table: str, options: Literals) -> Watch:
    """A watch of ``WATCH_OPTIONS`` as they are written: lists for tuples. Raises TriggerError for an unknown style."""
    legal = {"style": tuple(STYLES), "capture": ("row", "statement")}
    for name, values in legal.items():
        if options.get(name, values[0]) not in values:
            raise TriggerError(f"watch {table}: {name} {options[name]!r} is not one of {', '.join(values)}")
    arguments: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
    }
    return Watch(table, **arguments)


def _plain(value: Any) -> Any:
    """A value as literals."""
    match value:
        case Table():
            return {"name": value.name, "columns": [], **_unusual(value, Table(value.name, "table", ()))}
        case Column(name, column_type):
            is_coarse = {} if value.deterministic else {"deterministic": False}
            bits = {"bits": column_type.bits} if column_type.bits else {}
            return {"name": name, "type": column_type.sql, "kind": column_type.kind.value, **bits, **is_coarse}
        case ForeignKey():
            return _plain(asdict(value))
        case Mapping():
            return {str(key): _plain(one) for key, one in value.items()}
        case tuple() | list():
            return [_plain(one) for one in value]
    return value


def _unusual(value: Watch | Table, usual: Watch | Table) -> dict[str, Any]:
    """The fields that are not as usual, as literals."""
    names = [one.name for one in fields(value)]
    return {name: _plain(getattr(value, name)) for name in names if getattr(value, name) != getattr(usual, name)}


def _table_from_literals(value: Literals) -> Table:
    try:
        return Table(
            name=value["name"],
            kind=value.get("kind", "table"),
            columns=tuple(map(_column_from_literals, value["columns"])),
            primary_key=tuple(value.get("primary_key", ())),
            foreign_keys=tuple(
                ForeignKey(tuple(key["columns"]), key["table"], tuple(key["ref_columns"]))
                for key in value.get("foreign_keys", ())
            ),
            unique_keys=tuple(tuple(key) for key in value.get("unique_keys", ())),
            key_deferrable=value.get("key_deferrable", False),
            partitioned=value.get("partitioned", False),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TriggerError(f"watch_table: tables: {error} is missing or wrong; let autogenerate write it") from error


def _column_from_literals(value: Literals) -> Column:
    column_type = ColumnType(Kind(value["kind"]), value.get("bits", 0), value["type"])
    return Column(value["name"], column_type, value.get("deterministic", True))
