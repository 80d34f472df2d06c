"""``eventlog convert --spark``: directories of captures to files of any format, a task a capture.

A task reads its capture and writes its changes with the functions of the row-by-row converter. What a target numbers
(record_ids, change sequences, log sequences, addresses) it numbers within the capture: each is a log, a stream, a queue
of its own, in a directory of its own. In the output

* an XDS or JSON lines file a capture stands at the top, ``<capture>.xmll``, ``<capture>.jsonl``;
* in the other formats ``<capture>/`` holds ``rows.jsonl``, ``messages.jsonl``, ``capture.cdc``, the queue's or the
  change tables' files;
* ``_manifest.json`` lists the captures by name, with their reports, and ``_SUCCESS`` is written last.
"""

from __future__ import annotations

import json
import shutil
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from eventlog.convert import format_named, in_own_options, read_options
from eventlog.errors import ConfigError, EventlogError
from eventlog.formats import PROBLEMS_KEPT, Report
from eventlog.log_format.files import FILE_FORMATS
from spark.captures import Capture, captures, read_capture
from spark.change_frame import taken, tasks
from spark.conversion_directory import TEMPORARY, begin, finish, finished
from spark.job import tune_collector
from spark.progress import Done, shown
from spark.session import as_spark_failed, open_session


class CaptureFailed(EventlogError):
    """A capture that cannot be converted; the message names it and says why."""

    code = "capture"


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """What a capture became: ``output`` within the target, and the report of its conversion."""

    name: str
    output: str
    read: int
    written: int
    counters: Mapping[str, int]
    problems: Sequence[str]


@dataclass(frozen=True, slots=True)
class Conversion:
    """A finished conversion. ``captures`` by name; ``resumed``: it was finished before."""

    captures: tuple[CaptureReport, ...]
    resumed: bool

    def report(self) -> Report:
        """The reports of all captures in one, their problems with the captures' names."""
        counters: Counter[str] = Counter()
        for one in self.captures:
            counters.update(one.counters)
        problems = [f"{one.name}: {problem}" for one in self.captures for problem in one.problems]
        return Report(
            sum(one.read for one in self.captures),
            sum(one.written for one in self.captures),
            counters,
            problems=problems[:PROBLEMS_KEPT],
        )


@dataclass(frozen=True, slots=True)
class _Job:
    """What every task knows."""

    source_format: str
    target_format: str
    reader: Mapping[str, Any]
    writer: Mapping[str, Any]
    target: str
    strict: bool


def convert(
    source_format: str,
    target_format: str,
    source: str,
    target: str,
    map: Mapping[str, Any] | None = None,
    *,
    strict: bool = False,
    master: str | None = None,
    spark: SparkSession | None = None,
    quiet: bool = True,
) -> Conversion:
    """Convert all captures of ``source`` to files in the directory ``target``, both reached by driver and workers.

    ``map``, ``strict``: as of ``eventlog.convert.convert``. ``spark``: the session, else that of ``master``. A target
    that is finished is left as it is; what an unfinished run left in it is discarded. Raises ConfigError, CaptureFailed
    (the first capture by name that cannot be converted), SparkFailed; the target has no ``_SUCCESS`` then.
    """
    if "://" in target:  # not repeated: a password may stand in it
        raise ConfigError("OUT is a URL and no path: Spark converts files, to a file system that all workers share")
    options = read_options(map or {})
    job = _Job(
        source_format,
        target_format,
        in_own_options(source_format, "reader", options.reader),
        in_own_options(target_format, "writer", options.writer),
        str(Path(target).resolve()),
        strict,
    )
    found = captures(source_format, source, job.reader)
    outputs = [_output_name(job, capture) for capture in found]
    what = {
        "from": source_format,
        "to": target_format,
        "source": str(Path(source).resolve()),
        "options": _digest({"strict": strict, **options._asdict()}),
    }
    known = finished(job.target, what, outputs)
    if known is not None:
        return Conversion(tuple(CaptureReport(**one) for one in known), resumed=True)
    begin(job.target, what, outputs)
    reports = _run(spark or open_session(master, "eventlog convert"), job, found, quiet)
    finish(job.target, what, [asdict(report) for report in reports])
    return Conversion(tuple(reports), resumed=False)


def _digest(options: Mapping[str, Any]) -> str:
    """What tells options from others; a function is known by its name."""
    text = json.dumps(options, sort_keys=True, default=lambda other: getattr(other, "__qualname__", repr(other)))
    return sha256(text.encode()).hexdigest()[:32]


def _output_name(job: _Job, capture: Capture) -> str:
    """The file or directory of a capture. Raises ConfigError for a writer's option that names no file."""
    match job.target_format:
        case "xds" if job.writer.get("form") != "directory":
            return f"{capture.name}.xmll"
        case "jsonl":
            return f"{capture.name}.jsonl"
        case _:
            return capture.name


def _file_in(job: _Job) -> str:
    """The one file in a capture's directory; empty if the writer makes several there, or the output is one file."""
    if job.target_format == "eventlog":
        file_format = job.writer.get("file_format") or FILE_FORMATS[0]
        if file_format not in FILE_FORMATS:
            raise ConfigError(f"file_format {file_format!r} is unknown: use one of {', '.join(FILE_FORMATS)}")
        return f"rows.{file_format}"
    return {"qlik-messages": "messages.jsonl", "gbase": "capture.cdc"}.get(job.target_format, "")


def _run(spark: SparkSession, job: _Job, found: Sequence[Capture], quiet: bool) -> list[CaptureReport]:
    context = spark.sparkContext
    done, read, written = context.accumulator(0), context.accumulator(0), context.accumulator(0)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_collector()
        for capture in taken(found, batches):
            answer = _convert(job, capture)
            done.add(1)
            read.add(answer.get("read", 0))
            written.add(answer.get("written", 0))
            yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})

    def told() -> Done:
        return Done(int(done.value) / len(found), int(read.value), int(written.value))

    what_then = f"nothing in {job.target} counts; run the same command again"
    with shown("converting", told, quiet), as_spark_failed(what_then):
        rows = tasks(spark, found).mapInArrow(work, "answer string").collect()
    answers = sorted((json.loads(row.answer) for row in rows), key=lambda answer: str(answer["name"]))
    for answer in answers:
        if "failed" in answer:
            kind = ConfigError if answer["is_config"] else CaptureFailed
            raise kind(f"{answer['name']}: {answer['failed']}")
    return [CaptureReport(**answer) for answer in answers]


def _convert(job: _Job, capture: Capture) -> dict[str, Any]:
    """Convert a capture in a place of its own, then move it to where it belongs: whole, or not there.

    Returns the ``CaptureReport``, or what failed, as JSON takes it.
    """
    report = Report(strict=job.strict)
    place = Path(job.target, TEMPORARY, uuid.uuid4().hex)
    place.mkdir(parents=True)
    output = _output_name(job, capture)
    is_directory = output == capture.name
    try:
        changes = read_capture(capture, job.source_format, job.reader, report)
        written = place / (_file_in(job) if is_directory else output)
        write = format_named(job.target_format).write
        write(changes, str(written), job.writer, report)
        _move(place if is_directory else written, Path(job.target, output))
    except EventlogError as error:  # foreseeable: another attempt would say the same
        return {"name": capture.name, "failed": str(error), "is_config": isinstance(error, ConfigError)}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return asdict(
        CaptureReport(capture.name, output, report.read, report.written, dict(report.counters), tuple(report.problems))
    )


def _move(made: Path, final: Path) -> None:
    """Give an output its name; what an attempt before left there goes."""
    if final.is_dir():
        shutil.rmtree(final)
    made.replace(final)


def main() -> None:
    """Entry point for ``spark-submit``: the arguments of ``eventlog convert``."""
    from eventlog.cli import run as run_command

    sys.exit(run_command(["convert", "--spark", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
