"""The surroundings of a command: the configuration from the global options, a session of its
database, Spark, and the terminal. The result goes to standard output, notes and progress to
standard error.
"""

from __future__ import annotations

import datetime
import getpass
import json
import logging
import os
import socket
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from eventlog.cli.stopping import COMMITTING, DONE, if_stopped
from eventlog.config.load import Config, connection_url, load
from eventlog.config.settings import LogSettings
from eventlog.core.clock import monotonic
from eventlog.core.extras import install_command
from eventlog.errors import ConfigError, number_of, visible
from eventlog.exit_codes import ExitCode
from eventlog.registry import SOURCES, check_format, check_name, installed, names

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventlog.sql.log_table import LogTable
    from eventlog.sql.port import Dialect, OpenDatabase, OpenLog, Purpose

JsonObject: TypeAlias = dict[str, Any]
"""An object of the JSON that a command or a log line writes."""

DEFAULT_FILE: Final = Path("eventlog.toml")


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The global options of a command line, and --json.

    ``config_file`` is None without --config; ``flags`` maps ``section.key`` to text.
    """

    config_file: Path | None
    flags: Mapping[str, str]
    quiet: bool = False
    verbose: int = 0
    as_json: bool = False

    @property
    def hides_progress(self) -> bool:
        """True if the user wants only the result on standard output."""
        return self.quiet or self.as_json

    def with_flags(self, flags: Mapping[str, str | None]) -> CommandContext:
        """Return the context with further settings, which override the present ones; None = not
        given.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        return replace(self, flags={**self.flags, **given})

    @property
    def file(self) -> Path | None:
        """The configuration file that is read, None without a file."""
        return self.config_file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)

    def config(self) -> Config:
        """Return the configuration.

        Without --config, eventlog.toml is read if it exists. Prints warnings. Raises ConfigError.
        """
        config = load(self.file, os.environ, self.flags)
        configure_logging(
            config.log, quiet=self.quiet, verbose=self.verbose, log=config.publication
        )
        for warning in config.warnings:
            note(f"warning: {warning}")
        return config


# --- options of several commands ------------------------------------------------------------------


Decorator = Callable[[Any], Any]


class _Name(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """The type of an option whose value is a name from one group of the registry. Only help and
    completion list all names, because that requires a search through packages.
    """

    name = "name"

    def __init__(self, group: str, can: Sequence[str] = ()) -> None:
        self.group, self._can = group, can

    def names(self) -> list[str]:
        """Return the names that the option accepts."""
        if not self._can:
            return list(names(self.group))
        return [name for name, one in installed(self.group) if any(map(one.can, self._can))]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            if self._can:
                check_format(value, *self._can)
            else:
                check_name(self.group, value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]


class _NameOption(click.Option):
    """An option whose value is a name; ``{names}`` in its help stands for all installed names."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        assert isinstance(self.type, _Name)
        self.help = (self.help or "").replace("{names}", ", ".join(self.type.names()))
        return super().get_help_record(ctx)


def name_option(
    *declarations: str, group: str, help: str, can: Sequence[str] = (), **more: Any
) -> Decorator:
    """Return the decorator of an option whose value is a name from one group of the registry.
    ``can`` lists methods of formats: a format must have at least one of these methods.
    """
    return click.option(*declarations, cls=_NameOption, type=_Name(group, can), help=help, **more)


FILE: Final = click.Path(path_type=Path)


def flag_option(*declarations: str, help: str) -> Decorator:
    """Return the decorator of an option without a value."""
    return click.option(*declarations, is_flag=True, help=help)


def file_option(*declarations: str, help: str) -> Decorator:
    """Return the decorator of an option whose value is the path of a file."""
    return click.option(*declarations, type=FILE, metavar="FILE", help=help)


def dry_option(help: str) -> Decorator:
    """Return the decorator of ``--dry-run``."""
    return flag_option("--dry-run", "dry", help=help)


json_option = flag_option("--json", "as_json", help="Print the result as JSON, for programs.")
sql_option = flag_option("--sql", "as_sql", help="Print the SQL without running it.")
master_option = click.option(
    "--master", metavar="URL", help="Spark master.  [default: spark-submit's, else local[*]]"
)
source_option = name_option(
    "--from",
    "source",
    group=SOURCES,
    metavar="SOURCE",
    help="The source to publish: {names}. Overrides source.type.",
)
consumer_option = click.option(
    "--consumer",
    metavar="NAME",
    help="Work for this consumer of the log.  [default: the configured consumer]",
)
yes_option = flag_option("--yes", "-y", help="Do not ask for confirmation, even on a terminal.")


def limit_option(what: str, default: int, *more: str) -> Decorator:
    """Return the decorator of ``--limit``: how many entries a command lists at most. ``what`` names
    the entries, and ``more`` has further names of the option.
    """
    return click.option(
        "--limit",
        *more,
        type=click.IntRange(0, 1_000_000),
        default=default,
        metavar="NUMBER",
        help=f"How many {what}.",
    )


# --- the database; SQLAlchemy loads slowly, so it is imported only where it is needed -------------


def engine_of(config: Config) -> tuple[Engine, Dialect]:
    """Return an engine for the configured database, and its dialect.

    Raises ConfigError; connecting raises DatabaseError.
    """
    from eventlog.sql.connect import connect, dialect_of

    url = connection_url(config.database)
    return connect(url), dialect_of(url)


@contextmanager
def session(
    config: Config, purpose: Purpose | None = None, *, writes: bool = True
) -> Iterator[OpenDatabase]:
    """Open a session of the configured database; the caller commits. If a right is missing, the
    error names the rights for ``purpose`` (None = the owner's rights). Raises DatabaseError.
    """
    from eventlog.sql.connect import open_session

    url, hides_rows = connection_url(config.database), config.hides_rows
    with open_session(url, purpose, writes=writes, hides_rows=hides_rows) as db:
        yield db


@contextmanager
def transaction(config: Config, purpose: Purpose | None = None) -> Iterator[OpenDatabase]:
    """Open a writing transaction on the configured database, and commit it at the end. ``purpose``
    is as in ``session``.

    Raises DatabaseError.
    """
    with session(config, purpose) as db:
        with db.connection.begin():
            yield db
            if_stopped(COMMITTING)
        if_stopped(DONE)


@contextmanager
def changing(config: Config) -> Iterator[OpenDatabase]:
    """Open a transaction as ``transaction`` does, for statements that change tables or triggers.
    Some databases commit each such statement.
    """
    with transaction(config) as db:
        if "transactional_ddl" not in db.dialect.capabilities:
            if_stopped(
                "this database commits each statement that changes a table or a trigger, so what "
                "has run stays; run the same command again to complete it"
            )
        yield db


@contextmanager
def reading(config: Config, purpose: Purpose | None = None) -> Iterator[OpenDatabase]:
    """Open a read-only transaction on the configured database. ``purpose`` is as in ``session``.
    Raises DatabaseError.
    """
    with session(config, purpose, writes=False) as db, db.connection.begin():
        yield db


@contextmanager
def changing_log(config: Config, purpose: Purpose | None = None) -> Iterator[OpenLog]:
    """Open the configured log in a session that the caller commits. ``purpose`` is as in
    ``session``. Raises DatabaseError, NoLogTable.
    """
    from eventlog.publisher.declared import find_log

    with session(config, purpose) as db:
        yield find_log(db, config)


@contextmanager
def reading_log(config: Config, purpose: Purpose | None = None) -> Iterator[OpenLog]:
    """Open the configured log in a read-only transaction. ``purpose`` is as in ``session``. Raises
    DatabaseError, NoLogTable.
    """
    from eventlog.publisher.declared import find_log

    with reading(config, purpose) as db:
        yield find_log(db, config)


def log_named(config: Config, dialect: Dialect, schema: str | None) -> LogTable:
    """Return the configured log as eventlog would create it, in this schema unless the
    configuration names another schema.
    """
    from eventlog.sql.connect import new_log
    from eventlog.sql.log_table import split_name

    own_schema, name = split_name(config.database.log_table)
    return new_log(dialect, own_schema or schema, name)


def check_consumer(config: Config, consumer: str | None) -> None:
    """Raise ConfigError if the option names a consumer that the log does not have; None is
    accepted.
    """
    from eventlog.sql.readers import consumer_row

    if consumer is not None:
        with reading_log(config) as log:
            consumer_row(log, consumer)


def user_here() -> str:
    """Return who runs the command, as the error table and a pause record it: in a container a user
    may have a number and no name.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # Python 3.13 raises OSError, those before it KeyError
        user = f"uid {os.getuid()}"
    return f"{user} on {socket.gethostname()}"


def end_change(log: OpenLog, *, dry: bool) -> None:
    """Commit what the session changed; with ``dry`` roll it back."""
    if dry:
        log.connection.rollback()
        return
    if_stopped(COMMITTING)
    log.commit()
    if_stopped(DONE)


# --- Spark ----------------------------------------------------------------------------------------


def spark_module(name: str) -> Any:
    """Import a module of ``eventlog.spark`` by its name, since eventlog works without Spark.

    Raises ConfigError.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"Spark is not installed ({error}): {install_command('spark')}; and install Java 17 "
            "or later"
        ) from error


def master_of(option: str | None) -> str | None:
    """Return the Spark master: the option, else None for the master of spark-submit, else all cores
    of this machine.
    """
    return option or (None if "PYSPARK_GATEWAY_PORT" in os.environ else "local[*]")


# --- log lines, on standard error -----------------------------------------------------------------

_LOG_FIELDS: Final = ("log", "delivery", "document", "event_id", "code")
"""The fields that a log line in JSON may have in addition to its message."""
_ABOUT_A_LOG: Final = ("eventlog.publisher", "eventlog.backlog", "eventlog.statements")
"""The loggers whose lines are about the configured log."""


def configure_logging(settings: LogSettings, *, quiet: bool, verbose: int, log: str = "") -> None:
    """Send log lines to standard error: lines of eventlog by the configured level, and warnings of
    other libraries.

    ``log`` names the log of the command, for lines in JSON. ``quiet`` and ``verbose`` come from the
    command line; SQL statements are logged only if --verbose is given twice.
    """
    level = "debug" if verbose else settings.level
    if quiet and settings.level != "error":
        level = "warning"
    formatter: logging.Formatter = TextLines("%(asctime)s %(levelname)s %(message)s")
    if settings.format == "json":
        formatter = _JsonLines(log)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    for handler in _own_handlers():
        handler.setFormatter(formatter)
    logging.getLogger("eventlog").setLevel(level.upper())
    logging.getLogger("eventlog.statements").setLevel(
        logging.DEBUG if verbose > 1 else logging.INFO
    )


def _own_handlers() -> list[logging.StreamHandler[Any]]:
    """Return the handlers that write to standard error; none if the application has handlers
    already.
    """
    return [
        handler
        for handler in logging.getLogger().handlers
        if type(handler) is logging.StreamHandler
    ]


class TextLines(logging.Formatter):
    """The formatter of lines for people, with the time in UTC and the code of an error. The
    formatter escapes control characters, since the name of a table may hold any character.
    """

    converter = time.gmtime  # type: ignore[assignment]
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return _with_code(visible(super().formatMessage(record)), getattr(record, "code", ""))


def _with_code(message: str, code: str) -> str:
    return f"{message} [{code}]" if code else message


class _JsonLines(logging.Formatter):
    """The formatter of one JSON object per line: time in UTC, level, message, and the line's
    ``_LOG_FIELDS``.

    ``log`` names the log that lines of publishers and backlog jobs are about, empty without a log.
    """

    def __init__(self, log: str) -> None:
        super().__init__()
        self._log = log

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: JsonObject = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._log and record.name.startswith(_ABOUT_A_LOG):
            line["log"] = self._log
        line.update(
            {name: getattr(record, name) for name in _LOG_FIELDS if getattr(record, name, "") != ""}
        )
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return visible(json.dumps(line, ensure_ascii=False))  # visible escapes, as in JSON


def report_error(message: str, *, code: str = "") -> None:
    """Write the one line that reports why a command failed, with the error's code if it has one."""
    if any(isinstance(handler.formatter, _JsonLines) for handler in _own_handlers()):
        logging.getLogger("eventlog").error("%s", _one_line(message), extra={"code": code})
    else:
        click.echo(f"eventlog: {_with_code(_one_line(message), code)}", err=True)


# --- output: the result and notes -----------------------------------------------------------------


def note(message: str) -> None:
    """Write a line to standard error, separate from the result: a warning, a hint, or a skipped
    input.
    """
    click.echo("\n".join(map(visible, message.split("\n"))), err=True)


def result(
    message: str, *, colour: str | None = None, bold: bool | None = None, end: str = "\n"
) -> None:
    """Write a line of the result to standard output.

    Characters that its encoding lacks are escaped.
    """
    _write(_encodable(message) + end, fg=colour, bold=bold)


def _write(text: str, *, err: bool = False, **style: Any) -> None:
    """Write text to a standard stream, with the style if the stream is a terminal.

    The text itself is never changed: ``click`` would remove ANSI sequences when writing to a pipe,
    and so alter names in SQL or JSON.
    """
    stream = sys.stderr if err else sys.stdout
    shown = click.style(text, **style) if any(style.values()) and stream.isatty() else text
    click.echo(shown, nl=False, err=err, color=True)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Write a result for programs: JSON on standard output, on one line if ``indent`` is None.

    Dates become ISO texts, other objects their text.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)
    if _encodable(text) != text:
        text = json.dumps(value, indent=indent, default=_plain)
    _write(f"{text}\n")


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, err: bool = False) -> None:
    """Write a table of the result, with aligned columns and no cell cut off. With ``err`` the table
    goes to standard error, because standard output holds the result.
    """
    texts = [[_one_line("-" if cell is None else str(cell)) for cell in row] for row in rows]
    lines = [list(headings), *texts]
    widths = [max(_width(line[column]) for line in lines) for column in range(len(headings))]
    for number, line in enumerate(lines):
        text = "  ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        _write(f"{text if err else _encodable(text)}\n", err=err, bold=number == 0)


def _encodable(text: str) -> str:
    """Return the text with escapes for characters that standard output cannot encode, as Python
    does for standard error.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _one_line(text: str) -> str:
    return visible(text.replace("\n", " "))


def _width(text: str) -> int:
    """Return the number of terminal columns of a text: a wide character has two columns, a
    combining character has none.
    """
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


Advance = Callable[[int], None]
"""A function that is called with the number of units done since the last call."""


@contextmanager
def progress(label: str, total: int, quiet: bool = False, unit: str = "rows") -> Iterator[Advance]:
    """Show a progress bar on standard error if that is a terminal. The block calls the yielded
    function.

    ``unit`` names the units. Log lines stay above the bar.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda done: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit + "{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    began = monotonic()
    # Standard output is not touched, since it may contain the result.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(label, total=total, rate="")
        handlers = [(handler, handler.setStream(sys.stderr)) for handler in _own_handlers()]

        def advance(done: int) -> None:
            bar.advance(task, done)
            completed = bar.tasks[0].completed
            bar.update(task, rate=f", {completed / max(monotonic() - began, 0.001):,.0f} a second")

        try:
            yield advance
        finally:
            for handler, stream in handlers:
                if stream is not None:
                    handler.setStream(stream)


def confirm(what: str, *, yes: bool) -> None:
    """Ask before something is destroyed; ``what`` is the sentence that names the loss. If the
    answer is no, the command ends.

    Without a terminal nobody could answer, so the command continues, as a scheduled job needs.
    """
    if yes or not sees_terminal():
        return
    note(what)
    if not click.confirm("Go on?", err=True):
        report_error("not confirmed: nothing was changed")
        raise click.exceptions.Exit(ExitCode.FAILED)


_COMMANDS_SHOWN: Final = 5
"""The maximum number of proposed commands that people are shown at a time."""


def shown_commands(commands: Sequence[str]) -> Iterator[str]:
    """Yield the lines that propose commands to people, one per command."""
    for command in commands[:_COMMANDS_SHOWN]:
        yield f"  {visible(command)}"
    if (more := len(commands) - _COMMANDS_SHOWN) > 0:
        yield f"  and {number_of(more, 'more command')} (--json lists all)"


def sees_terminal() -> bool:
    """Return True if standard input is a terminal, so that somebody can answer."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
