"""GBase 8s streams: rows decoded to Changes a second on one core, and memory over a long stream of
the emulator.

Decoding: a stream in memory of transactions of a hundred inserts each, 8 columns of mixed types
(integer, bigint, decimal, date, datetime, char, two varchar), fed in fragments of 64 KiB; processor
time of the fastest round. Memory: the resident size while the emulator makes a stream and the
reader follows it, nothing of it on disk; for the stream of 2 GB of issue 7: --bytes 2000000000.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal

import common
import psutil

from eventlog.changes.format import Report
from eventlog.gbase.options import ReadOptions, WriteOptions
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.writer import write_stream
from eventlog.model import Change, ChangeOp, Row
from eventlog.testing.gbase_workload import stream

COLUMNS = (
    "id integer, big bigint, price decimal(10,2), day date, made datetime year to fraction(5), "
    "code char(10), name varchar(40,0), note varchar(80,0)"
)
AIM = 150_000
FRAGMENT = 1 << 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=200_000, help="rows to decode (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default %(default)s)")
    parser.add_argument(
        "--bytes",
        type=int,
        default=30_000_000,
        help="bytes of the emulator's stream, 0 = none (default %(default)s)",
    )
    options = parser.parse_args()
    print(common.python(), flush=True)
    decoding(options.rows, options.rounds)
    if options.bytes:
        memory(options.bytes)


def decoding(rows: int, rounds: int) -> None:
    """Rows a second to Change, of processor time."""
    written = WriteOptions(tables={"app.item": COLUMNS}, labels={1: "shop:app.item"})
    data = b"".join(write_stream(changes(rows), written, Report()))
    fragments = [data[at : at + FRAGMENT] for at in range(0, len(data), FRAGMENT)]
    best = float("inf")
    for _ in range(rounds):
        reader = StreamReader(ReadOptions(labels={1: "shop:app.item"}, keys={"item": ["id"]}))
        begun = time.process_time()
        count = 0
        for fragment in fragments:
            for _change in reader.feed(fragment):
                count += 1
        best = min(best, time.process_time() - begun)
        assert count == rows
    rate = rows / best
    print(
        f"decode to Change: {rate:,.0f} rows/s a core ({len(data) / rows:.0f} bytes a row), aim "
        f"{AIM:,}",
        flush=True,
    )


def changes(rows: int) -> Iterator[Change]:
    """Inserts of random rows, a hundred a transaction."""
    rnd = random.Random(7)
    for number in range(rows):
        row: Row = {
            "id": number,
            "big": rnd.getrandbits(60),
            "price": Decimal(rnd.randrange(10**8)).scaleb(-2),
            "day": date(2000, 1, 1) + timedelta(rnd.randrange(9000)),
            "made": datetime(2024, 1, 1) + timedelta(microseconds=rnd.randrange(10**12) * 10),
            "code": f"c{rnd.randrange(10**6)}",
            "name": f"Name number {rnd.randrange(10**6)}",
            "note": "a note of some length, ".ljust(rnd.randrange(24, 60), "x"),
        }
        yield Change("app", "item", ChangeOp.INSERT, after=row, transaction_id=str(number // 100))


def memory(size: int) -> None:
    """Resident memory over a stream of the emulator."""
    process = psutil.Process()
    reader = StreamReader(ReadOptions(max_open_bytes=16 << 20))
    read = count = 0
    begun = time.monotonic()
    first = 0
    for fragment in stream(seed=1, size=size):
        read += len(fragment)
        for _change in reader.feed(fragment):
            count += 1
        if not first and read > size // 4:
            first = process.memory_info().rss
    last = process.memory_info().rss
    took = time.monotonic() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"stream of {read / 1e6:,.0f} MB, {count:,} changes in {took:.0f} s: resident "
        f"{first / 1e6:.0f} MB after a quarter, {last / 1e6:.0f} MB at the end, {peak / 1e6:.0f} "
        "MB at most",
        flush=True,
    )


if __name__ == "__main__":
    main()
