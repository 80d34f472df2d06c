"""What the functions of the publisher work with: connection, log, classes, options, counters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import time

from sqlalchemy import Connection

from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.checks import Remark
from eventlog.core.events import CurrentRow, EventOptions
from eventlog.core.values import Kind
from eventlog.model import Level
from eventlog.publisher.formats import OutputFormat
from eventlog.publisher.observer import SILENT, Observer
from eventlog.sql.dialect import Dialect
from eventlog.sql.log_table import LogTable

_log = logging.getLogger("eventlog.publisher")


@dataclass(frozen=True, slots=True)
class PublisherOptions:
    """Counts are of log rows or events, times in seconds.

    ``driver_user``: rows of this perpetrator are loopback; None = none are (``allow_loopback``).
    ``leave_loopback``: loopback rows stay N instead of being marked S. ``delete_loopback``: ``delete_from_log`` deletes
    them too. ``loopback_is_meant``: the settings say what becomes of them, so that nobody is warned. ``park``: retry
    parks one object instead of stopping the cycle (``on_retry``). ``time_of_day``: when to publish, in place of the
    interval; empty = the interval counts. ``heartbeat_interval`` 0 = none. ``singly``: a document holds one event, so
    each event of an envelope is sent by itself.
    """

    batch_size: int = 128
    singly: bool = False
    query_limit: int = 10000
    flight_rows: int = 10000
    mark_interval: float = 1.0
    fold_distance: int = 1000
    fold_span: int = 10000
    driver_user: str | None = None
    leave_loopback: bool = False
    delete_loopback: bool = False
    loopback_is_meant: bool = False
    delete_from_log: bool = False
    park: bool = True
    max_parked: int = 1000
    retry_initial: float = 1.0
    retry_max: float = 60.0
    polling_interval: float = 10.0
    concurrency: int = 1
    time_of_day: tuple[time, ...] = ()
    notify: bool = True
    heartbeat_interval: float = 0.0
    post_poll_statements: tuple[str, ...] = ()
    handle_future_events: bool = False
    event_time_zone: str = "utc"
    events: EventOptions = EventOptions()

    @property
    def leave_user(self) -> str | None:
        """Rows of this perpetrator are not even read; None = there is none such."""
        return self.driver_user if self.leave_loopback else None


@dataclass(slots=True)
class Counters:
    """Counted since the start of the process; never reset. ``warned``: columns whose lost fractions were warned of."""

    rows_read: int = 0
    rows_published: int = 0
    rows_dropped: int = 0
    rows_gone: int = 0
    rows_empty: int = 0
    rows_loopback: int = 0
    rows_bad: int = 0
    events_sent: int = 0
    documents_sent: int = 0
    answers_success: int = 0
    answers_warning: int = 0
    answers_error: int = 0
    answers_retry: int = 0
    answers_fatal: int = 0
    heartbeats_sent: int = 0
    sv_conflicts: int = 0
    old_unreadable: int = 0
    truncated: int = 0
    warned: set[str] = field(default_factory=set, compare=False)

    def remark(self, remark: Remark) -> None:
        """Count what was remarked on a row; warn of lost fractions once a column."""
        setattr(self, remark.counter, getattr(self, remark.counter) + 1)
        column = f"{remark.attribute.table}.{remark.attribute.column.name}"
        if remark.counter == "truncated" and column not in self.warned:
            self.warned.add(column)
            _log.warning("%s: %s", column, remark_in_words(remark))

    def count_answers(self, level: Level, number: int) -> None:
        """So many more events were answered with this level; fewer, if the number is negative."""
        name = f"answers_{level.name.lower()}"
        setattr(self, name, getattr(self, name) + number)


def remark_in_words(remark: Remark) -> str:
    """What was remarked on a row, as a sentence."""
    if remark.counter == "old_unreadable":
        return (
            f"old_value cannot be converted ({remark.reason}): the event removes all values of "
            f"{remark.attribute.name!r} before it adds the new one"
        )
    way_out = 'time_syntax = "canonical" or "java" in [format] writes fractions of timestamps'
    if remark.attribute.column.type.kind is Kind.TIME:
        way_out = "no time_syntax writes the fraction of a time of day"
    return f"an update changed nothing but the fraction of a second ({remark.reason}), which is not sent; {way_out}"


@dataclass(frozen=True, slots=True)
class Context:
    """One connection, one log, the classes, and what to do with their events.

    ``reread`` reads the classes as the database has them now, None = they do not change. Raises ConfigError,
    TriggerError, DatabaseError. ``captured``: the tables whose triggers fill the log. ``observer`` is told what is
    done.
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
    observer: Observer = SILENT

    def query_back(
        self, object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
    ) -> Mapping[str, CurrentRow]:
        """The current rows of objects by canonical key, without those of objects that are gone."""
        return self.dialect.query_back(self.connection, self.catalog.schema, object_class, keys, attributes)
