"""``eventlog health``: a probe that runs often, so it imports few modules."""

from __future__ import annotations

from pathlib import Path

import click

from eventlog.cli import Command
from eventlog.cli.context import FILE, CommandContext, json_option, print_json, result
from eventlog.core.clock import unix_time
from eventlog.errors import ConfigError
from eventlog.exit_codes import ExitCode
from eventlog.files.health_file import read_health


@click.command(cls=Command)
@click.option(
    "--file",
    "path",
    type=FILE,
    metavar="FILE",
    help="The health file, in place of publisher.health_file.",
)
@json_option
@click.pass_obj
def health(context: CommandContext, path: Path | None, as_json: bool) -> ExitCode:
    """Check whether the publisher is alive, by the file that it touches (publisher.health_file).

    A publisher that waits for an unavailable receiver or database is alive. The command does not
    connect to the database.
    """
    file = path or context.config().publisher.health_file
    if file is None:
        raise ConfigError(
            "no health file is given: set health_file in [publisher] of eventlog.toml, "
            "EVENTLOG_PUBLISHER_HEALTH_FILE, or --file"
        )
    state = read_health(file, unix_time())
    if as_json:
        print_json(state._asdict())
    elif not (context.quiet and state.is_healthy):
        result(f"{'healthy' if state.is_healthy else 'not healthy'}: {state.reason}")
    return ExitCode.DONE if state.is_healthy else ExitCode.FAILED
