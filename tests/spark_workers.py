"""The Python workers of a Spark that runs on this machine, to be killed."""

from __future__ import annotations

import os
import random
import signal
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_SOURCE = "python_streaming_source_runner"


class Workers(NamedTuple):
    """Processes: ``tasks`` run tasks, ``sources`` are the drivers' readers of streams."""

    tasks: list[int]
    sources: list[int]


def workers_of(java: int) -> Workers:
    """Return the workers among the descendants of a Java process, or of its parent."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(stat.parent.name))
    found, waiting = Workers([], []), [(java, False)]
    while waiting:
        process, is_daemon = waiting.pop()
        for child in children[process]:
            command = _command(child)
            if _SOURCE in command:
                found.sources.append(child)
            elif is_daemon:  # a fork, which has the daemon's own command
                found.tasks.append(child)
            # Java names the daemon too, among its settings.
            waiting.append((child, " -m " in command and "daemon " in command and not is_daemon))
    return found


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def kill_worker(java: int, chance: random.Random) -> str | None:
    """Kill a worker, and return which kind it was; None if there is none."""
    tasks, sources = workers_of(java)
    kind = "source" if sources and (not tasks or chance.random() < 0.25) else "task"
    candidates = sources if kind == "source" else tasks
    if not candidates:
        return None
    with suppress(ProcessLookupError):
        os.kill(chance.choice(candidates), signal.SIGKILL)
        return kind
    return None
