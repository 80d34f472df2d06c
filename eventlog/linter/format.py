"""The format ``linter``: a queue in files or in a database (formats/linter-queue.md 1, 5), read and
polled as Changes, written, and listed for people.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from eventlog.changes.format import Block, Format, Report
from eventlog.changes.json_form import CATALOG, CatalogOption
from eventlog.changes.losses import Loss
from eventlog.core.catalog import Database, match_name
from eventlog.core.options import (
    FLAG,
    STRING,
    CheckedOptions,
    integer,
    option,
    parse_all_options,
    shared,
)
from eventlog.errors import ConfigError, DatabaseError, FormatError, with_location
from eventlog.files import tabular
from eventlog.files.atomic import directory_of, whole_path
from eventlog.files.text import files_in
from eventlog.linter.dispatch_tables import (
    ATTRS_COLUMNS,
    ATTRS_TYPES,
    DATA_SIZE,
    MASK_64,
    QUEUE_COLUMNS,
    QUEUE_TYPES,
    DispatchRow,
    MissingColumn,
    TableAttrs,
    Where,
    attrs_of_rows,
    attrs_values,
    blob_attr,
    column_positions,
    column_values,
    data_bytes,
    decode_oper_date,
    dispatch_rows,
    syslog_addr,
    table_attrs,
)
from eventlog.linter.operations import TYP_TABLES, TypTable
from eventlog.linter.reader import DISPATCH_ATTRS, QueueReader, ReaderOptions
from eventlog.linter.writer import QueueWriter, WriterOptions, first_address, next_address
from eventlog.model import Change
from eventlog.sql.connection import any_database_errors, connect_any

QUEUE: Final = "dispatch_queue"
ATTRS: Final = "dispatch_attrs"
PLACE: Final = "the database of the Linter queue"
_SUFFIXES: Final = (".csv", ".jsonl", ".parquet")


@dataclass(frozen=True, slots=True)
class PlaceOptions(CheckedOptions):
    """The places of the two tables, in files and in a database."""

    attrs: str | None = option(
        None, STRING, "file of DISPATCH_ATTRS, if it is not in the queue's directory"
    )
    queue_table: str = option(QUEUE, STRING, "name of the queue's table in a database")
    attrs_table: str = option(ATTRS, STRING, "name of the table that describes the tables")
    schema: str | None = option(None, STRING, "schema of these two tables")


@dataclass(frozen=True, slots=True)
class SourceOptions(PlaceOptions):
    """Options of a source, which the reader's options complement.

    ``catalog`` is accepted because a conversion gives it to both sides; a queue describes its
    tables itself.
    """

    dispatch_attrs: Mapping[int, TableAttrs] = shared(DISPATCH_ATTRS)
    batch_rows: int = option(10_000, integer(1), "number of rows per read from a database")
    final: bool = option(True, FLAG, "return all changes now, and keep none for a later read")
    catalog: CatalogOption = shared(CATALOG)


@dataclass(frozen=True, slots=True)
class TargetOptions(PlaceOptions):
    """Options of a target, which the writer's options complement.

    Tables that a database lacks are created.
    """

    files: str = option("csv", STRING, "format of the files in a directory: csv, jsonl or parquet")


def export_reader(source: str, options: Mapping[str, Any], report: Report) -> QueueReader:
    """Return the reader of an export whose rows are already in order. Call ``QueueReader.changes``
    on it.

    Raises ConfigError, FormatError.
    """
    place, reader_options = parse_all_options(FORMAT.reader_options, options, "the linter reader")
    return _export_reader(export_files(Path(source))[1], place, reader_options, report)


def _export_reader(
    attrs_file: Path | None, place: SourceOptions, options: ReaderOptions, report: Report
) -> QueueReader:
    attrs = place.dispatch_attrs
    described = attrs_file if place.attrs is None else Path(place.attrs)
    if not attrs and described is not None:
        attrs = _attrs_of_file(described)
    return QueueReader(attrs, options, report)


def _write_database(
    changes: Iterable[Change],
    url: str,
    place: TargetOptions,
    options: WriterOptions,
    report: Report,
) -> None:
    with any_database_errors(PLACE), connect_any(url).begin() as connection:
        queue, attrs = create_tables(connection, place)
        last = _last_address(connection, queue)
        writer = QueueWriter(
            options, report, first_address() if last is None else next_address(last, DATA_SIZE)
        )
        insert_attrs(connection, attrs, list(writer.attrs.values()))
        insert_rows(connection, queue, writer.rows(changes))


class LinterFormat(Format):
    """Linter's DISPATCH_QUEUE, in files or a database (formats/linter-queue.md)."""

    name = "linter"
    title = "Linter's DISPATCH_QUEUE"
    schemes = None
    reader_options = (SourceOptions, ReaderOptions)
    writer_options = (TargetOptions, WriterOptions)
    suffixes = frozenset({".csv", ".jsonl", ".parquet"})
    loses = frozenset({
        Loss.POSITION, Loss.USER, Loss.TRANSACTION_ID, Loss.CHANGED, Loss.REFRESH,
    })  # fmt: skip
    is_several_files = True
    is_written_later = True

    def read_changes(
        self, source: str, place: SourceOptions, options: ReaderOptions, report: Report
    ) -> Iterator[Change]:
        """Return all changes that are now in an export (a file or a directory) or in the queue of a
        database (a URL of SQLAlchemy).

        An export is sorted in memory; ``export_reader`` reads one that is in order. Raises
        ConfigError, FormatError, DatabaseError.
        """
        if "://" in source:
            yield from QueuePoller(connect_any(source), options, report, place).drain()
            return
        queue, attrs_file = export_files(Path(source))
        changes = _export_reader(attrs_file, place, options, report).read(
            read_queue(queue), final=place.final
        )
        try:
            yield from changes
        except FormatError as error:
            raise with_location(error, source) from error.__cause__

    def write_changes(
        self,
        changes: Iterable[Change],
        target: str,
        place: TargetOptions,
        options: WriterOptions,
        report: Report,
    ) -> None:
        """Write changes to a file (.csv, .jsonl, .parquet), to a directory, or to the end of a
        database's queue, completely or not at all.

        DISPATCH_ATTRS is written next to it. Raises ConfigError, FormatError, DatabaseError.
        """
        if "://" in target:
            _write_database(changes, target, place, options, report)
            return
        path = Path(target)
        if path.is_dir() or not path.suffix:
            path = path / f"{QUEUE}.{place.files}"
        attrs = (
            path.with_name(f"{ATTRS}{path.suffix}") if place.attrs is None else Path(place.attrs)
        )
        for suffix in (path.suffix.lower(), attrs.suffix.lower()):
            if suffix not in _SUFFIXES:
                raise ConfigError(
                    f"a Linter queue is written to {', '.join(_SUFFIXES)} files, not to "
                    f"{suffix or 'others'!r}"
                )
        writer = QueueWriter(options, report)
        write_export(path, attrs, writer.rows(changes), writer.attrs.values())

    def lines(
        self, source: str, options: Mapping[str, Any], report: Report, block: Block
    ) -> Iterator[str]:
        if "://" not in source:
            yield from queue_listing(source, options)
            yield ""
        yield from super().lines(source, options, report, block)

    def is_sorted_first(self, options: Mapping[str, Any]) -> bool:
        return True

    def is_description(self, file: Path) -> bool:
        return file.stem.casefold() == ATTRS

    def output_place(self, name: str, options: Mapping[str, Any]) -> str:
        if options.get("attrs") is not None:
            raise ConfigError(
                "the writer's option attrs names one file, but each capture needs a separate file: "
                "remove the option"
            )
        return super().output_place(name, options)

    def options_of_catalog(self, side: str, database: Database) -> Mapping[str, Any] | None:
        return {} if side == "reader" else None  # DISPATCH_ATTRS describes the tables


FORMAT: Final = LinterFormat()


# --- files ----------------------------------------------------------------------------------------


def export_files(source: Path) -> tuple[list[Path], Path | None]:
    """Return the queue files of a directory or file, sorted by name, and the attrs file next to
    them, if any.

    Raises FormatError.
    """
    directory = source if source.is_dir() else source.parent
    try:
        files = files_in(directory, _SUFFIXES)
    except OSError as error:
        raise FormatError(f"{source} cannot be read: {error.strerror}") from error
    described = [path for path in files if path.stem.casefold() == ATTRS]
    if source.is_dir():
        queue = [path for path in files if path not in described]
        if not queue:
            raise FormatError(
                f"{source} contains no {', '.join(_SUFFIXES)} file with rows of DISPATCH_QUEUE"
            )
    else:
        queue = [source]
    return queue, described[0] if described else None


def read_queue(paths: Iterable[Path]) -> Iterator[DispatchRow]:
    """Yield the rows of all files, in the order of the files. Raises FormatError."""
    return chain.from_iterable(rows for path in paths for rows in _tables(path, dispatch_rows))


def _attrs_of_file(path: Path) -> dict[int, TableAttrs]:
    """Return the tables of a DISPATCH_ATTRS file by number. Raises FormatError."""
    columns: dict[int, TableAttrs] = {}
    for tables in _tables(path, attrs_of_rows):
        for tabnum, table in tables.items():
            known = columns.get(tabnum)
            columns[tabnum] = (
                table if known is None else table_attrs(tabnum, known.columns + table.columns)
            )
    return columns


_T = TypeVar("_T")


def _tables(
    path: Path, make: Callable[[Sequence[str], Iterator[Sequence[Any]], Where], _T]
) -> Iterator[_T]:
    """Yield the results of ``make`` for the tables of a file.

    ``make`` is called with column names, rows, and a function that returns the place of the last
    row that was read. Consecutive objects of JSON lines with the same members are one table. Raises
    FormatError.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise FormatError(
            f"{path} is not a {', '.join(_SUFFIXES)} file; export the queue to one of these formats"
        )
    number = 1

    def where() -> str:
        return f"{path}, {'row' if suffix == '.parquet' else 'line'} {number}"

    def values(rows: tabular.Rows) -> Iterator[Sequence[Any]]:
        nonlocal number
        for number, row in _readable(rows):  # for ``where``  # noqa: B007
            yield row

    try:
        tables = _objects(path) if suffix == ".jsonl" else ((1, *tabular.read_rows(path)),)
        for number, names, rows in tables:  # noqa: B007
            try:
                yield make(names, values(rows), where)
            except MissingColumn as error:
                raise with_location(error, path if suffix == ".parquet" else where()) from None
    except FileNotFoundError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}") from error


def _objects(path: Path) -> Iterator[tuple[int, tuple[str, ...], tabular.Rows]]:
    """Yield tables of JSON lines: consecutive objects with the same members form one.

    A table consists of the line number of its first object, the column names, and the values with
    their line numbers.
    """
    for names, alike in groupby(
        _readable(tabular.read_json_objects(path)), key=lambda numbered: tuple(numbered[1])
    ):
        first = next(alike)
        yield (
            first[0],
            names,
            ((number, list(row.values())) for number, row in chain([first], alike)),
        )


def _readable(rows: Iterable[tuple[int, _T | FormatError]]) -> Iterator[tuple[int, _T]]:
    for number, row in rows:
        if isinstance(row, FormatError):
            raise row
        yield number, row


def write_export(
    queue: Path, attrs: Path, rows_of_queue: Iterable[DispatchRow], tables: Iterable[TableAttrs]
) -> None:
    """Write both files, each whole or not at all. Their directory is created; its parent must
    exist.

    Raises the errors of the rows, ConfigError, OSError.
    """
    with (
        directory_of(queue),
        whole_path(str(queue)) as new_queue,
        whole_path(str(attrs)) as new_attrs,
    ):
        _write_rows(new_queue, queue, QUEUE_TYPES, map(column_values, rows_of_queue))
        described = chain.from_iterable(map(attrs_values, tables))
        _write_rows(new_attrs, attrs, ATTRS_TYPES, described)


def _write_rows(
    path: Path, named: Path, types: Mapping[str, tuple[str, int]], rows: Iterable[Sequence[Any]]
) -> None:
    """Write rows to ``path`` in the file format by the suffix of ``named``."""
    suffix, names = named.suffix.lower(), tuple(types)
    if suffix == ".parquet":
        arrow_types = [tabular.pyarrow().type_for_alias(name) for name, _ in types.values()]
        with tabular.open_parquet(path, names, arrow_types) as write_row:
            for row in rows:
                write_row(row)
        return
    texts = ([value.hex() if isinstance(value, bytes) else value for value in row] for row in rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        if suffix == ".jsonl":
            file.writelines(tabular.json_line(names, row) for row in texts)
        else:  # the blanks that pad a CHAR are written without quotes, as servers export them
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(names)
            lines.writerows(texts)


# --- a database -----------------------------------------------------------------------------------

_AT_ONCE: Final = 500
_INTEGERS: Final[Mapping[str, type[sa.types.TypeEngine[int]]]] = {
    "int16": sa.SmallInteger,
    "int32": sa.Integer,
    "int64": sa.BigInteger,
}


def find_table(connection: sa.Connection, name: str, schema: str | None = None) -> sa.Table:
    """Return the table of this name, matched exactly or otherwise without case.

    Raises DatabaseError if there is none.
    """
    inspector = sa.inspect(connection)
    table_name = match_name(
        name, [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]
    )
    if table_name is None:
        raise DatabaseError(
            f"there is no table {name!r} in the "
            f"{f'schema {schema!r}' if schema else 'default schema'}"
        )
    return sa.Table(
        table_name, sa.MetaData(), schema=schema, autoload_with=connection, resolve_fks=False
    )


def create_tables(
    connection: sa.Connection, place: PlaceOptions | None = None
) -> tuple[sa.Table, sa.Table]:
    """Return the two tables, created if they are missing: for emulation, and as the target of a
    conversion.
    """
    place = place or PlaceOptions()
    queue = _found_or_made(connection, place.queue_table, place.schema, QUEUE_TYPES, "syslog_addr")
    return queue, _found_or_made(connection, place.attrs_table, place.schema, ATTRS_TYPES)


def _found_or_made(
    connection: sa.Connection,
    name: str,
    schema: str | None,
    types: Mapping[str, tuple[str, int]],
    indexed: str = "",
) -> sa.Table:
    try:
        return find_table(connection, name, schema)
    except DatabaseError:
        columns = [
            sa.Column(column.lower(), _sql_type(*column_type))
            for column, column_type in types.items()
        ]
        table = sa.Table(name, sa.MetaData(), *columns, schema=schema)
        if indexed:
            sa.Index(f"ix_{name}_{indexed}", table.columns[indexed])
        table.create(connection)
        return table


def _sql_type(name: str, size: int) -> sa.types.TypeEngine[Any]:
    if name in _INTEGERS:
        return _INTEGERS[name]()
    return sa.CHAR(size) if name == "string" else sa.LargeBinary(size)


def insert_rows(connection: sa.Connection, table: sa.Table, queue: Iterable[DispatchRow]) -> None:
    """Insert rows into the queue, up to 500 in one call of the driver."""
    names = [column_of(table, name).name for name in QUEUE_COLUMNS]
    values = iter(queue)
    while several := [
        dict(zip(names, column_values(row), strict=True)) for row in islice(values, _AT_ONCE)
    ]:
        connection.execute(sa.insert(table), several)


def insert_attrs(connection: sa.Connection, table: sa.Table, tables: Sequence[TableAttrs]) -> None:
    """Describe the tables that have no description yet.

    Raises FormatError for a table that already has another description.
    """
    names = [column_of(table, name).name for name in ATTRS_COLUMNS]
    present = _read_attrs(connection, table)
    for attrs in tables:
        known = present.get(attrs.tabnum)
        if known is not None and known != attrs:
            raise FormatError(
                f"DISPATCH_ATTRS already describes table {attrs.tabnum} with other columns; give "
                "the table another number"
            )
        if known is None:
            connection.execute(
                sa.insert(table),
                [dict(zip(names, row, strict=True)) for row in attrs_values(attrs)],
            )


def _read_attrs(connection: sa.Connection, table: sa.Table) -> dict[int, TableAttrs]:
    """Return the tables that DISPATCH_ATTRS describes, by number.

    Raises MissingColumn, FormatError.
    """
    names = [column.name for column in table.columns]
    return attrs_of_rows(
        names, (tuple(row) for row in connection.execute(sa.select(*table.columns)))
    )


def _last_address(connection: sa.Connection, table: sa.Table) -> int | None:
    """Return the greatest SYSLOG_ADDR of the queue, unsigned; None if the queue is empty."""
    address = column_of(table, "SYSLOG_ADDR")
    order = (sa.case((address < 0, 1), else_=0).desc(), address.desc())
    greatest = connection.execute(sa.select(address).order_by(*order).limit(1)).scalar()
    return None if greatest is None else int(greatest) & MASK_64


def column_of(table: sa.Table, name: str) -> sa.Column[Any]:
    """Return a column of the queue or of DISPATCH_ATTRS by its name in any case.

    Raises MissingColumn.
    """
    names = [column.name for column in table.columns]
    (position,) = column_positions(names, (name,), table=table.name.upper())
    return table.columns[names[position or 0]]


# --- polling --------------------------------------------------------------------------------------


class QueuePoller:
    """A poller of one queue. ``restart_token`` is where a new poller continues: pass it as the
    option ``restart``.

    Each poll reads the queue in order in one statement, far enough for ``batch_rows`` new rows, and
    closes its transaction before it yields the first change. Operations of open transactions stay
    in memory until their COMMIT is seen. Earlier rows are read again, since rows leave the queue
    only after they were sent. The table names of ``place`` are matched exactly or otherwise without
    case.
    """

    def __init__(
        self,
        engine: sa.Engine,
        options: ReaderOptions | None = None,
        report: Report | None = None,
        place: SourceOptions | None = None,
    ) -> None:
        self._engine = engine
        self._options = options or ReaderOptions()
        self._place = place or SourceOptions()
        self._reader = QueueReader(self._place.dispatch_attrs, self._options, report)
        self._reads_attrs = not self._place.dispatch_attrs and self._options.codec != "none"
        self._queue: sa.Table | None = None
        self._attrs: sa.Table | None = None

    @property
    def restart_token(self) -> str | None:
        """The token of the last transaction whose changes were all yielded."""
        return self._reader.restart_token

    def attrs_of(self, tabnum: int) -> TableAttrs | None:
        """Return the description of a table, None if it has none."""
        return self._reader.attrs_of(tabnum)

    def poll(self) -> Iterator[Change]:
        """Yield the changes of the transactions whose COMMIT is new in the queue. Raises
        FormatError, DatabaseError.

        After DatabaseUnavailable it may be called again; after a FormatError a new poller is
        needed.
        """
        rows = self._fetch()
        yield from self._reader.changes(rows, final=False)

    def drain(self) -> Iterator[Change]:
        """Yield all changes that are in the queue now, in as many polls as needed; open
        transactions are dropped and counted.
        """
        while rows := self._fetch():
            yield from self._reader.changes(rows, final=False)
        yield from self._reader.changes((), final=True)

    def _fetch(self) -> list[DispatchRow]:
        place = self._place
        with any_database_errors(PLACE), self._engine.connect() as opened:
            connection = opened.execution_options(postgresql_readonly=True)
            if self._reads_attrs:
                if self._attrs is None:
                    self._attrs = find_table(connection, place.attrs_table, place.schema)
                self._reader.describe(_read_attrs(connection, self._attrs))
            if self._queue is None:
                self._queue = find_table(connection, place.queue_table, place.schema)
            # At least one batch of so many rows is new, if the queue has that many new rows.
            limit = len(self._reader.seen) + place.batch_rows
            statement = _select_queue(self._queue, self._options.order_by, limit)
            result = connection.execute(statement, execution_options={"yield_per": _AT_ONCE})
            return list(self._reader.fresh(dispatch_rows(tuple(result.keys()), result)))


def _select_queue(table: sa.Table, order_by: str, limit: int) -> sa.Select[Any]:
    """Return the statement that reads the first rows in the order of the option ``order_by``, with
    all columns in the table's own order.

    Raises MissingColumn.
    """
    oper_date, address, extdata = (
        column_of(table, name) for name in ("OPER_DATE", "SYSLOG_ADDR", "EXTDATA")
    )
    order = (sa.case((address < 0, 1), else_=0), address, extdata)  # unsigned
    return (
        sa.select(*table.columns)
        .order_by(*((oper_date, *order) if order_by == "oper_date" else order))
        .limit(limit)
    )


def follow(poller: QueuePoller, wait: Callable[[], bool]) -> Iterator[Change]:
    """Yield the changes of poll after poll. ``wait`` is called after a poll without changes: it
    waits, and returns whether to continue.

    Raises FormatError, DatabaseError.
    """
    while True:
        has_changes = False
        for change in poller.poll():
            has_changes = True
            yield change
        if not has_changes and not wait():
            return


# --- the listing ----------------------------------------------------------------------------------

_SHOWN: Final = 32  # bytes shown on a line


def queue_listing(source: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a listing, row by row in the order of the files.

    Raises ConfigError, FormatError.
    """
    _, chosen = parse_all_options(FORMAT.reader_options, options, "the linter reader")
    table = TYP_TABLES[chosen.typ_table]
    files, _ = export_files(Path(source))
    for number, row in enumerate(read_queue(files), 1):
        try:
            yield from _row(number, row, table)
        except FormatError as error:
            raise with_location(error, f"{source}, row {number} of the listing") from None


def _row(number: int, row: DispatchRow, table: TypTable) -> Iterator[str]:
    file, address = syslog_addr(row.syslog_addr)
    name = table.operations.get(row.typ) or table.ends.get(row.typ, "(unknown)")
    yield (
        f"row {number}  SYSLOG_ADDR {file}:{address}  TYP {row.typ} {name}  transaction "
        f"{row.transact_id:X}"
    )
    time = decode_oper_date(row.oper_date)
    yield f"    OPER_DATE   {row.oper_date.hex().upper()}  {time} of the server {row.dbnode!r}"
    if row.typ in table.ends:
        return
    destination = ".".join(part for part in row.destination if part)
    yield (
        f"    table       {row.tabnum_src} -> {destination!r}, row id {row.rowid_src}, channel "
        f"{row.channel}"
    )
    yield f"    lengths     {row.len1} + {row.len2}, fragment {row.extdata}"
    if row.blobatr:
        column, blob_type = blob_attr(row.blobatr)
        yield f"    BLOBATR     column {column}, type {blob_type}"
    data = data_bytes(row.data)
    for at in range(0, len(data), _SHOWN):
        yield f"    {at:08x}    {data[at : at + _SHOWN].hex().upper()}"
