"""The run of ``eventlog requeue``: put rows back into the queue (spec/event-log.md 11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Never

from eventlog.cli.command import CommandResult
from eventlog.cli.context import CommandContext, reading, result, shown_commands, table, transaction
from eventlog.cli.repair.requeue import Requeue
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
from eventlog.sql.log import requeue
from eventlog.sql.port import OpenLog, Purpose
from eventlog.sql.readers import consumer_row, lock_consumer, requeue_for, requeue_objects_for

_STATUS_FIELDS: Final = ("record_id", "status")


class _Requeued(NamedTuple):
    """What was put back, or with --dry-run would be."""

    done: requeue.Requeued
    outcome: str
    """What happens to the rows, in words after their number."""
    why_refused: str
    objects: int | None = None
    """The objects of the consumer's snapshot, None without a consumer."""
    others: str = ""
    """A sentence on the named rows that have none of the chosen statuses."""
    claim: str = ""
    """A sentence on the directory that claims rows."""
    lacks: str = ""
    """A sentence on the right without which a running publisher finds the rows later."""


def run_requeue(context: CommandContext, request: Requeue, config: Config) -> CommandResult:
    """Run ``eventlog requeue``."""
    request = request.of_consumer(config.of_log.consumer)
    way = _by_status
    if request.consumer is not None:
        way = _of_consumer
    elif request.loopback:
        way = _of_loopback
    purpose = Purpose.REQUEUE
    with reading(config, purpose) if request.dry else transaction(config, purpose) as db:
        log = find_log(db, config)
        requeued = way(log, config, request, "would be " if request.dry else "")
        commands = _instead(log, config, requeued.done)
    refused_rows = requeued.done.refused

    def show() -> None:
        result(f"{number_of(requeued.done.set_back, 'row')}{requeued.outcome}")
        if refused_rows:
            table(("record_id", "type", "table", "key"), refused_rows)

    of_snapshot = {} if requeued.objects is None else {"objects": requeued.objects}
    return CommandResult(
        {
            **requeued.done._asdict(),
            **of_snapshot,
            "refused": [row._asdict() for row in refused_rows],
            "commands": commands,
            "dry_run": request.dry,
        },
        show,
        ExitCode.FAILED if refused_rows else ExitCode.DONE,
        notes=[*_notes(requeued, commands)],
    )


def run_requeue_of_source(context: CommandContext, request: Requeue, config: Config) -> Never:
    """Refuse ``eventlog requeue`` for a followed source."""
    source = config.source
    raise ConfigError(
        f"requeue needs the rows of a log, but {config.sources['source.type']} = "
        f"{source.type} is followed, which has no queue. The table "
        f"{source.options.position_table}_error has what was refused, and `eventlog errors` "
        "shows it. To send rows again, change them at the source"
    )


def _of_loopback(log: OpenLog, config: Config, request: Requeue, would: str) -> _Requeued:
    """Log the rows again that were not published because the publisher's own user made them."""
    user = publisher_user(config, log.dialect, log.db.current_user())
    user = own_user(config, user, log.dialect.fold_name)
    if not user:
        raise ConfigError(
            "--loopback: this database logs no users, so no row is the publisher's own"
        )
    done = requeue.requeue_loopback(log, user, request.ranges, force=request.force, dry=request.dry)
    return _Requeued(
        done,
        f" {would}set back to N, {done.copied} of {user!r} {would}logged again",
        _RESTORE.format("were published, wait, or are left out"),
    )


def _by_status(log: OpenLog, config: Config, request: Requeue, would: str) -> _Requeued:
    """Put the rows of the chosen statuses back into the queue."""
    chosen, ranges = request.chosen, request.ranges
    if not request.dry and {Status.ERROR, Status.FATAL}.intersection(chosen):
        log.lock_requeuing()
    # The order matters: from the lock on, nothing else is recorded as in flight.
    _, claim = read_recorded(log)
    done = requeue.requeue(
        log,
        chosen,
        ranges,
        in_flight=sent_ids(log),
        claimed_to=0 if claim is None else claim.last,
        own_user=loopback_user_of(log.db, config),
        force=request.force,
        dry=request.dry,
    )
    return _Requeued(
        done,
        f" {would}set back to N, {done.copied} {would}logged again",
        _RESTORE.format("were processed, or wait"),
        others=_other_status_note(log, chosen, ranges),
        claim="" if claim is None else claim.in_words,
        lacks="" if done.is_requested else log.what_lacks(Purpose.REQUEUE),
    )


_RESTORE: Final = (
    "later rows of their objects {}, so they would restore old values, or delete objects that "
    "exist again"
)


def _notes(requeued: _Requeued, commands: Sequence[str]) -> Iterator[str]:
    """Yield what a user should notice, and what to do about refused rows."""
    done = requeued.done
    if requeued.others:
        yield requeued.others
    if not done.is_requested:
        yield f"a running publisher finds these rows within about a minute: {requeued.lacks}"
    if not done.refused:
        return
    yield f"{number_of(len(done.refused), 'row')} refused: {requeued.why_refused}"
    if commands:
        yield "To send their objects as they are now, run:"
        yield from shown_commands(commands)
    yield "--force requeues the rows all the same"
    if any(row.record_id < done.removed for row in done.refused):
        yield (
            f"Rows up to record_id {done.removed} were removed from the log, by `eventlog purge` "
            "or when they were done. A row of types 1 to 4 with a lower record_id is refused, "
            "because the log does not show whether its object had later rows"
        )
    if requeued.claim:
        yield (
            f"{requeued.claim}. A row of status E or F up to that record_id is refused, since "
            "later rows of its object would be sent before it; requeue it after "
            f"{', '.join(CLAIM_WAYS_OUT)}"
        )


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


def _instead(log: OpenLog, config: Config, done: requeue.Requeued) -> list[str]:
    """Return the commands that send the objects of the refused rows as they are now."""
    if not done.refused:
        return []
    objects = objects_of(log, [row.record_id for row in done.refused])
    commands, _ = resync_commands(log, catalog_if_readable(log, config), objects)
    return commands


def _of_consumer(log: OpenLog, config: Config, request: Requeue, would: str) -> _Requeued:
    """Send the named rows and objects of the snapshot again to a consumer, or all that were refused
    for it. Raises ConfigError for an unknown consumer, and for an object that was not refused.
    """
    consumer, ranges, event_ids = request.consumer or "", request.ranges, request.event_ids
    if not request.dry:
        lock_consumer(log, consumer)
    failed_rows, failed_objects = refused(log, consumer=consumer)
    # The order matters: if a delivery ends in the meantime, its rows are in the set, which is read
    # after its entry.
    in_flight = sent_ids(log, consumer)
    entry = consumer_row(log, consumer)
    if unknown := [one for one in event_ids if one not in failed_objects]:
        raise ConfigError(
            f"--event-id {unknown[0]}: no such object was refused for consumer {consumer}"
        )
    if ranges is None and not event_ids:
        ranges, event_ids = to_ranges(sorted(failed_rows)), tuple(failed_objects)
    done = requeue_for(
        log,
        entry,
        ranges or [],
        failed=failed_rows,
        in_flight=in_flight,
        force=request.force,
        dry=request.dry,
    )
    if not request.dry:
        requeue_objects_for(log, entry, event_ids)
    also = f" and {number_of(len(event_ids), 'object')} of its snapshot" if event_ids else ""
    return _Requeued(
        done,
        f"{also} {would}sent again to consumer {consumer}",
        "they would restore old values, because later rows of their objects were processed, or "
        "would replace the object, because other rows of the same insert are not requeued",
        len(event_ids),
    )
