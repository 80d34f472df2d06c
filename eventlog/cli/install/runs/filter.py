"""The run of ``eventlog filter``: accept the filters of a reader (spec/event-log.md 15.3)."""

from __future__ import annotations

from eventlog.cli.command import CommandResult
from eventlog.cli.context import CommandContext, changing_log, end_change
from eventlog.cli.install.filter import Accept
from eventlog.config.load import Config
from eventlog.core.catalog.filters import digest_of
from eventlog.errors import number_of
from eventlog.publisher.declared import filters_of, read_catalog
from eventlog.publisher.inspect import renew_recorded
from eventlog.publisher.ledger import LOCK_WAIT, ledger_of, lock_within
from eventlog.sql.log import accept_filters, accepted_filters
from eventlog.sql.port import OpenLog
from eventlog.sql.readers import consumers


def run_accept(context: CommandContext, request: Accept, config: Config) -> CommandResult:
    """Run ``eventlog filter accept``."""
    filters = filters_of(config)
    digest, consumer = digest_of(filters), request.consumer or config.of_log.consumer
    with changing_log(config) as log:
        refused = read_catalog(log, config).unavailable
        is_changed = accepted_filters(log, consumer) != digest
        if is_changed:
            if not request.dry and (consumer is None or has_consumer(log, consumer)):
                lock_within(ledger_of(log, consumer), LOCK_WAIT)  # it does not run meanwhile
            renew_recorded(log, consumer)
            accept_filters(log, consumer, digest)
        end_change(log, dry=request.dry)
    reader = f"consumer {consumer}" if consumer else "the publisher"
    what = number_of(len(filters), "filter") if filters else "no filter"
    verb = "would be accepted" if request.dry else "accepted"
    lines = [f"log {log}: {what} {verb} for {reader}" if is_changed else f"log {log}: no change"]
    fill = (
        f"eventlog consumers reset {consumer} --start-from snapshot"
        if consumer
        else "eventlog resync CLASS"
    )
    if is_changed:
        lines.append(
            f"its receiver keeps what it has: run `{fill}` to send the objects again"
            + ("" if consumer else ", to every reader of the log")
        )
    lines += [str(error) for error in refused.values() if "[[filter]]" in str(error)]
    data = {
        "log": str(log),
        "consumer": consumer,
        "filters": len(filters),
        "changed": is_changed,
        "dry_run": request.dry,
    }
    return CommandResult(data, "\n".join(lines), is_confirmation=not request.dry)


def has_consumer(log: OpenLog, name: str) -> bool:
    """Return True if a consumer of this name is registered."""
    return consumers.has_table(log) and consumers.begun_of(log, name) is not None
