"""The module that starts the Python workers of a job: PySpark's daemon, with a faster start.

Spark puts its zips and its jar at the front of Python's path. So each daemon would compile PySpark
again, and each worker would read the directories of all zips and of the jar. If the same PySpark is
installed, this module uses the installed package, which is compiled. Modules that start no thread
at import, such as pyarrow, are imported once, before the workers are forked.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import Final
from zipfile import BadZipFile, ZipFile

_IMPORTED: Final = ("eventlog.publisher.send.cycle", "eventlog.publisher.declared.opening")
_SHIPPED: Final = ("pyspark.zip", "py4j-", "spark-core_")
"""The prefixes of the names of Spark's own zips and jar."""


def main() -> None:
    """Run the daemon until Spark ends."""
    shipped = [place for place in sys.path if Path(place).name.startswith(_SHIPPED)]
    if shipped and is_installed(shipped):
        sys.path[:] = [place for place in sys.path if place not in shipped]
    for module in _IMPORTED:
        with suppress(ImportError):  # a task that needs the module raises the error
            import_module(module)
    import_module("pyspark.daemon").manager()


def is_installed(shipped: list[str]) -> bool:
    """Return True if the PySpark of one of these zips is also installed, in the same version."""
    try:
        with ZipFile(next(place for place in shipped if place.endswith("pyspark.zip"))) as package:
            version = package.read("pyspark/version.py").decode().rpartition("=")[2].strip(" \n\"'")
            return version == metadata.version("pyspark")
    except (OSError, BadZipFile, KeyError, StopIteration, metadata.PackageNotFoundError):
        return False


if __name__ == "__main__":
    main()
