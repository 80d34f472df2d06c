"""A query of real Spark that follows a log, writes its batches to files, and is restarted whenever
it fails.

    python spark_stream.py OUT OPTION=VALUE ...

As changes_driver.py, but this program kills nothing itself. With a file OUT/stop it
ends at the end of the log. OUT/failures has a line for each failure of the query.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from eventlog.spark import register


def follow(spark: SparkSession, place: Path, **options: str) -> None:
    """Run the query until OUT/stop is there and the log is read to its end."""
    register(spark)
    place.mkdir(exist_ok=True)
    stop = place / "stop"

    def put(frame: DataFrame, number: int) -> None:
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        text = "".join(json.dumps(row, default=str, sort_keys=True) + "\n" for row in rows)
        with (place / "attempts").open("a") as file:
            file.write(f"{number} {hashlib.sha256(text.encode()).hexdigest()}\n")
        written = place / f".{number}"
        written.write_text(text)
        written.replace(place / f"batch-{number:06d}.jsonl")

    while True:
        query = (
            spark.readStream.format("eventlog-changes")
            .options(**options)
            .load()
            .writeStream.foreachBatch(put)
            .option("checkpointLocation", str(place / "checkpoint"))
            .start()
        )
        try:
            while not stop.exists():
                query.awaitTermination(0.1)
            query.processAllAvailable()
        except StreamingQueryException as error:
            with (place / "failures").open("a") as file:
                file.write(" ".join(str(error).split()) + "\n")
        else:
            query.stop()
            return


def is_in_a_batch(place: Path) -> bool:
    """Return True while a batch is planned and not done."""
    planned, done = (
        sum(path.name.isdecimal() for path in (place / "checkpoint" / name).glob("*"))
        for name in ("offsets", "commits")
    )
    return planned > done


if __name__ == "__main__":
    from eventlog.spark.session.session import open_session

    out, *given = sys.argv[1:]
    patience = {"spark.python.authenticate.socketTimeout": "120s"}  # of a busy machine
    session = open_session("local[2,8]", conf=patience)  # a task may fail seven times
    follow(session, Path(out), **dict(one.split("=", 1) for one in given))
