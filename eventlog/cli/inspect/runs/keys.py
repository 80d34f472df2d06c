"""Single keys of a terminal, for commands that show something live."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from eventlog.core.clock import sleep

ReadKey = Callable[[float], str]
"""A function that waits for a key, at most the given seconds, and returns the name of the key, or
an empty text if no key was pressed.
"""
_NAMES: Final = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "k": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "j": "down",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "back",
    "\x7f": "back",
    "q": "quit",
}
"""The names of the keys that have an effect, by the text that the terminal sends for a key."""
_LONGEST: Final = 16


@contextmanager
def keys() -> Iterator[ReadKey]:
    """Yield the function that reads keys while the block runs; without a terminal it only waits."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)  # Ctrl-C still ends the command
    try:
        yield lambda seconds: _read(terminal, seconds)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> str:
    sleep(seconds)
    return ""


def _read(terminal: int, seconds: float) -> str:
    if not select.select([terminal], [], [], seconds)[0]:
        return ""
    return _NAMES.get(os.read(terminal, _LONGEST).decode("utf-8", "replace"), "")
