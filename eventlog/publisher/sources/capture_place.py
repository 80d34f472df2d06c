"""How far the files of a capture were read: from where a later start reads them again, and how it knows them again."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

from eventlog.publisher.sources import BadToken

KNOWN: Final = 4096
"""Bytes before a place that tell one capture from another: they hold sequences, which no two captures share."""


class FilePlace(NamedTuple):
    """A byte of a file of the capture. ``file``: its name in the directory."""

    file: str
    offset: int


class CapturePlace(NamedTuple):
    """``restart``: the byte to read again from. ``tables``: the TABSCHEM records in force there, one after the other;
    ``size_order``: what the size arrays before it have shown. ``read``: how far was read, and ``digest`` of the bytes
    before that; ``between``: the names of the files between these two, which are read again too.
    """

    restart: FilePlace
    tables: bytes
    size_order: str | None
    read: FilePlace
    digest: str
    between: tuple[str, ...] = ()

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Self:
        """The place of its JSON form. Raises BadToken."""
        try:
            restart, read, order = value["restart"], value["read"], value["size_order"]
            return cls(
                FilePlace(str(restart["file"]), int(restart["offset"])),
                zlib.decompress(base64.b64decode(value["tables"], validate=True)),
                None if order is None else str(order),
                FilePlace(str(read["file"]), int(read["offset"])),
                str(read["digest"]),
                tuple(map(str, value["between"])),
            )
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise BadToken(
                f"the position names no place in a capture ({error!r}): was it changed by hand? Without its part "
                "capture the files are read from their beginning, and what was answered is skipped"
            ) from None

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "restart": self.restart._asdict(),
            "tables": _packed(self.tables),
            "size_order": self.size_order,
            "read": {**self.read._asdict(), "digest": self.digest},
            "between": list(self.between),
        }


@lru_cache(maxsize=2)
def _packed(tables: bytes) -> str:
    """Compressed, since the position is written again and again, and many tables have long descriptions."""
    return base64.b64encode(zlib.compress(tables)).decode()


def digest_of(known: bytes) -> str:
    """The digest of the bytes before a place, of which there are ``KNOWN`` unless the file has fewer."""
    return hashlib.sha256(known).hexdigest()
