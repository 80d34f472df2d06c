"""Send documents by HTTP POST, and read the answers of the receiver (spec/event-log.md 8.4,
spec/xds.md 7).

The answer is read from an XDS document, from the status alone, or from JSON with a result for each
event. Any other response means that the receiver is unavailable: no connection, a time-out, a body
that is cut off or too large, any status that does not answer events (redirects are not followed).
The failure is suspicious if the document may be the cause.

No ``Idempotency-Key`` is sent: a document is sent again under its old numbers with its remaining
events, and a gateway that has seen the key would repeat its old answer. The receiver recognizes
repeated events by the event-id (spec/event-log.md 7.4).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventlog.changes.answers import AnswerForm
from eventlog.config.kafka import PASSWORD, USER
from eventlog.config.kinds import HEADERS, SECRET, SECRET_HEADERS, is_header_text
from eventlog.core.clock import unix_time
from eventlog.core.oauth import OAUTH, OAuthOptions, client_secret
from eventlog.core.options import (
    MANY,
    TEXT,
    WEB_URL,
    OptionKind,
    choice,
    integer,
    option,
    shared,
)
from eventlog.core.secrets import referenced_secret
from eventlog.errors import ConfigError, ReceiverUnavailable, Reply
from eventlog.files.compression import COMPRESSIONS
from eventlog.model import LEVELS, Answer, Document, EventResult, Level, answer_of, max_statuses
from eventlog.publisher.sinks import (
    CA_FILE,
    CLIENT_CERTIFICATE,
    CLIENT_KEY,
    FILE_LAYOUT,
    TIMEOUT,
    TOKEN,
    NetworkSink,
    Opening,
)
from eventlog.registry import format_named

if TYPE_CHECKING:
    from eventlog.transport.http import Response
    from eventlog.transport.oauth import ClientTokens

_log = logging.getLogger("eventlog.publisher")

_BUSY: Final = (429, 503)
"""The statuses that ask for a retry whatever the form of answers is: the receiver has not read the
document.
"""

_REFUSED: Final = (400, 409, 413, 422)
"""The statuses that refuse an event of the document without naming it."""

_GONE: Final = 410

_NOT_THERE: Final = (502, 503, 504)
"""The statuses 5xx that a proxy sends when the receiver is unavailable. The document may be the
cause of any other 5xx.
"""

_CREDENTIALS: Final = (
    "EVENTLOG_SINK_TOKEN, or EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD, or sink.secret_headers"
)
_ADVICE: Final = {
    401: "check the credentials: {credentials}",
    403: (
        "check the rights of the credentials, and that the receiver has the same signing secret "
        "(EVENTLOG_SINK_SIGNING_SECRET)"
    ),
    404: "nothing receives at this path; check sink.url",
    405: "POST is not accepted at this path; check sink.url",
    413: "reduce publisher.batch_size",
    415: (
        "the receiver does not accept the format or the compression; check format.type and "
        "sink.compression"
    ),
}
"""What to do about the option that causes a status, by the status of the answer."""


_TAKEN: Final = Answer()
"""The answer of a receiver that answers by its status alone and has accepted all events."""
_KILOBYTE: Final = 1024
_PHRASES: Final = {one.value: one.phrase for one in HTTPStatus}
_PAGE: Final = re.compile(rb"<!doctype\s+html|<html", re.IGNORECASE)
"""The beginning of a page of HTML."""

_CHECK_PAGE: Final = "check sink.url and the credentials"
_IS_PAGE: Final = (
    "the receiver answers with a page of HTML, perhaps the login page of a proxy; " + _CHECK_PAGE
)
_CHECK_FORM: Final = "check sink.url and sink.response_format"
_FINAL_ADDRESS: Final = "set sink.url to the final address"

_MEDIA_TYPE: Final = re.compile("[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _parse_media_type(value: Any) -> str:
    text: str = TEXT.parse(value).strip().lower()
    if _MEDIA_TYPE.fullmatch(text) is None:
        raise ValueError
    return text


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Options of ``[sink]`` of type ``http``."""

    url: str | None = option(
        None, WEB_URL, "URL to which documents are posted", example="https://receiver/xds"
    )
    file_layout: str = shared(FILE_LAYOUT)
    response_format: str | None = option(
        None,
        choice("xds", "status", "json"),
        "form of the receiver's answer: XDS, the status alone, or JSON with one result per event; "
        "default: xds for the format xds, status for others",
        example="status",
    )
    headers: Mapping[str, str] | None = option(
        None, HEADERS, "headers of each request", example={"X-Tenant": "hr"}
    )
    secret_headers: Mapping[str, str] | None = option(
        None, SECRET_HEADERS, "secret headers of each request",
        example={"X-Api-Key": "file:/run/secrets/receiver-key"},
    )  # fmt: skip
    expected_content_type: str | None = option(
        None,
        OptionKind(_parse_media_type, "a media type such as application/xml"),
        "media type of an answer with status 2xx; with another media type the receiver counts as "
        "unavailable",
        example="application/json",
    )
    compression: str = option("none", choice("none", "gzip"), "of the request")
    signing_secret: str | None = option(
        None,
        SECRET,
        "secret that signs each request as in Standard Webhooks: whsec_ and base64; two of them, "
        "separated by a blank, while the secret is being replaced",
        secret=True,
    )
    timeout: float = shared(TIMEOUT)
    ca_file: Path | None = shared(CA_FILE)
    client_certificate: Path | None = shared(CLIENT_CERTIFICATE)
    client_key: Path | None = shared(CLIENT_KEY)
    max_response_bytes: int = option(
        4 * 1024 * 1024, integer(1024, MANY), "largest answer that is read, bytes"
    )
    oauth: OAuthOptions | None = shared(OAUTH)
    token: str | None = shared(TOKEN)
    user: str | None = shared(USER)
    password: str | None = shared(PASSWORD)


class HttpSink(NetworkSink):
    """A sink that posts documents to one URL. ``send`` may be called from several threads.

    A document may be sent twice, with the same event-ids (spec/event-log.md 12).
    """

    name = "http"
    title = "HTTP POST"
    options = HttpOptions
    needs = {"url": "the URL to which documents are posted"}  # noqa: RUF012 - read only
    takes_several = True
    has_headers = True
    span_kind = "CLIENT"

    @classmethod
    def open(cls, options: HttpOptions, opening: Opening) -> HttpSink:
        return cls(options, answer_form(options.response_format or opening.format.response_format))

    @classmethod
    def try_out(cls, options: HttpOptions, opening: Opening) -> str:
        """Send the request OPTIONS. The answer only shows that a server is there and accepts this
        client, not how it would answer a POST.
        """
        with closing(cls.open(options, opening)) as sink:
            return sink._ask_for_options()

    def __init__(self, settings: HttpOptions, answer_form: AnswerForm) -> None:
        """Open the client. Raises ConfigError."""
        # A late import, since these modules load TLS, which takes longer than a configuration.
        from eventlog.transport.http import HttpClient, HttpFailed, retry_after

        assert settings.url is not None
        self._failures, self._retry_after = (HttpFailed, ReceiverUnavailable), retry_after
        self._tokens = _tokens(settings)
        credentials, secrets = _credentials(settings.token, settings.user, settings.password)
        named = _secret_headers(settings.secret_headers or {})
        if credentials and "authorization" in map(str.lower, named):
            raise ConfigError(
                "sink.secret_headers and EVENTLOG_SINK_... both set Authorization; keep one"
            )
        if self._tokens is not None and "authorization" in map(str.lower, credentials | named):
            raise ConfigError(
                "sink.oauth cannot be used with EVENTLOG_SINK_TOKEN, EVENTLOG_SINK_USER or a "
                "secret header Authorization; keep one"
            )
        self._signing_keys = _signing_keys(settings.signing_secret)
        self._credentials = _named_credentials(settings)
        self._headers = {**(settings.headers or {}), "Accept": answer_form.accept}
        self._compresses = settings.compression == "gzip"
        self._answer_form = answer_form
        self._limit = settings.max_response_bytes
        self._expected = settings.expected_content_type
        self._warns_of_html = settings.expected_content_type is None
        self.client = HttpClient(
            settings.url,
            timeout=settings.timeout,
            max_response_bytes=settings.max_response_bytes,
            section="sink",
            credentials=credentials | named,
            tokens=self._tokens,
            secrets=(*secrets, *named.values(), *(settings.signing_secret or "").split()),
            ca_file=settings.ca_file,
            client_certificate=settings.client_certificate,
            client_key=settings.client_key,
        )

    def send(self, document: Document) -> Answer:
        """Post one document and read the answer to its events.

        Raises ReceiverUnavailable with the response and the URL.
        """
        body = document.body
        headers = {
            **self._headers,
            "Content-Type": document.media_type,
            "Eventlog-Delivery": str(document.delivery_no),
            "Eventlog-Document": str(document.document_no),
            **dict(document.headers),
        }
        if self._signing_keys:
            headers |= _signature(self._signing_keys, document, body)
        if self._compresses:
            headers["Content-Encoding"] = "gzip"
            body = COMPRESSIONS["gzip"].compress(body)
        reply: Reply | None = None
        try:
            response = self.client.request("POST", headers, body)
            reply = self._reply(response)
            answer = self._answer(response, document.event_ids)
            # The usual answer costs no copy.
            return Answer(reply=reply) if answer is _TAKEN else replace(answer, reply=reply)
        except self._failures as error:
            shown, clean = self.client.shown, self.client.clean
            in_short = f"{shown}: {clean(error.in_short, 1000)}" if error.in_short else ""
            why = f"{shown}: {clean(str(error), 1000)}"
            if isinstance(error, ReceiverUnavailable):
                is_suspicious = error.is_suspicious
            elif error.retry_after is not None:
                retry = EventResult(Level.RETRY, why)
                return Answer(general=retry, retry_after=error.retry_after, in_short=in_short)
            else:
                is_suspicious = error.is_sent
            raise ReceiverUnavailable(
                why, in_short, is_suspicious=is_suspicious, advice=error.advice, reply=reply
            ) from None

    def close(self) -> None:
        self.client.close()
        if self._tokens is not None:
            self._tokens.close()

    def _ask_for_options(self) -> str:
        shown, clean = self.client.shown, self.client.clean
        try:
            response = self.client.request("OPTIONS", self._headers, b"")
            status, headers, _ = response
            if 200 <= status <= 299:
                self._refuse_page(response)
        except self._failures as error:
            raise ReceiverUnavailable(f"{shown}: {clean(str(error), 1000)}") from None
        if status in (401, 403, 404):
            raise ReceiverUnavailable(
                f"{shown} answers OPTIONS with {status}: {self._advice(status)}"
            )
        allowed = f", allowed: {clean(headers['Allow'], 100)}" if "Allow" in headers else ""
        known = (
            ""
            if 200 <= status <= 299
            else "; this does not show whether it accepts the credentials"
        )
        answer = ", ".join([f"{shown} answers OPTIONS with {status}", *self._content(response)])
        return f"{answer}{allowed}{known}"

    def _answer(self, response: Response, event_ids: Collection[str]) -> Answer:
        """Return the answer in a response. Raises ReceiverUnavailable if the response has no usable
        answer.
        """
        status, headers, body = response
        if 200 <= status <= 299:
            self._check_content(response)
            if self._answer_form.read is None:
                return _TAKEN
            try:
                return self._answer_form.read(body, event_ids, self._limit, self.client.clean)
            except ReceiverUnavailable as unavailable:
                hint = (
                    "if the receiver answers by its status alone, set "
                    'sink.response_format = "status"'
                )
                raise ReceiverUnavailable(
                    f"{unavailable}; {hint}",
                    f"{unavailable.in_short}; {hint}",
                    is_suspicious=True,
                    advice=_CHECK_FORM,
                ) from None
        in_short = f"the receiver answers {_named(status)}"
        why = self._refusal(response, in_short)
        if status in _BUSY:
            return Answer(
                general=EventResult(Level.RETRY, why),
                retry_after=self._retry_after(headers),
                in_short=in_short,
            )
        if self._answer_form.status_refuses and status in _REFUSED:
            return Answer(
                general=EventResult(Level.ERROR, why), culprit_unknown=True, in_short=in_short
            )
        if self._answer_form.status_refuses and status == _GONE:
            return Answer(general=EventResult(Level.FATAL, why), in_short=in_short)
        is_suspicious = (500 <= status <= 599 and status not in _NOT_THERE) or (
            status in _REFUSED and not self._answer_form.status_refuses
        )
        advice = self._advice(status)
        advised = "; ".join([in_short, *filter(None, [advice])])
        raise ReceiverUnavailable(why, advised, is_suspicious=is_suspicious, advice=advice)

    def _reply(self, response: Response) -> Reply:
        status, _, body = response
        return Reply(_named(status), body[:_KILOBYTE], self._shown_reply)

    def _shown_reply(self, body: bytes) -> str:
        return self.client.excerpt(body, most=_KILOBYTE, cut_at=_KILOBYTE)

    def _check_content(self, response: Response) -> None:
        """Raise ReceiverUnavailable if a body under a status 2xx is of another media type than
        ``expected_content_type``, or is a page of HTML. An answer without a body has no type.

        Without the option, only a warning is logged for the first answer of type HTML: pages of
        proxies have this type, but some frameworks use it for any text.
        """
        if not response.body:
            return
        declared = response.headers.get("Content-Type", "")
        media_type = declared.partition(";")[0].strip().lower()
        if self._expected not in (None, media_type):
            what = f"of another media type than {self._expected} (sink.expected_content_type)"
            shown = self.client.clean(declared, 100) or "none"
            raise ReceiverUnavailable(
                f"the receiver's answer is {what}: {shown}",
                f"the receiver's answer is {what}",
                advice="check sink.url and sink.expected_content_type",
            )
        self._refuse_page(response)
        if self._warns_of_html and media_type == "text/html":
            self._warns_of_html = False
            _log.warning(
                "%s answers in text/html, perhaps the login page of a proxy. Set "
                "sink.expected_content_type to the media type of the receiver's answers, so that "
                "such pages do not count as answers",
                self.client.shown,
            )

    def _refuse_page(self, response: Response) -> None:
        """Raise ReceiverUnavailable, as suspicious, if the body begins like a page of HTML,
        whatever its type is: proxies also send pages with a status 2xx.
        """
        from eventlog.transport.http import beginning

        if _PAGE.match(beginning(response.body)) is not None:
            why = ": ".join([_IS_PAGE, *self._content(response)])
            raise ReceiverUnavailable(why, _IS_PAGE, is_suspicious=True, advice=_CHECK_PAGE)

    def _content(self, response: Response) -> Iterator[str]:
        """Yield the media type and the beginning of a body as one text; yield nothing if there is
        no body.
        """
        if response.body:
            media_type = self.client.clean(response.headers.get("Content-Type", ""), 100)
            yield f"{media_type or 'no type'}: {self.client.excerpt(response.body)}"

    def _refusal(self, response: Response, in_short: str) -> str:
        """Return the reason in a response with a status other than 2xx, on one line that begins
        with ``in_short``.
        """
        status, headers, body = response
        clean = self.client.clean
        parts = [in_short]
        if 300 <= status <= 399:
            location = clean(headers.get("Location", ""))
            # The rest may contain secrets.
            place = re.sub("(?<=//)[^/]*@", "", re.split("[?#]", location)[0])
            parts.append(f"redirects are not followed; {_FINAL_ADDRESS}: {place}")
        elif advice := self._advice(status):
            parts.append(advice)
        if (after := headers.get("Retry-After")) is not None:
            parts.append(f"Retry-After: {clean(after, 40)}")
        if excerpt := self.client.excerpt(body):
            parts.append(excerpt)
        return "; ".join(parts)

    def _advice(self, status: int) -> str:
        """Return the option to check if the receiver answers a status, empty if that is unknown."""
        if status == 401 and self._tokens is not None:
            return "the receiver refuses a new token; check sink.oauth.scope and audience"
        if status == 403 and self._tokens is not None:
            return "check the rights of this client, and sink.oauth.scope and audience"
        if 300 <= status <= 399:
            return _FINAL_ADDRESS
        return _ADVICE.get(status, "").format(credentials=self._credentials)


def _named(status: int) -> str:
    return f"{status} {_PHRASES.get(status, '')}".rstrip()


# --- answers --------------------------------------------------------------------------------------


def read_results(body: bytes, event_ids: Collection[str], clean: Callable[[str], str]) -> Answer:
    """Parse the answer ``{"results": [{"event_id": "7", "status": "retry", "message": "..."}]}`` to
    the events with ``event_ids``.

    ``status`` has the same words and meanings as in an XDS answer; an event without a result is a
    success. ``clean`` removes characters from a message that logs and tables cannot store: JSON may
    have any character. Raises ReceiverUnavailable for another text.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        what = "not JSON" if body.strip() else "empty"
        raise _no_answer(f"the receiver's answer is {what}: {_NEEDED}") from None
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise _no_answer(f"the receiver's answer has no list of results: {_NEEDED}")
    if len(results) > (most := max_statuses(event_ids)):
        raise _no_answer(f"the receiver's answer has more than {most} results")
    return answer_of(_results(results, clean), event_ids)


def answer_form(name: str) -> AnswerForm:
    """Return the form of answers with this name: one of this sink's forms, or the form that the
    format with this name defines. Raises ConfigError.
    """
    form = _FORMS.get(name) or format_named(name).answer_form
    if form is None:
        raise ConfigError(f"the format {name} defines no form of answers; set sink.response_format")
    return form


_FORMS: Final = {
    "status": AnswerForm("*/*", None, status_refuses=True),
    "json": AnswerForm(
        "application/json",
        lambda body, event_ids, _, clean: read_results(body, event_ids, clean),
        status_refuses=True,
    ),
}

_NEEDED: Final = 'expected {"results": [{"event_id": ..., "status": ...}]}'


def _no_answer(why: str) -> ReceiverUnavailable:
    """Return the error for an unusable answer, which does not quote the answer."""
    return ReceiverUnavailable(why, why)


def _results(
    results: list[object], clean: Callable[[str], str]
) -> Iterator[tuple[str, EventResult]]:
    for place, result in enumerate(results, 1):
        event_id, status, message = (
            (result.get("event_id"), result.get("status"), result.get("message") or "")
            if isinstance(result, dict)
            else (None, None, None)
        )
        if isinstance(event_id, int) and not isinstance(event_id, bool):
            event_id = str(event_id)
        if (
            not isinstance(event_id, str)
            or not isinstance(status, str)
            or not isinstance(message, str)
        ):
            raise _no_answer(
                f"result {place} of the receiver's answer lacks an event_id or a status: {_NEEDED}"
            )
        yield event_id, EventResult(LEVELS.get(status, Level.ERROR), clean(message))


# --- secrets --------------------------------------------------------------------------------------

_KEY_BYTES: Final = (24, 64)
"""The shortest and the longest key of a signature (Standard Webhooks 1.0.0, "Signature scheme")."""


def _signature(keys: Sequence[bytes], document: Document, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks 1.0.0: each key signs
    ``{webhook-id}.{webhook-timestamp}.{body}``.

    The body is signed before compression, as the frameworks of receivers pass it on. The id depends
    on the event-ids and the body, so that the rest of a document is another message: a receiver may
    skip a message that it has seen.
    """
    whose = ",".join(document.event_ids) or str(document.delivery_no)
    digest = hashlib.sha256(f"{whose}\n".encode() + body).digest()
    identity = f"msg_{base64.urlsafe_b64encode(digest[:18]).decode('ascii')}"
    moment = str(int(unix_time()))
    content = f"{identity}.{moment}.".encode() + body
    signatures = (
        base64.b64encode(hmac.digest(key, content, "sha256")).decode("ascii") for key in keys
    )
    return {
        "webhook-id": identity,
        "webhook-timestamp": moment,
        "webhook-signature": " ".join(f"v1,{one}" for one in signatures),
    }


def _signing_keys(secret: str | None) -> tuple[bytes, ...]:
    """Return the keys in ``EVENTLOG_SINK_SIGNING_SECRET``.

    Raises ConfigError, which shows no key.
    """
    keys = []
    for text in [] if secret is None else secret.split() or [""]:
        encoded = text.removeprefix("whsec_")
        try:
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not _KEY_BYTES[0] <= len(key) <= _KEY_BYTES[1]:
            least, most = _KEY_BYTES
            raise ConfigError(
                f"EVENTLOG_SINK_SIGNING_SECRET must be whsec_ and {least} to {most} random bytes "
                f"in base64, as `python -c \"import base64, secrets; print('whsec_' + "
                f'base64.b64encode(secrets.token_bytes(32)).decode())"` makes them'
            )
        keys.append(key)
    return tuple(keys)


def _named_credentials(options: HttpOptions) -> str:
    """Return the names of the options for credentials that are set; all these options if none is
    set.
    """
    is_set = {
        "EVENTLOG_SINK_TOKEN": options.token,
        "EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD": options.user,
        "sink.secret_headers": options.secret_headers,
        "EVENTLOG_SINK_SIGNING_SECRET": options.signing_secret,
    }
    return ", ".join(name for name, value in is_set.items() if value) or _CREDENTIALS


def _secret_headers(references: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that ``sink.secret_headers`` refers to. Raises ConfigError."""
    headers = {}
    for name, reference in references.items():
        source = f"sink.secret_headers, {name}"
        headers[name] = referenced_secret(reference, source).strip()
        if not is_header_text(headers[name]):
            raise ConfigError(
                f"{source}: the value of {reference} has line ends or characters beyond ASCII; "
                "remove them"
            )
    return headers


def _tokens(options: HttpOptions) -> ClientTokens | None:
    """Return the tokens of ``sink.oauth``, None without this option. Raises ConfigError."""
    oauth = options.oauth
    if oauth is None:
        return None
    # A late import, since few sinks need it.
    from eventlog.transport.oauth import ClientTokens

    return ClientTokens(
        oauth,
        client_secret(oauth, "sink.oauth"),
        "sink.oauth",
        timeout=options.timeout,
        client_certificate=options.client_certificate,
        client_key=options.client_key,
    )


def _credentials(
    token: str | None, user: str | None, password: str | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the Authorization header, and the secret texts in it, which must never be shown.
    Raises ConfigError, whose message has no secret text.
    """
    if token is not None:
        if user is not None or password is not None:
            raise ConfigError(
                "EVENTLOG_SINK_TOKEN cannot be used with EVENTLOG_SINK_USER and "
                "EVENTLOG_SINK_PASSWORD; keep one"
            )
        if not token or any(not "!" <= c <= "~" for c in token):
            raise ConfigError(
                "EVENTLOG_SINK_TOKEN must not be empty, and must not contain blanks, line ends or "
                "characters beyond ASCII"
            )
        return {"Authorization": f"Bearer {token}"}, (token,)
    if user is None and password is None:
        return {}, ()
    if not user or not password:
        raise ConfigError("set both EVENTLOG_SINK_USER and EVENTLOG_SINK_PASSWORD, or neither")
    if ":" in user or not f"{user}{password}".isprintable():
        raise ConfigError(
            "EVENTLOG_SINK_USER must not contain a colon, and neither user nor password may "
            "contain a control character"
        )
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return {"Authorization": f"Basic {encoded}"}, (encoded, password)
