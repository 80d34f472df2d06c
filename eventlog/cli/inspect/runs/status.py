"""The run of ``eventlog status`` and ``eventlog doctor``: the queue, the events being delivered,
and whether a publisher runs; the problems of log, triggers and rows, and their fixes
(spec/event-log.md 11).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

import click

from eventlog.cli.begin.settings import print_settings
from eventlog.cli.command import CommandResult, report
from eventlog.cli.context import (
    CommandContext,
    JsonObject,
    check_consumer,
    reading_log,
    report_error,
    result,
    table,
)
from eventlog.cli.inspect.health_lines import (
    COLOURS,
    Status,
    events_data,
    in_words,
    on_standby,
    print_events,
    print_health,
    print_letters,
)
from eventlog.cli.inspect.runs.process import with_process
from eventlog.cli.inspect.runs.source_status import print_source, status_of_source
from eventlog.cli.inspect.status import Doctor
from eventlog.cli.inspect.status import Status as StatusRequest
from eventlog.cli.stopping import UNTIL_STOPPED, if_stopped
from eventlog.config.effective import Effective, effective, grouped_settings
from eventlog.config.load import Config
from eventlog.config.settings import as_of_letters
from eventlog.core.clock import sleep
from eventlog.errors import ConfigError, DatabaseError, ReceiverUnavailable, number_of, visible
from eventlog.exit_codes import ExitCode
from eventlog.model import Status as RowStatus
from eventlog.publisher.context import Differences, Measured, SnapshotProgress, measure_queue
from eventlog.publisher.declared import (
    can_try,
    differences,
    planned_triggers,
    retention_of,
    try_receiver,
)
from eventlog.publisher.inspect import MAX_ROWS_BEHIND, consumer_statuses, examine
from eventlog.publisher.ledger import (
    CLAIM_WAYS_OUT,
    is_at_work,
    ledger_of,
    parked_number,
    read_recorded,
    waiting_events,
)
from eventlog.publisher.monitor.status import shape
from eventlog.publisher.run import Facts, judge
from eventlog.publisher.upkeep import with_retention
from eventlog.sql.doctor import Finding, Limits, age
from eventlog.sql.log import count_by_status, read_pause, seconds_of
from eventlog.sql.port import OpenLog, Purpose

_MEANINGS: Final[Mapping[str, str]] = {
    RowStatus.NEW: "new: to be published",
    RowStatus.SUCCESS: "success",
    RowStatus.WARNING: "warning",
    RowStatus.ERROR: "error: see the error table, then requeue",
    RowStatus.FATAL: "fatal: see the error table, then requeue",
}


def run_status(
    context: CommandContext, request: StatusRequest, config: Config
) -> CommandResult | None:
    """Run ``eventlog status`` for a log."""
    check_consumer(config, request.consumer)
    return _watched(context, request, partial(_status_of_log, config, request.limit))


def run_status_of_source(
    context: CommandContext, request: StatusRequest, config: Config
) -> CommandResult | None:
    """Run ``eventlog status`` for a followed source."""

    def read() -> CommandResult:
        status = status_of_source(config)
        return CommandResult(status, partial(print_source, status, request.limit))

    return _watched(context, request, read)


def _watched(
    context: CommandContext, request: StatusRequest, read: Callable[[], CommandResult]
) -> CommandResult | None:
    """Return the status, or with --watch show it until the command is stopped."""
    done = read()
    if request.watch is None:
        return done
    while True:
        click.clear()  # this has no effect unless standard output is a terminal
        report(context, done)
        if_stopped(UNTIL_STOPPED)
        is_read = False
        while not is_read:
            sleep(request.watch)
            try:
                done, is_read = read(), True
            except DatabaseError as error:  # the database may be available at the next refresh
                report_error(str(error), code=error.code)


def _status_of_log(config: Config, limit: int) -> CommandResult:
    """Return the status of the log; people see at most ``limit`` events being delivered."""
    consumer = config.of_log.consumer
    with reading_log(config, Purpose.MONITOR) as log:
        known = publishing_status(log, config, differences(log, config))
        if consumer is None:
            known |= {"rows": count_by_status(log)}
    known |= with_process(config, known["health"], known["publisher_runs"])
    status = shape(**known)
    return CommandResult(status, partial(_print_status, status, consumer, limit))


def publishing_status(
    log: OpenLog, config: Config, differ: Differences, cap: int | None = None
) -> JsonObject:
    """Return the status of a log's publisher, or of the configured consumer, from the database. The
    members of the status have the names that the monitor uses. ``backlog`` is None unless rows wait
    for the marks of a backlog job.

    ``differ`` is how the triggers differ from the declared triggers. ``cap`` is the maximum number
    of rows to count in the publisher's queue; None = all.
    """
    consumer, event_time_zone = config.of_log.consumer, config.publisher.event_time_zone
    ledger = ledger_of(log, consumer)
    deliveries, claim = read_recorded(log, ledger.consumer)
    consumers = consumer_statuses(log, event_time_zone)
    waiting = waiting_events(log, deliveries)
    measured = replace(Measured.read(log, ledger.consumer), consumers=consumers)
    if consumer is None:
        measured = with_retention(log, retention_of(config), event_time_zone, measured)
    runs = None if log.db.is_standby() else is_at_work(log, ledger.consumer)
    measured = _with_queue(log, consumer, event_time_zone, cap, measured)
    snapshot = measured.oldest_snapshot
    health = judge(
        Facts(
            state=_who_runs(runs, is_publisher=consumer is None),
            runs=runs,
            progress_seconds=measured.oldest_seconds or 0.0,
            measured=measured,
            oldest_seconds=measured.oldest_seconds,
            snapshot_seconds=None if snapshot is None else snapshot.seconds,
            differences=differ,
            consumers=consumers if consumer is None else (),
            parked=parked_number(waiting),
            awaits_time=bool(config.publisher.time_of_day) and runs is True and not deliveries,
        )
    )
    return {
        **measured.as_data(),
        "log": str(log) if consumer is None else f"{log}, consumer {consumer}",
        "publisher_runs": runs,
        "in_flight": events_data(waiting),
        "backlog": None if claim is None else claim.in_words,
        "drift": differ.sentences,
        "health": health,
    }


def _who_runs(runs: bool | None, *, is_publisher: bool) -> str:
    """Return the sentence about whether a publisher, or a consumer, runs. ``runs`` is None if this
    server is a standby.
    """
    if runs is None:
        return on_standby(is_publisher=is_publisher)
    return in_words(runs=runs, is_publisher=is_publisher)


def _with_queue(
    log: OpenLog, consumer: str | None, event_time_zone: str, cap: int | None, measured: Measured
) -> Measured:
    """Return ``measured`` with figures of the publisher, or of a registered consumer: the waiting
    rows, the oldest waiting row and the pause. For a consumer, the figures include its set and its
    snapshot.
    """
    if consumer is None:
        pause = read_pause(log)
        measured = replace(measured, pause=pause, paused_seconds=seconds_of(log, pause))
        if cap is not None:
            return measure_queue(log, event_time_zone, cap, measured=measured)
        queue = log.queue(event_time_zone)
        return replace(measured, queue_rows=queue.rows, oldest_seconds=queue.oldest_seconds)
    for own in measured.consumers:
        if own.name == consumer:
            return replace(
                measured,
                queue_rows=own.rows_behind,
                cap=MAX_ROWS_BEHIND,
                oldest_seconds=own.oldest_seconds,
                ranges=own.ranges,
                snapshot=own.snapshot,
                pause=own.pause,
                paused_seconds=own.paused_seconds,
            )
    return measured


def _print_status(status: Status, consumer: str | None, limit: int) -> None:
    _print_queue(status, consumer)
    print_events(status, limit)
    print_letters(status)
    if status["backlog"] is not None:
        result(f"{status['backlog']}:")
        for way_out in CLAIM_WAYS_OUT:
            result(f"    {way_out}")
    for one in status["consumers"]:
        _print_consumer(one)
    if (
        any(one["ranges"] for one in status["consumers"])
        and status["oldest_open_transaction"] is not None
    ):
        result(
            f"{visible(status['oldest_open_transaction'])} has had a transaction open for "
            f"{age(status['oldest_open_transaction_age_seconds'])}: until "
            "the transaction ends, the gaps between processed ranges stay"
        )
    for one in status["verified"]:
        result(_verified(one))
    for sentence in status["drift"]:
        result(f"triggers are not as declared: {visible(sentence)}; see `eventlog triggers plan`")


def _verified(one: Mapping[str, Any]) -> str:
    """Return a sentence about the last verification of a target."""
    through = one["verified_through"]
    until = "" if through is None else f", verified through {_utc(through)}"
    return f"verified at {_utc(one['ended'])}: {visible(one['target'])} is {one['result']}{until}"


def _utc(moment: str) -> str:
    """Return a time of ISO 8601 in UTC, written with or without its zone, as text with the zone
    UTC.
    """
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M:%S} UTC"


def _print_queue(status: Status, consumer: str | None) -> None:
    """Print who publishes the log and, for a publisher, the number of rows by status. For a
    consumer, rows have no status.
    """
    log = f"log {visible(status['log'])}"
    if consumer is None:
        result(f"{log}: {_who_runs(status['publisher_runs'], is_publisher=True)}")
        print_health(status)
        rows = status["rows"]
        statuses = [*_MEANINGS, *sorted(set(rows) - set(_MEANINGS))]
        table(
            ("status", "rows", "meaning"),
            [(one, rows.get(one, 0), _MEANINGS.get(one, "reserved, ignored")) for one in statuses],
        )
        if status["oldest_seconds"] is not None:
            result(f"oldest new row: {age(status['oldest_seconds'])}")
    elif status["queue_rows"] is None:
        result(f"{log}: the consumer is not registered yet; its first start registers it")
    else:
        result(f"{log}: {_who_runs(status['publisher_runs'], is_publisher=False)}")
        print_health(status)


def _print_consumer(one: Mapping[str, Any]) -> None:
    runs = "runs" if one["runs"] else "does not run"
    seconds = one["oldest_seconds"]
    oldest = "" if seconds is None else f", the oldest {age(seconds)}"
    snapshot = ""
    if one["snapshot"] is not None:
        snapshot = f", its snapshot {SnapshotProgress.from_data(one['snapshot']).in_words}"
    if one["paused"] is not None:
        runs += f", paused ({visible(one['paused']['reason'])})"
    result(
        f"consumer {one['name']} {runs}: {number_of(one['rows_behind'], 'row')} behind{oldest}, "
        f"{number_of(one['ranges'], 'range')} of processed record_ids{snapshot}"
    )


# --- doctor ---------------------------------------------------------------------------------------


def run_doctor_of_source(context: CommandContext, request: Doctor, config: Config) -> CommandResult:
    """Run ``eventlog doctor`` for a followed source."""
    if not request.receiver and config.database.url is None:
        raise ConfigError(
            "doctor checks a log. To check a source, run `eventlog status` "
            "and `eventlog publish --dry-run`"
        )
    return run_doctor(context, request, config)


def run_doctor(context: CommandContext, request: Doctor, config: Config) -> CommandResult:
    """Run ``eventlog doctor``."""
    if request.receiver:
        return _try_receiver(config)
    check_consumer(config, request.consumer)
    found = examine(config, planned_triggers, Limits(sample=request.sample))
    findings = [one for one in found if one.code not in request.ignore]
    settings = list(effective(config))
    counts = Counter(one.severity for one in findings)
    return CommandResult(
        {
            "log": config.database.log_table,
            "errors": counts["error"],
            "warnings": counts["warning"],
            "findings": [asdict(one) for one in findings],
            "settings": [setting._asdict() for setting in settings],
        },
        partial(_print_findings, config, findings, settings, context.quiet),
        ExitCode.NO if counts["error"] or counts["warning"] else ExitCode.DONE,
    )


class _Tried(NamedTuple):
    """What a test of a sink has found."""

    data: JsonObject
    severity: str
    line: str
    code: ExitCode


def _try_receiver(config: Config) -> CommandResult:
    """Try the sink, and the sink of dead letters if there is one."""
    first = _tried("sink", config)
    if (letters := config.of_letters) is None:
        return CommandResult(first.data, partial(_print_tried, [first]), first.code)
    second = _tried("dead letters, sink", letters)
    return CommandResult(
        {**first.data, "dead_letter": second.data},
        partial(_print_tried, [first, second]),
        max(first.code, second.code),
    )


def _tried(name: str, config: Config) -> _Tried:
    sink = config.sink.type
    try:
        answer = try_receiver(config, sys.stdout)
    except (ReceiverUnavailable, ConfigError) as error:
        why = str(error) if name == "sink" else as_of_letters(str(error))
        return _Tried(
            {"sink": sink, "reached": False, "text": why},
            "error",
            f"{name} {sink}: {visible(why)} [{error.code}]",
            ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.NO,
        )
    return _Tried(
        {"sink": sink, "reached": None if answer is None else True, "text": answer},
        "",
        f"{name} {sink}: {visible(answer or 'it has no receiver that can be tested')}",
        ExitCode.DONE,
    )


def _print_tried(tried: Sequence[_Tried]) -> None:
    for one in tried:
        if one.severity:
            _print_severe(one.severity, one.line)
        else:
            result(one.line)


def _print_severe(severity: str, text: str) -> None:
    result(f"{severity}: ", colour=COLOURS[severity], bold=True, end="")
    result(text)


def _print_findings(
    config: Config, findings: list[Finding], settings: list[Effective], quiet: bool
) -> None:
    for one in findings:
        if quiet and one.severity == "info":
            continue
        _print_severe(one.severity, f"{visible(one.text)} [{one.code}]")
        for line in one.fix:
            result(f"    {visible(line)}")
    if quiet:
        return
    # This also leaves out the settings of types that are not chosen.
    changed = [setting for setting in settings if not setting.source.startswith("default")]
    if changed:
        result("Settings in effect that differ from their defaults (`eventlog config` shows all):")
        print_settings(grouped_settings(changed))
    if can_try(config):
        result(
            f"The receiver was not tried. `eventlog doctor --receiver` tries the sink "
            f"{config.sink.type} without sending a change."
        )
    counts = Counter(one.severity for one in findings)
    if counts["error"] or counts["warning"]:
        result(
            f"errors: {counts['error']}, warnings: {counts['warning']}; "
            "`eventlog explain CODE` describes a code in brackets"
        )
    else:
        result("Nothing is wrong.")
