"""What consumers of a log cost, and how soon they have a row.

idle: beside the publisher on an idle log, in turn: CPU of the client, WAL of the server.
polls: what a poll costs by the number of ranges in the set, at idle and while eight sessions write.
writers: from commit to document while eight sessions write without a pause, first so, then while a
transaction is open all the time. latency: from commit to document of rows that come one at a time,
publisher and consumer in turn. snapshot: a consumer that begins with a snapshot: its memory and its
speed.

What consumers cost those who write: ``bench/capture.py --consumers``.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median, quantiles

import common
import psutil
import psycopg

from eventlog.config.load import load
from eventlog.core.ranges import RecordSet
from eventlog.model import Answer, Document
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.send.cycle import run_cycle
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession, PublisherState
from eventlog.sql.readers.consumers import read_consumer, write_done

_RANGES = (0, 1_000, 100_000)
_SESSIONS = 8
_INSERT = f"""INSERT INTO {common.LOG}
(event_type, event_time, perpetrator, table_name, table_key, column_name, new_value)
VALUES (1, now(), 'hr_app', 'usr', 'idu=' || %s, 'fname', 'Ann')"""
_KEYS = re.compile(rb">idu=([0-9]+),")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", help=f"of {', '.join(_FIGURES)}; default all")
    parser.add_argument(
        "--rows", type=int, help="rows of the log (200,000), of the snapshot's table (1,000,000)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="times that each is run (default %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=int, default=40, help="seconds of writing (default %(default)s)"
    )
    parser.add_argument(
        "--open",
        type=int,
        default=120,
        help="seconds of the open transaction (default %(default)s)",
    )
    parser.add_argument("--rate", type=int, default=100, help="rows a second (default %(default)s)")
    parser.add_argument(
        "--changes", type=int, default=300, help="changes of a round, for the latency (%(default)s)"
    )
    options = parser.parse_args()
    if unknown := set(options.what) - set(_FIGURES):
        parser.error(f"{', '.join(sorted(unknown))}: write any of {', '.join(_FIGURES)}")
    with (
        common.server() as bench,
        tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory,
    ):
        common.install(bench)
        print(common.machine(bench), flush=True)
        for what in options.what or _FIGURES:
            print(f"\n{what}:", flush=True)
            _FIGURES[what](bench, Path(directory), options)


def _configuration(
    directory: Path, name: str, consumer: str | None, start_from: str = "latest"
) -> Path:
    """A configuration in a directory of its own: of a consumer, None = of the publisher."""
    place = directory / name
    place.mkdir()
    file = common.configuration(place)
    if consumer is not None:
        file.write_text(
            file.read_text()
            + f'[source]\ntype = "eventlog"\nconsumer = "{consumer}"\nstart_from = "{start_from}"\n'
        )
    return file


# --- beside the publisher -------------------------------------------------------------------------


def _idle(bench: common.Server, directory: Path, options: argparse.Namespace) -> None:
    rows, rounds = options.rows or 200_000, options.rounds
    client: dict[str, list[float]] = {"publisher": [], "consumer": []}
    wal: dict[str, list[float]] = {"publisher": [], "consumer": []}
    for number in range(1, rounds + 1):
        common.fill(bench, rows)
        for who in ("consumer", "publisher"):
            consumer = f"c{number}" if who == "consumer" else None
            file = _configuration(directory, f"{who}{number}", consumer, "earliest")
            bench.run("CHECKPOINT")
            before, meter = bench.value("SELECT pg_current_wal_insert_lsn()"), common.Meter(bench)
            code = common.start_publisher(bench, file).wait()
            cost = meter.stop()
            written = float(bench.value(f"SELECT pg_current_wal_insert_lsn() - '{before}'::pg_lsn"))
            if code:
                raise SystemExit(f"{who} ended with {code}")
            client[who].append(cost.client)
            wal[who].append(written)
            print(
                f"{number} {who}: client {cost.client:.2f} s, WAL {written / 2**20:.2f} MiB",
                flush=True,
            )
    for who, costs in client.items():
        speed = f"{rows / median(costs):,.0f} rows a CPU second"
        print(
            f"{who}: {common.spread(costs)} s of client CPU, {speed}; WAL "
            f"{common.spread(wal[who])} bytes"
        )
    of_speed = median(client["publisher"]) / median(client["consumer"])
    of_wal = median(wal["consumer"]) / median(wal["publisher"])
    print(
        f"the consumer has {of_speed:.3f} of the publisher's speed and writes {of_wal:.2%} of its "
        "WAL"
    )


# --- polls ----------------------------------------------------------------------------------------


def _polls(bench: common.Server, directory: Path, _: argparse.Namespace) -> None:
    # what the set below has
    behind = f"SELECT setval(pg_get_serial_sequence('{common.LOG}', 'record_id'), {10**9})"
    bench.run(f"TRUNCATE {common.LOG}", behind)
    config = load(
        _configuration(directory, "polls", "polls", "earliest"),
        {"EVENTLOG_DATABASE_URL": bench.url},
    )
    with _session(bench.url) as long:
        long.execute(_INSERT, (0,))
        for ranges in _RANGES:
            with open_context(config, Counters()) as context:
                done = RecordSet(
                    10, [(number * 10, number * 10 + 5) for number in range(2, ranges + 2)]
                )
                line = read_consumer(context.log, "polls")
                assert line is not None
                write_done(context.log, line, done)
                context.log.connection.commit()
                state = recover(context)
                print(f"{ranges:,} ranges: {_cycles(context, state, 1)} the first poll", flush=True)
                _cycles(context, state, 3, 0.5)  # the writers that it has met are old now
                print(
                    f"{ranges:,} ranges: {_cycles(context, state, 50)} a poll that finds nothing",
                    flush=True,
                )
                with _writers(bench, 100):
                    _cycles(context, state, 40, 0.1)
                    print(
                        f"{ranges:,} ranges: {_cycles(context, state, 100, 0.05)} a poll at load",
                        flush=True,
                    )


def _cycles(context: Context, state: PublisherState, number: int, pause: float = 0.0) -> str:
    """What so many cycles cost, each with a pause behind it."""
    rows, client, wall = context.counters.rows_read, 0.0, 0.0
    for _ in range(number):
        begun = time.process_time(), time.perf_counter()
        run_cycle(PublisherSession(context, state, Taking()))  # type: ignore[arg-type]
        client, wall = (
            client + time.process_time() - begun[0],
            wall + time.perf_counter() - begun[1],
        )
        time.sleep(pause)
    rows = context.counters.rows_read - rows
    return (
        f"{client / number * 1000:.1f} ms of client CPU, {wall / number * 1000:.1f} ms by the "
        f"clock, {rows} rows,"
    )


class Taking:
    """A receiver that takes everything."""

    def send(self, document: Document) -> Answer:
        return Answer()

    def flush(self) -> None: ...

    def close(self) -> None: ...


# --- from commit to document ----------------------------------------------------------------------


def _from_commit(bench: common.Server, directory: Path, options: argparse.Namespace) -> None:
    rate, is_open = options.rate, options.open
    file = _configuration(directory, "writers", "writers")
    with _publishing(bench, file) as reader:
        with _writers(bench, rate) as written:
            cost = _let_run(bench, reader, options.seconds)
        _report(f"{_SESSIONS} sessions, {rate} rows a second", written, reader, cost)
        with _session(bench.url) as long:
            long.execute(_INSERT, (0,))
            with _writers(bench, rate) as written:
                cost = _let_run(bench, reader, is_open)
            _report(f"the same, and a transaction open for {is_open} s", written, reader, cost)
            begun = time.monotonic()
            long.commit()
        while 0 not in reader.seen:
            time.sleep(0.01)
        print(f"its own row came {reader.seen[0] - begun:.3f} s after its commit")


class _Reader:
    """A process that publishes, and when it has told of which key: read by a thread. ``seen`` has
    the first time.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.seen = process, dict[int, float]()
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            now = time.monotonic()
            for key in _KEYS.findall(line):
                self.seen.setdefault(int(key), now)

    def wait(self, key: int) -> float:
        """When the document of a key came."""
        while key not in self.seen:
            if self.process.poll() is not None:
                raise SystemExit(f"the publisher ended with {self.process.returncode}")
            time.sleep(0.0002)
        return self.seen[key]


@contextmanager
def _publishing(bench: common.Server, file: Path) -> Iterator[_Reader]:
    """``eventlog publish`` to a pipe; it sleeps while there is nothing."""
    settings = ("publisher.allow_loopback=yes", "sink.type=stdout")
    command = [str(Path(sys.executable).with_name("eventlog")), "--quiet", "--config", str(file)]
    command += [*(f"--set={setting}" for setting in settings), "publish"]
    environ = os.environ | {"EVENTLOG_DATABASE_URL": bench.url}
    reader = _Reader(subprocess.Popen(command, stdout=subprocess.PIPE, env=environ))
    try:
        with _session(bench.url) as connection:  # it has begun
            for number in range(10**9, 10**9 + 1000):
                connection.execute(_INSERT, (number,))
                connection.commit()
                time.sleep(0.1)
                if reader.seen:
                    break
        yield reader
    finally:
        reader.process.terminate()
        reader.process.wait()
        reader.thread.join()


def _let_run(bench: common.Server, reader: _Reader, seconds: int) -> str:
    """Wait; what the process has used of a CPU, and the ranges of its set at the end."""
    process = psutil.Process(reader.process.pid)
    before = sum(process.cpu_times()[:2])
    time.sleep(seconds)
    used = (sum(process.cpu_times()[:2]) - before) / seconds
    with common.owner(bench) as (log, _):
        line = read_consumer(log, "writers")
    assert line is not None
    return f"{used:.1%} of a CPU, {len(line.done.ranges)} ranges"


def _report(what: str, written: dict[int, float], reader: _Reader, cost: str) -> None:
    milliseconds = sorted(
        max(reader.wait(key) - moment, 0) * 1000 for key, moment in written.items()
    )
    p99 = quantiles(milliseconds, n=100)[-1]
    print(
        f"commit to document, {what}, {len(milliseconds)} rows: median {median(milliseconds):.1f} "
        f"ms, 99 % within {p99:.1f} ms, longest {milliseconds[-1]:.1f} ms; the consumer: {cost}",
        flush=True,
    )


def _one_at_a_time(bench: common.Server, directory: Path, options: argparse.Namespace) -> None:
    changes, rounds = options.changes, options.rounds
    found: dict[str, list[float]] = {"publisher": [], "consumer": []}
    dice, number = random.Random(1), 0
    for round_ in range(1, rounds + 1):
        for who in found:
            consumer = f"latency{round_}" if who == "consumer" else None
            seconds = []
            bench.run(f"TRUNCATE {common.LOG}")
            with (
                _publishing(
                    bench, _configuration(directory, f"latency-{who}{round_}", consumer)
                ) as reader,
                _session(bench.url) as connection,
            ):
                for _ in range(changes + 20):
                    time.sleep(dice.uniform(0.02, 0.06))
                    number += 1
                    connection.execute(_INSERT, (number,))
                    connection.commit()
                    begun = time.monotonic()
                    seconds.append(max(reader.wait(number) - begun, 0) * 1000)
            found[who] += seconds[20:]
            print(f"{round_} {who}: median {median(seconds[20:]):.2f} ms", flush=True)
    for who, all_of_it in found.items():
        p95 = quantiles(all_of_it, n=20)[-1]
        print(
            f"{who}: median {median(all_of_it):.2f} ms, 95 % within {p95:.2f} ms, longest "
            f"{max(all_of_it):.2f} ms"
        )
    print(f"consumer / publisher: {median(found['consumer']) / median(found['publisher']):.2f}")


# --- snapshot -------------------------------------------------------------------------------------


def _snapshot(bench: common.Server, directory: Path, options: argparse.Namespace) -> None:
    rows = options.rows or 1_000_000
    bench.run(
        f"INSERT INTO {common.SCHEMA}.usr SELECT i, 'Ann', 'Smith ' || i, 'u' || i || "
        f"'@example.org', i % 1000, date '2020-01-01' + i % 1000 FROM generate_series(1, {rows}) "
        "AS i",
        f"VACUUM (ANALYZE) {common.SCHEMA}.usr",
    )
    begun = time.perf_counter()
    process = common.start_publisher(
        bench, _configuration(directory, "snapshot", "snapshot", "snapshot")
    )
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    if status:
        raise SystemExit(f"the consumer ended with {os.waitstatus_to_exitcode(status)}")
    cpu = used.ru_utime + used.ru_stime
    print(
        f"snapshot of {rows:,} rows: at most {used.ru_maxrss / 1024:.0f} MiB resident, {cpu:.1f} "
        f"s of client CPU ({rows / cpu:,.0f} rows a CPU second), {wall:.1f} s by the clock"
    )


# --- who writes -----------------------------------------------------------------------------------


def _session(url: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(url.replace("+psycopg", ""))


@contextmanager
def _writers(bench: common.Server, rate: int) -> Iterator[dict[int, float]]:
    """Sessions in a process of their own that write so many rows a second together: transactions of
    a row, one after the other without a pause, of which one in ten is rolled back. At the end the
    keys of those that were committed, each with the moment after its commit.
    """
    spawn = get_context("spawn")
    begun, stop = spawn.Event(), spawn.Event()
    found: Queue[dict[int, float]] = spawn.Queue()
    first = int(time.time() * 1000) % 10**9
    process = spawn.Process(
        target=_write, args=(bench.url, _SESSIONS / rate, first, begun, stop, found)
    )
    process.start()
    begun.wait()
    written: dict[int, float] = {}
    try:
        yield written
    finally:
        stop.set()
        written |= found.get()
        process.join()


def _write(
    url: str,
    seconds: float,
    first: int,
    has_begun: Event,
    stop: Event,
    found: Queue[dict[int, float]],
) -> None:
    written: dict[int, float] = {}

    def write(number: int) -> None:
        begun = time.monotonic()
        with _session(url) as connection:
            while not stop.is_set():
                connection.execute(_INSERT, (number,))
                begun += seconds
                time.sleep(max(begun - time.monotonic(), 0))
                if number % 10 == 0:
                    connection.rollback()
                else:
                    connection.commit()
                    written[number] = time.monotonic()
                number += _SESSIONS

    threads = [
        threading.Thread(target=write, args=(first + number,)) for number in range(_SESSIONS)
    ]
    for thread in threads:
        thread.start()
    has_begun.set()
    for thread in threads:
        thread.join()
    found.put(written)


_FIGURES: dict[str, Callable[[common.Server, Path, argparse.Namespace], None]] = {
    "idle": _idle,
    "polls": _polls,
    "writers": _from_commit,
    "latency": _one_at_a_time,
    "snapshot": _snapshot,
}


if __name__ == "__main__":
    main()
