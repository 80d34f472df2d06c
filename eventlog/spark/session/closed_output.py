"""The standard error of a Python worker whose output Spark has closed, as for ``LIMIT``."""

from __future__ import annotations

import sys
from typing import Any, Final, TextIO

_REPORT: Final = "failed to flush the output"
_REASONS: Final = ("BrokenPipeError", "ConnectionResetError")


class _WithoutReport:
    """A text file that leaves out PySpark's report about a worker's output that was closed early.
    The report has a traceback.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._skips_end = False

    def write(self, text: str) -> int:
        is_report = _REPORT in text and any(reason in text for reason in _REASONS)
        if is_report or (self._skips_end and text == "\n"):
            self._skips_end = is_report
            return len(text)
        self._skips_end = False
        return self._file.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def expect_closed_output() -> None:
    """Let this worker end without a report if Spark closes its output early, as it does when a
    query with a ``LIMIT`` has all its rows.
    """
    if not isinstance(sys.stderr, _WithoutReport):
        sys.stderr = _WithoutReport(sys.stderr)
