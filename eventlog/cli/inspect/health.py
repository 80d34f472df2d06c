"""``eventlog health``: a probe that runs often, so it imports few modules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eventlog.cli import command
from eventlog.cli.command import CommandResult, Request
from eventlog.cli.context import CommandContext, file_option, json_option
from eventlog.core.clock import unix_time
from eventlog.errors import ConfigError
from eventlog.exit_codes import ExitCode
from eventlog.files.health_file import read_health


@file_option("--file", "path", help="The health file, in place of publisher.health_file.")
@json_option
@dataclass(frozen=True)
class ProbeHealth(Request):
    """Check whether the publisher is alive, by the file that it touches (publisher.health_file).

    A publisher that waits for an unavailable receiver or database is alive. The command does not
    connect to the database.
    """

    path: Path | None

    def run(self, context: CommandContext) -> CommandResult:
        """Read the file."""
        file = self.path or context.config().publisher.health_file
        if file is None:
            raise ConfigError(
                "no health file is given: set health_file in [publisher] of eventlog.toml, "
                "EVENTLOG_PUBLISHER_HEALTH_FILE, or --file"
            )
        state = read_health(file, unix_time())
        return CommandResult(
            state._asdict(),
            f"{'healthy' if state.is_healthy else 'not healthy'}: {state.reason}",
            ExitCode.DONE if state.is_healthy else ExitCode.FAILED,
            is_confirmation=state.is_healthy,
        )


health = command(ProbeHealth)
