"""What it costs on MariaDB and MySQL that a server shows the open writers of a log
(spec/event-log.md 13.6).

Writers: CPU seconds of the server for --rows single-row transactions on a watched table, with
performance_schema off, and on with the instrument of metadata locks; in turn, round after round.
Each figure is the median of the rounds. Checks: the time of one check of the open writers, with
none and with 100 of them, and of a window whose gaps --gaps transactions keep open.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "faults"))
import family_writers
import mysql_servers
from publishers import install, write_config
from shared import execute, url_of

from eventlog.config.load import load
from eventlog.core.ranges import to_ranges
from eventlog.publisher.declared.opening import find_log
from eventlog.sql.connect.connection import connect
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.port.log_operations import ANY_STATUS
from eventlog.sql.readers.consumers import shown_ids
from eventlog.sql.readers.followed_set import FollowedSet

OFF = ("--performance-schema=off",)


def cpu_of(server: mysql_servers.Server) -> float:
    """The CPU seconds that a server has used until now."""
    pid = int((server.place / "pid").read_text())
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def write(server: mysql_servers.Server, rows: int) -> float:
    """CPU of the server for single-row transactions, us each."""
    with closing(family_writers.session(server)) as mine:
        before = cpu_of(server)
        for _ in range(rows):
            family_writers.run(mine, "INSERT INTO usr (name) VALUES ('x')")
        return (cpu_of(server) - before) / rows * 1e6


def median_ms(call: Callable[[], object], times: int = 200) -> float:
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(taken)


def measure(name: str, rows: int, rounds: int, gaps: int) -> None:
    build = mysql_servers.BUILDS[name]
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        figures: dict[str, list[float]] = {"off": [], "on": []}
        servers = {}
        for word, settings in (("off", OFF), ("on", ())):
            server = stack.enter_context(mysql_servers.server(*settings, build=build))
            url = stack.enter_context(server.database())
            root = sa.create_engine(server.url.set(database=url.database), poolclass=sa.NullPool)
            execute(root, family_writers.TABLE, *family_writers.NUMBERS)
            config = load(write_config(place, url_of(root), [{"table": "usr"}]), {}, {})
            install(config)
            servers[word] = server
            write(server, 500)
        for _ in range(rounds):
            for word, server in servers.items():
                figures[word].append(write(server, rows))
        off, on = (statistics.median(figures[word]) for word in ("off", "on"))
        print(f"{name}: CPU of the server a transaction: off {off:.0f} us, on {on:.0f} us")
        engine = connect(root.url)
        with engine.connect() as conn:
            log = find_log(load_dialect(engine.dialect.name).open(conn), config)
            for count in (0, 100):
                with ExitStack() as writers:
                    for _ in range(count):
                        mine = family_writers.session(servers["on"])
                        writers.enter_context(family_writers.closed(mine))
                        family_writers.run(mine, "BEGIN", "INSERT INTO usr (name) VALUES ('x')")
                    found = log.open_writers() or frozenset()
                    assert len(found) == count
                    check, skip = (
                        median_ms(log.open_writers),
                        median_ms(partial(log.db.are_open, found)),
                    )
                    print(f"{name}: {count} open: a check {check:.2f} ms, are_open {skip:.2f} ms")
            ids = [one for one in shown_ids(log, ANY_STATUS) if one % 2][: gaps + 1]
            followed = FollowedSet()
            followed.add(to_ranges(ids))
            window = replace(ANY_STATUS, limit=1_000).outside(followed.done, ids[-1])
            each = median_ms(lambda: shown_ids(log, window), 5)
            number = len(window.gaps or ())
            print(f"{name}: a window of {number} gaps {each:.0f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--servers", nargs="*", default=list(mysql_servers.BUILDS))
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gaps", type=int, default=10_000)
    arguments = parser.parse_args()
    for one in arguments.servers:
        measure(one, arguments.rows, arguments.rounds, arguments.gaps)
