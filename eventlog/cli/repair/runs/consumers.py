"""The run of ``eventlog consumers``: the consumers of the log, listed, reset to a beginning, or
dropped (spec/event-log.md 13.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from eventlog.cli.command import CommandResult
from eventlog.cli.context import (
    CommandContext,
    changing_log,
    confirm,
    end_change,
    reading_log,
    table,
)
from eventlog.cli.repair.consumers import Drop, Reset
from eventlog.config.kinds import BEGIN
from eventlog.config.load import Config
from eventlog.errors import ConfigError, ConsumerRuns
from eventlog.publisher.inspect import consumer_statuses
from eventlog.publisher.ledger import try_within
from eventlog.sql.doctor import age
from eventlog.sql.log import delete_entries_of
from eventlog.sql.port import OpenLog, Purpose
from eventlog.sql.readers import consumers as registered


def run_list(context: CommandContext, request: object, config: Config) -> CommandResult:
    """Run ``eventlog consumers list``."""
    with reading_log(config, Purpose.MONITOR) as log:
        found = consumer_statuses(log, config.publisher.event_time_zone)
    data = {"log": str(log), "consumers": [one.as_data() for one in found]}
    if not found:
        return CommandResult(data, f"log {log}: no consumer is registered")
    rows = [
        (
            one.name,
            "yes" if one.runs else "no",
            one.begins,
            one.rows_behind,
            None if one.oldest_seconds is None else age(one.oldest_seconds),
            one.events_in_flight,
            one.done_up_to,
            one.ranges,
            f"{age(one.still_seconds)} ago" if one.moved else "never",
            None if one.snapshot is None else one.snapshot.in_words,
            None if one.start is None else registered.in_words(one.start.classes),
            None if one.start is None else one.start.sink,
            None if one.pause is None else f"{one.pause.reason} ({one.pause.by})",
        )
        for one in found
    ]
    return CommandResult(data, partial(table, _COLUMNS, rows))


_COLUMNS: Final = (
    *("consumer", "runs", "began", "rows behind", "oldest", "being delivered", "done up to"),
    *("ranges", "moved", "snapshot", "classes", "sink", "paused"),
)


def run_reset(context: CommandContext, request: Reset, config: Config) -> CommandResult:
    """Run ``eventlog consumers reset``."""
    name, dry = request.name, request.dry
    try:
        begins = BEGIN.parse(request.start_from)
    except ValueError as error:
        raise ConfigError(f"--start-from {request.start_from}: write {BEGIN.legal}") from error
    again = f"again ({begins})"
    with _taken(config, request, "Consumer {} of the log {} starts " + f"{again}.") as log:
        delete_entries_of(log, name, with_letters=False)
        registered.reset(log, name, begins, config.publisher.event_time_zone)
    starts = "would start" if dry else "starts"
    return CommandResult(
        {"log": str(log), "consumer": name, "begins": begins, "dry_run": dry},
        f"log {log}: consumer {name} {starts} {again}",
        is_confirmation=not dry,
    )


def run_drop(context: CommandContext, request: Drop, config: Config) -> CommandResult:
    """Run ``eventlog consumers drop``."""
    name, dry = request.name, request.dry
    with _taken(config, request, "This deletes consumer {} of the log {}.") as log:
        delete_entries_of(log, name, with_letters=True)
        registered.forget(log, name)
    return CommandResult(
        {"log": str(log), "consumer": name, "dry_run": dry},
        f"log {log}: consumer {name} {'would be' if dry else 'is'} deleted",
        is_confirmation=not dry,
    )


@contextmanager
def _taken(config: Config, request: Reset | Drop, loss: str) -> Iterator[OpenLog]:
    """Yield the log under the lock of an existing consumer that does not run, then commit, except
    in a dry run. ``loss`` is the sentence that names what is lost, with placeholders for consumer
    and log. Raises ConfigError, ConsumerRuns.
    """
    with changing_log(config, Purpose.RESET) as log:
        registered.check_possible(log)
        if registered.read_consumer(log, request.name) is None:
            raise registered.unknown_consumer(log, request.name)
        if not try_within(partial(log.try_consumer_lock, request.name), log):
            raise ConsumerRuns(
                f"consumer {request.name!r} of the log {log} is running; stop it first"
            )
        if not request.dry:
            confirm(loss.format(request.name, log), yes=request.yes)
        yield log
        end_change(log, dry=request.dry)
