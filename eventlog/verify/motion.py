"""The objects of a verification that wait: objects in motion, and objects to compare again
(spec/verify.md 1.1).

Millions of objects may wait while a publisher is down, so these objects are in a temporary SQLite
database. The system writes the database to disk when it no longer fits into its cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from eventlog.core.ranges import RecordSet
from eventlog.verify.private_database import private_database, write_rows

ObjectName: TypeAlias = tuple[str, str]
"""The name of a class, and the canonical key of one of its objects."""

_ENCODING: Final = "utf-8", "surrogatepass"  # as a log may have it
_ASKED: Final = 500
"""The maximum number of keys in one statement."""
_LAST: Final = (1 << 63) - 1
"""The greatest possible record_id."""
_TABLES: Final = (
    "CREATE TABLE undone (record_id INTEGER PRIMARY KEY, class TEXT, object_key BLOB)",
    "CREATE INDEX undone_object ON undone (class, object_key)",
    "CREATE TABLE waiting (class TEXT, object_key BLOB, PRIMARY KEY (class, object_key)) "
    "WITHOUT ROWID",
)
_IN_MOTION: Final = (
    "EXISTS (SELECT 1 FROM undone u WHERE u.class = w.class AND u.object_key = w.object_key)"
)


class Motion:
    """Three sets: the rows of a log that are not done, with the objects that they name; the objects
    of a consumer's snapshot that are in flight, without a row; the objects that wait for a later
    round.
    """

    def __init__(self) -> None:
        self._database = private_database(16_384, *_TABLES)

    def close(self) -> None:
        """Remove the database."""
        self._database.close()

    # --- rows that are not done ---

    def add_rows(self, rows: Iterable[tuple[int, str, str]]) -> None:
        """Add rows that are not done: the record_id, and the class and the key of the object."""
        write_rows(
            self._database,
            "INSERT OR REPLACE INTO undone VALUES (?, ?, ?)",
            ((record_id, class_name, _blob(key)) for record_id, class_name, key in rows),
        )

    def keep_rows(self, undone: RecordSet) -> None:
        """Forget the rows that are not in ``undone``."""
        if self.has_rows:
            write_rows(
                self._database,
                "DELETE FROM undone WHERE record_id BETWEEN ? AND ?",
                [*undone.gaps(undone.top), (undone.top + 1, _LAST)],
            )

    def keep_objects(self, objects: Sequence[ObjectName]) -> None:
        """Replace the objects that are in motion although no row names them."""
        self._database.execute("DELETE FROM undone WHERE record_id < 0")
        self.add_rows((-number, *name) for number, name in enumerate(objects, 1))

    @property
    def has_rows(self) -> bool:
        """True if an object is in motion."""
        return self._any("SELECT 1 FROM undone LIMIT 1")

    def moving(self, class_name: str, keys: Iterable[str]) -> set[str]:
        """Return the keys in ``keys`` whose objects are in motion."""
        return self._among("undone", class_name, keys) if self.has_rows else set()

    def rows_of(self, name: ObjectName, most: int) -> list[int]:
        """Return the first rows that name an object and are not done."""
        rows = self._database.execute(
            "SELECT record_id FROM undone WHERE class = ? AND object_key = ? AND record_id > 0 "
            "ORDER BY record_id LIMIT ?",
            (name[0], _blob(name[1]), most),
        )
        return [record_id for (record_id,) in rows]

    # --- objects that wait for a later round ---

    def wait_for(self, class_name: str, keys: Iterable[str]) -> None:
        """Add objects that wait for a later round."""
        write_rows(
            self._database,
            "INSERT OR IGNORE INTO waiting VALUES (?, ?)",
            [(class_name, _blob(key)) for key in keys],
        )

    def decide(self, class_name: str, keys: Iterable[str]) -> None:
        """Forget objects that wait no longer."""
        write_rows(
            self._database,
            "DELETE FROM waiting WHERE class = ? AND object_key = ?",
            [(class_name, _blob(key)) for key in keys],
        )

    @property
    def has_waiting(self) -> bool:
        """True if an object waits."""
        return self._any("SELECT 1 FROM waiting LIMIT 1")

    def waiting(self, class_name: str, keys: Iterable[str]) -> set[str]:
        """Return the keys in ``keys`` whose objects wait."""
        return self._among("waiting", class_name, keys) if self.has_waiting else set()

    def all_waiting(self) -> Iterator[ObjectName]:
        """Yield the objects that wait, sorted by class and key. Do not add or decide objects
        meanwhile.
        """
        for class_name, key in self._database.execute(
            "SELECT class, object_key FROM waiting ORDER BY class, object_key"
        ):
            yield class_name, _text(key)

    def count_waiting(self) -> dict[str, int]:
        """Return, for each class, the number of objects that wait."""
        return dict(self._database.execute("SELECT class, count(*) FROM waiting GROUP BY class"))

    def to_compare(self, after: ObjectName, size: int) -> tuple[str, list[str]] | None:
        """Return the next objects after ``after`` that wait and are no longer in motion: a class
        and at most ``size`` keys. None if there is no such object.
        """
        class_name, key = after[0], _blob(after[1])
        for condition, binds in (
            ("w.class = ? AND w.object_key > ?", (class_name, key)),
            ("w.class > ?", (class_name,)),
        ):
            rows = self._database.execute(
                f"SELECT w.class, w.object_key FROM waiting w WHERE {condition} "  # noqa: S608
                f"AND NOT {_IN_MOTION} ORDER BY w.class, w.object_key LIMIT ?",
                (*binds, size),
            ).fetchall()
            if rows:
                first = rows[0][0]
                return first, [_text(object_key) for name, object_key in rows if name == first]
        return None

    # --- the database ---

    def _any(self, statement: str) -> bool:
        return self._database.execute(statement).fetchone() is not None

    def _among(self, table: str, class_name: str, keys: Iterable[str]) -> set[str]:
        found: set[str] = set()
        blobs = [_blob(key) for key in keys]
        for start in range(0, len(blobs), _ASKED):
            part = blobs[start : start + _ASKED]
            marks = ", ".join("?" * len(part))
            found.update(
                _text(key)
                for (key,) in self._database.execute(
                    f"SELECT DISTINCT object_key FROM {table} "  # noqa: S608 - marks alone
                    f"WHERE class = ? AND object_key IN ({marks})",
                    (class_name, *part),
                )
            )
        return found


def _blob(key: str) -> bytes:
    return key.encode(*_ENCODING)


def _text(key: bytes) -> str:
    return key.decode(*_ENCODING)
