"""What the watches of a configuration log, table by table (spec/triggers.md 1 to 3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from eventlog.core.catalog import Catalog, Database, ObjectClass, match_name, missing_table
from eventlog.errors import TriggerError, together
from eventlog.sql.log_table import split_name
from eventlog.sql.triggers import BaseTable, ChildTriggers, ClassTriggers, TableTriggers, compile_watch, not_fed
from eventlog.sql.watches import Watch, exclusions


def declared_triggers(
    database: Database,
    catalog: Catalog,
    watches: Sequence[Watch],
    reflect: Callable[[str | None], Database] | None = None,
) -> tuple[list[TableTriggers], list[str]]:
    """What watches log, table by table, and warnings of what they leave out.

    ``database`` is the schema of the classes, ``catalog`` its classes, built with or without ``exclusions``;
    ``reflect`` gives another schema, for base tables of views that stand there, None = there is no other. Raises
    TriggerError for a watch that cannot be.
    """
    warnings: list[str] = []
    declared: list[TableTriggers] = []
    errors: list[TriggerError] = []
    excluded: dict[str, tuple[str, ...]] = {}
    try:
        excluded = exclusions(database, watches, [cls.name for cls in catalog.classes])
    except TriggerError as error:
        errors.append(error)
    for watch, cls in _classes(database, catalog, watches, warnings, errors):
        try:
            declared.extend(compile_watch(cls, watch, excluded, _base_tables(database, watch, reflect)))
        except TriggerError as error:
            errors.append(error)
            continue
        if cls.is_view:
            warnings += (
                f"no base table feeds {cls.name}.{column}: when it changes, nothing is logged"
                for column in not_fed(cls, watch)
            )
    if errors:
        raise together(errors)
    return declared, warnings


def _classes(
    database: Database,
    catalog: Catalog,
    watches: Sequence[Watch],
    warnings: list[str],
    errors: list[TriggerError],
) -> list[tuple[Watch, ObjectClass]]:
    """The watches with their classes. What is wrong with the others is added to ``warnings`` and ``errors``."""
    tables = {table.name: table for table in database.tables}
    classes = {cls.name: cls for cls in catalog.classes}
    found: dict[str, tuple[Watch, ObjectClass]] = {}
    where = "" if database.schema is None else f" in schema {database.schema}"
    for watch in watches:
        name = match_name(watch.table, tables)
        if name is None:
            partition = match_name(watch.table, database.partitions)
            reason = f"there is no such table{where}" if partition is None else missing_table(database, watch.table)
            errors.append(TriggerError(f"watch {watch.table}: {reason}"))
            continue
        if tables[name].kind == "table" and not tables[name].primary_key:
            warnings.append(f"{name} has no primary key: it is no class, and nothing of it is captured")
            continue
        if name not in classes:
            errors.append(TriggerError(f"watch {watch.table}: {name} is not among the classes; add it to `tables`"))
        elif name in found:
            errors.append(TriggerError(f"watch {watch.table}: {name} is watched twice"))
        else:
            found[name] = (watch, classes[name])
    return list(found.values())


def _base_tables(
    home: Database, watch: Watch, reflect: Callable[[str | None], Database] | None
) -> dict[str, BaseTable]:
    """The tables that a view's watch names as its base, by these names. Raises TriggerError for one that is missing."""
    found = {}
    for name in watch.base or ():
        base = _base_table(home, name)
        if base is None and "." in name:
            schema, plain = split_name(name)
            if schema in (None, home.schema):
                base = _base_table(home, plain)
            elif reflect is not None:
                base = _base_table(reflect(schema), plain)
        if base is None:
            where = "" if home.schema is None else f" in schema {home.schema}"
            advice = "" if home.schema is None else "; a table of another schema is to be named schema.table"
            raise TriggerError(f"watch {watch.table}: there is no base table {name!r}{where}{advice}")
        found[name] = base
    return found


def _base_table(database: Database, name: str) -> BaseTable | None:
    tables = {table.name: table for table in database.tables if table.kind == "table"}
    found = match_name(name, tables)
    return None if found is None else BaseTable(tables[found], database.schema)


# --- what people are told of it ---------------------------------------------------------------------------------------


_SECRET: Final = re.compile("password|passwd|pwd|secret|token|hash|salt", re.IGNORECASE)


def looks_secret(name: str) -> bool:
    """Whether a column's name is like those of secrets (spec/triggers.md 1)."""
    return _SECRET.search(name) is not None


def secret_names(triggers: TableTriggers) -> tuple[str, ...]:
    """Names of logged columns that look like secrets, by themselves or in the view (spec/triggers.md 1)."""
    if isinstance(triggers, ChildTriggers):
        return (triggers.column.name,) if _SECRET.search(f"{triggers.column.name} {triggers.attribute}") else ()
    if triggers.decides:
        return ()
    named = [(column.name, triggers.names.get(column.name, "")) for column in triggers.columns]
    return tuple(name for name, view_name in named if _SECRET.search(f"{name} {view_name}"))


def undecided_views(triggers: TableTriggers, declared: Sequence[TableTriggers]) -> Iterable[str]:
    """Warnings of a view whose rows are logged whether they are in it or not."""
    if not isinstance(triggers, ClassTriggers) or not triggers.decides:
        return
    for other in declared:
        if (
            isinstance(other, ClassTriggers)
            and other.class_name == triggers.class_name
            and other.insert_type in (1, 7)
            and not other.decides
        ):
            yield (
                f"{triggers.table.name} decides which rows are in {triggers.class_name}, but the style of its watch "
                f"logs rows of {other.table.name} whether they are in it or not: use style = row_query_back"
            )
