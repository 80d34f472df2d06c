"""The run of ``eventlog backlog``: Spark writes all waiting rows to files, as documents, events,
messages or change tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from eventlog.cli.context import CommandContext, master_of, note, print_json, result, spark_module
from eventlog.cli.stopping import DONE, if_stopped
from eventlog.config.load import Config
from eventlog.config.settings import DEFAULT_FORMAT
from eventlog.conversion import read_map
from eventlog.errors import ConfigError, number_of
from eventlog.publisher.context import remarks


def run_backlog_run(
    context: CommandContext,
    /,
    map_file: Path | None,
    master: str | None,
    conf: tuple[str, ...],
    max_file_size: int,
    no_claim: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Run ``eventlog backlog run``: the parameters are its argument and options."""
    spark = spark_module("eventlog.spark.backlog.backlog")
    file_format, marks = chosen.pop("file_format"), chosen.pop("marks")
    request = spark.Request(
        master=master_of(master),
        conf=dict(map(_setting, conf)),
        mark=marks,
        no_claim=no_claim,
        format=file_format,
        options={} if map_file is None else read_options(read_map(map_file), file_format),
        max_file_bytes=max_file_size,
        quiet=context.quiet,
        **chosen,
    )
    # The configured format is replaced: messages need Kafka where they are published,
    # but this job writes files.
    config = context.config(format__type=DEFAULT_FORMAT)
    if not context.quiet:
        note("Starting Spark, which takes some seconds")
    with _watched(config, request.out, file_format) as progress:
        report = spark.run(config, replace(request, **progress))
    _show_report(context, report, request.out, as_json=as_json, no_claim=no_claim)


def run_backlog_mark(
    context: CommandContext,
    out: str,
    connections: int,
    acknowledge: str | None,
    *,
    dry: bool,
    as_json: bool,
) -> None:
    """Run ``eventlog backlog mark``: the parameters are its argument and options."""
    spark = spark_module("eventlog.spark.backlog.backlog")
    config = context.config(format__type=DEFAULT_FORMAT)
    if dry:
        rows = spark.count_to_mark(config, out, acknowledge, connections)
        if as_json:
            print_json({"directory": _shown(out), "rows": rows, "dry_run": True})
        else:
            result(f"{number_of(rows, 'row')} would be marked")
        return
    with _watched(config, out, "") as progress:
        report = spark.mark_finished(
            config, out, acknowledge, connections, quiet=context.quiet, **progress
        )
    _show_report(context, report, out, as_json=as_json, no_claim=False)


def run_backlog_estimate(
    context: CommandContext, master: str | None, partition_rows: int, *, as_json: bool
) -> None:
    """Run ``eventlog backlog estimate``: the parameters are its argument and options."""
    expected = spark_module("eventlog.spark.backlog.preflight").estimate(
        context.config(format__type=DEFAULT_FORMAT), master_of(master), partition_rows
    )
    print_json(asdict(expected)) if as_json else _print_estimate(expected)


def run_backlog_release(
    context: CommandContext, out: str, *, force: bool, dry: bool, as_json: bool
) -> None:
    """Run ``eventlog backlog release``: the parameters are its argument and options."""
    if not dry:
        if_stopped("the rows may still be claimed; run the same command again")
    released = spark_module("eventlog.spark.backlog.claim").release(
        context.config(format__type=DEFAULT_FORMAT), out, force=force, dry=dry
    )
    if as_json:
        print_json(
            {
                "directory": released.directory,
                "rows": released.rows,
                "last": released.last,
                "dry_run": dry,
            }
        )
    elif dry:
        result(
            f"{number_of(released.rows, 'row')} up to record_id {released.last} would be given "
            f"back to the publisher; {released.directory} would no longer be valid"
        )
    else:
        result(
            f"{number_of(released.rows, 'row')} up to record_id {released.last} given back to the "
            f"publisher; {released.directory} is no longer valid"
        )


def _show_report(
    context: CommandContext, report: Any, out: str, *, as_json: bool, no_claim: bool
) -> None:
    if as_json:
        print_json({**asdict(report), "files": [asdict(file) for file in report.manifest.files]})
    elif not context.quiet:
        _print_report(report, _shown(out), no_claim)


def _shown(out: str) -> str:
    """Return the name of the output without the keys that a URI may contain."""
    return str(spark_module("eventlog.spark.directory").masked(out))


@contextmanager
def _watched(config: Config, out: str, file_format: str) -> Iterator[Mapping[str, Any]]:
    """Yield the keyword argument with the function to which the job reports its stages; none
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
            "no row was marked: publishers skip the rows until you run, with this --out, "
            "`eventlog backlog mark` when the receiver has the documents, or `backlog release`"
        )
