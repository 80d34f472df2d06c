"""The options of reading and writing messages, by the names of spec/qlik.md 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from eventlog.core.options import FLAG, OBJECT, STRING, CheckedOptions, Kind, choice, number, option
from eventlog.errors import ConfigError

if TYPE_CHECKING:
    from eventlog.qlik.columns import QlikColumn

Columns = Mapping[str, Sequence[str | Mapping[str, Any]]]

DEFAULT_METADATA_TOPIC: Final = "eventlog.metadata"


def _parse_columns(value: Any) -> Columns:
    # The settings of eventlog.toml declare options by those below, and do without columns.
    from eventlog.qlik.columns import columns_from_json

    columns: Columns = OBJECT.parse(value)
    for full_name, listed in columns.items():
        columns_from_json(listed, what=full_name)
    return columns


def _parse_properties(value: Any) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = OBJECT.parse(value)
    for name, one in properties.items():
        if not isinstance(name, str) or not isinstance(one, str | int | float):
            raise ValueError(f"property {name!r} is no text, number or truth value")  # noqa: TRY004
    return properties


_COLUMNS: Final = Kind(_parse_columns, "an object: <schema>.<table> -> list of columns")
_PROPERTIES: Final = Kind(_parse_properties, "an object: librdkafka's names -> values", confidential=True)
_NULLABLE: Final = Kind(lambda value: None if value is None else STRING.parse(value), "a text, or null")


@dataclass(frozen=True, slots=True)
class ReadOptions(CheckedOptions):
    """Options of the reader. Raises ConfigError."""

    schema: str | None = option(None, STRING, "schema of messages if nothing else says it: message, metadata, topic")
    table: str | None = option(None, STRING, "table of such messages")
    columns: Columns = option(
        {}, _COLUMNS, "columns of tables, for messages without schema: names, or objects with name, type and pk"
    )
    topic: str | None = option(None, STRING, "the one topic of all tables, whose name names no table")
    metadata_topic: str | None = option(
        DEFAULT_METADATA_TOPIC, _NULLABLE, "topic of the metadata messages, which is read too"
    )
    metadata_wait: float = option(30.0, number(0), "seconds that a message waits for its metadata")
    byteorder: str = option("little", choice("little", "big", "auto"), "byte order of masks")
    registry: str | None = option(None, STRING, "URL of the schema registry")
    follow: bool = option(False, FLAG, "wait for more at the end of a topic")
    properties: Mapping[str, Any] = option({}, _PROPERTIES, "settings of librdkafka")

    def columns_of(self, full_name: str) -> tuple[QlikColumn, ...] | None:
        """The columns that the options give a table, None if they do not name it. Raises ConfigError."""
        from eventlog.qlik.columns import columns_from_json

        listed = self.columns.get(full_name)
        return None if listed is None else columns_from_json(listed, what=full_name)


@dataclass(frozen=True, slots=True)
class WriteOptions(CheckedOptions):
    """Options of the writer, those of [format] among them. Raises ConfigError."""

    encoding: str = option("json", choice("json", "avro"), "encoding of the messages")
    columns: Columns = option(
        {}, _COLUMNS, "columns of tables, as for the reader; default: those that the changes show"
    )
    metadata: str = option(
        "publish", choice("publish", "none", "registry"), "publish metadata, or register schemas (Avro)"
    )
    metadata_topic: str = option(DEFAULT_METADATA_TOPIC, STRING, "topic of the metadata messages")
    registry: str | None = option(
        None, STRING, "URL of the schema registry; user:password by EVENTLOG_REGISTRY_AUTH",
        example="https://registry:8081",
    )  # fmt: skip
    names: str = option("message", choice("message", "headers", "off"), "where schema and table stand")
    external_schema_id: bool = option(False, FLAG, "write the header externalSchemaId")
    logical_types: bool = option(True, FLAG, "use the logical types of Avro")
    namespace: str | None = option(
        None, STRING, "beginning of Avro names, before .<schema>.<table>", example="com.attunity.queue.msg.hr"
    )
    topic: str | None = option(None, STRING, "one topic for all tables; default: one a table")
    key: str = option("primary_key", choice("none", "table", "primary_key"), "key of the records")
    on_truncate: str = option("skip", choice("skip", "error"), "what happens to a TRUNCATE, which has no message")
    server: str = option("eventlog", STRING, "server in the lineage")
    task: str = option("eventlog", STRING, "task in the lineage")
    byteorder: str = option("little", choice("little", "big"), "byte order of masks")
    last_sequence: str | None = option(None, STRING, "the highest change_seq that was written before")
    input_complete: bool = option(True, FLAG, "the last transaction of the input is known to end there")
    properties: Mapping[str, Any] = option({}, _PROPERTIES, "settings of librdkafka")

    def __post_init__(self) -> None:
        CheckedOptions.__post_init__(self)
        if self.metadata == "registry" and self.encoding != "avro":
            raise ConfigError("metadata = registry is for encoding = avro only; set encoding, or metadata = publish")

    @property
    def base_namespace(self) -> str:
        """What stands before ``.<schema>.<table>`` in Avro names, by default ``com.attunity.queue.msg.<task>``."""
        return self.namespace if self.namespace is not None else f"com.attunity.queue.msg.{self.task}"
