"""Types of Spark in the form of Arrow batches. This module also works with the client of Spark
Connect alone, which has no Java.
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
"""The argument that sets moments to UTC, which is needed since 4.2."""


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """Return a schema of Spark in the form of Arrow batches."""
    return to_arrow_schema(schema, **_IN_UTC)


def arrow_type(kind: t.DataType) -> pa.DataType:
    """Return a type of Spark in the form of Arrow batches."""
    return to_arrow_type(kind, **_IN_UTC)
