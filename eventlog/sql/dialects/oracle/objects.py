"""The application's tables on Oracle: the catalogue of a schema, objects by their keys, and the
keys after a given key.

The catalogue is read in five statements, whatever the number of tables (spec/xds.md 5, 6.2).
Current rows (spec/event-log.md 7.2, spec/xds.md 4.3) are read by one statement for the class and
one for each child table, since Oracle does not allow large objects or LONG in a UNION. The keys
are bound, as row values of an IN list::

    SELECT TO_CHAR(p."ID", ...), p."BRANCH", p."FNAME"
    FROM "S"."USR" p
    WHERE (p."ID", p."BRANCH") IN ((:k0, :k1), ...)

in chunks of a few fixed sizes, so that the server parses few statements; the last chunk is filled
up with its last key. This needs neither a collection type nor a temporary table, and the server
uses the key's index.
"""

from __future__ import annotations

from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Final

from eventlog.core import table_key
from eventlog.core.catalog import ChildTable, Column, Database, ForeignKey, ObjectClass, Table
from eventlog.core.values import ColumnType, Kind, ValueOptions, converter
from eventlog.sql.dialects.oracle.session import chunks
from eventlog.sql.dialects.oracle.text import (
    Family,
    family,
    is_loggable,
    key_value,
    national_length,
    qualified,
    quote_identifier,
    value_text,
)
from eventlog.sql.dialects.stepwise import KeyedDialect, log_text
from eventlog.sql.port.dialect import NoSuchValue
from eventlog.sql.port.log_operations import Walk
from eventlog.sql.port.sql_files import PlainRow, beyond, grouped, row_value, source_of, statements

SQL: Final = statements(__package__, "reflect.sql")


Rows = Sequence[PlainRow]


class OracleObjects(KeyedDialect):
    """The tables and views of a schema. Columns of types without a text form are left out. All
    spellings of one key are bound as equal values.
    """

    def is_read_back(self, column: Column) -> bool:
        return not is_loggable(column, lob_values=False)

    # Objects by their keys, and keys after the key reached

    key_chunks = staticmethod(chunks)

    def key_column_reader(self, column: Column) -> Callable[[str], object]:
        match column.type.kind:
            case Kind.INTEGER | Kind.EXACT:
                return _number
            case Kind.APPROXIMATE:
                check = converter(column.type, ValueOptions())
                return lambda text: (
                    check(text) if family(column) is not Family.NUMBER else _number(check(text))
                )
            case Kind.BOOLEAN:
                truth = converter(column.type, ValueOptions())
                return lambda text: truth(text) == "true"
            case Kind.BINARY:
                return _bytes
            case Kind.FIXED if family(column) is Family.NATIONAL:
                return partial(_fixed, size=national_length(column) * 2, encoding="utf-16-le")
            case Kind.FIXED:
                return partial(_fixed, size=2000, encoding="utf-8")
            case Kind.DATE | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
                full = converter(column.type, ValueOptions(time_syntax="full"))
                has_fraction = column.type.sql.upper() != "DATE"
                return lambda text: _moment(full(text), has_fraction)
            case _:
                return _character

    def keys_statement(self, walk: Walk, *, continues: bool) -> str:
        texts = [
            f"{_selected(column, ref, is_key=True)} AS t{i}"
            for i, (column, ref) in enumerate(zip(walk.cls.key, self.walk_key(walk), strict=True))
        ]
        order = [f"{value} AS o{i}" for i, value in enumerate(self._ordered(walk))]
        places = ", ".join(f"o{i}" for i, _ in enumerate(order))
        wanted = ", ".join(f"t{i}" for i, _ in enumerate(texts))
        distinct = "DISTINCT " if walk.cls.is_view else ""
        return (
            f"SELECT {wanted} FROM (SELECT {distinct}{', '.join([*texts, *order])}"  # noqa: S608
            f" FROM {self.walk_rows(walk)}"
            f" WHERE {self.walk_condition(walk, continues=continues)}"
            f" ORDER BY {places}) WHERE ROWNUM <= :limit"
        )

    def key_of(self, walk: Walk, row: PlainRow) -> str:
        return "+".join(
            f"{table_key.quote(column.name)}={table_key.quote(log_text(value) or '')}"
            for column, value in zip(walk.cls.key, row, strict=True)
        )

    def walk_rows(self, walk: Walk) -> str:
        return f"{super().walk_rows(walk)} p"

    def walk_key(self, walk: Walk) -> list[str]:
        return [f"p.{quote_identifier(column.name)}" for column in walk.cls.key]

    def _ordered(self, walk: Walk) -> list[str]:
        return [
            _compared(column, ref)
            for column, ref in zip(walk.cls.key, self.walk_key(walk), strict=True)
        ]

    def behind(self, walk: Walk) -> str:
        binds = [bound(column, f":k{i}") for i, column in enumerate(walk.cls.key)]
        return beyond(self._ordered(walk), binds)


# --- the catalogue --------------------------------------------------------------------------------

_KINDS: Final = {
    "FLOAT": (
        Kind.EXACT,
        0,
    ),  # includes REAL and DOUBLE PRECISION: a NUMBER with this many binary digits
    "BINARY_FLOAT": (Kind.APPROXIMATE, 32),
    "BINARY_DOUBLE": (Kind.APPROXIMATE, 64),
    "BOOLEAN": (Kind.BOOLEAN, 0),
    "CHAR": (Kind.FIXED, 0),
    "NCHAR": (Kind.FIXED, 0),
    "VARCHAR2": (Kind.CHARACTER, 0),
    "NVARCHAR2": (Kind.CHARACTER, 0),
    "CLOB": (Kind.CHARACTER, 0),
    "NCLOB": (Kind.CHARACTER, 0),
    "LONG": (Kind.CHARACTER, 0),
    "RAW": (Kind.BINARY, 0),
    "BLOB": (Kind.BINARY, 0),
    "BFILE": (Kind.BINARY, 0),
    "LONG RAW": (Kind.BINARY, 0),
    "DATE": (Kind.TIMESTAMP, 0),
    "ROWID": (Kind.OTHER, 0),
    "UROWID": (Kind.OTHER, 0),
    "XMLTYPE": (Kind.OTHER, 0),
    "JSON": (Kind.OTHER, 0),
}
_SIZED: Final = frozenset({"CHAR", "NCHAR", "VARCHAR2", "NVARCHAR2", "RAW", "UROWID"})


def column_type(
    data_type: str, length: int, precision: int | None, scale: int | None
) -> ColumnType | None:
    """Return the column type of a row of ``ALL_TAB_COLS``; None for a type that has no text form,
    such as an object type.

    ``length`` is in bytes; for national texts these are bytes of UTF-16. ``ColumnType.sql``
    contains the length of every type that has one, in bytes, whatever the declared unit is.
    """
    if data_type == "NUMBER":
        if scale is None:
            return ColumnType(Kind.EXACT, 0, "NUMBER")
        return ColumnType(
            Kind.INTEGER if scale == 0 else Kind.EXACT, 0, f"NUMBER({precision or '*'},{scale})"
        )
    if data_type.startswith("TIMESTAMP"):
        return ColumnType(
            Kind.TIMESTAMPTZ if data_type.endswith("TIME ZONE") else Kind.TIMESTAMP, 0, data_type
        )
    if data_type.startswith("INTERVAL"):
        return ColumnType(Kind.OTHER, 0, data_type)
    if data_type not in _KINDS:
        return None
    kind, bits = _KINDS[data_type]
    return ColumnType(kind, bits, f"{data_type}({length})" if data_type in _SIZED else data_type)


def fingerprint_statement(size: int) -> str:
    """Return SQL of a text that changes when columns or keys of ``size`` tables change: two hashes
    of the tables' descriptions.
    """
    names = ", ".join(f":t{n}" for n in range(size))
    return SQL["fingerprint"].replace("{tables}", names)


def database(
    owner: str, columns: Rows, keys: Rows, unique_indexes: Rows, foreign_keys: Rows
) -> Database:
    """Return the catalogue of a schema from the rows that the statements of reflect.sql return."""
    unique, indexes, foreign = map(_grouped, (keys, unique_indexes, foreign_keys))
    tables = []
    for name, of_table in groupby(columns, itemgetter(0)):
        rows = list(of_table)
        present = tuple(
            Column(column, type_)
            for _, _, column, data_type, length, precision, scale, _ in rows
            if (type_ := column_type(data_type, length, precision, scale)) is not None
        )
        names = [column.name for column in present]
        # Keys may contain virtual columns, and columns of types without a text form;
        # ``names`` has neither.
        constraints = _within(unique[name], 4, names)
        primary = next((key for key in constraints if key[0][2] == "P"), None)
        tables.append(
            Table(
                name=name,
                kind="view" if rows[0][1] == "view" else "table",
                columns=present,
                primary_key=() if primary is None else _names(primary, 4),
                foreign_keys=_foreign_keys(owner, _within(foreign[name], 4, names), names),
                unique_keys=tuple(
                    [_names(key, 4) for key in constraints if key[0][3] != "DEFERRABLE"]
                    + [_names(index, 2) for index in _within(indexes[name], 2, names)]
                ),
                key_deferrable=primary is not None and primary[0][3] == "DEFERRABLE",
                partitioned=rows[0][7] == "YES",
            )
        )
    return Database("oracle", owner, tuple(tables))


def _grouped(rows: Rows) -> defaultdict[str, list[Rows]]:
    """Group rows by their first two fields: the table, and the key to which the row belongs."""
    return grouped((table, list(key)) for (table, _), key in groupby(rows, itemgetter(0, 1)))


def _within(keys: Sequence[Rows], field: int, names: Collection[str]) -> list[Rows]:
    """Return the keys whose columns are all among the names."""
    return [key for key in keys if all(name in names for name in _names(key, field))]


def _names(rows: Rows, field: int) -> tuple[str, ...]:
    return tuple(row[field] for row in rows)


def _foreign_keys(owner: str, keys: Sequence[Rows], order: Sequence[str]) -> tuple[ForeignKey, ...]:
    foreign = [
        ForeignKey(
            columns=_names(rows, 4),
            table=rows[0][3] if rows[0][2] == owner else f"{rows[0][2]}.{rows[0][3]}",
            ref_columns=_names(rows, 5),
            deferrable=rows[0][6] == "DEFERRABLE",
        )
        for rows in keys
    ]
    return tuple(sorted(foreign, key=lambda key: order.index(key.columns[0])))


# --- the statement that reads objects -------------------------------------------------------------


@lru_cache(maxsize=512)
def values_statement(
    schema: str | None,
    cls: ObjectClass,
    child: ChildTable | None,
    values: tuple[Column, ...],
    size: int,
) -> str:
    """Return the statement that reads the keys and values of rows by ``size`` keys.

    Names are quoted, and keys are bound.
    """
    columns = (
        cls.key
        if child is None
        else tuple(child.table.column(name) for name in child.owner_columns)
    )
    refs = [f"p.{quote_identifier(column.name)}" for column in columns]
    texts = [_selected(column, ref, is_key=True) for column, ref in zip(columns, refs, strict=True)]
    texts += [
        _selected(column, f"p.{quote_identifier(column.name)}", is_key=False) for column in values
    ]
    compared = [_compared(column, ref) for column, ref in zip(columns, refs, strict=True)]
    keys = ([bound(column, f":k{n}_{i}") for i, column in enumerate(columns)] for n in range(size))
    wanted = f"{row_value(compared)} IN ({', '.join(map(row_value, keys))})"
    table = cls.table if child is None else child.table
    relation = source_of(
        cls,
        lambda one: qualified(schema, table.name if one is cls.table else one.name),
        values,
        quote_identifier,
    )
    return f"SELECT {', '.join(texts)}\nFROM {relation} p\nWHERE {wanted}"


def _selected(column: Column, ref: str, *, is_key: bool) -> str:
    """Return SQL that reads a column; ``log_text`` converts the value to log text."""
    if column.type.kind is Kind.BINARY:
        return ref  # read as bytes; Python makes the base64
    if family(column) in (Family.NATIONAL, Family.NCLOB) and not is_key:
        return ref  # complete, whatever characters the database character set has
    return key_value(column, ref) if is_key else value_text(column, ref)


def _compared(column: Column, ref: str) -> str:
    """Return SQL of a key column in the form in which it is compared: as text, if some texts cannot
    be converted to its type.
    """
    return key_value(column, ref) if column.type.kind is Kind.OTHER else ref


def bound(column: Column, bind: str) -> str:
    """Return SQL that converts a bound key value to the column's type, so that the key's index is
    used.
    """
    match column.type.kind:
        case Kind.FIXED:
            # A CHAR of any length, since two CHARs are compared without trailing blanks.
            if family(column) is Family.NATIONAL:
                # With the declared length: the national character set decides whether NCHAR(1000)
                # is possible (ORA-00910).
                return f"CAST({bind} AS NCHAR({national_length(column)}))"
            return f"CAST({bind} AS CHAR(2000 BYTE))"
        case Kind.APPROXIMATE if family(column) is Family.FLOAT:
            return (
                f"TO_BINARY_FLOAT({bind})"  # 0.1 as a double is another number than 0.1 as a float
            )
        case Kind.APPROXIMATE if family(column) is Family.DOUBLE:
            return f"TO_BINARY_DOUBLE({bind})"
        case Kind.DATE:
            return f"TO_DATE({bind}, 'YYYY-MM-DD')"
        case Kind.TIMESTAMP if column.type.sql.upper() == "DATE":
            return f"TO_DATE({bind}, 'YYYY-MM-DD HH24:MI:SS')"
        case Kind.TIMESTAMP:
            return f"TO_TIMESTAMP({bind}, 'YYYY-MM-DD HH24:MI:SS.FF9')"
        case Kind.TIMESTAMPTZ:
            return f"FROM_TZ(TO_TIMESTAMP({bind}, 'YYYY-MM-DD HH24:MI:SS.FF9'), 'UTC')"
        case _:
            return bind


# --- bound values ---------------------------------------------------------------------------------

_MAX_BYTES: Final = 4000
_MAX_PAIRS: Final = 20
"""The maximum number of base-100 digits of a NUMBER. A NUMBER has at most 39 or 40 decimal digits,
depending on how they are divided into pairs.
"""
_EXPONENTS: Final = range(-130, 126)


def _number(text: str) -> int | Decimal:
    number = Decimal(text.strip())
    if not number.is_finite():
        raise NoSuchValue
    # normalize() is not used, since it rounds to the digits of its context.
    digits = "".join(map(str, number.as_tuple().digits))
    # The decimal point is between two pairs, so the first digit is alone in its pair if the
    # exponent is even.
    pairs = (len(digits.strip("0")) + 2 - number.adjusted() % 2) // 2
    if digits.strip("0") and (pairs > _MAX_PAIRS or number.adjusted() not in _EXPONENTS):
        raise NoSuchValue
    return int(number) if number == number.to_integral_value() else number


def _character(text: str) -> str:
    if not text or len(text.encode()) > _MAX_BYTES:
        raise NoSuchValue  # the empty text is NULL, which is not a key
    return text


def _fixed(text: str, size: int, encoding: str) -> str:
    trimmed = text.rstrip(" ") or " "
    if len(trimmed.encode(encoding)) > size:
        raise NoSuchValue
    return trimmed


def _bytes(text: str) -> bytes:
    value = b64decode(text)
    if len(value) > 2000:
        raise NoSuchValue
    return value


def _moment(text: str, has_fraction: bool) -> str:
    seconds, has_time, fraction = text.partition(".")
    if not has_time:
        return text
    if not has_fraction and fraction != "0":
        raise NoSuchValue
    return f"{seconds}.{fraction:0<9}" if has_fraction else seconds
