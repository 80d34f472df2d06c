"""The content of ``/status.json`` and ``eventlog status --json``: one documented, versioned shape
(docs/reference/metrics.md).

A publisher reports its own state, and the queue at its last measurement; the command can only read
the database. A value that the publisher or the command cannot determine is null in its status.
Adding a name keeps the version; changing the meaning of a name or removing it raises the version.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from eventlog import __version__
from eventlog.core.clock import utc_now
from eventlog.core.rows.event_ids import without_key
from eventlog.publisher.context.context import Counters
from eventlog.publisher.context.observer import Attempt, Measured, ParkedObject, Seen
from eventlog.publisher.monitor.activity import (
    Activity,
    ActivityState,
    JobActivity,
    Monitored,
    Sent,
)
from eventlog.publisher.monitor.attempts import is_event
from eventlog.publisher.run.health import OLD_ROW, answered_status

VERSION: Final = 1
HIDDEN: Final = "•••"
"""The text in place of values, keys and a receiver's texts (``monitor.show_values = false``)."""
_MAX_LISTED: Final = 100
_PAGE: Final = 50
"""The number of documents on one page of the list."""
_MAX_EXAMPLES: Final = 3
"""The maximum number of events that are named for a group of parked objects."""
_MAX_SKIPPED: Final = 20
"""The maximum number of events that one command skips."""

_COUNTERS: Final = [
    "rows_published",
    *(one.name for one in fields(Counters) if one.compare),  # the others are not numbers
]


class Members(NamedTuple):
    """Members of the shape that are described together."""

    names: tuple[str, ...]
    known_to: Literal["both", "process", "command"]
    """What can determine the members: a process, the command ``eventlog status``, or both."""
    text: str
    """What the members are, in the words of the reference."""


_ALWAYS: Final = ("version", "eventlog", "at")
"""The members that every status has."""
MEMBERS: Final = (
    Members(_ALWAYS, "both", "versions of this JSON object and of the program; the time in UTC"),
    Members(
        ("log", "publisher_runs"),
        "both",
        "what is published; whether its lock is held (null for a backlog job, and on a standby "
        "server)",
    ),
    Members(
        ("health",),
        "both",
        "`severity`, `sentence`, `action`, and `conditions`: `name`, `severity`, `text`, `action`, "
        "`commands`, `details` (all that is known, if `text` is shortened)",
    ),
    Members(
        ("queue_rows", "queue_cap", "oldest_seconds"),
        "both",
        "rows that wait; the number up to which they are counted, null = all; the age of the "
        "oldest by `event_time`",
    ),
    Members(
        ("refused_rows", "invalid_rows"),
        "both",
        "rows that are refused or invalid, as `eventlog errors` lists them",
    ),
    Members(
        ("dead_letters", "oldest_dead_letter_age_seconds"),
        "both",
        "dead letters that wait for the second sink; the age of the oldest",
    ),
    Members(
        ("consumers", "verified", "drift"),
        "both",
        "the consumers, as `eventlog consumers list --json` shows them; the last verification of "
        "each target; tables whose triggers differ",
    ),
    Members(
        ("oldest_open_transaction", "oldest_open_transaction_age_seconds"),
        "both",
        "the oldest open transaction that has written the log",
    ),
    Members(
        ("oldest_snapshot", "oldest_snapshot_age_seconds"),
        "both",
        "the oldest database snapshot that keeps dead rows",
    ),
    Members(
        ("dead_rows", "table_bytes", "keep_bytes"),
        "both",
        "dead rows and bytes per table of the log; the option `keep_bytes`",
    ),
    Members(
        ("ranges", "snapshot"),
        "both",
        "of a consumer: the ranges of processed rows; the progress of the first load",
    ),
    Members(
        ("paused",),
        "both",
        "why nothing is sent: `reason`, `by`, `since`; null = it is not paused",
    ),
    Members(
        ("source", "source_lag", "source_lag_unit"),
        "both",
        "of a followed source: its name; what it has after its position, in bytes, rows or "
        "messages",
    ),
    Members(
        ("rows", "in_flight", "backlog"),
        "command",
        "rows by status; events in flight or parked: `delivery`, `document`, `event_id`, `rows`, "
        "`event_id_number` (2 if sent under its id a second time), `table_name`, `table_key`, "
        "`attempts`, `answer`; the backlog job that claims rows",
    ),
    Members(
        ("process",),
        "command",
        "null if no publisher runs, else which monitor or health file was `asked` for the "
        "conditions that only a process can show, and the `problem` if they are unknown",
    ),
    Members(
        ("position_in", "position", "delivery", "moved", "moved_seconds"),
        "command",
        "of a followed source: the table of its position; the position; the number of "
        "its last delivery; when the position last moved, and the seconds since then",
    ),
    Members(
        ("source_lag_unknown", "failures", "newest_failures"),
        "command",
        "of a followed source: why `source_lag` is unknown; the number of recorded failures; the "
        "newest 20: `time`, `event_id`, `code`, `message`",
    ),
    Members(
        ("sink", "format", "started_at"),
        "process",
        "the type of the sink; the format; when the process started",
    ),
    Members(
        ("state",),
        "process",
        "`name` (connecting, publishing, resting, waiting, paused, stopped), `words`, `seconds`, "
        "`reason`, `next_try_seconds`",
    ),
    Members(
        ("is_ready", "is_alive", "liveness_timeout_seconds", "progress_seconds"),
        "process",
        "what `/readyz` and `/livez` answer; seconds since the last progress",
    ),
    Members(
        ("checked_seconds_ago", "limits"),
        "process",
        "age of the measured figures; the highest normal `oldest_seconds` and "
        "`send_duration_seconds`",
    ),
    Members(
        ("counters", "backoffs", "reconnects"), "process", "counts since the start of the process"
    ),
    Members(
        ("parked_objects", "parked", "parked_groups"),
        "process",
        "number of parked objects; the first 100; groups by `class` and `answer`, with the "
        "first `events` and a `command` that skips 20",
    ),
    Members(
        ("deliveries", "sent"),
        "process",
        "what is in flight; the newest attempts with their answers",
    ),
    Members(
        ("bytes_in_a_day", "keep_bytes_reached_seconds"),
        "process",
        "growth of the log, and the time until it has `keep_bytes`",
    ),
    Members(
        ("job",),
        "process",
        "of a backlog job: `stage`, `share` (0 to 1), `rows` of `total`, `events`, `parts`, "
        "`seconds_left`",
    ),
)
"""All members of the shape. docs/reference/metrics.md shows them."""
EMPTY: Final[Mapping[str, Any]] = dict.fromkeys(
    name for members in MEMBERS for name in members.names if name not in _ALWAYS
)
"""The names of the shape, except the names that every status has."""


def shape(**known: Any) -> dict[str, Any]:
    """Return a status with these values; all other values are null.

    Raises TypeError for a name outside the shape.
    """
    if unknown := known.keys() - EMPTY.keys():
        raise TypeError(f"the status has no member {', '.join(sorted(unknown))}")
    now = utc_now().isoformat(timespec="milliseconds")
    return {"version": VERSION, "eventlog": __version__, "at": now, **EMPTY, **known}


def _status_of(
    watched: Monitored,
    state: str,
    seconds: float,
    *,
    reason: str = "",
    next_try_seconds: float | None = None,
    quotes: bool = True,
    **known: Any,
) -> dict[str, Any]:
    """Return the status of a watched process that has been in ``state`` for ``seconds``.
    ``quotes`` is as in ``in_words``, ``known`` as in ``shape``.
    """
    return shape(
        started_at=datetime.fromtimestamp(watched.started, UTC).isoformat(timespec="milliseconds"),
        state={
            "name": state,
            "words": watched.in_words(quotes=quotes),
            "seconds": round(seconds, 3),
            "reason": reason,
            "next_try_seconds": next_try_seconds,
        },
        health=watched.health(quotes=quotes).as_data(),
        is_ready=watched.is_ready,
        is_alive=watched.liveness.is_alive,
        progress_seconds=round(watched.clock() - watched.progress_time, 3),
        liveness_timeout_seconds=watched.liveness.timeout,
        **known,
    )


def answer_status(text: str) -> str:
    """Return the status in a receiver's text, such as ``the receiver answers 503 ...; ...``, and
    nothing else of the text; ``HIDDEN`` if it has no status.
    """
    return answered_status(text) or (text and HIDDEN)


def _reason(state: ActivityState, *, quotes: bool) -> str:
    """Return why the publisher is in this state. ``quotes`` is as in ``Monitored.in_words``."""
    reason = state.reason if quotes else state.in_short
    if state.waits_for is None:
        return reason
    return f"the {state.waits_for.value}: {reason}" if reason else f"the {state.waits_for.value}"


def _parked_groups(
    parked: Sequence[ParkedObject], now: float, consumer: str | None, *, shows_values: bool
) -> list[dict[str, Any]]:
    """Return the parked objects in groups by class and answer, the largest group first. Each group
    has the command that skips its first events.
    """
    groups: dict[tuple[str, str], list[ParkedObject]] = {}
    for one in parked:
        answer = one.reason if shows_values else answer_status(one.reason)
        answer = answer.replace(HIDDEN, "the receiver answers retry")
        groups.setdefault((one.class_name, answer), []).append(one)
    return [
        {
            "class": class_name,
            "answer": answer,
            "objects": len(members),
            "attempts": max(one.tries for one in members),
            "next_try_seconds": round(max(0.0, min(one.due for one in members) - now), 3),
            "events": [
                one.event_id if shows_values else without_key(one.event_id)
                for one in members[:_MAX_EXAMPLES]
            ],
            "command": _skip(members[:_MAX_SKIPPED], consumer, shows_values=shows_values),
        }
        for (class_name, answer), members in sorted(
            groups.items(), key=lambda group: (-len(group[1]), group[0])
        )
    ]


def _skip(parked: Sequence[ParkedObject], consumer: str | None, *, shows_values: bool) -> str:
    """Return the command that skips the events of parked objects. The command is empty if an
    event-id is hidden: the event-id of an object in a snapshot contains the object's key.
    """
    ids = [one.event_id for one in parked]
    if not shows_values and any(without_key(one) != one for one in ids):
        return ""
    of_consumer = "" if consumer is None else f" --consumer {shlex.quote(consumer)}"
    command = f"eventlog skip{of_consumer} --reason 'given up on the status page'"
    return f"{command} {shlex.join(ids)}"


def seen_of(activity: Activity, event_id: str, *, shows_values: bool) -> Seen:
    """Return what the process has seen of an event. ``event_id`` is as in ``Attempts.of``."""
    attempts = activity.attempts.of(event_id)
    waits = _in_outbox(activity, event_id, shows_values=shows_values)
    return Seen(attempts if shows_values else [*map(without_texts, attempts)], waits)


def _in_outbox(activity: Activity, event_id: str, *, shows_values: bool) -> str:
    """Return in which unsettled document the event was at the last measurement, and what the
    document waits for; empty = in none.
    """
    measured, now = activity.measurement, activity.clock()
    if measured is None or activity.measured_time is None:
        return ""
    for one in measured.outbox:
        if any(is_event(sent_id, event_id) for sent_id in one.event_ids):
            number = f"document {one.document}" if one.document else "a new document"
            words = f"in {number} of delivery {one.delivery}: {one.why}"
            if one.tries:
                words += f"; {one.tries} {'try' if one.tries == 1 else 'tries'}"
            answer = one.answer if shows_values else answer_status(one.answer)
            words += f", the last answer: {answer}" if answer else ""
            if one.due is not None:
                words += f"; the next attempt is due in {max(0.0, one.due - now):.0f} s"
            return f"{words} (as of {now - activity.measured_time:.0f} s ago)"
    return ""


def without_texts(attempt: Attempt) -> Attempt:
    """Return an attempt without the receiver's texts, and without the key in an event-id of a
    snapshot.
    """
    return attempt._replace(
        event_id=without_key(attempt.event_id),
        message=answer_status(attempt.message),
        answer=attempt.answer and HIDDEN,
    )


def _sent_data(sent: Sent, *, shows_values: bool) -> dict[str, Any]:
    return {
        **sent._asdict(),
        "first_id": sent.first_id if shows_values else without_key(sent.first_id),
        "last_id": sent.last_id if shows_values else without_key(sent.last_id),
        "reason": sent.reason if shows_values else answer_status(sent.reason),
    }


def documents_data(
    activity: Activity, level: str, before: float, *, shows_values: bool
) -> dict[str, Any]:
    """Return a page of the attempts to send documents, the newest first. The page has the attempts
    before a time (seconds since 1970) whose answer has this level; an empty level = any level.
    ``older`` is the time before which the next page begins, null if there is none.
    """
    found = [one for one in activity.newest_sent() if one.at < before and level in ("", one.level)]
    page = found[:_PAGE]
    return {
        "documents": [_sent_data(one, shows_values=shows_values) for one in page],
        "older": page[-1].at if len(found) > _PAGE else None,
    }


def process_status(
    activity: Activity,
    log: str,
    sink: str,
    format_name: str,
    *,
    shows_values: bool,
    consumer: str | None = None,
    source: str | None = None,
    patience: float | None = None,
) -> dict[str, Any]:
    """Return the status of a running publisher from its reports.

    ``format_name`` is the name of the output format. ``consumer`` is the name of the consumer that
    the process runs as; ``source`` is the name of the source that the process follows. ``patience``
    is the maximum time in seconds that the sink waits for an answer.
    """
    now, measured, state = activity.clock(), activity.measurement or Measured(), activity.state

    def private(text: str) -> str:
        return text if shows_values or not text else HIDDEN

    return _status_of(
        activity,
        state.doing.value,
        now - state.since,
        reason=_reason(state, quotes=shows_values),
        quotes=shows_values,
        publisher_runs=activity.is_ready,
        next_try_seconds=None if state.until is None else round(max(0.0, state.until - now), 3),
        log=log,
        sink=sink,
        source=source,
        format=format_name,
        limits={"oldest_seconds": OLD_ROW, "send_duration_seconds": patience},
        parked_groups=_parked_groups(measured.parked, now, consumer, shows_values=shows_values),
        bytes_in_a_day=activity.bytes_in_a_day,
        keep_bytes_reached_seconds=activity.keep_bytes_reached_seconds,
        drift=None if activity.differences is None else activity.differences.sentences,
        checked_seconds_ago=None
        if activity.measured_time is None
        else round(now - activity.measured_time, 3),
        counters={name: getattr(activity.counters, name) for name in _COUNTERS},
        backoffs=dict(activity.backoffs),
        reconnects=activity.reconnects,
        parked_objects=None if activity.measurement is None else len(measured.parked),
        parked=[
            {
                "class": parked.class_name,
                "key": private(parked.key),
                "event_id": without_key(parked.event_id) if not shows_values else parked.event_id,
                "attempts": parked.tries,
                "next_try_seconds": round(max(0.0, parked.due - now), 3),
                "reason": parked.reason if shows_values else answer_status(parked.reason),
            }
            for parked in measured.parked[:_MAX_LISTED]
        ],
        deliveries=[
            {
                **delivery._asdict(),
                "first_id": delivery.first_id if shows_values else without_key(delivery.first_id),
                "seconds": round(now - since, 3),
            }
            for delivery, since in activity.deliveries.values()
        ],
        sent=[
            _sent_data(sent, shows_values=shows_values)
            for sent in activity.newest_sent()[:_MAX_LISTED]
        ],
        **(
            measured.as_data()
            | {
                "oldest_seconds": activity.oldest_seconds,
                "oldest_snapshot_age_seconds": activity.oldest_snapshot_age_seconds,
            }
        ),
    )


def job_status(activity: JobActivity, log: str, directory: str, format_name: str) -> dict[str, Any]:
    """Return the status of a backlog job; only the status of a job has the part ``job``.

    ``format_name`` is the format of the job's files.
    """
    left = activity.seconds_left
    seconds_left = None if left is None else round(left, 1)
    seen = activity.seen
    job = {
        "stage": activity.stage,
        "share": seen.share,
        "rows": seen.rows,
        "events": seen.events,
        "total": seen.total,
        "parts": seen.parts,
        "seconds_left": seconds_left,
    }
    seconds = activity.clock() - activity.begun
    return _status_of(
        activity, activity.stage, seconds, log=log, sink=directory, format=format_name, job=job
    )
