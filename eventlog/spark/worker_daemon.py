"""What starts the Python workers of a job: PySpark's daemon, which is up sooner this way.

Spark puts its zips and its jar in front of Python's path: each daemon would compile PySpark anew, and each worker read
the directories of all of them. Where the same PySpark is installed, that is taken, which is compiled. What workers
import without starting a thread, as pyarrow does, is imported once, before they are forked.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import Final
from zipfile import BadZipFile, ZipFile

_IMPORTED: Final = ("eventlog.publisher.cycle", "eventlog.publisher.open_context")
_SHIPPED: Final = ("pyspark.zip", "py4j-", "spark-core_")
"""How the names of Spark's own zips and jar begin."""


def main() -> None:
    """Serve until Spark ends."""
    shipped = [place for place in sys.path if Path(place).name.startswith(_SHIPPED)]
    if shipped and is_installed(shipped):
        sys.path[:] = [place for place in sys.path if place not in shipped]
    for module in _IMPORTED:
        with suppress(ImportError):  # a task that needs it says so
            import_module(module)
    import_module("pyspark.daemon").manager()


def is_installed(shipped: list[str]) -> bool:
    """Whether the PySpark of one of these zips is also installed, in the same version."""
    try:
        with ZipFile(next(place for place in shipped if place.endswith("pyspark.zip"))) as package:
            version = package.read("pyspark/version.py").decode().rpartition("=")[2].strip(" \n\"'")
            return version == metadata.version("pyspark")
    except (OSError, BadZipFile, KeyError, StopIteration, metadata.PackageNotFoundError):
        return False


if __name__ == "__main__":
    main()
