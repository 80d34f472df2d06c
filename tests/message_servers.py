"""Real servers of messages for the long tests, each a process in its own directory that a test
kills and starts again. Debian's packages have them: redis-server, nats-server, rabbitmq-server.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

from eventlog.model import Document, KafkaRecord

GUIDE = Path(__file__).parents[1] / "docs/guides/queues.md"

PATIENCE = 30.0
"""Seconds that a test would wait for a server."""


def program(name: str, package: str = "") -> str:
    """The path of a program of Debian's package (named like it if not given), without which a test
    is skipped, or fails if EVENTLOG_TEST_SERVERS is set.
    """
    path = shutil.which(name, path="/usr/lib/rabbitmq/bin:/usr/sbin") or shutil.which(name)
    if path is None:
        reason = f"{name} is not installed: install Debian's package {package or name}"
        if os.environ.get("EVENTLOG_TEST_SERVERS"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def free_port() -> int:
    """A port that no client gets: one that asks for a server there would connect to itself."""
    while True:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """A server at ``port`` whose data are in ``directory``. ``command`` starts it there."""

    def __init__(
        self,
        command: Callable[[int, Path], Sequence[str]],
        directory: Path,
        answers: Callable[[int], bool],
        environment: Callable[[int, Path], dict[str, str]] | None = None,
    ) -> None:
        self.port, self.directory = free_port(), directory
        self._command, self._answers = command, answers
        self.environment = None if environment is None else environment(self.port, directory)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(self.port, self.directory), stdout=log, stderr=log, cwd=self.directory, start_new_session=True,
                env=self.environment,
            )  # fmt: skip
        ends = time.monotonic() + PATIENCE
        while not self._answers(self.port):
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < ends, (self.directory / "log").read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        while accepts(self.port):  # the process of RabbitMQ is a child of the one that was started
            time.sleep(0.02)

    @contextmanager
    def killed(self) -> Iterator[None]:
        """The server is killed at the start of the block, and started again at its end."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The server hangs while the block runs."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._process.pid, signal.SIGCONT)


@contextmanager
def running(*given: Any) -> Iterator[Server]:
    server = Server(*given)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def accepts(port: int) -> bool:
    """Whether something listens at the port."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class Files(NamedTuple):
    """The files of a server of TLS: its certificate with the key, and the authority's."""

    certificate: Path
    authority: Path


def server_files(directory: Path) -> Files:
    """The files of a server at 127.0.0.1."""
    authority = trustme.CA()
    files = Files(directory / "server.pem", directory / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(files.certificate)
    authority.cert_pem.write_to_path(files.authority)
    return files


def example(name: str) -> dict[str, Any]:
    """The settings of [sink] that the guide shows for a type."""
    blocks = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = (block for block in map(tomllib.loads, blocks) if block["sink"]["type"] == name)
    sink: dict[str, Any] = found["sink"]
    return sink


def records(**bodies: bytes | tuple[KafkaRecord, ...]) -> Document:
    """A document of one record per event-id, each with its own key."""
    made = [
        body if isinstance(body, tuple) else (KafkaRecord(None, f"k{name}".encode(), body),)
        for name, body in bodies.items()
    ]
    return Document(1, 1, [name.removeprefix("e") for name in bodies], b"", made)
