"""``eventlog errors``: rows that were refused, by cause."""

from __future__ import annotations

import click

from eventlog.cli.context import Context, reading
from eventlog.cli.help import Command
from eventlog.cli.output import json_option, note, print_json, result, table
from eventlog.publisher.open import find_log
from eventlog.publisher.refused import LINES_READ, as_data, read_refusals


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
        print_json({"log": str(log), "errors": as_data(groups)})
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
