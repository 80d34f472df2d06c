"""The run of ``eventlog backlog``: Spark writes all waiting rows to files, as documents, events,
messages or change tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from eventlog.cli.command import CommandResult
from eventlog.cli.context import CommandContext, master_of, note, result, spark_module
from eventlog.cli.publish.backlog import Estimate, Mark, Release, Run
from eventlog.cli.stopping import DONE, if_stopped
from eventlog.config.load import Config
from eventlog.conversion import read_map
from eventlog.errors import ConfigError, number_of
from eventlog.publisher.context import remarks


def run_run(context: CommandContext, request: Run, config: Config) -> CommandResult:
    """Run ``eventlog backlog run``."""
    spark = spark_module("eventlog.spark.backlog.backlog")
    chosen, map_file = request.chosen, request.chosen["options"]
    job = spark.Request(
        **{
            **chosen,
            "master": master_of(chosen["master"]),
            "conf": dict(map(_setting, chosen["conf"])),
            "options": {}
            if map_file is None
            else read_options(read_map(map_file), chosen["format"]),
            "quiet": context.quiet,
        }
    )
    if not context.quiet:
        note("Starting Spark, which takes some seconds")
    with _watched(config, job.out, job.format) as progress:
        report = spark.run(config, replace(job, **progress))
    return _result(report, job.out, no_claim=job.no_claim)


def run_mark(context: CommandContext, request: Mark, config: Config) -> CommandResult:
    """Run ``eventlog backlog mark``."""
    spark, out = spark_module("eventlog.spark.backlog.backlog"), request.out
    job = config, out, request.acknowledge, request.connections
    if request.dry:
        rows = spark.count_to_mark(*job)
        return CommandResult(
            {"directory": _shown(out), "rows": rows, "dry_run": True},
            f"{number_of(rows, 'row')} would be marked",
        )
    with _watched(config, out, "") as progress:
        report = spark.mark_finished(*job, quiet=context.quiet, **progress)
    return _result(report, out, no_claim=False)


def run_estimate(context: CommandContext, request: Estimate, config: Config) -> CommandResult:
    """Run ``eventlog backlog estimate``."""
    expected = spark_module("eventlog.spark.backlog.preflight").estimate(
        config,
        master_of(request.master),
        request.partition_rows,
    )
    return CommandResult(asdict(expected), partial(_print_estimate, expected))


def run_release(context: CommandContext, request: Release, config: Config) -> CommandResult:
    """Run ``eventlog backlog release``."""
    dry = request.dry
    if not dry:
        if_stopped("the rows may still be claimed; run the same command again")
    released = spark_module("eventlog.spark.backlog.claim").release(
        config, request.out, force=request.force, dry=dry
    )
    given, then = ("would be given", "would no longer be") if dry else ("given", "is no longer")
    return CommandResult(
        {
            "directory": released.directory,
            "rows": released.rows,
            "last": released.last,
            "dry_run": dry,
        },
        f"{number_of(released.rows, 'row')} up to record_id {released.last} {given} back to the "
        f"publisher; {released.directory} {then} valid",
    )


def _result(report: Any, out: str, *, no_claim: bool) -> CommandResult:
    return CommandResult(
        {**asdict(report), "files": [asdict(file) for file in report.manifest.files]},
        partial(_print_report, report, _shown(out), no_claim),
        is_confirmation=True,
    )


def _shown(out: str) -> str:
    """Return the name of the output without the keys that a URI may contain."""
    return str(spark_module("eventlog.spark.directory").masked(out))


@contextmanager
def _watched(config: Config, out: str, file_format: str) -> Iterator[Mapping[str, Any]]:
    """Yield the keyword argument with the function to which the job reports its stages; no argument
    without a monitor. If the job fails, show the notes of its error.
    """
    with _monitoring(config, _shown(out), file_format) as progress:
        if_stopped("nothing was marked; the same command starts over")
        try:
            yield {} if progress is None else {"progress": progress}
        except KeyboardInterrupt as error:
            if notes := getattr(error, "__notes__", ()):
                if_stopped(notes[0])
            raise
        except BaseException as error:
            for text in getattr(error, "__notes__", ()):
                note(text)
            raise
        if_stopped(DONE)


@contextmanager
def _monitoring(config: Config, out: str, file_format: str) -> Iterator[Any]:
    """Yield the function to which the job reports its stages, None without a monitor."""
    if config.monitor.listen is None:
        yield None
        return
    from eventlog.publisher.declared import planned_triggers
    from eventlog.publisher.monitor import monitoring_job

    with monitoring_job(
        config, config.monitor.listen, out, file_format, planned_triggers
    ) as activity:
        yield activity.during


def _print_estimate(expected: Any) -> None:
    mib = 2**20
    size = f"{expected.bytes / mib:,.0f} MiB of XDS"
    rows, parts = number_of(expected.rows, "row"), number_of(expected.parts, "part")
    result(f"{rows} in {parts}: about {number_of(expected.events, 'event')}, {size}")
    temporary = expected.temporary_bytes / mib
    result(f"temporary files under --out until the job ends: {temporary:,.0f} MiB")
    result(
        f"converting: about {expected.converting_seconds:,.0f} s with "
        f"{number_of(expected.cores, 'task')} at once; marking: about {expected.mark_seconds:,.0f} "
        f"s, with --acknowledge delete {expected.delete_seconds:,.0f} s"
    )
    if expected.claimed:
        note(
            "another directory claims rows: `eventlog status` shows which one. Mark or release it "
            "first, or convert with run --no-claim"
        )


def _setting(text: str) -> tuple[str, str]:
    """Return a setting of Spark, ``KEY=VALUE``, as a pair. Raises ConfigError."""
    key, sign, value = text.partition("=")
    if not key.strip() or not sign:
        raise ConfigError(f"--conf {key}: write a setting of Spark as KEY=VALUE")
    return key.strip(), value


def read_options(map: Mapping[str, Any], file_format: str) -> Mapping[str, Any]:
    """Return the writer's options in an options file: its member ``writer``, or the whole content.

    Raises ConfigError.
    """
    chosen = map.get("writer", {}) if "writer" in map or "reader" in map else map
    if not isinstance(chosen, Mapping):
        raise ConfigError(
            f"member 'writer' of the options file must be an object of options of {file_format}"
        )
    return chosen


def _print_report(report: Any, out: str, no_claim: bool) -> None:
    totals = report.manifest.totals
    rows = totals["rows_read"]
    if report.resumed:
        result(
            f"{out} is already complete, since {report.manifest.finished}: "
            f"{number_of(totals['events'], 'event')}"
        )
    else:
        rate = rows / report.converting_seconds if report.converting_seconds else 0
        in_flight = totals.get("rows_in_flight", 0)
        more = f" and {number_of(in_flight, 'row')} being delivered" if in_flight else ""
        events, documents, files = (
            number_of(totals[f"{noun}s"], noun) for noun in ("event", "document", "file")
        )
        invalid, loopback = number_of(totals.get("rows_invalid", 0), "row"), totals["rows_loopback"]
        noted = remarks(totals.get("old_unreadable", 0), totals.get("truncated", 0))
        result(
            f"{number_of(rows, 'row')} read{more}: {events} in {documents}, {files}, "
            f"{totals['bytes'] / 2**20:,.1f} MiB; "
            f"{', '.join([f'{invalid} invalid', f'{loopback:,} loopback', *noted])}"
        )
        result(f"converted in {report.converting_seconds:,.1f} s, {rate:,.0f} rows/s")
    if report.marked is not None:
        result(f"{number_of(report.marked, 'row')} marked in {report.marking_seconds:,.1f} s")
    elif not no_claim:
        note(
            "no row was marked, and publishers skip the rows. When the receiver has the documents, "
            "run `eventlog backlog mark` with this --out. To let a publisher send the rows, run "
            "`eventlog backlog release`"
        )
