"""The files that are read of a directory, in the order in which they continue one another."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

_NUMBER: Final = re.compile("([0-9]+)")


def order_of(name: str) -> tuple[tuple[str | int, ...], str]:
    """What the names of files are sorted by: 9 comes before 10. No two names are equal."""
    return tuple(int(part) if index % 2 else part for index, part in enumerate(_NUMBER.split(name))), name


def files_in(directory: Path, suffixes: Collection[str] | None = None) -> list[Path]:
    """The files of a directory in their order, those with one of these lower-case suffixes, None = all.

    Those whose names begin with ``_`` or ``.`` belong to whoever wrote them. Raises OSError.
    """
    files = (
        one
        for one in directory.iterdir()
        if one.is_file()
        and not one.name.startswith(("_", "."))
        and (suffixes is None or one.suffix.lower() in suffixes)
    )
    return sorted(files, key=lambda file: order_of(file.name))
