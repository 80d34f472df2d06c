"""Read settings from a file, the environment and flags. Each setting has the option that it names,
a value and a place. Errors are yielded together with the settings, so that all errors are reported
at the same time.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from eventlog.config.keys import Keys, Target
from eventlog.config.kinds import URL as DATABASE_URL
from eventlog.config.kinds import from_directory
from eventlog.config.settings import (
    ARRAYS,
    OF_FORMAT,
    SECTIONS,
    FilterSettings,
    MaskSettings,
    WatchSettings,
    installed_sections,
    listed_options,
    variable,
)
from eventlog.core.options import (
    PATH,
    Option,
    nearest,
    options_of,
    parse_options,
    parse_value,
    unknown,
)
from eventlog.core.secrets import read_secret
from eventlog.errors import ConfigError, with_location
from eventlog.registry import FORMATS, check_name, names


class Layer(IntEnum):
    """The kind of place where a setting was made; the first kind takes precedence."""

    FLAG = 0
    ENVIRONMENT = 1
    FILE = 2


class Setting(NamedTuple):
    """A setting of an option."""

    target: Target
    layer: Layer
    given: Any
    source: str
    """The place where the setting was made, for messages."""
    file: Path | None = None
    """The file that contains the value; None = the value is ``given``."""

    def value(self) -> Any:
        """Return the value; if ``file`` is set, the file contains the value. Raises ConfigError."""
        if self.file is None:
            return self.given
        return parse_value(self.target.option, read_secret(self.file, self.source), self.source)


Read = Iterator[Setting | ConfigError]
"""The settings of one layer, or errors in place of settings that are wrong."""


_TOML_ADVICE: Final = {
    "Invalid value": '; write text in quotes, such as url = "..."',
    r"Illegal character '\\n'": "; close the text with a quote on its line",
    "Cannot declare": "; write this table once, with all its options",
    "Cannot overwrite": "; write this option once",
}
"""The advice for a part of the parser's message."""


_LARGEST: Final = 1 << 20
_MOST_DOTS: Final = 250
"""The most bytes of a file, and the most dots in one of its lines."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of the file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        # The time to read a key grows with the square of its parts.
        if len(content) > _LARGEST or any(
            line.count(b".") > _MOST_DOTS for line in content.splitlines()
        ):
            raise ConfigError(
                f"{path} cannot be read: it has more than {_LARGEST} bytes, or more than "
                f"{_MOST_DOTS} dots in a line"
            )
        return tomllib.loads(content.decode("utf-8-sig").replace("\r\n", "\n"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; `eventlog init` writes one") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise ConfigError(f"{path} cannot be read: brackets or tables nest too deep") from None
    except ValueError as error:
        # int() refuses numbers with thousands of digits.
        if not isinstance(error, tomllib.TOMLDecodeError):
            raise ConfigError(f"{path} cannot be read: a number has thousands of digits") from None
        advice = next(
            (advice for sign, advice in _TOML_ADVICE.items() if re.search(sign, str(error))), ""
        )
        for name in ARRAYS:
            if f"('{name}',) twice" in str(error):
                advice = f"; write [[{name}]], with two brackets, once for each table"
        raise ConfigError(f"{path} is not TOML: {error}{advice}") from None


def from_file(document: Mapping[str, Any], path: Path | None, keys: Keys) -> Read:
    """Yield the settings of a file except its arrays of tables, such as [[watch]]. Relative paths
    start from the directory of the file.

    ``path`` is None for content from a program, which may contain secrets, and objects of type
    ``Path``.
    """
    place = _place(path)
    for section, table in document.items():
        if section in ARRAYS:
            continue
        if section not in SECTIONS:
            homes = [
                f"[{home}]" for home in installed_sections() if section in listed_options(home)
            ]
            if homes and not isinstance(table, dict):
                yield ConfigError(
                    f"{place}: {section} is in no section; write it below {' or '.join(homes)}"
                )
                continue
            hint = nearest(section, [*SECTIONS, *ARRAYS], _spelled)
            if homes:
                hint = f"{section} is an option of {' and '.join(homes)}"
            yield unknown(f"{place}: [{section}]", hint)
            continue
        if not isinstance(table, Mapping):
            yield ConfigError(f"{place}: {section} must be a section: [{section}]")
            continue
        for key, value in table.items():
            if section == "format" and isinstance(value, Mapping):
                yield from _read_format_section(key, value, place, path, keys)
                continue
            yield from _file_setting(section, key, value, place, path, keys)


def _spelled(section: str) -> str:
    return f"[[{section}]]" if section in ARRAYS else f"[{section}]"


def _read_format_section(
    name: str, table: Mapping[str, Any], place: str, path: Path | None, keys: Keys
) -> Read:
    """Yield the settings of a section ``[format.<name>]``."""
    section = f"{OF_FORMAT}{name}"
    try:
        check_name(FORMATS, name)
        if table:
            keys.of(section)
    except ConfigError as error:
        if name in names(FORMATS) and name != keys.format:
            return  # a warning has reported the broken package, and its format is not used
        yield ConfigError(f"{place}: [{section}]: {error}")
        return
    for key, value in table.items():
        yield from _file_setting(section, key, value, place, path, keys)


def _file_setting(
    section: str, key: str, value: Any, place: str, path: Path | None, keys: Keys
) -> Read:
    """Yield the setting of a key of a section of the file, or its error.

    ``path`` is as in ``from_file``.
    """
    target = keys.find(section, key)
    source = f"{place}: {section}.{key}"
    if target is None:
        yield keys.unknown(source, section, key)
        return
    if target.option.secret and not target.is_file and path is not None:
        yield ConfigError(
            f"{source}: a secret does not belong in this file; set {variable(section, key)}, or "
            f"set {key}_file to a file that holds it"
        )
        return
    setting = _setting(target, str(value) if isinstance(value, Path) else value, Layer.FILE, source)
    if path is None or isinstance(setting, ConfigError):
        yield setting
    elif setting.file is not None:
        yield setting._replace(file=path.parent / setting.file)
    elif isinstance(setting.given, Path):
        yield setting._replace(given=path.parent / setting.given)
    elif target.option.kind is DATABASE_URL:
        yield setting._replace(given=from_directory(setting.given, path.parent))
    else:
        yield setting


def _setting(target: Target, value: Any, layer: Layer, source: str) -> Setting | ConfigError:
    """Return the setting of a key, or the error about its value."""
    try:
        if target.is_file:
            file = parse_value(_FILE, value, source)
            return Setting(target, layer, None, source, file)
        return Setting(target, layer, parse_value(target.option, value, source), source)
    except ConfigError as error:
        return error


_FILE: Final = Option(None, PATH, "file that holds the value")


def from_environment(environ: Mapping[str, str], keys: Keys) -> Read:
    """Yield the settings of the variables ``EVENTLOG_<SECTION>_<KEY>``."""
    for section in SECTIONS:
        prefix = f"EVENTLOG_{section.upper()}_"
        for name in sorted(environ):
            if not name.startswith(prefix) or _SERVICE_LINK.fullmatch(name):
                continue
            key = name.removeprefix(prefix).lower()
            home, key = keys.split(section, key)
            target, source = keys.find(home, key), f"environment variable {name}"
            if target is None or name != name.upper():
                yield keys.unknown(source, home, key, variable)
            else:
                setting = _text_setting(target, environ[name], Layer.ENVIRONMENT, source)
                if isinstance(setting, ConfigError) and not environ[name].strip():
                    legal = (_FILE if target.is_file else target.option).kind.legal
                    setting = ConfigError(f"{source} is empty: set or remove it; legal: {legal}")
                yield setting
    yield from _misspelled_sections(environ)


_SERVICE_LINK: Final = re.compile(
    r".*_(SERVICE_(HOST|PORT(_.*)?)|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)"
)
"""Matches names of variables that Kubernetes sets in every container if a service has a name such
as eventlog-database.
"""


def _misspelled_sections(environ: Mapping[str, str]) -> Iterator[ConfigError]:
    # Only variables that are similar to a setting are reported, since other programs may also use
    # variables that begin with EVENTLOG_.
    sections = tuple(f"EVENTLOG_{section.upper()}_" for section in SECTIONS)
    known = [
        variable(section, key) for section in SECTIONS for key in options_of(SECTIONS[section])
    ]
    for name in sorted(environ):
        if (
            not name.startswith("EVENTLOG_")
            or name.startswith(sections)
            or _SERVICE_LINK.fullmatch(name)
        ):
            continue
        if near := difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELLED):
            yield unknown(f"environment variable {name}", f"the nearest known one is {near[0]}")


_MISSPELLED: Final = 0.9
"""The least similarity at which a variable is reported as a misspelled setting."""


def from_flags(flags: Mapping[str, str], keys: Keys) -> Read:
    """Yield the settings of flags, ``section.key`` -> text."""
    for name, value in flags.items():
        section, _, key = name.rpartition(".")
        source = f"flag {name}"
        try:
            target = (
                keys.find(section, key)
                if section in SECTIONS or section.startswith(OF_FORMAT)
                else None
            )
        except ConfigError as error:
            yield with_location(error, source)
            continue
        if target is None:
            yield keys.unknown(source, section, key)
            continue
        if target.option.secret and not target.is_file:
            yield ConfigError(
                f"{source}: a secret does not belong in a command line; set "
                f"{variable(section, key)}, or set {name}_file to a file that holds it"
            )
            continue
        yield _text_setting(target, value, Layer.FLAG, source)


def watches_of(tables: Any, path: Path | None) -> Iterator[WatchSettings | ConfigError]:
    """Yield the ``[[watch]]`` tables of a file, or of the content from a program."""
    names = set()
    for where, watch in _tables_of(tables, path, "watch", WatchSettings, "per table or view"):
        if isinstance(watch, ConfigError):
            yield watch
        elif (wrong := watch.contradiction()) is not None:
            named = f" ({watch.name})" if watch.name else ""
            yield ConfigError(f"{where}{named}: {wrong}")
        elif watch.name in names:
            yield ConfigError(f"{where}: {watch.name} is watched twice")
        else:
            names.add(watch.name)
            yield watch


def masks_of(tables: Any, path: Path | None) -> Iterator[MaskSettings | ConfigError]:
    """Yield the ``[[mask]]`` tables of a file, or of the content from a program."""
    masked: set[tuple[str, str]] = set()
    for where, mask in _tables_of(tables, path, "mask", MaskSettings, "per table and value of how"):
        if not isinstance(mask, ConfigError):
            columns = {(mask.table, column) for column in mask.columns}
            for name, column in sorted(columns & masked):
                yield ConfigError(f"{where} ({name}): {column} is masked twice")
            masked |= columns
        yield mask


def filters_of(tables: Any, path: Path | None) -> Iterator[FilterSettings | ConfigError]:
    """Yield the ``[[filter]]`` tables of a file, or of the content from a program."""
    filtered: set[str] = set()
    for where, one in _tables_of(tables, path, "filter", FilterSettings, "per table or view"):
        if not isinstance(one, ConfigError):
            if one.table.casefold() in filtered:
                yield ConfigError(
                    f"{where}: {one.table} is filtered twice; join the conditions by AND"
                )
            filtered.add(one.table.casefold())
        yield one


S = TypeVar("S")


def _tables_of(
    tables: Any, path: Path | None, array: str, kind: type[S], each: str
) -> Iterator[tuple[str, S | ConfigError]]:
    """Yield the tables of an array with their places, or errors. ``each`` is a part of the message,
    such as "per table or view".
    """
    place = _place(path)
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        yield place, ConfigError(f"{place}: {array} must be written [[{array}]], once {each}")
        return
    for number, table in enumerate(tables, 1):
        where = f"{place}: {array} {number}"
        if array == "watch" and "children" in table:
            yield (
                where,
                ConfigError(
                    f"{where}: children is not known; child tables are found by their foreign "
                    'keys. Leave one out by exclude = ["TABLE.COLUMN"], and see them in '
                    "`eventlog triggers plan`"
                ),
            )
            continue
        try:
            yield where, parse_options(kind, table, where)
        except ConfigError as error:
            yield where, error


def _place(path: Path | None) -> str:
    return "the configuration" if path is None else str(path)


def _text_setting(target: Target, text: str, layer: Layer, source: str) -> Setting | ConfigError:
    value: Any = text
    if not target.is_file:
        with suppress(ValueError, RecursionError):
            value = target.option.kind.from_text(text)
    return _setting(target, value, layer, source)
