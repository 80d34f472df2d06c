"""``eventlog config``: the settings in effect."""

from __future__ import annotations

import click

from eventlog.cli.context import Context
from eventlog.cli.output import json_option, print_json, table
from eventlog.config.load import effective
from eventlog.core.options import toml


@click.command()
@json_option
@click.pass_obj
def config(context: Context, as_json: bool) -> None:
    """Show the settings in effect and where each came from. Secrets are masked."""
    settings = list(effective(context.config()))
    if as_json:
        print_json([setting._asdict() for setting in settings])
        return
    rows = [
        (f"{setting.section}.{setting.key}", None if setting.value is None else toml(setting.value), setting.source)
        for setting in settings
    ]
    table(("setting", "value", "from"), rows)
