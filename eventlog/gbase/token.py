"""The restart token: from where to read again, and what was delivered (spec/gbase-cdc.md 4.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple, Self

from eventlog.errors import ConfigError


class Token(NamedTuple):
    """``restart``: sequence to activate at; ``commit``: highest COMMTX sequence delivered. None while there is none."""

    restart: int | None = None
    commit: int | None = None

    @classmethod
    def of(cls, value: Token | Mapping[str, str | None] | str) -> Self:
        """The token of its JSON form, as object or text. Raises ConfigError."""
        try:
            if isinstance(value, str):
                value = json.loads(value)
            if isinstance(value, Token):
                return cls(*value)
            if isinstance(value, Mapping) and value.keys() <= {"restart", "commit"}:
                return cls(*(None if part is None else int(part, 16) for part in map(value.get, cls._fields)))
        except (ValueError, TypeError):
            pass
        raise ConfigError(f"restart {value!r} is no token; it looks like {Token(0xB01746018, None).to_json()}")

    def to_json(self) -> dict[str, str | None]:
        """The JSON form: sequences as 16 lower-case hex digits."""
        return {name: None if part is None else f"{part:016x}" for name, part in zip(self._fields, self, strict=True)}
