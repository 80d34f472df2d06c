"""The internal tables ``<log>_inflight`` and ``<log>_state`` (spec/event-log.md 10).

``<log>_inflight`` has the deliveries in flight, and the rows that each consumer has done: one
UPDATE turns the entry of a delivery that has ended into part of the consumer's set. ``<log>_state``
has what commands record for other processes: claims of backlog jobs, removed rows and leaves,
requests to send rows again, pauses, results of verifications. No other module reads or writes the
two tables.

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from eventlog.errors import DatabaseError
from eventlog.sql.connect.locate import ENTRY_COLUMNS
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.quoted_names import quoted, schema_of
from eventlog.sql.port.sql_files import OF_LOG, OF_LOG_ALONE


class EntryKind(StrEnum):
    """The purpose of an entry."""

    DELIVERY = "delivery"
    """Documents that were recorded before they were sent."""
    DONE = "done"
    """Rows that a consumer has done."""
    DEAD_LETTER = "dead_letter"
    """An event that became E, which is sent to the second sink (spec/event-log.md 8.7)."""
    MASKS = "masks"
    """The masks that the publisher has used (spec/event-log.md 15.3)."""
    CLAIM = "claim"
    """Rows that are in a finished directory of a backlog job."""
    REMOVED = "removed"
    """Rows that `eventlog purge` has removed."""
    REQUEST = "request"
    """Rows that `eventlog requeue` has set back to N."""
    VERIFIED = "verified"
    """The last verification of a target."""
    DETACHED = "detached"
    """The table of a leaf that a purge has removed from the log; a purge will drop it."""
    FILTERS = "filters"
    """The filters that a reader may use."""
    PAUSED = "paused"
    """Why the publisher sends nothing until it is resumed."""


WITH_COLUMNS: Final = "eventlog_later_columns"
"""``Connection.info`` has, under this key, the tables whose later columns were found."""

_IN_FLIGHT: Final = frozenset(
    {EntryKind.DELIVERY, EntryKind.DONE, EntryKind.DEAD_LETTER, EntryKind.MASKS}
)
"""The kinds of entries in ``<log>_inflight``; ``<log>_state`` has the entries of all other kinds.
"""


class Entry(NamedTuple):
    """An entry of an internal table."""

    number: int
    owner: str
    """The consumer; empty = the publisher, or a command (NULL in the table)."""
    started: datetime
    """The time when the entry was last written, in UTC."""
    content: str
    """JSON."""


@lru_cache(maxsize=64)
def _table(log: LogTable, kind: EntryKind) -> sa.TableClause:
    name = log.inflight_table if kind in _IN_FLIGHT else log.state_table
    columns: dict[str, sa.ColumnClause[Any]] = {one: sa.column(one) for one in ENTRY_COLUMNS}
    columns |= {"started": sa.column("started", sa.TIMESTAMP())}
    columns |= {"content": sa.column("content", sa.Text())}
    return sa.table(quoted(name), *columns.values(), schema=schema_of(log))


CONSUMER_COLUMNS: Final = ("name", "begun", "begins", "done", "moved", "requeued", "loaded")
"""The columns of ``<log>_consumer`` that every revision has."""
LATER_COLUMNS: Final = ("sink", "classes", "paused", "masks")
"""The columns of ``<log>_consumer`` that were added later: what the consumer's last start has
recorded, why the consumer sends nothing, and the masks that it has used.
"""


@lru_cache(maxsize=32)
def consumers_of(log: LogTable) -> sa.TableClause:
    """Return ``<log>_consumer`` with its columns for a statement."""
    times = ("begun", "moved")
    columns = [
        sa.column(name, sa.TIMESTAMP()) if name in times else sa.column(name)
        for name in (*CONSUMER_COLUMNS, *LATER_COLUMNS)
    ]
    return sa.table(quoted(log.consumer_table), *columns, schema=schema_of(log))


@lru_cache(maxsize=256)
def consumer_field(log: LogTable, field: str, name: str) -> sa.Select[Any]:
    """Return the statement that reads a column of a consumer's row."""
    table = consumers_of(log)
    return sa.select(table.c[field]).where(table.c.name == name)


def update_consumer(
    log: OpenLog, name: str, values: Mapping[str, Any], *conditions: sa.ColumnElement[bool]
) -> bool:
    """Change the row of a consumer if the row meets the ``conditions``. Return True if it does."""
    table = consumers_of(log.table)
    changed = sa.update(table).where(table.c.name == name, *conditions).values(values)
    return log.connection.execute(changed).rowcount > 0


def has_columns(log: OpenLog, table: str, columns: Sequence[str]) -> bool:
    """Return True if an internal table has these columns, which a later revision has added. Also
    return True for a table that is hidden from this role: a statement that reads the table then
    fails, and its error names the missing right.
    """
    known: set[tuple[LogTable, str]] = log.connection.info.setdefault(WITH_COLUMNS, set())
    if (log.table, table) not in known:
        found = {column.name.lower() for column in log.db.columns(log.table.schema, table)}
        if not found:
            return True
        if found.issuperset(columns):
            known.add((log.table, table))
    return (log.table, table) in known


def _run(log: OpenLog, statement: sa.Executable) -> sa.CursorResult[*tuple[Any, ...]]:
    return log.connection.execute(statement, execution_options=OF_LOG)


def _read(log: OpenLog, statement: sa.Executable) -> sa.CursorResult[*tuple[Any, ...]]:
    return log.connection.execute(statement, execution_options=OF_LOG_ALONE)


def next_number(log: OpenLog) -> int:
    """Draw a number that no entry has had before."""
    return log.next_number()


def add_entry(log: OpenLog, kind: EntryKind, number: int, content: str, owner: str = "") -> None:
    """Write a new entry, with the present time. ``content`` is JSON."""
    add_entries(log, kind, {number: content}, owner)


def add_entries(
    log: OpenLog, kind: EntryKind, contents: Mapping[int, str], owner: str = ""
) -> None:
    """Write new entries, number -> content, as ``add_entry`` does."""
    values = [
        {
            "entry_no": number,
            "kind": kind.value,
            "content": content,
            **({"owner": owner} if owner else {}),
        }
        for number, content in contents.items()
    ]
    statement = sa.insert(_table(log.table, kind))
    if len(values) == 1:
        _run(log, statement.values(values[0]))
    elif values:
        log.connection.execute(statement, values, execution_options=OF_LOG)


def record_delivery(
    log: OpenLog,
    content: str,
    owner: str = "",
    number: int | None = None,
    above: int = 0,
    *,
    waits: bool = False,
    alone: bool = False,
) -> int | None:
    """Write the entry of a new delivery, and return the delivery's number. If ``number`` is None,
    the function draws a number.

    Returns None, and writes nothing, if the number is not above ``above``. If the database can
    check requests in the same statement (``sees_requests``), the function also returns None if the
    owner has a request to send rows again, or is paused. The ``owner`` is a consumer, empty = the
    publisher. The publisher is checked only with ``waits``. With ``waits`` the function also waits
    for a command that is about to write a request. ``alone`` is true if nothing else belongs to the
    transaction.
    """
    if not log.has_statement("record_delivery"):
        number = next_number(log) if number is None else number
        if number <= above:
            return None
        add_entry(log, EntryKind.DELIVERY, number, content, owner)
        return number
    values: dict[str, object] = {"content": content, "above": above, "owner": owner or None}
    if waits:
        values["table"] = log.dialect.qualified(log.table.schema, log.table.name)
    if number is None:
        values["sequence"] = log.dialect.qualified(log.table.schema, log.table.number_sequence)
    else:
        values["number"] = number
    words = {
        "number": log.dialect.log_sql["next_delivery" if number is None else "given_delivery"],
        "unasked": unasked_sql(log, owner, lock=" FOR UPDATE") if owner or waits else "",
    }
    first = "lock_recording" if waits else None
    return log.run_statement("record_delivery", values, alone=alone, first=first, **words)


def sees_requests(log: OpenLog) -> bool:
    """Return True if ``record_delivery`` writes nothing while there is a request to send rows
    again, or a pause.
    """
    return log.has_statement("record_delivery")


def replace_content(log: OpenLog, kind: EntryKind, number: int, content: str) -> None:
    """Replace the content of an entry; its time stays."""
    table = _table(log.table, kind)
    _run(log, sa.update(table).where(table.c.entry_no == number).values(content=content))


def committing_sql(log: OpenLog, *, durable: bool) -> str:
    """Return the part of a statement that makes the commit of its transaction wait for the disk if
    ``durable``.
    """
    return log.dialect.log_sql["durably" if durable else "soon"]


def unasked_sql(log: OpenLog, owner: str, lock: str = "") -> str:
    """Return the part of a SELECT that has a row if the owner has no request to send rows again,
    and is not paused. ``owner`` is a consumer, empty = the publisher. ``lock`` is the lock of a
    consumer's row.
    """
    return log.statement("unasked_of" if owner else "unasked", lock=lock)


def end_set(
    log: OpenLog,
    number: int,
    content: str,
    consumer: str,
    former: Sequence[int],
    *,
    durable: bool,
    alone: bool,
) -> None:
    """Turn the entry of a consumer's delivery into an entry of its done rows, as ``end_delivery``
    does, or write a new entry. Also delete the consumer's ``former`` entries. The log must have the
    statement ``end_set``.

    Unless ``durable`` the commit of the transaction does not wait for the disk. ``alone`` is true
    if nothing else belongs to the transaction.
    """
    values = {"ended": number, "owner": consumer, "content": content, "former": list(former)}
    log.run_statement(
        "end_set", values, alone=alone, is_committed=committing_sql(log, durable=durable)
    )


def end_delivery(log: OpenLog, number: int, content: str) -> bool:
    """Turn the entry of a consumer's delivery into an entry of its done rows, with the present
    time. Return False if the delivery has no entry.
    """
    table = _table(log.table, EntryKind.DONE)
    values = {
        "kind": EntryKind.DONE.value,
        "content": content,
        "started": sa.literal_column(log.dialect.utc_now),
    }
    ended = sa.update(table).where(table.c.entry_no == number).values(values)
    return _run(log, ended).rowcount > 0


def delete_entry(log: OpenLog, kind: EntryKind, number: int) -> None:
    """Delete an entry if it still exists."""
    table = _table(log.table, kind)
    _run(log, sa.delete(table).where(table.c.entry_no == number))


def delete_entries_of(log: OpenLog, consumer: str, *, with_letters: bool) -> None:
    """Delete all entries of a consumer: its deliveries, its done rows and, ``with_letters``, its
    dead letters.
    """
    table = _table(log.table, EntryKind.DELIVERY)
    of_consumer = sa.delete(table).where(table.c.owner == consumer)
    if not with_letters:
        of_consumer = of_consumer.where(table.c.kind != EntryKind.DEAD_LETTER.value)
    _run(log, of_consumer)


def _of(table: sa.TableClause, kind: EntryKind, owner: str | None) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for the entries of a kind and of an owner, as in ``read_entries``."""
    conditions = [table.c.kind == sa.literal_column(f"'{kind.value}'")]
    if owner is not None:
        conditions.append(table.c.owner == owner if owner else table.c.owner.is_(None))
    return conditions


class Waiting(NamedTuple):
    """Entries that wait."""

    entries: int
    """The number of entries, as far as they were counted."""
    seconds: float | None
    """The age of the oldest entry, None if there is no entry."""


NONE_WAIT: Final = Waiting(0, None)


def count_waiting(log: OpenLog, kind: EntryKind, owner: str, most: int) -> Waiting:
    """Return how many entries of a kind wait, and how long the first entry has waited. At most
    ``most`` entries are counted. ``owner`` is as in ``read_entries``.
    """
    table = _table(log.table, kind)
    conditions = _of(table, kind, owner)
    now = sa.literal_column(log.dialect.utc_now, sa.TIMESTAMP())
    # Without a LIMIT, which on Oracle would take the clock for a column of a subquery.
    first = sa.select(sa.func.min(table.c.entry_no)).where(*conditions).scalar_subquery()
    found = _read(log, sa.select(table.c.started, now).where(table.c.entry_no == first)).first()
    if found is None:
        return NONE_WAIT
    started, present = (one.replace(tzinfo=None) for one in found)
    some = sa.select(table.c.entry_no).where(*conditions).limit(most).subquery()
    number = _read(log, sa.select(sa.func.count()).select_from(some)).scalar_one()
    return Waiting(int(number), max(0.0, (present - started).total_seconds()))


def read_entries(
    log: OpenLog, kind: EntryKind, owner: str | None = "", most: int | None = None
) -> list[Entry]:
    """Return at most ``most`` entries of a kind, oldest first; None = all entries. If ``owner`` is
    empty, these are entries without an owner; None = entries of all owners.
    """
    statement = _entries(log.table, kind, owner, most)
    return [
        Entry(int(number), str(whose or ""), started, str(content))
        for number, whose, started, content in _read(log, statement)
    ]


@lru_cache(maxsize=256)
def _entries(log: LogTable, kind: EntryKind, owner: str | None, most: int | None) -> sa.Select[Any]:
    table = _table(log, kind)
    return (
        sa.select(table.c.entry_no, table.c.owner, table.c.started, table.c.content)
        .where(*_of(table, kind, owner))
        .order_by(table.c.entry_no)
        .limit(most)
    )


def refuse_unknown_kinds(log: OpenLog, like: EntryKind) -> None:
    """Raise DatabaseError if an internal table has an entry of a kind that this version does not
    support. The table is the table that has entries of the kind ``like``.
    """
    if found := _read(log, _unknown_kinds(log.table, like)).first():
        number, kind = found
        table = _table(log.table, like).name
        raise DatabaseError(
            f"entry {number} of {table} is of kind {kind!r}: a newer version of eventlog wrote it. "
            "Run the newer version until the entry is processed"
        )


@lru_cache(maxsize=64)
def _unknown_kinds(log: LogTable, like: EntryKind) -> sa.Select[Any]:
    table = _table(log, like)
    others = sa.select(table.c.entry_no, table.c.kind).where(table.c.kind.not_in([*EntryKind]))
    return others.order_by(table.c.entry_no)


def unreadable(log: OpenLog, kind: EntryKind, number: int, error: Exception) -> DatabaseError:
    """Return the error to raise for an entry that cannot be read."""
    table = _table(log.table, kind).name
    return DatabaseError(
        f"entry {number} of {table} cannot be read ({error}). If it was changed by hand, undo the "
        "change"
    )
