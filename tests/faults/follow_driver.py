"""A publisher of a source that kills itself with SIGKILL at its n-th step: run by test_follow_kill.py.

    python follow_driver.py CONFIG

Reads numbers from standard input, as ``kill_driver`` does: for each a forked process publishes once and dies there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kill_driver import Steps, forked

from eventlog.config import Config, load
from eventlog.formats import Report
from eventlog.publisher import follow as following_loop
from eventlog.publisher import follow_run, position_file
from eventlog.publisher.follow_opening import following, position_of
from eventlog.publisher.metrics import Counters
from eventlog.publisher.opening import open_sink
from eventlog.publisher.sinks import files
from eventlog.publisher.sources import gbase, linter, qlik_messages
from eventlog.publisher.wake import StopRequest
from eventlog.sql import state

__all__ = ["gbase", "linter", "qlik_messages"]  # imported here once, not by each of those that die


def publish(config: Config, steps: Steps) -> None:
    steps.around(following_loop, "begin", after="the flight number is saved")
    steps.around(follow_run, "_deliver", before="before an envelope is sent", after="after an envelope is answered")
    steps.around(files, "_sync", before="before documents are fsynced", after="after documents are fsynced")
    steps.around(files, "_sync_directory", after="the documents are there")
    steps.around(follow_run, "save", before="before the position is saved", after="after the position is saved")
    steps.around(state, "write", before="before the position is written", after="before the position is committed")
    steps.around(position_file, "_sync_directory", before="before the rename is durable", after="the rename is durable")
    os.fsync = lambda descriptor: None  # what a process wrote outlives its death; the machine stays
    steps.around(os, "fsync", before="before a file is durable")
    followed = following(config, Counters(), Report())
    following_loop.follow(
        followed, position_of(config), lambda: open_sink(config, sys.stdout), StopRequest(), once=True
    )  # fmt: skip


if __name__ == "__main__":
    configured = load(Path(sys.argv[1]), {})
    forked(lambda steps: publish(configured, steps))
