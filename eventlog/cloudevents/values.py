"""The values of columns in the data of an event (spec/cloudevents.md 4), and the JSON Schema that says what they are.

The text of the log goes straight into JSON where it can: an integer in its normal form is a number of JSON as it
stands, of any size.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple, TypeAlias

from eventlog.changes.json_form import value_to_json
from eventlog.core.typed import ReadValue, is_multi_valued, value_reader
from eventlog.core.values import ColumnType, Kind, float_or_word, parse_type
from eventlog.errors import BadValue
from eventlog.model import Lob, Value

WriteText: TypeAlias = Callable[[str], str]
"""The text of a value in the log -> its JSON."""


class JsonForm(NamedTuple):
    """How values stand in JSON: the options ``integers`` and ``nested_values``."""

    integers: str = "number"
    nested_values: str = "json"


JSON_FORM: Final = JsonForm()
"""As the options are by default."""

_EXACT_DIGITS: Final = 15
"""Digits of the integers that every reader of JSON keeps exactly (RFC 8259 6)."""

_encode: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
_is_integer: Final = re.compile(r"0|-?[1-9][0-9]*").fullmatch


def json_string(text: str) -> str:
    """A text as JSON, which UTF-8 holds: of half a surrogate pair all beyond ASCII is written as escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return encode_basestring(text)


def is_wide(type: ColumnType | None) -> bool:
    """Whether a column may hold integers that not every reader of JSON keeps exactly."""
    if type is None or type.kind is not Kind.INTEGER:
        return type is None
    return type.bits == 64 or (type.bits == 0 and (not type.sizes or type.sizes[0] > _EXACT_DIGITS))


def is_json(type: ColumnType) -> bool:
    """Whether a column holds JSON."""
    return type.sql.lower() in ("json", "jsonb")


def element_type(type: ColumnType) -> ColumnType | None:
    """The type of the elements of an array of PostgreSQL; None for a column of another type."""
    if not type.sql.endswith("[]") or type.sql.startswith("box["):  # whose elements are parted by semicolons
        return None
    return parse_type(type.sql[:-2].rstrip("[]").replace("double precision", "double"))


@lru_cache(maxsize=4096)
def text_writer(type: ColumnType, form: JsonForm, read: ReadValue | None = None) -> WriteText:
    """The function that writes the log's text of a column as JSON; picked once a column.

    ``read``: how the text is read, None = as the log has it. Text that is no value of Python's stays text.
    """
    if type.kind is Kind.INTEGER:
        return _quoted_integer if form.integers == "text" and is_wide(type) else _integer
    if form.nested_values == "json":
        if is_json(type):
            return _document
        element = element_type(type)
        if element is not None:
            return _array_writer(text_writer(element, form) if element.kind in _NESTED else json_string)
    read = value_reader(type) if read is None else read
    if read is str:
        return encode_basestring

    def write(text: str) -> str:
        try:
            value = read(text)
        except BadValue:
            return json_string(text)
        return plain_json(value)

    return write


_NESTED: Final = frozenset({Kind.INTEGER, Kind.EXACT, Kind.APPROXIMATE, Kind.BOOLEAN})
"""The kinds whose elements in an array are written as values of a column; others stay text."""


def _integer(text: str) -> str:
    return text if _is_integer(text) else json_string(text)


def _quoted_integer(text: str) -> str:
    return f'"{text}"' if _is_integer(text) else json_string(text)


def _document(text: str) -> str:
    """JSON out of a column as it stands, on one line; what is none stays text."""
    try:
        json.loads(text, parse_constant=_refuse, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return json_string(text)
    # A line break within a string is an escape, so these are blanks between.
    return text.translate(_BREAKS) if "\n" in text or "\r" in text else text


_BREAKS: Final = {ord("\n"): " ", ord("\r"): " "}


def _refuse(word: str) -> None:
    raise ValueError(word)


def _array_writer(write_element: WriteText) -> WriteText:
    def element(value: Any) -> str:
        if isinstance(value, list):
            return f"[{','.join(map(element, value))}]"
        return "null" if value is None else write_element(value)

    def write(text: str) -> str:
        try:
            return element(array_of(text))
        except ValueError:
            return json_string(text)

    return write


_BOUNDS: Final = re.compile(r"(?:\[[0-9+-]+:[0-9+-]+\])+=")
_TOKEN: Final = re.compile(r'\s*([{},]|"(?:[^"\\]|\\.)*"|[^{},"\s\\](?:[^{},"\\]|\\.)*)\s*', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_DEEPEST: Final = 6  # dimensions of PostgreSQL


def array_of(text: str) -> list[Any]:
    """The elements of an array as PostgreSQL writes it, texts and None, nested by dimensions; the bounds are left out.

    Raises ValueError.
    """
    bounds = _BOUNDS.match(text)
    place = 0 if bounds is None else bounds.end()
    outermost: list[Any] = []
    open_lists = [outermost]
    needs_value = True
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise ValueError(f"no array at {place}")
        place, word = token.end(), token[1]
        if word == "{":
            if not needs_value or len(open_lists) > _DEEPEST:
                raise ValueError(f"an array within {len(open_lists)}")
            inner: list[Any] = []
            open_lists[-1].append(inner)
            open_lists.append(inner)
        elif word == "}":
            if len(open_lists) == 1 or (needs_value and open_lists[-1]):
                raise ValueError("no element before }")
            open_lists.pop()
            needs_value = False
        elif word == ",":
            if needs_value or len(open_lists) == 1:
                raise ValueError("no element before ,")
            needs_value = True
        else:
            if not needs_value or len(open_lists) == 1:
                raise ValueError("an element outside")
            open_lists[-1].append(_element(word))
            needs_value = False
    if len(open_lists) != 1 or len(outermost) != 1:
        raise ValueError("no whole array")
    elements: list[Any] = outermost[0]
    return elements


def _element(word: str) -> str | None:
    if word.startswith('"'):
        return _ESCAPED.sub(r"\1", word[1:-1])
    text = word.rstrip()
    return None if text.upper() == "NULL" else _ESCAPED.sub(r"\1", text)


def array_text(elements: Sequence[Any]) -> str:
    """The text that PostgreSQL writes of an array."""
    return "{" + ",".join(map(_element_text, elements)) + "}"


_IS_BARE: Final = re.compile(r"[^{},\"\\\s]+").fullmatch


def _element_text(value: Any) -> str:
    if isinstance(value, list):
        return array_text(value)
    if value is None:
        return "NULL"
    text = _plain_text(value)
    if _IS_BARE(text) and text.upper() != "NULL":
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain_text(value: Any) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, dict):
        return document_text(value)
    return str(value)


# --- values of changes ------------------------------------------------------------------------------------------------


def value_json(value: Value, type: ColumnType | None, form: JsonForm) -> str:
    """A value as JSON. ``type``: of its column, None = not known."""
    if value is None:
        return "null"
    if is_multi_valued(value):
        return f"[{','.join(value_json(one, type, form) for one in value)}]"  # type: ignore[union-attr]
    if isinstance(value, str):
        write = json_string if type is None else text_writer(type, form)
        return json_string(value) if write is encode_basestring else write(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f'"{value}"' if form.integers == "text" and is_wide(type) else str(value)
    return plain_json(value)


def key_json(value: Value, type: ColumnType | None, form: JsonForm) -> str:
    """A value of a key column as JSON: a decimal as in the canonical key (spec/event-log.md 4.3), as its column has it
    in the subject, so that it has one text wherever it stands.
    """
    text = value_json(value, type, form)
    if isinstance(value, Decimal) and "." in text:
        return f'"{text[1:-1].rstrip("0").rstrip(".")}"'
    return text


def plain_json(value: Value) -> str:
    """One value that is no NULL as JSON, an integer as a number."""
    match value:
        case str():
            return json_string(value)
        case bytes(data) | Lob(data):
            return f'"{b64encode(data).decode()}"'
        case float():
            return _encode(float_or_word(value))
        case Decimal():
            return f'"{value_to_json(value)}"'
        case _:
            return _encode(value_to_json(value))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_json(value: Any, type: ColumnType | None, form: JsonForm) -> Value:
    """The value of a column out of JSON, as ``parsed_json`` gives it. Text stays text, but that of JSON and arrays.

    Without a type an array of plain values is taken for several values of one attribute, and one with others in it, as
    an object, for JSON.
    """
    if value is None:
        return None
    if type is not None and form.nested_values == "json":
        if is_json(type):
            return document_text(value)
        if isinstance(value, list) and element_type(type) is not None:
            return array_text(value)
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict | list) for one in value)):
        return document_text(value)
    if isinstance(value, list):
        return tuple(read_json(one, type, form) for one in value)
    if isinstance(value, Decimal):
        return float(value)
    plain: Value = value
    return plain


def document_text(value: Any) -> str:
    """JSON on one line, its numbers with all their digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_string(name)}:{document_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(document_text, value))}]"
    if isinstance(value, Decimal):
        return str(value)
    return json_string(value) if isinstance(value, str) else _encode(value)
