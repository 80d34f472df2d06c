"""``eventlog top`` and ``tail``: the live state of a publisher, and the documents that it sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eventlog.cli import Command
from eventlog.cli.consumer_option import check_consumer, config_for, consumer_option
from eventlog.cli.context import (
    CommandContext,
    error_line,
    json_option,
    limit_option,
    note,
    print_json,
    reading,
    result,
    source_option,
)
from eventlog.cli.source_status import source_health
from eventlog.cli.status import publishing_status
from eventlog.cli.stopping import UNTIL_STOPPED, if_stopped
from eventlog.config.load import Config
from eventlog.core.clock import monotonic, sleep
from eventlog.errors import ConfigError, EventlogError, MonitorUnavailable, number_of
from eventlog.publisher.capture_watcher import CAPTURE_INTERVAL
from eventlog.publisher.monitor.status import HIDDEN, shape
from eventlog.publisher.observer import QUEUE_CAP, Differences, SnapshotProgress
from eventlog.publisher.open_context import find_log, retention_of
from eventlog.publisher.stream.open_source import source_status
from eventlog.publisher.trigger_plan import differences
from eventlog.sql.doctor import age
from eventlog.sql.rights import Purpose
from eventlog.transport.http import HttpClient, HttpFailed

_TIMEOUT: Final = 10.0
_MAX_BYTES: Final = 16 * 1024 * 1024
_SHOWN: Final = 8
_TABLES: Final[Sequence[tuple[str, str, Mapping[str, str]]]] = (
    (
        "parked",
        "parked",
        {
            "class": "class",
            "key": "key",
            "event-id": "event_id",
            "attempts": "attempts",
            "next attempt": "next_try_seconds",
            "last answer": "reason",
        },
    ),
    (
        "in_flight",
        "being delivered or parked (the monitor also has the times of the next attempts)",
        {
            "delivery": "delivery",
            "event-id": "event_id",
            "rows": "rows",
            "number": "event_id_number",
            "table": "table_name",
            "key": "table_key",
        },
    ),
    (
        "sent",
        "newest documents",
        {
            "delivery": "delivery",
            "document": "document",
            "events": "events",
            "answer after": "seconds",
            "answer": "level",
            "reason": "reason",
        },
    ),
)
"""The members of the status that are shown as tables: their titles, and their columns
by heading.
"""
_LEGEND: Final = (
    f"{HIDDEN} stands for values, keys and the receiver's messages: monitor.show_values = false"
)
_STYLES: Final = {"ok": "bold green", "warning": "bold yellow", "error": "bold red"}
_LEVELS: Final = {
    "success": "green",
    "warning": "yellow",
    "error": "red",
    "retry": "red",
    "fatal": "red",
}

Status = Mapping[str, Any]
Sent = Mapping[str, Any]
Read = Callable[[], Status]

_url_option = click.option(
    "--url", metavar="URL", help="The monitor of a publisher.  [default: that of monitor.listen]"
)


@click.command(cls=Command)
@_url_option
@click.option(
    "--database",
    "from_database",
    is_flag=True,
    help="Read from the database even if a monitor is configured.",
)
@click.option("--interval", type=click.FloatRange(min=0.2), default=2.0, metavar="SECONDS",
              help="Refresh interval.")  # fmt: skip
@source_option
@consumer_option
@click.pass_obj
def top(
    context: CommandContext,
    url: str | None,
    from_database: bool,
    interval: float,
    source: str | None,
    consumer: str | None,
) -> None:
    """Show live what a publisher does, until Ctrl-C: its state, the queue, rates, parked objects,
    the newest documents.

    The publisher's monitor has all of it. Without the monitor, the database shows the queue and
    what is being delivered, or for a followed source how many changes follow its position; with
    --consumer the database is read unless --url names the monitor of the consumer's process. If
    standard output is not a terminal, the command prints the state once and ends. There is no
    --json: programs read `eventlog status --json` and the monitor's /metrics.
    """
    config = config_for(context, consumer, source__type=source)
    check_consumer(config, consumer)
    # The configured monitor may be that of another process than the consumer's.
    from_database = from_database or (consumer is not None and url is None)
    if from_database or (url := _monitor_url(config, url)) is None:
        read = _from_database(config)
    else:
        read = read_monitor(url, config.monitor.token)
    console = Console()
    if not console.is_terminal:
        console.print(_picture(read(), None))
        return
    if_stopped(UNTIL_STOPPED)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for picture in _pictures(read, interval):
            live.update(picture, refresh=True)


def _monitor_url(config: Config, url: str | None) -> str | None:
    """Return the URL of a publisher's monitor: --url, else the configured one, else None."""
    if url is not None or config.monitor.listen is None:
        return url
    return f"{'http' if config.monitor.certificate is None else 'https'}://{config.monitor.listen}/"


def read_monitor(url: str, token: str | None) -> Read:
    """Return a function that reads the monitor's status with each call.

    The function raises MonitorUnavailable if no monitor answers there, ConfigError if the token is
    refused.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url}: write it as http://127.0.0.1:9464/")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def read() -> Status:
        with closing(HttpClient(url, timeout=_TIMEOUT, max_response_bytes=_MAX_BYTES)) as client:
            try:
                answer = client.request("GET", headers, path="/status.json")
                if answer.status == 401:
                    raise ConfigError(f"{client.shown} needs a token: set EVENTLOG_MONITOR_TOKEN")
                if answer.status != 200:
                    raise MonitorUnavailable(
                        f"{client.shown} returned {answer.status}; "
                        "check that it is a publisher's monitor"
                    )
                status: Status = json.loads(answer.body)
            except (HttpFailed, ValueError) as error:
                raise MonitorUnavailable(
                    f"{client.shown} does not answer: {error}; check that the publisher runs"
                ) from None
            return status

    return read


def _from_database(config: Config) -> Read:
    """Return a function that reads the status from the database alone, without counting the whole
    log. For a followed source it reads the position and the number of changes after it. The
    function raises DatabaseError.
    """

    def read_source() -> Status:
        known = source_status(config)
        behind, unit = (None, None) if known.behind is None else known.behind
        return shape(
            health=source_health(known).as_data(),
            log=config.publication,
            publisher_runs=known.publisher_runs,
            source_lag=behind,
            source_lag_unit=unit,
        )

    compared: tuple[float, Differences] | None = None

    def read() -> Status:
        nonlocal compared
        with reading(config, Purpose.MONITOR) as db:
            log, zone = find_log(db, config), config.publisher.event_time_zone
            if compared is None or monotonic() > compared[0] + CAPTURE_INTERVAL:
                compared = monotonic(), differences(db, config)
            consumer = config.of_log.consumer
            return shape(
                **publishing_status(
                    log, consumer, zone, compared[1], retention_of(config), QUEUE_CAP
                )
            )

    return read_source if config.follows else read


def _pictures(read: Read, interval: float) -> Iterator[Group]:
    """Yield a picture of the status at each interval. If reading fails, yield the error; the next
    attempt may succeed.
    """
    before: tuple[float, Status] | None = None
    while True:
        try:
            status = read()
        except EventlogError as error:
            yield Group(Text(str(error), style="bold red"))
        else:
            yield _picture(status, before)
            before = monotonic(), status
        sleep(interval)


def _picture(status: Status, before: tuple[float, Status] | None) -> Group:
    health, state = status["health"], status["state"]
    parts: list[Text | Table] = [
        Text(f"{status['log']}: {health['sentence']}", style=_STYLES[health["severity"]]),
        *_conditions(health),
        _figures(status, before),
    ]
    if state is None:
        parts.append(Text("the monitor of a publisher shows more", style="dim"))
    for member, title, columns in _TABLES:
        if rows := status[member]:
            table = Table(*columns, title=title, title_justify="left", expand=False)
            for row in rows[:_SHOWN]:
                table.add_row(*(_cell(key, row[key]) for key in columns.values()))
            parts.append(table)
    if HIDDEN in json.dumps(status, ensure_ascii=False, default=str):
        parts.append(Text(_LEGEND, style="dim"))
    return Group(*parts)


def _conditions(health: Mapping[str, Any]) -> Iterator[Text]:
    """Yield what to do about the most severe condition, and the other conditions."""
    conditions = health["conditions"]
    if conditions:
        commands = "; ".join(conditions[0]["commands"])
        yield Text(f"  {health['action']}{f' {commands}' if commands else ''}")
    for one in conditions[1:]:
        yield Text(f"  {one['severity']}: {one['text']}", style=_STYLES[one["severity"]])


def _cell(key: str, value: Any) -> Text:
    match key:
        case "next_try_seconds":
            return Text(age(value))
        case "seconds":
            return Text(f"{value * 1000:.1f} ms")
        case "level":
            return Text(value, style=_LEVELS[value])
        case _:
            return Text("-" if value is None else str(value))


def _figures(status: Status, before: tuple[float, Status] | None) -> Table:
    """Return the figures of a status, with rates since the earlier one."""
    if (job := status["job"]) is not None:  # the status is a backlog job's
        total = f" of {job['total']:,}" if job["total"] else ""
        figures = [("rows", f"{job['rows']:,}{total}"), ("events written", f"{job['events']:,}")]
    else:
        figures = [*_waiting(status), *_counted(status, before)]
    grid = Table.grid(padding=(0, 3))
    for name, value in figures:
        grid.add_row(Text(name, style="dim"), value)
    return grid


def _waiting(status: Status) -> Iterator[tuple[str, str]]:
    """Yield what waits to be published: in the log or the source, for the snapshot, and for each
    consumer.
    """
    queue, cap, oldest = status["queue_rows"], status["queue_cap"], status["oldest_seconds"]
    if status["source_lag"] is not None:
        yield f"{status['source_lag_unit']} after the position", f"{status['source_lag']:,}"
    else:
        or_more = " or more" if None not in (queue, cap) and queue >= cap else ""
        yield "rows in the queue", "-" if queue is None else f"{queue:,}{or_more}"
        yield "oldest row", "-" if oldest is None else age(oldest)
    if status["snapshot"] is not None:
        yield "snapshot", SnapshotProgress.from_data(status["snapshot"]).in_words
    for one in status["consumers"] or ():
        yield f"rows that consumer {one['name']} has to process", f"{one['rows_behind']:,}"


def _counted(status: Status, before: tuple[float, Status] | None) -> Iterator[tuple[str, str]]:
    """Yield the counters of the publisher, which only its monitor has, with their rates."""
    counters = status["counters"]
    if counters is None:
        return
    for name in ("rows_published", "rows_invalid", "events_sent", "answers_error"):
        rate = ""
        if before is not None and before[1]["counters"] is not None:
            seconds = max(monotonic() - before[0], 1e-9)
            rate = f"  ({(counters[name] - before[1]['counters'][name]) / seconds:,.0f} a second)"
        yield name.replace("_", " "), f"{counters[name]:,}{rate}"


# --- tail


@click.command(cls=Command)
@_url_option
@limit_option("of the newest documents to begin with", 10, "-n")
@click.option(
    "--follow/--no-follow", default=True, help="Continue with each document that is sent, or end."
)
@click.option("--interval", type=click.FloatRange(min=0.2), default=1.0, metavar="SECONDS",
              help="Refresh interval.")  # fmt: skip
@json_option
@click.pass_obj
def tail(
    context: CommandContext,
    url: str | None,
    limit: int,
    follow: bool,
    interval: float,
    as_json: bool,
) -> None:
    """Show the documents that were sent recently, with their answers, and those that follow until
    Ctrl-C.

    Only the publisher's monitor has them: the database keeps the outcome of each row, but not what
    was sent when. `eventlog explain` explains a row from the database alone.
    """
    config = context.config()
    if (url := _monitor_url(config, url)) is None:
        raise ConfigError(
            "tail needs the monitor of a running publisher, since the database does not keep what "
            "was sent: give --url, or set listen in [monitor]. "
            "`eventlog status` shows what is being delivered"
        )
    read = read_monitor(url, config.monitor.token)
    if follow:
        if_stopped(UNTIL_STOPPED)
    for sent in _followed(read, limit, interval if follow else None):
        if as_json:
            print_json(sent, indent=None)
        else:
            level = sent["level"]
            result(_line(sent), colour=None if level == "success" else _LEVELS[level])


def _followed(read: Read, first: int, interval: float | None) -> Iterator[Sent]:
    """Yield the ``first`` newest documents, then those that follow unless ``interval`` is None."""
    sent: Sequence[Sent] = read()["sent"] or ()
    yield from reversed(sent[:first])
    newest = sent[0] if sent else None
    while interval is not None:
        sleep(interval)
        try:
            sent = read()["sent"] or ()
        except MonitorUnavailable as error:  # the publisher may restart
            error_line(str(error))
            continue
        if newest is not None and newest not in sent and sent:
            note(
                f"some documents may be missing: the monitor keeps only the newest {len(sent)}, "
                "or it restarted"
            )
        new = sent[: sent.index(newest)] if newest in sent else sent
        yield from reversed(new)
        newest = sent[0] if sent else None


def _line(sent: Sent) -> str:
    moment = datetime.fromtimestamp(sent["at"], UTC)
    at = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    ids = sent["first_id"]
    if sent["last_id"] != ids:
        ids = f"{ids} to {sent['last_id']}"
    reason = f": {sent['reason']}" if sent["reason"] else ""
    return (
        f"{at} delivery {sent['delivery']} document {sent['document']}: "
        f"{number_of(sent['events'], 'event')} ({ids}), {sent['level']} after "
        f"{sent['seconds'] * 1000:.1f} ms{reason}"
    )
