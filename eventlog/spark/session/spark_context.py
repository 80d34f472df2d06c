"""The context of a session, and the Python of its workers. A session of Spark Connect shows neither
context nor Python. This module also works with only the client of Spark Connect, which has no Java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark import SparkContext


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the context of a session; None if the session has no context (Spark Connect)."""
    try:
        return spark.sparkContext
    except (PySparkException, AttributeError):
        return None


def worker_python(spark: SparkSession) -> tuple[str, str] | None:
    """Return the Python that the workers of a session run, and what Spark puts on its path; None if
    Python and path are not known (Spark Connect).
    """
    context: Any = context_of(spark)
    if context is None:
        return None
    path = context._jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath()
    return context.pythonExec, path
