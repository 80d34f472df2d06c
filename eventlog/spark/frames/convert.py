"""``eventlog convert --spark``: convert directories of inputs to files of any format; each
input is converted by one task.

A task reads its input and writes its changes with the functions of the row-by-row converter. All
numbers in the output (record_ids, change sequences, log sequences, addresses) begin again in each
input: each input becomes a separate log, stream or queue, in a separate directory. In the
output

* each input becomes a file of XDS, CloudEvents, Debezium or JSON lines at the top,
  ``<input>.xmll``, ``<input>.jsonl``;
* in the other formats ``<input>/`` holds ``rows.jsonl``, ``messages.jsonl``, ``capture.cdc``, the
  queue's or the change tables' files;
* ``_manifest.json`` lists the inputs by name, with their reports, and ``_SUCCESS`` is written
  last.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from eventlog.changes.format import PROBLEMS_KEPT, Report
from eventlog.changes.json_form import CatalogOption
from eventlog.conversion import in_own_options, read_options, write
from eventlog.core.arguments import NAME, OPTIONS, PATH_OR_URL, check_arguments
from eventlog.core.clock import monotonic, random_hex
from eventlog.errors import ConfigError, EventlogError, FormatError, number_of
from eventlog.exit_codes import ExitCode
from eventlog.model import Change
from eventlog.publisher.context import JobProgress
from eventlog.registry import format_named
from eventlog.spark.directory import TEMPORARY, Directory, JobRecord, Owner, job_directory
from eventlog.spark.frames.inputs import Input, Options, inputs
from eventlog.spark.frames.sorting import Read, work_on
from eventlog.spark.session.arguments import check_pandas
from eventlog.spark.session.in_tasks import Batches, tune_collector
from eventlog.spark.session.session import Measure, as_spark_failed, open_session, shown


class InputFailed(EventlogError):
    """An input that cannot be converted. The message names the input and the reason."""

    code = "capture_failed"


@dataclass(frozen=True, slots=True)
class InputReport:
    """The outcome of one input, with the report of its conversion."""

    name: str
    output: str
    """The path of the output within the target."""
    read: int
    written: int
    counters: Mapping[str, int]
    problems: Sequence[str]
    failed: str | None = None
    """The reason why there is no output, None if there is output."""
    failed_by_options: bool = False
    """True if the reason is a ConfigError."""
    lost: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conversion:
    """A finished conversion, with its ``inputs`` by name. ``resumed`` is True if the conversion was
    already finished, and nothing was done.
    """

    inputs: tuple[InputReport, ...]
    resumed: bool

    def report(self) -> Report:
        """Return one report of all inputs, in which problems begin with the input's name."""
        counters: Counter[str] = Counter()
        lost: Counter[str] = Counter()
        for one in self.inputs:
            counters.update(one.counters)
            lost.update(one.lost)
        failed = [one for one in self.inputs if one.failed is not None]
        if failed:
            counters["captures_failed"] = len(failed)
        problems = [f"{one.name}, not converted: {one.failed}" for one in failed]
        problems += [f"{one.name}: {problem}" for one in self.inputs for problem in one.problems]
        return Report(
            sum(one.read for one in self.inputs),
            sum(one.written for one in self.inputs),
            counters,
            problems=problems[:PROBLEMS_KEPT],
            lost=lost,
        )


@dataclass(frozen=True, slots=True)
class _Job:
    """The data that every task needs."""

    source_format: str
    target_format: str
    reader: Options
    writer: Options
    target: str
    strict: bool
    quiet: bool
    catalog: CatalogOption


def convert(
    source_format: str,
    target_format: str,
    source: str | Path,
    target: str | Path,
    map: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    master: str | None = None,
    spark: SparkSession | None = None,
    quiet: bool = True,
) -> Conversion:
    """Convert all inputs of ``source`` to files in the directory ``target``, both reachable by
    driver and workers.

    ``map`` and ``strict`` are as in ``eventlog.convert``. ``spark`` is the session, by default
    one on ``master``. An input that cannot be converted has no output. In a finished target
    only failed inputs are tried again; the remains of an unfinished run are discarded. Raises
    ConfigError and SparkFailed. With ``strict``, or if no input could be converted, raises
    InputFailed for the first failed input by name; then the target has no ``_SUCCESS``.
    """
    check_pandas()
    check_arguments(
        "convert_inputs",
        source_format=(source_format, NAME),
        target_format=(target_format, NAME),
        source=(source, PATH_OR_URL),
        target=(target, PATH_OR_URL),
        map=(map, OPTIONS),
    )
    source, target = str(source), str(target)
    if "://" in target:  # the message omits it, since it may contain a password
        raise ConfigError(
            "OUT is a URL, and Spark converts only to files. "
            "Give a path in a file system that all workers share"
        )
    options = read_options(map or {})
    job = _Job(
        source_format,
        target_format,
        in_own_options(source_format, "reader", options["reader"]),
        in_own_options(target_format, "writer", options["writer"]),
        str(Path(target).resolve()),
        strict,
        quiet,
        options["reader"].get("catalog"),
    )
    if Path(source).resolve() in Path(job.target).parents:
        raise ConfigError(
            f"OUT {target} is inside IN {source}, so the next conversion would read its files. "
            "Give another directory"
        )
    _check_writer(job)
    waiting = inputs(source_format, source, job.reader)
    outputs = [_output_place(job, input).parts[0] for input in waiting]
    kept: Sequence[InputReport] = ()
    identity = {
        "from": source_format,
        "to": target_format,
        "source": str(Path(source).resolve()),
        "options": _digest({"strict": strict, **options}),
    }
    owner = Owner("conversion", identity, _described)
    with job_directory(Directory(job.target), owner, outputs) as directory:
        if directory.known is not None:
            reports = [InputReport(**one) for one in directory.known["captures"]]
            # Failed inputs that still exist are tried again.
            failed = {one.name for one in reports if one.failed is not None}
            waiting = [input for input in waiting if input.name in failed]
            again = {input.name for input in waiting}
            kept = [one for one in reports if one.name not in again]
            if not waiting:
                return Conversion(tuple(kept), resumed=True)
        session = open_session(master, "eventlog convert", running=spark)
        directory.begin(outputs)
        done = sorted([*kept, *_run(session, job, waiting)], key=lambda report: report.name)
        _check(done, strict)
        written = {report.output: None for report in done if report.failed is None}
        directory.finish({"captures": [asdict(report) for report in done]}, written)
    return Conversion(tuple(done), resumed=False)


def _described(found: JobRecord) -> str:
    return (
        f"another conversion ({found['source']} from {found['from']} to {found['to']}): the "
        "source, a format or an option differs"
    )


def _check_writer(job: _Job) -> None:
    """Raise ConfigError for wrong options of a writer, by writing an empty output to a temporary
    place.
    """
    with tempfile.TemporaryDirectory(prefix="eventlog-") as directory, suppress(FormatError):
        written = Path(directory, _output_place(job, Input("input", ())))
        written.parent.mkdir(exist_ok=True)
        write(format_named(job.target_format), iter(()), str(written), job.writer, Report())


def _digest(options: Options) -> str:
    """Return a text that differs for different options; functions differ by name."""
    text = json.dumps(
        options, sort_keys=True, default=lambda other: getattr(other, "__qualname__", repr(other))
    )
    return sha256(text.encode()).hexdigest()[:32]


def _output_place(job: _Job, input: Input) -> Path:
    """Return the path of an input's output within the target. Raises ConfigError for an option
    that names a single path.
    """
    return Path(format_named(job.target_format).output_place(input.name, job.writer))


def _run(spark: SparkSession, job: _Job, waiting: Sequence[Input]) -> list[InputReport]:
    frame, inputs_in = work_on(
        spark, waiting, job.source_format, job.reader, strict=job.strict, catalog=job.catalog
    )

    def convert_all(batches: Batches) -> Batches:
        tune_collector()
        for input, read in inputs_in(batches):
            report = _convert(job, input, read)
            yield pa.RecordBatch.from_pydict({"report": [json.dumps(asdict(report))]})

    what_then = f"{job.target} is not complete; run the same command again"
    with shown("converting", _progress_of(job, waiting), job.quiet), as_spark_failed(what_then):
        rows = frame.mapInArrow(convert_all, "report string").collect()
    return [InputReport(**json.loads(row.report)) for row in rows]


def _check(reports: Sequence[InputReport], strict: bool) -> None:
    """Raise the first failure, by name, if the conversion is ``strict`` or all inputs failed.

    A failure caused by options comes first, since it is usually the same for all inputs.
    """
    failed = [report for report in reports if report.failed is not None]
    if failed and (strict or len(failed) == len(reports)):
        first = next((report for report in failed if report.failed_by_options), failed[0])
        message = f"{first.name}: {first.failed}"
        if first.failed_by_options:
            raise ConfigError(message)
        error = InputFailed(message)
        if strict:
            error.exit_code = ExitCode.NO
        raise error


def _convert(job: _Job, input: Input, read: Read) -> InputReport:
    """Convert an input in a temporary directory, then move the output, so that it appears whole or
    not at all.
    """
    report = Report(strict=job.strict)
    place = Path(job.target, TEMPORARY, random_hex(16))
    place.mkdir(parents=True)
    within = _output_place(job, input)
    output = within.parts[0]
    changes = read(report)
    failed, by_options = None, False
    try:
        written = place / within
        written.parent.mkdir(exist_ok=True)
        followed = changes if job.quiet else _followed(changes, job, input)
        write(format_named(job.target_format), followed, str(written), job.writer, report)
        _move(place / output, Path(job.target, output))
    except EventlogError as error:  # a retry would fail in the same way
        failed, by_options = str(error), isinstance(error, ConfigError)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    written_changes = 0 if failed is not None else report.written
    counted = report.read, written_changes, dict(report.counters), tuple(report.problems)
    lost = {} if failed is not None else dict(report.lost)
    return InputReport(input.name, output, *counted, failed, by_options, lost)


def _move(written: Path, final: Path) -> None:
    """Move an output to its final name, where it replaces the output of an earlier attempt."""
    if final.is_dir():
        # The old output is moved, not removed. An attempt that outlives the job finds _temporary
        # missing, and does no harm.
        final.replace(written.with_name(f"{written.name}-before"))
    written.replace(final)


# --- progress -------------------------------------------------------------------------------------

_CHANGES: Final = 500
_SECONDS: Final = 0.5


def _followed(changes: Iterable[Change], job: _Job, input: Input) -> Iterator[Change]:
    """Yield the changes; at intervals record their number in a file of the input.

    Accumulators cannot be used, since Spark sends them to the driver only when a task has ended.
    """
    file = _progress_file(job, input)
    recorded = monotonic()
    number = 0
    for change in changes:
        yield change
        number += 1
        if number % _CHANGES == 0 and monotonic() - recorded > _SECONDS:
            recorded = monotonic()
            file.write_text(json.dumps((number, False)))
    file.write_text(json.dumps((number, True)))


def _progress_of(job: _Job, waiting: Sequence[Input]) -> Measure:
    """Return a function that returns the progress of the conversion of these inputs.

    Progress is the share of the inputs' bytes that has been read. For an input that is being read,
    the share is estimated from its changes, as soon as a finished input has shown how many bytes a
    change takes.
    """
    sizes: list[int] = []

    def now() -> JobProgress:
        if not sizes:
            sizes.extend(max(input.size(), 1) for input in waiting)
        states = [
            (*_changes_so_far(job, input), size) for input, size in zip(waiting, sizes, strict=True)
        ]
        ended = [(changes, size) for changes, has_ended, size in states if has_ended]
        bytes_of_change = sum(size for _, size in ended) / max(
            sum(changes for changes, _ in ended), 1
        )
        done = sum(
            size if has_ended else min(changes * bytes_of_change, size)
            for changes, has_ended, size in states
        )
        changes = sum(changes for changes, _, _ in states)
        return JobProgress(
            done / sum(sizes),
            changes,
            0,
            "changes",
            f"{len(ended)} of {number_of(len(waiting), 'input')}",
        )

    return now


def _changes_so_far(job: _Job, input: Input) -> tuple[int, bool]:
    """Return the number of changes read from an input, and True if all have been read."""
    try:
        changes, has_ended = json.loads(_progress_file(job, input).read_text())
    except (OSError, ValueError):  # not begun, or just being written
        return 0, False
    return changes, has_ended


def _progress_file(job: _Job, input: Input) -> Path:
    return Path(job.target, TEMPORARY, f"{input.name}.progress")
