"""``eventlog errors``: rows that were refused, by cause."""

from __future__ import annotations

import click

from eventlog.cli.context import Context, reading
from eventlog.cli.output import json_option, note, print_json, result, table
from eventlog.publisher.open import find_log
from eventlog.publisher.refused import LINES_READ, as_data, read_refusals


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=1_000_000),
    default=LINES_READ,
    show_default=True,
    help="Error lines to look at, the newest.",
)
@json_option
@click.pass_obj
def errors(context: Context, limit: int, as_json: bool) -> None:
    """Show the rows E and F in groups of one cause, with the reason and the requeue that fits.

    Correct the cause first: a row that is put back into the queue unchanged is refused again. `eventlog show` explains
    a single row.
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
                each.code,
                each.table_name,
                each.status,
                each.rows,
                f"{each.newest:%Y-%m-%d %H:%M:%S}",
                each.example,
                each.message,
            )
            for each in groups
        ],
    )
    note("once the cause is mended, back into the queue with:")
    for each in groups:
        note(f"  {each.command}")
