"""The claim and the marks of a finished directory (spec/event-log.md 8.6).

The rows of a directory are marked only with the settings with which the directory was written, and
only if its files are unchanged. Until the rows are marked, a claim in the log prevents a publisher
from sending them as well.

Exactly the rows that were read get their status (spec/event-log.md 8.4, 10); the files in ``_ids``
list them. Marks are written in bounded transactions, and a run may end after each transaction: the
next run continues, and changes only rows that still have status N.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from threading import Lock
from types import MappingProxyType
from typing import Any, Final

import pyarrow.parquet as pq
from pyarrow import BufferReader
from sqlalchemy import Connection

from eventlog.config.effective import effective
from eventlog.config.load import Config
from eventlog.core.clock import executor, utc_now
from eventlog.core.options import toml
from eventlog.core.ranges import Range, Ranges, to_ranges
from eventlog.core.rows.checks import is_of
from eventlog.errors import ConfigError, DatabaseUnavailable, number_of
from eventlog.model import Status, unpadded
from eventlog.publisher.context import Context, Counters, JobProgress, PublisherOptions
from eventlog.publisher.declared import open_context
from eventlog.publisher.ledger import (
    CLAIM_WAYS_OUT,
    BacklogClaim,
    Writers,
    are_registered,
    encode_claim,
    next_ids,
    read_recorded,
)
from eventlog.spark.backlog.job import (
    DeliveryReport,
    OutputFile,
    PartReport,
    RowFailure,
    part_report,
)
from eventlog.spark.directory import MANIFEST, SUCCESS, Directory, job_in, masked
from eventlog.spark.session.in_tasks import rows_of_batch
from eventlog.spark.session.session import Progress, shown
from eventlog.sql.log import (
    EntryKind,
    add_entry,
    add_errors,
    delete_entry,
    next_number,
    note_removed,
    replace_content,
    tail,
)
from eventlog.sql.port import OpenLog, Purpose, as_database_errors

# --- the manifest ---------------------------------------------------------------------------------


Settings = Mapping[str, str]
"""The settings that determine documents and marks, by name, without secrets."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a finished directory."""

    job: str
    """The name of the run, which is part of the names of its files."""
    settings: Settings
    log: str
    database: str
    snapshot: str
    started: str
    finished: str
    totals: Mapping[str, int]
    """The counters of spec/event-log.md 11, and the number of events by operation."""
    in_flight: tuple[DeliveryReport, ...]
    in_flight_files: tuple[OutputFile, ...]
    parts: tuple[PartReport, ...]
    format: str
    """A format of ``eventlog.spark.backlog.output``."""
    last_sequence: str
    """The highest change sequence of formats that number changes, otherwise empty."""
    others: Mapping[str, str]
    """The SHA-256 of files without events."""

    @property
    def files(self) -> list[OutputFile]:
        """The files of documents, in queue order."""
        return [*self.in_flight_files, *(file for part in self.parts for file in part.files)]

    @property
    def checksums(self) -> dict[str, str]:
        """The SHA-256 of every file that is verified, by name."""
        ids = {delivery.ids: delivery.ids_sha256 for delivery in self.in_flight}
        ids |= {part.ids: part.ids_sha256 for part in self.parts}
        return {**ids, **self.others, **{file.name: file.sha256 for file in self.files}}


def manifest_of(value: Mapping[str, Any]) -> Manifest:
    """Return a manifest from its JSON form. Raises KeyError, TypeError for other values."""
    known = {one.name: value[one.name] for one in fields(Manifest)}
    known["in_flight"] = tuple(DeliveryReport(**delivery) for delivery in known["in_flight"])
    known["in_flight_files"] = tuple(OutputFile(**file) for file in known["in_flight_files"])
    known["parts"] = tuple(map(part_report, known["parts"]))
    return Manifest(**known)


# --- settings -------------------------------------------------------------------------------------

OF_COMMAND: Final = "command."
"""The prefix of the names of the command's own settings."""
_SECTIONS: Final = ("database", "publisher", "format", "watch ")
_INERT: Final = frozenset({
    "database.url", "database.password", "publisher.profile",
    "publisher.publisher_disabled", "publisher.publication_mode", "publisher.polling_interval",
    "publisher.time_of_day", "publisher.notify", "publisher.post_poll_statements",
    "publisher.query_limit", "publisher.heartbeat_interval", "publisher.retry_initial",
    "publisher.retry_max", "publisher.on_retry", "publisher.max_parked", "publisher.isolate_after",
    "publisher.max_attempts", "publisher.concurrency",
    "publisher.delivery_rows", "publisher.delivery_bytes", "publisher.mark_interval",
    "publisher.health_file",
})  # fmt: skip
"""Settings that do not affect documents and marks.

All other settings affect documents and marks, including settings of later versions.
"""


def settings_of(config: Config, context: Context, **request: Any) -> dict[str, str]:
    """Return the settings that determine documents and marks, by name, without secrets."""
    settings = {
        f"{section}.{key}": value
        for section, key, value, _ in effective(config)
        if section.startswith(_SECTIONS) and f"{section}.{key}" not in _INERT
    }
    options = context.options
    settings |= {
        "publisher.driver_user": options.driver_user,
        "loopback rows are deleted": options.delete_loopback,
    }
    settings |= {f"{OF_COMMAND}{name}": value for name, value in request.items()}
    return {
        name: "unset" if value is None else masked(toml(value)) for name, value in settings.items()
    }


def differences(made_under: Settings, now: Settings) -> list[str]:
    """Return one description per setting that differs."""
    names = sorted(made_under.keys() | now.keys())
    pairs = ((name, made_under.get(name, "unset"), now.get(name, "unset")) for name in names)
    return [f"{name} is {after}, was {before}" for name, before, after in pairs if before != after]


_ACKNOWLEDGED: Final = "publisher.delete_from_log"
"""The setting that ``--acknowledge`` replaces."""


def refuse_other_settings(
    directory: Directory,
    manifest: Manifest,
    settings: Settings,
    acknowledge: str | None = None,
) -> None:
    """Raise ConfigError if settings differ from the settings of the directory, except the setting
    that ``acknowledge`` has replaced.
    """
    then = manifest.settings
    if acknowledge is not None:
        settings = {**settings, _ACKNOWLEDGED: then.get(_ACKNOWLEDGED, "unset")}
    if different := differences(then, settings):
        raise ConfigError(
            f"{directory.location} was finished with other settings: {'; '.join(different)}. "
            "Nothing was marked. Run the command with the earlier settings, or give another "
            "directory"
        )


# --- the claim ------------------------------------------------------------------------------------


@contextmanager
def _committed(context: Context) -> Iterator[Connection]:
    """Yield the connection of the context; the transaction of the block is committed at its end.

    Raises DatabaseError.
    """
    with as_database_errors(context.log.connection):
        yield context.log.connection
        context.log.commit()


Extent = tuple[int, Writers]
"""The extent of a job's database snapshot: the last record_id with status N (0 = no row has status
N), and the open transactions that have written to the log.
"""


def extent_of(context: Context, reader: Connection) -> Extent:
    """Return the extent of the database snapshot that ``reader`` has just joined."""
    last = tail(context.log.on(reader)) or 0
    with _committed(context):
        # Read after the tail, so that a transaction with a record_id below it is among the writers,
        # or its rows are visible.
        writers = context.log.open_writers()
    return last, writers


def claim_rows(
    context: Context, directory: Directory, manifest: Manifest, sha256: str, extent: Extent
) -> None:
    """Claim the rows of a directory that is about to be finished.

    Raises DatabaseUnavailable if the lock of the log was lost, because a publisher may have sent
    the rows meanwhile.
    """
    last, writers = extent
    deliveries = tuple(report.delivery_no for report in manifest.in_flight)
    if not last and not deliveries:
        return
    log = context.log
    with _committed(context):
        if not log.holds_lock():
            raise DatabaseUnavailable(
                f"the lock of the log {log} was lost, so the directory was not finished. Run the "
                "same command again"
            )
        now = utc_now().isoformat(sep=" ", timespec="seconds")
        rows = manifest.totals.get("rows_read", 0) + manifest.totals.get("rows_in_flight", 0)
        number = next_number(log)
        claim = BacklogClaim(
            number, manifest.job, _name_of(directory), sha256, now, last, rows, deliveries, writers
        )
        add_entry(log, EntryKind.CLAIM, number, encode_claim(claim))


def _name_of(directory: Directory) -> str:
    """Return the name of a directory in its claim."""
    return directory.path if directory.is_local else directory.location


def _claimed_rows(context: Context) -> BacklogClaim | None:
    """Return the claim on rows of the log, None if there is no claim."""
    with _committed(context):
        _, claim = read_recorded(context.log)
    return claim


def refuse_if_claimed(context: Context, directory: Directory) -> None:
    """Let a job begin in a directory: the claim of an unfinished run in it is deleted.

    Raises ConfigError if another directory claims rows, or if rows are being marked.
    """
    claim = _claimed_rows(context)
    if claim is None:
        return
    if claim.job != job_in(directory) or claim.is_marking:
        raise ConfigError(
            f"{claim.in_words}. Before you convert rows again: {', '.join(CLAIM_WAYS_OUT)}"
        )
    _release(context, claim)


def _release(context: Context, claim: BacklogClaim) -> None:
    """Delete the claim; call it once the rows are marked or given back to the publisher."""
    with _committed(context):
        delete_entry(context.log, EntryKind.CLAIM, claim.number)


def _write_claim(context: Context, claim: BacklogClaim) -> None:
    with _committed(context):
        replace_content(context.log, EntryKind.CLAIM, claim.number, encode_claim(claim))


def release(config: Config, out: str, *, force: bool = False, dry: bool = False) -> BacklogClaim:
    """Give the rows that a directory claims back to the publisher; the documents in the directory
    are then obsolete. With ``dry`` the rows stay claimed.

    Raises ConfigError if the directory claims no rows. Without ``force``, also raises ConfigError
    if marking has begun, since rows that are marked already are not sent again.
    """
    directory = Directory(out)
    with open_context(config, Counters(), purpose=Purpose.BACKLOG) as context:
        claim = _claimed_rows(context)
        if claim is None:
            raise ConfigError(
                f"no backlog job claims rows of the log {context.log}; there is nothing to release"
            )
        if claim.directory != _name_of(directory):
            raise ConfigError(f"{claim.in_words}. Give --out {claim.directory}")
        if claim.is_marking and not force:
            raise ConfigError(
                f"{claim.in_words}. Complete the marks with `eventlog backlog mark`. `release "
                "--force` gives only the unmarked rows back to the publisher; the changes of the "
                "marked rows exist only in this directory"
            )
        if dry:
            return claim
        if directory.exists(SUCCESS) and job_in(directory) == claim.job:
            directory.delete(SUCCESS)
        _release(context, claim)
    return claim


# --- marks ----------------------------------------------------------------------------------------

MARKED: Final = "_marked"
"""The folder that lists the marked parts."""
BATCH_ROWS: Final = 20_000
"""The number of rows marked in one transaction."""


def mark(
    context: Context,
    directory: Directory,
    manifest: Manifest,
    connections: int,
    quiet: bool,
    progress: Progress,
) -> int:
    """Mark the rows that a finished directory claims, delete the claim, and return the number of
    changed rows.

    At most ``connections`` are open at the same time in addition to the connection of ``context``,
    0 = as many as are useful. Raises ConfigError if the rows are neither claimed nor marked, or if
    a file has changed; DatabaseError.
    """
    threads = connections or min(4, os.cpu_count() or 1)
    claim = _claim_of(context, directory, manifest, threads)
    if claim is None:
        return 0
    claim = claim._replace(is_marking=True)
    _write_claim(context, claim)
    seen = 0
    total = manifest.totals.get("rows_read", 0)

    def done(rows: int) -> None:
        nonlocal seen
        seen += rows

    with shown(
        "marking",
        lambda: JobProgress(seen / max(1, total), seen, 0, total=total),
        quiet,
        progress,
    ):
        try:
            marked = mark_rows(context, directory, manifest, threads, done)
        except BaseException as error:
            error.add_note(
                "marking has begun; run the same command again to mark the remaining rows"
            )
            raise
    if (
        claim.deliveries
    ):  # the next publisher deletes the claim with the entries of these deliveries
        _write_claim(context, claim._replace(is_marked=True))
    else:
        _release(context, claim)
    return marked


def rows_to_mark(
    context: Context, directory: Directory, manifest: Manifest, connections: int
) -> int:
    """Return the number of rows that ``mark`` would still handle. Nothing is changed. Raises the
    errors of ``mark``.
    """
    threads = connections or min(4, os.cpu_count() or 1)
    if _claim_of(context, directory, manifest, threads) is None:
        return 0
    return sum(
        part.rows_read for part in manifest.parts if not directory.exists(_mark_of(part.part))
    )


def _claim_of(
    context: Context, directory: Directory, manifest: Manifest, threads: int
) -> BacklogClaim | None:
    """Return the claim of a finished directory; None if its rows are marked already. Raises
    ConfigError, also if a file has changed since it was written.
    """
    claim = _claimed_rows(context)
    if claim is None or claim.job != manifest.job:
        if all(directory.exists(_mark_of(part.part)) for part in manifest.parts):
            return None
        raise ConfigError(
            f"{directory.location} does not claim its rows: it was converted with --no-claim, or "
            "its rows were given back to the publisher (release). Nothing was marked. Convert to "
            "another directory"
        )
    _verify(directory, manifest, claim, threads)
    return claim


def _verify(directory: Directory, manifest: Manifest, claim: BacklogClaim, threads: int) -> None:
    """Raise ConfigError if the manifest or a file listed in it is no longer as it was written."""
    expected = {MANIFEST: claim.manifest, **manifest.checksums}

    def is_damaged(name: str) -> str | None:
        try:
            found = directory.sha256(name)
        except OSError as error:
            return f"{name} cannot be read ({masked(str(error))})"
        if found == expected[name]:
            return None
        return f"{name} has changed since it was written (SHA-256 {found})"

    with executor(max(1, threads), "eventlog-verify") as pool:
        damaged = [reason for reason in pool.map(is_damaged, expected) if reason is not None]
    if damaged:
        more = f", and {number_of(len(damaged) - 1, 'more file')}" if len(damaged) > 1 else ""
        raise ConfigError(
            f"{directory.location}: {damaged[0]}{more}; nothing was marked. Restore the file, or "
            "give the rows back to the publisher with `eventlog backlog release` and convert them "
            "again"
        )


def mark_rows(
    context: Context,
    directory: Directory,
    manifest: Manifest,
    connections: int,
    done: Callable[[int], None],
) -> int:
    """Mark or delete the rows of a directory and of its recorded deliveries, and return the number
    of changed rows.

    ``context`` has the lock of the log; ``done`` is called with the number of rows handled.
    """
    directory.make(MARKED)
    one_at_a_time = Lock()

    def still_locked() -> None:
        with one_at_a_time, _committed(context) as connection:
            holds_lock = context.log.on(connection).holds_lock()
        if not holds_lock:
            raise DatabaseUnavailable(f"the lock of the log {context.log} was lost")

    still_locked()
    changed = _mark_deliveries(context, directory, manifest)
    waiting = [part for part in manifest.parts if not directory.exists(_mark_of(part.part))]
    done(manifest.totals.get("rows_read", 0) - sum(part.rows_read for part in waiting))

    def mark_part(part: PartReport) -> int:
        marked = 0
        with context.log.connection.engine.connect() as connection, as_database_errors(connection):
            log = context.log.on(connection)
            for good, failures, rows in _batches(directory, part.ids):
                still_locked()
                marked += _keep_loopback(log, context.options, good) if part.rows_loopback else 0
                marked += write_marks(log, context.options, good, failures)
                log.commit()
                done(rows)
        directory.write(_mark_of(part.part), b"")
        return marked

    with executor(max(1, connections), "eventlog-mark") as threads:
        futures = [threads.submit(mark_part, part) for part in waiting]
        try:
            return changed + sum(future.result() for future in futures)
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            raise


def _mark_of(part: int) -> str:
    """Return the file that shows that all rows of a part are marked."""
    return f"{MARKED}/part-{part:06d}"


def _mark_deliveries(context: Context, directory: Directory, manifest: Manifest) -> int:
    """Mark the rows of each recorded delivery in one transaction, and return the number of changed
    rows. An earlier run marked the deliveries that are listed in ``_marked``.
    """
    changed = 0
    event_ids = next_ids(context.log, {delivery.delivery_no for delivery in manifest.in_flight})
    for delivery in manifest.in_flight:
        listed = f"{MARKED}/delivery-{delivery.delivery_no}"
        if directory.exists(listed):
            continue
        with _committed(context):
            for good, failures, _ in _batches(directory, delivery.ids):
                changed += write_marks(context.log, context.options, good, failures, event_ids)
        directory.write(listed, b"")
    return changed


def _batches(directory: Directory, ids: str) -> Iterator[tuple[list[Range], list[RowFailure], int]]:
    """Yield the rows of a file in batches: the ranges that get S, the invalid rows, and the number
    of all these rows.
    """
    good: list[Range] = []
    failures: list[RowFailure] = []
    rows = 0
    table = pq.read_table(BufferReader(directory.read(ids)))
    for first, last, status, code, message in rows_of_batch(table):
        for start in range(first, last + 1, BATCH_ROWS):
            end = min(last, start + BATCH_ROWS - 1)
            if status == Status.SUCCESS:
                good.append((start, end))
            else:  # a single row
                failures.append((start, code, message))
            rows += end - start + 1
            if rows >= BATCH_ROWS:
                yield good, failures, rows
                good, failures, rows = [], [], 0
    if rows:
        yield good, failures, rows


def write_marks(
    log: OpenLog,
    options: PublisherOptions,
    good: Ranges,
    failures: Sequence[RowFailure],
    event_ids: Mapping[int, str] = MappingProxyType({}),
) -> int:
    """Mark the given rows in the current transaction. ``event_ids`` is as in ``add_errors``."""
    changed = 0
    if good:
        if options.delete_from_log and not are_registered(log):
            changed += log.delete(good)
            note_removed(log, max(last for _, last in good))
        else:
            changed += log.mark(Status.SUCCESS, good)
    if failures:
        ids = [(record_id, record_id) for record_id, _, _ in failures]
        # Only rows that this run marks get a row in the error table, so that each failure has one
        # row however often the command is run.
        waiting = {
            row.record_id for row in log.read_rows(ids) if unpadded(row.status) == Status.NEW
        }
        changed += log.mark(Status.ERROR, ids)
        entries = [entry for entry in failures if entry[0] in waiting]
        add_errors(log, entries, event_ids=event_ids)
    return changed


def _keep_loopback(log: OpenLog, options: PublisherOptions, good: Ranges) -> int:
    """Mark the loopback rows among the rows to delete, so that they are kept (spec/event-log.md
    8.3).

    Returns the number of loopback rows.
    """
    if (
        not options.delete_from_log
        or options.delete_loopback
        or options.driver_user is None
        or not good
    ):
        return 0
    rows = log.read_rows(good)
    loopback = [
        row.record_id
        for row in rows
        if is_of(row.perpetrator, options.driver_user) and unpadded(row.status) == Status.NEW
    ]
    return log.mark(Status.SUCCESS, to_ranges(loopback)) if loopback else 0
