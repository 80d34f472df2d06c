"""A backlog job, and the directory that it makes: its rows are held until they are marked
(docs/spec/event-log.md 8.6).

What a job converts is what a publisher would send at that moment. So a publisher empties a copy of
the database, once, and what it sends there is the directory. The entry of the directory, and its
marks, are written as the job writes them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eventlog.model import Event
from eventlog.publisher.publisher import Publisher

if TYPE_CHECKING:
    from world import World


@dataclass
class Directory:
    """A finished directory. ``letters`` has the rows that it marks, with the letter of each, and
    ``errors`` the error row of each that gets E; ``deliveries`` are those that stand in it, too;
    ``meanings`` what its event-ids mean."""

    world: World
    number: int
    letters: dict[int, str]
    deliveries: list[int]
    events: list[Event] = field(default_factory=list)
    meanings: list[Any] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)
    errors: dict[int, tuple[str, str, str | None]] = field(default_factory=dict)
    is_marking = False

    @classmethod
    def made(cls, world: World) -> Directory | None:
        """Convert what waits, and hold it. None if nothing waits."""
        session, path = world.application.session, world.directory / "backlog.db"
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as copy:
            session.backup(copy)
            # No server is known, so that the epoch of the copy is that of the log.
            copy.execute("UPDATE eventlog_epoch SET server = NULL")
            copy.execute("DELETE FROM eventlog_state WHERE kind = 'paused'")  # which no job obeys
            waiting = [
                row for (row,) in copy.execute("SELECT record_id FROM eventlog WHERE status = 'N'")
            ]
            deliveries = [
                number
                for (number,) in copy.execute(
                    "SELECT entry_no FROM eventlog_inflight WHERE kind = 'delivery' AND owner IS NULL"
                )
            ]
        copy.close()
        if not waiting:
            return None
        made = cls(world, 0, {}, deliveries)
        world.converting = made
        try:
            config = world.config_of({"allow_loopback": True}, "python", None)
            config["database"] = {"url": f"sqlite:///{path}"}
            Publisher.from_config(config, sink=made._collect, environ={}).run_once()
        finally:
            world.converting = None
        with sqlite3.connect(path) as copy:
            letters = dict(copy.execute("SELECT record_id, status FROM eventlog"))
            newest = copy.execute(
                "SELECT record_id, code, message, event_id, max(rowid) FROM eventlog_error "
                "WHERE consumer IS NULL GROUP BY record_id"
            ).fetchall()
        copy.close()
        made.letters = {row: letters[row] for row in waiting if letters[row] in "SE"}
        made.errors = {row: tuple(told) for row, *told, _ in newest if made.letters.get(row) == "E"}
        made._write_entry(max(waiting))
        world.tell(
            f"a backlog job holds the rows up to {max(waiting)}, in {len(made.events)} events"
        )
        return made

    def _collect(self, body: bytes, events: Sequence[Event]) -> None:
        self.events += events

    def _write_entry(self, last: int) -> None:
        entry = {
            "line_format": 1, "job": "job", "directory": "directory", "manifest": "0" * 64,
            "since": "2023-11-14 22:13:20", "last": last, "rows": len(self.letters), "deliveries": self.deliveries,
            "writers": sorted(self.world.application.late), "is_marking": False,
        }  # fmt: skip

        def act() -> None:
            run = self.world.application.session.execute
            run("BEGIN IMMEDIATE")
            self.number = run(
                "INSERT INTO eventlog_delivery DEFAULT VALUES RETURNING delivery_no"
            ).fetchone()[0]
            run("DELETE FROM eventlog_delivery")
            run(
                "INSERT INTO eventlog_state (entry_no, kind, content) VALUES (?, 'claim', ?)",
                (self.number, json.dumps(entry, separators=(",", ":"))),
            )
            run("COMMIT")

        self.world.application.when_free(act)

    def hand_over(self) -> None:
        """Give the documents to the receiver, which applies each event that it does not know."""
        receiver = self.world.receivers["receiver"]
        self.world.tell(f"the receiver gets the directory of {len(self.events)} events")
        converted = {event.event_id for event in self.events}
        for events in self.meanings:
            sent = [event for event in events if event.sent_id in converted]
            self.world.auditor.sends("", sent)
        self.world.auditor.needs_no_event(self.idle)
        receiver.apply(self.events)
        self.world.auditor.is_answered("receiver", self.events, {})

    def mark(self, most: int | None = None) -> bool:
        """Mark the rows and end the hold; with ``most`` only so many rows, as a job that is killed.
        Return True if all is done."""
        rows = sorted(self.letters)[:most]

        def act() -> None:
            run = self.world.application.session.execute
            run("BEGIN IMMEDIATE")
            (entry,) = run(
                "SELECT content FROM eventlog_state WHERE entry_no = ?", (self.number,)
            ).fetchone()
            entry = json.dumps({**json.loads(entry), "is_marking": True}, separators=(",", ":"))
            run(
                "UPDATE eventlog_state SET content = ? WHERE entry_no = ?",
                (entry, self.number),
            )
            for delivery in self.deliveries:
                run("DELETE FROM eventlog_inflight WHERE entry_no = ?", (delivery,))
            marked = "UPDATE eventlog SET status = ? WHERE record_id = ? AND status = 'N'"
            for row in rows:
                if run(marked, (self.letters[row], row)).rowcount and row in self.errors:
                    run(
                        "INSERT INTO eventlog_error (record_id, code, message, event_id) "
                        "VALUES (?, ?, ?, ?)",
                        (row, *self.errors[row]),
                    )
                    self.world.auditor.is_invalid("publisher", [row])
            if most is None:
                run("DELETE FROM eventlog_state WHERE entry_no = ?", (self.number,))
            run("COMMIT")

        self.is_marking = True
        self.world.application.when_free(act)
        self.world.tell(f"the job marks {rows}{'' if most is None else ', and is killed'}")
        return most is None

    def abandon(self) -> None:
        """Give the rows back to the publisher."""
        self.world.tell("the directory is given up")
        self.world.application.when_free(
            lambda: self.world.application.session.execute(
                "DELETE FROM eventlog_state WHERE entry_no = ?", (self.number,)
            )
        )
