"""Documents in files or objects as a target (spec/verify.md 4.2): the events are applied one after
the other, and give the last state of each object.

The states are kept in a temporary database of SQLite, so that memory does not grow with them.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from eventlog.changes.format import Format, Report
from eventlog.changes.keys import key_text, with_key
from eventlog.changes.publishing import row_attributes
from eventlog.conversion import read_changes
from eventlog.core.catalog import Attribute, Database, ObjectClass
from eventlog.core.typed import to_text, values_of, xds_value_reader
from eventlog.core.values import ValueOptions
from eventlog.errors import ConfigError
from eventlog.model import Change, ChangeOp, Row, Value, old_key
from eventlog.verify.comparison import Held, TargetRow
from eventlog.verify.targets import Target
from eventlog.verify.targets.places import Place, PlacedFile

_KEPT: Final = 20_000
"""The most states that are kept in memory until they are written."""
_ASKED: Final = 500
"""The most keys in one statement."""
_TABLE: Final = (
    "CREATE TABLE state (class TEXT, key TEXT, content TEXT, seen INTEGER DEFAULT 0, "
    "PRIMARY KEY (class, key)) WITHOUT ROWID"
)

_State = dict[str, list[str | None]]
"""The values of an object by attribute, as in ``TargetRow``."""


class FilesTarget(Target):
    """The documents at a place.

    ``dialect`` and ``schema`` are those of the source; ``options`` are the options of the format's
    reader; ``values`` are those with which the publisher has written, if the format is XDS.
    """

    is_pinned = True

    def __init__(
        self,
        place: Place,
        format: Format,
        dialect: str,
        options: Mapping[str, Any],
        values: ValueOptions | None = None,
    ) -> None:
        if not format.can("read_changes"):
            raise format.lacks("read_changes")
        self._place, self._format, self._dialect = place, format, dialect
        self._options, self._values = options, values
        self._applied: dict[str, PlacedFile] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="eventlog-verify-")
        self._states: sqlite3.Connection | None = None
        self._changed: dict[tuple[str, str], _State | None] = {}

    def __str__(self) -> str:
        return f"{self._format.name} in {self._place}"

    def attributes(self, cls: ObjectClass) -> Sequence[Attribute]:
        if self._format.is_of_rows:
            return row_attributes(cls)
        return [one for one in cls.attributes if not one.is_key]

    def held(self, cls: ObjectClass) -> Mapping[str, Held]:
        if self._values is None:
            return {}
        return {one.name: _as_document(one, self._values) for one in self.attributes(cls)}

    def pin(self, classes: Collection[ObjectClass]) -> None:
        """Apply the documents that were not applied yet; all of them again if an earlier one has
        changed, is gone, or comes before one that was applied.
        """
        files = self._place.files(self._format.suffixes)
        if not files and not self._applied:
            raise ConfigError(
                f"{self._place} has no {self._format.title}: correct --target or --format"
            )
        before = [one for one in files if one.name in self._applied]
        new = [one for one in files if one.name not in self._applied]
        last = max((one.order for one in before), default=None)
        if (
            self._states is None
            or {one.name: one for one in before} != self._applied
            or (new and last is not None and new[0].order < last)
        ):
            self._begin()
            new = files
        for file in new:
            self._apply_file(file, classes)
            self._applied[file.name] = file
        self._write()

    def rows(self, cls: ObjectClass, keys: Sequence[str]) -> Mapping[str, TargetRow]:
        found: dict[str, TargetRow] = {}
        for start in range(0, len(keys), _ASKED):
            part = keys[start : start + _ASKED]
            marks = ", ".join("?" * len(part))
            condition = f"class = ? AND key IN ({marks})"
            found |= {
                key: json.loads(content)
                for key, content in self._database.execute(
                    f"SELECT key, content FROM state WHERE {condition}",  # noqa: S608 - marks alone
                    (cls.name, *part),
                )
            }
            self._database.execute(
                f"UPDATE state SET seen = 1 WHERE {condition}",  # noqa: S608 - marks alone
                (cls.name, *part),
            )
        return found

    def other_keys(self, cls: ObjectClass, size: int) -> Generator[list[str], None, None]:
        position = ""
        while True:
            rows = self._database.execute(
                "SELECT key FROM state WHERE class = ? AND key > ? AND seen = 0 ORDER BY key "
                "LIMIT ?",
                (cls.name, position, size),
            ).fetchall()
            if not rows:
                return
            position = rows[-1][0]
            yield [key for (key,) in rows]

    def close(self) -> None:
        if self._states is not None:
            self._states.close()
        self._directory.cleanup()

    @property
    def _database(self) -> sqlite3.Connection:
        assert self._states is not None
        return self._states

    def _begin(self) -> None:
        """Begin without any state."""
        file = Path(self._directory.name) / "states.db"
        if self._states is not None:
            self._states.close()
            file.unlink()
        self._applied, self._changed = {}, {}
        self._states = sqlite3.connect(file, isolation_level=None)
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -65536"):
            self._states.execute(f"PRAGMA {setting}")
        self._states.execute(_TABLE)

    def _apply_file(self, file: PlacedFile, classes: Collection[ObjectClass]) -> None:
        by_name = {cls.name: cls for cls in classes}
        options = {"catalog": _described(self._dialect, classes), **self._options}
        with self._place.opened(file.name) as path:
            # An input that cannot be read ends the verification: its objects would be wrong.
            report = Report(strict=True)
            for change in read_changes(self._format.name, path, report=report, **options):
                cls = by_name.get(change.table)
                if cls is not None:
                    self._apply(cls, change)
                if len(self._changed) > _KEPT:
                    self._write()

    def _apply(self, cls: ObjectClass, change: Change) -> None:
        if change.op is ChangeOp.TRUNCATE:
            self._write()
            self._database.execute("DELETE FROM state WHERE class = ?", (cls.name,))
            return
        change = with_key(change, cls)
        assert change.key is not None
        key = key_text(change, change.key, cls)
        if change.op is ChangeOp.DELETE:
            self._changed[cls.name, key] = None
            return
        former = old_key(change)
        before = key if former is None else key_text(change, former, cls)
        state = self._state(cls.name, before)
        if before != key:
            self._changed[cls.name, before] = None
        if state is None:
            # An insert leaves NULLs out; of an update without its insert nothing else is known.
            is_new = change.op is not ChangeOp.UPDATE
            state = {one.name: [] for one in self.attributes(cls)} if is_new else {}
        names = {one.name: one for one in self.attributes(cls)}
        for name, value in (change.after or {}).items():
            if name in names:
                _set(state, names[name], value, change.before)
        self._changed[cls.name, key] = state

    def _state(self, class_name: str, key: str) -> _State | None:
        if (class_name, key) in self._changed:
            return self._changed[class_name, key]
        row = self._database.execute(
            "SELECT content FROM state WHERE class = ? AND key = ?", (class_name, key)
        ).fetchone()
        return None if row is None else json.loads(row[0])

    def _write(self) -> None:
        """Write the states that have changed. The walk has not seen them."""
        gone = [name for name, state in self._changed.items() if state is None]
        there = [
            (*name, json.dumps(state, ensure_ascii=False))
            for name, state in self._changed.items()
            if state is not None
        ]
        self._database.execute("BEGIN")
        self._database.executemany("DELETE FROM state WHERE class = ? AND key = ?", gone)
        self._database.executemany(
            "INSERT INTO state (class, key, content) VALUES (?, ?, ?) "
            "ON CONFLICT (class, key) DO UPDATE SET content = excluded.content",
            there,
        )
        self._database.execute("COMMIT")
        self._changed = {}


def _set(state: _State, attribute: Attribute, value: Value, before: Row | None) -> None:
    """Give an attribute its new value; one of several values gets those that are added, and loses
    those that are removed (spec/change-model.md 3.1).
    """
    texts: list[str | None] = [to_text(one) for one in values_of(value)]
    name = attribute.name
    if attribute.multi_valued and before is not None and name in before:
        removed = {to_text(one) for one in values_of(before[name])}
        texts = [one for one in state.get(name, ()) if one not in removed] + texts
    state[name] = list(dict.fromkeys(texts))


def _described(dialect: str, classes: Iterable[ObjectClass]) -> Database:
    """Return the tables of classes as a catalogue for readers. A child table has no key there,
    since it would be a class then.
    """
    tables = [cls.table for cls in classes]
    tables += [replace(child.table, primary_key=()) for cls in classes for child in cls.children]
    return Database(dialect, None, tuple(tables))


def _as_document(attribute: Attribute, values: ValueOptions) -> Held:
    """Return the function that writes a value as XDS has it, and reads it again."""
    read = xds_value_reader(attribute.value_type, attribute.column.type, values)
    return lambda text: to_text(read(attribute.convert(text)))
