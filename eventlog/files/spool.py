"""Things that are read twice: kept in a temporary file as soon as they are many."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, Final, TypeVar

_TOGETHER: Final = 500
_BYTES_IN_MEMORY: Final = 16 << 20

T = TypeVar("T")


@contextmanager
def spooled(things: Iterable[T]) -> Iterator[Callable[[], Iterator[T]]]:
    """All of them are read on entering; in the block a function gives them again, from the first one on.

    What they take in memory is bounded. They are read by one at a time, and have to be what pickle takes.
    """
    with tempfile.SpooledTemporaryFile(_BYTES_IN_MEMORY, prefix="eventlog-") as file:
        left = iter(things)
        while several := list(islice(left, _TOGETHER)):
            pickle.dump(several, file, pickle.HIGHEST_PROTOCOL)
        yield lambda: _again(file)


def _again(file: IO[bytes]) -> Iterator[T]:
    file.seek(0)
    while True:
        try:
            several = pickle.load(file)  # noqa: S301 - a file without a name, written above
        except EOFError:
            return
        yield from several
