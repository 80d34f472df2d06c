"""The lines about the health of a publisher, which the status of a log and of a source share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from eventlog.cli.context import JsonObject, result, table
from eventlog.errors import number_of, visible
from eventlog.publisher.context import KINDS
from eventlog.sql.doctor import age

if TYPE_CHECKING:
    from eventlog.publisher.ledger import WaitingEvent

Status = Mapping[str, Any]
"""A status whose members have the names that the monitor uses."""

SHOWN: Final = 20
"""How many events being delivered are listed for people by default; --json lists all."""

COLOURS: Final = {"error": "red", "warning": "yellow", "info": "cyan", "ok": "green"}
"""The colour of each severity."""

_IN_FLIGHT: Final = {
    "delivery": "delivery",
    "document": "document",
    "event_id": "event-id",
    "rows": "rows",
    "event_id_number": "number",
    "table_name": "table",
    "table_key": "key",
    "attempts": "attempts",
    "answer": "last answer",
}
"""The fields of an event without an answer, each with the head of its column. An event of a
followed source has some of them.
"""


def on_standby(*, is_publisher: bool) -> str:
    """Return why a standby server does not show whether a publisher, or a consumer, runs."""
    who = "a publisher" if is_publisher else "the consumer"
    return f"this server is a standby, and only the primary shows whether {who} runs"


def in_words(*, runs: bool | None, is_publisher: bool) -> str:
    """Return the sentence about whether a publisher, or a consumer, runs."""
    if is_publisher:
        return "a publisher runs" if runs else "no publisher runs"
    return "it runs" if runs else "it does not run"


def events_data(events: Iterable[WaitingEvent], without: Collection[str] = ()) -> list[JsonObject]:
    """Return events without an answer as data for JSON; ``without`` names the fields that a
    followed source does not have.
    """
    names = [name for name in _IN_FLIGHT if name not in without]
    return [{name: getattr(one, name) for name in names} for one in events]


def print_events(status: Status, limit: int) -> None:
    """Print the events of a status that have no answer, at most ``limit``."""
    events = status["in_flight"]
    if not events:
        return
    number, when = len(events), "sent first at the next start"
    if status["publisher_runs"]:
        when = "being delivered, or parked until the receiver takes them"
    result(f"{number_of(number, 'event')} {when}:")
    known = {name: heading for name, heading in _IN_FLIGHT.items() if name in events[0]}
    table(tuple(known.values()), [tuple(event[name] for name in known) for event in events[:limit]])
    if number > limit:
        result(f"... and {number - limit} more (--limit {number}, or --json, lists all)")


_OF_PROCESS: Final = ", ".join(name for name, kind in KINDS.items() if kind.known_to == "process")


def print_health(status: Status) -> None:
    """Print the conditions of the health in a status, each with what to do, and what is unknown
    because the process was not asked.
    """
    health, process = status["health"], status["process"]
    is_unknown = process is not None and bool(process["problem"])
    if not health["conditions"]:
        result(f"health: ok{', by the database alone' if is_unknown else ''}", colour=COLOURS["ok"])
    for one in health["conditions"]:
        severity = one["severity"]
        result(f"health: {severity}: {visible(one['text'])}", colour=COLOURS[severity])
        result(f"    {one['action']}")
        for command in one["commands"]:
            result(f"        {visible(command)}")
    if is_unknown:
        result(f"only the process can show {_OF_PROCESS}")
        result(f"    it could not be asked: {visible(process['problem'])}")


def print_letters(status: Status) -> None:
    """Print how many dead letters wait according to a status, if there are any."""
    if status["dead_letters"]:
        number = number_of(status["dead_letters"], "dead letter")
        since = age(status["oldest_dead_letter_age_seconds"] or 0.0)
        result(f"{number} waiting, the oldest for {since}")
