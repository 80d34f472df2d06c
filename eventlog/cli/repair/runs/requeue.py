"""The run of ``eventlog requeue``: put rows back into the queue (spec/event-log.md 11)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import click

from eventlog.cli.context import (
    CommandContext,
    note,
    print_json,
    reading,
    result,
    show_commands,
    table,
    transaction,
)
from eventlog.cli.known_consumer import consumer_row
from eventlog.config.load import Config
from eventlog.core.ranges import to_ranges
from eventlog.errors import ConfigError, number_of
from eventlog.exit_codes import ExitCode
from eventlog.model import Status, unpadded
from eventlog.publisher.declared import (
    catalog_if_readable,
    find_log,
    loopback_user_of,
    own_user,
    publisher_user,
)
from eventlog.publisher.inspect import objects_of, refused, resync_commands
from eventlog.publisher.ledger import CLAIM_WAYS_OUT, read_recorded, sent_ids
from eventlog.sql.log import rows
from eventlog.sql.port import OpenDatabase, OpenLog, Purpose
from eventlog.sql.readers import lock_consumer, requeue_for, requeue_objects_for

_STATUS_FIELDS: Final = ("record_id", "status")


def run_requeue(
    context: CommandContext,
    statuses: str | None,
    ids: str | None,
    consumer: str | None,
    event_ids: tuple[str, ...],
    *,
    loopback: bool,
    force: bool,
    dry: bool,
    as_json: bool,
) -> ExitCode:
    """Run ``eventlog requeue``: the parameters are its argument and options."""
    config = _log_config(context, "requeue")
    consumer = consumer or config.of_log.consumer
    _refuse_together(consumer, statuses, event_ids, loopback=loopback)
    chosen = parse_statuses(statuses or "E,F")
    ranges = None if ids is None else parse_ids(ids)
    would = "would be " if dry else ""
    claim = None
    purpose = Purpose.REQUEUE
    with reading(config, purpose) if dry else transaction(config, purpose) as db:
        log = find_log(db, config)
        if consumer is not None:
            done, event_ids = _send_again(log, consumer, ranges, event_ids, force=force, dry=dry)
            also = ""
            if event_ids:
                also = f" and {number_of(len(event_ids), 'object')} of its snapshot"
            outcome = f"{also} {would}sent again to consumer {consumer}"
        elif loopback:
            user = _loopback_user(db, config)
            done = rows.requeue_loopback(log, user, ranges, force=force, dry=dry)
            outcome = f" {would}set back to N, {done.copied} of {user!r} {would}logged again"
        else:
            if not dry and {Status.ERROR, Status.FATAL}.intersection(chosen):
                log.lock_requeuing()
            # The order matters: from the lock on, nothing else is recorded as in flight.
            _, claim = read_recorded(log)
            done = rows.requeue(
                log,
                chosen,
                ranges,
                in_flight=sent_ids(log),
                claimed_to=0 if claim is None else claim.last,
                own_user=loopback_user_of(db, config),
                force=force,
                dry=dry,
            )
            outcome = f" {would}set back to N, {done.copied} {would}logged again"
        commands = _instead(log, config, done)
        others = (
            _other_status_note(log, chosen, ranges) if consumer is None and not loopback else ""
        )
    if as_json:
        of_snapshot = {} if consumer is None else {"objects": len(event_ids)}
        refused_rows = [row._asdict() for row in done.refused]
        shown = {**done._asdict(), **of_snapshot, "refused": refused_rows}
        print_json(shown | {"commands": commands, "dry_run": dry})
    else:
        result(f"{number_of(done.set_back, 'row')}{outcome}")
    if others:
        note(others)
    if not done.refused:
        return ExitCode.DONE
    if not as_json:
        table(("record_id", "type", "table", "key"), done.refused)
    why = _why_refused(consumer, loopback=loopback)
    note(f"{number_of(len(done.refused), 'row')} refused: {why}")
    if commands:
        note("To send their objects as they are now, run:")
        show_commands(commands)
    note("--force requeues the rows all the same")
    if any(row.record_id < done.removed for row in done.refused):
        note(
            f"Rows up to record_id {done.removed} were removed from the log, by `eventlog purge` "
            "or as they were done. A row of type 1 to 4 below that is refused, because the log "
            "does not show whether its object had later rows"
        )
    if claim is not None:
        note(
            f"{claim.in_words}. A row of status E or F up to that record_id is refused, since "
            "later rows of its object would be sent before it; requeue it after "
            f"{', '.join(CLAIM_WAYS_OUT)}"
        )
    return ExitCode.FAILED


def _other_status_note(
    log: OpenLog, chosen: Sequence[str], ranges: list[tuple[int, int]] | None
) -> str:
    """Return a sentence on the named rows that have none of the chosen statuses, empty if there are
    none.
    """
    if ranges is None:
        return ""
    found = Counter(unpadded(status) for _, status in log.read_columns(ranges, _STATUS_FIELDS))
    kinds = [
        f"{number_of(rows, 'row')} of --ids {'has' if rows == 1 else 'have'} status {status}"
        + (f": give --status {status}" if status in (Status.SUCCESS, Status.WARNING) else "")
        for status, rows in sorted(found.items())
        if status not in chosen and status != Status.NEW
    ]
    return "; ".join(kinds)


def _instead(log: OpenLog, config: Config, done: rows.Requeued) -> list[str]:
    """Return the commands that send the objects of the refused rows as they are now."""
    if not done.refused:
        return []
    objects = objects_of(log, [row.record_id for row in done.refused])
    commands, _ = resync_commands(log, catalog_if_readable(log, config), objects)
    return commands


def _why_refused(consumer: str | None, *, loopback: bool) -> str:
    if consumer is not None:
        return (
            "later rows of their objects were processed, so they would restore old values, or "
            "other rows of the same insert are not requeued, so they would replace the object"
        )
    later = "were published, wait, or are left out" if loopback else "were processed, or wait"
    return (
        f"later rows of their objects {later}, so they would restore old values, or delete objects "
        "that exist again"
    )


def _refuse_together(
    consumer: str | None, statuses: str | None, event_ids: Sequence[str], *, loopback: bool
) -> None:
    """Raise UsageError for options of ``requeue`` that exclude each other."""
    if consumer is not None and (loopback or statuses is not None):
        raise click.UsageError(
            "a consumer's rows have no status: give --ids in place of --status or --loopback"
        )
    if consumer is None and event_ids:
        raise click.UsageError(
            "--event-id names an object of a consumer's snapshot: give --consumer too"
        )
    if loopback and statuses is not None:
        raise click.UsageError("--loopback takes rows of status S: leave --status out")


def _send_again(
    log: OpenLog,
    consumer: str,
    ranges: list[tuple[int, int]] | None,
    event_ids: tuple[str, ...],
    *,
    force: bool,
    dry: bool,
) -> tuple[rows.Requeued, tuple[str, ...]]:
    """Send the named rows and objects of the snapshot again to a consumer, or all that were refused
    for it. Returns the objects. Raises ConfigError for an unknown consumer, and for an object that
    was not refused.
    """
    if not dry:
        lock_consumer(log, consumer)
    failed_rows, failed_objects = refused(log, consumer=consumer)
    # The order matters: if a delivery ends in the meantime, its rows are in the set, which is read
    # after its entry.
    in_flight = sent_ids(log, consumer)
    line = consumer_row(log, consumer)
    if unknown := [one for one in event_ids if one not in failed_objects]:
        raise ConfigError(
            f"--event-id {unknown[0]}: no such object was refused for consumer {consumer}"
        )
    if ranges is None and not event_ids:
        ranges, event_ids = to_ranges(sorted(failed_rows)), tuple(failed_objects)
    done = requeue_for(
        log,
        line,
        ranges or [],
        failed=failed_rows,
        in_flight=in_flight,
        force=force,
        dry=dry,
    )
    if not dry:
        requeue_objects_for(log, line, event_ids)
    return done, event_ids


def _loopback_user(db: OpenDatabase, config: Config) -> str:
    """Return the publisher's own user, whose rows are not published. Raises ConfigError."""
    user = publisher_user(config, db.dialect, db.current_user())
    user = own_user(config, user, db.dialect.fold_name)
    if not user:
        raise ConfigError(
            "--loopback: this database logs no users, so no row is the publisher's own"
        )
    return user


def parse_statuses(text: str) -> list[str]:
    """Return the statuses of a text such as ``E,F``. Raises ConfigError."""
    statuses = [status.strip() for status in text.split(",")]
    if not all(re.fullmatch("[EFWS]", status) for status in statuses):
        raise ConfigError(f"--status {text}: write some of E, F, W and S, such as E,F")
    return statuses


def parse_ids(text: str) -> list[tuple[int, int]]:
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


def _log_config(context: CommandContext, command: str) -> Config:
    """Return the configuration, which names a log. Raises ConfigError if it names a source that is
    followed.
    """
    config = context.config()
    if config.follows:
        source = config.source
        raise ConfigError(
            f"{command} needs the rows of a log, but {config.sources['source.type']} = "
            f"{source.type} is followed, which has no queue. The table "
            f"{source.options.position_table}_error has what was refused, and `eventlog errors` "
            "shows it. To send rows again, change them at the source"
        )
    return config
