"""The command line: its commands, their ``--help``, and the function that runs a command line.

The module of a command is imported on use, so ``eventlog --help`` imports no such module.
"""

from __future__ import annotations

import difflib
import gc
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from eventlog import __version__
from eventlog.cli.command import CommandResult, Request, report
from eventlog.cli.context import FILE, CommandContext, configure_logging, report_error
from eventlog.cli.stopping import sentence_if_stopped, stopped_by_signals
from eventlog.config.settings import LogSettings
from eventlog.errors import ConfigError, EventlogError
from eventlog.exit_codes import MEANINGS, OF_COMMANDS, ExitCode
from eventlog.registry import as_plugin_errors

_BY_PURPOSE: Final[Mapping[str, Mapping[str, str]]] = {
    "Begin": {
        "init": "Write a commented eventlog.toml.",
        "config": "Show the settings in effect and where each came from.",
        "demo": "Run a demonstration on an embedded PostgreSQL.",
    },
    "Install": {
        "db": "Create, upgrade or remove the log and its internal tables.",
        "grants": "Print the rights that a role needs, as SQL.",
        "triggers": "Compare, apply or drop the triggers of the watched tables.",
        "filter": "Let the publisher, or a consumer, start with changed filters.",
    },
    "Publish": {
        "publish": "Publish the log: the daemon, or one run with --once.",
        "backlog": "Convert a whole backlog to files of documents, with Spark.",
    },
    "Inspect": {
        "status": "Show the queue, what is being delivered and who publishes.",
        "top": "Show live in a terminal what a publisher does.",
        "tail": "Show what a publisher sent recently, and what follows.",
        "errors": "Show what was refused, by cause, and the commands that put it back.",
        "explain": "Explain a row of the log, a code, or why the change of an object was not sent.",
        "schema": "Print the JSON Schema of the CloudEvents of a class.",
        "catalog": "Print the watched tables as the catalogue that convert takes.",
        "doctor": "Check log, triggers and rows for problems, and show how to fix them.",
        "health": "Check whether the publisher is alive, by its health file.",
    },
    "Repair": {
        "verify": "Compare a target with the source while both change.",
        "consumers": "List, reset or drop the consumers of the log.",
        "requeue": "Put rows with status E or F back into the queue.",
        "skip": "Give up events for which the receiver keeps failing.",
        "pause": "Let the publisher, or a consumer, send nothing until resume.",
        "resume": "Let a paused publisher, or consumer, send again.",
        "resync": "Write objects to the log again: repair and first load.",
        "purge": "Remove processed rows that are older than an age.",
    },
    "Convert": {
        "convert": "Convert changes from any format to any other.",
        "decode": "Show changes of any format as readable text.",
    },
}
"""The commands by purpose, each with its line of help."""

_MODULES: Final = {
    "init": "settings",
    "config": "settings",
    "catalog": "schema",
    "doctor": "status",
    "pause": "pausing",
    "resume": "pausing",
    "decode": "convert",
}
"""The modules whose name differs from the name of their command. Each module is in the package for
the purpose of its command.
"""

COMMANDS: Final = {
    name: (f"eventlog.cli.{purpose.lower()}.{_MODULES.get(name, name)}", line)
    for purpose, commands in _BY_PURPOSE.items()
    for name, line in commands.items()
}
"""All commands, each with its module and its help line."""

OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Configuration and database": (
        "--config", "--database-url", "--schema", "--log-table", "--set", "--database", "--url",
        "--file", "--dialect", "--catalog",
    ),
    "What to work on": (
        "--tables", "--existing-log", "--tablespace", "--index-tablespace", "--name",
        "--drop-log", "--key", "--keys", "--where", "--deletes", "--status", "--ids", "--class",
        "--parked", "--refused", "--event-id", "--loopback", "--consumer", "--start-from",
        "--older-than", "--limit", "--sample", "--ignore", "--purpose", "--target",
        "--leaf-size", "--finish",
    ),
    "Formats and files": (
        "--from-driver", "--from", "--to", "--format", "--options", "--last-sequence", "--out",
        "--file-layout", "--compression", "--max-file-size", "--keep",
    ),
    "Behaviour": (
        "--once", "--allow-refused", "--follow", "--watch", "--interval", "--mark", "--acknowledge",
        "--no-claim", "--as-update", "--resend", "--max-rows-per-second", "--batch", "--pause",
        "--wait", "--resume", "--restart", "--state", "--repair", "--strict", "--lock-timeout",
        "--no-backlog", "--check", "--dry-run", "--force", "--yes", "--reason", "--receiver",
        "--max-copied",
    ),
    "Spark": ("--spark", "--master", "--conf", "--partition-rows", "--connections"),
    "Output": ("--sql", "--show-values", "--report", "--json"),
    "Help and logs": ("--quiet", "--verbose", "--version", "--help"),
}  # fmt: skip
"""The options that commands have, by the group in which ``--help`` shows them."""

EXAMPLES: Final[Mapping[str, Mapping[str, str]]] = {
    "": {
        "eventlog init": "begin with a file to fill in",
        "eventlog publish --once": "send what waits now",
    },
    "init": {
        "eventlog init": "a file to fill in, every option in it",
        "eventlog --database-url postgresql+psycopg://me@db/shop init --tables": (
            "with a [[watch]] for each table"
        ),
    },
    "config": {
        "eventlog config": "all settings, and where each came from",
        "eventlog --set publisher.batch_size=1 config --json": (
            "the settings with this flag, as JSON"
        ),
    },
    "db upgrade": {
        "eventlog db upgrade": "the log and its internal tables, in one transaction",
        "eventlog db upgrade --sql > log.sql": "the same for a DBA to run",
    },
    "db current": {
        "eventlog db current": "what is installed, and what is not applied yet",
        "eventlog db current --json": "the same as JSON",
    },
    "db partition": {
        "eventlog db partition": "as the owner of the log, while no publisher and no consumer runs",
        "eventlog db partition --leaf-size 5000000": "a leaf for each 5 million record_ids",
    },
    "db unpartition": {
        "eventlog db unpartition": "make the log one table",
        "eventlog db unpartition --max-copied 1000000": "copy up to 1000000 rows",
    },
    "db start-epoch": {
        "eventlog db start-epoch": "after a snapshot was put back, before the publisher starts",
        "eventlog db start-epoch --json": "start an epoch, and print its number as JSON",
    },
    "db downgrade": {
        "eventlog db downgrade base": "remove everything again; asks first",
        "eventlog db downgrade base --sql": "print the SQL of the removal",
    },
    "grants": {
        "eventlog grants publisher": "the GRANTs of the publisher's role",
        "eventlog grants search --purpose consumer > grants.sql": "the GRANTs of a consumer's role",
    },
    "triggers plan": {
        "eventlog triggers plan": "what apply would do, with its warnings",
        "eventlog triggers plan --check": "for CI: fails if there is something to do",
    },
    "triggers apply": {
        "eventlog triggers apply": "bring the triggers to what is declared",
        "eventlog triggers apply --sql > triggers.sql": "the same for a DBA to run",
    },
    "triggers accept": {
        "eventlog triggers accept usr_phone": "usr_phone is not captured any more, as it should be",
        "eventlog triggers accept usr_phone --dry-run": "what would be accepted",
    },
    "triggers drop": {
        "eventlog triggers drop --dry-run": "what would be dropped",
        "eventlog triggers drop --drop-log --yes": "the log too, without asking",
    },
    "triggers list": {
        "eventlog triggers list": "what is installed, declared or not",
        "eventlog triggers list --sql": "its whole text",
    },
    "publish": {
        "eventlog publish": "the daemon, until SIGTERM or Ctrl-C",
        "eventlog publish --once": "what the queue holds now",
        "eventlog publish --dry-run": "print it; send and mark nothing",
    },
    "status": {
        "eventlog status": "the queue, what is being delivered, who publishes",
        "eventlog status --watch 5": "again every five seconds",
    },
    "top": {
        "eventlog top": "from the configured monitor, else the database",
        "eventlog top --url http://127.0.0.1:9464": "a publisher elsewhere",
    },
    "tail": {
        "eventlog tail": "the last ten documents, then each new one",
        "eventlog tail -n 50 --no-follow --json": "the last fifty, as JSON",
    },
    "health": {
        "eventlog health": "fails if the publisher is not alive",
        "eventlog health --file /run/eventlog/health": "another publisher's file",
    },
    "doctor": {
        "eventlog doctor": "findings, each with its fix",
        "eventlog doctor --receiver": "whether the receiver is reachable; sends no change",
        "eventlog doctor --ignore old_snapshot --json": "as JSON, without one finding",
    },
    "explain": {
        "eventlog explain 4711": "why this row has its status",
        "eventlog explain --key customer.id=7": "why a change of this object was not sent",
        "eventlog explain receiver_unavailable": "what the code of a message means",
        "eventlog explain 4711 --json": "an answer as JSON",
        "eventlog explain --key item.id=7 --from gbase": "what waits in a followed source",
    },
    "schema": {
        "eventlog schema usr > usr.json": "the schema of the data of usr's events",
        "eventlog --set format.cloudevents.integers=text schema usr": (
            "with integers of wide types as text"
        ),
    },
    "catalog": {
        "eventlog catalog > shop.json": "the tables, for convert on another machine",
        "eventlog --set database.tables=usr,grp catalog": "only these tables",
    },
    "errors": {
        "eventlog errors": "rows with E and F by cause",
        "eventlog errors --from gbase": "what was refused from a followed source",
        "eventlog errors --json": "the same as JSON",
    },
    "filter accept": {
        "eventlog filter accept": "accept the publisher's filters; run as the log's owner",
        "eventlog filter accept --consumer search": "accept a consumer's filters",
    },
    "consumers list": {
        "eventlog consumers list": "each consumer, and how far it has read",
        "eventlog consumers list --json": "the same as JSON",
    },
    "consumers reset": {
        "eventlog consumers reset search --start-from snapshot": (
            "all objects again, then new changes"
        ),
        "eventlog consumers reset search --start-from earliest --yes": (
            "what the log still has, without asking"
        ),
        "eventlog consumers reset search --start-from 2026-11-20T08:00Z": (
            "what was changed since this time"
        ),
    },
    "consumers drop": {
        "eventlog consumers drop search": (
            "delete it, so that purge keeps no rows for it; asks first"
        ),
        "eventlog consumers drop search --yes": "without asking",
    },
    "requeue": {
        "eventlog requeue --dry-run": "how many rows E and F would be put back",
        "eventlog requeue --ids 1,2,5-9": "these rows",
    },
    "skip": {
        "eventlog skip 4711 --reason 'no such mailbox'": "its rows get E; later events are sent",
        "eventlog skip --parked --class usr --reason 'no need'": "all parked events of a class",
        "eventlog skip --refused --reason 'seen'": "end the alarm about refused rows",
        "eventlog skip 0000000b000000a8:0000000b00000058 --reason gone --from gbase": (
            "an event of a followed source"
        ),
    },
    "pause": {
        "eventlog pause --reason 'the receiver is upgraded'": "the publisher sends nothing",
        "eventlog pause --consumer search --reason 'new index'": "one consumer sends nothing",
    },
    "resume": {
        "eventlog resume": "the publisher sends what waits",
        "eventlog resume --consumer search": "a consumer",
    },
    "resync": {
        "eventlog resync customer --dry-run": "how many objects would be sent as they are now",
        "eventlog resync customer --key id=7": "one object",
    },
    "verify": {
        "eventlog verify --target postgresql://me@warehouse/shop": "all classes",
        "eventlog verify item --target sqlite:///copy.db --repair": (
            "one class; send again what differs"
        ),
    },
    "purge": {
        "eventlog purge --older-than 30d --dry-run": "how many processed rows would be removed",
        "eventlog purge --older-than 30d --yes": "remove them, without asking",
        "eventlog purge --finish eventlog_2 --dry-run": "a leaf that somebody detached",
    },
    "backlog run": {
        "eventlog backlog run --out documents": "files of the documents that publish would send",
        "eventlog backlog run --out documents --mark": "and mark their rows afterwards",
    },
    "backlog mark": {
        "eventlog backlog mark --out documents": "when the receiver has the documents",
        "eventlog backlog mark --out documents --acknowledge delete": "delete the rows",
    },
    "backlog estimate": {
        "eventlog backlog estimate": "rows, parts, bytes and times, without Spark",
        "eventlog backlog estimate --json": "the same as JSON",
    },
    "backlog release": {
        "eventlog backlog release --out documents": "give the rows back to the publisher",
        "eventlog backlog release --out documents --force": "even if marking has started",
    },
    "convert": {
        "eventlog convert --from gbase --to jsonl capture.cdc changes.jsonl": (
            "a stream as lines of JSON"
        ),
        "eventlog convert --from jsonl --to xds - - < changes.jsonl": "from a pipe to a pipe",
    },
    "decode": {
        "eventlog decode --from gbase capture.cdc": "records as text, with their byte offsets",
        "eventlog decode --from xds documents.xmll": "events as text",
    },
    "demo": {
        "eventlog demo --no-backlog": "without the part that needs Spark",
        "eventlog demo --keep shop": "and keep the database to continue with",
    },
}
"""Example command lines by the command's name, each with its effect."""


# --- help -----------------------------------------------------------------------------------------


def examples_of(name: str) -> Mapping[str, str]:
    """Return the examples of a command; for a group, the first example of each of its commands."""
    of_parts = [examples for part, examples in EXAMPLES.items() if part.startswith(f"{name} ")]
    if len(of_parts) == 1:
        return of_parts[0]
    return EXAMPLES.get(name) or dict(next(iter(examples.items())) for examples in of_parts)


def grouped_options(command: click.Command, ctx: click.Context) -> dict[str, list[click.Option]]:
    """Return the options of a command, by the group in which the help shows them."""
    by_flag = {
        max(one.opts, key=len): one
        for one in command.get_params(ctx)
        if isinstance(one, click.Option) and not one.hidden
    }
    groups = {
        title: [by_flag[flag] for flag in flags if flag in by_flag]
        for title, flags in OPTIONS.items()
    }
    return {title: options for title, options in groups.items() if options}


class Command(click.Command):
    """A command whose help shows examples, and the options in groups. The command also accepts the
    options of all commands, which have the same effect after the command's name as before the name.
    Its callback is the class of its request (``eventlog.cli.command``).
    """

    def invoke(self, ctx: click.Context) -> Any:
        context = replace(ctx.obj, as_json=ctx.params.pop("as_json", False))
        done = ctx.invoke(super().invoke(ctx).run, context)
        return report(context, done) if isinstance(done, CommandResult) else done

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        if ctx.parent is None:
            return own
        taken = {flag for one in own for flag in one.opts}
        return [*own, *(one for one in _trailing_options() if not taken & set(one.opts))]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in grouped_options(self, ctx).items():
            with formatter.section(title):
                formatter.write_dl(
                    [record for one in options if (record := one.get_help_record(ctx))]
                )
        if ctx.parent is not None:
            formatter.write_paragraph()
            formatter.write_text(
                "The options that `eventlog --help` lists may stand before or after the command."
            )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        of_command = OF_COMMANDS.get(ctx.command_path.partition(" ")[2], {})
        if codes := MEANINGS if ctx.parent is None else of_command:
            with formatter.section("Exit codes"):
                formatter.write_dl([(str(code), text) for code, text in codes.items()])
        with formatter.section("Examples"):
            for line, purpose in examples_of(ctx.command_path.partition(" ")[2]).items():
                formatter.write(f"  {line}\n      {purpose}\n")


def command(request: type[Request]) -> click.Command:
    """Return the command that makes this request. The name is the name of the request's class."""
    return click.command(cls=Command)(request)


class Group(Command, click.Group):
    """A group of commands whose help has the whole first sentence of each command."""

    command_class = Command
    invoke = click.Group.invoke

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(1000))
                    for name, command in self.commands.items()
                ]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click's own message compares with loaded commands only, and commands load on use.
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], names, n=1)
            hint = f"the nearest is {near[0]}" if near else f"the commands are {', '.join(names)}"
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


class _LazyGroup(Group):
    """The group of the commands in ``COMMANDS``.

    Help and completion list them without importing them.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _ = COMMANDS[name]
        gc.disable()  # imports create many objects but no garbage
        try:
            command = getattr(import_module(module), name)
        finally:
            gc.enable()
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for purpose, commands in _BY_PURPOSE.items():
            with formatter.section(purpose):
                formatter.write_dl(list(commands.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        named = [
            CompletionItem(name, help=line)
            for name, (_, line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return named or click.Command.shell_complete(self, ctx, incomplete)


# --- running a command ----------------------------------------------------------------------------


_OVERRIDES: Final = {
    "database_url": "database.url",
    "schema": "database.schema_name",
    "log_table": "database.log_table",
}
"""The settings that options of all commands override."""


def _with_option(context: CommandContext, name: str, value: Any) -> CommandContext:
    """Return the context with the value of an option that all commands have. Raises ConfigError for
    a ``--set`` that is not an assignment.
    """
    if name == "assignments":
        return context.with_flags(dict(map(_assignment, value)))
    if name in _OVERRIDES:
        return context.with_flags({_OVERRIDES[name]: value})
    if name == "verbose":
        value += context.verbose
    return replace(context, **{name: value})


def _assignment(text: str) -> tuple[str, str]:
    """Return the setting of a ``--set`` as ``section.key``, and its value as text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(
            f"--set {text}: write it as SECTION.KEY=VALUE, such as publisher.batch_size=10"
        )
    return name.strip(), value


def _settings_of(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the completions of ``--set``: the settings, including those of all installed types."""
    # This loads all installed packages, and only shell completion calls it.
    from eventlog.config.settings import installed_options, installed_sections

    return [
        CompletionItem(f"{section}.{key}=", help=declared.help)
        for section in installed_sections()
        for key, declared in installed_options(section).items()
        if f"{section}.{key}".startswith(incomplete) and not declared.option.secret
    ]


@click.group(
    cls=_LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 120,
        "show_default": True,
    },
)
@click.option("--config", "-c", "config_file", type=FILE, metavar="FILE",
              envvar="EVENTLOG_CONFIG", show_envvar=True,
              help="Configuration file; eventlog.toml if it exists.")  # fmt: skip
@click.option(
    "--database-url",
    metavar="URL",
    help="SQLAlchemy URL of the database, in place of [database] url.",
)
@click.option(
    "--schema",
    metavar="NAME",
    help="Schema of the log and the classes, in place of [database] schema_name.",
)
@click.option(
    "--log-table", metavar="NAME", help="The log table, in place of [database] log_table."
)
@click.option("--set", "assignments", multiple=True, metavar="SECTION.KEY=VALUE",
              shell_complete=_settings_of, help="Any setting of eventlog.toml, such as "
              "publisher.batch_size=10; repeatable.")  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Show only warnings and errors.")
@click.option("--verbose", "-v", count=True, show_default=False,
              help="Log each read of the queue, and each delivery; -vv also logs statements, and "
              "tracebacks of errors.")  # fmt: skip
@click.version_option(__version__, prog_name="eventlog", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, /, **given: Any) -> None:
    """Publish what database triggers log, and convert changes between formats.

    Begin with `eventlog init`. `eventlog demo` runs a demonstration, `eventlog doctor` finds
    problems and shows how to fix them, and `eventlog explain CODE` describes the code of a message.

    Settings come from eventlog.toml. EVENTLOG_<SECTION>_<KEY> in the environment overrides them,
    and flags override both.
    """
    ctx.obj = CommandContext(None, {})
    for name, value in ({"assignments": given["assignments"]} | given).items():  # the weakest first
        if value is not None:
            ctx.obj = _with_option(ctx.obj, name, value)
    configure_logging(LogSettings(), quiet=ctx.obj.quiet, verbose=ctx.obj.verbose)


@cache
def _trailing_options() -> tuple[click.Option, ...]:
    """Return the options of all commands in the form that a command accepts after its name."""
    options = []
    for option in cli.params:
        if isinstance(option, click.Option) and option.expose_value:
            trailing = copy(option)
            # The variable counts once, before the command.
            trailing.hidden, trailing.expose_value, trailing.envvar = True, False, None
            trailing.callback = _take_trailing
            options.append(trailing)
    return tuple(options)


def _take_trailing(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        ctx.obj = _with_option(ctx.obj, option.name or "", value)
        configure_logging(LogSettings(), quiet=ctx.obj.quiet, verbose=ctx.obj.verbose)


def run(arguments: Sequence[str]) -> ExitCode:
    """Run one command line and return its exit code. Errors go to standard error, one per line."""
    # The arguments are searched for the flag directly, since parsing the command line may itself
    # fail.
    flags = [argument for argument in arguments if argument in ("-v", "--verbose")]
    with_traceback = (
        "-vv" in arguments
        or len(flags) > 1
        or os.environ.get("EVENTLOG_TRACEBACK", "") not in ("", "0")
    )
    try:
        with stopped_by_signals(), as_plugin_errors():
            result = cli.main(list(arguments), prog_name="eventlog", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return ExitCode.USAGE
    except click.ClickException as error:
        report_error(_usage_error(error))
        return ExitCode(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        if sentence := sentence_if_stopped():
            report_error(f"stopped: {sentence}")
        return ExitCode.STOPPED
    except BrokenPipeError:
        # The program that read the output has ended, so the interpreter must not flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except (EventlogError, OSError) as error:
        if with_traceback:
            traceback.print_exc()
        for message in getattr(error, "refusals", ()) or (_message(error),):
            report_error(message, code=getattr(error, "code", ""))
        return getattr(error, "exit_code", ExitCode.FAILED)
    return ExitCode(result) if isinstance(result, int) else ExitCode.DONE


def _usage_error(error: click.ClickException) -> str:
    """Return the line that reports an error of the command line and names its help."""
    message = " ".join(error.format_message().split()).rstrip(".")
    where: click.Context | None = getattr(error, "ctx", None)
    if where is None:
        return message
    see = " See" if message.endswith("?") else "; see"
    return f"{message}{see} `{where.command_path} --help`"


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def main() -> None:
    """Run the command line of the console script, and exit with its code."""
    _open_closed_streams()
    sys.exit(run(sys.argv[1:]))


def _open_closed_streams() -> None:
    """Discard what is written to a standard stream that the caller has closed (``>&-``), as
    ``/dev/null`` does. Python has None in place of this stream, and the next file or connection
    would get the number of the stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(opened, mode, encoding="utf-8"))
