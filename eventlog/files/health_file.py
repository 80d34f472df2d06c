"""The health file: a publisher's sign of life for a probe in its container.

The file is touched while the publisher is alive (``liveness.py``), from its first connection on.
The file contains the number of seconds within which the next touch is due, so that a reader needs
no configuration. The file also contains what the publisher waits for, without texts of a receiver.
The file exists only while a publisher runs.

A probe runs every few seconds, so this module loads no database driver.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from eventlog.errors import ConfigError
from eventlog.model import JsonObject

_log = logging.getLogger("eventlog.publisher")

_DUE: Final = 15.0
"""The number of seconds within which the next touch is due: many intervals, since a machine may be
slow.
"""


class HealthFile:
    """The file of a running publisher, to be touched every ``interval`` seconds."""

    interval: ClassVar[float] = 1.0

    __slots__ = ("_has_failed", "_path", "_waits")

    def __init__(self, path: Path) -> None:
        self._path, self._has_failed = path, False
        self._waits: JsonObject | None = None

    def create(self) -> None:
        """Create the file with the oldest possible time, since the publisher is not connected yet.

        Raises OSError.
        """
        self._write()
        os.utime(self._path, (0, 0), follow_symlinks=False)

    def touch(self, waits: JsonObject | None = None) -> None:
        """Touch the file. ``waits`` is what the publisher waits for, as data for JSON. If the file
        cannot be updated, log an error once; publishing continues.
        """
        try:
            try:
                if waits != self._waits:
                    self._waits = waits
                    self._write()
                os.utime(self._path, follow_symlinks=False)
            except FileNotFoundError:  # somebody has removed the file
                self._write()
        except OSError as error:
            if not self._has_failed:
                _log.error(
                    "publisher.health_file %s cannot be updated: %s", self._path, error.strerror
                )
            self._has_failed = True
        else:
            self._has_failed = False

    def _write(self) -> None:
        # Links are not followed: in a directory that others can write, a link could lead to any
        # file of this user.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        waits = "" if self._waits is None else f"{json.dumps(self._waits)}\n"
        # The first line never changes, and is written first: a reader always finds it.
        with os.fdopen(os.open(self._path, flags, 0o644), "w", encoding="ascii") as file:
            file.write(f"{_DUE:g}\n{waits}")
            file.truncate()


@contextmanager
def health_file(path: Path) -> Iterator[HealthFile]:
    """Create the file, yield it, and remove it at the end of the block. Raises ConfigError if the
    file cannot be created.
    """
    file = HealthFile(path)
    try:
        file.create()
    except OSError as error:
        raise ConfigError(
            f"publisher.health_file {path} cannot be written: {error.strerror}; name a file in a "
            "directory that this user can write (a tmpfs if / is read-only)"
        ) from error
    try:
        yield file
    finally:
        with suppress(OSError):
            path.unlink()


class FileState(NamedTuple):
    """The state in a health file."""

    is_healthy: bool
    reason: str
    """The reason, for people."""
    age: float | None = None
    due: float | None = None
    """The age of the last sign of life, and the time within which the next sign is due. Both are in
    seconds; None = unknown.
    """
    waits: JsonObject | None = None
    """What the publisher waits for, as ``HealthFile.touch`` got it; None = nothing."""


def read_health(path: Path, now: float) -> FileState:
    """Return the state in the file at ``now`` (seconds since 1970)."""
    try:
        touched = path.stat().st_mtime
        first, _, second = path.read_text(encoding="ascii").partition("\n")
        due = float(first)
    except FileNotFoundError:
        return FileState(False, f"there is no {path}: no publisher with this health_file runs")
    except (OSError, ValueError) as error:
        return FileState(False, f"{path} cannot be read: {error}")
    if touched == 0:
        return FileState(False, "the publisher has started and is not connected yet", None, due)
    age = now - touched
    # A time in the future means that the clock was set back, so the time shows nothing about the
    # present.
    reason = f"last sign of life {age:.0f} s ago, one is due within {due:.0f} s"
    return FileState(abs(age) <= due, reason, age, due, _parsed(second))


def _parsed(line: str) -> JsonObject | None:
    """Return what a publisher waits for; None also for a line that is being written."""
    try:
        waits = json.loads(line)
    except ValueError:
        return None
    return waits if isinstance(waits, dict) else None
