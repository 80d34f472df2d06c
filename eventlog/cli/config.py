"""``eventlog config``: the settings in effect."""

from __future__ import annotations

import click

from eventlog.cli.context import Context
from eventlog.cli.output import print_json, table
from eventlog.config.load import effective
from eventlog.core.options import toml


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs, on standard output.")
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
