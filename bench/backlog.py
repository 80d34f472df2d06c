"""A backlog by Spark: against the database's own floor, against Spark's to_xml, on one core and
two, small and large.

Each run is the real command in processes of its own, JVM start and marking included, on a log that
has been loaded again, vacuumed and checkpointed. The floor is that of drain.py: COPY of the rows to
nowhere and one UPDATE of their status.

With --joins only the cost of reading in batches is measured: the tasks of the first two stages read
back each object, in this process. It is the share of the time that passes in joining the snapshot,
in proving it, and in ending the transaction.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import common
import psutil

if TYPE_CHECKING:
    from eventlog.spark.backlog.job import Job

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
    parser.add_argument(
        "--joins", type=int, metavar="OBJECTS", help="measure only the cost of the batches"
    )
    options = parser.parse_args()
    if options.to_xml:
        _to_xml_job(*options.to_xml)
        return
    if options.joins:
        with common.server() as bench, tempfile.TemporaryDirectory(prefix="eventlog-") as place:
            _batches(bench, Path(place), options.joins, options.rounds)
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
    from eventlog.spark.session.session import open_session

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


_OBJECTS = (
    f"INSERT INTO {common.SCHEMA}.usr SELECT i, 'f' || i, 'l' || i, 'm' || i, i, '2020-01-01' "
    "FROM generate_series(1, {objects}) i",
    f"INSERT INTO {common.LOG} (event_type, table_name, table_key) "
    "SELECT 5, 'usr', 'idu=' || i FROM generate_series(1, {objects}) i",
    f"VACUUM (ANALYZE) {common.LOG}",
    f"VACUUM (ANALYZE) {common.SCHEMA}.usr",
)


def _batches(bench: common.Server, directory: Path, objects: int, rounds: int) -> None:
    """A log with one row per object, whose values are read back: two batches for 10,000 objects at
    least.
    """
    from eventlog.sql.port.open_database import OpenDatabase

    common.install(bench)
    bench.run(*(statement.format(objects=objects) for statement in _OBJECTS))
    (directory / "_temporary").mkdir()
    print(common.machine(bench), flush=True)
    in_snapshot, around = OpenDatabase.in_snapshot, []

    @contextmanager
    def timed(self: OpenDatabase, snapshot: str) -> Iterator[None]:
        began = time.perf_counter()
        with in_snapshot(self, snapshot):
            joined = time.perf_counter()
            yield
            read = time.perf_counter()
        around.append(joined - began + time.perf_counter() - read)

    patched: Any = OpenDatabase
    patched.in_snapshot = timed
    shares = []
    with _job(bench, directory) as job:
        for _ in range(rounds):
            around.clear()
            seconds = _stages(job)
            shares.append(sum(around) / seconds)
            print(f"{objects} objects in {len(around)} batches: {seconds:.2f} s, of it joins, proofs "
                  f"and ends {sum(around):.3f} s, {shares[-1]:.2%}", flush=True)  # fmt: skip
    print(f"share of the batches, median: {median(shares):.2%}")


def _stages(job: Job) -> float:
    """Seconds of the first two stages in this process."""
    from pyarrow import RecordBatch

    from eventlog.spark.backlog.fold import fold_bucket, read_parts

    began = time.perf_counter()
    numbers = (RecordBatch.from_pydict({"id": [n + 1]}) for n in range(len(job.parts)))
    for _ in fold_bucket(job, read_parts(job, numbers)):
        pass
    return time.perf_counter() - began


@contextmanager
def _job(bench: common.Server, directory: Path) -> Iterator[Job]:
    from eventlog.config.load import load as load_config
    from eventlog.publisher.context.context import PublisherOptions
    from eventlog.publisher.declared.configured_classes import class_names, with_tables
    from eventlog.spark.backlog.job import Job, Output
    from eventlog.spark.backlog.output import output_format
    from eventlog.spark.log_source import place_for, without_foreign_settings
    from eventlog.sql.connect.connection import connect, parse_url
    from eventlog.sql.connect.locate import locate_log
    from eventlog.sql.dialects.postgresql import DIALECT

    config = load_config(common.configuration(directory), {"EVENTLOG_DATABASE_URL": bench.url})
    with connect(bench.url).connect().execution_options(**DIALECT.snapshot_options) as holder:
        db = DIALECT.open(holder)
        snapshot, database = db.export_snapshot(), db.reflect(common.SCHEMA)
        log = locate_log(db, name="eventlog", schema=common.SCHEMA)
        parts = tuple(db.log(log).log_parts("N", 1, 2**62, 200_000, 1))
        config = with_tables(config, database, log)
        options = output_format("xds").read_options(config, {}, "lines")
        output = Output(str(directory), "lines", "none", 2**28, 128, options=options)
        with place_for(parse_url(bench.url), log, on_this_machine=True) as place:
            yield Job(
                "bench", place, snapshot, without_foreign_settings(config), database,
                class_names(config)[1], frozenset(), PublisherOptions(driver_user="eventlog"), parts,
                frozenset(), 4, output, datetime.now(UTC),
            )  # fmt: skip


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
