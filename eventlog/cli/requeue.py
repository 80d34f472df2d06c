"""``eventlog requeue``: put processed rows back into the queue (spec/event-log.md 11)."""

from __future__ import annotations

import re

import click

from eventlog.cli.context import Context, reading, transaction
from eventlog.cli.help import Command
from eventlog.cli.output import json_option, note, print_json, result, table
from eventlog.errors import ConfigError, number_of
from eventlog.publisher.open import find_log, own_user, publisher_user
from eventlog.sql import rows


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
