"""A Delta table that follows a class: ``live_copy`` merges each batch of the stream of changes into
it by one commit.

The first batch is the first load: the class as it is now. It contains all changes committed before
the load. Later changes come in the batches after it, some of them a second time, so that the copy
is right as soon as it has caught up.

A commit carries the number of its batch under the name of the query (a transaction of the Delta
protocol). A batch comes again if the query was killed before Spark recorded it as done. It then
finds its number and changes nothing. A query with a new checkpoint has another name, under which
the table has no commit: it loads the class anew.

This module needs ``deltalake`` (the extra ``delta``); the Java of Spark needs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.functions import col

from eventlog.changes.keys import key_reader
from eventlog.config.load import Config, load
from eventlog.config.publishing import value_options
from eventlog.core.catalog import ObjectClass, row_of
from eventlog.core.typed import value_reader
from eventlog.core.values import ValueOptions
from eventlog.errors import ConfigError
from eventlog.model import EventType, Operation, Row
from eventlog.publisher.context import Context, Counters
from eventlog.publisher.open_context import open_unlocked
from eventlog.spark.change_frame import structs_of
from eventlog.spark.change_rows import spark_type
from eventlog.spark.changes import FORMAT
from eventlog.spark.session import arrow_schema
from eventlog.spark.sources import register
from eventlog.sql.windows import Selection

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql.streaming.query import StreamingQuery

Key = tuple[Any, ...]
"""The values of an object's key, in the order of its columns."""

# --- what a batch says of an object in the end ----------------------------------------------------


class LastWord(NamedTuple):
    """The result of a batch for one object.

    ``is_gone``: the object is deleted. ``is_whole``: a column that ``values`` does not name is
    NULL; otherwise such a column stays as it is.
    """

    is_gone: bool
    is_whole: bool
    values: Mapping[str, Any]


_GONE: Final = LastWord(is_gone=True, is_whole=True, values={})


KeyedChange = tuple[Key, LastWord]
"""The key of an object, and what one change says of it."""


def last_words(changes: Iterable[KeyedChange]) -> dict[Key, LastWord]:
    """Return by key the result that changes in queue order have for each object.

    An update of an object that the batch has deleted makes it anew. Rows of one INSERT that lie far
    apart are several adds, of one batch or of several (spec/event-log.md 6): each sets the columns
    that it has, as an update does.
    """
    words: dict[Key, LastWord] = {}
    for key, word in changes:
        before = words.get(key)
        if before is not None and not word.is_whole:
            word = LastWord(
                is_gone=False, is_whole=before.is_whole, values={**before.values, **word.values}
            )
        words[key] = word
    return words


# --- a Delta table --------------------------------------------------------------------------------

NEWEST: Final = "newest_commit_time"
"""The key in a commit's metadata for the newest commit time of its batch, so that the table's
history shows how far it lags behind.
"""
_IS_GONE: Final = "is gone"
_SETS: Final = "sets "
"""The prefix of the columns in a merge's source that say whether a column is set."""


class CopyRefused(ConfigError):
    """A table that a live copy cannot be written to."""

    code = "copy_refused"


@dataclass(frozen=True, slots=True)
class DeltaCopy:
    """A table of Delta Lake at a path or URI. ``storage`` has the options of the object store, as
    ``deltalake`` takes them.
    """

    uri: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def number_done(self, name: str, content: str) -> int | None:
        """Return the last batch of the query ``name`` that the table holds; None if it holds none.

        ``content`` describes the source of the copy. Raises CopyRefused for a table with other
        content.
        """
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.uri, self._storage):
            return None
        table = self._table()
        if table.metadata().description != content:
            holds = table.metadata().description or "no live copy"
            raise CopyRefused(
                f"the table {self.uri} holds {holds}, and is to hold {content}; nothing was written"
            )
        return table.transaction_version(name)

    def load(
        self,
        name: str,
        number: int,
        content: str,
        schema: pa.Schema,
        rows: Iterable[pa.RecordBatch],
    ) -> None:
        """Replace the whole table by rows, as the batch ``number`` of the query ``name``; create it
        if it is missing.
        """
        from deltalake import write_deltalake

        write_deltalake(
            self.uri,
            pa.RecordBatchReader.from_batches(schema, rows),
            mode="overwrite",
            schema_mode="overwrite",
            description=content,
            storage_options=self._storage,
            commit_properties=_numbered(name, number),
        )

    def merge(
        self,
        name: str,
        number: int,
        columns: Columns,
        words: Mapping[Key, LastWord],
        newest: datetime | None,
    ) -> None:
        """Merge the last words on objects, as the batch ``number`` of the query ``name``.

        ``newest`` is the commit time of the batch's last change, if the log has it.
        """
        if not words:
            return  # the batch has no changes of this class, however often it comes
        table = self._with_columns(columns.schema)
        names = [_quoted(column) for column in columns.types.names]
        sets = {_quoted(column): _quoted(_SETS + column) for column in columns.types.names}
        (
            table.merge(
                _merge_source(columns, words),
                " AND ".join(f"t.{column} = s.{column}" for column in map(_quoted, columns.key)),
                source_alias="s",
                target_alias="t",
                commit_properties=_numbered(name, number, newest),
            )
            .when_matched_delete(f"s.{_quoted(_IS_GONE)}")
            .when_matched_update(
                {
                    column: f"CASE WHEN s.{sets[column]} THEN s.{column} ELSE t.{column} END"
                    for column in names
                }
            )
            .when_not_matched_insert(
                {column: f"s.{column}" for column in names}, f"NOT s.{_quoted(_IS_GONE)}"
            )
            .execute()
        )

    @property
    def _storage(self) -> dict[str, str] | None:
        return dict(self.storage) or None

    def _table(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self.uri, storage_options=self._storage)

    def _with_columns(self, schema: pa.Schema) -> DeltaTable:
        """Return the table, after adding the columns of the class that it lacks."""
        from deltalake import Schema

        table = self._table()
        there = {one.name for one in table.schema().fields}
        new = [one for one in Schema.from_arrow(schema).fields if one.name not in there]
        if new:
            table.alter.add_columns(new)
            table = self._table()
        return table


def delta(uri: str | Path, **storage: str) -> DeltaCopy:
    """Return the Delta table at a path or URI, for ``live_copy``. The first load creates it.

    ``storage`` has the options of the object store, as ``deltalake`` takes them. Raises ConfigError
    without ``deltalake``.
    """
    try:
        import deltalake  # noqa: F401 - asked for before a stream begins
    except ImportError as error:
        raise ConfigError(
            f"deltalake is not installed ({error}): install eventlog-publisher[delta]"
        ) from error
    return DeltaCopy(str(uri), storage)


def _numbered(name: str, number: int, newest: datetime | None = None) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    told = {"batch": str(number)} | ({} if newest is None else {NEWEST: newest.isoformat()})
    return CommitProperties(custom_metadata=told, app_transactions=[Transaction(name, number)])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _merge_source(columns: Columns, words: Mapping[Key, LastWord]) -> pa.Table:
    """Return the rows of a merge: the columns, for each column whether it is set, and whether the
    object is deleted.
    """
    rows = [
        {**word.values, **dict(zip(columns.key, key, strict=True))} for key, word in words.items()
    ]
    table = pa.Table.from_struct_array(structs_of(rows, columns.types, "the copy"))
    for name in columns.types.names:
        is_set = [word.is_whole or name in word.values for word in words.values()]
        table = table.append_column(_SETS + name, pa.array(is_set, pa.bool_()))
    return table.append_column(
        _IS_GONE, pa.array([word.is_gone for word in words.values()], pa.bool_())
    )


# --- the class ------------------------------------------------------------------------------------

_READ: Final = ["position", "operation", "key", "after", "changed", "commit_time"]
"""The columns of the stream that a merge reads; the first one gives the order."""
_LOADED_AT_ONCE: Final = 5_000
"""The number of objects that the first load reads at a time."""

ReadText = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a class's own table, and the readers of their texts."""

    types: t.StructType
    readers: Mapping[str, ReadText]
    key: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the copy."""
        return arrow_schema(self.types)


def columns_of_class(object_class: ObjectClass, values: ValueOptions) -> Columns:
    """Return the columns of a class.

    ``values`` are the options by which the texts of the log were made.
    """
    columns = row_of(object_class).columns
    return Columns(
        t.StructType([t.StructField(one.name, spark_type(one.type)) for one in columns]),
        {
            one.name: value_reader(one.type, values.time_zone, values.char_padding)
            for one in columns
        },
        tuple(column.name for column in object_class.key),
    )


@dataclass(slots=True)
class ClassSource:
    """The class that is copied, in its database.

    ``ignored`` has names in images that are no columns of the table.
    """

    config: Config
    class_name: str
    columns: Columns
    ignored: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, config: Config, class_name: str) -> ClassSource:
        """Return the class of this name. Raises ConfigError, DatabaseError."""
        with open_unlocked(config, Counters()) as context:
            object_class = _class_named(context, class_name)
            return cls(config, class_name, columns_of_class(object_class, value_options(config)))

    @property
    def content(self) -> str:
        """The description of the table's content."""
        return f"live copy of {self.class_name}, by eventlog"

    def objects(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the class as they are now, in the order of their keys, each chunk by
        its own statement. Raises DatabaseError, BadValue.
        """
        with open_unlocked(self.config, Counters()) as context:
            context.dialect.begin_publishing(context.connection)
            object_class = _class_named(context, self.class_name)
            walk = context.dialect.start_walk(
                context.connection,
                context.log,
                context.catalog.schema,
                object_class,
                Selection(object_class.name, EventType.INSERT_ROW_QUERY_BACK),
            )
            position = None
            while keys := context.dialect.keys_behind(
                context.connection, walk, position, _LOADED_AT_ONCE
            ):
                rows = list(self._rows_now(context, object_class, keys))
                context.connection.commit()
                yield pa.RecordBatch.from_struct_array(
                    structs_of(rows, self.columns.types, self.class_name)
                )
                position = keys[-1]
            # A crash of the server must not take back what the copy has.
            context.dialect.make_durable(context.connection)
            context.connection.commit()

    def _rows_now(
        self, context: Context, object_class: ObjectClass, keys: Sequence[str]
    ) -> Iterator[Row]:
        """Yield the rows that objects have now; deleted objects are left out."""
        readers, read_key = self.columns.readers, key_reader(object_class)
        names = readers.keys() - set(self.columns.key)
        attributes = [
            one for one in object_class.attributes if one.name in names and not one.multi_valued
        ]
        current = context.query_back(object_class, keys, attributes)
        for key in keys:
            if key in current:
                texts = {one.name: current[key][one.name][0] for one in attributes}
                yield {**dict(read_key(key)), **self._typed(texts)}

    def changes(self, batch: pa.Table) -> Iterator[KeyedChange]:
        """Yield the changes of a batch in queue order. New columns are looked up first."""
        rows = batch.select(_READ).sort_by(_READ[0]).to_pylist()
        images = [{} if row["after"] is None else dict(row["after"]) for row in rows]
        self._look_up({name for image in images for name in image})
        for row, image in zip(rows, images, strict=True):
            texts = dict(row["key"])
            key = tuple(self.columns.readers[name](texts[name]) for name in self.columns.key)
            if row["operation"] == Operation.DELETE:
                yield key, _GONE
            else:
                # Who changes has `changed`, and so has an add of single columns.
                is_whole = row["changed"] is None
                yield key, LastWord(is_gone=False, is_whole=is_whole, values=self._typed(image))

    def _look_up(self, names: set[str]) -> None:
        """Read the class anew if it lacks some of the names."""
        if names <= self.columns.readers.keys() | self.ignored:
            return
        self.columns = self.of(self.config, self.class_name).columns
        self.ignored |= names - self.columns.readers.keys()

    def _typed(self, texts: Mapping[str, str | None]) -> dict[str, Any]:
        readers = self.columns.readers
        return {
            name: None if text is None else readers[name](text)
            for name, text in texts.items()
            if name in readers
        }


def _class_named(context: Context, name: str) -> ObjectClass:
    """Return the class of this name. Raises ConfigError if there is none, or if it is no table."""
    classes = {one.name: one for one in context.catalog.classes}
    if name not in classes:
        raise ConfigError(
            f"class {name!r} is unknown: the log has {', '.join(sorted(classes)) or 'none'}"
        )
    if classes[name].is_view:
        raise ConfigError(
            f"{name} is a view, which may have several rows of an object: "
            "a live copy follows a table"
        )
    return classes[name]


# --- the stream -----------------------------------------------------------------------------------

_BATCH_ROWS: Final = "100000"
"""The maximum number of rows in a batch by default: the driver holds them."""


def put_batch(
    source: ClassSource, copy: DeltaCopy, name: str, number: int, batch: Callable[[], pa.Table]
) -> None:
    """Bring the copy to the state after a batch of the query ``name``: load it, merge the batch, or
    leave it unchanged.

    ``batch`` gives the rows of the class. Raises CopyRefused, EventlogError.
    """
    done = copy.number_done(name, source.content)
    if done is None:
        copy.load(name, number, source.content, source.columns.schema, source.objects())
    elif number > done:
        rows = batch()
        words = last_words(source.changes(rows))
        copy.merge(name, number, source.columns, words, pc.max(rows["commit_time"]).as_py())


def live_copy(
    spark: SparkSession,
    config: str | Path,
    class_name: str,
    copy: DeltaCopy,
    *,
    checkpoint: str | Path,
    trigger: Mapping[str, Any] | None = None,
    **options: str,
) -> StreamingQuery:
    """Start a query that keeps ``copy`` equal to the table of a class, and return it.

    ``config`` is the file, as in the option of ``format("eventlog-changes")``. ``options`` are
    further ones, such as ``consumer`` and ``maxRowsPerBatch``. ``checkpoint`` is the directory in
    which Spark records the progress of the query. ``trigger`` is as in
    ``DataStreamWriter.trigger``, by default ``{"processingTime": "1 second"}``. The query fails
    with CopyRefused if the table is not a live copy of this class. Raises ConfigError,
    DatabaseError.
    """
    if refused := {"class", "config", "starting"} & options.keys():
        raise ConfigError(
            f"option {refused.pop()}: a live copy gives it, and begins with the class as it is"
        )
    source = ClassSource.of(load(Path(config), os.environ), class_name)
    register(spark)
    given = {"maxRowsPerBatch": _BATCH_ROWS, **options, "starting": "latest", "config": str(config)}
    changes = (
        spark.readStream.format(FORMAT).options(**given).load().where(col("class") == class_name)
    )
    started: Future[str] = Future()

    def put(batch: DataFrame, number: int) -> None:
        put_batch(source, copy, f"eventlog {started.result()}", number, batch.toArrow)

    writer = changes.writeStream.foreachBatch(put).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**(trigger or {"processingTime": "1 second"})).start()
    started.set_result(str(query.id))
    return query
