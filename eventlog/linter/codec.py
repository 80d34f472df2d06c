"""The interface to row images (spec/linter-queue.md 6).

The image of a row inside DATA is not publicly documented. A codec for the images of a server is given by who knows
them; the only one here is that of our own emulator (``image``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from eventlog.errors import ConfigError
from eventlog.linter.attributes import TableAttrs
from eventlog.linter.image import EmulatorCodec
from eventlog.model import Value


@runtime_checkable
class RowCodec(Protocol):
    """Row images of one kind. What ``decode`` raises becomes RowDecodeError with address and table."""

    name: str

    def decode(self, table: TableAttrs, image: bytes) -> dict[str, Value]:
        """The values of all columns by name."""
        ...

    def encode(self, table: TableAttrs, row: Mapping[str, Value]) -> bytes:
        """The image of a row that names all columns."""
        ...


def row_codec(option: object, charset: str = "utf-8") -> RowCodec | None:
    """The codec of the option ``codec``: an object, ``"none"`` or ``"eventlog-emulator-1"``.

    ``charset`` is that of the emulator's CHAR and VARCHAR. Raises ConfigError.
    """
    if option == "none":
        return None
    if option == EmulatorCodec.name:
        return EmulatorCodec(charset)
    if isinstance(option, RowCodec):
        return option
    raise ConfigError(
        f"codec {option!r} is unknown; use none, {EmulatorCodec.name} or an object with decode and encode"
    )
