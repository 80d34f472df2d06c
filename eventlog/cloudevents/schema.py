"""The JSON Schema of the data of events of a class (formats/cloudevents.md 6; JSON Schema
2020-12).
"""

from __future__ import annotations

from typing import Any, Final

from eventlog.cloudevents.events import schema_uri
from eventlog.cloudevents.values import JsonEncoding, element_type, is_json, is_wide
from eventlog.core.catalog import ObjectClass
from eventlog.core.values import ColumnType, Kind
from eventlog.model import JsonDict, JsonObject

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_WORDS: Final = ["NaN", "Infinity", "-Infinity"]


def schema_of(
    object_class: ObjectClass,
    schema: str | None,
    encoding: JsonEncoding,
    dataschema: str | None = None,
) -> JsonObject:
    """Return the schema of the data of every event of a class.

    ``schema`` is the name of the table's database schema, None = there is none. ``dataschema`` is
    the option of this name.
    """
    key = {column.name: value_schema(column.type, encoding) for column in object_class.key}
    columns = {name: _old_and_new(_or_null(one)) for name, one in key.items()}
    for attribute in object_class.attributes:
        value = value_schema(attribute.column.type, encoding)
        if attribute.multi_valued:
            value = {"type": "array", "items": value}
        if attribute.name not in key:
            columns[attribute.name] = _old_and_new(_or_null(value), is_set=attribute.multi_valued)
    uri = {} if dataschema is None else {"$id": schema_uri(dataschema, schema, object_class.name)}
    named = {} if schema is None else {"schema": {"const": schema}}
    return {
        "$schema": _DIALECT,
        **uri,
        "title": f"Changes of {object_class.name}",
        "type": "object",
        "required": ["operation", *named, "class"],
        "properties": {
            "operation": {"enum": ["insert", "update", "delete", "refresh", "truncate"]},
            **named,
            "class": {"const": object_class.name},
            "key": {
                "type": "object",
                "properties": key,
                "required": list(key),
                "additionalProperties": False,
            },
            "columns": {"type": "object", "properties": columns, "additionalProperties": False},
            "unchanged": {"type": "object", "properties": columns, "additionalProperties": False},
            "user": {"type": "string"},
            "transaction": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "number": {"type": "integer"},
                    "last": {"type": "boolean"},
                },
            },
        },
    }


def _old_and_new(value: Any, *, is_set: bool = False) -> JsonDict:
    members = {"old": value, "new": value, **({"whole": {"const": True}} if is_set else {})}
    return {"type": "object", "properties": members, "additionalProperties": False}


def value_schema(type: ColumnType, encoding: JsonEncoding) -> Any:
    """Return the JSON Schema of a column's values other than NULL (formats/cloudevents.md 4)."""
    if encoding.nested_values == "json":
        if is_json(type):
            return True
        if element_type(type) is not None:
            return {"type": ["array", "string"]}
    match type.kind:
        case Kind.INTEGER if encoding.integers == "text" and is_wide(type):
            return {"type": "string", "pattern": "^-?[0-9]+$"}
        case Kind.INTEGER:
            return {"type": "integer"}
        case Kind.APPROXIMATE:
            return {"anyOf": [{"type": "number"}, {"enum": _WORDS}]}
        case Kind.BOOLEAN:
            return {"type": "boolean"}
        case Kind.BINARY:
            return {"type": "string", "contentEncoding": "base64"}
        case _:
            return {"type": "string"}


def _or_null(value: Any) -> Any:
    return value if value is True else {"anyOf": [value, {"type": "null"}]}
