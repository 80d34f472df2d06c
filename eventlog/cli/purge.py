"""``eventlog purge``: remove processed rows by age, in batches that are a transaction each."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final

import click
from sqlalchemy import Connection

from eventlog.cli import Command
from eventlog.cli.context import Context, confirm, json_option, print_json, progress, result, session, yes_option
from eventlog.errors import ConfigError, number_of
from eventlog.publisher.cycle import recorded_ids
from eventlog.publisher.open_log import find_log
from eventlog.publisher.queue import read_recorded
from eventlog.sql.rows import Purged, check_purge_rights, extent, purge_cutoff, purge_errors, purge_rows

UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(slots=True)
class Report:
    """What was removed, or would be with ``dry_run``. ``cutoff``: rows of an event_time before it."""

    log: str
    dry_run: bool
    cutoff: str = ""
    looked_at: int = 0
    rows: int = 0
    error_lines: int = 0
    batches: int = 0


@click.command(cls=Command)
@click.option("--older-than", "age", required=True, metavar="AGE", help="By event_time: 30d, 12h, 90m, 45s or 2w.")
@click.option("--batch", "size", type=click.IntRange(1, 1_000_000), default=10_000, metavar="ROWS",
              help="Rows that one transaction looks at.")  # fmt: skip
@click.option("--pause", type=click.FloatRange(0, 3600), default=0.0, metavar="SECONDS",
              help="Pause between two transactions.")  # fmt: skip
@yes_option
@click.option("--dry-run", "dry", is_flag=True, help="Count what would go; remove nothing.")
@json_option
@click.pass_obj
def purge(context: Context, age: str, size: int, pause: float, yes: bool, dry: bool, as_json: bool) -> None:
    """Remove rows of status S and W that are older than AGE, and error lines whose rows are gone.

    Rows of any other status and rows in flight stay. A publisher may run meanwhile, since each batch is a transaction
    of its own. A purge that is stopped keeps what it has done. On a terminal it asks first.
    """
    limit = parse_age(age)
    config = context.config()
    with session(config) as (conn, dialect):
        log = find_log(conn, dialect, config)
        report = Report(str(log), dry)
        if not dry:
            check_purge_rights(conn, dialect, log)
        event_time, error_time = purge_cutoff(conn, dialect, log, config.publisher.event_time_zone, limit)
        report.cutoff = event_time.isoformat(" ", "seconds")
        first, last = extent(conn, log) or (1, 0)
        conn.commit()
        if not dry:
            older = f"older than {age.strip()} (before {report.cutoff})"
            confirm(
                f"This removes from the log {log} all rows of status S and W {older}, and their error lines.", yes=yes
            )

        def rows(after: int | None) -> Purged | None:
            # Rows that came after the start are too new.
            after = first - 1 if after is None else after
            if after >= last:
                return None
            flights, _ = read_recorded(conn, log)
            in_flight = recorded_ids(flights)
            return purge_rows(conn, log, after, size, event_time, in_flight, dry=dry)

        def error_lines(after: int | None) -> Purged | None:
            return purge_errors(conn, log, after, size, event_time, error_time, dry=dry)

        with progress("Purge", last - first + 1, context.quiet or as_json, "record_ids") as advance:
            done = first - 1
            for batch in each_batch(conn, rows, pause):
                report.rows += batch.removed
                report.looked_at += batch.looked_at
                report.batches += 1
                advance(batch.last - done)
                done = batch.last
        for batch in each_batch(conn, error_lines, pause):
            report.error_lines += batch.removed
            report.batches += 1
    if as_json:
        print_json(asdict(report))
    elif not context.quiet:
        verb = "would go" if dry else "removed"
        result(
            f"log {report.log}, before {report.cutoff}: {report.rows:,} of {number_of(report.looked_at, 'row')} "
            f"{verb}, {number_of(report.error_lines, 'error line')} {verb}"
        )


def each_batch(conn: Connection, take: Callable[[int | None], Purged | None], pause: float) -> Iterator[Purged]:
    """The batches of ``take``, each committed, ``pause`` seconds apart. ``take`` gets where the batch before ended."""
    batch = take(None)
    while batch is not None:
        conn.commit()
        yield batch
        if pause:
            time.sleep(pause)
        batch = take(batch.last)
    conn.commit()


def parse_age(text: str) -> timedelta:
    """``30d`` as a span of time. Raises ConfigError."""
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*([smhdw])\s*", text, re.ASCII)
    if match is None:
        raise ConfigError(f"--older-than {text}: write a number and its unit, such as 30d, 12h, 90m, 45s or 2w")
    try:
        return timedelta(**{UNITS[match[2]]: int(match[1])})
    except OverflowError:
        raise ConfigError(f"--older-than {text}: no log is that old; write 30d or the like") from None
