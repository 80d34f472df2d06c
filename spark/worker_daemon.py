"""What starts the Python workers of a job on this machine: PySpark's daemon, which is up sooner this way.

Spark puts its zip and its jar in front of Python's path: each daemon would compile PySpark anew, and each worker read
the directories of both. The same PySpark is installed here, compiled. What workers import without starting a thread,
as pyarrow does, is imported once, before they are forked.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

_IMPORTED: Final = ("pyspark.worker", "eventlog.publisher.cycle", "eventlog.publisher.open")


def main() -> None:
    """Serve until Spark ends."""
    home = os.environ["SPARK_HOME"] + os.sep
    sys.path[:] = [place for place in sys.path if not (place.startswith(home) and place.endswith((".zip", ".jar")))]
    for module in _IMPORTED:
        import_module(module)
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
