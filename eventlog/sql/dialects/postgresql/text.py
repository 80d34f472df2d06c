"""SQL text of PostgreSQL: identifiers, literals, and a column's value as log text (spec/triggers.md
4, 6).

All names are qualified with ``pg_catalog``, so that no function or operator of another schema can
replace them, whatever the ``search_path``. Among the types that have a line in spec/triggers.md 6,
only the text of approximate numbers depends on a session's settings. ``session_settings`` lists the
settings that affect other types.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from typing import Final

from eventlog.core.catalog import Column, Table
from eventlog.core.ranges import Ranges
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import DatabaseError
from eventlog.sql.port.sql_files import Binds, key_parts, qualified, quoted_unless

MAX_IDENTIFIER: Final = 63
"""The maximum number of bytes of a name."""
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def fold_name(name: str) -> str:
    """Return a name as PostgreSQL stores it: unchanged if in double quotes, otherwise in lower
    case.
    """
    if len(name) > 2 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name.translate(_LOWER)


def relation(schema: str | None, table: Table) -> str:
    """Return SQL that names the rows of a table or view, without the rows of tables that inherit
    from it.

    Inherited rows are not objects of the class: its triggers do not fire for them, and its key does
    not cover them. A partitioned table has rows only in its partitions.
    """
    only = "ONLY " if table.kind == "table" and not table.partitioned else ""
    return only + qualified(schema, table.name)


def literal(text: str) -> str:
    """Return a text as an SQL literal that means the same with ``standard_conforming_strings`` on
    and off.
    """
    doubled = text.replace("'", "''")
    return f"'{doubled}'" if "\\" not in text else "E'" + doubled.replace("\\", "\\\\") + "'"


def bindable(sql: str) -> str:
    """Return SQL text for a statement with parameters, in which the driver interprets ``%``."""
    return sql.replace("%", "%%")


_LETTER: Final = r"A-Za-z_\x80-\U0010ffff"
_TAG: Final = rf"(?:[{_LETTER}][0-9{_LETTER}]*+)?"
_ESCAPED: Final = r"'(?:[^'\\]++|\\.|'')*'(?!')"
# Strings on several lines are one string. All its parts have backslashes as the first part has.
_CONTINUED: Final = r"(?:[ \t\f\v]|--[^\n\r]*+)*[\n\r](?:[ \t\n\r\f\v]|--[^\n\r]*+[\n\r])*(?=')"


def _condition_token(prefix: str, plain: str) -> re.Pattern[str]:
    """Return what matches a token. ``prefix`` comes before a string with backslashes; ``plain``
    matches the other strings.
    """
    escaped = rf"{prefix}{_ESCAPED}(?:{_CONTINUED}{_ESCAPED})*(?!{_CONTINUED})"
    return re.compile(
        rf"""{escaped}{plain}|"[^"]*+"|\$(?P<tag>{_TAG})\$.*?\$(?P=tag)\$"""
        rf"|(?![eE]')[{_LETTER}][$0-9{_LETTER}]*+"
        r"|(?P<nothing>\s+|--[^\n\r]*+)|(?P<nested>/\*)|(?P<sign>[();])"
        rf"|(?!['\"]|[eE]'|\${_TAG}\$).",
        re.DOTALL,
    )


CONDITION_TOKEN: Final = _condition_token("[eE]", "|'[^']*+'")
"""What matches one token in a condition of a user (``why_not_one``)."""
ESCAPING_TOKEN: Final = _condition_token("[eE]?", "")
"""The same without ``standard_conforming_strings``: a backslash escapes in every string."""


def new_time(*, is_zoned: bool) -> str:
    """Return SQL of the present time in the form that event_time takes."""
    # A column with a zone gets a value with a zone: a time without a zone would be read in the
    # session's zone.
    return "pg_catalog.clock_timestamp()" + ("" if is_zoned else " AT TIME ZONE 'UTC'")


# --- values ---------------------------------------------------------------------------------------

_DATE: Final = "YYYY-MM-DD"
_TIMESTAMP: Final = "YYYY-MM-DD HH24:MI:SS.US"

# The types whose cast to text differs from their output function. Their log text is the cast: inet
# with its mask.
_CAST_TO_TEXT: Final = frozenset({"inet", "cidr", "xml", "name", '"char"'})


def value_text(column: Column, ref: str) -> str:
    """Return SQL of a column's value as log text (spec/triggers.md 6), NULL for NULL. ``ref`` is
    SQL of the column reference.
    """
    match column.type.kind:
        case Kind.DATE:
            # to_char is not applied to the date itself, since it would convert midnight of that
            # date to the session's zone.
            return _within_calendar(f"({ref})", "date", f"({ref})::pg_catalog.timestamp", _DATE)
        case Kind.TIMESTAMP:
            return _within_calendar(f"({ref})", "timestamp", f"({ref})", _TIMESTAMP)
        case Kind.TIMESTAMPTZ:
            utc = f"pg_catalog.timezone('UTC'::pg_catalog.text, {ref})"
            return _within_calendar(utc, "timestamp", utc, f'{_TIMESTAMP}"Z"', zone="Z")
        case Kind.BINARY:
            return f"pg_catalog.replace(pg_catalog.encode({ref}, 'base64'), pg_catalog.chr(10), '')"
        case Kind.OTHER if column.type.sql not in _CAST_TO_TEXT:
            # The type's output function makes the text: a cast to text that the type's owner has
            # created would run with the rights of the trigger's owner. IS DISTINCT FROM NULL, since
            # a row of NULLs also "IS NULL".
            return f"CASE WHEN {ref} IS DISTINCT FROM NULL THEN pg_catalog.format('%s', {ref}) END"
        case _:
            return f"({ref})::pg_catalog.text"


def text_of_now(column: Column, ref: str) -> str:
    """Return SQL of a column's value as text that is correct even if the column no longer has the
    type in ``column``.

    The session must have ``TEXT_SETTINGS``. The table may have changed since it was read. The form
    of a time shows whether it has a time of day and a zone. If the column is no longer text, the
    server refuses the statement, since only texts have a collation (spec/event-log.md 5.3).
    """
    match column.type.kind:
        case Kind.DATE | Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            # This is ISO 8601 as JSON writes it, but without the T, and with Z before BC as in log
            # texts.
            special = (
                f"pg_catalog.replace(pg_catalog.to_json({ref}) "
                "OPERATOR(pg_catalog.#>>) '{}', 'T', ' ')"
            )
            special = rf"pg_catalog.regexp_replace({special}, '\+00:00( BC)?$', 'Z\1')"
            return (
                f"CASE WHEN {ref} OPERATOR(pg_catalog.>=) '0001-01-01'::pg_catalog.date"
                f" AND {ref} OPERATOR(pg_catalog.<) '10000-01-01'::pg_catalog.date"
                f" THEN ({ref})::pg_catalog.text ELSE {special} END"
            )
        case Kind.CHARACTER | Kind.FIXED:
            return f'({ref} COLLATE pg_catalog."default")::pg_catalog.text'
        case _:
            return value_text(column, ref)


def _within_calendar(value: str, type_name: str, stamp: str, pattern: str, zone: str = "") -> str:
    # to_char hides values that XDS cannot represent: infinite values become NULL, and "BC" is
    # dropped. JSON writes such values in ISO 8601: apart from its T, that is the result of ::text
    # with DateStyle ISO, whatever the session's DateStyle is. The zone is added after the last
    # digit: before BC, and not after infinity.
    outside = (
        f"pg_catalog.replace(pg_catalog.to_json({value}) OPERATOR(pg_catalog.#>>) '{{}}', 'T', ' ')"
    )
    if zone:
        with_zone = literal(rf"\1{zone}\2")
        outside = f"pg_catalog.regexp_replace({outside}, '([0-9])( BC)?$', {with_zone})"
    return (
        f"CASE WHEN {value} OPERATOR(pg_catalog.>=) '0001-01-01'::pg_catalog.{type_name}"
        f" AND {value} OPERATOR(pg_catalog.<) '10000-01-01'::pg_catalog.{type_name}"
        f" THEN pg_catalog.to_char({stamp}, {literal(pattern)})"
        f" ELSE {outside} END"
    )


# --- change test, keys ----------------------------------------------------------------------------

# The text of these kinds contains no special or control character, and no blank at an end.
_NEVER_QUOTED: Final = frozenset(
    {
        Kind.INTEGER,
        Kind.EXACT,
        Kind.BOOLEAN,
        Kind.DATE,
        Kind.TIME,
        Kind.TIMESTAMP,
        Kind.TIMESTAMPTZ,
        Kind.UUID,
    }
)
_OF_ONE_SPELLING: Final = _NEVER_QUOTED | {Kind.FIXED, Kind.CHARACTER, Kind.BINARY}
"""The kinds whose equal values have one normal form.

Equal exact numbers may have different texts, such as 1.0 and 1.00.
"""
# Without a length, trailing blanks are stored but not compared.
_PADDED: Final = frozenset({"bpchar"})


def is_changed(column: Column, old: str, new: str) -> str:
    """Return an SQL condition that is true if a value has changed (spec/triggers.md 5).

    The comparison is by bytes and NULL-safe.
    """
    is_identical = column.type.kind in _OF_ONE_SPELLING - {Kind.EXACT}
    if is_identical and column.deterministic and column.type.sql not in _PADDED:
        return f"{old} IS DISTINCT FROM {new}"
    return f"ROW({old})::pg_catalog.record OPERATOR(pg_catalog.*<>) ROW({new})::pg_catalog.record"


def key_value(column: Column, ref: str) -> str:
    """Return SQL of a key column's value in its normal form, without quotes (spec/event-log.md 4.3,
    spec/triggers.md 4).
    """
    if column.type.kind is Kind.EXACT:
        return f"pg_catalog.trim_scale({ref})::pg_catalog.text"
    return value_text(column, ref)  # ::text removes the padding of char(n)


def quoted(text: str) -> str:
    """Return SQL of a text as it stands in a table_key: in double quotes where needed.

    It calls no function outside of ``pg_catalog``: it runs with the rights of the triggers' owner.
    """
    exact = f'{text} COLLATE pg_catalog."C"'
    return (
        f"CASE WHEN {exact} OPERATOR(pg_catalog.=) ''"
        rf""" OR {exact} OPERATOR(pg_catalog.~) E'[,;''+"=\\\\<>\\u0001-\\u001F\\u007F]|^ | $'"""
        """ THEN '"' OPERATOR(pg_catalog.||) """
        rf"""pg_catalog.replace(pg_catalog.replace({exact}, E'\\', E'\\\\'), '"', E'\\"')"""
        f""" OPERATOR(pg_catalog.||) '"' ELSE {text} END"""
    )


def key_text(key: Sequence[Column], refs: Sequence[str]) -> str:
    """Return ``key_parts`` as one text (spec/triggers.md 4), NULL if a key column is NULL."""
    value = quoted_unless(_NEVER_QUOTED, key_value, quoted)
    parts = key_parts(key, refs, lambda column, ref: f"({value(column, ref)})", literal)
    return " OPERATOR(pg_catalog.||) ".join(parts)


def key_values_by_type(ref: str) -> tuple[dict[str, str], str]:
    """Return the SQL of a key value without quotes, by the name of its type in ``pg_catalog``, and
    the SQL for all other types.

    The SQL is for keys whose types are known only at the time of logging (spec/triggers.md 7.6).
    """
    kinds = {
        "numeric": Kind.EXACT,
        "date": Kind.DATE,
        "timestamp": Kind.TIMESTAMP,
        "timestamptz": Kind.TIMESTAMPTZ,
        "bytea": Kind.BINARY,
        "bool": Kind.BOOLEAN,
        "bpchar": Kind.FIXED,
    }
    by_type = {
        name: key_value(Column("", ColumnType(kind, 0, name)), ref) for name, kind in kinds.items()
    }
    by_type |= {
        name.strip('"'): key_value(Column("", ColumnType(Kind.OTHER, 0, name)), ref)
        for name in _CAST_TO_TEXT
    }
    return dict(sorted(by_type.items())), key_value(Column("", ColumnType(Kind.OTHER, 0, "")), ref)


_IN_PARENTHESES: Final = re.compile(r'("(?:[^"]|"")*")|\([^)]*\)')
_PLAIN_NAMES: Final = {"bpchar": "character", '"bit"': "bit"}
_INTEGERS: Final = {16: "smallint", 32: "integer", 64: "bigint"}
_NAMES_OF_KINDS: Final = {
    Kind.EXACT: "numeric",
    Kind.BOOLEAN: "boolean",
    Kind.FIXED: "character",
    Kind.BINARY: "bytea",
    Kind.DATE: "date",
    Kind.TIME: "time without time zone",
    Kind.TIMESTAMP: "timestamp without time zone",
    Kind.TIMESTAMPTZ: "timestamp with time zone",
    Kind.UUID: "uuid",
}


def type_name(column: Column) -> str:
    """Return the name of a column's type without its length, like ``format_type(type, NULL)``."""
    match column.type.kind:
        case Kind.INTEGER:
            return _INTEGERS.get(column.type.bits, "numeric")
        case Kind.APPROXIMATE:
            return "real" if column.type.bits == 32 else "double precision"
        case Kind.CHARACTER | Kind.OTHER:
            name = _IN_PARENTHESES.sub(lambda found: found[1] or "", column.type.sql)
            plain = name.removesuffix("[]")
            plain = "interval" if plain.startswith("interval ") else _PLAIN_NAMES.get(plain, plain)
            return plain + name[len(name.removesuffix("[]")) :]
        case kind:
            return _NAMES_OF_KINDS[kind]


def is_one_spelling(column: Column) -> bool:
    """Return True if values that a foreign key treats as equal always have the same text in a
    table_key.
    """
    return column.type.kind in _OF_ONE_SPELLING and column.deterministic


# --- settings -------------------------------------------------------------------------------------

SEARCH_PATH: Final = "pg_catalog, pg_temp"
"""The search path of trigger functions, which have to be independent of the session's search path.
"""

_FLOATS: Final = {"extra_float_digits": "1"}
TEXT_SETTINGS: Final = _FLOATS | {
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "lc_monetary": "C",
    # Names in values, such as those of regclass, have quotes only where they need them.
    "quote_all_identifiers": "off",
}
"""The session settings that affect the text of values, with the fixed values that we set."""

# Types of Kind.OTHER whose text does not depend on any setting; the first word of format_type.
_FIXED_TEXT: Final = frozenset(
    {
        "bit",
        "json",
        "jsonb",
        "xml",
        "inet",
        "cidr",
        "macaddr",
        "macaddr8",
        "oid",
        "name",
        '"char"',
        "bpchar",
        "citext",
    }
    | {
        "int4range",
        "int8range",
        "numrange",
        "int4multirange",
        "int8multirange",
        "nummultirange",
        "hstore",
        "ltree",
    }
    | {"tsvector", "tsquery", "jsonpath", "pg_lsn", "xid", "xid8"}
)
_FLOAT_TEXT: Final = frozenset({"point", "line", "lseg", "box", "path", "polygon", "circle"})


def session_settings(columns: Iterable[Column], fixed_text: Iterable[str] = ()) -> dict[str, str]:
    """Return the settings that must be fixed so that the text of these columns is the same in every
    session (spec/triggers.md 6).

    ``fixed_text`` has the names, by format_type, of further types whose text does not depend on any
    setting, such as enums.
    """
    settings: dict[str, str] = {}
    known = _FIXED_TEXT | frozenset(fixed_text)
    for column in columns:
        sql = column.type.sql
        first_word = sql.split("(")[0].split(" ")[0]
        if column.type.kind is Kind.APPROXIMATE or sql in _FLOAT_TEXT:
            settings |= _FLOATS
        elif sql == "interval" or sql.startswith("interval "):
            settings["IntervalStyle"] = TEXT_SETTINGS["IntervalStyle"]
        elif sql == "money":
            settings["lc_monetary"] = TEXT_SETTINGS["lc_monetary"]
        elif sql.startswith(("time ", "time(")):
            continue  # a time with time zone, a type of Kind.OTHER
        elif column.type.kind is Kind.OTHER and (
            sql.endswith("[]") or not {sql, first_word} & known
        ):
            settings |= TEXT_SETTINGS
    return dict(sorted(settings.items()))


_NAMES: Final = re.compile(
    r"reg(?:class|proc|procedure|oper|operator|type|config|dictionary|collation)(?:\[\])?"
)


def shows_names(columns: Iterable[Column]) -> bool:
    """Return True if the text of a column contains the name of an object. The name has its schema
    unless the schema is on the search path; a trigger logs the name with its schema.
    """
    return any(_NAMES.fullmatch(column.type.sql) for column in columns)


_SNAPSHOT: Final = re.compile(r"[0-9A-Fa-f-]{1,64}")


def bounds(ranges: Ranges) -> Binds:
    # The numbers are sent as one text, which the driver passes unchanged; in a list it would
    # inspect each number.
    return {
        "lo": f"{{{','.join(str(first) for first, _ in ranges)}}}",
        "hi": f"{{{','.join(str(last) for _, last in ranges)}}}",
    }


def array_of(texts: Sequence[str]) -> str:
    """Return the text of an array of texts, which the driver passes unchanged. The driver would
    inspect and quote each text of a list.
    """
    joined = '","'.join(texts)
    if "\\" in joined or joined.count('"') > 2 * (len(texts) - 1):
        joined = '","'.join([one.replace("\\", "\\\\").replace('"', '\\"') for one in texts])
    return f'{{"{joined}"}}' if texts else "{}"


def adopt(snapshot: str) -> str:
    """Return the statement that adopts a database snapshot. The statement must be the first
    statement of a transaction of isolation level ``_ISOLATION``.

    Raises DatabaseError for a text that is not a name of a snapshot.
    """
    if _SNAPSHOT.fullmatch(snapshot) is None:
        raise DatabaseError(
            f"{snapshot!r} is not the name of a snapshot: use the value that pg_export_snapshot() "
            "returned"
        )
    return f"SET TRANSACTION SNAPSHOT '{snapshot}'"
