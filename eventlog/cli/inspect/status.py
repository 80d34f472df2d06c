"""The commands ``eventlog status`` and ``eventlog doctor``: their requests and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import command
from eventlog.cli.command import AddressedRequest
from eventlog.cli.context import (
    consumer_option,
    flag_option,
    json_option,
    limit_option,
    source_option,
)
from eventlog.cli.inspect.health_lines import SHOWN
from eventlog.sql.doctor import Limits


@json_option
@source_option
@click.option("--watch", type=click.FloatRange(min=0.2), is_flag=False, flag_value=2.0,
              metavar="[SECONDS]", help="Refresh every SECONDS, 2 if no number is given, until "
              "Ctrl-C.")  # fmt: skip
@consumer_option
@limit_option("events in delivery are listed", SHOWN)
@dataclass(frozen=True)
class Status(AddressedRequest):
    """Show rows by status, what is being delivered or parked, and whether a publisher runs.

    With --from: the position in the source, when it was saved, how many changes follow it, and what
    failed.
    """

    source: str | None
    watch: float | None
    consumer: str | None
    limit: int


status = command(Status)


# --- doctor ---------------------------------------------------------------------------------------


@click.option("--sample", type=click.IntRange(min=1), default=Limits().sample, metavar="ROWS",
              help="How many of the newest rows to check for their status and key.")  # fmt: skip
@click.option(
    "--ignore", multiple=True, metavar="CODE", help="Leave out findings with this code; repeatable."
)
@flag_option("--receiver", help="Only check that the receiver is reachable; no change is sent.")
@consumer_option
@json_option
@dataclass(frozen=True)
class Doctor(AddressedRequest):
    """Check the log, its triggers and its rows for problems, and show how to fix them. Nothing is
    changed.

    With --receiver it only checks the receiver, without sending a change: name, port, TLS and
    credentials, by OPTIONS over HTTP, metadata of Kafka, or a file or object that is written and
    removed.

    A finding is an error (changes are lost, or nothing is published), a warning (something needs
    fixing) or an info (good to know).
    """

    sample: int
    ignore: tuple[str, ...]
    receiver: bool
    consumer: str | None


doctor = command(Doctor)
