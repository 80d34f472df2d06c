"""What the output directory of a conversion says of itself: whose it is, and whether it is finished.

``_STARTED`` is written first and ``_SUCCESS`` last; in between nothing in the directory counts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from eventlog.errors import ConfigError
from spark.output.directory import TEMPORARY, Directory

__all__ = ["TEMPORARY", "abandon", "begin", "finish", "finished", "reopen"]

_STARTED: Final = "_STARTED"
_SUCCESS: Final = "_SUCCESS"
_MANIFEST: Final = "_manifest.json"
_FORM: Final = 1


def finished(location: str, what: Mapping[str, str], outputs: Collection[str]) -> list[Mapping[str, Any]] | None:
    """The reports of the captures if the directory is finished, None if a conversion may begin there.

    ``what`` is converted, by formats, source and options; ``outputs``: what it writes there. Raises ConfigError for a
    directory that is somebody else's or of another conversion.
    """
    directory = Directory(location)
    if directory.is_file():
        raise ConfigError(f"{location} is a file; give a directory that is empty or does not exist")
    names = directory.names()
    if all(name.startswith(TEMPORARY) for name in names):  # a run was killed before it could say whose it is
        return None
    if not {_STARTED, _MANIFEST} & names.keys():
        raise ConfigError(
            f"{location} is not empty and not the output of a conversion; nothing in it was touched. Give a directory "
            "that is empty or does not exist"
        )
    is_finished = _MANIFEST in names and _SUCCESS in names
    said = _parse(directory, _MANIFEST if is_finished else _STARTED)
    if {name: said.get(name) for name in what} != what:
        raise ConfigError(
            f"{location} holds {said.get('source')} converted from {said.get('from')} to {said.get('to')} with its own "
            "options; give another directory"
        )
    if is_finished:
        captures: list[Mapping[str, Any]] = said["captures"]
        return captures
    ours = {*said.get("outputs", ()), *outputs, _STARTED, _MANIFEST, _SUCCESS}
    foreign = sorted(name for name in names if name not in ours and not name.startswith(TEMPORARY))
    if foreign:
        raise ConfigError(
            f"{location} is the output of an unfinished conversion, but holds {foreign[0]}, which is not of it; "
            "nothing was touched. Move it away, or give another directory"
        )
    return None


def begin(location: str, what: Mapping[str, str], outputs: Sequence[str]) -> None:
    """Make the directory ours and empty: what an unfinished conversion left is discarded."""
    directory = Directory(location)
    directory.make()
    directory.write(_STARTED, json.dumps({**what, "outputs": outputs}).encode())
    for name in sorted(directory.names()):
        if name != _STARTED:
            directory.delete(name)
    directory.make(TEMPORARY)


def abandon(location: str) -> None:
    """Empty a directory that was begun: nothing in it counts, and another conversion may have it."""
    directory = Directory(location)
    for name in sorted(directory.names(), key=lambda name: name == _STARTED):
        directory.delete(name)


def reopen(location: str, what: Mapping[str, str], outputs: Sequence[str]) -> None:
    """Make a finished directory an unfinished one in which everything stays."""
    directory = Directory(location)
    directory.write(_STARTED, json.dumps({**what, "outputs": outputs}).encode())
    directory.delete(_SUCCESS)
    directory.make(TEMPORARY)


def finish(location: str, what: Mapping[str, str], captures: Sequence[Mapping[str, Any]]) -> None:
    """Check that every output is there whose capture has not failed, write the manifest, and then ``_SUCCESS``.

    Raises ConfigError.
    """
    directory = Directory(location)
    there = directory.names()
    for capture in captures:
        if capture["failed"] is None and capture["output"] not in there:
            raise ConfigError(
                f"{location} does not hold {capture['output']}, which was written; is it a directory that the driver "
                "and all workers reach under the same name?"
            )
    directory.delete(TEMPORARY)
    directory.write(_MANIFEST, (json.dumps({"form": _FORM, **what, "captures": captures}, indent=1) + "\n").encode())
    directory.sync()
    directory.write(_SUCCESS, b"")
    directory.delete(_STARTED)
    directory.sync()


def _parse(directory: Directory, name: str) -> dict[str, Any]:
    try:
        value = json.loads(directory.read(name))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{directory.location}/{name} cannot be read ({error}); give another directory") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{directory.location}/{name} is damaged; give another directory")
    return value
