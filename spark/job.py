"""What every worker knows of a job: the log, its classes and options, the snapshot and the parts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from eventlog.config.load import Config
from eventlog.config.settings import SinkSettings
from eventlog.core.catalog import Catalog, Database
from eventlog.publisher.context import Context, Counters, PublisherOptions
from eventlog.publisher.open import catalog_of, xds_format
from eventlog.qlik.sequence import WriterState
from eventlog.sql.bulk import Part
from eventlog.sql.connection import as_database_errors, connect, dialect_of
from spark.log_source import Place, worker_url


class Numbered(NamedTuple):
    """What some changes take of a numbering: how many numbers, the greatest time prefix, and the tables they are of."""

    number: int = 0
    prefix: str = ""
    tables: frozenset[str] = frozenset()

    @property
    def state(self) -> WriterState:
        """The state of a sequence writer that has numbered them."""
        return WriterState(self.prefix, self.number)


NOTHING = Numbered()


def total(several: Iterable[Numbered]) -> Numbered:
    """What several take together."""
    number, prefix = 0, ""
    tables: set[str] = set()
    for one in several:
        number += one.number
        prefix = max(prefix, one.prefix)
        tables |= one.tables
    return Numbered(number, prefix, frozenset(tables))


def before_each(taken: dict[int, Numbered], parts: int) -> Iterator[tuple[int, Numbered]]:
    """For every part, from 1 to ``parts``, what the parts before it take; parts that nothing precedes are left out."""
    before = NOTHING
    for part in range(1, parts + 1):
        if before is not NOTHING:
            yield part, before
        if part in taken:
            before = total((before, taken[part]))


@dataclass(frozen=True, slots=True)
class Output:
    """Where the output goes and in what form.

    ``directory``: a path or a URI that driver and workers all reach. ``form``: lines, documents or parquet, of change
    tables parquet, csv or json; ``compression``: none, gzip or zstd; ``max_bytes`` of a file; ``batch_size`` events an
    envelope. ``format``: one of ``spark.output.formats``; ``options``: its writer's.
    """

    directory: str
    form: str
    compression: str
    max_bytes: int
    batch_size: int
    format: str = "xds"
    options: Any = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it travels to the workers. ``name``: no other run has it; ``config`` without secrets.

    ``parts``: the ranges of record_ids, ascending; output part ``n`` holds the events whose first row is in
    ``parts[n - 1]``. ``in_flight``: rows that are recorded in flight and so are not folded. ``buckets``: into how many
    the objects of border rows are divided. ``started`` is the time in all that says when it was made. ``before``: what
    was numbered before the first part.
    """

    name: str
    place: Place
    snapshot: str
    config: Config
    database: Database
    tables: tuple[str, ...] | None
    options: PublisherOptions
    parts: tuple[Part, ...]
    in_flight: frozenset[int]
    buckets: int
    output: Output
    started: datetime
    before: Numbered = NOTHING

    def part_of(self, record_id: int) -> int:
        """The number, from 1, of the part that a row was read in."""
        return bisect_right(self.parts, record_id, key=_FIRST)


_FIRST: Final = attrgetter("first")


def without_settings_of_others(config: Config) -> Config:
    """The configuration as workers get it: without sinks, sources and secrets."""
    database = replace(config.database, url=None, url_file=None, password=None)
    return replace(
        config, database=database, sink=SinkSettings(form=config.sink.form), sources={}, warnings=(), url_of_file=None
    )


_catalogs: dict[str, Catalog] = {}


def catalog(job: Job) -> Catalog:
    """The classes of the job, built once a process."""
    if job.name not in _catalogs:
        _catalogs.clear()
        _catalogs[job.name] = catalog_of(job.config, job.database, job.tables, job.place.log)
    return _catalogs[job.name]


@contextmanager
def snapshot_context(job: Job) -> Iterator[Context]:
    """A context whose connection sees the job's snapshot, for reading; its transaction ends with the block.

    Raises DatabaseError for what fails in the block too.
    """
    url = worker_url(job.place.url, job.place.url_file)
    dialect = dialect_of(url)
    with connect(url).connect() as connection:
        conn: Connection = connection.execution_options(**dialect.snapshot_options)
        with as_database_errors(conn):
            dialect.join_snapshot(conn, job.snapshot)
            yield Context(conn, dialect, job.place.log, catalog(job), job.options, xds_format(job.config), Counters())
