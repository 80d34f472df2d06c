"""A query that follows a log and is killed at random: run by test_changes_promise.py until it ends
with 0.

    python changes_driver.py OUT SEED KILL OPTION=VALUE ...

It runs batches by ``stream_engine`` and writes each to OUT/batch-N.jsonl; OUT/attempts has a line
for each attempt of a batch: its number and the digest of its rows. At each place where a kill makes
a difference it kills itself with the probability KILL, and so does a task in the midst of its part.
With a file OUT/stop it ends at the end of the log.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from stream_engine import Engine, reader_of

from eventlog.spark.changes import change_parts

out, seed, kill, *given = sys.argv[1:]
place = Path(out)
stop = place / "stop"
place.mkdir(exist_ok=True)
chance = random.Random(f"{seed} {os.getpid()}")


def at(where: str) -> None:
    if chance.random() < float(kill) and not stop.exists():
        os._exit(9)


# One process of four ends in a part. Not more: a batch that has many parts has to come to its end
# some time.
left = chance.randint(1, 60) if chance.random() < 0.25 else 0


def in_a_part(self: Any, *arguments: Any) -> Any:
    global left
    left -= 1
    if left == 0 and not stop.exists():
        os._exit(9)
    return _add(self, *arguments)


_add = change_parts.RowFolder.add
change_parts.RowFolder.add = in_a_part  # type: ignore[method-assign]


def sink(number: int, rows: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row, default=str, sort_keys=True) + "\n" for row in rows)
    with (place / "attempts").open("a") as file:
        file.write(f"{number} {hashlib.sha256(text.encode()).hexdigest()}\n")
    at("before the sink")
    written = place / f".{number}"
    written.write_text(text)
    written.replace(place / f"batch-{number:06d}.jsonl")


engine = Engine(reader_of(**dict(one.split("=", 1) for one in given)), place, at)
while True:
    is_last = stop.exists()
    if not engine.step(sink):
        if is_last:
            break
        time.sleep(0.02)
