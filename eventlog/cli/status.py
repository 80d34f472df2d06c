"""``eventlog status``: the queue, what is in flight, and whether a publisher runs; of a source its position."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Final

import click
from sqlalchemy import Connection

from eventlog.cli.context import Context, reading
from eventlog.cli.help import Command
from eventlog.cli.output import error_line, json_option, print_json, result, source_option, table
from eventlog.cli.triggers import planned_triggers
from eventlog.config.load import Config
from eventlog.errors import DatabaseError, EventlogError, number_of
from eventlog.model import Status
from eventlog.publisher.flight import Flight
from eventlog.publisher.held import WAYS_OUT, in_words, read_recorded
from eventlog.publisher.monitor.status import shape
from eventlog.publisher.open import find_log
from eventlog.publisher.stream.status import SourceStatus, place_in_words, source_status
from eventlog.sql.connection import as_database_errors
from eventlog.sql.dialect import Dialect
from eventlog.sql.doctor import age
from eventlog.sql.log_table import LogTable
from eventlog.sql.rows import count_by_status

LETTERS: Final[Mapping[str, str]] = {
    Status.NEW: "new: to be published",
    Status.SUCCESS: "success",
    Status.WARNING: "warning",
    Status.ERROR: "error: see the error table, then requeue",
    Status.FATAL: "fatal: see the error table, then requeue",
}

SHOWN: Final = 20
"""Events in flight that are listed for people; --json lists all."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """One event of an in-flight line. ``sendings``: under how many event-ids it was sent."""

    flight: int
    envelope: int
    event_id: str
    rows: int
    sendings: int
    table_name: str | None
    table_key: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """What ``status`` shows. ``oldest_seconds``: age of the oldest row N by event_time, None without one.

    ``drift``: where triggers differ from what is declared or from what the tables are now, in sentences. ``backlog``:
    which rows wait for the marks of a backlog job, None if none do.
    """

    log: str
    rows: dict[str, int]
    queue_rows: int
    oldest_seconds: float | None
    publisher_runs: bool
    in_flight: list[InFlight]
    drift: list[str]
    backlog: str | None = None


@click.command(cls=Command)
@json_option
@source_option
@click.option("--watch", type=click.FloatRange(min=0.2), is_flag=False, flag_value=2.0, metavar="[SECONDS]",
              help="Show it anew every so many seconds, 2 if no number is given, until Ctrl-C.")  # fmt: skip
@click.pass_obj
def status(context: Context, as_json: bool, source: str | None, watch: float | None) -> None:
    """Show rows by status, what is in flight or parked, and whether a publisher runs.

    With --from: the position in the source, when it was saved, what lies behind it, and what failed.
    """
    config = context.config(source__type=source)
    _show(config, as_json=as_json, anew=watch is not None)
    while watch is not None:
        time.sleep(watch)
        try:
            _show(config, as_json=as_json, anew=True)
        except DatabaseError as error:  # it may be back at the next look
            error_line(str(error), code=error.code)


def _show(config: Config, *, as_json: bool, anew: bool) -> None:
    """Show the status once. ``anew``: in place of what a terminal shows."""
    if config.source.type is not None:
        show = partial(_show_source, source_status(config), as_json=as_json)
    else:
        with reading(config) as (conn, dialect):
            report = _report(conn, dialect, find_log(conn, dialect, config), config)
        show = partial(print_json, shape(**asdict(report))) if as_json else partial(_print, report)
    if anew:
        click.clear()  # which does nothing where standard output is no terminal
    show()


def _report(conn: Connection, dialect: Dialect, log: LogTable, config: Config) -> Report:
    queue = dialect.queue(conn, log, config.publisher.event_time_zone)
    flights, hold = read_recorded(conn, log)
    return Report(
        log=str(log),
        rows=count_by_status(conn, log),
        queue_rows=queue.rows,
        oldest_seconds=queue.oldest_seconds,
        publisher_runs=dialect.is_locked(conn, log),
        in_flight=in_flight_events(conn, dialect, log, flights),
        drift=drift(conn, dialect, config),
        backlog=None if hold is None else in_words(hold),
    )


def drift(conn: Connection, dialect: Dialect, config: Config) -> list[str]:
    """What `eventlog triggers apply` would change, a sentence a table; empty if that is unknown (doctor says why)."""
    if not config.watches:
        return []
    try:
        with as_database_errors(conn), conn.begin_nested():
            planned = planned_triggers(conn, dialect, config)
    except EventlogError:
        return []
    return [f"{action.table}: {action.reason}" for action in planned.changes]


def in_flight_events(conn: Connection, dialect: Dialect, log: LogTable, flights: Sequence[Flight]) -> list[InFlight]:
    """The events of recorded flights, in their order."""
    recorded = [
        (flight.number, envelope.number, event)
        for flight in flights
        for envelope in flight.envelopes
        for event in envelope.events
    ]
    firsts = sorted({event.ids[0] for _, _, event in recorded})
    rows = dialect.read_rows(conn, log, [(first, first) for first in firsts])
    named = {row.record_id: (row.table_name, row.table_key) for row in rows}
    return [
        InFlight(
            flight, envelope, event.sent_id, len(event.ids), event.sendings, *named.get(event.ids[0], (None, None))
        )
        for flight, envelope, event in recorded
    ]


def _print(report: Report) -> None:
    result(f"log {report.log}: {'a publisher runs' if report.publisher_runs else 'no publisher runs'}")
    letters = [*LETTERS, *sorted(set(report.rows) - set(LETTERS))]
    table(
        ("status", "rows", "meaning"),
        [(letter, report.rows.get(letter, 0), LETTERS.get(letter, "reserved, left alone")) for letter in letters],
    )
    if report.oldest_seconds is not None:
        result(f"oldest new row: {age(report.oldest_seconds)}")
    if report.in_flight:
        waits = (
            "in flight, or parked until the receiver takes them"
            if report.publisher_runs
            else "sent first at the next start"
        )
        result(f"{number_of(len(report.in_flight), 'event')} {waits}:")
        table(
            ("flight", "envelope", "event-id", "rows", "sent", "table", "key"),
            [
                (one.flight, one.envelope, one.event_id, one.rows, one.sendings, one.table_name, one.table_key)
                for one in islice(report.in_flight, SHOWN)
            ],
        )
        if len(report.in_flight) > SHOWN:
            result(f"... and {len(report.in_flight) - SHOWN} more (--json lists all)")
    if report.backlog is not None:
        result(f"{report.backlog}:")
        for way_out in WAYS_OUT:
            result(f"    {way_out}")
    for sentence in report.drift:
        result(f"triggers are not as declared: {sentence}; see `eventlog triggers plan`")


# --- a source that is no log ------------------------------------------------------------------------------------------


def _show_source(status: SourceStatus, *, as_json: bool) -> None:
    seconds = None if status.moved is None else (datetime.now(UTC) - status.moved).total_seconds()
    if as_json:
        print_json(_source_data(status, seconds))
    else:
        _print_source(status, seconds)


def _source_data(status: SourceStatus, moved_seconds: float | None) -> dict[str, object]:
    behind = status.behind
    return {
        "source": status.source,
        "position_in": status.place,
        "position": status.position.token,
        "moved": status.moved,
        "moved_seconds": moved_seconds,
        "flight": status.position.flight,
        "publisher_runs": status.publisher_runs,
        "behind": None if behind is None else behind.number,
        "behind_unit": None if behind is None else behind.unit,
        "behind_unknown": status.unknown,
        "failures": status.failures,
        "newest_failures": [
            {"time": at, "event_id": one.event_id, "code": one.code, "message": one.message}
            for at, one in status.newest
        ],
    }


def _print_source(status: SourceStatus, moved_seconds: float | None) -> None:
    result(f"source {status.source}: {'a publisher runs' if status.publisher_runs else 'no publisher runs'}")
    result(f"position: {place_in_words(status.source, status.position.token)}")
    result(f"kept in {status.place}{'' if moved_seconds is None else f', last moved {age(moved_seconds)} ago'}")
    if status.behind is not None:
        result(f"behind it: {status.behind.number} {status.behind.unit}")
    if status.unknown is not None:
        result(f"what is behind it is not known: {status.unknown}")
    if status.failures is None:
        result("what failed is not known: this user may not read it")
    if status.failures:
        result(f"{number_of(status.failures, 'failure')}, not tried again{', the newest' if status.newest else ''}:")
        table(
            ("time", "event-id", "code", "message"),
            [(at.isoformat(timespec="seconds"), one.event_id, one.code, one.message) for at, one in status.newest],
        )
