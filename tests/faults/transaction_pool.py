"""A connection pool that lends the server's sessions by the transaction, as PgBouncer does in mode
``transaction``, or refuses transactions, as it does in mode ``statement``.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

_READY = b"Z"
_NO_ENCRYPTION = (80877103, 80877104)


class Peer:
    """One end that speaks PostgreSQL's protocol."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._file = sock.makefile("rb")

    def read(self) -> tuple[bytes, bytes]:
        """Type and whole text of a message. Raises EOFError at the end."""
        kind = self._exactly(1)
        return kind, kind + self._sized()

    def read_startup(self) -> bytes:
        while True:
            packet = self._sized()
            if struct.unpack("!I", packet[4:8])[0] not in _NO_ENCRYPTION:
                return packet
            self.sock.sendall(b"N")

    def _sized(self) -> bytes:
        head = self._exactly(4)
        return head + self._exactly(struct.unpack("!I", head)[0] - 4)

    def _exactly(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self._file.close()
        self.sock.close()


class _Pool:
    def __init__(self, connect: Callable[[], socket.socket], take_oldest: bool) -> None:
        self._connect = connect
        self._take_oldest = take_oldest
        self._free: deque[Peer] = deque()
        self._lock = threading.Lock()
        self.servers: list[Peer] = []
        self.greeting = b""

    def take(self, startup: bytes) -> Peer:
        with self._lock:
            if self._free:
                return self._free.popleft() if self._take_oldest else self._free.pop()
            server = Peer(self._connect())
            self.servers.append(server)
            server.sock.sendall(startup)
            greeting = b""
            while True:
                kind, message = server.read()
                if kind == b"R" and message[5:9] != b"\0\0\0\0":
                    pytest.skip("the pool of this test knows no passwords")
                greeting += message
                if kind == _READY:
                    self.greeting = greeting
                    return server

    def give_back(self, server: Peer) -> None:
        with self._lock:
            self._free.append(server)


# As PgBouncer says it (08P01), behind which it closes the connection.
_NO_TRANSACTIONS = b"SFATAL\0C08P01\0Mtransaction blocks not allowed in statement pooling mode\0\0"


def _serve(client: Peer, pool: _Pool, takes_transactions: bool) -> None:
    server: Peer | None = None
    try:
        startup = client.read_startup()
        pool.give_back(pool.take(startup))
        client.sock.sendall(pool.greeting)
        while True:
            kind, message = client.read()
            if kind == b"X":
                return
            server = server or pool.take(startup)
            server.sock.sendall(message)
            if kind not in (b"Q", b"S"):
                continue
            answered, answer = b"", b""
            while answered != _READY:
                answered, message = server.read()
                answer += message
            if message[5:6] != b"I" and not takes_transactions:
                client.sock.sendall(
                    b"E" + struct.pack("!I", len(_NO_TRANSACTIONS) + 4) + _NO_TRANSACTIONS
                )
                return
            if message[5:6] == b"I":  # before its client goes on, as PgBouncer's one thread does
                pool.give_back(server)
                server = None
            client.sock.sendall(answer)
    except (EOFError, OSError, ValueError):  # ValueError: the file is closed at the end of the test
        pass
    finally:
        client.close()


def server_socket(url: sa.URL) -> socket.socket:
    host = url.host or url.query.get("host")
    assert isinstance(host, str)
    port = url.port or int(str(url.query.get("port", 5432)))
    if host.startswith("/"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(f"{host}/.s.PGSQL.{port}")
        return sock
    return socket.create_connection((host, port))


def _startup(url: sa.URL) -> bytes:
    pairs = {"user": url.username or "postgres", "database": url.database or "postgres"}
    body = b"".join(f"{name}\0{value}\0".encode() for name, value in pairs.items()) + b"\0"
    return struct.pack("!II", len(body) + 8, 3 << 16) + body


@contextmanager
def transaction_pool(
    url: sa.URL, take_oldest: bool = False, takes_transactions: bool = True
) -> Iterator[sa.URL]:
    """The URL of a pool before the server of ``url``. It lends the last session first, with
    ``take_oldest`` in turn.

    ``takes_transactions``: else it is in mode ``statement``.
    """
    pool = _Pool(lambda: server_socket(url), take_oldest)
    pool.give_back(pool.take(_startup(url)))  # skips the test if the server wants a password
    listener = socket.create_server(("127.0.0.1", 0))
    clients: list[Peer] = []
    threads: list[threading.Thread] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client = Peer(listener.accept()[0])
                clients.append(client)
                threads.append(
                    threading.Thread(target=_serve, args=(client, pool, takes_transactions))
                )
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield sa.URL.create(
            "postgresql+psycopg",
            url.username,
            url.password,
            "127.0.0.1",
            listener.getsockname()[1],
            url.database,
        )
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for peer in (*clients, *pool.servers):
            with contextlib.suppress(ValueError):
                peer.close()
        for thread in threads:
            thread.join()
