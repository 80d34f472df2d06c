"""Spark types as the types of Arrow batches. This module also works with only the client of Spark
Connect, which has no Java.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

_IN_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
)
"""The argument that gives timestamps the zone UTC, which PySpark 4.2 and later need."""


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """Return a Spark schema as the schema of Arrow batches."""
    return to_arrow_schema(schema, **_IN_UTC)


def arrow_type(kind: t.DataType) -> pa.DataType:
    """Return a Spark type as the type in Arrow batches."""
    return to_arrow_type(kind, **_IN_UTC)
