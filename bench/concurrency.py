"""What ``concurrency`` gives with a receiver that takes its time: one publisher, 1 or N documents
in the air.

The receiver is a Python callable that sleeps for 5 ms per document, as one behind a network does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median

import common

from eventlog.config.load import load
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once

_SECONDS = 0.005


def receive(_document: str, _events: object) -> None:
    """What ``sink.function`` names."""
    time.sleep(_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=4000, help="rows of the log (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="times that each is run (default %(default)s)"
    )
    parser.add_argument(
        "--concurrency", type=int, default=8, help="documents in the air (default %(default)s)"
    )
    options = parser.parse_args()
    seconds: dict[int, list[float]] = {1: [], options.concurrency: []}
    with (
        common.server() as bench,
        tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory,
    ):
        common.install(bench)
        file = common.configuration(Path(directory))
        print(common.machine(bench), flush=True)
        for _ in range(options.rounds):
            for concurrency, taken in seconds.items():
                common.fill(bench, options.rows)
                taken.append(_publish(file, bench.url, concurrency))
    for concurrency, taken in seconds.items():
        print(f"concurrency {concurrency}: {common.spread(taken)} s")
    print(f"{median(seconds[1]) / median(seconds[options.concurrency]):.1f} times as fast")


def _publish(file: Path, url: str, concurrency: int) -> float:
    flags = {
        "sink.type": "python",
        "sink.function": f"{Path(__file__).stem}:receive",
        "publisher.batch_size": "4",
        "publisher.concurrency": str(concurrency),
    }
    config = load(file, {"EVENTLOG_DATABASE_URL": url}, flags)
    with open_context(config, Counters()) as context, closing(open_sink(config, None)) as sink:  # type: ignore[arg-type]
        start = time.perf_counter()
        publish_once(context, sink)
        return time.perf_counter() - start


if __name__ == "__main__":
    main()
