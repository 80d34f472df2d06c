"""The internal tables ``<log>_inflight`` and ``<log>_state`` (spec/event-log.md 10).

``<log>_inflight`` has what is in flight, and what each consumer has done: one UPDATE makes the
entry of a delivery that has ended part of the consumer's set. ``<log>_state`` has what a command
leaves for others: claims of backlog jobs, removed rows, requests to send rows again. No other
module reads or writes the two tables.

No function commits: the caller decides what belongs to one transaction.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from eventlog.errors import DatabaseError
from eventlog.sql.locate import ENTRY_COLUMNS
from eventlog.sql.log_table import LogTable, quoted, schema_of
from eventlog.sql.open_log import OpenLog


class EntryKind(StrEnum):
    """The purpose of an entry."""

    DELIVERY = "delivery"
    """Documents that were recorded before they were sent."""
    DONE = "done"
    """Rows that a consumer has done."""
    CLAIM = "claim"
    """Rows that a finished directory of a backlog job has."""
    REMOVED = "removed"
    """Rows that `eventlog purge` has removed."""
    REQUEST = "request"
    """Rows that `eventlog requeue` has set back to N."""


_IN_FLIGHT: Final = frozenset({EntryKind.DELIVERY, EntryKind.DONE})
"""The kinds of entries in ``<log>_inflight``; ``<log>_state`` has all others."""


class Entry(NamedTuple):
    """An entry of an internal table."""

    number: int
    owner: str
    """The consumer; empty = the publisher, or a command (NULL in the table)."""
    started: datetime
    """The time when the entry was written as it is, in UTC."""
    content: str
    """JSON."""


@lru_cache(maxsize=64)
def _table(log: LogTable, kind: EntryKind) -> sa.TableClause:
    name = log.inflight_table if kind in _IN_FLIGHT else log.state_table
    columns: dict[str, sa.ColumnClause[Any]] = {one: sa.column(one) for one in ENTRY_COLUMNS}
    columns |= {"started": sa.column("started", sa.TIMESTAMP())}
    columns |= {"content": sa.column("content", sa.Text())}
    return sa.table(quoted(name), *columns.values(), schema=schema_of(log))


def next_number(log: OpenLog) -> int:
    """Return a number that no entry has had before."""
    return log.next_number()


def add_entry(log: OpenLog, kind: EntryKind, number: int, content: str, owner: str = "") -> None:
    """Write an entry, which begins now. ``content`` is JSON."""
    values = {"entry_no": number, "kind": kind.value, "content": content}
    if owner:
        values["owner"] = owner
    log.connection.execute(sa.insert(_table(log.table, kind)).values(values))


def replace_content(log: OpenLog, kind: EntryKind, number: int, content: str) -> None:
    """Replace the content of an entry, which keeps its beginning."""
    table = _table(log.table, kind)
    log.connection.execute(
        sa.update(table).where(table.c.entry_no == number).values(content=content)
    )


def end_delivery(log: OpenLog, number: int, content: str) -> bool:
    """Make the entry of a consumer's delivery an entry of what the consumer has done, which begins
    now. Returns False if there is no such entry.
    """
    table = _table(log.table, EntryKind.DONE)
    values = {
        "kind": EntryKind.DONE.value,
        "content": content,
        "started": sa.literal_column(log.dialect.utc_now),
    }
    ended = sa.update(table).where(table.c.entry_no == number).values(values)
    return log.connection.execute(ended).rowcount > 0


def delete_entry(log: OpenLog, kind: EntryKind, number: int) -> None:
    """Delete an entry, if it is still there."""
    table = _table(log.table, kind)
    log.connection.execute(sa.delete(table).where(table.c.entry_no == number))


def delete_entries_of(log: OpenLog, consumer: str) -> None:
    """Delete all entries of a consumer: its deliveries, and what it has done."""
    table = _table(log.table, EntryKind.DELIVERY)
    log.connection.execute(sa.delete(table).where(table.c.owner == consumer))


def read_entries(log: OpenLog, kind: EntryKind, owner: str | None = "") -> list[Entry]:
    """Return the entries of a kind, oldest first. ``owner`` empty = those without an owner, None =
    those of all owners.
    """
    table = _table(log.table, kind)
    conditions = [table.c.kind == sa.literal_column(f"'{kind.value}'")]
    if owner is not None:
        conditions.append(table.c.owner == owner if owner else table.c.owner.is_(None))
    statement = (
        sa.select(table.c.entry_no, table.c.owner, table.c.started, table.c.content)
        .where(*conditions)
        .order_by(table.c.entry_no)
    )
    return [
        Entry(int(number), str(whose or ""), started, str(content))
        for number, whose, started, content in log.connection.execute(statement)
    ]


def refuse_unknown_kinds(log: OpenLog, like: EntryKind) -> None:
    """Raise DatabaseError if the table that has entries of the kind ``like`` has an entry of a kind
    that this version does not know.
    """
    table = _table(log.table, like)
    others = sa.select(table.c.entry_no, table.c.kind).where(table.c.kind.not_in([*EntryKind]))
    if found := log.connection.execute(others.order_by(table.c.entry_no)).first():
        number, kind = found
        raise DatabaseError(
            f"entry {number} of {table.name} is of kind {kind!r}: a newer version of eventlog "
            "wrote it. Start that version until the entry is processed"
        )


def unreadable(log: OpenLog, kind: EntryKind, number: int, error: Exception) -> DatabaseError:
    """Return the error of an entry that cannot be read."""
    table = _table(log.table, kind).name
    return DatabaseError(
        f"entry {number} of {table} cannot be read ({error}); was it changed by hand?"
    )
