"""The source ``jsonl-file``: follow a growing file of changes (eventlog's format ``jsonl``).

The position is the byte after the last line that was read, with the file's inode, so that a file
which was replaced or cut is noticed. An event is named after the inode and the byte where its line
begins: the same line always has the same event-id.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eventlog.changes.format import Report
from eventlog.changes.json_form import loads
from eventlog.core.options import PATH, number, option
from eventlog.errors import ConfigError, FormatError
from eventlog.publisher import stream


@dataclass(frozen=True, slots=True)
class JsonlFileOptions(stream.StreamOptions):
    """Options of ``[source]`` of type ``jsonl-file``."""

    path: Path | None = option(None, PATH, "the file that grows", example="changes.jsonl")
    poll_interval: float = option(1.0, number(0.01, 3600), "seconds between two looks at it")


class JsonlFile(stream.Source):
    """A file of changes that grows."""

    name = "jsonl-file"
    title = "a file of changes in JSON"
    options = JsonlFileOptions

    def open(self, options: Any, reader: Mapping[str, Any], report: Report) -> GrowingFile:
        if options.path is None:
            raise ConfigError("a source jsonl-file needs source.path")
        return GrowingFile(options.path, options.poll_interval)

    def in_words(self, token: Any) -> str:
        return f"byte {token['byte']}"


class GrowingFile:
    """The stream: complete lines, in their order."""

    def __init__(self, path: Path, poll_interval: float) -> None:
        self._path, self._rest = path, poll_interval

    def steps(self, token: Any, *, once: bool) -> Generator[stream.SourceStep, None, None]:
        try:
            with self._path.open("rb") as file:
                inode, place = os.fstat(file.fileno()).st_ino, self._place(token)
                while True:
                    file.seek(place)
                    for line in file:
                        if not line.endswith(b"\n"):
                            break  # its end is not written yet
                        event_id = f"{inode:x}.{place}"
                        try:
                            yield stream.Read(loads(line), event_id)
                        except FormatError as error:
                            yield stream.Failure(
                                event_id, error.code, str(error), line.decode("utf-8", "replace")
                            )
                        place += len(line)
                        yield stream.Mark({"inode": inode, "byte": place})
                    if once:
                        return
                    token = {"inode": inode, "byte": place}
                    yield stream.Mark(token, is_idle=True, rest=self._rest)
                    self._place(token)  # still the same file
        except OSError as error:
            raise stream.SourceUnavailable(f"{self._path}: {error.strerror}") from error

    def backlog(self, token: Any) -> stream.Backlog | None:
        try:
            return stream.Backlog(self._path.stat().st_size - self._place(token), "bytes")
        except OSError as error:
            raise stream.SourceUnavailable(f"{self._path}: {error.strerror}") from error

    def _place(self, token: Any) -> int:
        """Return the byte to read from. Raises SourceLost if the file was replaced or cut."""
        if token is None:
            return 0
        try:
            inode, place = int(token["inode"]), int(token["byte"])
        except (KeyError, TypeError, ValueError):
            raise stream.BadToken(f"{token!r} is not a position of the source jsonl-file") from None
        found = self._path.stat()
        if found.st_ino != inode or found.st_size < place:
            raise stream.SourceLost(f"{self._path} was replaced or cut since byte {place} was read")
        return place
