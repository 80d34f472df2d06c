"""The data sources of a session: ``format("eventlog")`` and ``format("eventlog-changes")``."""

from __future__ import annotations

from pyspark.sql import SparkSession

from eventlog.spark.changes import ChangesDataSource
from eventlog.spark.log_source import log_source


def register(spark: SparkSession) -> None:
    """Make ``format("eventlog")`` and ``format("eventlog-changes")`` known to a session; no setting is changed.

    The database does what ``where`` says of status and record_id of ``eventlog`` if
    ``spark.sql.python.filterPushdown.enabled`` is true now: where it is not, Spark refuses a source that takes filters.
    """
    spark.dataSource.register(log_source(spark))
    spark.dataSource.register(ChangesDataSource)
