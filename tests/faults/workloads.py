"""Writers of random changes, and what a receiver has after them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import sqlalchemy as sa
from publishers import Collecting, is_drained, publishing
from replay import Replay
from shared import fetch, wait_until

from eventlog.config.load import Config

KEYS = range(1, 9)


@dataclass(frozen=True)
class Workload:
    """Tables, what is watched of them, random changes, and SQL of what a receiver should have.

    A change is SQL with ``{key}``, ``{other}`` (keys) and ``{n}`` (a small number). ``contents``:
    class -> a statement of rows (canonical key, then attributes), and the names of the attributes.
    ``strict``: classes whose events never meet an object that is missing or there already.
    """

    ddl: Sequence[str]
    watches: Sequence[dict[str, Any]]
    changes: Sequence[str]
    contents: Mapping[str, tuple[str, Sequence[str]]]
    strict: frozenset[str] = field(default=frozenset())


def replayed(
    database: sa.Engine,
    config: Config,
    writers: Sequence[Callable[[], None]],
    strict: frozenset[str],
) -> Replay:
    """What a receiver makes of the documents that are sent while writers run, each in its own
    thread, and until the queue is drained after them. None of them may fail, and no row either.
    """
    sink = Collecting()
    failures: list[BaseException] = []

    def run(writer: Callable[[], None]) -> None:
        try:
            writer()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=partial(run, writer)) for writer in writers]
    with publishing(config, sink) as running:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: is_drained(database, running), "the queue is drained")
    assert not failures, failures
    assert fetch(database, "SELECT * FROM eventlog_error") == []
    replay = Replay(strict=strict)
    replay.documents(sink.bodies)
    return replay
