"""The status of a followed source: its position, how much follows the position, and what failed
(spec/event-log.md 11).
"""

from __future__ import annotations

from eventlog.cli.context import JsonObject, result, table
from eventlog.cli.inspect.health_lines import (
    Status,
    events_data,
    in_words,
    print_events,
    print_health,
    print_letters,
)
from eventlog.cli.inspect.runs.process import with_process
from eventlog.config.load import Config
from eventlog.core.clock import utc_now
from eventlog.errors import number_of
from eventlog.publisher.context import Measured
from eventlog.publisher.ledger import parked_number
from eventlog.publisher.monitor.status import shape
from eventlog.publisher.run import Facts, judge
from eventlog.publisher.stream.open_source import place_in_words, source_status
from eventlog.sql.doctor import age


def status_of_source(config: Config) -> JsonObject:
    """Return the status of the source in ``[source]``, with the names that the monitor uses. The
    status comes from the tables of the position, from the source itself and from its publisher.
    Raises ConfigError, DatabaseError.
    """
    known = source_status(config)
    runs = known.publisher_runs
    behind, unit = known.behind or (None, None)
    letters = known.letters
    health = judge(
        Facts(
            state=in_words(runs=runs, is_publisher=True),
            runs=runs,
            parked=parked_number(known.waiting),
            refused=known.failures or 0,
            measured=Measured(letters=letters.entries, oldest_letter_seconds=letters.seconds),
        )
    )
    return shape(
        log=config.publication,
        publisher_runs=runs,
        **with_process(config, health, runs),
        source=known.source,
        position_in=known.place,
        position=known.position.token,
        delivery=known.position.delivery_no,
        moved=known.moved,
        moved_seconds=None if known.moved is None else (utc_now() - known.moved).total_seconds(),
        source_lag=behind,
        source_lag_unit=unit,
        source_lag_unknown=known.unknown,
        dead_letters=letters.entries,
        oldest_dead_letter_age_seconds=letters.seconds,
        in_flight=events_data(known.waiting, ("delivery", "rows", "event_id_number")),
        failures=known.failures,
        newest_failures=[
            {"time": at, "event_id": one.event_id, "code": one.code, "message": one.message}
            for at, one in known.newest
        ],
    )


def print_source(status: Status, limit: int) -> None:
    """Print the status of a source for people, with at most ``limit`` events without an answer."""
    source = status["source"]
    result(f"source {source}: {in_words(runs=status['publisher_runs'], is_publisher=True)}")
    print_health(status)
    result(f"position: {place_in_words(source, status['position'])}")
    seconds = status["moved_seconds"]
    moved = "" if seconds is None else f", last moved {age(seconds)} ago"
    result(f"kept in {status['position_in']}{moved}")
    if status["source_lag"] is not None:
        result(f"after the position: {status['source_lag']} {status['source_lag_unit']}")
    if status["source_lag_unknown"] is not None:
        result(f"what follows the position is unknown: {status['source_lag_unknown']}")
    print_events(status, limit)
    print_letters(status)
    failures, newest = status["failures"], status["newest_failures"]
    if failures is None:
        result("the failures are unknown: this user may not read them")
    if failures:
        shown = ", the newest" if newest else ""
        result(f"{number_of(failures, 'failure')}, not tried again{shown}:")
        table(
            ("time", "event-id", "code", "message"),
            [
                (
                    one["time"].isoformat(timespec="seconds"),
                    one["event_id"],
                    one["code"],
                    one["message"],
                )
                for one in newest
            ],
        )
