"""The keys of each section of the configuration: the option that a key names, and the error for an
unknown key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from eventlog.config.driver_tags import DRIVER_TAGS
from eventlog.config.settings import (
    ARRAYS,
    CHOSEN,
    OF_FORMAT,
    SECTIONS,
    format_options,
    installed_options,
    installed_sections,
    listed_options,
    may_stand_in_file,
    variable,
)
from eventlog.core.options import Option, nearest, options_of, unknown
from eventlog.errors import ConfigError
from eventlog.registry import FORMATS, format_named, named, names, own_names

Name: TypeAlias = tuple[str, str]
"""Section and key of an option."""


class Target(NamedTuple):
    """The option that a key of a section names. ``of`` is the type that has the option, if that is
    not the chosen type; the option then has no effect. ``is_file`` is True if the key names a file
    that contains the option's value.
    """

    section: str
    key: str
    option: Option
    of: str = ""
    is_file: bool = False

    @property
    def name(self) -> Name:
        """The section and the key."""
        return self.section, self.key


def chosen_types(
    document: Mapping[str, Any], environ: Mapping[str, str], flags: Mapping[str, str]
) -> dict[str, str]:
    """Return the type that is set in each section, even if no such type is known. The layer that
    takes precedence determines the type. It is empty for a section without a type.
    """
    types = {}
    for section in (*CHOSEN, "format"):
        table = document.get(section)
        in_file = table.get("type") if isinstance(table, Mapping) else None
        given = flags.get(f"{section}.type", environ.get(variable(section, "type"), in_file))
        types[section] = (
            given if isinstance(given, str) else options_of(SECTIONS[section])["type"].default or ""
        )
    return types


class Keys:
    """The keys of each section: its options, and the options of the type that is chosen there.

    The other types are loaded only to look up a key that is not among these options.
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types
        self._found: dict[str, dict[str, Target]] = {}

    @property
    def format(self) -> str:
        """The name of the published format."""
        return self._types["format"]

    def options_of_type(self, section: str) -> type | None:
        """Return the options dataclass of the type that is chosen in a section, None = no type is
        chosen.

        Raises ConfigError.
        """
        chosen = self._types[section]
        kind: type | None = named(CHOSEN[section], chosen).options if chosen else None
        return kind

    def of(self, section: str) -> Mapping[str, Target]:
        """Return the keys of a section, including only the keys of the chosen type.

        Raises ConfigError.
        """
        if section not in self._found:
            if section.startswith(OF_FORMAT):
                options = format_options(format_named(section.removeprefix(OF_FORMAT)))
            else:
                options = options_of(SECTIONS[section])
            if section in CHOSEN:
                with suppress(ConfigError):  # the option type reports this error itself
                    if (kind := self.options_of_type(section)) is not None:
                        options |= options_of(kind)
            self._found[section] = {key: Target(section, key, one) for key, one in options.items()}
        return self._found[section]

    def find(self, section: str, key: str) -> Target | None:
        """Return the option that a key names, None if no installed type has the option. A key may
        name a file that contains the value of a secret option: ``token_file`` for ``token``. Raises
        ConfigError.
        """
        target = self._find(section, key)
        if target is None and key.endswith("_file"):
            file_key = self._find(section, key.removesuffix("_file"))
            if file_key is not None and may_stand_in_file(file_key.option):
                return file_key._replace(is_file=True)
        return target

    def _find(self, section: str, key: str) -> Target | None:
        target = self.of(section).get(key)
        if target is None and section in CHOSEN:
            declared = installed_options(section).get(key)
            if declared is not None and declared.types:
                return Target(section, key, declared.option, of=declared.types[0])
        return target

    def split(self, section: str, key: str) -> tuple[str, str]:
        """Return the section and the key that the name of an environment variable contains."""
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
        """Return the error for a key that a section does not have. The error names the sections
        that have an option of this name. If there are none, it names the option that a parameter of
        the vendor's driver becomes, otherwise the most similar option, otherwise all options of the
        section. ``spelled`` makes the name of a setting.
        """
        if key in ARRAYS:
            return ConfigError(
                f"{source} is not known; write a section [[{key}]] with `table` for each table"
            )
        tag = DRIVER_TAGS.get(key)
        homes = [(home, key) for home in self._homes(section, key)]
        if places := homes or ([] if tag is None else [(tag.section, tag.key)]):
            known = " or ".join(spelled(home, name) for home, name in places)
            return ConfigError(f"{source} is not known; use {known}")
        sections = installed_sections()
        if section in sections:
            hint = nearest(key, installed_options(section), partial(spelled, section))
            return unknown(source, hint)
        if section.startswith(OF_FORMAT):
            name = section.removeprefix(OF_FORMAT)
            return ConfigError(f"{source} is not known: the format {name} has no options here")
        full = [f"{one}.{name}" for one in sections for name in listed_options(one)]
        if get_close_matches(f"{section}.{key}", full, n=1):
            return unknown(source, nearest(f"{section}.{key}", full))
        return unknown(source, nearest(section, sections, "[{}]".format))

    def _homes(self, section: str, key: str) -> list[str]:
        """Return the sections that have an option of this name. For a section of a format, return
        only the section of the chosen format, otherwise one section of another format, if one of
        these sections has the option.
        """
        homes = [one for one in installed_sections() if key in listed_options(one)]
        if section == "format" or section.startswith(OF_FORMAT):
            of_formats = [one for one in homes if one == "format" or one.startswith(OF_FORMAT)]
            chosen = f"{OF_FORMAT}{self.format}"
            return [chosen] if chosen in homes else of_formats[:1] or homes
        return homes
