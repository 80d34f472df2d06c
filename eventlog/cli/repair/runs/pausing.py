"""The runs of ``eventlog pause`` and ``eventlog resume`` (spec/event-log.md 8.8)."""

from __future__ import annotations

from typing import Never

from eventlog.cli.command import CommandResult
from eventlog.cli.context import CommandContext, changing_log, end_change, user_here
from eventlog.cli.repair.pausing import Pause, Resume
from eventlog.config.load import Config
from eventlog.errors import ConfigError
from eventlog.publisher.inspect import pause_reader, resume_reader
from eventlog.sql.port import Purpose


def run_pause(context: CommandContext, request: Pause, config: Config) -> CommandResult:
    """Run ``eventlog pause`` for a log."""
    consumer = request.consumer or config.of_log.consumer
    with changing_log(config, Purpose.OPERATE) as log:
        pause = pause_reader(log, consumer, request.reason, user_here())
        end_change(log, dry=False)
    data = {"log": str(log), "consumer": consumer, "paused": pause.as_data()}
    return CommandResult(data, f"log {log}: {pause}", is_confirmation=True)


def run_resume(context: CommandContext, request: Resume, config: Config) -> CommandResult:
    """Run ``eventlog resume`` for a log."""
    consumer = request.consumer or config.of_log.consumer
    with changing_log(config, Purpose.OPERATE) as log:
        ended = resume_reader(log, consumer)
        end_change(log, dry=False)
    reader = f"consumer {consumer}" if consumer else "the publisher"
    words = f"{reader} is not paused"
    if ended is not None:
        words = f"{reader} is resumed; it was paused by {ended.by}: {ended.reason}"
    was = None if ended is None else ended.as_data()
    data = {"log": str(log), "consumer": consumer, "was_paused": was}
    return CommandResult(data, f"log {log}: {words}", is_confirmation=True)


def run_pause_of_source(context: CommandContext, request: object, config: Config) -> Never:
    """Refuse ``eventlog pause`` and ``eventlog resume`` for a followed source."""
    raise ConfigError(
        "pause and resume are for a log; stop the publisher of a followed source instead: it "
        "continues at its position when it is started again"
    )


run_resume_of_source = run_pause_of_source
