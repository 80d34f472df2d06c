"""The data sources of a session: ``format("eventlog")`` and ``format("eventlog-changes")``."""

from __future__ import annotations

from pyspark.sql import SparkSession

from eventlog.spark.changes import ChangesDataSource
from eventlog.spark.log_source import log_source


def register(spark: SparkSession) -> None:
    """Make ``format("eventlog")`` and ``format("eventlog-changes")`` known to a session, without
    changing a setting.

    The database applies the conditions of ``where`` on status and record_id of ``eventlog`` if
    ``spark.sql.python.filterPushdown.enabled`` is true now. If it is false, Spark refuses a source
    that takes filters.
    """
    spark.dataSource.register(log_source(spark))
    spark.dataSource.register(ChangesDataSource)
