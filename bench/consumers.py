"""What a consumer costs beside the publisher on an idle log, run in turn: CPU of the client, WAL of the server; and
what a poll costs that has many ranges in its set.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median

import common
import psycopg

from eventlog.config.load import load
from eventlog.core.record_set import RecordSet
from eventlog.model import Answer
from eventlog.publisher.context import Context, Counters
from eventlog.publisher.cycle import State, recover, run_cycle
from eventlog.publisher.open_context import open_context
from eventlog.publisher.sinks import Document
from eventlog.sql.consumers import write_done

_RANGES = (0, 1_000, 100_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the log (default %(default)s)")
    parser.add_argument("--polls", action="store_true", help="what polls cost alone")
    parser.add_argument("--rounds", type=int, default=3, help="times that each is run (default %(default)s)")
    options = parser.parse_args()
    client: dict[str, list[float]] = {"publisher": [], "consumer": []}
    wal: dict[str, list[float]] = {"publisher": [], "consumer": []}
    with common.server() as bench, tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory:
        common.install(bench)
        print(common.machine(bench), flush=True)
        for number in range(1, 0 if options.polls else options.rounds + 1):
            common.fill(bench, options.rows)
            for who in ("consumer", "publisher"):
                place = Path(directory) / f"{who}{number}"
                place.mkdir()
                file = common.configuration(place)
                if who == "consumer":
                    source = f'[source]\ntype = "eventlog"\nconsumer = "c{number}"\nbegin = "first"\n'
                    file.write_text(file.read_text() + source)
                bench.run("CHECKPOINT")
                before, meter = bench.value("SELECT pg_current_wal_insert_lsn()"), common.Meter(bench)
                code = common.start_publisher(bench, file).wait()
                cost = meter.stop()
                written = float(bench.value(f"SELECT pg_current_wal_insert_lsn() - '{before}'::pg_lsn"))
                if code:
                    raise SystemExit(f"{who} ended with {code}")
                client[who].append(cost.client)
                wal[who].append(written)
                print(f"{number} {who}: client {cost.client:.2f} s, WAL {written / 2**20:.2f} MiB", flush=True)
        for who, costs in () if options.polls else client.items():
            speed = f"{options.rows / median(costs):,.0f} rows a CPU second"
            print(f"{who}: {common.spread(costs)} s of client CPU, {speed}; WAL {common.spread(wal[who])} bytes")
        _polls(bench, Path(directory))


def _polls(bench: common.Server, directory: Path) -> None:
    """What a poll costs by the number of ranges, while a transaction is open: at idle, and while others write."""
    bench.run(f"TRUNCATE {common.LOG}", f"SELECT setval(pg_get_serial_sequence('{common.LOG}', 'record_id'), 10000000)")
    file = common.configuration(directory)
    file.write_text(file.read_text() + '[source]\ntype = "eventlog"\nconsumer = "polls"\nbegin = "first"\n')
    config = load(file, {"EVENTLOG_DATABASE_URL": bench.url})
    with psycopg.connect(bench.url.replace("+psycopg", "")) as long:
        long.execute(_INSERT, (0,))
        for ranges in _RANGES:
            with open_context(config, Counters()) as context:
                done = RecordSet(10, [(number * 10, number * 10 + 5) for number in range(2, ranges + 2)])
                write_done(context.connection, context.dialect, context.log, "polls", done, moved=True)
                context.connection.commit()
                state = recover(context)
                print(f"{ranges:,} ranges: {_cycles(context, state, 1)} the first poll", flush=True)
                _cycles(context, state, 3, 0.5)  # the writers that it has met are old now
                print(f"{ranges:,} ranges: {_cycles(context, state, 50)} a poll that finds nothing", flush=True)
                with _writers(bench):
                    _cycles(context, state, 40, 0.1)
                    print(f"{ranges:,} ranges: {_cycles(context, state, 100, 0.05)} a poll", flush=True)
                    print(f"{len(context.ledger.followed.done.ranges):,} ranges at the end")  # type: ignore[attr-defined]


def _cycles(context: Context, state: State, number: int, pause: float = 0.0) -> str:
    """What so many cycles cost, each with a pause behind it."""
    rows, client, wall = context.counters.rows_read, 0.0, 0.0
    for _ in range(number):
        begun = time.process_time(), time.perf_counter()
        run_cycle(context, state, Taking(), lambda: False)  # type: ignore[arg-type]
        client, wall = client + time.process_time() - begun[0], wall + time.perf_counter() - begun[1]
        time.sleep(pause)
    rows = context.counters.rows_read - rows
    return f"{client / number * 1000:.1f} ms of client CPU, {wall / number * 1000:.1f} ms by the clock, {rows} rows,"


class Taking:
    """A receiver that takes everything."""

    def send(self, document: Document) -> Answer:
        return Answer()

    def flush(self) -> None: ...

    def close(self) -> None: ...


_INSERT = f"""INSERT INTO {common.LOG}
(event_type, event_time, perpetrator, table_name, table_key, column_name, new_value)
VALUES (1, now(), 'hr_app', 'usr', 'idu=' || %s, 'fname', 'Ann')"""


@contextmanager
def _writers(bench: common.Server) -> Iterator[None]:
    """Eight sessions of a process of their own that write a row in a transaction; one of ten rolls back."""
    spawn = get_context("spawn")
    stop = spawn.Event()
    process = spawn.Process(target=_write, args=(bench.url.replace("+psycopg", ""), stop))
    process.start()
    try:
        yield
    finally:
        stop.set()
        process.join()


def _write(url: str, stop: Event) -> None:
    def write(number: int) -> None:
        with psycopg.connect(url) as connection:
            while not stop.wait(0.05):
                connection.execute(_INSERT, (number,))
                number += 8
                time.sleep(0.01)
                connection.rollback() if number % 10 == 0 else connection.commit()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
