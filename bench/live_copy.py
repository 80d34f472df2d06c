"""What a live copy costs: the disk that it takes, its lag, and the memory of its processes, while
an application changes rows of a table with random keys.

A table of --rows is loaded into a Delta table by live_copy on local[2]. Then --rate changes a
second are written for --seconds, and the copy is brought to the end. Printed are, by variant of
--keep (seconds) and --trigger (seconds; without it the trigger follows the cost): the most that
stood on disk against the table's own size, the lag of the commits from the newest change in each to
its writing, the bytes written for each change, and the most memory of the driver, of Java and of
the workers (PSS). The copy is compared with the table in the end.

The short form, in some two minutes: --rows 100000 --seconds 40.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import common
import psutil
import psycopg
import sqlalchemy as sa
from deltalake import DeltaTable

from eventlog import cli
from eventlog.spark import delta, live_copy
from eventlog.spark.session.session import open_session

_TABLE = """
INSERT INTO bench.usr SELECT i, 'Ann', 'Smith & Sons ' || i, 'user.' || i || '@example.org', i % 90000, date '2000-01-01' + i % 9000
FROM generate_series(1, :rows) AS i"""


@dataclass
class Seen:
    """The most that a look has seen, while ``ended`` is not set."""

    place: Path
    ended: threading.Event = field(default_factory=threading.Event)
    disk: int = 0
    written: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        number = 0
        while not self.ended.wait(0.1):
            sizes = {}
            for path in self.place.rglob("*"):
                with suppress(FileNotFoundError):
                    sizes[str(path)] = path.stat().st_size if path.is_file() else 0
            self.disk = max(self.disk, sum(sizes.values()))
            self.written.update(sizes)
            number += 1
            if number % 50 == 1:
                self._look_at_memory()

    def _look_at_memory(self) -> None:
        found = {"driver": _pss(psutil.Process()), "Java": 0, "workers": 0}
        for process in psutil.Process().children(recursive=True):
            try:
                name = process.name()
                found["Java" if name == "java" else "workers"] += (
                    _pss(process) if name in ("java",) or "python" in name else 0
                )
            except psutil.Error:
                continue
        for name, size in found.items():
            self.memory[name] = max(self.memory.get(name, 0), size)


def _pss(process: psutil.Process) -> int:
    return int(process.memory_full_info().pss)


def change(url: sa.URL, rows: int, rate: int, seconds: float) -> int:
    """Change rows by random keys, and return how many."""
    chance, done, began = random.Random(1), 0, time.monotonic()
    with psycopg.connect(url.set(drivername="postgresql").render_as_string(False)) as connection:
        while (passed := time.monotonic() - began) < seconds:
            for _ in range(max(0, int(passed * rate) - done)):
                connection.execute(
                    "UPDATE bench.usr SET salary = salary + 1, mail = %s WHERE idu = %s",
                    (f"new.{done}@example.org", chance.randint(1, rows)),
                )
                connection.commit()
                done += 1
            time.sleep(0.01)
    return done


def run(asked: argparse.Namespace, spark: Any, keep: float, trigger: float | None) -> None:
    directory = Path(tempfile.mkdtemp(prefix="el-copy-", dir=asked.directory))
    try:
        with common.server() as bench:
            bench.run("CREATE SCHEMA bench", common._TABLE)
            config = directory / "eventlog.toml"
            config.write_text(
                f'[database]\nurl = "{bench.url}"\nschema_name = "bench"\n[[watch]]\ntable = "usr"\n'
            )
            for command in (["db", "upgrade"], ["triggers", "apply"]):
                assert cli.run(["--config", str(config), "--quiet", *command]) == 0
            bench.run("ALTER TABLE bench.usr DISABLE TRIGGER USER")
            bench.run(_TABLE, rows=asked.rows)
            bench.run("ALTER TABLE bench.usr ENABLE TRIGGER USER", "ANALYZE bench.usr")
            place = directory / "usr"
            given = None if trigger is None else {"processingTime": f"{trigger:g} seconds"}
            begun = time.monotonic()
            query = live_copy(
                spark, config, "usr", delta(place), checkpoint=directory / "checkpoint",
                trigger=given, keep=timedelta(seconds=keep),
            )  # fmt: skip
            while not (place / "_delta_log").exists() or DeltaTable(place).version() < 0:
                time.sleep(0.2)
            table = sum(file.stat().st_size for file in place.glob("*.parquet"))
            print(
                f"loaded in {time.monotonic() - begun:.1f} s, {table / 2**20:.1f} MiB", flush=True
            )
            seen = Seen(place)
            looker = threading.Thread(target=seen.look)
            looker.start()
            changes = change(sa.make_url(bench.url), asked.rows, asked.rate, asked.seconds)
            time.sleep(1)
            query.processAllAvailable()
            seen.ended.set()
            looker.join()
            query.stop()
            copied = DeltaTable(place).to_pyarrow_table(columns=["idu", "salary", "mail"])
            rows = {row["idu"]: (row["salary"], row["mail"]) for row in copied.to_pylist()}
            with bench.engine.connect() as connection:
                stored = connection.exec_driver_sql("SELECT idu, salary, mail FROM bench.usr")
                equal = rows == {idu: (salary, mail) for idu, salary, mail in stored}
            report(place, seen, table, changes, keep, trigger, equal)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def report(
    place: Path,
    seen: Seen,
    table: int,
    changes: int,
    keep: float,
    trigger: float | None,
    equal: bool,
) -> None:
    """Print the figures of a run."""
    merges = [one for one in DeltaTable(place).history() if one.get("newest_commit_time")]
    lags = sorted(
        one["timestamp"] / 1000 - datetime.fromisoformat(one["newest_commit_time"]).timestamp()
        for one in merges
    )
    size = sum((place / one).stat().st_size for one in DeltaTable(place).file_uris())
    print(
        f"keep {keep:g} s, trigger {'by cost' if trigger is None else f'{trigger:g} s'}: "
        f"{changes:,} changes, {len(merges)} commits; on disk at most {seen.disk / 2**20:.1f} MiB, "
        f"{seen.disk / max(table, size):.2f} times the table; lag median {lags[len(lags) // 2]:.1f}, "
        f"most {lags[-1]:.1f} s; {sum(seen.written.values()) / 2**20:.0f} MiB written; memory "
        + ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in seen.memory.items())
        + f"; {'equal' if equal else 'NOT EQUAL'}; load {os.getloadavg()[1]:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=100, help="changes a second")
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--keep", type=float, nargs="*", default=[0.0], help="seconds")
    parser.add_argument("--trigger", type=float, nargs="*", help="seconds")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    asked = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = open_session("local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    for keep in asked.keep:
        for trigger in asked.trigger or [None]:
            run(asked, spark, keep, trigger)


if __name__ == "__main__":
    main()
