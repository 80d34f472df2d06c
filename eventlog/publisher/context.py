"""What the functions of the publisher work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection

from eventlog.core.catalog import Catalog
from eventlog.publisher.formats import OutputFormat
from eventlog.publisher.metrics import Counters
from eventlog.publisher.options import PublisherOptions
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable


@dataclass(frozen=True, slots=True)
class Context:
    """One connection, one log, the classes, and what to do with their events.

    ``reread`` reads the classes as the database has them now, None = they do not change. Raises ConfigError,
    TriggerError, DatabaseError. ``captured``: the tables whose triggers fill the log.
    """

    connection: Connection
    dialect: Dialect
    log: LogTable
    catalog: Catalog
    options: PublisherOptions
    output: OutputFormat
    counters: Counters
    reread: Callable[[], Catalog] | None = None
    captured: tuple[str, ...] = ()
