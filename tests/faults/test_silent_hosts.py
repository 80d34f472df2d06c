"""A host that goes silent: both ends of a publisher's connection notice it, and no end of a socket
of the same machine looks (spec/event-log.md 12.2).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from postgres_clusters import Server, primary, programs
from sqlalchemy import make_url

from eventlog.sql.connection import connect

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
