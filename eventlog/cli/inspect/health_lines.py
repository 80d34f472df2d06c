"""The lines about the health of a publisher, which the status of a log and of a source share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eventlog.cli.context import result, table
from eventlog.errors import number_of, visible

SHOWN: Final = 20
"""The events being delivered that are listed for people by default; --json lists all."""

COLOURS: Final = {"error": "red", "warning": "yellow", "info": "cyan", "ok": "green"}
"""The colour of each severity."""


def in_words(*, runs: bool | None, is_publisher: bool) -> str:
    """Return whether a publisher, or a consumer, runs as a sentence."""
    if is_publisher:
        return "a publisher runs" if runs else "no publisher runs"
    return "it runs" if runs else "it does not run"


def _when_sent(publisher_runs: bool | None) -> str:
    """Return what happens to events without an answer."""
    if publisher_runs:
        return "being delivered, or parked until the receiver takes them"
    return "sent first at the next start"


def print_events(
    headings: Sequence[str], rows: Sequence[Sequence[object]], runs: bool | None, limit: int
) -> None:
    """Print the events without an answer, at most ``limit``. ``runs``: a publisher runs."""
    if not rows:
        return
    result(f"{number_of(len(rows), 'event')} {_when_sent(runs)}:")
    table(headings, rows[:limit])
    if len(rows) > limit:
        result(f"... and {len(rows) - limit} more (--limit {len(rows)}, or --json, lists all)")


def print_health(health: Mapping[str, Any]) -> None:
    """Print the conditions of a health, each with what to do."""
    if not health["conditions"]:
        result("health: ok", colour=COLOURS["ok"])
    for one in health["conditions"]:
        severity = one["severity"]
        result(f"health: {severity}: {visible(one['text'])}", colour=COLOURS[severity])
        result(f"    {one['action']}")
        for command in one["commands"]:
            result(f"        {visible(command)}")
