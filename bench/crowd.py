"""A crowd of readers beside one application: how long each change takes to each of them, and what a
reader that was unavailable costs.

An application commits --rate changes a second, each one column of one of --objects users, by one
session. The publisher and --consumers consumers of the log, each a process of its own, write files.
The last consumer is killed for the middle third of the time. The independent benchmark that this
follows is hardbyte's of July 2026 (200 changes a second, 15 minutes); its best figures, on four
cores: 99 % within 26 ms, 180,000 changes caught up in under 5 s, 57 to 680 MB of WAL kept.

Commit to receiver: from the return of COMMIT to the rename of the file, as the kernel tells it to a
process that waits for it (inotify). Those changes count that were committed while the reader ran.
Caught up: from the start of its process until the receiver has all that was committed before it
arrives. Out of order: a change of a user that arrives behind a later one of him. Short form
(--seconds 20) or long (--seconds 900).

--disk DIRECTORY has the server's files there. Printed are the flushes of the WAL while the changes
were written, and their seconds, by the sessions and by the server itself (PostgreSQL 18 or later):
each change of the application is one of the sessions'. --alone runs no reader, for the rate of the
application alone.

--bare runs readers of a few lines in place of ours (bare_reader.py): what the database and the files
cost without our code.

--like-hardbyte measures as that benchmark does: the application commits all changes of 25 ms in one
transaction, the receivers take HTTP, and a delay begins before the transaction. For each reader the
99 % of each 30 seconds is found, a second apart, and the median of these is printed. The best
median of that benchmark is 26 ms, on 24 CPUs.
"""

from __future__ import annotations

import argparse
import ctypes
import http.server
import multiprocessing
import os
import random
import re
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import bare_reader
import common
import psutil
import psycopg
import sqlalchemy as sa

_MOVED_TO, _CREATED = 0x80, 0x100
_IS_DIRECTORY = 0x40000000
_EVENT = struct.Struct("iIII")
_CHANGES = re.compile(rb'<association>idu=([0-9]+),|<add-value><value type="string">([0-9]+)<')
"""The key of an event, or a value that it adds: the number of a change."""
_WARM_UP = 2.0
"""Seconds after the beginning whose changes do not count: all readers load what they need."""
_BATCH = 0.025
"""The seconds whose changes ``--like-hardbyte`` commits together."""
_WINDOW = 30.0
"""The seconds of which ``--like-hardbyte`` finds the 99 %."""
_CHANGE = f"UPDATE {common.SCHEMA}.usr SET mail = %s WHERE idu = %s"


@dataclass(slots=True)
class Received:
    """What one reader's receiver has: for each change by its number, when it came first. ``behind``
    is the number of changes that came behind a later one of their user.
    """

    came: dict[int, float] = field(default_factory=dict)
    behind: int = 0
    again: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of writing (%(default)s)")
    parser.add_argument("--rate", type=float, default=200.0, help="changes a second (%(default)s)")
    parser.add_argument(
        "--consumers", type=int, default=4, help="beside the publisher (%(default)s)"
    )
    parser.add_argument("--objects", type=int, default=10_000, help="users (%(default)s)")
    parser.add_argument("--disk", default="/tmp", help="where the server's files are (%(default)s)")
    parser.add_argument("--alone", action="store_true", help="no readers: the application alone")
    parser.add_argument("--bare", action="store_true", help="readers of a few lines, not ours")
    parser.add_argument(
        "--like-hardbyte", action="store_true", help="batches of 25 ms, HTTP, rolling 30 s"
    )
    options = parser.parse_args()
    with (
        common.server(options.disk) as bench,
        tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory,
    ):
        common.install(bench)
        print(common.machine(bench), flush=True)
        _run(bench, Path(directory), options)


def _run(bench: common.Server, directory: Path, options: argparse.Namespace) -> None:
    names = ["publisher", *(f"reader{number}" for number in range(1, options.consumers + 1))]
    with _receiving(directory, names, by_http=options.like_hardbyte) as (watcher, urls):
        files = {name: _configuration(directory, name, urls.get(name)) for name in names}
        _run_readers(bench, files, options, watcher)


def _run_readers(
    bench: common.Server,
    files: Mapping[str, Path],
    options: argparse.Namespace,
    watcher: Watcher,
) -> None:
    names = list(files)
    _eventlog(bench, files["publisher"], "triggers", "apply")
    bench.run(
        f"ALTER TABLE {common.LOG} DISABLE TRIGGER USER",
        f"INSERT INTO {common.SCHEMA}.usr (idu, mail) SELECT n, '0' FROM generate_series(1, {options.objects}) AS n",
        f"TRUNCATE {common.LOG}",
        f"ALTER TABLE {common.LOG} ENABLE TRIGGER USER",
        f"VACUUM ANALYZE {common.SCHEMA}.usr",
    )
    if options.alone:
        committed: list[tuple[float, float]] = []
        begun = time.monotonic()
        _write(bench, options, committed)
        seconds = time.monotonic() - begun
        print(
            f"alone: {len(committed):,} changes in {seconds:.1f} s, {len(committed) / seconds:.1f} a second"
        )
        return
    before = _size(bench)
    committed = []
    notified: list[float] = []
    start = _start_bare if options.bare else _start
    if options.bare:
        bare_reader.create(bench)
    readers = {name: start(bench, file) for name, file in files.items()}
    dead, kept = names[-1], 0
    if options.bare:
        time.sleep(3)  # they register nowhere
    else:
        _wait_for_readers(bench, options.consumers)
    bench.run("ALTER SYSTEM SET track_wal_io_timing = on", "SELECT pg_reload_conf()")
    flushed = _flushes(bench)
    used = {name: _cpu(process) for name, process in readers.items()}
    begun = time.monotonic()
    writer = threading.Thread(target=_write, args=(bench, options, committed))
    writer.start()
    threading.Thread(target=_listen, args=(bench, writer, notified)).start()
    third = options.seconds / 3
    time.sleep(third)
    died = time.monotonic()
    readers[dead].kill()
    readers[dead].wait()
    while time.monotonic() - begun < 2 * third:
        time.sleep(min(1.0, max(0.0, begun + 2 * third - time.monotonic())))
        kept = max(kept, _kept(bench))
    born = time.monotonic()
    readers[dead] = start(bench, files[dead])
    writer.join()
    ended = time.monotonic()
    flushes = {
        who: (number - flushed[who][0], seconds - flushed[who][1])
        for who, (number, seconds) in _flushes(bench).items()
    }
    cpu = {name: _cpu(process) - used[name] for name, process in readers.items() if name != dead}
    received = watcher.result(len(committed), 60.0)
    for process in readers.values():
        process.terminate()
        process.wait()
    _tell(options, committed, received, (begun, died, born, ended), dead)
    print(f"{len(notified):,} of {len(committed):,} commits have notified a reader")
    for who, (number, seconds) in flushes.items():
        print(f"flushes of the WAL by {who}: {number:,} in {seconds:.1f} s")
    log = _size(bench) - before
    print(f"WAL kept for readers: {kept:,} bytes")
    print(
        f"the log and its internal tables have grown by {log / 2**20:.1f} MiB, {log / max(len(committed), 1):.0f} bytes a change"
    )
    print(
        "CPU a change of the readers that ran all the time: "
        + ", ".join(f"{name} {1000 * one / len(committed):.2f} ms" for name, one in cpu.items())
    )


_FLUSHES = """
SELECT CASE backend_type WHEN 'client backend' THEN 'sessions' ELSE 'the server itself' END,
       sum(fsyncs), sum(fsync_time) / 1000
FROM pg_stat_io WHERE object = 'wal' AND fsyncs IS NOT NULL GROUP BY 1"""


def _flushes(bench: common.Server) -> dict[str, tuple[int, float]]:
    """Flushes of the WAL and their seconds, by sessions and by the server itself; none on a server
    that does not count them.
    """
    if bench.value("SELECT current_setting('server_version_num')::int") < 180000:
        return {}
    with bench.engine.connect() as connection:
        found = connection.exec_driver_sql(_FLUSHES).all()
    return {str(who): (int(number or 0), float(seconds or 0)) for who, number, seconds in found}


def _tell(
    options: argparse.Namespace,
    committed: list[tuple[float, float]],
    received: Mapping[str, Received],
    times: tuple[float, float, float, float],
    dead: str,
) -> None:
    begun, died, born, ended = times
    late = sum(
        returned - begun > number / options.rate + 0.05
        for number, (_, returned) in enumerate(committed)
    )
    print(
        f"\n{len(committed):,} changes in {ended - begun:.1f} s, {late} of them behind their time by 50 ms or more"
    )
    since = 0 if options.like_hardbyte else 1  # a delay begins before the write, or at its return
    print("\n| reader | changes | 50 % | 99 % | longest | missing | twice | out of order |")
    print("|---|---|---|---|---|---|---|---|")
    for name, one in received.items():
        delays = [
            (came - committed[number - 1][since]) * 1000
            for number, came in one.came.items()
            if committed[number - 1][1] > begun + _WARM_UP
            and not (name == dead and committed[number - 1][1] > died - 1)
        ]
        shown = (
            f"{median(delays):.1f} ms | {quantiles(delays, n=100)[-1]:.1f} ms | {max(delays):.1f} ms"
            if len(delays) > 1
            else "- | - | -"
        )
        missing = len(committed) - len(one.came)
        print(f"| {name} | {len(one.came):,} | {shown} | {missing} | {one.again} | {one.behind} |")
    if options.like_hardbyte:
        for name, one in received.items():
            _tell_rolling(name, committed, one, (died - 1, ended) if name == dead else None)
    caught = _caught_up(committed, received[dead], born)
    behind = sum(died < returned < born for _, returned in committed)
    print(
        f"\n{dead} was dead for {born - died:.1f} s, {behind:,} changes; "
        + (
            "it has not caught up"
            if caught is None
            else f"it had caught up {caught - born:.1f} s after its start"
        )
    )


def _tell_rolling(
    name: str,
    committed: list[tuple[float, float]],
    received: Received,
    left_out: tuple[float, float] | None,
) -> None:
    """Print the median of the 99 % of each ``_WINDOW`` seconds, one second apart. Changes that were
    written from the one moment of ``left_out`` to the other do not count.
    """
    first, last = committed[0][0] + _WARM_UP, committed[-1][0]
    written = sorted(
        (committed[number - 1][0], (came - committed[number - 1][0]) * 1000)
        for number, came in received.came.items()
        if committed[number - 1][0] >= first
        and not (left_out and left_out[0] < committed[number - 1][0] < left_out[1])
    )
    found = []
    while first + _WINDOW <= last:
        delays = [delay for at, delay in written if first <= at < first + _WINDOW]
        if len(delays) > 1:
            found.append(quantiles(delays, n=100)[-1])
        first += 1.0
    if found:
        print(
            f"{name}: the 99 % of 30 s, a second apart: median {median(found):.1f} ms of "
            f"{len(found)}, from {min(found):.1f} to {max(found):.1f} ms"
        )


def _caught_up(
    committed: list[tuple[float, float]], received: Received, born: float
) -> float | None:
    """When the reader had all that was committed until then."""
    highest = 0.0
    last = sorted(
        (received.came.get(number), returned)
        for number, (_, returned) in enumerate(committed, 1)
        if number in received.came
    )
    arrivals = [(came, returned) for came, returned in last if came is not None and came > born]
    for came, returned in arrivals:
        highest = max(highest, returned)
        if came - highest < 1.0:  # what comes now was committed less than a second ago
            return came
    return None


# --- the application ------------------------------------------------------------------------------


def _write(
    bench: common.Server, options: argparse.Namespace, committed: list[tuple[float, float]]
) -> None:
    dice = random.Random(1)
    url = sa.make_url(bench.url).set(drivername="postgresql").render_as_string(hide_password=False)
    together = max(1, round(options.rate * _BATCH)) if options.like_hardbyte else 1
    with psycopg.connect(url, autocommit=True) as session:
        begun = time.monotonic()
        number = 0
        while (due := begun + number / options.rate) < begun + options.seconds:
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
            started = time.monotonic()
            with session.transaction() if together > 1 else nullcontext():
                for one in range(number + 1, number + together + 1):
                    session.execute(_CHANGE, (str(one), dice.randint(1, options.objects)))
            committed += [(started, time.monotonic())] * together
            number += together


def _listen(bench: common.Server, writer: threading.Thread, notified: list[float]) -> None:
    """Count the commits that had to wake a reader."""
    url = sa.make_url(bench.url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("LISTEN eventlog_eventlog")
        while writer.is_alive():
            notified += [time.monotonic() for _ in session.notifies(timeout=0.5)]


# --- the receivers --------------------------------------------------------------------------------


class Watcher:
    """The process that waits for files."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def result(self, changes: int, patience: float) -> dict[str, Received]:
        """What has come, once each reader has all changes, or after so many seconds."""
        self._pipe.send((changes, patience))
        received: dict[str, Received] = self._pipe.recv()
        return received


@contextmanager
def _receiving(
    directory: Path, names: Sequence[str], *, by_http: bool
) -> Iterator[tuple[Watcher, Mapping[str, str]]]:
    """The process of the receivers, and their URLs; none for files."""
    ours, theirs = multiprocessing.Pipe()
    places = {name: directory / name / "documents" for name in names}
    for place in () if by_http else places.values():
        place.mkdir(parents=True)
    work: Any = (_serve, (list(names), theirs)) if by_http else (_watch, (places, theirs))
    process = multiprocessing.Process(target=work[0], args=work[1])
    process.start()
    try:
        yield Watcher(ours), ours.recv() if by_http else {}
    finally:
        process.kill()
        process.join()


_ANSWER = b'<nds dtdversion="2.0"><output></output></nds>'


def _serve(names: Sequence[str], pipe: Connection) -> None:
    """Serve a receiver for each name, which notes each document when it has come whole."""
    received = {name: Received() for name in names}
    urls = {}
    for name in names:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(received[name]))
        urls[name] = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(urls)
    wanted, patience = pipe.recv()
    until = time.monotonic() + patience
    while time.monotonic() < until and any(len(one.came) < wanted for one in received.values()):
        time.sleep(0.1)
    pipe.send(received)


def _handler(received: Received) -> type[http.server.BaseHTTPRequestHandler]:
    """The class that takes the documents of one reader, which come one after the other."""
    last: dict[int, int] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            came = time.monotonic()
            self.send_response(200)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(_ANSWER)))
            self.end_headers()
            self.wfile.write(_ANSWER)
            _note(received, last, content, came)

        def log_message(self, *_: object) -> None: ...

    return Handler


def _watch(places: dict[str, Path], pipe: Connection) -> None:
    """Note when each file comes, and read it when nothing else is to do."""
    libc = ctypes.CDLL(None, use_errno=True)
    inotify = libc.inotify_init1(os.O_NONBLOCK)
    watched: dict[int, tuple[str, Path]] = {}

    def watch(name: str, place: Path) -> None:
        number = libc.inotify_add_watch(inotify, os.fsencode(place), _MOVED_TO | _CREATED)
        watched[number] = name, place

    for name, place in places.items():
        watch(name, place)
    received = {name: Received() for name in places}
    last: dict[str, dict[int, int]] = {name: {} for name in places}
    waiting: list[tuple[str, Path, float]] = []
    wanted, until = None, 0.0
    while True:
        if (
            wanted is not None
            and not waiting
            and (
                time.monotonic() > until
                or all(len(one.came) >= wanted for one in received.values())
            )
        ):
            pipe.send(received)
            return
        ready, _, _ = select.select([inotify, pipe], [], [], 0 if waiting else 0.2)
        if pipe in ready:
            wanted, patience = pipe.recv()
            until = time.monotonic() + patience
        if inotify in ready:
            data, now = os.read(inotify, 2**20), time.monotonic()
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                text = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
                at += _EVENT.size + length
                name, folder = watched[number]
                file = folder / os.fsdecode(text)
                if mask & _IS_DIRECTORY:
                    watch(name, file)
                elif mask & _MOVED_TO and not text.startswith((b".", b"_")):
                    waiting.append((name, file, now))
        elif waiting:
            name, file, came = waiting.pop(0)
            # The file stays until the end: while a file system has many inodes that were freed a
            # moment ago, ext4 takes 0.3 ms of CPU to find one for a new file.
            _note(received[name], last[name], file.read_bytes(), came)


def _note(received: Received, last: dict[int, int], content: bytes, came: float) -> None:
    """Note the changes of a file: an event's key, then each value of its column."""
    idu = 0
    for key, value in _CHANGES.findall(content):
        if key:
            idu = int(key)
            continue
        number = int(value)
        if number in received.came:
            received.again += 1
            continue
        received.came[number] = came
        received.behind += number < last.get(idu, 0)
        last[idu] = max(number, last.get(idu, 0))


# --- the readers ----------------------------------------------------------------------------------


def _configuration(directory: Path, name: str, url: str | None) -> Path:
    """The configuration of a reader, whose receiver is files or has a ``url``."""
    place = directory / name
    place.mkdir(exist_ok=True)
    file = common.configuration(place)
    text = file.read_text().replace("[publisher]\n", "[publisher]\nallow_loopback = true\n")
    if url is not None:
        text = text.replace(
            'type = "files"\ndirectory = "documents"\n',
            f'type = "http"\nurl = "{url}"\ncompression = "none"\n',
        )
    if name != "publisher":
        text += f'[source]\ntype = "eventlog"\nconsumer = "{name}"\nstart_from = "earliest"\n'
    file.write_text(text)
    return file


def _command(file: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "eventlog", "--quiet", "--config", str(file), *arguments]


def _start(bench: common.Server, file: Path) -> subprocess.Popen[bytes]:
    environ = os.environ | {"EVENTLOG_DATABASE_URL": bench.url}
    return subprocess.Popen(_command(file, "publish"), env=environ)


def _start_bare(bench: common.Server, file: Path) -> subprocess.Popen[bytes]:
    url = sa.make_url(bench.url).set(drivername="postgresql").render_as_string(hide_password=False)
    program = Path(bare_reader.__file__)
    place = file.parent / "documents"
    return subprocess.Popen([sys.executable, str(program), url, place.parent.name, str(place)])


def _wait_for_readers(bench: common.Server, consumers: int) -> None:
    """Wait until all have connected, and the publisher has published a change of nobody."""
    bench.run(f"UPDATE {common.SCHEMA}.usr SET mail = 'none' WHERE idu = 1")
    waits = f"SELECT count(*) FROM {common.LOG} WHERE status = 'N'"
    there = f"SELECT count(*) FROM {common.LOG}_consumer"
    while bench.value(there) < consumers or bench.value(waits):
        time.sleep(0.2)
    time.sleep(2)


def _eventlog(bench: common.Server, file: Path, *arguments: str) -> None:
    environ = os.environ | {"EVENTLOG_DATABASE_URL": bench.url}
    subprocess.run(_command(file, *arguments), env=environ, check=True, stdout=subprocess.DEVNULL)


def _cpu(process: subprocess.Popen[bytes]) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


# --- the server -----------------------------------------------------------------------------------


def _size(bench: common.Server) -> int:
    return int(
        bench.value(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r' "
            f"AND starts_with(relname, 'eventlog') AND relnamespace = '{common.SCHEMA}'::regnamespace"
        )
    )


def _kept(bench: common.Server) -> int:
    """Bytes of WAL that the server keeps for somebody who reads it."""
    return int(
        bench.value(
            "SELECT coalesce(max(pg_current_wal_lsn() - restart_lsn), 0)::bigint FROM pg_replication_slots"
        )
    )


if __name__ == "__main__":
    main()
