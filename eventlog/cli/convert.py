"""``eventlog convert``: changes of any format to any other."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from eventlog import convert as conversion
from eventlog.cli.context import Context
from eventlog.cli.output import note, print_json, table
from eventlog.cli.spark import master_of, spark_module
from eventlog.errors import ConfigError
from eventlog.formats import Report

STANDARD: Final = "-"
"""In place of a path: standard input or output."""

_FORMAT: Final = click.Choice(list(conversion.FORMATS))
_STEP: Final = 1000


@click.command()
@click.option("--from", "source_format", required=True, type=_FORMAT, help="Format of IN.")
@click.option("--to", "target_format", required=True, type=_FORMAT, help="Format of OUT.")
@click.option("--map", "map_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Options of reader and writer, TOML or JSON.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Stop at the first thing that cannot be read or written.")
@click.option("--json", "as_json", is_flag=True, help="The closing report for programs, on standard output.")
@click.option("--spark", "on_spark", is_flag=True,
              help="In bulk: IN is a directory of captures, OUT a directory, a task a capture.")  # fmt: skip
@click.option("--master", metavar="MASTER", help="Spark master; local[*], or what spark-submit says.")
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@click.pass_obj
def convert(
    context: Context,
    source_format: str,
    target_format: str,
    map_file: Path | None,
    strict: bool,
    as_json: bool,
    on_spark: bool,
    master: str | None,
    source: str,
    target: str,
) -> None:
    """Convert changes from IN to OUT: paths, `-` for standard input and output, or URLs where a format has live ones.

    What cannot be read or written is passed over and named in the closing report; OUT is written whole or not at all.
    With --spark OUT counts only when it holds _SUCCESS; run again over an unfinished one, the command begins anew.
    """
    if as_json and target == STANDARD:
        raise ConfigError("OUT - and --json both write to standard output: name a file for OUT")
    if master is not None and not on_spark:
        raise ConfigError("--master is for conversions with --spark")
    options = {} if map_file is None else conversion.read_map(map_file)
    if on_spark:
        if STANDARD in (source, target):
            raise ConfigError("with --spark IN and OUT are directories, not standard input or output")
        _convert_on_spark(context, source_format, target_format, source, target, options, strict, as_json, master)
        return
    with standard_input_as_file(source) as path, _output(target) as out, _progress(context.quiet) as follow:
        done = conversion.convert(
            source_format, target_format, path, out, options, strict=strict, report=True, progress=follow
        )
    if as_json:
        print_json(as_data(done))
    elif not context.quiet:
        print_report(done)


def _convert_on_spark(
    context: Context,
    source_format: str,
    target_format: str,
    source: str,
    target: str,
    options: Mapping[str, Any],
    strict: bool,
    as_json: bool,
    master: str | None,
) -> None:
    module = spark_module("spark.convert")
    done = module.convert(
        source_format,
        target_format,
        source,
        target,
        options,
        strict=strict,
        master=master_of(master),
        quiet=context.quiet,
    )
    if as_json:
        print_json({**as_data(done.report()), "captures": [asdict(one) for one in done.captures]})
    elif not context.quiet:
        if done.resumed:
            note(f"{target} is finished already")
        print_report(done.report())
        note(f"{len(done.captures)} captures in {target}")


def as_data(report: Report) -> dict[str, Any]:
    """The report as JSON takes it."""
    return {
        "read": report.read,
        "written": report.written,
        "counters": dict(sorted(report.counters.items())),
        "problems": report.problems,
    }


def print_report(report: Report, what: Sequence[str] = ("read", "written")) -> None:
    """What was read and written, what was skipped or lost by reason, and the first things passed over."""
    for problem in report.problems:
        note(f"passed over: {problem}")
    lines = [(f"changes {name}", getattr(report, name)) for name in what]
    table(("what", "number"), [*lines, *sorted(report.counters.items())])


@contextmanager
def standard_input_as_file(source: str) -> Iterator[str]:
    """The path of a source; standard input is kept in a file, since some formats read it twice."""
    if source != STANDARD:
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="eventlog-") as directory:
        path = Path(directory) / "standard-input.jsonl"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield str(path)


@contextmanager
def _output(target: str) -> Iterator[str]:
    """The path of a target; standard output gets the file when it is whole."""
    if target != STANDARD:
        yield target
        return
    with tempfile.TemporaryDirectory(prefix="eventlog-") as directory:
        path = Path(directory) / "standard-output.jsonl"
        yield str(path)
        if [one.name for one in Path(directory).iterdir() if one.is_file()] != [path.name]:
            raise ConfigError("this format is written to several files, not to standard output: name a place for OUT")
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Report], None]]:
    """A function that shows how many changes were read and written, on standard error where that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda report: None
        return
    with console.status("0 changes") as status:

        def follow(report: Report) -> None:
            if report.read % _STEP == 0:
                status.update(f"{report.read} changes read, {report.written} written")

        yield follow
