"""The stream of changes (format eventlog-changes): what a row, a small batch and an idle look cost
in Python.

CPU counts, since it does not depend on what else runs. A row's cost is that of planning and of the
tasks, Arrow batches included, in this process; with --spark also by Spark itself, to a sink that
keeps nothing, as the CPU of its Python processes. The memory is that of a process which reads one
part.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import common
import psutil

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "spark"))

PART = 200_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=2_000_000, help="rows of the log (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="times that the log is read (%(default)s)"
    )
    parser.add_argument("--batches", type=int, default=200, help="small batches (%(default)s)")
    parser.add_argument(
        "--idle", type=float, default=20.0, help="seconds of the idle stream (%(default)s)"
    )
    parser.add_argument(
        "--spark", action="store_true", help="by Spark too, with Trigger.AvailableNow"
    )
    parser.add_argument("--part", nargs=1, metavar="CONFIG", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        _read_part(options.part[0])
        return
    with common.server() as bench, tempfile.TemporaryDirectory(prefix="eventlog-bench-") as place:
        os.environ["EVENTLOG_DATABASE_URL"] = bench.url
        file = common.configuration(Path(place))
        common.install(bench)
        common.fill(bench, options.rows)
        print(common.machine(bench), flush=True)
        _rows(str(file), options.rows, options.rounds)
        _memory(str(file))
        if options.spark:
            _by_spark(str(file), Path(place), options.rows)
        _small_batches(bench, str(file), options.rows, options.batches)
        _idle(str(file), options.idle)


def _offsets(reader: Any) -> tuple[Any, Any]:
    start = _begin(reader)
    reader.prepareForTriggerAvailableNow()
    return start, reader.latestOffset(start, reader.getDefaultReadLimit())


def _begin(reader: Any) -> Any:
    """The end of the first batch, which has no rows."""
    return reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())


def _rows(config: str, rows: int, rounds: int) -> None:
    from stream_engine import reader_of

    spent = []
    for _ in range(rounds):
        began, clock = time.process_time(), time.perf_counter()
        reader = reader_of(config=config)
        start, end = _offsets(reader)
        planned = time.process_time() - began
        events = 0
        for part in reader.partitions(start, end):
            events += sum(batch.num_rows for batch in reader.read(part))
        reader.stop()
        spent.append(1e6 * (time.process_time() - began) / rows)
        print(
            f"{rows:,} rows, {events:,} events: {spent[-1]:.2f} us a row of Python, planning "
            f"{planned:.2f} s, by the clock {time.perf_counter() - clock:.1f} s",
            flush=True,
        )
    print(f"a row: {common.spread(spent)} us of Python; the aim is 12", flush=True)


def _memory(config: str) -> None:
    done = subprocess.run(
        [sys.executable, __file__, "--part", config], check=True, capture_output=True, text=True
    )
    print(done.stdout.strip(), flush=True)


def _read_part(config: str) -> None:
    from stream_engine import reader_of

    reader = reader_of(config=config, partitionRows=PART)
    part = reader.partitions(*_offsets(reader))[0]
    before = _most_memory()
    for _ in reader.read(part):
        pass
    print(
        f"a part of {part.value.count:,} rows: {_most_memory():.0f} MiB, {before:.0f} before; the "
        "aim is 400"
    )


def _most_memory() -> float:
    """The most memory that this process has held, in MiB; what it is told by getrusage is that of
    its parent.
    """
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


def _python_seconds() -> float:
    """CPU of the Python processes that Spark has started."""
    seconds = 0.0
    for process in psutil.Process().children(recursive=True):
        if process.name().startswith("python"):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds


def _by_spark(config: str, place: Path, rows: int) -> None:
    from eventlog.spark import register
    from eventlog.spark.session.session import open_session

    spark = open_session("local[2]")
    register(spark)
    # A query of ten rows, twice: the first one starts workers, the second one shows what every
    # query costs.
    _query(spark, config, place, "first", rows - 9)
    start, _ = _query(spark, config, place, "second", rows - 9)
    seconds, clock = _query(spark, config, place, "whole", 1)
    print(
        f"by Spark: {1e6 * (seconds - start) / rows:.2f} us a row of Python and {start:.1f} s a "
        f"query, by the clock {clock:.1f} s",
        flush=True,
    )
    spark.stop()


def _query(spark: Any, config: str, place: Path, name: str, first: int) -> tuple[float, float]:
    """Follow the log from a record_id to its end; seconds of CPU of Python, and by the clock."""
    began, clock = _python_seconds(), time.perf_counter()
    query = (
        spark.readStream.format("eventlog-changes")
        .options(config=config, start_from=first)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(place / name))
        .trigger(availableNow=True)
        .start()
    )
    most = began
    while not query.awaitTermination(0.2):
        most = max(most, _python_seconds())  # a process that has ended is counted no more
    return max(most, _python_seconds()) - began, time.perf_counter() - clock


def _small_batches(bench: common.Server, config: str, rows: int, batches: int) -> None:
    from stream_engine import reader_of

    reader = reader_of(config=config, start_from="latest")
    offset = _begin(reader)
    spent, clocks = [], []
    for number in range(batches):
        bench.run(
            f"INSERT INTO {common.LOG} (event_type, table_name, table_key, column_name, new_value) "
            f"SELECT 2, 'usr', 'idu=' || i, 'fname', 'x{number}' FROM generate_series(1, 10) AS i"
        )
        began, clock = time.process_time(), time.perf_counter()
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        found = sum(
            batch.num_rows for part in reader.partitions(offset, end) for batch in reader.read(part)
        )
        spent.append(1e3 * (time.process_time() - began))
        clocks.append(1e3 * (time.perf_counter() - clock))
        assert found == 10
        offset = end
    reader.stop()
    print(
        f"a batch of 10 rows: latestOffset, partitions and read {median(spent):.2f} ms of CPU; "
        f"the aim is 10; by the clock {median(clocks):.2f} ms (greatest {max(clocks):.1f})",
        flush=True,
    )


def _idle(config: str, seconds: float) -> None:
    from stream_engine import reader_of

    reader = reader_of(config=config, start_from="latest")
    offset = _begin(reader)
    for _ in range(8):  # a look that has had nothing new waits longer each time
        reader.latestOffset(offset, reader.getDefaultReadLimit())
    began, clock, looks = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - clock < seconds:
        reader.latestOffset(offset, reader.getDefaultReadLimit())
        time.sleep(0.01)  # Spark's own delay
        looks += 1
    share = (time.process_time() - began) / (time.perf_counter() - clock)
    reader.stop()
    print(
        f"idle: {share:.2%} of a core, {looks / seconds:.1f} looks a second; the aim is 1 %",
        flush=True,
    )


if __name__ == "__main__":
    main()
