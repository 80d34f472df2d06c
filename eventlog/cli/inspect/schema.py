"""The commands ``eventlog schema`` and ``eventlog catalog``: their requests and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import command
from eventlog.cli.command import Request


@click.argument("class_name", metavar="CLASS")
@dataclass(frozen=True)
class Schema(Request):
    """Print the JSON Schema of the data of CloudEvents of CLASS, a watched table or view.

    The options integers, nested_values and dataschema of [format.cloudevents] apply; dataschema
    names the schema. There is no --json, since the result is JSON.
    """

    class_name: str


schema = command(Schema)


class Catalog(Request):
    """Print the catalogue of the watched tables and views and of their child tables as JSON.

    `eventlog convert` takes it as the option `catalog` of its options file. With it, text becomes
    numbers, dates and bytes on a machine without access to the database. There is no --json, since
    the result is JSON.
    """


catalog = command(Catalog)
