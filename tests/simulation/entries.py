"""The entries of the internal tables, parsed by the simulation's own code: an auditor that read them
with the product's would believe its faults (docs/spec/event-log.md 10, 13.1)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple


class Rows(Collection[int]):
    """The record_ids of a text such as ``[10,2,2]``: all up to 10, and those from 12 to 14."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.ranges = [(first, last) for first, last in ranges if first <= last]

    @classmethod
    def of(cls, text: str) -> Rows:
        """Parse the set of a consumer."""
        end, *steps = json.loads(text)
        ranges = [(1, end)]
        for distance, length in zip(steps[::2], steps[1::2], strict=True):
            first = end + distance
            end = first + length
            ranges.append((first, end))
        return cls(ranges)

    def __or__(self, others: Rows) -> Rows:
        return Rows([*self.ranges, *others.ranges])

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and any(first <= row <= last for first, last in self.ranges)

    def __iter__(self) -> Any:
        return iter(sorted({row for first, last in self.ranges for row in range(first, last + 1)}))

    def __len__(self) -> int:
        return len(list(iter(self)))


class Request(NamedTuple):
    """What a consumer is asked to send again: rows, and event-ids of objects of its snapshot."""

    rows: Rows
    objects: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Request:
        """Parse ``requeued`` of a consumer."""
        told = json.loads(text)
        return cls(Rows((first, last) for first, last in told["rows"]), tuple(told["objects"]))


def sets_of(
    first_sets: Iterable[tuple[str, str]], entries: Iterable[tuple[str, str]]
) -> dict[str, Rows]:
    """Return the rows that each consumer has done, by its row and by its entries (consumer,
    content): the newest whole set, if there is one, with the rows that have joined it."""
    done = {name: Rows.of(text) for name, text in first_sets}
    contents = [(name, json.loads(content)) for name, content in entries]
    for name, content in sorted(contents, key=lambda one: one[1]["set"] != "whole"):
        rows = Rows.of(content["rows"])
        done[name] = rows if content["set"] == "whole" else done[name] | rows
    return done


def may_mean(content: str, event_id: str) -> bool:
    """Return True if an entry in flight was written under the epoch of an event-id, or names it."""
    epoch = next((part[1:] for part in event_id.split(".") if part[0] == "e"), "")
    return json.loads(content).get("epoch", "") == epoch or f'"{event_id}"' in content


def rows_in_flight(content: str) -> Rows:
    """Return the rows that an entry in flight names."""
    documents = json.loads(content).get("documents", ())
    return Rows((first, last) for one in documents for first, last in one.get("rows", ()))


class RecordedEvent(NamedTuple):
    """An event of an entry in flight; that of an object of a snapshot has no rows."""

    attempts: int
    rows: tuple[int, ...]
    due: str
    """The database's time of its next attempt; empty = none is recorded."""


def events_of_entry(content: str) -> dict[str, RecordedEvent]:
    """Return the events of an entry in flight, by their event-ids without their attempts."""
    entry = json.loads(content)
    suffix = f".e{entry['epoch']}" if "epoch" in entry else ""
    events: dict[str, RecordedEvent] = {}
    for document in entry["documents"]:
        special = document.get("events", {})
        numbers = (
            row for first, last in document.get("rows", ()) for row in range(first, last + 1)
        )
        rows = [tuple(islice(numbers, count)) for count in document.get("counts", ())]
        ids = [f"{several[0]}{suffix}" for several in rows]
        for text in document.get("objects", ()):
            rows.append(())
            ids.append(f"snapshot.{entry['snapshot']}.{text}")
        for index, (event_id, several) in enumerate(zip(ids, rows, strict=True)):
            what = special.get(str(index), {})
            tried = what.get("parked", document.get("suspect", {}))
            events[what.get("id", event_id)] = RecordedEvent(
                what.get("attempts", 1), several, tried.get("due", "")
            )
    return events


def events_in_position(content: str) -> list[tuple[str, str]]:
    """Return the events of an entry of a position: event-id, and the recorded time of the next
    attempt, empty = none."""
    entry = json.loads(content)
    tried = entry.get("parked", entry.get("suspect", {}))
    return [(event["id"], tried.get("due", "")) for event in entry.get("events", ())]


def seconds_of(text: str) -> float:
    """Return a recorded time as seconds since 1970."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
