"""A driver of a live copy with a history, killed many times.

This program loads what a driver needs once, and forks a driver for each kill. A driver runs the
batches that the checkpoint has not, as Spark has it: the number of a batch is written when it is
done, and what was begun comes again. After the last kill a driver runs to the end, and how many
batches there were is written to ``last``.

    python killed_copy.py delta|iceberg DIRECTORY KILLS SEED
"""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import sys
import time
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from test_live_copy_batches import PAY, A, Rows, Source, batch_of, changes_of, delta_in, iceberg_in

from eventlog.spark.copies import copy_query
from eventlog.spark.copies.copy_history import History
from eventlog.spark.copies.copy_target import CopyBatch

BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Batches:
    """The batches of a seed: the same ones whoever asks. ``rows`` is the table after the last."""

    def __init__(self, seed: int) -> None:
        self.chance, self.number, self.position = random.Random(seed), 0, 0
        self.rows: Rows = {key: {A: "first", PAY: Decimal(key)} for key in range(1, 5)}

    def next(self) -> list[dict[str, Any]]:
        chance = self.chance
        steps = [
            (
                chance.choice(["put", "patch", "patch", "delete", "rekey"]), chance.randint(1, 20),
                f"{self.number}", Decimal(chance.randint(0, 999)),
                chance.choice([(A,), (PAY,), (A, PAY)]), chance.randint(21, 30),
            )
            for _ in range(12)
        ]  # fmt: skip
        changes = changes_of(self.rows, steps, self.position + 1)
        self.position += len(changes)
        self.number += 1
        return [
            {**one, "commit_time": BEGAN + dt.timedelta(seconds=one["position"])} for one in changes
        ]


class Told(NamedTuple):
    """What a run of ``count`` batches leaves: the table, and the rows of its history."""

    rows: Rows
    history: list[dict[str, Any]]


def told_by(seed: int, count: int) -> Told:
    """Return what the copy and the history have to hold after so many batches."""
    batches = Batches(seed)
    rows, history = {key: dict(row) for key, row in batches.rows.items()}, list[dict[str, Any]]()
    for _ in range(count):
        for one in batches.next():
            key = int(one["key"][0][1])
            row: dict[str, Any] = {A: None, PAY: None}
            if one["operation"] == "delete":
                del rows[key]
            else:
                texts = dict(one["after"])
                values = {name: texts[name] for name in (A, PAY) if name in texts}
                if PAY in values:
                    values[PAY] = Decimal(values[PAY])
                row = rows[key] = rows.get(key, row) | values
            told = {name: one[name] for name in ("position", "operation", "commit_time")}
            history.append({"id": key, **row, **{f"_{name}": told[name] for name in told}})
    return Told(batches.rows, history)


def read_number(file: Path) -> int:
    return int(file.read_text()) if file.exists() else -1


def drive(made: str, directory: Path, seed: int, until: int, told: int | None = None) -> None:
    """Run batches until one of a number is done. ``told`` is a pipe to which the first is
    reported.
    """
    copy = {"delta": delta_in, "iceberg": iceberg_in}[made](directory)
    batches = Batches(seed)
    source = Source(batches.rows)
    kept, done = History(source, copy), directory / "done"
    source.rows = {key: dict(row) for key, row in batches.rows.items()}
    for number in range(until + 1):
        changes = batches.next() if number else []
        if number <= read_number(done):
            continue
        (directory / "begun").write_text(str(number))
        if told is not None:
            os.write(told, b".")
        batch = CopyBatch("query", number)
        copy_query.put_batch(source, copy, batch, partial(batch_of, changes), history=kept)
        if number % 5 == 0:
            for table in (copy, kept.table):
                table.clear(dt.timedelta(0))
        written = directory / ".done"
        written.write_text(str(number))
        written.replace(done)


def main() -> None:
    made, place, kills, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    chance, amidst = random.Random(-seed), 0
    for _ in range(kills):
        # Only what has no thread can be forked: no table is opened here.
        hears, told = os.pipe()
        child = os.fork()
        if child == 0:
            drive(made, place, seed, 10**9, told)
        os.close(told)
        assert os.read(hears, 1), "the driver failed before its first batch"
        os.close(hears)
        time.sleep(chance.uniform(0, 0.3))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the driver failed"
        with suppress(ValueError):  # begun is being written
            amidst += read_number(place / "begun") > read_number(place / "done")
    last = max(read_number(place / "done"), 0) + 3
    drive(made, place, seed, last)
    (place / "last").write_text(f"{last} {amidst}")


if __name__ == "__main__":
    # Loaded once, not by each driver.
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow  # noqa: F401

    main()
