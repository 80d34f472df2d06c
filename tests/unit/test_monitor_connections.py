"""The monitor's server and those who take its connections and send nothing: a probe is answered all
the same.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from shared import PATIENCE

from eventlog.config.settings import MonitorSettings
from eventlog.publisher.context.context import Counters
from eventlog.publisher.monitor.activity import Activity
from eventlog.publisher.monitor.connections import MAX_CONNECTIONS, Connections
from eventlog.publisher.monitor.openmetrics import PublisherMetrics
from eventlog.publisher.monitor.server import Address, Monitor, serving
from eventlog.publisher.run.liveness import LivenessClock

BRIEF = 0.5
"""Seconds that a request may take in these tests."""


@contextmanager
def served(
    connections: Connections | None = None, questions: Any = None, **settings: Any
) -> Iterator[Address]:
    activity = Activity(Counters(), 5, LivenessClock(60))
    activity.connected(again=False)
    metrics = PublisherMetrics(activity, {"log": "eventlog", "sink": "files"})
    options = MonitorSettings(**settings)
    monitor = Monitor("127.0.0.1:0", activity, metrics, dict, questions, options)
    with serving(monitor, connections) as address:
        yield address


def probe(address: Address, path: str = "/livez", token: str = "") -> int:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


def is_closed_by_the_server(client: socket.socket, within: float) -> bool:
    client.settimeout(within)
    try:
        while client.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize(
    "said", [b"", b"GET /status.json HTT", b"POST /login HTTP/1.1\r\nHost: localhost\r\n"]
)
def test_sockets_that_never_finish_a_request_take_no_health_away(said: bytes) -> None:
    with served(token="secret") as address, ExitStack() as opened:
        for _ in range(66):
            opened.enter_context(socket.create_connection(address)).sendall(said)
        assert probe(address) == 200
        assert probe(address, "/readyz") == 200


class Waiting:
    """A question that is answered when the test allows it."""

    def __init__(self) -> None:
        self.allowed = threading.Event()

    def errors(self) -> dict[str, Any]:
        return {"errors": [self.allowed.wait(PATIENCE)]}


def test_health_is_answered_while_as_many_requests_as_may_be_are_worked_on() -> None:
    waiting = Waiting()
    with served(None, waiting, token="secret") as address, ExitStack() as opened:
        opened.callback(waiting.allowed.set)
        for _ in range(64):
            client = opened.enter_context(socket.create_connection(address))
            client.sendall(
                b"GET /errors.json HTTP/1.1\r\nHost: localhost\r\n"
                b"Authorization: Bearer secret\r\n\r\n"
            )
        deadline = time.monotonic() + PATIENCE
        while probe(address, "/status.json", "secret") != 503 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert probe(address, "/status.json", "secret") == 503
        assert probe(address, "/status.json") == 401
        assert probe(address) == 200


def test_requests_of_strangers_take_no_place_from_a_client_with_the_token() -> None:
    with served(token="secret") as address, ExitStack() as opened:
        for _ in range(66):
            client = opened.enter_context(socket.create_connection(address))
            client.sendall(
                b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntoken="
            )
        for _ in range(5):
            assert probe(address, "/status.json", "secret") == 200
            assert probe(address, "/metrics", "secret") == 200
            time.sleep(0.1)


def test_more_connections_than_there_may_be_close_the_oldest_and_let_a_probe_in() -> None:
    with served() as address, ExitStack() as opened:
        silent = [
            opened.enter_context(socket.create_connection(address))
            for _ in range(MAX_CONNECTIONS + 20)
        ]
        assert probe(address) == 200
        assert is_closed_by_the_server(silent[0], PATIENCE)
        assert not is_closed_by_the_server(silent[-1], 0.2)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nt",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_request_has_to_come_in_time(said: bytes) -> None:
    with served(Connections(BRIEF)) as address, socket.create_connection(address) as client:
        client.sendall(said)
        assert is_closed_by_the_server(client, PATIENCE)


def test_a_byte_now_and_then_does_not_prolong_the_time_of_a_request() -> None:
    with served(Connections(BRIEF)) as address, socket.create_connection(address) as client:
        begun = time.monotonic()
        with suppress(ConnectionError):
            for byte in b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 1000:
                client.send(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - begun < 60 * BRIEF
        assert is_closed_by_the_server(client, PATIENCE)


def test_a_further_request_on_a_connection_has_its_own_time() -> None:
    with (
        served(Connections(BRIEF)) as address,
        closing(
            http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE)
        ) as connection,
    ):
        for _ in range(12):
            connection.request("GET", "/livez")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"ok\n")
            time.sleep(BRIEF / 5)
        assert connection.sock is not None
        connection.sock.sendall(b"GET /livez HTT")
        assert is_closed_by_the_server(connection.sock, PATIENCE)


def test_a_client_that_sends_further_requests_before_its_answer_gets_one_answer_and_no_more() -> (
    None
):
    with served() as address, socket.create_connection(address, timeout=PATIENCE) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        answers = b""
        with suppress(ConnectionError):
            while data := client.recv(4096):
                answers += data
        assert answers.count(b"HTTP/1.1 200") == 1


def test_a_client_that_never_reads_its_answers_loses_its_connection() -> None:
    with served(Connections(BRIEF)) as address, socket.create_connection(address) as client:
        client.settimeout(PATIENCE)
        request = b"GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n"

        def ask_on_and_on() -> None:
            while True:
                client.sendall(request)
                time.sleep(0.002)  # no two at once

        with pytest.raises(ConnectionError):  # TimeoutError: the server neither reads nor closes
            ask_on_and_on()
        assert probe(address) == 200


@pytest.mark.promise("option monitor.certificate", "option monitor.private_key")
def test_a_tls_probe_is_served_despite_silent_sockets(tmp_path: Path) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("localhost")
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    own.cert_chain_pems[0].write_to_path(certificate)
    own.private_key_pem.write_to_path(key)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with served(certificate=certificate, private_key=key) as address, ExitStack() as opened:
        for _ in range(66):
            opened.enter_context(socket.create_connection(address))
        with (
            socket.create_connection(address) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
