"""Examine SQL text of users: split it into statements, find tables that it may change, and judge
whether it is one expression.

Only a database can parse its SQL fully. The functions recognize only words, quoted names, strings
and comments. Tables that a statement does not name, such as the tables in a procedure that it
calls, are not found.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

# No group is possessive: before Python 3.11.5 it takes a part of what it does not match.
_FRAGMENT: Final = re.compile(
    r"""
    (?P<comment> --[^\n]*+ | /\*)
    | [eE]'(?:[^'\\]++|\\.|'')* (?: ' | (?P<escaped>))   # PostgreSQL: a backslash escapes
    | '[^']*+' | "[^"]*+" | `[^`]*+`
    | \$(?P<tag>(?:[^\W\d]\w*+)?)\$ (?: .*? \$(?P=tag)\$ | (?P<open>))
    | \w[\w$]*+                         # a word, whose letters and dollars begin nothing
    | \s++
    | [^;'"`]
    """,
    re.DOTALL | re.VERBOSE,
)
_COMMENT_ENDS: Final = re.compile(r"/\*|\*/")


def split_statements(sql: str) -> tuple[str, ...]:
    """Return the statements of a text: SQL split at ``;`` outside quotes and comments
    (spec/event-log.md 9). Statements of only blanks and comments are left out.

    Quotes are ``'``, ``"``, a backtick, and PostgreSQL's ``E''`` and ``$tag$``; comments are ``--``
    and ``/* */``, and ``/* */`` may be nested. Raises ValueError for a quote or comment that does
    not end.
    """
    statements, start, at, says = [], 0, 0, False
    while at < len(sql):
        if sql[at] == ";":
            if says:
                statements.append(sql[start:at])
            at = start = at + 1
            says = False
            continue
        fragment = _FRAGMENT.match(sql, at)
        if fragment is None or fragment["open"] is not None or fragment["escaped"] is not None:
            raise ValueError(f"the quote at offset {at} does not end")
        if fragment["comment"] == "/*":
            at = _end_of_comment(sql, at)
            continue
        says = says or not (fragment["comment"] or fragment[0].isspace())
        at = fragment.end()
    if says:
        statements.append(sql[start:])
    return tuple(statement.strip() for statement in statements)


def _end_of_comment(sql: str, begin: int) -> int:
    """Return the offset after a comment. If not all nested comments end, return the offset after
    the first end, since only PostgreSQL nests comments.
    """
    depth, first = 0, None
    for mark in _COMMENT_ENDS.finditer(sql, begin):
        depth += 1 if mark[0] == "/*" else -1
        if mark[0] == "*/":
            first = first or mark.end()
        if depth == 0:
            return mark.end()
    if first is None:
        raise ValueError(f"the comment at offset {begin} does not end")
    return first


# --- the tables that a statement may change -------------------------------------------------------

_CHANGES: Final = frozenset(
    ("delete", "update", "merge", "replace", "truncate", "rename", "drop", "alter")
)
"""The words of statements that remove or change rows of a table, or the table itself."""
_PART: Final = re.compile(r""""([^"]*+)"|`([^`]*+)`|\[([^\]]{0,128}+)\]|(\w(?:\w|\$(?!\w*\$))*)""")
_NAME: Final = re.compile(
    rf"""
    --[^\n]*+ | '[^']*+(?:'|\Z) | /\*(?!M?!)[^*]*+(?:\*(?!/)[^*]*+)*(?:\*/|\Z)   # names nothing
    | (?P<name> (?:{_PART.pattern}) (?:\s*+\.\s*+(?:{_PART.pattern}))* )
    """,
    re.VERBOSE,
)


def changed_table(statement: str, schema: str | None, tables: Collection[str]) -> str | None:
    """Return the first of the ``tables`` that a statement names outside strings and comments.
    Return None unless the statement also has, outside strings and comments, one of the words
    DELETE, UPDATE, MERGE, REPLACE, TRUNCATE, RENAME, DROP and ALTER (spec/event-log.md 8.5).

    ``schema`` is the schema of the tables, None = the session's current schema. Names are compared
    without case; a name without a schema counts as a name in ``schema``. Text in PostgreSQL's
    ``$$`` and in MariaDB's ``/*! */`` counts as part of the statement, since it may run.
    """
    # A backslash in a string is an escape in MariaDB, but not in other databases, so both
    # interpretations are checked.
    readings = (statement, re.sub(r"\\.", "", statement, flags=re.DOTALL))
    names = {
        tuple("".join(part).casefold() for part in _PART.findall(found["name"]))
        for reading in readings
        for found in _NAME.finditer(reading)
        if found["name"]
    }
    if _CHANGES.isdisjoint(part for name in names for part in name):
        return None
    for table in tables:
        for *schemas, name in names:
            is_there = schema is None or not schemas or schemas[-1] == schema.casefold()
            if is_there and name == table.casefold():
                return table
    return None


# --- one expression -------------------------------------------------------------------------------


def why_not_one(sql: str, token: re.Pattern[str]) -> str | None:
    """Return why a text is not one expression between parentheses; None if it is one
    (spec/event-log.md 15.2): all quotes, comments and parentheses begin and end within it.

    ``token`` matches a token of the database; it matches no quote or comment that does not end. Its
    groups are ``nothing`` (blanks and comments), ``sign`` (a parenthesis or a semicolon), and
    ``nested``, the beginning of a comment that may contain others.
    """
    open_at: list[int] = []
    at, is_empty = 0, True
    while at < len(sql):
        found = token.match(sql, at)
        end = None if found is None else found.end()
        if found is not None and found.lastgroup == "nested":
            end = _end_of_nested(sql, at)
        if found is None or end is None:
            return f"the quote or comment at offset {at} does not end, or only some versions run it"
        match found["sign"]:
            case "(":
                open_at.append(at)
            case ")" if not open_at:
                return f"no parenthesis before offset {at} is open, but one is closed there"
            case ")":
                open_at.pop()
            case ";":
                return f"the semicolon at offset {at} ends a statement"
        is_empty = is_empty and found.lastgroup in ("nothing", "nested")
        at = end
    if open_at:
        return f"the parenthesis at offset {open_at[-1]} is not closed"
    return "it is empty" if is_empty else None


def _end_of_nested(sql: str, begin: int) -> int | None:
    """Return the offset after a comment with all comments in it; None if one does not end."""
    depth = 0
    for mark in _COMMENT_ENDS.finditer(sql, begin):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None
