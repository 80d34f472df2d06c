"""The command ``eventlog grants``: its request, with options and help."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eventlog.cli import command
from eventlog.cli.command import Request
from eventlog.cli.context import json_option
from eventlog.sql.port import Purpose


def _named(_context: click.Context, _parameter: click.Parameter, role: str) -> str:
    if not role.strip():
        raise click.BadParameter("the name is empty; name the role that needs the rights")
    return role


@click.argument("role", callback=_named)
@click.option(
    "--purpose",
    "purpose",
    type=click.Choice([purpose.value for purpose in Purpose]),
    metavar="PURPOSE",
    default="publisher",
    help="The role's job: "
    + "; ".join(
        f"{purpose}{' (default)' if purpose is Purpose.PUBLISHER else ''}: {purpose.work}"
        for purpose in Purpose
    )
    + ".",
)
@json_option
@dataclass(frozen=True)
class Grants(Request):
    """Print the rights that ROLE needs on the log, its internal tables and the watched tables, as
    SQL.

    Nothing is run: the owner of the log and of the tables runs the statements. If a new table
    matches a pattern, it needs a GRANT too; `eventlog doctor`, run as the role, lists missing
    rights.
    """

    role: str
    purpose: str


grants = command(Grants)
