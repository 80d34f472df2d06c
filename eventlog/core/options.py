"""Declare and check options, both the options of eventlog.toml and the options of the formats'
readers and writers. The module also declares the options that several of these share.

An option is a field of a frozen dataclass, made by ``option``. Its kind, default, help text and
example, if any, are declared once, in this field. ``parse_options``, ``eventlog.config.load``,
``eventlog config``, ``eventlog init`` and the documentation read this declaration.
"""

from __future__ import annotations

import datetime
import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from eventlog import __version__
from eventlog.core.values.moments import time_zone_named
from eventlog.errors import ConfigError, first_of, together, visible, with_location
from eventlog.model import EventType, Names


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class OptionKind:
    """A kind of value."""

    parse: Callable[[Any], Any]
    """A function that parses a value of TOML, JSON or Python. A result of the function, given to it
    again, is returned unchanged. The function raises ConfigError, or ValueError whose text, if any,
    is the reason.
    """
    legal: str
    """The legal values in words."""
    from_text: Callable[[str], Any] = str
    """A function that turns the text of an environment variable or a flag into the value that TOML
    would have. If it raises ValueError, ``parse`` receives the text itself.
    """
    confidential: bool = False
    """True if a value of the kind must not appear in messages and reprs."""
    shown: Callable[[Any], Any] = _itself
    """A function that returns the form of a value that `eventlog config` may print."""


GivenOptions: TypeAlias = Mapping[str, Any]
"""Options, or the settings of another library, by their names, before they are parsed."""

REQUIRED: Final = object()
"""Marks, in place of a default, an option that must be set if any option of its class is used."""


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option."""

    default: Any
    """The default, which is not parsed; ``REQUIRED`` = the option has no default."""
    kind: OptionKind
    about: str
    idm: Any = None
    """The default in profile ``idm``; None if it is the same as ``default``."""
    example: Any = ""
    """The value that `eventlog init` writes for an option without a default."""
    secret: bool = False
    """True if the option comes from the environment or from a named file, and is never shown."""


def option(default: Any, kind: OptionKind, about: str, **more: Any) -> Any:
    """Declare an option as a dataclass field. ``more`` has the other fields of ``Option``."""
    return shared(Option(default, kind, about, **more))


def shared(declared: Option, **changed: Any) -> Any:
    """Declare a dataclass field as an option that is already declared elsewhere. ``changed`` has
    the fields of ``Option`` that differ in this declaration.
    """
    declared = replace(declared, **changed)
    default: Any = {"default": declared.default}
    if isinstance(declared.default, dict):
        default = {"default_factory": dict}
    return field(**default, repr=not declared.kind.confidential, metadata={"option": declared})


def options_of(settings: type) -> dict[str, Option]:
    """Return the options that a dataclass declares, by name, in its order."""
    return {f.name: f.metadata["option"] for f in fields(settings) if "option" in f.metadata}


def same_fields(settings: Any, kind: type) -> dict[str, Any]:
    """Return the values, by name, of the fields that ``settings`` and the class ``kind`` have in
    common, so that an object of ``kind`` can be made from the settings.
    """
    known = {one.name for one in fields(kind)}
    return {one.name: getattr(settings, one.name) for one in fields(settings) if one.name in known}


# --- checking -------------------------------------------------------------------------------------

Options = TypeVar("Options")


def parse_options(kind: type[Options], values: GivenOptions, whose: str) -> Options:
    """Return the ``CheckedOptions`` of class ``kind``, made from values by name. Messages begin
    with ``whose``.

    Raises one ConfigError for all unknown names and all illegal values.
    """
    options: Options
    (options,) = parse_all_options((kind,), values, whose)
    return options


def parse_all_options(kinds: Sequence[type], values: GivenOptions, whose: str) -> list[Any]:
    """Return an object of each class, as ``parse_options`` does. No two of the classes may have an
    option of the same name.
    """
    known = {name: declared for kind in kinds for name, declared in options_of(kind).items()}
    errors: list[ConfigError] = [
        unknown(name, nearest(str(name), known)) for name in values if name not in known
    ]
    parsed = []
    for kind in kinds:
        try:
            parsed.append(
                kind(**{name: values[name] for name in options_of(kind) if name in values})
            )
        except ConfigError as error:
            errors.append(error)
    if errors:
        raise with_location(together(errors), whose)
    return parsed


class CheckedOptions:
    """The base class of options. The class replaces each value by the result of ``parse`` of the
    option's kind.

    Raises one ConfigError for all illegal values.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        errors: list[ConfigError] = []
        for name, declared in options_of(type(self)).items():
            try:
                object.__setattr__(self, name, parse_value(declared, getattr(self, name), name))
            except ConfigError as error:
                errors.append(error)
        if errors:
            raise together(errors)


def parse_value(declared: Option, value: Any, name: str) -> Any:
    """Parse a value by the kind of its option. Raises ConfigError with a message that begins with
    ``name``.
    """
    kind = declared.kind
    if value is REQUIRED:
        raise ConfigError(f"{name} is missing: {kind.legal}")
    if value is declared.default:
        return value
    try:
        return kind.parse(value)
    except ConfigError as error:
        raise with_location(error, name) from None
    except (ValueError, RecursionError) as error:
        text = _shown(value)
        reason = f" ({error})" if str(error) else ""
        shown = f"the value of {name}" if kind.confidential else f"{name} = {text}"
        raise ConfigError(f"{shown} is not allowed{reason}; legal: {kind.legal}") from None


def unknown(name: str, hint: str) -> ConfigError:
    """Return the error for an unknown name. ``hint`` is a hint such as ``nearest`` returns."""
    return ConfigError(f"{name} is not known; {hint}")


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to an unknown name, without regard to case. Return
    an empty text if no known name is similar.
    """
    names = list(known)
    if near := difflib.get_close_matches(name, names, n=1):
        return near[0]
    lower = {one.lower(): one for one in names}
    return "".join(lower[one] for one in difflib.get_close_matches(name.lower(), lower, n=1))


def names_hint(name: str, known: Iterable[str], kind: str) -> str:
    """Return a hint for the unknown name of a class, a consumer or a schema: the most similar known
    name, or the first known names. ``kind`` is the noun for the named things, in the plural.
    """
    names = sorted(known)
    if near := nearest_name(str(name), names):
        return f"the nearest one is {near}"
    return f"the {kind} are: {first_of(names, 10) or 'none'}"


def nearest(name: str, known: Iterable[str], spelled: Callable[[str], str] = str) -> str:
    """Return a hint for an unknown name: the most similar known name. If no name is similar, the
    hint has all known names, since an unrelated name would mislead. ``spelled`` returns a name as
    the hint shows it.
    """
    names = list(known)
    if near := nearest_name(str(name), names):
        return f"the nearest known one is {spelled(near)}"
    if not names:
        return "there are no options"
    return f"the known ones are {', '.join(map(spelled, sorted(names)))}"


_LONGEST: Final = 200
"""The greatest number of characters of a value in a message."""


def _shown(value: Any) -> str:
    try:
        text = toml(value)
    except (ValueError, RecursionError):
        # A number of thousands of digits, or a thousand nested tables.
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


# --- kinds ----------------------------------------------------------------------------------------


def parse_boolean(value: Any) -> bool:
    """Parse a boolean: a boolean of TOML, or ``1 yes true`` / ``0 no false`` in any case
    (spec/event-log.md 9).

    Raises ValueError.
    """
    word = str(value).strip().lower()
    if isinstance(value, bool | int | str) and word in ("1", "yes", "true"):
        return True
    if isinstance(value, bool | int | str) and word in ("0", "no", "false"):
        return False
    raise ValueError


def integer(low: int | None = None, high: int | None = None) -> OptionKind:
    """Return the kind of an option that is a whole number from ``low`` to ``high``; None = no
    bound.
    """

    def parse(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError  # noqa: TRY004
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError
        return value

    legal = (
        "a whole number" if low is None else f"{low} or more" if high is None else f"{low}..{high}"
    )
    return OptionKind(parse, legal, int)


def number(low: float, high: float | None = None) -> OptionKind:
    """Return the kind of an option that is a finite number from ``low`` to ``high``, with or
    without a fraction; None = no bound.
    """

    def parse(value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError  # noqa: TRY004
        try:
            exact = float(value)
        except OverflowError:
            raise ValueError from None
        if not isfinite(exact) or exact < low or (high is not None and exact > high):
            raise ValueError
        return exact

    return OptionKind(
        parse,
        f"a number, {low:g} or more" if high is None else f"a number from {low:g} to {high:g}",
        float,
    )


def choice(*values: str | int) -> OptionKind:
    """Return the kind of an option that accepts one of these words, in exactly this spelling."""

    def parse(value: Any) -> Any:
        if not any(type(value) is type(one) and value == one for one in values):
            raise ValueError
        return value

    return OptionKind(parse, " | ".join(map(str, values)))


def matching(pattern: str, legal: str, *, confidential: bool = False) -> OptionKind:
    """Return the kind of an option that is a text which matches ``pattern``."""
    matches = re.compile(pattern).fullmatch

    def parse(value: Any) -> str:
        if not isinstance(value, str) or matches(value) is None:
            raise ValueError
        return value

    return OptionKind(parse, legal, confidential=confidential)


def instance_of(*types: type) -> Callable[[Any], Any]:
    """Return a function that returns a value of one of these types unchanged. The function raises
    ValueError for any other value.
    """

    def parse(value: Any) -> Any:
        if not isinstance(value, types):
            raise ValueError  # noqa: TRY004
        return value

    return parse


_parse_string: Final[Callable[[Any], str]] = instance_of(str)


_BLANKS: Final = " \t\r\n\f\v"
"""The characters that are stripped from both ends of a text. Other blanks of Unicode, such as
U+2028, are kept, since a name may end with such a blank.
"""


def _parse_text(value: Any) -> str:
    text = _parse_string(value).strip(_BLANKS)
    if not text or "\0" in text:
        raise ValueError
    return text


def parse_name(value: Any) -> str:
    """Return a name without stripping it: a quoted identifier may end with a blank.

    Raises ValueError.
    """
    name = _parse_string(value)
    if not name or "\0" in name:
        raise ValueError
    return name


def _parse_path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(_parse_text(value))


def parse_names(value: Any) -> Names:
    """Parse names in a list, or in text with separators. There must be at least one name, and no
    name twice.

    Raises ValueError.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        raise ValueError('write a list as ["usr", "grp"]')
    names = (
        re.split(r"[;,\s]+", value.strip(f"{_BLANKS};,"), flags=re.ASCII)
        if isinstance(value, str)
        else value
    )
    if not isinstance(names, list | tuple):
        raise ValueError  # noqa: TRY004
    result = tuple(parse_name(name) for name in names)
    if not result:
        raise ValueError
    if len(set(result)) < len(result):
        raise ValueError("a name is repeated")
    return result


def _parse_texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_parse_string, instance_of(list, tuple)(value)))


def _parse_function(value: Any) -> Any:
    if not callable(value):
        raise ValueError  # noqa: TRY004
    return value


def _parse_zone(value: Any) -> str:
    zone = _parse_text(value)
    if zone.upper() == "UTC":
        return "UTC"
    try:
        time_zone_named(zone)
    except ConfigError:
        raise ValueError("this machine's time zone database lacks the zone") from None
    return zone


def _parse_charset(value: Any) -> str:
    try:
        "".encode(value)
    except (LookupError, TypeError, ValueError):  # hex and similar codecs are not character sets
        raise ConfigError(
            f"{value!r} is not a character set; use a name such as utf-8 or gb18030"
        ) from None
    return str(value)


def object_of(kind: OptionKind, legal: str) -> OptionKind:
    """Return the kind of an option that is an object whose values all have the kind ``kind``."""

    def parse(value: Any) -> dict[Any, Any]:
        return {name: kind.parse(one) for name, one in OBJECT.parse(value).items()}

    return OptionKind(parse, legal, toml_or(json.loads))


def list_of(options: type, word: str) -> OptionKind:
    """Return the kind of an option that is a list of objects; the members of each object are the
    options of a class. ``word`` is the noun for an object in messages. A message identifies an
    object by its member ``name`` or by its position.
    """

    def parse(value: Any) -> tuple[Any, ...]:
        parsed: list[Any] = []
        errors: list[ConfigError] = []
        for number, one in enumerate(map(OBJECT.parse, instance_of(list, tuple)(value)), 1):
            try:
                parsed.append(parse_options(options, one, f"{word} {one.get('name', number)!r}"))
            except ConfigError as error:
                errors.append(error)
        if errors:
            raise together(errors)
        return tuple(parsed)

    return OptionKind(parse, "a list of objects", toml_or(json.loads))


def toml_or(plain: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the ``from_text`` of a kind of lists or tables. The function reads text in brackets or
    braces as TOML, which users write after ``--set``, and all other text by ``plain``.
    """

    def read(text: str) -> Any:
        if text.lstrip().startswith(("[", "{")):
            with suppress(ValueError):
                return tomllib.loads(f"value = {text}")["value"]
        return plain(text)

    return read


ANY: Final = OptionKind(lambda value: value, "any value")
STRING: Final = OptionKind(_parse_string, "a text")
TEXT: Final = OptionKind(_parse_text, "text that is not empty")
NAME: Final = OptionKind(parse_name, "text that is not empty")
FLAG: Final = OptionKind(instance_of(bool), "true | false", json.loads)
BOOLEAN: Final = OptionKind(parse_boolean, "1 yes true / 0 no false")
PATH: Final = OptionKind(_parse_path, "a path")
ZONE: Final = OptionKind(_parse_zone, "UTC or a zone such as Europe/Berlin")
CHARSET: Final = OptionKind(_parse_charset, "the name of a character set")
FUNCTION: Final = OptionKind(_parse_function, "a function")
NAMES: Final = OptionKind(
    parse_names,
    "a list of different names, or text such as usr,grp (separators: comma, semicolon, blank)",
    toml_or(str),
)
TEXTS: Final = OptionKind(
    _parse_texts, 'a list of texts, such as ["one", "two"]', toml_or(json.loads)
)
OBJECT: Final = OptionKind(instance_of(Mapping), "an object", toml_or(json.loads))
TEXT_OBJECT: Final = object_of(STRING, "an object: name -> text")
LIST_OBJECT: Final = object_of(TEXTS, "an object: table -> list of columns")


def _without_secrets(url: str) -> str:
    return re.sub("//[^/]*@", "//***@", url.partition("?")[0], count=1)


WEB_URL: Final = OptionKind(TEXT.parse, TEXT.legal, shown=_without_secrets)
"""URLs of HTTP servers. The password and the query of a URL are not shown."""


def toml(value: Any) -> str:
    """Return a value of any kind in the spelling of TOML. None becomes ``null``, as in JSON."""
    match value:
        case None:
            return "null"
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
            return (
                "{ "
                + ", ".join(f"{_toml_key(key)} = {toml(item)}" for key, item in value.items())
                + " }"
            )
    # A string of JSON is a string of TOML, except that TOML requires DEL to be escaped. Other
    # invisible characters are escaped for readability.
    return visible(json.dumps(str(value), ensure_ascii=False))


def _toml_key(key: Any) -> str:
    name = str(key)
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml(name)


# --- options that eventlog.toml and formats share (spec/event-log.md 9, spec/triggers.md 1) -------

MANY: Final = 2147483647

STYLES: Final = {
    "field": (EventType.INSERT_FIELD, EventType.UPDATE_FIELD),
    "remove_all": (EventType.INSERT_FIELD, EventType.UPDATE_FIELD_REMOVE_ALL),
    "field_query_back": (EventType.INSERT_FIELD_QUERY_BACK, EventType.UPDATE_FIELD_QUERY_BACK),
    "row_query_back": (EventType.INSERT_ROW_QUERY_BACK, EventType.UPDATE_ROW_QUERY_BACK),
}
"""The types of inserts and of updates by style (spec/triggers.md 1)."""

STYLE: Final = Option("field", choice(*STYLES), "what the triggers log")
LOG_TABLE: Final = Option("eventlog", TEXT, "the log table, schema-qualified or in schema_name")
LAYOUT: Final = Option(
    "2.x", choice("2.x", "3.5"), "order of the log's columns if they do not have the standard names"
)
COLUMN_SORT: Final = Option(
    "bytes",
    choice("bytes", "collation"),
    "order of the log's columns in databases that do not number them",
)
FOLD_DISTANCE: Final = Option(
    1000,
    integer(0, MANY),
    "largest distance of record_ids between successive rows of one event; inserts use at least "
    "1000",
)
FOLD_SPAN: Final = Option(
    10000,
    integer(0, MANY),
    "largest distance between the first and the last row of one event, 0 = no bound; "
    "inserts use at least 10000",
)
BATCH_SIZE: Final = Option(128, integer(1, 128), "maximum number of events in a document", idm=1)

TIME_SYNTAX: Final = Option(
    "integer", choice("integer", "canonical", "java"), "form of dates and times"
)
TIME_ZONE: Final = Option("UTC", ZONE, "zone of values without one")
SPECIAL_TIMES: Final = Option(
    "text",
    choice("text", "error"),
    "PostgreSQL: infinite times, years before 0001 or beyond 9999, 24:00:00: sent as text, or "
    "invalid rows",
)
CHAR_PADDING: Final = Option("trim", choice("trim", "keep"), "trailing blanks of CHAR(n) values")
META_IDENTIFIERS: Final = Option(True, BOOLEAN, "view columns have prefixes such as pk_, mv_")
REFERENTIAL: Final = Option(
    "value", choice("value", "dn"), "foreign keys as stored, or as associations"
)
INSERT_QUERY_BACK: Final = Option(
    "modify", choice("modify", "add"), "operation of inserts whose values are all read back"
)
INDENT: Final = Option(
    0, integer(0, 16), "blanks per level with file_layout = documents, 0 = no indentation"
)
PRODUCT_NAME: Final = Option("eventlog", TEXT, "text of the product element in each document")
PRODUCT_VERSION: Final = Option(__version__, TEXT, "version in the product element")
