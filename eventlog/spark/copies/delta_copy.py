"""A Delta table as the target of a live copy.

A commit records the number of its batch under the name of the query (a transaction of the Delta
protocol). A query with a new checkpoint has another name, and the table has no commit of that name.

The note of the copy is in the metadata of the table's first column: the commit that replaces the
rows can write this metadata, but not a property of the table.

This module needs ``deltalake`` (the extra ``delta``); Spark's Java needs no package.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.core.arguments import PATH, check_arguments
from eventlog.core.extras import install_command
from eventlog.core.ranges import RecordSet
from eventlog.errors import ConfigError
from eventlog.spark.copies.copy_target import (
    MANY_FILES,
    CopyBatch,
    CopyLoad,
    LastBatch,
    MergeSource,
    may_search,
)
from eventlog.spark.copies.copy_types import (
    Columns,
    CopyError,
    Note,
    claimed_rows,
    in_schema,
    note_of,
)
from eventlog.spark.session.in_tasks import Batches

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

NEWEST: Final = "newest_commit_time"
"""The key in a commit's metadata for the newest commit time of its batch, so that the history of
the table shows the lag of the copy.
"""
DONE: Final = "done"
"""The key in a commit's metadata for the rows of the log that the table contains (spec/verify.md
4.3).
"""
_BATCH: Final = "batch"
_QUERY: Final = "query"
"""The keys in a commit's metadata for its batch. The batch shows whether the commit is newer than a
version of the table.
"""
COMMITS: Final = (10, 1_000, None)
"""The numbers of newest commits to read. The next number is used only if no commit so far names the
rows of the log; None = all commits. Reading a day's commits may take longer than the time between
two commits.
"""
_PROPERTIES: Final = {
    "delta.logRetentionDuration": "interval 1 day",
    "delta.deletedFileRetentionDuration": "interval 1 day",
}
"""The properties of a new table: the table's log goes back one day, so that this log does not grow
forever.
"""
_COMPACT_BYTES: Final = 64 * 2**20
"""The size in bytes below which a file is compacted."""
_NOTE: Final = "eventlog"
"""The key of the note in the metadata of the first column."""


@dataclass(frozen=True, slots=True)
class DeltaFiles:
    """The files of a version of a table. Spark sends this object to the tasks that read the files.

    ``count`` is the number of files, ``names`` are the columns, ``note`` is the text of the note,
    None = the table has no commit yet.
    """

    uri: str
    storage: dict[str, str] | None = field(repr=False)
    version: int
    count: int
    names: tuple[str, ...]
    note: str | None

    def rows(self, numbers: Collection[int]) -> Batches:
        """Yield the rows of the files with these numbers, counted from 0."""
        from deltalake import DeltaTable

        table = DeltaTable(self.uri, version=self.version, storage_options=self.storage)
        dataset = table.to_pyarrow_dataset()
        files = sorted(dataset.get_fragments(), key=lambda one: str(one.path))
        for number in numbers:
            yield from files[number].to_batches(schema=dataset.schema)


@dataclass(frozen=True, slots=True)
class DeltaCopy:
    """A Delta table at a path or URI. ``storage`` has the options of the object store, as
    ``deltalake`` takes them.
    """

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def sibling(self, suffix: str) -> DeltaCopy:
        """Return the table that has the same name with a suffix."""
        return DeltaCopy(self.uri.rstrip("/") + suffix, self.storage)

    def number_done(self, query: str, content: str) -> LastBatch | None:
        """Return the last batch of a query that the table holds; None if it holds no batch of the
        query.

        ``content`` describes the source of the copy. Raises CopyError for a table with other
        content.
        """
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.uri, self._storage):
            return None
        table = self._table()
        if table.metadata().description != content:
            holds = table.metadata().description or "no live copy"
            raise CopyError(
                f"the table {self.uri} contains {holds}, not {content}; nothing was written. Give "
                "live_copy another table"
            )
        number = table.transaction_version(query)
        if number is None:
            return None
        return LastBatch(number, note_of(_note_text(table)))

    def load(self, batch: CopyBatch, content: str, loading: CopyLoad) -> None:
        """Replace the whole table by a load, as a batch; create it if it is missing."""
        schema = _with_note(loading.columns.schema, loading.note)
        self._write(schema, loading.rows, _numbered(batch), "overwrite", content)
        if loading.nulled.number:
            # The metadata of a commit is fixed before its rows are read, so a second commit has
            # the count.
            self._set_note(self._table(), loading.note, loading.nulled.number)

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
        table = self._with_columns(columns.schema, stored.after(columns))
        if not source.rows.num_rows:
            return  # the batch has no changes of this class, also when it is repeated
        from deltalake import write_deltalake

        before, properties = table.version(), _numbered(batch, newest, source.nulled)
        names = [_quoted(column) for column in columns.types.names]
        sets = {_quoted(column): _quoted(flag) for column, flag in source.sets.items()}
        is_gone = f"s.{_quoted(source.is_gone)}"
        (
            table.merge(
                source.rows,
                " AND ".join(f"t.{column} = s.{column}" for column in map(_quoted, columns.key)),
                source_alias="s",
                target_alias="t",
                commit_properties=properties,
            )
            .when_matched_delete(is_gone)
            .when_matched_update(
                {
                    column: f"CASE WHEN s.{sets[column]} THEN s.{column} ELSE t.{column} END"
                    for column in names
                }
            )
            .when_not_matched_insert({column: f"s.{column}" for column in names}, f"NOT {is_gone}")
            .execute()
        )
        if table.version() == before:
            # A merge that changes no row, such as deletes of objects that a filter leaves out,
            # makes no commit: this one names the rows of the log that the copy has.
            nothing = pa.RecordBatchReader.from_batches(columns.schema, [])
            write_deltalake(table, nothing, mode="append", commit_properties=properties)

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
        from deltalake import DeltaTable, write_deltalake

        schema = _with_note(schema, note)
        if not DeltaTable.is_deltatable(self.uri, self._storage):
            self._write(schema, rows, _numbered(batch), "error", content)
            return
        table = self._with_columns(schema, note)
        if table.transaction_version(batch.query) != behind:
            return
        # This commit fails if another driver has committed under the query's name since ``table``
        # was read.
        write_deltalake(
            table,
            pa.RecordBatchReader.from_batches(schema, rows),
            mode="append",
            schema_mode="merge",
            commit_properties=_numbered(batch),
        )

    def rows(self, column: str | None = None, values: Collection[Any] = ()) -> Batches:
        """Yield the rows whose column has one of the values; without a column, yield all rows."""
        table = self._table()
        dataset, schema = table.to_pyarrow_dataset(), pa.schema(table.schema().to_arrow())
        # The table stays open from here on, because no table can be opened while a writer of this
        # library runs.
        if column is None:
            return (part.cast(schema) for part in dataset.to_batches())
        wanted = pa.array(values, schema.field(column).type)
        where = None
        if not pa.types.is_string(wanted.type):  # a merge writes another text type
            where = pc.field(column).isin(wanted)
        return (
            part.filter(pc.is_in(part.column(column), wanted))
            for part in (one.cast(schema) for one in dataset.to_batches(filter=where))
        )

    def done(self) -> tuple[RecordSet | None, object]:
        """Return the rows of the log that the table holds now, and the version; None if the history
        of the table has no commit that names them.
        """
        table = self._table()
        for limit in COMMITS:
            # The history also has commits that are newer than ``table``, without their versions.
            recorded = next(
                (commit[DONE] for commit in table.history(limit) if _names_rows(commit, table)),
                None,
            )
            if recorded is not None:
                break
        done = None if recorded is None else claimed_rows(recorded, _note_text(table))
        return done, table.version()

    def rows_of(self, version: Any) -> Batches:
        """Yield the rows of a version, as ``done`` returned it."""
        from deltalake import DeltaTable

        table = DeltaTable(self.uri, version=version, storage_options=self._storage)
        yield from table.to_pyarrow_dataset().to_batches()

    def files(self) -> DeltaFiles | None:
        """Return the files of the table as it is now; None if there is no table."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.uri, self._storage):
            return None
        table = self._table()
        return DeltaFiles(
            self.uri,
            self._storage,
            table.version(),
            len(table.file_uris()),
            tuple(field.name for field in table.schema().fields),
            _note_text(table),
        )

    def clear(self, keep: timedelta) -> None:
        """Remove the files that no reader of the last ``keep`` needs; ``keep`` is rounded up to
        whole hours. If there are many small files, compact them.

        Files that a killed writer left are removed after a day: a younger file may belong to a
        commit that is not finished.
        """
        hours = ceil(keep / timedelta(hours=1))
        self.compact()
        self._table().vacuum(hours, dry_run=False, enforce_retention_duration=False)
        if may_search(self.uri):
            self._table().vacuum(
                max(hours, 24), dry_run=False, enforce_retention_duration=False, full=True
            )

    def compact(self) -> None:
        """Compact small files in one commit, if there are many small files."""
        table = self._table()
        if len(table.file_uris()) >= MANY_FILES:
            table.optimize.compact(target_size=_COMPACT_BYTES)

    @property
    def _storage(self) -> dict[str, str] | None:
        return dict(self.storage) or None

    def _table(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self.uri, storage_options=self._storage)

    def _with_columns(self, schema: pa.Schema, note: Note) -> DeltaTable:
        """Return the table, after giving it the columns of a class and their types.

        If the driver is killed in between, the next attempt completes the table.
        """
        from deltalake import Schema

        table = self._table()
        wanted = {one.name: one for one in Schema.from_arrow(schema).fields}
        there = {one.name: one for one in table.schema().fields}
        if any(one.type != there[name].type for name, one in wanted.items() if name in there):
            # The files are rewritten, since delta-rs cannot change the type of a column in place.
            own = pa.schema(table.schema().to_arrow())
            fields = [schema.field(one.name) if one.name in wanted else one for one in own]
            target = _with_note(pa.schema(fields), note)
            batches = table.to_pyarrow_dataset().to_batches()
            self._write(target, in_schema(batches, target), None, "overwrite", None)
            table = self._table()
        if new := [one for name, one in wanted.items() if name not in there]:
            table.alter.add_columns(new)
            table = self._table()
        if _note_text(table) != note.as_text():
            self._set_note(table, note)
            table = self._table()
        return table

    def _set_note(self, table: DeltaTable, note: Note, nulled: int = 0) -> None:
        """Give a table a note in a separate commit, which also has the count of nulled values."""
        from deltalake import CommitProperties

        table.alter.set_column_metadata(
            table.schema().fields[0].name,
            {_NOTE: note.as_text()},
            commit_properties=CommitProperties(custom_metadata=_counted(nulled)),
        )

    def _write(
        self,
        schema: pa.Schema,
        rows: Batches,
        properties: CommitProperties | None,
        mode: Literal["error", "overwrite"],
        description: str | None,
    ) -> None:
        """Write the whole table, in place of the rows that it has. An error raised by ``rows`` is
        raised unchanged.
        """
        from deltalake import write_deltalake

        failed: list[Exception] = []

        def read() -> Batches:
            try:
                yield from rows
            except Exception as error:
                failed.append(error)
                raise

        try:
            write_deltalake(
                self.uri,
                pa.RecordBatchReader.from_batches(schema, read()),
                mode=mode,
                schema_mode="overwrite" if mode == "overwrite" else None,
                description=description,
                configuration=_PROPERTIES,
                storage_options=self._storage,
                commit_properties=properties,
            )
        except Exception:
            if failed:
                raise failed[0] from None
            raise


def delta(uri: str | Path, **storage: str) -> DeltaCopy:
    """Return the Delta table at a path or URI, for ``live_copy``. The first load creates the table.
    The methods of the result are internal.

    ``storage`` has the options of the object store, as ``deltalake`` takes them. Raises ConfigError
    without ``deltalake``.
    """
    check_arguments("delta", uri=(uri, PATH))
    try:
        import deltalake  # noqa: F401 - checked before a stream begins
    except ImportError as error:
        raise ConfigError(
            f"deltalake is not installed ({error}): {install_command('delta')}"
        ) from error
    return DeltaCopy(str(uri), storage)


def _names_rows(commit: Mapping[str, Any], table: DeltaTable) -> bool:
    """Return True if a commit names the rows of the log, and its batch is in this version of the
    table.
    """
    if not commit.get(DONE) or _QUERY not in commit:
        return False
    last = table.transaction_version(commit[_QUERY])
    return last is not None and int(commit[_BATCH]) <= last


def _numbered(
    batch: CopyBatch, newest: datetime | None = None, nulled: int = 0
) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    recorded = {} if newest is None else {NEWEST: newest.isoformat()}
    if batch.done:
        recorded[DONE] = batch.done
    return CommitProperties(
        custom_metadata={
            _BATCH: str(batch.number),
            _QUERY: batch.query,
            **recorded,
            **_counted(nulled),
        },
        app_transactions=[Transaction(batch.query, batch.number)],
    )


def _counted(nulled: int) -> dict[str, str]:
    """Return the metadata of a commit with the number of nulled values."""
    return {"nulled": str(nulled)} if nulled else {}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _with_note(schema: pa.Schema, note: Note) -> pa.Schema:
    return schema.set(0, schema.field(0).with_metadata({_NOTE: note.as_text()}))


def _note_text(table: DeltaTable) -> str | None:
    text = table.schema().fields[0].metadata.get(_NOTE)
    return None if text is None else str(text)
