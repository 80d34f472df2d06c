"""The statements of the .sql files beside this module, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources


@cache
def read(file: str) -> Mapping[str, str]:
    """The statements of a file, each below its line ``-- name:``."""
    script = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- name: (\w+)$", script, flags=re.MULTILINE)
    return {name: sql.strip().rstrip(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)}
