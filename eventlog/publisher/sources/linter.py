"""A dispatch queue in a database as a source (spec/linter-queue.md 5).

The token is of a COMMIT: on a new start the transactions up to it are skipped, and rows of those that were open then
are read again. Rows that the replication server removes before they were read, or read and not yet answered when the
publisher is killed, are lost to it: the queue needs a replication rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from eventlog.errors import NeedsRowCodec
from eventlog.formats import Report
from eventlog.linter.attributes import TableAttrs
from eventlog.linter.poller import QueuePoller
from eventlog.linter.reader import ReaderOptions
from eventlog.linter.tables import database_errors, find
from eventlog.model import Change
from eventlog.publisher.sources import Mark, Read, Step, Unread
from eventlog.sql.connect import connect_any

NAME: Final = "linter"


@dataclass(frozen=True, slots=True)
class DispatchQueue:
    """The queue at a URL of SQLAlchemy, polled every ``rest`` seconds. The others: those of ``QueuePoller``."""

    url: str
    options: ReaderOptions
    queue_table: str
    attrs_table: str
    schema: str | None
    attrs: Mapping[int, TableAttrs] | None
    rest: float
    report: Report
    batch_rows: int = 10_000
    name: str = NAME

    def steps(self, token: Any, *, once: bool) -> Generator[Step, None, None]:
        """The steps of the queue. Raises FormatError, DatabaseError, DatabaseAway, ConfigError."""
        options = self.options if token is None else replace(self.options, restart=str(token))
        poller = QueuePoller(
            connect_any(self.url),
            options,
            self.report,
            queue_table=self.queue_table,
            attrs_table=self.attrs_table,
            schema=self.schema,
            batch_rows=self.batch_rows,
            attrs=self.attrs,
        )
        marked = poller.restart_token
        name = _namer()
        polls = self._rows() // self.batch_rows + 1 if once else 0
        while True:
            found = False
            for change in poller.poll():
                found = True
                if poller.restart_token != marked:  # the transactions before this one's were handed out whole
                    marked = poller.restart_token
                    yield Mark(marked)
                event_id = name(change)
                if "part1" in change.extras:
                    why = f"the row of {change.table!r} at {change.position} cannot be decoded by {options.codec}"
                    yield Unread(event_id, NeedsRowCodec.code, why)
                else:
                    yield Read(change, event_id)
            marked = poller.restart_token
            polls -= 1
            if once and polls <= 0:
                yield Mark(marked)
                return
            yield Mark(marked, is_idle=not found, rest=0.0 if once else self.rest)

    def _rows(self) -> int:
        """The number of rows in the queue now."""
        with database_errors(), connect_any(self.url).connect() as connection:
            table = find(connection, self.queue_table, self.schema)
            return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def _namer() -> Callable[[Change], str]:
    """Event-ids of changes: their positions; with ``destinations = all`` the second of an operation gets ``:2``."""
    position, number = "", 0

    def name(change: Change) -> str:
        nonlocal position, number
        position, number = change.position or "", number + 1 if change.position == position else 1
        return position if number == 1 else f"{position}:{number}"

    return name
