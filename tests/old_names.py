"""The options that vectors of before 0.1 name, and their names of today. Vectors outside the
project (``--vectors DIR``) may still carry the names of before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_ERROR: Final = {"raise": "error"}

OPTIONS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "begin": ("start_from", {"now": "latest", "first": "earliest"}),
    "blob_operations": ("blob_operations", _ERROR),
    "capture": ("trigger_level", {}),
    "duplicate_begin": ("duplicate_begin", _ERROR),
    "flight_bytes": ("delivery_bytes", {}),
    "flight_rows": ("delivery_rows", {}),
    "loopback_rows": ("loopback_action", {"consume": "mark", "leave": "keep"}),
    "max_tries": ("max_attempts", {}),
    "missing_columns": ("missing_columns", {"refuse": "error"}),
    "on_row_error": ("on_row_error", _ERROR),
    "orphans": ("orphans", _ERROR),
    "style": ("row_style", {}),
    "suspect_after": ("isolate_after", {}),
    "truncate": ("truncate", _ERROR),
}
"""By the option's name of before: its name of today, and its values that have another name."""


def in_new_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the names and values of today; options of today stay as they are."""
    renamed = {}
    for name, value in options.items():
        new, values = OPTIONS.get(name, (name, {}))
        renamed[new] = values.get(value, value) if isinstance(value, str) else value
    return renamed
