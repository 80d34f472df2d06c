"""The run of ``eventlog top``: the live state of a publisher."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eventlog.cli.context import CommandContext, check_consumer, reading_log
from eventlog.cli.inspect.health_lines import Status
from eventlog.cli.inspect.runs.event_view import event_picture
from eventlog.cli.inspect.runs.explain import explanation_of
from eventlog.cli.inspect.runs.keys import ReadKey, keys
from eventlog.cli.inspect.runs.monitor import LEVELS, Read, monitor_url, read_monitor
from eventlog.cli.inspect.runs.source_status import status_of_source
from eventlog.cli.inspect.runs.status import publishing_status
from eventlog.cli.inspect.top import Top
from eventlog.cli.stopping import UNTIL_STOPPED, if_stopped
from eventlog.config.load import Config
from eventlog.core.clock import monotonic
from eventlog.core.rows.event_ids import row_or_object
from eventlog.errors import EventlogError
from eventlog.publisher.context import QUEUE_CAP, Differences, Seen, SnapshotProgress
from eventlog.publisher.declared import CAPTURE_INTERVAL, differences
from eventlog.publisher.inspect import explanation_data
from eventlog.publisher.monitor.status import HIDDEN, shape
from eventlog.publisher.stream.open_source import explained_events
from eventlog.sql.doctor import age
from eventlog.sql.port import Purpose

Explain = Callable[[str], Status]
"""A function that returns the explanation of an event by its event-id."""
_Dated = tuple[float, Status]
"""A status, and the time when it was read."""
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
            "first event": "first_id",
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
_COUNTED: Final[Mapping[str, Sequence[str]]] = {
    "rows published": ("rows_published",),
    "events answered": ("answers_success", "answers_warning", "answers_error", "answers_fatal"),
}
"""The counters that are shown; an event that is sent again counts once. Refused events appear as a
condition of the health.
"""
_KEYS: Final = "up and down select an event, Enter opens it, Esc closes it, q quits"
_STYLES: Final = {"ok": "bold green", "warning": "bold yellow", "error": "bold red"}


def run_top(context: CommandContext, request: Top, config: Config) -> None:
    """Run ``eventlog top`` for a log. The database is read without counting the whole log."""
    check_consumer(config, request.consumer)
    compared: tuple[float, Differences] | None = None

    def read() -> Status:
        nonlocal compared
        with reading_log(config, Purpose.MONITOR) as log:
            if compared is None or monotonic() > compared[0] + CAPTURE_INTERVAL:
                compared = monotonic(), differences(log, config)
            known = publishing_status(log, config, compared[1], QUEUE_CAP)
        return shape(**known | {"health": known["health"].as_data()})

    def explain(event_id: str) -> Status:
        row = row_or_object(event_id)
        assert row is not None  # it is of the status
        explained = explanation_of(config, row, request.consumer)
        return explanation_data(replace(explained, seen=Seen()))

    _show(request, config, read, explain)


def run_top_of_source(context: CommandContext, request: Top, config: Config) -> None:
    """Run ``eventlog top`` for a followed source."""

    def explain(event_id: str) -> Status:
        _, (explained,) = explained_events(config, event_id)
        return explanation_data(replace(explained, seen=Seen()))

    _show(request, config, partial(status_of_source, config), explain)


def _show(request: Top, config: Config, read: Read, explain: Explain) -> None:
    """Show the status of the monitor. If there is no monitor, show the status that ``read`` returns
    from the database. ``explain`` returns the explanation of an event from the database.
    """
    # The configured monitor may be that of another process than the consumer's.
    from_database = request.from_database or (request.consumer is not None and request.url is None)
    if not from_database and (url := monitor_url(config, request.url)) is not None:
        token = config.monitor.client_token
        read = read_monitor(url, token)
        explain = partial(_explained_by_monitor, url, token)
    console = Console()
    if not console.is_terminal:
        console.print(_picture(read(), None, None))
        return
    if_stopped(UNTIL_STOPPED)
    with keys() as read_key, Live(console=console, screen=True, auto_refresh=False) as live:
        for picture in _pictures(read, explain, read_key, request.interval):
            live.update(picture, refresh=True)


def _explained_by_monitor(url: str, token: str | None, event_id: str) -> Status:
    return read_monitor(url, token, f"/rows/{quote(event_id, safe='')}.json")()


class _Screen(NamedTuple):
    """What the user has chosen."""

    selected: int = 0
    """The place of the selected event among the events of the status."""
    opened: str = ""
    """The event-id of the event that is shown, empty = the status is shown."""

    def pressed(self, key: str, events: Sequence[str]) -> _Screen:
        """Return the screen after a key. ``events`` are the events of the status."""
        if self.opened:
            return self._replace(opened="") if key in ("back", "enter", "quit") else self
        last = max(0, len(events) - 1)
        if key in ("up", "down"):
            place = self.selected + (1 if key == "down" else -1)
            return self._replace(selected=min(last, max(0, place)))
        if key == "enter" and events:
            return self._replace(opened=events[min(self.selected, last)])
        return self


def _pictures(read: Read, explain: Explain, read_key: ReadKey, interval: float) -> Iterator[Group]:
    """Yield a picture at each interval and after each key, until the key to quit is pressed. A
    picture shows the status, or the event that is opened. If reading fails, yield the error; the
    next attempt may succeed.
    """
    before: _Dated | None = None
    now: _Dated | None = None
    screen, due, key = _Screen(), 0.0, ""
    while True:
        try:
            if monotonic() >= due:
                before, now = now, (monotonic(), read())
                due = monotonic() + interval
            assert now is not None
            if not screen.opened:
                yield _picture(now[1], before, screen.selected)
            else:
                yield event_picture(screen.opened, explain(screen.opened))
        except EventlogError as error:
            now, due = None, 0.0
            yield Group(Text(str(error), style="bold red"))
        key = read_key(interval if now is None else max(0.0, due - monotonic()))
        if key == "quit" and not screen.opened:
            return
        screen = screen.pressed(key, [] if now is None else _events_of(now[1]))


def _events_of(status: Status) -> list[str]:
    """Return the event-ids of the tables, in their order."""
    rows = [row for member, *_ in _TABLES for row in (status[member] or ())[:_SHOWN]]
    return [str(row["first_id"] if "first_id" in row else row["event_id"]) for row in rows]


def _picture(status: Status, before: _Dated | None, selected: int | None) -> Group:
    health, state = status["health"], status["state"]
    conditions = health["conditions"]
    sentence = conditions[0]["text"] if conditions else health["sentence"]
    parts: list[Text | Table] = [
        Text(f"{status['log']}: {sentence}", style=_STYLES[health["severity"]]),
        *_conditions(health),
        _figures(status, before),
    ]
    if state is None:
        parts.append(Text("the monitor of a publisher shows more", style="dim"))
    place = 0
    for member, title, columns in _TABLES:
        if rows := status[member]:
            table = Table(*columns, title=title, title_justify="left", expand=False)
            for row in rows[:_SHOWN]:
                style = "reverse" if place == selected else None
                cells = (_cell(key, row.get(key)) for key in columns.values())
                table.add_row(*cells, style=style)
                place += 1
            parts.append(table)
    if HIDDEN in json.dumps(status, ensure_ascii=False, default=str):
        parts.append(Text(_LEGEND, style="dim"))
    if selected is not None:
        parts.append(Text(_KEYS, style="dim"))
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
            return Text(value, style=LEVELS[value])
        case _:
            return Text("-" if value is None else str(value))


def _figures(status: Status, before: _Dated | None) -> Table:
    """Return the figures of a status, with rates since the earlier status."""
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


def _counted(status: Status, before: _Dated | None) -> Iterator[tuple[str, str]]:
    """Yield the counters of the publisher, which only its monitor has, with their rates."""
    counters = status["counters"]
    if counters is None:
        return
    for name, counted in _COUNTED.items():
        total, rate = sum(counters[one] for one in counted), ""
        if before is not None and before[1]["counters"] is not None:
            seconds = max(monotonic() - before[0], 1e-9)
            done = total - sum(before[1]["counters"][one] for one in counted)
            rate = f"  ({done / seconds:,.0f} a second)"
        yield name, f"{total:,}{rate}"
