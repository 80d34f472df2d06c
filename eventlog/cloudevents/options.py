"""The options of reading and writing CloudEvents, and the modes that sinks support
(formats/cloudevents.md 1, 2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter
from typing import Any, Final

from eventlog.changes.json_form import CATALOG, CatalogOption
from eventlog.changes.publishing import Publishing
from eventlog.core.options import (
    BATCH_SIZE,
    TEXT,
    CheckedOptions,
    Option,
    OptionKind,
    choice,
    shared,
)

STRUCTURED: Final = "structured"
BATCHED: Final = "batched"
BINARY: Final = "binary"

NAMES_IN_TYPE: Final = ("operation", "schema", "class")

_NOT_ALLOWED: Final = "\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef" + "".join(
    f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
)
is_text: Final = re.compile(f"[ -~]*(?:[^ -~{_NOT_ALLOWED}]+[ -~]*)*").fullmatch
"""Matches a text whose characters are allowed in attributes (CloudEvents 1.0.2, "Type System")."""

_is_uri_reference: Final = re.compile(
    r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+"
).fullmatch


def _parse_source(value: Any) -> str:
    text: str = TEXT.parse(value)
    if _is_uri_reference(text) is None:
        raise ValueError("it has a character that a URI cannot contain: write it as %XX")
    return text


def _template(value: Any) -> tuple[str, list[tuple[str, str | None, str | None, str | None]]]:
    """Return the text ``value``, and the names in braces that it contains."""
    text: str = TEXT.parse(value)
    try:
        return text, [part for part in Formatter().parse(text) if part[1] is not None]
    except ValueError as error:
        raise ValueError(f"{error}: write {{{{ and }}}} for braces") from None


def _parse_event_type(value: Any) -> str:
    text, parts = _template(value)
    for _, name, spec, conversion in parts:
        if name not in NAMES_IN_TYPE or spec or conversion:
            raise ValueError(
                f"{{{name}}} is not one of {', '.join(f'{{{one}}}' for one in NAMES_IN_TYPE)}"
            )
    if not is_text(text):
        raise ValueError("it contains a control character")
    return text


MODE: Final = Option(
    None,
    choice(STRUCTURED, BATCHED, BINARY),
    "one event, a JSON array of all events of a document, or only data with the rest in headers; "
    "default: batched to http and python, binary to kafka, structured to stdout and files",
    example=STRUCTURED,
)
SOURCE: Final = Option(
    None, OptionKind(_parse_source, "a URI, or a reference such as /hr"),
    "source of the events; default: /<database>/<schema>/<log>", example="https://hr.example.com/eventlog",
)  # fmt: skip
EVENT_TYPE: Final = Option(
    "eventlog.{operation}",
    OptionKind(_parse_event_type, "a text with {operation}, {schema}, {class}"),
    "type of the events",
)  # fmt: skip
INTEGERS: Final = Option(
    "number",
    choice("number", "text"),
    "integers: numbers of any size, or text in columns whose type goes beyond 2^53 (bigint, "
    "numeric without scale)",
)
NESTED_VALUES: Final = Option(
    "json",
    choice("json", "text"),
    "json, jsonb and arrays: as JSON, or as the text that the database has for them",
)


def _parse_dataschema(value: Any) -> str:
    text, parts = _template(value)
    for _, name, _, _ in parts:
        if name not in ("schema", "class"):
            raise ValueError(f"{{{name}}} is neither {{schema}} nor {{class}}")
    plain = text.format(**{"schema": "s", "class": "c"})
    if _is_uri_reference(plain) is None or ":" not in plain:
        raise ValueError("dataschema is a whole URI, such as https://example.com/{class}.json")
    return text


DATASCHEMA: Final = Option(
    None, OptionKind(_parse_dataschema, "a URI with {schema}, {class}"),
    "dataschema of the events: the URI at which you publish the output of `eventlog schema`; "
    "default: left out",
    example="https://hr.example.com/schemas/{class}.json",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadOptions(CheckedOptions):
    """Options of the reader. With a catalogue, texts become dates, decimals, bytes and so on."""

    catalog: CatalogOption = shared(CATALOG)
    nested_values: str = shared(
        NESTED_VALUES, about="json, jsonb and arrays: their form in the events"
    )


@dataclass(frozen=True, slots=True)
class WriteOptions(CheckedOptions):
    """Options of the writer. Raises ConfigError."""

    catalog: CatalogOption = shared(CATALOG)
    mode: str = shared(
        MODE, default=STRUCTURED, kind=choice(STRUCTURED, BATCHED),
        about="per line one event, or a JSON array of up to batch_size events",
    )  # fmt: skip
    source: str = shared(SOURCE, default="/eventlog", about="source of the events")
    event_type: str = shared(EVENT_TYPE)
    dataschema: str | None = shared(DATASCHEMA)
    integers: str = shared(INTEGERS)
    nested_values: str = shared(NESTED_VALUES)
    batch_size: int = shared(BATCH_SIZE)


@dataclass(frozen=True, slots=True)
class FileOptions(CheckedOptions):
    """Options of the events of a backlog; these events are structured. Raises ConfigError."""

    source: str | None = shared(SOURCE)
    event_type: str = shared(EVENT_TYPE)
    dataschema: str | None = shared(DATASCHEMA)
    integers: str = shared(INTEGERS)
    nested_values: str = shared(NESTED_VALUES)


@dataclass(frozen=True, slots=True)
class PublishOptions(FileOptions):
    """Options of a publisher's events. Raises ConfigError."""

    mode: str | None = shared(MODE)


def mode_of(chosen: str | None, publishing: Publishing) -> str:
    """Return the mode of events: the option ``chosen``, or the usual mode of the sink if it is
    None.
    """
    if publishing.in_records:
        return chosen or (BINARY if publishing.has_headers else STRUCTURED)
    return chosen or (
        STRUCTURED if publishing.file_layout == "lines" and not publishing.in_messages else BATCHED
    )


def refused_mode(chosen: str | None, publishing: Publishing) -> str | None:
    """Return why the sink does not support the chosen mode, None if it does."""
    if publishing.in_records and not publishing.has_headers and chosen not in (None, STRUCTURED):
        return "a message of the sink is one event, with its attributes in the body: set structured"
    if chosen == BATCHED and publishing.in_records:
        return (
            "a record of Kafka is one event (Kafka protocol binding 1.3): set structured or binary"
        )
    if chosen == BINARY and not publishing.has_headers:
        return "the sink has no headers for it: set structured or batched"
    if (
        chosen == STRUCTURED
        and publishing.file_layout == "documents"
        and not publishing.in_messages
    ):
        return (
            'each document has its own file with sink.file_layout = "documents": set batched, or '
            'sink.file_layout = "lines"'
        )
    return None
