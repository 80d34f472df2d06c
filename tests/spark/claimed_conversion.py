"""A conversion that stands still in its second input if HELD_CONVERSION_TARGET is set.

As a program: ``claimed_conversion.py SOURCE TARGET``, for a test that kills it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import loss_formats
from loss_formats import TRIED
from pyspark.cloudpickle import register_pickle_by_value

from eventlog.spark.frames.convert import Conversion, convert

HELD: str = "HELD_CONVERSION_TARGET"
"""The environment variable of the workers: the target."""


def complete(schema: str | None, table: str, key: Any) -> Any:
    """The row of a key; never, when the first input is there."""
    while HELD in os.environ and Path(os.environ[HELD], "a").exists():
        time.sleep(0.1)
    return loss_formats.complete(schema, table, key)


def run(source: str, target: str, **more: Any) -> Conversion:
    """Messages to a stream, whose rows have to be completed."""
    for module in (loss_formats, sys.modules[__name__]):  # which workers do not know
        register_pickle_by_value(module)
    map = {"reader": TRIED["K"].reader, "writer": {**TRIED["G"].writer, "complete": complete}}
    return convert("qlik-messages", "gbase", source, target, map, **more)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], master="local[1]")
