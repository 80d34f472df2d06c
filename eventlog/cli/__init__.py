"""The command line. A command's module is imported when it is asked for, so that ``eventlog --help`` imports none."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from eventlog import __version__
from eventlog.cli import help
from eventlog.cli.context import Context
from eventlog.cli.output import FILE, configure_logging, error_line
from eventlog.config.settings import LogSettings
from eventlog.errors import ConfigError, EventlogError, FatalAnswer

COMMANDS: Final = {name: line for part in help.COMMANDS.values() for name, line in part.items()}
"""Each command with its line of help."""

_MODULES: Final = {
    "config": "settings",
    "decode": "convert",
    "errors": "rows",
    "init": "settings",
    "requeue": "rows",
    "show": "rows",
    "tail": "monitor",
    "top": "monitor",
}
"""The modules that hold several commands; any other command stands in ``eventlog.cli.<name>``."""

DONE, FAILED, USAGE, FATAL, INTERRUPTED = 0, 1, 2, 3, 130


class _LazyGroup(help.Group):
    """Commands by ``COMMANDS``: help and completion list them without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        gc.disable()  # modules are many objects, and none of them garbage
        try:
            command = getattr(import_module(f"eventlog.cli.{_MODULES.get(name, name)}"), name)
        finally:
            gc.enable()
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for purpose, commands in help.COMMANDS.items():
            with formatter.section(purpose):
                formatter.write_dl(list(commands.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        named = [CompletionItem(name, help=line) for name, line in COMMANDS.items() if name.startswith(incomplete)]
        return named or click.Command.shell_complete(self, ctx, incomplete)


def _settings(assignments: Sequence[str], **named: str | None) -> dict[str, str]:
    """Flags as ``section.key`` -> text. Raises ConfigError for a ``--set`` that is no assignment."""
    flags: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: write it as SECTION.KEY=VALUE, such as publisher.batch_size=10")
        flags[name.strip()] = value
    flags.update({name.replace("__", "."): value for name, value in named.items() if value is not None})
    return flags


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120, "show_default": True},
)
@click.option("--config", "-c", "config_file", type=FILE, envvar="EVENTLOG_CONFIG",
              show_envvar=True, metavar="FILE", help="Configuration file; eventlog.toml if it is there.")  # fmt: skip
@click.option("--database-url", metavar="URL", help="SQLAlchemy URL of the database, in place of [database] url.")
@click.option("--schema", metavar="NAME", help="Schema of the log and the classes, in place of [database] schema_name.")
@click.option("--log-table", metavar="NAME", help="The log table, in place of [database] log_table.")
@click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE",
              help="Any setting of eventlog.toml, such as publisher.batch_size=10; repeatable.")  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Say only what is wrong.")
@click.option("--verbose", "-v", count=True, show_default=False,
              help="Say each window and flight; twice: each statement, and errors with their traceback.")  # fmt: skip
@click.version_option(__version__, prog_name="eventlog", message="%(prog)s %(version)s")
@click.pass_context
def cli(
    ctx: click.Context,
    config_file: Path | None,
    database_url: str | None,
    schema: str | None,
    log_table: str | None,
    assignments: tuple[str, ...],
    quiet: bool,
    verbose: int,
) -> None:
    """Publish what database triggers log, and convert changes between formats.

    Begin with `eventlog init`. `eventlog demo` shows all of it, `eventlog doctor` says what is wrong and what mends it.

    Settings come from eventlog.toml. EVENTLOG_<SECTION>_<KEY> in the environment overrides them, and flags override
    both. Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 stopped by a fatal answer.
    """
    configure_logging(LogSettings(), quiet=quiet, verbose=verbose)
    flags = _settings(
        assignments, database__url=database_url, database__schema_name=schema, database__log_table=log_table
    )
    ctx.obj = Context(config_file, flags, quiet, verbose)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Errors go to standard error, a line each."""
    with_traceback = os.environ.get("EVENTLOG_TRACEBACK", "") not in ("", "0") or _asks_for_traceback(arguments)
    try:
        result = cli.main(list(arguments), prog_name="eventlog", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.ClickException as error:
        where = getattr(error, "ctx", None)
        if isinstance(error, click.NoSuchOption) and where is not None and (usage := _global_usage(error, where)):
            error_line(usage)
            return USAGE
        message = " ".join(error.format_message().split()).rstrip(".")
        see = " See" if message.endswith("?") else "; see"
        error_line(message if where is None else f"{message}{see} `{where.command_path} --help`")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter must not try to flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (EventlogError, OSError) as error:
        if with_traceback:
            traceback.print_exc()
        for message in getattr(error, "refusals", ()) or (_message(error),):
            error_line(message, code=getattr(error, "code", ""))
        return USAGE if isinstance(error, ConfigError) else FATAL if isinstance(error, FatalAnswer) else FAILED
    return result if isinstance(result, int) else DONE


def _global_usage(error: click.NoSuchOption, where: click.Context) -> str | None:
    """What to write where an option of all commands stands behind the command; None for any other option."""
    for option in cli.params:
        if error.option_name in option.opts:
            value = f" {option.metavar}" if option.metavar else ""
            command = where.command_path.removeprefix("eventlog ")
            return f"{error.option_name} stands before the command: eventlog {error.option_name}{value} {command}"
    return None


def _asks_for_traceback(arguments: Sequence[str]) -> bool:
    # Looked for by hand, since the command line itself may be what fails.
    return "-vv" in arguments or sum(argument in ("-v", "--verbose") for argument in arguments) > 1


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))
