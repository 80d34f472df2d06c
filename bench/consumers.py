"""What a consumer costs beside the publisher on an idle log, run in turn: CPU of the client, WAL of the server; and
what a poll costs that has many ranges in its set.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import common
import psycopg

from eventlog.config.load import load
from eventlog.core.record_set import RecordSet
from eventlog.publisher.context import Counters
from eventlog.publisher.cycle import recover, run_cycle
from eventlog.publisher.open_context import open_context
from eventlog.publisher.sinks import Document
from eventlog.sql.consumers import write_done

_RANGES = (0, 1_000, 100_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the log (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="times that each is run (default %(default)s)")
    options = parser.parse_args()
    client: dict[str, list[float]] = {"publisher": [], "consumer": []}
    wal: dict[str, list[float]] = {"publisher": [], "consumer": []}
    with common.server() as bench, tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory:
        common.install(bench)
        print(common.machine(bench), flush=True)
        for number in range(1, options.rounds + 1):
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
        for who, costs in client.items():
            speed = f"{options.rows / median(costs):,.0f} rows a CPU second"
            print(f"{who}: {common.spread(costs)} s of client CPU, {speed}; WAL {common.spread(wal[who])} bytes")
        _polls(bench, Path(directory))


def _polls(bench: common.Server, directory: Path) -> None:
    """What a poll that finds nothing costs by the number of ranges, while a transaction is open."""

    class Nothing:
        def send(self, document: Document) -> None:
            raise AssertionError(document)

        def flush(self) -> None: ...

        def close(self) -> None: ...

    bench.run(f"TRUNCATE {common.LOG}")
    file = common.configuration(directory)
    file.write_text(file.read_text() + '[source]\ntype = "eventlog"\nconsumer = "polls"\nbegin = "first"\n')
    config = load(file, {"EVENTLOG_DATABASE_URL": bench.url})
    with psycopg.connect(bench.url.replace("+psycopg", "")) as writer:
        writer.execute(f"UPDATE {common.LOG} SET status = status WHERE false")  # has the lock of who writes
        for ranges in _RANGES:
            with open_context(config, Counters()) as context:
                done = RecordSet(10, [(number * 10, number * 10 + 5) for number in range(2, ranges + 2)])
                write_done(context.connection, context.dialect, context.log, "polls", done, moved=True)
                context.connection.commit()
                state, meter = recover(context), time.process_time()
                for _ in range(10):
                    run_cycle(context, state, Nothing(), lambda: False)  # type: ignore[arg-type]
                client_ms = (time.process_time() - meter) * 100
                begun = time.perf_counter()
                run_cycle(context, state, Nothing(), lambda: False)  # type: ignore[arg-type]
                wall_ms = (time.perf_counter() - begun) * 1000
                print(f"a poll with {ranges:,} ranges: {client_ms:.1f} ms of client CPU, {wall_ms:.1f} ms by the clock")


if __name__ == "__main__":
    main()
