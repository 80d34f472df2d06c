"""``eventlog`` under a count of the opcodes that it executes, in all its threads, and of its cycles.

python bench/counted.py FILE ARGUMENT ...

FILE gets both numbers. The product is that of PYTHONPATH, so that another tree can be counted. The
command runs some thirty times as slowly as it does otherwise, and its clock a thousand times, so
that nothing is done because time has passed.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

_begun, _monotonic = time.monotonic(), time.monotonic
time.monotonic = lambda: _begun + (_monotonic() - _begun) / 1000

from eventlog.__main__ import main  # noqa: E402 - what it imports takes the clock

executed = cycles = 0


def _in_frame(frame: FrameType, event: str, _: Any) -> Any:
    global executed
    if event == "opcode":
        executed += 1  # two threads may lose one now and then
    return _in_frame


def _begin(frame: FrameType, event: str, argument: Any) -> Any:
    global cycles
    if frame.f_code.co_filename == __file__:  # the clock
        return None
    cycles += frame.f_code.co_name == "run_cycle"
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    return _in_frame


if __name__ == "__main__":
    result = Path(sys.argv[1])
    sys.argv = ["eventlog", *sys.argv[2:]]
    threading.settrace(_begin)
    sys.settrace(_begin)
    try:
        main()
    finally:
        sys.settrace(None)
        result.write_text(f"{executed} {cycles}")
