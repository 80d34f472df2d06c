"""Fragments of SQLite SQL: times, values as log text, change test, keys (spec/triggers.md 4, 5,
6).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from eventlog.core.catalog import Column
from eventlog.core.values import Kind
from eventlog.sql.port.sql_files import key_parts

MAX_IDENTIFIER: Final = 10_000
"""The longest identifier in bytes. SQLite itself has no limit."""


_QUOTED: Final = re.compile(
    r"""'[^']*'|`[^`]*`|\[[^]]*]|--[^\n]*|/\*.*?(?:\*/|\Z)|"((?:[^"]|"")*)\"""", re.DOTALL
)
"""Matches texts, names and comments; the group is a name in double quotes."""


def with_strict_names(sql: str) -> str:
    """Return SQL with the names in double quotes in grave accents: SQLite takes a name in double
    quotes for a text if no column has this name.
    """

    def strict(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return found[0]
        return "`" + name.replace('""', '"').replace("`", "``") + "`"

    return _QUOTED.sub(strict, sql)


CONDITION_TOKEN: Final = re.compile(
    r"""'[^']*+'|"[^"]*+"|`[^`]*+`|\[[^\]]*+\]"""
    r"|(?P<nothing>\s+|--[^\n]*+|/\*.*?\*/)|(?P<sign>[();])|(?!['\"`\[]|/\*).",
    re.DOTALL,
)
"""What matches one token in a condition of a user (``why_not_one``)."""


def strftime(arguments: str) -> str:
    """Return SQL of a time in the form of event_time; NULL for a value that is not a time."""
    return f"strftime('%Y-%m-%d %H:%M:%f', {arguments})"


UTC_NOW: Final = strftime("'now'")


def instant(time: str) -> str:
    """Return SQL of a time in a uniform text form, so that texts sort as the times do.

    A missing time sorts first.
    """
    return f"coalesce({strftime(time)}, '')"


# --- values ---------------------------------------------------------------------------------------


def value_text(column: Column, ref: str) -> str:
    """Return SQL of a column's value as log text (spec/triggers.md 6).

    A column may contain values of any type.
    """
    match column.type.kind:
        case Kind.APPROXIMATE:
            return (
                f"CASE typeof({ref}) WHEN 'real' THEN printf('%!.17g', {ref}) ELSE CAST({ref} AS "
                "TEXT) END"
            )
        case Kind.BINARY:
            return base64(ref)
        case Kind.INTEGER if not column.type.bits:
            return _plain_number(ref)
        case _:
            return f"CAST({ref} AS TEXT)"


def _plain_number(ref: str) -> str:
    """Return SQL of an exact number without an exponent.

    SQLite stores numbers beyond 64 bits as floats.
    """
    return (
        f"CASE WHEN typeof({ref}) = 'real' AND abs({ref}) >= 1e15 THEN "
        f"rtrim(rtrim(printf('%!.1f', {ref}), '0'), '.') WHEN typeof({ref}) = 'real' AND "
        f"abs({ref}) < 1e-4 THEN rtrim(printf('%!.25f', {ref}), '0') ELSE CAST({ref} AS TEXT) END"
    )


_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def base64(ref: str) -> str:
    """Return SQL that converts a binary value to base64, six hexadecimal digits at a time; NULL
    stays NULL.

    Only keys use it: the values of other binary columns are read back (spec/triggers.md 6.1).
    """

    def digit(place: int) -> str:
        # After the end of the text substr returns '', for which instr returns 1; it must count as
        # 0.
        return f"(instr('0123456789ABCDEF', substr(h, {place}, 1)) - 1) << {24 - 4 * place}"

    number = " + ".join(f"({digit(place)})" for place in range(1, 7))
    return (
        f"(WITH RECURSIVE b (h, t) AS (SELECT hex({ref}), '' WHERE {ref} IS NOT NULL"  # noqa: S608
        " UNION ALL SELECT substr(h, 7), t || (SELECT substr(a, 1 + (n >> 18), 1) || substr(a, 1 + "
        "((n >> 12) & 63), 1)"
        " || CASE WHEN length(h) > 2 THEN substr(a, 1 + ((n >> 6) & 63), 1) ELSE '=' END"
        " || CASE WHEN length(h) > 4 THEN substr(a, 1 + (n & 63), 1) ELSE '=' END"
        f" FROM (SELECT '{_ALPHABET}' AS a, {number} AS n)) FROM b WHERE h <> '')"
        " SELECT t FROM b WHERE h = '')"
    )


# --- change test ----------------------------------------------------------------------------------


def is_changed(old: str, new: str) -> str:
    """Return an SQL condition that is true if a value has changed (spec/triggers.md 5).

    The comparison is by bytes and NULL-safe.
    """
    return f"{old} COLLATE BINARY IS NOT {new}"


# --- keys -----------------------------------------------------------------------------------------


def quoted(value: str) -> str:
    """Return SQL of a text as a value in a table_key: quoted where needed (spec/triggers.md 4)."""
    return (
        "(SELECT CASE WHEN v = '' OR v GLOB '*[,;''+\"=\\<>]*' OR v <> trim(v, ' ' || char(9))"  # noqa: S608
        " OR v GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*'"
        " THEN '\"' || replace(replace(v, '\\', '\\\\'), '\"', '\\\"') || '\"' ELSE v END"
        f" FROM (SELECT {value} AS v))"
    )


def key_text(key: Sequence[Column], refs: Sequence[str]) -> str:
    """Return ``key_parts`` as one text (spec/triggers.md 4), NULL if a key column is NULL."""

    def value(column: Column, ref: str) -> str:
        # A number without a range may be stored as an infinite float, and any column may contain a
        # text.
        is_whole = column.type.kind is Kind.INTEGER and column.type.bits
        # An exact number has no exponent in a key (spec/event-log.md 4.3).
        is_exact = column.type.kind is Kind.EXACT
        text = _plain_number(ref) if is_exact else value_text(column, ref)
        return f"({text})" if is_whole or column.type.kind is Kind.BOOLEAN else quoted(text)

    return " || ".join(key_parts(key, refs, value))


def is_one_spelling(column: Column) -> bool:
    """Return True if values that a foreign key treats as equal always have the same text in a
    table_key.
    """
    return column.deterministic
