"""What a row costs a Spark task, in this process alone: from a part of the log, as Arrow, to the blobs of its events.

The rows are those of ``bench/rows.py``. Times are CPU of this process, the best of several rounds. To read the batches
from the database, and Spark itself, are not in them.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import rows as bench_rows

from eventlog.config.load import load
from eventlog.model import LogRow
from eventlog.publisher.context import PublisherOptions
from eventlog.sql.bulk import Part, arrow_schema
from spark import job as jobs
from spark.job import Job, Output
from spark.session import tune_collector
from spark.stages import read

_BATCH = 65_536


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the part (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the best counts (%(default)s)")
    options = parser.parse_args()
    rows = bench_rows.log_rows(options.rows)
    tune_collector()
    with TemporaryDirectory(prefix="eventlog-") as directory:
        Path(directory, "_temporary").mkdir()
        job = job_over(rows, directory)
        spent = min(round_of(job, rows) for _ in range(options.rounds))
    print(f"a part of rows to blobs {spent / len(rows) * 1e6:5.2f} us a row")


def job_over(rows: list[LogRow], directory: str) -> Job:
    """A job of one part, which reads no database."""
    place: Any = SimpleNamespace(log=SimpleNamespace(types=()), url="", url_file=None)
    nothing: Any = None
    parts = (Part(1, len(rows), len(rows)),)
    output = Output(directory, "lines", "none", 2**28, 128)
    options = PublisherOptions(driver_user="eventlog")
    now, config = datetime.now(UTC), load(None, {})
    job = Job("bench", place, "", config, nothing, None, options, parts, frozenset(), 4, output, now)
    jobs._catalogs[job.name] = bench_rows.catalog()
    return job


def round_of(job: Job, rows: list[LogRow]) -> float:
    """CPU seconds of the task."""

    def read_batches(place: object, snapshot: object, status: object, part: object, fields: Any) -> Iterator[Any]:
        columns = dict(zip(LogRow._fields, zip(*rows, strict=True), strict=True))
        table = pa.table([columns[name] for name in fields], schema=arrow_schema(fields))
        yield from table.to_batches(_BATCH)

    batches = list(read_batches(None, None, None, None, read.QUEUE_FIELDS))
    read.read_batches = lambda *_: iter(batches)
    gc.collect()
    begun = process_time()
    for _ in read.read_parts(job, iter([pa.RecordBatch.from_pydict({"id": [1]})])):
        pass
    return process_time() - begun


if __name__ == "__main__":
    main()
