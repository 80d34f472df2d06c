"""Why the change of an object is not published: what ``eventlog explain --key`` shows
(spec/event-log.md 11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from eventlog.config.load import Config
from eventlog.core.catalog import Catalog, ObjectId
from eventlog.core.options import names_hint
from eventlog.core.ranges import to_ranges
from eventlog.core.rows.events import LEFT_VIEW, FailedCondition, exists_for_reader, in_words
from eventlog.errors import BadQuestion, ConfigError, EventlogError, RowError, number_of
from eventlog.model import LogRow, Status, queue_rows
from eventlog.publisher.context.context import (
    Context,
    Counters,
    in_savepoint,
    unavailable_in_words,
)
from eventlog.publisher.declared.configured_classes import tables_of
from eventlog.publisher.declared.opening import for_consumer, open_unlocked
from eventlog.publisher.inspect.doctor import Compare
from eventlog.publisher.inspect.explanation import explain_as_read
from eventlog.publisher.inspect.listing import FIELDS
from eventlog.publisher.ledger.ledger import status_of
from eventlog.sql import doctor
from eventlog.sql.log.database_snapshots import DatabaseSnapshots
from eventlog.sql.log.rows import extent
from eventlog.sql.port import questions
from eventlog.sql.port.driver_errors import as_database_errors, for_message
from eventlog.sql.port.filtered import read_for_reader
from eventlog.sql.port.log_operations import Window
from eventlog.sql.port.rights import Purpose

_ROWS: Final = 10_000
"""How many of the newest rows of the log, and of the first rows of the queue, are searched."""
_SECONDS: Final = 60
"""The time-out of one statement, in seconds."""
_PATIENCE: Final = 10.0
"""The seconds to spend on reading again while a table is altered."""
_TRANSACTIONS: Final = 100
_MAX_SHOWN: Final = 100


class FoundRow(NamedTuple):
    """A row of an object, without its values."""

    record_id: int
    status: str
    """The status; for a consumer, its set of processed rows determines the status."""
    event_type: int | None
    column_name: str | None
    event_time: str | None


class Found(NamedTuple):
    """The rows of an object that a search has found, and where the search has looked: keys have no
    index.
    """

    rows: Sequence[FoundRow]
    """The rows, in ascending order of record_id."""
    searched: str

    @property
    def deciding(self) -> int | None:
        """The first unpublished row, otherwise the newest row; None without rows."""
        undone = [one.record_id for one in self.rows if one.status == Status.NEW]
        return min(undone) if undone else max((one.record_id for one in self.rows), default=None)


class KeyExplanation(NamedTuple):
    """The answer for an object: ``record_id`` is the row with which ``sentences`` begin, None if
    the log has no such row.
    """

    class_name: str
    key: str
    record_id: int | None
    sentences: Sequence[str]
    searched: str
    """Where the log was searched for rows of the object, since keys have no index."""
    rows: Sequence[FoundRow]
    """The newest rows that were found, the newest first."""

    def as_data(self) -> dict[str, Any]:
        """Return the answer as data for JSON."""
        return {**self._asdict(), "rows": [one._asdict() for one in self.rows]}


def explain_key(
    config: Config,
    text: str,
    compare: Compare,
    consumer: str | None = None,
    seconds: int = _SECONDS,
    *,
    shows_rows: bool = False,
) -> list[KeyExplanation]:
    """Return why the changes of the objects with a key are not published, or not sent to a consumer
    of the log. ``consumer`` None = the configured reader.

    ``text`` is a key as the log has it (``idu=7``), in any class, or with the name of its class
    before it (``usr.idu=7``). ``seconds`` is the time-out of one statement, and ``shows_rows`` is
    as in ``open_unlocked``. Raises BadQuestion if no class has such a key, SnapshotOutdated if a
    table is altered each time it is read, and the errors of ``open_unlocked``.
    """
    opened = open_unlocked(config, Counters(), Purpose.MONITOR, shows_rows=shows_rows)
    with opened as own, as_database_errors(own.log.connection):
        context = for_consumer(own, consumer)

        def read() -> list[KeyExplanation]:
            context.ledger.recover()
            answers = []
            for object_id in _objects(context.catalog, text):
                found = rows_of(context, object_id)
                row = _row(context, found.deciding)
                sentences = [*_sentences(context, config, object_id, row, compare)]
                record_id = None if row is None else row.record_id
                name, key = object_id[0].name, object_id[1]
                rows = found.rows[: -_MAX_SHOWN - 1 : -1]
                answers.append(
                    KeyExplanation(name, key, record_id, sentences, found.searched, rows)
                )
            return answers

        answers = DatabaseSnapshots(context.log, _PATIENCE, seconds).read(read)
    # If several classes have the key, take the classes for which the log has rows.
    found = [one for one in answers if one.record_id is not None]
    return found or answers


def _objects(catalog: Catalog, text: str) -> list[ObjectId]:
    objects: list[ObjectId] = []
    for cls in catalog.classes:
        with suppress(RowError):
            objects.append((cls, cls.canonical_key(text.removeprefix(f"{cls.name}."))))
    if not objects:
        for name, reason in catalog.unavailable.items():
            if text.startswith(f"{name}."):
                raise ConfigError(unavailable_in_words(name, reason))
        raise BadQuestion(
            f"{text!r} is not a key of any class. Write it as the log has it (idu=7), with its "
            "class if several classes have such a key (usr.idu=7); "
            f"{_nearest_object(catalog, text)}"
        )
    return objects


def _nearest_object(catalog: Catalog, text: str) -> str:
    """Return a hint for a text that is not a key: the key of its class, or the nearest class."""
    keys = {cls.name: ", ".join(column.name for column in cls.key) for cls in catalog.classes}
    named = text.partition("=")[0].rpartition(".")[0]
    if named in keys:
        return f"the key of {named} is {keys[named]}"
    hint = names_hint(named, keys, "classes")
    return f"there is no class {named!r}; {hint}" if named else hint


def rows_of(context: Context, object_id: ObjectId) -> Found:
    """Return the rows of an object among the newest rows of the log and the first rows that wait,
    whether they pass the checks or not.
    """
    log, ledger = context.log, context.ledger
    window = ledger.undone(Window(1, None, _ROWS, skipped_user=context.options.skipped_user))
    queue = queue_rows(log.read_window(window))
    oldest, newest = extent(log) or (0, 0)
    first = max(1, oldest, newest - _ROWS + 1)
    parts = [to_ranges([row[0] for row in queue])]
    searched = "the log has no row"
    if newest:
        parts.append([(first, newest)])
        searched = f"the rows {first:,} to {newest:,} of the log"
        if first > max(1, oldest):
            searched += f", and the first {_ROWS:,} rows that wait"
    found: dict[int, FoundRow] = {}
    for ranges in parts:
        rows = log.read_columns(ranges, FIELDS) if ranges else []
        for record_id, status, table_name, table_key, *more in rows:
            if _is_of(context.catalog, object_id, table_name, table_key):
                now = status_of(ledger, record_id, status)
                found[record_id] = FoundRow(record_id, now, *more)
    return Found([found[record_id] for record_id in sorted(found)], searched)


def _row(context: Context, record_id: int | None) -> LogRow | None:
    rows = [] if record_id is None else context.log.read_rows([(record_id, record_id)])
    return next(iter(rows), None)


def _is_of(
    catalog: Catalog, object_id: ObjectId, table_name: str | None, table_key: str | None
) -> bool:
    name = catalog.log_name(table_name) if table_name else None
    if name is None or name.object_class is not object_id[0] or table_key is None:
        return False
    with suppress(RowError):
        return name.object_class.canonical_key(table_key) == object_id[1]
    return False


def _sentences(
    context: Context, config: Config, object_id: ObjectId, row: LogRow | None, compare: Compare
) -> Iterator[str]:
    cls, key = object_id
    wanted = context.options.classes
    if wanted is not None and cls.name not in wanted:
        yield f"the consumer passes over class {cls.name}, which is not among its classes"
    if row is None:
        yield (
            f"the log has no row of {key} of class {cls.name} among its newest {_ROWS:,} rows and "
            "the rows that wait"
        )
        yield from _without_row(context, config, object_id, compare)
    else:
        explained = explain_as_read(context, row.record_id)
        who = "" if row.perpetrator is None else f" by {row.perpetrator!r}"
        # The status is the publisher's; a consumer has its own set of processed rows.
        status = "" if context.ledger.consumer else f" status {row.status},"
        yield (
            f"row {row.record_id} of {key} of class {cls.name},{status} written"
            f"{who} at {row.event_time}: {explained.state}"
        )
        for member in explained.members:
            is_own, now = member.record_id == row.record_id, member.outcome
            if is_own and now.startswith("invalid") and now not in explained.state:
                yield f"row {row.record_id} now: {now}"
        yield from explained.notes
        for one in explained.remedies:
            yield f"{one.text}: {one.command}"
    ask = partial(
        questions.ask, context.log, "transactions", doctor.OpenTransaction, limit=_TRANSACTIONS
    )
    transactions = for_message(context.log.connection, ask) or []
    writers = [one for one in transactions if one.wrote_log]
    if writers:
        oldest = doctor.oldest_writer(transactions) or writers[0]
        since = "" if oldest.seconds is None else f", the oldest for {doctor.age(oldest.seconds)}"
        yield (
            f"{number_of(len(writers), 'open transaction')} wrote rows that become visible when "
            f"they commit{since}: {oldest.who}"
        )


def _without_row(
    context: Context, config: Config, object_id: ObjectId, compare: Compare
) -> Iterator[str]:
    """Yield sentences about why the log may have no row of an object."""
    cls, key = object_id
    conn = context.log.connection
    db = context.log.db.on(conn)
    there = read_for_reader(db, context.catalog.schema, cls, [key], ()).get(key)
    if there is None:
        yield "the table has no such object now"
    elif there is LEFT_VIEW:
        yield "the object is not in the view now; its base table has it"
    elif isinstance(there, FailedCondition):
        yield in_words(cls, there)
    elif not exists_for_reader(there):
        yield "the object does not match the [[filter]] of its class"
    try:
        with in_savepoint(conn):
            plan = compare(context.log.db, config)
    except EventlogError as error:
        yield f"its triggers could not be checked: {error}"
        return
    tables = tables_of(cls)
    for action in plan.faults:
        if action.table.rpartition(".")[2] in tables:
            why = action.reason
            yield f"its triggers are not as declared ({why}); see `eventlog triggers plan`"
