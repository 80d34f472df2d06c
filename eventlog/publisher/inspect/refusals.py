"""The refused rows in groups of one cause, each with the commands for it (spec/event-log.md 11).

``eventlog errors`` shows the groups, and ``eventlog skip --refused`` applies to their rows. Whether
``requeue`` accepts a row is decided by the functions that ``requeue`` itself calls.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.ranges import RecordSet, to_ranges
from eventlog.core.rows.event_ids import object_text
from eventlog.errors import DatabaseError, RowError
from eventlog.model import EventType, LogRow, Status, unpadded
from eventlog.publisher.context.conditions import LINES_READ
from eventlog.publisher.context.context import in_savepoint
from eventlog.publisher.ledger.in_flight import read_recorded, sent_ids
from eventlog.sql import resync
from eventlog.sql.log.epoch import read_removed
from eventlog.sql.log.errors import (
    PUT_BACK,
    SKIPPED,
    SUPERSEDED,
    ErrorRow,
    newest_by_row,
    newest_errors_of,
    records_new_rows,
)
from eventlog.sql.log.requeue import (
    ObjectRow,
    ResendPlan,
    judged_by_status,
    plan_of,
    read_logged_objects,
)
from eventlog.sql.log.rows import column_of, extent, is_in, newest_failed_rows, runs_of_ranges
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.readers.consumers import judged_by_set, read_consumer
from eventlog.sql.readers.superseded import waiting_rows

NOT_RECORDED: Final = "not_recorded"
"""The code of rows E and F that have no error row."""
_WAITING: Final = "sent again, waiting: {}"
_NOT_RECORDED_REASON: Final = "the reason is not recorded: the log has no error row for it"
_OBJECTS_NAMED: Final = 20
"""The maximum number of objects of a snapshot in a command line."""
_KEYS_NAMED: Final = 20
"""The maximum number of keys in a command line."""
_MAX_REASONS: Final = 10
"""The maximum number of groups of one code, table and status; if there are more, reasons are
merged.
"""
_MARGIN: Final = 10_000
"""How many record_ids before the first refused row are read too: its insert, which is judged as a
whole, may begin there.
"""
_FAILED: Final = (Status.ERROR.value, Status.FATAL.value)


class Refusals(NamedTuple):
    """Refused rows of one code, table, status and reason, or refused objects of a consumer's
    snapshot.

    ``example`` is the record_id of the newest row, or the event-id of the newest object. ``newest``
    is the time in UTC of the error row of ``example``, None without an error row. ``commands`` send
    the objects again; none of these commands would be refused now.
    """

    code: str
    table_name: str | None
    status: str
    rows: int
    newest: datetime | None
    example: int | str
    message: str
    commands: tuple[str, ...]


class Refused(NamedTuple):
    """The rows and objects that were refused, and that were not put back into the queue since."""

    rows: Mapping[int, LogRow]
    """The rows, by record_id."""
    row_errors: Mapping[int, ErrorRow]
    """The newest error row of each row that has one."""
    objects: Mapping[str, ErrorRow]
    """The newest error row of each object of a consumer's snapshot, by event-id."""


class _Judged(NamedTuple):
    """The objects that have refused rows, and the data by which ``requeue`` decides about these
    rows.
    """

    log: OpenLog
    consumer: str
    objects: Sequence[Sequence[ObjectRow]]
    after: int
    """Only rows with greater record_ids were judged."""
    failed: Collection[int]
    in_flight: RecordSet
    claimed_to: int
    removed: int

    def of(self, ids: Collection[int]) -> tuple[Sequence[Sequence[ObjectRow]], ResendPlan]:
        """Return the objects that have at least one of these rows, and what ``requeue`` would do if
        only these rows were chosen.
        """
        objects = [
            [row._replace(is_chosen=row.record_id in ids) for row in rows]
            for rows in self.objects
            if any(row.record_id in ids for row in rows)
        ]
        if not self.consumer:
            judged = judged_by_status(self.in_flight)
            return objects, plan_of(objects, self.removed, judged, claimed_to=self.claimed_to)
        entry = read_consumer(self.log, self.consumer)
        if entry is None:
            return objects, ResendPlan([], [], set(), (), self.removed)
        judged = judged_by_set(entry, ids, failed=self.failed, in_flight=self.in_flight)
        return objects, plan_of(objects, self.removed, judged, whole=True)


def read_refusals(
    log: OpenLog,
    most: int,
    consumer: str = "",
    *,
    own_user: str = "",
    catalog: Catalog | None = None,
    within: int | None = None,
) -> list[Refusals]:
    """Return the refused rows in groups, the largest group first. The groups have the rows of the
    newest ``most`` error rows, and the newest ``most`` rows E and F, with an error row or without.

    Rows that were put back into the queue, published or purged since are left out. A row is also
    left out if a resync has logged another row for it, and this other row is done. ``consumer``
    selects the rows refused for this consumer, with any status, and objects of its snapshot.
    ``own_user`` is the user whose rows are loopback. With a ``catalog``, objects are named as
    ``resync`` accepts them. ``within`` limits how many rows at the end of the log are read to find
    rows without an error row, and to determine the commands; None = all rows. A command for an
    older row has ``--dry-run``.
    """
    after = _begin_of(log, within)
    refused = read_refused(log, most, consumer, after)
    judged = _judge(log, refused, consumer, own_user, after)
    groups = [
        _refused_rows(kind, reason, ids, refused, judged, consumer, catalog)
        for kind, reason, ids in _by_reason(refused, consumer)
    ]
    by_class: dict[tuple[str, str], list[str]] = defaultdict(list)
    for event_id, line in refused.objects.items():
        by_class[line.code, object_text(event_id).partition(".")[0]].append(event_id)
    groups += [
        _refused_objects(*kind, ids, refused.objects, consumer) for kind, ids in by_class.items()
    ]
    return sorted(groups, key=lambda group: (-group.rows, group.code, group.table_name or ""))


def _begin_of(log: OpenLog, within: int | None) -> int:
    """Return the record_id after which the newest ``within`` record_ids begin; 0 = read all."""
    if within is None:
        return 0
    _, newest = extent(log) or (0, 0)
    return max(0, newest - within)


def read_refused(
    log: OpenLog, most: int = LINES_READ, consumer: str = "", after: int = 0
) -> Refused:
    """Return the rows and objects that were refused and not put back since. Rows and objects for
    which a new row is done are left out. ``most`` and ``consumer`` are as in ``read_refusals``.
    Rows without an error row are found after the record_id ``after``.
    """
    entries, objects = refused(log, most, consumer)
    without = []
    if not consumer:
        without = [row for row in _newest_failed(log, most, after) if row not in entries]
        entries = {**entries, **newest_errors_of(log, without)}
    done = superseded(chain(entries.items(), objects.items()), log, consumer)
    ids = to_ranges(sorted({*without, *entries}.difference(done)))
    rows = {
        row.record_id: row
        for row in log.read_rows(ids)
        if consumer or unpadded(row.status) in _FAILED
    }
    return Refused(
        rows,
        {row: entry for row, entry in entries.items() if row in rows},
        {event_id: entry for event_id, entry in objects.items() if event_id not in done},
    )


def superseded(
    entries: Iterable[tuple[int | str, ErrorRow]], log: OpenLog, consumer: str = ""
) -> set[int | str]:
    """Return which rows and objects with these newest error rows need nothing more, because a
    resync has logged them again and their reader has done the new row.
    """
    new = {
        row: entry.superseded_by
        for row, entry in entries
        if entry.code == SUPERSEDED and entry.superseded_by is not None
    }
    waiting = waiting_rows(log, {*new.values()}, consumer)
    return {row for row, number in new.items() if number not in waiting}


def commands_for(
    log: OpenLog,
    row: LogRow,
    entry: ErrorRow | None,
    consumer: str = "",
    own_user: str = "",
    catalog: Catalog | None = None,
    within: int | None = None,
) -> Sequence[str]:
    """Return the commands for one refused row with this newest error row, as ``read_refusals``
    names them for a group.
    """
    ids = [row.record_id]
    entries = {} if entry is None else {row.record_id: entry}
    alone = Refused({row.record_id: row}, entries, {})
    ((kind, reason, _),) = _by_reason(alone, consumer)
    judged = _judge(log, alone, consumer, own_user, _begin_of(log, within))
    return _refused_rows(kind, reason, ids, alone, judged, consumer, catalog).commands


def _newest_failed(log: OpenLog, most: int, after: int) -> list[int]:
    """Return the newest rows E and F after a record_id; none if they cannot be read in time."""
    conn = log.connection
    try:
        with in_savepoint(conn):
            return newest_failed_rows(log, most, after)
    except DatabaseError:
        if conn.invalidated:
            raise
        return []


def refused(
    log: OpenLog, most: int = LINES_READ, consumer: str = ""
) -> tuple[dict[int, ErrorRow], dict[str, ErrorRow]]:
    """Return the newest error row of each refused row, and of each refused object of a consumer's
    snapshot. Rows and objects that were put back since are left out.

    Only the newest ``most`` error rows are read. ``consumer`` is as in ``read_refusals``.
    """
    newest = newest_by_row(log, most, consumer)
    failed = {row: entry for row, entry in newest.items() if entry.code != PUT_BACK}
    rows = {row: entry for row, entry in failed.items() if isinstance(row, int)}
    return rows, {row: entry for row, entry in failed.items() if isinstance(row, str)}


def refusals_data(refusals: Iterable[Refusals]) -> list[dict[str, Any]]:
    """Return the groups as data for JSON."""
    return [
        {
            **group._asdict(),
            "newest": None if group.newest is None else f"{group.newest:%Y-%m-%dT%H:%M:%SZ}",
            "commands": [*group.commands],
        }
        for group in refusals
    ]


# --- the groups -----------------------------------------------------------------------------------

_Kind = tuple[str, str | None, str]
"""A code, a table_name and a status."""
_STATUS_LINE: Final = re.compile(r"the receiver answers [1-5][0-9]{2}[^;:]*")
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"")
_WITH_DIGIT: Final = re.compile(r"[\w.-]*\d[\w.-]*")


def _by_reason(refused: Refused, consumer: str) -> Iterator[tuple[_Kind, str, list[int]]]:
    """Yield the refused rows of each code, table, status and reason, with the newest message.

    Answers with the same status line are one reason, whatever they quote. Messages that differ only
    in quoted texts are one reason. If one code, table and status has more than ten reasons,
    messages that differ only in words with digits become one reason too. If more than ten reasons
    are left, they all become one group.
    """
    kinds: dict[_Kind, list[int]] = defaultdict(list)
    for record_id, row in sorted(refused.rows.items()):
        status = Status.ERROR.value if consumer else unpadded(row.status)
        entry = refused.row_errors.get(record_id)
        code = NOT_RECORDED if entry is None else entry.code
        kinds[code, row.table_name, status].append(record_id)
    for kind, ids in kinds.items():
        for reasons in _reasons(ids, refused.row_errors):
            yield kind, _message_of(max(reasons, key=_newest_by(refused)), refused), reasons


def _reasons(ids: list[int], entries: Mapping[int, ErrorRow]) -> Iterable[list[int]]:
    found: dict[str, list[int]] = {}
    for patterns in ((_QUOTED,), (_QUOTED, _WITH_DIGIT)):
        found = defaultdict(list)
        for record_id in ids:
            text = entries[record_id].message if record_id in entries else ""
            if answered := _STATUS_LINE.match(text):
                text = answered[0]
            for pattern in patterns:
                text = pattern.sub("...", text)
            found[text].append(record_id)
        if len(found) <= _MAX_REASONS:
            return found.values()
    return [ids]


def _newest_by(refused: Refused) -> Any:
    def key(record_id: int) -> tuple[datetime, int]:
        entry = refused.row_errors.get(record_id)
        return (datetime.min if entry is None else entry.error_time), record_id

    return key


def _message_of(record_id: int, refused: Refused) -> str:
    entry = refused.row_errors.get(record_id)
    return _NOT_RECORDED_REASON if entry is None else _reason(entry)


def _reason(entry: ErrorRow) -> str:
    return _WAITING.format(entry.message) if entry.code == SUPERSEDED else entry.message


def _refused_rows(
    kind: _Kind,
    reason: str,
    ids: list[int],
    refused: Refused,
    judged: _Judged | None,
    consumer: str,
    catalog: Catalog | None,
) -> Refusals:
    code, table_name, status = kind
    newest = max(ids, key=_newest_by(refused))
    entry = refused.row_errors.get(newest)
    time = None if entry is None else entry.error_time
    commands: list[str] = []
    if code != SUPERSEDED:
        commands = (
            [f"{_requeue(status, consumer, ids)} --dry-run"]
            if judged is None or min(ids) <= judged.after
            else _commands(kind, ids, judged, catalog)
        )
    return Refusals(code, table_name, status, len(ids), time, newest, reason, tuple(commands))


def _refused_objects(
    code: str, class_name: str, event_ids: list[str], entries: Mapping[str, ErrorRow], consumer: str
) -> Refusals:
    newest = max(event_ids, key=lambda event_id: (entries[event_id].error_time, event_id))
    command = f"eventlog requeue --consumer {consumer}"
    if len(event_ids) <= _OBJECTS_NAMED:
        command += "".join(f" --event-id {shlex.quote(event_id)}" for event_id in event_ids)
    entry = entries[newest]
    status = Status.ERROR.value
    return Refusals(
        code,
        class_name,
        status,
        len(event_ids),
        entry.error_time,
        newest,
        _reason(entry),
        () if code == SUPERSEDED else (command,),
    )


# --- the commands that will be accepted -----------------------------------------------------------


def _judge(
    log: OpenLog, refused: Refused, consumer: str, own_user: str, begin: int
) -> _Judged | None:
    """Return what decides whether refused rows after ``begin`` may be sent again. Return None if
    this cannot be read in time.
    """
    conn = log.connection
    ids = sorted(row for row in refused.rows if row > begin)
    try:
        with in_savepoint(conn):
            in_flight = sent_ids(log, consumer)
            _, claim = read_recorded(log, consumer)
            objects: dict[int, Sequence[ObjectRow]] = {}
            # What outdates a row comes after it.
            after = max(0, ids[0] - _MARGIN) if ids else 0
            for chosen in _conditions(log, ids, consumer):
                for rows in read_logged_objects(log, chosen, own_user, after):
                    if any(row.record_id in refused.rows for row in rows):
                        objects[rows[0].record_id] = rows
            removed = read_removed(log)
    except DatabaseError:
        if conn.invalidated:
            raise
        return None
    claimed_to = 0 if claim is None else claim.last
    failed, found = set(refused.row_errors), [*objects.values()]
    return _Judged(log, consumer, found, begin, failed, in_flight, claimed_to, removed)


def _conditions(
    log: OpenLog, ids: Sequence[int], consumer: str
) -> Iterator[sa.ColumnElement[bool]]:
    """Yield conditions that together select at least these rows, given in ascending order. For the
    publisher there is a single condition, on the status, so that the log is read once.
    """
    if consumer:
        for ranges in runs_of_ranges(ids):
            yield is_in(log.table, ranges)
    elif ids:
        has_failed = column_of(log.table, "status").in_(_FAILED)
        yield sa.and_(has_failed, column_of(log.table, "record_id").between(ids[0], ids[-1]))


def _commands(kind: _Kind, ids: list[int], judged: _Judged, catalog: Catalog | None) -> list[str]:
    """Return the commands that send the objects of these refused rows again: ``requeue`` for the
    rows that it accepts, ``resync`` for the objects of the other rows. For an object whose deletion
    was logged since, the command is ``skip``. ``skip`` also follows a ``resync`` that cannot settle
    the rows, for example because they have no error row.
    """
    (code, _, status), log, consumer = kind, judged.log, judged.consumer
    objects, plan = judged.of(frozenset(ids))
    commands = []
    if accepted := sorted({*plan.back, *plan.copied}):
        commands.append(_requeue(status, consumer, accepted))
    left = {row.record_id for row in plan.refused}
    stale = [rows for rows in objects if any(row.record_id in left for row in rows)]
    resyncs, deleted = resync_commands(log, catalog, stale)
    commands += resyncs
    if code == SKIPPED:
        return commands
    if resyncs and (code == NOT_RECORDED or not records_new_rows(log)):
        commands.append(_skip(consumer, sorted(left - deleted), "sent again"))
    if done := sorted(left & deleted):
        commands.append(_skip(consumer, done, "deleted since"))
    return commands


def _skip(consumer: str, ids: Sequence[int], reason: str) -> str:
    """Return the command that ends the warning about refused rows."""
    whose = f" --consumer {shlex.quote(consumer)}" if consumer else ""
    return f"eventlog skip --refused{whose} --ids {ids_in_words(ids)} --reason '{reason}'"


def _requeue(status: str, consumer: str, ids: Sequence[int]) -> str:
    """Return the command that requeues these rows. The command names the rows by record_id, because
    it may refuse other rows of the group.
    """
    whose = f"--consumer {shlex.quote(consumer)}" if consumer else f"--status {status}"
    return f"eventlog requeue {whose} --ids {ids_in_words(ids)}"


def ids_in_words(ids: Sequence[int]) -> str:
    """Return ascending record_ids as the option --ids takes them, such as ``1,5-9``."""
    return ",".join(str(lo) if lo == hi else f"{lo}-{hi}" for lo, hi in to_ranges(ids))


def resync_commands(
    log: OpenLog,
    catalog: Catalog | None,
    objects: Iterable[Sequence[ObjectRow]],
    *,
    finds_deleted: bool = True,
) -> tuple[list[str], set[int]]:
    """Return the commands that send these objects as they are now. Return also the rows of objects
    that were deleted and whose deletion was logged, so that there is nothing to send.

    ``resync`` by key is for objects that exist, ``resync --deletes`` for objects that do not exist.
    Without ``finds_deleted`` the watched tables are not read, and all objects are taken to exist.
    """
    keys: dict[str, dict[str, Sequence[ObjectRow]]] = defaultdict(dict)
    classes: dict[str, ObjectClass] = {}
    for rows in objects:
        name, key = str(rows[0].table_name), str(rows[0].table_key)
        meaning = None if catalog is None else catalog.log_name(name)
        if meaning is not None:
            cls = meaning.object_class
            name, classes[cls.name] = cls.name, cls
            with suppress(RowError):
                key = cls.canonical_key(key)
        keys[name][key] = [*keys[name].get(key, ()), *rows]
    commands: list[str] = []
    deleted: set[int] = set()
    for name, named in keys.items():
        missing = set[str]()
        if finds_deleted:
            missing = _missing(log, catalog, classes.get(name), [*named])
        done = {key for key in missing if _is_deletion_logged(named[key])}
        deleted.update(row.record_id for key in done for row in named[key])
        there = [key for key in named if key not in missing]
        for start in range(0, len(there), _KEYS_NAMED):
            some = there[start : start + _KEYS_NAMED]
            options = "".join(f" --key {shlex.quote(key)}" for key in some)
            commands.append(f"eventlog resync {shlex.quote(name)}{options}")
        if len(missing) > len(done):
            commands.append(f"eventlog resync {shlex.quote(name)} --deletes")
    return commands, deleted


def objects_of(log: OpenLog, ids: Sequence[int]) -> list[Sequence[ObjectRow]]:
    """Return the objects of these rows, given in ascending order. Each object is returned with its
    rows of the log.
    """
    found: dict[int, Sequence[ObjectRow]] = {}
    for ranges in runs_of_ranges(ids):
        for rows in read_logged_objects(log, is_in(log.table, ranges)):
            found[rows[0].record_id] = rows
    return [*found.values()]


def _missing(
    log: OpenLog, catalog: Catalog | None, cls: ObjectClass | None, keys: Sequence[str]
) -> set[str]:
    """Return the keys whose object does not exist now; none if the table cannot be read. Keys with
    other columns are left out, such as keys that were logged before a key column was renamed.
    """
    if cls is None or catalog is None:
        return set()
    conn, keys = log.connection, [key for key in keys if cls.has_key(key)]
    try:
        with in_savepoint(conn):
            _, missing = resync.existing(conn, log.dialect, catalog.schema, cls, keys)
    except (DatabaseError, RowError):
        if conn.invalidated:
            raise
        return set()
    return set(missing)


def _is_deletion_logged(rows: Sequence[ObjectRow]) -> bool:
    """Return True if the last row of the object is a deletion that was not refused."""
    last = max(rows, key=lambda row: row.record_id)
    return last.event_type == EventType.DELETE_ROW and last.status not in _FAILED
