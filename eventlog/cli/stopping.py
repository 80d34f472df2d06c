"""The sentence that reports, when a signal stops a command, what was done and what was not.

Ctrl-C (SIGINT) and SIGTERM stop a command with KeyboardInterrupt. A command that changes something
replaces the sentence as its work proceeds, so that the sentence is true at each moment.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

NOTHING: Final = "nothing was changed"
"""The sentence of a command that has changed nothing yet, or only reads."""
COMMITTING: Final = (
    "the database was committing the change, and it is unknown whether the change was committed; "
    "check before you run the command again"
)
DONE: Final = "the work was done; only its report is missing"
UNTIL_STOPPED: Final = ""
"""No sentence: the command runs until a signal ends it."""


class _Command:
    """The command that runs in this process."""

    sentence = NOTHING
    sigterm: Any = signal.SIG_DFL
    """The handler of SIGTERM from before the command."""


_command: Final = _Command()


def if_stopped(sentence: str) -> None:
    """Set the sentence for a signal from now on; empty = no sentence is printed."""
    _command.sentence = sentence


def sentence_if_stopped() -> str:
    """Return the sentence for a signal now."""
    return _command.sentence


def previous_handler() -> Any:
    """Return the handler that SIGTERM had before the command: the handler of process 1 of a
    container (eventlog/__main__.py), or the default.
    """
    return _command.sigterm


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGINT stop the block by KeyboardInterrupt, unless the process ignores them.
    Afterwards the handlers are as they were before, whatever the block has set.
    """
    _command.sentence = NOTHING
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    _command.sigterm = before[signal.SIGTERM] or signal.SIG_DFL
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
