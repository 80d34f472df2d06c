"""The command ``eventlog verify``: its request, with options and help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from eventlog.cli import command
from eventlog.cli.command import AddressedRequest
from eventlog.cli.context import (
    consumer_option,
    file_option,
    flag_option,
    json_option,
    limit_option,
    name_option,
)
from eventlog.registry import FORMATS

_SHOWN: Final = 20
"""How many objects are listed for people by default; --json and --report list all."""


@click.argument("classes", nargs=-1, metavar="[CLASS]...")
@click.option(
    "--target",
    envvar="EVENTLOG_TARGET",
    metavar="TARGET",
    help="What to compare: the URL of a database, a file, a directory, or the URI of objects in a "
    "store.  [default: the files or objects of the configured sink]",
)
@name_option(
    "--format",
    "format",
    group=FORMATS,
    can=("read_changes",),
    metavar="FORMAT",
    help="The format of files and objects: {names}.  [default: the configured format]",
)
@file_option(
    "--options",
    "map_file",
    help="TOML or JSON: names of tables and columns in the target that differ, or options of the "
    "reader of files.",
)
@consumer_option
@click.option("--wait", type=click.FloatRange(0), default=60.0, show_default=True,
              metavar="SECONDS", help="How long to wait for objects with changes that are not "
              "delivered yet.")  # fmt: skip
@click.option("--max-rows-per-second", type=click.FloatRange(0.001), metavar="ROWS",
              help="Maximum objects to read per second.")  # fmt: skip
@click.option("--batch", "size", type=click.IntRange(1, 1_000_000), default=5000, metavar="ROWS",
              help="Objects that are read at once.")  # fmt: skip
@file_option("--state", help="Save the progress in FILE, and continue from there if it exists.")
@click.option(
    "--repair",
    "repaired",
    is_flag=False,
    flag_value="changed",
    type=click.Choice(["changed", "surplus"]),
    metavar="[surplus]",
    help="Write different and missing objects to the log again, as resync does; with =surplus, "
    "also delete objects that only the target has.",
)
@flag_option("--show-values", help="Show values, not hashes.  [default: monitor.show_values]")
@limit_option("objects to list of each kind", _SHOWN)
@file_option("--report", help="Write the report to FILE, as JSON.")
@json_option
@dataclass(frozen=True)
class Verify(AddressedRequest):
    """Compare a target with the source, object by object, while the application writes and the
    publisher runs.

    An object is compared when the log shows that all of its changes are delivered. An object with
    later changes is compared again until --wait is over. Without CLASS all classes are compared.
    """

    classes: tuple[str, ...]
    target: str | None
    format: str | None
    map_file: Path | None
    consumer: str | None
    wait: float
    max_rows_per_second: float | None
    size: int
    state: Path | None
    repaired: str | None
    show_values: bool
    limit: int
    report: Path | None


verify = command(Verify)
