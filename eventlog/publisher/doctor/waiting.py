"""Rows of the log that are not picked up, and what waits (spec/event-log.md 2, 5, 8, 11)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from eventlog.core.checks import BadRow
from eventlog.model import Status
from eventlog.publisher import metrics
from eventlog.publisher.context import PublisherOptions
from eventlog.publisher.doctor import Finding, Limits
from eventlog.publisher.doctor.words import age, literal, row_count
from eventlog.sql.health import Due, Rows, StatusRows
from eventlog.sql.windows import Queue

_LETTERS: Final = (Status.NEW, Status.SUCCESS, Status.WARNING, Status.ERROR, Status.FATAL)


def judge_statuses(found: Sequence[StatusRows], log: str, status: str, limits: Limits) -> Iterator[Finding]:
    """Reserved letters, and rows that failed. ``log`` and ``status`` are SQL names."""
    whole = sum(one.rows for one in found)
    scope = f" among the newest {whole:,} rows, more were not looked at (--sample)" if whole >= limits.sample else ""
    for one in found:
        letter = None if one.status is None else one.status.rstrip(" ")
        if letter in _LETTERS and (letter == one.status or letter != Status.NEW):
            if letter in (Status.ERROR, Status.FATAL):
                yield Finding(
                    "rows_failed",
                    "warning",
                    f"{row_count(one.rows)} of status {letter} ({_span(one)}){scope}: not tried again until requeued",
                    (f"eventlog show {one.last}", f"eventlog requeue --status {letter}"),
                )
        elif one.status is None:
            yield Finding(
                "status_reserved",
                "warning",
                f"{row_count(one.rows)} without a status ({_span(one)}){scope}: not looked at",
                (f"UPDATE {log} SET {status} = 'N' WHERE {status} IS NULL",),  # noqa: S608 - shown, not run
            )
        else:
            yield Finding(
                "status_reserved",
                "warning",
                f"{row_count(one.rows)} of status {one.status!r} ({_span(one)}){scope}: not looked at, since only N is "
                "new and every other letter but S, W, E and F is reserved",
                (f"UPDATE {log} SET {status} = 'N' WHERE {status} = {literal(one.status)}",),  # noqa: S608 - shown, not run
            )


def judge_record_ids(found: Rows, log: str, record_id: str, limits: Limits) -> Iterator[Finding]:
    """Rows that cannot be addressed (spec/event-log.md 5)."""
    if found.rows:
        yield Finding(
            "record_id",
            "error",
            f"{_at_least(found, limits)} of status N whose {record_id} is NULL or not positive: they cannot "
            "be addressed and are never published",
            (f"UPDATE {log} SET {record_id} = DEFAULT WHERE {record_id} IS NULL OR {record_id} <= 0",),  # noqa: S608 - shown, not run
        )


def judge_owner(owned: Sequence[str], user: str) -> Iterator[Finding]:
    """Captured tables of the publisher's own user (spec/event-log.md 8.3)."""
    if owned:
        yield Finding("loopback", "warning", metrics.of_tables(user, owned), metrics.WAYS_OUT)


def judge_loopback(found: Rows, options: PublisherOptions, limits: Limits) -> Iterator[Finding]:
    """Rows of the publisher's own user (spec/event-log.md 8.3)."""
    user = options.driver_user
    if not found.rows:
        return
    rows = f"{_at_least(found, limits)} of status N (from record_id {found.first} on) made by {user!r}, "
    if options.leave_loopback:
        yield Finding(
            "loopback",
            "warning",
            f"{rows}the publisher's own user: with loopback_rows = leave they stay N",
            ('loopback_rows = "consume" in [publisher]', f"or connect as another user than {user!r}"),
        )
    else:
        yield Finding(
            "loopback",
            "info" if options.loopback_is_meant else "warning",
            f"{rows}the publisher's own user: they will be marked S without being published",
            ("allow_loopback = true in [publisher], if they are to be published", *metrics.WAYS_OUT[::2]),
        )


def judge_due(found: Due, limits: Limits) -> Iterator[Finding]:
    """Rows whose time has not come (``handle_future_events``)."""
    if found.rows:
        when = "" if found.next_time is None else f"; the next one at {found.next_time}"
        away = "" if found.next_seconds is None else f" (in {age(found.next_seconds)})"
        yield Finding(
            "not_due",
            "info",
            f"{_at_least(found, limits)} of status N not due yet, since handle_future_events is set{when}{away}",
            ("handle_future_events = false in [publisher], if they are to be published now",),
        )


_BAD_MENDS: Final[Mapping[str, str]] = {
    "bad_event_type": "correct what writes event_type, and the rows",
    "missing_table": "correct what writes table_name, and the rows",
    "unknown_table": "watch the table ([[watch]] or tables in eventlog.toml), or correct table_name",
    "bad_table_key": "correct the trigger that writes table_key (`eventlog triggers apply` makes ours), and the rows",
    "missing_column": "correct what writes column_name, and the rows",
    "unknown_column": "correct what writes column_name, or take the column out of exclude",
    "bad_value": "correct what writes the value, or the value in its table",
    "bad_xml_char": "take the character out of the key or value",
}


def judge_bad(bad: Sequence[BadRow], checked: int, cut: bool, limits: Limits) -> Iterator[Finding]:
    """Rows N that the next cycle would mark E (spec/event-log.md 5), one finding a code."""
    by_code: defaultdict[str, list[BadRow]] = defaultdict(list)
    for row in bad:
        by_code[row.code].append(row)
    scope = f" among the first {checked:,} rows N, more were not checked" if cut else ""
    for code, rows in by_code.items():
        first = rows[0]
        ids = _listed([row.record_id for row in rows], limits.shown)
        yield Finding(
            "bad_rows",
            "warning",
            f"{row_count(len(rows))} of status N bad ({code}){scope}: record_id {ids}; they would become E. "
            f"The first one: {first.message}",
            (f"eventlog show {first.record_id}", _BAD_MENDS.get(code, "correct the rows")),
        )


def judge_in_flight(
    events: int, rows: int, seconds: float | None, publisher_runs: bool, limits: Limits
) -> Iterator[Finding]:
    """In-flight lines: of a flight, of parked objects, or left over (spec/event-log.md 8.1, 10)."""
    if not events:
        return
    since = "" if seconds is None else f", the oldest for {age(seconds)}"
    what = f"{events:,} {'event' if events == 1 else 'events'} of {row_count(rows)} in flight{since}"
    if not publisher_runs:
        yield Finding(
            "in_flight_left",
            "warning",
            f"{what}, and no publisher runs: they are sent first, as recorded, at its next start",
            ("eventlog publish",),
        )
    elif seconds is not None and seconds > limits.in_flight:
        yield Finding(
            "in_flight",
            "warning",
            f"{what}: their objects are parked since the receiver answers retry, or it is away; their rows stay N "
            "and later rows of their objects wait behind them",
            ("eventlog status", "look at the receiver's log and at the publisher's"),
        )
    else:
        yield Finding("in_flight", "info", f"{what}: sent, and not answered for good yet; their rows are N until then")


def judge_queue(queue: Queue, publisher_runs: bool, disabled: bool) -> Iterator[Finding]:
    """What waits, and whether somebody takes it."""
    oldest = "" if queue.oldest_seconds is None else f", the oldest for {age(max(0.0, queue.oldest_seconds))}"
    if disabled:
        yield Finding(
            "publisher_disabled",
            "warning",
            "publisher_disabled is set: nothing is published",
            ("publisher_disabled = false in [publisher]",),
        )
    if not queue.rows:
        return
    if publisher_runs:
        yield Finding("queue", "info", f"{row_count(queue.rows)} of status N{oldest}; a publisher runs")
    else:
        yield Finding(
            "no_publisher", "warning", f"{row_count(queue.rows)} of status N{oldest}, and no publisher runs",
            ("eventlog publish",),
        )  # fmt: skip


def _at_least(found: Rows | Due, limits: Limits) -> str:
    return f"at least {row_count(found.rows)}" if found.looked_at >= limits.rows else row_count(found.rows)


def _span(one: StatusRows) -> str:
    if one.first is None:
        return "no record_id"
    return f"record_id {one.first}" if one.first == one.last else f"record_id {one.first} to {one.last}"


def _listed(ids: Sequence[int], most: int) -> str:
    more = f" and {len(ids) - most:,} more" if len(ids) > most else ""
    return ", ".join(map(str, ids[:most])) + more
