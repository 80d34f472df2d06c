"""A publisher of a source that kills itself with SIGKILL at its n-th step: run by
test_follow_kill.py.

    python follow_driver.py CONFIG [told | endless]

Reads numbers from standard input, as ``kill_driver`` does: for each a forked process publishes once
and dies there. ``told``: the test decides when it dies, at whatever step it is. ``endless``:
the same, and it does not end at the present end of the source.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from pathlib import Path

from kill_driver import Steps, forked

from eventlog.changes.format import Report
from eventlog.config.load import Config, load
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.run.waiting import StopRequest
from eventlog.publisher.send import serving
from eventlog.publisher.sinks import files
from eventlog.publisher.stream import (
    dispatch_queue,
    follow,
    gbase,
    linter,
    position,
    qlik_messages,
    source_feed,
    stream_files,
    topics,
)
from eventlog.publisher.stream.open_source import following, position_of

__all__ = [
    "dispatch_queue",
    "gbase",
    "linter",
    "qlik_messages",
    "stream_files",
    "topics",
]  # imported here once, not by each of those that die


def publish(config: Config, steps: Steps) -> None:
    steps.around(follow.Run, "__init__", after="the delivery number is saved")
    steps.around(
        serving.Sender,
        "serve",
        before="before a document is sent",
        after="after a document is answered",
    )
    steps.around(
        files,
        "sync_file",
        before="before documents are fsynced",
        after="after documents are fsynced",
    )
    steps.around(files, "sync_path", after="the documents are there")
    steps.around(
        source_feed.SourceFeed,
        "save",
        before="before the position is saved",
        after="after the position is saved",
    )
    steps.around(
        position.TablePosition,
        "write",
        before="before the position is written",
        after="before the position is committed",
    )
    os.fsync = lambda descriptor: None  # what a process wrote outlives its death; the machine stays
    publish_to_the_end(config)


def publish_to_the_end(config: Config, *, once: bool = True) -> None:
    followed = following(config, Counters(), Report())
    follow.follow(
        followed,
        position_of(config),
        lambda: open_sink(config, sys.stdout),
        StopRequest(),
        once=once,
    )


def told(config: Config, *, once: bool) -> None:
    """Publish in its own process at each ``r`` of standard input, kill it at a ``k``, answer what
    became of it.
    """
    os.fsync = lambda descriptor: None
    while letter := os.read(0, 1):
        if letter != b"r":  # it has ended before
            continue
        child = os.fork()
        if child == 0:
            code = 1
            try:
                publish_to_the_end(config, once=once)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        ended = 0
        while not ended:
            if select.select([0], [], [], 0.001)[0] and os.read(0, 1) == b"k":
                os.kill(child, signal.SIGKILL)
            ended, status = os.waitpid(child, os.WNOHANG)
        print(
            "killed" if os.WIFSIGNALED(status) else "done" if status == 0 else "failed", flush=True
        )


if __name__ == "__main__":
    configured = load(Path(sys.argv[1]), {})
    if sys.argv[2:]:
        told(configured, once=sys.argv[2] != "endless")
    else:
        forked(lambda steps: publish(configured, steps))
