"""The settings in effect, each with its value for people and its source; secrets are masked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventlog.config.load import Config, address_of
from eventlog.config.settings import (
    CHOSEN,
    OF_FORMAT,
    SECTIONS,
    format_options,
    installed_options,
    installed_sections,
    sections_with,
)
from eventlog.core.options import Option, options_of, toml
from eventlog.errors import first_of
from eventlog.registry import format_named, sink_named


class Effective(NamedTuple):
    """A setting in effect. ``value`` is never a secret; ``source`` is the place where
    it was set.
    """

    section: str
    key: str
    value: Any
    source: str


def effective(config: Config) -> Iterator[Effective]:
    """Yield every setting and its source. Secrets are masked.

    The options of the chosen type come before the options of other types.
    """
    yield from _settings(config, installed_sections(), others=True)


def non_default(config: Config) -> Iterator[Effective]:
    """Return, in the form of ``effective``, the settings whose source is not the default.

    Formats that are not published, and types that are not chosen, are loaded only if one of their
    options is set: it takes a quarter of a second to load all formats and types.
    """
    sections = sections_with([f"{OF_FORMAT}{name}" for name in config.format.given])
    others = any(getattr(config, section).others for section in CHOSEN)
    return (one for one in _settings(config, sections, others=others) if one.source != "default")


def grouped_settings(settings: Iterable[Effective]) -> list[Effective]:
    """Return the settings, with one for all sections of an array, such as ``[[watch]]``, that have
    the key. Its section has their number, and its value their common value, or the first values.
    """
    grouped: dict[tuple[str, str], list[Effective]] = {}
    for one in settings:
        array, _, name = one.section.partition(" ")
        grouped.setdefault((array if name else one.section, one.key), []).append(one)
    return [_joined(section, several) for (section, _), several in grouped.items()]


def _joined(section: str, several: Sequence[Effective]) -> Effective:
    first = several[0]
    if len(several) == 1:
        return first
    texts = list(dict.fromkeys(toml(one.value) for one in several))
    value = first.value if len(texts) == 1 else first_of(texts, _SHOWN_VALUES)
    return first._replace(section=f"{section} ({len(several):,})", value=value)


_SHOWN_VALUES: Final = 3


def receiver(config: Config) -> str:
    """Return the sink of a configuration in words: its type, and the options that name the
    receiver, such as ``http, url = "https://search.example.org"``. Secrets are masked.
    """
    declared = options_of(type(config.sink.options))
    shown = _shown(config, "sink", address_of(config), declared)
    name = sink_named(config.sink.type).name
    return ", ".join([name, *(f"{one.key} = {toml(one.value)}" for one in shown)])


def _settings(config: Config, sections: Iterable[str], *, others: bool) -> Iterator[Effective]:
    """Yield the settings of these sections.

    With ``others`` the options of types that are not chosen are included.
    """
    for section in sections:
        if section.startswith(OF_FORMAT):
            name = section.removeprefix(OF_FORMAT)
            values, declared = config.format.given.get(name, {}), format_options(format_named(name))
            in_effect = {key: values.get(key, one.default) for key, one in declared.items()}
            yield from _shown(config, section, in_effect, declared)
            continue
        settings, cls = getattr(config, section), SECTIONS[section]
        yield from _shown(
            config,
            section,
            {key: getattr(settings, key) for key in options_of(cls)},
            options_of(cls),
        )
        if section in CHOSEN:
            own = {} if settings.options is None else options_of(type(settings.options))
            yield from _shown(
                config, section, {key: getattr(settings.options, key) for key in own}, own
            )
            shows_others = others and settings.type is not None
            for key, (other, types) in installed_options(section).items() if shows_others else ():
                if types and key not in own:
                    value = settings.others.get(key, other.default)
                    (one,) = _shown(config, section, {key: value}, {key: other})
                    yield one._replace(source=f"{one.source}; not of {settings.type}")
    for watch in config.watches:
        yield from _of_array("watch", watch.name, watch, config)
    for condition in config.filters:
        yield from _of_array("filter", condition.table, condition, config)
    for mask in config.masks:
        yield from _of_array("mask", mask.table, mask, config)


def _of_array(array: str, name: str, settings: Any, config: Config) -> Iterator[Effective]:
    for key, declared in options_of(type(settings)).items():
        value = getattr(settings, key)
        if value != declared.default:
            yield Effective(f"{array} {name}", key, value, config.sources[array])


def _shown(
    config: Config, section: str, values: Mapping[str, Any], options: Mapping[str, Option]
) -> Iterator[Effective]:
    for key, value in values.items():
        if value is not None:
            value = "***" if options[key].secret else options[key].kind.shown(value)
        yield Effective(section, key, value, config.sources.get(f"{section}.{key}", "default"))
