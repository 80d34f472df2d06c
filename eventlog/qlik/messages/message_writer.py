"""The writer of changes as messages. The messages are in order and numbered (formats/qlik.md 5,
5.3, 7; spec/change-model.md 4).

``MessageWriter.messages`` and ``records`` run once for each message: names of the module stand for
members of enumerations, ``tuple.__new__`` makes tuples from their fields by position, and a table
whose columns are the same object as before is found by one comparison. The price: ``table``
compares columns twice: by identity, and, if the objects differ, by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final

from eventlog.changes.format import Report
from eventlog.core.clock import utc_now
from eventlog.errors import ConfigError, FormatError, NotExpressible, with_location
from eventlog.model import (
    Change,
    ChangeOp,
    KafkaRecords,
    Row,
    TableName,
    differing,
    full_name,
)
from eventlog.qlik.columns import ColumnsSeen, QlikColumns, columns_from_json
from eventlog.qlik.messages.envelope import HttpRegistry
from eventlog.qlik.messages.message_records import Draft, TableRecords, timestamp_of
from eventlog.qlik.messages.message_tables import MessageTable, WriteOptions
from eventlog.qlik.sequence import (
    LENGTH,
    PREFIX_LENGTH,
    WriterState,
    is_sequence,
    next_sequence,
    resume,
    time_prefix,
    transaction_text,
)

_UPDATE = ChangeOp.UPDATE
_DELETE = ChangeOp.DELETE
_REFRESH = ChangeOp.REFRESH
_TRUNCATE = ChangeOp.TRUNCATE
_new: Final = tuple.__new__


class MessageWriter:
    """A writer of the changes of one task, in their order.

    ``columns`` holds, by full name, the columns of tables that the option ``columns`` does not
    name; this mapping may change at any time. ``state`` is the writer's numbering so far.
    ``utc_now`` returns the time in metadata messages. The report counts skipped changes.
    """

    def __init__(
        self,
        options: WriteOptions,
        report: Report | None = None,
        registry: HttpRegistry | None = None,
        columns: Mapping[str, QlikColumns] | None = None,
        utc_now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.state: WriterState = resume(options.last_sequence)
        self._options = options
        self._report = Report() if report is None else report
        self._registry = registry
        self._utc_now = utc_now
        if (registry is None) == (options.metadata == "registry"):
            raise ConfigError(
                "with metadata = registry, pass a registry to the writer of Qlik messages; "
                "with any other metadata, pass none"
            )
        self._described = {
            name: columns_from_json(each, what=name) for name, each in options.columns.items()
        }
        self.columns: Mapping[str, QlikColumns] = columns or {}
        self._seen: dict[TableName, ColumnsSeen] = {}
        self._tables: dict[TableName, TableRecords] = {}
        self._announced: set[TableRecords] = set()

    def messages(self, change: Change, sequence: str | None = None) -> KafkaRecords:
        """Return the messages of a change: no message for TRUNCATE, otherwise a data message. An MD
        comes before it if the table is new or has changed.

        ``sequence`` is the change sequence if the caller numbers changes. The position of the
        change is then the stream position. Raises NotExpressible, FormatError; RegistryError.
        """
        if change.op is _TRUNCATE:
            if self._options.on_truncate == "error":
                raise NotExpressible(
                    f"TRUNCATE of {change.table!r} cannot be written as a message; set on_truncate "
                    "= skip to leave it out"
                )
            self._report.count("truncate_skipped")
            return ()
        state = self.state
        try:
            draft = self._draft(change)
            if change.op is _REFRESH:
                sequence = ""
            elif sequence is None:
                sequence, stream_position = self._numbered(change, with_before=draft.with_before)
                draft = draft._replace(headers={**draft.headers, "streamPosition": stream_position})
            return self.records(draft, sequence)
        except NotExpressible as error:
            self.state = state  # an unwritten message takes no number
            place = f"{change.op} of {change.table!r}, position {change.position}"
            raise with_location(error, place) from None

    def records(self, draft: Draft, sequence: str) -> KafkaRecords:
        """Return the message of a draft with its change sequence. An MD comes before it if the
        table is new or has changed.

        Raises NotExpressible.
        """
        table = draft.records
        message = table.record(draft, sequence)
        if table in self._announced:
            return (message,)
        self._announced.add(table)
        return (message,) if table.announcement is None else (table.announcement, message)

    def announce_again(self) -> None:
        """Write each table's MD again before its next message, since an earlier MD may be lost."""
        self._announced.clear()

    # --- the table ---

    def table(self, schema: str | None, name: str, change: Change | None = None) -> TableRecords:
        """Return the records of a table in its present version. For a table that has no
        description, ``change`` shows the columns.

        Raises NotExpressible, FormatError, RegistryError.
        """
        table = self._tables.get((schema, name))
        if table is not None:
            columns = table.described or self.columns.get(table.full_name)
            if columns is table.table.columns:  # nearly always
                return table
        known_as = full_name(schema, name)
        described = self._described.get(known_as)
        columns = described or self.columns.get(known_as)
        if columns is None:
            assert change is not None
            seen = self._seen.setdefault((schema, name), ColumnsSeen())
            seen.see(change)
            columns = seen.columns()
        if table is not None and table.table.columns == columns:
            return table
        version = 1 if table is None else table.table.version + 1
        of_version = MessageTable(schema, name, columns, version)
        table = TableRecords(of_version, described, self._options, self._registry, self._utc_now())
        self._tables[schema, name] = table
        return table

    # --- the message ---

    def _draft(self, change: Change) -> Draft:
        image = _image(change)
        table = self.table(change.schema, change.table, change)
        before = change.before if change.op is _UPDATE else None
        if before is not None and table.is_whole:
            before = self._whole_before(change, image, before, table)
        changed = change.changed
        if changed is None and change.before is not None and change.after is not None:
            changed = differing(change.before, change.after)
        if table.rounded:
            self._count_rounded(table, image)
            self._count_rounded(table, before or {})
        return table.draft(
            change.op,
            table.images(image, before, changed),
            timestamp_of(change.commit_time),
            change.position or "",
            (
                transaction_text(change.transaction_id),
                change.event_number,
                change.last_in_transaction,
            ),
        )

    def _whole_before(
        self, change: Change, after: Row, before: Row, table: TableRecords
    ) -> Row | None:
        """Return the values before the change, with each column that the values after it have,
        since Avro cannot leave out a column of a row.

        An unchanged column had the same value before the change. Returns None if the old value of a
        changed column is unknown, since a missing value would be read as NULL.
        """
        if after.keys() <= before.keys():  # nearly always
            return before
        unknown = after.keys() - before.keys()
        if change.changed is None or change.changed & unknown or table.table.lobs & unknown:
            self._report.count(f"before_image_dropped {table.full_name}")
            return None
        return {**before, **{name: after[name] for name in unknown}}

    def _count_rounded(self, table: TableRecords, row: Row) -> None:
        for name in table.rounded:
            if (clock := row.get(name)) is not None and getattr(clock, "microsecond", 0) % 1000:
                self._report.count(f"truncated {table.full_name}.{name}")

    def _numbered(self, change: Change, with_before: bool) -> tuple[str, str]:
        """Return the change sequence and the stream position of a change. A change that has a
        sequence keeps its sequence (spec/change-model.md 4).
        """
        position = change.position
        if (
            position is not None
            and len(position) == LENGTH
            and position.isdigit()
            and position.isascii()
        ):
            prefix, number = position[:PREFIX_LENGTH], int(position[PREFIX_LENGTH:])
            greatest, last = self.state
            if prefix == greatest or _is_time(prefix):
                self.state = _new(
                    WriterState,
                    (prefix if prefix > greatest else greatest, number if number > last else last),
                )
                return position, str(change.extras.get("stream_position") or "")
        self.state, sequence = next_sequence(
            self.state, time_prefix(change.commit_time), with_before=with_before
        )
        return sequence, position or ""


@lru_cache(maxsize=1024)
def _is_time(prefix: str) -> bool:
    """Return True if a position that consists of digits and has this prefix is a change sequence.
    Prefixes repeat, since many changes have the same time.
    """
    return is_sequence(prefix.ljust(LENGTH, "0"))


def _image(change: Change) -> Row:
    """Return the known columns of the row in the message, with the key. For a DELETE this is the
    row before it, otherwise the row after the change.

    Raises FormatError if no column is known.
    """
    op, key = change.op, change.key
    image = change.before if op is _DELETE else change.after
    if image is None:
        if op is _DELETE and key:
            return dict(key)
        if "part1" in change.extras:
            raise FormatError(
                f"{op} of {change.table!r} has its row only in raw form; give the reader a `codec`",
                code="needs_row_codec",
            )
        raise FormatError(
            f"{op} of {change.table!r} at {change.position} holds no values (a query-back row), so "
            "it cannot be written as a Qlik message; give the reader a connection to its database",
            code="needs_query_back",
        )
    for name, _ in key or ():
        if name not in image:
            return {**dict(key or ()), **image}
    return image
