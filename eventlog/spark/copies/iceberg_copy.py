"""An Iceberg table as the target of a live copy, by ``pyiceberg`` and any of its catalogues.

The number of a query's last batch is a property of the table. The transaction that writes the rows
sets this property, and compares it with the table from which the transaction begins. The catalogue
accepts the transaction only if the table has not changed: the property that lets ``pyiceberg``
retry a stale commit is set to 0.

A merge reads the rows whose first key column has one of the batch's values, and rewrites their
files. This module does not need Java.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from eventlog.core.arguments import NAME, Kind, check_arguments
from eventlog.core.clock import utc_now
from eventlog.core.extras import install_command
from eventlog.core.ranges import RecordSet
from eventlog.errors import ConfigError
from eventlog.spark.copies.copy_target import (
    CopyBatch,
    CopyLoad,
    Key,
    LastBatch,
    MergeSource,
    may_search,
    plain_column,
)
from eventlog.spark.copies.copy_types import (
    Columns,
    CopyError,
    Note,
    claimed_rows,
    in_schema,
    note_of,
)
from eventlog.spark.copies.iceberg_files import (
    compact,
    expire,
    is_removing,
    remove_abandoned,
    remove_expired,
)
from eventlog.spark.session.in_tasks import Batches

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction

_CONTENT: Final = "eventlog.content"
_NOTE: Final = "eventlog.note"
_BATCH: Final = "eventlog.batch."
"""The prefix of the property with the number of a query's last batch."""
_DONE: Final = "eventlog.done"
"""The property with the rows of the log that the table contains (spec/verify.md 4.3)."""
_NEWEST: Final = "eventlog.newest_commit_time"
_NULLED: Final = "eventlog.nulled"
"""The property with the number of values of the last batch that are NULL because their types have
no such value.
"""
_DAY: Final = timedelta(days=1)
_PROPERTIES: Final = {
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


@dataclass(frozen=True, slots=True)
class IcebergFiles:
    """The files of a state of a table: the location of its metadata, and the options to read it.
    The other arguments are as in ``DeltaFiles``.
    """

    place: str
    options: dict[str, Any] = field(repr=False)
    count: int
    names: tuple[str, ...]
    note: str | None

    def rows(self, numbers: Collection[int]) -> Batches:
        """Yield the rows of the files with these numbers, counted from 0."""
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(self.place, self.options)
        scan = ArrowScan(table.metadata, table.io, table.schema(), _among(None, ()))
        schema = _arrow_schema(table)
        files = sorted(table.scan().plan_files(), key=lambda one: one.file.file_path)
        for number in numbers:
            for part in scan.to_record_batches([files[number]]):
                yield part.cast(schema)


@dataclass(frozen=True, slots=True)
class IcebergCopy:
    """An Iceberg table: its name, with its namespace, in a catalogue of ``pyiceberg``."""

    catalog: Catalog
    name: str

    def sibling(self, suffix: str) -> IcebergCopy:
        """Return the table that has the same name with a suffix."""
        return IcebergCopy(self.catalog, self.name + suffix)

    def number_done(self, query: str, content: str) -> LastBatch | None:
        """Return the last batch of a query that the table holds; None if it holds no batch of the
        query.

        ``content`` describes the source of the copy. Raises CopyError for a table with other
        content.
        """
        if not self.catalog.table_exists(self.name):
            return None
        properties = self.catalog.load_table(self.name).properties
        if properties.get(_CONTENT) != content:
            raise CopyError(
                f"the table {self.name} contains {properties.get(_CONTENT) or 'no live copy'}, not "
                f"{content}; nothing was written. Give live_copy another table"
            )
        number = properties.get(_BATCH + query)
        return None if number is None else LastBatch(int(number), note_of(properties.get(_NOTE)))

    def load(self, batch: CopyBatch, content: str, loading: CopyLoad) -> None:
        """Replace the whole table by a load, as a batch; create it if it is missing."""
        schema = loading.columns.schema
        table = self._made(content, schema)
        with table.transaction() as transaction:
            _replace(transaction, table, schema, loading.rows)
            counted = {_NULLED: str(loading.nulled.number)}
            transaction.set_properties({**_done(batch), **counted, _NOTE: loading.note.as_text()})

    def merge(
        self,
        batch: CopyBatch,
        columns: Columns,
        stored: Note,
        source: MergeSource,
        newest: datetime | None,
    ) -> None:
        """Give the table the columns of the class, without changing a value, then merge the rows of
        ``source``, as a batch.

        ``held`` is the note that the table has. ``newest`` is the commit time of the batch's last
        change, if the log has this time.
        """
        note = stored.after(columns)
        table, own, new = self.with_new_columns(columns.schema, note)
        if not source.rows.num_rows and not new.names and note == stored:
            return
        if int(table.properties.get(_BATCH + batch.query, -1)) >= batch.number:
            return  # another driver of this query has written it
        with table.transaction() as transaction:
            if new.names:
                with transaction.update_schema() as update:
                    update.union_by_name(new)
            if source.rows.num_rows:
                _put(transaction, table, columns, pa.schema([*own, *new]), source)
                time = {} if newest is None else {_NEWEST: newest.isoformat()}
                counted = {_NULLED: str(source.nulled)}
                transaction.set_properties({**_done(batch), **counted, **time})
            transaction.set_properties({_NOTE: note.as_text()})

    def append(
        self,
        batch: CopyBatch,
        content: str,
        schema: pa.Schema,
        note: Note,
        rows: Batches,
        behind: int | None,
    ) -> None:
        """Append rows, as a batch; create the table if it is missing, and give it the columns of
        ``schema``, without changing a value.

        ``behind`` is the expected number of the query's last batch in the table. If the table has
        another number, another driver has written, and nothing is appended.
        """
        self._made(content, schema)
        table, _, new = self.with_new_columns(schema, note)
        done = table.properties.get(_BATCH + batch.query)
        if (None if done is None else int(done)) != behind:
            return
        with table.transaction() as transaction:
            if new.names:
                with transaction.update_schema() as update:
                    update.union_by_name(new)
            transaction.append(pa.RecordBatchReader.from_batches(schema, rows))
            transaction.set_properties({**_done(batch), _NOTE: note.as_text()})

    def rows(self, column: str | None = None, values: Collection[Any] = ()) -> Batches:
        """Yield the rows whose column has one of the values; without a column, yield all rows."""
        table = self._table()
        schema = _arrow_schema(table)
        for part in table.scan(row_filter=_among(column, values)).to_arrow_batch_reader():
            yield part.cast(schema)

    def done(self) -> tuple[RecordSet | None, object]:
        """Return the rows of the log that the table holds now, and the state of the table; None if
        the table does not name them.
        """
        table = self.catalog.load_table(self.name)
        recorded = table.properties.get(_DONE)
        return claimed_rows(recorded, table.properties.get(_NOTE)) if recorded else None, table

    def rows_of(self, version: Any) -> Batches:
        """Yield the rows of a state, as ``done`` returned it."""
        schema = _arrow_schema(version)
        for part in version.scan().to_arrow_batch_reader():
            yield part.cast(schema)

    def files(self) -> IcebergFiles | None:
        """Return the files of the table as it is now; None if there is no table."""
        if not self.catalog.table_exists(self.name):
            return None
        table = self.catalog.load_table(self.name)
        return IcebergFiles(
            table.metadata_location,
            dict(table.io.properties),
            len(list(table.scan().plan_files())),
            tuple(field.name for field in table.schema().fields),
            table.properties.get(_NOTE),
        )

    def clear(self, keep: timedelta) -> None:
        """Remove what a killed removal left over, then the snapshots and files that no reader of
        the last ``keep`` needs. If there are many small files, compact them.

        Files that a killed writer left are removed after a day: a younger file may belong to a
        commit that is not finished.
        """
        self.compact()
        table = self._table()
        if is_removing(table):
            remove_expired(table)
            table = self._table()
        if expire(table, utc_now() - keep):
            remove_expired(self._table())
        if may_search(table.location()):
            remove_abandoned(self._table(), utc_now() - max(keep, _DAY))

    def compact(self) -> None:
        """Compact small files in one commit, if there are many small files."""
        table = self._table()
        compact(table, _arrow_schema(table))

    def _made(self, content: str, schema: pa.Schema) -> Table:
        """Return the table; create it if it is missing."""
        if not self.catalog.table_exists(self.name):
            self.catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
            self.catalog.create_table(
                self.name, schema, properties={**_PROPERTIES, _CONTENT: content}
            )
        return self._table()

    def with_new_columns(self, schema: pa.Schema, note: Note) -> tuple[Table, pa.Schema, pa.Schema]:
        """Give the table's columns the types of a schema. Return the table, its columns, and the
        columns of the schema that the table does not have yet.
        """
        table = self._table()
        own = _arrow_schema(table)
        wanted = {one.name: one for one in schema}
        target = pa.schema([wanted.get(one.name, one) for one in own])
        if target.types != own.types:
            with table.transaction() as transaction:
                batches = (part.cast(own) for part in table.scan().to_arrow_batch_reader())
                _replace(transaction, table, target, in_schema(batches, target))
                transaction.set_properties({_NOTE: note.as_text()})
            table = self._table()
        return table, target, pa.schema([one for one in schema if one.name not in own.names])

    def _table(self) -> Table:
        """Reload the table. Then the table rejects commits that are based on an older snapshot."""
        table = self.catalog.load_table(self.name)
        if table.properties.get("commit.retry.num-retries") != "0":
            with table.transaction() as transaction:
                transaction.set_properties(_PROPERTIES)
        return table


_CATALOG: Final = Kind(
    lambda value: isinstance(value, str) or hasattr(value, "load_table"),
    "a catalogue of pyiceberg, or the name of one",
)


def iceberg(catalog: Catalog | str, table: str, **properties: str) -> IcebergCopy:
    """Return the Iceberg table with this name and namespace, for ``live_copy``. The first load
    creates the table. The methods of the result are internal.

    ``catalog`` is a catalogue of ``pyiceberg``, or its name: it is then loaded with
    ``properties``. Raises ConfigError without ``pyiceberg``.
    """
    check_arguments("iceberg", catalog=(catalog, _CATALOG), table=(table, NAME))
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise ConfigError(
            f"pyiceberg is not installed ({error}): {install_command('iceberg')}"
        ) from error
    if isinstance(catalog, str):
        catalog = load_catalog(catalog, **properties)
    return IcebergCopy(catalog, table)


def _done(batch: CopyBatch) -> dict[str, str]:
    return {_BATCH + batch.query: str(batch.number), _DONE: batch.done}


def _arrow_schema(table: Table) -> pa.Schema:
    """Return the columns of the table with the types that a copy uses."""
    large = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema(
        [pa.field(one.name, large.get(one.type, one.type)) for one in table.schema().as_arrow()]
    )


def _replace(transaction: Transaction, table: Table, schema: pa.Schema, rows: Batches) -> None:
    """Replace all rows of a table, and its columns where they differ."""
    own = _arrow_schema(table)
    types = {one.name: one.type for one in schema}
    if gone := [one.name for one in own if types.get(one.name) != one.type]:
        with transaction.update_schema(allow_incompatible_changes=True) as update:
            for name in gone:
                update.delete_column(name)
    if set(gone) | (types.keys() - set(own.names)):
        with transaction.update_schema() as update:
            update.union_by_name(schema)
    with _quiet():
        transaction.overwrite(pa.RecordBatchReader.from_batches(schema, rows))


def _among(column: str | None, values: Collection[Any]) -> Any:
    """Return the condition that selects rows whose column has one of the values. Without a column
    the condition selects all rows.
    """
    from pyiceberg import expressions

    of: Any = expressions
    return of.AlwaysTrue() if column is None else of.In(column, set(values))


def _put(
    transaction: Transaction,
    table: Table,
    columns: Columns,
    schema: pa.Schema,
    source: MergeSource,
) -> None:
    """Merge rows into a table, which has the columns of ``schema``."""
    by = plain_column(columns)
    changed = source.rows.to_pylist()
    touched = _among(by, [row[by] for row in changed] if by else ())
    rows: dict[Key, dict[str, Any]] = {
        tuple(row[name] for name in columns.key): row
        for row in table.scan(row_filter=touched).to_arrow().to_pylist()
    }
    for row in changed:
        key = tuple(row[name] for name in columns.key)
        if row[source.is_gone]:
            rows.pop(key, None)
        else:
            values = {
                name: row[name]
                for name, flag in source.sets.items()
                if row[flag] or name in columns.key
            }
            rows[key] = {**rows.get(key, {}), **values}
    with _quiet():
        transaction.delete(touched)
    if rows:
        transaction.append(pa.Table.from_pylist(list(rows.values()), schema=schema))


def _quiet() -> warnings.catch_warnings[None]:
    """Return a context without pyiceberg's warning about a delete that finds no row."""
    return warnings.catch_warnings(action="ignore", category=UserWarning)
