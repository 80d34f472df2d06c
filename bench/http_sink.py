"""Events per second through HTTP: one publisher, and a receiver on the same machine that answers at
once.

The receiver is another process, which answers each request with 200, so that the client's CPU is
that of the publisher alone. (A file with the name ``http`` would hide Python's module.)
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import common

from eventlog.config.load import load
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once

_CASES = [
    (name, size, concurrency)
    for name in ("xds", "cloudevents")
    for size, concurrency in ((128, 1), (128, 4), (16, 4))
]
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=190_000, help="rows of the log (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="times that each is run (default %(default)s)"
    )
    options = parser.parse_args()
    found: dict[tuple[str, int, int], list[tuple[float, float]]] = {case: [] for case in _CASES}
    with (
        receiver() as address,
        common.server() as bench,
        tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory,
    ):
        common.install(bench)
        file = common.configuration(Path(directory))
        print(common.machine(bench), flush=True)
        for _ in range(options.rounds):
            for case, taken in found.items():
                common.fill(bench, options.rows)
                taken.append(_publish(file, bench.url, address, *case))
    print("\n| format | events of a document | concurrency | events/s | client CPU us an event |")
    print("|---|---|---|---|---|")
    for (name, size, concurrency), taken in found.items():
        speeds, costs = zip(*taken, strict=True)
        print(
            f"| {name} | {size} | {concurrency} | {median(speeds):,.0f} | "
            f"{common.spread([cost * 1e6 for cost in costs], 1)} |"
        )


def _publish(
    file: Path, url: str, address: str, name: str, size: int, concurrency: int
) -> tuple[float, float]:
    """Return the events per second, and the client's CPU seconds per event."""
    flags = {
        "sink.type": "http",
        "sink.url": address,
        "sink.response_format": "status",
        "format.type": name,
        "publisher.batch_size": str(size),
        "publisher.concurrency": str(concurrency),
    }
    config = load(file, {"EVENTLOG_DATABASE_URL": url}, flags)
    counters = Counters()
    with open_context(config, counters) as context, closing(open_sink(config, None)) as sink:  # type: ignore[arg-type]
        begun, used = time.perf_counter(), time.process_time()
        publish_once(context, sink)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - used
    return counters.events_sent / seconds, cpu / counters.events_sent


@contextmanager
def receiver() -> Iterator[str]:
    """The address of a receiver, a separate process, that answers every request with 200."""
    ports: multiprocessing.Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(target=_receive, args=(ports,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ports.get()}/"
    finally:
        process.terminate()


def _receive(ports: Any) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        ports.put(server.getsockname()[1])
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    read = b""
    while True:
        while (end := read.find(b"\r\n\r\n")) < 0:
            if not (more := connection.recv(1 << 16)):
                return
            read += more
        lines = read[:end].lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        read = read[end + 4 :]
        while len(read) < length:
            read += connection.recv(1 << 20)
        read = read[length:]
        connection.sendall(_ANSWER)


if __name__ == "__main__":
    main()
