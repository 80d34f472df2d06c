"""``eventlog requeue``: rows that are done, once more (spec/event-log.md 11)."""

from __future__ import annotations

import re

import click

from eventlog.cli.context import Context
from eventlog.cli.database import reading, transaction
from eventlog.cli.output import note, print_json, result, table
from eventlog.errors import ConfigError
from eventlog.publisher.opening import find_log
from eventlog.sql import log_rows


@click.command()
@click.option("--status", "statuses", default="E,F", show_default=True, metavar="LETTERS", help="Of E, F, W and S.")
@click.option("--ids", metavar="IDS", help="Only these record_ids, such as 1,2,5-9.")
@click.option("--force", is_flag=True, help="Also rows that would bring an old value back.")
@click.option("--dry-run", "dry", is_flag=True, help="Count; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="For programs, on standard output.")
@click.pass_obj
def requeue(context: Context, statuses: str, ids: str | None, force: bool, dry: bool, as_json: bool) -> int:
    """Put rows back into the queue: E and F in their old place, W and S as copies with new record_ids.

    Rows of types 1 to 3 whose object has later rows already processed are refused without --force; then the
    exit code is 1.
    """
    config = context.config()
    letters = parse_letters(statuses)
    ranges = None if ids is None else parse_ids(ids)
    with reading(config) if dry else transaction(config) as (conn, dialect):
        done = log_rows.requeue(conn, find_log(conn, dialect, config), letters, ranges, force=force, dry=dry)
    if as_json:
        print_json({**done._asdict(), "refused": [row._asdict() for row in done.refused]})
    else:
        would = "would be " if dry else ""
        result(f"{done.set_back} rows {would}set back to N, {done.copied} {would}logged anew")
    if not done.refused:
        return 0
    if not as_json:
        table(("record_id", "type", "table", "key"), done.refused)
    note(
        f"{len(done.refused)} rows refused: later rows of their objects were processed, so they would bring old values "
        "back; `eventlog resync CLASS --key KEY` logs their present state instead, or give --force"
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
        found = re.fullmatch(r"\s*([0-9]{1,18})\s*(?:-\s*([0-9]{1,18})\s*)?", part, re.ASCII)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise ConfigError(f"--ids {text}: {part.strip()!r} is no record_id and no range of them; write 1,2,5-9")
        ranges.append((int(found[1]), int(found[2] or found[1])))
    return ranges
