"""The run of ``eventlog resync``: write objects of a class to the log again, for repair and the
first load.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Connection

from eventlog.cli.command import CommandResult
from eventlog.cli.context import Advance, CommandContext, changing_log, note, progress
from eventlog.cli.repair.resync import Resync
from eventlog.cli.stopping import COMMITTING, DONE, NOTHING, if_stopped
from eventlog.config.load import Config
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.clock import monotonic, sleep
from eventlog.errors import BadTableKey, ConfigError, DatabaseError, DatabaseUnavailable, number_of
from eventlog.exit_codes import ExitCode
from eventlog.files.text import spooled
from eventlog.model import EventType
from eventlog.publisher.declared import class_named, tried_catalog, without_hashes
from eventlog.publisher.inspect import settle, write_objects
from eventlog.sql import resync as batches
from eventlog.sql.port import Addition, OpenLog, Purpose, ResyncBatch, Selection, as_database_errors
from eventlog.sql.readers import highest_row
from eventlog.sql.resync import Unfinished, WriteBatch

_log = logging.getLogger("eventlog.publisher")

SHOWN: Final = 20
"""The maximum number of invalid lines and missing keys to name; the rest are counted."""


class Opened(NamedTuple):
    """A log to write to, and the class whose objects are written."""

    log: OpenLog
    catalog: Catalog
    cls: ObjectClass


@dataclass(slots=True)
class Report:
    """The result of this run."""

    class_name: str
    event_type: int
    rows: int = 0
    missing: int = 0
    invalid_lines: int = 0
    resumed_at: str | None = None
    """The key after which this run resumed, None if it started from the beginning."""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    """The messages of the first invalid lines and missing keys."""
    superseded: int = 0
    """The number of refused rows and objects that the new rows replace."""
    unsettled: int = 0
    """The number of refused rows and objects whose replacement could not be recorded."""
    obstacle: str = ""
    """Why the replacement could not be recorded."""
    dry_run: bool = False
    """True if no row was written, and ``rows`` is the number that would be written."""
    compared: int | None = None
    """With --deletes, the number of keys that were searched."""
    known_since: str | None = None
    """With --deletes, the event_time of the class's first row in the log, None if there is no such
    row.
    """

    @property
    def has_gaps(self) -> bool:
        """True if keys have no object, or lines have no key."""
        return bool(self.missing or self.invalid_lines)

    def add(self, batch: ResyncBatch) -> None:
        """Add the counts of a batch."""
        self.rows += batch.rows
        self.missing += batch.missing
        if self.compared is not None:
            self.compared += batch.rows + batch.present

    def add_problems(self, sentences: Iterable[str]) -> None:
        """Keep the first problems, up to ``SHOWN``."""
        self.problems += islice(sentences, max(0, SHOWN - len(self.problems)))


def run_resync(context: CommandContext, request: Resync, config: Config) -> CommandResult:
    """Run ``eventlog resync``."""
    dry, keys_file = request.dry, request.keys_file
    digest = None if keys_file is None else fingerprint(keys_file)
    with (
        _opened(config, request.class_name, resumable=not request.keys) as opened,
        ExitStack() as files,
    ):
        selection = Selection(opened.cls.name, request.event_type, request.where, digest)
        report = Report(opened.cls.name, int(request.event_type), dry_run=dry)
        started = monotonic()
        if request.keys:
            _write_named(opened, selection, request.keys, report)
        else:
            entry = batches.begin(
                opened.log, selection, resume=request.resume, restart=request.restart
            )
            report.resumed_at = entry.reached
            _check_where(opened, selection, entry)
            most = batch_size(request.size, request.rate)
            if request.deletes:
                write, total = _deleted_writer(opened, entry, report, most, files)
            else:
                write, total = _batch_writer(opened, selection, entry, keys_file, report, most)
            if dry:
                _count(opened.log.connection, write, entry.reached, report)
            else:
                opened.log.commit()
                # The size of a whole class is an estimate.
                unit = "objects" if keys_file or request.deletes else "objects or so"
                label = f"resync {opened.cls.name}"
                with progress(label, total, context.hides_progress, unit) as advance:
                    _run(opened, selection, write, request.rate, report, advance)
        report.seconds = monotonic() - started
    if_stopped(NOTHING if dry else DONE)
    after = "" if report.resumed_at is None else f" after {report.resumed_at}"
    return CommandResult(
        asdict(report),
        f"{number_of(report.rows, 'row')} of type {report.event_type} "
        f"{'would be written' if dry else 'written'} for {report.class_name}{after} in "
        f"{report.seconds:.1f} s",
        ExitCode.FAILED if report.has_gaps else ExitCode.DONE,
        is_confirmation=True,
        notes=[
            *_problems(report),
            *_settled(report),
            *(() if context.quiet else _searched(report)),
        ],
    )


def fingerprint(path: Path) -> str:
    """Return the SHA-256 digest of a file of keys, by which --resume recognizes it. Raises
    ConfigError if the file does not exist.
    """
    if not path.is_file():
        raise ConfigError(f"--keys {path}: there is no such file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_lines(
    path: Path, canonical_key: Callable[[str | None], str]
) -> Iterator[tuple[int, str | None, str | None]]:
    """Yield the lines of a file of keys in UTF-8: the number of each line, from 1, and its
    canonical key or its error. Empty lines have neither.
    """
    with path.open("rb") as file:
        for number, data in enumerate(file, 1):
            try:
                text = data.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                yield number, canonical_key(text) if text.strip(" \t") else None, None
            except UnicodeDecodeError as error:
                yield number, None, f"not UTF-8 at byte {error.start}"
            except BadTableKey as error:
                yield number, None, str(error)


@contextmanager
def _opened(config: Config, class_name: str, *, resumable: bool) -> Iterator[Opened]:
    with changing_log(config, Purpose.RESYNC) as log:
        catalog = tried_catalog(log, without_hashes(config))
        cls = class_named(catalog, class_name)
        if resumable:
            batches.check_table(log)
        log.check_rights(Purpose.RESYNC, *([Addition.POSITION] if resumable else []))
        yield Opened(log, catalog, cls)


def _check_where(opened: Opened, selection: Selection, entry: Unfinished) -> None:
    """Raise ConfigError if --where is not one condition; log a warning if this resync has begun
    with it.
    """
    why = None if selection.where is None else opened.log.db.why_not_one(selection.where)
    if why is None:
        return
    message = f"--where {selection.where} is not one condition: {why}"
    if entry.reached is None:
        raise ConfigError(message)
    _log.warning("%s. It is used because this resync has begun with it", message)


def _supersede(opened: Opened, selection: Selection, report: Report, after: int) -> None:
    """Record that the rows with record_ids above ``after`` replace the refused rows of the same
    objects.
    """
    settled = settle(opened.log, opened.catalog, selection, after)
    report.superseded += settled.superseded
    report.unsettled += settled.unsettled
    report.obstacle = settled.obstacle or report.obstacle


def _write_named(opened: Opened, selection: Selection, keys: Sequence[str], report: Report) -> None:
    try:
        canonical = [opened.cls.canonical_key(key) for key in keys]
    except BadTableKey as error:
        raise ConfigError(f"--key: {error}") from None
    highest = highest_row(opened.log) or 0
    rows, missing = _write_keys(opened, selection, canonical, report)
    if not report.dry_run:
        if rows:
            _supersede(opened, selection, report, highest)
        if_stopped(COMMITTING)
    opened.log.commit()
    report.rows, report.missing = rows, missing


def _write_keys(
    opened: Opened, selection: Selection, keys: Iterable[str], report: Report
) -> tuple[int, int]:
    """Log the objects of these canonical keys, except in a dry run. Returns the number of objects,
    and the number of keys without an object.
    """
    rows, missing = write_objects(
        opened.log, opened.catalog, opened.cls, selection, keys, dry=report.dry_run
    )
    report.add_problems(f"{key}: there is no such object" for key in missing)
    return rows, len(missing)


def _batch_writer(
    opened: Opened,
    selection: Selection,
    entry: Unfinished,
    keys_file: Path | None,
    report: Report,
    size: int,
) -> tuple[WriteBatch, int]:
    """Return the function that writes a batch, and the number of rows or lines that remain."""
    if keys_file is None:
        if entry.reached is not None and not opened.cls.has_key(entry.reached):
            raise ConfigError(
                f"the key of class {opened.cls.name} has changed since the resync stopped after "
                f"{entry.reached}: start over with --restart"
            )
        walk = opened.log.start_walk(opened.catalog.schema, opened.cls, selection)
        try:
            with as_database_errors(opened.log.connection):
                total = opened.log.estimate(walk, entry.reached)
        except DatabaseUnavailable:
            raise
        except DatabaseError as error:
            if selection.where is None:
                raise
            raise ConfigError(f"--where {selection.where}: {error}") from error

        def write_walked(conn: Connection, reached: str | None) -> ResyncBatch:
            if not report.dry_run:
                return opened.log.on(conn).write_batch(walk, reached, size)
            rows = opened.log.on(conn).count(walk, reached)
            return ResyncBatch(rows, 0, reached, is_last=True)

        return write_walked, total

    lines = read_lines(keys_file, opened.cls.canonical_key)
    with keys_file.open("rb") as file:
        total = sum(1 for _ in file)

    def write(_conn: Connection, reached: str | None) -> ResyncBatch:
        done = int(reached or 0)
        chunk = list(islice((one for one in lines if one[0] > done), size))
        problems = [f"{keys_file}, line {number}: {error}" for number, _, error in chunk if error]
        report.invalid_lines += len(problems)
        report.add_problems(problems)
        keys = (key for _, key, _ in chunk if key is not None)
        rows, missing = _write_keys(opened, selection, keys, report)
        last = str(chunk[-1][0]) if chunk else reached
        return ResyncBatch(rows, missing, last, is_last=len(chunk) < size)

    return write, total - int(entry.reached or 0)


def _deleted_writer(
    opened: Opened, entry: Unfinished, report: Report, size: int, files: ExitStack
) -> tuple[WriteBatch, int]:
    """Return the function that writes a batch of deletes, and the number of keys still to be
    searched. The log is read once, before the first batch.
    """
    names, rows, since = batches.history(opened.log, opened.catalog, opened.cls)
    report.compared = 0
    if rows:
        report.known_since = since or "an unknown time"
    keys = batches.known(opened.log, names, int(entry.reached or 0)) if rows else iter(())
    total = 0

    def counted() -> Iterator[tuple[int, str]]:
        nonlocal total
        for one in keys:
            total += 1
            yield one

    # The keys are kept in a file, since a snapshot that lasts for the whole run would keep the
    # database from vacuuming.
    left = files.enter_context(spooled(counted()))()

    def write(conn: Connection, reached: str | None) -> ResyncBatch:
        done = int(reached or 0)
        chunk = list(islice((one for one in left if one[0] > done), size))
        asked, of_former_key = [], []
        for number, key in chunk:
            try:
                asked.append(opened.cls.canonical_key(key))
            except BadTableKey as error:
                former = _former_key(opened.cls, key)
                if former is not None:
                    of_former_key.append(former)
                    continue
                report.invalid_lines += 1
                report.add_problems([f"the log, row {number}: {error}"])
        if not report.dry_run and of_former_key:
            selection = Selection(opened.cls.name, EventType.DELETE_ROW)
            opened.log.on(conn).write_keys(selection, of_former_key)
        dialect, schema, cls = opened.log.dialect, opened.catalog.schema, opened.cls
        if report.dry_run:
            _, gone = batches.existing(conn, dialect, schema, cls, asked)
        else:
            gone = batches.write_deleted(opened.log, schema, cls, asked)
        last = str(chunk[-1][0]) if chunk else reached
        rows = len(gone) + len(of_former_key)
        # An unreadable key may belong to a deleted object, so the due resync is not complete.
        return ResyncBatch(
            rows,
            0,
            last,
            is_last=len(chunk) < size,
            present=len(asked) - len(gone),
            is_complete=not report.invalid_lines,
        )

    return write, total


def _former_key(cls: ObjectClass, text: str) -> str | None:
    """Return the canonical text of a key in the class's former form, None if the text has another
    form.
    """
    try:
        return None if cls.former is None else cls.former.canonical_key(text)
    except BadTableKey:
        return None


def batch_size(size: int, rate: float | None) -> int:
    """Return the number of rows of a transaction. To avoid bursts, the number is at most what the
    rate allows in one second.
    """
    return size if rate is None else max(1, min(size, int(rate)))


def _run(
    opened: Opened,
    selection: Selection,
    write: WriteBatch,
    rate: float | None,
    report: Report,
    advance: Advance,
) -> None:
    started = monotonic()
    settle = partial(_supersede, opened, selection, report)
    try:
        for batch in batches.run(opened.log, selection, write, settle):
            report.add(batch)
            advance(batch.rows + batch.missing + batch.present)
            seconds = batches.pause(report.rows, rate, monotonic() - started)
            if seconds and not batch.is_last:
                sleep(seconds)
    except KeyboardInterrupt:
        _note_problems(report)
        if_stopped(
            f"{number_of(report.rows, 'row')} written to the log; run the same command with "
            "--resume to continue from there"
        )
        raise
    except BaseException:
        _note_problems(report)
        note(
            f"stopped after {number_of(report.rows, 'row')}; run the same command with --resume to "
            "continue from there"
        )
        raise


def _count(conn: Connection, write: WriteBatch, reached: str | None, report: Report) -> None:
    """Count the rows that would be written after the key ``reached``. In a dry run ``write`` only
    counts, and the entry of the resync is rolled back.
    """
    is_last = False
    while not is_last:
        batch = write(conn, reached)
        report.add(batch)
        reached, is_last = batch.reached, batch.is_last
    conn.rollback()


def _searched(report: Report) -> Iterator[str]:
    """Yield what a search for deleted objects could find."""
    if report.compared is None:
        return
    if report.known_since is None:
        yield (
            f"the log has no rows of {report.class_name}, so it does not show which objects were "
            "deleted: compare the receiver's objects with the table"
        )
    else:
        yield (
            f"{number_of(report.compared, 'key')} checked, from rows of the log since "
            f"{report.known_since}; deleted objects whose rows were never in the log, or were "
            "removed (purge, delete_from_log), are not found"
        )


def _settled(report: Report) -> Iterator[str]:
    """Yield what became of the refused rows of the objects."""
    if report.superseded:
        was, them = ("was", "it") if report.superseded == 1 else ("were", "them")
        yield (
            f"{number_of(report.superseded, 'row')} {was} refused before: until the new rows are "
            f"done, `eventlog errors` lists {them} as sent again"
        )
    if report.unsettled:
        yield (
            f"warning: `eventlog errors` still lists {number_of(report.unsettled, 'row')} that the "
            "receiver refused before. To end this, run `eventlog skip --refused`. The reason: "
            f"{report.obstacle}"
        )


def _problems(report: Report) -> Iterator[str]:
    yield from report.problems
    if (more := report.missing + report.invalid_lines - len(report.problems)) > 0:
        yield f"... and {more:,} more (keys without object, lines without key)"


def _note_problems(report: Report) -> None:
    for problem in _problems(report):
        note(problem)
