"""A record of a topic: what the reader of messages takes and their writer gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Message(NamedTuple):
    """A record that was read. ``topic`` is None where it is not known; ``value`` is None for a tombstone, and may be an
    object of JSON that was parsed with ``parse_float=Decimal``.
    """

    topic: str | None
    key: bytes | None
    value: bytes | Mapping[str, Any] | None


class Written(NamedTuple):
    """A record that is to be written."""

    topic: str
    key: bytes | None
    value: bytes
