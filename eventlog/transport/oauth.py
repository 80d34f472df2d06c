"""Bearer tokens that a client of OAuth 2 gets by its own credentials (RFC 6749, 4.4).

oauthlib forms the requests and reads the answers; our HTTP client sends the requests.
"""

from __future__ import annotations

import json
import logging
import threading
from base64 import b64encode
from collections.abc import Sequence
from http import HTTPStatus
from math import isfinite
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

from oauthlib.oauth2 import BackendApplicationClient, MissingTokenError, OAuth2Error

from eventlog.core.clock import monotonic
from eventlog.core.oauth import OAuthOptions
from eventlog.errors import ConfigError, with_location
from eventlog.transport.http import HttpClient, HttpFailed, retry_after

_log = logging.getLogger(__name__)

_LARGEST_ANSWER: Final = 1 << 20
_HEADERS: Final = {
    "Accept": "application/json",
    "Content-Type": "application/x-www-form-urlencoded",
}
_BUSY: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)

_EARLY: Final = 30.0
"""The number of seconds before its end at which a token is renewed. A short-lived token is renewed
when a quarter of its lifetime is left.
"""

_ESTABLISHED: Final = 60.0
"""The age in seconds from which a receiver's 403 may be about the token: its rights are not those
that it had when the server issued it.
"""

_ADVICE: Final = {
    "invalid_client": (
        "check {0}.client_id and {0}.client_secret, and whether the server takes the secret as "
        "{0}.auth = basic or post; without a secret, check the client certificate"
    ),
    "invalid_scope": "check {0}.scope",
    "unauthorized_client": (
        "allow this client the grant client_credentials at the server, or check {0}.client_id"
    ),
}
"""What to do for each error of RFC 6749, 5.2. The argument of each text is the section of the
options.
"""


class TokenUnavailable(HttpFailed):
    """There is no token. ``error`` is the error of RFC 6749, 5.2, if a setting causes it; it is
    empty for any other reason.
    """

    error = ""


class ClientTokens:
    """The tokens of one client. All threads share them: one thread renews the token, and the other
    threads wait for it. ``secrets`` are the texts that must never be shown.
    """

    def __init__(
        self,
        options: OAuthOptions,
        secret: str | None,
        section: str,
        *,
        timeout: float,
        client_certificate: Path | None = None,
        client_key: Path | None = None,
    ) -> None:
        """``secret`` is the text that ``client_secret`` refers to. ``section`` is the section of
        the options; messages name it. The certificate belongs to the client (RFC 8705). Raises
        ConfigError.
        """
        self._section = section
        # With the scope, oauthlib would raise a Warning for a token of another one (RFC 6749, 3.3).
        self._scope = options.scope
        self._client = BackendApplicationClient(options.client_id)
        more: dict[str, Any] = {
            "include_client_id": True,
            "scope": options.scope,
            "audience": options.audience,
        }
        credentials: dict[str, str] = {}
        own: tuple[str, ...] = ()
        if secret is None:
            if client_certificate is None:
                raise ConfigError(
                    f"{section} needs client_secret, or the client certificate in its place"
                )
        elif options.auth == "post":
            more["client_secret"] = secret
            own = (secret, quote_plus(secret))
        else:
            # RFC 6749, 2.3.1: both are encoded like forms before they are joined.
            pair = f"{quote_plus(options.client_id)}:{quote_plus(secret)}"
            encoded = b64encode(pair.encode()).decode("ascii")
            credentials, own = {"Authorization": f"Basic {encoded}"}, (secret, encoded)
            more["include_client_id"] = False
        self._request = self._client.prepare_request_body(**more).encode()
        try:
            self._http = HttpClient(
                options.token_url,
                timeout=timeout,
                max_response_bytes=_LARGEST_ANSWER,
                credentials=credentials,
                secrets=own,
                sends_secrets=True,
                proxy=options.proxy,
                ca_file=options.ca_file,
                client_certificate=client_certificate,
                client_key=client_key,
            )
        except ConfigError as error:
            raise with_location(error, f"{section}.token_url") from None
        self._own_secrets = own
        self._lock = threading.Lock()
        self._token, self._ends = "", 0.0
        self._former = ""
        self._since, self._is_forbidden = 0.0, False
        self._failed_at, self._failure = 0.0, TokenUnavailable("", "")

    @property
    def secrets(self) -> Sequence[str]:
        return (*self._own_secrets, *filter(None, (self._token, self._former)))

    def current(self) -> str:
        """Return the token. A token that ends soon is renewed first. Raises TokenUnavailable."""
        asked = monotonic()
        with self._lock:
            if self._failed_at > asked:  # while this thread waited for the other one
                raise self._failure
            if not self._token or monotonic() >= self._ends:
                try:
                    self._renew()
                except TokenUnavailable as failure:
                    self._failed_at, self._failure = monotonic(), failure
                    raise
            return self._token

    def forget_if_refused(self, token: str, status: int) -> bool:
        """Note the status of an answer to a request with this token. Return True if the request
        must be sent again with a new token: after 401, and after 403 if the token is 60 s old and
        the answer before was not 403, too. The token is then never returned again.
        """
        with self._lock:
            was_forbidden = self._is_forbidden
            self._is_forbidden = status == HTTPStatus.FORBIDDEN
            if self._is_forbidden and (
                was_forbidden or (self._token == token and monotonic() - self._since < _ESTABLISHED)
            ):
                return False
            is_refused = self._is_forbidden or status == HTTPStatus.UNAUTHORIZED
            if is_refused and self._token == token:
                self._token, self._former = "", token
            return is_refused

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _renew(self) -> None:
        begun = monotonic()
        place = f"no token from {self._http.shown}"
        try:
            status, headers, body = self._http.request("POST", _HEADERS, self._request)
        except HttpFailed as failed:
            hint = f"check {self._section}.token_url, ca_file and proxy"
            raise TokenUnavailable(
                f"{place}: {failed}; {hint}",
                f"{place}: {failed.in_short}; {hint}",
                advice=hint if failed.advice else "",
            ) from None
        finally:
            self._http.close()  # the next renewal comes much later
        if status in _BUSY:
            why = f"{place}: it answers {status}"
            raise TokenUnavailable(why, why, retry_after=retry_after(headers))
        answer = self._parsed(place, status, body)
        token, kind = answer.get("access_token", ""), answer.get("token_type", "Bearer")
        is_token = isinstance(token, str) and token and all("!" <= c <= "~" for c in token)
        if not 200 <= status <= 299 or not is_token:
            raise self._without_token(place, status)
        if str(kind).lower() != "bearer":
            advice = f"choose another client of this server in {self._section}.client_id"
            why = f"{place}: the type of its token is not Bearer; {advice}"
            raise TokenUnavailable(why, why, advice=advice)
        granted = str(answer.get("scope") or self._scope or "")
        if self._scope and {*granted.split()} != {*self._scope.split()}:
            shown = self._http.clean(granted)
            _log.debug("%s: granted scope %s, asked for %s", self._section, shown, self._scope)
        self._former, self._token = self._token or self._former, token
        self._since, self._ends = begun, begun + _lifetime(answer.get("expires_in"))

    def _parsed(self, place: str, status: int, body: bytes) -> dict[str, Any]:
        """Return what the token endpoint answers. Raises TokenUnavailable for whatever oauthlib
        raises or warns of.
        """
        try:
            content = json.loads(body)
            lifetime = content.pop("expires_in", None)  # oauthlib refuses a text such as "3600.0"
            answer = self._client.parse_request_body_response(json.dumps(content))
        except OAuth2Error as error:
            raise self._refused(place, status, error) from None
        except (
            ValueError,
            TypeError,
            AttributeError,
            LookupError,
            ArithmeticError,
            RecursionError,
            Warning,
        ):
            raise self._without_token(place, status) from None
        return {**answer, "expires_in": lifetime, "scope": content.get("scope")}

    def _refused(self, place: str, status: int, error: OAuth2Error) -> TokenUnavailable:
        """Return the error for an answer with an error of RFC 6749, 5.2, or for an answer that is
        not of OAuth.
        """
        code = str(error.error)
        if code not in _ADVICE:
            is_answer = not isinstance(error, MissingTokenError)
            return self._without_token(place, status, code if is_answer else "")
        advice = _ADVICE[code].format(self._section)
        described = self._http.clean(str(error.description or ""))
        message = f"{place}: {code}{f' ({described})' if described else ''}; {advice}"
        refused = TokenUnavailable(message, f"{place}: {code}; {advice}", advice=advice)
        refused.error = code
        return refused

    def _without_token(self, place: str, status: int, code: str = "") -> TokenUnavailable:
        in_short = f"{place}: it answers {status} without a token"
        shown = f" ({self._http.clean(code, 100)})" if code else ""
        hint = f"check {self._section}.token_url and what answers there"
        is_theirs = 500 <= status <= 599
        return TokenUnavailable(
            f"{in_short}{shown}; {hint}", f"{in_short}; {hint}", advice="" if is_theirs else hint
        )


def _lifetime(seconds: Any) -> float:
    """Return the number of seconds after which a token is renewed. A token without a lifetime is
    used until it is refused.
    """
    try:
        lifetime = float(seconds)
    except (TypeError, ValueError, OverflowError):
        return float("inf")
    if not isfinite(lifetime) or lifetime <= 0:
        return float("inf")
    return lifetime - min(_EARLY, lifetime / 4)
