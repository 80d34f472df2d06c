"""A file that says that the publisher makes progress, for whoever watches over its process.

It is touched when an event has been answered otherwise than by retry, and when a cycle has ended well, an empty one
too; not while the receiver or the database is away, nor while a statement or a receiver hangs. It holds the seconds
within which the next touch is due, so that who looks at it needs no configuration. It is gone while no publisher runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.config.load import Config
from eventlog.errors import ConfigError
from eventlog.model import Answer, Level, Verdict
from eventlog.publisher.schedule import LONGEST_REST
from eventlog.publisher.sinks import Document, Sink

_log = logging.getLogger("eventlog.publisher")

Beat = Callable[[], None]
"""To be called when there is progress; from any thread, as often as one likes."""

_RESTS: Final = 3
"""Rests that may pass without a sign: one is usual, and a machine may be slow."""

_WORK: Final = 60.0
"""Seconds that a busy database may take between two signs, beside the rest and the receiver."""

_SELDOM: Final = 1.0
"""Seconds between two touches at least."""


class Health(NamedTuple):
    """What a health file says. ``reason`` for people; ``age`` and ``due`` in seconds, None where there is none."""

    is_healthy: bool
    reason: str
    age: float | None = None
    due: float | None = None


def patience(config: Config) -> float:
    """Seconds within which a publisher of this configuration gives a sign, if it makes any progress."""
    if config.source.type is not None:
        rest = config.source.poll_interval
    else:
        rest = LONGEST_REST if config.publisher.time_of_day else float(config.publisher.polling_interval)
    return _RESTS * rest + config.sink.timeout + _WORK


@contextlib.contextmanager
def health_file(path: Path | None, due: float) -> Iterator[Beat]:
    """What touches the file while the block runs; at its end the file is removed. None = no file is wanted.

    ``due``: seconds within which the next touch is to come. The file is made at once, as old as a file can be. Raises
    ConfigError if it cannot be written; later a file that cannot be touched is said once, and publishing goes on.
    """
    if path is None:
        yield lambda: None
        return
    try:
        _write(path, due)
        os.utime(path, (0, 0), follow_symlinks=False)
    except OSError as error:
        raise ConfigError(
            f"publisher.health_file {path} cannot be written: {error.strerror}; name a file in a directory that this "
            "user can write (with a read-only root a tmpfs)"
        ) from error
    try:
        yield _beat(path, due)
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def read_health(path: Path, now: float) -> Health:
    """What the file says at ``now`` (seconds since 1970)."""
    try:
        touched = path.stat().st_mtime
        due = float(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return Health(False, f"there is no {path}: no publisher with this health_file runs")
    except (OSError, ValueError) as error:
        return Health(False, f"{path} cannot be read: {error}")
    if touched == 0:
        return Health(False, "the publisher has started and has done nothing yet", None, due)
    age = now - touched
    # A time that is to come is the sign of a clock that was put back, and says nothing of the present.
    reason = f"last progress {age:.0f} s ago, a sign is due within {due:.0f} s"
    return Health(abs(age) <= due, reason, age, due)


@dataclass(frozen=True, slots=True)
class _BeatingSink:
    sink: Sink
    beat: Beat

    def send(self, document: Document) -> Answer:
        answer = self.sink.send(document)
        event_ids = () if answer.is_pending else document.event_ids
        if any(answer.verdict(event_id).level is not Level.RETRY for event_id in event_ids):
            self.beat()
        return answer

    def flush(self) -> Mapping[str, Verdict] | None:
        refused = self.sink.flush()
        if refused is not None:  # of a sink whose receiver speaks only now
            self.beat()
        return refused

    def close(self) -> None:
        self.sink.close()


def beating(sink: Sink, beat: Beat) -> Sink:
    """The same sink; an answer other than retry is a beat, so that a long cycle shows its progress."""
    return _BeatingSink(sink, beat)


def _beat(path: Path, due: float) -> Beat:
    last = float("-inf")
    failed = False

    def beat() -> None:
        nonlocal last, failed
        now = time.monotonic()
        if now < last + _SELDOM:
            return
        last = now
        try:
            try:
                os.utime(path, follow_symlinks=False)
            except FileNotFoundError:  # somebody tidied up
                _write(path, due)
        except OSError as error:
            if not failed:
                _log.error("publisher.health_file %s cannot be touched: %s", path, error.strerror)
            failed = True
        else:
            failed = False

    return beat


def _write(path: Path, due: float) -> None:
    # No link is followed: in a directory that others can write it could lead to any file of ours.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{due:g}\n")
