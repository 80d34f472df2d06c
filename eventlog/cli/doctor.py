"""``eventlog doctor``: what is wrong with log, triggers and rows, and what mends it (spec/event-log.md 11)."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Final

import click

from eventlog.cli import Command
from eventlog.cli.context import Context, json_option, print_json, result
from eventlog.cli.settings import print_settings
from eventlog.cli.triggers import planned_triggers
from eventlog.config.load import Effective, effective
from eventlog.errors import ConfigError
from eventlog.publisher.doctor import examine
from eventlog.sql.doctor import Finding, Limits

COLOURS: Final = {"error": "red", "warning": "yellow", "info": "cyan"}


@click.command(cls=Command)
@click.option("--sample", type=click.IntRange(min=1), default=Limits().sample, metavar="ROWS",
              help="How many of the newest rows are checked for their status and key.")  # fmt: skip
@click.option("--ignore", multiple=True, metavar="CODE", help="Leave out findings with this code; repeatable.")
@json_option
@click.pass_obj
def doctor(context: Context, sample: int, ignore: tuple[str, ...], as_json: bool) -> int:
    """Say what is wrong with the log, its triggers and its rows, and what mends it. Nothing is changed.

    A finding is an error (changes are lost, or nothing is published), a warning (something needs mending) or an info
    (good to know). Errors and warnings give exit code 1.
    """
    config = context.config()
    if config.source.type is not None and config.database.url is None:
        raise ConfigError("doctor looks at a log; a source is looked at by `eventlog status` and `publish --dry-run`")
    limits = Limits(sample=sample)
    findings = [one for one in examine(config, planned_triggers, limits) if one.code not in ignore]
    settings = list(effective(config))
    counts = Counter(one.severity for one in findings)
    if as_json:
        print_json(
            {
                "log": config.database.log_table,
                "errors": counts["error"],
                "warnings": counts["warning"],
                "findings": [asdict(one) for one in findings],
                "settings": [setting._asdict() for setting in settings],
            }
        )
    else:
        _print(findings, settings, context.quiet)
    return 1 if counts["error"] or counts["warning"] else 0


def _print(findings: list[Finding], settings: list[Effective], quiet: bool) -> None:
    for one in findings:
        if quiet and one.severity == "info":
            continue
        result(f"{one.severity}: ", colour=COLOURS[one.severity], bold=True, end="")
        result(f"{one.text} [{one.code}]")
        for line in one.mend:
            result(f"    {line}")
    if quiet:
        return
    changed = [setting for setting in settings if setting.source != "default"]
    if changed:
        result("Settings in effect, all others are at their defaults (`eventlog config` shows them):")
        print_settings(changed)
    counts = Counter(one.severity for one in findings)
    if counts["error"] or counts["warning"]:
        result(f"errors: {counts['error']}, warnings: {counts['warning']}")
    else:
        result("Nothing is wrong.")
