"""The findings of ``doctor`` about rows and the queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.rows.checks import InvalidRow
from eventlog.errors import RowError, first_of, number_of
from eventlog.model import EventType, Status, unpadded
from eventlog.sql.doctor import Findings, Limits, age, error, info, warning
from eventlog.sql.port.database import Answer
from eventlog.sql.port.log_operations import NotDue, Queue
from eventlog.sql.port.sql_files import grouped, literal

# --- the rows -------------------------------------------------------------------------------------

_STATUSES: Final = tuple(Status)


def judge_statuses(
    statuses: Answer,
    log: str,
    column: str,
    limits: Limits,
    skipped: Mapping[int, str] = MappingProxyType({}),
) -> Findings:
    """Judge reserved statuses, and rows that failed and were not skipped (spec/event-log.md 2).
    ``skipped`` maps the record_ids of skipped rows to their status.

    ``log`` and ``column`` (of the status) are SQL names. A status is None for NULL, and keeps its
    trailing blanks.
    """
    statuses = list(statuses)
    whole = sum(rows for _, rows, _, _ in statuses)
    scope = (
        f" among the newest {whole:,} rows; older rows were not checked (--sample)"
        if whole >= limits.sample
        else ""
    )
    for status, rows, first, last in statuses:
        bare_status = None if status is None else unpadded(status)
        span = (
            "no record_id"
            if first is None
            else f"record_id {first}" + ("" if first == last else f" to {last}")
        )
        if bare_status in _STATUSES and (bare_status == status or bare_status != Status.NEW):
            if bare_status in (Status.ERROR, Status.FATAL):
                rows -= sum(
                    first is not None and letter == bare_status and first <= record_id <= last
                    for record_id, letter in skipped.items()
                )
                if not rows:
                    continue
                yield warning(
                    "rows_failed",
                    f"{number_of(rows, 'row')} of status {bare_status} ({span}){scope}: the "
                    "publisher does not try them again by itself",
                    f"eventlog explain {last}",
                    "eventlog errors",
                )
        elif status is None:
            yield warning(
                "status_reserved",
                f"{number_of(rows, 'row')} without a status ({span}){scope}: the publisher ignores "
                "them",
                f"UPDATE {log} SET {column} = 'N' WHERE {column} IS NULL",  # noqa: S608 - shown, not run
            )
        else:
            yield warning(
                "status_reserved",
                f"{number_of(rows, 'row')} of status {status!r} ({span}){scope}: the publisher "
                "ignores them, since every status except N, S, W, E and F is reserved",
                f"UPDATE {log} SET {column} = 'N' WHERE {column} = {literal(status)}",  # noqa: S608 - shown, not run
            )


def judge_record_ids(
    rows: int, rows_checked: int, log: str, record_id: str, limits: Limits
) -> Findings:
    """Judge rows without a usable record_id (spec/event-log.md 5).

    ``log`` and ``record_id`` are SQL names.
    """
    if rows:
        yield error(
            "record_id",
            f"{at_least(rows, rows_checked, limits)} of status N whose {record_id} is NULL or not "
            "positive: they are never published",
            f"UPDATE {log} SET {record_id} = DEFAULT WHERE {record_id} IS NULL OR {record_id} <= 0",  # noqa: S608
        )


def at_least(rows: int, rows_checked: int, limits: Limits) -> str:
    """Return the number of rows in words; "at least" if not all rows were read."""
    counted = number_of(rows, "row")
    return f"at least {counted}" if rows_checked >= limits.rows else counted


def judge_in_flight(
    events: int, rows: int, seconds: float | None, publisher_runs: bool, limits: Limits
) -> Findings:
    """Judge the in-flight entries: entries of a delivery, of parked objects (which wait after the
    answer retry), and entries that a publisher did not end (spec/event-log.md 8.1, 10).
    """
    if not events:
        return
    since = "" if seconds is None else f", the oldest for {age(seconds)}"
    what = f"{number_of(events, 'event')} of {number_of(rows, 'row')} in flight{since}"
    if not publisher_runs:
        yield warning(
            "in_flight_left",
            f"{what}, and no publisher is running: the next publisher sends them first, as "
            "recorded",
            "eventlog publish",
        )
    elif seconds is not None and seconds > limits.in_flight:
        yield warning(
            "in_flight",
            f"{what}: the receiver answers retry or is unavailable, so their objects are parked. "
            "Their rows stay N, and later rows of their objects wait",
            "eventlog status",
            "check the logs of the receiver and of the publisher",
        )
    else:
        yield info(
            "in_flight",
            f"{what} await a final answer; their rows keep status N until then",
        )


def judge_queue(queue: Queue, publisher_runs: bool, disabled: bool) -> Findings:
    """Judge the queue, and whether a publisher reads it (spec/event-log.md 8, 11)."""
    oldest = (
        ""
        if queue.oldest_seconds is None
        else f", the oldest for {age(max(0.0, queue.oldest_seconds))}"
    )
    if disabled:
        yield warning(
            "publisher_disabled",
            "publisher_disabled = true: nothing is published",
            "set publisher_disabled = false in [publisher]",
        )
    if not queue.rows:
        return
    waiting = f"{number_of(queue.rows, 'row')} of status N{oldest}"
    if publisher_runs:
        yield info("queue", f"{waiting}; a publisher is running")
    else:
        yield warning("no_publisher", f"{waiting}, and no publisher is running", "eventlog publish")


def judge_due(waiting: NotDue, limits: Limits) -> Findings:
    """Judge rows that are not due yet (``handle_future_events``)."""
    if waiting.rows:
        when = "" if waiting.next_time is None else f"; the next one at {waiting.next_time}"
        away = "" if waiting.next_seconds is None else f" (in {age(waiting.next_seconds)})"
        yield info(
            "not_due",
            f"handle_future_events = true postpones "
            f"{at_least(waiting.rows, waiting.rows_checked, limits)} of status N{when}{away}",
            "set handle_future_events = false in [publisher] to publish them now",
        )


_INVALID_ROW_FIXES: Final[Mapping[str, str]] = {
    "bad_event_type": "correct the trigger that writes event_type, and the rows",
    "missing_table": "correct the trigger that writes table_name, and the rows",
    "unknown_table": (
        "watch the table ([[watch]] or tables in eventlog.toml), or correct table_name"
    ),
    "bad_table_key": (
        "correct the trigger that writes table_key (`eventlog triggers apply` installs "
        "eventlog's triggers), and the rows"
    ),
    "missing_column": "correct the trigger that writes column_name, and the rows",
    "unknown_column": "correct the trigger that writes column_name, or remove the column from "
    "exclude",
    "bad_value": "correct the trigger that writes the value, or the value in its table",
    "bad_xml_char": "remove the character from the key or value",
}


def judge_invalid_rows(
    invalid: Sequence[InvalidRow], checked: int, cut: bool, limits: Limits, consumer: str = ""
) -> Findings:
    """Judge rows of status N that the next cycle would mark E (spec/event-log.md 5). There is one
    finding per code.

    With ``consumer``, judge the rows that this consumer has to process.
    """
    which = f"that consumer {consumer} has to process" if consumer else "of status N"
    outcome = (
        "the next cycle will record errors for them"
        if consumer
        else "the next cycle will mark them E"
    )
    by_code = grouped((row.code, row) for row in invalid)
    scope = (
        f" among the first {checked:,} rows{'' if consumer else ' N'}; the others were not checked"
        if cut
        else ""
    )
    for code, rows in by_code.items():
        first = rows[0]
        ids = first_of([str(row.record_id) for row in rows], limits.shown)
        yield warning(
            "invalid_rows",
            f"{number_of(len(rows), 'row')} {which} {'is' if len(rows) == 1 else 'are'} invalid "
            f"({code}){scope}: record_id {ids}; {outcome}. The first one: {first.message}",
            f"eventlog explain {first.record_id}",
            _INVALID_ROW_FIXES.get(code, "correct the rows"),
        )


_PROVES_OBJECT: Final = frozenset(
    {
        EventType.INSERT_FIELD,
        EventType.UPDATE_FIELD,
        EventType.UPDATE_FIELD_REMOVE_ALL,
        EventType.INSERT_FIELD_QUERY_BACK,
    }
)
"""The types of rows after which a receiver has the object: these rows are sent even if the object
is gone when they are published. A row of these types may be a change of another session after the
DELETE_ROW that a cascade logged (spec/triggers.md 7.4). INSERT_ROW_QUERY_BACK is not one of these
types: ``resync --deletes`` writes a row of this type after its DELETE_ROW, in case the object
exists again.
"""


def logged_objects(
    rows: Iterable[Sequence[Any]], catalog: Catalog
) -> dict[ObjectClass, tuple[list[str], list[str]]]:
    """Return, for each class, the keys of objects that exist according to the log, and the keys of
    objects whose last row is a DELETE_ROW.

    Each of ``rows`` holds record_id, event_type, table_name and table_key, in the order of the log.
    """
    found: dict[ObjectClass, dict[str, bool]] = {}
    last: dict[tuple[ObjectClass, str], int] = {}
    for _, event_type, table_name, table_key in rows:
        log_name = catalog.log_name(table_name) if table_name else None
        if (
            log_name is None
            or log_name.object_class.is_view
            or log_name.object_class not in catalog.classes
        ):
            continue
        with suppress(RowError):
            keys = found.setdefault(log_name.object_class, {})
            key = log_name.object_class.canonical_key(table_key)
            last[log_name.object_class, key] = event_type
            is_there = event_type in _PROVES_OBJECT and log_name.child is None
            if event_type == EventType.DELETE_ROW or is_there:
                keys[key] = is_there
            else:
                keys.setdefault(key, True)
    return {
        object_class: (
            [key for key, is_there in keys.items() if is_there],
            [key for key in keys if last[object_class, key] == EventType.DELETE_ROW],
        )
        for object_class, keys in found.items()
    }


def judge_gone(class_name: str, keys: Sequence[str], limits: Limits) -> Findings:
    """Judge objects that exist according to the log, but not in the table."""
    if keys:
        yield warning(
            "missed_delete",
            f"the log has no delete of {number_of(len(keys), 'object')} of class {class_name}, but "
            f"the table no longer has them: {first_of(list(keys), limits.shown, 'key')} (found in "
            f"the newest {limits.rows:,} rows of the log). A statement that fires no trigger, such "
            "as TRUNCATE, deleted them",
            f"eventlog resync {class_name} --deletes",
        )


def judge_kept(class_name: str, keys: Sequence[str], limits: Limits) -> Findings:
    """Judge objects that are deleted according to the log, but exist in the table."""
    if keys:
        yield warning(
            "false_delete",
            f"the log has a delete as the last row of {number_of(len(keys), 'object')} of class "
            f"{class_name}, but the table still has them: "
            f"{first_of(list(keys), limits.shown, 'key')} (found in the newest {limits.rows:,} "
            "rows of the log). A trigger logged a deletion, but the statement, such as DELETE "
            "IGNORE on MariaDB, kept the row",
            f"eventlog resync {class_name}",
        )


def judge_keys(keys: Answer, catalog: Catalog, limits: Limits) -> Findings:
    """Judge spellings of table_key that are not canonical (spec/event-log.md 4.3). There is one
    finding per class.

    Each of ``keys`` has table_name, table_key, the number of rows with that spelling, and the
    record_id of the first row.
    """
    by_class: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    rows_checked = 0
    for table_name, table_key, rows, first in keys:
        rows_checked += rows
        log_name = catalog.log_name(table_name) if table_name else None
        if log_name is None:
            continue
        with suppress(RowError):
            canonical = log_name.object_class.canonical_key(table_key)
            if canonical != table_key:
                example = f"{table_key!r} for {canonical!r} (record_id {first})"
                by_class[log_name.object_class.name].append((rows, example))
    scope = (
        f" (the newest {limits.sample:,} rows were checked)"
        if rows_checked >= limits.sample
        else ""
    )
    for name, spelled in by_class.items():
        examples = first_of([example for _, example in spelled], limits.shown, "key")
        yield warning(
            "key_not_canonical",
            f"class {name} has {number_of(sum(rows for rows, _ in spelled), 'row')} whose "
            f"table_key is not spelled canonically{scope}: {examples}; the publisher sends them "
            "nevertheless",
            "eventlog triggers apply",
            f"or correct the trigger that writes table_key of {name}",
        )
