"""Write changes as a CDC stream (spec/change-model.md 4, column G; formats/gbase-cdc.md 3)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from eventlog.changes.format import Report
from eventlog.changes.images import transactions, whole_images
from eventlog.changes.json_form import database_of
from eventlog.changes.keys import may_be_one
from eventlog.core.catalog import Table
from eventlog.core.values import INTEGER_NAMES, Kind
from eventlog.core.values import ColumnType as CatalogType
from eventlog.core.values.moments import EPOCH_UTC
from eventlog.errors import ConfigError, FormatError, NotExpressible
from eventlog.gbase import records
from eventlog.gbase.layout import (
    Column,
    RowWriter,
    parse_columns,
    parse_type,
    row_writer,
    stream_order,
    tabschem,
)
from eventlog.gbase.options import WriteOptions, parse_table_name
from eventlog.gbase.records import BEGINTX, COMMTX, DELETE, INSERT, TRUNCATE, UPDAFT, UPDBEF
from eventlog.model import Change, ChangeOp, TableName, full_name

_LONGEST_LVARCHAR: Final = 32739
_MAX_DIGITS: Final = 32
_BYTES_A_CHARACTER: Final = 4


def _columns_of_catalog(table: Table, varchar_prefix: int) -> tuple[Column, ...]:
    """Return the columns that a stream has for a catalogue's table. Binary columns are left out,
    since a stream has no binary columns.

    Text takes 4 bytes for each character. Raises ConfigError if no column is left.
    """
    columns = []
    for column in table.columns:
        spelled = _type_of_catalog(column.type, varchar_prefix)
        if spelled is not None:
            columns.append(Column(column.name, parse_type(spelled, column.name)))
    if not columns:
        raise ConfigError(
            f"table {table.name!r} of the catalog has no column that a CDC stream can hold"
        )
    return stream_order(columns)


_SPELLED: Final = {
    Kind.BOOLEAN: "boolean",
    Kind.DATE: "date",
    Kind.TIME: "datetime hour to fraction(5)",
    Kind.TIMESTAMP: "datetime year to fraction(5)",
    Kind.TIMESTAMPTZ: "datetime year to fraction(5)",
    Kind.UUID: "char(36)",
}


def _type_of_catalog(type: CatalogType, varchar_prefix: int) -> str | None:
    """Return the spelling of a catalogue's type in a stream, None for binary columns."""
    match type.kind:
        case Kind.BINARY:
            return None
        case Kind.INTEGER | Kind.EXACT | Kind.APPROXIMATE:
            return _type_of_number(type)
        case Kind.FIXED | Kind.CHARACTER | Kind.OTHER:
            return _type_of_text(type, 0xFF if varchar_prefix == 1 else 0xFFFF)
        case _:
            return _SPELLED[type.kind]


def _type_of_number(type: CatalogType) -> str:
    sizes = type.sizes
    if type.kind is Kind.APPROXIMATE:
        return "smallfloat" if type.bits == 32 else "float"
    if type.kind is Kind.INTEGER:
        if type.bits:
            return INTEGER_NAMES[type.bits]
        return f"decimal({min(sizes[0], _MAX_DIGITS) if sizes else _MAX_DIGITS},0)"
    if not sizes:
        return f"decimal({_MAX_DIGITS})"
    scale = max(sizes[1], 0) if len(sizes) > 1 else 0
    return f"decimal({max(min(sizes[0], _MAX_DIGITS), scale)},{scale})"


def _type_of_text(type: CatalogType, longest_varchar: int) -> str:
    size = type.sizes[0] * _BYTES_A_CHARACTER if type.sizes else None
    if type.kind is Kind.FIXED:
        return f"char({size or _BYTES_A_CHARACTER})"
    if type.kind is Kind.CHARACTER and size is not None and size <= longest_varchar:
        return f"varchar({size},0)"
    return f"lvarchar({min(size or _LONGEST_LVARCHAR, _LONGEST_LVARCHAR)})"


_STEP: Final = 0x40  # distance between the sequences of two records
_IN_MEMORY: Final = 16 << 20
_CHUNK: Final = 1 << 20
_MAX_TX: Final = 0xFFFFFFFF
_ID_DIGITS: Final = 10
_SECOND: Final = timedelta(seconds=1)
_RECORDS: Final = {
    ChangeOp.INSERT: (INSERT,),
    ChangeOp.REFRESH: (INSERT,),
    ChangeOp.UPDATE: (UPDBEF, UPDAFT),
    ChangeOp.DELETE: (DELETE,),
}
"""The records of a change's rows. An UPDATE without the row before has only an UPDAFT."""


def write_stream(
    changes: Iterable[Change], options: WriteOptions, report: Report
) -> Iterator[bytes]:
    """Yield the stream of changes in chunks. A transaction is yielded when the next change shows
    that the transaction is complete.

    Changes without a transaction id are separate transactions; the end of ``changes`` ends the last
    transaction. Changes that a stream cannot hold go to ``report.skip``. A strict report raises the
    error, and nothing of the transaction is written. The errors are NotExpressible, and
    FormatError, for example for a table that neither ``tables`` nor ``catalog`` describes.
    ``report`` counts written changes, ``truncated <table>.<column>`` and ``user_unknown``.
    """
    writer = _Writer(options, report)
    for transaction in transactions(changes):
        written = 0
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as spool:
            for number, change in enumerate(transaction):
                if number == 0:
                    spool.write(writer.begin(change))
                try:
                    spool.write(b"".join(writer.records(change)))
                    written += 1
                except FormatError as error:
                    report.skip(error)
            if written:
                spool.write(writer.commit(change))
                spool.seek(0)
                yield from writer.new_tables()
                yield from iter(lambda: spool.read(_CHUNK), b"")
        report.written += written
    report.refuse_nothing()


_Table = tuple[int, frozenset[str], RowWriter]
"""A table with a TABSCHEM record: its label, the names of its columns, and the writer of its rows.
"""


class _Writer:
    """The state of a writer: the sequences, transaction ids and labels that it has used, and the
    tables that it has described.
    """

    def __init__(self, options: WriteOptions, report: Report) -> None:
        self._options = options
        self._report = report
        self._sequence = options.first_sequence - _STEP
        self._tx = 0
        self._tables: dict[TableName, _Table] = {}
        self._described: list[bytes] = []  # TABSCHEM records that are still to be written
        self._catalog = database_of(options.catalog)
        self._labels = {
            parse_table_name(name)[1:]: int(label) for label, name in options.labels.items()
        }
        self._used = set(self._labels.values())

    def begin(self, change: Change) -> bytes:
        self._tx = self._tx % _MAX_TX + 1
        return records.control(
            BEGINTX, self._next(), self._tx, _seconds(change), self._os_user(change.user)
        )

    def commit(self, change: Change) -> bytes:
        return records.control(COMMTX, self._next(), self._tx, _seconds(change))

    def new_tables(self) -> Iterator[bytes]:
        """Yield the TABSCHEM records of the tables that are new since the last call."""
        yield from self._described
        self._described.clear()

    def records(self, change: Change) -> Iterator[bytes]:
        label, names, write = self._table(change.schema, change.table)
        if change.op is ChangeOp.TRUNCATE:
            yield records.control(TRUNCATE, self._next(), self._tx, label)
            return
        images = whole_images(
            change, names, self._options.complete, needs_before=False, count=self._report.count
        )
        for number, image in zip(_RECORDS[change.op][-len(images) :], images, strict=True):
            sizes, payload = write(image)
            record = records.row(
                number, self._next(), self._tx, label, sizes, payload, self._options.size_order
            )
            if len(record) > self._options.max_record:
                raise NotExpressible(
                    f"a row of {full_name(change.schema, change.table)!r} takes {len(record)} "
                    "bytes, more than max_record; readers would refuse it",
                    code="value_range",
                )
            yield record

    def _next(self) -> int:
        self._sequence += _STEP
        return self._sequence

    def _os_user(self, user: str | None) -> int:
        if user is None:
            return 0
        is_id = user.isascii() and user.isdigit() and len(user) <= _ID_DIGITS
        number = int(user) if is_id else self._options.user_ids.get(user, -1)
        if not 0 <= number < 1 << 32:
            self._report.count("user_unknown")
            return 0
        return number

    # --- tables

    def _table(self, schema: str | None, name: str) -> _Table:
        table = self._tables.get((schema, name))
        if table is None:
            qualified = full_name(schema, name)
            columns = self._columns(qualified, schema, name)
            label = self._labels.get((schema, name), self._labels.get((None, name)))
            if label is None or any(used == label for used, _, _ in self._tables.values()):
                label = 1
                while label in self._used:
                    label += 1
                self._used.add(label)
            write = row_writer(
                qualified,
                columns,
                self._options.charset,
                self._options.varchar_prefix,
                lambda column: self._report.count(f"truncated {qualified}.{column}"),
            )
            table = self._tables[schema, name] = (
                label,
                frozenset(column.name for column in columns),
                write,
            )
            self._described.append(tabschem(label, columns))
        return table

    def _columns(self, qualified: str, schema: str | None, name: str) -> tuple[Column, ...]:
        options = self._options
        text = options.tables.get(qualified, options.tables.get(name))
        if text is not None:
            return stream_order(parse_columns(text, options.decimal_no_scale))
        if self._catalog is not None and may_be_one(schema, self._catalog.schema):
            for table in self._catalog.tables:
                if table.name == name:
                    return _columns_of_catalog(table, options.varchar_prefix)
        raise FormatError(
            f"the columns of table {qualified!r} are unknown: describe them in the writer's option "
            f'tables, as {{"{qualified}": "id integer, name varchar(40,0)"}}, or in the option '
            "catalog",
            code="schema_missing",
        )


def _seconds(change: Change) -> int:
    time = change.commit_time
    return 0 if time is None else (time - EPOCH_UTC) // _SECOND
