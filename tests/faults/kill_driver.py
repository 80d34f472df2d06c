"""A publisher that kills itself with SIGKILL at its n-th step: run by test_kill.py.

    python kill_driver.py CONFIG

Reads numbers from standard input. For each it forks a process that publishes the queue once and
dies at that step (0 = never), and answers with the name of the step it died at, ``done``, or what
went wrong; to -1 with the names of all steps. One interpreter for many deaths; each process reads
CONFIG again.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventlog.config.load import Config, load
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.declared.opening import open_context, open_to_publish
from eventlog.publisher.ledger import in_flight, ledger
from eventlog.publisher.run import daemon
from eventlog.publisher.send import cycle, log_feed, serving
from eventlog.publisher.sinks import files, objects
from eventlog.sql.dialects.postgresql.log import PostgresLog


class Steps:
    """Counts steps. At the last one it prints its name and is gone: no handler, no cleaning up, no
    flush.
    """

    def __init__(self, last: int, report: int) -> None:
        self.last, self.report = last, report
        self.names: list[str] = []

    def take(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self.last:
            os.write(self.report, f"{name}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def around(
        self, module: Any, function: str, before: str = "", after: str | Callable[[Any], str] = ""
    ) -> None:
        original: Callable[..., Any] = getattr(module, function)

        def stepping(*args: Any, **kwargs: Any) -> Any:
            if before:
                self.take(before)
            result = original(*args, **kwargs)
            if after:
                self.take(after(*args) if callable(after) else after)
            return result

        setattr(module, function, stepping)


def fsynced(file: Any) -> str:
    return "the owner's file is fsynced" if files.MARKER in file.name else "after a file is fsynced"


def publish(config: Config, steps: Steps) -> None:
    steps.around(os, "link", after="the directory is owned")
    steps.around(cycle, "read_window", after="the window is read")
    steps.around(ledger, "record_delivery", after="the entry is written")
    steps.around(
        serving.Sender, "serve", before="the entry is committed", after="the delivery has ended"
    )
    steps.around(
        serving,
        "send_document",
        before="before a document is sent",
        after="after a document is sent",
    )
    steps.around(files, "sync_file", before="before a file is fsynced", after=fsynced)
    steps.around(
        Path, "replace", before="before a file is renamed", after="after a file is renamed"
    )
    steps.around(files, "sync_path", after="the directory is fsynced")
    steps.around(
        objects.ObjectStore, "put", before="before an object is put", after="after an object is put"
    )
    steps.around(
        objects.ObjectStore,
        "write_state",
        before="before the state is put",
        after="after the state is put",
    )
    steps.around(
        in_flight,
        "replace_content",
        before="rows are marked",
        after="a part of the entry is struck",
    )
    steps.around(PostgresLog, "end_delivery", before="rows are marked", after="the entry is struck")
    steps.around(ledger, "delete_entry", before="rows are marked", after="the entry is struck")
    steps.around(
        log_feed.LogFeed, "save", before="before the marks", after="the marks are committed"
    )
    with open_to_publish(config, Counters()) as context:
        daemon.publish_once(context, open_sink(config, sys.stdout))


def forked(publish: Callable[[Steps], None]) -> None:
    """Answer the numbers of standard input, each by its own process."""
    for line in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                steps = Steps(int(line), writer)
                publish(steps)
                os.write(writer, ("; ".join(steps.names) if steps.last < 0 else "done").encode())
                code = 0
            except BaseException:
                os.write(writer, traceback.format_exc().replace("\n", " | ").encode() + b"\n")
            finally:
                os._exit(code)
        os.close(writer)
        _, status = os.waitpid(child, 0)
        with os.fdopen(reader) as report:
            told = report.read().strip()
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(f"killed: {told}" if killed else told, flush=True)


if __name__ == "__main__":
    configured = load(Path(sys.argv[1]), {})
    # What the first publisher of a process imports and compiles is forked with the rest.
    with open_context(configured, Counters()):
        pass
    if configured.sink.type == "objects":
        import pyarrow.fs  # noqa: F401 - takes half a second, which is not to pass in each process
    gc.freeze()
    forked(lambda steps: publish(load(Path(sys.argv[1]), {}), steps))
