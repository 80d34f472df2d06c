"""``eventlog errors``, ``show``, ``requeue`` and ``purge``: rows that were refused, by cause; one row explained; rows
put back into the queue; processed rows removed by age, in batches that are a transaction each (spec/event-log.md 11).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

import click
from sqlalchemy import Connection

from eventlog.cli import Command
from eventlog.cli.context import (
    Context,
    confirm,
    json_option,
    note,
    print_json,
    progress,
    reading,
    result,
    session,
    table,
    transaction,
    yes_option,
)
from eventlog.errors import ConfigError, number_of
from eventlog.publisher.context import Counters
from eventlog.publisher.cycle import recorded_ids
from eventlog.publisher.explain import LINES_READ, Explanation, explain, explanation_data, read_refusals, refusals_data
from eventlog.publisher.open_log import find_log, open_unlocked, own_user, publisher_user
from eventlog.publisher.queue import read_recorded
from eventlog.sql import rows

_WIDEST: Final = 1000
"""Characters of a value that are shown of a row; ``--json`` has all of them."""
_SOURCES: Final = {
    "in_flight": "as its in-flight line records it",
    "queue": "as the next cycle would fold it",
    "reconstructed": "reconstructed",
}


@click.command(cls=Command)
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=LINES_READ, metavar="LINES",
              help="How many of the newest error lines are looked at.")  # fmt: skip
@json_option
@click.pass_obj
def errors(context: Context, limit: int, as_json: bool) -> None:
    """Show the rows of status E and F, grouped by cause, with the command that puts them back into the queue.

    Correct the cause first, or the rows are refused again. `eventlog show` explains a single row.
    """
    config = context.config()
    with reading(config) as (conn, dialect):
        log = find_log(conn, dialect, config)
        groups = read_refusals(conn, dialect, log, limit)
    if as_json:
        print_json({"log": str(log), "errors": refusals_data(groups)})
        return
    if not groups:
        result(f"log {log}: no row of status E or F among the newest error lines")
        return
    table(
        ("code", "table", "status", "rows", "newest (UTC)", "for example", "reason"),
        [
            (
                one.code,
                one.table_name,
                one.status,
                one.rows,
                f"{one.newest:%Y-%m-%d %H:%M:%S}",
                one.example,
                one.message,
            )
            for one in groups
        ],
    )
    note("once the cause is mended, back into the queue with:")
    for one in groups:
        note(f"  {one.command}")


@click.command(cls=Command)
@click.argument("record_id", type=click.IntRange(min=1), metavar="RECORD_ID")
@json_option
@click.pass_obj
def show(context: Context, record_id: int, as_json: bool) -> None:
    """Explain the row RECORD_ID of the log: its checks, its group, what precedence did, and what became of it.

    Last comes the document of its event, or the one that it would make now. Nothing is marked or sent.
    """
    with open_unlocked(context.config(), Counters()) as opened:
        explanation = explain(opened, record_id)
    if as_json:
        print_json(explanation_data(explanation))
    else:
        _print_explanation(explanation)


def _print_explanation(explanation: Explanation) -> None:
    row = explanation.row
    result(f"row {row.record_id} of {explanation.log}: {explanation.state}")
    fields = {name: value for name, value in row._asdict().items() if name != "record_id"}
    table(
        ("column", "value"),
        [(name, _short(value, _WIDEST) if isinstance(value, str) else value) for name, value in fields.items()],
    )
    if explanation.problem is not None:
        result(f"it fails a check: {explanation.problem.code}: {explanation.problem.message}")
    else:
        spelled = "" if explanation.key == row.table_key else ", spelled otherwise in the row"
        result(f"it passes all checks: object {explanation.key} of class {explanation.class_name}{spelled}")
    for line in explanation.errors:
        result(f"error line of {line.error_time} UTC: {line.code}: {line.message}")
    if explanation.in_flight is not None and explanation.in_flight.sendings > 1:
        result(f"its event is sent under its event-id number {explanation.in_flight.sendings}")
    if explanation.source is not None:
        result(f"its group, {_SOURCES[explanation.source]}:")
        table(
            ("record_id", "status", "type", "column", "old", "new", "what becomes of it"),
            [
                (one.record_id, one.status, one.event_type, one.column_name, _short(one.old), _short(one.new), one.fate)
                for one in explanation.members
            ],
        )
        if explanation.read_back is not None:
            result(f"read back from the object: {', '.join(explanation.read_back) or 'its existence'}")
        if explanation.event_id is None:
            result("it makes no event")
        else:
            result(f"it makes the event {explanation.event_id} ({explanation.operation}):")
    for sentence in explanation.notes:
        result(f"note: {sentence}")
    if explanation.document is not None:
        result(explanation.document, end="" if explanation.document.endswith("\n") else "\n")


def _short(value: str | None, most: int = 40) -> str | None:
    """The value, cut before anybody measures how wide it is."""
    return value if value is None or len(value) <= most else value[:most] + "..."


@click.command(cls=Command)
@click.option("--status", "statuses", metavar="LETTERS", help="Letters of the rows, of E, F, W, S.  [default: E,F]")
@click.option("--loopback", is_flag=True, help="Rows S of the publisher's own user, which were not published.")
@click.option("--ids", metavar="IDS", help="Only these record_ids, such as 1,2,5-9.")
@click.option("--force", is_flag=True, help="Take rows that would bring an old value back, too.")
@click.option("--dry-run", "dry", is_flag=True, help="Count what would be put back; change nothing.")
@json_option
@click.pass_obj
def requeue(
    context: Context, statuses: str | None, loopback: bool, ids: str | None, force: bool, dry: bool, as_json: bool
) -> int:
    """Put rows back into the queue: E and F in their old place, W and S as copies with new record_ids.

    A row of type 1 to 3 is refused if later rows of its object were processed; the exit code is then 1. --force takes
    it all the same.

    With --loopback the rows that were marked S unpublished, since the publisher's own database user made them, are
    logged anew without a user, so that they are published. publisher.driver_user names another user.
    """
    if loopback and statuses is not None:
        raise click.UsageError("--loopback takes rows of status S; give it or --status")
    config = context.config()
    letters = parse_letters(statuses or "E,F")
    ranges = None if ids is None else parse_ids(ids)
    with reading(config) if dry else transaction(config) as (conn, dialect):
        log = find_log(conn, dialect, config)
        if loopback:
            user = publisher_user(config, dialect, dialect.current_user(conn))
            user = own_user(config, user, dialect.fold_name)
            if not user:
                raise ConfigError("--loopback: this database logs no users, so no row is the publisher's own")
            done = rows.requeue_loopback(conn, log, user, ranges, force=force, dry=dry)
        else:
            done = rows.requeue(conn, log, letters, ranges, force=force, dry=dry)
    if as_json:
        print_json({**done._asdict(), "refused": [row._asdict() for row in done.refused]})
    else:
        would, whose = "would be " if dry else "", f" of {user!r}" if loopback else ""
        result(f"{number_of(done.set_back, 'row')} {would}set back to N, {done.copied}{whose} {would}logged anew")
    if not done.refused:
        return 0
    if not as_json:
        table(("record_id", "type", "table", "key"), done.refused)
    later = "were published or wait" if loopback else "were processed"
    note(
        f"{number_of(len(done.refused), 'row')} refused: later rows of their objects {later}, so they would bring "
        "old values back; `eventlog resync CLASS --key KEY` logs their present state instead, or give --force"
    )
    return 1


def parse_letters(text: str) -> list[str]:
    """``E,F`` as letters. Raises ConfigError."""
    letters = [letter.strip() for letter in text.split(",")]
    if not all(re.fullmatch("[EFWS]", letter) for letter in letters):
        raise ConfigError(f"--status {text}: write letters of E, F, W and S, such as E,F")
    return letters


def parse_ids(text: str) -> list[tuple[int, int]]:
    """``1,2,5-9`` as ranges. Raises ConfigError."""
    ranges = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*(?:-\s*([0-9]{1,18})\s*)?", part, re.ASCII)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ConfigError(f"--ids {text}: {part.strip()!r} is no record_id and no range of them; write 1,2,5-9")
        ranges.append((int(match[1]), int(match[2] or match[1])))
    return ranges


_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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
        if not dry:
            rows.check_purge_rights(conn, dialect, log)
        event_time, error_time = rows.purge_cutoff(conn, dialect, log, config.publisher.event_time_zone, limit)
        cutoff = event_time.isoformat(" ", "seconds")
        first, last = rows.extent(conn, log) or (1, 0)
        conn.commit()
        if not dry:
            older = f"older than {age.strip()} (before {cutoff})"
            confirm(
                f"This removes from the log {log} all rows of status S and W {older}, and their error lines.", yes=yes
            )

        def take_rows(after: int | None) -> rows.Purged | None:
            # Rows that came after the start are too new.
            after = first - 1 if after is None else after
            if after >= last:
                return None
            flights, _ = read_recorded(conn, log)
            return rows.purge_rows(conn, log, after, size, event_time, recorded_ids(flights), dry=dry)

        def take_error_lines(after: int | None) -> rows.Purged | None:
            return rows.purge_errors(conn, log, after, size, event_time, error_time, dry=dry)

        removed = dict.fromkeys(("looked_at", "rows", "error_lines", "batches"), 0)
        with progress("Purge", last - first + 1, context.quiet or as_json, "record_ids") as advance:
            done = first - 1
            for batch in _each_batch(conn, take_rows, pause):
                removed["rows"] += batch.removed
                removed["looked_at"] += batch.looked_at
                removed["batches"] += 1
                advance(batch.last - done)
                done = batch.last
        for batch in _each_batch(conn, take_error_lines, pause):
            removed["error_lines"] += batch.removed
            removed["batches"] += 1
    if as_json:
        print_json({"log": str(log), "dry_run": dry, "cutoff": cutoff, **removed})
    elif not context.quiet:
        verb = "would go" if dry else "removed"
        result(
            f"log {log}, before {cutoff}: {removed['rows']:,} of {number_of(removed['looked_at'], 'row')} {verb}, "
            f"{number_of(removed['error_lines'], 'error line')} {verb}"
        )


def _each_batch(
    conn: Connection, take: Callable[[int | None], rows.Purged | None], pause: float
) -> Iterator[rows.Purged]:
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
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        raise ConfigError(f"--older-than {text}: no log is that old; write 30d or the like") from None
