"""The SQL types of change tables that we create, by dialect (spec/qlik.md 1.1).

SQLite has no decimals, dates or times of its own: such columns are text there, in the forms of files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql
from sqlalchemy.types import TypeEngine

from eventlog.qlik.change_rows import TEXT_LENGTHS
from eventlog.qlik.columns import QlikColumn
from eventlog.qlik.masks import CAPACITY
from eventlog.qlik.values import Convert, text_writer, timestamp_text, typed_writer

_AS_TEXT: Final = {"sqlite": frozenset({"NUMERIC", "UINT8", "DATE", "TIME", "DATETIME"})}
_LONGEST_VARCHAR: Final = 4000


class _Timestamp6(sa.types.UserDefinedType[Any]):
    """TIMESTAMP(6), which Oracle's own type of SQLAlchemy cannot say."""

    cache_ok = True

    def get_col_spec(self, **options: Any) -> str:
        return "TIMESTAMP(6)"


def _moment() -> TypeEngine[Any]:
    return (
        sa.DateTime()
        .with_variant(postgresql.TIMESTAMP(precision=6), "postgresql")
        .with_variant(_Timestamp6(), "oracle")
        .with_variant(mssql.DATETIME2(6), "mssql")  # type: ignore[no-untyped-call]
        .with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
        .with_variant(sa.Text(), "sqlite")
    )


def _binary(length: int) -> TypeEngine[Any]:
    return (
        sa.LargeBinary(length)
        .with_variant(oracle.RAW(length), "oracle")
        .with_variant(sa.VARBINARY(length), "mssql", "mysql", "mariadb")
    )


def _text(length: int) -> TypeEngine[Any]:
    return sa.String(length).with_variant(sa.Text(), "sqlite")


def header_type(header: str) -> TypeEngine[Any]:
    """The type of a header column, by its name without prefix."""
    match header:
        case "change_mask":
            return _binary(CAPACITY // 8)
        case "timestamp":
            return _moment()
        case _:
            return _text(TEXT_LENGTHS[header])


def data_type(column: QlikColumn) -> TypeEngine[Any]:
    """The type of a data column."""
    match column.type:
        case "DATETIME":
            return _moment()
        case "DATE":
            return sa.Date().with_variant(sa.Text(), "sqlite")
        case "TIME":
            return sa.Time().with_variant(sa.Text(), "sqlite").with_variant(mysql.TIME(fsp=6), "mysql", "mariadb")
        case "NUMERIC":
            # Without known digits a database would take its own default, which may be too few.
            number: sa.Numeric[Any] = sa.Numeric(column.precision or None, column.scale if column.precision else None)
            return number.with_variant(sa.Text(), "sqlite")
        case "UINT8":
            return sa.Numeric(20, 0).with_variant(sa.Text(), "sqlite")
        case "BYTES" if 0 < column.length <= _LONGEST_VARCHAR // 2:
            return _binary(column.length)
        case "BYTES" | "BLOB":
            return sa.LargeBinary()
        case "STRING" | "WSTRING" if 0 < column.length <= _LONGEST_VARCHAR:
            return _text(column.length)
        case "REAL4":
            return sa.REAL()
        case "REAL8":
            return sa.Double()
        case "BOOLEAN":
            return sa.Boolean()
        case "INT1" | "INT2" | "UINT1":
            return sa.SmallInteger()
        case "INT4" | "UINT2":
            return sa.Integer()
        case "INT8" | "UINT4":
            return sa.BigInteger()
        case _:
            return sa.Text()


def column_writer(dialect: str, column: QlikColumn) -> Convert:
    """The function that gives what the driver is to bind for the values of a data column. It raises ValueRange."""
    is_text = column.type in _AS_TEXT.get(dialect, ())
    return text_writer(column) if is_text else typed_writer(column)


def moment_writer(dialect: str) -> Callable[[Any], Any]:
    """The function that gives what the driver is to bind for a header timestamp."""
    return timestamp_text if dialect in _AS_TEXT else lambda moment: moment
