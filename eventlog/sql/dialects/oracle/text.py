"""SQL text of Oracle: names, a column's value as log text, the change test, keys (spec/triggers.md
4, 5, 6, 6.1).

A value has one text whatever the session's NLS settings are. Each conversion states decimal sign
and calendar, and texts are compared by their bytes, since ``<>`` follows NLS_COMP.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from eventlog.core.catalog import Column
from eventlog.core.values import Kind
from eventlog.errors import ConfigError, DatabaseError
from eventlog.sql.log_table import LogTable
from eventlog.sql.port import sql_files as statements
from eventlog.sql.port.sql_files import key_parts, literal, quoted_unless

MAX_IDENTIFIER: Final = 128
"""The maximum length of a name in bytes, since Oracle 12.2."""
_UPPER: Final = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
CONDITION_TOKEN: Final = re.compile(
    r"""[nN]?[qQ]'(?:\[.*?\]'|\(.*?\)'|\{.*?\}'|<.*?>'|(?P<mark>[^\s\[({<]).*?(?P=mark)')"""
    r"""|'[^']*+'|"[^"]*+"|(?![nN]?[qQ]')[^\W\d][\w$#]*+"""
    r"|(?P<nothing>\s+|--[^\n]*+|/\*.*?\*/)|(?P<sign>[();])|(?!['\"]|/\*|[nN]?[qQ]').",
    re.DOTALL,
)
"""What matches one token in a condition of a user (``why_not_one``)."""


def quote_identifier(name: str) -> str:
    """Return a name as an SQL identifier, always quoted (spec/triggers.md 9).

    Raises ConfigError for a name with a quotation mark, which Oracle does not allow.
    """
    if not name or '"' in name or "\0" in name:
        raise ConfigError(
            f"{name!r} contains a quotation mark, which Oracle does not allow in names: correct it"
        )
    return statements.quote_identifier(name)


def fold_name(name: str) -> str:
    """Return a name as Oracle stores it: unchanged if in double quotes, otherwise with a to z in
    upper case (spec/triggers.md 7.2).
    """
    if len(name) > 2 and name[0] == name[-1] == '"':
        return name[1:-1]
    return name.translate(_UPPER)


def spelled(name: str) -> str:
    """Return a name as Oracle stores it. The argument is the name in SQLAlchemy or in the
    configuration, in which a name in lower case is a name without case.

    A name that SQLAlchemy marks as quoted stays unchanged.
    """
    if getattr(name, "quote", None) or name != name.lower():
        return str(name)
    return str(name).upper()


def qualified(schema: str | None, name: str) -> str:
    """Return a name with its schema as SQL.

    Oracle looks for a name without a schema in the session's current schema.
    """
    return statements.qualified(schema, name, quote_identifier)


def new_time(*, is_zoned: bool) -> str:
    """Return SQL of the present time in the form that event_time takes."""
    # A zoned column gets a value with its zone; a time without a zone would be read in the
    # session's zone.
    return "SYSTIMESTAMP" if is_zoned else UTC_NOW


UTC_NOW: Final = "SYS_EXTRACT_UTC(SYSTIMESTAMP)"


def short_integer(ref: str, digits: int) -> str:
    """Return SQL of an event type, or of 0 if the event type is invalid. The number has so few
    digits that the driver returns an integer.
    """
    return (
        f"CAST(CASE WHEN ABS({ref}) < 1000 THEN {ref} WHEN {ref} IS NOT NULL THEN 0 END AS "
        f"NUMBER({digits}))"
    )


QUOTE_FUNCTION: Final = "proc_{}_quote"
BASE64_FUNCTION: Final = "proc_{}_base64"
NUMBERS: Final = "seq_{}_1"
"""The name patterns of a log's functions, and of the sequence that numbers its rows
(``LogTable.own_name``).
"""


def quote_function(log: LogTable, home: str | None = None) -> str:
    """Return the SQL name of the function that quotes a text in a key, as called from the schema
    ``home``.
    """
    return _function(QUOTE_FUNCTION, log, home)


def base64_function(log: LogTable, home: str | None = None) -> str:
    """Return the SQL name of the function that returns the base64 of a RAW, as called from the
    schema ``home``.
    """
    return _function(BASE64_FUNCTION, log, home)


def _function(pattern: str, log: LogTable, home: str | None) -> str:
    # The schema is left out if it is the caller's: in EVENTLOG.PROC_EVENTLOG_QUOTE, PL/SQL resolves
    # EVENTLOG to the table of that name instead of the schema (PLS-00302).
    return qualified(log.schema if log.schema != home else None, log.own_name(pattern))


def number_sequence(log: LogTable) -> str:
    """Return the SQL name of the sequence that numbers the rows of the log."""
    return qualified(log.schema, log.own_name(NUMBERS))


def joined(separator: str, parts: Iterable[str]) -> str:
    """Join parts into lines of a few hundred characters; SQL*Plus accepts at most 2499."""
    lines = [""]
    for position, part in enumerate(parts):
        if len(lines[-1]) > _LINE:
            lines.append("    ")
        lines[-1] += (separator if position else "") + part
    return "\n".join(lines)


_LINE: Final = 400


# --- types ----------------------------------------------------------------------------------------


class Family(StrEnum):
    """The PL/SQL type of the values of a column. Parameters are declared with this type, without a
    size.
    """

    NUMBER = "NUMBER"
    FLOAT = "BINARY_FLOAT"
    DOUBLE = "BINARY_DOUBLE"
    TEXT = "VARCHAR2"
    NATIONAL = "NVARCHAR2"
    RAW = "RAW"
    BOOLEAN = "BOOLEAN"
    # These are the unconstrained subtypes, since the plain types have only six digits of a second.
    MOMENT = "TIMESTAMP_UNCONSTRAINED"
    ZONED = "TIMESTAMP_TZ_UNCONSTRAINED"
    MONTHS = "YMINTERVAL_UNCONSTRAINED"
    SECONDS = "DSINTERVAL_UNCONSTRAINED"
    CLOB = "CLOB"
    NCLOB = "NCLOB"
    UNREADABLE = "unreadable"
    """LONG, LONG RAW, BLOB and similar types: a trigger can only check whether an UPDATE names the
    column.
    """


_BY_WORD: Final = {
    "BINARY_FLOAT": Family.FLOAT,
    "BINARY_DOUBLE": Family.DOUBLE,
    "NCHAR": Family.NATIONAL,
    "NVARCHAR2": Family.NATIONAL,
    "CLOB": Family.CLOB,
    "TEXT": Family.CLOB,
    "NCLOB": Family.NCLOB,
    "LONG": Family.UNREADABLE,
    "BLOB": Family.UNREADABLE,
    "BFILE": Family.UNREADABLE,
    "XMLTYPE": Family.UNREADABLE,
    "JSON": Family.UNREADABLE,
}
_BY_KIND: Final = {
    Kind.INTEGER: Family.NUMBER,
    Kind.EXACT: Family.NUMBER,
    Kind.APPROXIMATE: Family.NUMBER,
    Kind.BOOLEAN: Family.BOOLEAN,
    Kind.BINARY: Family.RAW,
    Kind.DATE: Family.MOMENT,
    Kind.TIMESTAMP: Family.MOMENT,
    Kind.TIMESTAMPTZ: Family.ZONED,
}


def family(column: Column) -> Family:
    """Return the family of a column. The column has a type of Oracle, or a generic type of a
    catalogue file (spec/xds.md 9).
    """
    sql = column.type.sql.upper()
    word = re.split(r"[ (]", sql, maxsplit=1)[0]
    if word == "INTERVAL":
        return Family.MONTHS if " YEAR" in sql else Family.SECONDS
    return _BY_WORD.get(word) or _BY_KIND.get(column.type.kind, Family.TEXT)


def _length(column: Column) -> int:
    """Return the declared maximum length of a value in bytes, 0 if there is none."""
    size = re.search(r"\((\d+)", column.type.sql)
    return int(size[1]) if size else 0


_MAX_RAW: Final = 24_000
"""The number of bytes whose base64 fits in the longest VARCHAR2 of PL/SQL."""
_MAX_NCHAR: Final = 666
"""How many characters fit in 2000 bytes at three bytes each, as in national texts in UTF8."""
_SHORT_TEXT: Final = 70
"""The number of bytes that is enough for every number, moment, interval and ROWID. A number has at
most 64 characters in the format TM9; in a key it may also have a leading 0.
"""
SQL_TEXT: Final = 4000
"""The number of bytes of the longest text that SQL accepts without a LOB, whatever MAX_STRING_SIZE
is.
"""


def is_loggable(column: Column, lob_values: bool) -> bool:
    """Return True if the row styles ``field`` and ``remove_all`` log the value itself
    (spec/triggers.md 6.1).
    """
    match family(column):
        case Family.UNREADABLE:
            return False
        case Family.CLOB | Family.NCLOB:
            return lob_values
        case Family.RAW:
            return _length(column) <= _MAX_RAW
        case _:
            return True


def is_locator(column: Column) -> bool:
    """Return True if a trigger gets a large object's locator, which is valid for one row only."""
    return family(column) in (Family.CLOB, Family.NCLOB)


def text_bytes(column: Column) -> int | None:
    """Return the maximum number of bytes of a value's log text; None if the type sets no limit."""
    match family(column):
        case Family.CLOB | Family.NCLOB | Family.UNREADABLE:
            return None
        case Family.RAW:
            return (_length(column) + 2) // 3 * 4 or None  # base64
        case Family.NATIONAL:
            return _length(column) * 3 // 2 or None  # UTF-16 to UTF-8
        case Family.TEXT if column.type.sql.upper() == "ROWID":
            return _SHORT_TEXT
        case Family.TEXT if column.type.sql == column.type.sql.lower():
            # For a type from a catalogue file (spec/xds.md 9) the length is in characters.
            return _length(column) * 4 or None
        case Family.TEXT:
            return _length(column) or None
        case _:
            return _SHORT_TEXT


def national_length(column: Column) -> int:
    """Return the declared number of characters of a national text; without a declaration, the
    largest possible number for NCHAR.
    """
    return _length(column) // 2 or _MAX_NCHAR


def is_long(column: Column) -> bool:
    """Return True if the text of a value may have more bytes than SQL accepts without a LOB."""
    return is_locator(column) or (text_bytes(column) or 0) > SQL_TEXT


# --- values ---------------------------------------------------------------------------------------

_DOT: Final = literal("NLS_NUMERIC_CHARACTERS='.,'")
_GREGORIAN: Final = literal("NLS_CALENDAR=GREGORIAN")
_DAY: Final = "SYYYY-MM-DD"
_SECOND: Final = f"{_DAY} HH24:MI:SS"
_NANOSECOND: Final = f"{_SECOND}.FF9"


def value_text(column: Column, ref: str, base64: str | None = None) -> str:
    """Return SQL of a column's value as log text (spec/triggers.md 6). The SQL returns NULL for
    NULL, and is valid in PL/SQL, too.

    ``ref`` is SQL of the column reference, ``base64`` the SQL name of the function for binary
    values. Without the function, binary values may have at most 1440 bytes, which SQL converts in
    one piece.
    """
    match column.type.kind:
        case Kind.INTEGER | Kind.EXACT | Kind.APPROXIMATE:
            return f"TO_CHAR({ref}, 'TM9', {_DOT})"
        case Kind.BOOLEAN:
            return f"CASE WHEN {ref} THEN 'true' WHEN NOT {ref} THEN 'false' END"
        case Kind.DATE:
            return _moment(ref, _DAY)
        case Kind.TIMESTAMP:
            return _moment(ref, _SECOND if column.type.sql.upper() == "DATE" else _NANOSECOND)
        case Kind.TIMESTAMPTZ:
            return _moment(f"SYS_EXTRACT_UTC({ref})", f'{_NANOSECOND}"Z"')
        case Kind.BINARY if base64 is not None:
            return f"{base64}({ref})"
        case Kind.BINARY:
            lines = f"UTL_RAW.CAST_TO_VARCHAR2(UTL_ENCODE.BASE64_ENCODE({ref}))"
            return f"REPLACE(REPLACE({lines}, CHR(13)), CHR(10))"
        case Kind.OTHER if column.type.sql.upper() == "XMLTYPE":
            return f"XMLSERIALIZE(CONTENT {ref} AS CLOB)"
        case Kind.OTHER if column.type.sql.upper() == "JSON":
            return f"JSON_SERIALIZE({ref} RETURNING CLOB)"
        case Kind.OTHER if family(column) in (Family.MONTHS, Family.SECONDS):
            return _interval(ref, family(column))
        case Kind.OTHER if column.type.sql.upper() == "ROWID":
            return f"ROWIDTOCHAR({ref})"
        case Kind.OTHER if column.type.sql.upper().startswith("UROWID"):
            return f"CAST({ref} AS VARCHAR2(4000))"
        # It is explicitly converted to the database character set, so that the server does not
        # choose one.
        case _ if family(column) is Family.NATIONAL:
            return f"TO_CHAR({ref})"
        case _ if family(column) is Family.NCLOB:
            return f"TO_CLOB({ref})"
        case _:
            return ref


def _interval(ref: str, of: Family) -> str:
    # Part by part: TO_CHAR would write as many digits as the type declares, and the types in a
    # trigger have no size.
    parts, zero = (
        ([("YEAR", "FM999999990"), ("-MONTH", "FM00")], "MONTH")
        if of is Family.MONTHS
        else (
            [
                ("DAY", "FM999999990"),
                (" HOUR", "FM00"),
                (":MINUTE", "FM00"),
                (":SECOND", "FM00.000000000"),
            ],
            "SECOND",
        )
    )
    text = f"CASE WHEN {ref} < INTERVAL '0' {zero} THEN '-' ELSE '+' END"
    for part, pattern in parts:
        name = part.lstrip("- :")
        if name != part:
            text += f" || {literal(part[0])}"
        text += f" || TO_CHAR(ABS(EXTRACT({name} FROM {ref})), {literal(pattern)})"
    return f"CASE WHEN {ref} IS NOT NULL THEN {text} END"


def _moment(ref: str, pattern: str) -> str:
    # SYYYY, since YYYY drops the sign of years before Christ: these have a minus sign, the others a
    # blank.
    return f"LTRIM(TO_CHAR({ref}, {literal(pattern)}, {_GREGORIAN}))"


# --- change test ----------------------------------------------------------------------------------


def changed(column: Column, old: str, new: str) -> str:
    """Return PL/SQL that is true if a value has changed (spec/triggers.md 5).

    The comparison is by bytes and NULL-safe. The PL/SQL calls a local function of the trigger, one
    for each family: ``change_function``. A value that a trigger cannot compare counts as changed if
    the UPDATE names its column (spec/triggers.md 6.1).
    """
    if family(column) is Family.UNREADABLE:
        return named(column)
    return f"{change_function(family(column))}({old}, {new})"


def named(column: Column) -> str:
    """Return PL/SQL that is true if the UPDATE names the column.

    UPDATING treats every name as upper case, quoted or not, so it cannot find a name with lower
    case. A column whose name has lower case counts as named by every UPDATE.
    """
    return f"UPDATING({literal(column.name)})" if column.name == column.name.upper() else "UPDATING"


def change_function(of: Family) -> str:
    """Return the name of the local function that compares two values of a family."""
    return f"{of.name.lower()}_changed"


def differs(of: Family) -> str:
    """Return PL/SQL that is true if two values of a family differ: old_value and new_value, which
    must not be NULL.
    """
    match of:
        # <> is not used: it turns each RAW into hexadecimal digits, twice its length, and fails
        # beyond 16383 bytes. COMPARE pads the shorter value with zeros, so the lengths are
        # compared, too.
        case Family.TEXT | Family.NATIONAL:
            bytes_ = [f"UTL_RAW.CAST_TO_RAW({value})" for value in ("old_value", "new_value")]
            return (
                "LENGTHB(old_value) <> LENGTHB(new_value) OR "
                f"UTL_RAW.COMPARE({', '.join(bytes_)}) <> 0"
            )
        case Family.RAW:
            return (
                "UTL_RAW.LENGTH(old_value) <> UTL_RAW.LENGTH(new_value) OR "
                "UTL_RAW.COMPARE(old_value, new_value) <> 0"
            )
        case Family.CLOB | Family.NCLOB:
            return "DBMS_LOB.COMPARE(old_value, new_value) <> 0"
        case _:
            return "old_value <> new_value"


# --- keys -----------------------------------------------------------------------------------------

# The text of these kinds contains no special or control character, and no blank at an end.
_NEVER_QUOTED: Final = frozenset(
    {Kind.INTEGER, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ}
)


def key_value(column: Column, ref: str, base64: str | None = None) -> str:
    """Return SQL of a key column's value in its normal form, without quotes (spec/event-log.md 4.3,
    spec/triggers.md 4).
    """
    match column.type.kind:
        case Kind.EXACT:
            # TM9 writes a half as .5
            return f"REGEXP_REPLACE({value_text(column, ref)}, '^(-?)\\.', '\\10.')"
        case Kind.FIXED:
            return f"RTRIM({value_text(column, ref)}, ' ')"
        case _:
            return value_text(column, ref, base64)


def key_text(
    key: Sequence[Column], refs: Sequence[str], quote: str, base64: str | None = None
) -> str:
    """Return ``key_parts`` as one text; no key column may be NULL (spec/triggers.md 4).

    ``quote`` is the SQL name of the function that quotes. The function treats NULL as the empty
    text, since both are the same in Oracle.
    """
    value = quoted_unless(
        _NEVER_QUOTED, partial(key_value, base64=base64), lambda text: f"{quote}({text})"
    )
    return joined(" || ", key_parts(key, refs, value))


_SCN: Final = re.compile("[0-9]{1,20}")


def scn(snapshot: str) -> str:
    """Return the text of a system change number unchanged.

    Raises DatabaseError for any other text.
    """
    if _SCN.fullmatch(snapshot) is None:
        raise DatabaseError(
            f"{snapshot!r} is not a system change number: use the value that `export_snapshot` "
            "returned"
        )
    return snapshot
