"""The event log as a Spark data source: ``spark.read.format("eventlog")``.

Partitions are ranges of record_ids with about equal numbers of rows; one database session reads
each partition as Arrow batches, in record_id order. With ``snapshot`` all sessions read the same
database snapshot.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

# PySpark 4.1 introduced filters; earlier versions do not pass filters to a source.
from pyspark.sql import datasource as ds
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampNTZType
from sqlalchemy import URL

from eventlog.config.kinds import masked, secrets_of
from eventlog.config.load import Config, load
from eventlog.config.settings import MonitorSettings, SinkSettings, SourceSettings
from eventlog.core.secrets import read_secret
from eventlog.errors import ConfigError
from eventlog.model import LOG_COLUMNS, is_status
from eventlog.spark.session.closed_output import expect_closed_output
from eventlog.spark.session.in_tasks import Batches, without_frames
from eventlog.sql.connect import connect, dialect_of, locate_log, parse_url
from eventlog.sql.log import refuse_large_ids
from eventlog.sql.log_table import LogTable
from eventlog.sql.port import Purpose


@dataclass(frozen=True, slots=True)
class LogLocation:
    """The location of a log for workers. ``url`` contains no secrets. ``url_file`` is a file that
    contains the whole URL. If ``url_file`` is None, a worker takes the whole URL from its
    environment variables.
    """

    url: str
    url_file: str | None
    log: LogTable


@contextmanager
def place_for(url: URL, log: LogTable, *, on_this_machine: bool) -> Iterator[LogLocation]:
    """Yield the location of a log that this process reaches with ``url``. The location is valid
    until the end of the block.

    On this machine the workers read the whole URL from a nameless file in memory. Only the user of
    this process can open this file, and the file never outlives the process.
    """
    shown = without_secrets(url)
    if not on_this_machine:
        yield LogLocation(shown, None, log)
        return
    with os.fdopen(os.memfd_create("eventlog-url"), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(url.render_as_string(hide_password=False))
        file.flush()
        yield LogLocation(shown, f"/proc/{os.getpid()}/fd/{file.fileno()}", log)


def without_foreign_settings(config: Config) -> Config:
    """Return the configuration for workers: without sinks, sources and secrets."""
    return replace(
        config,
        database=replace(config.database, url=None, password=None),
        sink=SinkSettings(),
        source=SourceSettings(),
        monitor=MonitorSettings(),
        format=replace(config.format, mask_secret=None),
        sources={},
        warnings=(),
        url_of_file=None,
    )


def with_mask_secret(config: Config) -> Config:
    """Return the configuration of a worker with the key of its masks: from
    EVENTLOG_FORMAT_MASK_SECRET or EVENTLOG_FORMAT_MASK_SECRET_FILE, otherwise from the file that
    the configuration names. Raises ConfigError.
    """
    if config.format.mask_secret is not None or not config.masks:
        return config
    setting = "EVENTLOG_FORMAT_MASK_SECRET"
    names = [name for name in (setting, f"{setting}_FILE") if name in os.environ]
    secret = load(None, {name: os.environ[name] for name in names}).format.mask_secret
    file = config.secret_files.get("format.mask_secret")
    if secret is None and file is not None:
        secret = load({"format": {"mask_secret_file": str(file)}}, {}).format.mask_secret
    return replace(config, format=replace(config.format, mask_secret=secret))


def without_secrets(url: URL) -> str:
    """Return the URL without its passwords, wherever they are."""
    bare = url.difference_update_query(secrets_of(url))
    return URL.create(
        bare.drivername, bare.username, None, bare.host, bare.port, bare.database, bare.query
    ).render_as_string()


def worker_url(url: str, url_file: str | None) -> URL:
    """Return the URL with which this process connects.

    The URL comes from ``url_file``. If ``url_file`` is None, the URL comes from
    EVENTLOG_DATABASE_URL or EVENTLOG_DATABASE_URL_FILE, or else it is ``url``;
    EVENTLOG_DATABASE_PASSWORD then adds the password. Raises ConfigError.
    """
    if url_file is not None:
        return parse_url(read_secret(Path(url_file), "the option url_file").strip())
    settings = ("EVENTLOG_DATABASE_URL", "EVENTLOG_DATABASE_PASSWORD")
    names = [name for setting in settings for name in (setting, f"{setting}_FILE")]
    database = load(None, {name: os.environ[name] for name in names if name in os.environ}).database
    parsed = parse_url(database.url or url)
    return parsed if database.password is None else parsed.set(password=database.password)


FORMAT: Final = "eventlog"
PARTITION_ROWS: Final = 200_000
"""The maximum number of rows in a partition by default: the worker of a backlog job has the events
of a partition in memory.
"""

LAST_ID: Final = 2**63 - 1
"""The greatest record_id that Spark's numbers can hold."""

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"

_TYPES: Final = {
    "record_id": LongType(),
    "event_type": LongType(),
    "event_time": TimestampNTZType(),
}
SCHEMA: Final = StructType(
    [StructField(name, _TYPES.get(name, StringType())) for name in LOG_COLUMNS]
)


_OF_CATALOGUE: Final = frozenset({"owner", "provider"})
_OF_TABLE: Final = "option."
_OPTIONS: Final = "eventlog.options"


SparkOptions = Mapping[str, str]
"""The options of a source by name."""


def without_spark_options(options: SparkOptions) -> dict[str, str]:
    """Return the options of a source without the options that Spark adds for a table of its
    catalogue (``CREATE TABLE ... USING``): ``owner``, ``provider``, and each option a second time
    with the prefix ``option.``.
    """
    return {
        name: value
        for name, value in options.items()
        if name.lower() not in _OF_CATALOGUE and not name.lower().startswith(_OF_TABLE)
    }


def for_catalogue(schema: StructType, options: SparkOptions) -> StructType:
    """Return the schema. If the schema belongs to a table of Spark's catalogue, the options are
    added. Spark passes the schema to the reader of a table of its catalogue, but not the options.
    """
    if "provider" not in {name.lower() for name in options}:
        return schema
    first, *others = schema.fields
    with_options = StructField(
        first.name,
        first.dataType,
        first.nullable,
        {_OPTIONS: json.dumps(without_spark_options(options))},
    )
    return StructType([with_options, *others])


def options_for(schema: StructType, options: SparkOptions) -> dict[str, str]:
    """Return the options of a reader: the options in its schema, and the given options."""
    stored = schema.fields[0].metadata.get(_OPTIONS) if schema.fields else None
    return {**(json.loads(stored) if stored else {}), **without_spark_options(options)}


def log_source(spark: SparkSession) -> type[DataSource]:
    """Return the source for a session. The source accepts filters if the session pushes filters
    down.
    """
    takes_filters = spark.conf.get(_PUSHDOWN, "false") == "true"
    return FilteredLogDataSource if takes_filters else EventLogDataSource


class EventLogDataSource(DataSource):
    """The ten columns of the log under their standard names, whatever their names in the database.

    Options: ``url`` (without a password) or ``url_file`` (on every machine); ``log_table``,
    ``schema_name``, ``layout``, ``column_sort`` as in the configuration; ``status`` of the rows;
    ``first`` and ``last`` record_id; ``partition_rows``; ``snapshot``, which a transaction that is
    still open has exported (PostgreSQL: ``pg_export_snapshot()``).
    """

    @without_frames()
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = options
        options = without_spark_options(options)
        known = {*_TEXT_OPTIONS, *_INTEGER_OPTIONS}
        if unknown := sorted(set(options) - known):
            raise ConfigError(
                f"option {unknown[0]!r} of format eventlog is unknown; use one of "
                f"{', '.join(sorted(known))}"
            )
        url = options.get("url")
        if url and "***" in masked(url) != "***":
            raise ConfigError(
                "the option url contains a password, which Spark would show. Use url_file, or set "
                "EVENTLOG_DATABASE_PASSWORD in the environment of driver and executors"
            )

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return for_catalogue(SCHEMA, self._given)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _LogReader(options_for(schema, self._given))


class FilteredLogDataSource(EventLogDataSource):
    """The same data source for sessions that pass filters to the source."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FilteringReader(options_for(schema, self._given))


_TEXT_OPTIONS: Final = frozenset({
    "url", "url_file", "log_table", "schema_name", "layout", "column_sort", "status", "snapshot",
})  # fmt: skip
_INTEGER_OPTIONS: Final = frozenset({"first", "last", "partition_rows"})


class _LogReader(DataSourceReader):
    @without_frames()
    def __init__(self, options: dict[str, str]) -> None:
        # Spark ignores the case of option names, not of their values.
        self.options = {name.lower(): value for name, value in options.items()}
        self.status = self.options.get("status")
        if self.status is not None and not is_status(self.status):
            raise ConfigError(
                f"option status = {self.status!r} of format eventlog is not a status, such as N"
            )
        self.first, self.last = self._integer("first", 1), self._integer("last", LAST_ID)

    def _integer(self, name: str, default: int) -> int:
        text = self.options.get(name)
        try:
            return default if text is None else int(text)
        except ValueError:
            raise ConfigError(
                f"option {name} = {text!r} of format eventlog is not an integer"
            ) from None

    @without_frames()
    def partitions(self) -> Sequence[InputPartition]:
        url = worker_url(self.options.get("url", ""), self.options.get("url_file"))
        dialect = dialect_of(url)
        with connect(url).connect() as opened:
            conn = opened.execution_options(**dialect.snapshot_options)
            db = dialect.open(conn)
            if "snapshot" in self.options:
                if not dialect.shares_snapshots:
                    raise ConfigError(
                        f"sessions of {dialect.name} cannot share a database snapshot. Leave out "
                        "the option `snapshot`; even without it, rows that are committed after "
                        "the partitions were made are not read"
                    )
                db.join_snapshot(self.options["snapshot"])
            table = locate_log(
                db,
                name=self.options.get("log_table", "eventlog"),
                schema=self.options.get("schema_name"),
                layout=self.options.get("layout", "2.x"),
                column_sort=self.options.get("column_sort", "bytes"),
            )
            log = db.log(table)
            log.check_rights(Purpose.STREAM)
            refuse_large_ids(log)
            rows = self._integer("partition_rows", PARTITION_ROWS)
            parts = log.log_parts(self.status, self.first, self.last, rows, 1)
            db.prove_snapshot().refuse_changed()
        # What this process has found out reaches the workers only through the partitions.
        place = LogLocation(self.options.get("url", ""), self.options.get("url_file"), table)
        return [InputPartition((place, self.status, part)) for part in parts] or [
            InputPartition(None)
        ]

    def read(self, partition: InputPartition) -> Batches:
        if partition.value is not None:
            expect_closed_output()
            place, status, part = partition.value
            url, snapshot = worker_url(place.url, place.url_file), self.options.get("snapshot")
            yield from dialect_of(url).read_part(
                url, place.log, snapshot, status, part, LOG_COLUMNS
            )


class _FilteringReader(_LogReader):
    def pushFilters(self, filters: list[ds.Filter]) -> Iterator[ds.Filter]:  # noqa: N802 - Spark's name
        """Accept the filters that the database can apply: a status, and bounds of record_id."""
        for each in filters:
            match each:
                case ds.EqualTo(("status",), str(status)) if is_status(status) and self.status in (
                    None,
                    status,
                ):
                    self.status = status
                case ds.IsNotNull(("record_id",)):
                    pass  # implied by the bounds
                case ds.EqualTo(("record_id",), int(value)):
                    self.first, self.last = max(self.first, value), min(self.last, value)
                case ds.GreaterThan(("record_id",), int(value)):
                    self.first = max(self.first, value + 1)
                case ds.GreaterThanOrEqual(("record_id",), int(value)):
                    self.first = max(self.first, value)
                case ds.LessThan(("record_id",), int(value)):
                    self.last = min(self.last, value - 1)
                case ds.LessThanOrEqual(("record_id",), int(value)):
                    self.last = min(self.last, value)
                case _:
                    yield each
