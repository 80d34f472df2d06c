"""How much memory the publisher needs while millions of rows wait: the greatest resident memory of
its process.

Twice: stopped by SIGTERM after the first deliveries, and run until the whole log is published.
Linux only (VmHWM).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import common


class Run(NamedTuple):
    """One run of the publisher: seconds, greatest resident memory in MiB, rows that it marked."""

    seconds: float
    peak: float
    rows: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=5_000_000, help="rows that wait (default %(default)s)"
    )
    parser.add_argument(
        "--deliveries", type=int, default=10, help="deliveries before SIGTERM (default %(default)s)"
    )
    parser.add_argument(
        "--limit", type=int, default=300, help="MiB that must not be reached (default %(default)s)"
    )
    options = parser.parse_args()
    with (
        common.server() as bench,
        tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory,
    ):
        common.install(bench)
        file = common.configuration(Path(directory))
        print(common.machine(bench), flush=True)
        print(
            "\n| rows waiting | published | seconds | rows/s | peak MiB |\n|---|---|---|---|---|",
            flush=True,
        )
        runs = []
        for deliveries in (options.deliveries, None):
            common.fill(bench, options.rows)
            run = _run(bench, file, deliveries)
            if deliveries is None and run.rows != options.rows:
                raise SystemExit(f"{run.rows} of {options.rows} rows were published")
            runs.append(run)
            print(
                f"| {options.rows} | {run.rows} | {run.seconds:.1f} | "
                f"{run.rows / run.seconds:,.0f} | {run.peak:.0f} |",
                flush=True,
            )
    if max(run.peak for run in runs) >= options.limit:
        raise SystemExit(f"more than {options.limit} MiB")


def _run(bench: common.Server, file: Path, deliveries: int | None) -> Run:
    """Publish; with ``deliveries`` send SIGTERM as soon as so many have been written."""
    documents = file.with_name("documents")
    shutil.rmtree(documents, ignore_errors=True)
    peak = 0
    begin = time.perf_counter()
    publisher = common.start_publisher(bench, file)
    told = False
    while publisher.poll() is None:
        peak = max(peak, _peak(publisher.pid))
        if (
            deliveries is not None
            and not told
            and len(list(documents.glob("*.xmll"))) >= deliveries
        ):
            publisher.send_signal(signal.SIGTERM)
            told = True
        time.sleep(0.02)
    seconds = time.perf_counter() - begin
    if publisher.returncode:
        raise SystemExit(f"eventlog publish ended with {publisher.returncode}")
    return Run(
        seconds, peak / 1024, bench.value(f"SELECT count(*) FROM {common.LOG} WHERE status = 'S'")
    )


def _peak(pid: int) -> int:
    """VmHWM in KiB; 0 when the process has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
