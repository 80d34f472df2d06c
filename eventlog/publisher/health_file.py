"""The health file: a publisher's sign of progress for a probe, and the probe's reading of it.

The file is touched when an event gets an answer other than retry, and when a cycle ends well, an
empty one too. It stays untouched while the receiver or the database is away, and while a statement
or a receiver hangs. It contains the seconds within which the next touch is due, so that a reader
needs no configuration. It exists only while a publisher runs.

A probe runs every few seconds, so this module loads no database driver.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.errors import ConfigError

_log = logging.getLogger("eventlog.publisher")

Progress = Callable[[], None]
"""A function to call when there is progress: from any thread, as often as the caller likes."""

_INTERVAL: Final = 1.0
"""The shortest time between two touches, in seconds."""


class _HealthFile:
    """The file of a running publisher. ``due`` is the seconds within which the next touch is
    due.
    """

    __slots__ = ("_due", "_has_failed", "_last", "_path")

    def __init__(self, path: Path, due: float) -> None:
        self._path, self._due = path, due
        self._last = float("-inf")
        self._has_failed = False

    def create(self) -> None:
        """Create the file with the oldest possible time, since there is no progress yet. Raises
        OSError.
        """
        self._write()
        os.utime(self._path, (0, 0), follow_symlinks=False)

    def touch(self) -> None:
        """Show progress. A file that cannot be touched is logged once, and publishing goes on."""
        now = time.monotonic()
        if now < self._last + _INTERVAL:
            return
        self._last = now
        try:
            try:
                os.utime(self._path, follow_symlinks=False)
            except FileNotFoundError:  # somebody has removed it
                self._write()
        except OSError as error:
            if not self._has_failed:
                _log.error(
                    "publisher.health_file %s cannot be touched: %s", self._path, error.strerror
                )
            self._has_failed = True
        else:
            self._has_failed = False

    def _write(self) -> None:
        # Links are not followed: in a directory that others can write, a link could lead to any
        # file of this user.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags, 0o644), "w", encoding="ascii") as file:
            file.write(f"{self._due:g}\n")


@contextmanager
def liveness_file(path: Path | None, due: float) -> Iterator[Progress]:
    """Yield a function that touches the file while the block runs, and remove the file at its end.
    None = no file.

    Raises ConfigError if the file cannot be written at the start.
    """
    if path is None:
        yield lambda: None
        return
    file = _HealthFile(path, due)
    try:
        file.create()
    except OSError as error:
        raise ConfigError(
            f"publisher.health_file {path} cannot be written: {error.strerror}; name a file in a "
            "directory that this user can write (with a read-only root a tmpfs)"
        ) from error
    try:
        yield file.touch
    finally:
        with suppress(OSError):
            path.unlink()


class Health(NamedTuple):
    """The state in a health file. ``reason`` is for people; ``age`` and ``due`` are seconds, None
    if unknown.
    """

    is_healthy: bool
    reason: str
    age: float | None = None
    due: float | None = None


def read_health(path: Path, now: float) -> Health:
    """Return the state in the file at ``now`` (seconds since 1970)."""
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
    # A time in the future comes from a clock that was set back, and says nothing of the present.
    reason = f"last progress {age:.0f} s ago, a sign is due within {due:.0f} s"
    return Health(abs(age) <= due, reason, age, due)
