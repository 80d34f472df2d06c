"""The data sources of a session: ``format("eventlog")`` and ``format("eventlog-changes")``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache

from pyspark.sql import SparkSession

from eventlog.core.arguments import check_arguments
from eventlog.errors import ConfigError
from eventlog.spark.changes.changes import ChangesDataSource
from eventlog.spark.log_source import log_source
from eventlog.spark.session.arguments import SESSION
from eventlog.spark.session.spark_context import worker_python


def register(spark: SparkSession) -> None:
    """Register ``format("eventlog")`` and ``format("eventlog-changes")`` in a session, without
    changing a setting.

    The database applies the conditions of ``where`` on status and record_id of ``eventlog`` if
    ``spark.sql.python.filterPushdown.enabled`` is true now. If this setting is false, Spark refuses
    a source that takes filters. Raises ConfigError if the workers of the session run a Python that
    cannot import eventlog.
    """
    check_arguments("register", spark=(spark, SESSION))
    workers = worker_python(spark)
    if workers is not None:
        check_python(*workers)
    spark.dataSource.register(log_source(spark))
    spark.dataSource.register(ChangesDataSource)


@cache
def check_python(command: str, path: str) -> None:
    """Raise ConfigError if the Python of workers cannot import the sources.

    ``path`` is the list of directories that Spark puts before its PYTHONPATH. Nothing is checked if
    the workers run this Python, or a Python that this machine does not have.
    """
    found = shutil.which(command)
    if found is None or found == sys.executable:
        return
    imports = "import eventlog.spark.changes.changes, eventlog.spark.log_source"
    try:
        subprocess.run(  # noqa: S603
            [found, "-c", f"import sys; sys.path[:0] = {path.split(':')!r}; {imports}"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(
            f"the workers of this session run {found}, which cannot read the log ({reason}). Set "
            f"PYSPARK_PYTHON={sys.executable} before the session starts"
        ) from None
    except (OSError, subprocess.SubprocessError):
        return  # the first query then raises the error
