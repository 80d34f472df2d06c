"""The keys of each section of the configuration: the option that a key names, and the error for an
unknown key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from eventlog.config.settings import (
    CHOSEN,
    OF_FORMAT,
    SECTIONS,
    FormatSettings,
    format_options,
    installed_options,
    installed_sections,
    variable,
)
from eventlog.core.options import Option, nearest, nearest_option, options_of, unknown
from eventlog.errors import ConfigError
from eventlog.registry import FORMATS, format_named, installed, named, names, own_names


class Target(NamedTuple):
    """The option that a key of a section names. ``of`` is the type that has the option if that type
    is not the chosen one; such an option has no effect.
    """

    section: str
    key: str
    option: Option
    is_alias: bool = False
    of: str = ""


_ELSEWHERE: Final = (
    ("database", ("log_table", "schema_name", "tables")),
    ("format", tuple(name for name in options_of(FormatSettings) if name != "type")),
)
"""The options of spec/event-log.md 9 whose home is another section. [publisher] accepts them, too,
and the options of the default format's section.
"""
_DEFAULT_FORMAT: Final = options_of(FormatSettings)["type"].default


def chosen_types(
    document: Mapping[str, Any], environ: Mapping[str, str], flags: Mapping[str, str]
) -> dict[str, str]:
    """Return the type of each section that has one, known or not, from the layer that takes
    precedence.
    """
    types = {}
    for section in (*CHOSEN, "format"):
        table = document.get(section)
        in_file = table.get("type") if isinstance(table, Mapping) else None
        said = flags.get(f"{section}.type", environ.get(variable(section, "type"), in_file))
        types[section] = (
            said if isinstance(said, str) else options_of(SECTIONS[section])["type"].default
        )
    return types


class Keys:
    """The keys of each section: its options and their aliases, and the options of the type that is
    chosen there. [publisher] also has the options of spec/event-log.md 9 whose home is elsewhere.

    The other types are loaded only for a key that is none of these.
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types
        self._found: dict[str, dict[str, Target]] = {}

    @property
    def format(self) -> str:
        """The name of the published format."""
        return self._types["format"]

    def options_of_type(self, section: str) -> type:
        """Return the options dataclass of the type that is chosen in a section. Raises
        ConfigError.
        """
        kind: type = named(CHOSEN[section], self._types[section]).options
        return kind

    def of(self, section: str) -> Mapping[str, Target]:
        """Return the keys of a section, without those of other types than the chosen one. Raises
        ConfigError.
        """
        if section not in self._found:
            homes = [(section, self._options_of(section))]
            if section == "publisher":
                for home, names_there in _ELSEWHERE:
                    options = options_of(SECTIONS[home])
                    homes.append((home, {name: options[name] for name in names_there}))
            if section in CHOSEN:
                with suppress(ConfigError):  # the option type reports this error
                    homes.append((section, options_of(self.options_of_type(section))))
            self._found[section] = {
                key: one for home, options in homes for key, one in _targets(home, options)
            }
        return self._found[section]

    def _options_of(self, section: str) -> Mapping[str, Option]:
        if section.startswith(OF_FORMAT):
            return format_options(format_named(section.removeprefix(OF_FORMAT)))
        return options_of(SECTIONS[section])

    def find(self, section: str, key: str) -> Target | None:
        """Return the option that a key names, None if no installed type has it. Raises
        ConfigError.
        """
        target = self.of(section).get(key)
        if target is None and section == "publisher":
            home = f"{OF_FORMAT}{_DEFAULT_FORMAT}"
            target = dict(_targets(home, self._options_of(home))).get(key)
        if target is None and section in CHOSEN:
            declared = installed_options(section).get(key)
            if declared is not None and declared.types:
                return Target(section, key, declared.option, of=declared.types[0])
        return target

    def split(self, section: str, key: str) -> tuple[str, str]:
        """Return the section and the key of an environment variable, whose name joins both."""
        if section != "format" or key in self.of(section):
            return section, key
        for known in (own_names(FORMATS), names(FORMATS)):
            for name in sorted(known, key=len, reverse=True):
                prefix = f"{name.replace('-', '_').lower()}_"
                if key.startswith(prefix):
                    return f"{OF_FORMAT}{name}", key.removeprefix(prefix)
        return section, key

    def unknown(
        self,
        source: str,
        section: str,
        key: str,
        spelled: Callable[[str, str], str] = "{}.{}".format,
    ) -> ConfigError:
        """Return the error for a key that a section does not have. It names the place of an option
        of this name, or else the most similar option. ``spelled`` makes the name of a setting.
        """
        if section == "format" or section.startswith(OF_FORMAT):
            own = options_of(FormatSettings)
            for name, format in sorted(installed(FORMATS), key=lambda one: one[0] != self.format):
                if key in format_options(format):
                    there = spelled(f"{OF_FORMAT}{name}", key)
                    return ConfigError(
                        f"{source} is not known; {key} is an option of the format {name}: {there}"
                    )
            if key in own:
                there = spelled("format", key)
                return ConfigError(
                    f"{source} is not known; {key} is an option of all formats: {there}"
                )
        places = installed_sections()
        for other in places:
            if key in installed_options(other):
                return unknown(source, spelled(other, key))
        if section in places:
            targets = self.of(section) if section in SECTIONS else {}
            known = {name: one.option for name, one in targets.items() if not one.is_alias}
            known |= {name: one.option for name, one in installed_options(section).items()}
            return unknown(source, spelled(section, nearest_option(key, known)))
        full = [f"{one}.{name}" for one in places for name in installed_options(one)]
        return unknown(source, nearest(f"{section}.{key}", full))


def _targets(section: str, options: Mapping[str, Option]) -> Iterator[tuple[str, Target]]:
    """Yield the keys that name options of a section, with their targets."""
    for name, spec in options.items():
        yield name, Target(section, name, spec)
        for alias in spec.aliases:
            yield alias, Target(section, name, spec, is_alias=True)
