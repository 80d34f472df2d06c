"""Crosses: every value of one thing with every value of others. A twentieth runs by day, all at night.

Which twentieth is decided by the product's modules, so the same commit always has the same cases, and
the next commit has others. A case has the same id by day and at night, and a failure prints the
command that repeats it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from math import ceil, prod
from pathlib import Path
from typing import Final

SHARE: Final = 20
"""By day one case of so many runs, and as many more as each single value needs."""


@cache
def tree() -> bytes:
    """Return a digest of all modules of eventlog, with their paths."""
    root = Path(__file__).parents[1]
    digest = sha256()
    for path in sorted((root / "eventlog").rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.digest()


def of_the_day(sizes: Sequence[int], of: bytes | None = None) -> set[tuple[int, ...]]:
    """Return the cases by day of axes with so many values each: the places of their values. Each
    value of each axis is in at least one of them.
    """
    seed = tree() if of is None else of
    ranked = sorted(
        itertools.product(*map(range, sizes)),
        key=lambda case: sha256(seed + repr(case).encode()).digest(),
    )
    chosen = ranked[: ceil(prod(sizes) / SHARE)]
    missing = {(axis, value) for axis, size in enumerate(sizes) for value in range(size)}
    missing.difference_update(*map(enumerate, chosen))
    while missing:
        best = max(ranked, key=lambda case: len(missing.intersection(enumerate(case))))
        chosen.append(best)
        missing.difference_update(enumerate(best))
    return set(chosen)
