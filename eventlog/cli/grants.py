"""``eventlog grants``: the rights that a role needs, as SQL."""

from __future__ import annotations

import click

from eventlog.cli import Command
from eventlog.cli.context import CommandContext, json_option, print_json, reading, result
from eventlog.publisher.grants import PURPOSES, grants_for


def _named(_context: click.Context, _parameter: click.Parameter, role: str) -> str:
    if not role.strip():
        raise click.BadParameter("the name is empty; name the role that needs the rights")
    return role


@click.command(cls=Command)
@click.argument("role", callback=_named)
@click.option(
    "--for",
    "purpose",
    type=click.Choice(list(PURPOSES)),
    default="publisher",
    help="What the role does: publisher (default); consumer, beside the publisher; stream, by "
    "Spark; monitor: status, top, errors, `consumers list`, `triggers plan`.",
)
@json_option
@click.pass_obj
def grants(context: CommandContext, role: str, purpose: str, as_json: bool) -> None:
    """Print the rights that ROLE needs on the log, its companions and the watched tables, as SQL.

    Nothing is run: the owner of the log and of the tables runs it. A table that a pattern will
    match later needs its GRANT then; `eventlog doctor` of the role names what is missing.
    """
    config = context.config()
    with reading(config) as db:
        statements = grants_for(db, config, role, purpose)
    if as_json:
        print_json({"role": role, "for": purpose, "grants": statements})
        return
    end = ";" if "roles" in db.dialect.capabilities else ""
    for statement in statements:
        result(f"{statement}{end}")
