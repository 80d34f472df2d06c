"""``live_copy``: a table of a lake that follows a class, with one commit per batch of the stream of
changes.

The first batch is the first load: the class as it is now. The first load contains all changes that
were committed before it. Later changes come in later batches, so that the copy is correct as soon
as the copy has caught up.

A batch is repeated if the query was killed before Spark recorded it as done. The table then has the
number of the batch already, and the batch changes nothing. A query with a new checkpoint has
another name, and the table has no batch of that name: the query loads the class again.
"""

from __future__ import annotations

import json
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
from eventlog.core.arguments import NAME, PATH, check_arguments
from eventlog.core.clock import monotonic, sleep
from eventlog.errors import ConfigError, number_of
from eventlog.spark.changes.change_log import LATEST, LATEST_OF_EPOCH
from eventlog.spark.changes.change_offsets import Offset, offset_of
from eventlog.spark.changes.changes import FORMAT, STATEMENT
from eventlog.spark.copies.copy_history import History, Target
from eventlog.spark.copies.copy_source import ClassSource
from eventlog.spark.copies.copy_target import (
    CopyBatch,
    LastBatch,
    latest_changes,
    merge_source,
)
from eventlog.spark.copies.copy_types import FIX, FIX_WITH_HISTORY, CopyError, refused_changes
from eventlog.spark.data_sources import register
from eventlog.spark.session.arguments import COPY, SESSION, SPAN, check_trigger
from eventlog.spark.session.spark_context import context_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("eventlog.live_copy")

ReadRows = Callable[[], pa.Table]
"""A function that returns the changes of a batch."""

ERROR: Final = "error"
RELOAD: Final = "reload"

_BATCH_ROWS: Final = "100000"
"""The maximum number of rows in a batch by default: the driver has the rows of a batch in memory.
"""


def put_batch(
    source: ClassSource,
    copy: Target,
    batch: CopyBatch,
    rows: ReadRows,
    on_type_change: str = ERROR,
    history: History | None = None,
    *,
    begins_epoch: bool = False,
) -> bool:
    """Bring the copy to the state after a batch: load the copy, merge the batch, or leave the copy
    unchanged. If the copy has a history, the history comes first.

    Return True if the batch was merged. ``rows`` returns the changes of the class.
    ``on_type_change`` determines what happens if the copy cannot apply a change of the columns:
    ``error`` or ``reload``. ``begins_epoch`` means that the log has another epoch than in the batch
    before, so that the class is loaded again. Raises CopyError, EventlogError.
    """
    stored = copy.number_done(batch.query, source.content)
    if stored is not None and history is not None:
        history.keep_step(batch.query, stored)
    if stored is not None and batch.number <= stored.number:
        return False
    if stored is not None and not begins_epoch:
        # After the rows: changes logged under a later type cannot be in this batch.
        changes = rows()
        source.refresh()
        refused = refused_changes(stored.note, source.columns.key, source.columns.declared)
        if not refused:
            reported = list(source.changes(changes, stored.note.loaded))
            if history is not None:
                history.append(batch, reported)
            latest = latest_changes((one.key, one.change) for one in reported)
            newest = pc.max(changes["commit_time"]).as_py()
            changed = merge_source(source.columns, latest)
            copy.merge(batch, source.columns, stored.note, changed, newest)
            _warn_of_nulled(source, changed.nulled)
            return bool(latest)
        if on_type_change != RELOAD:
            raise CopyError(
                f"the copy of {source.class_name} cannot apply a change of columns: "
                f"{'; '.join(refused)}. Nothing was written. To go on, "
                f"{FIX if history is None else FIX_WITH_HISTORY}"
            )
    loading = source.loading()
    if history is not None:
        history.check(loading.note)
    copy.load(batch, source.content, loading)
    _warn_of_nulled(source, loading.nulled.number)
    if history is not None:
        history.keep_step(batch.query, LastBatch(batch.number, loading.note))
    return False


def _warn_of_nulled(source: ClassSource, number: int) -> None:
    """Log a warning when values of the table become NULL in the copy for the first time."""
    if not number or source.has_warned:
        return
    source.has_warned = True
    _log.warning(
        "%s of %s %s NULL in the copy. Its types cannot represent dates before Christ or after the "
        "year 9999, infinite dates, or NaN of a decimal. Each commit records the number of such "
        "values as `nulled`; this warning is logged once",
        number_of(number, "value"),
        source.class_name,
        "is" if number == 1 else "are",
    )


# --- what it costs --------------------------------------------------------------------------------

_SHARE: Final = 10
"""Writing takes at most this fraction (1/10) of the time, unless a trigger is given."""
_CLEARED_WITHIN: Final = 10
"""Old files are removed whenever this fraction (1/10) of ``keep`` has passed."""
_COUNTED_AT: Final = 10
"""The number of commits after which small files are compacted, if there are many small files."""


@dataclass(slots=True)
class Cost:
    """The cost of a copy: the duration of its last commit, and the time when old files were last
    removed.

    ``tables`` are the copy, and its history if it has one. Writing may take at most one
    ``share``-th of the time; None = no limit. ``merged`` counts the commits.
    """

    tables: Sequence[Target]
    keep: timedelta
    share: int | None
    began: float = 0.0
    seconds: float = 0.0
    cleared: float | None = None
    merged: int = 0

    def written(self, put: Callable[[ReadRows], bool], frame: DataFrame) -> bool:
        """Run a batch, and remove files that no reader needs any more; return True if the batch was
        merged.
        """
        self.began, reading = monotonic(), 0.0

        def rows() -> pa.Table:
            nonlocal reading
            read: pa.Table = frame.toArrow()
            reading = monotonic() - self.began
            return read

        is_merged = put(rows)
        if is_merged:
            self.merged += 1
            self._maintain()
        self.seconds = monotonic() - self.began - reading
        return is_merged

    def _maintain(self) -> None:
        """Remove files that no reader needs, or compact small files, if one of these is due."""
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
            sleep(min(left, _POLL_SECONDS))


_POLL_SECONDS: Final = 0.2


def _end_of(spark: SparkSession, checkpoint: str | Path, number: int) -> Offset | None:
    """Return the offset of the stream at the end of a batch. Spark writes this offset to the
    checkpoint before the batch (spec/verify.md 4.3). None if the checkpoint cannot be read.
    """
    from py4j.protocol import Py4JError  # the client of Spark Connect cannot read it

    context: Any = context_of(spark)
    try:
        path = context._jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets/{number}")
        stream = path.getFileSystem(context._jsc.hadoopConfiguration()).open(path)
        try:
            text = context._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return offset_of(json.loads(text.splitlines()[-1]))
    except (Py4JError, ConfigError, ValueError, IndexError) as error:
        _log.warning(
            "the commit of batch %d does not record the rows of the log: %s", number, error
        )
        return None


def _begins_epoch(
    spark: SparkSession, checkpoint: str | Path, batch: int, end: Offset | None
) -> bool:
    """Return True if the batch before this one, which ends at ``end``, is of another epoch of the
    log. Raises CopyError if the checkpoint does not show the epochs.
    """
    if batch == 0:
        return False
    before = _end_of(spark, checkpoint, batch - 1)
    if before is None or end is None:
        raise CopyError(
            f"the checkpoint {checkpoint} does not show the epochs of batch {batch}, so it is "
            "unknown whether the class must be loaded again. Nothing was written. Give the query a "
            "new checkpoint, which loads it"
        )
    return before.epoch != end.epoch


# --- the query ------------------------------------------------------------------------------------


def _refuse(
    on_type_change: str, on_epoch: str, options: Mapping[str, str], *, history: bool
) -> None:
    """Raise ConfigError for arguments of ``live_copy`` that contradict each other."""
    if refused := {"class", "config", "start_from"} & options.keys():
        raise ConfigError(
            f"option {refused.pop()} cannot be given to live_copy, which sets it: a copy begins "
            "with the class as it is now. Remove the option"
        )
    for name, value in (("on_type_change", on_type_change), ("on_epoch", on_epoch)):
        if value not in (ERROR, RELOAD):
            raise ConfigError(f"{name} = {value!r}: use {ERROR!r} or {RELOAD!r}")
    if history and on_type_change == RELOAD:
        raise ConfigError(
            'on_type_change="reload" cannot be used with history=True: the rows already in the '
            "history have no values of the new type. Leave out on_type_change; if a change is "
            "refused later, the error describes what to do"
        )


def live_copy(
    spark: SparkSession,
    config: str | Path,
    class_name: str,
    copy: Target,
    *,
    checkpoint: str | Path,
    trigger: Mapping[str, Any] | None = None,
    on_type_change: str = ERROR,
    on_epoch: str = ERROR,
    keep: timedelta = timedelta(hours=1),
    history: bool = False,
    **options: str,
) -> StreamingQuery:
    """Start a query that keeps ``copy`` equal to the table of a class, and return the query.

    ``config`` is the configuration file, as in the option of ``format("eventlog-changes")``.
    ``options`` are the other options of this format, such as ``consumer`` and ``maxRowsPerBatch``,
    by default 100,000, since the driver has the rows of a batch in memory. ``checkpoint`` is the
    directory in which Spark records the progress of the query. ``trigger`` is as in
    ``DataStreamWriter.trigger``; by default a batch begins each second, or later if writing would
    take more than a tenth of the time. The query removes files that no reader of the last ``keep``
    needs. Delta rounds ``keep`` up to whole hours. ``timedelta(0)`` is for a table that nobody
    reads meanwhile. With ``history`` each change also appends a row to a second table, for the
    functions ``history`` and ``as_of``.

    A column whose type has changed keeps its values under the new type if the new type changes no
    value. For any other change of a type, the query fails with CopyError if ``on_type_change`` is
    ``"error"``, and loads the class again into the same table if it is ``"reload"``; with
    ``history`` it always fails. After a failover or a restore, when the log has a new epoch, the
    query fails with OtherEpoch if ``on_epoch`` is ``"error"``; with ``"reload"`` it loads the class
    again into the same table, and a history keeps its versions. The query also fails with CopyError
    if the table is not a live copy of this class. Raises DatabaseError and ConfigError (also in a
    session of Spark Connect).
    """
    check_arguments(
        "live_copy",
        spark=(spark, SESSION),
        config=(config, PATH),
        class_name=(class_name, NAME),
        copy=(copy, COPY),
        checkpoint=(checkpoint, PATH),
        keep=(keep, SPAN),
    )
    check_trigger(trigger)
    _refuse(on_type_change, on_epoch, options, history=history)
    if context_of(spark) is None:
        raise ConfigError(
            "live_copy cannot run in a session of Spark Connect, whose server would write the "
            "copy. Run it in another session, such as SparkSession.builder.master('local[2]')"
        )
    source = ClassSource.of(load(Path(config), os.environ), class_name)
    register(spark)
    given = {
        "maxRowsPerBatch": _BATCH_ROWS,
        **options,
        "start_from": LATEST_OF_EPOCH if on_epoch == RELOAD else LATEST,
        "config": str(config),
    }
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
        end = _end_of(spark, checkpoint, number)
        batch = CopyBatch(started.result(), number, "" if end is None else end.done.encode())
        begins_epoch = on_epoch == RELOAD and _begins_epoch(spark, checkpoint, number, end)

        def put_rows(rows: ReadRows) -> bool:
            return put_batch(
                source, copy, batch, rows, on_type_change, kept, begins_epoch=begins_epoch
            )

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
