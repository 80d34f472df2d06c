"""The lines of the internal tables, parsed by the simulation's own code: an auditor that read them with the
product's would believe its faults (docs/spec/event-log.md 10, 13.1)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
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


def sets_of(first_sets: Iterable[tuple[str, str]], lines: Iterable[str]) -> dict[str, Rows]:
    """Return the rows that each consumer has done, by what stands in its line and in the lines of sets:
    the newest whole one, if there is one, with those that have joined it."""
    done = {name: Rows.of(text) for name, text in first_sets}
    told = [json.loads(line) for line in lines]
    for line in sorted(told, key=lambda line: line["set"] != "whole"):
        rows = Rows.of(line["rows"])
        name = line["consumer"]
        done[name] = rows if line["set"] == "whole" else done[name] | rows
    return done


def rows_in_flight(composition: str) -> Rows:
    """Return the rows that a line in flight names."""
    envelopes = json.loads(composition).get("envelopes", ())
    return Rows((first, last) for one in envelopes for first, last in one["rows"])
