"""``eventlog convert`` and ``decode``: convert changes to another format, or show them as text for
people.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from eventlog import conversion
from eventlog.changes.format import NothingWritten, Report
from eventlog.changes.json_form import value_to_json
from eventlog.changes.losses import in_words
from eventlog.cli import command
from eventlog.cli.command import CommandResult, Request, report
from eventlog.cli.context import (
    CommandContext,
    JsonObject,
    file_option,
    flag_option,
    json_option,
    master_of,
    master_option,
    name_option,
    note,
    report_error,
    result,
    spark_module,
    table,
)
from eventlog.cli.stopping import DONE, if_stopped
from eventlog.config.kinds import url_of
from eventlog.config.settings import DatabaseSettings
from eventlog.errors import ConfigError, EventlogError, FormatError, number_of
from eventlog.exit_codes import ExitCode
from eventlog.model import Change, Lob, Value, full_name, old_key
from eventlog.registry import FORMATS, format_named

_STANDARD: Final = "-"
"""The path that stands for standard input or output."""

_PASSWORD: Final = "EVENTLOG_DATABASE_PASSWORD"  # noqa: S105 - the name of a variable
Options = Mapping[str, Any]
_STEP: Final = 1000
_PROBLEMS_SHOWN: Final = 20

_from_option = name_option(
    "--from", "source_format", group=FORMATS, can=("read_changes",), required=True,
    metavar="FORMAT", help="Format of IN: {names}.",
)  # fmt: skip
_map_option = file_option("--options", "map_file", help="Options of the formats, TOML or JSON.")


@_from_option
@name_option(
    "--to", "target_format", group=FORMATS, can=("write_changes", "publish"), required=True,
    metavar="FORMAT", help="Format of OUT: {names}.",
)  # fmt: skip
@_map_option
@flag_option(
    "--strict",
    help=f"End with {ExitCode.NO} if anything is lost; stop at the first input that cannot be read "
    "or written.",
)
@json_option
@flag_option(
    "--spark",
    "on_spark",
    help="Convert many inputs with Spark: IN and OUT are directories, and each input "
    "in IN is one task.",
)
@master_option
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@dataclass(frozen=True)
class Convert(Request):
    """Convert changes from IN to OUT, from any format to any other.

    IN and OUT are paths, `-` for standard input and output, or URLs if a format has live sources.
    OUT is written whole or not at all, into a directory that exists; it replaces an existing file.
    Input that cannot be read or written is skipped, and the final report lists it; if everything
    was skipped, OUT does not change. With --spark, OUT is complete when it
    holds _SUCCESS; if it is incomplete, the command starts over.
    """

    source_format: str
    target_format: str
    source: str
    target: str
    map_file: Path | None = None
    strict: bool = False
    on_spark: bool = False
    master: str | None = None

    def __post_init__(self) -> None:
        if self.master is not None and not self.on_spark:
            raise ConfigError("--master needs --spark")
        if self.on_spark and _STANDARD in (self.source, self.target):
            raise ConfigError(
                "with --spark IN and OUT are directories, not standard input or output"
            )
        several = format_named(self.target_format).is_several_files
        if self.target == _STANDARD and several:
            raise ConfigError(
                f"{self.target_format} is written to several files, not to standard output: "
                "name a place for OUT"
            )

    def run(self, context: CommandContext) -> ExitCode:
        """Convert the changes."""
        if context.as_json and self.target == _STANDARD:
            raise ConfigError("OUT - and --json both write to standard output: name a file for OUT")
        options = _read_map(context, self.source_format, self.map_file)
        request = replace(
            self,
            source=_url_with_password(context, self.source_format, self.source),
            target=_url_with_password(context, self.target_format, self.target),
        )
        done = (_convert_by_spark if self.on_spark else _convert)(context, request, options)
        return _judged(done, strict=self.strict)


convert = command(Convert)


def _convert_by_spark(context: CommandContext, request: Convert, options: Options) -> Report:
    target = request.target
    if_stopped(f"{target} is not complete, and the same command starts over")
    converted = spark_module("eventlog.spark.frames.convert").convert(
        request.source_format,
        request.target_format,
        request.source,
        target,
        options,
        strict=request.strict,
        master=master_of(request.master),
        quiet=context.quiet,
    )
    if_stopped(DONE)
    done: Report = converted.report()
    data = {**_as_data(done), "captures": [asdict(one) for one in converted.inputs]}
    show = partial(_print_inputs, converted, target)
    report(context, CommandResult(data, show, is_confirmation=True))
    return done


def _convert(context: CommandContext, request: Convert, options: Options) -> Report:
    def show(done: Report, *, err: bool) -> None:
        shown = partial(_print_report, done, err=err)
        report(context, CommandResult(_as_data(done), shown, is_confirmation=True))

    if_stopped("OUT is as it was before")
    with ExitStack() as stack:
        path, named = stack.enter_context(_standard_input(request.source, request.source_format))
        try:
            done = conversion.convert(
                request.source_format,
                request.target_format,
                path,
                stack.enter_context(_output(request.target)),
                options,
                strict=request.strict,
                report=True,
                progress=stack.enter_context(_progress(context.quiet)),
            )
        except NothingWritten as error:
            error.report.problems = list(map(named, error.report.problems))
            show(error.report, err=True)
            raise
        done.problems = list(map(named, done.problems))
    if_stopped(DONE)
    show(done, err=request.target == _STANDARD)
    if not (done.read or done.counters or context.quiet):
        note("IN contains no change; if you expected some, check --from and the path")
    return done


def _judged(report: Report, *, strict: bool) -> ExitCode:
    """Return the exit code of a conversion that has ended. If a strict conversion has lost
    something, the last line names what was lost.
    """
    lost = report.losses() if strict else ""
    if not lost:
        return ExitCode.DONE
    report_error(f"with --strict, something was lost: {lost}")
    return ExitCode.NO


def _print_inputs(converted: Any, target: str) -> None:
    if converted.resumed:
        result(f"{target} is already complete")
    _print_report(converted.report())
    failed = sum(one.failed is not None for one in converted.inputs)
    also = f", {failed} not converted" if failed else ""
    result(f"{number_of(len(converted.inputs) - failed, 'input')} in {target}{also}")


def _as_data(report: Report) -> JsonObject:
    """Return the report as an object for JSON."""
    return {
        "read": report.read,
        "written": report.written,
        "counters": dict(sorted(report.counters.items())),
        "lost": dict(sorted(report.lost.items())),
        "problems": report.problems,
    }


def _print_report(
    report: Report, what: Sequence[str] = ("read", "written"), *, err: bool = False
) -> None:
    """Print the numbers of changes read and written, why input was skipped, the first problems, and
    what the target has no place for.

    With ``err`` the whole report goes to standard error, since standard output holds the changes.
    """
    problems = Counter(report.problems)
    for problem, times in islice(problems.items(), _PROBLEMS_SHOWN):
        note(f"skipped: {problem}" + (f" ({times:,} times or more)" if times > 1 else ""))
    if len(problems) > _PROBLEMS_SHOWN:
        note(
            f"skipped: {len(problems) - _PROBLEMS_SHOWN} or more others; "
            "--strict stops at the first"
        )
    lines = [(f"changes {name}", getattr(report, name)) for name in what]
    table(("what", "number"), [*lines, *sorted(report.counters.items())], err=err)
    if report.lost:
        (note if err else result)(f"lost by design: {in_words(report.lost)}")


@contextmanager
def _output(target: str) -> Iterator[str]:
    """Yield the path to write a target to. Standard output gets the complete file at the end."""
    if target != _STANDARD:
        yield target
        return
    with tempfile.TemporaryDirectory(prefix="eventlog-") as directory:
        path = Path(directory) / "standard-output.jsonl"
        yield str(path)
        if [one.name for one in Path(directory).iterdir() if one.is_file()] != [path.name]:
            raise ConfigError(
                "this format is written to several files, not to standard output: "
                "name a place for OUT"
            )
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Report], None]]:
    """Yield a function that shows the numbers of changes on standard error if it is a terminal."""
    if quiet:
        yield lambda report: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda report: None
        return
    with console.status("0 changes") as status:

        def follow(report: Report) -> None:
            if report.read % _STEP == 0:
                status.update(
                    f"{number_of(report.read, 'change')} read, {report.written:,} written"
                )

        yield follow


@_from_option
@_map_option
@flag_option(
    "--strict",
    help=f"End with {ExitCode.NO} if anything is lost; stop at the first input that cannot be "
    "read.",
)
@click.argument("source", metavar="IN")
@dataclass(frozen=True)
class Decode(Request):
    """Show the changes of IN, a path or `-` for standard input, as text for people.

    For gbase and linter, each record is listed with its place in the file. There is no --json:
    `eventlog convert --to jsonl` gives the changes to programs.
    """

    source_format: str
    map_file: Path | None
    strict: bool
    source: str

    def run(self, context: CommandContext) -> ExitCode:
        """Show the changes."""
        given = _read_map(context, self.source_format, self.map_file)
        chosen = conversion.read_options(given)["reader"]
        options = conversion.in_own_options(self.source_format, "reader", chosen)
        report = Report(strict=self.strict)
        source = _url_with_password(context, self.source_format, self.source)
        with _standard_input(source, self.source_format) as (path, named):
            if isinstance(sys.stdout, TextIOWrapper):
                sys.stdout.reconfigure(
                    errors="backslashreplace"
                )  # the terminal may lack characters
            listed = 0
            try:  # no flush for each line, since a dump has millions
                for line in readable(self.source_format, path, options, report):
                    sys.stdout.write(f"{line}\n")
                    listed += 1
            finally:
                sys.stdout.flush()
        report.problems = list(map(named, report.problems))
        if not context.quiet and (report.read or report.counters):
            _print_report(report, ("read",), err=True)
        if report.passed_over and not listed:
            raise FormatError(
                f"{source} holds nothing that can be read as {self.source_format}; check --from "
                "and the path"
            )
        return _judged(report, strict=self.strict)


decode = command(Decode)


def readable(source_format: str, source: str, options: Options, report: Report) -> Iterator[str]:
    """Yield the lines of text that show a source.

    Raises FormatError after the lines of the readable part.
    """
    conversion.check_source(source_format, source)
    yield from format_named(source_format).lines(source, options, report, block)


def block(change: Change) -> list[str]:
    """Return a change as lines: its operation and key, its place and time, its columns as old ->
    new.
    """
    table = full_name(change.schema, change.table)
    return [
        f"{change.op} {_line(table)}{_key(change)}",
        *_change_details(change),
        *_columns(change),
        *_extras(change),
    ]


def _key(change: Change) -> str:
    if change.key is None:
        return ""
    old = old_key(change) or ()
    text = ", ".join(f"{name}={_shown(value)}" for name, value in change.key)
    if old == change.key:
        return f" {text}"
    return f" {', '.join(f'{name}={_shown(value)}' for name, value in old)} -> {text}"


def _change_details(change: Change) -> list[str]:
    last = " (the last)" if change.last_in_transaction else ""
    named = {
        "position": change.position,
        "transaction": change.transaction_id,
        "event": None if change.event_number is None else f"{change.event_number}{last}",
        "committed": None if change.commit_time is None else change.commit_time.isoformat(sep=" "),
        "user": change.user,
    }
    return [f"  {name}: {_line(str(value))}" for name, value in named.items() if value is not None]


def _columns(change: Change) -> list[str]:
    before, after = change.before or {}, change.after or {}
    names = list(dict.fromkeys([*before, *after]))
    width = max(map(len, names), default=0)
    lines = []
    for name in names:
        mark = "*" if change.changed is not None and name in change.changed else " "
        if change.before is None or change.after is None:
            text = _shown(after[name] if name in after else before[name])
        else:
            old = _shown(before[name]) if name in before else "(not known)"
            new = _shown(after[name]) if name in after else "(not known)"
            text = old if old == new and mark == " " else f"{old} -> {new}"
        lines.append(f"  {mark} {name.ljust(width)}  {text}")
    return lines


def _extras(change: Change) -> list[str]:
    return [
        f"  ({name}: {value.hex().upper() if isinstance(value, bytes) else _line(str(value))})"
        for name, value in change.extras.items()
        if value is not None
    ]


def _shown(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return repr(value)
        case bytes(data) | Lob(data):
            return data.hex().upper()
        case tuple():
            return f"({', '.join(map(_shown, value))})"
        case _:
            return str(value_to_json(value))


def _line(text: str) -> str:
    """Return a text for a terminal: one line, control characters escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


# --- input of both commands -----------------------------------------------------------------------


@contextmanager
def _standard_input(source: str, format: str) -> Iterator[tuple[str, Callable[[str], str]]]:
    """Yield the path of a source, and a function that puts the source's name into a message.

    Standard input is read through the pipe itself if the format is read once, else through a file
    that keeps the whole input. Messages of errors within the block name "standard input" in place
    of the path.
    """
    if source != _STANDARD:
        yield source, str
        return
    with ExitStack() as stack:
        path = _pipe() if format_named(format).is_read_once else None
        if path is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="eventlog-"))
            path = f"{directory}/standard-input.jsonl"
            with Path(path).open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)

        def named(text: str) -> str:
            return text.replace(path, "standard input")

        try:
            yield path, named
        except EventlogError as error:
            error.args = tuple(named(one) if isinstance(one, str) else one for one in error.args)
            raise


def _pipe() -> str | None:
    """Return the path of the pipe that is standard input. Return None if standard input is not a
    pipe, or if the pipe cannot be opened again because it belongs to another user, such as a
    container engine.
    """
    try:
        number = sys.stdin.buffer.fileno()
        path = f"/dev/fd/{number}"
        is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
        return path if is_pipe and os.access(path, os.R_OK) else None
    except OSError:  # standard input is closed
        return None


def _url_with_password(context: CommandContext, format: str, place: str) -> str:
    """Return the URL of a place, with the configured password if the URL names the configured
    database.
    """
    is_database = "://" in place and format_named(format).schemes is None
    if not is_database or not {_PASSWORD, f"{_PASSWORD}_FILE"} & os.environ.keys():
        return place
    return with_configured_password(place, context.config().database)


def with_configured_password(url: str, database: DatabaseSettings) -> str:
    """Return the URL with the configured database's password, if the URL names that database and
    user and has no password.

    Other URLs do not get the password, since it would be sent to their servers.
    """
    if database.url is None or database.password is None:
        return url
    named, configured = url_of(url), url_of(database.url)
    # Both must name the same database and user. The query may name another host, so it is compared,
    # too.
    logins = [
        (one.get_backend_name(), one.username, one.host, one.port, one.database, dict(one.query))
        for one in (named, configured)
    ]
    if named.password is not None or logins[0] != logins[1]:
        return url
    return named.set(password=database.password).render_as_string(hide_password=False)


def _read_map(context: CommandContext, format: str, file: Path | None) -> Options:
    """Return the options in ``file``, or no options without a file. The reader's ``database_url``
    gets the configured password.
    """
    if file is None:
        return {}
    options = conversion.read_map(file)
    reader = options.get("reader", options)
    if not isinstance(reader, Mapping) or not isinstance(reader.get("database_url"), str):
        return options
    reader = {**reader, "database_url": _url_with_password(context, format, reader["database_url"])}
    return {**options, "reader": reader} if "reader" in options else reader
