"""Events to XDS text (spec/xds.md 1 to 3, 8).

Text is built directly, without a tree: millions of events pass through. Escaping costs one search of a compiled
expression where nothing is to be escaped. What the writer makes is one line, since LF is always a character reference.

Characters that XML 1.0 cannot hold have been refused before (spec/event-log.md 5): this module does not look for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from eventlog import __version__
from eventlog.errors import BadXmlChar, ConfigError
from eventlog.model import AttributeSteps, Event, Op, Operation
from eventlog.values import check_xml

DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>'
HEARTBEAT: Final = '<status level="success" type="heartbeat"/>'
"""What stands in a heartbeat's envelope in the place of events (spec/xds.md 7)."""

# The two columns of the table of spec/xds.md 8.
_TEXT_REFERENCES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;", "\n": "&#10;"}
_ATTRIBUTE_REFERENCES = {**_TEXT_REFERENCES, '"': "&quot;", "\t": "&#9;"}
_TEXT_TABLE = str.maketrans(_TEXT_REFERENCES)
_ATTRIBUTE_TABLE = str.maketrans(_ATTRIBUTE_REFERENCES)
_in_text = re.compile("[" + "".join(_TEXT_REFERENCES) + "]").search
# A special time stands among the seconds of its attribute, and is a string (spec/xds.md 6.3).
_no_seconds = re.compile("[^-0-9]|[0-9]-").search
_in_attribute = re.compile("[" + "".join(_ATTRIBUTE_REFERENCES) + "]").search

# Bound names: each saves two look-ups a step.
_REMOVE, _REMOVE_ALL, _ADD = Op.REMOVE, Op.REMOVE_ALL, Op.ADD


_Search: TypeAlias = "Callable[[str], re.Match[str] | None]"


@dataclass(frozen=True, slots=True)
class Header:
    """Who sends: name and version of the product element (options ``product_name``, ``product_version``).

    Raises ConfigError for a character that XML 1.0 cannot hold.
    """

    product_name: str = "eventlog"
    product_version: str = __version__

    def __post_init__(self) -> None:
        for option, text in (("product_name", self.product_name), ("product_version", self.product_version)):
            try:
                check_xml(text)
            except BadXmlChar as error:
                raise ConfigError(f"{option} = {text!r}: {error}") from None


def escape_text(text: str) -> str:
    """Text as element content (spec/xds.md 8)."""
    return text.translate(_TEXT_TABLE) if _in_text(text) else text


def escape_attribute(text: str) -> str:
    """Text as an attribute value in double quotes (spec/xds.md 8)."""
    return text.translate(_ATTRIBUTE_TABLE) if _in_attribute(text) else text


def write_event(event: Event) -> str:
    """One event as its element, without line breaks (spec/xds.md 1, 3).

    An add takes the values of its attributes' ``Op.ADD`` steps; a modify keeps the steps in order. The texts have been
    checked for characters that XML cannot hold.
    """
    operation = event.operation
    parts = [
        _element_start(operation, event.class_name),
        escape_attribute(event.event_id),
        '"><association>',
        escape_text(event.association),
        "</association>",
    ]
    if operation == Operation.MODIFY:
        parts += [_modify_attr(attribute) for attribute in event.attributes]
    elif operation == Operation.ADD:
        parts += [_add_attr(attribute) for attribute in event.attributes]
    parts.append(f"</{operation}>")
    return "".join(parts)


def line_form(events: Iterable[str], header: Header) -> str:
    """One envelope as one line that ends in LF (spec/xds.md 2).

    ``events`` are written events in order, at least one. Raises ValueError without any: such an envelope is never sent.
    """
    return f"{DECLARATION}{_envelope(events, header)}\n"


def file_form(events: Iterable[str], header: Header, indent: int = 0) -> str:
    """One envelope as a document of its own, the declaration on a line of its own (spec/xds.md 2).

    ``events`` as in ``line_form``. ``indent``: blanks a level for elements that have element children (option
    ``indent``); 0 = none.
    """
    envelope = _envelope(events, header)
    return f"{DECLARATION}\n{_indented(envelope, indent) if indent else envelope}"


def heartbeat(header: Header) -> str:
    """The heartbeat document in the line form (spec/xds.md 7)."""
    return line_form((HEARTBEAT,), header)


def _envelope(events: Iterable[str], header: Header) -> str:
    body = "".join(events)
    if not body:
        raise ValueError("an envelope without events is never sent (spec/xds.md 2)")
    return f"{_envelope_start(header)}{body}</input></nds>"


@lru_cache(maxsize=16)
def _envelope_start(header: Header) -> str:
    version = escape_attribute(header.product_version)
    name = escape_text(header.product_name)
    return f'<nds dtdversion="2.0"><source><product version="{version}">{name}</product></source><input>'


# Class and attribute names are few and come again and again: what is written from them alone is kept.
_NAMES_KEPT: Final = 65536


@lru_cache(maxsize=_NAMES_KEPT)
def _element_start(operation: str, class_name: str) -> str:
    return f'<{operation} class-name="{escape_attribute(class_name)}" event-id="'


@lru_cache(maxsize=_NAMES_KEPT)
def _replacement(name: str, value_type: str) -> tuple[str, str, str, str, str, _Search]:
    """What stands around the values of the two usual modify-attrs: old to new, and remove all then new. The last finds
    what a value cannot be written at once for.
    """
    start = f'<modify-attr attr-name="{escape_attribute(name)}">'
    value = f'<value type="{value_type}">'
    return (
        start,
        f"{start}<remove-value>{value}",
        f"</value></remove-value><add-value>{value}",
        f"{start}<remove-all-values/><add-value>{value}",
        "</value></add-value></modify-attr>",
        _no_seconds if value_type == "time" else _in_text,
    )


@lru_cache(maxsize=_NAMES_KEPT)
def _addition(name: str, value_type: str) -> tuple[str, str, _Search]:
    """What stands before the values of an add-attr, and before its only value; the last as of ``_replacement``."""
    start = f'<add-attr attr-name="{escape_attribute(name)}">'
    return start, f'{start}<value type="{value_type}">', _no_seconds if value_type == "time" else _in_text


def _modify_attr(attribute: AttributeSteps) -> str:
    name, value_type, steps = attribute
    start, remove, then_add, remove_all_then_add, end, is_odd = _replacement(name, value_type)
    # Nearly all are of these two shapes: each is written at once.
    if len(steps) == 2 and value_type != "dn":
        (first, old), (second, new) = steps
        if second is _ADD and len(new) == 1:
            after = new[0]
            if first is _REMOVE_ALL:
                if not is_odd(after):
                    return f"{remove_all_then_add}{after}{end}"
                if value_type != "time":
                    return f"{remove_all_then_add}{after.translate(_TEXT_TABLE)}{end}"
            elif first is _REMOVE and len(old) == 1:
                before = old[0]
                if not is_odd(before) and not is_odd(after):
                    return f"{remove}{before}{then_add}{after}{end}"
                if value_type != "time":
                    return f"{remove}{before.translate(_TEXT_TABLE)}{then_add}{after.translate(_TEXT_TABLE)}{end}"
    parts = [start]
    for op, values in steps:
        if op is _REMOVE_ALL:
            parts.append("<remove-all-values/>")
        elif op is _REMOVE:
            parts.append(f"<remove-value>{_values(value_type, values)}</remove-value>")
        else:
            parts.append(f"<add-value>{_values(value_type, values)}</add-value>")
    parts.append("</modify-attr>")
    return "".join(parts)


def _add_attr(attribute: AttributeSteps) -> str:
    name, value_type, ((_, values),) = attribute
    start, start_of_value, is_odd = _addition(name, value_type)
    if len(values) == 1 and value_type != "dn":
        value = values[0]
        if not is_odd(value):
            return f"{start_of_value}{value}</value></add-attr>"
        if value_type != "time":
            return f"{start_of_value}{value.translate(_TEXT_TABLE)}</value></add-attr>"
    return f"{start}{_values(value_type, values)}</add-attr>"


def _values(value_type: str, values: tuple[str, ...]) -> str:
    if value_type == "dn":  # the association of the target in both places (spec/xds.md 6.4)
        return "".join(
            f'<value type="dn" association-ref="{escape_attribute(value)}">{escape_text(value)}</value>'
            for value in values
        )
    if value_type == "time":
        return "".join(
            f'<value type="{"string" if _no_seconds(value) else "time"}">{escape_text(value)}</value>'
            for value in values
        )
    return "".join(f'<value type="{value_type}">{escape_text(value)}</value>' for value in values)


# Elements that hold text are one piece each, so that nothing is put inside them. A tag ends at the first ">", since
# ">" is a reference everywhere else.
_PIECES = re.compile(r"<(value|association|product)\b[^>]*>[^<]*</\1>|<[^>]*>")


def _indented(envelope: str, indent: int) -> str:
    lines: list[str] = []
    level = 0
    for match in _PIECES.finditer(envelope):
        piece = match[0]
        closes = piece.startswith("</")
        level -= closes
        lines.append(" " * (indent * level) + piece)
        if not closes and match[1] is None and not piece.endswith("/>"):
            level += 1
    return "\n".join(lines)
