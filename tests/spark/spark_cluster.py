"""A standalone Spark: a master and workers of the pip package, on loopback, ended by their process
ids.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark
from shared import PATIENCE, free_port

HOME = Path(pyspark.__file__).parent


@dataclass
class Cluster:
    """``url`` of its master; its ``workers``, each with the processes that it has started."""

    url: str
    workers: list[psutil.Process]

    def executors(self) -> list[psutil.Process]:
        """The processes that run tasks."""
        found = []
        for worker in self.workers:
            for process in worker.children(recursive=True):
                try:
                    if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                        found.append(process)
                except psutil.Error:
                    continue
        return found


@contextmanager
def spark_cluster(
    place: Path,
    workers: int = 2,
    environment: Mapping[str, str] | None = None,
    memory: str = "1g",
    home: Path = HOME,
) -> Iterator[Cluster]:
    """A cluster whose workers have a core each, and memory to lend. ``environment``: of the
    workers, and so of executors; ``home``: of its Spark.
    """
    port, page = free_port(), free_port()
    named = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(place / "work"),
        "PYSPARK_PYTHON": sys.executable,
        **(environment or {}),
    }
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        named.pop(name, None)
    place.mkdir(parents=True, exist_ok=True)
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> psutil.Process:
            log = stack.enter_context((place / f"{name}.log").open("wb"))
            kind = "master.Master" if name == "master" else "worker.Worker"
            process = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host",
                "127.0.0.1", *arguments], env=named, stdout=log, stderr=log,
            )  # fmt: skip
            stack.callback(_end, process)
            return psutil.Process(process.pid)

        start("master", "--port", str(port), "--webui-port", str(page))
        started = [
            start(
                f"worker-{n}",
                "--cores",
                "1",
                "--memory",
                memory,
                "--webui-port",
                str(free_port()),
                url,
            )
            for n in range(workers)
        ]
        _wait(page, workers)
        yield Cluster(url, started)


def _wait(page: int, workers: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
                if answer.read().decode().count('"ALIVE"') >= workers + 1:
                    return
        except OSError:
            pass
        time.sleep(0.3)
    raise AssertionError("the workers did not register")


def _end(process: subprocess.Popen[bytes]) -> None:
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    for child in family:
        try:
            child.kill()
        except psutil.Error:
            continue
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
