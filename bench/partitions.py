"""What a purge costs: of a log that is partitioned, and of one that is not, where it deletes.

The log has --rows rows that are published and old. Four sessions write --rate rows a second, each
row a transaction; a publisher and two consumers, each a process, send them to files. After
--seconds, `eventlog purge --older-than 30d` runs, as a process too, and then the writers go on for
two seconds. Printed are how long the purge took; the longest statement of a writer before the purge
and meanwhile, and the longest wait for a lock of the log that a look each millisecond or two has
seen; dead rows, and bytes of the log before and after.

Then the blocks of the log that a publisher reads for an event of one row, and for a poll that finds
nothing, from memory or disk: the server's own counts, which do not depend on load. They are
measured with no, one and two empty leaves above the newest row.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import common
import psycopg
import sqlalchemy as sa

from eventlog.config.load import load
from eventlog.model import Answer, Document
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession

_WRITERS = 4
_LEAVES = 4
_FILL = f"""
INSERT INTO {common.LOG} (status, event_type, event_time, perpetrator, table_name, table_key, column_name, new_value)
SELECT 'S', 2, now() AT TIME ZONE 'UTC' - interval '31 days', 'hr_app', 'usr', 'idu=' || number, 'mail',
       'user.' || number || '@example.org'
FROM generate_series(:first ::bigint, :last ::bigint) AS number"""
_WRITE = f"""
INSERT INTO {common.LOG} (event_type, event_time, perpetrator, table_name, table_key, column_name, new_value)
VALUES (2, now() AT TIME ZONE 'UTC', 'hr_app', 'usr', 'idu=' || %s::int, 'mail', 'x')"""
_WAIT = f"""
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - waitstart)), 0)::float8
FROM pg_catalog.pg_locks WHERE NOT granted AND relation = '{common.LOG}'::regclass AND mode = 'RowExclusiveLock'"""
_BLOCKS = f"""
SELECT sum(coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0))
FROM pg_catalog.pg_statio_all_tables WHERE schemaname = '{common.SCHEMA}' AND relname ~ '^eventlog(_[0-9]+)?$'"""
_STREAM = """
import sys
from eventlog.spark import register
from eventlog.spark.session.session import open_session
config, place = sys.argv[1:]
spark = open_session("local[2]")
register(spark)
rows = spark.readStream.format("eventlog-changes").options(config=config, start_from="latest").load()
query = rows.writeStream.format("noop").option("checkpointLocation", place)
query.trigger(processingTime="1 second").start().awaitTermination()
"""
_DEAD = f"""
SELECT sum(n_dead_tup) FROM pg_catalog.pg_stat_all_tables
WHERE schemaname = '{common.SCHEMA}' AND relname ~ '^eventlog(_[0-9]+)?$'"""
_BYTES = f"""
SELECT coalesce(sum(pg_catalog.pg_total_relation_size(c.oid)), 0)
FROM pg_catalog.pg_class c
WHERE c.relnamespace = '{common.SCHEMA}'::regnamespace AND c.relname ~ '^eventlog(_[0-9]+)?$' AND c.relkind = 'r'"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="old rows (%(default)s)")
    parser.add_argument("--rate", type=int, default=1000, help="rows a second (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="before the purge (%(default)s)"
    )
    parser.add_argument("--stream", action="store_true", help="a query of Spark follows the log")
    parser.add_argument("--times", type=int, default=200, help="events and polls (%(default)s)")
    options = parser.parse_args()
    for place, leaves in enumerate((True, False)):
        with common.server() as bench, tempfile.TemporaryDirectory(prefix="el-bench-") as directory:
            if place == 0:
                print(common.machine(bench))
                print(
                    "\n| log | purge, s | longest statement before, ms | meanwhile, ms | "
                    "longest wait for the log, ms | dead rows | MB before | MB after |\n"
                    "|---|---|---|---|---|---|---|---|",
                    flush=True,
                )
            _make(bench, options.rows, leaves=leaves)
            _purge(bench, Path(directory), options, leaves=leaves)
    print("\n| log | blocks an event | blocks a poll |\n|---|---|---|")
    for empty in (None, 0, 1, 2):
        with common.server() as bench, tempfile.TemporaryDirectory(prefix="el-bench-") as directory:
            _blocks(bench, Path(directory), options.times, empty)


# --- the log --------------------------------------------------------------------------------------


def _make(bench: common.Server, rows: int, *, leaves: bool) -> None:
    """A log of old rows; in ``leaves`` they are in so many of the same width."""
    common.install(bench)
    width = max(1, rows // _LEAVES)
    if leaves:
        with common.owner(bench) as (log, means):
            means.prepare(log)
            means.partition(log, width)
            for number in range(2, _LEAVES + 1):
                means.cut(log, number * width + 1)
    step = 100_000
    for first in range(1, rows + 1, step):
        bench.run(_FILL, first=first, last=min(rows, first + step - 1))
    bench.run(f"VACUUM (ANALYZE) {common.LOG}", "CHECKPOINT")


# --- a purge while others write -------------------------------------------------------------------


class _Writers:
    """Sessions that write rows, each with the time of its longest statement."""

    def __init__(self, bench: common.Server, rate: int) -> None:
        url = sa.make_url(bench.url).set(drivername="postgresql")
        self._url = url.render_as_string(hide_password=False)
        self._pause = _WRITERS / rate
        self._stop = threading.Event()
        self.longest, self.longest_wait = 0.0, 0.0
        self.rows = 0
        work: Sequence[Callable[[], None]] = [*[self._write] * _WRITERS, self._look]
        self._threads = [threading.Thread(target=one) for one in work]
        for thread in self._threads:
            thread.start()

    def reset(self) -> None:
        self.longest = self.longest_wait = 0.0

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as session:
            due = time.perf_counter()
            while not self._stop.is_set():
                begun = time.perf_counter()
                session.execute(_WRITE, (self.rows,))
                self.longest = max(self.longest, time.perf_counter() - begun)
                self.rows += 1
                due = max(due + self._pause, begun - 1)
                time.sleep(max(0.0, due - time.perf_counter()))

    def _look(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as session:
            while not self._stop.is_set():
                ((wait,),) = session.execute(_WAIT).fetchall()
                self.longest_wait = max(self.longest_wait, wait)
                time.sleep(0.001)


def _purge(
    bench: common.Server, directory: Path, options: argparse.Namespace, *, leaves: bool
) -> None:
    environ = os.environ | {"EVENTLOG_DATABASE_URL": bench.url}
    with ExitStack() as stack:
        for name in ("publisher", "search", "copy"):
            own = directory / name
            own.mkdir()
            file = common.configuration(own)
            if name != "publisher":
                file.write_text(
                    f'{file.read_text()}[source]\ntype = "eventlog"\nconsumer = "{name}"\n'
                )
            command = [sys.executable, "-m", "eventlog", "--quiet", "--config", str(file)]
            stack.enter_context(_running([*command, "publish"], environ))
        if options.stream:
            command = [sys.executable, "-c", _STREAM, str(file), str(directory / "stream")]
            stack.enter_context(_running(command, environ))
            _wait_until(lambda: (directory / "stream" / "commits").exists(), 120)
        writers = _Writers(bench, options.rate)
        time.sleep(5)  # until all have connected
        writers.reset()
        time.sleep(options.seconds)
        before, size = writers.longest, bench.value(_BYTES)
        writers.reset()
        begun = time.perf_counter()
        purge = [sys.executable, "-m", "eventlog", "--quiet", "--config", str(file), "purge"]
        subprocess.run([*purge, "--older-than", "30d", "--yes"], env=environ, check=True)
        took = time.perf_counter() - begun
        time.sleep(2)
        writers.stop()
        bench.run("SELECT pg_stat_force_next_flush()")
        cells = [
            "leaves" if leaves else "one table",
            f"{took:,.1f}",
            *(f"{1000 * one:,.0f}" for one in (before, writers.longest, writers.longest_wait)),
            f"{bench.value(_DEAD):,}",
            *(f"{float(one) / 1e6:,.0f}" for one in (size, bench.value(_BYTES))),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def _wait_until(is_so: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.2)


@contextmanager
def _running(command: Sequence[str], environ: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, f"{command[-1]} has ended"
    finally:
        process.terminate()
        process.wait()


# --- blocks ---------------------------------------------------------------------------------------


class _Taking:
    """A receiver that takes everything."""

    def send(self, document: Document) -> Answer:
        return Answer()

    def flush(self) -> None: ...

    def close(self) -> None: ...


def _blocks(bench: common.Server, directory: Path, times: int, empty: int | None) -> None:
    """Measure a publisher while an application writes one row at a time; ``empty`` leaves
    are above the newest row, None = the log is one table.
    """
    common.install(bench)
    bench.run(_FILL, first=1, last=10_000)
    first = 10_001
    if empty is not None:
        with common.owner(bench) as (log, means):
            means.prepare(log)
            means.partition(log, 100_000)
            if empty == 2:
                means.cut(log, first + 200_000)
    if empty == 0:  # the newest row is in the open leaf
        bench.run(f"ALTER TABLE {common.LOG} ALTER record_id RESTART WITH 200000")
    bench.run(f"VACUUM (ANALYZE) {common.LOG}")
    url = sa.make_url(bench.url).set(drivername="postgresql").render_as_string(hide_password=False)
    file = common.configuration(directory)
    with (
        psycopg.connect(url, autocommit=True) as application,
        open_context(load(file, {"EVENTLOG_DATABASE_URL": bench.url}), Counters()) as context,
    ):
        state, sink = recover(context), _Taking()

        def cycle() -> None:
            run_cycle(PublisherSession(context, state, sink))  # type: ignore[arg-type]

        def spent(work: Callable[[], None]) -> float:
            counts = []
            for _ in range(2):
                application.execute("SELECT pg_stat_force_next_flush()")
                context.log.connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
                context.log.connection.commit()
                counts.append(float(bench.value(_BLOCKS)))
                if len(counts) == 1:
                    for _ in range(times):
                        work()
            return (counts[1] - counts[0]) / times

        def event() -> None:
            application.execute(_WRITE, (1,))
            cycle()

        for _ in range(20):  # plans are made
            event()
        name = "one table" if empty is None else f"leaves, {empty} empty ones ahead"
        print(f"| {name} | {spent(event):,.1f} | {spent(cycle):,.1f} |", flush=True)


if __name__ == "__main__":
    main()
