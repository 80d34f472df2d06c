"""``eventlog config``: the settings in effect."""

from __future__ import annotations

from collections.abc import Iterable

import click

from eventlog.cli.context import Context
from eventlog.cli.help import Command
from eventlog.cli.output import json_option, print_json, table
from eventlog.config.load import Effective, effective
from eventlog.core.options import toml


@click.command(cls=Command)
@json_option
@click.pass_obj
def config(context: Context, as_json: bool) -> None:
    """Show the settings in effect and where each came from. Secrets are masked."""
    settings = list(effective(context.config()))
    if as_json:
        print_json([setting._asdict() for setting in settings])
    else:
        print_settings(settings)


def print_settings(settings: Iterable[Effective]) -> None:
    """The settings as a table, each with where it came from."""
    table(
        ("setting", "value", "from"),
        [(f"{one.section}.{one.key}", None if one.value is None else toml(one.value), one.source) for one in settings],
    )
