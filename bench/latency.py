"""How long a change takes from its commit to its document, and what waking the publisher costs
those who write.

Latency: one row at a time is written to a watched table; ``eventlog publish`` is a process that
sleeps in between and writes its documents to a pipe. Cost: pgbench sessions that insert a row of
the log and commit, in turn without a trigger on the log, with ours while the publisher is awake and
while it sleeps, and with one that always notifies.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

import common
import sqlalchemy as sa

from eventlog.sql.dialects.postgresql.session import WAKE

_TRIGGER = "_tgr_eventlog_i_1"
_NAIVE = f"""
CREATE FUNCTION {common.SCHEMA}.naive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('eventlog_eventlog', ''); RETURN NULL; END $$;
CREATE TRIGGER naive AFTER INSERT ON {common.LOG} FOR EACH STATEMENT EXECUTE FUNCTION {common.SCHEMA}.naive();
ALTER TABLE {common.LOG} DISABLE TRIGGER naive"""
_WRITE = f"""\\set idu random(1, 1000000)
INSERT INTO {common.LOG} (event_type, table_name, table_key) VALUES (6, 'usr', 'idu=' || :idu);
"""
_MODES = {
    "no trigger on the log": (None, False),
    "ours, publisher awake": (_TRIGGER, False),
    "ours, publisher asleep all the time": (_TRIGGER, True),
    "always pg_notify": ("naive", True),
}
"""Trigger that is enabled, and whether somebody has the lock of a sleeping publisher."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--changes", type=int, default=500, help="changes for the latency (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds for the cost (%(default)s)")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of each run (%(default)s)")
    parser.add_argument(
        "--sessions", type=int, default=16, help="sessions that write at once (%(default)s)"
    )
    options = parser.parse_args()
    with (
        common.server() as bench,
        tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory,
    ):
        common.install(bench)
        print(common.machine(bench), flush=True)
        for synchronous in ("on", "off"):
            _print_latency(
                _latencies(bench, Path(directory), options.changes, synchronous), synchronous
            )
        _cost(bench, Path(directory), options.rounds, options.seconds, options.sessions)


# Latency


def _latencies(
    bench: common.Server, directory: Path, changes: int, synchronous: str
) -> list[float]:
    """Seconds from the return of COMMIT to the document, for changes that come one at a time."""
    file = common.configuration(directory)
    _eventlog(bench, file, "triggers", "apply")
    dice = random.Random(1)
    seconds = []
    bench.run(f"TRUNCATE {common.SCHEMA}.usr", f"TRUNCATE {common.LOG}")
    with _publisher(bench, file, synchronous) as publisher, bench.engine.connect() as connection:
        assert publisher.stdout is not None
        statement = sa.text(
            f"INSERT INTO {common.SCHEMA}.usr (idu, fname, lname) VALUES (:idu, 'Ann', 'Smith')"
        )
        connection.exec_driver_sql(f"SET synchronous_commit = {synchronous}")
        for idu in range(1, changes + 21):
            time.sleep(dice.uniform(0.02, 0.06))
            connection.execute(statement, {"idu": idu})
            begin = time.perf_counter()
            line = publisher.stdout.readline()
            seconds.append(time.perf_counter() - begin)
            if f"idu={idu}," not in line.decode():
                raise SystemExit(f"the document of another change came: {line!r}")
    return seconds[20:]  # what was loaded by the first ones was loaded for all


@contextmanager
def _publisher(
    bench: common.Server, file: Path, synchronous: str
) -> Iterator[subprocess.Popen[bytes]]:
    """``eventlog publish`` with a polling interval that nobody waits for."""
    url = sa.make_url(bench.url).update_query_dict(
        {"options": f"-c synchronous_commit={synchronous}"}
    )
    # One user writes and publishes here.
    settings = (
        "publisher.polling_interval=3600",
        "publisher.allow_loopback=yes",
        "sink.type=stdout",
    )
    command = [
        _program(),
        "--quiet",
        "--config",
        str(file),
        *(f"--set={setting}" for setting in settings),
        "publish",
    ]
    environ = os.environ | {"EVENTLOG_DATABASE_URL": url.render_as_string(hide_password=False)}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ)
    try:
        yield running
    finally:
        running.terminate()
        running.communicate()


def _print_latency(seconds: list[float], synchronous: str) -> None:
    milliseconds = sorted(second * 1000 for second in seconds)
    p95 = quantiles(milliseconds, n=20)[-1]
    print(
        f"\ncommit to document, synchronous_commit {synchronous}, {len(milliseconds)} changes one "
        f"at a time: median {median(milliseconds):.2f} ms, 95 % within {p95:.2f} ms, longest "
        f"{milliseconds[-1]:.2f} ms",
        flush=True,
    )


def _eventlog(bench: common.Server, file: Path, *arguments: str) -> None:
    command = [_program(), "--quiet", "--config", str(file), *arguments]
    done = subprocess.run(
        command,
        env=os.environ | {"EVENTLOG_DATABASE_URL": bench.url},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"eventlog {' '.join(arguments)} failed: {done.stderr}")


def _program() -> str:
    return str(Path(sys.executable).with_name("eventlog"))


# Cost to those who write


def _cost(bench: common.Server, directory: Path, rounds: int, seconds: int, sessions: int) -> None:
    pgbench = _pgbench()
    if pgbench is None:
        print("\nno pgbench on this machine: the cost to writers is not measured")
        return
    script = directory / "write.sql"
    script.write_text(_WRITE)
    for statement in _NAIVE.split(";\n"):
        bench.run(statement)
    figures: dict[str, list[float]] = {mode: [] for mode in _MODES}
    print(f"\n| round | {' | '.join(_MODES)} |\n|---|{'---|' * len(_MODES)}")
    for number in range(1, rounds + 1):
        modes = list(_MODES.items())
        for mode, (trigger, asleep) in modes[number % len(modes) :] + modes[: number % len(modes)]:
            bench.run(f"TRUNCATE {common.LOG}", "CHECKPOINT")
            for name in (_TRIGGER, "naive"):
                enabled = "ENABLE" if name == trigger else "DISABLE"
                bench.run(f"ALTER TABLE {common.LOG} {enabled} TRIGGER {name}")
            with _sleeper(bench, asleep):
                figures[mode].append(_transactions(pgbench, bench, script, seconds, sessions))
        print(
            f"| {number} | {' | '.join(f'{figures[mode][-1]:,.0f}' for mode in _MODES)} |",
            flush=True,
        )
    without = median(figures["no trigger on the log"])
    print(
        f"\ncommits/s of {sessions} sessions, one row each, synchronous_commit off; median (least "
        "to greatest)"
    )
    for mode, values in figures.items():
        print(f"{mode:36} {common.spread(values, 0)}, {median(values) / without:.2f} of no trigger")


@contextmanager
def _sleeper(bench: common.Server, asleep: bool) -> Iterator[None]:
    """Somebody who listens; with ``asleep`` he has the lock and never wakes up."""
    with common.owner(bench) as (log, _):
        if asleep:
            WAKE.listen(log)
            assert WAKE.fall_asleep(log)
        yield


def _transactions(
    pgbench: str, bench: common.Server, script: Path, seconds: int, sessions: int
) -> float:
    url = sa.make_url(bench.url).set(drivername="postgresql")
    command = [pgbench, "-n", "-M", "prepared", "-c", str(sessions), "-j", "2", "-T", str(seconds),
               "-f", str(script), url.render_as_string(hide_password=False)]  # fmt: skip
    environ = os.environ | {"PGOPTIONS": "-c synchronous_commit=off"}
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("tps = ")]
    return float(line.split()[2])


def _pgbench() -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), reverse=True)
    return shutil.which("pgbench") or (str(installed[0]) if installed else None)


if __name__ == "__main__":
    main()
