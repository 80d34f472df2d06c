"""Fragments of the SQL of MariaDB and MySQL: names, literals, values as log text, change test, keys
(spec/triggers.md 4, 5, 6).

The SQL is independent of ``sql_mode``: names are in backticks, texts are joined by CONCAT, and no
literal contains a backslash or is empty. The SQL is independent of the character set of the session
that creates a trigger: every text is made in utf8mb4. The driver would take percent signs for
parameters; only names contain them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from eventlog.core.catalog import Column
from eventlog.core.values import Kind
from eventlog.sql.port.sql_files import key_parts, quoted_unless

MAX_IDENTIFIER: Final = 64
"""The maximum length of an identifier. The server counts characters; the names that eventlog makes
have at most this number of bytes.
"""

_PLAIN: Final = re.compile(r"[\w .,:;=+/@*()-]+", re.ASCII)
UTC_NOW: Final = "UTC_TIMESTAMP(6)"
USER: Final = "SUBSTRING_INDEX(USER(), '@', 1)"
"""SQL of the user who opened the session, without the host (spec/event-log.md 8.3)."""


def quote_identifier(name: str) -> str:
    """Return a name in backticks, which every sql_mode reads as a name."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text as an SQL literal of utf8mb4 that means the same in every sql_mode.

    An empty text, or a text with a character outside ``_PLAIN``, is written in hexadecimal digits.
    The reasons: sql_mode decides whether a backslash escapes, the server rewrites quotes in the
    body of a trigger, and EMPTY_STRING_IS_NULL turns an empty literal into NULL.
    """
    return f"'{text}'" if _PLAIN.fullmatch(text) else f"_utf8mb4 X'{text.encode().hex()}'"


def in_text(text: str) -> str:
    """Return a text for a literal that the server parses twice: characters that would end or change
    the literal become %XX, as in a URL.
    """
    return quote(text, safe=' !#$&()*+,-./:;<=>?@[]^_`{|}~"')


def bindable(sql: str) -> str:
    """Return SQL text for a statement whose parameters are written %(name)s."""
    return sql.replace("%", "%%")


CONDITION_TOKEN: Final = re.compile(
    r"""'(?:[^'\\]++|\\.|'')*'(?!')|"[^"]*+"|`[^`]*+`"""
    r"|(?P<nothing>\s+|--(?=[\x00-\x20\x7f]|\Z)[^\n]*+|#[^\n]*+|/\*(?!M?!).*?\*/)"
    r"|(?P<sign>[();])|(?!['\"`]|/\*).",
    re.DOTALL,
)
"""What matches one token in a condition of a user (``why_not_one``), in the sql_mode of our
sessions. A comment whose text some versions run matches nothing.
"""


def field(row: str, column: Column) -> str:
    """Return SQL of a column of a row, such as OLD.`id`."""
    return f"{row}.{quote_identifier(column.name)}"


def fields(row: str, columns: Sequence[Column]) -> list[str]:
    """Return SQL of columns of a row."""
    return [field(row, column) for column in columns]


# --- values ---------------------------------------------------------------------------------------

_TEXT: Final = frozenset({Kind.CHARACTER, Kind.FIXED})
_GEOMETRIES: Final = frozenset(
    {
        *(
            "geometry",
            "point",
            "linestring",
            "polygon",
            "multipoint",
            "multilinestring",
            "multipolygon",
        ),
        *("geometrycollection", "geomcollection"),
    }
)
_LARGE: Final = (
    frozenset({"text", "mediumtext", "longtext", "json", "blob", "mediumblob", "longblob"})
    | _GEOMETRIES
)
"""The types whose values as text may be larger than a packet."""


def data_type(column: Column) -> str:
    """Return the first word of a column's type, such as varchar."""
    return column.type.sql.partition("(")[0].partition(" ")[0].lower()


def is_large(column: Column) -> bool:
    """Return True if values may be too large to be logged; a trigger then checks each row."""
    return data_type(column) in _LARGE


def value_text(column: Column, ref: str) -> str:
    """Return SQL of a column's value as log text (spec/triggers.md 6)."""
    match column.type.kind:
        case Kind.CHARACTER:
            return f"CONVERT({ref} USING utf8mb4)"
        case Kind.FIXED:
            # The value is stored without trailing blanks; PAD_CHAR_TO_FULL_LENGTH adds them.
            return f"RTRIM(CONVERT({ref} USING utf8mb4))"
        case Kind.BINARY:
            return f"REPLACE(TO_BASE64({ref}), CHAR(10), _utf8mb4 X'')"
        case Kind.TIMESTAMPTZ:
            # UNIX_TIMESTAMP returns the stored value. All other functions use the session's zone,
            # in which two moments have the same text when summer time ends.
            seconds = f"UNIX_TIMESTAMP({ref})"
            zero = f"CONCAT({_as_text(ref)}, 'Z')"
            moment = _as_text(f"('1970-01-01' + INTERVAL {seconds} SECOND)")
            # For the zero date, a trigger reads NULL and a query reads 0.
            return (
                f"CASE WHEN COALESCE({seconds}, 0) = 0 THEN {zero} ELSE CONCAT({moment}, 'Z') END"
            )
        case Kind.BOOLEAN | Kind.INTEGER:
            # + 0 turns BIT into a number and removes the zeros of ZEROFILL.
            return _as_text(f"({ref} + 0)")
        case Kind.APPROXIMATE if column.type.bits == 32:
            return _as_text(f"CAST({ref} AS DOUBLE)")  # a FLOAT by itself shows only six digits
        case Kind.OTHER if data_type(column) in _GEOMETRIES:
            return f"CONVERT(ST_AsText({ref}) USING utf8mb4)"
        case _:
            return _as_text(ref)


def _as_text(value: str) -> str:
    return f"CAST({value} AS CHAR CHARACTER SET utf8mb4)"


def fits(*refs: str) -> str:
    """Return an SQL condition that is true if the values together fit into a row of the log
    (spec/triggers.md 6.1).

    Beyond max_allowed_packet the result of a function is NULL, and a row could not be sent to the
    publisher. In base64, and in a text of another character set, each byte of a value takes up to
    three bytes.
    """
    sizes = " + ".join(f"COALESCE(OCTET_LENGTH({ref}), 0)" for ref in refs)
    return f"{sizes} <= @@GLOBAL.max_allowed_packet DIV 4"


# --- change test ----------------------------------------------------------------------------------


def is_changed(column: Column, old: str, new: str) -> str:
    """Return an SQL condition that is true if a value has changed (spec/triggers.md 5).

    The comparison is by bytes and NULL-safe.
    """
    if column.type.kind in _TEXT or column.type.kind is Kind.OTHER:
        return f"(NOT (BINARY {old} <=> BINARY {new}))"
    if column.type.kind is Kind.TIMESTAMPTZ:
        # UNIX_TIMESTAMP of the zero date is NULL.
        both = f"({old} IS NULL) <=> ({new} IS NULL)"
        return f"(NOT (UNIX_TIMESTAMP({old}) <=> UNIX_TIMESTAMP({new}) AND ({both})))"
    return f"(NOT ({old} <=> {new}))"


# --- keys -----------------------------------------------------------------------------------------

_NEVER_QUOTED: Final = frozenset(
    {Kind.INTEGER, Kind.EXACT, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ}
)
"""The kinds whose text contains no special or control character, and no blank at either end."""
_SPECIAL: Final = rb"""^$|^[ ]|[ ]$|[,;'+"=\\<>\x00-\x1F\x7F]"""
_NEEDS_QUOTES: Final = f"_utf8mb4 X'{_SPECIAL.hex()}'"
"""A regular expression for texts that need quotes. The expression is in hexadecimal digits because
the meaning of a backslash depends on sql_mode.
"""


def key_value(column: Column, ref: str) -> str:
    """Return SQL of a key column's value in its normal form, without quotes (spec/event-log.md
    4.3).
    """
    text = value_text(column, ref)
    if column.type.kind is Kind.EXACT:
        # Without the trailing zeros of the scale, and without a trailing point.
        return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
    return text


def quoted(value: str) -> str:
    """Return SQL of a text as a value in a table_key: quoted where needed (spec/triggers.md 4)."""
    backslash, mark = "_utf8mb4 X'5C'", "_utf8mb4 X'22'"
    escaped = f"REPLACE({value}, {backslash}, _utf8mb4 X'5C5C')"
    escaped = f"REPLACE({escaped}, {mark}, _utf8mb4 X'5C22')"
    return (
        f"CASE WHEN {value} REGEXP {_NEEDS_QUOTES} THEN CONCAT({mark}, {escaped}, {mark}) ELSE "
        f"{value} END"
    )


def key_text(key: Sequence[Column], refs: Sequence[str]) -> str:
    """Return ``key_parts`` as one text (spec/triggers.md 4), NULL if a key column is NULL."""
    value = quoted_unless(_NEVER_QUOTED, key_value, quoted)
    return f"CONCAT({', '.join(key_parts(key, refs, value, literal))})"


def is_one_spelling(column: Column) -> bool:
    """Return True if values that a foreign key treats as equal always have the same text in a
    table_key.
    """
    return column.deterministic
