"""``eventlog health``: whether the publisher of this machine makes progress; for health checks of containers."""

from __future__ import annotations

import time
from pathlib import Path

import click

from eventlog.cli.context import Context
from eventlog.cli.output import json_option, print_json, result
from eventlog.errors import ConfigError
from eventlog.publisher.liveness import read_health


@click.command()
@click.option("--file", "path", type=click.Path(path_type=Path), metavar="FILE", help="In place of health_file.")
@json_option
@click.pass_obj
def health(context: Context, path: Path | None, as_json: bool) -> int:
    """Say whether the publisher makes progress, by the file that it touches (publisher.health_file).

    Exit code 1 if it has not answered an envelope or ended a cycle well for too long: it hangs, does not run, or
    cannot reach the receiver or the database. The database is not asked.
    """
    file = path or context.config().publisher.health_file
    if file is None:
        raise ConfigError(
            "no health file is given: set health_file in [publisher] of eventlog.toml, "
            "EVENTLOG_PUBLISHER_HEALTH_FILE, or --file"
        )
    found = read_health(file, time.time())
    if as_json:
        print_json(found._asdict())
    elif not (context.quiet and found.is_healthy):
        result(f"{'healthy' if found.is_healthy else 'not healthy'}: {found.reason}")
    return 0 if found.is_healthy else 1
