"""The run of ``eventlog consumers``: the consumers of the log, listed, reset to a beginning, or
dropped (spec/event-log.md 13.4).
"""

from __future__ import annotations

from functools import partial

from eventlog.cli.context import (
    CommandContext,
    confirm,
    print_json,
    reading,
    result,
    session,
    table,
)
from eventlog.cli.known_consumer import unknown_consumer
from eventlog.cli.stopping import COMMITTING, DONE, if_stopped
from eventlog.config.kinds import BEGIN
from eventlog.errors import ConfigError, ConsumerRuns
from eventlog.publisher.declared import find_log
from eventlog.publisher.inspect import consumer_statuses
from eventlog.publisher.ledger import LOCK_WAIT, try_within
from eventlog.sql.doctor import age
from eventlog.sql.log import delete_entries_of
from eventlog.sql.port import OpenLog, Purpose
from eventlog.sql.readers import consumers as lines


def run_consumers_list(context: CommandContext, *, as_json: bool) -> None:
    """Run ``eventlog consumers list``: the parameters are its argument and options."""
    config = context.config()
    with reading(config, Purpose.MONITOR) as db:
        log = find_log(db, config)
        found = consumer_statuses(log, config.publisher.event_time_zone)
    if as_json:
        print_json({"log": str(log), "consumers": [one.as_data() for one in found]})
        return
    if not found:
        result(f"log {log}: no consumer is registered")
        return
    table(
        (
            "consumer",
            "runs",
            "began",
            "rows behind",
            "oldest",
            "being delivered",
            "done up to",
            "ranges",
            "moved",
            "snapshot",
            "classes",
            "sink",
        ),
        [
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
                None if one.start is None else lines.in_words(one.start.classes),
                None if one.start is None else one.start.sink,
            )
            for one in found
        ],
    )


def run_consumers_reset(
    context: CommandContext, name: str, start_from: str, *, yes: bool, dry: bool, as_json: bool
) -> None:
    """Run ``eventlog consumers reset``: the parameters are its argument and options."""
    config = context.config()
    try:
        begins = BEGIN.parse(start_from)
    except ValueError as error:
        raise ConfigError(f"--start-from {start_from}: write {BEGIN.legal}") from error
    with session(config, Purpose.RESET) as db:
        log = find_log(db, config)
        _take(log, name)
        if not dry:
            confirm(f"Consumer {name} of the log {log} starts again ({begins}).", yes=yes)
        delete_entries_of(log, name)
        lines.reset(log, name, begins, config.publisher.event_time_zone)
        _end(log, dry=dry)
    if as_json:
        print_json({"log": str(log), "consumer": name, "begins": begins, "dry_run": dry})
    elif dry or not context.quiet:
        starts = "would start" if dry else "starts"
        result(f"log {log}: consumer {name} {starts} again ({begins})")


def run_consumers_drop(
    context: CommandContext, name: str, *, yes: bool, dry: bool, as_json: bool
) -> None:
    """Run ``eventlog consumers drop``: the parameters are its argument and options."""
    config = context.config()
    with session(config, Purpose.RESET) as db:
        log = find_log(db, config)
        _take(log, name)
        if not dry:
            confirm(f"This deletes consumer {name} of the log {log}.", yes=yes)
        delete_entries_of(log, name)
        lines.forget(log, name)
        _end(log, dry=dry)
    if as_json:
        print_json({"log": str(log), "consumer": name, "dry_run": dry})
    elif dry or not context.quiet:
        result(f"log {log}: consumer {name} {'would be' if dry else 'is'} deleted")


def _end(log: OpenLog, *, dry: bool) -> None:
    """End the transaction; with ``dry`` nothing of it stays."""
    if dry:
        log.connection.rollback()
        return
    if_stopped(COMMITTING)
    log.commit()
    if_stopped(DONE)


def _take(log: OpenLog, name: str) -> None:
    """Take the lock of an existing consumer that does not run. Ends the transaction. Raises
    ConfigError, ConsumerRuns.
    """
    lines.check_possible(log)
    if lines.read_consumer(log, name) is None:
        raise unknown_consumer(log, name)
    is_ours = try_within(partial(log.try_consumer_lock, name), log, LOCK_WAIT)
    if not is_ours:
        raise ConsumerRuns(f"consumer {name!r} of the log {log} is running; stop it first")
