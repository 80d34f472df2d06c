"""A dispatch queue in a database as a source (formats/linter-queue.md 5).

The token names a COMMIT and its source database, whose log contains the COMMIT. A new start skips
the transactions up to this COMMIT, and reads again the rows of transactions that were open at this
COMMIT. Two kinds of rows are lost: rows that the replication server removes before they are read,
and rows that were read but not yet answered when the publisher is killed. So the queue needs its
own replication rule.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from eventlog.changes.format import Report
from eventlog.errors import ConfigError
from eventlog.linter.codec import catalog_table
from eventlog.linter.database import PLACE, QueuePoller, column_of, find_table
from eventlog.linter.dispatch_tables import TableAttrs, signed, stripped
from eventlog.linter.options import SourceOptions
from eventlog.linter.reader import ReaderOptions, place_of_token
from eventlog.model import Change
from eventlog.publisher.stream import Backlog, BadToken, Described, Failure, Mark, Read, SourceStep
from eventlog.sql.connect.connection import any_database_errors, connect_any


@dataclass(frozen=True, slots=True)
class DispatchQueue:
    """The queue at a URL of SQLAlchemy, polled."""

    url: str
    options: ReaderOptions
    place: SourceOptions
    """The arguments ``options`` and ``place`` of ``QueuePoller``."""
    rest: float
    """The seconds between polls."""
    report: Report
    """The argument ``report`` of ``QueuePoller``."""

    def steps(self, token: Any, *, once: bool) -> Generator[SourceStep, None, None]:
        """Yield the steps of the queue.

        Raises FormatError, DatabaseError, DatabaseUnavailable, ConfigError, BadToken.
        """
        restart, node = _saved(token, self.options)
        self._check_node(node)
        poller = QueuePoller(
            connect_any(self.url),
            self.options if restart is None else replace(self.options, restart=restart),
            self.report,
            self.place,
        )
        marked = poller.restart_token
        name = _namer()
        described: dict[tuple[str | None, str], TableAttrs] = {}
        polls = self._rows() // self.place.batch_rows + 1 if once else 0
        while True:
            has_changes = False
            for change in poller.poll():
                has_changes = True
                # The earlier transactions were yielded completely.
                if poller.restart_token != marked:
                    marked = poller.restart_token
                    yield Mark(_token(marked, node))
                node = change.extras["dbnode"]
                attrs = poller.attrs_of(change.extras["table_number"])
                named = (change.schema, change.table)
                if attrs is not None and described.get(named) is not attrs:
                    described[named] = attrs
                    yield Described(change.schema, catalog_table(change.table, attrs))
                event_id = name(change)
                if "part1" in change.extras:
                    why = (
                        f"the row of {change.table!r} at {change.position} cannot be decoded by "
                        f"{self.options.codec}"
                    )
                    yield Failure(event_id, "needs_row_codec", why)
                else:
                    yield Read(change, event_id)
            marked = poller.restart_token
            polls -= 1
            if once and polls <= 0:
                yield Mark(_token(marked, node))
                return
            yield Mark(
                _token(marked, node), is_idle=not has_changes, rest=0.0 if once else self.rest
            )

    def backlog(self, token: Any) -> Backlog:
        """Return the number of rows in the queue. With ``order_by = syslog`` only the rows after
        ``token`` count. Raises the errors of ``steps``.
        """
        restart, _ = _saved(token, self.options)
        if restart is None or self.options.order_by != "syslog":
            return Backlog(self._rows(), "rows")
        return Backlog(self._rows(int(restart, 16)), "rows")

    def _check_node(self, saved: str | None) -> None:
        """Check that the queue has rows of the position's source database, or no rows. Raises
        BadToken if the queue has only rows of other databases.
        """
        if saved is None:
            return
        if self.options.dbnode is None:
            with any_database_errors(PLACE), connect_any(self.url).connect() as connection:
                column = column_of(
                    find_table(connection, self.place.queue_table, self.place.schema), "DBNODE"
                )
                nodes = {
                    stripped(node)
                    for node in connection.execute(sa.select(column).distinct()).scalars()
                }
        else:
            nodes = {stripped(self.options.dbnode)}
        if nodes and saved not in nodes:
            raise BadToken(
                f"the position belongs to the source database {saved!r}, and the queue has rows "
                f"of {', '.join(map(repr, sorted(nodes)))}, whose addresses differ; name another "
                "position"
            )

    def _rows(self, behind: int | None = None) -> int:
        """Return the number of rows in the queue now. With ``behind`` only rows with a higher
        address count.
        """
        with any_database_errors(PLACE), connect_any(self.url).connect() as connection:
            table = find_table(connection, self.place.queue_table, self.place.schema)
            count = sa.select(sa.func.count()).select_from(table)
            if behind is not None:
                address = column_of(table, "SYSLOG_ADDR")
                # The columns are signed, but the numbers are unsigned: those above all positive
                # numbers appear as negative ones.
                last = signed(behind, 64)
                later = address > last
                count = count.where(
                    sa.and_(later, address < 0) if last < 0 else sa.or_(later, address < 0)
                )
            return int(connection.execute(count).scalar_one())


def _token(restart: str | None, dbnode: str | None) -> dict[str, str | None] | None:
    return None if restart is None else {"restart": restart, "dbnode": dbnode}


def _saved(token: Any, options: ReaderOptions) -> tuple[str | None, str | None]:
    """Return the queue's restart token and the source database in a saved token. A saved token may
    be the restart token alone.

    Raises BadToken.
    """
    if token is None:
        return None, None
    members = token if isinstance(token, Mapping) else {"restart": token}
    restart = str(members.get("restart"))
    try:
        place_of_token(restart, options.order_by)
    except ConfigError as error:
        raise BadToken(
            f"{error}. If the position or order_by was changed since, restore its value"
        ) from None
    return restart, members.get("dbnode")


def _namer() -> Callable[[Change], str]:
    """Return a function that names changes by their positions. With ``destinations = all`` the
    second change of an operation gets ``:2``.
    """
    position, number = "", 0

    def name(change: Change) -> str:
        nonlocal position, number
        position, number = change.position or "", number + 1 if change.position == position else 1
        return position if number == 1 else f"{position}:{number}"

    return name
