"""What a command is: a request, its run, and its result.

A request has a field for each argument and option, and the help of the command as docstring. Making
a request that contradicts itself raises UsageError or ConfigError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from eventlog.cli.context import CommandContext, note, print_json, result
from eventlog.errors import ConfigError
from eventlog.exit_codes import ExitCode


class CommandResult(NamedTuple):
    """What a command has found or done."""

    data: Any
    """What ``--json`` prints."""
    show: str | Callable[[], object]
    """What people see: lines, or a function that prints it; empty = nothing."""
    exit_code: ExitCode = ExitCode.DONE
    is_confirmation: bool = False
    """True if the result only confirms what was done, so that ``--quiet`` leaves it out."""
    notes: Sequence[str] = ()
    """Lines about the result on standard error. ``--json`` does not replace these lines."""


class Request:
    """What a command line asks for. The function ``run_CLASS`` in ``runs/MODULE.py`` runs the
    request; CLASS and MODULE are the request's class and module. The function is imported on use,
    so that help does not load it.
    """

    def run(self, context: CommandContext) -> Any:
        """Run the request, and return a CommandResult, an exit code, or None."""
        return self.runner()(context, self, context.config())

    def runner(self, address: str = "") -> Any:
        """Return the function that runs the request. The function's name ends with ``address``:
        ``_of_source`` for a followed source.
        """
        room, _, module = self.__module__.rpartition(".")
        runs = import_module(f"{room}.runs.{module}")
        return getattr(runs, f"run_{type(self).__name__.lower()}{address}")


_SETTINGS: Final = {
    "source": "source.type",
    "consumer": "source.consumer",
    "format_name": "format.type",
}


class AddressedRequest(Request):
    """A request to the log or to the followed source, whichever is configured; the run for a source
    is ``run_CLASS_of_source``.
    """

    overriding: Iterable[str] = _SETTINGS
    """The fields that override settings, if the command has options for them."""
    consumer: str | None

    def run(self, context: CommandContext) -> Any:
        flags = {_SETTINGS[name]: getattr(self, name, None) for name in self.overriding}
        config = context.with_flags(flags).config()
        if config.follows and self.consumer is not None:
            raise ConfigError("--consumer is for a log; a followed source has no consumers")
        return self.runner("_of_source" if config.follows else "")(context, self, config)


def report(context: CommandContext, done: CommandResult, *, indent: int | None = 2) -> ExitCode:
    """Print a result in the form that the command line asks for, and return its exit code.
    ``indent`` is as in ``print_json``.
    """
    if context.as_json:
        print_json(done.data, indent=indent)
    elif done.show and not (context.quiet and done.is_confirmation):
        done.show() if callable(done.show) else result(done.show)
    for line in done.notes:
        note(line)
    return done.exit_code
