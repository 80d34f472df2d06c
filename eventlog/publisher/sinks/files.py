"""Documents to files, written under a temporary name, fsynced, renamed (spec/event-log.md 10).

A file is named after its flight and its (first) envelope, both recorded in the in-flight line, so that an envelope
which is sent again replaces itself. Flight numbers are unique in one log only, so the directory remembers whose it is,
in a file whose name begins with a dot, which consumers pass over. Another log, or one that was made anew and counts its
flights from 1 again, would replace documents that nobody has taken yet.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from eventlog.core.options import PATH, option, shared
from eventlog.errors import ConfigError, ReceiverAway
from eventlog.files.atomic import sync_file, sync_path
from eventlog.model import Answer, Document
from eventlog.publisher.sinks import FILE_LAYOUT, Opening, Owner, Sink, as_receiver_away


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options of ``[sink]`` of type ``files``."""

    directory: Path | None = option(None, PATH, "the directory, beside this file unless absolute", example="documents")
    file_layout: str = shared(FILE_LAYOUT)


class FilesSink(Sink):
    """Writes documents to files of a directory, in one of two layouts."""

    name = "files"
    title = "files of a directory"
    options = FileOptions
    needs = {"directory": "where the documents are written"}  # noqa: RUF012 - read only

    @classmethod
    def open(cls, options: FileOptions, opening: Opening) -> FilesSink:
        assert options.directory is not None
        kind = LineFiles if options.file_layout == "lines" else DocumentFiles
        return kind(options.directory, opening.format.endings[options.file_layout])

    @classmethod
    def claim(cls, options: FileOptions, owner: Callable[[], Owner], newest_flight: Callable[[int], int]) -> None:
        assert options.directory is not None
        claim(options.directory, owner(), newest_flight)


class DocumentFiles(FilesSink):
    """One file an envelope, ``<flight>-<envelope>`` and an ending."""

    def __init__(self, directory: Path, ending: str = ".xml") -> None:
        self._directory, self._ending = _prepare(directory), ending
        self._dirty = False

    def send(self, document: Document) -> Answer:
        target = self._directory / f"{stem(document.flight, document.envelope)}{self._ending}"
        with as_receiver_away(target):
            with _temporary(target).open("wb") as file:
                file.write(document.body)
                sync_file(file)
            _temporary(target).replace(target)
        self._dirty = True
        return Answer()

    def flush(self) -> None:
        if self._dirty:
            with as_receiver_away(self._directory):
                sync_path(self._directory)
            self._dirty = False

    def close(self) -> None:
        self.flush()


class LineFiles(FilesSink):
    """One envelope a line, one file a flight, ``<flight>-<first envelope>`` and an ending.

    A flight that is marked in several parts has a file for each part; each is complete before its rows are marked.
    A part that could not be written to its end is dropped whole, since its last line may be torn.
    """

    def __init__(self, directory: Path, ending: str = ".xmll") -> None:
        self._directory, self._ending = _prepare(directory), ending
        self._file: BinaryIO | None = None
        self._flight = 0
        self._target = directory
        self._torn = ""  # why the file was not written to its end

    def send(self, document: Document) -> Answer:
        if self._file is not None and document.flight != self._flight:
            self.flush()
        with as_receiver_away(self._directory):
            if self._file is None:
                self._target = self._directory / f"{stem(document.flight, document.envelope)}{self._ending}"
                self._file = _temporary(self._target).open("wb")
                self._flight = document.flight
            try:
                self._file.write(document.body)
            except OSError as error:
                self._torn = error.strerror or str(error)
                raise
        return Answer()

    def flush(self) -> None:
        if self._torn:
            why = f"{self._target} was not written to its end and has been dropped: {self._torn}"
            self.close()
            raise ReceiverAway(why, why)
        if self._file is None:
            return
        file, self._file = self._file, None
        with as_receiver_away(self._target), file:
            sync_file(file)
            _temporary(self._target).replace(self._target)
            sync_path(self._directory)

    def close(self) -> None:
        """Drop what was not flushed: its rows are not marked and its envelopes are sent again."""
        self._torn = ""
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


# --- whose a directory is ---------------------------------------------------------------------------------------------

MARKER: Final = ".eventlog-owner"
_DOCUMENTS: Final = re.compile(r"(\d{12,})-\d{6,}\.(?:xmll?|jsonl?)")
"""Names of documents: ``stem`` and an ending."""


def claim(directory: Path, owner: Owner, newest_flight: Callable[[int], int]) -> None:
    """Make the directory the owner's, durably, before anything is written there; it is made if it is not there.

    ``newest_flight``: the newest number that the owner has given, asked only if the directory holds documents; it is
    told the latest flight of these, and a log that was put back draws numbers until they lie beyond it. A directory
    without a marker is taken over, unless its documents are of flights that the owner has not had. Raises ConfigError
    for such a directory, for another's, and for one that cannot be written.
    """
    try:
        make_directory(directory)
        marked = _read(directory)
        if marked is None or marked.identity == owner.identity:
            _refuse_later_flights(directory, owner, newest_flight)
        if marked is None:
            _write(directory, owner)
            marked = _read(directory) or owner  # another's, if that was faster
    except OSError as error:
        raise unwritable(directory, error) from error
    if marked.identity != owner.identity:
        raise ConfigError(
            f"sink directory {directory} is that of {marked.name}, not of {owner.name}: their documents would replace "
            f"one another; name another directory, or delete {directory / MARKER} if it is the same one, moved or "
            "restored"
        )


def _refuse_later_flights(directory: Path, owner: Owner, newest_flight: Callable[[int], int]) -> None:
    latest = max(
        (int(match[1]) for path in directory.iterdir() if (match := _DOCUMENTS.fullmatch(path.name))), default=0
    )
    if latest and latest > (newest := newest_flight(latest)):
        raise ConfigError(
            f"sink directory {directory} has documents of flight {latest}, but {owner.name} has only come to {newest}: "
            "it was made anew or restored, and would replace them; name another directory, or take them away"
        )


def _read(directory: Path) -> Owner | None:
    """Whose the directory is, None = it is not known."""
    path = directory / MARKER
    try:
        content = json.loads(path.read_bytes())
        return Owner(str(content["identity"]), str(content["name"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            f"{path} does not say whose the directory is: was it changed by hand? Delete it if all documents there are "
            "of one log"
        ) from None


def _write(directory: Path, owner: Owner) -> None:
    marker = directory / MARKER
    temporary = marker.with_name(f"{MARKER}.{os.getpid()}.part")
    with temporary.open("wb") as file:
        file.write(json.dumps(owner._asdict(), ensure_ascii=False).encode() + b"\n")
        sync_file(file)
    try:
        os.link(temporary, marker)  # which, unlike a rename, never replaces the marker of one that was faster
    except FileExistsError:
        temporary.unlink()
    except OSError:  # a file system without links
        temporary.replace(marker)
    else:
        temporary.unlink()
    sync_path(directory)


def stem(flight: int, envelope: int) -> str:
    """The name of a document without its ending: names sort as their numbers do."""
    return f"{flight:012d}-{envelope:06d}"


def make_directory(directory: Path) -> None:
    """Make a directory and those above it that are not there, durably. Raises OSError."""
    if not directory.parent.exists():
        make_directory(directory.parent)
    if not directory.is_dir():
        directory.mkdir(exist_ok=True)
        sync_path(directory.parent)


def unwritable(directory: Path, error: OSError) -> ConfigError:
    """A directory that the sink cannot use."""
    return ConfigError(f"sink directory {directory}: {error.strerror}; name one that can be written")
