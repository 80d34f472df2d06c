"""Write documents to files, which have a temporary name until they are complete and synced
(spec/event-log.md 10).

The directory records its owner in a file whose name begins with a dot, which consumers skip.
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
from eventlog.errors import ConfigError, ReceiverUnavailable
from eventlog.files.atomic import sync_file, sync_path
from eventlog.model import Answer, Document
from eventlog.publisher.sinks import FILE_LAYOUT, Opening, Owner, Sink, as_receiver_unavailable
from eventlog.publisher.sinks.names import (
    OpenName,
    refuse_another_owner,
    refuse_later_deliveries,
    stem,
)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options of ``[sink]`` of type ``files``."""

    directory: Path | None = option(
        None, PATH, "the directory, relative to this file unless absolute", example="documents"
    )
    file_layout: str = shared(FILE_LAYOUT)


class FilesSink(Sink):
    """A sink that writes documents to files of a directory, in one of two layouts."""

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
    def try_out(cls, options: FileOptions, opening: Opening) -> str:
        """Write a file into the directory and remove it. A missing directory is not made: the file
        is written where the directory will be made.
        """
        assert options.directory is not None
        directory = options.directory
        place = next(one for one in (directory, *directory.absolute().parents) if one.exists())
        trial = place / f".eventlog-trial-{os.getpid()}"
        with as_receiver_unavailable(directory):
            trial.write_bytes(b"trial\n")
            trial.unlink()
        if place is directory:
            return f"{directory} can be written"
        return (
            f"there is no directory {directory} yet; the publisher will create it in {place}, "
            "which can be written"
        )

    @classmethod
    def claim(
        cls, options: FileOptions, owner: Callable[[], Owner], newest_delivery: Callable[[int], int]
    ) -> None:
        assert options.directory is not None
        claim(options.directory, owner(), newest_delivery)


class DocumentFiles(FilesSink):
    """A sink that writes each document to a file, named ``<delivery>-<document>`` with a suffix."""

    def __init__(self, directory: Path, ending: str = ".xml") -> None:
        self._directory, self._ending = _prepare(directory), ending
        self._dirty = False

    def send(self, document: Document) -> Answer:
        target = (
            self._directory / f"{stem(document.delivery_no, document.document_no)}{self._ending}"
        )
        with as_receiver_unavailable(target):
            part = _temporary(target)
            with part.open("wb") as file:
                file.write(document.body)
                sync_file(file)
            part.replace(target)
        self._dirty = True
        return Answer()

    def flush(self) -> None:
        if self._dirty:
            with as_receiver_unavailable(self._directory):
                sync_path(self._directory)
            self._dirty = False

    def close(self) -> None:
        self.flush()


class LineFiles(FilesSink):
    """A sink that writes a line for each document and a file for each delivery, named
    ``<delivery>-<first document>`` with a suffix.

    A delivery whose rows are marked in several parts has a file for each part. Each file is
    complete before its rows are marked. A file that could not be written to its end is removed,
    since its last line may be incomplete. Events are never added to an existing name
    (``OpenName``).
    """

    def __init__(self, directory: Path, ending: str = ".xmll") -> None:
        self._directory, self._ending = _prepare(directory), ending
        self._file: BinaryIO | None = None
        self._open = OpenName()
        self._target = directory

    def send(self, document: Document) -> Answer:
        if self._file is not None and not self._open.takes(document):
            self._open.change(self.flush)
        with as_receiver_unavailable(self._directory):
            if self._file is None:
                self._target = (
                    self._directory
                    / f"{stem(document.delivery_no, document.document_no)}{self._ending}"
                )
                self._open = OpenName(
                    document.delivery_no, was_there=self._target.exists(), lost=self._open.lost
                )
                self._file = _temporary(self._target).open("wb")
            self._open.document_no = document.document_no
            try:
                self._file.write(document.body)
            except OSError as error:
                why = (
                    f"{self._target} was not written to its end and has been dropped: "
                    f"{error.strerror or error}"
                )
                self._open.lost = ReceiverUnavailable(why, why)
                raise
        return Answer()

    def flush(self) -> None:
        if (lost := self._open.lost) is not None:
            self.close()
            raise lost
        if self._file is None:
            return
        file, self._file = self._file, None
        with as_receiver_unavailable(self._target), file:
            sync_file(file)
            _temporary(self._target).replace(self._target)
            sync_path(self._directory)

    def close(self) -> None:
        """Discard unflushed documents, which are sent again: their rows stay unmarked."""
        self._open.lost = None
        if self._file is not None:
            file, self._file = self._file, None
            with contextlib.suppress(OSError):
                file.close()
            with contextlib.suppress(OSError):
                _temporary(self._target).unlink()


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.part")


def _prepare(directory: Path) -> Path:
    """Create the directory, remove incomplete files of a killed publisher, and make the names of
    its complete files durable: a reader may have read these files, so a power loss must not remove
    them.
    """
    try:
        make_directory(directory)
        for leftover in directory.glob(".*.part"):
            leftover.unlink()
        sync_path(directory)
    except OSError as error:
        raise unwritable(directory, error) from error
    return directory


# --- the owner of a directory ---------------------------------------------------------------------

MARKER: Final = ".eventlog-owner"
_DOCUMENTS: Final = re.compile(r"(\d{12,})-\d{6,}\.(?:xmll?|jsonl?)")
"""Matches the names of documents: ``stem`` and a suffix."""


def claim(directory: Path, owner: Owner, newest_delivery: Callable[[int], int]) -> None:
    """Record the owner in the directory, durably, before anything is written there. A missing
    directory is created.

    ``newest_delivery`` is called only if the directory has documents. The function receives the
    latest delivery of these documents and returns the newest number that the owner has drawn; a
    restored log first draws numbers until they are greater than this delivery. A directory without
    an owner gets this owner, unless it has documents of deliveries that the owner has not drawn
    yet. Raises ConfigError for a directory with documents of deliveries that the owner has not
    drawn yet, for a directory of another owner, and for a directory that cannot be written.
    """
    try:
        make_directory(directory)
        marked = marked_owner(directory)
        if marked is None or marked.identity == owner.identity:
            refuse_later_deliveries(
                owner,
                _latest_delivery(directory),
                newest_delivery,
                place=f"directory {directory}",
                contents="documents",
                fix=", or move the documents away",
            )
        if marked is None:
            _write(directory, owner)
            marked = marked_owner(directory) or owner  # of another owner, if that one was faster
    except OSError as error:
        raise unwritable(directory, error) from error
    refuse_another_owner(
        owner,
        marked,
        place=f"directory {directory}",
        contents="documents",
        marker=str(directory / MARKER),
    )


def _latest_delivery(directory: Path) -> int:
    return max(
        (
            int(match[1])
            for path in directory.iterdir()
            if (match := _DOCUMENTS.fullmatch(path.name))
        ),
        default=0,
    )


def marked_owner(directory: Path) -> Owner | None:
    """Return the owner of the directory, None if the directory has no marker."""
    path = directory / MARKER
    try:
        content = json.loads(path.read_bytes())
        return Owner(str(content["identity"]), str(content["name"]))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ConfigError(
            f"{path} does not name the directory's owner; perhaps it was changed by hand. Delete "
            "it if all documents there come from one log"
        ) from None


def _write(directory: Path, owner: Owner) -> None:
    marker = directory / MARKER
    temporary = marker.with_name(f"{MARKER}.{os.getpid()}.part")
    with temporary.open("wb") as file:
        file.write(json.dumps(owner._asdict(), ensure_ascii=False).encode() + b"\n")
        sync_file(file)
    try:
        # Unlike a rename, a link never replaces the marker of a faster process.
        os.link(temporary, marker)
    except FileExistsError:
        temporary.unlink()
    except OSError:  # a file system without links
        temporary.replace(marker)
    else:
        temporary.unlink()
    sync_path(directory)


def make_directory(directory: Path) -> None:
    """Create a directory and its missing parents, durably. Raises OSError."""
    if not directory.parent.exists():
        make_directory(directory.parent)
    if not directory.is_dir():
        directory.mkdir(exist_ok=True)
        sync_path(directory.parent)


def unwritable(directory: Path, error: OSError) -> ConfigError:
    """Return the error for a directory that the sink cannot use."""
    return ConfigError(
        f"sink directory {directory}: {error.strerror}; name a directory that this user can write"
    )
