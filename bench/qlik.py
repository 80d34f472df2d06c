"""Change tables and Qlik messages by Spark against XDS of the same rows, and messages a second to
Kafka.

Each run of the first table is the real command in processes of its own, JVM start included; formats
take turns. Kafka is the mock cluster of librdkafka, which the publisher sends to by its protocol.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import common
import psutil

FORMATS = ("xds", "qlik-change-table", "qlik-messages")
_MOST = 1.3


class Run(NamedTuple):
    """Seconds of the whole command, CPU seconds of all its processes, seconds that it says it took
    to ``_SUCCESS``; events, rows or messages, bytes.
    """

    wall: float
    cpu: float
    converting: float
    events: int
    documents: int
    bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows",
        type=int,
        default=100_000,
        help="rows of the log (%(default)s; asked for: 2000000)",
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="times that each format is run (%(default)s)"
    )
    parser.add_argument(
        "--kafka-rows",
        type=int,
        default=40_000,
        help="rows published to Kafka, 0 = none (%(default)s)",
    )
    options = parser.parse_args()
    with common.server() as bench, tempfile.TemporaryDirectory(prefix="eventlog-bench-") as place:
        directory = Path(place)
        common.configuration(directory)
        common.install(bench)
        common.fill(bench, options.rows)
        print(common.machine(bench), flush=True)
        _to_files(bench, directory, options.rows, options.rounds)
        if options.kafka_rows:
            _to_kafka(bench, directory, options.kafka_rows, options.rounds)


def _to_files(bench: common.Server, directory: Path, rows: int, rounds: int) -> None:
    print(f"\n{rows} rows to files, local[2]\n")
    print("| format | wall s | CPU s | converting s | events | rows, messages | MiB |")
    print("|---|---|---|---|---|---|---|")
    runs: dict[str, list[Run]] = {name: [] for name in FORMATS}
    for _ in range(rounds):
        for name in FORMATS:
            run = _backlog(bench, directory, name)
            runs[name].append(run)
            print(
                f"| {name} | {run.wall:.2f} | {run.cpu:.2f} | {run.converting:.2f} | "
                f"{run.events:,} | {run.documents:,} | {run.bytes / 2**20:.1f} |",
                flush=True,
            )
    base = median(run.wall for run in runs["xds"])
    for name in FORMATS[1:]:
        wall = median(run.wall for run in runs[name])
        cpu = median(run.cpu for run in runs[name]) / median(run.cpu for run in runs["xds"])
        print(
            f"{name}: {wall / base:.2f} times XDS (asked for: at most {_MOST}), "
            f"by CPU without the server's {cpu:.2f}, "
            f"{rows / wall:,.0f} log rows/s"
        )


def _backlog(bench: common.Server, directory: Path, name: str) -> Run:
    out = directory / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [_eventlog(), "--quiet", "--config", str(directory / "eventlog.toml"), "backlog", "run",
               "--json", "--format", name, "--out", str(out), "--no-claim", "--master", "local[2]"]  # fmt: skip
    began = time.perf_counter()
    cpu: dict[int, float] = {}
    with subprocess.Popen(
        command, env=_environment(bench), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None:
            cpu |= _cpu(process.pid)
            time.sleep(0.2)
        wall = time.perf_counter() - began
        assert process.stdout is not None
        told = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"eventlog backlog ended with {process.returncode}")
    report = json.loads(told)
    totals = report["manifest"]["totals"]
    return Run(
        wall,
        sum(cpu.values()),
        report["converting_seconds"],
        *(totals[n] for n in ("events", "documents", "bytes")),
    )


def _cpu(pid: int) -> dict[int, float]:
    """CPU seconds of a process and its descendants so far; the server's are not among them."""
    found = {}
    try:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    except psutil.Error:
        pass
    return found


def _to_kafka(bench: common.Server, directory: Path, rows: int, rounds: int) -> None:
    print(
        f"\n{rows} rows published to the mock cluster, marks included\n\n| format | s | log "
        "rows/s | messages/s |"
    )
    print("|---|---|---|---|")
    times: dict[str, list[float]] = {"xds": [], "qlik-messages": []}
    for _ in range(rounds):
        for name, each in times.items():
            common.fill(bench, rows)
            with common.kafka_brokers() as brokers:
                seconds, events = _publish(bench, directory, name, brokers)
            each.append(seconds)
            print(
                f"| {name} | {seconds:.2f} | {rows / seconds:,.0f} | {events / seconds:,.0f} |",
                flush=True,
            )
    ratio = median(times["qlik-messages"]) / median(times["xds"])
    print(f"qlik-messages: {ratio:.2f} times XDS (asked for: at most {_MOST})")


def _publish(bench: common.Server, directory: Path, name: str, brokers: str) -> tuple[float, int]:
    command = [_eventlog(), "--config", str(directory / "eventlog.toml"), "--set",
               "sink.type=kafka", "--set", f"sink.brokers={brokers}", "publish", "--once",
               "--format", name]  # fmt: skip
    began = time.perf_counter()
    told = subprocess.run(
        command, env=_environment(bench), stderr=subprocess.PIPE, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if told.returncode or bench.value(f"SELECT count(*) FROM {common.LOG} WHERE status <> 'S'"):
        raise SystemExit(f"eventlog publish ended with {told.returncode}: {told.stderr[-2000:]}")
    found = re.search(r"([0-9,]+) events? in ", told.stderr)
    assert found is not None, told.stderr
    return seconds, int(found[1].replace(",", ""))


def _eventlog() -> str:
    return str(Path(sys.executable).with_name("eventlog"))


def _environment(bench: common.Server) -> dict[str, str]:
    return os.environ | {"EVENTLOG_DATABASE_URL": bench.url}


if __name__ == "__main__":
    main()
