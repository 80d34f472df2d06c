"""The layers of the configuration: the settings that a file, the environment and flags make, each where it came from.

Each option has one home section; what spec/event-log.md 9 lists is taken in ``[publisher]`` too.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventlog.config.settings import MESSAGE_OPTIONS, SECTIONS, FormatSettings, WatchSettings, variable
from eventlog.config.urls import DATABASE_URLS, from_directory
from eventlog.core.options import Option, nearest, options_of, parse_options, parse_value, unknown
from eventlog.errors import ConfigError
from eventlog.files.secrets import secret_variable


class Layer(IntEnum):
    """Where a setting stands, the one that counts first. The last two are of the file."""

    FLAG = 0
    ENVIRONMENT = 1
    OPTION = 2
    ALIAS = 3


class Setting(NamedTuple):
    """A value of the option ``key`` of ``section``; ``source`` says in words where it came from."""

    section: str
    key: str
    layer: Layer
    value: Any
    source: str


class _Target(NamedTuple):
    """The option that a key of a section names."""

    section: str
    key: str
    option: Option
    is_alias: bool


_ELSEWHERE: Final = (
    ("database", ("log_table", "schema_name", "tables")),
    ("format", tuple(name for name in options_of(FormatSettings) if name not in MESSAGE_OPTIONS)),
)
"""Options of spec/event-log.md 9 whose home is another section, taken in [publisher] too."""

_SERVICE_LINK: Final = re.compile(r".*_(SERVICE_(HOST|PORT(_.*)?)|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)")
"""What Kubernetes sets in every container for a service that is called eventlog-database or the like."""

_MISSPELLED: Final = 0.9
"""From how much likeness on a variable is taken for a misspelled setting."""

Read = Iterator[Setting | ConfigError]
"""Settings, and what is wrong with others: all of that is said at once."""


def read_toml(path: Path) -> dict[str, Any]:
    """The content of the file. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; `eventlog init` writes one") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise ConfigError(f"{path}: is not read: brackets or tables are nested too deep") from None
    except ValueError as error:
        if not isinstance(error, tomllib.TOMLDecodeError):  # of int, which takes no more
            raise ConfigError(f"{path}: is not read: a number has thousands of digits") from None
        quotes = '; a text stands in quotes, such as url = "..."' if "Invalid value" in str(error) else ""
        raise ConfigError(f"{path}: is not TOML: {error}{quotes}") from None


def from_file(document: Mapping[str, Any], path: Path | None) -> Read:
    """The settings of a file, but for its [[watch]] tables. Relative paths are taken from its directory.

    ``path`` None: a program hands the same content over. It may hold secrets, and paths as ``Path``.
    """
    place = _place(path)
    for section, table in document.items():
        if section == "watch":
            continue
        if section not in SECTIONS:
            homes = [f"[{home}]" for home in SECTIONS if section in options_of(SECTIONS[home])]
            if homes and not isinstance(table, dict):
                yield ConfigError(f"{place}: {section} stands in no section; write it below {' or '.join(homes)}")
                continue
            near = nearest(section, [*SECTIONS, "watch"])
            yield ConfigError(f"{place}: [{section}] is not known; the nearest known one is [{near}]")
            continue
        if not isinstance(table, Mapping):
            yield ConfigError(f"{place}: {section} is to be a section: [{section}]")
            continue
        keys = _keys(section)
        for key, value in table.items():
            if key not in keys:
                yield unknown(f"{place}: {section}.{key}", _suggest(section, key))
                continue
            target = keys[key]
            source = f"{place}: {section}.{key}"
            if target.option.secret and path is not None:
                yield ConfigError(f"{source}: a secret does not belong in this file; set {variable(section, key)}")
                continue
            if target.is_alias:
                value = target.option.alias_values.get(str(value).strip().lower(), value)
            if isinstance(value, Path):
                value = str(value)
            try:
                parsed = parse_value(target.option, value, source)
            except ConfigError as error:
                yield error
                continue
            if isinstance(parsed, Path) and path is not None:
                parsed = path.parent / parsed
            elif (target.section, target.key) in DATABASE_URLS and path is not None:
                parsed = from_directory(parsed, path.parent)
            yield Setting(target.section, target.key, Layer.ALIAS if target.is_alias else Layer.OPTION, parsed, source)


def from_environment(environ: Mapping[str, str]) -> Read:
    """The settings of the variables ``EVENTLOG_<SECTION>_<KEY>``."""
    for section in SECTIONS:
        prefix = f"EVENTLOG_{section.upper()}_"
        keys = {name.upper(): target for name, target in _keys(section).items() if not target.is_alias}
        for name in sorted(environ):
            if not name.startswith(prefix) or _SERVICE_LINK.fullmatch(name):
                continue
            key = name.removeprefix(prefix)
            of_file = keys.get(key.removesuffix("_FILE"))
            if key not in keys and of_file is not None and of_file.option.secret:
                yield _secret_of_file(of_file, name, environ)
                continue
            if key not in keys:
                yield unknown(f"environment variable {name}", prefix + nearest(key, keys))
                continue
            yield _text_setting(keys[key], environ[name], Layer.ENVIRONMENT, f"environment variable {name}")
    yield from _misspelled_sections(environ)


def _secret_of_file(target: _Target, name: str, environ: Mapping[str, str]) -> Setting | ConfigError:
    try:
        text = secret_variable(name.removesuffix("_FILE"), environ) or ""
    except ConfigError as error:
        return error
    return _text_setting(target, text, Layer.ENVIRONMENT, f"environment variable {name}")


def _misspelled_sections(environ: Mapping[str, str]) -> Iterator[ConfigError]:
    # Only what is much like a setting: other programs may have EVENTLOG_ variables of their own.
    sections = tuple(f"EVENTLOG_{section.upper()}_" for section in SECTIONS)
    known = [f"EVENTLOG_{key.replace('.', '_').upper()}" for key in _all_keys()]
    for name in sorted(environ):
        if not name.startswith("EVENTLOG_") or name.startswith(sections) or _SERVICE_LINK.fullmatch(name):
            continue
        if near := difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELLED):
            yield unknown(f"environment variable {name}", near[0])


def from_flags(flags: Mapping[str, str]) -> Read:
    """The settings of flags, ``section.key`` -> text."""
    for name, value in flags.items():
        section, _, key = name.partition(".")
        source = f"flag {name}"
        if section not in SECTIONS or key not in _keys(section):
            near = _suggest(section, key) if section in SECTIONS else nearest(name, _all_keys())
            yield unknown(source, near)
            continue
        target = _keys(section)[key]
        if target.option.secret:
            yield ConfigError(f"{source}: a secret does not belong in a command line; set {variable(section, key)}")
            continue
        yield _text_setting(target, value, Layer.FLAG, source)


def watches_of(tables: Any, path: Path | None) -> Iterator[WatchSettings | ConfigError]:
    """The ``[[watch]]`` tables of a file, or of what a program hands over in its place."""
    place = _place(path)
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        yield ConfigError(f"{place}: watch is to be written [[watch]], once a table or view")
        return
    names = set()
    for number, table in enumerate(tables, 1):
        where = f"{place}: watch {number}"
        try:
            watch = parse_options(WatchSettings, table, where)
        except ConfigError as error:
            yield error
            continue
        if (wrong := watch.contradiction()) is not None:
            named = f" ({watch.name})" if watch.name else ""
            yield ConfigError(f"{where}{named}: {wrong}")
        elif watch.name in names:
            yield ConfigError(f"{where}: {watch.name} is watched twice")
        else:
            names.add(watch.name)
            yield watch


def _place(path: Path | None) -> str:
    return "the configuration" if path is None else str(path)


def _text_setting(target: _Target, text: str, layer: Layer, source: str) -> Setting | ConfigError:
    try:
        value = target.option.kind.from_text(text)
    except (ValueError, RecursionError):
        value = text
    try:
        return Setting(target.section, target.key, layer, parse_value(target.option, value, source), source)
    except ConfigError as error:
        return error


def _keys(section: str) -> dict[str, _Target]:
    """What may stand in a section: its options, their aliases, in [publisher] also those of section 9 elsewhere."""
    homes = [(section, tuple(options_of(SECTIONS[section]))), *(_ELSEWHERE if section == "publisher" else ())]
    keys = {}
    for home, names in homes:
        for name in names:
            spec = options_of(SECTIONS[home])[name]
            keys[name] = _Target(home, name, spec, is_alias=False)
            keys.update({alias: _Target(home, name, spec, is_alias=True) for alias in spec.aliases})
    return keys


def _all_keys() -> list[str]:
    return [f"{section}.{key}" for section in SECTIONS for key in options_of(SECTIONS[section])]


def _suggest(section: str, key: str) -> str:
    """The nearest known key: one of this name elsewhere, else the most alike in its own section."""
    for other, cls in SECTIONS.items():
        if key in options_of(cls):
            return f"{other}.{key}"
    return f"{section}.{nearest(key, _keys(section))}"
