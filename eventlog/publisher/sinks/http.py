"""Documents by HTTP POST; the body of the response is the answer (spec/event-log.md 8.4, spec/xds.md 7).

What counts is an XDS answer under a status 2xx. Everything else means that the receiver is away: no connection, a
time-out, another status (redirects are not followed), a body that is empty (204 too), cut off, too large or no XDS.

No ``Idempotency-Key`` is sent: an envelope is sent again under its old numbers with what is left of its events, and a
gateway that knows the key would repeat its old answer. The key is the event-id (spec/event-log.md 7.4).
"""

from __future__ import annotations

import base64
import http.client
import re
from pathlib import Path
from typing import Final

from eventlog.errors import ConfigError, ReceiverAway
from eventlog.model import Answer
from eventlog.publisher.sinks import Document
from eventlog.transport.http import HttpClient, HttpFailed, Response
from eventlog.xds.reader import read_answer

DEFAULT_TIMEOUT: Final = 30.0
"""Seconds for one document and its answer if nothing else is said."""

DEFAULT_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the largest answer that is taken if nothing else is said."""

_ADVICE: Final = {
    401: "credentials are needed: EVENTLOG_SINK_TOKEN, or EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD",
    403: "the credentials do not suffice",
    404: "see sink.url",
    405: "see sink.url",
    413: "see publisher.batch_size",
}


class HttpSink:
    """Posts documents to one URL. ``send`` may be called from several threads.

    A document may come twice, its events under the same event-ids (spec/event-log.md 12).
    """

    __slots__ = ("_client", "_max_answer_bytes")

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
        """``token`` is sent as bearer, or ``user`` and ``password`` as basic credentials; the rest as of
        ``HttpClient``. Raises ConfigError.
        """
        authorization, secrets = _credentials(token, user, password)
        self._max_answer_bytes = max_answer_bytes
        self._client = HttpClient(
            url,
            timeout=timeout,
            max_answer_bytes=max_answer_bytes,
            section="sink",
            authorization=authorization,
            secrets=secrets,
            ca_file=ca_file,
            client_certificate=client_certificate,
            client_key=client_key,
        )

    def send(self, document: Document) -> Answer:
        """Post one document and read the answer to its events. Raises ReceiverAway, with what came and from where."""
        headers = {
            "Content-Type": document.media_type,
            "Accept": "application/xml",
            "Eventlog-Flight": str(document.flight),
            "Eventlog-Envelope": str(document.envelope),
            **dict(document.headers),
        }
        try:
            response = self._client.request("POST", headers, document.body.encode())
            if 200 <= response.status <= 299:
                return read_answer(response.body, document.event_ids, self._max_answer_bytes)
            why = self._refusal(response)
        except (HttpFailed, ReceiverAway) as error:
            why = str(error)
        raise ReceiverAway(f"{self._client.shown}: {self._client.clean(why, 1000)}") from None

    def flush(self) -> None:
        """Nothing is kept back: what was answered is the receiver's."""

    def close(self) -> None:
        self._client.close()

    def _refusal(self, response: Response) -> str:
        """What a status other than 2xx says, on one line."""
        status, headers, body = response
        clean = self._client.clean
        parts = [f"the receiver answers {status} {http.client.responses.get(status, '')}".rstrip()]
        if 300 <= status <= 399:
            location = clean(headers.get("Location", ""))
            place = re.sub("(?<=//)[^/]*@", "", re.split("[?#]", location)[0])  # the rest may hold secrets
            parts.append(f"redirects are not followed, sink.url is to name the place itself: {place}")
        if status in _ADVICE:
            parts.append(_ADVICE[status])
        if (after := headers.get("Retry-After")) is not None:
            parts.append(f"Retry-After: {clean(after, 40)}")
        if excerpt := clean(body.decode("utf-8", "replace")):
            parts.append(excerpt)
        return "; ".join(parts)


def _credentials(token: str | None, user: str | None, password: str | None) -> tuple[str | None, tuple[str, ...]]:
    """The Authorization header, and what of them is never shown. Raises ConfigError, which shows none either."""
    if token is not None:
        if user is not None or password is not None:
            raise ConfigError("EVENTLOG_SINK_TOKEN excludes EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD; keep one")
        if not token or any(not "!" <= c <= "~" for c in token):
            raise ConfigError("EVENTLOG_SINK_TOKEN is empty or holds blanks, line ends or characters beyond ASCII")
        return f"Bearer {token}", (token,)
    if user is None and password is None:
        return None, ()
    if not user or not password:
        raise ConfigError("EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD are needed both, or neither")
    if ":" in user or not f"{user}{password}".isprintable():
        raise ConfigError("EVENTLOG_SINK_USER holds a colon, or one of user and password a control character")
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return f"Basic {encoded}", (encoded, password)
