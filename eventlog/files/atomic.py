"""Output that appears complete or not at all: it is written under another name, and renamed at the
end.
"""

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
"""Errors that only writing can cause, so that they always concern the file that is being written.
"""


def check_parent(path: Path) -> None:
    """Raise ConfigError if the parent directory of the output ``path`` does not exist. Outputs
    never create their parent directories.
    """
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path} cannot be written: the directory {path.parent} does not exist; create it, or "
            "correct the path"
        )


def remove_file(path: Path) -> None:
    """Remove an output of an earlier run, if it is a regular file. A link stays; the file that it
    leads to is removed. Raises OSError.
    """
    real = Path(os.path.realpath(path))
    if real.is_file() and not _is_special(path):
        with _named(path, real):
            real.unlink()


@contextmanager
def whole_file(target: str) -> Iterator[BinaryIO]:
    """Open a file for writing. The file becomes ``target`` if the block ends without an error;
    otherwise the file is removed.

    An existing file is replaced. A special file (``/dev/null``, a pipe) is written to directly.
    Raises ConfigError as ``whole_path`` does.
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
    """Yield the path under which to write a file. The file becomes ``target`` at the end of the
    block.

    A link stays, and the file that it leads to is replaced; the mode of an existing file is kept.
    Raises ConfigError if the target is a directory or a special file, or if its parent directory
    does not exist.
    """
    path = Path(os.path.realpath(target))
    if path.is_dir():
        raise ConfigError(f"{target} is a directory: give the path of a file in it")
    # The target of a link such as /dev/stdout may not be the name of a file.
    if _is_special(Path(target)):
        raise ConfigError(
            f"{target} is not a regular file, which this format needs: give the path of a file"
        )
    temporary = _temporary_path(path)
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
    """Yield a directory to write to. The directory becomes ``target`` at the end of the block.

    Raises ConfigError if the target exists and is not an empty directory, or if its parent
    directory does not exist.
    """
    path = Path(target)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(
            f"{target} exists and is not an empty directory: give another path, or empty it"
        )
    temporary = _temporary_path(path)
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
    """Create the directory of an output if it does not exist; if the block fails, remove it again.

    Raises ConfigError if the directory above does not exist.
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


def _temporary_path(path: Path) -> Path:
    """Return a temporary path for the unfinished output, in the directory of the output.

    Raises ConfigError if its directory does not exist.
    """
    check_parent(path)
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def _named(target: Path, written: Path) -> Iterator[None]:
    """Put the name of the target into errors of writing: in place of the name of the unfinished
    output, or of a missing name.
    """
    try:
        yield
    except OSError as error:
        if error.filename == str(written) or (
            error.filename is None and error.errno in _OF_WRITING
        ):
            error.filename = str(target)
        raise


def sync_file(file: BinaryIO) -> None:
    """Make the content of an open file durable. Raises OSError."""
    file.flush()
    os.fsync(file.fileno())


def sync_path(path: Path | str) -> None:
    """Make the content of a closed file, or the names in a directory, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
