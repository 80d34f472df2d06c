"""The event log as a source: the default, unless ``[source]`` names another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eventlog.changes.format import Report
from eventlog.config.kinds import BEGIN, CONSUMER
from eventlog.core.options import NAMES, CheckedOptions, option
from eventlog.errors import ConfigError
from eventlog.publisher.stream import Gives, Source, Stream


@dataclass(frozen=True, slots=True)
class EventLogOptions(CheckedOptions):
    """Options of ``[source]`` of type ``eventlog``, which describe a consumer.

    ``[database]`` names the log.
    """

    consumer: str | None = option(
        None,
        CONSUMER,
        "name of this consumer of the log, in addition to its publisher",
        example="search",
    )
    start_from: str = option("latest", BEGIN, "where a new consumer begins")
    classes: tuple[str, ...] | None = option(
        None, NAMES, "only these classes are consumed", example=["customer", "order"]
    )


class EventLog(Source):
    """An event log. ``publisher.send.cycle`` reads, folds and marks its rows. The event log has no
    stream.
    """

    name = "eventlog"
    title = "the event log of [database]"
    options = EventLogOptions
    gives = frozenset(Gives)
    is_log = True

    def open(self, options: Any, reader: Mapping[str, Any], report: Report) -> Stream:
        raise ConfigError(
            "the event log is read as a queue, not as a stream: name another type in [source]"
        )
