"""Read the new values of plain events as the texts that a log has, for a reader that needs no typed
values (``RowTexts``). An event that has more than that is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from eventlog.changes.events import attribute_reader
from eventlog.changes.format import RowTexts
from eventlog.core.catalog import Attribute, Catalog
from eventlog.core.typed import ReadValue, to_text
from eventlog.core.values import ValueOptions
from eventlog.errors import BadTableKey, RowError
from eventlog.model import Event, Operation
from eventlog.xds.plain import PlainEvent, event_of, new_texts

_PLAIN_TYPES: Final = ("string", "int", "state", "octet", "time")
_ADD, _DELETE = Operation.ADD, Operation.DELETE


class _Class(NamedTuple):
    canonical_key: Callable[[str | None], str]
    readers: Mapping[tuple[str, str], Callable[[str], str]]
    """The functions that turn a value into its text in a log, by attribute and XDS type."""


class TextsReader:
    """Reads plain events of the classes of a catalogue. ``values`` are the options with which they
    were written.
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

    def __call__(self, plain: PlainEvent) -> RowTexts | Event:
        """Return the texts of an event, or the event itself. Raises NotPlainError."""
        operation, class_name, association, _, body = plain
        cls = self._classes.get(class_name)
        key, has_comma, _ = association.partition(",")
        # A key in quotes may have a comma. What follows the key needs no check if it has no quotes.
        if cls is None or operation == _DELETE or '"' in association or not has_comma:
            return event_of(plain)
        try:
            texts = new_texts(operation, body, cls.readers)
            if texts is None:
                return event_of(plain)
            return RowTexts(class_name, cls.canonical_key(key), operation == _ADD, texts)
        except (RowError, BadTableKey):  # the event's reader reports it, with its place
            return event_of(plain)


def _text_reader(
    attribute: Attribute, value_type: str, values: ValueOptions
) -> Callable[[str], str]:
    read: ReadValue = attribute_reader(value_type, attribute, values)
    return str if read is str else lambda text: to_text(read(text))
