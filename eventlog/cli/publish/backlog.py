"""The command ``eventlog backlog``: its requests, with options and help."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from eventlog.cli import Group
from eventlog.cli.command import Request
from eventlog.cli.context import (
    CommandContext,
    dry_option,
    file_option,
    flag_option,
    json_option,
    master_option,
    name_option,
)
from eventlog.config.settings import DEFAULT_FORMAT
from eventlog.files.compression import COMPRESSIONS
from eventlog.registry import FORMATS

_FILE_LAYOUTS: Final = ("lines", "documents", "parquet", "csv", "json")
_SIZE: Final = re.compile(r"(\d+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class _Size(click.ParamType[int]):
    """A size in bytes, such as ``256MiB``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a size; write it as 64MiB or 1GiB", param, ctx)
        return int(match[1]) * _UNITS[match[2].upper()]


@click.group(cls=Group)
def backlog() -> None:
    """Convert a whole backlog to files of documents, with Spark.

    Between run and mark the rows are claimed: publishers skip them and later rows of their objects.
    """


class _BacklogRequest(Request):
    def run(self, context: CommandContext) -> Any:
        # The configured format is replaced: messages need Kafka where they are published,
        # but this job writes files.
        config = context.with_flags({"format.type": DEFAULT_FORMAT}).config()
        return self.runner()(context, self, config)


_out_option = click.option(
    "--out", required=True, metavar="DIR", help="Directory or URI of the output."
)
_connections_option = click.option(
    "--connections", type=click.IntRange(min=0), default=0, metavar="NUMBER",
    help="Maximum open connections, in addition to the Spark driver's two; 0 = as many as tasks "
    "run.",
)  # fmt: skip
_partition_rows_option = click.option(
    "--partition-rows", type=click.IntRange(min=1), default=200_000, metavar="ROWS",
    help="Maximum rows that one task reads and writes.",
)  # fmt: skip
_acknowledge_option = click.option(
    "--acknowledge", type=click.Choice(["mark", "delete"]),
    help="Set the status of the rows when they are marked (about 4 us each on the server, and a "
    "dead row to vacuum), or delete them (0.6 us).  [default: delete if delete_from_log is set]",
)  # fmt: skip


@name_option("--format", group=FORMATS, can=("publish", "tables"),
             default=DEFAULT_FORMAT, metavar="FORMAT",
             help="Output format: {names}.")  # fmt: skip
@file_option(
    "--options",
    help="Options of the format's writer, TOML or JSON, as for `eventlog convert`; XDS: none.",
)
@click.option(
    "--last-sequence",
    metavar="SEQUENCE",
    help="Qlik formats: the change sequence after which numbering continues.",
)
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    help="Directory or URI for the output. It must be empty or not exist yet.",
)
@master_option
@click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Spark; repeatable.",
)
@flag_option(
    "--mark",
    help="When all documents are complete, mark exactly the rows that were read, as "
    "`backlog mark` does.",
)
@click.option("--file-layout", type=click.Choice(_FILE_LAYOUTS), metavar="LAYOUT",
              help="File layout: lines, documents (one file per document) or parquet (one row per "
              "event); Qlik messages: lines; change tables: parquet, csv or json.  "
              "[default: the first of these]")  # fmt: skip
@click.option("--compression", type=click.Choice(list(COMPRESSIONS)), default="none",
              help="Compression of the files.")  # fmt: skip
@click.option("--max-file-size", "max_file_bytes", type=_Size(), default="256MiB", metavar="SIZE",
              help="Maximum size of a file, such as 64MiB or 1GiB.")  # fmt: skip
@_partition_rows_option
@_connections_option
@_acknowledge_option
@flag_option(
    "--no-claim",
    help="Claim no rows: publishers send them as well, and nothing can be marked.",
)
@json_option
class Run(_BacklogRequest):
    """Convert all rows of status N to files: the events that `publish` would send, in the same
    order.

    The job takes the lock of the log. DIR is complete when it holds _SUCCESS. If DIR is complete,
    nothing is converted; if it is incomplete, the job starts over.
    """

    def __init__(self, **chosen: Any) -> None:
        self.chosen: Final[Mapping[str, Any]] = chosen
        """The fields of the job's request."""


@_out_option
@_connections_option
@_acknowledge_option
@dry_option("Count the rows that would be marked; mark nothing.")
@json_option
@dataclass(frozen=True)
class Mark(_BacklogRequest):
    """Mark exactly the rows whose documents DIR holds, once the receiver has them.

    Each file is first compared with what was written. After a kill, run the command again: it
    continues where it stopped.
    """

    out: str
    connections: int
    acknowledge: str | None
    dry: bool


@master_option
@_partition_rows_option
@json_option
@dataclass(frozen=True)
class Estimate(_BacklogRequest):
    """Print the rows, parts and bytes of the backlog, and the times to expect. Starts no Spark."""

    master: str | None
    partition_rows: int


@_out_option
@flag_option("--force", help="Release the rows even if marking has started.")
@dry_option("Count what would be given back; change nothing.")
@json_option
@dataclass(frozen=True)
class Release(_BacklogRequest):
    """Give the rows that DIR claims back to the publisher; its files are then no longer valid."""

    out: str
    force: bool
    dry: bool


for request in (Run, Mark, Estimate, Release):
    backlog.command()(request)
