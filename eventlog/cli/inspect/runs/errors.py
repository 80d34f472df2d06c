"""The run of ``eventlog errors``: refused rows by cause (spec/event-log.md 11)."""

from __future__ import annotations

from eventlog.cli.consumer_option import config_for
from eventlog.cli.context import (
    CommandContext,
    note,
    print_json,
    reading,
    result,
    shown_commands,
    table,
)
from eventlog.cli.known_consumer import consumer_row
from eventlog.config.load import Config
from eventlog.publisher.declared import catalog_if_readable, find_log, loopback_user_of
from eventlog.publisher.inspect import read_refusals, refusals_data
from eventlog.publisher.stream.open_source import source_failures
from eventlog.sql.port import Purpose


def run_errors(
    context: CommandContext, consumer: str | None, limit: int, source: str | None, *, as_json: bool
) -> None:
    """Run ``eventlog errors``: the parameters are its argument and options."""
    config = config_for(context, consumer, source__type=source)
    if config.follows:
        _print_failures(config, limit, as_json=as_json)
        return
    consumer = consumer or config.of_log.consumer
    with reading(config, Purpose.MONITOR) as db:
        log = find_log(db, config)
        if consumer is not None:
            consumer_row(log, consumer)
        groups = read_refusals(
            log,
            limit,
            consumer or "",
            own_user=loopback_user_of(db, config),
            catalog=catalog_if_readable(log, config),
        )
    if as_json:
        print_json({"log": str(log), "errors": refusals_data(groups)})
        return
    if not groups:
        nothing = "no row of status E or F"
        if consumer is not None:
            nothing = (
                f"nothing that was refused for consumer {consumer} among the newest error rows"
            )
        result(f"log {log}: {nothing}")
        return
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
    note("once the cause is fixed, send the objects again with:")
    for one in groups:
        for line in shown_commands(one.commands):
            note(line)


def _print_failures(config: Config, limit: int, *, as_json: bool) -> None:
    groups = source_failures(config, limit)
    if as_json:
        print_json({"source": config.source.type, "errors": [group._asdict() for group in groups]})
    elif not groups:
        result(f"{config.publication}: nothing was refused")
    else:
        table(
            ("code", "number", "newest (UTC)", "for example", "reason"),
            [
                (one.code, one.number, f"{one.newest:%Y-%m-%d %H:%M:%S}", one.example, one.message)
                for one in groups
            ],
        )
        note(f"each with its event or change: {config.source.options.position_table}_error")
