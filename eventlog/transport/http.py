"""A connection by HTTP whose every wait ends at one deadline: the standard library's client over sockets of ours."""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import ssl
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from eventlog.errors import ReceiverAway

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class Target(NamedTuple):
    """Where to post. ``shown`` is the URL without its query, which may hold a secret."""

    tls: bool
    host: str
    port: int
    path: str
    shown: str


class Connection(http.client.HTTPConnection):
    """A connection whose every wait ends at the deadline of the exchange."""

    sock: _PlainSocket | TlsSocket | None

    def __init__(self, target: Target, tls: ssl.SSLContext | None) -> None:
        super().__init__(target.host, target.port)
        self._tls = tls
        self._deadline = 0.0
        if tls is not None:
            self.default_port = http.client.HTTPS_PORT

    def post(self, path: str, body: bytes, headers: Mapping[str, str], deadline: float) -> http.client.HTTPResponse:
        """Send a request and return the response, its body unread. The connection is closed if that fails."""
        self._deadline = deadline
        if self.sock is not None:
            self.sock.deadline = deadline
        try:
            # A receiver may refuse before it has read everything, and close.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.request("POST", path, body, dict(headers))
            return self.getresponse()
        except BaseException:
            self.close()
            raise

    def connect(self) -> None:
        """Connect, with TLS where it is asked for. Raises ReceiverAway, which says how that failed."""
        try:
            plain = _connect(self.host, self.port, self._deadline)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                made: _PlainSocket | TlsSocket = _PlainSocket(plain.family, plain.type, plain.proto, plain.detach())
            else:
                with plain:
                    plain.settimeout(_left(self._deadline))
                    wrapped = self._tls.wrap_socket(plain, server_hostname=self.host)
                assert isinstance(wrapped, TlsSocket)
                made = wrapped
        except socket.gaierror as error:
            why = f"the host name {self.host} cannot be resolved: {error.strerror}"
        except TimeoutError:
            why = "no connection within the time-out (sink.timeout)"
        except ssl.SSLCertVerificationError as error:
            why = f"the certificate is not trusted: {error.verify_message}; sink.ca_file names further authorities"
        except ssl.SSLError as error:
            why = f"no TLS connection: {error.reason or error}"
        except OSError as error:
            why = f"no connection: {error.strerror or type(error).__name__}"
        else:
            made.deadline = self._deadline
            self.sock = made
            return
        raise ReceiverAway(why)

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer, the end of the connection neither."""
        if self.sock is None:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)


class _PlainSocket(socket.socket):
    """A socket whose reads and writes end at ``deadline`` (of the monotonic clock)."""

    deadline = 0.0

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        self.settimeout(_left(self.deadline))
        return super().recv_into(buffer, nbytes, flags)

    def sendall(self, data: ReadableBuffer, flags: int = 0) -> None:
        self.settimeout(_left(self.deadline))
        super().sendall(data, flags)


class TlsSocket(ssl.SSLSocket):
    """The same with TLS, where ``sendall`` is a loop of ``send``."""

    deadline = 0.0

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = None, flags: int = 0) -> int:
        self.settimeout(_left(self.deadline))
        return super().recv_into(buffer, nbytes, flags)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        self.settimeout(_left(self.deadline))
        return super().send(data, flags)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connect(host: str, port: int, deadline: float) -> socket.socket:
    """A connection to the first address of the host that answers; each gets its share of the time."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failed: OSError = ConnectionError(f"{host} has no address")
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left(deadline) / (len(addresses) - number))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failed = error
        else:
            return connection
    raise failed
