"""``eventlog requeue``, ``skip`` and ``purge``: queue rows again, skip an event, and remove
processed rows by age, one transaction per batch (spec/event-log.md 11).
"""

from __future__ import annotations

import getpass
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import click

from eventlog.cli import Command
from eventlog.cli.consumer_option import consumer_option, consumer_row
from eventlog.cli.context import (
    CommandContext,
    confirm,
    json_option,
    note,
    print_json,
    progress,
    reading,
    result,
    session,
    show_commands,
    source_option,
    table,
    transaction,
    yes_option,
)
from eventlog.cli.stopping import COMMITTING, DONE, NOTHING, if_stopped
from eventlog.config.load import Config
from eventlog.core.clock import sleep
from eventlog.core.event_ids import record_id_of
from eventlog.core.ranges import to_ranges
from eventlog.errors import ConfigError, LogInUse, number_of
from eventlog.model import Status, unpadded
from eventlog.publisher.claimed_rows import CLAIM_WAYS_OUT, read_recorded, sent_ids
from eventlog.publisher.configured_classes import catalog_if_readable, class_named, read_catalog
from eventlog.publisher.leaves import LeafPurge, cut_ahead, in_turn, purge_leaves
from eventlog.publisher.ledger import LOCK_WAIT, ledger_of, lock_within
from eventlog.publisher.open_context import (
    find_log,
    loopback_user_of,
    own_user,
    publisher_user,
)
from eventlog.publisher.purge import Extent, extent_of, purge_batches, purge_error_lines
from eventlog.publisher.refusals import objects_of, refused, resync_commands
from eventlog.publisher.skipping import Skipped, parked_events, skip_refused
from eventlog.publisher.skipping import skip as skip_event
from eventlog.publisher.stream.open_source import parked_in_source, skip_in_source
from eventlog.sql import rows
from eventlog.sql.consumers import (
    lock_consumer,
    requeue_for,
    requeue_objects_for,
)
from eventlog.sql.open_database import OpenDatabase
from eventlog.sql.open_log import OpenLog
from eventlog.sql.purge import Purged, check_purge_rights, purge_cutoff
from eventlog.sql.rights import Purpose

_STATUS_FIELDS: Final = ("record_id", "status")


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
) -> int:
    """Put rows back into the queue: rows of status E and F in their old place, rows of status W and
    S as copies with new record_ids.

    A row of type 1 to 4 is refused if later rows of its object were processed, because it would
    restore an old value, or delete an object that exists again. A copy is also refused if later
    rows wait. While a finished directory of `backlog run` claims rows, rows E and F up to their
    last record_id are refused too. The exit code is then 1; --force requeues them anyway. If other
    rows of the same insert are not requeued, the rows are sent as an update.

    With --loopback, rows that were marked S without being published, because the publisher's own
    database user made them, are logged again without a user, so that they are published.
    publisher.driver_user names another user.

    With --consumer, rows are sent again to this consumer alone; without --ids and --event-id, all
    that was refused for it, including objects of its snapshot.
    """
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
        return 0
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
    return 1


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


@click.command(cls=Command)
@click.argument("event_ids", metavar="[EVENT_ID]...", nargs=-1)
@click.option(
    "--reason", required=True, metavar="REASON", help="Reason for the error line, with your name."
)
@click.option("--parked", is_flag=True, help="Give up all events that are parked.")
@click.option(
    "--refused", "of_refused", is_flag=True, help="Skip refused rows; they are not sent again."
)
@click.option("--ids", metavar="IDS", help="With --refused: only these record_ids, such as 1,5-9.")
@click.option(
    "--class", "class_name", metavar="CLASS", help="With --parked or --refused: only this class."
)
@consumer_option
@yes_option
@click.option("--dry-run", "dry", is_flag=True, help="Show what would be skipped; change nothing.")
@json_option
@source_option
@click.pass_obj
def skip(
    context: CommandContext,
    event_ids: tuple[str, ...],
    reason: str,
    parked: bool,
    of_refused: bool,
    ids: str | None,
    class_name: str | None,
    consumer: str | None,
    yes: bool,
    dry: bool,
    as_json: bool,
    source: str | None,
) -> None:
    """Give up the events EVENT_ID, which are parked: the receiver fails for them, or asks for them
    later. With --refused, record that refused rows need nothing more.

    The rows of an event get E, each with an error line that records who gave it up, the reason, and
    the receiver's last answer to a parked event. A running publisher notices it at its next attempt
    to send the event; then the later events of the object are sent. `eventlog status` shows which
    events are being delivered. Skipped rows are no condition of the health. `eventlog errors` lists
    them with the commands that send their objects again.

    --parked stands for the ids of all parked events. --refused is for rows that have E or F
    already: they keep their status, and get the same error line. On a terminal both ask first.

    With --consumer and events the consumer must not run, and with --from the source's publisher
    must not run. An event of a followed source has no rows: the source's error table gets the
    change.
    """
    if bool(event_ids) + parked + of_refused != 1:
        raise click.UsageError("give either EVENT_ID, --parked or --refused")
    if ids is not None and not of_refused:
        raise click.UsageError("--ids names refused rows: give --refused too")
    if class_name is not None and event_ids:
        raise click.UsageError("--class narrows --parked or --refused: leave EVENT_ID out")
    config = context.config(source__type=source)
    why = f"given up by hand by {getpass.getuser()} on {socket.gethostname()}: {reason}"
    if config.follows:
        if consumer is not None:
            raise ConfigError("--consumer is for a log; a followed source has no consumers")
        if of_refused or class_name is not None:
            raise ConfigError(
                "--refused and --class are for a log: the rows of a followed source have no status"
            )
        named = event_ids or parked_in_source(config)
        if not dry and not event_ids:
            confirm(f"This gives up {number_of(len(named), 'event')}.", yes=yes)
        _print_skipped(
            [Skipped(one, 0, 0, "") if dry else skip_in_source(config, one, why) for one in named],
            dry=dry,
            as_json=as_json,
        )
        return
    chosen = None if ids is None else parse_ids(ids)
    with session(config, Purpose.SKIP) as db:
        log = find_log(db, config)
        if class_name is not None:
            cls = class_named(read_catalog(log, config), class_name)
            class_name = cls.name
        consumer = consumer or config.of_log.consumer
        if of_refused:
            _skip_refused(log, config, consumer, why, chosen, class_name, yes, dry, as_json)
            return
        ledger = ledger_of(log, consumer)
        if ledger.consumer:
            consumer_row(log, ledger.consumer)
            if not dry:
                lock_within(ledger, LOCK_WAIT)
            ledger.recover()
        if parked:
            catalog = None if class_name is None else read_catalog(log, config)
            event_ids = tuple(parked_events(log, ledger, class_name, catalog))
            if event_ids and not dry:
                confirm(f"This gives up {number_of(len(event_ids), 'event')}.", yes=yes)
        skipped = [skip_event(log, ledger, one, why) for one in dict.fromkeys(event_ids)]
        if dry:
            log.connection.rollback()
        else:
            if_stopped(COMMITTING)
            log.commit()
            if_stopped(DONE)
        commands = [] if dry else _later(log, config, skipped)
    _print_skipped(skipped, dry=dry, as_json=as_json, commands=commands)


def _skip_refused(
    log: OpenLog,
    config: Config,
    consumer: str | None,
    why: str,
    ids: list[tuple[int, int]] | None,
    class_name: str | None,
    yes: bool,
    dry: bool,
    as_json: bool,
) -> None:
    """Record that refused rows need nothing more, and print how many."""
    if consumer is not None:
        consumer_row(log, consumer)
    catalog = None if class_name is None else read_catalog(log, config)
    name = consumer or ""
    found = skip_refused(log, name, why, ids, class_name, catalog, dry=True)
    number = len(found.rows) + len(found.objects)
    if not dry and number:
        confirm(f"This skips {number_of(number, 'refused row')}.", yes=yes)
        found = skip_refused(log, name, why, ids, class_name, catalog, dry=False)
        if_stopped(COMMITTING)
        log.commit()
        if_stopped(DONE)
    if as_json:
        print_json({"rows": found.rows, "objects": found.objects, "dry_run": dry})
        return
    objects = f" and {number_of(len(found.objects), 'object')}" if found.objects else ""
    would = "would be " if dry else ""
    result(f"{number_of(len(found.rows), 'refused row')}{objects} {would}skipped")


def _later(log: OpenLog, config: Config, skipped: Sequence[Skipped]) -> list[str]:
    """Return the commands that send the objects of skipped events as they are later. They are
    accepted whatever is sent meanwhile. This role need not read the watched tables.
    """
    firsts = sorted(record_id_of(one.event_id) for one in skipped if one.rows)
    objects = objects_of(log, firsts)
    catalog = catalog_if_readable(log, config)
    commands, _ = resync_commands(log, catalog, objects, finds_deleted=False)
    return commands


def _print_skipped(
    skipped: Sequence[Skipped], *, dry: bool, as_json: bool, commands: Sequence[str] = ()
) -> None:
    if as_json:
        print_json({"skipped": [one._asdict() for one in skipped], "dry_run": dry})
        return
    if not skipped:
        result("no event is parked")
    verb = "would be given up" if dry else "is given up"
    for one in skipped:
        rows = f": {number_of(one.rows, 'row')} set to E" if one.rows and not dry else ""
        result(f"event {one.event_id} {verb}{rows}")
    if commands:
        note("to send the objects later, as they are then:")
        show_commands(commands)


_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@click.command(cls=Command)
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
@yes_option
@click.option("--dry-run", "dry", is_flag=True, help="Count what would be removed; remove nothing.")
@json_option
@click.pass_obj
def purge(
    context: CommandContext,
    age: str | None,
    size: int,
    pause: float,
    yes: bool,
    dry: bool,
    as_json: bool,
) -> None:
    """Remove rows of status S and W that are older than AGE, and error lines whose rows are gone.

    Rows of any other status, rows being delivered and rows that a consumer has not processed stay.
    A publisher may run meanwhile, since each batch is a separate transaction. The batches of a
    purge that is stopped stay committed. On a terminal it asks first. As the owner of a partitioned
    log it removes whole leaves, and makes the next ones; while the log has more than keep_bytes of
    [database], the oldest leaf goes whatever its age.
    """
    config = context.config()
    limit, older = _limit(config, age)
    with session(config, Purpose.PURGE) as db:
        log = find_log(db, config)
        if not dry:
            check_purge_rights(log)
        event_time, error_time = purge_cutoff(log, config.publisher.event_time_zone, limit)
        cutoff = event_time.isoformat(" ", "seconds")
        to_check = extent_of(log)
        log.commit()
        if not dry:
            confirm(
                f"This removes from the log {log} all rows of status S and W {older} (before "
                f"{cutoff}), and their error lines.",
                yes=yes,
            )
        max_bytes = config.database.keep_bytes
        leaves, to_check = _purge_leaves(log, event_time, to_check, max_bytes, dry=dry)
        # Rows that were logged after the start are too new.
        batches = purge_batches(
            log,
            to_check,
            size,
            event_time,
            to_the_end=config.publisher.handle_future_events,
            dry=dry,
        )
        removed = dict.fromkeys(("checked", "rows", "error_lines", "batches"), 0)
        kept: Counter[str] = Counter()
        done = to_check.first - 1
        with progress(
            "Purge", to_check.last - done, context.quiet or as_json, "record_ids"
        ) as advance:
            for batch in _each_committed(log, batches, pause):
                removed["rows"] += batch.removed
                removed["checked"] += batch.rows_checked
                kept.update(batch.kept)
                removed["batches"] += 1
                _if_purge_stopped(removed, leaves, dry=dry)
                advance(batch.last - done)
                done = batch.last
        error_lines = purge_error_lines(log, size, event_time, error_time, dry=dry)
        for batch in _each_committed(log, error_lines, pause):
            removed["error_lines"] += batch.removed
            removed["batches"] += 1
            _if_purge_stopped(removed, leaves, dry=dry)
    if_stopped(NOTHING if dry else DONE)
    removed["rows"] += sum(one.rows for one in leaves)
    removed["checked"] += sum(one.rows + one.moved for one in leaves)
    gone = [one for one in leaves if not one.why_kept]
    held_back = next((one for one in leaves if one.why_kept), None)
    if as_json:
        of_leaves = {
            "leaves": len(gone),
            "kept_leaf": held_back and {"name": held_back.leaf.name, "reason": held_back.why_kept},
        }
        print_json(
            {"log": str(log), "dry_run": dry, "cutoff": cutoff, **removed, "kept": dict(kept)}
            | (of_leaves if log.table.is_partitioned else {})
        )
    elif not context.quiet:
        verb = "would be removed" if dry else "removed"
        if gone:
            result(f"{len(gone)} {'leaf' if len(gone) == 1 else 'leaves'} {verb}")
        if held_back is not None:
            result(f"leaf {held_back.leaf.name} stays: {held_back.why_kept}")
        result(
            f"log {log}, before {cutoff}: {removed['rows']:,} of "
            f"{number_of(removed['checked'], 'row')} {verb}, "
            f"{number_of(removed['error_lines'], 'error line')} {verb}"
        )
        for name, number in kept.items():
            result(f"{number_of(number, 'row')} kept for consumer {name}, still to process")


def _limit(config: Config, age: str | None) -> tuple[timedelta, str]:
    """Return the least age of the rows to remove, and these rows in words. Raises ConfigError if
    neither an option nor a setting limits the log.
    """
    keep_days, keep_bytes = config.database.keep_days, config.database.keep_bytes
    if age is not None:
        return parse_age(age), f"older than {age.strip()}"
    if keep_days is not None:
        return timedelta(days=keep_days), f"older than keep_days = {keep_days}"
    if keep_bytes is not None:
        return timedelta.max, f"of the oldest leaves, to keep_bytes = {keep_bytes:,}"
    raise ConfigError("give --older-than AGE, or set keep_days or keep_bytes in [database]")


def _if_purge_stopped(
    removed: Mapping[str, int], leaves: Sequence[LeafPurge], *, dry: bool
) -> None:
    """Set the sentence of a purge that a signal stops from now on."""
    if dry:
        return
    rows = removed["rows"] + sum(one.rows for one in leaves)
    if_stopped(
        f"{number_of(rows, 'row')} and {number_of(removed['error_lines'], 'error line')} were "
        "removed; run the same command again to remove the rest"
    )


def _purge_leaves(
    log: OpenLog, event_time: datetime, to_check: Extent, max_bytes: int | None, *, dry: bool
) -> tuple[list[LeafPurge], Extent]:
    """Purge the leaves of a partitioned log whose owner this session is. Return the result for the
    leaves, and which rows remain to be purged one by one.
    """
    means = log.dialect.partitioning
    known = means.leaves(log) if means is not None and log.table.is_partitioned else []
    if means is None or not known:
        if max_bytes is not None:
            note(
                f"keep_bytes has no effect on the log {log}, which is not partitioned: the space "
                "of deleted rows stays in the table"
            )
        return [], to_check
    if not means.is_owner(log):
        note(
            f"user {log.db.current_user()} does not own the log {log}, so that rows are deleted "
            "one by one and no leaf is removed or cut"
        )
        return [], to_check
    log.commit()
    if not dry:
        if_stopped("some leaves may be removed; run the same command again to remove the rest")
        in_turn(log, lambda: means.finish(log))
        try:
            cut_ahead(log, means)
        except LogInUse as error:
            note(f"the open leaf was not cut: {error}")
    found = list(purge_leaves(log, means, event_time, max_bytes=max_bytes, dry=dry))
    size = sum(means.sizes(log).values())
    log.commit()
    if max_bytes is not None and size > max_bytes and not dry:
        note(
            f"the log {log} has {size:,} bytes, more than keep_bytes = {max_bytes:,}: rows that "
            "are needed stay, and so do the lowest leaf and the leaf of the newest row"
        )
    # The leaf will be removed as a whole later; deleting its rows now would leave dead rows
    # unnecessarily.
    lowest = means.leaves(log)[0]
    log.commit()
    ends = [lowest.end, *(one.leaf.end for one in found if one.by_rows)]
    last = max(one for one in ends if one is not None) - 1
    return found, to_check._replace(last=min(to_check.last, last))


def _each_committed(log: OpenLog, batches: Iterator[Purged], pause: float) -> Iterator[Purged]:
    """Yield the batches, each committed, ``pause`` seconds apart."""
    for batch in batches:
        log.commit()
        yield batch
        if pause:
            sleep(pause)
    log.commit()


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
