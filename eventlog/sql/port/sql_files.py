"""SQL text: its parts, the files that contain it, and how the driver runs it directly.

Names, literals and keys follow the SQL standard; each dialect bases its own functions on these.
Statements in files belong to a dialect, and so do the templates of its triggers.

``fetch`` is a hot path: it returns the driver's tuples, in half the time of SQLAlchemy's rows. In
return, the values have no names, and their types are not converted.
"""

from __future__ import annotations

import gc
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from functools import cache
from importlib import resources
from itertools import starmap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from eventlog.core import table_key
from eventlog.core.catalog import Column, ObjectClass, Table
from eventlog.core.catalog.filters import MATCHES
from eventlog.core.values import Kind
from eventlog.errors import DatabaseError
from eventlog.sql.log_table import LogTable

if TYPE_CHECKING:
    import jinja2
    from sqlalchemy import Connection, Row

K = TypeVar("K")
V = TypeVar("V")

PlainRow = tuple[Any, ...]
"""A row as the driver makes it."""
PlainRows = list[PlainRow]
RowChunks = Generator[PlainRows, None, None]
"""The rows of a statement in lists, until the iterator is closed."""
Binds = Mapping[str, object]
"""The values that a statement binds, by name."""
Options = Mapping[str, Any]
"""Execution options of a statement."""
Quote = Callable[[str], str]
"""A function that writes a name as an SQL identifier."""

# --- text -----------------------------------------------------------------------------------------

AS_WRITTEN: Final = "/* as written */"
"""The comment before SQL of a user: before an expression in parentheses, or at the beginning of a
statement. The names in it are looked up as the session of the user looks them up.
"""


def quote_identifier(name: str) -> str:
    """Return a name as an SQL identifier, always quoted (spec/triggers.md 9)."""
    return '"' + name.replace('"', '""') + '"'


def qualified(schema: str | None, name: str, quote: Quote = quote_identifier) -> str:
    """Return a name with its schema as SQL. A name without a schema is found in the session's
    current schema.
    """
    return quote(name) if schema is None else f"{quote(schema)}.{quote(name)}"


def literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def field(row: str, column: Column) -> str:
    """Return SQL of a column of a row, such as ``OLD."id"``."""
    return f"{row}.{quote_identifier(column.name)}"


def fields(row: str, columns: Sequence[Column]) -> list[str]:
    """Return the SQL of each column of a row, as ``field`` does."""
    return [field(row, column) for column in columns]


def all_there(refs: Iterable[str]) -> str:
    """Return an SQL condition that is true if none of these columns is NULL."""
    return " AND ".join(f"{ref} IS NOT NULL" for ref in refs)


def trigger_words(
    log: LogTable, class_name: str, now: str, quote: Quote = quote_identifier
) -> dict[str, str]:
    """Return the variables that describe the log in a template of triggers. The triggers log rows
    of a class; ``now`` is SQL of their time.
    """
    _, *columns = log.columns  # the database numbers record_id
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
    """Yield the fragments of SQL whose concatenation is the canonical table_key of a row
    (spec/triggers.md 4).

    ``refs`` are SQL of the references to the key columns, in key order; ``value`` returns SQL of a
    column's value in the key.
    """
    for position, (column, ref) in enumerate(zip(key, refs, strict=True)):
        yield literal("+" * (position > 0) + table_key.quote(column.name) + "=")
        yield value(column, ref)


def quoted_unless(
    never_quoted: Collection[Kind],
    key_value: Callable[[Column, str], str],
    quoted: Callable[[str], str],
) -> Callable[[Column, str], str]:
    """Return the function for ``key_parts`` that returns SQL of a value in the key.

    ``key_value`` returns SQL of the value's text. ``quoted`` returns SQL that quotes a text where
    the key needs quotes. The text of values of the kinds ``never_quoted`` never needs quotes.
    """

    def value(column: Column, ref: str) -> str:
        text = key_value(column, ref)
        return text if column.type.kind in never_quoted else quoted(text)

    return value


# --- files ----------------------------------------------------------------------------------------


@cache
def statements(package: str, file: str) -> Mapping[str, str]:
    """Return the statements of a file in a package, without comments. The lines ``-- name:`` have
    their names.
    """
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    named = (part.partition("\n") for part in text.split("-- name: ")[1:])
    return {
        name.strip(): "\n".join(
            line for line in body.split("\n") if not line.lstrip().startswith("--")
        )
        .strip()
        .rstrip(";")
        for name, _, body in named
    }


def log_statements(package: str, with_binds: Callable[[str], str] = str) -> Mapping[str, str]:
    """Return the statements of a dialect for the log: the statements of its package, and the common
    statements that it does not replace. ``with_binds`` gives common statements the binds that the
    driver reads.
    """
    shared = statements("eventlog.sql.dialects", "log.sql")
    own = statements(package, "log.sql")
    return {**{name: with_binds(statement) for name, statement in shared.items()}, **own}


def with_format_binds(statement: str) -> str:
    """Return a statement with ``%(name)s`` in place of ``:name``."""
    return re.sub(":([a-z_]+)", r"%(\1)s", statement.replace("%", "%%"))


def template_renderer(
    package: str,
    folder: str = "",
    filters: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
    globals: Mapping[str, object] = MappingProxyType({}),
    base: str | None = None,
) -> Callable[..., str]:
    """Return the function that renders a template, given its name and values. The template is in a
    folder of a dialect's package.

    ``base`` is the package with the templates that several dialects share. ``filters`` has
    functions that quote texts. ``globals`` has the functions that make SQL of columns; these
    functions quote every value in the text.
    """

    @cache
    def environment() -> jinja2.Environment:
        import jinja2  # rarely needed, and slow to import

        folders = [resources.files(one).joinpath(folder) for one in (package, base) if one]

        def load(name: str) -> str | None:
            files = (folder.joinpath(name) for folder in folders)
            return next((file.read_text("utf-8") for file in files if file.is_file()), None)

        environment = jinja2.Environment(  # noqa: S701 - SQL, quoted by filters
            loader=jinja2.FunctionLoader(load),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= filters
        environment.globals |= globals
        return environment

    def render(template: str, /, **values: object) -> str:
        return environment().get_template(template).render(**values)

    return render


# --- how statements run, and how their rows are read ----------------------------------------------


class StatementKind(Enum):
    """How a session of a publisher may run a statement; only some databases distinguish the
    kinds.
    """

    OTHER = auto()
    """A statement on other tables, or a statement of the user: it runs as in any session."""
    LOG = auto()
    """A statement of ``log.sql`` or of an internal table: it may be prepared, and an index serves
    it.
    """
    CURSOR = auto()
    """The declaration of a cursor for a statement of the kind LOG: it is not prepared."""
    NEUTRAL = auto()
    """A statement that reads no table."""


KIND: Final = "eventlog_kind"
"""The execution option with the ``StatementKind`` of a statement; OTHER if it is not given."""
ALONE: Final = "eventlog_alone"
"""The execution option of a statement that may be a transaction by itself: if no transaction has
begun and the database supports it, the statement takes one round trip. The caller still commits.
"""
FIRST: Final = "eventlog_first"
"""The execution option with the text of a statement that runs first, in the same transaction, with
the same parameters and without a result. If the driver supports it, both statements take one round
trip.
"""
OF_LOG: Final[Options] = {KIND: StatementKind.LOG}
OF_LOG_ALONE: Final[Options] = {KIND: StatementKind.LOG, ALONE: True}
OF_CURSOR: Final[Options] = {KIND: StatementKind.CURSOR}
NEUTRAL: Final[Options] = {KIND: StatementKind.NEUTRAL}
NEUTRAL_ALONE: Final[Options] = {KIND: StatementKind.NEUTRAL, ALONE: True}
AS_ANY: Final[Options] = {}
"""The execution options of a statement of no special kind."""


def run_as_it_stands(conn: Connection, statement: str) -> None:
    """Run SQL text without parameters: colons and percent signs have no special meaning."""
    conn.exec_driver_sql(statement, execution_options={"no_parameters": True})


def fetch(
    conn: Connection,
    statement: str,
    parameters: Binds | tuple[object, ...],
    options: Options = AS_ANY,
) -> PlainRows:
    """Return the rows of a statement as the driver makes them, in half the time of SQLAlchemy's.

    ``options`` are execution options, such as ``OF_LOG``.
    """
    result = conn.exec_driver_sql(
        statement,
        dict(parameters) if isinstance(parameters, Mapping) else parameters,
        execution_options=options,
    )
    try:
        assert result.cursor is not None
        return list(result.cursor.fetchall())
    finally:
        result.close()


def fetch_chunks(
    conn: Connection,
    statement: str,
    parameters: Binds,
    size: int,
    options: Options = AS_ANY,
) -> RowChunks:
    """Yield the rows of a statement as ``fetch`` returns them, in lists of ``size``; the last may
    be shorter.
    """
    result = conn.exec_driver_sql(statement, dict(parameters), execution_options=options)
    try:
        assert result.cursor is not None
        yield from chunks_of(result.cursor, size)
    finally:
        result.close()


class _Cursor(Protocol):
    """A cursor of the driver."""

    def fetchmany(self, size: int, /) -> Sequence[Any]: ...


def chunks_of(cursor: _Cursor, size: int) -> RowChunks:
    """Yield the rows of a cursor of the driver in lists of ``size``; the last may be shorter."""
    is_full = True
    while is_full:
        rows = list(cursor.fetchmany(size))
        is_full = len(rows) == size
        yield rows


def run_many(conn: Connection, statement: str, rows: Sequence[Binds]) -> int:
    """Run a statement once for each of the rows, as one array bind, and return the number of rows
    that changed in the database.
    """
    if not rows:
        return 0
    done = conn.exec_driver_sql(
        statement, [dict(row) for row in rows], execution_options={"preserve_rowcount": True}
    )
    return int(done.rowcount)


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch the garbage collector off: a million new tuples would make it run many times without
    finding anything.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def in_parts(values: Sequence[V], size: int) -> Iterator[Sequence[V]]:
    """Yield values in sequences of ``size``; the last may be shorter."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def grouped(pairs: Iterable[tuple[K, V]]) -> defaultdict[K, list[V]]:
    """Return the second parts of pairs, by the first parts, in the order of the pairs."""
    found: defaultdict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


def by_relation(rows: Iterable[Row[Any]]) -> defaultdict[Any, list[Row[Any]]]:
    """Return the rows of a statement of ``reflect.sql`` by their table or view, which is in the
    field ``relation``.
    """
    return grouped((row.relation, row) for row in rows)


def missing_schema(schema: str | None) -> DatabaseError:
    """Return the error for a missing schema; None = the connection's current schema is missing."""
    what = (
        "the connection has no current schema"
        if schema is None
        else f"there is no schema {schema!r}"
    )
    return DatabaseError(f"{what} in this database; set schema_name to an existing schema")


# --- the condition of a class ---------------------------------------------------------------------


def source_of(
    cls: ObjectClass,
    relation: Callable[[Table], str],
    read: Collection[Column],
    quote: Quote,
    among: str = "",
) -> str:
    """Return SQL of the rows of a class for a statement that reads these columns; ``relation``
    returns SQL of a table. With the column of ``MATCHES``, the SQL is a sub-select of the rows and,
    for a view, also of the rows of its main table, which have no values (spec/event-log.md 15.4).

    ``among`` follows the key in a condition that every row of a UNION must meet; empty = none.
    """
    flag = MATCHES.column
    if flag not in read or not cls.may_lack_objects:
        return relation(cls.table)
    of_class = _with_flag(cls, relation(cls.table), quote)
    if cls.main_table is None:
        return f"({of_class})"
    main = cls.main_table
    keys = {name.name: column for name, column in zip(cls.key, main.key, strict=True)}
    columns = ", ".join(
        _as_type_of(column, keys[column.name], quote) if column.name in keys else "NULL"
        for column in _columns_of(cls)
    )
    others = f"SELECT {columns}, 2 FROM {relation(main.table)} b"  # noqa: S608
    if among:
        of_class += f" WHERE {row_value(quote(column.name) for column in cls.key)} {among}"
        others += f" WHERE {row_value(f'b.{quote(column.name)}' for column in main.key)} {among}"
    return f"({of_class} UNION ALL {others})"


def _columns_of(cls: ObjectClass) -> Sequence[Column]:
    """Return the columns of a class that may be read, and the columns of its condition."""
    names = {one.column.name for one in cls.attributes if one.table == cls.table.name}
    names |= {column.name for column in cls.key}
    if cls.condition is not None:
        names |= {column.name for column in cls.condition.columns}
    return [column for column in cls.table.columns if column.name in names]


def _with_flag(cls: ObjectClass, rows: str, quote: Quote) -> str:
    """Return the statement of the rows of a class with the column of ``MATCHES``. The condition
    sees only the logged columns, under the name of the class (spec/event-log.md 15.2): inside the
    statement, all other columns are renamed.
    """
    flag, columns, condition = quote(MATCHES.column.name), _columns_of(cls), cls.condition
    if condition is None:
        names = ", ".join(quote(column.name) for column in columns)
        return f"SELECT {names}, 1 AS {flag} FROM {rows}"  # noqa: S608
    seen = {column.name for column in condition.columns}
    pairs = [
        (quote(one.name), quote(one.name if one.name in seen else f"eventlog {place}"))
        for place, one in enumerate(columns)
    ]
    inner = ", ".join(starmap(_renamed, pairs))
    outer = ", ".join(_renamed(within, own) for own, within in pairs)
    # The condition is on separate lines, since it may end in a comment.
    return (
        f"SELECT {outer}, CASE WHEN {AS_WRITTEN} (\n{condition.where}\n) "  # noqa: S608
        f"THEN 1 ELSE 0 END AS {flag} FROM (SELECT {inner} FROM {rows}) {quote(cls.table.name)}"
    )


def _renamed(before: str, after: str) -> str:
    return before if before == after else f"{before} AS {after}"


def _as_type_of(column: Column, own: Column, quote: Quote) -> str:
    """Return SQL of a key column of the main table in the type of the view's column."""
    ref = f"b.{quote(own.name)}"
    return ref if column.type.kind is own.type.kind else f"CAST({ref} AS {column.type.sql})"


def row_value(parts: Iterable[str]) -> str:
    """Return the parts as an SQL row value, or the part itself if there is only one."""
    texts = list(parts)
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def equal(refs: Iterable[str], others: Iterable[str]) -> str:
    """Return an SQL condition that is true if each column in ``refs`` equals its counterpart in
    ``others``.
    """
    return " AND ".join(f"{ref} = {other}" for ref, other in zip(refs, others, strict=True))


def beyond(refs: Sequence[str], bounds: Sequence[str], operator: str = ">") -> str:
    """Return SQL that compares keys column by column. It is for databases that cannot compare row
    values by order, or that use no index for such a comparison.
    """
    pairs = list(zip(refs, bounds, strict=True))
    steps = [
        " AND ".join(
            [*(f"{ref} = {bound}" for ref, bound in pairs[:i]), f"{ref} {operator} {bound}"]
        )
        for i, (ref, bound) in enumerate(pairs)
    ]
    return "(" + " OR ".join(f"({step})" for step in steps) + ")"
