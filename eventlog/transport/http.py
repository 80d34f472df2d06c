"""An HTTP client: requests to one server, each within one deadline.

The deadline covers a whole exchange, from the first address that is tried to the last byte of the
answer, so that a server which sends one byte per second cannot block the caller. The deadline needs
control of the socket, so the client of the standard library runs over our own socket classes.
Redirects are not followed and proxies of the environment are not used, so that requests, and the
credentials in them, go only to the named server.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import select
import socket
import ssl
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from eventlog import __version__
from eventlog.core.clock import monotonic, utc_now
from eventlog.core.secrets import PLAIN_HTTP, is_loopback
from eventlog.errors import ConfigError, first_of, without_secrets
from eventlog.transport.tls import tls_context

if TYPE_CHECKING:
    from email.message import Message

    from _typeshed import ReadableBuffer, WriteableBuffer

_FRAGMENT: Final = 64 * 1024
"""The number of bytes of one read."""

_WITH_HEAD: Final = 64 * 1024
"""The number of bytes of a body up to which it is sent together with the head of its request."""

_EXCERPT_BYTES: Final = 4096
EXCERPT: Final = 200
"""``_EXCERPT_BYTES`` is the maximum number of bytes that are read of a response that is not an
answer. ``EXCERPT`` is the maximum number of its characters that are shown.
"""
_BEFORE_TEXT: Final = b"\0 \t\r\n\v\f\xef\xbb\xbf\xfe\xff"
"""White space and byte order marks in UTF-8 and UTF-16, as single bytes."""


_OF_ANOTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's error codes for a certificate of another host or address (X509_V_ERR_..._MISMATCH)."""
_EXPIRED: Final = 10
"""OpenSSL's error code for a certificate that has expired (X509_V_ERR_CERT_HAS_EXPIRED)."""
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})
"""OpenSSL's error reasons for a server that does not use TLS."""
_TLS_ALERT: Final = "\x15\x03"


class HttpFailed(Exception):
    """An exchange that failed: there was no connection, the time ran out, or the answer was cut
    off, too large or not HTTP.

    ``in_short`` is the message without any text that the server sent. ``is_sent`` is True if there
    was a connection, and the request or a part of the request was sent. ``retry_after`` is the
    number of seconds that the server asks the client to wait, None if it does not ask. ``advice``
    is an imperative that names the option to correct; it is empty if only the server can end the
    failure.
    """

    def __init__(
        self,
        message: str,
        in_short: str | None = None,
        *,
        is_sent: bool = False,
        retry_after: float | None = None,
        advice: str = "",
    ) -> None:
        super().__init__(message)
        self.in_short, self.advice = message if in_short is None else in_short, advice
        self.is_sent, self.retry_after = is_sent, retry_after


class Response(NamedTuple):
    """An answer of the server. If the status is not 2xx, ``body`` is only its beginning."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Tokens(Protocol):
    """A source of bearer tokens that threads share."""

    @property
    def secrets(self) -> Sequence[str]:
        """The texts that must never be shown."""
        ...

    def current(self) -> str:
        """Return the token for the next request. Raises HttpFailed."""
        ...

    def forget_if_refused(self, token: str, status: int) -> bool:
        """Note the status of an answer to a request with this token. Return True if another token
        may change the answer; this one is then never returned again.
        """
        ...


class HttpClient:
    """A client for requests to one server. Threads may share it; connections are kept and reused.

    If the server closes a kept connection before it answers, the connection is silently replaced
    once, so a request may arrive twice. ``shown`` is the URL without its query, which may hold a
    secret.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        max_response_bytes: int,
        section: str = "",
        credentials: Mapping[str, str] | None = None,
        tokens: Tokens | None = None,
        secrets: Sequence[str] = (),
        sends_secrets: bool = False,
        proxy: str | None = None,
        ca_file: Path | None = None,
        client_certificate: Path | None = None,
        client_key: Path | None = None,
    ) -> None:
        """Check everything that can be checked without the server. The first request connects.

        ``url`` is http or https, percent-encoded, without user and password. ``timeout`` is the
        number of seconds for one whole exchange (the resolver has its own time-outs). ``section``
        is the section of the configuration that has options with these names; messages name it.
        ``section`` is empty if there is no section. ``credentials`` are headers. Credentials,
        ``tokens`` and, with ``sends_secrets``, all requests are sent only over https or to this
        machine. ``secrets`` are never shown. ``proxy`` is http://HOST:PORT of a proxy that connects
        to an https server. ``ca_file`` is a PEM file with the only trusted authorities; None = the
        authorities of the system. ``client_certificate`` is a PEM file with our certificate, and
        with its key unless ``client_key`` is given; the key has no passphrase. Raises ConfigError.
        """
        self._section = section
        place = f"{section}.url" if section else "url"
        self._host, self._port, self._path, is_tls = _target(url, place)
        self.shown = urlsplit(url)._replace(query="", fragment="").geturl()
        if is_tls:
            self._tls: ssl.SSLContext | None = tls_context(
                section, ca_file, client_certificate, client_key
            )
            self._tls.sslsocket_class = _TlsSocket
        elif ca_file is not None or client_certificate is not None or client_key is not None:
            raise ConfigError(
                f"{place} {self.shown}: ca_file, client_certificate and client_key need https"
            )
        else:
            self._tls = None
        self._proxy = None if proxy is None else _proxy_address(proxy, is_tls)
        sends_secrets = sends_secrets or bool(credentials) or tokens is not None
        if sends_secrets and not is_tls and not is_loopback(self._host):
            raise ConfigError(f"{place} {self.shown}: {PLAIN_HTTP}")
        self._credentials = dict(credentials or {})
        self._fixed_secrets, self._tokens = secrets, tokens
        self.timeout, self._max_answer_bytes = timeout, max_response_bytes
        self._idle: deque[_Connection] = deque()

    def request(
        self, method: str, headers: Mapping[str, str], body: bytes | None = None, path: str = ""
    ) -> Response:
        """Make one exchange; ``path`` is appended to the path of the URL. A request whose token is
        refused is sent again, once, with a new token.

        Raises HttpFailed, whatever the reason.
        """
        if self._tokens is None:
            return self._exchange(method, headers, body, path)
        token = self._tokens.current()
        response = self._exchange(method, {**headers, **_bearer(token)}, body, path)
        if self._tokens.forget_if_refused(token, response.status):
            token = self._tokens.current()
            response = self._exchange(method, {**headers, **_bearer(token)}, body, path)
            self._tokens.forget_if_refused(token, response.status)
        return response

    def _exchange(
        self, method: str, headers: Mapping[str, str], body: bytes | None, path: str
    ) -> Response:
        where = f"{self._path.rstrip('/')}{path}" if path else self._path
        headers = {"User-Agent": f"eventlog/{__version__}", **headers, **self._credentials}
        with self._failing():
            connection, response = self._begin(method, where, body, headers)
            reusable = False
            try:
                if 200 <= response.status <= 299:
                    content = self._read(response)
                    reusable = connection.sock is not None
                else:
                    content = _read_beginning(response)
            finally:
                response.close()
                if reusable:
                    self._idle.append(connection)
                else:
                    connection.close()
            return Response(response.status, response.headers, content)

    def close(self) -> None:
        """Close the idle connections."""
        while (connection := self._pop_idle()) is not None:
            connection.close()

    def excerpt(self, body: bytes, most: int = EXCERPT, cut_at: int = _EXCERPT_BYTES) -> str:
        """Return the beginning of a body, cleaned by ``clean``, for a message of ``most``
        characters. A body of ``cut_at`` bytes may have been cut off within a secret; then the
        result does not end in a part of the secret.
        """
        content = beginning(body)
        if len(body) >= cut_at:
            cut = (
                size
                for secret in map(str.encode, self._secrets)
                for size in range(1, len(secret))
                if content.endswith(secret[:size])
            )
            content = content[: len(content) - max(cut, default=0)]
        return self.clean(content.decode("utf-8", "replace"), most)

    def clean(self, text: str, most: int = EXCERPT) -> str:
        """Return text from outside on one line of at most ``most`` characters, without control
        characters and secrets.
        """
        text = without_secrets(text, self._secrets)
        text = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
        return text if len(text) <= most else text[:most] + "..."

    @property
    def _secrets(self) -> Sequence[str]:
        return (*self._fixed_secrets, *(() if self._tokens is None else self._tokens.secrets))

    def _begin(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        """Send a request, and wait for the head of the response."""
        deadline = monotonic() + self.timeout
        idle = self._pop_idle()
        if idle is not None:
            with contextlib.suppress(ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
                return idle, idle.exchange(method, path, body, headers, deadline)
        new = _Connection(self._host, self._port, self._tls, self._section, self._proxy)
        return new, new.exchange(method, path, body, headers, deadline)

    def _pop_idle(self) -> _Connection | None:
        """Return the most recently used idle connection that the server has not closed."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_quiet():
                return connection
            connection.close()

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        """Read the whole body, of at most ``max_response_bytes``."""
        encoding = response.getheader("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", ""):
            what = "which was not asked for"
            raise HttpFailed(
                f"the answer has Content-Encoding {encoding}, {what}", f"a Content-Encoding {what}"
            )
        limit = self._max_answer_bytes
        body = bytearray()
        try:
            while fragment := response.read(_FRAGMENT):
                body += fragment
                if len(body) > limit:
                    break
        except ValueError as error:  # a chunk of a negative size
            raise http.client.HTTPException(str(error)) from None
        if len(body) > limit or (response.length or 0) > limit:
            raise HttpFailed(
                f"the answer has more than {limit} "
                f"bytes{_hint(self._section, 'max_response_bytes')}",
                is_sent=True,
                advice=f"check {_named(self._section, 'max_response_bytes')}",
            )
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return bytes(body)

    @property
    def _perhaps_tls(self) -> str:
        return "" if self._tls is not None else ", as a port for https:// may do"

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Turn every error of an exchange in the block into an HttpFailed that has the reason in
        words.
        """
        # An established connection ends only after the request was sent; ``connect`` raises its
        # own errors.
        in_short, is_sent, advice = None, True, ""
        try:
            yield
        except HttpFailed as failed:
            why, in_short = self.clean(str(failed), 1000), self.clean(failed.in_short, 1000)
            is_sent, advice = failed.is_sent, failed.advice
        except TimeoutError:
            why = f"no complete answer within {self.timeout:g} s{_hint(self._section, 'timeout')}"
        except ssl.SSLError as error:
            why = f"TLS failed: {self.clean(str(error.reason or error))}"
            # A server that refuses our certificate may close only after the request.
            is_sent = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
            advice = _check_certificate(error, self._section)
        except http.client.RemoteDisconnected:
            why = f"the server closed the connection without an answer{self._perhaps_tls}"
        except http.client.IncompleteRead:
            why = "the connection ended in the middle of the answer"
        except http.client.HTTPException as error:
            in_short = "the server's answer is not an HTTP response"
            if isinstance(error, http.client.BadStatusLine) and str(error).startswith(_TLS_ALERT):
                in_short += ", but an alert of TLS, as a port for https:// sends it"
                advice = f"check {_named(self._section, 'url')}"
            why = f"{in_short}: {self.clean(f'{type(error).__name__}: {error}')}"
        except OSError as error:
            why = f"the connection broke: {error.strerror or type(error).__name__}"
            if isinstance(error, ConnectionResetError):
                why += self._perhaps_tls
        else:
            return
        raise HttpFailed(why, in_short, is_sent=is_sent, advice=advice) from None


def beginning(body: bytes) -> bytes:
    """Return the first bytes of a body, without white space and byte order mark at the beginning.
    Zero bytes are removed, so that ASCII in UTF-16 can be read as well.
    """
    return body.lstrip(_BEFORE_TEXT)[:_EXCERPT_BYTES].replace(b"\0", b"")


def _read_beginning(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_EXCERPT_BYTES)
    except (OSError, http.client.HTTPException, ValueError):
        return b""


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _hint(section: str, option: str) -> str:
    return f" ({section}.{option})" if section else ""


def _named(section: str, option: str) -> str:
    """Return the name of an option in the section that has the options of a client."""
    return f"{section}.{option}" if section else option


def _check_certificate(error: ssl.SSLError, section: str) -> str:
    """Return what to check if the server's alert is about our certificate. Otherwise return an
    empty text.
    """
    is_ours = "ALERT" in (error.reason or "") and "CERTIFICATE" in (error.reason or "")
    return f"check {_named(section, 'client_certificate')}" if is_ours else ""


def retry_after(headers: Message) -> float | None:
    """Return the number of seconds in ``Retry-After``, which is a number or a date (RFC 9110
    10.2.3). Return None without the header.

    A date is compared with the receiver's own clock if the response has a ``Date``.
    """
    text = (headers.get("Retry-After") or "").strip()
    if re.fullmatch("[0-9]{1,9}", text):
        return float(text)
    until = _date(text)
    if until is None:
        return None
    now = _date(headers.get("Date") or "") or utc_now()
    return max(0.0, (until - now).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


# --- settings -------------------------------------------------------------------------------------


def _without_credentials(url: str) -> str:
    """Return a malformed URL with ``***`` for its user and password, and without its query."""
    _, at, rest = url.partition("?")[0].rpartition("@")
    return f"***@{rest}" if at else rest


def _target(url: str, place: str) -> tuple[str, int, str, bool]:
    """Return the host and port to connect to, the path to request, and whether TLS is used.

    Raises ConfigError.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(
            f"{place} = {_without_credentials(url)!r} is not a URL; write it like https://HOST/PATH"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{place} = {_without_credentials(url)!r}: write a URL like https://HOST/PATH"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{place} contains a user or a password; set them in the environment")
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ConfigError(f"{place}: {parts.hostname} is not a host name") from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if any(not "!" <= c <= "~" for c in path):
        raise ConfigError(
            f"{place} has blanks or characters that are not ASCII; percent-encode them"
        )
    is_tls = parts.scheme == "https"
    default = http.client.HTTPS_PORT if is_tls else http.client.HTTP_PORT
    return parts.hostname, default if port is None else port, path, is_tls


def _proxy_address(url: str, is_tls: bool) -> tuple[str, int]:
    """Return host and port of a proxy. Raises ConfigError."""
    host, port, path, is_tls_proxy = _target(url, "proxy")
    if is_tls_proxy or path != "/":
        raise ConfigError("proxy: write it like http://HOST:PORT")
    if not is_tls:
        raise ConfigError("proxy: only an https:// URL is reached by a proxy; remove it")
    return host, port


# --- connections ----------------------------------------------------------------------------------


class _Connection(http.client.HTTPConnection):
    """A connection on which every wait ends at the deadline of the exchange."""

    sock: _PlainSocket | _TlsSocket | None

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        section: str,
        proxy: tuple[str, int] | None,
    ) -> None:
        super().__init__(host, port)
        self._tls, self._section, self._proxy = tls, section, proxy
        self._deadline = 0.0
        self._holds_head, self._head = False, b""
        if tls is not None:
            self.default_port = http.client.HTTPS_PORT

    def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline: float,
    ) -> http.client.HTTPResponse:
        """Send a request and return the response, whose body has not been read.

        On failure the connection is closed.
        """
        self._deadline = deadline
        self._holds_head, self._head = body is not None and 0 < len(body) <= _WITH_HEAD, b""
        if self.sock is not None:
            self.sock.deadline = deadline
        try:
            # A server may refuse and close before it has read the whole request.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.request(method, path, body, dict(headers))
            return self.getresponse()
        except BaseException:
            self.close()
            raise

    def send(self, data: Any) -> None:
        """Send the head of a request together with its body, if the body is short: that takes one
        system call and wakes the server once.
        """
        if self._holds_head:
            self._holds_head, self._head = False, data
            return
        head, self._head = self._head, b""
        super().send(head + data if head else data)

    def connect(self) -> None:
        """Connect, with TLS if it is configured. Raises HttpFailed with the reason."""
        advice = ""
        reached = self.host if self._proxy is None else self._proxy[0]
        try:
            plain = self._reach()
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                opened: _PlainSocket | _TlsSocket = _PlainSocket(
                    plain.family, plain.type, plain.proto, plain.detach()
                )
            else:
                with plain:
                    plain.settimeout(_left(self._deadline))
                    wrapped = self._tls.wrap_socket(plain, server_hostname=self.host)
                assert isinstance(wrapped, _TlsSocket)
                opened = wrapped
        except socket.gaierror as error:
            why = f"the host name {reached} cannot be resolved: {error.strerror}"
            if error.errno == socket.EAI_NONAME:
                advice = f"check {_named(self._section, 'url')}"
        except TimeoutError:
            why = f"no connection within the time-out{_hint(self._section, 'timeout')}"
        except ssl.SSLCertVerificationError as error:
            why = f"the certificate is not trusted: {error.verify_message}"
            if error.verify_code in _OF_ANOTHER_NAME:
                names, advice = self._other_names()
                why = f"the certificate is not for the name {self.host}{names}; {advice}"
            elif error.verify_code != _EXPIRED:
                advice = f"set {_named(self._section, 'ca_file')} to the authorities to trust"
                why += f"; {advice}" if self._section else ""
        except ssl.SSLError as error:
            why = f"no TLS connection: {error.reason or error}"
            advice = _check_certificate(error, self._section)
            if error.reason in _NO_TLS:
                why += "; the port does not use TLS, like a port for http://"
                advice = f"check {_named(self._section, 'url')}"
        except OSError as error:
            why = f"no connection: {error.strerror or type(error).__name__}"
        else:
            opened.deadline = self._deadline
            self.sock = opened
            return
        raise HttpFailed(why, advice=advice)

    def _reach(self) -> socket.socket:
        """Connect to the server, directly or through the proxy. Raises OSError, HttpFailed."""
        if self._proxy is None:
            return _connect(self.host, self.port, self._deadline)
        with contextlib.ExitStack() as unless_connected:
            plain = unless_connected.enter_context(_connect(*self._proxy, self._deadline))
            host = f"[{self.host}]" if ":" in self.host else self.host
            place = f"{host}:{self.port}"
            plain.settimeout(_left(self._deadline))
            plain.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
            # The server sends nothing before our handshake, so nothing of it is in the buffer.
            with http.client.HTTPResponse(plain, method="CONNECT") as response:
                response.begin()
            if response.status != HTTPStatus.OK:
                raise HttpFailed(f"the proxy answers {response.status}, not a connection")
            unless_connected.pop_all()
            return plain

    def _other_names(self) -> tuple[str, str]:
        """Return two texts about a certificate that is not for this host: the names for which the
        certificate was issued, and what to do. A second handshake reads the names; this handshake
        still checks the authority.
        """
        names: list[str] = []
        assert self._tls is not None
        # Other threads connect with the shared context, so this handshake must not change it.
        lenient = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        lenient.check_hostname = False
        # The sentence is complete without the names.
        with contextlib.suppress(OSError, ValueError, HttpFailed):
            lenient.load_verify_locations(cadata=b"".join(self._tls.get_ca_certs(binary_form=True)))
            with self._reach() as plain:
                plain.settimeout(_left(self._deadline))
                with lenient.wrap_socket(plain, server_hostname=self.host) as opened:
                    found = (opened.getpeercert() or {}).get("subjectAltName", ())
                    names = [str(one[1]) for one in found]
        url = f"{self._section}.url" if self._section else "the URL"
        if not names:
            return "", f"put the name for which it was issued into {url}"
        return f" but for {first_of(names, 5)}", f"put one of these names into {url}"

    def is_quiet(self) -> bool:
        """Return True if the server has sent nothing since the last answer and has not closed the
        connection.
        """
        if self.sock is None:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)


class _PlainSocket(socket.socket):
    """A socket whose reads and writes end at ``deadline`` (on the monotonic clock)."""

    deadline = 0.0

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        self.settimeout(_left(self.deadline))
        return super().recv_into(buffer, nbytes, flags)

    def sendall(self, data: ReadableBuffer, flags: int = 0) -> None:
        self.settimeout(_left(self.deadline))
        super().sendall(data, flags)


class _TlsSocket(ssl.SSLSocket):
    """A TLS socket whose reads and writes end at ``deadline``. Its ``sendall`` calls ``send`` in a
    loop.
    """

    deadline = 0.0

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = None, flags: int = 0) -> int:
        self.settimeout(_left(self.deadline))
        return super().recv_into(buffer, nbytes, flags)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        self.settimeout(_left(self.deadline))
        return super().send(data, flags)


def _left(deadline: float) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connect(host: str, port: int, deadline: float) -> socket.socket:
    """Connect to the first address that answers. Each address gets its share of the time."""
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
