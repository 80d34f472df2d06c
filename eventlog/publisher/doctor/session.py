"""The session that the publisher has: a pool in between, and the clocks."""

from __future__ import annotations

from collections.abc import Iterator

from eventlog.publisher.doctor import Finding, Limits
from eventlog.publisher.doctor.words import age
from eventlog.sql.connection import TO_THE_PRIMARY
from eventlog.sql.health import Ahead, Clock


def judge_pool(pooled: bool) -> Iterator[Finding]:
    """A pool that lends sessions by the transaction takes the publisher's lock away (spec/event-log.md 12)."""
    if pooled:
        yield Finding(
            "pooling",
            "error",
            "the session changes from transaction to transaction: a connection pool in transaction mode stands "
            "between. The publisher's lock and notifications belong to a session, so the publisher refuses to start",
            ("url in [database]: the server itself, or a pool in session mode",),
        )


def judge_read_only(why: str | None) -> Iterator[Finding]:
    """A standby, or a session that may write nothing. ``why`` in words."""
    if why is not None:
        text = f"{why}: no publisher can run here, since it marks rows, and no trigger can be applied"
        yield Finding("standby", "error", text, (TO_THE_PRIMARY,))


def judge_clock(found: Clock, limits: Limits) -> Iterator[Finding]:
    """The database's clock against this machine's."""
    if abs(found.ahead) - found.uncertainty > limits.clock:
        way = "ahead of" if found.ahead > 0 else "behind"
        yield Finding(
            "clock",
            "warning",
            f"the database's clock is {age(abs(found.ahead))} {way} this machine's: ages of rows and times of "
            "documents do not agree",
            ("chronyc makestep, on the machine that is wrong",),
        )


def judge_event_time(found: Ahead | None, event_time_zone: str, limits: Limits) -> Iterator[Finding]:
    """event_time against the database's clock, where it should not lie ahead."""
    if found is None or found.seconds <= limits.event_time:
        return
    other = "local" if event_time_zone == "utc" else "utc"
    yield Finding(
        "event_time",
        "warning",
        f"row {found.record_id} has event_time {found.event_time}, {age(found.seconds)} ahead of the database's clock "
        f"({event_time_zone}): is it written in another zone?",
        (f'event_time_zone = "{other}" in [publisher], or correct what writes event_time',),
    )
