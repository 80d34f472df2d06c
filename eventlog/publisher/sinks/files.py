"""Documents to files: written under a temporary name, fsynced, renamed (spec/event-log.md 10).

A file is named after its flight and its (first) envelope, both recorded in the in-flight line, so that an envelope
which is sent again replaces itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from eventlog.errors import ReceiverAway
from eventlog.files.fsync import sync_file, sync_path
from eventlog.model import Answer
from eventlog.publisher.sinks import Document
from eventlog.publisher.sinks.directory import make_directory, stem, unwritable


class DocumentFiles:
    """One file an envelope, ``<flight>-<envelope>.xml``."""

    __slots__ = ("_directory", "_dirty")

    def __init__(self, directory: Path) -> None:
        self._directory = _prepare(directory)
        self._dirty = False

    def send(self, document: Document) -> Answer:
        target = self._directory / f"{stem(document.flight, document.envelope)}.xml"
        with _receiver_away(target):
            with _temporary(target).open("wb") as file:
                file.write(document.body.encode())
                sync_file(file)
            _temporary(target).replace(target)
        self._dirty = True
        return Answer()

    def flush(self) -> None:
        if self._dirty:
            with _receiver_away(self._directory):
                sync_path(self._directory)
            self._dirty = False

    def close(self) -> None:
        self.flush()


class LineFiles:
    """One envelope a line, one file a flight, ``<flight>-<first envelope>.xmll``.

    A flight that is marked in several parts has a file for each part; each is complete before its rows are marked.
    A part that could not be written to its end is dropped whole, since its last line may be torn.
    """

    __slots__ = ("_directory", "_file", "_flight", "_target", "_torn")

    def __init__(self, directory: Path) -> None:
        self._directory = _prepare(directory)
        self._file: BinaryIO | None = None
        self._flight = 0
        self._target = directory
        self._torn = False

    def send(self, document: Document) -> Answer:
        if self._file is not None and document.flight != self._flight:
            self.flush()
        with _receiver_away(self._directory):
            if self._file is None:
                self._target = self._directory / f"{stem(document.flight, document.envelope)}.xmll"
                self._file = _temporary(self._target).open("wb")
                self._flight = document.flight
            try:
                self._file.write(document.body.encode())
            except OSError:
                self._torn = True
                raise
        return Answer()

    def flush(self) -> None:
        if self._torn:
            self.close()
            raise ReceiverAway(f"{self._target} was not written to its end and has been dropped")
        if self._file is None:
            return
        file, self._file = self._file, None
        with _receiver_away(self._target), file:
            sync_file(file)
            _temporary(self._target).replace(self._target)
            sync_path(self._directory)

    def close(self) -> None:
        """Drop what was not flushed: its rows are not marked and its envelopes are sent again."""
        self._torn = False
        if self._file is not None:
            file, self._file = self._file, None
            with contextlib.suppress(OSError):
                file.close()
            with contextlib.suppress(OSError):
                _temporary(self._target).unlink()


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.part")


def _prepare(directory: Path) -> Path:
    """Make the directory and remove what a publisher that was killed left half-written."""
    try:
        make_directory(directory)
        for leftover in directory.glob(".*.part"):
            leftover.unlink()
    except OSError as error:
        raise unwritable(directory, error) from error
    return directory


@contextlib.contextmanager
def _receiver_away(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ReceiverAway(f"{path} cannot be written: {error.strerror}") from error
