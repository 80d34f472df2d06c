"""The commands ``eventlog schema`` and ``eventlog catalog``: options and help."""

from __future__ import annotations

import click

from eventlog.cli import Command
from eventlog.cli.context import CommandContext


@click.command(cls=Command)
@click.argument("class_name", metavar="CLASS")
@click.pass_obj
def schema(context: CommandContext, class_name: str) -> None:
    """Print the JSON Schema of the data of CloudEvents of CLASS, a watched table or view.

    The options integers, nested_values and dataschema of [format.cloudevents] apply; dataschema
    names the schema. There is no --json, since the result is JSON.
    """
    from eventlog.cli.inspect.runs.schema import run_schema

    run_schema(context, class_name)


@click.command(cls=Command)
@click.pass_obj
def catalog(context: CommandContext) -> None:
    """Print the catalogue of the watched tables and views and of their child tables as JSON.

    `eventlog convert` takes it as the option `catalog` of its options file. With it, text becomes
    numbers, dates and bytes on a machine without access to the database. There is no --json, since
    the result is JSON.
    """
    from eventlog.cli.inspect.runs.schema import run_catalog

    run_catalog(context)
