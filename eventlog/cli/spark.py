"""The package ``spark`` for the commands that need it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from eventlog.errors import ConfigError


def spark_module(name: str) -> Any:
    """A module of the package. Raises ConfigError where Spark is not installed."""
    # Imported only here, when it is asked for: the rest of eventlog knows nothing of Spark.
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"Spark is not installed ({error}): install eventlog-publisher[spark], and Java 17 or later"
        ) from error


def master_of(given: str | None) -> str | None:
    """The Spark master of a command: as given, else what spark-submit says (None), else all cores of this machine."""
    return given or (None if "PYSPARK_GATEWAY_PORT" in os.environ else "local[*]")
