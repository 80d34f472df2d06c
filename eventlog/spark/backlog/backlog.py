"""Convert all waiting rows of the log to files with Spark: ``eventlog backlog``.

The log is read in parts from one database snapshot and folded into the same events that the
publisher would send. Rows near the ends of a part may fold with rows of the next part, so they are
first shuffled by object. The events are sorted into queue order and written to files. Afterwards
exactly the rows that were read are marked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final

from pyspark.sql import SparkSession

from eventlog.config.load import Config
from eventlog.core.arguments import PATH_OR_URL, Kind, check_arguments
from eventlog.core.clock import executor, monotonic, random_hex, utc_now
from eventlog.core.rows.event_ids import raised_at
from eventlog.errors import ConfigError, FormatError, number_of
from eventlog.files.compression import COMPRESSIONS
from eventlog.publisher.context import Context, Counters, JobProgress, warn_of_loopback
from eventlog.publisher.declared import (
    catalog_of,
    class_names,
    class_schema,
    open_context,
    unreadable_main_tables,
    with_tables,
)
from eventlog.publisher.ledger import LOCK_WAIT, read_recorded
from eventlog.publisher.send import recorded_ids
from eventlog.qlik import sequence
from eventlog.qlik.tables.file_tables import STATE_FILE
from eventlog.spark.backlog.claim import (
    MARKED,
    OF_COMMAND,
    Extent,
    Manifest,
    Settings,
    claim_rows,
    extent_of,
    manifest_of,
    mark,
    refuse_if_claimed,
    refuse_other_settings,
    rows_to_mark,
    settings_of,
)
from eventlog.spark.backlog.fold import fold_bucket, read_parts
from eventlog.spark.backlog.job import (
    BLOB_SCHEMA,
    Job,
    Numbered,
    Output,
    OutputFile,
    PartReport,
    part_report,
)
from eventlog.spark.backlog.output import output_format
from eventlog.spark.backlog.preflight import counting_cores, preflight, waiting_parts
from eventlog.spark.backlog.write import IDS, REPORT_SCHEMA, Recorded, write_part, write_recorded
from eventlog.spark.directory import (
    MANIFEST,
    SUCCESS,
    Directory,
    JobDirectory,
    JobRecord,
    Owner,
    job_directory,
    resume,
)
from eventlog.spark.log_source import (
    PARTITION_ROWS,
    LogLocation,
    place_for,
    without_foreign_settings,
)
from eventlog.spark.session.arguments import CONFIG, check_pandas
from eventlog.spark.session.session import (
    Measure,
    Progress,
    as_spark_failed,
    by_number,
    cores_of,
    is_local,
    job_group,
    no_progress,
    open_session,
    running_session,
    shown,
    spark_progress,
    start_workers,
)
from eventlog.spark.session.spark_context import context_of
from eventlog.sql.connect import describe
from eventlog.sql.port import Purpose, as_database_errors

_BUCKETS_PER_CORE = 2
_BUCKET_ROWS = 2_000_000
_MIN_FILE_BYTES = 128 * 1024
_NAMES = re.compile(
    rf"{IDS}|{MARKED}|{re.escape(STATE_FILE)}|part-\d{{6,}}-\d{{5,}}(?:-[0-9a-f]{{12}})?\.(?:xmll|xml|parquet|jsonl)(?:\.gz|\.zst)?"
)
"""The names of the files and folders in an output directory, except the files and folders of change
tables.
"""
_NUMBERS = 10**19
"""The number of possible change numbers (formats/qlik.md 3)."""


@dataclass(frozen=True, slots=True)
class Request:
    """The request for one backlog job: what to convert, and how."""

    out: str
    """A path or URI."""
    master: str | None = "local[*]"
    """Spark's master, None = the master of spark-submit."""
    mark: bool = False
    no_claim: bool = False
    """True if the job claims no rows, so that no rows can be marked."""
    acknowledge: str | None = None
    """``mark`` or ``delete``, in place of the setting ``delete_from_log``."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """The settings of the Spark session that the job starts."""
    format: str = "xds"
    """xds, cloudevents, debezium, qlik-messages or qlik-change-table."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of the format's writer, if any, as ``eventlog convert`` takes them."""
    last_sequence: str | None = None
    """The change sequence after which the output is numbered, for the Qlik formats only."""
    file_layout: str | None = None
    """The layout of the files, None = the format's default."""
    compression: str = "none"
    """The compression of the files."""
    max_file_bytes: int = 256 * 2**20
    partition_rows: int = PARTITION_ROWS
    """The most rows that a task reads."""
    connections: int = 0
    """The most open connections of all tasks, 0 = one per running task. The driver opens two more
    connections.
    """
    quiet: bool = False
    progress: Progress = no_progress
    """The function that receives the progress of the job, such as the monitor."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a job. ``resumed`` is True if the documents existed already. ``marked`` is the
    number of rows that this run marked, None = marking was not requested.

    The seconds are those of the whole job, from reading to ``_SUCCESS``, and of marking.
    """

    manifest: Manifest
    resumed: bool
    marked: int | None
    seconds: float
    converting_seconds: float
    marking_seconds: float


_REQUEST: Final = Kind(lambda value: isinstance(value, Request), "BacklogRequest(OUT)")


def run(config: Config, request: Request) -> Report:
    """Convert the log's rows of status N to files in ``request.out``, and mark them if
    ``request.mark`` is set.

    Nothing is marked before all documents are complete. If the same command is run again, the
    command completes the marks or starts over. Raises ConfigError for an impossible request,
    PublisherAlreadyRunning if a publisher runs on the log, DatabaseError, SparkFailed, and
    FormatError for classes or a sequence that the format cannot hold.
    """
    check_pandas()
    check_arguments("run_backlog", config=(config, CONFIG), request=(request, _REQUEST))
    _check(config, request)
    config = _acknowledging(config, request.acknowledge)
    config = replace(config, format=replace(config.format, type=request.format))
    began = monotonic()
    with ExitStack() as stack:
        with _with_note("nothing was marked"):
            directory = Directory(str(request.out))
            context = stack.enter_context(
                open_context(config, Counters(), purpose=Purpose.BACKLOG, lock_wait=LOCK_WAIT)
            )
            settings = _settings(config, request, context)
            converted = began
            with job_directory(directory, _owner(context)) as opened:
                is_resumed = opened.known is not None
                if opened.known is not None:
                    manifest = _manifest_in(directory, opened.known)
                    refuse_other_settings(directory, manifest, settings, request.acknowledge)
                else:
                    if not request.no_claim:
                        refuse_if_claimed(context, directory)
                    directory.make_writable()
                    manifest = _convert(config, request, context, opened, settings)
                    converted = monotonic()
        marked = None
        if request.mark:
            marked = mark(
                context, directory, manifest, request.connections, request.quiet, request.progress
            )
        _warn_of_loopback(context, manifest, marked)
    ended = monotonic()
    return Report(manifest, is_resumed, marked, ended - began, converted - began, ended - converted)


def mark_finished(
    config: Config,
    out: str,
    acknowledge: str | None = None,
    connections: int = 0,
    *,
    quiet: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Mark the rows that the finished directory ``out`` claims. A repeated call marks the rows that
    are not marked yet.

    ``acknowledge``, ``connections`` and ``progress`` are as in ``Request``; the directory records
    what was converted, and how. Raises ConfigError if there is no such directory, if it claims no
    rows, if a file has changed, or if settings that determine the marks have changed;
    PublisherAlreadyRunning if a publisher runs on the log; DatabaseError.
    """
    check_arguments("mark_backlog", config=(config, CONFIG), out=(out, PATH_OR_URL))
    config = _acknowledging(config, acknowledge)
    began = monotonic()
    with open_context(config, Counters(), purpose=Purpose.BACKLOG, lock_wait=LOCK_WAIT) as context:
        with _with_note("nothing was marked"):
            directory, manifest = _to_mark(config, context, out, acknowledge)
        marked = mark(context, directory, manifest, connections, quiet, progress or no_progress)
        _warn_of_loopback(context, manifest, marked)
    seconds = monotonic() - began
    return Report(manifest, True, marked, seconds, 0.0, seconds)


def count_to_mark(
    config: Config, out: str, acknowledge: str | None = None, connections: int = 0
) -> int:
    """Return the number of rows that ``mark_finished`` would handle. Nothing is changed. Raises the
    errors of ``mark_finished``.
    """
    config = _acknowledging(config, acknowledge)
    with open_context(config, Counters(), purpose=Purpose.BACKLOG, lock_wait=LOCK_WAIT) as context:
        directory, manifest = _to_mark(config, context, out, acknowledge)
        return rows_to_mark(context, directory, manifest, connections)


def _to_mark(
    config: Config, context: Context, out: str, acknowledge: str | None
) -> tuple[Directory, Manifest]:
    """Return a finished directory and its manifest. Raises ConfigError if the directory is not
    finished, or if settings that determine the marks have changed.
    """
    directory = Directory(str(out))
    known = resume(directory, _owner(context))
    if known is None:
        raise ConfigError(
            f"{directory.location} has no {SUCCESS}, so its files are not complete. "
            "Convert the rows with `eventlog backlog run --out` first"
        )
    manifest = _manifest_in(directory, known)
    config = replace(config, format=replace(config.format, type=manifest.format))
    asked = {
        name: value for name, value in manifest.settings.items() if name.startswith(OF_COMMAND)
    }
    refuse_other_settings(directory, manifest, settings_of(config, context) | asked, acknowledge)
    return directory, manifest


def _acknowledging(config: Config, acknowledge: str | None) -> Config:
    if acknowledge is None:
        return config
    return replace(
        config, publisher=replace(config.publisher, delete_from_log=acknowledge == "delete")
    )


def _warn_of_loopback(context: Context, manifest: Manifest, marked: int | None) -> None:
    loopback = manifest.totals.get("rows_loopback", 0)
    if marked:
        warn_of_loopback(context, loopback)
    elif loopback and loopback == manifest.totals["rows_read"]:
        warn_of_loopback(context, loopback, "would be marked")


@contextmanager
def _with_note(note: str) -> Iterator[None]:
    """Add a note to any exception of the block. The command line shows this note after the
    exception's message.
    """
    try:
        yield
    except BaseException as error:
        error.add_note(note)
        raise


def _owner(context: Context) -> Owner:
    """Return the owner of an output directory: a backlog job of this log."""
    log, database = str(context.log), describe(context.log.connection.engine.url)

    def describe_other(found: JobRecord) -> str:
        return (
            f"documents of the log {found['log']} of {found['database']}, "
            f"not of {log} of {database}"
        )

    return Owner("backlog job", {"log": log, "database": database}, describe_other, _NAMES)


def _settings(config: Config, request: Request, context: Context) -> Settings:
    """Return the settings that determine documents and marks."""
    options = {f"map.{name}": value for name, value in request.options.items()}
    layout = request.file_layout or output_format(request.format).file_layouts[0]
    compression, last_sequence = request.compression, request.last_sequence
    return settings_of(
        config,
        context,
        file_layout=layout,
        compression=compression,
        last_sequence=last_sequence,
        **options,
    )


def _manifest_in(directory: Directory, value: JobRecord) -> Manifest:
    """Return the manifest of a finished directory. Raises ConfigError."""
    try:
        return manifest_of(value)
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{directory.location}/{MANIFEST} is damaged ({error}). Give another directory"
        ) from None


def _check(config: Config, request: Request) -> None:
    output_format(request.format, request.file_layout)
    if request.compression not in COMPRESSIONS:
        raise ConfigError(
            f"compression {request.compression!r} is unknown: use {', '.join(COMPRESSIONS)}"
        )
    if request.max_file_bytes < _MIN_FILE_BYTES:
        raise ConfigError(
            f"files of at most {request.max_file_bytes} bytes would be too small; use "
            f"{_MIN_FILE_BYTES} or more"
        )
    if request.no_claim and request.mark:
        raise ConfigError(
            "--no-claim claims no rows, so --mark has no rows to mark. Give only one of them"
        )
    if request.partition_rows < 1 or request.connections < 0:
        raise ConfigError("partition rows must be 1 or more, connections 0 (no limit) or more")
    if config.publisher.handle_future_events:
        raise ConfigError(
            "handle_future_events orders the queue by event_time, and a backlog job cannot. Run "
            "`eventlog publish` instead"
        )
    if config.of_log.consumer is not None:
        raise ConfigError(
            "source.consumer cannot be used: a backlog job converts the publisher's queue. Run the "
            'consumer with `eventlog publish`; with start_from = "earliest" the consumer reads the '
            "whole log"
        )
    if config.publisher.publisher_disabled:
        raise ConfigError(
            "publisher_disabled is set, so nothing is published. Remove it to convert the backlog"
        )


def _convert(
    config: Config,
    request: Request,
    context: Context,
    opened: JobDirectory,
    settings: Settings,
) -> Manifest:
    started, directory = utc_now(), opened.directory
    kind = output_format(request.format)
    file_layout = request.file_layout or kind.file_layouts[0]
    output = Output(
        directory.uri,
        file_layout,
        request.compression,
        request.max_file_bytes,
        config.publisher.batch_size,
        request.format,
        kind.read_options(config, request.options, file_layout),
    )
    engine = context.log.connection.engine
    options = context.log.dialect.snapshot_options
    with ExitStack() as stack:
        session, place, cores = _open(stack, request, context, directory)
        holder = stack.enter_context(engine.connect().execution_options(**options))
        stack.enter_context(as_database_errors(holder))
        # This transaction stays open as long as the job, so it reads nothing: it would lock the
        # tables.
        snapshot = context.log.db.on(holder).export_snapshot()
        with engine.connect().execution_options(**options) as reader:
            db = context.log.db.on(reader)
            with db.in_snapshot(snapshot):
                parts = tuple(waiting_parts(context, reader, request.partition_rows, cores))
                deliveries, _ = read_recorded(context.log.on(reader))
                extent = extent_of(context, reader)
                database = db.reflect(class_schema(config))
        rows = sum(part.rows for part in parts)
        spark = session()
        config = with_tables(config, database, context.log.table)
        names = class_names(config)[1]
        catalog = catalog_of(config, database, names, context.log.table)
        buckets = max(_BUCKETS_PER_CORE * cores, -(-rows // _BUCKET_ROWS))
        job = Job(
            name=random_hex(6),
            place=place,
            snapshot=snapshot,
            config=without_foreign_settings(config),
            database=database,
            tables=names,
            unreadable=unreadable_main_tables(context.log.db, catalog),
            options=context.options,
            parts=parts,
            in_flight=recorded_ids(deliveries),
            buckets=min(buckets, request.connections or buckets),
            output=output,
            started=started,
            before=_before(request, output, rows, context.epoch),
        )
        opened.begin(kind.folders(job), job.name)
        directory.make(IDS)
        recorded, before = write_recorded(job, directory, deliveries)
        job = replace(job, before=before)
        reports = run_job(spark, job, request) if parts else []
    return _finish(
        context, opened, job, recorded, reports, settings, None if request.no_claim else extent
    )


def _before(request: Request, output: Output, rows: int, epoch: str) -> Numbered:
    """Return the change number that precedes the first number of the output. If this number was
    used before the log's epoch began, it is raised to the time of the epoch, and by 10^12
    (formats/qlik.md 3). Raises FormatError.
    """
    last = request.last_sequence
    if last is None:
        last = getattr(output.options, "last_sequence", None)  # change tables have no such option
    prefix, number = sequence.raised_to(sequence.resume(last), raised_at(epoch))
    if number + 2 * rows >= _NUMBERS:
        raise FormatError(
            f"there are no change numbers left for {number_of(rows, 'row')} after {last}. Begin a "
            "new task",
            code="sequence_exhausted",
        )
    return Numbered(number, prefix)


def _open(
    stack: ExitStack, request: Request, context: Context, directory: Directory
) -> tuple[Callable[[], SparkSession], LogLocation, int]:
    """Start Spark in another thread, since the start takes seconds. Wait only for a cluster, in
    order to check its executors. Returns three values: a function that waits for the session and
    returns it, the log's location for workers, and the number of tasks that run at the same time.
    """
    running = running_session()
    threads = stack.enter_context(executor(2, "eventlog-spark"))
    future: Future[SparkSession] = threads.submit(
        open_session, request.master, running=running, conf=request.conf
    )
    is_own = running is None and is_local(request.master or "")
    if is_own:
        threads.submit(lambda: start_workers(future.result()))
    started = None if is_own else future.result()
    spark_context = None if started is None else context_of(started)
    is_near = started is None or (spark_context is not None and is_local(str(spark_context.master)))
    url = context.log.connection.engine.url
    place = stack.enter_context(place_for(url, context.log.table, on_this_machine=is_near))
    if started is not None and not is_near:
        with counting_cores(started) as cores_of_executors:
            preflight(started, place, directory)
            return future.result, place, cores_of_executors()
    cores = (
        cores_of(request.master) if spark_context is None else int(spark_context.defaultParallelism)
    )
    return future.result, place, cores


def run_job(spark: SparkSession, job: Job, request: Request) -> list[PartReport]:
    """Run the three stages (``fold``, ``write``), and return the reports of the parts in their
    order.
    """
    context = context_of(spark)
    rows = sum(part.rows for part in job.parts)
    count: Callable[[int], None]
    progress: Measure
    if context is None:  # Spark Connect does not report progress
        count, progress = _nowhere, partial(JobProgress, 0.0, 0, 0, total=rows)
    else:
        events = context.accumulator(0)
        count, progress = events.add, spark_progress(context, job.name, rows, lambda: events.value)
    # A row of these frames is a blob of many log rows, so Spark's default of ten thousand rows per
    # batch would be too much.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "16")
    parts = len(job.parts)
    at_once = min(parts, request.connections) if request.connections else parts
    numbers = spark.range(1, parts + 1, numPartitions=at_once)
    blobs = numbers.mapInArrow(partial(read_parts, job), BLOB_SCHEMA)
    in_buckets = by_number(blobs, job.buckets, "target").sortWithinPartitions(
        "kind", "target", "first_id"
    )
    folded = in_buckets.mapInArrow(partial(fold_bucket, job), BLOB_SCHEMA)
    reports = by_number(folded, parts + 1, "target").mapInArrow(
        partial(write_part, job, count), REPORT_SCHEMA
    )
    what_then = "nothing is lost; run the same command again"
    with (
        job_group(spark, job.name, "event log to documents"),
        shown("converting", progress, request.quiet, request.progress),
        as_spark_failed(what_then),
    ):
        written = reports.collect()
    return sorted(
        (part_report(json.loads(row.report)) for row in written), key=lambda report: report.part
    )


def _nowhere(_number: int) -> None:
    pass


def _finish(
    context: Context,
    opened: JobDirectory,
    job: Job,
    recorded: Recorded,
    reports: Sequence[PartReport],
    settings: Settings,
    extent: Extent | None,
) -> Manifest:
    deliveries, delivery_files, _ = recorded
    directory = opened.directory
    files = [*delivery_files, *(file for report in reports for file in report.files)]
    state = max([job.before.state, *(sequence.WriterState(*report.state) for report in reports)])
    sizes: dict[str, int | None] = {file.name: file.bytes for file in files}
    written = [*(delivery.ids for delivery in deliveries), *(report.ids for report in reports)]
    others = output_format(job.output.format).finish(job, directory, files, state)
    manifest = Manifest(
        job=job.name,
        settings=settings,
        **opened.owner.identity,
        snapshot=job.snapshot,
        started=job.started.isoformat(timespec="seconds"),
        finished=utc_now().isoformat(timespec="seconds"),
        totals=_totals(recorded, reports, files),
        in_flight=tuple(deliveries),
        in_flight_files=tuple(delivery_files),
        parts=tuple(reports),
        format=job.output.format,
        last_sequence=f"{state.prefix}{state.number:019}" if state.prefix else "",
        others={name: directory.sha256(name) for name in others},
    )

    def before_success(sha256: str) -> None:
        if extent is not None:
            claim_rows(context, directory, manifest, sha256, extent)

    named = sizes | dict.fromkeys([*written, *others])
    opened.finish(asdict(manifest), named, before_success)
    return manifest


def _totals(
    recorded: Recorded, reports: Sequence[PartReport], files: Sequence[OutputFile]
) -> dict[str, int]:
    """Return the totals of the job by name, added up over recorded deliveries, parts and files."""
    _, _, delivery_counts = recorded
    counts = Counter(delivery_counts)
    for report in reports:
        counts.update(report.counts)
    totals = {
        **counts,
        "rows_read": sum(report.rows_read for report in reports),
        "rows_loopback": sum(report.rows_loopback for report in reports),
        "events": sum(file.events for file in files),
        "documents": sum(file.documents for file in files),
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
    }
    return dict(sorted(totals.items()))
