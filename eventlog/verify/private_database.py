"""A private SQLite database for what may not fit into memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any


def private_database(kilobytes: int, *tables: str) -> sqlite3.Connection:
    """Return a database in which the statements ``tables`` have run. When the database no longer
    fits into its cache of ``kilobytes``, the system writes it to disk. The database has no name, so
    it vanishes with the process.
    """
    database = sqlite3.connect("", isolation_level=None)
    for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{kilobytes}"):
        database.execute(f"PRAGMA {setting}")
    for table in tables:
        database.execute(table)
    return database


def write_rows(database: sqlite3.Connection, statement: str, rows: Iterable[Sequence[Any]]) -> None:
    """Run a statement for each of the rows, in one transaction."""
    database.execute("BEGIN")
    database.executemany(statement, rows)
    database.execute("COMMIT")
