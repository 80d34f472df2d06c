"""Output that is there whole or not at all: written under another name, renamed at the end."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from eventlog.errors import ConfigError

_OF_WRITING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What only writing fails with, so that the file it is said of is ours."""


def check_parent(path: Path) -> None:
    """Raise ConfigError if there is no directory that the output ``path`` can be put into: none is made on the way."""
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path} cannot be written: there is no directory {path.parent}; make it, or correct the path"
        )


@contextmanager
def whole_file(target: str) -> Iterator[BinaryIO]:
    """A file to write to, which becomes ``target`` when it is left without an error; else nothing is left of it.

    A file that is there is replaced; what is no regular file (``/dev/null``, a pipe) is written to directly. Raises
    ConfigError as ``whole_path``.
    """
    path = Path(target)
    if _is_special(path):
        with _named(path, path), path.open("wb") as file:
            yield file
        return
    with whole_path(target) as temporary, temporary.open("wb") as file:
        yield file
        sync_file(file)


@contextmanager
def whole_path(target: str) -> Iterator[Path]:
    """The path to write a file under, which becomes ``target``: the file that a link leads to, with the mode of the
    one that was there.

    Raises ConfigError if that is a directory or no regular file, or its own directory is not there.
    """
    path = Path(os.path.realpath(target))
    if path.is_dir():
        raise ConfigError(f"{target} is a directory: name the file to write")
    if _is_special(Path(target)):  # the path that a link such as /dev/stdout leads to may be no name of a file
        raise ConfigError(f"{target} is no regular file, which this format needs: name a file to write")
    temporary = _beside(path)
    try:
        with _named(Path(target), temporary):
            yield temporary
            if path.exists():
                shutil.copymode(path, temporary)
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
    with _named(path, temporary):
        temporary.mkdir()
        try:
            yield temporary
            if path.exists():
                path.rmdir()
            temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def directory_of(path: Path) -> Iterator[None]:
    """Make the directory of an output if it is not there; where nothing came of the output it goes again.

    Raises ConfigError if the directory above is not there.
    """
    directory = path.parent
    is_new = not directory.exists()
    if is_new:
        check_parent(directory)
        directory.mkdir()
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):
                directory.rmdir()
        raise


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _beside(path: Path) -> Path:
    """The name of the unfinished output. Raises ConfigError without a directory to write it to."""
    check_parent(path)
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def _named(target: Path, written: Path) -> Iterator[None]:
    """Errors of writing bear the name of the target, not that of the unfinished output, or none."""
    try:
        yield
    except OSError as error:
        if error.filename == str(written) or (error.filename is None and error.errno in _OF_WRITING):
            error.filename = str(target)
        raise


def sync_file(file: BinaryIO) -> None:
    """Make the content of a file that is being written durable. Raises OSError."""
    file.flush()
    os.fsync(file.fileno())


def sync_path(path: Path | str) -> None:
    """Make the content of a closed file durable, or the names in a directory. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
