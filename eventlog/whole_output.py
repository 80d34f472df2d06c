"""Output that is there whole or not at all: written under another name, renamed at the end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from eventlog.errors import ConfigError


@contextmanager
def whole_file(target: str) -> Iterator[BinaryIO]:
    """A file to write to, which becomes ``target`` when it is left without an error; else nothing is left of it.

    A file that is there is replaced; what is no regular file (``/dev/null``, a pipe) is written to directly.
    """
    path = Path(target)
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as file:
            yield file
        return
    with whole_path(target) as temporary, temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def whole_path(target: str) -> Iterator[Path]:
    """The path to write a file under, which becomes ``target``.

    Raises ConfigError if that is a directory, or its own directory is not there.
    """
    path = Path(target)
    if path.is_dir():
        raise ConfigError(f"{target} is a directory: name the file to write")
    temporary = _beside(path)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_directory(target: str) -> Iterator[Path]:
    """A directory to write to, which becomes ``target``.

    Raises ConfigError if that is there and not empty, or its own directory is not there.
    """
    path = Path(target)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{target} is there and not an empty directory: name another, or empty it")
    temporary = _beside(path)
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            path.rmdir()
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _beside(path: Path) -> Path:
    """The name of the unfinished output. Raises ConfigError without a directory to write it to."""
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path} cannot be written: there is no directory {path.parent}; make it, or correct the path"
        )
    return path.with_name(f".{path.name}.{os.getpid()}.part")
