"""Documents by HTTP POST; the body of the response is the answer (spec/event-log.md 8.4, spec/xds.md 7).

What counts is an XDS answer under a status 2xx. Everything else means that the receiver is away: no connection, a
time-out, another status (redirects are not followed), a body that is empty (204 too), cut off, too large or no XDS.

One deadline holds for the whole of an exchange, from the first address tried to the last byte of the answer, so that a
receiver which drips a byte a second cannot hold the publisher. That needs the socket, hence the standard library's
client. Proxies of the environment are not used: documents and credentials go to the receiver that is named, or nowhere.

No ``Idempotency-Key`` is sent: an envelope is sent again under its old numbers with what is left of its events, and a
gateway that knows the key would repeat its old answer. The key is the event-id (spec/event-log.md 7.4).
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import ipaddress
import re
import ssl
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from eventlog import __version__
from eventlog.errors import ConfigError, ReceiverAway
from eventlog.model import Answer
from eventlog.publisher.sinks import Document
from eventlog.transport.http import Connection, Target, TlsSocket
from eventlog.xds.answers import read_answer

DEFAULT_TIMEOUT: Final = 30.0
"""Seconds for one document and its answer if nothing else is said."""

DEFAULT_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the largest answer that is taken if nothing else is said."""

_PIECE: Final = 64 * 1024
"""Bytes read at once."""

_EXCERPT_BYTES: Final = 4096
_EXCERPT: Final = 200
_MESSAGE: Final = 1000
"""Bytes read of a response that is no answer, characters shown of it, and characters of a message at most."""

_ADVICE: Final = {
    401: "credentials are needed: EVENTLOG_SINK_TOKEN, or EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD",
    403: "the credentials do not suffice",
    404: "see sink.url",
    405: "see sink.url",
    413: "see publisher.batch_size",
}


class HttpSink:
    """Posts documents to one URL. ``send`` may be called from several threads; connections are kept and reused.

    A kept connection that the receiver closes before it answers is replaced once without a word: that says nothing of
    the document, and its events may be repeated under their event-ids (spec/event-log.md 12).
    """

    __slots__ = ("_authorization", "_idle", "_max_answer_bytes", "_secrets", "_target", "_timeout", "_tls")

    def __init__(
        self,
        url: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        ca_file: Path | None = None,
        client_certificate: Path | None = None,
        client_key: Path | None = None,
        token: str | None = None,
        user: str | None = None,
        password: str | None = None,
        max_answer_bytes: int = DEFAULT_MAX_ANSWER_BYTES,
    ) -> None:
        """Check everything that can be checked without the receiver; connect with the first document.

        ``url``: http or https, percent-encoded, without user and password. ``timeout``: seconds for one document and
        its answer, all in all (but the resolver has time-outs of its own). ``ca_file``: PEM of the only authorities
        that are trusted; None = the system's.
        ``client_certificate``: PEM of our certificate, and of its key unless ``client_key`` holds that; no passphrase.
        ``token`` is sent as bearer, or ``user`` and ``password`` as basic credentials, over https or to this machine
        only. ``max_answer_bytes``: a larger answer is none. Raises ConfigError.
        """
        self._target = _target(url)
        if self._target.tls:
            self._tls: ssl.SSLContext | None = _tls_context(ca_file, client_certificate, client_key)
        elif ca_file is not None or client_certificate is not None or client_key is not None:
            raise ConfigError(f"sink.url {self._target.shown}: ca_file, client_certificate and client_key need https")
        else:
            self._tls = None
        self._authorization, self._secrets = _credentials(token, user, password)
        if self._authorization and not self._target.tls and not _is_loopback(self._target.host):
            raise ConfigError(
                f"sink.url {self._target.shown}: credentials are not sent over plain http to another machine; use https"
            )
        self._timeout = timeout
        self._max_answer_bytes = max_answer_bytes
        self._idle: deque[Connection] = deque()

    def send(self, document: Document) -> Answer:
        """Post one document and read the answer to its events. Raises ReceiverAway, with what came and from where."""
        with self._receiver_away():
            connection, response = self._begin(document)
            reusable = False
            try:
                if not 200 <= response.status <= 299:
                    raise ReceiverAway(self._refusal(response))
                body = _read(response, self._max_answer_bytes)
                reusable = connection.sock is not None
            finally:
                response.close()
                if reusable:
                    self._idle.append(connection)
                else:
                    connection.close()
            return read_answer(body, document.event_ids, self._max_answer_bytes)

    def flush(self) -> None:
        """Nothing is kept back: what was answered is the receiver's."""

    def close(self) -> None:
        while (connection := self._take_idle()) is not None:
            connection.close()

    def _begin(self, document: Document) -> tuple[Connection, http.client.HTTPResponse]:
        """Post, and wait for the head of the response."""
        deadline = time.monotonic() + self._timeout
        body = document.body.encode()
        headers = {
            "Content-Type": "application/xml; charset=utf-8",
            "Accept": "application/xml",
            "User-Agent": f"eventlog/{__version__}",
            "Eventlog-Flight": str(document.flight),
            "Eventlog-Envelope": str(document.envelope),
            **self._authorization,
        }
        kept = self._take_idle()
        if kept is not None:
            with contextlib.suppress(ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
                return kept, kept.post(self._target.path, body, headers, deadline)
        new = Connection(self._target, self._tls)
        return new, new.post(self._target.path, body, headers, deadline)

    def _take_idle(self) -> Connection | None:
        """The connection used last that the receiver has not closed since."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_quiet():
                return connection
            connection.close()

    def _refusal(self, response: http.client.HTTPResponse) -> str:
        """What a status other than 2xx says, on one line."""
        status = response.status
        parts = [f"the receiver answers {status} {http.client.responses.get(status, '')}".rstrip()]
        if 300 <= status <= 399:
            location = self._clean(response.getheader("Location", ""), _EXCERPT)
            place = re.sub("(?<=//)[^/]*@", "", re.split("[?#]", location)[0])  # the rest may hold secrets
            parts.append(f"redirects are not followed, sink.url is to name the place itself: {place}")
        if status in _ADVICE:
            parts.append(_ADVICE[status])
        if (after := response.getheader("Retry-After")) is not None:
            parts.append(f"Retry-After: {self._clean(after, 40)}")
        try:
            body = response.read(_EXCERPT_BYTES)
        except (OSError, http.client.HTTPException):
            body = b""
        if excerpt := self._clean(body.decode("utf-8", "replace"), _EXCERPT):
            parts.append(excerpt)
        return "; ".join(parts)

    @contextlib.contextmanager
    def _receiver_away(self) -> Iterator[None]:
        """Say in words why an exchange failed."""
        try:
            yield
        except ReceiverAway as away:
            why = self._clean(str(away), _MESSAGE)
        except TimeoutError:
            why = f"no whole answer within {self._timeout:g} s (sink.timeout)"
        except ssl.SSLError as error:
            why = f"TLS failed: {self._clean(str(error.reason or error), _EXCERPT)}"
        except http.client.RemoteDisconnected:
            why = "the receiver closed the connection without an answer"
        except http.client.IncompleteRead:
            why = "the connection ended in the middle of the answer"
        except http.client.HTTPException as error:
            why = f"what came is no HTTP response: {self._clean(f'{type(error).__name__}: {error}', _EXCERPT)}"
        except OSError as error:
            why = f"the connection broke: {error.strerror or type(error).__name__}"
        else:
            return
        raise ReceiverAway(f"{self._target.shown}: {why}") from None

    def _clean(self, text: str, most: int) -> str:
        """Text from outside on one line of at most ``most`` characters, with no control characters and no secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
        return text if len(text) <= most else text[:most] + "..."


def _read(response: http.client.HTTPResponse, limit: int) -> bytes:
    """The whole body, of at most ``limit`` bytes."""
    encoding = response.getheader("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", ""):
        raise ReceiverAway(f"the receiver's answer has Content-Encoding {encoding}, which was not asked for")
    body = bytearray()
    while piece := response.read(_PIECE):
        body += piece
        if len(body) > limit:
            break
    if len(body) > limit or (response.length or 0) > limit:
        raise ReceiverAway(f"the receiver's answer has more than {limit} bytes (sink.max_answer_bytes)")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return bytes(body)


def _target(url: str) -> Target:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError("sink.url is no URL; one like https://receiver/xds is needed") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("sink.url is to be a URL like https://receiver/xds")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "sink.url holds a user or a password; they belong in EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD"
        )
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ConfigError(f"sink.url: {parts.hostname} is no host name") from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if any(not "!" <= c <= "~" for c in path):
        raise ConfigError("sink.url holds blanks or characters that are not ASCII; percent-encode them")
    tls = parts.scheme == "https"
    default = http.client.HTTPS_PORT if tls else http.client.HTTP_PORT
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
    return Target(tls, parts.hostname, default if port is None else port, path, shown)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _credentials(
    token: str | None, user: str | None, password: str | None
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The header of the credentials, and what of them is never shown. Raises ConfigError, which shows none either."""
    if token is not None:
        if user is not None or password is not None:
            raise ConfigError("EVENTLOG_SINK_TOKEN excludes EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD; keep one")
        if not token or any(not "!" <= c <= "~" for c in token):
            raise ConfigError("EVENTLOG_SINK_TOKEN is empty or holds blanks, line ends or characters beyond ASCII")
        return {"Authorization": f"Bearer {token}"}, (token,)
    if user is None and password is None:
        return {}, ()
    if not user or not password:
        raise ConfigError("EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD are needed both, or neither")
    if ":" in user or not f"{user}{password}".isprintable():
        raise ConfigError("EVENTLOG_SINK_USER holds a colon, or one of user and password a control character")
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return {"Authorization": f"Basic {encoded}"}, (encoded, password)


def _tls_context(ca_file: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Verify the receiver's certificate and its name, TLS 1.2 or later. Raises ConfigError."""
    if key is not None and certificate is None:
        raise ConfigError("sink.client_key needs sink.client_certificate")
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"sink.ca_file {ca_file}: {_pem_trouble(error)}; PEM certificates needed") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = TlsSocket
    if certificate is not None:
        files = f"{certificate}" if key is None else f"{certificate}, client_key {key}"
        try:
            context.load_cert_chain(certificate, key, password=_no_passphrase)
        except OSError as error:
            raise ConfigError(
                f"sink.client_certificate {files}: {_pem_trouble(error)}; a PEM certificate and its key needed"
            ) from None
    return context


def _no_passphrase() -> str:
    # Without this OpenSSL would ask on the terminal.
    raise ConfigError("the key of sink.client_certificate has a passphrase; give one without")


def _pem_trouble(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
