"""Where a URL leads to: what python-oracledb is given, and what it says first to whoever listens
there.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from oracle_catalogue import LOG
from oracle_driver import Server, engine_of
from sqlalchemy import make_url

from eventlog.config.kinds import masked
from eventlog.errors import ConfigError, DatabaseError
from eventlog.sql.connect.connection import connect, connect_any
from eventlog.sql.dialects.oracle import DIALECT
from eventlog.sql.dialects.oracle.address import arguments_of
from eventlog.sql.port.log_parts import LogPart

# The driver leaves a socket that was hung up on to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

TLS_HANDSHAKE = 0x16
TNS_CONNECT = 1


@pytest.fixture
def first_bytes() -> Iterator[tuple[int, list[bytes]]]:
    """A port that hears who connects, hangs up after the first bytes, and keeps these."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)

        def listen() -> None:
            with suppress(OSError):
                while True:
                    caller, _ = listener.accept()
                    with caller:
                        caller.settimeout(10)
                        heard.append(caller.recv(16))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield listener.getsockname()[1], heard


def by_engine(url: str) -> None:
    connect(url, connect_timeout=5).connect()


def by_any_engine(url: str) -> None:
    connect_any(url).connect()


def by_bulk(url: str) -> None:
    list(DIALECT.read_part(make_url(url), LOG, None, None, LogPart(1, 2, 2), ("record_id",)))


WAYS = pytest.mark.parametrize("way", [by_engine, by_any_engine, by_bulk])


def say_hello(way: Callable[[str], None], url: str) -> None:
    with suppress(Exception):  # nobody answers
        way(url)


@WAYS
@pytest.mark.parametrize("service", ["?service_name=HR&", "HR?"])
def test_a_url_with_tcps_speaks_tls_from_the_first_byte(
    first_bytes: tuple[int, list[bytes]], way: Callable[[str], None], service: str
) -> None:
    port, heard = first_bytes
    say_hello(way, f"oracle://ann:secret@127.0.0.1:{port}/{service}protocol=tcps")
    assert heard
    assert all(said[0] == TLS_HANDSHAKE for said in heard)


@WAYS
def test_an_alias_with_tcps_speaks_tls_from_the_first_byte(
    first_bytes: tuple[int, list[bytes]], way: Callable[[str], None], tmp_path: Path
) -> None:
    port, heard = first_bytes
    address = f"(ADDRESS=(PROTOCOL=tcps)(HOST=127.0.0.1)(PORT={port}))"
    descriptor = f"(DESCRIPTION={address}(CONNECT_DATA=(SERVICE_NAME=HR)))"
    (tmp_path / "tnsnames.ora").write_text(f"PAYROLL = {descriptor}\n")
    say_hello(way, f"oracle://ann:secret@PAYROLL?config_dir={tmp_path}")
    assert heard
    assert all(said[0] == TLS_HANDSHAKE for said in heard)


def test_a_url_without_it_speaks_plainly(first_bytes: tuple[int, list[bytes]]) -> None:
    port, heard = first_bytes
    say_hello(by_engine, f"oracle://ann:secret@127.0.0.1:{port}/?service_name=HR")
    assert heard[0][4] == TNS_CONNECT


def test_every_part_of_a_url_reaches_the_driver_in_its_own_type() -> None:
    url = make_url(
        "oracle://ann:s@db.example/?service_name=HR&protocol=TCPS&wallet_location=/w&wallet_password=x"
        "&ssl_server_dn_match=no&ssl_server_cert_dn=CN%3Ddb&retry_count=3&tcp_connect_timeout=1.5"
    )
    assert arguments_of(url) == {
        "user": "ann", "password": "s", "host": "db.example", "port": 1521, "service_name": "HR",
        "protocol": "tcps", "wallet_location": "/w", "wallet_password": "x",
        "ssl_server_dn_match": False, "ssl_server_cert_dn": "CN=db", "retry_count": 3,
        "tcp_connect_timeout": 1.5,
    }  # fmt: skip
    assert "wallet_password=x" not in masked(str(url.render_as_string(hide_password=False)))


def test_a_session_is_made_with_our_own_arguments_too() -> None:
    server = Server("19.3.0.0.0")
    with (
        engine_of(server, "oracle://ann:s@db:1522/?service_name=HR&protocol=tcps") as engine,
        engine.connect(),
    ):
        assert server.arguments == {
            "user": "ann", "password": "s", "host": "db", "port": 1522, "service_name": "HR",
            "protocol": "tcps", "tcp_connect_timeout": 10, "expire_time": 1, "stmtcachesize": 200,
        }  # fmt: skip
        assert server.sessions[0].module == "eventlog"


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("/?service_name=HR&protocl=tcps", r"unknown parameter protocl .*did you mean protocol\?"),
        (
            "/?service_name=HR&protocol=udp",
            "parameter protocol of the Oracle URL has an invalid value",
        ),
        ("/?service_name=HR&retry_count=many", "parameter retry_count of the Oracle URL"),
        ("/HR?service_name=HR", "remove one of them"),
        ("?protocol=tcps", r"'db' is an alias in tnsnames\.ora.*protocol would have no effect"),
        (":1522?config_dir=/etc", "port would have no effect"),
    ],
)
def test_what_would_have_no_effect_is_refused(rest: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        connect(f"oracle://ann:hunter2@db{rest}")
    assert "hunter2" not in str(refused.value)


def test_a_separate_password_replaces_that_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def refuse(**arguments: Any) -> None:
        given.update(arguments)
        raise OSError(113, "No route to host")

    monkeypatch.setattr("oracledb.connect", refuse)
    with pytest.raises(DatabaseError, match="No route to host"):
        connect("oracle://ann:old@db/?service_name=HR", password="new").connect()
    assert given["password"] == "new"
