"""A queue in a database, read again and again while a server fills it and takes sent rows away.

The queue is only read. The replication server removes rows once they are sent, so polling must be faster than it, or a
replication rule of its own has to keep the rows (spec/linter-queue.md 5). What is removed before it was read is not
seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import sqlalchemy as sa

from eventlog.changes.format import Report
from eventlog.errors import ConfigError
from eventlog.linter import tables
from eventlog.linter.attributes import TableAttrs
from eventlog.linter.reader import QueueReader, ReaderOptions
from eventlog.linter.rows import QueueRow, queue_rows
from eventlog.model import Change

_FETCHED_AT_ONCE: Final = 500


class QueuePoller:
    """Polls one queue. ``restart_token`` is where a new poller goes on, given as the option ``restart``.

    Each poll reads the queue in order in one statement, takes at most ``batch_rows`` rows that are new and closes its
    transaction before the first change is handed out; operations of open transactions are kept in memory until their
    COMMIT is seen. The rows that were taken before are read over again, since the queue holds but what is not sent yet.

    ``queue_table``, ``attrs_table``: names, matched without case where not exactly, in ``schema``. ``attrs``: the
    tables by number, in the place of DISPATCH_ATTRS. Raises ConfigError.
    """

    def __init__(
        self,
        engine: sa.Engine,
        options: ReaderOptions | None = None,
        report: Report | None = None,
        *,
        queue_table: str = tables.QUEUE,
        attrs_table: str = tables.ATTRS,
        schema: str | None = None,
        batch_rows: int = 10_000,
        attrs: Mapping[int, TableAttrs] | None = None,
    ) -> None:
        if batch_rows < 1:
            raise ConfigError(f"batch_rows {batch_rows} is no number of rows")
        self._engine = engine
        self._options = options or ReaderOptions()
        self._reader = QueueReader(attrs or {}, self._options, report)
        self._reads_attrs = attrs is None and self._options.codec != "none"
        self._names = queue_table, attrs_table, schema
        self._queue: sa.Table | None = None
        self._attrs: sa.Table | None = None
        self._batch_rows = batch_rows

    @property
    def restart_token(self) -> str | None:
        """The token of the last transaction whose changes were handed out whole."""
        return self._reader.restart_token

    def poll(self) -> Iterator[Change]:
        """The changes of the transactions whose COMMIT is new in the queue. Raises FormatError, DatabaseError.

        After DatabaseAway it may be called again; after a FormatError go on with a new poller.
        """
        rows = self._fetch()
        yield from self._reader.changes(rows, final=False)

    def drain(self) -> Iterator[Change]:
        """All that the queue holds now, in as many polls as it needs; what is open then is dropped and counted."""
        while rows := self._fetch():
            yield from self._reader.changes(rows, final=False)
        yield from self._reader.changes((), final=True)

    def _fetch(self) -> list[QueueRow]:
        queue_table, attrs_table, schema = self._names
        with tables.database_errors(), self._engine.connect() as opened:
            connection = opened.execution_options(postgresql_readonly=True)
            if self._reads_attrs:
                if self._attrs is None:
                    self._attrs = tables.find(connection, attrs_table, schema)
                self._reader.describe(tables.read_attrs(connection, self._attrs))
            if self._queue is None:
                self._queue = tables.find(connection, queue_table, schema)
            # Of so many rows at least a batch is new, if the queue holds that many new ones.
            limit = self._reader.rows_taken + self._batch_rows
            statement = tables.select_queue(self._queue, self._options.order_by, limit)
            result = connection.execute(statement, execution_options={"yield_per": _FETCHED_AT_ONCE})
            return list(self._reader.fresh(queue_rows(tuple(result.keys()), result)))


def follow(poller: QueuePoller, wait: Callable[[], bool]) -> Iterator[Change]:
    """The changes of poll after poll. ``wait`` is called when a poll gave none: it waits, and says whether to go on.

    Raises FormatError, DatabaseError.
    """
    while True:
        found = False
        for change in poller.poll():
            found = True
            yield change
        if not found and not wait():
            return
