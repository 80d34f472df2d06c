"""What databases have in common that are asked step by step.

The objects of a class, the rows of each of their child tables and the keys behind a position are read by a statement
each, and the log in parts by rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection

from eventlog.core.catalog import Attribute, ChildTable, ObjectClass
from eventlog.core.values import ColumnType
from eventlog.sql.bulk import Part, arrow_batch
from eventlog.sql.dialect import CurrentRow, Dialect, child_of
from eventlog.sql.log_table import LogTable
from eventlog.sql.windows import Batch, Walk

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS: Final = 20_000


class StepwiseDialect(Dialect):
    """A database without one statement that reads objects with their children, or keys while it writes rows."""

    # The current rows of many keys of one class

    def query_back(
        self,
        conn: Connection,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> dict[str, CurrentRow]:
        keys_with_values = list(self.key_values(cls, keys))
        single = tuple(attribute for attribute in attributes if child_of(cls, attribute) is None)
        rows: dict[str, CurrentRow] = {}
        for n, texts in self.read_objects(conn, schema, cls, single, [values for _, values in keys_with_values]):
            row = rows.setdefault(keys_with_values[n][0], {attribute.name: [] for attribute in attributes})
            for attribute, text in zip(single, texts, strict=True):
                row[attribute.name].append(text)
        present = [(key, values) for key, values in keys_with_values if key in rows]
        for attribute in attributes:
            child = child_of(cls, attribute)
            if child is not None and present:
                for n, text in self.read_children(conn, schema, cls, child, [values for _, values in present]):
                    rows[present[n][0]][attribute.name].append(text)
        return rows

    @abstractmethod
    def read_objects(
        self,
        conn: Connection,
        schema: str | None,
        cls: ObjectClass,
        attributes: tuple[Attribute, ...],
        keys: Sequence[tuple[Any, ...]],
    ) -> Iterator[tuple[int, Sequence[str | None]]]:
        """The rows of the class with these keys: the place of the row's key among them, and the attributes' values."""

    @abstractmethod
    def read_children(
        self, conn: Connection, schema: str | None, cls: ObjectClass, child: ChildTable, keys: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, str | None]]:
        """The values of a child table that belong to objects with these keys: the key's place, and the value."""

    # Objects written into the log once more

    def write_batch(self, conn: Connection, walk: Walk, position: str | None, limit: int) -> Batch:
        keys = self.keys_behind(conn, walk, position, limit)
        self.write_keys(conn, walk.log, walk.selection, keys)
        return Batch(rows=len(keys), missing=0, position=keys[-1] if keys else position, is_last=len(keys) < limit)

    @abstractmethod
    def keys_behind(self, conn: Connection, walk: Walk, position: str | None, limit: int) -> list[str]:
        """The canonical keys of the next ``limit`` objects behind ``position``, in the order of the walk."""

    # The log in parts

    def read_part(
        self, url: URL, log: LogTable, snapshot: str | None, status: str | None, part: Part, fields: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        # connection loads the dialects.
        from eventlog.sql.connection import as_database_errors, connect

        selected = (self.part_field(field, self.quote(log.column(field)), log.type_of(field)) for field in fields)
        record_id = self.quote(log.column("record_id"))
        statement = (
            f"SELECT {', '.join(selected)} FROM {self.qualified(log.schema, log.name)}"  # noqa: S608 - quoted names
            f" WHERE {self.has_status(log, status)} AND {record_id} BETWEEN {part.first:d} AND {part.last:d}"
            f" ORDER BY {record_id}"
        )
        with connect(url).connect() as conn, as_database_errors(conn):
            if snapshot is not None:
                self.join_snapshot(conn, snapshot)
            for rows in self.fetch_chunks(conn, self.bindable(statement), {}, _BATCH_ROWS):
                if rows:
                    yield arrow_batch(fields, rows)

    def part_field(self, field: str, column: str, column_type: ColumnType | None) -> str:
        """SQL of a field of ``LogRow`` as ``arrow_batch`` takes it."""
        return f"RTRIM({column}, ' ')" if field == "status" else self.log_field(field, column, column_type)
