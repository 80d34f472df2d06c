"""Texts written by their column types, for tests of values."""

from eventlog.core.values import (
    ValueOptions,
    converter,
    key_normalizer,
    parse_type,
)

TYPES = [
    "smallint", "integer", "bigint", "decimal(12,0)", "decimal(12,4)", "real", "double", "boolean",
    "char(8)", "varchar(64)", "text", "clob", "varbinary(9)", "blob", "date", "time", "timestamp",
    "timestamptz", "uuid", "json",
]  # fmt: skip
SYNTAXES = ["integer", "canonical", "java"]


def written(type_name: str, text: str, **options: str) -> str:
    return converter(parse_type(type_name), ValueOptions(**options))(text)


def key(type_name: str, text: str) -> str:
    return key_normalizer(parse_type(type_name))(text)
