"""SQL text as the standard has it: names, literals, and the text of a key. Each dialect builds its own of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from eventlog.core import table_key
from eventlog.core.catalog import Column
from eventlog.sql.log_table import LogTable


def quote_identifier(name: str) -> str:
    """A name as an SQL identifier, always quoted (spec/triggers.md 9)."""
    return '"' + name.replace('"', '""') + '"'


def qualified(schema: str | None, name: str, quote: Callable[[str], str] = quote_identifier) -> str:
    """A name with its schema as SQL; a name without one is found in the session's current schema."""
    return quote(name) if schema is None else f"{quote(schema)}.{quote(name)}"


def literal(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def field(row: str, column: Column) -> str:
    """SQL of a column of a row, such as ``OLD."id"``."""
    return f"{row}.{quote_identifier(column.name)}"


def fields(row: str, columns: Sequence[Column]) -> list[str]:
    """SQL of columns of a row."""
    return [field(row, column) for column in columns]


def all_there(refs: Iterable[str]) -> str:
    """SQL: none of these columns is NULL."""
    return " AND ".join(f"{ref} IS NOT NULL" for ref in refs)


def log_words(
    log: LogTable, class_name: str, now: str, quote: Callable[[str], str] = quote_identifier
) -> dict[str, str]:
    """What a template of triggers needs to know of the log that they write, for rows of a class at the time ``now``."""
    _, *columns = log.columns  # record_id is the database's to number
    return {
        "table": qualified(log.schema, log.name, quote),
        "columns": ", ".join(map(quote, columns)),
        "now": now,
        "class_name": class_name,
    }


def key_parts(
    key: Sequence[Column],
    refs: Sequence[str],
    value: Callable[[Column, str], str],
    literal: Callable[[str], str] = literal,
) -> Iterator[str]:
    """The pieces of SQL that make the canonical table_key of a row, to be concatenated (spec/triggers.md 4).

    ``refs``: SQL of the references to the key columns, in key order; ``value``: SQL of a column's value as it stands in
    the key.
    """
    for position, (column, ref) in enumerate(zip(key, refs, strict=True)):
        yield literal("+" * (position > 0) + table_key.quote(column.name) + "=")
        yield value(column, ref)
