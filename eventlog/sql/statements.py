"""SQL in files beside a dialect's modules, how statements run by the driver itself, and what becomes of their rows."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import Any

from sqlalchemy import Connection, Row

from eventlog.errors import DatabaseError


def run_as_it_stands(conn: Connection, statement: str) -> None:
    """Run SQL text that holds no parameters: a colon and a percent sign are what they are."""
    conn.exec_driver_sql(statement, execution_options={"no_parameters": True})


def fetch(
    conn: Connection, statement: str, parameters: Mapping[str, object] | tuple[object, ...]
) -> list[tuple[Any, ...]]:
    """The rows of a statement as the driver makes them: half the time of SQLAlchemy's, and millions are read."""
    result = conn.exec_driver_sql(statement, dict(parameters) if isinstance(parameters, Mapping) else parameters)
    try:
        assert result.cursor is not None
        return list(result.cursor.fetchall())
    finally:
        result.close()


def fetch_chunks(
    conn: Connection, statement: str, parameters: Mapping[str, object], size: int
) -> Generator[list[tuple[Any, ...]], None, None]:
    """The rows of a statement as ``fetch`` gives them, in lists of ``size``, the last of fewer."""
    result = conn.exec_driver_sql(statement, dict(parameters))
    try:
        assert result.cursor is not None
        is_full = True
        while is_full:
            rows = list(result.cursor.fetchmany(size))
            is_full = len(rows) == size
            yield rows
    finally:
        result.close()


def run_many(conn: Connection, statement: str, rows: Sequence[Mapping[str, object]]) -> int:
    """Run a statement for each of the rows by one array bind; how many rows of the database that changed."""
    if not rows:
        return 0
    done = conn.exec_driver_sql(statement, [dict(row) for row in rows], execution_options={"preserve_rowcount": True})
    return int(done.rowcount)


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch the garbage collector off: a million new tuples make it search all the others, again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def by_relation(rows: Iterable[Row[Any]]) -> defaultdict[Any, list[Row[Any]]]:
    """The rows of a statement of ``reflect.sql`` by the table or view that they tell of, their field ``relation``."""
    grouped: defaultdict[Any, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        grouped[row.relation].append(row)
    return grouped


def missing_schema(schema: str | None) -> DatabaseError:
    """What to raise if a schema is not there. None: the connection's current one."""
    what = "the connection has no current schema" if schema is None else f"there is no schema {schema!r}"
    return DatabaseError(f"{what} in this database; set schema_name to one that exists")


@cache
def statements(package: str, file: str) -> Mapping[str, str]:
    """The statements of a file of a package, each below its line ``-- name:``, without comments."""
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    named = (part.partition("\n") for part in text.split("-- name: ")[1:])
    return {
        name.strip(): "\n".join(line for line in body.split("\n") if not line.lstrip().startswith("--"))
        .strip()
        .rstrip(";")
        for name, _, body in named
    }
