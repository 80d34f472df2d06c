"""A publisher's events in the format ``qlik-messages``: records that are numbered by flight (spec/qlik.md 5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from eventlog.answer import Level, Verdict
from eventlog.catalog import Catalog, Column, ObjectClass, Table
from eventlog.change_keys import Key, key_reader
from eventlog.errors import BadValue, FormatError, ReceiverAway, RowError
from eventlog.event_changes import Origin, change_reader
from eventlog.model import Change, Event
from eventlog.publisher.context import Numbered
from eventlog.publisher.sinks import Record
from eventlog.qlik.columns import QlikColumn, columns_of
from eventlog.qlik.flight_sequence import first_sequence, sequences
from eventlog.qlik.message_options import WriteOptions
from eventlog.qlik.message_writer import MessageWriter
from eventlog.qlik.registry import Registry, RegistryError
from eventlog.typed import moment_reader
from eventlog.values import ValueOptions

_NO_EXTRAS: Final[Mapping[str, Any]] = {}
_new: Final = tuple.__new__  # a NamedTuple from its fields, in less than half the time


class NumberedMessages:
    """Events to messages, as ``eventlog.publisher.context.NumberedFormat`` asks for them.

    ``values``: what the events were written with. The columns are those of the classes; where they change, the version
    of the table is raised.
    """

    def __init__(
        self,
        options: WriteOptions,
        values: ValueOptions,
        registry: Registry | None = None,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._values, self._utc_now = values, utc_now
        self._writer = MessageWriter(options, registry=registry, utc_now=utc_now)
        self._catalog: Catalog | None = None
        self._read_change = change_reader(None, values)
        self._key_readers: dict[str, Callable[[str], Key | None]] = {}
        self._read_moment = moment_reader(values.time_zone)

    def first(self, flight: int, before: str) -> str:
        return first_sequence(flight, before, self._utc_now())

    def forget(self) -> None:
        """Metadata are published again."""
        self._writer.announce_again()

    def records(
        self, catalog: Catalog, first: str, events: Sequence[Numbered]
    ) -> tuple[tuple[Record, ...] | Verdict, ...]:
        if catalog is not self._catalog:
            self._catalog = catalog
            self._read_change = change_reader(catalog, self._values)
            self._key_readers = {cls.name: _key_reader(cls) for cls in catalog.classes}
            self._writer.columns = {
                cls.name if catalog.schema is None else f"{catalog.schema}.{cls.name}": class_columns(cls)
                for cls in catalog.classes
            }
        sequence_of = sequences(first)
        return tuple([self._records(numbered, sequence_of(numbered.place)) for numbered in events])

    def preview(self, catalog: Catalog, events: Sequence[Event]) -> str:
        """The records as lines of a file; the sequences are not those that will be sent."""
        from eventlog.qlik.message_format import line_of  # brings the reader too, which nothing else needs

        numbered = [Numbered(event, place, None) for place, event in enumerate(events, 1)]
        lines = []
        for records in self.records(catalog, first_sequence(0, "", self._utc_now()), numbered):
            if isinstance(records, Verdict):
                lines.append(json.dumps({"error": records.message}, ensure_ascii=False) + "\n")
            else:
                lines += [line_of(*record).decode() for record in records]
        return "".join(lines)

    def _records(self, numbered: Numbered, sequence: str) -> tuple[Record, ...] | Verdict:
        try:
            return tuple([_new(Record, each) for each in self._writer.messages(self._change(numbered), sequence)])
        except RegistryError as error:
            raise ReceiverAway(str(error)) from error
        except (FormatError, RowError) as error:
            return Verdict(Level.ERROR, str(error))

    def _change(self, numbered: Numbered) -> Change:
        event, _, row = numbered
        moment = user = None
        if row is not None:
            moment, user = self._moment(row.event_time), row.perpetrator
        read_key = self._key_readers.get(event.class_name)
        key = None if read_key is None else read_key(event.association)
        stream_position = event.event_id.partition(".")[0]
        return self._read_change(event, key, _new(Origin, (stream_position, moment, user, _NO_EXTRAS)))

    def _moment(self, text: str | None) -> datetime | None:
        try:
            return None if text is None else self._read_moment(text)
        except BadValue:
            return None


def _key_reader(cls: ObjectClass) -> Callable[[str], Key | None]:
    """The typed key of an association of a class; None: it is to be parsed, since it does not end as others do."""
    read, tail = key_reader(cls), cls.association_tail

    def read_key(association: str) -> Key | None:
        text = association.removesuffix(tail)
        return None if len(text) == len(association) else read(text)

    return read_key


def class_columns(cls: ObjectClass) -> tuple[QlikColumn, ...]:
    """The columns of a class by the names that its events have: the key, then its attributes, in the class's order."""
    keys = {column.name for column in cls.key}
    attributes = [a for a in cls.attributes if a.name not in keys and not a.is_key and a.table == cls.table.name]
    columns = {column.name: column for column in cls.key} | {
        attribute.name: Column(attribute.name, attribute.column.type) for attribute in attributes
    }
    places = {column.name: place for place, column in enumerate(cls.table.columns)}
    order = sorted(columns, key=lambda name: places.get(name, len(places)))
    key = tuple(column.name for column in cls.key)
    return columns_of(Table(cls.name, "table", tuple(columns[name] for name in order), key))
