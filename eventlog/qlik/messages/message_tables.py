"""Tables in messages: the options of readers and writers, under the names of formats/qlik.md 5; the
names and columns that a table has in messages; the metadata messages (MD) that describe tables; and
the Avro schemas of data messages and keys (formats/qlik.md 5.2, 5.5, 5.6).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from eventlog.core.oauth import OAUTH, OAuthOptions
from eventlog.core.options import (
    FLAG,
    OBJECT,
    STRING,
    CheckedOptions,
    GivenOptions,
    OptionKind,
    choice,
    number,
    option,
    shared,
)
from eventlog.core.values.typed_values import whole_number
from eventlog.errors import ConfigError, FormatError, NotExpressible, shown
from eventlog.files.text import parsed_json
from eventlog.model import JsonDict, JsonObject, Names, full_name
from eventlog.qlik import masks
from eventlog.qlik.columns import (
    CLASSES,
    QlikColumn,
    QlikColumns,
    columns_from_json,
    key_of,
    lobs_of,
)
from eventlog.qlik.masks import MaskLayout

# --- options --------------------------------------------------------------------------------------

Columns = Mapping[str, Sequence[str | JsonObject]]

_DEFAULT_METADATA_TOPIC: Final = "eventlog.metadata"


def _parse_columns(value: Any) -> Columns:
    columns: Columns = OBJECT.parse(value)
    for table, listed in columns.items():
        columns_from_json(listed, what=table)
    return columns


def _parse_properties(value: Any) -> GivenOptions:
    properties: GivenOptions = OBJECT.parse(value)
    for name, one in properties.items():
        if not isinstance(name, str) or not isinstance(one, str | int | float):
            raise ValueError(f"property {name!r} must be a text, a number, true or false")  # noqa: TRY004
    return properties


_COLUMNS: Final = OptionKind(_parse_columns, "an object: <schema>.<table> -> list of columns")
_PROPERTIES: Final = OptionKind(
    _parse_properties, "an object: librdkafka's names -> values", confidential=True
)
_NULLABLE: Final = OptionKind(
    lambda value: None if value is None else STRING.parse(value), "a text, or null"
)


@dataclass(frozen=True, slots=True)
class ReadOptions(CheckedOptions):
    """Options of the reader. Raises ConfigError."""

    schema: str | None = option(
        None, STRING, "schema of messages, if message, metadata and topic do not name it"
    )
    table: str | None = option(None, STRING, "table of messages, if nothing else names it")
    columns: Columns = option(
        {},
        _COLUMNS,
        "columns of tables, for messages without schema: names, or objects with name, type and pk",
    )
    topic: str | None = option(
        None, STRING, "the single topic of all tables, if its name is not that of a table"
    )
    metadata_topic: str | None = option(
        _DEFAULT_METADATA_TOPIC, _NULLABLE, "topic of the metadata messages, which is read too"
    )
    metadata_wait: float = option(
        30.0, number(0), "how many seconds a message waits for its metadata"
    )
    byteorder: str = option("little", choice("little", "big", "auto"), "byte order of masks")
    registry: str | None = option(None, STRING, "URL of the schema registry")
    registry_oauth: OAuthOptions | None = shared(OAUTH)
    follow: bool = option(False, FLAG, "wait for more at the end of a topic")
    properties: GivenOptions = option({}, _PROPERTIES, "settings of librdkafka")

    def columns_of(self, full_name: str) -> QlikColumns | None:
        """Return the columns that the options have for a table, None if they do not name the table.

        Raises ConfigError.
        """
        listed = self.columns.get(full_name)
        return None if listed is None else columns_from_json(listed, what=full_name)


@dataclass(frozen=True, slots=True)
class PublishOptions(CheckedOptions):
    """Options of a publisher's messages. Raises ConfigError."""

    encoding: str = option("json", choice("json", "avro"), "encoding of the messages")
    metadata: str = option(
        "publish",
        choice("publish", "none", "registry"),
        "publish metadata, or register schemas (Avro)",
    )
    metadata_topic: str = option(_DEFAULT_METADATA_TOPIC, STRING, "topic of the metadata messages")
    registry: str | None = option(
        None, STRING, "URL of the schema registry; user:password by EVENTLOG_REGISTRY_AUTH",
        example="https://registry:8081",
    )  # fmt: skip
    registry_oauth: OAuthOptions | None = shared(OAUTH)
    names: str = option(
        "message", choice("message", "headers", "off"), "where schema and table are written"
    )
    external_schema_id: bool = option(False, FLAG, "write the header externalSchemaId")
    logical_types: bool = option(True, FLAG, "use the logical types of Avro")
    namespace: str | None = option(
        None,
        STRING,
        "prefix of Avro names, before .<schema>.<table>",
        example="com.attunity.queue.msg.hr",
    )
    key: str = option("primary_key", choice("none", "table", "primary_key"), "key of the records")
    server: str = option("eventlog", STRING, "server in the lineage")
    task: str = option("eventlog", STRING, "task in the lineage")

    @property
    def base_namespace(self) -> str:
        """The part before ``.<schema>.<table>`` in Avro names, by default
        ``com.attunity.queue.msg.<task>``.
        """
        return (
            self.namespace if self.namespace is not None else f"com.attunity.queue.msg.{self.task}"
        )


@dataclass(frozen=True, slots=True)
class WriteOptions(PublishOptions):
    """Options of the writer. Raises ConfigError."""

    columns: Columns = option(
        {}, _COLUMNS, "columns of tables, as for the reader; default: the columns in the changes"
    )
    topic: str | None = option(None, STRING, "one topic for all tables; default: one per table")
    on_truncate: str = option(
        "skip", choice("skip", "error"), "what happens to a TRUNCATE, which has no message"
    )
    byteorder: str = option("little", choice("little", "big"), "byte order of masks")
    last_sequence: str | None = option(
        None, STRING, "the highest change_seq that was written before"
    )
    input_complete: bool = option(
        True, FLAG, "the input is complete, and so is its last transaction"
    )
    properties: GivenOptions = option({}, _PROPERTIES, "settings of librdkafka")

    def __post_init__(self) -> None:
        CheckedOptions.__post_init__(self)
        if self.metadata == "registry" and self.encoding != "avro":
            raise ConfigError(
                "metadata = registry is for encoding = avro only; set encoding, "
                "or metadata = publish"
            )


# --- names ----------------------------------------------------------------------------------------


_LONGEST_TOPIC: Final = 249
_NOT_IN_TOPIC = re.compile(r"[^A-Za-z0-9._-]")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]")


def topic_of(schema: str | None, table: str) -> str:
    """Return the topic of a table, ``<schema>.<table>``.

    Raises NotExpressible if the name is too long.
    """
    return checked_topic(full_name(schema, table))


def checked_topic(name: str) -> str:
    """Return a topic's name with ``_`` for characters that Kafka refuses.

    Raises NotExpressible if the name is longer than 249 characters.
    """
    topic = _NOT_IN_TOPIC.sub("_", name)
    if len(topic) > _LONGEST_TOPIC:
        raise NotExpressible(
            f"topic {topic!r} is longer than {_LONGEST_TOPIC} characters; set the option topic"
        )
    return topic


def avro_name(name: str) -> str:
    """Return a name that Avro accepts, ``[A-Za-z_][A-Za-z0-9_]*``, with ``_`` for every other
    character.
    """
    plain = _NOT_IN_NAME.sub("_", name)
    return f"_{plain[1:]}" if plain[:1].isdigit() else plain


def field_names(columns: Iterable[str], table: str) -> dict[str, str]:
    """Return the field name of each column.

    Raises NotExpressible if two columns get the same name.
    """
    fields: dict[str, str] = {}
    in_use: dict[str, str] = {}
    for column in columns:
        field = avro_name(column) or "_"
        other = in_use.setdefault(field, column)
        if other != column:
            raise NotExpressible(
                f"columns {other!r} and {column!r} of {table!r} both become {field!r} in "
                "messages; rename one"
            )
        fields[column] = field
    return fields


# --- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageTable:
    """A table in one version of its structure."""

    schema: str | None
    name: str
    columns: QlikColumns
    version: int = 1
    """The number of the version. Every change of ``columns`` raises this number."""
    schema_id: str | None = None
    """The id of the payload schema, None if the messages name no schema."""
    fields: dict[str, str] = field(init=False, compare=False)
    layout: MaskLayout = field(init=False, compare=False)
    key: Names = field(init=False, compare=False)
    lobs: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        for attribute, value in (
            ("fields", field_names(names, self.name)),
            ("layout", masks.layout(names)),
            ("key", key_of(self.columns)),
            ("lobs", lobs_of(self.columns)),
        ):
            object.__setattr__(self, attribute, value)

    @property
    def full_name(self) -> str:
        """The name ``<schema>.<table>`` by which options name the table."""
        return full_name(self.schema, self.name)


# --- Avro schemas of data and keys ----------------------------------------------------------------

_Schema: TypeAlias = dict[str, Any]


def _text_of(schema: _Schema) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def id_of_schema(table: MessageTable, schema: str) -> str:
    """Return the id of an Avro schema of a table (formats/qlik.md 5.1).

    The id is the first 16 bytes of a SHA-256 in upper-case hex. The hash is over the table's schema
    (empty if there is none), the table's name and version, and the Avro schema, with NUL between
    them.
    """
    # loads OpenSSL, which is slow, while every command loads the options above
    import hashlib

    parts = (table.schema or "", table.name, str(table.version), schema)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32].upper()


def data_schema(table: MessageTable, options: WriteOptions) -> str:
    """Return the schema of ``DataRecord``."""
    names = _names(options.names == "message")
    data = {
        "type": "record",
        "name": "Data",
        "fields": [_field(table, column, options.logical_types) for column in table.columns],
    }
    schema = {
        "type": "record",
        "name": "DataRecord",
        "namespace": _namespace(table, options),
        "fields": [
            *names,
            {"name": "data", "type": data},
            {"name": "beforeData", "type": ["null", "Data"], "default": None},
            {"name": "headers", "type": _headers_schema(options)},
        ],
    }
    return _text_of(schema)


def key_schema(table: MessageTable, options: WriteOptions) -> str:
    """Return the schema of ``KeyRecord``: the key columns in key order."""
    columns = {column.name: column for column in table.columns}
    schema = {
        "type": "record",
        "name": "KeyRecord",
        "namespace": _namespace(table, options),
        "fields": [_field(table, columns[name], options.logical_types) for name in table.key],
    }
    return _text_of(schema)


def _names(wanted: bool) -> list[_Schema]:
    return [{"name": name, "type": "string"} for name in ("schema", "table")] if wanted else []


def _namespace(table: MessageTable, options: WriteOptions) -> str:
    parts = [
        *options.base_namespace.split("."),
        *([] if table.schema is None else [table.schema]),
        table.name,
    ]
    return ".".join(avro_name(part) or "_" for part in parts)


def _headers_schema(options: WriteOptions) -> _Schema:
    texts = ("changeSequence", "timestamp", "streamPosition", "transactionId")
    optional = [("changeMask", "bytes"), ("columnMask", "bytes")]
    if options.external_schema_id:
        optional.append(("externalSchemaId", "string"))
    optional += [("transactionEventCounter", "long"), ("transactionLastEvent", "boolean")]
    symbols = ["INSERT", "UPDATE", "DELETE", "REFRESH"]
    return {
        "type": "record",
        "name": "Headers",
        "namespace": "com.attunity.queue.msg",
        "fields": [
            *_names(options.names == "headers"),
            {
                "name": "operation",
                "type": {"type": "enum", "name": "operation", "symbols": symbols},
            },
            *({"name": name, "type": "string"} for name in texts),
            *({"name": name, "type": ["null", kind], "default": None} for name, kind in optional),
        ],
    }


def _field(table: MessageTable, column: QlikColumn, logical_types: bool) -> _Schema:
    return {
        "name": table.fields[column.name],
        "type": ["null", _avro_type(column, logical_types)],
        "default": None,
    }


_PLAIN: Final = {
    "BYTES": "bytes", "BLOB": "bytes", "REAL4": "float", "REAL8": "double", "INT1": "int",
    "INT2": "int", "INT4": "int", "UINT1": "int", "UINT2": "int", "INT8": "long", "UINT4": "long",
    "BOOLEAN": "boolean",
}  # fmt: skip
_LOGICAL: Final = {
    "DATE": ("int", "date"),
    "TIME": ("int", "time-millis"),
    "DATETIME": ("long", "timestamp-micros"),
}


def _avro_type(column: QlikColumn, logical_types: bool) -> Any:
    if column.type == "UINT8":
        return _decimal(20, 0) if logical_types else "long"
    if logical_types and column.type in _LOGICAL:
        kind, logical = _LOGICAL[column.type]
        return {"type": kind, "logicalType": logical}
    # Without digits there is no Avro decimal.
    if logical_types and column.type == "NUMERIC" and column.precision:
        return _decimal(*column.avro_decimal)
    return _PLAIN.get(column.type, "string")


def _decimal(precision: int, scale: int) -> _Schema:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


# --- metadata messages ----------------------------------------------------------------------------


def metadata_message(
    table: MessageTable, data_schema: str, options: WriteOptions, now: datetime
) -> JsonDict:
    """Return the payload of an MD message, which is equal in JSON and Avro. ``now`` is in UTC."""
    return {
        "schemaId": table.schema_id,
        "lineage": {
            "server": options.server,
            "task": options.task,
            "schema": table.schema or "",
            "table": table.name,
            "tableVersion": table.version,
            "timestamp": now.isoformat(timespec="milliseconds")[:23],
        },
        "tableStructure": {
            "tableColumns": {
                table.fields[column.name]: {
                    "ordinal": ordinal,
                    "type": column.type,
                    "length": column.length,
                    "precision": column.precision,
                    "scale": column.scale,
                    "primaryKeyPosition": column.pk,
                    "nullable": column.nullable,
                }
                for ordinal, column in enumerate(table.columns, 1)
            }
        },
        "dataSchema": data_schema,
    }


def metadata_schema(table: MessageTable) -> str:
    """Return the schema of a table's MD message. The schema has one record for each column, with
    the name of the column.
    """
    numbers = ("length", "precision", "scale", "primaryKeyPosition")
    in_use = {"MetadataMessage", "Lineage", "TableStructure", "TableColumns"}
    columns = []
    for name in table.fields.values():
        record = name
        while record in in_use:
            record += "_"
        in_use.add(record)
        fields = [{"name": "ordinal", "type": "int"}, {"name": "type", "type": "string"}]
        fields += [{"name": number, "type": "int"} for number in numbers]
        fields.append({"name": "nullable", "type": "boolean"})
        columns.append({"name": name, "type": {"type": "record", "name": record, "fields": fields}})
    lineage = [{"name": name, "type": "string"} for name in ("server", "task", "schema", "table")]
    lineage += [{"name": "tableVersion", "type": "long"}, {"name": "timestamp", "type": "string"}]
    table_columns = {"type": "record", "name": "TableColumns", "fields": columns}
    structure = [{"name": "tableColumns", "type": table_columns}]
    schema = {
        "type": "record",
        "name": "MetadataMessage",
        "fields": [
            {"name": "schemaId", "type": "string"},
            {"name": "lineage", "type": {"type": "record", "name": "Lineage", "fields": lineage}},
            {
                "name": "tableStructure",
                "type": {"type": "record", "name": "TableStructure", "fields": structure},
            },
            {"name": "dataSchema", "type": "string"},
        ],
    }
    return _text_of(schema)


def read_metadata(message: JsonObject) -> tuple[MessageTable, str]:
    """Return the table and the data schema of an MD payload. Raises FormatError."""
    try:
        lineage = message["lineage"]
        texts = (
            lineage["table"],
            lineage.get("schema") or "",
            message["schemaId"],
            message.get("dataSchema") or "",
        )
        name, own_schema, schema_id, schema = texts
        if not name or not all(isinstance(text, str) for text in texts):
            raise FormatError(
                "a metadata message must have its table, schema, schemaId and dataSchema as text",
                code="bad_metadata",
            )
        described = message["tableStructure"]["tableColumns"].items()
        columns = [
            _column(*one) for one in sorted(described, key=lambda one: _number(one[1]["ordinal"]))
        ]
        version = _number(lineage.get("tableVersion") or 1)
        table = MessageTable(own_schema or None, name, tuple(columns), version, schema_id)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(
            f"a metadata message cannot be read: {type(error).__name__} {shown(error)}",
            code="bad_metadata",
        ) from None
    return table, schema


def read_file_metadata(content: bytes) -> tuple[int, QlikColumns]:
    """Return the version of the table and the columns, including header columns, from a file that
    describes a data file (formats/qlik.md 1.3).

    Raises FormatError.
    """
    try:
        about = parsed_json(content)["dataInfo"]
        described = sorted(about["columns"], key=lambda one: _number(one["ordinal"]))
        version = _number(about.get("tableVersion") or 0)
        columns = [
            _column(one["name"], {**one, "primaryKeyPosition": one.get("primaryKeyPos")})
            for one in described
        ]
    except (KeyError, TypeError, AttributeError, ValueError, FormatError) as error:
        raise FormatError(
            f"not the metadata of a data file: {type(error).__name__} {shown(error)}",
            code="bad_metadata",
        ) from None
    if not all(isinstance(column.name, str) for column in columns):
        raise FormatError(
            "the metadata of a data file have a column whose name is not text",
            code="bad_metadata",
        )
    return version, tuple(columns)


_MAX_DIGITS: Final = 18


def _number(value: Any) -> int:
    number = whole_number(int(value) if isinstance(value, str) else value, _MAX_DIGITS)
    if number is None:
        raise ValueError(f"{shown(value)} is not a number of at most {_MAX_DIGITS} digits")
    return number


def _column(name: str, about: JsonObject) -> QlikColumn:
    kind = str(about.get("type")).upper()
    length, precision, scale, place = (
        _number(about.get(number) or 0)
        for number in ("length", "precision", "scale", "primaryKeyPosition")
    )
    nullable = about.get("nullable") is not False
    return QlikColumn(
        name, kind if kind in CLASSES else "STRING", length, precision, scale, place, nullable
    )
