"""The compressions that files and requests are written in. Equal content gives equal bytes."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Final, NamedTuple


class Compression(NamedTuple):
    """A compression: the suffix of a file's name, and a function of the content. Blocks may be
    compressed separately: compressed blocks that follow one another are one compressed file.
    """

    suffix: str
    compress: Callable[[bytes], bytes]


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, 6, mtime=0)


def _zstd(content: bytes) -> bytes:
    import pyarrow  # a late import, since Arrow takes half a second to load

    return bytes(pyarrow.Codec("zstd").compress(content, asbytes=True))


COMPRESSIONS: Final = {
    "none": Compression("", bytes),
    "gzip": Compression(".gz", _gzip),
    "zstd": Compression(".zst", _zstd),
}
"""The compressions by their names in options."""

SUFFIXES: Final = tuple(one.suffix for one in COMPRESSIONS.values() if one.suffix)
"""The suffixes of compressed files, which can also be read."""
