"""The publisher for Python programs: what ``eventlog publish`` does, without the command."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from eventlog.changes.format import Report
from eventlog.config.load import Config, load
from eventlog.errors import ConfigError
from eventlog.publisher.context import Counters
from eventlog.publisher.daemon import publish, publish_once
from eventlog.publisher.liveness import liveness_file, patience
from eventlog.publisher.open_log import open_to_publish
from eventlog.publisher.sinks import Sink, open_sink
from eventlog.publisher.sinks.python import CallableSink, Receive
from eventlog.publisher.waiting import Stop, StopRequest

_log = logging.getLogger("eventlog.publisher")


class Publisher:
    """Publishes a log, or the source of ``[source]``, as ``eventlog publish`` does.

    Make one with ``from_config``. A log has one publisher at a time: a second one raises AnotherPublisher. The same
    object may run again after it has ended; it is not to run in two threads at once. ``[monitor]`` and ``[log]`` are
    the command's: a program logs through ``logging`` (``eventlog.publisher``) and reads ``counters``.
    """

    __slots__ = ("_config", "_counters", "_receive")

    def __init__(self, config: Config, receive: Receive | None = None) -> None:
        self._config, self._receive, self._counters = config, receive, Counters()

    @classmethod
    def from_config(
        cls,
        config: str | os.PathLike[str] | Mapping[str, Any],
        *,
        sink: Receive | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Publisher:
        """A publisher of a configuration (docs/configuration.md). Nothing is connected to yet.

        ``config``: the path of an ``eventlog.toml``, or its content as nested dicts, which may hold secrets:
        ``{"database": {"url": "postgresql://..."}, "watch": [{"table": "customer"}]}``. ``sink``: called with each
        document and its events in place of ``[sink]``; it returns None (success for all), an ``Answer``, or an XDS
        answer as text, and raises what it likes if it could not receive them, which are then sent again. ``environ``:
        the variables ``EVENTLOG_...`` that override the configuration, None = those of the process. Raises
        ConfigError, which names all that is wrong.
        """
        content = config if isinstance(config, Mapping) else Path(config)
        loaded = load(content, os.environ if environ is None else environ)
        for warning in loaded.warnings:
            _log.warning("%s", warning)
        if sink is not None:
            if loaded.format.type == "qlik-messages":
                raise ConfigError("format.type = qlik-messages goes to Kafka: leave sink out, or set another format")
            loaded = replace(loaded, sink=replace(loaded.sink, type="python"))
        return cls(loaded, sink)

    @property
    def counters(self) -> Counters:
        """What this publisher has done so far, over all its runs; a copy."""
        return replace(self._counters)

    def run(self, stop: Stop | None = None) -> None:
        """Publish until ``stop`` (such as a ``threading.Event``) is set by another thread or a signal handler.

        A database, or a receiver, that goes away is tried again with a back-off. What is in the air when ``stop`` is
        set is answered and marked. Raises AnotherPublisher, DatabaseError if the first connection fails, FatalAnswer
        if the receiver answers fatal, ConfigError.
        """
        self._run(stop or StopRequest(), once=False)

    def run_once(self, stop: Stop | None = None) -> Counters:
        """Publish what waits now, and return what this run has counted so far, as ``counters``.

        Raises as ``run``, and ReceiverAway if something is left because the receiver was away or asked for it later.
        """
        self._run(stop or StopRequest(), once=True)
        return self.counters

    def _run(self, stop: Stop, *, once: bool) -> None:
        config, counters = self._config, self._counters
        if config.publisher.publisher_disabled:
            _log.warning("publisher_disabled is set: nothing is published")
            return
        with liveness_file(config.publisher.health_file, patience(config)) as progress:
            if config.source.type is not None:
                from eventlog.publisher.stream.open import following, position_of
                from eventlog.publisher.stream.run import follow

                follow(
                    following(config, counters, Report()),
                    position_of(config),
                    self._open_sink,
                    stop,
                    once=once,
                    progress=progress,
                )
            elif once:
                with open_to_publish(config, counters) as context, closing(self._open_sink()) as sink:
                    publish_once(context, sink, stop)
            else:
                publish(lambda: open_to_publish(config, counters), self._open_sink, stop, progress)

    def _open_sink(self) -> Sink:
        if self._receive is None:
            return open_sink(self._config, sys.stdout)
        return CallableSink(self._receive, getattr(self._receive, "__qualname__", repr(self._receive)))
