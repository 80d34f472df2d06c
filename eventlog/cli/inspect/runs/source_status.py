"""The status of a followed source: its position, how much follows it, and what failed
(spec/event-log.md 11).
"""

from __future__ import annotations

from functools import partial

from eventlog.cli.command import CommandResult
from eventlog.cli.context import result, table
from eventlog.cli.inspect.health_lines import in_words, print_events, print_health
from eventlog.core.clock import utc_now
from eventlog.errors import number_of
from eventlog.publisher.run import Facts, Health, judge
from eventlog.publisher.stream.open_source import place_in_words
from eventlog.publisher.stream.position import SourceStatus
from eventlog.sql.doctor import age


def status_of_source(status: SourceStatus, limit: int) -> CommandResult:
    """Return the status for programs and people; people see at most ``limit`` events."""
    seconds = None if status.moved is None else (utc_now() - status.moved).total_seconds()
    behind = status.behind
    return CommandResult(
        {
            "source": status.source,
            "position_in": status.place,
            "position": status.position.token,
            "moved": status.moved,
            "moved_seconds": seconds,
            "delivery": status.position.delivery_no,
            "publisher_runs": status.publisher_runs,
            "source_lag": None if behind is None else behind.number,
            "source_lag_unit": None if behind is None else behind.unit,
            "source_lag_unknown": status.unknown,
            "health": source_health(status).as_data(),
            "in_flight": [one._asdict() for one in status.waiting],
            "failures": status.failures,
            "newest_failures": [
                {"time": at, "event_id": one.event_id, "code": one.code, "message": one.message}
                for at, one in status.newest
            ],
        },
        partial(_print_source, status, seconds, limit),
    )


def source_health(status: SourceStatus) -> Health:
    """Return the health of a followed source by its position and what failed."""
    return judge(
        Facts(
            state=in_words(runs=status.publisher_runs, is_publisher=True),
            runs=status.publisher_runs,
            refused=status.failures or 0,
        )
    )


def _print_source(status: SourceStatus, moved_seconds: float | None, limit: int) -> None:
    runs = in_words(runs=status.publisher_runs, is_publisher=True)
    result(f"source {status.source}: {runs}")
    print_health(source_health(status).as_data())
    result(f"position: {place_in_words(status.source, status.position.token)}")
    moved = "" if moved_seconds is None else f", last moved {age(moved_seconds)} ago"
    result(f"kept in {status.place}{moved}")
    if status.behind is not None:
        result(f"after it: {status.behind.number} {status.behind.unit}")
    if status.unknown is not None:
        result(f"how much follows it is unknown: {status.unknown}")
    headings = ("document", "event-id", "table", "key", "attempts", "last answer")
    print_events(headings, status.waiting, status.publisher_runs, limit)
    if status.failures is None:
        result("what failed is unknown: this user may not read it")
    if status.failures:
        newest = ", the newest" if status.newest else ""
        result(f"{number_of(status.failures, 'failure')}, not tried again{newest}:")
        table(
            ("time", "event-id", "code", "message"),
            [
                (at.isoformat(timespec="seconds"), one.event_id, one.code, one.message)
                for at, one in status.newest
            ],
        )
