"""What the functions of the publisher work with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from eventlog.catalog import Catalog
from eventlog.model import Event
from eventlog.publisher.metrics import Counters
from eventlog.publisher.options import PublisherOptions
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable

Render = Callable[[Sequence[Event]], str]
"""Events of one envelope -> the document. The publisher knows no format."""


@dataclass(frozen=True, slots=True)
class Context:
    """One connection, one log, the classes, and what to do with their events. ``heartbeat`` is a document too."""

    connection: Connection
    dialect: Dialect
    log: LogTable
    catalog: Catalog
    options: PublisherOptions
    render: Render
    counters: Counters
    heartbeat: str = ""
