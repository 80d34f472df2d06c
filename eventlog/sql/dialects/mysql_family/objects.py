"""The application's tables on MariaDB and MySQL: the catalogue of a database, objects by their
keys, and the keys after a given key.

The catalogue is read in three statements, whatever the number of tables (spec/xds.md 5, 6.2).
Current rows (spec/event-log.md 7.2, spec/xds.md 4.3) are read by one statement for the class and
one for each child table::

    SELECT CAST(p.`id` ...), p.`photo`, c.`phoneno`
    FROM `usr` AS p JOIN `usr_phone` AS c ON c.`usr_id` = p.`id`
    WHERE (p.`id`, p.`branch`) IN ((1, 'N'), (2, 'W'))

The server compares by its collation. This module then leaves out rows whose text differs from the
requested key.
"""

from __future__ import annotations

import math
import struct
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, Final, TypeVar

from sqlalchemy import Row

from eventlog.core.catalog import ChildTable, Column, ForeignKey, ObjectClass, Table
from eventlog.core.values import ColumnType, Kind, ValueOptions, converter
from eventlog.sql.dialects.mysql_family.text import (
    bindable,
    field,
    fields,
    key_text,
    key_value,
    quote_identifier,
    value_text,
)
from eventlog.sql.dialects.stepwise import KeyedDialect
from eventlog.sql.port.dialect import NoSuchValue
from eventlog.sql.port.log_operations import Walk
from eventlog.sql.port.sql_files import beyond, equal, in_parts, row_value, source_of

T = TypeVar("T")


_KEYS: Final = 500
"""The number of keys in one statement."""


class FamilyObjects(KeyedDialect):
    """The tables and views of the database in the URL. A schema of the server is a database, so a
    class has no schema (spec/xds.md 5.1).

    A walk over a table is ordered by the values of its key. A walk over a view, in which several
    rows may have one key, is ordered by the canonical text of the key.
    """

    byte_collation: ClassVar[str]
    """The collation of utf8mb4 that compares bytes, including trailing blanks."""

    # Objects by their keys, and keys after the key reached

    walks_views_by_text = True

    key_chunks = staticmethod(partial(in_parts, size=_KEYS))

    def key_column_reader(self, column: Column) -> Callable[[str], object]:
        match column.type.kind:
            case Kind.INTEGER:
                return _sure(int)
            case Kind.EXACT:
                return _sure(_decimal)
            case Kind.APPROXIMATE:
                return _sure(_single if column.type.bits == 32 else _double)
            case Kind.BOOLEAN:
                boolean = converter(column.type, ValueOptions())
                return lambda text: int(boolean(text) in ("1", "true"))
            case Kind.BINARY:
                return lambda text: b64decode(text, validate=True)
            case Kind.FIXED:
                return _sure(lambda text: _encodable(text).rstrip(" "))
            case Kind.DATE | Kind.TIME | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
                return _moment
            case _:
                return _sure(_encodable)

    def behind(self, walk: Walk) -> str:
        refs = self.walk_key(walk)
        if walk.cls.is_view:
            reached = f"CONVERT({self.bind('position')} USING utf8mb4)"
            return f"{self.walked(walk, refs)} > {reached} COLLATE {self.byte_collation}"
        return beyond(refs, [self.bind(f"k{i}") for i in range(len(refs))])

    def walked(self, walk: Walk, refs: Sequence[str]) -> str:
        key = key_text(walk.cls.key, refs)
        return f"CONVERT({key} USING utf8mb4) COLLATE {self.byte_collation}"


# --- the catalogue --------------------------------------------------------------------------------

_KINDS: Final[Mapping[str, tuple[Kind, int, int]]] = {
    "tinyint": (Kind.INTEGER, 16, 16),
    "smallint": (Kind.INTEGER, 16, 32),
    "mediumint": (Kind.INTEGER, 32, 32),
    "int": (Kind.INTEGER, 32, 64),
    "bigint": (Kind.INTEGER, 64, 0),
    "year": (Kind.INTEGER, 16, 16),
    "float": (Kind.APPROXIMATE, 32, 32),
    "double": (Kind.APPROXIMATE, 64, 64),
    "char": (Kind.FIXED, 0, 0),
    **dict.fromkeys(
        ("varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set"),
        (Kind.CHARACTER, 0, 0),
    ),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), (Kind.BINARY, 0, 0)
    ),
    "date": (Kind.DATE, 0, 0),
    "time": (Kind.TIME, 0, 0),
    "datetime": (Kind.TIMESTAMP, 0, 0),
    "timestamp": (Kind.TIMESTAMPTZ, 0, 0),
    "uuid": (Kind.UUID, 0, 0),
}
"""The kind of each type, and its number of bits if it is signed and if it is unsigned; 0 = the type
has no range.
"""


def column_type(word: str, declared: str) -> ColumnType:
    """Return the column type of a type from its first word and its declaration, such as
    ``bigint(20) unsigned``.
    """
    word = word.lower()
    if word == "bit":
        return ColumnType(
            Kind.BOOLEAN if declared.lower() == "bit(1)" else Kind.BINARY, 0, declared
        )
    if word == "decimal":
        scale = declared.partition("(")[2].partition(")")[0].partition(",")[2]
        return ColumnType(Kind.EXACT if scale.strip("0") else Kind.INTEGER, 0, declared)
    kind, signed, unsigned = _KINDS.get(word, (Kind.OTHER, 0, 0))
    return ColumnType(kind, unsigned if "unsigned" in declared.lower() else signed, declared)


_COMPARED_BY_BYTES: Final = ("_nopad_bin", "_0900_bin", "binary")


def table_of(
    name: str, columns: Sequence[Row[Any]], unique: Sequence[Row[Any]], foreign: Sequence[Row[Any]]
) -> Table:
    present = tuple(
        # A collation that ignores trailing blanks or case compares different texts as equal.
        Column(
            row.name,
            column_type(row.word, row.type),
            row.coll is None or row.coll.endswith(_COMPARED_BY_BYTES),
        )
        for row in columns
        if row.validity is None
    )
    names = [column.name for column in present]
    # MariaDB adds a declared ROW END to every unique key. It is the same in all current rows.
    row_ends = {row.name for row in columns if row.validity == "ROW END"}
    primary: tuple[str, ...] = ()
    keys: list[tuple[str, ...]] = []
    for index_name, of_index in groupby(unique, attrgetter("index_name")):
        rows = [row for row in of_index if row.name not in row_ends]
        key = tuple(row.name for row in rows)
        if not set(key) <= set(names):
            continue
        if index_name == "PRIMARY":
            # The key covers only a prefix of the values, so it does not identify rows.
            primary = key if all(row.sub_part is None for row in rows) else ()
        if all(row.sub_part is None for row in rows):
            keys.append(key)
    return Table(
        name=name,
        kind="view" if columns[0].kind == "view" else "table",
        columns=present,
        primary_key=primary,
        foreign_keys=tuple(
            sorted(_foreign_keys(foreign, names), key=lambda key: names.index(key.columns[0]))
        ),
        unique_keys=tuple(sorted(keys)),
    )


def _foreign_keys(rows: Iterable[Row[Any]], names: Collection[str]) -> Iterator[ForeignKey]:
    for _, of_key in groupby(rows, attrgetter("constraint_name")):
        pairs = list(of_key)
        columns = tuple(row.column_name for row in pairs)
        if set(columns) <= set(names):
            first = pairs[0]
            table = (
                first.ref_table
                if first.ref_schema == first.home
                else f"{first.ref_schema}.{first.ref_table}"
            )
            yield ForeignKey(columns, table, tuple(row.ref_column for row in pairs))


# --- the statement that reads objects -------------------------------------------------------------


@lru_cache(maxsize=512)
def values_statement(
    _schema: str | None,
    cls: ObjectClass,
    child: ChildTable | None,
    values: tuple[Column, ...],
    size: int,
) -> str:
    """Return the statement that reads the keys and values of rows by ``size`` keys.

    Names are quoted, and keys are bound.
    """
    rows = source_of(cls, lambda one: quote_identifier(one.name), values, quote_identifier)
    row, source = "p", f"{rows} AS p"
    if child is not None:
        # The columns are compared by their collation, as the foreign key does. The text of the key
        # is the owner's.
        owners = [f"c.{quote_identifier(owner)}" for owner in child.owner_columns]
        owned = equal(fields("p", cls.key), owners)
        row, source = "c", f"{source}\nJOIN {quote_identifier(child.table.name)} AS c ON {owned}"
    keys = fields("p", cls.key)
    texts = [_selected(column, ref, is_key=True) for column, ref in zip(cls.key, keys, strict=True)]
    texts += [_selected(column, field(row, column), is_key=False) for column in values]
    statement = bindable(f"SELECT {', '.join(texts)}\nFROM {source}\nWHERE {row_value(keys)} IN ")
    wanted = ", ".join(row_value([f"%(k{n}_{i})s" for i in range(len(keys))]) for n in range(size))
    return f"{statement}({wanted})"


@lru_cache(maxsize=512)
def range_statement(
    cls: ObjectClass, values: tuple[Column, ...], *, continues: bool, ends: bool
) -> str:
    """Return the statement of ``range_reader``. With ``continues`` the key before the range is
    bound, as ``behind0`` and so on; with ``ends`` the last key is bound, as ``last0`` and so on.

    Names are quoted, and keys are bound.
    """
    refs = [bindable(field("p", column)) for column in cls.key]
    texts = [bindable(_selected(column, field("p", column), is_key=False)) for column in values]
    conditions = []
    if continues:
        conditions.append(beyond(refs, [f"%(behind{i})s" for i in range(len(refs))]))
    if ends:
        lasts = [f"%(last{i})s" for i in range(len(refs))]
        conditions.append(f"({beyond(refs, lasts, '<')} OR ({equal(refs, lasts)}))")
    return (
        f"SELECT {', '.join([*refs, *texts])}\n"
        f"FROM {bindable(quote_identifier(cls.table.name))} AS p\n"
        f"WHERE {' AND '.join(conditions) or '1 = 1'}\nORDER BY {', '.join(refs)}\n"
        "LIMIT %(limit)s"
    )


def _selected(column: Column, ref: str, *, is_key: bool) -> str:
    if column.type.kind is Kind.BINARY:
        return f"BINARY {ref}"  # read as bytes; Python makes the base64
    return key_value(column, ref) if is_key else value_text(column, ref)


# --- bound values ---------------------------------------------------------------------------------


def _sure(read: Callable[[str], object]) -> Callable[[str], object]:
    """Return a reader that raises NoSuchValue for a text that the type cannot have."""

    def reader(text: str) -> object:
        try:
            return read(text)
        except (ValueError, InvalidOperation, OverflowError, struct.error) as error:
            raise NoSuchValue from error

    return reader


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise NoSuchValue
    return number


def _double(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NoSuchValue
    return number


def _single(text: str) -> float:
    """Return the number that a FLOAT stores for a text, as a double. The server compares a FLOAT as
    a double.
    """
    (number,) = struct.unpack("<f", struct.pack("<f", _double(text)))
    return float(number)


def _encodable(text: str) -> str:
    text.encode()
    return text


def _moment(text: str) -> str:
    """Return a date or time in one uniform form; the session's zone is UTC."""
    seconds, _, fraction = text.removesuffix("Z").partition(".")
    fraction = fraction.rstrip("0")
    return f"{seconds}.{fraction}" if fraction else seconds
