"""Follow a source that is no log: read its changes, send their events, move its position by the answers.

The promises are those of a log (spec/event-log.md 12): at least once, the events of an object in their order, an
event-id with one meaning, nothing lost by a kill at any moment. The position is that of the source alone and moves when
all before it is answered and flushed; what was sent behind it is sent again after a crash, under the same event-ids.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

from eventlog.changes import json_form as change_json
from eventlog.changes.keys import class_of_change
from eventlog.changes.to_events import change_to_events
from eventlog.errors import (
    AnotherPublisher,
    ConfigError,
    DatabaseAway,
    EventlogError,
    FormatError,
    ReceiverAway,
    RowError,
)
from eventlog.model import ChangeOp
from eventlog.publisher.liveness import Progress
from eventlog.publisher.sinks import Sink
from eventlog.publisher.stream.position import PositionAway
from eventlog.publisher.stream.sending import (
    Following,
    OpenPosition,
    Run,
    begin,
    is_enough,
    not_sent,
    save,
    save_if_due,
    send,
    send_all,
    send_heartbeat,
)
from eventlog.publisher.stream.source import Mark, Read, SourceAway, Step, Unread
from eventlog.publisher.wake import Stop, back_off
from eventlog.sql.positions import Failure

_log = logging.getLogger("eventlog.publisher")

_LOCK_PATIENCE: Final = 60.0
"""Seconds that a publisher which lost its connection waits for the server to notice, before it takes the lock again."""

_UNLIMITED: Final = 10_000
"""Events read from the oldest unanswered one on with ``query_limit = 0``: memory stays bounded."""


def follow(
    following: Following,
    open_position: OpenPosition,
    open_sink: Callable[[], Sink],
    stop: Stop,
    *,
    once: bool = False,
    beat: Progress = lambda: None,
) -> None:
    """Publish the source until ``stop`` is set or it ends; with ``once`` to where it ends now.

    A source or a position that fails is opened again with a back-off, from the position saved last. ``beat`` is called
    when there is progress. Raises FatalAnswer, AnotherPublisher, what the source raises beside SourceAway and
    DatabaseAway, these and PositionAway too if nothing has been read yet or with ``once``; then also ReceiverAway if
    something is left.
    """
    options = following.options
    attempts = 0
    has_read = False
    lost_at: float | None = None
    while not stop.is_set():
        try:
            with (
                open_position() as position,
                closing(open_sink()) as sink,
                ThreadPoolExecutor(options.concurrency, thread_name_prefix="eventlog-send") as threads,
            ):
                run = begin(following, position, sink, threads, stop, beat, once)
                with closing(_steps(run)) as steps:
                    for step in steps:
                        has_read, lost_at, attempts = True, None, 0
                        _take(run, step)
                        if stop.is_set():
                            break
                _finish(run)
                return
        except AnotherPublisher:
            # The server may not have noticed yet that our former session is gone.
            if lost_at is None or time.monotonic() - lost_at > _LOCK_PATIENCE:
                raise
        except (SourceAway, DatabaseAway, PositionAway) as error:
            if once or not has_read:
                raise
            lost_at = lost_at or time.monotonic()
            _log.error("%s; opening it again", error)
        attempts += 1
        stop.wait(back_off(attempts, options.retry_initial, options.retry_max))


def _steps(run: Run) -> Generator[Step, None, None]:
    """The steps of the source; what was read before it fails for good is sent before that is raised."""
    with closing(run.following.source.steps(run.saved.token, once=run.once)) as steps:
        try:
            yield from steps
        except (SourceAway, DatabaseAway):  # it will be read again
            raise
        except EventlogError:
            send_all(run)
            raise


def _take(run: Run, step: Step) -> None:
    """Take one step, and send if that fills envelopes, or if there is nothing more for now."""
    if isinstance(step, Mark):
        if step.token is not None and step.token != run.saved.token:
            run.pending.mark(step.token)
            if run.saved.token is None:
                save(run)  # the beginning of a stream that cannot be asked for otherwise
        if step.is_idle:
            _rest(run, step.rest)
        else:
            run.beat()  # also where nothing is to be sent for long, as within a long transaction
            save_if_due(run)
        return
    run.following.counters.rows_read += 1
    if isinstance(step, Unread):
        not_sent(run, Failure(step.event_id, step.code, step.message))
    else:
        _read(run, step)
    if is_enough(run):
        send(run, everything=False)
    while _is_too_far(run) and not run.stop.is_set():
        if run.once:
            save(run)
            raise _left(run)
        run.stop.wait(max(0.0, (run.pending.next_due() or 0.0) - time.monotonic()))
        send_all(run)


def _read(run: Run, read: Read) -> None:
    """Add the events of a change; one that XDS cannot hold is a failure, and the stream goes on.

    Raises ConfigError for a table without key.
    """
    following, change = run.following, read.change
    if change.key is None and change.op is not ChangeOp.TRUNCATE and class_of_change(following.catalog, change) is None:
        # Not a failure of this change alone: the whole table would be passed over.
        raise ConfigError(
            f"{change.table!r} has no key, which names its rows in XDS: give its key columns by source.catalog"
            f"{' or source.reader.keys' if following.source.name == 'gbase' else ''}"
        )
    try:
        events = change_to_events(change, read.event_id, following.catalog, following.writing)
    except (FormatError, RowError) as error:
        code = error.row_code if isinstance(error, RowError) else error.code
        not_sent(run, Failure(read.event_id, code, str(error), change_json.dumps(change)))
        return
    except (EventlogError, MemoryError):
        raise
    except Exception as error:
        # Whatever a change does, it would do it again at each start.
        not_sent(run, Failure(read.event_id, FormatError.code, f"{type(error).__name__}: {error}"))
        return
    if not events:
        following.counters.rows_empty += 1
    for event in events:
        run.pending.add(event)


def _is_too_far(run: Run) -> bool:
    """Whether so much lies behind what is parked, all of which a crash would repeat, that it has to be waited for."""
    options, pending = run.following.options, run.pending
    limit = options.query_limit or _UNLIMITED
    return pending.parked > 0 and (pending.span >= limit or pending.parked > options.max_parked)


# --- resting ----------------------------------------------------------------------------------------------------------


def _rest(run: Run, seconds: float) -> None:
    """Send and save what there is, then wait for more: so many seconds at most, or until a parked object or a heartbeat
    is due.
    """
    send_all(run)
    if run.stop.is_set():
        return
    run.beat()
    now = time.monotonic()
    if run.heartbeat.is_due(now):
        send_heartbeat(run)
    due, heartbeat = run.pending.next_due(), run.heartbeat.seconds_left(now)
    pause = min(seconds, seconds if due is None else due - now, seconds if heartbeat is None else heartbeat)
    if pause > 0:
        run.stop.wait(pause)


def _finish(run: Run) -> None:
    """The source has ended, or the publisher is to stop. Raises ReceiverAway with ``once`` if something is left."""
    if not run.stop.is_set():
        send_all(run)
    while run.pending.parked and not run.stop.is_set():
        if run.once:
            raise _left(run)
        run.stop.wait(max(0.0, (run.pending.next_due() or 0.0) - time.monotonic()))
        send_all(run)
    save(run)


def _left(run: Run) -> ReceiverAway:
    return ReceiverAway(f"{run.pending.parked} objects are left: the receiver asked for their events later")
