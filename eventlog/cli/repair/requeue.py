"""The command ``eventlog requeue``: options and help."""

from __future__ import annotations

import click

from eventlog.cli import Command
from eventlog.cli.consumer_option import consumer_option
from eventlog.cli.context import CommandContext, json_option
from eventlog.exit_codes import ExitCode


@click.command(cls=Command)
@click.option(
    "--status",
    "statuses",
    metavar="STATUSES",
    help="Status of the rows, of E, F, W, S.  [default: E,F]",
)
@click.option(
    "--loopback",
    is_flag=True,
    help="Rows of status S of the publisher's own user, which were not published.",
)
@click.option("--ids", metavar="IDS", help="Only these record_ids, such as 1,2,5-9.")
@consumer_option
@click.option("--event-id", "event_ids", metavar="ID", multiple=True,
              help="Only this object of the consumer's snapshot; repeatable.")  # fmt: skip
@click.option("--force", is_flag=True, help="Also requeue rows that would restore an old value.")
@click.option(
    "--dry-run", "dry", is_flag=True, help="Count what would be put back; change nothing."
)
@json_option
@click.pass_obj
def requeue(
    context: CommandContext,
    statuses: str | None,
    loopback: bool,
    ids: str | None,
    consumer: str | None,
    event_ids: tuple[str, ...],
    force: bool,
    dry: bool,
    as_json: bool,
) -> ExitCode:
    """Put rows back into the queue: rows of status E and F in their old place, rows of status W and
    S as copies with new record_ids.

    A row of type 1 to 4 is refused if later rows of its object were processed, because it would
    restore an old value, or delete an object that exists again. A copy is also refused if later
    rows wait. While a finished directory of `backlog run` claims rows, rows E and F up to their
    last record_id are refused too; --force requeues them anyway. If other
    rows of the same insert are not requeued, the rows are sent as an update.

    With --loopback, rows that were marked S without being published, because the publisher's own
    database user made them, are logged again without a user, so that they are published.
    publisher.driver_user names another user.

    With --consumer, rows are sent again to this consumer alone; without --ids and --event-id, all
    that was refused for it, including objects of its snapshot.
    """
    from eventlog.cli.repair.runs.requeue import run_requeue

    return run_requeue(
        context,
        statuses,
        ids,
        consumer,
        event_ids,
        loopback=loopback,
        force=force,
        dry=dry,
        as_json=as_json,
    )
