"""The exit codes of the command line. Only this module has the numbers and meanings of exit codes.

A script acts on these numbers, so each has one meaning, whatever the command. ``--help`` and
docs/reference/command-line.md show the texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """The exit codes, one for each outcome of a command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    FATAL = 3
    NO = 4
    """The command did its work, and the answer is no: what it checked is not as it should be."""
    UNDECIDED = 5
    STOPPED = 130
    """The exit code that a shell shows for a command that Ctrl-C ended."""


MEANINGS: Final[Mapping[ExitCode, str]] = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed, or not all of it was done",
    ExitCode.USAGE: "the usage or the configuration is wrong",
    ExitCode.FATAL: "a fatal answer stopped the publisher",
    ExitCode.NO: "the command did its work, and the result is no",
    ExitCode.UNDECIDED: "the result was not decided in time",
    ExitCode.STOPPED: "stopped by Ctrl-C or SIGTERM (the daemon `publish` ends with 0)",
}
"""What a code means for every command."""

_NOT_CONFIRMED: Final = {ExitCode.FAILED: "also if the question was answered with no"}

_STRICT: Final = {ExitCode.NO: "with --strict: something was lost; the last line names it"}

OF_COMMANDS: Final[Mapping[str, Mapping[ExitCode, str]]] = {
    "triggers plan": {
        ExitCode.FAILED: "a [[watch]] cannot be applied",
        ExitCode.NO: "with --check: there is something to do",
    },
    "triggers apply": {
        ExitCode.FAILED: "a [[watch]] could not be applied, but the others were; or the "
        "question was answered with no",
    },
    "triggers drop": _NOT_CONFIRMED,
    "db downgrade": _NOT_CONFIRMED,
    "publish": {
        ExitCode.FAILED: "with --once: also if something is left to send, such as for a paused "
        "reader. Without --allow-refused: also if rows were refused or invalid, or a class is not "
        "published",
        ExitCode.FATAL: "the receiver answered fatal",
    },
    "doctor": {
        ExitCode.NO: "a finding is an error or a warning; with --receiver: the receiver is not "
        "reachable",
    },
    "health": {
        ExitCode.FAILED: "the publisher hangs, does not run, or is not connected yet (Docker has "
        "only 0 and 1)",
    },
    "verify": {
        ExitCode.DONE: "the target equals the source",
        ExitCode.NO: "the target differs from the source",
        ExitCode.UNDECIDED: "no object differs, but some could not be compared in time",
    },
    "consumers reset": _NOT_CONFIRMED,
    "consumers drop": _NOT_CONFIRMED,
    "requeue": {ExitCode.FAILED: "also if rows were refused"},
    "skip": _NOT_CONFIRMED,
    "pause": {ExitCode.FAILED: "also if it is paused already"},
    "resync": {
        ExitCode.FAILED: "also if FILE has a line that is not a key of the class, or a key has no "
        "object",
    },
    "purge": _NOT_CONFIRMED,
    "convert": {ExitCode.FAILED: "also if everything was skipped", **_STRICT},
    "decode": _STRICT,
}
"""What a code means for a command, if that is more than its general meaning."""
