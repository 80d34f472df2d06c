"""The configuration of the published format: the name, the options, and the documents that the sink
accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eventlog.changes.format import Format
from eventlog.changes.publishing import Publishing
from eventlog.config.settings import LETTERS, as_of_letters
from eventlog.core.options import same_fields
from eventlog.core.secrets import is_loopback
from eventlog.core.values import ValueOptions
from eventlog.errors import ConfigError, WrongResult, called, check_result, with_location
from eventlog.registry import check_format, format_named, sink_named, source_named, writer_of

if TYPE_CHECKING:
    from eventlog.config.load import Config


def chosen_format(config: Config) -> Format:
    """Return the format of ``[format]``; in a backlog job, return the requested format."""
    return format_named(config.format.type)


def options_for(config: Config, format: Format) -> Any:
    """Return the configured options of a format, None if the format cannot be published.

    Raises ConfigError.
    """
    if format.publish_options is None:
        return None
    return format.publish_options(**config.format.given.get(format.name, {}))


def publish_options(config: Config) -> Any:
    """Return the options of the format, None if it cannot be published. Raises ConfigError."""
    return options_for(config, chosen_format(config))


def named_options(config: Config, kind: type) -> dict[str, Any]:
    """Return, by name, the configured options that are fields of a dataclass."""
    return same_fields(publish_options(config), kind)


def value_options(config: Config) -> ValueOptions:
    """Return the options with which values are converted to text."""
    settings = config.format
    shared = ValueOptions(time_zone=settings.time_zone, char_padding=settings.char_padding,
                          special_times=settings.special_times)  # fmt: skip
    chosen = chosen_format(config)
    values = called(chosen.values, publish_options(config), shared)
    check_result(chosen.values, values, ValueOptions, "an eventlog.core.values.ValueOptions")
    found: ValueOptions = values
    return found


def insert_query_back(config: Config) -> str:
    """Return the operation for an insert whose values are all read back: "add" or "modify"."""
    return chosen_format(config).insert_query_back(publish_options(config))


def taken_by_sink(config: Config) -> Publishing:
    """Return the requirements of the configured sink as a ``Publishing``, without the source of the
    events.
    """
    return replace(
        taken_by(config.sink.type),
        topic=getattr(config.sink.options, "topic", None),
        file_layout=sink_layout(config),
    )


def taken_by(name: str) -> Publishing:
    """Return the requirements of a sink of this name, as a ``Publishing``."""
    sink = sink_named(name)
    return Publishing(
        in_records=sink.takes_records, in_messages=sink.takes_several, has_headers=sink.has_headers
    )


def sink_layout(config: Config) -> str:
    """Return the layout of documents in the sink: its option ``file_layout``, else ``lines``."""
    layout: str = getattr(config.sink.options, "file_layout", "lines")
    return layout


def refused_format(config: Config) -> str | None:
    """Return why documents of the format cannot go to the sink, None if they can. Raises
    ConfigError for a format that is not published, and for its options.
    """
    chosen = chosen_format(config)
    try:
        check_format(chosen.name, "publish")
    except ConfigError as error:
        raise with_location(error, config.sources["format.type"]) from None
    options = publish_options(config)
    publishing = taken_by_sink(config)
    refused = _pair(chosen.refusal, options, publishing)
    if refused is None:
        divided_by = sink_named(config.sink.type).divided_by(config.sink.options)
        if (
            divided_by
            and config.publisher.batch_size > 1
            and writer_of(chosen, options, publishing).is_framed
        ):
            return (
                f"{config.sources[f'sink.{divided_by}']} has class, and a line of the format "
                f"{chosen.name} holds all events of a document: set publisher.batch_size = 1, "
                "choose a format with one event per line, or leave class out"
            )
        return None
    name, why = refused
    place, value = f"format.{chosen.name}.{name}", getattr(options, name, None)
    if name == "type":
        place, value = "format.type", chosen.name
    return (
        f"{config.sources.get(place, place)} = {value} with sink.type = {config.sink.type}: {why}"
    )


def _pair(
    method: Callable[..., Any], options: Any, publishing: Publishing
) -> tuple[str, str] | None:
    """Return the option and the reason that a method of a format names, None if it names none."""
    found = called(method, options, publishing)
    if found is None:
        return None
    check_result(method, found, tuple, "None, or an option and the reason")
    if len(found) != 2 or not all(isinstance(one, str) for one in found):
        raise WrongResult(method, f"returned {found!r}; an option and the reason are needed")
    option, why = found
    return option, why


def ignored_options(config: Config) -> Iterator[str]:
    """Yield messages about options that are set but have no effect. They are options of the format
    that this sink ignores, and options of other sinks. An option of another sink is reported only
    if it is in the file that sets the type of the sink.
    """
    if format_option := _ignored_by_sink(config):
        yield format_option
    for section, settings in (("sink", config.sink), (LETTERS, config.dead_letter)):
        place = config.sources[f"{section}.type"].rpartition(": ")[0]
        for source in (config.sources[f"{section}.{key}"] for key in settings.others):
            if place and source.rpartition(": ")[0] == place:
                yield f"{source} has no effect: it is no option of the sink {settings.type}"


def plain_credentials(config: Config) -> Iterator[tuple[str, str]]:
    """Yield, for each section whose credentials go to another machine without TLS, what happens and
    what to do.
    """
    sections = [(source_named(config.source.type), "source", config.source.options)]
    sections += [(sink_named(config.sink.type), "sink", config.sink.options)]
    if (letters := config.of_letters) is not None:
        sections += [(sink_named(letters.sink.type), LETTERS, letters.sink.options)]
    for kind, section, options in sections:
        if hasattr(options, "allow_plain") and options.allow_plain:
            continue
        found = [one for one in called(kind.plain_hosts, options) if not is_loopback(one[0])]
        if found:
            hosts = ", ".join(dict.fromkeys(host for host, _ in found))
            to_do = f"set {found[0][1]}, or {section}.allow_plain = true if the network is trusted"
            yield (
                f"[{section}] sends credentials and documents to {hosts} without TLS",
                as_of_letters(to_do) if section == LETTERS else to_do,
            )


def _ignored_by_sink(config: Config) -> str | None:
    chosen = chosen_format(config)
    ignored = _pair(chosen.ignored, publish_options(config), taken_by_sink(config))
    if ignored is None:
        return None
    option, why = ignored
    return f"{config.sources[f'format.{chosen.name}.{option}']} has no effect {why}"
