"""``live_copy``: a table of a lake that follows a class, one commit a batch of the stream of
changes.

The first batch is the first load: the class as it is now. It contains all changes committed before
the load. Later changes come in the batches after it, so that the copy is right as soon as it has
caught up.

A batch comes again if the query was killed before Spark recorded it as done. It then finds its
number in the table and changes nothing. A query with a new checkpoint has another name, under which
the table has no batch: it loads the class anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from eventlog.config.load import load
from eventlog.core.clock import monotonic, sleep
from eventlog.errors import ConfigError
from eventlog.spark.changes import FORMAT
from eventlog.spark.copy_source import ClassSource
from eventlog.spark.copy_target import Batch, Target, last_words
from eventlog.spark.copy_types import CURE, CopyRefused, refused_changes
from eventlog.spark.session import context_of
from eventlog.spark.sources import register

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

REFUSE: Final = "refuse"
RELOAD: Final = "reload"

_BATCH_ROWS: Final = "100000"
"""The maximum number of rows in a batch by default: the driver holds them."""


def put_batch(
    source: ClassSource,
    copy: Target,
    batch: Batch,
    rows: Callable[[], pa.Table],
    on_type_change: str = REFUSE,
) -> bool:
    """Bring the copy to the state after a batch: load it, merge the batch, or leave it unchanged.

    Return True if it was merged. ``rows`` gives the changes of the class. ``on_type_change`` says
    what to do where the copy cannot take over a change of the columns: ``refuse`` or ``reload``.
    Raises CopyRefused, EventlogError.
    """
    held = copy.number_done(batch.query, source.content)
    if held is not None and batch.number <= held.number:
        return False
    if held is not None:
        # Behind the rows: what is logged under a type that comes later is in no batch of now.
        changes = rows()
        source.look()
        refused = refused_changes(held.note, source.columns)
        if not refused:
            words = last_words(source.changes(changes, held.note.loaded))
            newest = pc.max(changes["commit_time"]).as_py()
            copy.merge(batch, source.columns, held.note, words, newest)
            return bool(words)
        if on_type_change != RELOAD:
            raise CopyRefused(
                f"the copy of {source.class_name} cannot take over what has changed: "
                f"{'; '.join(refused)}. Nothing was written. To go on, {CURE}"
            )
    loading = source.loading()
    copy.load(batch, source.content, loading.columns.schema, loading.note, loading.rows)
    return False


# --- what it costs --------------------------------------------------------------------------------

_SHARE: Final = 10
"""Writing takes at most one part of so many of the time, unless a trigger is given."""
_CLEARED_WITHIN: Final = 10
"""Files are removed when a tenth of the time has passed for which they are kept."""


@dataclass(slots=True)
class Cost:
    """The cost of a copy: how long its last commit took to write, and which files it has left.

    ``share`` is the part of the time that writing may take at most, None = any.
    """

    copy: Target
    keep: timedelta
    share: int | None
    began: float = 0.0
    seconds: float = 0.0
    cleared: float | None = None

    def written(self, put: Callable[[Callable[[], pa.Table]], bool], frame: DataFrame) -> bool:
        """Do a batch and remove what no reader needs any more; return True if it was merged."""
        self.began, reading = monotonic(), 0.0

        def rows() -> pa.Table:
            nonlocal reading
            read: pa.Table = frame.toArrow()
            reading = monotonic() - self.began
            return read

        is_merged = put(rows)
        if is_merged and (
            self.cleared is None
            or monotonic() - self.cleared >= self.keep.total_seconds() / _CLEARED_WITHIN
        ):
            self.copy.clear(self.keep)
            self.cleared = monotonic()
        self.seconds = monotonic() - self.began - reading
        return is_merged

    def rest(self, is_active: Callable[[], bool]) -> None:
        """Wait until the next commit may begin, or the query ends."""
        if self.share is None:
            return
        end = self.began + self.share * self.seconds
        while (left := end - monotonic()) > 0 and is_active():
            sleep(min(left, _LOOK_SECONDS))


_LOOK_SECONDS: Final = 0.2

# --- the query ------------------------------------------------------------------------------------


def live_copy(
    spark: SparkSession,
    config: str | Path,
    class_name: str,
    copy: Target,
    *,
    checkpoint: str | Path,
    trigger: Mapping[str, Any] | None = None,
    on_type_change: str = REFUSE,
    keep: timedelta = timedelta(hours=1),
    **options: str,
) -> StreamingQuery:
    """Start a query that keeps ``copy`` equal to the table of a class, and return it.

    ``config`` is the file, as in the option of ``format("eventlog-changes")``. ``options`` are
    further ones, such as ``consumer`` and ``maxRowsPerBatch``. ``checkpoint`` is the directory in
    which Spark records the progress of the query. ``trigger`` is as in
    ``DataStreamWriter.trigger``; by default a batch begins each second, and later where writing
    would take more than a tenth of the time. Files that no reader of the last ``keep`` needs are
    removed by the query. A column whose type
    has changed keeps its values under the new type if each is the same there; for any other change
    ``on_type_change`` is ``"refuse"``, the query fails with CopyRefused, or ``"reload"``, it loads
    the class anew into the same table. The query also fails with CopyRefused if the table is not a
    live copy of this class. Raises ConfigError, also in a session of Spark Connect; DatabaseError.
    """
    if refused := {"class", "config", "starting"} & options.keys():
        raise ConfigError(
            f"option {refused.pop()}: a live copy gives it, and begins with the class as it is"
        )
    if on_type_change not in (REFUSE, RELOAD):
        raise ConfigError(f"on_type_change = {on_type_change!r}: it is {REFUSE!r} or {RELOAD!r}")
    if context_of(spark) is None:
        raise ConfigError(
            "live_copy cannot run in a session of Spark Connect, whose server would write the "
            "copy: start it in a session of its own, such as SparkSession.builder.master"
            "('local[2]')"
        )
    source = ClassSource.of(load(Path(config), os.environ), class_name)
    register(spark)
    given = {"maxRowsPerBatch": _BATCH_ROWS, **options, "starting": "latest", "config": str(config)}
    changes = (
        spark.readStream.format(FORMAT).options(**given).load().where(col("class") == class_name)
    )
    started: Future[StreamingQuery] = Future()
    cost = Cost(copy, keep, _SHARE if trigger is None else None)

    def put(frame: DataFrame, number: int) -> None:
        query = started.result()
        batch = Batch(f"eventlog {query.id}", number)
        if cost.written(lambda rows: put_batch(source, copy, batch, rows, on_type_change), frame):
            cost.rest(lambda: query.isActive)

    writer = changes.writeStream.foreachBatch(put).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**(trigger or {"processingTime": "1 second"})).start()
    started.set_result(query)
    return query
