"""The disk of the directory of documents: what it has surely, and what a loss of power takes from
it.

Content is safe once its file was synced, a name once its directory was. Of all else a loss of power
leaves what it likes: a new name or the old one, a file to its end, a part of it, or nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import BinaryIO


class Disk:
    """What is safe of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._contents: dict[int, bytes] = {}
        """The synced content of files, by inode."""
        self._names: dict[str, int] = {}
        """The inode of each name, as of the last sync of the directory."""

    def sync_file(self, file: BinaryIO) -> None:
        """Make the content of an open file safe."""
        file.flush()
        path = Path(file.name)
        if path.parent == self._directory:
            self._contents[path.stat().st_ino] = path.read_bytes()

    def sync_path(self, path: Path | str) -> None:
        """Make the names of the directory safe."""
        if Path(path) == self._directory:
            self._names = dict(self._present())

    def lose_power(self, chance: Random) -> list[str]:
        """Take away what was not synced, as chance has it. Return what is different now, in
        words.
        """
        changes: list[str] = []
        present = dict(self._present())
        for name in sorted(present.keys() | self._names.keys()):
            safe, now = self._names.get(name), present.get(name)
            path = self._directory / name
            if safe != now and chance.random() < 0.5:
                self._go_back(path, safe)
                changes.append(f"{name} is as it was synced" if safe else f"{name} is gone")
            elif now is not None and now not in self._contents:
                content = path.read_bytes()
                path.write_bytes(content[: chance.choice([0, len(content) // 2, len(content)])])
                changes.append(f"{name} is torn")
        for name, inode in self._present():
            self._contents[inode] = (self._directory / name).read_bytes()
        self._names = dict(self._present())
        return changes

    def _go_back(self, path: Path, inode: int | None) -> None:
        path.unlink(missing_ok=True)
        if inode is not None:
            path.write_bytes(self._contents.get(inode, b""))

    def _present(self) -> Iterator[tuple[str, int]]:
        if self._directory.exists():
            with os.scandir(self._directory) as entries:
                yield from sorted((entry.name, entry.inode()) for entry in entries)


__all__ = ["Disk"]
