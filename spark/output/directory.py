"""The output directory, on this machine or where its URI says: files appear whole, under their names, or not at all."""

from __future__ import annotations

import os
import uuid
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from eventlog.errors import ConfigError
from eventlog.files.fsync import sync_path

TEMPORARY: Final = "_temporary"
"""The folder of what is being written."""


class Directory:
    """The output directory, on this machine or where its URI says. Raises ConfigError if it cannot be used."""

    def __init__(self, location: str) -> None:
        self.location = location
        try:
            if "://" in location:
                self._fs, self.path = fs.FileSystem.from_uri(location)
            else:
                self._fs, self.path = fs.LocalFileSystem(), os.path.abspath(location)  # noqa: PTH100 - not resolved
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ConfigError(f"--out {location}: {error}; give a path or a URI such as s3://bucket/prefix") from error
        self.is_local = isinstance(self._fs, fs.LocalFileSystem)

    def within(self, name: str) -> str:
        return f"{self.path}/{name}"

    def names(self) -> dict[str, int | None]:
        """Files and folders by name (files with their sizes), at the first level; empty if it does not exist."""
        found = self._fs.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return {info.base_name: info.size if info.is_file else None for info in found}

    def files(self) -> dict[str, int]:
        """All files, in folders too, by their names within the directory, with their sizes."""
        found = self._fs.get_file_info(fs.FileSelector(self.path, recursive=True))
        return {info.path.removeprefix(self.path).lstrip("/"): info.size for info in found if info.is_file}

    def is_file(self) -> bool:
        return bool(self._fs.get_file_info(self.path).type == fs.FileType.File)

    def make(self, name: str = "") -> None:
        self._fs.create_dir(self.within(name) if name else self.path, recursive=True)

    def read(self, name: str) -> bytes:
        with self._fs.open_input_stream(self.within(name)) as stream:
            return bytes(stream.read())

    def exists(self, name: str) -> bool:
        return bool(self._fs.get_file_info(self.within(name)).type != fs.FileType.NotFound)

    def write(self, name: str, content: bytes) -> None:
        """A small file, whole or not at all, on the disk when this returns."""
        temporary = f"{TEMPORARY}-{uuid.uuid4().hex}"
        with self.open(temporary) as stream:
            stream.write(content)
        self.settle(temporary, name)

    def open(self, name: str) -> Any:
        """A stream to a new file. Raises ConfigError if its folder is not there, as where workers have another disk."""
        try:
            return self._fs.open_output_stream(self.within(name))
        except FileNotFoundError:
            raise ConfigError(
                f"{self.within(name)} cannot be written: its folder is not there; is {self.location} a directory that "
                "the driver and all workers reach under the same name?"
            ) from None

    def settle(self, temporary: str, name: str) -> None:
        """Give a finished file its name. On this machine it is on the disk then; its directory is not yet."""
        if self.is_local:
            sync_path(self.within(temporary))
        self._fs.move(self.within(temporary), self.within(name))

    def sync(self, name: str = "") -> None:
        """Make the names in the directory durable."""
        if self.is_local:
            sync_path(self.within(name) if name else self.path)

    def delete(self, name: str) -> None:
        if self._fs.get_file_info(self.within(name)).is_file:
            self._fs.delete_file(self.within(name))
        else:
            self._fs.delete_dir(self.within(name))
