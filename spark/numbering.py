"""Change sequences over all parts of a job (spec/qlik.md 3), without a pass of their own.

What is written is sorted into queue order part by part, by many workers at once, and each must know how the parts
before its own were numbered. Whoever builds a change knows which part it goes to, how many numbers it takes and its
commit time. The first stage tells a bucket what its part has taken; a worker of the second adds what it has built
itself, and at its end tells every part the sum for earlier ones. The writer of a part adds up what all of them have
told: numbers taken, greatest time prefix, tables that were described.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from eventlog.qlik.sequence import WriterState


class Numbered(NamedTuple):
    """What some changes take of the numbering: numbers, the greatest time prefix, and the tables they are of."""

    number: int = 0
    prefix: str = ""
    tables: frozenset[str] = frozenset()

    @property
    def state(self) -> WriterState:
        """The state of a sequence writer that has numbered them."""
        return WriterState(self.prefix, self.number)


NOTHING = Numbered()


def total(several: Iterable[Numbered]) -> Numbered:
    """What they take together."""
    number, prefix = 0, ""
    tables: set[str] = set()
    for one in several:
        number += one.number
        prefix = max(prefix, one.prefix)
        tables |= one.tables
    return Numbered(number, prefix, frozenset(tables))


def before_each(taken: dict[int, Numbered], parts: int) -> Iterator[tuple[int, Numbered]]:
    """For every part, from 1 to ``parts``, what the parts before it take; parts that nothing precedes are left out."""
    before = NOTHING
    for part in range(1, parts + 1):
        if before is not NOTHING:
            yield part, before
        if part in taken:
            before = total((before, taken[part]))
