"""What [monitor] costs a publisher that drains a full log to files, as ``drain.py`` has it.

Two runs on a busy machine differ by more than the monitor costs, so the cost is taken within one
run: the CPU of the publisher's thread inside what only the monitor asks for, the CPU of the
monitor's threads, and the server's CPU for the statements that only the monitor asks for (how many
there were, times what one of them takes, measured on the full log), against the CPU of client and
server for the rest. Prometheus scrapes every five seconds. Pairs of whole runs, without and with a
monitor in turn, stand beside it. The start (imports) is once, whatever the rows, and is told apart.
"""

from __future__ import annotations

import argparse
import functools
import io
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import common
import drain

from eventlog.cli.publish.runs.publish import tune_collector
from eventlog.config.load import Config, load
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.context.observer import SILENT
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.declared.opening import open_to_publish
from eventlog.publisher.monitor import monitoring
from eventlog.publisher.monitor.activity import Activity
from eventlog.publisher.run import daemon
from eventlog.publisher.run.liveness import LivenessClock, liveness_of
from eventlog.publisher.send.log_feed import recover
from eventlog.publisher.send.session import PublisherSession
from eventlog.sql.dialects.postgresql.log import PostgresLog

_REPEATED = 200


@dataclass
class Spent:
    """CPU of the publisher's thread inside what only the monitor asks for; ``calls`` of it by name.

    ``scraping``: CPU of the client that scrapes, which stands in this process here.
    """

    by_name: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    depth: int = 0
    scraping: float = 0.0

    @property
    def cpu(self) -> float:
        """Without what it takes to look at the clock itself."""
        return self.by_name.total() - self.calls.total() * cpu_of_counting()


class Run(NamedTuple):
    """Seconds of CPU: of the publisher's thread, of the monitor's threads, of the server."""

    thread: float
    others: float
    server: float


def counted(function: Callable[..., Any], spent: Spent) -> Callable[..., Any]:
    @functools.wraps(function)
    def count(*arguments: Any, **named: Any) -> Any:
        if spent.depth:
            return function(*arguments, **named)
        spent.depth += 1
        cpu = time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            seconds: Any = time.thread_time() - cpu  # a Counter adds them as well
            spent.by_name[function.__name__] += seconds
            spent.calls[function.__name__] += 1
            spent.depth -= 1

    return count


@functools.cache
def cpu_of_counting() -> float:
    """Seconds that are counted for a call of nothing."""
    calls, spent = 20_000, Spent()
    nothing = counted(lambda: None, spent)
    for _ in range(calls):
        nothing()
    return spent.by_name.total() / calls


@contextmanager
def counting(spent: Spent) -> Iterator[None]:
    """Count, while the block runs, what is called for the monitor alone."""
    told = (
        "answered",
        "attempted",
        "delivery_begins",
        "flushed",
        "window_read",
        "measure_due",
        "measured",
        "progressed",
        "does",
    )
    places: list[tuple[Any, str]] = [(Activity, name) for name in told]
    places += [(daemon, "measure"), (PostgresLog, "read_rows")]
    before = [getattr(owner, name) for owner, name in places]
    for (owner, name), function in zip(places, before, strict=True):
        setattr(owner, name, counted(function, spent))
    try:
        yield
    finally:
        for (owner, name), function in zip(places, before, strict=True):
            setattr(owner, name, function)


def server_cpu(bench: common.Server, config: Config) -> dict[str, float]:
    """Seconds of the server's CPU for the first look, for a later one, and for event_time of the
    first rows of a delivery, on the full log.
    """
    with open_to_publish(config, Counters()) as opened:
        context, state = opened, recover(opened)
        nobody: Any = None

        def watched() -> Context:
            return replace(opened, observer=Activity(Counters(), 0.0001, LivenessClock(1)))

        later = PublisherSession(watched(), state, nobody)
        daemon.measure(later)
        firsts = [(number, number) for number in range(1, 10_000, 240)]
        spent = {}
        for name, ask in (
            ("first look", lambda: daemon.measure(PublisherSession(watched(), state, nobody))),
            ("look", lambda: daemon.measure(later)),
            (
                "read_rows",
                lambda: context.log.read_rows(firsts),
            ),
        ):
            meter = common.Meter(bench)
            for _ in range(_REPEATED):
                ask()
            spent[name] = (meter.stop().server or 0.0) / _REPEATED
        context.log.connection.rollback()
    return spent


@contextmanager
def watched(config: Config, counters: Counters, is_on: bool, spent: Spent) -> Iterator[Any]:
    """The observer of a monitor that is scraped every five seconds, or none."""
    if not is_on:
        yield SILENT
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(5.0):
            urllib.request.urlopen(f"http://{listen}/metrics", timeout=30).read()
            spent.scraping = time.thread_time()

    scraping = threading.Thread(target=scrape)
    with monitoring(config, listen, counters, liveness_of(config), lambda *_: None):  # type: ignore[arg-type]
        pass  # what is loaded once is loaded
    with monitoring(config, listen, counters, liveness_of(config), lambda *_: None) as observer:  # type: ignore[arg-type]
        scraping.start()
        try:
            yield observer
        finally:
            ended.set()
            scraping.join()


def publish(bench: common.Server, config: Config, is_on: bool, rows: int, spent: Spent) -> Run:
    shutil.rmtree(Path(str(config.sink.options.directory)), ignore_errors=True)
    drain._load(bench)
    counters = Counters()
    with (
        watched(config, counters, is_on, spent) as observer,
        open_to_publish(config, counters) as opened,
        closing(open_sink(config, io.StringIO())) as sink,
        counting(spent),
    ):
        meter = common.Meter(bench)
        whole, thread = time.process_time(), time.thread_time()
        daemon.publish_once(opened, sink, None, observer)
        thread, whole = time.thread_time() - thread, time.process_time() - whole
        server = meter.stop().server or 0.0
    if counters.rows_published != rows:
        raise SystemExit(f"{counters.rows_published} of {rows} rows were published")
    return Run(thread, whole - thread - spent.scraping, server)


def cpu_of_imports() -> tuple[float, float]:
    """Seconds of CPU that a new process takes for what a publisher imports, and more for what its
    monitor does.
    """
    program = """import time
import eventlog.cli.publish.runs.publish, eventlog.sql.dialects.postgresql, eventlog.publisher.sinks.files
publisher = time.process_time()
import eventlog.cli.install.runs.triggers, eventlog.publisher.monitor, eventlog.publisher.monitor.server
print(publisher, time.process_time() - publisher)"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(9)
    ]
    return median(float(publisher) for publisher, _ in runs), median(
        float(monitor) for _, monitor in runs
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=300_000, help="rows of the log (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=8, help="pairs of runs, in turn (default %(default)s)"
    )
    options = parser.parse_args()
    imported, start = cpu_of_imports()
    tune_collector()
    shares: list[float] = []
    pairs: list[float] = []
    with (
        common.server() as bench,
        tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory,
    ):
        common.install(bench)
        common.fill(bench, options.rows)
        bench.run(
            f"CREATE UNLOGGED TABLE {drain._SAVED} AS SELECT * FROM {common.LOG} ORDER BY "
            "record_id",
            f"VACUUM (ANALYZE) {drain._SAVED}",
        )
        file = common.configuration(Path(directory))
        config = load(file, {"EVENTLOG_DATABASE_URL": bench.url})
        print(common.machine(bench), flush=True)
        drain._load(bench)
        each = server_cpu(bench, config)
        print(
            "\n| round | calls | looks | reads | in calls | of the thread | monitor's threads | "
            "server | share |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        publish(bench, config, True, options.rows, Spent())  # what is loaded and compiled once
        for number in range(1, options.rounds + 1):
            runs: dict[bool, Run] = {}
            for is_on in (False, True) if number % 2 else (True, False):
                spent = Spent()
                runs[is_on] = publish(bench, config, is_on, options.rows, spent)
                if is_on:
                    shown = spent
            on, off = runs[True], runs[False]
            calls = {**shown.calls, "look": shown.calls["look"] - 1, "first look": 1}
            more = (
                shown.cpu + on.others + sum(calls.get(name, 0) * cpu for name, cpu in each.items())
            )
            shares.append(more / (sum(on) - more))
            pairs.append(sum(on) / sum(off) - 1)
            print(
                f"| {number} | {shown.calls.total()} | {shown.calls['look']} | "
                f"{shown.calls['read_rows']} | {shown.cpu * 1000:.1f} ms | {on.thread:.3f} s | "
                f"{on.others * 1000:.1f} ms | {on.server:.2f} s | {shares[-1]:.2%} |",
                flush=True,
            )
            told = ", ".join(
                f"{name} {cpu * 1000:.1f}" for name, cpu in shown.by_name.most_common()
            )
            print(f"|  | in ms: {told} |", flush=True)
    print(
        "\nserver's CPU for one: "
        + ", ".join(f"{name} {cpu * 1000:.2f} ms" for name, cpu in each.items())
    )
    print(
        f"share of client and server: median {median(shares):.2%} ({min(shares):.2%} to "
        f"{max(shares):.2%})"
    )
    print(
        f"whole runs, with against without: median {median(pairs):+.1%} ({min(pairs):+.1%} to "
        f"{max(pairs):+.1%})"
    )
    print(
        f"once, at the start: {start:.3f} s CPU for imports beside the {imported:.3f} s of the "
        "publisher's own"
    )


if __name__ == "__main__":
    main()
