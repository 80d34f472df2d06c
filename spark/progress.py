"""How far a conversion is: tasks say it in small files of the output directory, the driver adds them up.

Accumulators would not do, since Spark brings them to the driver when a task has ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from eventlog.model import Change
from spark.captures import Capture
from spark.output.conversion_directory import TEMPORARY
from spark.session import Done

_CHANGES: Final = 500
_SECONDS: Final = 0.5


class _Said(NamedTuple):
    """``changes`` read so far; ``has_ended``: there are no more in the capture."""

    changes: int
    has_ended: bool


def followed(changes: Iterable[Change], target: str, capture: Capture) -> Iterator[Change]:
    """The changes as they come; now and then it is said how many there were."""
    said = time.monotonic()
    number = 0
    for change in changes:
        yield change
        number += 1
        if number % _CHANGES == 0 and time.monotonic() - said > _SECONDS:
            said = time.monotonic()
            _say(_Said(number, has_ended=False), target, capture)
    _say(_Said(number, has_ended=True), target, capture)


def _say(said: _Said, target: str, capture: Capture) -> None:
    _file(target, capture).write_text(json.dumps(said))


def progress_of(target: str, found: Sequence[Capture]) -> Callable[[], Done]:
    """A function that tells how far the conversion of these captures is.

    The share is that of the captures' bytes. Of a capture that is being read it is reckoned from its changes, as soon
    as another has shown how many bytes a change takes.
    """
    sizes: list[int] = []

    def now() -> Done:
        if not sizes:
            sizes.extend(max(capture.size(), 1) for capture in found)
        said = [_heard(target, capture) for capture in found]
        ended = [(one.changes, size) for one, size in zip(said, sizes, strict=True) if one.has_ended]
        bytes_of_change = sum(size for _, size in ended) / max(sum(changes for changes, _ in ended), 1)
        done = sum(
            size if one.has_ended else min(one.changes * bytes_of_change, size)
            for one, size in zip(said, sizes, strict=True)
        )
        changes = sum(one.changes for one in said)
        return Done(done / sum(sizes), changes, 0, "changes", f"{len(ended)} of {len(found)} captures")

    return now


def _heard(target: str, capture: Capture) -> _Said:
    try:
        return _Said(*json.loads(_file(target, capture).read_text()))
    except (OSError, ValueError):  # not begun, or being written just now
        return _Said(0, has_ended=False)


def _file(target: str, capture: Capture) -> Path:
    return Path(target, TEMPORARY, f"{capture.name}.progress")
