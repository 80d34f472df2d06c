"""What ``eventlog status`` shows of a source that is no log."""

from __future__ import annotations

from datetime import UTC, datetime

from eventlog.cli.output import print_json, result, table
from eventlog.config.load import Config
from eventlog.publisher.stream.status import SourceStatus, place_in_words, source_status
from eventlog.sql.doctor import age


def show_source(config: Config, *, as_json: bool) -> None:
    """Show how far the source of ``[source]`` has been published. Raises ConfigError, DatabaseError."""
    found = source_status(config)
    now = datetime.now(UTC)
    if as_json:
        print_json(_plain(found, now))
    else:
        _print(found, now)


def _seconds(found: SourceStatus, now: datetime) -> float | None:
    return None if found.kept.moved is None else (now - found.kept.moved).total_seconds()


def _plain(found: SourceStatus, now: datetime) -> dict[str, object]:
    kept, behind = found.kept, found.behind
    return {
        "source": found.source,
        "position_in": kept.place,
        "position": kept.position.token,
        "moved": kept.moved,
        "moved_seconds": _seconds(found, now),
        "flight": kept.position.flight,
        "publisher_runs": kept.publisher_runs,
        "behind": None if behind is None else behind.number,
        "behind_unit": None if behind is None else behind.unit,
        "behind_unknown": found.unknown,
        "failures": kept.failures,
        "newest_failures": [
            {"time": one.time, "event_id": one.event_id, "code": one.code, "message": one.message}
            for one in kept.newest
        ],
    }


def _print(found: SourceStatus, now: datetime) -> None:
    kept = found.kept
    result(f"source {found.source}: {'a publisher runs' if kept.publisher_runs else 'no publisher runs'}")
    result(f"position: {place_in_words(found.source, kept.position.token)}")
    seconds = _seconds(found, now)
    result(f"kept in {kept.place}{'' if seconds is None else f', last moved {age(seconds)} ago'}")
    if found.behind is not None:
        result(f"behind it: {found.behind.number} {found.behind.unit}")
    if found.unknown is not None:
        result(f"what is behind it cannot be told: {found.unknown}")
    if kept.failures is None:
        result("what failed cannot be told: this user may not read it")
    if kept.failures:
        result(f"{kept.failures} failures, which are not tried again{', the newest' if kept.newest else ''}:")
        table(
            ("time", "event-id", "code", "message"),
            [(one.time.isoformat(timespec="seconds"), one.event_id, one.code, one.message) for one in kept.newest],
        )
