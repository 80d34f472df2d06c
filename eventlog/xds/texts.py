"""Read the new values of plain events as the texts that a log has, for a reader that needs no typed
values (``RowTexts``). An event that has more than new values is returned as an event.

Most documents have many successive events of one form. These events are read together, column by
column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from eventlog.changes.events import attribute_reader
from eventlog.changes.format import RowTexts
from eventlog.core.catalog import Attribute, Catalog
from eventlog.core.table_key import Canonicalizer
from eventlog.core.values import Converter, Kind, ValueOptions
from eventlog.core.values.typed_values import ReadValue, to_text
from eventlog.errors import BadTableKey, RowError
from eventlog.model import Event, Operation
from eventlog.xds.plain import PlainEvent, Shape, event_of, new_texts, shape_of, without_references

_PLAIN_TYPES: Final = ("string", "int", "state", "octet", "time")
_ADD, _DELETE = Operation.ADD, Operation.DELETE
_LEARNED_AFTER: Final = 8
"""The number of successive events of one form after which the pattern of this form is made. Making
a pattern takes as long as reading some hundred events.
"""


class _Class(NamedTuple):
    canonical_key: Canonicalizer
    readers: Mapping[tuple[str, str], Converter]
    """The functions that turn a value into its text in a log, by attribute and XDS type."""


class TextsReader:
    """Reads plain events of the classes of a catalogue. ``values`` are the options with which the
    events were written.
    """

    def __init__(self, catalog: Catalog | None, values: ValueOptions) -> None:
        self._classes = {
            cls.name: _Class(
                cls.canonical_key,
                {
                    (one.name, value_type): _text_reader(one, value_type, values)
                    for one in cls.attributes
                    if not one.multi_valued and not one.is_key
                    for value_type in _PLAIN_TYPES
                },
            )
            for cls in (() if catalog is None else catalog.classes)
        }
        self._shape: Shape | None = None
        """The form of the last events that were read together."""
        self._last: tuple[object, ...] = ()
        self._alike = 0
        """The number of the last events, in succession, that have the same class, operation and
        attributes.
        """
        self._can_learn = True

    def __call__(self, plain: PlainEvent) -> RowTexts | Event:
        """Return the texts of an event, or the event itself. Raises NotPlainError."""
        operation, class_name, association, _, body = plain
        cls = self._classes.get(class_name)
        key, has_comma, tail = association.partition(",")
        # A key in quotes may have a comma. What follows the key needs no check if it has no quotes.
        if cls is None or operation == _DELETE or '"' in association or not has_comma:
            return event_of(plain)
        try:
            texts = new_texts(operation, body, cls.readers)
            if texts is None:
                return event_of(plain)
            names = tuple(texts)
            keys, rows = [cls.canonical_key(key)], [tuple(texts.values())]
        except (RowError, BadTableKey):  # the event's reader reports it, with its place
            return event_of(plain)
        self._learn((class_name, operation, tail, names), plain)
        return RowTexts(class_name, operation == _ADD, names, keys, rows)

    def _learn(self, form: tuple[object, ...], plain: PlainEvent) -> None:
        self._alike = self._alike + 1 if form == self._last else 1
        self._last = form
        if self._can_learn and self._alike % _LEARNED_AFTER == 0:
            self._shape = shape_of(plain)

    def read_alike(self, text: str, at: int) -> tuple[RowTexts, int] | None:
        """Return the texts of successive events at a place of a document that have the form of
        earlier events, and the place after these events. Return None if no event of this form is at
        the place.
        """
        if self._shape is None:
            return None
        found, end = self._shape.read(text, at)
        if not found:
            return None
        class_name, operation, columns, _ = self._shape
        cls = self._classes[class_name]
        keys, *values = zip(*found, strict=True)
        try:
            read_keys = list(map(cls.canonical_key, keys))
            texts = [
                _read_column(column, cls.readers[of], has_references="&" in text)
                for of, column in zip(columns, values, strict=True)
            ]
        except (RowError, BadTableKey):
            # Read one by one, they are reported with their places. Trying again after each of them
            # could take long.
            self._shape, self._can_learn = None, False
            return None
        rows = list(zip(*texts, strict=True)) if texts else [()] * len(found)
        names = tuple([name for name, _ in columns])
        return RowTexts(class_name, operation == _ADD, names, read_keys, rows), end


def _read_column(
    texts: Iterable[str | None], read: Converter, *, has_references: bool
) -> Iterable[str | None]:
    if has_references:
        texts = [None if text is None else without_references(text) for text in texts]
    return texts if read is str else [None if text is None else read(text) for text in texts]


# It leaves out negative numbers above -1, among which is no negative zero.
_PLAIN_NUMBER: Final = re.compile(r"(?:0|-?[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?")


def _text_reader(attribute: Attribute, value_type: str, values: ValueOptions) -> Converter:
    read: ReadValue = attribute_reader(value_type, attribute, values)
    if read is str:
        return str
    if value_type == "time":  # few days, and often the same moments
        return lru_cache(maxsize=4096)(lambda text: to_text(read(text)))
    if attribute.column.type.kind is not Kind.EXACT:
        return lambda text: to_text(read(text))
    is_plain = _PLAIN_NUMBER.fullmatch
    return lambda text: text if is_plain(text) else to_text(read(text))
