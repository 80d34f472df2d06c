"""``eventlog init``: a commented eventlog.toml, made from the options themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Final

import click

from eventlog.cli.context import DEFAULT_FILE, Context
from eventlog.cli.output import note
from eventlog.errors import ConfigError
from eventlog.options import BASE, BOOLEAN, COLUMN_MAP, NAMES, PATH, TEXT, URL, Option, options_of, toml
from eventlog.settings import SECTIONS, WatchSettings

SELF_EXPLAINING: Final = (BASE, BOOLEAN, COLUMN_MAP, NAMES, PATH, TEXT, URL)
"""Kinds whose values show by themselves what is legal."""


@click.command()
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
@click.option("--from-driver", type=click.Path(path_type=Path), metavar="FILE",
              help="Take over the exported configuration (XML) of the vendor's JDBC driver.")  # fmt: skip
@click.pass_obj
def init(context: Context, force: bool, from_driver: Path | None) -> None:
    """Write a commented eventlog.toml (or the FILE of --config) with every option and its default.

    With --from-driver: with the parameters of a driver's export. What cannot be taken over is named, in the file too;
    passwords are not read.
    """
    path = context.config_file or DEFAULT_FILE
    text, not_taken = (template(), []) if from_driver is None else _from_driver(from_driver)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} is there already; --force overwrites it") from None
    for sentence in not_taken:
        note(f"not taken over: {sentence}")
    if not context.quiet:
        then = "Set url and a [[watch]], then: eventlog db upgrade, eventlog triggers apply"
        if from_driver is not None:
            then = "Look through it, then: eventlog db upgrade --companions-only, eventlog publish --dry-run"
        note(f"{path} written. {then}")


def _from_driver(export: Path) -> tuple[str, list[str]]:
    """The file that a driver's export gives, and what was not taken over. Raises ConfigError."""
    # Reads XML, which most of the command line does without.
    from eventlog.driver_config import read_driver, toml_text

    try:
        driver = read_driver(export.read_bytes())
    except OSError as error:
        raise ConfigError(f"--from-driver {export}: cannot be read: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"--from-driver {export}: {error}") from None
    return toml_text(driver, export.name), [f"{one.name}: {one.reason}" for one in driver.not_taken]


def template() -> str:
    """The text of the file: a line of help and the default for every option, all commented out."""
    lines = [
        "# eventlog.toml: every option with its default, or an example where it has none; take the # off to change it.",
        "# EVENTLOG_<SECTION>_<KEY> in the environment overrides this file, --set SECTION.KEY=VALUE overrides both.",
        "# `eventlog config` shows what is in effect.",
        "",
    ]
    for section, settings in SECTIONS.items():
        lines += [f"[{section}]", *_options(settings), ""]
    lines += ["# One [[watch]] for each table or view whose changes are to be logged.", "#[[watch]]"]
    return "\n".join([*lines, *_options(WatchSettings)]) + "\n"


def _options(settings: type) -> Iterator[str]:
    defaults = {field.name: field.default for field in fields(settings)}
    for key, option in options_of(settings).items():
        if option.secret:
            yield f"# {key}: {option.about}"
            continue
        has_default = defaults[key] not in (None, ())
        mark = "" if has_default or not option.example else "  # example"
        yield f"# {_help(option)}"
        yield f"#{key} = {toml(defaults[key] if has_default else option.example)}{mark}"


def _help(option: Option) -> str:
    legal = "" if option.kind in SELF_EXPLAINING else f": {option.kind.legal}"
    idm = "" if option.idm is None else f"; profile idm: {toml(option.idm)}"
    return f"{option.about}{legal}{idm}"
