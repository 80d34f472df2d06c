"""The place of the documents of a publisher or a backlog job: a file, a directory, or an object
store (spec/verify.md 4.2).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from eventlog.errors import ConfigError
from eventlog.files.compression import SUFFIXES
from eventlog.files.tabular import open_bytes
from eventlog.files.text import order_of
from eventlog.publisher.sinks.objects import ObjectOptions, ObjectStore


class PlacedFile(NamedTuple):
    """A file of documents. ``stamp`` changes whenever the content changes."""

    name: str
    stamp: tuple[int, int]

    @property
    def order(self) -> tuple[object, ...]:
        """The sort key: files of later deliveries come later, whatever folder they are in."""
        return order_of(self.name.rpartition("/")[2]), order_of(self.name)


def _is_chosen(name: str, suffixes: Collection[str] | None) -> bool:
    parts = name.split("/")
    return not any(part.startswith(("_", ".")) for part in parts) and (
        suffixes is None or Path(_unpacked_name(parts[-1])).suffix.lower() in suffixes
    )


def _unpacked_name(name: str) -> str:
    return Path(name).stem if name.endswith(SUFFIXES) else name


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """Yield the path of a file. If the file is compressed, it is the path of a temporary file with
    the decompressed content.
    """
    if not path.name.endswith(SUFFIXES):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="eventlog-verify-") as directory:
        plain = Path(directory) / _unpacked_name(path.name)
        with open_bytes(path) as content, plain.open("wb") as file:
            shutil.copyfileobj(content, file)
        yield plain


@dataclass(frozen=True, slots=True)
class Directory:
    """A file, or a directory with its folders."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def files(self, suffixes: Collection[str] | None) -> list[PlacedFile]:
        """Return the files in this place. ``suffixes`` selects the files; None = all.

        Files and folders whose names begin with ``_`` or ``.`` are left out. Raises ConfigError if
        the place cannot be read.
        """
        if self.path.is_file():
            return [_stamped("", self.path)]
        if not self.path.is_dir():
            raise ConfigError(f"there is no file or directory {self.path}: correct --target")
        found = []
        for path in self.path.rglob("*"):
            name = path.relative_to(self.path).as_posix()
            if _is_chosen(name, suffixes) and path.is_file():
                found.append(_stamped(name, path))
        return found

    @contextmanager
    def opened(self, name: str) -> Iterator[Path]:
        """Yield the path of a file with the content of the file ``name``. The content is
        decompressed if the name has the suffix of a compressed file. Raises FormatError if the
        content cannot be decompressed.
        """
        with _unpacked(self.path / name if name else self.path) as path:
            yield path


def _stamped(name: str, path: Path) -> PlacedFile:
    status = path.stat()
    return PlacedFile(name, (status.st_size, status.st_mtime_ns))


class Objects:
    """The objects in a store that the sink ``objects`` has written."""

    def __init__(self, options: ObjectOptions) -> None:
        self._store = ObjectStore(options)

    def __str__(self) -> str:
        return self._store.bucket_url

    def files(self, suffixes: Collection[str] | None) -> list[PlacedFile]:
        """Return the objects, as ``Directory.files`` returns files."""
        return [
            PlacedFile(name, (size, changed))
            for name, size, changed in self._store.listed()
            if _is_chosen(name, suffixes)
        ]

    @contextmanager
    def opened(self, name: str) -> Iterator[Path]:
        """Yield the path of a file with the object's content, as ``Directory.opened`` does."""
        with tempfile.TemporaryDirectory(prefix="eventlog-verify-") as directory:
            path = Path(directory) / name.rpartition("/")[2]
            path.write_bytes(self._store.content(name))
            with _unpacked(path) as plain:
                yield plain


Place: TypeAlias = Directory | Objects
"""A place where documents are."""
