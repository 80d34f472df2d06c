"""Read, by regular expressions, the events of documents that have the one-line form of ``writer``.

Nearly all documents that are read have this form. A parser that makes an object for each element
takes three times as long: 32 microseconds of CPU for an event of five attributes, instead of 10 to
14. libxml2 alone takes 5 to 7 microseconds before any object is made, so no reader of elements
would be fast enough for ``verify`` of files. The price: the form is described twice, here and in
``writer``, and there are two readers; test_a_plain_document_is_read_as_any_other checks that both
readers agree. A document of any other form, valid or not, is left to the parser.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

from eventlog.core.values import Converter
from eventlog.model import AttributeSteps, Event, Op, Operation, Step

# Any number of a group that is never given up: so a long value takes no memory for what is tried
# next. Before Python 3.11.5 it also takes a part of what it does not match.
_ANY = "*+" if sys.version_info >= (3, 11, 5) else "*"
# Characters of XML 1.0 other than those that are written as references, and without the carriage
# return, which a parser changes.
_CONTROL = "\x00-\x08\x0b-\x1f\ufffe\uffff"
_REFERENCE = "&(?:amp|lt|gt|quot|#13|#10|#9);"
_TEXT = f"[^<>&{_CONTROL}]*+(?:{_REFERENCE}[^<>&{_CONTROL}]*+){_ANY}"
_NAME = f'(?!")[^<>&"\t\n{_CONTROL}]*+(?:{_REFERENCE}[^<>&"\t\n{_CONTROL}]*+){_ANY}'
_MAY_BE_EMPTY = _NAME.removeprefix('(?!")')
# A reference to an object ("dn") has its value in an attribute.
_VALUE = f'<value type="(string|int|state|octet|time)">({_TEXT})</value>'
_FURTHER = f'((?:<value type="[a-z]+">{_TEXT}</value>){_ANY})'

_MOST_REFERENCES: Final = 100_000
"""The number of references in a document of which the expressions above take memory for each."""

DEFAULT_LIMIT: Final = 64 * 1024 * 1024
"""The default limit on the number of bytes of a document that is read."""

_START: Final = re.compile(
    r'(?:<\?xml version="1\.0" encoding="UTF-8"\?>\n?)?<nds dtdversion="2\.0"><source>'
    f'<product version="({_MAY_BE_EMPTY})">({_TEXT})</product></source><input>'
)
_END: Final = re.compile(r"</input></nds>\n?")
_EVENT: Final = re.compile(
    f'<(add|modify|delete) class-name="({_NAME})" event-id="({_MAY_BE_EMPTY})">'
    f"<association>(?!<)({_TEXT})</association>"
)
_ADD_ATTR: Final = re.compile(
    # with the groups of _MODIFY_ATTR, of which the first four are empty here
    f'(<add-attr attr-name="({_NAME})">()()()(){_VALUE}{_FURTHER}</add-attr>)'
)
_MODIFY_ATTR: Final = re.compile(
    f'(<modify-attr attr-name="({_NAME})">(<remove-all-values/>)?'
    f"(?:<remove-value>{_VALUE}{_FURTHER}</remove-value>)?"
    f"(?:<add-value>{_VALUE}{_FURTHER}</add-value>)?</modify-attr>)"
)
_FURTHER_VALUE: Final = re.compile(f'<value type="([a-z]+)">({_TEXT})</value>')

_WRITTEN_AS_REFERENCE: Final = re.compile('[<>&"\t\n\r]')
_REFERENCES: Final = {
    "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#13;": "\r", "&#10;": "\n",
    "&#9;": "\t",
}  # fmt: skip
_OPERATIONS: Final = {str(operation): operation for operation in Operation}
_ADD, _MODIFY, _DELETE = Operation.ADD, Operation.MODIFY, Operation.DELETE
_REMOVE, _REMOVE_ALL, _ADD_VALUES = Op.REMOVE, Op.REMOVE_ALL, Op.ADD
_NOTHING: Final = Step(_REMOVE_ALL, ())
_new: Final = tuple.__new__  # makes a NamedTuple from its fields in less than half the time


T = TypeVar("T")


class PlainDocument(NamedTuple, Generic[T]):
    """The content of a document of the plain form."""

    events: tuple[T, ...]
    product_name: str
    product_version: str


class Shape(NamedTuple):
    """The form of adds or modifies that differ only in their keys and in the new values of their
    attributes. One regular expression reads a whole event of this form.

    The first group of ``pattern`` is the key. Each of the next groups is a new value, None for
    NULL.
    """

    class_name: str
    operation: str
    columns: tuple[tuple[str, str], ...]
    """The attributes, each with its XDS type."""
    pattern: re.Pattern[str]

    def read(self, text: str, at: int) -> tuple[list[tuple[str | None, ...]], int]:
        """Return the groups of successive events of this form, beginning at a place of a document,
        and the place after the last of these events.
        """
        found: list[tuple[str | None, ...]] = []
        match = self.pattern.match
        while event := match(text, at):
            found.append(event.groups())
            at = event.end()
        return found, at


class PlainEvent(NamedTuple):
    """An event of a plain document. ``body`` is the text of its attributes, which may have
    references.
    """

    operation: str
    class_name: str
    association: str
    event_id: str
    body: str


class NotPlainError(Exception):
    """A part of the document does not have the plain form."""


def read_plain(
    data: bytes,
    read: Callable[[PlainEvent], T],
    read_alike: Callable[[str, int], tuple[T, int] | None] = lambda text, at: None,
) -> PlainDocument[T] | None:
    """Return the content of a document, None if it does not have the plain form. ``read`` makes an
    event; it raises NotPlainError if the body does not have the plain form.

    ``read_alike`` may read together several events that begin at a place of the document.
    ``read_alike`` returns these events as one object, and the place after them, or None if it
    cannot read the first event.
    """
    if _ANY == "*" and data.count(b"&") > _MOST_REFERENCES:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    start = _START.match(text)
    if start is None:
        return None
    has_references = "&" in text
    events: list[T] = []
    at = start.end()
    try:
        while True:
            if (alike := read_alike(text, at)) is not None:
                events.append(alike[0])
                at = alike[1]
            head = _EVENT.match(text, at)
            if head is None:
                break
            operation, class_name, event_id, association = head.groups()
            if has_references:
                class_name, event_id = without_references(class_name), without_references(event_id)
                association = without_references(association)
            end = text.find(f"</{operation}>", head.end())
            if end < 0:
                return None
            body = text[head.end() : end]
            fields = (operation, class_name, association, event_id, body)
            events.append(read(_new(PlainEvent, fields)))
            at = end + len(operation) + 3
    except NotPlainError:
        return None
    if not events or _END.fullmatch(text, at) is None:
        return None
    version, name = start.groups()
    return PlainDocument(tuple(events), without_references(name), without_references(version))


def event_of(plain: PlainEvent) -> Event:
    """Return the event with its attributes and steps. Raises NotPlainError."""
    operation, class_name, association, event_id, body = plain
    attributes = _attributes(operation, body)
    if operation == _MODIFY and not attributes:
        raise NotPlainError
    if "&" in body:
        attributes = tuple(map(_without_references, attributes))
    fields = (_OPERATIONS[operation], class_name, association, event_id, attributes)
    return _new(Event, fields)


def new_texts(
    operation: str, body: str, readers: Mapping[tuple[str, str], Converter]
) -> dict[str, str | None] | None:
    """Return the new values of an add or modify whose attributes have one value each, None for any
    other event. ``readers`` has, by attribute and type, the functions that turn the text of a value
    into the text that is returned. Raises NotPlainError and the errors of ``readers``.
    """
    size = 0
    texts: dict[str, str | None] = {}
    parts = _ADD_ATTR.findall(body) if operation == _ADD else _MODIFY_ATTR.findall(body)
    for part, name, all_go, old_kind, _, old_more, kind, text, more in parts:
        read = readers.get((name, kind or old_kind or "string"))
        if read is None or more or old_more or (old_kind and kind and old_kind != kind):
            return None
        if not (kind or old_kind or all_go):
            raise NotPlainError
        size += len(part)
        texts[name] = read(without_references(text) if "&" in text else text) if kind else None
    if size != len(body) or not (texts or operation == _ADD):
        raise NotPlainError
    return texts


_KEY: Final = f'(?!<)([^<>&",{_CONTROL}]*+)'


def shape_of(plain: PlainEvent) -> Shape | None:
    """Return the form of an event that ``new_texts`` has read. Return None if the event has a NULL
    (since a NULL does not show its type), an attribute twice, or a name with a character that is
    written as a reference.
    """
    operation, class_name, association, _, body = plain
    tail = association.partition(",")[2]
    if _WRITTEN_AS_REFERENCE.search(class_name + tail) is not None:
        return None
    parts = _ADD_ATTR.findall(body) if operation == _ADD else _MODIFY_ATTR.findall(body)
    columns = tuple(
        [(name, kind, bool(all_go), bool(old)) for _, name, all_go, old, _, _, kind, _, _ in parts]
    )
    names = {name for name, _, _, _ in columns}
    if len(names) < len(columns) or not all(kind for _, kind, _, _ in columns):
        return None
    pattern = _pattern(operation, class_name, tail, columns)
    return Shape(class_name, operation, tuple([column[:2] for column in columns]), pattern)


@lru_cache(maxsize=512)
def _pattern(
    operation: str, class_name: str, tail: str, columns: Sequence[tuple[str, str, bool, bool]]
) -> re.Pattern[str]:
    """Return the pattern of a ``Shape``. Each of ``columns`` has the name of an attribute, its XDS
    type, whether all values are removed, and whether an old value is removed.
    """
    texts = [
        f'<{operation} class-name="{re.escape(class_name)}" event-id="{_MAY_BE_EMPTY}">'
        f"<association>{_KEY},{re.escape(tail)}</association>"
    ]
    for name, kind, all_go, has_old in columns:
        value = f'<value type="{kind}">({_TEXT})</value>'
        start = f'<{operation}-attr attr-name="{re.escape(name)}">'
        if operation != _ADD:
            start += "<remove-all-values/>" * all_go
            if has_old:
                old = value.replace("(", "(?:", 1)
                start += f"<remove-value>{old}</remove-value>"
            # Without the new value, it is NULL.
            value = f"(?:<add-value>{value}</add-value>)" + "?+" * (all_go or has_old)
        texts.append(f"{start}{value}</{operation}-attr>")
    return re.compile("".join([*texts, f"</{operation}>"]))


def _attributes(operation: str, body: str) -> tuple[AttributeSteps, ...]:
    """Return the attributes of an event. Raises NotPlainError."""
    size = 0
    attributes: list[AttributeSteps] = []
    if operation == _DELETE:
        parts = []
    else:
        parts = _ADD_ATTR.findall(body) if operation == _ADD else _MODIFY_ATTR.findall(body)
    for part, name, all_go, old_kind, old, old_more, kind, text, more in parts:
        size += len(part)
        steps = [_NOTHING] if all_go else []
        if old_kind:
            values = (old,) if not old_more else (old, *_further(old_kind, old_more))
            steps.append(_new(Step, (_REMOVE, values)))
        if kind:
            values = (text,) if not more else (text, *_further(kind, more))
            steps.append(_new(Step, (_ADD_VALUES, values)))
        if not steps or (old_kind and kind and old_kind != kind):
            raise NotPlainError
        fields = (name, kind or old_kind or "string", tuple(steps))
        attributes.append(_new(AttributeSteps, fields))
    # A search leaves out what does not match, so all parts together must be the whole.
    if size != len(body):
        raise NotPlainError
    return tuple(attributes)


def _further(kind: str, text: str) -> list[str]:
    """Return the values after the first value, all of which have the type ``kind``."""
    values = _FURTHER_VALUE.findall(text)
    if any(one != kind for one, _ in values):
        raise NotPlainError
    return [value for _, value in values]


def _without_references(attribute: AttributeSteps) -> AttributeSteps:
    name, kind, steps = attribute
    plain_steps = [Step(op, tuple(map(without_references, texts))) for op, texts in steps]
    return AttributeSteps(without_references(name), kind, tuple(plain_steps))


_reference: Final = re.compile(_REFERENCE)


def without_references(text: str) -> str:
    """Return a text of a document in which references are replaced by their characters."""
    if "&" not in text:
        return text
    return _reference.sub(lambda match: _REFERENCES[match[0]], text)
