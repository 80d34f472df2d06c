"""What a row costs a Spark task, in this process alone: from the rows of a part of the log to the
blobs of its events.

The rows are those of ``bench/rows.py``. Times are CPU of this process, the best of several rounds.
To read the rows from the database, and Spark itself, are not in them.
"""

from __future__ import annotations

import argparse
import gc
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from types import SimpleNamespace
from typing import Any

import common
import pyarrow as pa
import rows as bench_rows

from eventlog.config.load import load
from eventlog.model import LOG_COLUMNS, QUEUE_FIELDS, LogRow
from eventlog.publisher.context.context import PublisherOptions
from eventlog.spark.backlog import fold
from eventlog.spark.backlog import job as jobs
from eventlog.spark.backlog.fold import read_parts
from eventlog.spark.backlog.job import Job, Output
from eventlog.spark.backlog.output import output_format
from eventlog.spark.session.in_tasks import tune_collector
from eventlog.sql.port.log_parts import LogPart

_FRAGMENT = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=200_000, help="rows of the part (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds, of which the best counts (%(default)s)"
    )
    options = parser.parse_args()
    print(common.python(), flush=True)
    rows = bench_rows.log_rows(options.rows)
    tune_collector()
    with TemporaryDirectory(prefix="eventlog-") as directory:
        Path(directory, "_temporary").mkdir()
        job = job_over(rows, directory)
        spent = min(round_of(job, rows) for _ in range(options.rounds))
    print(f"a part of rows to blobs {spent / len(rows) * 1e6:5.2f} us a row")


def job_over(rows: list[LogRow], directory: str) -> Job:
    """A job of one part, which reads no database."""
    log = SimpleNamespace(schema="bench", name="eventlog", types=())
    place: Any = SimpleNamespace(log=log, url="postgresql://localhost/bench", url_file=None)
    nothing: Any = None
    parts = (LogPart(1, len(rows), len(rows)),)
    options = output_format("xds").read_options(load(None, {}), {}, "lines")
    output = Output(directory, "lines", "none", 2**28, 128, options=options)
    publishing = PublisherOptions(driver_user="eventlog")
    config, none = load(None, {}), frozenset[Any]()
    job = Job(
        "bench", place, "", config, nothing, None, none, publishing, parts, none, 4, output,
        datetime.now(UTC),
    )  # fmt: skip
    jobs._catalogs[job.name] = bench_rows.catalog()
    return job


def round_of(job: Job, rows: list[LogRow]) -> float:
    """CPU seconds of the task."""

    pick = itemgetter(*map(LOG_COLUMNS.index, QUEUE_FIELDS))
    fragments = [
        list(map(pick, rows[start : start + _FRAGMENT])) for start in range(0, len(rows), _FRAGMENT)
    ]
    spark_fold: Any = fold
    spark_fold.read_batches = lambda *_: iter(fragments)
    spark_fold.Builder.session = None
    gc.collect()
    begun = process_time()
    for _ in read_parts(job, iter([pa.RecordBatch.from_pydict({"id": [1]})])):
        pass
    return process_time() - begun


if __name__ == "__main__":
    main()
