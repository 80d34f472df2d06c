"""The command ``eventlog requeue``: its request, with options and help."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import click

from eventlog.cli import command
from eventlog.cli.command import AddressedRequest
from eventlog.cli.context import consumer_option, dry_option, flag_option, json_option
from eventlog.core.ranges import Ranges
from eventlog.errors import ConfigError


@click.option(
    "--status",
    "statuses",
    metavar="STATUSES",
    help="Rows with these statuses (E, F, W or S).  [default: E,F]",
)
@flag_option(
    "--loopback",
    help="Rows of status S of the publisher's own user, which were not published.",
)
@click.option("--ids", metavar="IDS", help="Only these record_ids, such as 1,2,5-9.")
@consumer_option
@click.option("--event-id", "event_ids", metavar="ID", multiple=True,
              help="Only this object of the consumer's snapshot; repeatable.")  # fmt: skip
@flag_option("--force", help="Also requeue rows that would restore an old value.")
@dry_option("Count what would be put back; change nothing.")
@json_option
@dataclass(frozen=True)
class Requeue(AddressedRequest):
    """Put rows back into the queue: rows of status E and F in their old place, rows of status W and
    S as copies with new record_ids and times.

    A row of type 1 to 4 is refused if later rows of its object were processed, and a copy also if
    later rows wait: it would restore an old value, or delete an object that exists again. While a
    finished directory of `backlog run` claims rows, rows E and F up to their last record_id are
    refused too; --force requeues them anyway. If other rows of the same insert are not requeued,
    the rows are sent as an update.

    With --loopback, rows of the publisher's own database user (or of publisher.driver_user), which
    were marked S unpublished, are logged again without a user.

    With --consumer, rows are sent again to this consumer alone; without --ids and --event-id, all
    that was refused for it, including objects of its snapshot.
    """

    overriding = ()
    statuses: str | None = None
    loopback: bool = False
    ids: str | None = None
    consumer: str | None = None
    event_ids: tuple[str, ...] = ()
    force: bool = False
    dry: bool = False

    @property
    def chosen(self) -> list[str]:
        """The statuses of the rows. Raises ConfigError."""
        return parse_statuses(self.statuses or "E,F")

    @property
    def ranges(self) -> Ranges | None:
        """The record_ids of the rows, None = all. Raises ConfigError."""
        return None if self.ids is None else parse_ids(self.ids)

    def of_consumer(self, configured: str | None) -> Requeue:
        """Return the request with the consumer that it is for, by default the configured consumer.
        Raises UsageError for options that exclude each other.
        """
        consumer = self.consumer or configured
        if consumer is not None and (self.loopback or self.statuses is not None):
            raise click.UsageError(
                "a consumer's rows have no status: give --ids in place of --status or --loopback"
            )
        if consumer is None and self.event_ids:
            raise click.UsageError(
                "--event-id names an object of a consumer's snapshot: give --consumer too"
            )
        if self.loopback and self.statuses is not None:
            raise click.UsageError("--loopback takes rows of status S: leave --status out")
        return replace(self, consumer=consumer)


requeue = command(Requeue)


def parse_statuses(text: str) -> list[str]:
    """Return the statuses of a text such as ``E,F``. Raises ConfigError."""
    statuses = [status.strip() for status in text.split(",")]
    if not all(re.fullmatch("[EFWS]", status) for status in statuses):
        raise ConfigError(f"--status {text}: write some of E, F, W and S, such as E,F")
    return statuses


def parse_ids(text: str) -> Ranges:
    """Return the ranges of a text such as ``1,2,5-9``. Raises ConfigError."""
    ranges = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*(?:-\s*([0-9]{1,18})\s*)?", part, re.ASCII)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ConfigError(
                f"--ids {text}: {part.strip()!r} is not a record_id or a range of them; "
                "write 1,2,5-9"
            )
        ranges.append((int(match[1]), int(match[2] or match[1])))
    return ranges
