"""``format("eventlog-changes")``: the events of a log as a DataFrame or a stream with one row per
event (spec/spark-changes.md).

The publisher's functions fold the events. The driver plans ranges of record_ids, and tasks read the
rows in these ranges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from pyspark.sql import types as t
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from eventlog.config.kinds import CONSUMER
from eventlog.core.catalog import Attribute, Catalog, ObjectClass
from eventlog.core.clock import sleep
from eventlog.core.options import (
    STRING,
    Option,
    OptionKind,
    choice,
    nearest,
    parse_boolean,
    parse_value,
    unknown,
)
from eventlog.core.ranges import Range, between
from eventlog.core.rows.events import CurrentRow, build_event, decide
from eventlog.core.rows.fold import Group, first_id
from eventlog.core.start_time import EXAMPLE, parse_start_time
from eventlog.errors import ConfigError, together, with_location
from eventlog.spark.changes.change_log import (
    EARLIEST,
    LATEST,
    LATEST_OF_EPOCH,
    ChangeLog,
    ColumnsChanged,
    Origins,
    Packed,
    RowReader,
    cached_connection,
    check_counted,
    unpack,
)
from eventlog.spark.changes.change_offsets import JsonOffset, Offset, offset_of
from eventlog.spark.changes.change_parts import Folding, groups_of_part
from eventlog.spark.changes.change_rows import Rows, columns_of, schema_of
from eventlog.spark.log_source import (
    PARTITION_ROWS,
    SparkOptions,
    for_catalogue,
    options_for,
    without_spark_options,
)
from eventlog.spark.session.closed_output import expect_closed_output
from eventlog.spark.session.in_tasks import Batches, tune_collector, without_frames
from eventlog.sql.port import read_for_reader

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_STREAMS = True
except ImportError:  # before PySpark 4.2
    HAS_STREAMS = False
    SupportsTriggerAvailableNow = object  # type: ignore[misc, assignment]

FORMAT: Final = "eventlog-changes"
BATCH: Final = "batch"
STATEMENT: Final = "statement"

# --- options --------------------------------------------------------------------------------------


def _parse_starting(value: Any) -> str:
    text = str(value)
    if text in (EARLIEST, LATEST, LATEST_OF_EPOCH) or re.fullmatch(
        r"[1-9]\d{0,17}", text, re.ASCII
    ):
        return text
    return parse_start_time(text)


def _parse_rows(value: Any) -> int:
    number = int(value)
    if number < 1:
        raise ValueError
    return number


_ROWS: Final = OptionKind(_parse_rows, "a number, 1 or more")
_FLAG: Final = OptionKind(parse_boolean, "true | false")
OPTIONS: Final[Mapping[str, Option]] = {
    "config": Option(
        None,
        STRING,
        "the configuration file, at the same path on every node. Settings that it lacks, and all "
        "settings on a node without it, come from the environment (EVENTLOG_DATABASE_URL_FILE)",
    ),
    "class": Option(
        None, STRING, "the only class to read; the columns before and after are then structs"
    ),
    "xds": Option(False, _FLAG, "adds a column with the XDS document of the event"),
    "start_from": Option(
        EARLIEST,
        OptionKind(
            _parse_starting,
            f"earliest | latest | a record_id | a time with its zone, such as {EXAMPLE}",
        ),
        "where a new query begins",
    ),
    "maxRowsPerBatch": Option(None, _ROWS, "the most rows of the log in a batch of a stream"),
    "partitionRows": Option(PARTITION_ROWS, _ROWS, "the most rows of the log that a task reads"),
    "consumer": Option(None, CONSUMER, "a stream reads the log as this consumer"),
    "fold": Option(
        BATCH,
        choice(BATCH, STATEMENT),
        "batch: an event has all changes of its object in a batch; statement: only the changes "
        "with the same time in the log",
    ),
}
"""The options by name."""

_BY_FOLDED: Final = {name.lower(): name for name in OPTIONS}  # Spark ignores the case of names


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The checked options of a reader."""

    config: str | None
    class_name: str | None
    with_document: bool
    start_from: str
    max_rows: int | None
    partition_rows: int
    consumer: str | None
    fold: str


def read_options(given: SparkOptions) -> ChangeOptions:
    """Return checked options (spec/spark-changes.md 5).

    Raises one ConfigError, of one line, for all errors.
    """
    errors: list[ConfigError] = []
    values = {name: declared.default for name, declared in OPTIONS.items()}
    for folded, text in without_spark_options(given).items():
        name = _BY_FOLDED.get(folded.lower())
        if name is None:
            errors.append(unknown(folded, nearest(folded, OPTIONS)))
            continue
        try:
            values[name] = parse_value(OPTIONS[name], text, name)
        except ConfigError as error:
            errors.append(error)
    file = values["config"]
    if file is not None and not Path(file).is_file():
        errors.append(
            ConfigError(f"config = {file!r}: there is no such file where the driver runs")
        )
    if errors:
        raise with_location(together(errors), f"options of format {FORMAT}")
    return ChangeOptions(*(values[name] for name in OPTIONS))


# --- tasks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """The input of a task: a range of record_ids of a batch, and the number of rows in this range.

    ``rows`` has the ranges of the whole batch, since a part reads beyond its ends.
    """

    packed: Packed
    rows: Sequence[Range]
    part: Range
    count: int


def _partitions(
    log: ChangeLog, schema: t.StructType, options: ChangeOptions, start: Offset, end: Offset
) -> list[InputPartition]:
    parts = log.parts(start, end, options.partition_rows)
    if not parts:
        return []
    # The classes are read after the end of the batch is known, so that the batch cannot have a row
    # that was logged under a later type.
    _, catalog, packed = log.classes()
    _check_columns(schema, options, catalog)
    rows = between(start.done, end.done)
    return [InputPartition(_Part(packed, rows, part, count)) for part, count in parts]


def _struct_of(schema: t.StructType, options: ChangeOptions) -> t.StructType | None:
    """Return the columns of the one requested class; None if images are maps."""
    if options.class_name is None:
        return None
    columns = schema["after"].dataType
    assert isinstance(columns, t.StructType)
    return columns


def _check_columns(schema: t.StructType, options: ChangeOptions, catalog: Catalog) -> None:
    """Raise ColumnsChanged if a column of the requested class has another type than in the struct.

    A new column is not in the struct, and a dropped column is NULL in the struct.
    """
    struct = _struct_of(schema, options)
    now = next((one for one in catalog.classes if one.name == options.class_name), None)
    if struct is None or now is None:
        return
    types = {field.name: field.dataType for field in columns_of(now).fields}
    if changed := [
        f"column {field.name} of {now.name} was {field.dataType.simpleString()} and is "
        f"{types[field.name].simpleString()} now"
        for field in struct.fields
        if types.get(field.name, field.dataType) != field.dataType
    ]:
        raise ColumnsChanged(
            f"{'; '.join(changed)}. The batch was not read. Start the query again with the same "
            "checkpoint, or create the DataFrame again: it then has the new type"
        )


def _read(schema: t.StructType, options: ChangeOptions, task: _Part) -> Batches:
    """Yield the rows of a part of a batch."""
    expect_closed_output()
    tune_collector()
    classes, catalog = unpack(task.packed)
    columns = _struct_of(schema, options)
    rows = Rows(classes, catalog, columns, with_document=options.with_document)
    settings = classes.options
    how = Folding(settings.fold_distance, settings.fold_span, task.rows[0][0], task.rows[-1][1])
    with cached_connection(options.config) as db:
        log = db.log(classes.log)
        reader = RowReader(log, classes, catalog, task.rows, task.part, with_origins=True)

        has_read_back = False

        def query_back(
            object_class: ObjectClass, keys: Sequence[str], attributes: Sequence[Attribute]
        ) -> Mapping[str, CurrentRow]:
            nonlocal has_read_back
            has_read_back = True
            return read_for_reader(log.db, catalog.schema, object_class, keys, attributes)

        for folded in groups_of_part(reader, task.part, how):
            groups = folded
            if options.fold == STATEMENT:
                groups = by_statement(folded, reader.origins or {})
            decided = decide(groups, query_back)
            built = [
                build_event(group, settings.events, decision, row)
                for group, decision, row in decided
            ]
            events = [
                event
                for event in built
                if event.operation is not None
                and (options.class_name is None or event.object_id[0].name == options.class_name)  # type: ignore[index]
            ]
            if events:
                yield from rows.batches(events, reader.origins or {})
        check_counted(reader.counted, task.count, task.part)
        if has_read_back:  # rows of the batch are durable, but not yet values read back
            log.db.make_durable()
            log.commit()


def by_statement(groups: Sequence[Group], origins: Origins) -> list[Group]:
    """Return the groups of single statements, in the order of their first rows.

    All rows that one statement logs for an object have the same event_time.
    """
    return sorted(
        (
            list(rows)
            for group in groups
            for _, rows in groupby(group, key=lambda row: origins[row[0]][0])
        ),
        key=first_id,
    )


# --- the source -----------------------------------------------------------------------------------


class ChangesDataSource(DataSource):
    """The events of a log. ``OPTIONS`` has the options."""

    @without_frames()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)
        self._checked = read_options(self._given)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @without_frames()
    def schema(self) -> t.StructType:
        return for_catalogue(self._schema(), self._given)

    def _schema(self) -> t.StructType:
        checked = self._checked
        log = ChangeLog(checked.config, with_document=checked.with_document)
        try:
            _, catalog, _ = log.classes()
        finally:
            log.close()
        if checked.class_name is None:
            return schema_of(None, with_document=checked.with_document)
        found = {one.name: one for one in catalog.classes}
        if checked.class_name not in found:
            raise ConfigError(
                f"options of format {FORMAT}: class = {checked.class_name!r} is not in the "
                f"configuration, which has {', '.join(sorted(found))}"
            )
        return schema_of(columns_of(found[checked.class_name]), with_document=checked.with_document)

    @without_frames()
    def reader(self, schema: t.StructType) -> DataSourceReader:
        checked = read_options(options_for(schema, self._given))
        if checked.consumer is not None or checked.max_rows is not None:
            name = "consumer" if checked.consumer is not None else "maxRowsPerBatch"
            raise ConfigError(
                f"options of format {FORMAT}: {name} works only with readStream, which remembers "
                "its position"
            )
        return ChangesReader(schema, checked)

    @without_frames()
    def streamReader(self, schema: t.StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        if not HAS_STREAMS:
            raise ConfigError(
                f"a stream of format {FORMAT} needs PySpark 4.2 or later. Upgrade PySpark, or use "
                "read"
            )
        return ChangesStreamReader(schema, read_options(options_for(schema, self._given)))


class _Reader:
    """A reader of batches of the log. Its tasks read the parts of batches."""

    def __init__(self, schema: t.StructType, options: ChangeOptions) -> None:
        self._schema, self._options = schema, options

    def read(self, partition: InputPartition) -> Batches:
        """Yield the events of a part. An empty log has a single part without events."""
        if partition.value is not None:
            yield from _read(self._schema, self._options, partition.value)


class ChangesReader(_Reader, DataSourceReader):
    """All events of the log at the moment when reading begins."""

    @without_frames()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts of the log, which is read as it is now."""
        options = self._options
        log = ChangeLog(
            options.config, start_from=options.start_from, with_document=options.with_document
        )
        try:
            start = log.first()._replace(rows=0)
            parts = _partitions(log, self._schema, options, start, log.latest(start))
        finally:
            log.close()
        return parts or [InputPartition(None)]


# --- the stream -----------------------------------------------------------------------------------

_SHORTEST_WAIT: Final = 0.01
_LONGEST_WAIT: Final = 0.25
"""The longest wait in seconds before a log without new rows is polled again: without a wait, Spark
would poll a hundred times per second.
"""


class ChangesStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The events of the log as they arrive. In the driver's process the object has a connection to
    the database.
    """

    _log: ChangeLog | None = None
    _wait: float = 0.0
    _is_bounded: bool = False
    _target: Offset | None = None
    _moved: JsonOffset | None = None

    def __getstate__(self) -> Any:
        return self._schema, self._options  # the state of the object when it is sent to the tasks

    def __setstate__(self, state: Any) -> None:
        self._schema, self._options = state

    @property
    def log(self) -> ChangeLog:
        """The log of this stream."""
        if self._log is None:
            options = self._options
            self._log = ChangeLog(
                options.config, options.consumer, options.start_from, options.with_document
            )
        return self._log

    @without_frames()
    def initialOffset(self) -> JsonOffset:  # noqa: N802 - Spark's name, as the names below
        """Return the beginning of a new query."""
        return self.log.first().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of rows in a batch."""
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record that the stream ends where the log ends now."""
        self._is_bounded = True

    @without_frames()
    def latestOffset(self, start: JsonOffset, limit: ReadLimit) -> JsonOffset:  # noqa: N802
        """Return the end of the next batch; ``start`` if there is nothing to read."""
        begin = offset_of(start)
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if self._is_bounded and self._target is None:
            self._target = self.log.latest(begin)
        if begin.rows is None:
            # The first batch has no rows. If a query fails in it, Spark calls ``initialOffset``
            # again, but keeps the end of the batch.
            return begin._replace(rows=0).as_json()
        if self._wait and not self._is_bounded:
            sleep(self._wait)
        end = self.log.latest(begin, max_rows, self._target)
        if end is begin:
            if start != self._moved:
                # Spark asks only when the batch before is done, but would commit its end with the
                # next batch: a stream that stops here would seem late until its next run.
                self.log.move(begin)
                self._moved = start
            self._wait = min(max(2 * self._wait, _SHORTEST_WAIT), _LONGEST_WAIT)
            return start
        self._wait = 0.0
        return end.as_json()

    def partitions(self, start: JsonOffset, end: JsonOffset) -> Sequence[InputPartition]:
        """Return the parts of a batch."""
        return _partitions(self.log, self._schema, self._options, offset_of(start), offset_of(end))

    def commit(self, end: JsonOffset) -> None:
        """Record the rows up to ``end`` as done by the consumer, if there is one."""
        self.log.move(offset_of(end))

    def stop(self) -> None:
        """Close the connection."""
        if self._log is not None:
            self._log.close()
