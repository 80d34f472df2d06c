"""``eventlog init`` and ``eventlog config``: write a commented eventlog.toml, made from the
declarations of the options, and show the settings in effect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from eventlog.cli import Command, command
from eventlog.cli.command import CommandResult, Request
from eventlog.cli.context import (
    DEFAULT_FILE,
    CommandContext,
    file_option,
    flag_option,
    json_option,
    log_named,
    note,
    reading,
    table,
)
from eventlog.config.effective import Effective, effective
from eventlog.config.kinds import BASE, COLUMN_MAP, URL, masked, url_of
from eventlog.config.load import Config, load
from eventlog.config.publishing import chosen_format
from eventlog.config.settings import (
    ARRAYS,
    Declared,
    installed_sections,
    listed_options,
    variable,
)
from eventlog.core.options import (
    BOOLEAN,
    NAME,
    NAMES,
    PATH,
    REQUIRED,
    TEXT,
    WEB_URL,
    options_of,
    toml,
)
from eventlog.errors import ConfigError, number_of, together

if TYPE_CHECKING:
    from eventlog.core.catalog import Database, Table
    from eventlog.sql.log_table import LogTable

SELF_EXPLAINING: Final = (BASE, BOOLEAN, COLUMN_MAP, NAME, NAMES, PATH, TEXT, URL, WEB_URL)
"""The kinds of options whose default values already show which values are allowed."""


@flag_option("--force", help="Overwrite the file if it exists.")
@file_option(
    "--from-driver",
    help="Import the exported configuration (XML) of the vendor's JDBC driver.",
)
@flag_option(
    "--tables",
    "fill",
    help="Write a [[watch]] for each table of the database that has a primary key.",
)
@json_option
@dataclass(frozen=True)
class Init(Request):
    """Write a commented eventlog.toml, or the FILE of --config, with every option and its default.

    With --from-driver the file has the parameters of the driver. The command lists those that
    cannot be imported, in the file too. Passwords are not read.

    With --tables the file has a [[watch]] for each table. The command lists the tables and views
    that are not watched, with the reason. An existing file that has no [[watch]] yet gets them at
    its end.
    """

    force: bool = False
    from_driver: Path | None = None
    fill: bool = False

    def __post_init__(self) -> None:
        if self.fill and (self.force or self.from_driver is not None):
            raise click.UsageError(
                "--tables only adds to a file, so give neither --force nor --from-driver with it"
            )

    def run(self, context: CommandContext) -> CommandResult:
        """Write the file."""
        path, export = context.config_file or DEFAULT_FILE, self.from_driver
        if self.fill:
            return _fill(context, path)
        text, left_out = (template(), []) if export is None else _from_driver(export)
        try:
            with path.open("w" if self.force else "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise ConfigError(f"{path} exists already; --force overwrites it") from None
        then = "Set url and a [[watch]], then run: eventlog db upgrade, eventlog triggers apply"
        if export is not None:
            has_url = not any(one.startswith("database URL: ") for one in left_out)
            then = (
                f"{'Review it' if has_url else 'Set url in [database] first and review the rest'}, "
                "then run: eventlog db upgrade --existing-log, eventlog publish --dry-run"
            )
        lines = [f"not imported: {sentence}" for sentence in left_out]
        if not context.quiet:
            lines.append(f"{path} written. {then}")
        return CommandResult(
            {"file": path, "not_imported": left_out},
            partial(note, "\n".join(lines)) if lines else "",
        )


init = command(Init)


def _fill(context: CommandContext, path: Path) -> CommandResult:
    """Add a watch for each table to the file, which is written first if it does not exist.

    Raises ConfigError.
    """
    # These imports load SQLAlchemy, which the rest of this command does not need.
    from eventlog.publisher.declared import class_schema
    from eventlog.sql.port import ask

    is_there = path.exists()
    config = context.config() if is_there else load(None, os.environ, context.flags)
    if config.watches:
        raise ConfigError(
            f"{path} has [[watch]] sections already: remove them, "
            "or name another file with --config"
        )
    with reading(config) as db:
        database, user = db.reflect(class_schema(config)), db.current_user()
        written = ask(db, "written_rows", WrittenRows, schema=database.schema)
        log = log_named(config, db.dialect, database.schema)
    watches, classes, left_out, children = watches_of(
        database,
        log,
        {one.table: one for one in written},
        of_rows=chosen_format(config).is_of_rows,
    )
    owner = ""
    if not is_there:
        before = _with_database(template(watch=False), config)
        if user and "\nurl = " in before:
            owner = (
                f"{path} has the URL of {user}. A publisher with this URL does not send "
                f"{user}'s changes. If {user} changes the tables, set url in [database] to a role "
                "that only publishes; `eventlog grants ROLE` prints its rights"
            )
        path.write_text(f"{before}\n{watches}", encoding="utf-8")
    else:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n{watches}")
    lines = []
    if children:
        of_owners = (f"{child} (of {owner})" for child, owner in children.items())
        lines.append(
            f"{number_of(len(children), 'child table')}, whose rows are values of other objects: "
            f"{', '.join(of_owners)}"
        )
    if left_out:
        not_watched = (f"{name} ({reason})" for name, reason in left_out.items())
        lines.append(f"{len(left_out)} not watched: {', '.join(not_watched)}")
    if owner:
        lines.append(owner)
    if not context.quiet:
        added = f"{path}: {len(classes)} [[watch]] {'added' if is_there else 'written'}"
        then = "Review them, then run: eventlog db upgrade, eventlog triggers plan"
        lines = [added, *lines, then]
    data = {
        "file": path,
        "watched": classes,
        "child_tables": children,
        "not_watched": left_out,
    }
    return CommandResult(data, partial(note, "\n".join(lines)) if lines else "")


class WrittenRows(NamedTuple):
    """What was written to a table since its statistics were reset, and the part of the rows that is
    not NULL, by column. Columns without statistics are missing; None = no column has any.
    """

    table: str
    inserts: int
    updates: int
    filled: Mapping[str, float] | None


def watches_of(
    database: Database, log: LogTable, written: Mapping[str, WrittenRows], *, of_rows: bool
) -> tuple[str, Sequence[str], Mapping[str, str], Mapping[str, str]]:
    """Return a [[watch]] for each table that can be a class, as TOML; the names of these tables;
    the other tables and views with the reason why they are not watched; and the owner of each child
    table.

    ``written`` are the statistics of tables, by name; a database may have none. ``of_rows``: the
    format holds no values of child tables, so a child table with a primary key
    becomes a separate class, and the values of any other child table are excluded.
    """
    from eventlog.core.catalog.builder import value_column
    from eventlog.sql.triggers.watch import internal_tables

    ignore = internal_tables(database, log)
    where = "" if database.schema is None else f" of schema {toml(database.schema)}"
    classes = _tables_to_watch(database, ignore, where, of_rows=of_rows)
    lines = [f"# The tables{where}, as `eventlog init --tables` found them."]
    seen = set(classes) | ignore
    owners: dict[str, str] = {}
    for name in classes:
        parent = next(table for table in database.tables if table.name == name)
        children = {  # those that are not seen yet, each with its column of values
            one.name: value.name
            for one in database.tables
            if one.name not in seen and (value := value_column(one, parent)) is not None
        }
        seen |= children.keys()
        owners |= dict.fromkeys(children, name) if not of_rows else {}
        lines += ["", "[[watch]]", f"table = {toml(name)}"]
        lines += _excludes(database, parent, classes, children, of_rows=of_rows)
        lines += _costs(parent, written.get(name))
    left_out = {
        one.name: "a view: see `view` and `base`" if one.kind == "view" else "no primary key"
        for one in database.tables
        if one.name not in seen
    }
    if left_out:
        lines += ["", *(f"# not watched: {toml(one)}, {why}" for one, why in left_out.items())]
    return "\n".join(lines) + "\n", classes, left_out, owners


def _tables_to_watch(
    database: Database, ignore: Collection[str], where: str, *, of_rows: bool
) -> Sequence[str]:
    """Return the tables that can be classes. Raises ConfigError if there are none.

    A table whose primary key is a foreign key has one row for each object of another table, so it
    is a class even if it has only one further column.
    """
    from eventlog.sql.triggers.watch import choose_tables

    with_key = [one for one in database.tables if one.primary_key and one.name not in ignore]
    if not any(one.kind == "table" for one in with_key):
        raise ConfigError(
            f"there is no table with a primary key{where or ' in the database'}: name the schema "
            "of the application's tables with --schema, or check whether this user may read them"
        )
    by_name = [
        one.name
        for one in with_key
        if of_rows or any(set(key.columns) == set(one.primary_key) for key in one.foreign_keys)
    ]
    choice = choose_tables(database, ["*", *by_name], ignore=ignore)
    if choice.refused:
        raise together(list(choice.refused.values()))
    return tuple(choice.tables)


def _excludes(
    database: Database,
    table: Table,
    classes: Sequence[str],
    children: Mapping[str, str],
    *,
    of_rows: bool,
) -> Iterator[str]:
    """Yield the lines about what a watch may leave out: child tables whose values the format cannot
    hold, and columns whose names look like secrets. The user decides about these columns.
    """
    from eventlog.sql.triggers.declared import looks_secret
    from eventlog.sql.triggers.watch import attribute_names

    keys = {(table.name, key) for key in table.primary_key}
    secrets = [
        one
        for one, place in attribute_names(database, table, classes).items()
        if looks_secret(one) and place not in keys
    ]
    if children and of_rows:
        values = [f"{child}.{value}" for child, value in children.items()]
        yield (
            f"exclude = {toml(values)}  # without its child tables: the format holds rows of one "
            "table"
        )
        if secrets:
            yield (
                "# named like secrets, add them to exclude unless they should be sent: "
                f"{toml(secrets)}"
            )
    elif secrets:
        yield (
            f"#exclude = {toml(secrets)}  # named like secrets: remove the #, unless they should "
            "be sent"
        )
    if not of_rows:
        yield from (f"# with its child table {toml(child)}" for child in children)


def _costs(table: Table, written: WrittenRows | None) -> Iterator[str]:
    """Yield what an insert costs in each style, for a table of many columns. The user chooses."""
    columns = [one.name for one in table.columns if one.name not in table.primary_key]
    filled = (None if written is None else written.filled) or {}
    logged = round(sum(filled.get(name, 1.0) for name in columns))
    if logged < _MANY_ROWS:
        return
    about = "about" if filled else "up to"
    so_far = "" if written is None else f"; {number_of(written.inserts, 'insert')} so far"
    if written is not None:
        so_far += f", {number_of(written.updates, 'update')}"
    yield (
        f'#row_style = "row_query_back"  # an insert logs 1 row; in the style field {about} '
        f"{logged} rows{so_far}"
    )


_MANY_ROWS: Final = 5
"""The rows of an insert from which the costs of the styles are shown."""


def _with_database(text: str, config: Config) -> str:
    """Return the text of the file with the schema, the log table and the URL that the command was
    given. The URL has no password.
    """
    settings = config.database
    values = {"schema_name": settings.schema_name, "log_table": settings.log_table}
    if settings.url is not None and "database.url" not in config.secret_files:
        url = masked(settings.url).replace(":***@", "@")
        values["url"] = None if "***" in url else url
    for key, value in values.items():
        if value is not None and config.sources[f"database.{key}"] != "default":
            line = f"{key} = {toml(value)}".replace("\\", "\\\\")  # re.sub reads backslashes
            text = re.sub(rf"^#{key} = .*$", line, text, count=1, flags=re.MULTILINE)
    return text


def _from_driver(export: Path) -> tuple[str, list[str]]:
    """Return the file made from a driver's export, and the parameters that were not imported.

    Raises ConfigError.
    """
    # This import loads an XML parser, which most commands do not need.
    from eventlog.config.idm import read_driver, toml_text

    try:
        driver = read_driver(export.read_bytes())
    except OSError as error:
        raise ConfigError(f"--from-driver {export}: cannot be read: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"--from-driver {export}: {error}") from None
    return toml_text(driver, export.name), [
        f"{name}: {reason}" for name, reason in driver.left_out.items()
    ]


def template(*, watch: bool = True) -> str:
    """Return the text of the file: a help line and the default for every option, all commented out.

    ``watch`` is True if the text has the options of a [[watch]].
    """
    lines = [
        "# eventlog.toml: every option with its default, or an example where it has none; remove "
        "the # to change it.",
        "# EVENTLOG_<SECTION>_<KEY> in the environment overrides this file, --set "
        "SECTION.KEY=VALUE overrides both.",
        "# `eventlog config` shows what is in effect.",
        "",
    ]
    for section in installed_sections():
        lines += [f"[{section}]", *_options(listed_options(section), section)]
        lines += [*_MORE.get(section, ()), ""]
    for name, kind in ARRAYS.items():
        if name != "watch" or watch:
            options = {key: Declared(one) for key, one in options_of(kind).items()}
            lines += [f"# {_ABOUT[name]}", f"#[[{name}]]", *_options(options, name), ""]
    return "\n".join(lines[:-1]) + "\n"


_MORE: Final = {
    "dead_letter": (
        "# The other options are those of [sink] for this type, for example:",
        '#url = "https://chat.example.org/hooks/abc"',
    ),
}
"""Further lines of a section."""

_ABOUT: Final = {
    "watch": "One [[watch]] for each table or view whose changes should be logged.",
    "filter": "One [[filter]] for a table or view of which the receiver gets only some objects.",
    "mask": "One [[mask]] for columns whose values the receiver gets in another form.",
}
"""What each array of tables is for."""


def _options(options: Mapping[str, Declared], section: str) -> Iterator[str]:
    for key, declared in options.items():
        option = declared.option
        if option.secret:
            by = f"by {variable(section, key)}, or in the file of {key}_file"
            yield f"# {key}: {declared.help}, {by}"
            continue
        has_default = option.default not in (None, (), REQUIRED)
        mark = "" if has_default or not option.example else "  # example"
        yield f"# {_help(declared)}"
        yield f"#{key} = {toml(option.default if has_default else option.example)}{mark}"


def _help(declared: Declared) -> str:
    option = declared.option
    legal = "" if option.kind in SELF_EXPLAINING else f": {option.kind.legal}"
    idm = "" if option.idm is None else f"; profile idm: {toml(option.idm)}"
    return f"{declared.help}{legal}{idm}"


# --- settings in effect ---------------------------------------------------------------------------


@json_option
class Settings(Request):
    """Show the settings in effect and where each came from. Secrets are masked."""

    def run(self, context: CommandContext) -> CommandResult:
        """Read the settings. Raises ConfigError."""
        config = context.config()
        if config.database.url is not None:
            url_of(config.database.url)  # raises ConfigError
        settings = list(effective(config))
        return CommandResult(
            [setting._asdict() for setting in settings], partial(print_settings, settings)
        )


config = click.command("config", cls=Command)(Settings)


def print_settings(settings: Iterable[Effective]) -> None:
    """Print the settings as a table, each with its source."""
    table(
        ("setting", "value", "from"),
        [
            (f"{one.section}.{one.key}", None if one.value is None else toml(one.value), one.source)
            for one in settings
        ],
    )
