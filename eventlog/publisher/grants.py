"""The rights of those who work with a log, as SQL for its owner to run: ``eventlog grants`` and the
cures of ``doctor`` (docs/install.md).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from eventlog.config.load import Config
from eventlog.core.catalog import Catalog
from eventlog.errors import ConfigError
from eventlog.publisher.configured_classes import read_catalog, wanted_classes
from eventlog.publisher.open_context import find_log
from eventlog.sql.doctor import repairs
from eventlog.sql.open_log import OpenDatabase, OpenLog

PURPOSES: Final[Mapping[str, str]] = {
    "publisher": "grants",
    "consumer": "consumer_grants",
    "stream": "stream_grants",
    "monitor": "monitor_grants",
}
"""What a role is for, and the statements of ``doctor.sql`` that let it."""


def grants_for(db: OpenDatabase, config: Config, role: str, purpose: str) -> list[str]:
    """Return the statements that let a role work with the log: on the log and its companions, and
    SELECT on the watched tables and their child tables, of a consumer on those of its classes.

    ``purpose`` is a key of ``PURPOSES``. ``role`` is written as in SQL without quotes. Raises
    ConfigError if the database has no such purpose, and the errors of ``find_log``.
    """
    if purpose == "consumer" and "consumers" not in db.dialect.capabilities:
        raise ConfigError(f"{db.dialect.name} has no consumers of a log, so that there is no grant")
    log = find_log(db, config)
    catalog = read_catalog(log, config)
    user = db.dialect.quote(db.dialect.spelled(role))
    deletes = ", DELETE" if config.publisher.delete_from_log else ""
    statements = repairs(log, PURPOSES[purpose], user=user, delete=deletes)
    if "roles" not in db.dialect.capabilities:
        return [*statements]
    reading = grants_to_read(log, catalog.schema, _tables(config, catalog), user)
    return [*dict.fromkeys([*statements, *reading])]


def _tables(config: Config, catalog: Catalog) -> list[str]:
    """Return the tables and views that are read back."""
    wanted = wanted_classes(config, catalog)
    classes = [cls for cls in catalog.classes if wanted is None or cls.name in wanted]
    tables = [table for cls in classes for table in (cls.table, *(c.table for c in cls.children))]
    return [*dict.fromkeys(table.name for table in tables)]


def grants_to_read(
    log: OpenLog,
    schema: str | None,
    tables: Sequence[str],
    user: str,
) -> tuple[str, ...]:
    """Return the grants of SELECT on tables of a schema to a quoted user: one, or one a table if
    the database takes no list.
    """
    names = [log.dialect.qualified(schema, table) for table in tables]
    lists = [", ".join(names)] if names and "grants_together" in log.dialect.capabilities else names
    classes = log.dialect.quote(schema or "")
    return tuple(
        sql
        for one in lists
        for sql in repairs(log, "read_grants", user=user, classes=classes, tables=one)
    )


def command_of(role: str, consumer: str | None) -> str:
    """Return the command that prints all grants of a publisher's or a consumer's role."""
    purpose = "" if consumer is None else " --for consumer"
    return f"all of them: eventlog grants {shlex.quote(role)}{purpose}"
