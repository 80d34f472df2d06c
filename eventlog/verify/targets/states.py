"""Keep the states of objects in a temporary SQLite database, so that memory does not grow with
their number (spec/verify.md 4.2).
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from eventlog.verify.comparison import TargetRow

_KEPT: Final = 20_000
"""The most states that are kept in memory before they are written."""
_ASKED: Final = 500
"""The most keys in one statement."""
_TABLE: Final = (
    "CREATE TABLE state (class TEXT, key TEXT, content TEXT, seen INTEGER DEFAULT 0, "
    "PRIMARY KEY (class, key)) WITHOUT ROWID"
)

State: TypeAlias = dict[str, list[str | None]]
"""The values of an object by attribute, as in ``TargetRow``."""


class States:
    """The states of objects by class and key. ``seen`` marks the objects that ``rows`` was called
    with.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="eventlog-verify-")
        self._changed: dict[tuple[str, str], State | None] = {}
        self._database = sqlite3.connect(
            Path(self._directory.name) / "states.db", isolation_level=None
        )
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -65536"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute(_TABLE)

    def get(self, class_name: str, key: str) -> State | None:
        """Return the state of an object, None if it has none."""
        if (class_name, key) in self._changed:
            return self._changed[class_name, key]
        row = self._database.execute(
            "SELECT content FROM state WHERE class = ? AND key = ?", (class_name, key)
        ).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, class_name: str, key: str, state: State | None) -> None:
        """Set the state of an object; None = the object does not exist."""
        self._changed[class_name, key] = state
        if len(self._changed) > _KEPT:
            self.write()

    def clear(self, class_name: str) -> None:
        """Remove all objects of a class."""
        self.write()
        self._database.execute("DELETE FROM state WHERE class = ?", (class_name,))

    def write(self) -> None:
        """Write the changed states to the database; ``rows`` and ``other_keys`` need this."""
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

    def rows(self, class_name: str, keys: Sequence[str]) -> Mapping[str, TargetRow]:
        """Return the states of objects by key; those without one are left out."""
        found: dict[str, TargetRow] = {}
        for start in range(0, len(keys), _ASKED):
            part = keys[start : start + _ASKED]
            condition = f"class = ? AND key IN ({', '.join('?' * len(part))})"
            found |= {
                key: json.loads(content)
                for key, content in self._database.execute(
                    f"SELECT key, content FROM state WHERE {condition}",  # noqa: S608 - marks alone
                    (class_name, *part),
                )
            }
            self._database.execute(
                f"UPDATE state SET seen = 1 WHERE {condition}",  # noqa: S608 - marks alone
                (class_name, *part),
            )
        return found

    def other_keys(self, class_name: str, size: int) -> Generator[list[str], None, None]:
        """Yield the keys of objects that ``rows`` was never called with, in lists of ``size``."""
        position = ""
        while True:
            rows = self._database.execute(
                "SELECT key FROM state WHERE class = ? AND key > ? AND seen = 0 ORDER BY key "
                "LIMIT ?",
                (class_name, position, size),
            ).fetchall()
            if not rows:
                return
            position = rows[-1][0]
            yield [key for (key,) in rows]

    def close(self) -> None:
        """Remove the database."""
        self._database.close()
        self._directory.cleanup()
