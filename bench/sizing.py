"""What a backlog of each size takes, by Spark and by ``publish``: the table of docs/operate/deploy.md.

Each run is the real command on a log that was filled again: time, greatest memory (PSS of all its
processes), greatest disk under ``--out``, CPU of the database. ``--cluster ROWS`` compares a
standalone master with two workers of one core each (``tests/spark/spark_cluster.py``) with
``local[2]``, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import backlog
import common

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "spark"))


class Run(NamedTuple):
    """Seconds, bytes of memory and disk at most, bytes of documents, seconds of the database's CPU,
    what it printed.
    """

    wall: float
    memory: int
    disk: int
    documents: int
    database: float
    printed: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000, 5_000_000, 20_000_000],
                        help="sizes by Spark (default %(default)s)")  # fmt: skip
    parser.add_argument("--publish", type=int, nargs="*", default=[1_000_000, 5_000_000,
                        20_000_000], help="sizes by publish (default %(default)s)")  # fmt: skip
    parser.add_argument(
        "--cluster", type=int, default=1_000_000, help="rows of the comparison; 0: none"
    )
    parser.add_argument(
        "--rounds", type=int, default=2, help="of the comparison (default %(default)s)"
    )
    options = parser.parse_args()
    with common.server() as bench, tempfile.TemporaryDirectory(prefix="eventlog-bench-") as place:
        directory = Path(place)
        file = common.configuration(directory)
        common.install(bench)
        print(common.machine(bench), flush=True)
        if options.cluster:
            compare_with_cluster(bench, file, directory, options.cluster, options.rounds)
        print(
            "\n| rows | by | seconds | converting | marking | memory MiB | disk MiB | documents "
            "MiB | database CPU s |"
        )
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
        for rows in options.rows:
            common.fill(bench, rows)
            run = measured(
                bench, directory / "documents", backlog_command(file, directory, "local[2]")
            )
            report = json.loads(run.printed)
            print(
                line(rows, "backlog", run, report["converting_seconds"], report["marking_seconds"]),
                flush=True,
            )
        for rows in options.publish:
            common.fill(bench, rows)
            command = [eventlog(), "--quiet", "--config", str(file), "publish", "--once"]
            print(
                line(rows, "publish", measured(bench, directory / "documents", command)), flush=True
            )


def compare_with_cluster(
    bench: common.Server, file: Path, directory: Path, rows: int, rounds: int
) -> None:
    from spark_cluster import spark_cluster

    environment = {
        "EVENTLOG_DATABASE_URL": bench.url,
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
    }
    times: dict[str, list[float]] = {"local[2]": [], "cluster": []}
    with spark_cluster(directory / "cluster", environment=environment) as cluster:
        for _ in range(rounds):
            for name, master in (("local[2]", "local[2]"), ("cluster", cluster.url)):
                common.fill(bench, rows)
                run = measured(
                    bench, directory / "documents", backlog_command(file, directory, master)
                )
                times[name].append(run.wall)
                report = json.loads(run.printed)
                print(
                    f"{name:10} {rows} rows {run.wall:.2f} s, converting "
                    f"{report['converting_seconds']:.2f}, marking {report['marking_seconds']:.2f}",
                    flush=True,
                )
    print(
        f"cluster / local[2]: {median(times['cluster']) / median(times['local[2]']):.2f}",
        flush=True,
    )


def eventlog() -> str:
    return str(Path(sys.executable).with_name("eventlog"))


def backlog_command(file: Path, directory: Path, master: str) -> list[str]:
    return [eventlog(), "--quiet", "--config", str(file), "backlog", "run", "--json", "--out",
            str(directory / "documents"), "--master", master, "--mark"]  # fmt: skip


def measured(bench: common.Server, documents: Path, command: Sequence[str]) -> Run:
    shutil.rmtree(documents, ignore_errors=True)
    meter = common.Meter(bench)
    most, ended = [0, 0], threading.Event()
    environment = {**os.environ, "EVENTLOG_DATABASE_URL": bench.url, "SPARK_LOCAL_IP": "127.0.0.1",
                   "PYSPARK_PYTHON": sys.executable}  # fmt: skip
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, stderr=errors
        ) as process,
    ):

        def look() -> None:
            while not ended.wait(1.0):
                most[0] = max(most[0], backlog.memory(process.pid))
                most[1] = max(most[1], size(documents))

        watcher = threading.Thread(target=look)
        watcher.start()
        printed = process.communicate()[0]
        ended.set()
        watcher.join()
        errors.seek(0)
        said = errors.read()[-2000:]
    cost = meter.stop()
    left = bench.value(f"SELECT count(*) FROM {common.LOG} WHERE status <> 'S'")
    if process.returncode or left:
        raise SystemExit(
            f"{' '.join(command)} ended with {process.returncode}; {left} rows are not done\n{said}"
        )
    return Run(cost.wall, most[0], most[1], size(documents), cost.server or 0.0, printed)


def size(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += (Path(folder) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def line(
    rows: int, by: str, run: Run, converting: float | None = None, marking: float | None = None
) -> str:
    mib = 2**20
    parts = ["-" if seconds is None else f"{seconds:.1f}" for seconds in (converting, marking)]
    return (
        f"| {rows:,} | {by} | {run.wall:.1f} | {' | '.join(parts)} | {run.memory / mib:,.0f} | "
        f"{run.disk / mib:,.0f} | {run.documents / mib:,.0f} | {run.database:.1f} |"
    )


if __name__ == "__main__":
    main()
