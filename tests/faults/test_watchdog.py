"""A publisher that a service manager watches over: what it sends to its socket, as systemd would
hear it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from publishers import LONG, configuration, make_log, process, publishing, runs, sleeps, write
from shared import PATIENCE, PlainSink, free_port, wait_until

from eventlog.publisher.context.observer import SILENT
from eventlog.publisher.run.liveness import ServiceManager, liveness_of, watched_over

SIGN = "WATCHDOG=1"
QUICK = {"monitor__liveness_timeout": 1, "polling_interval": LONG}
"""A publisher that works has to send a sign within a second."""


@dataclass
class Manager:
    """The service manager's end of the socket. ``told``: all assignments so far."""

    socket: socket.socket
    told: list[str]

    def hear(self, seconds: float) -> list[str]:
        """What comes within so many seconds."""
        heard: list[str] = []
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                heard += self.socket.recv(4096).decode().splitlines()
            except TimeoutError:
                break
        self.told += heard
        return heard

    def outlast_the_limit(self) -> None:
        """Wait for a sign after the time within which a publisher that works has to send one."""
        self.hear(1.2)
        wait_until(lambda: SIGN in self.hear(0.1), "it gives a sign")

    def hears(self, assignment: str) -> bool:
        return assignment in self.hear(0.1) or assignment in self.told


@pytest.fixture
def log(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(make_log) as database:
        yield database


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    """A watchdog that acts after 0.6 s, so that a sign has to come every 0.2 s."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        monkeypatch.setenv("WATCHDOG_USEC", "600000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        yield Manager(listening, [])


def test_a_publisher_is_ready_once_it_holds_the_lock_and_reports_when_it_stops(
    log: sa.Engine, tmp_path: Path, manager: Manager
) -> None:
    with process(log, tmp_path, **QUICK) as running:
        wait_until(lambda: manager.hears("READY=1"), "it is ready")
        assert runs(log)
        running.terminate()
        assert running.wait(PATIENCE) == 0
        manager.hear(0.1)
    assert manager.told[0] == "STATUS=connecting to the database"
    assert manager.told.count("READY=1") == 1
    assert "STATUS=publishing" in manager.told
    assert "STOPPING=1" in manager.told[-3:]


def test_a_publisher_that_does_not_get_the_lock_is_never_ready(
    log: sa.Engine, tmp_path: Path, manager: Manager
) -> None:
    with publishing(configuration(log), PlainSink()):
        wait_until(lambda: runs(log), "the first one has the lock")
        with process(log, tmp_path, **QUICK) as running:
            assert running.wait(PATIENCE) == 1
    manager.hear(0.1)
    assert "READY=1" not in manager.told
    assert "STOPPING=1" in manager.told


def test_a_publisher_that_rests_is_not_dead(
    log: sa.Engine, tmp_path: Path, manager: Manager
) -> None:
    with process(log, tmp_path, **QUICK):
        wait_until(lambda: manager.hears("READY=1"), "it is ready")
        manager.outlast_the_limit()


def test_a_publisher_whose_receiver_is_unavailable_is_not_dead(
    log: sa.Engine, tmp_path: Path, manager: Manager
) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    write(log, 1)
    with process(
        log, tmp_path, **QUICK, sink__type="http", sink__url=url, retry_initial=LONG, retry_max=LONG
    ):
        wait_until(
            lambda: manager.hears("STATUS=waiting for the receiver; the log shows why"), "it waits"
        )
        manager.outlast_the_limit()


def test_a_publisher_that_hangs_gives_no_sign_until_it_gets_on(
    log: sa.Engine, tmp_path: Path, manager: Manager
) -> None:
    with process(log, tmp_path, **QUICK), log.connect() as somebody:
        wait_until(lambda: sleeps(log), "it sleeps")
        with somebody.begin():
            somebody.execute(sa.text("LOCK TABLE eventlog IN ACCESS EXCLUSIVE MODE"))
            with log.begin() as writer:
                writer.execute(sa.text("NOTIFY eventlog_eventlog"))
            # The publisher is awake, and waits in a statement.
            wait_until(lambda: manager.hear(1) == [], "it gives no sign")
        wait_until(lambda: SIGN in manager.hear(0.1), "it gives signs again")


def test_a_publisher_of_a_source_that_is_no_log_is_watched_over_too(
    log: sa.Engine, tmp_path: Path, manager: Manager
) -> None:
    (tmp_path / "streams").mkdir()
    source = {
        "source__path": tmp_path / "streams",
        "source__position_url": f"sqlite:///{tmp_path}/position.db",
    }
    with process(log, tmp_path / "documents", "--from", "gbase", **QUICK, **source) as running:  # type: ignore[arg-type]
        wait_until(lambda: manager.hears("READY=1"), "it is ready")
        manager.outlast_the_limit()
        running.terminate()
        assert running.wait(PATIENCE) == 0
    assert manager.hears("STOPPING=1")


def test_a_watchdog_of_another_process_is_not_fed(
    log: sa.Engine, tmp_path: Path, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    with process(log, tmp_path, **QUICK):
        wait_until(lambda: manager.hears("READY=1"), "it is ready")
        assert SIGN not in manager.hear(1)


def test_a_socket_without_a_file_is_reported_too() -> None:
    name = f"eventlog-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        ServiceManager(f"@{name}").notify("READY=1", "STATUS=publishing")
        assert listening.recv(100) == b"READY=1\nSTATUS=publishing"


def test_a_socket_that_is_gone_is_reported_once_and_disturbs_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = ServiceManager(str(tmp_path / "nobody"))
    manager.notify("READY=1")
    manager.notify("WATCHDOG=1")
    assert [record.message for record in caplog.records] == [
        "the service manager does not receive the state of the publisher: No such file or directory"
    ]


def test_without_a_service_manager_nothing_is_sent(log: sa.Engine) -> None:
    with watched_over(liveness_of(configuration(log)), {}) as observer:
        assert observer is SILENT
