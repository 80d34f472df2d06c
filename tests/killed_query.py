"""A live copy by real Spark, whose processes are killed.

    python killed_query.py CONFIG DIRECTORY CLASS ROWS [to-the-end]

The copy is a Delta table, DIRECTORY/CLASS. ROWS is the most rows of a batch. With ``to-the-end``
the query ends when it has read the log to its end.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from spark_workers import kill_worker

TO_THE_END = "to-the-end"


def command_of(config: Path, directory: Path, class_name: str, batch_rows: int) -> list[str]:
    """Return the command of the query."""
    return [sys.executable, __file__, str(config), str(directory), class_name, str(batch_rows)]


def environment() -> dict[str, str]:
    """Return the environment of a process that runs its own Spark."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")
    }


def run_until_killed(
    command: list[str],
    log: Path,
    later: float,
    kill: Callable[[int, random.Random], object] = kill_worker,
) -> None:
    """Run a driver until it has written some commits, call ``kill``, which kills one of its
    workers, and then kill the driver. One that Spark ends, as on a busy machine, whose workers are
    slow to connect, is run again.
    """
    enough = len(list(log.glob("*.json"))) + 2
    for _ in range(5):
        with (
            (log.parent.parent / "said").open("w+") as said,
            subprocess.Popen(command, env=environment(), stdout=said, stderr=said) as driver,
        ):
            try:
                while driver.poll() is None and len(list(log.glob("*.json"))) < enough:
                    time.sleep(0.1)
                if driver.poll() is None:
                    time.sleep(later)
                    kill(driver.pid, random.Random(later))
                    time.sleep(later)
                    return
            finally:
                driver.kill()
    pytest.fail((log.parent.parent / "said").read_text())


def main() -> None:
    from eventlog.spark import delta, live_copy
    from eventlog.spark.session.session import open_session

    config, directory, class_name, batch_rows, *how = sys.argv[1:]
    query = live_copy(
        open_session("local[2]"),
        config,
        class_name,
        delta(f"{directory}/{class_name}"),
        checkpoint=f"{directory}/checkpoint",
        trigger={"availableNow": True}
        if how == [TO_THE_END]
        else {"processingTime": "100 milliseconds"},
        maxRowsPerBatch=batch_rows,
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
