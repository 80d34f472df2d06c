"""Names in messages: topics, and columns as Avro lets them be called (spec/qlik.md 5.2, 5.5, 5.6)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from eventlog.errors import NotExpressible

_LONGEST_TOPIC: Final = 249
_NOT_IN_TOPIC = re.compile(r"[^A-Za-z0-9._-]")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]")


def topic_of(schema: str | None, table: str) -> str:
    """The topic of a table, ``<schema>.<table>``. Raises NotExpressible if it is too long."""
    return checked_topic(table if schema is None else f"{schema}.{table}")


def checked_topic(name: str) -> str:
    """A topic's name with what Kafka does not take as ``_``. Raises NotExpressible if it is longer than 249."""
    topic = _NOT_IN_TOPIC.sub("_", name)
    if len(topic) > _LONGEST_TOPIC:
        raise NotExpressible(f"topic {topic!r} is longer than {_LONGEST_TOPIC} characters; set the option topic")
    return topic


def avro_name(name: str) -> str:
    """A name as Avro takes it, ``[A-Za-z_][A-Za-z0-9_]*``: every other character is ``_``."""
    made = _NOT_IN_NAME.sub("_", name)
    return f"_{made[1:]}" if made[:1].isdigit() else made


def field_names(columns: Iterable[str], table: str) -> dict[str, str]:
    """The field name of each column. Raises NotExpressible if two columns have one name."""
    fields: dict[str, str] = {}
    taken: dict[str, str] = {}
    for column in columns:
        field = avro_name(column) or "_"
        other = taken.setdefault(field, column)
        if other != column:
            raise NotExpressible(
                f"columns {other!r} and {column!r} of {table!r} both become {field!r} in messages; rename one"
            )
        fields[column] = field
    return fields
