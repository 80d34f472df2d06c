"""The parameters of the vendor's JDBC driver that are options here (spec/event-log.md 9).

``config/idm.py`` reads an export by this table. The configuration refuses the driver's names, and
says the option by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

_SQL_PIECE: Final = re.compile(
    r"""
    (?P<comment> --[^\n]*+ | /\*)
    | [eE]'(?:[^'\\]|\\.|'')*+ (?: ' | (?P<escaped>))   # PostgreSQL: a backslash escapes
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
    """Return the statements of ``post-poll-stmt``: SQL split at ``;`` outside quotes and comments
    (spec/event-log.md 9). Statements of only blanks and comments are left out.

    Quotes are ``'``, ``"``, a backtick, and PostgreSQL's ``E''`` and ``$tag$``; comments ``--`` and
    ``/* */``, which may be nested. Raises ValueError for a quote or comment that does not end.
    """
    statements, start, at, says = [], 0, 0, False
    while at < len(sql):
        if sql[at] == ";":
            if says:
                statements.append(sql[start:at])
            at = start = at + 1
            says = False
            continue
        piece = _SQL_PIECE.match(sql, at)
        if piece is None or piece["open"] is not None or piece["escaped"] is not None:
            raise ValueError(f"the quote at offset {at} does not end")
        if piece["comment"] == "/*":
            at = _end_of_comment(sql, at)
            continue
        says = says or not (piece["comment"] or piece[0].isspace())
        at = piece.end()
    if says:
        statements.append(sql[start:])
    return tuple(statement.strip() for statement in statements)


def _end_of_comment(sql: str, begin: int) -> int:
    """Return the offset behind a comment. If not all nested comments end, it is the offset behind
    the first end, since comments nest in PostgreSQL only.
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


def _comparator(text: str) -> str:
    """Return the value of ``column_sort`` for the name of a Java class."""
    comparators = {"StringByteComparator": "bytes", "StringComparator": "collation"}
    return comparators.get(text.rpartition(".")[2], text)


def _words(words: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that translates the driver's words, in any case, and leaves others."""
    return lambda text: words.get(text.strip().lower(), text)


class DriverTag(NamedTuple):
    """The option that a parameter of the driver is here. ``value`` makes the option's value, or the
    text of it, of the parameter's text; it raises ValueError.
    """

    section: str
    key: str
    value: Callable[[str], Any] = str


DRIVER_TAGS: Final[Mapping[str, DriverTag]] = {
    "log-table": DriverTag("database", "log_table"),
    "sync-schema": DriverTag("database", "schema_name"),
    "sync-tables": DriverTag("database", "tables"),
    "disable": DriverTag("publisher", "publisher_disabled"),
    "publication-mode": DriverTag("publisher", "publication_mode"),
    "delete-from-log": DriverTag("publisher", "delete_from_log"),
    "allow-loopback": DriverTag("publisher", "allow_loopback"),
    "handle-future-events": DriverTag("publisher", "handle_future_events"),
    "polling-interval": DriverTag("publisher", "polling_interval"),
    "time-of-day": DriverTag("publisher", "time_of_day"),
    "post-poll-stmt": DriverTag("publisher", "post_poll_statements", split_statements),
    "batch-size": DriverTag("publisher", "batch_size"),
    "query-limit": DriverTag("publisher", "query_limit"),
    "query limit": DriverTag("publisher", "query_limit"),
    "pub-heartbeat-interval": DriverTag("publisher", "heartbeat_interval"),
    "column-position-comparator": DriverTag("publisher", "column_sort", _comparator),
    "time-syntax": DriverTag(
        "format.xds", "time_syntax", _words({"1": "integer", "2": "canonical", "3": "java"})
    ),
    "enable-meta-identifiers": DriverTag("format", "meta_identifiers"),
    "enable-refs": DriverTag(
        "format",
        "referential",
        _words(
            dict.fromkeys(("1", "yes", "true"), "dn") | dict.fromkeys(("0", "no", "false"), "value")
        ),
    ),
}
