"""Open and test the sink that the configuration names, and open it again when its
secrets change.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from eventlog.changes.format import Format
from eventlog.changes.publishing import EventWriter
from eventlog.config.kinds import REFERENCES, SECRET_HEADERS
from eventlog.config.load import Config, with_current_secrets
from eventlog.core.oauth import OAUTH
from eventlog.core.options import options_of
from eventlog.core.secrets import REFERENCE
from eventlog.errors import ConfigError, called, check_result
from eventlog.model import Answer, Document, EventResult
from eventlog.publisher.declared.configured_writer import event_writer
from eventlog.publisher.sinks import Opening, Sink
from eventlog.publisher.sinks.checked import CheckedSink
from eventlog.publisher.sinks.letters import LetterForm
from eventlog.registry import SINKS, as_plugin_errors, format_named, is_own, sink_named
from eventlog.sql.log_table import LogTable

_log = logging.getLogger("eventlog.publisher")


class SecondSink(NamedTuple):
    """The open sink of dead letters, and the form in which the sink accepts letters."""

    sink: Sink
    form: LetterForm


def open_sink(config: Config, stream: TextIO, form: Format | None = None) -> Sink:
    """Return the sink that the configuration names.

    ``stream`` is standard output. ``form`` is the format of the documents, None = the configured
    format. Raises ConfigError.
    """
    kind: type[Sink] = sink_named(config.sink.type)
    opening = Opening(form or format_named(config.format.type), stream)

    def open_now() -> Sink:
        options = with_current_secrets(config, "sink").sink.options
        with as_plugin_errors():
            sink = called(kind.open, options, opening)
            if is_own(SINKS, config.sink.type):
                own: Sink = sink
                return own
            return CheckedSink(sink, kind.open)

    files = _secret_files(config)
    return _Rotated(open_now, files) if files else open_now()


def try_receiver(config: Config, stream: TextIO) -> str | None:
    """Test the receiver that the configuration names with ``Sink.try_out``."""
    kind: type[Sink] = sink_named(config.sink.type)
    opening = Opening(format_named(config.format.type), stream)
    answer = called(kind.try_out, with_current_secrets(config, "sink").sink.options, opening)
    check_result(kind.try_out, answer, str | None, "a text or None")
    answered: str | None = answer
    return answered


def letters_of(config: Config) -> Callable[[LogTable], SecondSink] | None:
    """Return a function that opens the sink of a log's dead letters; None = there is no such sink.

    The function raises ConfigError.
    """
    letters = config.of_letters
    if letters is None:
        return None
    return lambda log: second_sink(letters, event_writer(letters, log))


def second_sink(letters: Config, writer: EventWriter[Any]) -> SecondSink:
    """Open the sink of dead letters. ``letters`` is ``Config.of_letters``, and ``writer`` writes
    the events of the letters. Raises ConfigError.
    """
    kind: type[Sink] = sink_named(letters.sink.type)
    # Lines of JSON, and over HTTP an answer by the status alone.
    sink = open_sink(letters, sys.stdout, format_named("jsonl"))
    return SecondSink(sink, LetterForm(kind, writer, letters.dead_letter.chat_member))


def can_try(config: Config) -> bool:
    """Return True if the configured sink has a receiver that can be tried."""
    kind: type[Sink] = sink_named(config.sink.type)
    return kind.try_out.__func__ is not Sink.try_out.__func__  # type: ignore[attr-defined]


# --- secrets that are rotated ---------------------------------------------------------------------


def _secret_files(config: Config) -> list[Path]:
    """Return the files that contain secrets of ``[sink]``."""
    options = config.sink.options
    declared = options_of(type(options))
    references = [
        reference
        for name, one in declared.items()
        if one.kind in (REFERENCES, SECRET_HEADERS)
        for reference in (getattr(options, name) or {}).values()
    ]
    clients = (getattr(options, name) for name, one in declared.items() if one.kind is OAUTH.kind)
    references += [one.client_secret for one in clients if one is not None and one.client_secret]
    places = map(REFERENCE.fullmatch, references)
    return [
        *(file for name, file in config.secret_files.items() if name.startswith("sink.")),
        *(
            Path(place["file"])
            for place in places
            if place is not None and place["file"] is not None
        ),
    ]


class _Rotated(Sink):
    """A sink that is opened again when no document is pending and a file with its secrets has
    changed.

    ``open_now`` opens the sink with the current secrets.
    """

    def __init__(self, open_now: Callable[[], Sink], files: Sequence[Path]) -> None:
        self._open, self._files = open_now, files
        self._seen, self._sink = self._check(), open_now()
        self._in_air, self._is_pending = 0, False
        self._lock = threading.Lock()

    def send(self, document: Document) -> Answer:
        sink = self._current()
        try:
            answer = sink.send(document)
            self._is_pending = (
                True  # until the sink is flushed; a document that fails is sent again
            )
            return answer
        finally:
            with self._lock:
                self._in_air -= 1

    def flush(self) -> Mapping[str, EventResult] | None:
        refused = self._sink.flush()
        self._is_pending = False
        return refused

    def close(self) -> None:
        self._sink.close()

    def _current(self) -> Sink:
        with self._lock:
            is_busy = self._is_pending or self._in_air > 0
            if not is_busy and (seen := self._check()) != self._seen:
                self._seen = seen
                try:
                    sink = self._open()
                except ConfigError as error:
                    _log.warning(
                        "%s; still using the previous secrets", error, extra={"code": error.code}
                    )
                else:
                    self._sink.close()
                    self._sink = sink
                    _log.info("secrets of [sink] have changed and were read again")
            self._in_air += 1
            return self._sink

    def _check(self) -> list[tuple[int, int, int] | None]:
        """Return, for each file, a fingerprint that changes when the file, or the target of a link,
        is replaced or written.
        """
        return [_stamp(file) for file in self._files]


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
