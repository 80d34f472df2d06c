"""The run of ``eventlog skip``: give up events that the receiver fails for, or record that refused
rows need nothing more (spec/event-log.md 11).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from eventlog.cli.command import CommandResult
from eventlog.cli.context import (
    CommandContext,
    changing_log,
    confirm,
    end_change,
    note,
    result,
    shown_commands,
    user_here,
)
from eventlog.cli.repair.requeue import parse_ids
from eventlog.cli.repair.skip import Skip
from eventlog.config.load import Config
from eventlog.core.catalog import Catalog
from eventlog.core.rows.event_ids import record_id_of
from eventlog.errors import ConfigError, number_of
from eventlog.publisher.declared import catalog_if_readable, class_named, read_catalog
from eventlog.publisher.inspect import (
    Skipped,
    given_up,
    ledger_to_skip,
    objects_of,
    parked_events,
    resync_commands,
    skip_refused,
)
from eventlog.publisher.inspect import skip as skip_events
from eventlog.publisher.stream.open_source import parked_in_source, skip_in_source
from eventlog.sql.port import OpenLog, Purpose
from eventlog.sql.readers import consumer_row


def run_skip(context: CommandContext, request: Skip, config: Config) -> CommandResult:
    """Run ``eventlog skip`` for a log."""
    consumer = request.consumer or config.of_log.consumer
    why = given_up(user_here(), request.reason)
    catalog, class_name = None, request.class_name
    with changing_log(config, Purpose.SKIP) as log:
        if class_name is not None:
            catalog = read_catalog(log, config)
            class_name = class_named(catalog, class_name).name
        if request.of_refused:
            return _skip_refused(log, request, consumer, class_name, catalog)
        ledger = ledger_to_skip(log, consumer, dry=request.dry)
        event_ids = request.event_ids
        if request.parked:
            event_ids = tuple(parked_events(log, ledger, class_name, catalog))
            _confirm(request, "gives up", len(event_ids), "event")
        skipped = skip_events(log, ledger, event_ids, why)
        end_change(log, dry=request.dry)
        return _result(request, skipped, [] if request.dry else _later(log, config, skipped))


def run_skip_of_source(context: CommandContext, request: Skip, config: Config) -> CommandResult:
    """Run ``eventlog skip`` for a followed source."""
    if request.of_refused or request.class_name is not None:
        raise ConfigError(
            "--refused and --class are for a log: the rows of a followed source have no status"
        )
    named = request.event_ids or parked_in_source(config)
    if request.dry:
        return _result(request, [Skipped(one, 0, 0, "") for one in named])
    if request.parked:
        _confirm(request, "gives up", len(named), "event")
    why = given_up(user_here(), request.reason)
    return _result(request, skip_in_source(config, named, why))


def _confirm(request: Skip, verb: str, number: int, noun: str) -> None:
    if number and not request.dry:
        confirm(f"This {verb} {number_of(number, noun)}.", yes=request.yes)


def _skip_refused(
    log: OpenLog,
    request: Skip,
    consumer: str | None,
    class_name: str | None,
    catalog: Catalog | None,
) -> CommandResult:
    """Record that refused rows need nothing more."""
    if consumer is not None:
        consumer_row(log, consumer)
    ids = None if request.ids is None else parse_ids(request.ids)
    why = given_up(user_here(), request.reason)
    skip = partial(skip_refused, log, consumer or "", why, ids, class_name, catalog)
    found = skip(dry=True)
    number = len(found.rows) + len(found.objects)
    if number and not request.dry:
        _confirm(request, "skips", number, "refused row")
        found = skip(dry=False)
        end_change(log, dry=False)
    objects = f" and {number_of(len(found.objects), 'object')}" if found.objects else ""
    would = "would be " if request.dry else ""
    return CommandResult(
        {"rows": found.rows, "objects": found.objects, "dry_run": request.dry},
        f"{number_of(len(found.rows), 'refused row')}{objects} {would}skipped",
    )


def _later(log: OpenLog, config: Config, skipped: Sequence[Skipped]) -> list[str]:
    """Return the commands that send the objects of skipped events again. Each object is sent with
    the values that it then has. The commands stay valid whatever is sent meanwhile. The role of
    this session need not be able to read the watched tables.
    """
    firsts = sorted(record_id_of(one.event_id) for one in skipped if one.rows)
    objects = objects_of(log, firsts)
    catalog = catalog_if_readable(log, config)
    commands, _ = resync_commands(log, catalog, objects, finds_deleted=False)
    return commands


def _result(
    request: Skip, skipped: Sequence[Skipped], commands: Sequence[str] = ()
) -> CommandResult:
    def show() -> None:
        if not skipped:
            result("no event is parked")
        verb = "would be given up" if request.dry else "is given up"
        for one in skipped:
            rows = (
                f": {number_of(one.rows, 'row')} set to E" if one.rows and not request.dry else ""
            )
            result(f"event {one.event_id} {verb}{rows}")
        if commands:
            note("to send the objects later, as they are then:")
        for line in shown_commands(commands):
            note(line)

    return CommandResult(
        {"skipped": [one._asdict() for one in skipped], "dry_run": request.dry}, show
    )
