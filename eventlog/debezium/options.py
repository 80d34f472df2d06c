"""The options of reading and writing Debezium events. Those that Debezium has bear its names, with _ for dot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from eventlog.changes.format import Complete
from eventlog.changes.json_form import CATALOG, CatalogOption
from eventlog.core.options import FLAG, FUNCTION, LIST_OBJECT, CheckedOptions, Kind, choice, option, shared
from eventlog.model import full_name

PLACEHOLDER: Final = "__debezium_unavailable_value"
"""Debezium's default of ``unavailable.value.placeholder``."""


def _matching(pattern: str, legal: str) -> Kind:
    matches = re.compile(pattern).fullmatch

    def parse(value: Any) -> str:
        if not isinstance(value, str) or matches(value) is None:
            raise ValueError
        return value

    return Kind(parse, legal)


_TOPIC: Final = _matching("[A-Za-z0-9._-]{1,200}", "a text of letters of ASCII, digits, dots, hyphens and underscores")


@dataclass(frozen=True, slots=True)
class ConnectorOptions(CheckedOptions):
    """Options of reader and writer, most of them of a connector under their names there."""

    catalog: CatalogOption = shared(CATALOG)
    decimal_handling_mode: str = option(
        "precise", choice("precise", "double", "string"), "how exact numbers are written: decimal.handling.mode"
    )
    time_precision_mode: str = option(
        "adaptive",
        choice("adaptive", "connect"),
        "types of dates and times: time.precision.mode; connect: milliseconds",
    )
    unavailable_value_placeholder: str = option(
        PLACEHOLDER,
        _matching("[!-~]+", "a text of ASCII without blanks"),
        "what stands for a value that is not known: unavailable.value.placeholder",
    )


@dataclass(frozen=True, slots=True)
class ReadOptions(ConnectorOptions):
    """Options of the reader. The two modes count for events without schema. Raises ConfigError."""

    keys: Mapping[str, Sequence[str]] = option(
        {}, LIST_OBJECT, "key columns by schema.table or table, for events without key"
    )

    def key_of(self, schema: str | None, table: str) -> Sequence[str] | None:
        """The key columns that the options give a table, None = unknown."""
        return self.keys.get(full_name(schema, table)) or self.keys.get(table)


@dataclass(frozen=True, slots=True)
class WriteOptions(ConnectorOptions):
    """Options of the writer, those of [format] among them. Raises ConfigError."""

    topic_prefix: str = option("eventlog", _TOPIC, "first part of topics and name of the source: topic.prefix")
    schemas_enable: bool = option(True, FLAG, "key and value bring their schemas: schemas.enable of the converter")
    tombstones_on_delete: bool = option(True, FLAG, "Kafka: a tombstone follows a delete: tombstones.on.delete")
    missing_columns: str = option(
        "read_back",
        choice("read_back", "placeholder", "refuse"),
        "columns of after that the log does not hold: read back, a placeholder, or the event is an error",
    )
    complete: Complete | None = option(None, FUNCTION, "function of schema, table and key that gives the whole row")
    database: str = option("", _matching("[^\\ud800-\\udfff]*", "a text"), "name of the database: source.db")
    lines: str = option(
        "records",
        choice("records", "values"),
        "what a line of a file holds: topic, key and value of a record, or its value alone",
    )
    topic: str | None = option(None, _TOPIC, "one topic for all tables; default: <prefix>.<schema>.<table>")
