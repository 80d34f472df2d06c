"""The rights of the users who work with a log, as SQL for the owner of the log to run: ``eventlog
grants`` and the fixes of ``doctor`` (docs/guides/install.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventlog.config.load import Config
from eventlog.core.catalog import Catalog
from eventlog.errors import ConfigError
from eventlog.publisher.declared.configured_classes import (
    classes_to_read,
    tried_catalog,
    without_hashes,
)
from eventlog.publisher.declared.opening import additions_of, find_log
from eventlog.sql.doctor.rights import RightsOfOthers
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.questions import ask, repairs, row
from eventlog.sql.port.rights import Addition, Part, Purpose, rights_for
from eventlog.sql.port.sql_files import grouped
from eventlog.sql.triggers.declared import TableName


def grants_for(db: OpenDatabase, config: Config, role: str, purpose: Purpose) -> list[str]:
    """Return the GRANT statements that let a role work with the log: rights on the log and its
    internal tables, and SELECT on the tables that are read. SELECT is granted on the watched tables
    and their child tables or, for a consumer, on the tables of its classes.

    ``role`` is written as in SQL without quotes. Raises
    ConfigError if the database has no such purpose, and the errors of ``find_log``.
    """
    if purpose in (Purpose.CONSUMER, Purpose.RESET) and "consumers" not in db.dialect.capabilities:
        raise ConfigError(
            f"{db.dialect.name} does not support consumers, so there is nothing to grant; "
            "choose another --purpose"
        )
    log = find_log(db, config)
    catalog = tried_catalog(log, without_hashes(config))
    user = db.dialect.quote(db.dialect.spelled(role))
    more = (Addition.POSITION, Addition.SUPERSEDE, Addition.REPAIR)
    additions = (*additions_of(config), *more)
    rights = rights_for(purpose, *additions)
    statements = log.grants(rights, user)
    if "roles" not in log.dialect.capabilities or not rights.keys() & {Part.CLASSES, Part.TABLES}:
        return statements
    read = _tables(config, catalog, with_children=Part.TABLES in rights)
    reading = grants_to_read(log, catalog.schema, read, user)
    return [*dict.fromkeys([*statements, *reading])]


def missing_grants(log: OpenLog, places: Iterable[TableName]) -> tuple[str, ...]:
    """Return the grants of SELECT on those of the tables that a role which publishes may not read.
    A table that was dropped and made again has lost its grants (PostgreSQL).
    """
    roles = RightsOfOthers.read(log).publishers(log.table, log.dialect)
    return tuple(
        statement
        for schema, tables in grouped(places).items()
        for role, closed in ask(log, "closed_to", row, schema=schema, roles=roles, tables=tables)
        for statement in grants_to_read(log, schema, closed, log.dialect.quote(role))
    )


def _tables(config: Config, catalog: Catalog, *, with_children: bool) -> list[str]:
    """Return the tables and views that are read."""
    tables = [
        table
        for cls in classes_to_read(config, catalog)
        for table in (
            cls.table,
            *(child.table for child in cls.children if with_children),
            *([cls.main_table.table] if with_children and cls.main_table is not None else ()),
        )
    ]
    return [*dict.fromkeys(table.name for table in tables)]


def grants_to_read(
    log: OpenLog,
    schema: str | None,
    tables: Sequence[str],
    user: str,
) -> tuple[str, ...]:
    """Return the grants of SELECT on tables of a schema to a quoted user: one statement for all
    tables, or one per table if the database does not accept a list.
    """
    names = [log.dialect.qualified(schema, table) for table in tables]
    lists = [", ".join(names)] if names and "grants_together" in log.dialect.capabilities else names
    classes = log.dialect.quote(schema or "")
    return tuple(
        sql
        for one in lists
        for sql in repairs(log, "read_grants", user=user, classes=classes, tables=one)
    )
