"""What a command is: a request, its run, and its result.

A request is a class with a field for each argument and option, and with the help of the command as
docstring. One that contradicts itself cannot be made: it raises UsageError or ConfigError. Its
``run`` imports what it needs, so that help does not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import click

from eventlog.cli.context import CommandContext, note, print_json, result
from eventlog.config.load import Config
from eventlog.errors import ConfigError
from eventlog.exit_codes import ExitCode


class CommandResult(NamedTuple):
    """What a command has found or done."""

    data: Any
    """What ``--json`` prints."""
    show: str | Callable[[], object]
    """What people see: lines, or a function that prints it."""
    exit_code: ExitCode = ExitCode.DONE
    is_confirmation: bool = False
    """True if it only confirms what was done, so that ``--quiet`` leaves it out."""
    notes: Sequence[str] = ()
    """Lines about it on standard error, which ``--json`` does not replace."""


Done = CommandResult | ExitCode | None
"""What the run of a request returns: a result to report, or only an exit code."""

_SETTINGS: Final = {
    "source": "source__type",
    "consumer": "source__consumer",
    "format_name": "format__type",
}


class AddressedRequest:
    """A request to the log or to the followed source, whichever is configured; ``of_log`` and
    ``of_source`` are its runs.
    """

    overriding: Iterable[str] = _SETTINGS
    """The fields that override settings, where the command has these options."""
    consumer: str | None

    def run(self, context: CommandContext) -> Done:
        flags = {_SETTINGS[name]: getattr(self, name, None) for name in self.overriding}
        config = context.config(**flags)
        if not config.follows:
            return self.of_log(context, config)
        if self.consumer is not None:
            raise ConfigError("--consumer is for a log; a followed source has no consumers")
        return self.of_source(context, config)

    of_log: Callable[[CommandContext, Config], Done]
    of_source: Callable[[CommandContext, Config], Done]


def report(context: CommandContext, done: CommandResult, *, indent: int | None = 2) -> ExitCode:
    """Print a result in the form that the command line asks for, and return its exit code.
    ``indent`` is that of ``print_json``.
    """
    if context.as_json:
        print_json(done.data, indent=indent)
    elif not (context.quiet and done.is_confirmation):
        done.show() if callable(done.show) else result(done.show)
    for line in done.notes:
        note(line)
    return done.exit_code


def _take_json(ctx: click.Context, _option: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        ctx.obj = replace(ctx.obj, as_json=True)


json_option: Final = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_take_json,
    help="Print the result as JSON, for programs.",
)
