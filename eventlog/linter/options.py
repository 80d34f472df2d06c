"""The options of a Linter queue: for its places, and for reading and writing these places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from eventlog.changes.json_form import CATALOG, CatalogOption
from eventlog.core.options import (
    FLAG,
    STRING,
    CheckedOptions,
    integer,
    option,
    shared,
)
from eventlog.linter.dispatch_tables import (
    TableAttrs,
)
from eventlog.linter.reader import DISPATCH_ATTRS

QUEUE: Final = "dispatch_queue"
ATTRS: Final = "dispatch_attrs"


@dataclass(frozen=True, slots=True)
class PlaceOptions(CheckedOptions):
    """The places of the two tables, in files and in a database."""

    attrs: str | None = option(
        None, STRING, "file of DISPATCH_ATTRS, if it is not in the queue's directory"
    )
    queue_table: str = option(QUEUE, STRING, "name of the queue's table in a database")
    attrs_table: str = option(
        ATTRS, STRING, "name of the table that describes the replicated tables"
    )
    schema: str | None = option(None, STRING, "schema of these two tables")


@dataclass(frozen=True, slots=True)
class SourceOptions(PlaceOptions):
    """Options of a source. The options of the reader complement them.

    ``catalog`` is accepted because a conversion gives it to both sides; a queue describes its
    tables itself.
    """

    dispatch_attrs: Mapping[int, TableAttrs] = shared(DISPATCH_ATTRS)
    batch_rows: int = option(10_000, integer(1), "number of rows per read from a database")
    final: bool = option(True, FLAG, "return all changes now, and keep none for a later read")
    catalog: CatalogOption = shared(CATALOG)


@dataclass(frozen=True, slots=True)
class TargetOptions(PlaceOptions):
    """Options of a target. The options of the writer complement them.

    Tables that a database lacks are created.
    """

    files: str = option("csv", STRING, "format of the files in a directory: csv, jsonl or parquet")
