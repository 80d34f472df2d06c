"""Kinds of options: how a value is read from TOML or from text, what is legal, and how it is written as TOML.

An option is a field of a settings dataclass made by ``option``: its type, default, legal range, aliases and its line of
help stand in one place, and reading, ``eventlog config`` and ``eventlog init`` all go by it.
"""

from __future__ import annotations

import datetime
import json
import re
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from eventlog.model import LogRow


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value.

    ``parse`` takes what TOML gives and raises ValueError, whose text (if any) is a reason; ``legal`` says in words what
    is allowed; ``from_text`` makes of the text of an environment variable or a flag what TOML would have given.
    """

    parse: Callable[[Any], Any]
    legal: str
    from_text: Callable[[str], Any] = str


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``idm`` is its default in profile ``idm``, None where the profile does not differ.

    ``aliases`` are the vendor's tags, ``alias_values`` what their values mean (by their text); ``example`` is what
    ``init`` writes where there is no default; ``secret`` options stand in no file and are never shown.
    """

    kind: Kind
    about: str
    aliases: tuple[str, ...] = ()
    alias_values: Mapping[str, str] = field(default_factory=dict)
    idm: Any = None
    example: Any = ""
    secret: bool = False


def option(default: Any, kind: Kind, about: str, **more: Any) -> Any:
    """A dataclass field that is an option. ``more``: the other fields of ``Option``."""
    return field(default=default, repr=kind not in CONFIDENTIAL, metadata={"option": Option(kind, about, **more)})


def options_of(settings: type) -> dict[str, Option]:
    """The options of a settings dataclass by name, in its order."""
    return {f.name: f.metadata["option"] for f in fields(settings) if "option" in f.metadata}


def parse_boolean(value: Any) -> bool:
    """A boolean: TOML's own, or ``1 yes true`` / ``0 no false`` in any case (spec/event-log.md 9).

    Raises ValueError.
    """
    word = str(value).strip().lower()
    if isinstance(value, bool | int | str) and word in ("1", "yes", "true"):
        return True
    if isinstance(value, bool | int | str) and word in ("0", "no", "false"):
        return False
    raise ValueError


def integer(low: int, high: int) -> Kind:
    """Whole numbers from ``low`` to ``high``."""

    def parse(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError
        return value

    return Kind(parse, f"{low}..{high}", int)


def number(low: float, high: float) -> Kind:
    """Numbers from ``low`` to ``high``, fractions too."""

    def parse(value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError
        return float(value)

    return Kind(parse, f"a number from {low:g} to {high:g}", float)


def choice(*words: str) -> Kind:
    """One of some words, written exactly so."""

    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError
        return value

    return Kind(parse, " | ".join(words))


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError
    return value.strip()


def _parse_name(value: Any) -> str:
    # Not stripped: a quoted identifier may end with a blank.
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError
    return value


def _parse_secret(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 - every kind raises ValueError
    return value


def _parse_path(value: Any) -> Path:
    return Path(_parse_text(value))


def _parse_names(value: Any) -> tuple[str, ...]:
    names = re.split(r"[;,\s]+", value.strip(" \t\r\n;,")) if isinstance(value, str) else value
    if not isinstance(names, list):
        raise ValueError  # noqa: TRY004
    result = tuple(_parse_name(name) for name in names)
    if not result:
        raise ValueError
    if len(set(result)) < len(result):
        raise ValueError("a name stands twice")
    return result


def _parse_times(value: Any) -> tuple[datetime.time, ...]:
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    times = set()
    for item in items:
        if isinstance(item, str) and re.fullmatch(r"\s*[0-9]{2}:[0-9]{2}:[0-9]{2}\s*", item, re.ASCII):
            item = datetime.time.fromisoformat(item.strip())
        if not isinstance(item, datetime.time) or item.microsecond:
            raise ValueError
        times.add(item)
    if not times:
        raise ValueError
    return tuple(sorted(times))


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
    """SQL split at ``;`` outside quotes and comments (spec/event-log.md 9); statements of nothing but blanks and
    comments are left out.

    Quotes are ``'``, ``"``, a backtick, and PostgreSQL's ``E''`` and ``$tag$``; comments ``--`` and ``/* */``,
    which may be nested. Raises ValueError for a quote or comment that does not end.
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
    """Behind a comment; where those in it do not all end, behind its first end, as other databases than PostgreSQL
    have it.
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


def _parse_statements(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError
    return tuple(statement for text in texts for statement in split_statements(text))


def _parse_column_map(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError  # noqa: TRY004
    real = {str(name).lower(): _parse_name(column) for name, column in value.items()}
    if unknown := sorted(set(real) - set(LogRow._fields)):
        raise ValueError(f"{unknown[0]} is no standard name")
    if missing := [name for name in LogRow._fields if name not in real]:
        raise ValueError(f"{missing[0]} is missing")
    if len({column.lower() for column in real.values()}) < len(real):
        raise ValueError("two standard names have the same column")
    return {name: real[name] for name in LogRow._fields}


def _column_map_from_text(text: str) -> dict[str, str]:
    return {name.strip(): column.strip() for name, _, column in (part.partition("=") for part in text.split(","))}


def _parse_zone(value: Any) -> str:
    zone = _parse_text(value)
    if zone.upper() == "UTC":
        return "UTC"
    try:
        zoneinfo.ZoneInfo(zone)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError("this machine knows no such zone") from None
    return zone


def _parse_publication_mode(value: Any) -> int:
    if value == 2:
        raise ValueError("2 (triggerless) is not done: the publisher reads what triggers log")
    if value != 1 or isinstance(value, bool):
        raise ValueError
    return 1


_SECRET_PROPERTY: Final = re.compile(r"password|secret|\.pem$|oauthbearer\.config", re.IGNORECASE)


class SecretGiven(ValueError):
    """A secret among properties, ``name``: who knows the section knows where it belongs."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is a secret, which does not belong here")
        self.name = name


def _parse_properties(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(one, str | int | float) for one in value.values()):
        raise ValueError
    for name in value:
        if _SECRET_PROPERTY.search(name):
            raise SecretGiven(name)
    return dict(value)


def _properties_from_text(text: str) -> dict[str, str]:
    return {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in text.split(","))}


def _parse_mapping(value: Any) -> Mapping[str, Mapping[str, str]]:
    if (
        not isinstance(value, dict)
        or not value
        or not all(isinstance(columns, dict) and columns for columns in value.values())
    ):
        raise ValueError
    return {table: {column: _parse_name(to) for column, to in columns.items()} for table, columns in value.items()}


def _parse_table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not value:
        raise ValueError
    return dict(value)


def _parse_lists(value: Any) -> Mapping[str, tuple[str, ...]]:
    lists = _parse_table(value)
    if not all(isinstance(names, list) for names in lists.values()):
        raise ValueError
    return {_parse_name(name): _parse_names(names) for name, names in lists.items()}


BOOLEAN: Final = Kind(parse_boolean, "1 yes true / 0 no false")
TEXT: Final = Kind(_parse_text, "text that is not empty")
URL: Final = Kind(_parse_text, "postgresql+psycopg://user@host:5432/database or the like")
SECRET: Final = Kind(_parse_secret, "text")
PROPERTIES: Final = Kind(_parse_properties, '{ "linger.ms" = 20, ... }, without secrets', _properties_from_text)
CONFIDENTIAL: Final = (URL, SECRET, PROPERTIES)
"""Kinds whose values are in no message and no repr."""
PATH: Final = Kind(_parse_path, "a path")
NAMES: Final = Kind(_parse_names, "a list of names, or text with the separators ; , blank; no name twice")
TIMES: Final = Kind(_parse_times, "hh:mm:ss, comma-separated")
STATEMENTS: Final = Kind(_parse_statements, "SQL, split at ; outside quotes and comments")
COLUMN_MAP: Final = Kind(_parse_column_map, f"a column for each of {', '.join(LogRow._fields)}", _column_map_from_text)
ZONE: Final = Kind(_parse_zone, "UTC or a zone such as Europe/Berlin")
PUBLICATION_MODE: Final = Kind(_parse_publication_mode, "1 only", int)
BASE: Final = Kind(_parse_mapping, "{ base table = { base column = view column, ... }, ... }")

TABLE: Final = Kind(_parse_table, "a table of options; as text: JSON", json.loads)
LISTS: Final = Kind(_parse_lists, "{ name = [name, ...], ... }; as text: JSON", json.loads)


def toml(value: Any) -> str:
    """A value of any kind above as TOML writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return str(int(value))
        case int() | float():
            return str(value)
        case datetime.time():
            return value.isoformat()
        case list() | tuple():
            return "[" + ", ".join(toml(item) for item in value) + "]"
        case dict():
            return "{ " + ", ".join(f"{_toml_key(key)} = {toml(item)}" for key, item in value.items()) + " }"
    # JSON's string is TOML's, but that TOML wants DEL escaped.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)
