"""Where documents go. A sink takes a document and answers for its events.

Each type of sink is a module of its name here, with a function ``open_sink`` as below; its options stand in
``config.settings.SinkSettings``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, TextIO

from eventlog.config.load import Config, with_secrets_of_now
from eventlog.errors import ConfigError
from eventlog.files.text import REFERENCE
from eventlog.model import Answer, Document, Verdict

_log = logging.getLogger("eventlog.publisher")


class Sink(Protocol):
    """A receiver of documents. Sinks extend it, and say what is not as here.

    ``send`` raises ReceiverAway when there is no usable answer. What has been answered counts only after ``flush``,
    which makes it durable and is called before rows are marked; it raises ReceiverAway too. A sink that learns only
    then that an event is refused for good says so: an event-id and its verdict, error, which takes the place of the
    answer.
    """

    def send(self, document: Document) -> Answer: ...

    def flush(self) -> Mapping[str, Verdict] | None:
        """Nothing is kept back: what was answered is the receiver's."""
        return None

    def close(self) -> None:
        """There is nothing to end."""
        return None  # noqa: RET501 - an empty body would be abstract


def open_sink(config: Config, stream: TextIO) -> Sink:
    """The sink that the configuration names; ``stream`` is standard output. Raises ConfigError.

    Only its module is loaded: each brings libraries of its own, which take longer to load than all of the publisher.
    """
    module = import_module(f"{__name__}.{config.sink.type}")

    def open_now() -> Sink:
        sink: Sink = module.open_sink(with_secrets_of_now(config, "sink"), stream)
        return sink

    files = _secret_files(config)
    return _Rotated(open_now, files) if files else open_now()


# --- secrets that are rotated -----------------------------------------------------------------------------------------


def _secret_files(config: Config) -> list[Path]:
    """The files that hold secrets of ``[sink]``."""
    references = {**(config.sink.secret_headers or {}), **(config.sink.secret_properties or {})}
    places = [REFERENCE.fullmatch(reference) for reference in references.values()]
    return [
        *(file for name, file in config.secret_files.items() if name.startswith("sink.")),
        *(Path(place["file"]) for place in places if place is not None and place["file"] is not None),
    ]


class _Rotated(Sink):
    """A sink that is opened anew when a file of its secrets has changed and nothing of the one before is pending.

    ``open_now`` opens it with the secrets of now.
    """

    def __init__(self, open_now: Callable[[], Sink], files: Sequence[Path]) -> None:
        self._open, self._files = open_now, files
        self._seen, self._sink = self._look(), open_now()
        self._is_pending = False
        self._lock = threading.Lock()

    def send(self, document: Document) -> Answer:
        return self._current().send(document)

    def flush(self) -> Mapping[str, Verdict] | None:
        refused = self._sink.flush()
        self._is_pending = False
        return refused

    def close(self) -> None:
        self._sink.close()

    def _current(self) -> Sink:
        with self._lock:
            if not self._is_pending and (seen := self._look()) != self._seen:
                self._seen = seen
                try:
                    sink = self._open()
                except ConfigError as error:
                    _log.warning("%s; the secrets of before are used", error, extra={"code": error.code})
                else:
                    self._sink.close()
                    self._sink = sink
                    _log.info("secrets of [sink] have changed and were read again")
            self._is_pending = True
            return self._sink

    def _look(self) -> list[tuple[int, int, int] | None]:
        """What tells whether a file, or where a link leads to, is another one or has been written."""
        return [_stamp(file) for file in self._files]


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
