"""Run a verification from a configuration: open the log and the target, protect the rows of the log
from removal meanwhile, and record the result (spec/verify.md 1.3, 5).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from eventlog.config.load import Config, connection_url, load
from eventlog.config.publishing import chosen_format, value_options
from eventlog.conversion import read_options
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.clock import monotonic, random_hex
from eventlog.core.options import names_hint, same_fields
from eventlog.errors import ConfigError, LogTableError
from eventlog.files.atomic import whole_file
from eventlog.model import EventType
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.declared.opening import open_unlocked
from eventlog.publisher.sinks.files import FileOptions
from eventlog.publisher.sinks.objects import ObjectOptions
from eventlog.registry import format_named
from eventlog.sql import SUPPORTED, resync
from eventlog.sql.connect.connection import connect, dialect_of, will_write
from eventlog.sql.log.database_snapshots import DatabaseSnapshots
from eventlog.sql.log.internal_tables import delete_entries_of
from eventlog.sql.log.verifications import LastVerification, write_verification
from eventlog.sql.port.driver_errors import as_database_errors
from eventlog.sql.port.log_operations import Selection
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.rights import Addition, Purpose
from eventlog.sql.readers import consumers
from eventlog.verify.motion import Motion
from eventlog.verify.report import Kind, Unproven, VerifyReport
from eventlog.verify.rule import UndoneRows
from eventlog.verify.targets import Target
from eventlog.verify.targets.files import FilesTarget
from eventlog.verify.targets.places import Directory, Objects, Place
from eventlog.verify.targets.table import TableTarget, table_maps
from eventlog.verify.verification import Progress, Verification, VerifyOptions

_CONSUMER: Final = "verify-"
"""The prefix of the names of consumers that verifications register."""
SAVED_EACH: Final = 5.0
"""The seconds between two saves of the progress."""
_AT_ONCE: Final = 1_000
"""The maximum number of rows that a repair writes in one transaction."""


def open_target(
    config: Config,
    target: str | None = None,
    map: Mapping[str, Any] | None = None,
    format: str | None = None,
) -> Target:
    """Open a target. ``target`` is the URL of a database, the path of a file or a directory, or the
    URI of objects in a store; None = what the configured sink writes.

    ``map`` is the content of a file of ``--options``: names of tables and columns in a database, or
    the options of the reader of files. ``format`` is the format of the files; None = the configured
    format. Raises ConfigError, DatabaseError.
    """
    sink = config.sink.options
    scheme, is_url, _ = (target or "").partition("://")
    if target is not None and is_url and scheme.partition("+")[0] in (*SUPPORTED, "embedded"):
        if format is not None:
            raise ConfigError(
                "--format is only for files, but the target is a database: remove --format"
            )
        return TableTarget(target, table_maps(map or {}))
    place: Place
    if isinstance(sink, ObjectOptions) and target in (None, sink.bucket_url):
        place = Objects(sink)
    elif target is not None and is_url:
        place = Objects(ObjectOptions(bucket_url=target))
    elif target is not None:
        place = Directory(Path(target))
    elif isinstance(sink, FileOptions) and sink.directory is not None:
        place = Directory(sink.directory)
    else:
        raise ConfigError(
            f"what the sink {config.sink.type} has sent cannot be read back; name the target with "
            "--target"
        )
    chosen = chosen_format(config) if format is None else format_named(format)
    options = dict(read_options(map or {})["reader"])
    values = None
    if (kind := chosen.written_by) is not None:
        values = value_options(config)
        options = same_fields(values, kind) | same_fields(config.format, kind) | options
    dialect = dialect_of(connection_url(config.database)).name
    return FilesTarget(place, chosen, dialect, options, values)


def verify(
    config: str | os.PathLike[str] | Mapping[str, Any],
    target: str | None = None,
    classes: Sequence[str] = (),
    *,
    format: str | None = None,
    map: Mapping[str, Any] | None = None,
    consumer: str | None = None,
    options: VerifyOptions = VerifyOptions(),  # noqa: B008 - frozen
    environ: Mapping[str, str] | None = None,
) -> VerifyReport:
    """Compare a target with the source while both change, and return the report.

    ``config`` is the path of an ``eventlog.toml``, or its content as nested dicts. ``target`` and
    ``format`` are as for ``eventlog verify``; None = what the configured sink writes, in the
    configured format. ``map`` is the content of a file of ``--options``. ``classes`` are the
    classes to compare; empty = all classes that the reader sends. ``consumer`` is the reader that
    writes the target; None = the configured reader. Raises ConfigError and DatabaseError.
    """
    document = config if isinstance(config, Mapping) else Path(config)
    flags = {} if consumer is None else {"source.consumer": consumer}
    loaded = load(document, os.environ if environ is None else environ, flags)
    with closing(open_target(loaded, target, map, format)) as opened:
        return run_verification(loaded, opened, classes, options)


def run_verification(
    config: Config,
    target: Target,
    classes: Sequence[str] = (),
    options: VerifyOptions = VerifyOptions(),  # noqa: B008 - frozen
    *,
    state: Path | None = None,
    started: Callable[[int], Callable[[int], None]] | None = None,
) -> VerifyReport:
    """Compare an open target with the source, and return the report.

    ``state`` is a file with the progress: a verification that was stopped continues from this
    progress. ``started`` is called with the expected number of objects, and returns a function that
    is called with the number of objects of each part. Raises ConfigError and DatabaseError.
    """
    with ExitStack() as resources:
        context = resources.enter_context(open_unlocked(config, Counters(), Purpose.VERIFY))
        log = context.log
        resources.enter_context(as_database_errors(log.connection))
        if "consumers" not in log.dialect.capabilities:
            raise ConfigError(
                f"the log {log} cannot be verified, because {log.dialect.name} does not report "
                "which open transactions have written to it"
            )
        log.check_rights(Purpose.VERIFY)
        log.commit()
        log.db.begin_publishing()  # each statement between two snapshots is a separate transaction
        log.commit()
        is_protected = resources.enter_context(_kept_rows(config, log))
        chosen = _chosen(context, classes)
        motion = resources.enter_context(closing(Motion()))
        undone = UndoneRows(
            log,
            context.catalog,
            motion,
            context.ledger.consumer,
            context.options.skipped_user,
            target.done,
            is_protected,
        )
        snapshots = DatabaseSnapshots(log, options.wait)
        begun = snapshots.read(undone.begin)
        report = VerifyReport(str(log), context.ledger.consumer or "publisher", str(target), begun)
        report.shows_values = config.monitor.show_values
        work = Verification(context, snapshots, undone, motion, target, options, report)
        place = None
        if state is not None:
            place = resume_from(state, work)
            work.save = _saver(state)
        if started is not None:
            work.advance = started(_expected(context, chosen))
        work.run(chosen, place)
        if state is not None:
            state.unlink(missing_ok=True)
        _record(config, log, report)
        return report


def _record(config: Config, log: OpenLog, report: VerifyReport) -> None:
    """Record the result in the log's database, for `eventlog status` and the monitor."""
    objects = sum(one.equal + one.known_different for one in report.classes.values())
    differences = len(report.differences) + report.unlisted
    last = LastVerification(
        report.reader,
        report.target,
        report.result.value,
        report.begun,
        report.verified_through,
        objects + differences,
        differences,
    )
    url = connection_url(config.database)
    with as_database_errors(engine := connect(url)), engine.connect() as connection:
        will_write(connection)
        own = log.on(connection)
        write_verification(own, last)
        own.commit()


def _chosen(context: Context, names: Sequence[str]) -> list[ObjectClass]:
    """Return the classes of these names; without names, all classes that the reader sends. Raises
    ConfigError.
    """
    catalog: Catalog = context.catalog
    chosen: dict[str, ObjectClass] = {}
    for name in names or [cls.name for cls in catalog.classes]:
        meant = catalog.log_name(name)
        if meant is None or meant.child is not None:
            hint = names_hint(name, [cls.name for cls in catalog.classes], "classes")
            raise ConfigError(f"{name!r} is not a class; {hint}")
        cls = meant.object_class
        if context.wants(cls.name):
            chosen[cls.name] = cls
        elif names:
            raise ConfigError(
                f"class {cls.name} is not sent: it is not among the classes of [source]"
            )
    if not chosen:
        raise ConfigError("there is no class to compare: watch a table first")
    return sorted(chosen.values(), key=lambda cls: cls.name)


def _expected(context: Context, classes: Sequence[ObjectClass]) -> int:
    log = context.log
    total = 0
    for cls in classes:
        selection = Selection(cls.name, EventType.INSERT_ROW_QUERY_BACK)
        total += log.estimate(log.start_walk(context.catalog.schema, cls, selection), None)
    log.commit()
    return total


# --- protecting the rows of the log
# ----------------------------------------------------------------


@contextmanager
def _kept_rows(config: Config, log: OpenLog) -> Iterator[bool]:
    """Register a consumer until the block ends, so that no row is removed from the log before a
    database snapshot has shown it. Yields False if the log does not support consumers.

    Raises ConfigError if the log does not support consumers, and the publisher deletes rows from
    the log.
    """
    try:
        consumers.check_possible(log)
    except LogTableError:
        log.commit()
        if config.publisher.delete_from_log:
            raise ConfigError(
                f"{config.sources['publisher.delete_from_log']} is true, and no consumer can "
                f"protect the rows of the log {log}. Deleted rows cannot be verified: set "
                "delete_from_log to false while you verify"
            ) from None
        yield False
        return
    log.commit()
    url = connection_url(config.database)
    with as_database_errors(engine := connect(url)), engine.connect() as connection:
        will_write(connection)
        own = dialect_of(url).open(connection).log(log.table)
        for name in consumers.consumer_names(own):
            # A verification that was killed leaves its consumer, which would keep rows in the log
            # forever.
            if name.startswith(_CONSUMER) and not own.is_consumer_locked(name):
                delete_entries_of(own, name, with_letters=True)
                consumers.forget(own, name)
        own.commit()
        name = f"{_CONSUMER}{random_hex(8)}"
        own.try_consumer_lock(name)
        consumers.register(own, name, consumers.LATEST)
        own.commit()
        try:
            yield True
        finally:
            consumers.forget(own, name)
            own.commit()


# --- continuing a stopped verification
# --------------------------------------------------------------


def _saver(state: Path) -> Callable[[Progress], None]:
    """Return a function that saves the progress in a file, from time to time (spec/verify.md
    5.1).
    """
    saved = monotonic()

    def save(progress: Progress) -> None:
        nonlocal saved
        if monotonic() < saved + SAVED_EACH:
            return
        saved = monotonic()
        report = progress.report
        content = {
            "log": report.log,
            "reader": report.reader,
            "target": report.target,
            "begun": report.begun.isoformat(),
            "class": progress.class_name,
            "position": progress.reached,
            "equal": {name: one.equal for name, one in report.classes.items()},
            "unproven": [
                (one.class_name, one.after, one.through, one.reason) for one in report.unproven
            ],
        }
        # Objects that differed are compared again, since they may have changed in the meantime.
        waiting = chain((one.name for one in report.differences), progress.waiting())
        with whole_file(str(state)) as file:
            file.write(_encoded(content)[:-1] + b', "waiting": [')
            for number, name in enumerate(waiting):  # they may not fit into memory
                file.write(b", " * (number > 0) + _encoded(name))
            file.write(b"]}")

    return save


def _encoded(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")


def resume_from(state: Path, work: Verification) -> tuple[str, str | None] | None:
    """Take over the progress in a file, and return the class and the key after which to continue;
    None if there is no such file. Raises ConfigError for the progress of another verification.
    """
    try:
        return _taken_over(json.loads(state.read_bytes()), state, work)
    except FileNotFoundError:
        return None
    except (
        OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError,
    ) as error:  # fmt: skip
        raise ConfigError(f"--state {state} cannot be read: {error!r:.200}") from None


def _taken_over(content: Any, state: Path, work: Verification) -> tuple[str, str | None]:
    report = work.report
    for member in ("log", "reader", "target"):
        if content.get(member) != getattr(report, member):
            raise ConfigError(
                f"--state {state} has the progress of another verification ({member} "
                f"{content.get(member)!r}): name another file, or delete it to begin again"
            )
    report.begun = datetime.fromisoformat(content["begun"])
    for name, equal in content["equal"].items():
        report.class_report(name).equal = equal
    report.unproven = [Unproven(*one) for one in content["unproven"]]
    for name, parts in groupby(sorted(content["waiting"]), itemgetter(0)):
        work.motion.wait_for(str(name), [str(key) for _, key in parts])
    return str(content["class"]), content["position"]


# --- repair ---------------------------------------------------------------------------------------


def repair(config: Config, report: VerifyReport, *, surplus: bool = False) -> int:
    """Write rows to the log for the objects that differ, so that every reader of the log sends
    these objects again. Return the number of rows (spec/verify.md 6).

    With ``surplus``, objects that only the target has get a row of type 4 (delete). An object that
    the source has is left as it is if the target has several rows of it: no event removes one of
    these rows. Raises ConfigError and DatabaseError.
    """
    wanted: dict[str, tuple[list[str], list[str]]] = {}
    for one in report.differences:
        if one.kind is Kind.VERSIONS:
            continue  # the rows of a history never change
        present, gone = wanted.setdefault(one.class_name, ([], []))
        (gone if one.kind is Kind.SURPLUS else present).append(one.key)
    with (
        open_unlocked(config, Counters(), Purpose.VERIFY) as context,
        as_database_errors(context.log.connection),
    ):
        log = context.log
        log.check_rights(Purpose.VERIFY, Addition.REPAIR)
        log.commit()
        will_write(log.connection)
        written = 0
        for name, (present, gone) in sorted(wanted.items()):
            cls = context.catalog.class_named(name)
            selection = Selection(name, EventType.INSERT_ROW_QUERY_BACK)
            for start in range(0, len(present), _AT_ONCE):
                keys = present[start : start + _AT_ONCE]
                there, _ = resync.existing(
                    log.connection, log.dialect, context.catalog.schema, cls, keys
                )
                log.write_keys(selection, there)
                log.commit()
                written += len(there)
            for start in range(0, len(gone) if surplus else 0, _AT_ONCE):
                keys = [key for key in gone[start : start + _AT_ONCE] if cls.has_key(key)]
                if cls.condition is not None:
                    # A row of type 4 would delete it from receivers for which it exists.
                    there, keys = resync.existing(
                        log.connection, log.dialect, context.catalog.schema, cls, keys
                    )
                    log.write_keys(selection, there)
                    written += len(there)
                written += len(resync.write_deleted(log, context.catalog.schema, cls, keys))
                log.commit()
    report.repaired = written
    return written
