"""The options of reading and writing messages, by the names of spec/qlik.md 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from eventlog.errors import ConfigError
from eventlog.qlik.columns import QlikColumn, columns_from_json

Columns = Mapping[str, Sequence[str | Mapping[str, Any]]]

DEFAULT_METADATA_TOPIC: Final = "eventlog.metadata"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of the reader.

    ``schema``, ``table``: whose messages they are where neither they, their metadata nor their topic says so.
    ``columns``: per ``<schema>.<table>``, names or objects with name, type and pk, for messages without schema.
    ``topic``: the one topic of all tables, whose name says nothing of a table. ``metadata_topic``: where MD messages
    are, read along from Kafka. ``metadata_wait``: seconds that a message waits for its MD. ``byteorder`` of binary
    masks. ``registry``: URL of the schema registry. ``follow``: go on at the end of a topic. ``properties``:
    librdkafka's settings. Raises ConfigError.
    """

    schema: str | None = None
    table: str | None = None
    columns: Columns = field(default_factory=dict)
    topic: str | None = None
    metadata_topic: str | None = DEFAULT_METADATA_TOPIC
    metadata_wait: float = 30.0
    byteorder: str = "little"
    registry: str | None = None
    follow: bool = False
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _texts(self, "schema", "table", "topic", "metadata_topic", "registry")
        wait = self.metadata_wait
        if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait < inf:
            raise ConfigError(f"metadata_wait of the Qlik messages is a number of seconds, not {wait!r}")
        _one_of("byteorder", self.byteorder, "little", "big", "auto")
        _one_of("follow", self.follow, True, False)
        _check_columns(self.columns)
        _check_properties(self.properties)

    def columns_of(self, full_name: str) -> tuple[QlikColumn, ...] | None:
        """The columns that the options give a table, None if they name it not. Raises ConfigError."""
        given = self.columns.get(full_name)
        return None if given is None else columns_from_json(given, what=full_name)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of the writer.

    ``encoding`` json or avro. ``columns``: per ``<schema>.<table>``, as of the reader; a table that they do not name
    has those that its changes show. ``metadata``: publish MD messages to ``metadata_topic``, use a registry (Avro
    only, ``registry`` is its URL), or none. ``names``: where schema and table stand. ``topic``: one for all tables,
    None = one a table. ``key`` of the records. ``namespace``: what stands before ``.<schema>.<table>`` in Avro names,
    default ``com.attunity.queue.msg.<task>``. ``server``, ``task``: lineage. ``last_sequence``: the highest change_seq
    that was written before. ``input_complete``: whether the last transaction of the input is known to end there.
    ``properties``: librdkafka's settings. Raises ConfigError.
    """

    encoding: str = "json"
    columns: Columns = field(default_factory=dict)
    metadata: str = "publish"
    metadata_topic: str = DEFAULT_METADATA_TOPIC
    registry: str | None = None
    names: str = "message"
    external_schema_id: bool = False
    logical_types: bool = True
    namespace: str | None = None
    topic: str | None = None
    key: str = "primary_key"
    on_truncate: str = "skip"
    server: str = "eventlog"
    task: str = "eventlog"
    byteorder: str = "little"
    last_sequence: str | None = None
    input_complete: bool = True
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _texts(self, "registry", "namespace", "topic", "last_sequence")
        _texts(self, "metadata_topic", "server", "task", is_needed=True)
        _one_of("encoding", self.encoding, "json", "avro")
        _one_of("metadata", self.metadata, "publish", "none", "registry")
        _one_of("names", self.names, "message", "headers", "off")
        _one_of("key", self.key, "none", "table", "primary_key")
        _one_of("on_truncate", self.on_truncate, "skip", "error")
        _one_of("byteorder", self.byteorder, "little", "big")
        for name in ("external_schema_id", "logical_types", "input_complete"):
            _one_of(name, getattr(self, name), True, False)
        _check_columns(self.columns)
        _check_properties(self.properties)
        if self.metadata == "registry" and self.encoding != "avro":
            raise ConfigError("metadata = registry is for encoding = avro only; set encoding, or metadata = publish")

    @property
    def base_namespace(self) -> str:
        """What stands before ``.<schema>.<table>`` in Avro names."""
        return self.namespace if self.namespace is not None else f"com.attunity.queue.msg.{self.task}"


def _one_of(name: str, value: object, *allowed: object) -> None:
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise ConfigError(f"{name} = {value!r} of the Qlik messages is none of {', '.join(map(str, allowed))}")


def _texts(options: object, *names: str, is_needed: bool = False) -> None:
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, str) and (is_needed or value is not None):
            raise ConfigError(f"{name} of the Qlik messages is a text, not {value!r}")


def _check_properties(properties: object) -> None:
    """Names with values as librdkafka takes them. A value is not shown: it may be a secret."""
    if not isinstance(properties, Mapping):
        raise ConfigError("properties of the Qlik messages are an object: librdkafka's names -> values")
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            raise ConfigError(f"property {name!r} of the Qlik messages is a text, a number or a truth value")


def _check_columns(columns: Columns) -> None:
    if not isinstance(columns, Mapping):
        raise ConfigError("columns of the Qlik messages are an object: <schema>.<table> -> list of columns")
    for full_name, given in columns.items():
        columns_from_json(given, what=full_name)
