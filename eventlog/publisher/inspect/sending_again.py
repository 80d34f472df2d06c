"""Send rows and objects again when a person asks for it: ``eventlog requeue``, ``eventlog resync
--key``, and the actions of the status page (spec/event-log.md 11, 13.4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from eventlog.config.load import Config
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.ranges import Ranges, to_ranges
from eventlog.errors import ConfigError, number_of
from eventlog.model import Status, unpadded
from eventlog.publisher.context.conditions import LINES_READ
from eventlog.publisher.declared.configured_classes import catalog_if_readable
from eventlog.publisher.declared.opening import loopback_user_of, own_user, publisher_user
from eventlog.publisher.inspect.refusals import objects_of, refused, resync_commands
from eventlog.publisher.ledger.in_flight import read_recorded, sent_ids
from eventlog.sql import resync
from eventlog.sql.log import requeue
from eventlog.sql.log.errors import records_new_rows
from eventlog.sql.port.log_operations import Selection
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import Addition, Purpose
from eventlog.sql.readers.consumers import (
    consumer_row,
    lock_consumer,
    requeue_for,
    requeue_objects_for,
)
from eventlog.sql.readers.superseded import find_logged_again, note_logged_again

_STATUS_FIELDS: Final = ("record_id", "status")


class AskedAgain(NamedTuple):
    """A request to send rows again."""

    statuses: Sequence[str] = (Status.ERROR, Status.FATAL)
    """The statuses of the rows; a consumer's rows have none."""
    ranges: Ranges | None = None
    """The record_ids of the rows, None = all."""
    consumer: str | None = None
    """The consumer that gets the rows, None = the rows return to the publisher's queue."""
    event_ids: Sequence[str] = ()
    """The objects of the consumer's snapshot."""
    loopback: bool = False
    """True for the rows that the publisher's own user has made."""
    force: bool = False
    dry: bool = False
    by: str = ""
    """The person who asks, to be recorded in the error rows of a consumer."""


class RequeuedRows(NamedTuple):
    """What was put back, or would be put back with --dry-run."""

    done: requeue.Requeued
    outcome: str
    """What happens to the rows, in words that follow the number of rows."""
    why_refused: str
    objects: int | None = None
    """The number of objects of the consumer's snapshot, None without a consumer."""
    others: str = ""
    """A sentence about the named rows that have none of the chosen statuses."""
    claim: str = ""
    """A sentence about the backlog job that claims rows, and its directory."""
    nobody: str = ""
    """A sentence about the user whose rows were looked for, if there was none."""
    lacks: str = ""
    """A sentence about a missing right: without it a running publisher finds the rows later."""

    @property
    def sentence(self) -> str:
        """The sentence about what was done."""
        return f"{number_of(self.done.set_back, 'row')}{self.outcome}"

    def remarks(self) -> Iterator[str]:
        """Yield what a user should notice about rows that were put back."""
        if self.others:
            yield self.others
        if self.nobody:
            yield self.nobody
        if not self.done.is_requested:
            yield f"a running publisher finds these rows within about a minute: {self.lacks}"

    def refusal(self) -> str:
        """Return how many rows were refused, and why; empty if none was."""
        refused = self.done.refused
        return f"{number_of(len(refused), 'row')} refused: {self.why_refused}" if refused else ""


def requeue_rows(log: OpenLog, config: Config, asked: AskedAgain) -> RequeuedRows:
    """Send rows again; the caller commits. Raises ConfigError for an unknown consumer and for an
    object that was not refused. With ``loopback`` it also raises ConfigError if the database logs
    no users.
    """
    way = _by_status
    if asked.consumer is not None:
        way = _of_consumer
    elif asked.loopback:
        way = _of_loopback
    return way(log, config, asked, "would be " if asked.dry else "")


def instead_of_refused(log: OpenLog, config: Config, done: requeue.Requeued) -> list[str]:
    """Return the commands that send the objects of the refused rows as they are now."""
    if not done.refused:
        return []
    objects = objects_of(log, [row.record_id for row in done.refused])
    commands, _ = resync_commands(log, catalog_if_readable(log, config), objects)
    return commands


def _of_loopback(log: OpenLog, config: Config, asked: AskedAgain, would: str) -> RequeuedRows:
    """Log the rows again that were not published because the publisher's own user made them."""
    user = publisher_user(config, log.dialect, log.db.current_user())
    user = own_user(config, user, log.dialect.fold_name)
    if not user:
        raise ConfigError(
            "--loopback: this database logs no users, so no row is the publisher's own"
        )
    done = requeue.requeue_loopback(
        log,
        user,
        asked.ranges,
        event_time_zone=config.publisher.event_time_zone,
        force=asked.force,
        dry=asked.dry,
    )
    return RequeuedRows(
        done,
        f" {would}set back to N, {done.copied} of {user!r} {would}logged again",
        _RESTORE.format("were published, wait, or are left out"),
        nobody=""
        if done.copied or done.refused
        else (
            f"the log has no such row of {user!r}. Rows are left out if they were made by the user "
            "that the publisher had then: name this user by --set publisher.driver_user=USER"
        ),
    )


def _by_status(log: OpenLog, config: Config, asked: AskedAgain, would: str) -> RequeuedRows:
    """Put the rows of the chosen statuses back into the queue."""
    chosen, ranges = asked.statuses, asked.ranges
    if not asked.dry and {Status.ERROR, Status.FATAL}.intersection(chosen):
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
        event_time_zone=config.publisher.event_time_zone,
        force=asked.force,
        dry=asked.dry,
    )
    return RequeuedRows(
        done,
        f" {would}set back to N, {done.copied} {would}logged again",
        _RESTORE.format("were processed, or wait"),
        others=_other_status_note(log, chosen, ranges),
        claim="" if claim is None else claim.in_words,
        lacks="" if done.is_requested else log.what_lacks(Purpose.REQUEUE),
    )


_RESTORE: Final = (
    "later rows of their objects {}, so sending these rows again would restore old values, or "
    "delete objects that exist again"
)


def _other_status_note(log: OpenLog, chosen: Sequence[str], ranges: Ranges | None) -> str:
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


def _of_consumer(log: OpenLog, config: Config, asked: AskedAgain, would: str) -> RequeuedRows:
    """Send the named rows and objects of the snapshot again to a consumer, or all rows and objects
    that were refused for it. Raises ConfigError for an unknown consumer, and for an object that was
    not refused.
    """
    consumer, ranges, event_ids = asked.consumer or "", asked.ranges, asked.event_ids
    if not asked.dry:
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
        force=asked.force,
        dry=asked.dry,
        by=asked.by,
    )
    if not asked.dry:
        requeue_objects_for(log, entry, event_ids, asked.by)
    also = f" and {number_of(len(event_ids), 'object')} of its snapshot" if event_ids else ""
    return RequeuedRows(
        done,
        f"{also} {would}sent again to consumer {consumer}",
        "they would restore old values, because later rows of their objects were processed, or "
        "would replace the object, because other rows of the same insert are not requeued",
        len(event_ids),
    )


# --- objects, as they are now ---------------------------------------------------------------------


def write_objects(
    log: OpenLog,
    catalog: Catalog,
    cls: ObjectClass,
    selection: Selection,
    keys: Iterable[str],
    *,
    dry: bool,
) -> tuple[int, list[str]]:
    """Log the objects of these canonical keys, unless ``dry``; the caller commits. Return the
    number of objects, and the keys without an object.
    """
    existing, missing = resync.existing(log.connection, log.dialect, catalog.schema, cls, keys)
    if not dry:
        log.write_keys(selection, existing)
    return len(existing), [*missing]


class Settled(NamedTuple):
    """What became of the refused rows and objects whose objects were logged again."""

    superseded: int
    """How many refused rows and objects the new rows replace."""
    unsettled: int = 0
    """How many refused rows and objects have no record of their replacement."""
    obstacle: str = ""
    """Why the replacement could not be recorded."""


def settle(
    log: OpenLog, catalog: Catalog, selection: Selection, after: int, by: str = ""
) -> Settled:
    """Record that the rows with record_ids above ``after`` replace the refused rows of the same
    objects; the caller commits. The error rows name ``by``, the person who asked.
    """
    found = find_logged_again(log, catalog, selection, after, LINES_READ)
    number = sum(map(len, found))
    obstacle = _obstacle(log) if found else ""
    if obstacle:
        return Settled(0, number, obstacle)
    for again in found:
        note_logged_again(log, again, by)
    return Settled(number)


def _obstacle(log: OpenLog) -> str:
    """Return why the error table cannot record which rows replace refused rows; empty if it can."""
    if lacks := log.what_lacks(Purpose.RESYNC, Addition.SUPERSEDE):
        return lacks
    if not records_new_rows(log):
        return (
            f"the table {log.table.error_table} has no column superseded_by: add it with `eventlog "
            "db upgrade`, or with `eventlog db upgrade --existing-log` if another program made the "
            "log"
        )
    return ""
