"""The arguments of the functions of ``eventlog.spark``, checked when a function is called: a query
that fails later would not say which argument was wrong.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import types as t

from eventlog.config.load import Config
from eventlog.core.arguments import Kind, instance_of_type
from eventlog.core.extras import install_command
from eventlog.errors import ConfigError

SESSION: Final = Kind(lambda value: hasattr(value, "createDataFrame"), "a SparkSession")
FRAME: Final = instance_of_type(DataFrame, "a DataFrame")
CONFIG: Final = instance_of_type(
    Config, "a configuration: eventlog.config.load.load(Path('eventlog.toml'), os.environ)"
)
COPY: Final = Kind(
    lambda value: hasattr(value, "number_done") and hasattr(value, "sibling"),
    "delta(PATH) or iceberg(CATALOG, TABLE)",
)
TIME: Final = Kind(
    lambda value: isinstance(value, datetime) and value.tzinfo is not None,
    "a datetime.datetime with its zone, such as datetime(2026, 11, 20, 8, tzinfo=UTC)",
)
MAYBE_TIME: Final = Kind(lambda value: value is None or TIME.holds(value), TIME.in_words)
SPAN: Final = instance_of_type(timedelta, "a datetime.timedelta, such as timedelta(hours=1)")
STRUCT: Final = instance_of_type(t.StructType | None, "a StructType of the table's columns")
TEXTS: Final = Kind(
    lambda value: (
        value is None
        or (
            isinstance(value, Collection)
            and not isinstance(value, str | bytes)
            and all(isinstance(one, str) for one in value)
        )
    ),
    "a list of names",
)


_TRIGGERS: Final[Mapping[str, Kind]] = {
    "processingTime": instance_of_type(str, "a text such as '10 seconds'"),
    "once": Kind(lambda value: value is True, "True"),
    "availableNow": Kind(lambda value: value is True, "True"),
}


def check_trigger(trigger: object) -> None:
    """Raise ConfigError for a trigger of ``live_copy`` that ``DataStreamWriter.trigger`` would
    refuse; None is the default trigger.
    """
    if trigger is None:
        return
    example = 'such as {"processingTime": "10 seconds"} or {"availableNow": True}'
    if not isinstance(trigger, Mapping) or len(trigger) != 1:
        raise ConfigError(
            f"live_copy: trigger = {trigger!r}; give a dict with one entry, {example}"
        )
    ((name, value),) = trigger.items()
    if name not in _TRIGGERS:
        raise ConfigError(
            f"live_copy: the trigger {name!r} is not known; give one of "
            f"{', '.join(_TRIGGERS)}, {example}"
        )
    if not _TRIGGERS[name].holds(value):
        raise ConfigError(
            f"live_copy: the trigger {name} = {value!r}; give {_TRIGGERS[name].in_words}"
        )


def check_columns(function: str, name: str, frame: DataFrame, needed: Collection[str]) -> None:
    """Raise ConfigError for a DataFrame that lacks columns."""
    if missing := [column for column in needed if column not in frame.columns]:
        raise ConfigError(
            f"{function}: {name} has no column {', '.join(missing)}; its columns are "
            f"{', '.join(frame.columns)}"
        )


# --- pandas ---------------------------------------------------------------------------------------

_MIN_PANDAS: Final = (2, 2)


def check_pandas() -> None:
    """Raise ConfigError without the pandas that PySpark needs to hand Arrow batches to Python. Only
    the driver needs pandas.
    """
    try:
        found = version("pandas")
    except PackageNotFoundError:
        raise ConfigError(f"pandas is not installed, which PySpark needs: {_install()}") from None
    if tuple(map(int, re.findall("[0-9]+", found)[:2])) < _MIN_PANDAS:
        raise ConfigError(f"pandas {found} is too old for PySpark: {_install()}")


def _install() -> str:
    return f"{install_command('spark')}; or install pandas 2.2 or later, below 3"
