"""The sink ``sqlite``: objects as rows of a SQLite file. An event that comes twice is applied once.

A table ``object`` holds each object's class, association and attributes as JSON; ``applied`` holds
the event-ids. Both change in one transaction, which ``flush`` commits.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from eventlog.core.options import PATH, option
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.model import Answer, Document, Event, Op
from eventlog.publisher.sinks import Opening, Sink

_TABLES = """
CREATE TABLE IF NOT EXISTS object (
    class TEXT, association TEXT PRIMARY KEY, attributes TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS applied (event_id TEXT PRIMARY KEY) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class SqliteOptions:
    """Options of ``[sink]`` of type ``sqlite``."""

    file: Path | None = option(
        None, PATH, "the database file, relative to eventlog.toml", example="copy.db"
    )


class SqliteSink(Sink):
    """Applies events to a SQLite file."""

    name = "sqlite"
    title = "rows of a SQLite file"
    options = SqliteOptions
    needs = {"file": "the database that is filled"}  # noqa: RUF012 - read only

    def __init__(self, file: Path) -> None:
        try:
            self._db = sqlite3.connect(file, check_same_thread=False)
            self._db.executescript(_TABLES)
        except sqlite3.Error as error:
            raise ConfigError(f"sink.file {file}: {error}") from None
        self._file = file

    @classmethod
    def open(cls, options: SqliteOptions, opening: Opening) -> SqliteSink:
        assert options.file is not None
        return cls(options.file)

    def send(self, document: Document) -> Answer:
        with self._unavailable():
            for event in document.events:
                if self._db.execute(
                    "INSERT OR IGNORE INTO applied VALUES (?)", (event.event_id,)
                ).rowcount:
                    self._apply(event)
        return Answer()

    def flush(self) -> None:
        with self._unavailable():
            self._db.commit()

    def close(self) -> None:
        self._db.close()  # what was not flushed is rolled back, and sent again

    def _apply(self, event: Event) -> None:
        if event.operation == "delete":
            self._db.execute("DELETE FROM object WHERE association = ?", (event.association,))
            return
        row = self._db.execute(
            "SELECT attributes FROM object WHERE association = ?", (event.association,)
        ).fetchone()
        values: dict[str, list[str]] = {} if row is None else json.loads(row[0])
        for attribute in event.attributes:
            for op, texts in attribute.steps:
                kept = values.setdefault(attribute.name, [])
                if op is Op.REMOVE_ALL:
                    kept.clear()
                elif op is Op.REMOVE:
                    kept[:] = [text for text in kept if text not in texts]
                else:
                    kept += texts
        self._db.execute(
            "INSERT OR REPLACE INTO object VALUES (?, ?, ?)",
            (event.class_name, event.association, json.dumps(values)),
        )

    @contextmanager
    def _unavailable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            why = f"{self._file}: {error}"
            raise ReceiverUnavailable(why, why) from error
