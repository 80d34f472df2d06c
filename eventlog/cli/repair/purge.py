"""The command ``eventlog purge``: its request, with options and help."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import click

from eventlog.cli import command
from eventlog.cli.command import Request
from eventlog.cli.context import dry_option, json_option, yes_option
from eventlog.errors import ConfigError


@click.option(
    "--older-than",
    "age",
    metavar="AGE",
    help="Age by event_time: 30d, 12h, 90m, 45s or 2w.  [default: keep_days of [database]]",
)
@click.option("--batch", "size", type=click.IntRange(1, 1_000_000), default=10_000, metavar="ROWS",
              help="Rows that one transaction checks.")  # fmt: skip
@click.option("--pause", type=click.FloatRange(0, 3600), default=0.0, metavar="SECONDS",
              help="Pause between two transactions.")  # fmt: skip
@click.option("--finish", "table", metavar="NAME",
              help="Drop a former leaf of the log, if no purge has recorded its removal. Its "
              "unprocessed rows are put back into the log first.")  # fmt: skip
@yes_option
@dry_option("Count what would be removed; remove nothing.")
@json_option
@dataclass(frozen=True)
class Purge(Request):
    """Remove rows of status S and W that are older than AGE, and error rows whose rows are gone.

    Rows of any other status, rows being delivered and rows that a consumer has not processed stay.
    A publisher may run meanwhile: each batch is a separate transaction. On a terminal it asks
    first. As the owner of a partitioned
    log it removes whole leaves, and makes the next ones; while the log has more than keep_bytes of
    [database], the oldest leaf goes whatever its age.
    """

    age: str | None = None
    size: int = 10_000
    pause: float = 0.0
    table: str | None = None
    yes: bool = False
    dry: bool = False

    def __post_init__(self) -> None:
        if self.table is not None and self.age is not None:
            raise click.UsageError("--finish goes without --older-than: it drops one table")


purge = command(Purge)

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_age(text: str) -> timedelta:
    """Return the span of time of a text such as ``30d``. Raises ConfigError."""
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*([smhdw])\s*", text, re.ASCII)
    if match is None:
        raise ConfigError(
            f"--older-than {text}: write a number and its unit, such as 30d, 12h, 90m, 45s or 2w"
        )
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        message = f"--older-than {text}: no log is that old; write 30d or the like"
        raise ConfigError(message) from None
