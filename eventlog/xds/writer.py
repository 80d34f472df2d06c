"""Write events as XDS text (spec/xds.md 1 to 3, 8).

This is a hot path, through which millions of events pass. Text is built directly, without a tree.
Text that depends only on names is made once for each attribute and class (``_Prepared``,
``_element``), so that an attribute needs one look-up and one formatted text. ``_body`` runs for
nearly every row: it unpacks steps by position, compares types, and escapes the usual value inline,
since calls of ``escape_text`` took 4 % of the writer's time. The price: the forms of a step are
written twice, in ``_body`` for one value of a plain type and in ``_step`` for all others;
test_the_two_forms_of_a_step_are_the_same_text checks that both are equal. The text of an event is
one line, since LF is always a character reference.

Earlier checks refuse characters that XML 1.0 cannot represent (spec/event-log.md 5), so this module
does not check for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, Literal, TypeAlias

from eventlog import __version__
from eventlog.core.rows.checks import Texts
from eventlog.core.rows.events import Outgoing
from eventlog.core.values import check_xml
from eventlog.errors import BadXmlChar, ConfigError
from eventlog.model import ALL, All, AttributeSteps, Event, Op, Operation

DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>'
HEARTBEAT: Final = '<status level="success" type="heartbeat"/>'
"""The content that the document of a heartbeat has in place of events (spec/xds.md 7)."""

# The two columns of the table of spec/xds.md 8.
_TEXT_REFERENCES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;", "\n": "&#10;"}
_ATTRIBUTE_REFERENCES = {**_TEXT_REFERENCES, '"': "&quot;", "\t": "&#9;"}
_TEXT_TABLE = str.maketrans(_TEXT_REFERENCES)
_ATTRIBUTE_TABLE = str.maketrans(_ATTRIBUTE_REFERENCES)

_ADD: Final = Operation.ADD


@dataclass(frozen=True, slots=True)
class Header:
    """The sender of documents: the name and version in the product element (options
    ``product_name``, ``product_version``).

    Raises ConfigError for a character that XML 1.0 cannot hold.
    """

    product_name: str = "eventlog"
    product_version: str = __version__

    def __post_init__(self) -> None:
        for option, text in (
            ("product_name", self.product_name),
            ("product_version", self.product_version),
        ):
            try:
                check_xml(text)
            except BadXmlChar as error:
                raise ConfigError(f"{option} = {text!r}: {error}") from None


def escape_text(text: str) -> str:
    """Escape text for the content of an element (spec/xds.md 8)."""
    if "&" in text or "<" in text or ">" in text or "\r" in text or "\n" in text:
        return text.translate(_TEXT_TABLE)
    return text


def escape_attribute(text: str) -> str:
    """Escape text for the value of an attribute in double quotes (spec/xds.md 8)."""
    return text.translate(_ATTRIBUTE_TABLE)


def write_outgoing(event: Outgoing) -> str:
    """Return the element of an event that has an operation. The element has no line breaks
    (spec/xds.md 1, 3).
    """
    event_id, _, object_id, operation, steps, _, _, attempts, _, _ = event
    assert operation is not None
    assert object_id is not None
    assert steps is not None
    object_class, key = object_id
    if attempts != 1:
        event_id = event.sent_id
    start, end = _element(operation, object_class.name)
    body = _body(operation, steps) if steps else ""
    association = escape_text(key + object_class.association_tail)
    return f"{start}{event_id}{_ASSOCIATION}{association}</association>{body}{end}"


def write_event(event: Event) -> str:
    """Return the element of an event in its public form, written from its steps.

    An add has the values of the ``Op.ADD`` steps of its attributes; a modify keeps all steps in
    order. The texts have been checked for characters that XML cannot hold.
    """
    operation, class_name, association, event_id, attributes = event
    steps: list[Written] = []
    for name, value_type, several in attributes:
        # Prepared for no steps, so that later events can reuse the text.
        named = AttributeSteps(name, value_type, ())
        for op, values in several:
            texts = values[0] if len(values) == 1 else values
            if op is Op.REMOVE_ALL:
                steps.append((0, 0, None, named, ALL, None))
            elif op is Op.REMOVE:
                steps.append((0, 0, None, named, texts, None))
            else:
                steps.append((0, 0, None, named, None, texts))
    start, end = _element(operation, class_name)
    event_id, association = escape_attribute(event_id), escape_text(association)
    return (
        f"{start}{event_id}{_ASSOCIATION}{association}</association>{_body(operation, steps)}{end}"
    )


def line_form(events: Iterable[str], header: Header) -> str:
    """Return one document as one line that ends in LF (spec/xds.md 2).

    ``events`` are written events in order. Raises ValueError if there is no event, since a document
    without events is never sent.
    """
    return f"{DECLARATION}{_document(events, header)}\n"


def file_form(events: Iterable[str], header: Header, indent: int = 0) -> str:
    """Return one document as a file, with the declaration on a separate line (spec/xds.md 2).

    ``events`` are written events, as in ``line_form``. ``indent`` is the number of blanks for each
    level of elements with element children (option ``indent``); 0 = no line breaks.
    """
    document = _document(events, header)
    return f"{DECLARATION}\n{_indented(document, indent) if indent else document}"


def _document(events: Iterable[str], header: Header) -> str:
    body = "".join(events)
    if not body:
        raise ValueError("a document without events is never sent (spec/xds.md 2)")
    return f"{_document_start(header)}{body}</input></nds>"


@lru_cache(maxsize=16)
def _document_start(header: Header) -> str:
    version = escape_attribute(header.product_version)
    name = escape_text(header.product_name)
    return (
        '<nds dtdversion="2.0"><source><product '
        f'version="{version}">{name}</product></source><input>'
    )


# --- text that follows from names alone is made once ---


Written: TypeAlias = tuple[Any, Any, Any, Any, Any, Texts]
"""A step as a tuple with the fields of ``CheckedRow``. Only ``name``, ``value_type`` and, if
present, ``column`` of its attribute are read.
"""

_NAMES_KEPT: Final = 65536
_SPECIAL_TYPES: Final = frozenset({"dn", "time"})
"""The types whose values are not all written in the same way: the element of a reference has an
attribute, and special times are strings.
"""

_ASSOCIATION: Final = '"><association>'


@lru_cache(maxsize=_NAMES_KEPT)
def _element(operation: str, class_name: str) -> tuple[str, str]:
    """Return the text of an event's element before the event-id, and the text of the end tag."""
    return f'<{operation} class-name="{escape_attribute(class_name)}" event-id="', f"</{operation}>"


class _Prepared(dict[Any, tuple[str, ...]]):
    """The results of ``make`` by attribute. Each result is made once. Every row needs a look-up,
    which takes half the time of a look-up in an lru_cache.
    """

    def __init__(self, make: Callable[[Any], tuple[str, ...]]) -> None:
        self._make = make

    def __missing__(self, attribute: Any) -> tuple[str, ...]:
        if len(self) >= _NAMES_KEPT:
            self.clear()
        prepared = self[attribute] = self._make(attribute)
        return prepared


def _prepared(
    attribute: Any, element: str, before: str, after: str
) -> tuple[str, str, str, str, str, str]:
    """Return the texts around the values of an attribute.

    The texts are: the start of the element; the text before a removed value; the text between the
    removed value and the added value; the text before a value that replaces all values; the text
    before a value that is only added; and the text after the last value. The last text is empty for
    a type of ``_SPECIAL_TYPES`` and for a column of whole numbers that accepts NaN, whose values
    ``_step`` writes. ``before`` and ``after`` are the tags around added values.
    """
    start = f'<{element} attr-name="{escape_attribute(attribute.name)}">'
    value = f'<value type="{attribute.value_type}">'
    column = getattr(attribute, "column", None)
    has_words = attribute.value_type == "int" and column is not None and column.type.special
    return (
        start,
        f"{start}<remove-value>{value}",
        f"</value></remove-value>{before}{value}",
        f"{start}<remove-all-values/>{before}{value}",
        f"{start}{before}{value}",
        f"</value>{after}</{element}>"
        if attribute.value_type not in _SPECIAL_TYPES and not has_words
        else "",
    )


_modifications = _Prepared(
    partial(_prepared, element="modify-attr", before="<add-value>", after="</add-value>")
)
_additions = _Prepared(partial(_prepared, element="add-attr", before="", after=""))

# Special times and NaN are written alongside ordinary values of the attribute (spec/xds.md 6.1,
# 6.3).
_no_digits = re.compile("[^-0-9]|[0-9]-").search

# --- steps ---


def _body(operation: str, steps: Sequence[Written]) -> str:
    """Return the attributes of an event.

    The steps of one attribute must be adjacent; they become one element.
    """
    parts: list[str] = []
    previous: Any = None
    is_add = operation == _ADD
    prepared, tag = (_additions, "</add-attr>") if is_add else (_modifications, "</modify-attr>")
    for _, _, _, attribute, old, new in steps:
        start, remove, then_add, remove_all, add, end = prepared[attribute]
        if type(new) is not str or not end or type(old) is tuple:
            part = f"{start}{_step(attribute.value_type, old, new, is_add)}{tag}"
        else:
            if "&" in new or "<" in new or ">" in new or "\r" in new or "\n" in new:
                new = new.translate(_TEXT_TABLE)
            if old is None:
                part = f"{add}{new}{end}"
            elif old is ALL:
                part = f"{remove_all}{new}{end}"
            else:
                if "&" in old or "<" in old or ">" in old or "\r" in old or "\n" in old:
                    old = old.translate(_TEXT_TABLE)
                part = f"{remove}{old}{then_add}{new}{end}"
        if attribute is previous:
            parts[-1] = parts[-1].removesuffix(tag)
            part = part.removeprefix(start)
        parts.append(part)
        previous = attribute
    return "".join(parts)


def _step(value_type: str, old: Texts | Literal[All.ALL], new: Texts, is_add: bool) -> str:
    """Return the removed and added values of a step, for every type and number of values."""
    if is_add:
        return _values(value_type, new)
    goes = ""
    if old is ALL:
        goes = "<remove-all-values/>"
    elif old is not None:
        goes = f"<remove-value>{_values(value_type, old)}</remove-value>"
    return goes if new is None else f"{goes}<add-value>{_values(value_type, new)}</add-value>"


def _values(value_type: str, texts: Texts) -> str:
    several = () if texts is None else (texts,) if isinstance(texts, str) else texts
    if value_type in ("time", "int"):
        types = ["string" if _no_digits(text) else value_type for text in several]
        return "".join(
            [
                f'<value type="{t}">{escape_text(v)}</value>'
                for t, v in zip(types, several, strict=True)
            ]
        )
    if value_type == "dn":  # the target's association is written twice (spec/xds.md 6.4)
        return "".join(
            [
                f'<value type="dn" association-ref="{escape_attribute(t)}">{escape_text(t)}</value>'
                for t in several
            ]
        )
    return "".join([f'<value type="{value_type}">{escape_text(text)}</value>' for text in several])


# Elements with text are one fragment each, so that no line break enters them. A tag ends at the
# first ">", since ">" is a reference everywhere else.
_FRAGMENTS = re.compile(r"<(value|association|product)\b[^>]*>[^<]*</\1>|<[^>]*>")


def _indented(document: str, indent: int) -> str:
    lines: list[str] = []
    level = 0
    for match in _FRAGMENTS.finditer(document):
        fragment = match[0]
        closes = fragment.startswith("</")
        level -= closes
        lines.append(" " * (indent * level) + fragment)
        if not closes and match[1] is None and not fragment.endswith("/>"):
            level += 1
    return "\n".join(lines)
