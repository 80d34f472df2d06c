"""Laws about single decisions of the product: which rows form a group, which rows ``requeue`` sends
again, and what ``explain`` and ``errors`` report. Each is computed from the log by a few rules of the
specification that are written again here.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from application import OWN_USER
from entries import Request, events_of_entry, rows_in_flight

from eventlog.publisher.feeds import queue
from eventlog.publisher.ledger.ledger import StatusLedger
from eventlog.publisher.send import cycle
from eventlog.sql.log import requeue
from eventlog.sql.port.log_operations import Window

if TYPE_CHECKING:
    from world import World

_FAMILIES = {1: "add", 5: "add", 7: "add", 2: "modify", 3: "modify", 6: "modify", 8: "modify"}
_LARGE = 200
"""The rows of a window from which on it is not compared with the rest of the queue."""
_NEAR = 40
"""The rows above a window, and the groups at its end, that are compared."""
_ADD_DISTANCE, _ADD_SPAN = 1000, 10_000
_BY_VALUE = (2, 3)
_DELETE = 4


class Logged(NamedTuple):
    """A row of the log."""

    record_id: int
    event_type: int
    table: str
    key: str
    column: str | None
    status: str
    user: str | None


_FIELDS = "record_id, event_type, table_name, table_key, column_name, trim(status), perpetrator"


def _rows(found: Iterable[Sequence[Any]]) -> list[Logged]:
    return [Logged(*row) for row in found]


def _told(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


@contextmanager
def judging(world: World) -> Iterator[None]:
    """Check each window and each judgement of ``requeue`` while the block runs."""
    read_window, judge_all = queue.read_window, requeue.judge_all
    write_marks = StatusLedger.write

    def window(context: Any, first: Any, last: Any, in_flight: Any, *given: Any) -> Any:
        found = read_window(context, first, last, in_flight, *given)
        if world.converting is None and world.scheduler.current is not None:
            audit_groups(world, context, found, in_flight)
        return found

    def judged(log: Any, *given: Any, own_user: str | None = None, **how: Any) -> Any:
        plan = judge_all(log, *given, own_user=own_user or "", **how)
        if not how.get("force"):
            audit_resent(world, log, plan, own_user or "", is_loopback=own_user is None)
        return plan

    def write(ledger: Any, *given: Any, **how: Any) -> Any:
        result = write_marks(ledger, *given, **how)
        if how.get("deletes"):
            audit_highest(world, ledger.log)
        return result

    with (
        patch.object(StatusLedger, "write", write),
        patch.object(cycle, "read_window", window),
        patch.object(requeue, "judge_all", judged),
    ):
        yield


def audit_highest(world: World, log: Any) -> None:
    """Check that the log notes the highest row that was removed, as soon as one is."""
    sql = "SELECT coalesce(max(removed), 0), (SELECT coalesce(max(record_id), 0) FROM removed_rows) FROM eventlog_epoch"
    ((noted, removed),) = log.connection.exec_driver_sql(sql).fetchall()
    world.auditor.checks += 1
    if noted < removed:
        world.fail(f"row {removed} is removed, and the log notes {noted} as the highest")


# --- groups ---------------------------------------------------------------------------------------


def audit_groups(world: World, context: Any, window: Any, in_flight: Container[int]) -> None:
    """Check that no row of the queue may still join a group that is sent, whatever the
    ``query_limit`` is (docs/spec/event-log.md 8.2). ``window`` is what was read in the transaction
    that is open.
    """
    options = context.options
    if not window.groups or options.window_rows > _LARGE or world.application.shape.has_changed:
        return
    newest = {group[0][2]: [row[0] for row in group] for group in window.groups}
    groups = {ids[-1]: ids for ids in [*newest.values()][-_NEAR:]}
    read = [*(row[0] for group in window.groups for row in group), *window.loopback, *window.passed]
    top = max([*read, *(row.record_id for row in window.invalid)])
    world.auditor.checks += 1
    found = context.log.connection.exec_driver_sql(
        f"SELECT {_FIELDS} FROM eventlog WHERE record_id IN ({_told(groups)}) "
        f"UNION ALL SELECT * FROM (SELECT {_FIELDS} FROM eventlog WHERE record_id > {top} "
        f"ORDER BY record_id LIMIT {_NEAR})"
    )
    rows = _rows(found.fetchall())
    last_rows = {(row.table, row.key): row for row in rows if row.record_id in groups}
    joined: set[tuple[str, str]] = set()
    is_own_hidden = "loopback" in world.plan["features"]
    for row in rows:
        which = row.table, row.key
        last = last_rows.get(which)
        if last is None or row.record_id <= top or which in joined or row.record_id in in_flight:
            continue
        if is_own_hidden and row.user == OWN_USER:
            continue
        if not context.ledger.consumer and row.status != "N":
            continue
        joined.add(which)
        first = groups[last.record_id][0]
        if _joins(row, last, first, options.fold_distance, options.fold_span) and _is_undone(
            context, row.record_id
        ):
            world.fail(
                f"the group {groups[last.record_id]} of {which} is sent without row "
                f"{row.record_id}, which joins it with another query_limit than "
                f"{options.window_rows}"
            )


def _joins(row: Logged, last: Logged, first: int, distance: int, span: int) -> bool:
    """Return True if a row joins a group (docs/spec/event-log.md 6)."""
    family = _FAMILIES.get(row.event_type)
    if family is None or family != _FAMILIES.get(last.event_type):
        return False
    if family == "add":
        distance, span = max(distance, _ADD_DISTANCE), span and max(span, _ADD_SPAN)
    is_near = row.record_id - last.record_id <= distance
    return is_near and (not span or row.record_id - first <= span)


def _is_undone(context: Any, record_id: int) -> bool:
    """Return True if the reader's own set lacks a row, which ``requeue`` may have set back to N."""
    window = context.ledger.undone(Window(record_id, record_id, 1, context.options.skipped_user))
    return any(context.log.read_fields(window, ("record_id", "event_type")))


# --- what is sent again ---------------------------------------------------------------------------


def audit_resent(world: World, log: Any, plan: Any, own_user: str, *, is_loopback: bool) -> None:
    """Check that ``requeue`` neither copies a row after a newer one of its object, nor sets one back
    to N before which a newer one was sent, or waits without ever being sent
    (docs/spec/event-log.md 11).
    """
    again = [*plan.back, *plan.copied]
    if not again:
        return
    ask = log.connection.exec_driver_sql
    found = ask(
        f"SELECT {_FIELDS} FROM eventlog WHERE table_key IN (SELECT table_key FROM eventlog "
        f"WHERE record_id IN ({_told(again)})) ORDER BY record_id"
    )
    objects: defaultdict[tuple[str, str], list[Logged]] = defaultdict(list)
    for row in _rows(found.fetchall()):
        objects[row.table, row.key].append(row)
    entries = ask(
        "SELECT content FROM eventlog_inflight WHERE kind = 'delivery' AND owner IS NULL"
    ).fetchall()
    in_flight = {row for (content,) in entries for row in rows_in_flight(content)}
    back, copied = {*plan.back}, {*plan.copied}
    for rows in objects.values():
        for row in rows:
            is_copy = row.record_id in copied
            if not is_copy and row.record_id not in back:
                continue
            if row.event_type not in (*_BY_VALUE, _DELETE):
                continue
            world.auditor.checks += 1
            world.auditor.looked_at["rows that requeue sends again"] += 1
            for later in rows:
                if later.record_id <= row.record_id or (is_loopback and later.record_id in copied):
                    continue
                if row.event_type == _DELETE == later.event_type:
                    continue
                is_own = bool(own_user) and later.user == own_user
                waits_for_ever = later.status == "N" and (is_own or later.record_id in in_flight)
                outdates = later.status in "SW" or waits_for_ever
                if outdates or (is_copy and later.status in "NEF"):
                    how = "copies" if is_copy else "sets back"
                    world.fail(
                        f"requeue {how} row {row.record_id} of {row.table} {row.key}, and row "
                        f"{later.record_id} ({later.status}, {later.user}) is newer"
                    )
                    return


# --- what commands report -------------------------------------------------------------------------

_STATES = (
    ("claimed", r"claimed by backlog job"),
    ("in flight", r"(in flight|parked) as event"),
    ("loopback", r"(ignored|will be marked S without being published): made by|done, made by"),
    ("will be invalid", r"will become E"),
    ("not due", r"not due before"),
    ("behind", r"waits for event"),
    ("waiting", r"waits to be published"),
    ("done", r"done: published and answered success, or without effect"),
    ("warning", r"done: published, and the receiver answered warning"),
    ("skipped", r"skipped: "),
    ("superseded", r"refused, and logged again by a resync"),
    ("refused", r"the receiver answered (error|fatal): "),
    ("invalid", r"invalid \("),
    ("unknown", r"failed \("),
)
"""The causes that ``explain`` gives for the state of a row, and how its sentences begin."""
_OF_CODES = {"receiver": "refused", "skipped": "skipped", "superseded": "superseded"}
_OF_STATUSES = {"S": "done", "W": "warning"}


def audit_explanation(world: World, told: Mapping[str, Any], consumer: str) -> None:
    """Check what ``eventlog explain`` reports of a row against the log: why it was or was not sent,
    and which rows are in its event.
    """
    row = Logged(
        *(
            told["row"][name]
            for name in (
                "record_id", "event_type", "table_name", "table_key", "column_name", "status", "perpetrator",
            )
        )
    )  # fmt: skip
    state = told["state"]
    cause = next((name for name, words in _STATES if re.match(words, state)), "")
    world.auditor.looked_at[f"rows explained as {cause or 'others'}"] += 1
    world.auditor.checks += 1
    known = _Known(world, consumer)
    expected = known.causes(row)
    if expected and cause not in expected:
        world.fail(f"row {row.record_id} is {state!r} for explain, and {sorted(expected)} in truth")
    members = {one["record_id"] for one in told["members"]}
    claimed = {one for one in members if one <= known.claimed_to}
    if told["source"] == "queue" and claimed and claimed != members:
        world.fail(
            f"explain of row {row.record_id} joins {sorted(members)}, and a backlog job has claimed "
            f"the rows up to {known.claimed_to}"
        )
    if told["source"] == "queue" and (sent := (members - claimed) & known.in_flight.keys()):
        world.fail(
            f"explain of row {row.record_id} joins {sorted(members)}, and {sorted(sent)} are in flight"
        )
    if told["source"] == "in_flight":
        rows = set(known.in_flight[row.record_id])
        there = {
            one.record_id
            for one in known.logged(sorted(rows))
            if consumer or one.status.strip() == "N"
        }
        if members != there and members != rows:
            world.fail(f"explain of row {row.record_id} has {sorted(members)}, not {sorted(rows)}")


def telling_rows(world: World) -> list[str]:
    """Return rows of which there is something to explain, one for each cause: in flight, after one in
    flight, refused, by the publisher's own user.
    """
    ask = world.application.session.execute
    entries = ask("SELECT content FROM eventlog_inflight WHERE kind = 'delivery'").fetchall()
    in_flight = {row for (content,) in entries for row in rows_in_flight(content)}
    told = _told(in_flight)
    kinds = (
        f"record_id IN ({told})",
        f"status = 'N' AND record_id NOT IN ({told}) AND EXISTS (SELECT 1 FROM eventlog AS other "
        f"WHERE other.record_id IN ({told}) AND other.table_key = eventlog.table_key "
        "AND other.table_name = eventlog.table_name)",
        "status = 'N'",
        "status IN ('E', 'F')",
        "record_id IN (SELECT record_id FROM eventlog_error WHERE consumer IS NOT NULL)",
        f"perpetrator = '{OWN_USER}'",
    )
    found = [
        ask(f"SELECT max(record_id) FROM eventlog WHERE {kind}").fetchone()[0] for kind in kinds
    ]
    return [str(row) for row in found if row is not None]


class _Known:
    """What the log has of the rows of a reader."""

    def __init__(self, world: World, consumer: str) -> None:
        self._world, self._consumer = world, consumer
        whose = "= ?" if consumer else "IS NULL"
        given = (consumer,) if consumer else ()
        entries = self._ask(
            f"SELECT content FROM eventlog_inflight WHERE kind = 'delivery' AND owner {whose}",
            *given,
        )
        self.in_flight = {
            row: event.rows
            for (content,) in entries
            for event in events_of_entry(content).values()
            for row in event.rows
        }
        """The rows of the event of each row in flight."""
        self._whose, self._given = whose, given
        claims = (
            () if consumer else self._ask("SELECT content FROM eventlog_state WHERE kind = 'claim'")
        )
        self.claimed_to = max((json.loads(content)["last"] for (content,) in claims), default=0)
        """The last row that a backlog job has claimed, 0 = there is none."""

    def logged(self, ids: Sequence[int]) -> list[Logged]:
        return _rows(self._ask(f"SELECT {_FIELDS} FROM eventlog WHERE record_id IN ({_told(ids)})"))

    def causes(self, row: Logged) -> set[str]:
        """Return the causes one of which a row has; empty = any."""
        world, number = self._world, row.record_id
        status = self._status(row)
        if status == "N" and number <= self.claimed_to:
            return {"claimed"}
        if world.backlog is not None:
            return set()
        # The commands of all readers are configured with the publisher's own user.
        is_own = row.user == OWN_USER and "loopback" in world.plan["features"]
        own = "AND error_time >= (SELECT begun FROM eventlog_consumer WHERE name = consumer) "
        codes = self._ask(
            f"SELECT code FROM eventlog_error WHERE record_id = ? AND consumer {self._whose} "
            f"{own if self._consumer else ''}ORDER BY rowid DESC LIMIT 1",
            number,
            *self._given,
        )
        code = codes[0][0] if codes else ""
        if status == "N" and number in self.in_flight:
            return {"in flight"}
        if status == "N":
            if is_own:
                return {"loopback"}
            ahead = [
                one.record_id
                for one in self.logged(sorted(self.in_flight))
                if (one.table, one.key) == (row.table, row.key)
            ]
            if world.application.shape.has_changed or world.application.hidden:
                return set()
            # Rows of a child table wait for events of its parent.
            is_child = row.table.startswith("customer_")
            waiting = {"behind"} if ahead else {"waiting", "not due"}
            return waiting | ({"behind"} if is_child or row.table == "customer" else set())
        if status in _OF_STATUSES and self._consumer:
            if code and code != "requeued":
                return {_OF_CODES.get(code, "invalid")}
            return {"done", "loopback"} if is_own else {"done"}
        if status in _OF_STATUSES:
            return {"loopback"} if is_own and status == "S" else {_OF_STATUSES[status]}
        return {_OF_CODES.get(code, "invalid")} if code and code != "requeued" else set()

    def _status(self, row: Logged) -> str:
        if not self._consumer:
            return row.status.strip()
        is_done = row.record_id in self._world.done_by_consumers().get(self._consumer, ())
        told = self._ask(
            "SELECT requeued FROM eventlog_consumer WHERE name = ? AND requeued IS NOT NULL",
            self._consumer,
        )
        is_asked = bool(told) and row.record_id in Request.of(told[0][0]).rows
        return "S" if is_done and not is_asked else "N"

    def _ask(self, sql: str, *given: object) -> list[Any]:
        found: list[Any] = self._world.application.session.execute(sql, given).fetchall()
        return found


__all__ = ["audit_explanation", "audit_groups", "audit_resent", "telling_rows"]
