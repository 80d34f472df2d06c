"""The findings of ``doctor`` about consumers."""

from __future__ import annotations

from datetime import datetime

from eventlog.errors import number_of
from eventlog.sql.doctor import Findings, Limits, age, error, info, warning
from eventlog.sql.log.pauses import Pause
from eventlog.sql.readers.consumers import STREAM_OF_SPARK


def judge_pause(pause: Pause | None) -> Findings:
    """Judge the pause of a reader, None = it is not paused."""
    if pause is not None:
        of_consumer = f" --consumer {pause.consumer}" if pause.consumer else ""
        yield warning("paused", str(pause), f"eventlog resume{of_consumer}")


def judge_consumer(
    name: str, rows: int, seconds: float, runs: bool, limits: Limits, sink: str = ""
) -> Findings:
    """Judge a consumer that has rows to process and has made no progress for ``seconds``. ``sink``
    is the sink of its last start, empty if it is unknown.
    """
    if rows and seconds > limits.in_flight:
        why = (
            "it is running, so its receiver is unavailable or refuses events; see its log"
            if runs
            else "it is not running"
        )
        is_stream = sink == STREAM_OF_SPARK
        start = "start its query in Spark" if is_stream else f"run eventlog publish as {name}"
        yield warning(
            "consumer_waits",
            f"consumer {name} has at least {number_of(rows, 'row')} to do and has made no progress "
            f"for {age(seconds)}: {why}. `eventlog purge` keeps these rows for it",
            f"{start}; or, if nobody needs the consumer: eventlog consumers drop {name}",
        )


def judge_beyond(name: str, top: int, following: int | None) -> Findings:
    """Judge a consumer that has done rows up to the record_id ``top``, against the numbers of the
    log.

    ``following`` is the record_id that the next row gets, None = unknown.
    """
    if following is not None and top >= following:
        yield error(
            "consumer_beyond",
            f"consumer {name} counts all record_ids up to {top} as done, but the log has used "
            f"none above {following - 1} yet: the consumer will skip new rows up to {top}",
            f"eventlog consumers reset {name} --start-from ... (docs/guides/consumers.md describes "
            "where it begins)",
        )


def judge_before_epoch(name: str, begun: datetime, raised: datetime | None) -> Findings:
    """Judge a consumer that was registered or reset at ``begun``.

    ``raised`` is the time when the log got its epoch, None = it has no epoch. Both are UTC.
    """
    if raised is not None and begun < raised.replace(tzinfo=None):
        yield info(
            "consumer_before_epoch",
            f"consumer {name} began before the log's epoch, which began at "
            f"{raised:%Y-%m-%d %H:%M:%S} UTC. If a failover or restore has lost the registration "
            "or a reset of this consumer, its receiver lacks data",
            f"if so, empty its receiver and run: eventlog consumers reset {name} --start-from "
            "snapshot",
        )


def judge_own_consumer(name: str, known: tuple[int, bool] | None) -> Findings:
    """Judge the configured consumer. ``known`` has the number of rows that the consumer has to
    process, and whether it runs; None if the consumer is not registered.
    """
    if known is None:
        yield info(
            "consumer_new", f"consumer {name} is not registered yet; its first start registers it"
        )
        return
    rows, runs = known
    if runs:
        yield info("queue", f"consumer {name} is running and has {number_of(rows, 'row')} to do")
    elif rows:
        text = f"consumer {name} has {number_of(rows, 'row')} to do and is not running"
        yield warning("no_publisher", text, "eventlog publish")
