"""``eventlog errors`` and ``show``: refused rows by cause, and one row explained (spec/event-log.md
11).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import click

from eventlog.cli import Command
from eventlog.cli.context import (
    CommandContext,
    json_option,
    note,
    print_json,
    reading,
    result,
    source_option,
    table,
)
from eventlog.config.load import Config
from eventlog.core.event_ids import is_of_snapshot
from eventlog.errors import ConfigError
from eventlog.publisher.context import Counters
from eventlog.publisher.explain import (
    LINES_READ,
    Explanation,
    Source,
    explain,
    explain_object,
    explanation_data,
    read_refusals,
    refusals_data,
)
from eventlog.publisher.ledger import SetLedger
from eventlog.publisher.open_context import find_log, open_unlocked, under_epoch
from eventlog.publisher.stream.open_source import source_failures
from eventlog.sql.consumers import ConsumerLine, has_table, read_consumer, read_consumers
from eventlog.sql.open_log import OpenLog

_WIDEST: Final = 1000
"""The most characters of a row's value to show; ``--json`` has all of them."""
_SOURCES: Final = {
    "in_flight": "as recorded for its delivery",
    "queue": "as the next cycle would fold it",
    "reconstructed": "reconstructed",
}


consumer_option = click.option(
    "--consumer",
    metavar="NAME",
    help="Work for this consumer of the log.  [default: the configured consumer]",
)


class RowOrObject(click.ParamType[int | str]):
    """The type of a record_id, or of the event-id of an object in a consumer's snapshot."""

    name = "record_id"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        if is_of_snapshot(value):
            return value
        if not re.fullmatch("0*[1-9][0-9]{0,17}", value, re.ASCII):
            self.fail(
                f"{value!r} is neither a record_id nor an event-id of an object in a snapshot",
                param,
                ctx,
            )
        return int(value)


@click.command(cls=Command)
@consumer_option
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=LINES_READ, metavar="LINES",
              help="How many of the newest error lines to read.")  # fmt: skip
@json_option
@source_option
@click.pass_obj
def errors(
    context: CommandContext, consumer: str | None, limit: int, as_json: bool, source: str | None
) -> None:
    """Show the rows of status E and F, grouped by cause, with the command that puts them back into
    the queue.

    Fix the cause first, or the rows are refused again. `eventlog explain` explains a single row. For a
    consumer it shows the rows, and the objects of its snapshot, that were refused for it.

    For a followed source it shows what was refused, by code. The source's error table has each
    event or change.
    """
    config = context.config(source__type=source)
    if config.follows:
        _print_failures(config, limit, as_json=as_json)
        return
    consumer = consumer or config.of_log.consumer
    with reading(config) as db:
        log = find_log(db, config)
        if consumer is not None:
            consumer_line(log, consumer)
        groups = read_refusals(log, limit, consumer or "")
    if as_json:
        print_json({"log": str(log), "errors": refusals_data(groups)})
        return
    if not groups:
        nothing = "no row of status E or F"
        if consumer is not None:
            nothing = f"nothing that was refused for consumer {consumer}"
        result(f"log {log}: {nothing} among the newest error lines")
        return
    table(
        ("code", "table", "status", "rows", "newest (UTC)", "for example", "reason"),
        [
            (
                one.code,
                one.table_name,
                one.status,
                one.rows,
                f"{one.newest:%Y-%m-%d %H:%M:%S}",
                one.example,
                one.message,
            )
            for one in groups
        ],
    )
    action = "send them again" if consumer else "put them back into the queue"
    note(f"once the cause is fixed, {action} with:")
    for one in groups:
        note(f"  {one.command}")


def consumer_line(log: OpenLog, name: str) -> ConsumerLine:
    """Return the line of a consumer. Raises ConfigError."""
    if has_table(log) and (line := read_consumer(log, name)) is not None:
        return line
    known = ", ".join(one.name for one in read_consumers(log)) or "none"
    raise ConfigError(f"the log {log} has no consumer {name!r}; its consumers are: {known}")


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


@click.command(cls=Command)
@click.argument("row", type=RowOrObject(), metavar="RECORD_ID")
@consumer_option
@json_option
@click.pass_obj
def show(context: CommandContext, row: int | str, consumer: str | None, as_json: bool) -> None:
    """Explain the row RECORD_ID of the log: its checks, its group, how precedence applied, and its
    outcome.

    The document of its event, or the one that it would make now, comes last. Nothing is marked or
    sent. For a consumer, RECORD_ID may also be the event-id of an object in its snapshot.
    """
    config = context.config()
    with open_unlocked(config, Counters()) as opened:
        if consumer is not None and consumer != opened.ledger.consumer:
            # The options of the consumer's own configuration decide its loopback rows.
            options = replace(opened.options, driver_user=None)
            opened = replace(opened, ledger=SetLedger(opened.log, consumer), options=options)
            opened = under_epoch(opened, opened.epoch)
        if opened.ledger.consumer:
            consumer_line(opened.log, opened.ledger.consumer)
            opened.log.commit()
        explanation = explain(opened, row) if isinstance(row, int) else explain_object(opened, row)
    if as_json:
        print_json(explanation_data(explanation))
    else:
        _print_explanation(explanation)


def _print_explanation(explanation: Explanation) -> None:
    _print_row_and_checks(explanation)
    for line in explanation.errors:
        result(f"error line of {line.error_time} UTC: {line.code}: {line.message}")
    if explanation.in_flight is not None and explanation.in_flight.event_ids > 1:
        result(f"its event is sent under its event-id number {explanation.in_flight.event_ids}")
    if explanation.source is not None:
        _print_group(explanation, explanation.source)
    if explanation.source is not None or explanation.row is None:
        if explanation.operation is None:
            result("it makes no event")
        else:
            result(f"it makes the event {explanation.event_id} ({explanation.operation}):")
    for sentence in explanation.notes:
        result(f"note: {sentence}")
    if explanation.document is not None:
        result(explanation.document, end="" if explanation.document.endswith("\n") else "\n")


def _print_row_and_checks(explanation: Explanation) -> None:
    """Print the row, or the object of a snapshot, and whether it passes the checks."""
    row, spelled = explanation.row, ""
    if row is None:
        result(f"object {explanation.event_id} of {explanation.log}: {explanation.state}")
    else:
        result(f"row {row.record_id} of {explanation.log}: {explanation.state}")
        fields = {name: value for name, value in row._asdict().items() if name != "record_id"}
        table(
            ("column", "value"),
            [
                (name, _short(value, _WIDEST) if isinstance(value, str) else value)
                for name, value in fields.items()
            ],
        )
        if explanation.key != row.table_key:
            spelled = ", spelled otherwise in the row"
    if explanation.problem is not None:
        result(f"it fails a check: {explanation.problem.code}: {explanation.problem.message}")
    elif explanation.class_name is None:
        result("it belongs to no published class")
    else:
        of_class = f"object {explanation.key} of class {explanation.class_name}"
        result(f"it passes all checks: {of_class}{spelled}")


def _print_group(explanation: Explanation, source: Source) -> None:
    """Print the rows that fold together, what happens to each, and what is read back."""
    result(f"its group, {_SOURCES[source]}:")
    table(
        ("record_id", "status", "type", "column", "old", "new", "what happens to it"),
        [one._replace(old=_short(one.old), new=_short(one.new)) for one in explanation.members],
    )
    if explanation.read_back is not None:
        result(f"read back from the object: {', '.join(explanation.read_back) or 'its existence'}")


def _short(value: str | None, most: int = 40) -> str | None:
    """Return the value cut to a length, before its width is measured."""
    return value if value is None or len(value) <= most else value[:most] + "..."
