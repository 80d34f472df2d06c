"""Whether the configured format can write each class: the trial that `triggers plan` and `doctor`
make before rows are logged (spec/event-log.md 5.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, Final

from eventlog.changes.publishing import EventWriter
from eventlog.config.load import Config
from eventlog.config.publishing import chosen_format, publish_options
from eventlog.core.catalog import Catalog, ObjectClass
from eventlog.core.rows.events import Outgoing
from eventlog.core.table_key import key_text
from eventlog.core.values import Kind
from eventlog.errors import ConfigError, EventlogError
from eventlog.model import EventResult, Operation, Origins
from eventlog.publisher.declared.configured_classes import classes_to_read
from eventlog.publisher.declared.configured_writer import publishing_of
from eventlog.publisher.ledger.delivery import Delivery
from eventlog.publisher.send.unwritable import error_of
from eventlog.registry import writer_of
from eventlog.sql.log_table import LogTable

_TEXTS: Final = {
    **dict.fromkeys((Kind.INTEGER, Kind.EXACT, Kind.APPROXIMATE), "0"),
    Kind.BOOLEAN: "true",
    Kind.BINARY: "AA==",
    Kind.DATE: "2000-01-01",
    Kind.TIME: "00:00:00",
    Kind.TIMESTAMP: "2000-01-01 00:00:00",
    Kind.TIMESTAMPTZ: "2000-01-01 00:00:00Z",
    Kind.UUID: "00000000-0000-0000-0000-000000000000",
}
"""The text that the trial uses for a key column of each kind; for other kinds, it is ``a``."""

_ORIGINS: Final = Origins({1: "2000-01-01 00:00:00"}, {1: None}, {1: None})


def unwritable_classes(config: Config, catalog: Catalog, log: LogTable) -> Iterator[str]:
    """Yield a sentence for each class for which the format cannot write an inserted row of NULLs.
    Nothing is sent, and no registry is asked.

    A format that cannot be made from its options is not tried: its publisher does not start.
    """
    format = chosen_format(config)
    if not format.can("publish"):
        return
    with suppress(ConfigError):
        options = format.offline(publish_options(config))
        with closing(writer_of(format, options, publishing_of(config, log))) as writer:
            for cls in classes_to_read(config, catalog):
                error = _error_of(writer, catalog, cls)
                if error is not None:
                    yield f"{cls.name} cannot be written as {format.name}: {error}"


def _error_of(writer: EventWriter[Any], catalog: Catalog, cls: ObjectClass) -> EventlogError | None:
    refused: list[EventlogError] = []

    def write() -> None:
        event = _inserted(cls)
        first = writer.first(1, "", None)
        delivery = Delivery(1, {1: [event]}, first, _ORIGINS)
        (written,) = writer.pieces(catalog, delivery, [event])
        if isinstance(written, EventResult):
            refused.append(EventlogError(written.message))

    return error_of(write) or next(iter(refused), None)


def _inserted(cls: ObjectClass) -> Outgoing:
    """Return the event of an inserted row whose columns are NULL except for the key."""
    key = key_text((column.name, _TEXTS.get(column.type.kind, "a")) for column in cls.key)
    object_id = (cls, key)
    steps = [
        (1, 1, object_id, attribute, None, None)
        for attribute in cls.attributes
        if not attribute.multi_valued and not attribute.is_key
    ]
    return Outgoing("1", [1], object_id, Operation.ADD, steps, place=1)
