"""A host that goes silent: both ends of a publisher's connection notice it, and no end of a socket
of the same machine looks (spec/event-log.md 12.2).
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest
import sqlalchemy as sa
from postgres_clusters import USER, Server, home, primary, programs
from publishers import make_log, runs, settings, write
from shared import fetch, wait_until
from silent_network import NETWORK, SERVER, SilentNetwork, silent_network
from sqlalchemy import make_url
from transaction_pool import server_socket

from eventlog.sql.connect.connection import connect

pytestmark = [
    pytest.mark.xdist_group("silent"),  # one server for all
    pytest.mark.skipif(programs() is None, reason="no programs of PostgreSQL"),
]

NAMES = (
    "tcp_keepalives_idle",
    "tcp_keepalives_interval",
    "tcp_keepalives_count",
    "tcp_user_timeout",
)
NOTICED = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with primary() as server:
        yield server


def shown(url: str | sa.URL) -> dict[str, str]:
    """The settings of a session on the server."""
    with connect(url).connect() as conn:
        return {name: conn.exec_driver_sql(f"SHOW {name}").scalar_one() for name in NAMES}


def of_the_socket(url: str | sa.URL) -> dict[str, int]:
    """The options of a session's socket on this side."""
    with connect(url).connect() as conn:
        driver = conn.connection.driver_connection
        assert driver is not None
        with socket.socket(fileno=socket.dup(driver.fileno())) as end:
            return {
                "on": end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                "idle": end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                "interval": end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
                "count": end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
                "timeout": end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
            }


def test_a_server_asks_after_ten_quiet_seconds_and_gives_up_after_25(server: Server) -> None:
    assert shown(server.url) == NOTICED


def test_a_publisher_asks_after_ten_quiet_seconds_and_gives_up_after_25(server: Server) -> None:
    assert of_the_socket(server.url) == {
        "on": 1, "idle": 10, "interval": 5, "count": 3, "timeout": 25_000,
    }  # fmt: skip


def test_options_in_the_url_go_first(server: Server) -> None:
    query = {"keepalives_idle": "60", "tcp_user_timeout": "0"}
    found = of_the_socket(make_url(server.url).update_query_dict(query))
    assert (found["idle"], found["interval"], found["timeout"]) == (60, 5, 0)


@pytest.mark.parametrize(
    "options",
    [
        "-c tcp_keepalives_idle=60 -c tcp_user_timeout=90s",
        "--tcp-keepalives-idle=60 --tcp_user_timeout=90s",
    ],
)
def test_parameters_of_the_server_in_the_url_go_first(server: Server, options: str) -> None:
    url = make_url(server.url).update_query_dict({"options": options})
    assert shown(url) == NOTICED | {"tcp_keepalives_idle": "60", "tcp_user_timeout": "90000"}


def test_what_a_role_or_a_database_sets_goes_first(server: Server) -> None:
    server.execute(
        "CREATE ROLE patient LOGIN SUPERUSER",
        "ALTER ROLE patient SET tcp_keepalives_idle = 60",
        "CREATE DATABASE patient",
        "ALTER DATABASE patient SET tcp_user_timeout = '90s'",
    )
    url = make_url(server.url).set(username="patient", database="patient")
    assert shown(url) == NOTICED | {"tcp_keepalives_idle": "60", "tcp_user_timeout": "90000"}


def test_a_socket_of_the_same_machine_gets_none(database: sa.Engine) -> None:
    if database.url.host:
        pytest.skip("the server of the tests is reached over TCP")
    assert shown(database.url) == dict.fromkeys(NAMES, "0")


def test_a_socket_that_leads_to_another_machine_gets_them(server: Server) -> None:
    with pooler_of_one(make_url(server.url)) as url:
        assert shown(url) == NOTICED


@contextmanager
def pooler_of_one(url: sa.URL) -> Iterator[sa.URL]:
    """A Unix socket whose one connection goes on to the server, as that of a pooler here does."""
    with TemporaryDirectory(dir="/tmp") as directory, ExitStack() as ends:
        listener = ends.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(f"{directory}/.s.PGSQL.5432")
        listener.listen()

        def serve() -> None:
            with listener.accept()[0] as client, server_socket(url) as server:
                asking = Thread(target=copy, args=(client, server))
                asking.start()
                copy(server, client)
                asking.join()

        def copy(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError):
                while sent := source.recv(65536):
                    target.sendall(sent)
                target.shutdown(socket.SHUT_RDWR)

        serving = Thread(target=serve)
        serving.start()
        yield sa.URL.create(
            url.drivername,
            url.username,
            url.password,
            None,
            None,
            url.database,
            {"host": directory},
        )
        serving.join()


# --- a host that dies -----------------------------------------------------------------------------


@contextmanager
def on_the_network(network: SilentNetwork) -> Iterator[sa.Engine]:
    """A server with a log on the network's first host, which this process reaches by a socket."""
    place = programs()
    assert place is not None
    with home() as directory:
        server = Server(directory / "a")
        server.run("initdb", "-D", str(server.data), "-U", "postgres", "-A", "trust", "-N")
        with (server.data / "pg_hba.conf").open("a") as access:
            access.write(f"host all all {NETWORK} trust\n")
        options = (
            f"-c port=5432 -c listen_addresses={SERVER} -c unix_socket_directories={directory} "
            "-c fsync=off"
        )
        start = [str(place / "pg_ctl"), "-D", str(server.data), "-o", options, "-w", "start"]
        command = [*network.inside(network.server), "runuser", "-u", USER, "--", *start]
        log = directory / "server.log"
        with log.open("wb") as lines:
            subprocess.run(command, cwd=directory, stdout=lines, stderr=lines, check=True)
        try:
            query = {"host": str(directory), "port": "5432"}
            url = sa.URL.create("postgresql+psycopg", "postgres", database="postgres", query=query)
            engine = sa.create_engine(url, poolclass=sa.NullPool)
            make_log(engine)
            yield engine
        finally:
            server.run("pg_ctl", "-D", str(server.data), "-m", "immediate", "-w", "stop")


@contextmanager
def publisher(
    network: SilentNetwork, host: str, directory: Path, **options: object
) -> Iterator[Path]:
    """``eventlog publish`` on a host of the network, and the file of what it logs."""
    directory.mkdir()
    there = sa.create_engine(f"postgresql+psycopg://postgres@{SERVER}:5432/postgres")
    flags = settings(there, **options, sink__type="files", sink__directory=directory / "out")
    command = [
        *network.inside(host),
        str(Path(sys.executable).with_name("eventlog")),
        *(part for name, value in flags.items() for part in ("--set", f"{name}={value}")),
        "publish",
    ]
    log = directory / "log"
    with log.open("wb") as lines, subprocess.Popen(command, stderr=lines) as running:
        try:
            yield log
        finally:
            running.kill()


@pytest.mark.night
def test_a_standby_takes_over_from_a_host_that_died_without_a_word(tmp_path: Path) -> None:
    def is_sent(key: int) -> bool:
        sent = f"SELECT FROM eventlog WHERE status = 'S' AND table_key = 'idu={key}'"
        return bool(fetch(engine, sent))

    with ExitStack() as stack:
        network = stack.enter_context(silent_network())
        engine = stack.enter_context(on_the_network(network))
        first = stack.enter_context(publisher(network, network.client, tmp_path / "first"))
        write(engine, 1)
        wait_until(lambda: is_sent(1), "the first one publishes")
        standby = stack.enter_context(
            publisher(network, network.server, tmp_path / "second", standby=True)
        )
        wait_until(lambda: "waiting as its standby" in standby.read_text(), "the second one waits")
        assert runs(engine)
        network.swallow()
        write(engine, 2)
        # Two hours and eleven minutes by the defaults of Linux.
        wait_until(lambda: is_sent(2), "the second one publishes")
        wait_until(lambda: "connecting again" in first.read_text(), "the first one notices it")
