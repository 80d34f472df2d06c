"""The run of ``eventlog skip``: give up events that the receiver fails for, or record that refused
rows need nothing more (spec/event-log.md 11).
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence

import click

from eventlog.cli.context import (
    CommandContext,
    confirm,
    note,
    print_json,
    result,
    session,
    shown_commands,
)
from eventlog.cli.known_consumer import consumer_row
from eventlog.cli.repair.requeue import parse_ids
from eventlog.cli.stopping import COMMITTING, DONE, if_stopped
from eventlog.config.load import Config
from eventlog.core.rows.event_ids import record_id_of
from eventlog.errors import ConfigError, number_of
from eventlog.publisher.declared import catalog_if_readable, class_named, find_log, read_catalog
from eventlog.publisher.inspect import (
    Skipped,
    objects_of,
    parked_events,
    resync_commands,
    skip_refused,
)
from eventlog.publisher.inspect import skip as skip_event
from eventlog.publisher.ledger import LOCK_WAIT, ledger_of, lock_within
from eventlog.publisher.stream.open_source import parked_in_source, skip_in_source
from eventlog.sql.port import OpenLog, Purpose


def run_skip(
    context: CommandContext,
    event_ids: tuple[str, ...],
    reason: str,
    ids: str | None,
    class_name: str | None,
    consumer: str | None,
    source: str | None,
    *,
    parked: bool,
    of_refused: bool,
    yes: bool,
    dry: bool,
    as_json: bool,
) -> None:
    """Run ``eventlog skip``: the parameters are its argument and options."""
    if bool(event_ids) + parked + of_refused != 1:
        raise click.UsageError("give either EVENT_ID, --parked or --refused")
    if ids is not None and not of_refused:
        raise click.UsageError("--ids names refused rows: give --refused too")
    if class_name is not None and event_ids:
        raise click.UsageError("--class narrows --parked or --refused: leave EVENT_ID out")
    config = context.config(source__type=source)
    why = f"given up by hand by {getpass.getuser()} on {socket.gethostname()}: {reason}"
    if config.follows:
        if consumer is not None:
            raise ConfigError("--consumer is for a log; a followed source has no consumers")
        if of_refused or class_name is not None:
            raise ConfigError(
                "--refused and --class are for a log: the rows of a followed source have no status"
            )
        named = event_ids or parked_in_source(config)
        if not dry and not event_ids:
            confirm(f"This gives up {number_of(len(named), 'event')}.", yes=yes)
        skipped = (
            [Skipped(one, 0, 0, "") for one in named] if dry else skip_in_source(config, named, why)
        )
        _print_skipped(skipped, dry=dry, as_json=as_json)
        return
    chosen = None if ids is None else parse_ids(ids)
    with session(config, Purpose.SKIP) as db:
        log = find_log(db, config)
        if class_name is not None:
            cls = class_named(read_catalog(log, config), class_name)
            class_name = cls.name
        consumer = consumer or config.of_log.consumer
        if of_refused:
            _skip_refused(log, config, consumer, why, chosen, class_name, yes, dry, as_json)
            return
        ledger = ledger_of(log, consumer)
        if ledger.consumer:
            consumer_row(log, ledger.consumer)
            if not dry:
                lock_within(ledger, LOCK_WAIT)
            ledger.recover()
        if parked:
            catalog = None if class_name is None else read_catalog(log, config)
            event_ids = tuple(parked_events(log, ledger, class_name, catalog))
            if event_ids and not dry:
                confirm(f"This gives up {number_of(len(event_ids), 'event')}.", yes=yes)
        skipped = [skip_event(log, ledger, one, why) for one in dict.fromkeys(event_ids)]
        if dry:
            log.connection.rollback()
        else:
            if_stopped(COMMITTING)
            log.commit()
            if_stopped(DONE)
        commands = [] if dry else _later(log, config, skipped)
    _print_skipped(skipped, dry=dry, as_json=as_json, commands=commands)


def _skip_refused(
    log: OpenLog,
    config: Config,
    consumer: str | None,
    why: str,
    ids: list[tuple[int, int]] | None,
    class_name: str | None,
    yes: bool,
    dry: bool,
    as_json: bool,
) -> None:
    """Record that refused rows need nothing more, and print how many."""
    if consumer is not None:
        consumer_row(log, consumer)
    catalog = None if class_name is None else read_catalog(log, config)
    name = consumer or ""
    found = skip_refused(log, name, why, ids, class_name, catalog, dry=True)
    number = len(found.rows) + len(found.objects)
    if not dry and number:
        confirm(f"This skips {number_of(number, 'refused row')}.", yes=yes)
        found = skip_refused(log, name, why, ids, class_name, catalog, dry=False)
        if_stopped(COMMITTING)
        log.commit()
        if_stopped(DONE)
    if as_json:
        print_json({"rows": found.rows, "objects": found.objects, "dry_run": dry})
        return
    objects = f" and {number_of(len(found.objects), 'object')}" if found.objects else ""
    would = "would be " if dry else ""
    result(f"{number_of(len(found.rows), 'refused row')}{objects} {would}skipped")


def _later(log: OpenLog, config: Config, skipped: Sequence[Skipped]) -> list[str]:
    """Return the commands that send the objects of skipped events as they are later. They are
    accepted whatever is sent meanwhile. This role need not read the watched tables.
    """
    firsts = sorted(record_id_of(one.event_id) for one in skipped if one.rows)
    objects = objects_of(log, firsts)
    catalog = catalog_if_readable(log, config)
    commands, _ = resync_commands(log, catalog, objects, finds_deleted=False)
    return commands


def _print_skipped(
    skipped: Sequence[Skipped], *, dry: bool, as_json: bool, commands: Sequence[str] = ()
) -> None:
    if as_json:
        print_json({"skipped": [one._asdict() for one in skipped], "dry_run": dry})
        return
    if not skipped:
        result("no event is parked")
    verb = "would be given up" if dry else "is given up"
    for one in skipped:
        rows = f": {number_of(one.rows, 'row')} set to E" if one.rows and not dry else ""
        result(f"event {one.event_id} {verb}{rows}")
    if commands:
        note("to send the objects later, as they are then:")
        for line in shown_commands(commands):
            note(line)
