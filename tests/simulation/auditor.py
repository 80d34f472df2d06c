"""The auditor: what must hold at every moment, and what must hold at the end.

It models what each event-id means: the committed rows that it stands for. Safety, at every moment:

- an event-id never has two sets of rows, unless its first was refused for good or is to come again;
- a row is applied under one event-id alone (its later sendings, ``.2``, are the same one);
- events of one object are applied in the order of their rows;
- a process ends by an error of ours, or not at all.

Liveness, at the end, after the last fault: each committed row was applied, needed no event, or has a line
that says why not; nothing waits without a reason; receivers have what the tables have.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from application import KEYS
from replicas import Key, Replica

from eventlog.errors import EventlogError
from eventlog.model import Event, Level, Verdict

if TYPE_CHECKING:
    from world import World

_NOT_FOR_GOOD = (Level.ERROR, Level.FATAL, Level.RETRY)
_MULTIPLE = "customer_tag.tag"


class Auditor:
    """The model of event-ids, and the checks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rows: dict[tuple[str, str], tuple[int, ...]] = {}
        self._answered: dict[tuple[str, str], Level] = {}
        self._applied: dict[tuple[str, int], str] = {}
        self._newest: dict[tuple[str, Key], int] = {}
        self._idle: set[int] = set()
        self.timeline = 0
        self.unsure: set[Key] = set()
        """The objects of which the database lost changes that a receiver has."""
        self.checks = 0

    # --- at every moment ---

    def sends(self, consumer: str, events: Iterable[Any]) -> None:
        """Note what a publisher or a consumer is about to send under which event-id."""
        for event in events:
            which, rows = (consumer, event.sent_id), tuple(event.ids)
            before = self._rows.setdefault(which, rows)
            self.checks += 1
            if before != rows:
                last = self._answered.get(which)
                if last not in _NOT_FOR_GOOD:
                    self._world.fail(
                        f"event-id {event.sent_id} of {consumer or 'the publisher'} meant rows {before}, and means {rows}; "
                        f"its last answer was {last.name.lower() if last else 'none'}"
                    )
                self._rows[which] = rows

    def is_applied(self, receiver: str, event: Event, is_strict: bool) -> None:
        """Note an event that a receiver has applied for the first time."""
        key = event.class_name, event.association
        rows = self._rows.get((_consumer(receiver), event.event_id))
        if rows is None:  # of a snapshot
            return
        self.checks += 1
        meaning = _meaning(event.event_id)
        for row in rows:
            other = self._applied.setdefault((receiver, row), meaning)
            is_lost = self.timeline and _epoch(other) != _epoch(
                meaning
            )  # sent again under another id
            if (
                other != meaning
                and not is_lost
                and key not in self._world.replica_of(receiver).refused
            ):
                self._world.fail(
                    f"{receiver}: row {row} was applied under {other}, and again under {event.event_id}"
                )
        newest = self._newest.get((receiver, key), 0)
        is_first = event.event_id == meaning
        if (
            is_strict
            and is_first
            and rows[0] < newest
            and self._world.is_ordered
            and not self.timeline
            and key not in self._world.replica_of(receiver).refused
        ):
            self._world.fail(
                f"{receiver}: {event.event_id} of {key} comes after row {newest} of the object"
            )
        self._newest[receiver, key] = max(newest, *rows)

    def is_answered(
        self, receiver: str, events: Sequence[Event], verdicts: Mapping[str, Verdict]
    ) -> None:
        """Note the answer that has left a receiver."""
        for event in events:
            verdict = verdicts.get(event.event_id)
            level = Level.SUCCESS if verdict is None else verdict.level
            self._answered[_consumer(receiver), event.event_id] = level

    def needs_no_event(self, rows: Iterable[int]) -> None:
        """Note rows that precedence dropped, or whose object is gone: they are marked without an event."""
        self._idle.update(rows)

    def process_ended(self, name: str, error: BaseException) -> None:
        """Check how a process has ended."""
        if not isinstance(error, EventlogError):
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.name}"
            self._world.fail(
                f"{name} ended by {type(error).__name__} in {where}: {error} {last.line}"
            )

    def time_goes_back(self, top: int) -> None:
        """Note that an older copy was put back, whose highest record_id is this one."""
        self.timeline += 1
        for model in (self._applied, self._rows):
            for which in [which for which, rows in model.items() if _is_above(which, rows, top)]:
                del model[which]
        self._newest.clear()
        self._idle = {row for row in self._idle if row <= top}

    # --- at the end ---

    def audit(self) -> None:
        """Check what must hold when all is delivered."""
        self._world.readers.look()
        ask = self._ask
        if left := ask(
            "SELECT record_id, table_name, table_key FROM eventlog WHERE status = 'N' LIMIT 10"
        ):
            self._world.fail(f"rows are left N: {left}")
        if lines := ask("SELECT * FROM eventlog_inflight LIMIT 3"):
            self._world.fail(f"lines in flight are left: {lines}")
        if unexplained := ask(
            "SELECT record_id FROM eventlog WHERE status IN ('E', 'F') AND record_id NOT IN "
            "(SELECT record_id FROM eventlog_error WHERE consumer IS NULL) LIMIT 10"
        ):
            self._world.fail(f"rows E or F have no error line: {unexplained}")
        bad = ask(
            "SELECT record_id, code, message FROM eventlog_error WHERE code NOT IN ('receiver', 'requeued') LIMIT 5"
        )
        if bad and not self._world.refuses_values:
            self._world.fail(f"rows became bad: {bad}")
        self._audit_rows()
        self._audit_replicas()

    def _audit_rows(self) -> None:
        """Check that each committed row was applied, needed no event, or was refused."""
        reader = "receiver" if self._world.plan["sink"] == "python" else "reader"
        refused = {row[0] for row in self._ask("SELECT record_id FROM eventlog_error")}
        there = {row[0]: row[1] for row in self._ask("SELECT record_id, status FROM eventlog")}
        there |= {row[0]: "removed" for row in self._ask("SELECT record_id FROM removed_rows")}
        lost = [
            (row, letter)
            for row, letter in sorted(there.items())
            if letter in ("S", "W", "removed")
            and (reader, row) not in self._applied
            and row not in self._idle
            and row not in refused
        ]
        self.checks += len(there)
        if lost and not self.timeline:
            told = self._ask(
                f"SELECT record_id, status, event_type, table_name, table_key FROM eventlog WHERE record_id IN ({','.join(str(row) for row, _ in lost[:10])})"
            )
            self._world.fail(f"rows are done, and {reader} never applied them: {lost[:10]} {told}")

    def _audit_replicas(self) -> None:
        world = self._world
        if world.plan["sink"] == "python":
            self._compare("receiver", world.receivers["receiver"].replica)
        else:
            self._compare("the reader that remembers names", world.readers.remembering)
            self._compare("the reader of all names", world.readers.read_all())
        for name, receiver in world.receivers.items():
            if name != "receiver":
                self._compare(name, receiver.replica)

    def _compare(self, who: str, replica: Replica) -> None:
        """Compare a replica with the tables, except for objects of which it refused an event."""
        unheeded = {_MULTIPLE} if self._world.refuses_values else set()
        is_away = self._world.application.hidden
        wanted = {
            key: _values(values, unheeded)
            for key, values in self._world.application.objects().items()
        }
        there = {_own(key): _values(values, unheeded) for key, values in replica.objects.items()}
        excused = self.unsure | {_own(key) for key in replica.refused} | self._refused_objects()
        for key in sorted(set(wanted) | set(there)):
            if key in excused or key[0] in is_away:
                continue
            self.checks += 1
            has, should = there.get(key), wanted.get(key)
            if has != should and (has or should):
                rows = self._ask(
                    f"SELECT record_id, status, event_type, column_name, substr(old_value, 1, 20), substr(new_value, 1, 20) "
                    f"FROM eventlog WHERE table_name = {key[0]!r} AND table_key = '{key[1]}' ORDER BY record_id DESC LIMIT 8"
                )
                self._world.fail(
                    f"{who}: {key} is {has}, and the table has {should}; its newest rows: {rows}"
                )
                return

    def _refused_objects(self) -> set[Key]:
        """Return the objects of events that the format itself has refused."""
        if not self._world.refuses_values:
            return set()
        return set(
            self._ask(
                "SELECT table_name, table_key FROM eventlog WHERE record_id IN (SELECT record_id FROM eventlog_error)"
            )
        )

    def _ask(self, sql: str) -> list[Any]:
        return self._world.application.session.execute(sql).fetchall()


def _consumer(receiver: str) -> str:
    return "" if receiver in ("receiver", "reader") else receiver


def _meaning(event_id: str) -> str:
    """Return an event-id without the number of its sending."""
    parts = event_id.split(".")
    return ".".join(part for part in parts if not (part.isdigit() and part != parts[0]))


def _epoch(event_id: str) -> str:
    return next((part for part in event_id.split(".") if part[0] == "e"), "")


def _is_above(which: tuple[str, Any], value: Any, top: int) -> bool:
    rows = value if isinstance(value, tuple) else (which[1],)
    return max(rows) > top


def _own(key: Key) -> Key:
    return key[0], key[1].partition(",table=")[0]


def _values(values: Mapping[str, Sequence[str]], unheeded: set[str]) -> dict[str, list[str]]:
    return {name: sorted(set(texts)) for name, texts in values.items() if name not in unheeded}


__all__ = ["KEYS", "Auditor"]
