"""What a backlog job would take, told without Spark, lock or output (docs/sizing.md).

The rows are counted as the job would divide them, and the first of them are folded and written to see how much comes of
a row. The times are those measured on the machine that stands there, a core's and a server's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from eventlog.config.load import Config
from eventlog.publisher.context import Counters
from eventlog.publisher.cycle import recover
from eventlog.publisher.open import open_unlocked
from eventlog.publisher.queue import build_events, take_window
from eventlog.sql.connection import as_database_errors
from eventlog.xds.writer import write_outgoing
from spark.job import waiting_parts
from spark.session import cores_of

START_SECONDS = 7.0
CORE_SECONDS_A_ROW = 9.2e-6
MARK_SECONDS_A_ROW = 3.5e-6
DELETE_SECONDS_A_ROW = 0.56e-6


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a job is expected to take. ``bytes`` of XDS lines without compression; ``temporary_bytes`` beside them until
    the job ends. ``held``: whether rows are held, so that none can be converted but for a copy.
    """

    rows: int
    parts: int
    events: int
    bytes: int
    temporary_bytes: int
    cores: int
    converting_seconds: float
    mark_seconds: float
    delete_seconds: float
    held: bool


def estimate(config: Config, master: str | None, partition_rows: int) -> Estimate:
    """The plan of a job on ``master``. Reads the log; changes nothing. Raises ConfigError, DatabaseError."""
    cores = cores_of(master) if master is not None else os.cpu_count() or 1
    with open_unlocked(config, Counters()) as context, as_database_errors(context.connection):
        parts = waiting_parts(context, context.connection, partition_rows, cores)
        state = recover(context)
        sampled = take_window(context, 1, None, frozenset(), state.parking).groups if parts else []
        events = [event for event in build_events(context, sampled) if event.operation is not None]
        text = sum(len(write_outgoing(event).encode()) for event in events)
        context.connection.rollback()
    rows = sum(part.rows for part in parts)
    share = rows / max(1, sum(map(len, sampled)))
    size = round(text * share)
    return Estimate(
        rows=rows,
        parts=len(parts),
        events=round(len(events) * share),
        bytes=size,
        temporary_bytes=size,
        cores=cores,
        converting_seconds=START_SECONDS + rows * CORE_SECONDS_A_ROW / cores,
        mark_seconds=rows * MARK_SECONDS_A_ROW,
        delete_seconds=rows * DELETE_SECONDS_A_ROW,
        held=state.hold is not None,
    )
