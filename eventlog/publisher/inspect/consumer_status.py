"""The status of a log's consumers, for people and programs (spec/event-log.md 13)."""

from __future__ import annotations

from typing import Final

from eventlog.publisher.context.observer import ConsumerStatus, measure_queue
from eventlog.publisher.feeds.snapshot import UnfinishedSnapshot
from eventlog.publisher.ledger.in_flight import read_recorded
from eventlog.publisher.ledger.ledger import SetLedger, is_at_work
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers.consumers import read_consumers
from eventlog.sql.readers.followed_set import FollowedSet

MAX_ROWS_BEHIND: Final = 100_000
"""The maximum number of rows that are counted as not done."""


def consumer_statuses(
    log: OpenLog, event_time_zone: str, most: int = MAX_ROWS_BEHIND
) -> list[ConsumerStatus]:
    """Return the status of each consumer of a log, by name. For each consumer, at most ``most``
    rows that it has not done are counted.
    """
    found = []
    entries = read_consumers(log)
    if not entries:
        return []
    now = log.db.utc_now()
    for entry in entries:
        done = entry.done
        done.discard(entry.requeued.rows)
        ledger = SetLedger(log, entry.name, entry.begins, followed=FollowedSet(done))
        measured = measure_queue(log, event_time_zone, most, ledger)
        deliveries, _ = read_recorded(log, entry.name)
        still = (now - (entry.moved or entry.begun)).total_seconds()
        found.append(
            ConsumerStatus(
                name=entry.name,
                runs=is_at_work(log, ledger.consumer),
                begins=entry.begins,
                begun=entry.begun,
                rows_behind=measured.queue_rows or 0,
                oldest_seconds=measured.oldest_seconds,
                oldest_row=measured.oldest_row,
                ranges=len(done.ranges),
                done_up_to=done.floor,
                done_top=done.top,
                moved=entry.moved,
                still_seconds=still,
                events_in_flight=sum(1 for delivery in deliveries for _ in delivery.events()),
                snapshot=None
                if entry.loaded is None
                else UnfinishedSnapshot.from_row(entry.begun, entry.loaded).progress(),
                start=entry.start,
                pause=entry.pause,
                paused_seconds=0.0
                if entry.pause is None
                else (now - entry.pause.since.replace(tzinfo=None)).total_seconds(),
            )
        )
    return found
