"""Write objects into the log again, in batches; the key reached is recorded, so that a killed
process can continue (spec/event-log.md 11).

The key reached is in ``<log>_resync``, one row per unfinished resync. The key reached is updated in
the transaction that writes the rows, so a killed process leaves out no object and writes no object
twice. Each batch locks the row and reads the key reached again, so two processes that run the same
resync share the work. The row is deleted with the last batch. The log itself cannot store the key
reached, since its last row may be published and deleted at any time.

Deleted objects are found by the rows of the log: ``history``, ``known``, ``write_deleted``.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.values import is_unicode
from eventlog.errors import ConfigError, LogTableError, number_of
from eventlog.model import EventType, Status
from eventlog.sql.log.errors import errors_of
from eventlog.sql.log.rows import Condition, column_of
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.dialect import Dialect
from eventlog.sql.port.log_operations import ResyncBatch, Selection
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.open_writers import wait_for, writers_to_await
from eventlog.sql.port.quoted_names import quoted, schema_of
from eventlog.sql.port.rights import Part, Right
from eventlog.sql.readers.consumers import highest_row
from eventlog.sql.triggers.uncaptured import Uncaptured

COLUMNS: Final = ("digest", "class_name", "selection", "started", "position", "rows_written")
"""The columns of ``<log>_resync``."""
_MAY_INSERT: Final = (
    "the objects that it inserts must not be mistaken for deleted ones. End the transaction "
    "(`eventlog doctor` shows it), then continue with --resume"
)


class Unfinished(NamedTuple):
    """An unfinished resync. ``selection`` is in words, ``rows`` is the number of written rows."""

    selection: str
    reached: str | None
    rows: int


WriteBatch = Callable[[Connection, str | None], ResyncBatch]
"""A function that writes the rows of one batch after the key reached, None = from the beginning."""


def check_table(log: OpenLog) -> None:
    """Raise LogTableError if the log has no table of unfinished resyncs yet."""
    if not log.may_have(log.table.resync_table):
        raise LogTableError(
            f"the log {log} has no table {log.table.resync_table}, where a resync records the last "
            "key that it has written: create the table with `eventlog db upgrade`, or with "
            "`eventlog db upgrade --existing-log` if another program made the log"
        )


def unfinished(log: OpenLog, class_name: str) -> list[Unfinished]:
    """Return the unfinished resyncs of a class, oldest first."""
    return _entries(log, _table(log.table).c.class_name == class_name)


def find(log: OpenLog, selection: Selection) -> Unfinished | None:
    """Return the row of this resync, None if there is none."""
    return next(iter(_entries(log, _is(log.table, selection))), None)


def _entries(log: OpenLog, condition: Condition) -> list[Unfinished]:
    table = _table(log.table)
    entries = sa.select(table.c.selection, table.c.position, table.c.rows_written).where(condition)
    return [
        Unfinished(*entry) for entry in log.connection.execute(entries.order_by(table.c.started))
    ]


@lru_cache(maxsize=32)
def _table(log: LogTable) -> sa.TableClause:
    return sa.table(quoted(log.resync_table), *map(sa.column, COLUMNS), schema=schema_of(log))


def _is(log: LogTable, selection: Selection) -> Condition:
    is_same: Condition = _table(log).c.digest == selection.digest
    return is_same


def begin(log: OpenLog, selection: Selection, *, resume: bool, restart: bool) -> Unfinished:
    """Return the row of this resync: a new row, or with ``resume`` the existing row.

    Raises ConfigError if a row exists, unless ``resume`` is true, or ``restart``, which replaces
    the row. Also raises ConfigError if there is no row to resume from.
    """
    table = _table(log.table)
    entry = find(log, selection)
    if resume:
        if entry is None:
            raise ConfigError(_nothing_to_resume(log, selection))
        return entry
    if entry is not None:
        if not restart:
            raise ConfigError(
                f"a resync of {selection.class_name} ({selection}) is not finished: "
                f"{number_of(entry.rows, 'row')} written, {_place(entry.reached)}; continue it "
                "with --resume, or begin again with --restart"
            )
        log.connection.execute(sa.delete(table).where(_is(log.table, selection)))
    values = {
        "digest": selection.digest,
        "class_name": selection.class_name,
        "selection": str(selection),
    }
    log.connection.execute(sa.insert(table).values(**values, rows_written=0))
    return Unfinished(str(selection), None, 0)


def _nothing_to_resume(log: OpenLog, selection: Selection) -> str:
    others = [
        entry
        for entry in unfinished(log, selection.class_name)
        if not entry.selection.startswith(_DUE)
    ]
    if not others:
        return f"there is no unfinished resync of {selection.class_name}: remove --resume"
    named = "; ".join(
        f"{other.selection} ({number_of(other.rows, 'row')}, {_place(other.reached)})"
        for other in others
    )
    return (
        f"there is no unfinished resync of {selection.class_name} for {selection}, but there is "
        f"one for {named}. Run the command of that resync again, with --resume"
    )


def _place(reached: str | None) -> str:
    return "at its beginning" if reached is None else f"up to {reached}"


def run(
    log: OpenLog,
    selection: Selection,
    write_batch: WriteBatch,
    after_batch: Callable[[int], None] | None = None,
) -> Iterator[ResyncBatch]:
    """Write all batches, each in its own transaction, and yield the result of each.

    ``after_batch`` ends the transaction of a batch that has written rows; its argument is the
    highest record_id before the batch. The session must not be in a transaction. The iteration ends
    early if another process has finished the same resync.
    """
    table = _table(log.table)
    reached = sa.select(table.c.position).where(_is(log.table, selection)).with_for_update()
    while True:
        with log.connection.begin():
            entry = log.connection.execute(reached).first()
            if entry is None:
                return
            highest = 0 if after_batch is None else highest_row(log) or 0
            batch = write_batch(log.connection, entry.position)
            if batch.is_last:
                if batch.is_complete:
                    _settle(log, selection)
                log.connection.execute(sa.delete(table).where(_is(log.table, selection)))
            else:
                moved = {
                    "position": batch.reached,
                    "rows_written": table.c.rows_written + batch.rows,
                }
                log.connection.execute(
                    sa.update(table).where(_is(log.table, selection)).values(moved)
                )
            if batch.rows and after_batch is not None:
                after_batch(highest)
        yield batch
        if batch.is_last:
            return


def pause(rows: int, rate: float | None, elapsed: float) -> float:
    """Return the seconds to wait after ``rows`` rows were written in ``elapsed`` seconds, so that
    at most ``rate`` rows are written per second.
    """
    return 0.0 if rate is None else max(0.0, rows / rate - elapsed)


# --- resyncs that are due (spec/triggers.md 9.1) --------------------------------------------------

_DUE: Final = "due: "
"""The prefix of ``selection`` in the row of a due resync that has not begun; the reason follows."""


class Due(NamedTuple):
    """A resync that an operator has to run, and its reason.

    ``column`` is the column of the class whose values the resync sends, None = whole objects.
    """

    selection: Selection
    reason: str
    column: str | None = None

    @property
    def command(self) -> str:
        """The shell command that runs the resync."""
        parts = ["eventlog", "resync", self.selection.class_name]
        if self.selection.event_type is EventType.DELETE_ROW:
            parts.append("--deletes")
        elif self.selection.event_type is EventType.UPDATE_ROW_QUERY_BACK:
            parts.append("--as-update")
        if self.selection.where is not None:
            parts += ["--where", self.selection.where]
        return shlex.join(parts)

    @property
    def digest(self) -> str:
        """The digest of the row of the due resync. It differs from the digest of the resync itself,
        which may already be running.
        """
        return hashlib.sha256(f"{_DUE}{self.selection.digest}".encode()).hexdigest()


def due_for(uncaptured: Iterable[Uncaptured]) -> list[Due]:
    """Return the resyncs that send these uncaptured changes, without duplicates."""
    due: dict[Selection, Due] = {}
    for change in uncaptured:
        types = [
            *([EventType.INSERT_ROW_QUERY_BACK] if change.objects else []),
            *([EventType.DELETE_ROW] if change.deletes else []),
        ]
        for event_type in types or [EventType.UPDATE_ROW_QUERY_BACK]:
            where = None if event_type is EventType.DELETE_ROW else change.where
            selection = Selection(change.class_name, event_type, where)
            due.setdefault(selection, Due(selection, change.reason, change.column))
    return [one for one in due.values() if not _is_part(one.selection, due)]


def _is_part(selection: Selection, others: Collection[Selection]) -> bool:
    """Return True if another selection sends everything that this selection sends, and more."""
    whole = Selection(selection.class_name, EventType.INSERT_ROW_QUERY_BACK)
    values = Selection(selection.class_name, EventType.UPDATE_ROW_QUERY_BACK)
    if selection in (whole, values):
        return selection == values and whole in others
    is_delete = selection.event_type is EventType.DELETE_ROW
    is_insert = selection.event_type is EventType.INSERT_ROW_QUERY_BACK
    return not is_delete and (whole in others or (values in others and not is_insert))


def note_due(log: OpenLog, due: Iterable[Due]) -> None:
    """Record due resyncs. Each replaces an earlier due resync for the same objects. Call this
    function after the triggers were created.
    """
    table = _table(log.table)
    for one in due:
        log.connection.execute(sa.delete(table).where(table.c.digest == one.digest))
        selection = one.selection
        what = {"type": int(selection.event_type), "where": selection.where, "reason": one.reason}
        if one.column is not None:
            what["column"] = one.column
        values = {"digest": one.digest, "class_name": selection.class_name, "rows_written": 0}
        log.connection.execute(
            sa.insert(table).values(**values, selection=_DUE + json.dumps(what, ensure_ascii=False))
        )


def due_now(log: OpenLog) -> list[Due]:
    """Return the due resyncs, oldest first."""
    table = _table(log.table)
    entries = sa.select(table.c.class_name, table.c.selection).where(
        table.c.selection.startswith(_DUE)
    )
    found = []
    for class_name, content in log.connection.execute(entries.order_by(table.c.started)):
        what = json.loads(content.removeprefix(_DUE))
        found.append(
            Due(
                Selection(class_name, EventType(what["type"]), what["where"]),
                what["reason"],
                what.get("column"),
            )
        )
    return found


class LogRead(NamedTuple):
    """A due or unfinished resync of deleted objects. It searches the log for their keys."""

    class_name: str
    reached: int
    """The record_id up to which the resync has read the log."""
    is_due: bool

    @property
    def in_words(self) -> str:
        state = "is due" if self.is_due else "is not finished"
        return (
            f"the resync of deleted objects of {self.class_name} {state}, and reads the log from "
            f"record_id {self.reached + 1} on"
        )


def reads_of_log(log: OpenLog) -> list[LogRead]:
    """Return the resyncs that still read the log; none if this role may not read them."""
    if not log.may_have(log.table.resync_table) or log.lacking([(Part.RESYNC, Right.SELECT)]):
        return []
    is_delete = EventType.DELETE_ROW
    due = [
        LogRead(one.selection.class_name, 0, is_due=True)
        for one in due_now(log)
        if one.selection.event_type is is_delete
    ]
    table = _table(log.table)
    entries = sa.select(table.c.digest, table.c.class_name, table.c.position)
    begun = [
        LogRead(class_name, int(reached or 0), is_due=False)
        for digest, class_name, reached in log.connection.execute(entries.order_by(table.c.started))
        if digest == Selection(class_name, is_delete).digest
    ]
    return [*begun, *due]


def settle_lost(log: OpenLog, catalog: Catalog, kept: Collection[str]) -> None:
    """Delete the due resyncs of dropped classes and columns, and change the class name in the due
    resyncs of a renamed class. The due resyncs of an unavailable class stay, and those of the
    tables ``kept``, whose triggers stay because they may belong to such a class.

    A renamed column has its own due resync (spec/triggers.md 9.1).
    """
    table = _table(log.table)
    carried = []
    for due in due_now(log):
        name = due.selection.class_name
        meant = catalog.log_name(name)
        may_return = any(f".{one}".endswith(f".{name}") for one in kept)
        if catalog.unavailable_class(name) is not None or (meant is None and may_return):
            continue
        cls = None if meant is None or meant.child is not None else meant.object_class
        columns = () if cls is None else {one.column.name for one in cls.attributes}
        has_column = cls is not None and (due.column is None or due.column in columns)
        if has_column and cls is not None and cls.name == name:
            continue
        log.connection.execute(sa.delete(table).where(table.c.digest == due.digest))
        if has_column and cls is not None:
            carried.append(due._replace(selection=replace(due.selection, class_name=cls.name)))
    note_due(log, carried)


def _settle(log: OpenLog, done: Selection) -> None:
    """Delete the due resyncs that were recorded before this resync began and that this resync
    completes.
    """
    if done.keys is not None:
        return
    deletes = done.event_type is EventType.DELETE_ROW
    digests = [
        due.digest
        for due in due_now(log)
        if due.selection.class_name == done.class_name
        and (due.selection.event_type is EventType.DELETE_ROW) is deletes
        and done.where in {None, due.selection.where}
    ]
    if digests:
        table = _table(log.table)
        began = sa.select(table.c.started).where(_is(log.table, done)).scalar_subquery()
        settled = sa.select(table.c.digest).where(
            table.c.digest.in_(digests), table.c.started <= began
        )
        # MySQL cannot delete from a table that the same statement reads.
        found = log.connection.execute(settled).scalars().all()
        log.connection.execute(sa.delete(table).where(table.c.digest.in_(found)))


# --- objects that were deleted from the tables
# --------------------------------------------------------


def existing(
    conn: Connection, dialect: Dialect, schema: str | None, cls: ObjectClass, keys: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return two lists: the canonical keys that have an object, and the canonical keys that have
    none. The lists keep the order of the keys, without duplicates.
    """
    distinct = list(dict.fromkeys(keys))
    rows = dialect.open(conn).query_back(schema, cls, distinct, ()) if distinct else {}
    return [key for key in distinct if key in rows], [key for key in distinct if key not in rows]


def history(
    log: OpenLog, catalog: Catalog, cls: ObjectClass
) -> tuple[tuple[str, ...], int, str | None]:
    """Return a summary of a class's rows in the log: the table_names of its rows, their number, and
    their earliest event_time.

    Rows of the class's child tables are included, and so are rows of any status.
    """
    name = column_of(log.table, "table_name")
    statement = sa.select(
        name, sa.func.count(), sa.func.min(column_of(log.table, "event_time"))
    ).group_by(name)
    of_class = [
        row
        for row in log.connection.execute(statement)
        if row[0] and (meant := catalog.log_name(row[0])) is not None and meant.object_class is cls
    ]
    times = sorted(str(since) for _, _, since in of_class if since is not None)
    names = tuple(name for name, _, _ in of_class)
    return names, sum(rows for _, rows, _ in of_class), next(iter(times), None)


def known(log: OpenLog, names: Sequence[str], after: int) -> Iterator[tuple[int, str]]:
    """Yield the keys of rows with these table_names, each with the record_id of its last row, in
    the order of these record_ids.

    A key is included only if its last row is not a delete and has a record_id above ``after``. A
    delete does not count if it has status E or F, or if a consumer's receiver refused it: the
    receiver has not applied the delete. The log is read once, whatever the number of keys.
    """
    record_id, key = column_of(log.table, "record_id"), column_of(log.table, "table_key")
    errors = errors_of(log.table)
    refused = sa.select(errors.c.record_id).where(errors.c.consumer.is_not(None))
    has_failed = column_of(log.table, "status").in_([Status.ERROR, Status.FATAL]) | record_id.in_(
        refused
    )
    # A row of a foreign log may have no type.
    event_type = sa.func.coalesce(column_of(log.table, "event_type"), 0)
    last = (
        sa.select(sa.func.max(record_id))
        .where(column_of(log.table, "table_name").in_(names), key.is_not(None), record_id > 0)
        .group_by(key)
    )
    statement = (
        sa.select(record_id, key)
        .where(
            record_id.in_(last),
            (event_type != int(EventType.DELETE_ROW)) | has_failed,
            record_id > after,
        )
        .order_by(record_id)
    )
    for number, text in log.db.fetch_texts(statement, options={"yield_per": 10_000}):
        if is_unicode(key_text := str(text)):
            yield int(number), key_text


def write_deleted(
    log: OpenLog,
    schema: str | None,
    cls: ObjectClass,
    keys: Iterable[str],
) -> list[str]:
    """Log a row of type 4 for each canonical key that has no object, and return these keys.

    A row of type 4 must not follow the rows of an insert that was not committed yet when the table
    was read. Therefore the function waits for the transactions that had written to the log by then,
    and leaves out the objects that they inserted. If the database does not show these transactions,
    a row of type 5 follows the row of type 4: an object that exists when the row is published is
    then sent again. Raises DatabaseError for a transaction that does not end.
    """
    _, gone = existing(log.connection, log.dialect, schema, cls, keys)
    selection = Selection(cls.name, EventType.DELETE_ROW)
    while gone:
        savepoint = log.connection.begin_nested()
        log.write_keys(selection, gone)
        writers = writers_to_await(log)
        if writers is None:
            again = replace(selection, event_type=EventType.INSERT_ROW_QUERY_BACK)
            log.write_keys(again, gone)
            return gone
        wait_for(log, writers, _MAY_INSERT)
        back, gone = existing(log.connection, log.dialect, schema, cls, gone)
        if not back:
            savepoint.commit()
            return gone
        savepoint.rollback()
    return []
