"""The directory of the files sink, and whose it is: flight numbers are unique in one log only (spec/event-log.md 10).

The directory remembers it in a file whose name begins with a dot, which consumers pass over. Another log, or one that
was made anew and counts its flights from 1 again, would replace documents that nobody has taken yet.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.errors import ConfigError
from eventlog.files.fsync import sync_file, sync_path

MARKER: Final = ".eventlog-owner"
_DOCUMENTS: Final = re.compile(r"(\d{12,})-\d{6,}\.xmll?")
"""Names of documents: ``stem`` and an ending."""


class Owner(NamedTuple):
    """A log, or a source that is followed. ``name`` is for people.

    ``identity``: a text that no other one has, nor the same when it is made anew, as far as that can be told.
    """

    identity: str
    name: str


def claim(directory: Path, owner: Owner, newest_flight: Callable[[], int]) -> None:
    """Make the directory the owner's, durably, before anything is written there; it is made if it is not there.

    ``newest_flight``: the newest number that the owner has given, only asked where there are documents. One without a
    marker is taken over, unless these are of flights that the owner has not had. Raises ConfigError for such a
    directory, for another's, and for one that cannot be written.
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


def _refuse_later_flights(directory: Path, owner: Owner, newest_flight: Callable[[], int]) -> None:
    latest = max(
        (int(match[1]) for path in directory.iterdir() if (match := _DOCUMENTS.fullmatch(path.name))), default=0
    )
    if latest and latest > (newest := newest_flight()):
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
