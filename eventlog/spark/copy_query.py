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

import logging
import os
from collections.abc import Callable, Mapping, Sequence
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
from eventlog.errors import ConfigError, number_of
from eventlog.spark.changes import FORMAT, STATEMENT
from eventlog.spark.contexts import context_of
from eventlog.spark.copy_history import History
from eventlog.spark.copy_source import ClassSource
from eventlog.spark.copy_target import Batch, Held, Target, last_words, merge_source
from eventlog.spark.copy_types import CURE, CURE_OF_HISTORY, CopyRefused, refused_changes
from eventlog.spark.sources import register

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("eventlog.live_copy")

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
    history: History | None = None,
) -> bool:
    """Bring the copy to the state after a batch: load it, merge the batch, or leave it unchanged;
    its history first, if it has one.

    Return True if it was merged. ``rows`` gives the changes of the class. ``on_type_change`` says
    what to do where the copy cannot take over a change of the columns: ``refuse`` or ``reload``.
    Raises CopyRefused, EventlogError.
    """
    held = copy.number_done(batch.query, source.content)
    if held is not None and history is not None:
        history.keep_step(batch.query, held)
    if held is not None and batch.number <= held.number:
        return False
    if held is not None:
        # Behind the rows: what is logged under a type that comes later is in no batch of now.
        changes = rows()
        source.look()
        refused = refused_changes(held.note, source.columns.key, source.columns.declared)
        if not refused:
            told = list(source.changes(changes, held.note.loaded))
            if history is not None:
                history.append(batch, told)
            words = last_words((one.key, one.word) for one in told)
            newest = pc.max(changes["commit_time"]).as_py()
            changed = merge_source(source.columns, words)
            copy.merge(batch, source.columns, held.note, changed, newest)
            _warn_of_nulled(source, changed.nulled)
            return bool(words)
        if on_type_change != RELOAD:
            raise CopyRefused(
                f"the copy of {source.class_name} cannot take over what has changed: "
                f"{'; '.join(refused)}. Nothing was written. To go on, "
                f"{CURE if history is None else CURE_OF_HISTORY}"
            )
    loading = source.loading()
    if history is not None:
        history.check(loading.note)
    copy.load(batch, source.content, loading)
    _warn_of_nulled(source, loading.nulled.number)
    if history is not None:
        history.keep_step(batch.query, Held(batch.number, loading.note))
    return False


def _warn_of_nulled(source: ClassSource, number: int) -> None:
    """Log the first time that a copy has values as NULL which the table has not."""
    if not number or source.has_warned:
        return
    source.has_warned = True
    _log.warning(
        "%s of %s %s NULL in its copy, whose types have no dates before Christ or after the year "
        "9999, no infinite ones, and no NaN of a number with a size. Each commit counts such "
        "values (nulled); this warning is logged once",
        number_of(number, "value"),
        source.class_name,
        "is" if number == 1 else "are",
    )


# --- what it costs --------------------------------------------------------------------------------

_SHARE: Final = 10
"""Writing takes at most one part of so many of the time, unless a trigger is given."""
_CLEARED_WITHIN: Final = 10
"""Files are removed when a tenth of the time has passed for which they are kept."""
_COUNTED_AT: Final = 10
"""The number of commits after which small files are put together, if there are many."""


@dataclass(slots=True)
class Cost:
    """The cost of a copy: how long its last commit took to write, and which files it has left.

    ``tables`` are the copy, and its history if it has one. ``share`` is the part of the time that
    writing may take at most, None = any. ``merged`` counts the commits.
    """

    tables: Sequence[Target]
    keep: timedelta
    share: int | None
    began: float = 0.0
    seconds: float = 0.0
    cleared: float | None = None
    merged: int = 0

    def written(self, put: Callable[[Callable[[], pa.Table]], bool], frame: DataFrame) -> bool:
        """Do a batch and remove what no reader needs any more; return True if it was merged."""
        self.began, reading = monotonic(), 0.0

        def rows() -> pa.Table:
            nonlocal reading
            read: pa.Table = frame.toArrow()
            reading = monotonic() - self.began
            return read

        is_merged = put(rows)
        if is_merged:
            self.merged += 1
            self._tidy()
        self.seconds = monotonic() - self.began - reading
        return is_merged

    def _tidy(self) -> None:
        """Remove what no reader needs and put small files together, where it is time to."""
        if (
            self.cleared is None
            or monotonic() - self.cleared >= self.keep.total_seconds() / _CLEARED_WITHIN
        ):
            for table in self.tables:
                table.clear(self.keep)
            self.cleared = monotonic()
        elif self.merged % _COUNTED_AT == 0:
            for table in self.tables:
                table.compact()

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
    history: bool = False,
    **options: str,
) -> StreamingQuery:
    """Start a query that keeps ``copy`` equal to the table of a class, and return it.

    ``config`` is the file, as in the option of ``format("eventlog-changes")``. ``options`` are
    further ones, such as ``consumer`` and ``maxRowsPerBatch``. ``checkpoint`` is the directory in
    which Spark records the progress of the query. ``trigger`` is as in
    ``DataStreamWriter.trigger``; by default a batch begins each second, and later where writing
    would take more than a tenth of the time. Files that no reader of the last ``keep`` needs are
    removed by the query. With ``history`` each change also appends a row to a second table, which
    the functions ``history`` and ``as_of`` read. A column whose type has changed keeps its values
    under the new type if each is the same there; for any other change ``on_type_change`` is
    ``"refuse"``, the query fails with CopyRefused, or ``"reload"``, it loads the class anew into
    the same table; with ``history`` it is always refused. The query also fails with CopyRefused if
    the table is not a live copy of this class. Raises ConfigError, also in a session of Spark
    Connect; DatabaseError.
    """
    if refused := {"class", "config", "starting"} & options.keys():
        raise ConfigError(
            f"option {refused.pop()}: a live copy gives it, and begins with the class as it is"
        )
    if on_type_change not in (REFUSE, RELOAD):
        raise ConfigError(f"on_type_change = {on_type_change!r}: it is {REFUSE!r} or {RELOAD!r}")
    if history and on_type_change == RELOAD:
        raise ConfigError(
            'on_type_change="reload" with history=True: the rows of before have no value of '
            "another type. Leave it out; a change that is refused then names the cure"
        )
    if context_of(spark) is None:
        raise ConfigError(
            "live_copy cannot run in a session of Spark Connect, whose server would write the "
            "copy: start it in a session of its own, such as SparkSession.builder.master"
            "('local[2]')"
        )
    source = ClassSource.of(load(Path(config), os.environ), class_name)
    register(spark)
    given = {"maxRowsPerBatch": _BATCH_ROWS, **options, "starting": "latest", "config": str(config)}
    kept = History(source, copy) if history else None
    if kept is not None:
        given["fold"] = STATEMENT
    changes = (
        spark.readStream.format(FORMAT).options(**given).load().where(col("class") == class_name)
    )
    started: Future[str] = Future()  # the name under which the copy has the query's batches
    tables = [copy] if kept is None else [copy, kept.table]
    cost = Cost(tables, keep, _SHARE if trigger is None else None)

    def put(frame: DataFrame, number: int) -> None:
        batch = Batch(started.result(), number)

        def put_rows(rows: Callable[[], pa.Table]) -> bool:
            return put_batch(source, copy, batch, rows, on_type_change, kept)

        if cost.written(put_rows, frame):
            cost.rest(lambda: query.isActive)

    writer = changes.writeStream.foreachBatch(put).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**(trigger or {"processingTime": "1 second"})).start()
    name = f"eventlog {query.id}"
    try:
        if kept is not None:
            kept.begin(name)
    except BaseException as error:
        started.set_exception(error)
        query.stop()
        raise
    started.set_result(name)
    return query
