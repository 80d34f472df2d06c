"""A publisher for Python programs. It publishes a log, or the source that its configuration
names.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventlog.changes.format import Report
from eventlog.config.load import Config, load
from eventlog.config.publishing import refused_format
from eventlog.core.arguments import check_arguments, instance_of_type
from eventlog.errors import ConfigError
from eventlog.publisher.context.context import Counters, Used
from eventlog.publisher.declared.configured_sink import letters_of
from eventlog.publisher.declared.configured_sink import open_sink as open_its_sink
from eventlog.publisher.declared.opening import open_to_publish
from eventlog.publisher.declared.trigger_plan import comparison
from eventlog.publisher.ledger.ledger import LOCK_WAIT
from eventlog.publisher.run.daemon import NOTHING_PUBLISHED, publish_log, publish_once
from eventlog.publisher.run.liveness import reported_liveness
from eventlog.publisher.run.waiting import Stop, StopRequest
from eventlog.publisher.sinks import Sink
from eventlog.publisher.stream.open_source import source_publisher

if TYPE_CHECKING:
    from eventlog.publisher.sinks.python import Receive

_log = logging.getLogger("eventlog.publisher")


_CONFIGURATION: Final = instance_of_type(
    str | os.PathLike | Mapping, "the path of an eventlog.toml, or its content as nested dicts"
)


class Publisher:
    """A publisher of a log, or of the source in ``[source]``. It works like ``eventlog publish``.

    ``from_config`` creates it. A log has one publisher at a time: a second one raises
    PublisherAlreadyRunning. The same object may run again after it has ended, but not in two
    threads at the same time. ``[monitor]`` and ``[log]`` belong to the command: a program logs
    through ``logging`` (``eventlog.publisher``) and reads ``counters``.
    """

    __slots__ = ("_config", "_counters", "_receive", "_used")

    def __init__(self, config: Config, receive: Receive | None = None) -> None:
        self._config = config
        self._receive = receive
        self._counters = Counters()
        self._used = Used()

    @classmethod
    def from_config(
        cls,
        config: str | os.PathLike[str] | Mapping[str, Any],
        *,
        sink: Receive | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Publisher:
        """Return a publisher of a configuration (docs/reference/configuration.md). The publisher
        has not connected yet.

        ``config`` is the path of an ``eventlog.toml``, or its content as nested dicts, which may
        contain secrets:
        ``{"database": {"url": "postgresql://..."}, "watch": [{"table": "customer"}]}``.

        ``sink`` is called with each document and its events in place of ``[sink]``. It returns None
        (success for all), an ``Answer``, or an XDS answer as text. It may raise any exception if it
        could not receive the events; they are then sent again. ``environ`` has the variables
        ``EVENTLOG_...`` that override the configuration, None = the variables of the process.
        Raises ConfigError with all problems.
        """
        check_arguments(
            "Publisher.from_config",
            config=(config, _CONFIGURATION),
            environ=(environ, instance_of_type(Mapping | None, "a mapping of variables")),
        )
        if sink is not None:
            from eventlog.publisher.sinks.python import check_receiver

            check_receiver(sink, "Publisher.from_config: the argument sink")
        content = config if isinstance(config, Mapping) else Path(config)
        loaded = load(content, os.environ if environ is None else environ)
        for warning in loaded.warnings:
            _log.warning("%s", warning)
        if sink is not None:
            loaded = replace(loaded, sink=replace(loaded.sink, type="python"))
            if why := refused_format(loaded):
                raise ConfigError(
                    f"a function cannot receive the documents of this configuration: {why}"
                )
        return cls(loaded, sink)

    @property
    def counters(self) -> Counters:
        """A copy of this publisher's counters, over all its runs."""
        return replace(self._counters)

    def run(self, stop: Stop | None = None) -> None:
        """Publish until another thread or a signal handler sets ``stop`` (such as a
        ``threading.Event``).

        A database or a receiver that becomes unavailable is tried again with a back-off. Documents
        that are being sent when ``stop`` is set are answered and marked. Raises
        PublisherAlreadyRunning, DatabaseError if the first connection is refused, FatalAnswer if
        the receiver answers fatal, ConfigError.
        """
        self._run(stop, once=False)

    def run_once(self, stop: Stop | None = None) -> Counters:
        """Publish the present queue, and return the counters so far, as ``counters`` does.

        Raises the errors of ``run``, and ReceiverUnavailable if events are left because the
        receiver was unavailable or answered *retry*.
        """
        self._run(stop, once=True)
        return self.counters

    def _run(self, asked: Stop | None, *, once: bool) -> None:
        config, counters = self._config, self._counters
        if config.publisher.publisher_disabled:
            _log.warning(NOTHING_PUBLISHED)
            return
        target = None if self._receive is None else f"the function {_name_of(self._receive)}"
        with reported_liveness(config) as liveness, closing(StopRequest()) as never:
            stop = asked or never
            if config.follows:
                publish = source_publisher(config, counters, Report())
                publish(self._open_sink, stop, once, liveness)
            elif once:
                with (
                    open_to_publish(config, counters, self._used, LOCK_WAIT, target) as context,
                    closing(self._open_sink()) as sink,
                ):
                    letters = letters_of(config)
                    compare = comparison(config)
                    publish_once(context, sink, stop, compare=compare, open_letters=letters)
            else:
                publish_log(config, counters, self._used, self._open_sink, stop, liveness, target)

    def _open_sink(self) -> Sink:
        if self._receive is None:
            return open_its_sink(self._config, sys.stdout)
        from eventlog.publisher.sinks.python import (
            CallableSink,
        )  # a late import, since it loads the reader of XDS answers

        return CallableSink(self._receive, _name_of(self._receive))


def _name_of(receive: Receive) -> str:
    """Return the name of a function that receives documents. For another object, return the name of
    its class.
    """
    return str(getattr(receive, "__qualname__", type(receive).__qualname__))
