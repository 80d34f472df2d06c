"""The common part of databases that are read step by step, and whose triggers call no functions.

One statement reads the objects of a class, another statement the rows of each child table, and
another statement the keys after a given key. The log is read in parts, as rows.
"""

from __future__ import annotations

from abc import abstractmethod
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection

from eventlog.core.catalog import Attribute, ChildTable, Column, ObjectClass
from eventlog.errors import BadValue
from eventlog.sql.connect.connection import connect
from eventlog.sql.doctor import LogTrigger
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.database import Answer, AnswerFunction
from eventlog.sql.port.dialect import CurrentRow, Dialect, child_of
from eventlog.sql.port.driver_errors import as_database_errors
from eventlog.sql.port.log_operations import ResyncBatch, Walk
from eventlog.sql.port.log_parts import LogPart, arrow_batch
from eventlog.sql.port.open_database import OpenDatabase
from eventlog.sql.port.open_log import OpenLog
from eventlog.sql.port.sql_files import PlainRow, qualified
from eventlog.sql.triggers.marked import MarkedTriggers
from eventlog.sql.triggers.planner import StoredTrigger

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS: Final = 20_000
"""The number of rows in an Arrow batch."""


class StepwiseDialect(Dialect):
    """A database that reads objects and their child tables in several statements, and reads keys
    before it writes rows for them.
    """

    # The log in parts

    def read_part(
        self,
        url: URL,
        log: LogTable,
        snapshot: str | None,
        status: str | None,
        part: LogPart,
        fields: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        bounds = f"{part.first:d} AND {part.last:d}"
        statement = self.bindable(self.part_statement(log, status, fields, bounds))
        with as_database_errors(engine := connect(url)), engine.connect() as conn:
            db = self.open(conn)
            if snapshot is not None:
                db.join_snapshot(snapshot)
            for rows in part.only_own(db.fetch_chunks(statement, {}, BATCH_ROWS)):
                if rows:
                    yield arrow_batch(fields, rows)

    # The keys after the key reached

    def keys_statement(self, walk: Walk, *, continues: bool) -> str:
        """Return the statement that reads ``:limit`` keys in the order of a walk. The statement
        begins with the first key or, if it ``continues``, after the key reached.
        """
        refs = self.walk_key(walk)
        distinct, order = ("DISTINCT ", "1") if walk.cls.is_view else ("", ", ".join(refs))
        return (
            f"SELECT {distinct}{self.walked(walk, refs)} FROM {self.walk_rows(walk)}"  # noqa: S608 - quoted names
            f" WHERE {self.walk_condition(walk, continues=continues)}"
            f" ORDER BY {order} LIMIT {self.bind('limit')}"
        )

    def walked(self, walk: Walk, refs: Sequence[str]) -> str:
        """Return SQL of the canonical key of a row, which the database sorts by bytes. ``refs`` are
        SQL of the columns of the key.
        """
        raise NotImplementedError

    def key_of(self, walk: Walk, row: PlainRow) -> str:
        """Return the canonical key in a row of ``keys_statement``."""
        key: str = row[0]
        return key


class KeyedDialect(StepwiseDialect):
    """A database that reads the key of each row together with its values. The key shows to which of
    the requested keys the row belongs.
    """

    key_chunks: Callable[[Sequence[tuple[Any, ...]]], Iterable[Sequence[tuple[Any, ...]]]]
    """The function that yields keys in chunks, one for each statement."""
    values_statement: Callable[
        [str | None, ObjectClass, ChildTable | None, tuple[Column, ...], int], str
    ]
    """The function that returns the statement which reads rows by their keys. The arguments of the
    returning function are the schema, the class, a child table of the class or None, the columns to
    read after the columns of the key, and the number of keys. ``k0_0`` is the bind of the first
    column of the first key.
    """

    def due_time(self, event_time: str) -> str:
        return event_time.removesuffix("Z")  # an event_time with a zone is compared in UTC

    def log_checks(self) -> Sequence[str]:
        code = f"ASCII({self.quote(self.spelled('status'))})"
        return (
            f"{code} BETWEEN 65 AND 90 OR {code} BETWEEN 97 AND 122",
            "event_type BETWEEN 1 AND 8",
        )


class StepwiseDatabase(OpenDatabase):
    """A session that reads objects and their child tables in several statements."""

    def read_current(
        self,
        schema: str | None,
        cls: ObjectClass,
        keys: Sequence[str],
        attributes: Sequence[Attribute],
    ) -> dict[str, CurrentRow]:
        possible = list(self.dialect.key_values(cls, keys))
        single = [attribute for attribute in attributes if child_of(cls, attribute) is None]
        columns = tuple(attribute.column for attribute in single)
        rows: dict[str, CurrentRow] = {}
        for n, values in self.read_values(
            schema, cls, None, columns, [values for _, values in possible]
        ):
            row = rows.setdefault(possible[n][0], {attribute.name: [] for attribute in attributes})
            for attribute, value in zip(single, values, strict=True):
                row[attribute.name].append(log_text(value))
        present = [(key, values) for key, values in possible if key in rows]
        for attribute in attributes:
            child = child_of(cls, attribute)
            if child is not None and present:
                columns, owners = (attribute.column,), [values for _, values in present]
                try:
                    for n, (value,) in self.read_values(schema, cls, child, columns, owners):
                        rows[present[n][0]][attribute.name].append(log_text(value))
                except BadValue as error:
                    for key, _ in present:
                        rows[key][attribute.name] = _Unreadable(error)
        return rows

    @abstractmethod
    def read_values(
        self,
        schema: str | None,
        cls: ObjectClass,
        child: ChildTable | None,
        columns: tuple[Column, ...],
        keys: Sequence[tuple[Any, ...]],
    ) -> Iterator[tuple[int, Sequence[Any]]]:
        """Read rows of a class by their keys, or the rows of its child table that belong to these
        objects; yield the columns asked for.

        Each item is the place of the row's key among ``keys``, and the values: texts, or bytes of a
        binary value. Raises BadValue if the owner of a child table's rows cannot be determined.
        """


class StepwiseLog(OpenLog):
    """A log whose resync reads the keys of objects before it writes rows for them."""

    dialect: StepwiseDialect

    def keys_after(self, walk: Walk, reached: str | None, limit: int) -> list[str]:
        statement = self.dialect.keys_statement(walk, continues=reached is not None)
        binds = {**self.dialect.reached_binds(walk.cls, reached), "limit": limit}
        return [self.dialect.key_of(walk, row) for row in self.db.fetch(statement, binds)]

    def write_batch(self, walk: Walk, reached: str | None, limit: int) -> ResyncBatch:
        keys = self.keys_after(walk, reached, limit)
        self.write_keys(walk.selection, keys)
        return ResyncBatch(
            rows=len(keys),
            missing=0,
            reached=keys[-1] if keys else reached,
            is_last=len(keys) < limit,
        )


class KeyedDatabase(StepwiseDatabase):
    """A session that reads the key of each row together with its values. The key shows to which of
    the requested keys the row belongs.
    """

    dialect: KeyedDialect

    def read_values(
        self,
        schema: str | None,
        cls: ObjectClass,
        child: ChildTable | None,
        columns: tuple[Column, ...],
        keys: Sequence[tuple[Any, ...]],
    ) -> Iterator[tuple[int, Sequence[Any]]]:
        readers = [self.dialect.key_column_reader(column) for column in cls.key]
        places: dict[tuple[object, ...], list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(key, []).append(place)
        for chunk in self.dialect.key_chunks(list(places)):
            binds = {
                f"k{n}_{i}": value for n, key in enumerate(chunk) for i, value in enumerate(key)
            }
            statement = self.dialect.values_statement(schema, cls, child, columns, len(chunk))
            for row in self.fetch(statement, binds):
                key = tuple(
                    reader(log_text(value) or "")
                    for reader, value in zip(readers, row, strict=False)
                )
                for place in places.get(key, ()):
                    yield place, row[len(readers) :]


class _Unreadable(list[str | None]):
    """Values that cannot be read.

    The error is raised when the values are iterated over, so rows that need other values are not
    affected.
    """

    def __init__(self, error: BadValue) -> None:
        super().__init__()
        self._error = error

    def __iter__(self) -> Iterator[str | None]:
        raise self._error


def log_text(value: Any) -> str | None:
    """Convert a value from the driver to log text.

    Bytes become base64, including the bytes to which a locator refers.
    """
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "read"):
        value = value.read()
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


# --- doctor ---------------------------------------------------------------------------------------


def trigger_answers(
    triggers: MarkedTriggers, has_log: Callable[[Connection, str], bool]
) -> Mapping[str, AnswerFunction]:
    """Return the answers of ``doctor`` about triggers whose text names their log.

    ``has_log`` returns True if the log with a name, quoted as SQL, exists.
    """

    def installed_triggers(log: OpenLog) -> Iterator[LogTrigger]:
        for trigger in triggers.read_installed(triggers.find_log(log)).every():
            name = qualified(trigger.schema or None, trigger.name, triggers.quote)
            fix = f"ALTER TRIGGER {name} {'ENABLE' if trigger.is_valid else 'COMPILE'}"
            yield LogTrigger(
                _table(trigger), trigger.name, trigger.is_enabled and trigger.is_valid, fix
            )

    def orphans(db: OpenDatabase) -> Answer:
        for trigger in triggers.all_triggers(db.connection):
            if trigger.log is not None and not has_log(db.connection, trigger.log):
                fix = triggers.drop_trigger(trigger.schema or None, trigger.name)
                yield _table(trigger), trigger.name, trigger.log, fix

    def without_triggers(
        log: OpenLog, schema: str | None, tables: Sequence[str]
    ) -> list[tuple[str]]:
        places = [(schema or "", table) for table in tables]
        watched = {trigger.table for trigger in triggers.all_triggers(log.connection, places)}
        return [(table,) for place, table in places if (place, table) not in watched]

    return {
        "installed_triggers": installed_triggers,
        "orphans": orphans,
        "without_triggers": without_triggers,
    }


def _table(trigger: StoredTrigger) -> str:
    return ".".join(filter(None, trigger.table))
