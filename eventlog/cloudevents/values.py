"""Convert between the values of columns and the JSON in the data of an event
(formats/cloudevents.md 4).

Writing is a hot path: ``value_converter`` and ``text_converter`` decide once for each type of
columns and return closures without further choices. The price: the rule of a type is where its
converter is chosen, not where its values are converted.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from eventlog.changes.json_form import value_to_json
from eventlog.core.values import (
    ColumnType,
    Kind,
    float_or_special,
    is_unicode,
    parse_type,
    without_host_mask,
)
from eventlog.core.values.json_bytes import JsonText
from eventlog.core.values.typed_values import value_reader
from eventlog.errors import BadValue
from eventlog.model import Lob, Value

InJson: TypeAlias = Callable[[Value], Any]
"""A function from a value of a column to its JSON."""

TextInJson: TypeAlias = Callable[[str], Any]
"""A function from the log's text of a value to its JSON."""


class JsonEncoding(NamedTuple):
    """The encoding of values in JSON: the options ``integers`` and ``nested_values``."""

    integers: str = "number"
    nested_values: str = "json"


DEFAULT_ENCODING: Final = JsonEncoding()
"""The encoding under the default options."""

_EXACT_DIGITS: Final = 15
"""The number of digits of an integer that every JSON reader preserves (RFC 8259 6)."""

_is_integer: Final = re.compile(r"0|-?[1-9][0-9]*").fullmatch


def is_wide(type: ColumnType | None) -> bool:
    """Return True if a column may contain integers that some JSON readers do not preserve."""
    if type is None or type.kind is not Kind.INTEGER:
        return type is None
    return type.bits == 64 or (type.bits == 0 and (not type.sizes or type.sizes[0] > _EXACT_DIGITS))


def is_json(type: ColumnType) -> bool:
    """Return True if a column holds JSON."""
    return type.sql.lower() in ("json", "jsonb")


_PLAIN_ELEMENT: Final = re.compile(
    r"(?:smallint|bigint|integer|int[248]?|numeric|decimal|real|float[48]?|double precision|"
    r"bool(?:ean)?)\s*(?:\([^)]*\))?",
    re.ASCII | re.IGNORECASE,
)
"""PostgreSQL's names of the types whose array elements are numbers or booleans in JSON. Any other
name may belong to a user-defined type, such as ``number``.
"""


def element_type(type: ColumnType) -> ColumnType | None:
    """Return the type of the elements of a PostgreSQL array; None for a column of another type. The
    type is ``Kind.OTHER`` unless the elements are numbers or booleans in JSON.
    """
    # the elements of box[] are separated by semicolons
    if not type.sql.endswith("[]") or type.sql.startswith("box["):
        return None
    name = type.sql[:-2].rstrip("[]").strip()
    return parse_type(name) if _PLAIN_ELEMENT.fullmatch(name) else ColumnType(Kind.OTHER, sql=name)


@lru_cache(maxsize=4096)
def value_converter(type: ColumnType | None, encoding: JsonEncoding) -> InJson:
    """Return the function that converts values of a column to JSON; ``type`` None = unknown.

    A float becomes a number, or a word if it is not finite; integers may have any size.
    """
    of_text: TextInJson = str if type is None else text_converter(type, encoding)
    in_words = encoding.integers == "text" and is_wide(type)

    def convert(value: Value) -> Any:
        match value:
            case str():
                return of_text(value)
            case None | bool():
                return value
            case int():
                return str(value) if in_words else value
            case float():
                return float_or_special(value)
            case bytes(data) | Lob(data):
                return b64encode(data).decode()
            case tuple():
                return [convert(one) for one in value]
            case _:
                return value_to_json(value)

    return convert


_convert_plain: Final = value_converter(None, DEFAULT_ENCODING)


def as_in_key(value: Value, converted: Any) -> Any:
    """Return the JSON of a value of a key column.

    A decimal becomes the text of the canonical key (spec/event-log.md 4.3), so that the key in the
    data and the key in the subject are equal.
    """
    return (
        converted.rstrip("0").rstrip(".")
        if isinstance(value, Decimal) and "." in converted
        else value  # an inet address has its mask in the subject, too
        if isinstance(value, str) and converted == without_host_mask(value)
        else converted
    )


@lru_cache(maxsize=4096)
def text_converter(type: ColumnType, encoding: JsonEncoding) -> TextInJson:
    """Return the function that converts the log's text of a column to JSON.

    Text that Python cannot hold as a value stays text.
    """
    if type.kind is Kind.INTEGER:
        return str if encoding.integers == "text" and is_wide(type) else _integer
    if type.sql.lower() == "inet":
        return without_host_mask
    if encoding.nested_values == "json":
        if is_json(type):
            return _document
        element = element_type(type)
        if element is not None:
            is_plain = element.kind is not Kind.OTHER
            return _array_converter(text_converter(element, encoding) if is_plain else str)
    read = value_reader(type)
    if read is str:
        return str

    def convert(text: str) -> Any:
        try:
            value = read(text)
        except BadValue:
            return text
        return value if isinstance(value, str) else _convert_plain(value)

    return convert


def _integer(text: str) -> Any:
    if not _is_integer(text):
        return text
    try:
        return int(text)
    except ValueError:  # more digits than Python converts
        return JsonText(text)


def _document(text: str) -> Any:
    """Return the JSON that a column holds, unchanged and on one line. Text that is not JSON stays
    text.
    """
    try:
        json.loads(text, parse_constant=_refuse, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return text
    # A line break within a string is an escape, so these line breaks lie between the tokens.
    return JsonText(text.translate(_BREAKS) if "\n" in text or "\r" in text else text)


_BREAKS: Final = {ord("\n"): " ", ord("\r"): " "}


def _refuse(word: str) -> None:
    raise ValueError(word)


def _array_converter(convert_element: TextInJson) -> TextInJson:
    def element(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(element, value))
        return None if value is None else convert_element(value)

    def convert(text: str) -> Any:
        try:
            return element(array_of(text))
        except ValueError:
            return text

    return convert


_BOUNDS: Final = re.compile(r"(?:\[[0-9+-]+:[0-9+-]+\])+=")
_TOKEN: Final = re.compile(
    r'\s*([{},]|"(?:[^"\\]|\\.)*"|[^{},"\s\\](?:[^{},"\\]|\\.)*)\s*', re.DOTALL
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_DEEPEST: Final = 6  # the greatest number of dimensions in PostgreSQL


def array_of(text: str) -> list[Any]:
    """Return the elements of an array that PostgreSQL has written as text. The elements are texts
    and None, nested by dimensions, without the bounds.

    Raises ValueError.
    """
    bounds = _BOUNDS.match(text)
    words = _words(text, 0 if bounds is None else bounds.end())
    if next(words, None) != "{":
        raise ValueError("no array")
    elements = _elements(words, 1)
    if next(words, None) is not None:
        raise ValueError("text after the array")
    return elements


def _words(text: str, place: int) -> Iterator[str]:
    """Yield the brackets, commas and elements of an array's text. Raises ValueError."""
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            raise ValueError(f"no array at {place}")
        yield token[1]
        place = token.end()


def _elements(words: Iterator[str], depth: int) -> list[Any]:
    """Return the elements up to the bracket that closes an array; its opening bracket has been
    read. Raises ValueError.
    """
    if depth > _DEEPEST:
        raise ValueError(f"an array within {depth}")
    elements: list[Any] = []
    word = next(words, None)
    if word == "}":
        return elements
    while True:
        if word == "{":
            elements.append(_elements(words, depth + 1))
        elif word in (None, "}", ","):
            raise ValueError(f"an element is missing before {word or 'the end'}")
        else:
            elements.append(_element(word))
        separator = next(words, None)
        if separator == "}":
            return elements
        if separator != ",":
            raise ValueError("no comma between elements")
        word = next(words, None)


def _element(word: str) -> str | None:
    if word.startswith('"'):
        return _ESCAPED.sub(r"\1", word[1:-1])
    text = word.rstrip()
    return None if text.upper() == "NULL" else _ESCAPED.sub(r"\1", text)


def array_text(elements: Sequence[Any]) -> str:
    """Return the text that PostgreSQL writes for an array."""
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


# --- reading --------------------------------------------------------------------------------------


def read_json(value: Any, type: ColumnType | None, encoding: JsonEncoding) -> Value:
    """Return the value of a column from JSON that ``parsed_json`` has read. Text stays text; JSON
    and arrays become text.

    Without a type, an array of plain values becomes the values of a multi-valued attribute. An
    object becomes JSON, and so does an array that contains objects or arrays.
    """
    if value is None:
        return None
    if type is not None and encoding.nested_values == "json":
        if is_json(type):
            return document_text(value)
        if isinstance(value, list) and element_type(type) is not None:
            return array_text(value)
    if isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(one, dict | list) for one in value)
    ):
        return document_text(value)
    if isinstance(value, list):
        return tuple(read_json(one, type, encoding) for one in value)
    if isinstance(value, Decimal):
        return float(value)
    plain: Value = value
    return plain


def document_text(value: Any) -> str:
    """Return JSON as text on one line, in which numbers have all their digits."""
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{document_text(name)}:{document_text(one)}" for name, one in value.items())
            + "}"
        )
    if isinstance(value, list):
        return f"[{','.join(map(document_text, value))}]"
    if isinstance(value, Decimal):
        return str(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if is_unicode(text) else json.dumps(value)
