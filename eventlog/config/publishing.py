"""What the configuration says of the format that is published: which it is, its options, and what the sink takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventlog.changes.format import Format
from eventlog.changes.publishing import Publishing
from eventlog.config.settings import SINKS
from eventlog.core.options import same_fields
from eventlog.core.values import ValueOptions
from eventlog.registry import format_named

if TYPE_CHECKING:
    from eventlog.config.load import Config


def chosen_format(config: Config) -> Format:
    """Return the format of ``[format]``; of a backlog job, that of its request."""
    return format_named(config.format.type)


def publish_options(config: Config) -> Any:
    """Return the options of the format, None if it is not published."""
    kind = chosen_format(config).publish_options
    return None if kind is None else kind(**same_fields(config.format, kind))


def value_options(config: Config) -> ValueOptions:
    """Return how values are made texts."""
    settings = config.format
    shared = ValueOptions(time_zone=settings.time_zone, char_padding=settings.char_padding,
                          special_times=settings.special_times)  # fmt: skip
    return chosen_format(config).values(publish_options(config), shared)


def insert_query_back(config: Config) -> str:
    """Return the element of events that are only read back."""
    return chosen_format(config).insert_query_back(publish_options(config))


def taken_by_sink(config: Config) -> Publishing:
    """Return what the sink takes; where events come from is not said yet."""
    sink = SINKS[config.sink.type]
    return Publishing(
        topic=config.sink.topic,
        layout=config.sink.form,
        in_records=sink.takes_records,
        in_messages=sink.takes_several,
        has_headers=sink.has_headers,
    )


def refused_format(config: Config) -> str | None:
    """Return why documents of the format cannot go to the sink, None if they can."""
    options = publish_options(config)
    refused = chosen_format(config).refusal(options, taken_by_sink(config))
    if refused is None:
        return None
    name, why = refused
    value = config.format.type if name == "type" else getattr(options, name)
    return f"{config.sources[f'format.{name}']} = {value} with sink.type = {config.sink.type}: {why}"


def ignored_indent(config: Config) -> str | None:
    """Return what is said of an ``indent`` that has no effect: envelopes of form ``lines`` and what is no XML are not
    indented.
    """
    indent = config.sources["format.indent"]
    if not config.format.indent:
        return None
    if not hasattr(publish_options(config), "indent") or SINKS[config.sink.type].takes_records:
        return f"{indent} has no effect: what is no XDS, and what goes to Kafka, is not indented"
    if config.sink.form == "lines":
        return (
            f'{indent} has no effect with form = "lines", which writes an envelope on one line: set '
            'form = "documents" in [sink], or leave indent out'
        )
    return None
