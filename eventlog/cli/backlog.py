"""``eventlog backlog``: all waiting rows at once to files of documents, events, messages or change tables, by Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import click

from eventlog.cli.context import Context, master_of, spark_module
from eventlog.cli.output import note, print_json, result
from eventlog.config.load import Config
from eventlog.conversion import read_map
from eventlog.errors import ConfigError
from eventlog.publisher.metrics import OLD_UNREADABLE, TRUNCATED

_FORMATS: Final = click.Choice(["xds", "cloudevents", "debezium", "qlik-messages", "qlik-change-table"])
_FORMS: Final = click.Choice(["lines", "documents", "parquet", "csv", "json"])
_COMPRESSIONS: Final = click.Choice(["none", "gzip", "zstd"])
_SIZE: Final = re.compile(r"(\d+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_PARTITION_ROWS: Final = 200_000
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class _Size(click.ParamType[int]):
    """Bytes, such as ``256MiB``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no size; write it as 64MiB or 1GiB", param, ctx)
        return int(match[1]) * _UNITS[match[2].upper()]


@click.command()
@click.option("--config", "-c", "config_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Configuration file, here as well as before the command.")  # fmt: skip
@click.option("--format", "file_format", type=_FORMATS, default="xds", show_default=True, help="What is written.")
@click.option("--map", "map_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Options of the writer (not of XDS), TOML or JSON, as of `eventlog convert`.")  # fmt: skip
@click.option("--last-sequence", metavar="SEQUENCE", help="Number Qlik formats on from this change sequence.")
@click.option("--out", required=True, metavar="DIR", help="Empty or missing directory, or URI, for the output.")
@click.option("--master", metavar="MASTER", help="Spark master; local[*], or what spark-submit says.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of the Spark that is started; repeatable.")
@click.option("--mark", is_flag=True, help="When all documents are complete, mark exactly the rows that were read.")
@click.option("--form", type=_FORMS,
              help="XDS: lines (an envelope each), documents (a file each), parquet (an event a row); events, "
                   "messages: lines; change tables: parquet, csv, json.  [default: the first]")  # fmt: skip
@click.option("--compression", type=_COMPRESSIONS, default="none", show_default=True, help="Of the files.")
@click.option("--max-file-size", type=_Size(), default="256MiB", show_default=True, help="Of each file, at most.")
@click.option("--partition-rows", type=click.IntRange(min=1), metavar="N",
              help="Rows that one task reads and writes, at most.  [default: 200000]")  # fmt: skip
@click.option("--connections", type=click.IntRange(min=0), default=0, metavar="N",
              help="Open at once beside the driver's two, at most; 0 = as many as tasks run at once.")  # fmt: skip
@click.option("--acknowledge", type=click.Choice(["mark", "delete"]),
              help="With --mark: set letters (about 4 us a row on the server, and a dead row each to vacuum) or delete "
                   "(0.6 us).  [default: as delete_from_log says]")  # fmt: skip
@click.option("--estimate", is_flag=True, help="Convert nothing: print rows, parts, bytes and expected times.")
@click.option("--copy", is_flag=True, help="Hold no row: publishers send them all the same, and --mark is refused.")
@click.option("--abandon", is_flag=True,
              help="Convert nothing: give the rows of DIR back to the publisher; its files count no more.")  # fmt: skip
@click.option("--yes", is_flag=True, help="With --abandon: also if marking has begun.")
@click.option("--json", "as_json", is_flag=True, help="What was done, for programs, on standard output.")
@click.pass_obj
def backlog(
    context: Context,
    config_file: Path | None,
    file_format: str,
    map_file: Path | None,
    last_sequence: str | None,
    out: str,
    master: str | None,
    conf: tuple[str, ...],
    mark: bool,
    form: str | None,
    compression: str,
    max_file_size: int,
    partition_rows: int | None,
    connections: int,
    acknowledge: str | None,
    estimate: bool,
    copy: bool,
    abandon: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Convert all rows N to files: the events that `publish` would send, in the same order.

    Takes the lock of the log. The files count only when DIR holds _SUCCESS; run again over a directory that has it, the
    command only completes the marks, over an unfinished one it begins anew. From _SUCCESS to --mark the rows are held:
    publishers read past them and past later rows of their objects.
    """
    if config_file is not None:
        context = replace(context, config_file=config_file)
    if estimate:
        found = spark_module("spark.estimate").estimate(
            context.config(format__type="xds"), master_of(master), partition_rows or _PARTITION_ROWS
        )
        print_json(asdict(found)) if as_json else _tell_estimate(found)
        return
    if abandon:
        if mark:
            raise ConfigError("--mark and --abandon exclude each other")
        held = spark_module("spark.hold").abandon(context.config(format__type="xds"), out, force=yes)
        result(
            f"{held.rows:,} rows up to record_id {held.last} are the publisher's again; {held.directory} counts no more"
        )
        return
    spark = spark_module("spark.backlog")
    request = spark.Request(
        out=out,
        master=master_of(master),
        conf=dict(map(_setting, conf)),
        mark=mark,
        copy=copy,
        acknowledge=acknowledge,
        format=file_format,
        options={} if map_file is None else read_options(read_map(map_file), file_format),
        last_sequence=last_sequence,
        form=form,
        compression=compression,
        max_file_bytes=max_file_size,
        quiet=context.quiet,
        connections=connections,
        **({} if partition_rows is None else {"partition_rows": partition_rows}),
    )
    # Messages are for Kafka only where they are published; here they go to files, whatever the configuration says.
    config = context.config(format__type="xds")
    with _monitoring(config, out, file_format) as watched:
        report = spark.run(config, replace(request, **watched))
    if as_json:
        print_json({**asdict(report), "files": [asdict(file) for file in report.manifest.files]})
    elif not context.quiet:
        tell(report, out, copy)


@contextmanager
def _monitoring(config: Config, out: str, file_format: str) -> Iterator[dict[str, Any]]:
    """Who is told of the job's progress, as a member of the request; nobody where no monitor is configured."""
    if config.monitor.listen is None:
        yield {}
        return
    from eventlog.cli.triggers import planned_triggers
    from eventlog.publisher.monitor.open import monitoring_job

    with monitoring_job(config, config.monitor.listen, out, file_format, planned_triggers) as activity:
        yield {"watch": activity.during}


def _tell_estimate(found: Any) -> None:
    """The plan, for people."""
    mib = 2**20
    size = f"{found.bytes / mib:,.0f} MiB of XDS"
    result(f"{found.rows:,} rows in {found.parts} parts: about {found.events:,} events, {size}")
    result(f"under --out as much again until the job ends: {(found.bytes + found.temporary_bytes) / mib:,.0f} MiB")
    result(
        f"converting: about {found.converting_seconds:,.0f} s with {found.cores} tasks at once; --mark: about "
        f"{found.mark_seconds:,.0f} s, with --acknowledge delete {found.delete_seconds:,.0f} s"
    )
    if found.held:
        note("rows are held by another directory: `eventlog status` says which; until then only --copy converts")


def _setting(text: str) -> tuple[str, str]:
    """``KEY=VALUE``. Raises ConfigError."""
    key, sign, value = text.partition("=")
    if not key.strip() or not sign:
        raise ConfigError(f"--conf {key}: write a setting of Spark as KEY=VALUE")
    return key.strip(), value


def read_options(map: Mapping[str, Any], file_format: str) -> Mapping[str, Any]:
    """The writer's options of a map: those of its member ``writer``, or the map itself. Raises ConfigError."""
    chosen = map.get("writer", {}) if "writer" in map or "reader" in map else map
    if not isinstance(chosen, Mapping):
        raise ConfigError(f"member 'writer' of the map is no object of options of {file_format}")
    return chosen


def tell(report: Any, out: str, copy: bool) -> None:
    """The closing report, for people."""
    totals = report.manifest.totals
    rows = totals["rows_read"]
    if report.resumed:
        result(f"{out} is finished already, since {report.manifest.finished}: {totals['events']:,} events")
    else:
        rate = rows / report.converting_seconds if report.converting_seconds else 0
        in_flight = totals.get("rows_in_flight", 0)
        more = f" and {in_flight:,} rows in flight" if in_flight else ""
        remarked = (("old_unreadable", OLD_UNREADABLE), ("truncated", TRUNCATED))
        remarks = [f", {totals[name]:,} {what}" for name, what in remarked if totals.get(name)]
        result(
            f"{rows:,} rows read{more}: {totals['events']:,} events in {totals['documents']:,} documents, "
            f"{totals['files']:,} files, {totals['bytes'] / 2**20:,.1f} MiB; {totals.get('rows_bad', 0):,} rows bad, "
            f"{totals['rows_loopback']:,} loopback{''.join(remarks)}"
        )
        result(f"converted in {report.converting_seconds:,.1f} s, {rate:,.0f} rows/s")
    if report.marked is not None:
        result(f"{report.marked:,} rows marked in {report.marking_seconds:,.1f} s")
    elif not copy:
        note(
            "no row was marked: publishers read past the rows until you run the same command with --mark, when the "
            "receiver has the documents, or with --abandon"
        )
