"""The disk of the directory of documents: what it has surely, and what a loss of power takes from
it.

Content is safe once its file was synced, a name once its directory was. Of all else a loss of power
leaves what it likes: a new name or the old one, a file to its end, a part of it, or nothing.

A write has points of the scheduler: when the file is open, at its half, and before it is synced. A
process can be killed there, or the disk be full; what it would clean up as an exception passes stays.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, BinaryIO

from scheduler import Killed

from eventlog.errors import ReceiverUnavailable

if TYPE_CHECKING:
    from world import World

_DOCUMENTS = re.compile(r"\.?\d{12}-")
"""The names of documents, and those of files that will have such a name."""


class Disk:
    """What is safe of one directory of a world."""

    def __init__(self, world: World, directory: Path) -> None:
        self._world, self._directory = world, directory
        self._contents: dict[int, bytes] = {}
        """The synced content of files, by inode."""
        self._names: dict[str, int] = {}
        """The inode of each name, as of the last sync of the directory."""
        self._not_synced: dict[str, Any] = {}
        """The processes that have renamed files since the directory was synced, by the new name."""

    def sync_file(self, file: BinaryIO) -> None:
        """Make the content of an open file safe."""
        path = Path(file.name)
        self.point("sync", path)
        file.flush()
        if path.parent == self._directory:
            self._contents[path.stat().st_ino] = path.read_bytes()

    def sync_path(self, path: Path | str) -> None:
        """Make the names of the directory safe."""
        self._refuse_dead()
        if Path(path) == self._directory:
            self._names = dict(self._present())
            self._not_synced.clear()

    def is_renamed(self, name: str) -> None:
        """Note that the present process has given a file its name, which is not safe yet."""
        if task := self._world.scheduler.current:
            self._not_synced[name] = task.process

    def opening(self, open_path: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``Path.open``: documents are written to files that have points."""

        def opened(path: Path, mode: str = "r", *given: Any, **named: Any) -> Any:
            is_written = mode == "wb" and path.parent == self._directory
            if not is_written or self._world.scheduler.current is None:
                return open_path(path, mode, *given, **named)
            file = _Written(self, path)
            try:
                self.point("opened", path)
            except Killed:
                file.close()
                raise
            return file

        return opened

    def unlinking(self, unlink: Callable[..., None]) -> Callable[..., None]:
        """Return ``Path.unlink``: a process that was killed removes nothing."""

        def unlinked(path: Path, *given: Any, **named: Any) -> None:
            self._refuse_dead()
            unlink(path, *given, **named)

        return unlinked

    def point(self, at: str, path: Path) -> None:
        """Hand control over within a write of a document. If the process is killed here, a reader
        reads what is there."""
        self._refuse_dead()
        if _DOCUMENTS.match(path.name):
            with self._read_when_killed():
                self._world.scheduler.point(f"{at} {path.name}")

    def refuse_if_full(self, path: Path) -> None:
        """Raise OSError with the present probability."""
        try:
            self._world.refuse_if_away("the disk is full")
        except ReceiverUnavailable as error:
            raise OSError(errno.ENOSPC, str(error), str(path)) from None

    @contextmanager
    def _read_when_killed(self) -> Iterator[None]:
        try:
            yield
        except Killed:
            self._world.readers.look()
            raise

    def _refuse_dead(self) -> None:
        task = self._world.scheduler.current
        if task is not None and task.process.is_dead:
            raise Killed

    def lose_power(self, chance: Random, ended: Sequence[Any]) -> list[str]:
        """Take away what was not synced, as chance has it. Return what is different now, in
        words. ``ended`` are the processes that ran until then.
        """
        changes: list[str] = []
        present = dict(self._present())
        unread = self._world.readers.unread()
        for name in sorted(present.keys() | self._names.keys()):
            safe, now = self._names.get(name), present.get(name)
            path = self._directory / name
            if safe != now and chance.random() < 0.5:
                self._go_back(path, safe)
                changes.append(f"{name} is as it was synced" if safe else f"{name} is gone")
                if self._not_synced.get(name) in ended:
                    self._world.readers.forget(name)
            elif now is not None and now not in self._contents:
                content = path.read_bytes()
                path.write_bytes(content[: chance.choice([0, len(content) // 2, len(content)])])
                changes.append(f"{name} is torn")
        for name, inode in self._present():
            self._contents[inode] = (self._directory / name).read_bytes()
        self._names = dict(self._present())
        last = max(self._names, default="")
        self._world.readers.lose(
            unread[name] for name in unread.keys() - self._names.keys() if name < last
        )
        return changes

    def _go_back(self, path: Path, inode: int | None) -> None:
        path.unlink(missing_ok=True)
        if inode is not None:
            path.write_bytes(self._contents.get(inode, b""))

    def _present(self) -> Iterator[tuple[str, int]]:
        if self._directory.exists():
            with os.scandir(self._directory) as entries:
                yield from sorted((entry.name, entry.inode()) for entry in entries)


class _Written(FileIO):
    """A document that is written, without a buffer: what was written is there when its process is
    killed."""

    def __init__(self, disk: Disk, path: Path) -> None:
        super().__init__(path, "wb")
        self._disk, self._path = disk, path

    def write(self, content: Any) -> int:
        half = len(content) // 2
        super().write(content[:half])
        self._disk.point("half", self._path)
        self._disk.refuse_if_full(self._path)
        super().write(content[half:])
        return len(content)


__all__ = ["Disk"]
