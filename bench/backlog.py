"""A backlog by Spark: against the database's own floor, against Spark's to_xml, on one core and
two, small and large.

Each run is the real command in processes of its own, JVM start and marking included, on a log that
has been loaded again, vacuumed and checkpointed. The floor is that of drain.py: COPY of the rows to
nowhere and one UPDATE of their status.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import common
import psutil

SAVED = f"{common.SCHEMA}.saved"


class Run(NamedTuple):
    """``converted`` and ``marked`` seconds as the command tells; ``memory`` bytes of all its
    processes together.
    """

    wall: float
    converted: float
    marked: float
    memory: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=5_000_000, help="rows of the log (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="times that floor and job are run (%(default)s)"
    )
    parser.add_argument(
        "--scale",
        type=int,
        nargs=2,
        metavar=("SMALL", "LARGE"),
        default=(2_000_000, 10_000_000),
        help="rows of the two logs whose time a row is compared; 0 0 = not",
    )
    parser.add_argument("--to-xml", nargs=2, metavar=("URL_FILE", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.to_xml:
        _to_xml_job(*options.to_xml)
        return
    with common.server() as bench, tempfile.TemporaryDirectory(prefix="eventlog-bench-") as place:
        directory = Path(place)
        file = common.configuration(directory)
        common.install(bench)
        common.fill(bench, max(options.rows, *options.scale))
        bench.run(f"CREATE UNLOGGED TABLE {SAVED} AS SELECT * FROM {common.LOG} ORDER BY record_id")
        print(common.machine(bench), flush=True)
        ratio = _against_floor(bench, file, directory, options.rows, options.rounds)
        _against_one_core(bench, file, directory, options.rows, ratio)
        _against_to_xml(bench, directory, options.rows, ratio)
        if all(options.scale):
            _by_size(bench, file, directory, options.scale)


def _against_floor(
    bench: common.Server, file: Path, directory: Path, rows: int, rounds: int
) -> list[Run]:
    print(
        "\n| round | floor s | job s | of it converting | marking | memory MiB | ratio "
        "|\n|---|---|---|---|---|---|---|"
    )
    floors, runs = [], []
    for number in range(1, rounds + 1):
        load(bench, rows)
        floor = _floor(bench)
        load(bench, rows)
        run = job(bench, file, directory, rows, "local[2]")
        floors.append(floor)
        runs.append(run)
        print(f"| {number} | {floor:.2f} | {run.wall:.2f} | {run.converted:.2f} | {run.marked:.2f} "
              f"| {run.memory / 2**20:.0f} | {run.wall / floor:.2f} |", flush=True)  # fmt: skip
    walls = [run.wall for run in runs]
    print(f"\nrows: {rows}; median (least to greatest)")
    print(f"floor  {common.spread(floors)} s, {rows / median(floors):,.0f} rows/s")
    print(f"job    {common.spread(walls)} s, {rows / median(walls):,.0f} rows/s; of the medians "
          f"{median(walls) / median(floors):.2f}", flush=True)  # fmt: skip
    return runs


def _against_one_core(
    bench: common.Server, file: Path, directory: Path, rows: int, two: Sequence[Run]
) -> None:
    load(bench, rows)
    one = job(bench, file, directory, rows, "local[1]")
    both = median(run.converted for run in two)
    print(
        f"one core   converting {one.converted:.2f} s, two {both:.2f} s: "
        f"{one.converted / both:.2f} times; with start and marks "
        f"{one.wall / median(run.wall for run in two):.2f} times",
        flush=True,
    )


def _against_to_xml(bench: common.Server, directory: Path, rows: int, ours: Sequence[Run]) -> None:
    """Spark's own way, JVM start included: read, group by object and type, to_xml, write text. It
    marks nothing.
    """
    load(bench, rows)
    url_file = directory / "url"
    url_file.write_text(bench.url)
    out = directory / "to_xml"
    began = time.perf_counter()
    subprocess.run([sys.executable, __file__, "--to-xml", url_file, out], check=True)
    seconds = time.perf_counter() - began
    shutil.rmtree(out)
    mine = median(run.wall - run.marked for run in ours)
    print(
        f"to_xml     {seconds:.2f} s, ours without marks {mine:.2f} s: {mine / seconds:.2f}",
        flush=True,
    )


def _to_xml_job(url_file: str, out: str) -> None:
    from pyspark.sql import functions as f

    from eventlog.spark import register
    from eventlog.spark.session import open_session

    spark = open_session("local[2]")
    spark.conf.set("spark.sql.shuffle.partitions", "8")
    register(spark)
    log = (
        spark.read.format("eventlog")
        .options(url_file=url_file, schema_name=common.SCHEMA, status="N")
        .load()
    )
    steps = f.struct("record_id", "column_name", "old_value", "new_value")
    groups = log.groupBy("table_name", "table_key", "event_type").agg(
        f.sort_array(f.collect_list(steps)).alias("step"), f.min("record_id").alias("event_id")
    )
    events = f.to_xml(
        f.struct("event_id", "event_type", "table_name", "table_key", "step"), {"indent": ""}
    )
    groups.select(events.alias("value")).write.text(out)


def _by_size(bench: common.Server, file: Path, directory: Path, sizes: Sequence[int]) -> None:
    each = []
    for rows in sizes:
        load(bench, rows)
        run = job(bench, file, directory, rows, "local[2]")
        each.append(run.wall / rows)
        print(
            f"{rows} rows  {run.wall:.2f} s, {1e6 * run.wall / rows:.2f} us a row, converting "
            f"{run.converted:.2f}, marking {run.marked:.2f}, {run.memory / 2**20:.0f} MiB",
            flush=True,
        )
    print(f"a row of the large log costs {each[1] / each[0] - 1:+.1%}", flush=True)


def load(bench: common.Server, rows: int) -> None:
    bench.run(
        f"TRUNCATE {common.LOG}",
        f"INSERT INTO {common.LOG} SELECT * FROM {SAVED} ORDER BY record_id LIMIT {rows}",
        f"VACUUM (ANALYZE) {common.LOG}",
        "CHECKPOINT",
    )


def _floor(bench: common.Server) -> float:
    with bench.engine.connect() as connection:
        began = time.perf_counter()
        connection.exec_driver_sql(
            f"COPY (SELECT {common.COLUMNS} FROM {common.LOG} ORDER BY record_id) TO '/dev/null'"
        )
        connection.exec_driver_sql(f"UPDATE {common.LOG} SET status = 'S' WHERE status = 'N'")
        return time.perf_counter() - began


def job(bench: common.Server, file: Path, directory: Path, rows: int, master: str) -> Run:
    out = directory / "documents"
    shutil.rmtree(out, ignore_errors=True)
    command = [str(Path(sys.executable).with_name("eventlog")), "--quiet", "--config", str(file),
               "backlog", "run", "--json", "--out", str(out), "--master", master, "--mark"]  # fmt: skip
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=os.environ | {"EVENTLOG_DATABASE_URL": bench.url}, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        most = 0
        while process.poll() is None:
            most = max(most, memory(process.pid))
            with suppress(
                subprocess.TimeoutExpired
            ):  # to look at their pages costs a tenth of a second
                process.wait(3)
        wall = time.perf_counter() - began
        assert process.stdout is not None
        told = process.stdout.read()
    left = bench.value(f"SELECT count(*) FROM {common.LOG} WHERE status <> 'S'")
    if process.returncode or left:
        raise SystemExit(
            f"eventlog backlog ended with {process.returncode}; {left} of {rows} rows are not done"
        )
    report = json.loads(told)
    return Run(wall, report["converting_seconds"], report["marking_seconds"], most)


def memory(pid: int) -> int:
    """What a process and its descendants take together, shared pages counted once."""
    total = 0
    try:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            total += process.memory_full_info().pss
    except psutil.Error:
        pass
    return total


if __name__ == "__main__":
    main()
