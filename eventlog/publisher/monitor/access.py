"""The access to the monitor: a foreign Host header is refused, and a client on another machine
needs a token, except for the health paths.
"""

from __future__ import annotations

import hmac
import secrets
from importlib import resources
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from eventlog.config.kinds import named_tokens
from eventlog.config.settings import MonitorSettings
from eventlog.core.secrets import is_loopback

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
        "'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""The headers of all answers."""
USER: Final = "eventlog.user"
"""The key in a request's scope for the name of the token that the client has shown."""
MAY_READ: Final = "eventlog.may_read"
"""The key in a request's scope for a flag: True if the client has shown the token."""
_HEALTH: Final = ("/livez", "/readyz")
"""The paths that are answered without a token and under any load."""
_COOKIE: Final = "eventlog_monitor"
_LARGEST_FORM: Final = 4096
_MAX_REQUESTS: Final = 64
"""The maximum number of requests, except for the health paths, that are answered at a time to
clients that need no token or have shown it.
"""


def page_file(name: str) -> bytes:
    """Return the content of a file of the page."""
    return resources.files("eventlog.publisher.monitor").joinpath("page", name).read_bytes()


class Guard:
    """The access check. A foreign Host header gets 421. Without the token a client gets only the
    two health paths, which are answered under any load. The guard and the pages decide by
    ``scope["path"]``, the path that the router takes: older versions of Starlette read
    ``Request.url`` from the Host header.

    If the Host header were not checked, a foreign page could read this page under a host name that
    resolves to this address (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, host: str, settings: MonitorSettings) -> None:
        self._app = app
        named = {} if settings.tokens is None else named_tokens(settings.tokens)
        self._tokens = [*(() if settings.token is None else [("", settings.token)]), *named.items()]
        self._sessions = {name: secrets.token_urlsafe(32) for name, _ in self._tokens}
        names = {host, *settings.allowed_hosts}
        if is_loopback(host):
            names |= {"localhost", "127.0.0.1", "::1"}
        self._hosts = {name.lower() for name in names}
        self._quotes = settings.show_values
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        user = self._user(request)
        scope[USER], scope[MAY_READ] = user or "", user is not None or not self._tokens
        answer = await self._refusal(request, may_read=scope[MAY_READ]) or self._app
        # Only what a client with the token asks for takes long. A request of anybody else is not
        # counted, so that strangers take no place away.
        if answer is not self._app or scope["path"] in _HEALTH or not scope[MAY_READ]:
            await answer(scope, receive, send)
            return
        if self._requests >= _MAX_REQUESTS:
            await PlainTextResponse("too many requests at once\n", 503, HEADERS)(
                scope, receive, send
            )
            return
        self._requests += 1
        try:
            await answer(scope, receive, send)
        finally:
            self._requests -= 1

    def _user(self, request: Request) -> str | None:
        """Return the name of the token that the client shows, or of the token for which the client
        got its cookie; empty for the token without a name. None = the client shows no token and no
        cookie.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (user := self._named(token.strip())) is not None:
            return user
        cookie = request.cookies.get(_COOKIE, "")
        return next((name for name, own in self._sessions.items() if _equal(cookie, own)), None)

    def _named(self, token: str) -> str | None:
        return next((name for name, own in self._tokens if _equal(token, own)), None)

    def _is_known(self, host: str) -> bool:
        """Return True if a Host header names a host of the monitor, and has nothing else but a
        port.
        """
        try:
            parts = urlsplit(f"//{host}")
        except ValueError:
            return False
        return parts.netloc == host and "@" not in host and parts.hostname in self._hosts

    async def _refusal(self, request: Request, *, may_read: bool) -> Response | None:
        """Return the response that refuses a request; None if the application may answer."""
        path = request.scope["path"]
        if path in _HEALTH and not (path == "/readyz" and may_read and self._quotes):
            return None
        if not self._is_known(request.headers.get("host", "")):
            return PlainTextResponse(
                "this host is not allowed; add it to monitor.allowed_hosts\n", 421, HEADERS
            )
        if not self._tokens:
            return None
        if path == "/login" and request.method == "POST":
            return await self._log_in(request)
        if path in ("/style.css", "/icon.svg") or may_read:
            return None
        if path == "/":
            return Response(page_file("login.html"), 401, HEADERS, "text/html; charset=utf-8")
        return PlainTextResponse(
            "send the token in the header Authorization: Bearer\n",
            401,
            {**HEADERS, "WWW-Authenticate": "Bearer"},
        )

    async def _log_in(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LARGEST_FORM:
                return PlainTextResponse("too large\n", 413, HEADERS)
        text = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        user = self._named(text.strip())
        if user is None:
            page = page_file("login.html").replace(b'role="alert" hidden', b'role="alert"')
            return Response(page, 403, HEADERS, "text/html; charset=utf-8")
        response = RedirectResponse("/", 303, HEADERS)
        is_tls = request.scope["scheme"] == "https"
        session = self._sessions[user]
        response.set_cookie(_COOKIE, session, httponly=True, samesite="strict", secure=is_tls)
        return response


def json_answer(content: object, status: int = 200) -> JSONResponse:
    """Return a response of JSON."""
    return JSONResponse(content, status, HEADERS)


def _equal(text: str, expected: str) -> bool:
    return hmac.compare_digest(text.encode(), expected.encode())
