"""The run of ``eventlog errors``: refused rows by cause (spec/event-log.md 11)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from eventlog.cli.command import CommandResult
from eventlog.cli.context import CommandContext, note, reading_log, shown_commands, table
from eventlog.cli.inspect.errors import Errors
from eventlog.config.load import Config
from eventlog.publisher.declared import catalog_if_readable, loopback_user_of
from eventlog.publisher.inspect import Refusals, read_refusals, refusals_data
from eventlog.publisher.stream.open_source import source_failures
from eventlog.sql.port import Purpose
from eventlog.sql.readers import consumer_row


def run_errors(context: CommandContext, request: Errors, config: Config) -> CommandResult:
    """Run ``eventlog errors`` for a log."""
    consumer = config.of_log.consumer
    with reading_log(config, Purpose.MONITOR) as log:
        if consumer is not None:
            consumer_row(log, consumer)
        groups = read_refusals(
            log,
            request.limit,
            consumer or "",
            own_user=loopback_user_of(log.db, config),
            catalog=catalog_if_readable(log, config),
        )
    data = {"log": str(log), "errors": refusals_data(groups)}
    if groups:
        return CommandResult(data, partial(_show, groups))
    nothing = "no row of status E or F"
    if consumer is not None:
        nothing = f"nothing was refused for consumer {consumer} in the newest error rows"
    return CommandResult(data, f"log {log}: {nothing}")


def _show(groups: Sequence[Refusals]) -> None:
    table(
        ("code", "table", "status", "rows", "newest (UTC)", "for example", "reason"),
        [
            (
                one.code,
                one.table_name,
                one.status,
                one.rows,
                None if one.newest is None else f"{one.newest:%Y-%m-%d %H:%M:%S}",
                one.example,
                one.message,
            )
            for one in groups
        ],
    )
    if any(one.commands for one in groups):
        note("once the cause is fixed, send the objects again with:")
    for one in groups:
        for line in shown_commands(one.commands):
            note(line)


def run_errors_of_source(context: CommandContext, request: Errors, config: Config) -> CommandResult:
    """Run ``eventlog errors`` for a followed source."""
    groups = source_failures(config, request.limit)

    def show() -> None:
        table(
            ("code", "number", "newest (UTC)", "for example", "reason"),
            [
                (one.code, one.number, f"{one.newest:%Y-%m-%d %H:%M:%S}", one.example, one.message)
                for one in groups
            ],
        )
        note(f"the table {config.source.options.position_table}_error has the events or changes")

    return CommandResult(
        {"source": config.source.type, "errors": [group._asdict() for group in groups]},
        show if groups else f"{config.publication}: nothing was refused",
    )
