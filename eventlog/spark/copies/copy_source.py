"""The class that a live copy follows, in its database: its columns, its rows as they are now, and
the changes of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from eventlog.changes.keys import key_reader
from eventlog.config.load import Config, connection_url
from eventlog.config.publishing import value_options
from eventlog.core import table_key
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.ranges import RecordSet
from eventlog.core.values.moments import aware_utc
from eventlog.errors import ConfigError, DatabaseError
from eventlog.model import EventType, Operation, Row
from eventlog.publisher.context import Context, Counters
from eventlog.publisher.declared import open_unlocked
from eventlog.spark.copies.copy_target import (
    GONE,
    CopyLoad,
    Key,
    KeyedChange,
    LatestChange,
    Nulled,
    Values,
)
from eventlog.spark.copies.copy_types import Columns, CopyError, Note, columns_of_class
from eventlog.spark.session.arrow_rows import structs_of
from eventlog.spark.session.in_tasks import Batches
from eventlog.sql.connect import connect, dialect_of
from eventlog.sql.port import OpenDatabase, Purpose, Selection, as_database_errors
from eventlog.sql.readers import consumers

_READ: Final = ["position", "record_ids", "operation", "key", "after", "changed", "commit_time"]
"""The columns of the stream that a merge reads; rows are sorted by the first column."""
_READ_AT_ONCE: Final = 5_000
"""The number of objects whose rows one statement reads."""


@dataclass(slots=True)
class ClassSource:
    """The class that is copied, in its database.

    ``columns`` are the columns as they were last read.
    """

    config: Config
    class_name: str
    columns: Columns
    has_warned: bool = False
    """True if a warning about values that are NULL in the copy was logged."""
    _catalog: Catalog | None = None
    _fingerprint: str | None = None

    @classmethod
    def of(cls, config: Config, class_name: str) -> ClassSource:
        """Return the source for the class of this name. Raises ConfigError, DatabaseError."""
        with open_unlocked(config, Counters(), Purpose.STREAM) as context:
            object_class = _class_named(context, class_name)
            columns = columns_of_class(object_class, value_options(config))
            return cls(config, class_name, columns, _catalog=context.catalog)

    @property
    def content(self) -> str:
        """The description of the table's content."""
        return f"live copy of {self.class_name}, by eventlog"

    def refresh(self) -> bool:
        """Read the columns again if tables have changed since they were last read. Return True if
        the columns or the key have changed.

        Raises ConfigError, DatabaseError.
        """
        with self._database() as db:
            # Taken before the classes are read, so that a change in between is noticed next time.
            known = db.fingerprint(self._catalog) if self._catalog else None
        if known is not None and known == self._fingerprint:
            return False
        before = self.columns
        now = self.of(self.config, self.class_name)
        self.columns, self._catalog, self._fingerprint = now.columns, now._catalog, known
        return self.columns.declared != before.declared or self.columns.key != before.key

    def moment(self) -> datetime:
        """Return the present time by the database's clock. Raises DatabaseError."""
        with self._database() as db:
            return aware_utc(db.utc_now())

    @contextmanager
    def _database(self) -> Iterator[OpenDatabase]:
        """Open a session of the database. Raises DatabaseError, also for errors of the block."""
        url = connection_url(self.config.database)
        with as_database_errors(engine := connect(url)), engine.connect() as connection:
            yield dialect_of(url).open(connection)

    @contextmanager
    def _reading(self) -> Iterator[tuple[Context, ObjectClass]]:
        """Yield a context that reads rows of the class as they are now, and yield the class. What
        the block has read is durable afterwards: a crash of the server must not undo changes that
        the copy has.
        """
        with open_unlocked(self.config, Counters(), Purpose.STREAM) as context:
            context.log.db.begin_publishing()
            context.log.commit()  # the level of isolation counts from the next transaction on
            yield context, _class_named(context, self.class_name)
            context.log.db.make_durable()
            context.log.commit()

    # the rows of the class as they are now

    def loading(self) -> CopyLoad:
        """Begin a load of the class as it is now (spec/spark-changes.md 6)."""
        with open_unlocked(self.config, Counters(), Purpose.STREAM) as context:
            object_class = _class_named(context, self.class_name)
            self.columns = columns_of_class(object_class, value_options(self.config))
            # The rows of the class that are read from now on include the effect of these log rows.
            loaded = consumers.first_set(context.log, consumers.LATEST)
        note = Note(self.columns.key, dict(self.columns.declared), loaded)
        nulled = Nulled()
        return CopyLoad(note, self.columns, self.objects(nulled), nulled)

    def objects(self, nulled: Nulled | None = None) -> Batches:
        """Yield the rows of the class as they are now, in the order of their keys, one statement
        per chunk. ``nulled`` counts values that the types of the copy do not have.

        Raises DatabaseError, also if the columns change meanwhile; BadValue.
        """
        with self._reading() as (context, object_class):
            walk = context.log.start_walk(
                context.catalog.schema,
                object_class,
                Selection(object_class.name, EventType.INSERT_ROW_QUERY_BACK),
            )
            position = None
            while keys := context.log.keys_after(walk, position, _READ_AT_ONCE):
                rows = list(self._rows_now(context, object_class, keys).values())
                context.log.commit()
                yield pa.RecordBatch.from_struct_array(
                    structs_of(rows, self.columns.types, self.class_name, nulled)
                )
                position = keys[-1]
        if self.refresh():
            raise DatabaseError(
                f"the columns of {self.class_name} changed during the load, so nothing was "
                "written. Restart the query to load the class again"
            )

    def _rows_now(
        self, context: Context, object_class: ObjectClass, keys: Sequence[str]
    ) -> dict[str, Row]:
        """Return the current rows of objects, by key; deleted objects are left out."""
        readers, read_key = self.columns.readers, key_reader(object_class)
        names = readers.keys() - set(self.columns.key)
        attributes = [
            one for one in object_class.attributes if one.name in names and not one.multi_valued
        ]
        current = context.existing(object_class, keys, attributes)
        rows: dict[str, Row] = {}
        for key in keys:
            if key in current:
                texts = {one.name: current[key][one.name][0] for one in attributes}
                rows[key] = {**dict(read_key(key)), **self._typed(texts)}
        return rows

    # a batch

    def changes(self, batch: pa.Table, loaded: RecordSet) -> Iterator[KeyedChange]:
        """Yield the changes of a batch in queue order.

        ``loaded`` has the rows of the log whose effect the copy has already; these log rows are
        left out. Raises CopyError for an object with other key columns.
        """
        rows = batch.select(_READ).sort_by(_READ[0]).to_pylist()
        new = [[one not in loaded for one in row["record_ids"]] for row in rows]
        # Log rows that are loaded already may have texts of another type. So if a change has both
        # loaded and new rows, its object is read as it is now.
        now = self._read_now(
            [row for row, is_new in zip(rows, new, strict=True) if any(is_new) and not all(is_new)]
        )
        for row, is_new in zip(rows, new, strict=True):
            if not any(is_new):
                continue
            texts = dict(row["key"])
            if texts.keys() != set(self.columns.key):
                raise CopyError(
                    f"a change of {self.class_name} has the key {', '.join(texts)}, and the class "
                    f"has {', '.join(self.columns.key)}. Give the query a new checkpoint, which "
                    "loads the class again"
                )
            key = tuple(self.columns.readers[name](texts[name]) for name in self.columns.key)
            if not all(is_new):
                row_now = now.get(key)
                change = (
                    GONE
                    if row_now is None
                    else LatestChange(is_gone=False, is_whole=True, values=row_now)
                )
            elif row["operation"] == Operation.DELETE:
                change = GONE
            else:
                image = {} if row["after"] is None else dict(row["after"])
                # Updates have `changed`; so do inserts of single columns.
                is_whole = row["changed"] is None
                change = LatestChange(is_gone=False, is_whole=is_whole, values=self._typed(image))
            operation = row["operation"]
            if change.is_gone:
                operation = Operation.DELETE
            elif operation == Operation.DELETE:  # the object exists again
                operation = Operation.ADD
            yield KeyedChange(key, change, str(operation), row["position"], row["commit_time"])

    def _read_now(self, rows: Sequence[Values]) -> dict[Key, Row]:
        """Return the current rows of the objects of changes, by key."""
        if not rows:
            return {}
        with self._reading() as (context, object_class):
            keys = list(dict.fromkeys(_canonical(object_class, dict(row["key"])) for row in rows))
            found: dict[str, Row] = {}
            for place in range(0, len(keys), _READ_AT_ONCE):
                chunk = keys[place : place + _READ_AT_ONCE]
                found |= self._rows_now(context, object_class, chunk)
                context.log.commit()
        return {tuple(row[name] for name in self.columns.key): row for row in found.values()}

    def _typed(self, texts: Mapping[str, str | None]) -> dict[str, Any]:
        readers = self.columns.readers
        return {
            name: None if text is None else readers[name](text)
            for name, text in texts.items()
            if name in readers
        }


def _canonical(object_class: ObjectClass, texts: Mapping[str, str]) -> str:
    parts = [table_key.Part(name, text, 0, 0) for name, text in texts.items()]
    return object_class.canonical_key(table_key.parts_text(parts))


def _class_named(context: Context, name: str) -> ObjectClass:
    """Return the class of this name. Raises ConfigError if there is no such class, or if the class
    is not a table.
    """
    classes = {one.name: one for one in context.catalog.classes}
    if name not in classes:
        raise ConfigError(
            f"class {name!r} is unknown; the log has {', '.join(sorted(classes)) or 'none'}"
        )
    if classes[name].is_view:
        raise ConfigError(
            f"{name} is a view, which may have several rows for one object. Give live_copy a table"
        )
    return classes[name]
