"""What differs between the versions of PySpark that eventlog runs on, 4.0 and later: all of it stands here."""

from __future__ import annotations

from inspect import signature
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

OLDEST_JAVA: Final = 17
JAVA_TOO_NEW: Final = 23 if pyspark.__version__.startswith(("4.0.", "4.1.")) else None
"""The first Java that this Spark does not run on: its Hadoop, or its Arrow, asks for what is not there any more."""

READS_TIMES: Final = hasattr(t, "TimeType")
"""Whether Spark knows columns of a time of day: since 4.1."""

_IN_UTC: Final[dict[str, Any]] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
"""Moments are in UTC: since 4.2 this is to be said."""


def new_session(running: SparkSession) -> SparkSession:
    """A session beside one that runs, with settings of its own. Of Spark Connect it can be asked for since 4.3."""
    if hasattr(running, "newSession"):
        return running.newSession()
    of_connect: Any = running
    return type(of_connect)(of_connect.client._builder)  # type: ignore[no-any-return]


def by_number(frame: DataFrame, partitions: int, column: str) -> DataFrame:
    """Rows of one number in one partition. Before 4.1 several numbers may share one: each stands together there."""
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(partitions, column)
    return frame.repartition(partitions, column).sortWithinPartitions(column)


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """A schema of Spark as Arrow batches have it."""
    return to_arrow_schema(schema, **_IN_UTC)


def arrow_type(kind: t.DataType) -> pa.DataType:
    """A type of Spark as Arrow batches have it."""
    return to_arrow_type(kind, **_IN_UTC)
