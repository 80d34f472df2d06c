"""What each hook into PySpark's inside saves: the class data archive, the daemon that starts Python
workers, and the finder that hides pandas from Arrow.

A job converts a small log of SQLite, since what the hooks save is of a job's start. It runs in turn
with all hooks and without one of them, in a process of its own; what counts is the CPU of that
process, of its Java and of their workers. `--python` names the Pythons of environments with other
releases of PySpark.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import common

WITHOUT = ("none", "archive", "daemon")
_JOB = """
import sys
from pathlib import Path
import psutil
from eventlog.config.load import load
from eventlog.spark.backlog import backlog
from eventlog.spark.session import session

without, archive, place = sys.argv[1:4]
session.archive_of = lambda java: Path(archive if without != "archive" else archive + ".none")
if without == "daemon":
    session._DAEMON = "pyspark.daemon"
config = load({"database": {"url": f"sqlite:///{place}/log.db"}, "watch": [{"table": "usr"}]}, {})
backlog.run(config, backlog.Request(f"{place}/documents", master="local[2]", quiet=True, no_claim=True))
this = psutil.Process()
print(sum(sum(one.cpu_times()[:4]) for one in (this, *this.children(recursive=True))))
"""
_MAKE = """
import sys
from pathlib import Path
from eventlog.spark import class_archive
class_archive.archive_of = lambda java: Path(sys.argv[1])
class_archive.make()
"""
_IMPORT = """
import sys, time
begun = time.process_time()
import pyarrow as pa
if sys.argv[1] == "hidden":
    from eventlog.spark.session.in_tasks import _use_arrow_without_pandas as first
    begun = time.process_time()
else:
    import eventlog.spark.session.in_tasks
    begun = time.process_time()
    first = lambda: pa.array([])
first()
print(time.process_time() - begun)
"""
_ROW = (
    "INSERT INTO eventlog (event_type, event_time, table_name, table_key, column_name, new_value) "
    "VALUES (1, '2026-01-01 00:00:00', 'usr', ?, 'fname', 'Ann')"
)


def fill(place: Path, rows: int) -> None:
    """Make a log of rows N in SQLite."""
    from eventlog.sql.connect.connection import connect
    from eventlog.sql.migrations import upgrade

    file = place / "log.db"
    file.touch()
    engine = connect(f"sqlite:///{file}")
    upgrade(engine, log_table="eventlog")
    engine.dispose()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE usr (idu integer PRIMARY KEY, fname text)")
        connection.executemany(_ROW, ((f"idu={number}",) for number in range(1, rows + 1)))
        connection.commit()


def spent(python: str, *arguments: str) -> tuple[float, float]:
    """Return the seconds of a script by the clock, and the CPU seconds that it prints."""
    begun = time.perf_counter()
    said = subprocess.run(
        [python, "-c", *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "ignore", "PYSPARK_PYTHON": python},
    ).stdout
    return time.perf_counter() - begun, float(said.split()[-1])


def measure(python: str, rows: int, rounds: int) -> None:
    """Print what the hooks save with one release of PySpark."""
    with tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory:
        place = Path(directory)
        fill(place, rows)
        archive = str(place / "spark.jsa")
        subprocess.run([python, "-c", _MAKE, archive], check=True, capture_output=True)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in WITHOUT}
        for number in range(rounds):
            for name in WITHOUT[number % 3 :] + WITHOUT[: number % 3]:
                subprocess.run(["rm", "-rf", place / "documents"], check=True)
                taken[name].append(spent(python, _JOB, name, archive, directory))
        for name in WITHOUT:
            seconds, cpu = zip(*taken[name], strict=True)
            label = "all hooks" if name == "none" else f"without the {name}"
            print(f"| {label} | {common.spread(seconds)} | {common.spread(cpu)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000, help="rows of the log (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (%(default)s)")
    parser.add_argument("--python", nargs="*", default=[sys.executable], help="the Pythons (this)")
    options = parser.parse_args()
    print(common.python())
    for python in options.python:
        asked = [python, "-c", "import pyspark, pyarrow; print(pyspark.__version__)"]
        version = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        print(f"\n| PySpark {version}, {options.rows} rows | s | CPU s |\n|---|---|---|")
        measure(python, options.rows, options.rounds)
        for name in ("hidden", "shown"):
            cpus = [
                float(subprocess.check_output([python, "-c", _IMPORT, name]))
                for _ in range(options.rounds)
            ]
            print(f"| Arrow's first array, pandas {name} | | {common.spread(cpus)} |", flush=True)


if __name__ == "__main__":
    main()
