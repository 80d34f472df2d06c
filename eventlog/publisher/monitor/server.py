"""The server of the monitor: metrics, health, the status page (``[monitor]``).

The server runs in a thread of the publisher's process, reads the publisher's reports
(``Activity``), and changes nothing. A client on another machine needs the token; only ``/livez``
and ``/readyz`` answer without it.

For the page's questions to the database (the explanation of a row, refused rows, rows by class, the
findings of doctor) there is a separate, read-only connection, and each statement is limited to five
seconds. So the page is answered even while a delivery hangs, and it never delays a delivery.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from operator import methodcaller
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import uvicorn
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from eventlog.config.kinds import named_tokens
from eventlog.config.load import Config, with_current_secrets
from eventlog.config.settings import MonitorSettings
from eventlog.core.clock import start_thread
from eventlog.core.rows.event_ids import row_or_object
from eventlog.errors import ConfigError, EventlogError, visible
from eventlog.model import Status
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.context.observer import Seen
from eventlog.publisher.declared.opening import open_unlocked
from eventlog.publisher.inspect.doctor import Compare, examine
from eventlog.publisher.inspect.explanation import explain, explain_object, explanation_data
from eventlog.publisher.inspect.key_explanation import explain_key
from eventlog.publisher.inspect.listing import Wanted, list_rows
from eventlog.publisher.inspect.refusals import Refusals, read_refusals, refusals_data
from eventlog.publisher.monitor.actions import USER, ActionPages, Actions
from eventlog.publisher.monitor.activity import Monitored
from eventlog.publisher.monitor.connections import Connections
from eventlog.publisher.monitor.openmetrics import exposition
from eventlog.publisher.monitor.status import HIDDEN, answer_status
from eventlog.sql.doctor import Limits
from eventlog.sql.log.errors import RECEIVER
from eventlog.sql.log.rows import count_newest
from eventlog.transport.http import is_loopback

_log = logging.getLogger("eventlog.publisher")

_COOKIE: Final = "eventlog_monitor"
_LARGEST_FORM: Final = 4096
_HEALTH: Final = ("/livez", "/readyz")
"""The paths that are answered without a token and under any load."""
_MAY_READ: Final = "eventlog.may_read"
"""The name in a request's scope: True if the client has shown the token."""
_MAX_REQUESTS: Final = 64
"""The most other requests that are answered at the same time."""
_HANDSHAKE_SECONDS: Final = 10.0
_QUEUED_SECONDS: Final = 30.0
"""The most seconds that a question waits for earlier ones."""
_ENDED_WITHIN: Final = 10.0
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared, not listened on
_PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/actions.js": ("actions.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
        "'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Address(NamedTuple):
    """The address that the server listens on. ``host`` is a name or an address without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(listen: str) -> Address:
    """Parse ``host:port`` or ``[address]:port``. Raises ConfigError."""
    try:
        parts = urlsplit(f"//{listen}")
        if (
            parts.hostname
            and parts.port is not None
            and parts.netloc == listen
            and parts.username is None
        ):
            return Address(parts.hostname, parts.port)
    except ValueError:
        pass
    raise ConfigError(
        f"monitor.listen = {listen!r} is not host:port, such as 127.0.0.1:9464 or [::1]:9464"
    )


@dataclass(frozen=True, slots=True)
class Monitor:
    """The content that a server shows, and its settings."""

    listen: str
    activity: Monitored
    metrics: Collector
    """The metrics, collected for each scrape from known values."""
    status: Callable[[], dict[str, Any]]
    """A function that returns the content of ``/status.json``."""
    questions: Questions | None
    """The questions to the database, which are answered one at a time; None = there is no log."""
    settings: MonitorSettings
    """The settings. Without a token, every client that reaches the server may read everything."""
    seen: Callable[[str], Seen] = lambda _: Seen()
    """A function that returns what the process has seen of an event."""
    documents: Callable[[str, float], dict[str, Any]] = lambda *_: {"documents": [], "older": None}
    """A function that returns the newest documents with an answer of a level, all = empty, before a
    time in seconds since 1970.
    """
    actions: Actions | None = None
    """What a client with a named token may ask for, None = nothing."""


# --- access ---------------------------------------------------------------------------------------


class _Guard:
    """The access check. A foreign Host header gets 421. Without the token a client gets only the
    two health paths, which are answered under any load.

    Otherwise a foreign page could read this one by a host name that resolves to this address (DNS
    rebinding).
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
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        if request.url.path in _HEALTH:
            scope[_MAY_READ] = self._user(request) is not None
            await self._app(scope, receive, send)
            return
        if self._requests >= _MAX_REQUESTS:
            await PlainTextResponse("too many requests at once\n", 503, _HEADERS)(
                scope, receive, send
            )
            return
        self._requests += 1
        try:
            scope[USER] = self._user(request) or ""
            response = await self._refusal(request)
            await (response or self._app)(scope, receive, send)
        finally:
            self._requests -= 1

    def _user(self, request: Request) -> str | None:
        """Return the name of the token that the client shows, or of the cookie that it got for it;
        empty for the token without a name. None = it shows neither.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (user := self._named(token.strip())) is not None:
            return user
        cookie = request.cookies.get(_COOKIE, "")
        return next((name for name, own in self._sessions.items() if _equal(cookie, own)), None)

    def _named(self, token: str) -> str | None:
        return next((name for name, own in self._tokens if _equal(token, own)), None)

    async def _refusal(self, request: Request) -> Response | None:
        """Return the response that refuses a request; None if the application may answer."""
        path = request.url.path
        try:
            host = urlsplit(f"//{request.headers.get('host', '')}").hostname
        except ValueError:
            host = None
        if host is None or host.lower() not in self._hosts:
            return PlainTextResponse(
                "this host is not allowed; add it to monitor.allowed_hosts\n", 421, _HEADERS
            )
        if not self._tokens:
            return None
        if path == "/login" and request.method == "POST":
            return await self._log_in(request)
        if path in ("/style.css", "/icon.svg") or self._user(request) is not None:
            return None
        if path == "/":
            return Response(_file("login.html"), 401, _HEADERS, "text/html; charset=utf-8")
        return PlainTextResponse(
            "send the token in the header Authorization: Bearer\n",
            401,
            {**_HEADERS, "WWW-Authenticate": "Bearer"},
        )

    async def _log_in(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LARGEST_FORM:
                return PlainTextResponse("too large\n", 413, _HEADERS)
        text = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        user = self._named(text.strip())
        if user is None:
            page = _file("login.html").replace(b'role="alert" hidden', b'role="alert"')
            return Response(page, 403, _HEADERS, "text/html; charset=utf-8")
        response = RedirectResponse("/", 303, _HEADERS)
        is_tls = request.url.scheme == "https"
        session = self._sessions[user]
        response.set_cookie(_COOKIE, session, httponly=True, samesite="strict", secure=is_tls)
        return response


def _equal(text: str, expected: str) -> bool:
    return hmac.compare_digest(text.encode(), expected.encode())


# --- answers --------------------------------------------------------------------------------------


def _file(name: str) -> bytes:
    return resources.files("eventlog.publisher.monitor").joinpath("page", name).read_bytes()


class _Pages:
    """The answers of the server, one method for each kind of page."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor, self._activity = monitor, monitor.activity
        self._asking = asyncio.Lock()

    async def liveness(self, _: Request) -> Response:
        text, status = ("ok", 200) if self._activity.liveness.is_alive else ("stuck", 503)
        return PlainTextResponse(f"{text}\n", status, _HEADERS)

    async def readiness(self, request: Request) -> Response:
        is_ready, settings = self._activity.is_ready, self._monitor.settings
        lines = ["ready" if is_ready else "connecting"]
        if not settings.has_token or request.scope.get(_MAY_READ):
            health = self._activity.health(quotes=settings.show_values)
            lines += [f"{one.severity.value}: {one.text}" for one in health.conditions]
        text = "".join(f"{visible(line)}\n" for line in lines)
        return PlainTextResponse(text, 200 if is_ready else 503, _HEADERS)

    async def metrics(self, request: Request) -> Response:
        text, media_type = exposition(self._monitor.metrics, request.headers.get("accept", ""))
        return Response(text, 200, {**_HEADERS, "Vary": "Accept", "Content-Type": media_type})

    async def status(self, _: Request) -> Response:
        return JSONResponse(self._monitor.status(), 200, _HEADERS)

    async def history(self, request: Request) -> Response:
        try:
            since = float(request.query_params.get("since", "0"))
        except ValueError:
            return JSONResponse({"error": "since is not a number"}, 400, _HEADERS)
        activity = self._activity
        samples = [
            {**sample._asdict(), "consumers": dict(sample.consumers)}
            for sample in list(activity.history)
            if sample.at > since
        ]
        return JSONResponse({"interval": activity.interval, "samples": samples}, 200, _HEADERS)

    async def question(self, request: Request) -> Response:
        """Answer the question of the database that the path names."""
        return await self._ask(methodcaller(request.url.path.strip("/").removesuffix(".json")))

    async def row(self, request: Request) -> Response:
        row = row_or_object(request.path_params["row"])
        if row is None:
            return JSONResponse(
                {"error": "write a record_id, of 1 to 18 digits, or an event-id"}, 400, _HEADERS
            )
        return await self._ask(methodcaller("explain", row))

    async def seen(self, request: Request) -> Response:
        """Answer what the process has seen of an event, without a question of the database."""
        seen = self._monitor.seen(request.path_params["event"])
        return JSONResponse(seen.as_data(), 200, _HEADERS)

    async def rows(self, request: Request) -> Response:
        """Answer a page of the rows of the log."""
        asked = request.query_params
        before = asked.get("before", "")
        if before and row_or_object(before) is None:
            return JSONResponse({"error": "before is not a record_id"}, 400, _HEADERS)
        name, status, since, until = (
            asked.get(one, "") for one in ("class", "status", "since", "until")
        )
        wanted = Wanted(name, status, since, until, int(before) if before else None)
        return await self._ask(methodcaller("rows", wanted))

    async def documents(self, request: Request) -> Response:
        """Answer a page of the newest documents."""
        try:
            before = float(request.query_params.get("before", "inf"))
        except ValueError:
            return JSONResponse({"error": "before is not a number"}, 400, _HEADERS)
        found = self._monitor.documents(request.query_params.get("answer", ""), before)
        return JSONResponse(found, 200, _HEADERS)

    async def search(self, request: Request) -> Response:
        return await self._ask(methodcaller("search", request.query_params.get("key", "")))

    async def file(self, request: Request) -> Response:
        name, media_type = _PAGE[request.url.path]
        return Response(_file(name), 200, _HEADERS, media_type)

    async def _ask(self, ask: Callable[[Questions], dict[str, Any]]) -> Response:
        """Answer a question when the earlier ones are answered."""
        try:
            await asyncio.wait_for(self._asking.acquire(), _QUEUED_SECONDS)
        except TimeoutError:
            return JSONResponse(
                {"error": "other questions are being answered: ask again"}, 503, _HEADERS
            )
        try:
            return await run_in_threadpool(self._answer, ask)
        finally:
            self._asking.release()

    def _answer(self, ask: Callable[[Questions], dict[str, Any]]) -> Response:
        try:
            if self._monitor.questions is None:
                raise ConfigError(
                    "this publisher follows a source and has no log; run `eventlog status --from`"
                )
            return JSONResponse(ask(self._monitor.questions), 200, _HEADERS)
        except EventlogError as error:
            return JSONResponse({"error": str(error), "code": error.code}, 502, _HEADERS)


_ROUTES: Final[Mapping[str, Callable[[_Pages, Request], Awaitable[Response]]]] = {
    "/livez": _Pages.liveness,
    "/readyz": _Pages.readiness,
    "/metrics": _Pages.metrics,
    "/status.json": _Pages.status,
    "/history.json": _Pages.history,
    "/errors.json": _Pages.question,
    "/queue.json": _Pages.question,
    "/doctor.json": _Pages.question,
    "/rows/{row:path}.json": _Pages.row,
    "/seen/{event:path}.json": _Pages.seen,
    "/search.json": _Pages.search,
    "/rows.json": _Pages.rows,
    "/documents.json": _Pages.documents,
    **dict.fromkeys(_PAGE, _Pages.file),
}


def application(monitor: Monitor, host: str) -> ASGIApp:
    """Return the application of the server that listens on ``host``."""
    pages = _Pages(monitor)
    routes = [Route(path, partial(answer, pages)) for path, answer in _ROUTES.items()]
    routes += ActionPages(monitor.actions, _HEADERS).routes()
    return _Guard(Starlette(routes=routes), host, monitor.settings)


# --- the status page's questions to the database --------------------------------------------------

_QUESTION_SECONDS: Final = 5
"""The time-out of one statement, in seconds."""
_QUESTION_ROWS: Final = 10_000
"""The number of the newest rows and error rows that are read."""
_MEANINGS: Final[Mapping[str, str]] = {
    Status.NEW: "waits",
    Status.SUCCESS: "success",
    Status.WARNING: "warning",
    Status.ERROR: "error",
    Status.FATAL: "fatal",
}
_QUOTING: Final = ("invalid_rows", "key_not_canonical", "missed_delete", "false_delete")
"""The codes of doctor's findings that quote rows."""
_PRIVATE_OF_ROW: Final = ("table_key", "old_value", "new_value")


class Questions:
    """Questions about the log of a configuration. All raise EventlogError.

    ``compare`` returns the differences between the triggers and the declared ones, for doctor.
    ``seen`` returns what the process has seen of an event. Values, keys and a receiver's texts are
    hidden unless the configuration shows them.
    """

    def __init__(
        self, config: Config, compare: Compare, seen: Callable[[str], Seen] = lambda _: Seen()
    ) -> None:
        self._config, self._compare, self._seen = config, compare, seen
        self._shows_values = config.monitor.show_values

    @contextmanager
    def _reading(self) -> Iterator[Context]:
        with open_unlocked(self._config, Counters()) as context:
            context.log.db.begin_reading(_QUESTION_SECONDS)
            yield context

    def explain(self, row: int | str) -> dict[str, Any]:
        """Return the event of a row of the log, or of an object of a snapshot by its event-id, as
        in ``eventlog explain --json``.
        """
        with open_unlocked(self._config, Counters()) as context:
            explained = (
                explain(context, row, _QUESTION_SECONDS)
                if isinstance(row, int)
                else explain_object(context, row, _QUESTION_SECONDS)
            )
        event_id = explained.event_id or str(row)
        explanation = explanation_data(replace(explained, seen=self._seen(event_id)))
        explanation["errors"] = [
            {**entry, "error_time": str(entry["error_time"])} for entry in explanation["errors"]
        ]
        return explanation if self._shows_values else _without_values(explanation)

    def search(self, key: str) -> dict[str, Any]:
        """Return the objects with this key, as in ``eventlog explain --key --json``."""
        config = with_current_secrets(self._config, "database")
        found = [
            one.as_data()
            for one in explain_key(config, key, self._compare, seconds=_QUESTION_SECONDS)
        ]
        if not self._shows_values:  # the sentences may quote values; the key is that of the client
            found = [{**one, "sentences": []} for one in found]
        return {"objects": found}

    def rows(self, wanted: Wanted) -> dict[str, Any]:
        """Return a page of the rows of the log, the newest first."""
        with self._reading() as context:
            page = list_rows(context, wanted).as_data()
        if not self._shows_values:
            page["rows"] = [
                {
                    **one,
                    "key": one["key"] and HIDDEN,
                    "message": one["message"] and answer_status(one["message"]),
                }
                for one in page["rows"]
            ]
        return page

    def errors(self) -> dict[str, Any]:
        """Return the refused rows, as in ``eventlog errors --json``."""
        with self._reading() as context:
            consumer = context.ledger.consumer
            groups = read_refusals(
                context.log,
                _QUESTION_ROWS,
                consumer,
                own_user=context.options.driver_user or "",
                catalog=context.catalog,
            )
        shown = refusals_data(groups if self._shows_values else map(_without_key, groups))
        return {"errors": shown}

    def queue(self) -> dict[str, Any]:
        """Return the number of the newest rows of the log by class and status, and their total."""
        with self._reading() as context:
            counts = count_newest(context.log, _QUESTION_ROWS)
        return {
            "newest": sum(rows for _, _, rows in counts),
            "most": _QUESTION_ROWS,
            "rows": [
                {
                    "class": table_name,
                    "status": status,
                    "meaning": _MEANINGS.get(status, "reserved"),
                    "rows": rows,
                }
                for table_name, status, rows in counts
            ],
        }

    def doctor(self) -> dict[str, Any]:
        """Return the findings of ``eventlog doctor``."""
        config = with_current_secrets(self._config, "database")
        findings = examine(config, self._compare, replace(Limits(), statement=_QUESTION_SECONDS))
        return {
            "findings": [
                {
                    "code": one.code,
                    "level": one.severity,
                    "message": one.text
                    if self._shows_values or one.code not in _QUOTING
                    else HIDDEN,
                    "command": "\n".join(one.fix),
                    "fix": [*one.fix],
                }
                for one in findings
            ]
        }


def _without_values(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """Return an explanation with hidden values, keys, document, messages and answers."""

    def hide(value: Any) -> Any:
        return None if value is None else HIDDEN

    return {
        **explanation,
        "row": explanation["row"]
        and {
            name: hide(value) if name in _PRIVATE_OF_ROW else value
            for name, value in explanation["row"].items()
        },
        # The event-id of an object in a snapshot contains its key.
        "event_id": explanation["event_id"] if explanation["row"] else HIDDEN,
        "key": hide(explanation["key"]),
        "state": _without_message(explanation["state"]),
        "in_flight": explanation["in_flight"]
        and {
            **explanation["in_flight"],
            "last_answer": answer_status(explanation["in_flight"]["last_answer"]),
        },
        "problem": explanation["problem"] and {**explanation["problem"], "message": HIDDEN},
        "members": [
            {
                **member,
                "old": hide(member["old"]),
                "new": hide(member["new"]),
                "outcome": _without_message(member["outcome"]),
            }
            for member in explanation["members"]
        ],
        "errors": [{**entry, "message": HIDDEN} for entry in explanation["errors"]],
        "remedies": [*map(_without_key_in, explanation["remedies"])],
        "notes": [],
        "document": hide(explanation["document"]),
    }


def _without_key_in(remedy: Mapping[str, Any]) -> dict[str, Any]:
    """Return a remedy without a command that contains a key."""
    has_key = any(option in remedy["command"] for option in (" --key ", " --event-id "))
    return {**remedy, "command": "" if has_key else remedy["command"]}


def _without_key(refusals: Refusals) -> Refusals:
    """Return refusals with only the status of the answer, and without the key in an event-id of a
    snapshot. `eventlog errors` prints the commands that name keys.
    """
    shown = refusals._replace(
        message=answer_status(refusals.message) if refusals.code == RECEIVER else HIDDEN
    )
    if isinstance(refusals.example, int):
        keyless = ("eventlog errors" if " --key " in one else one for one in refusals.commands)
    else:
        shown = shown._replace(example=HIDDEN)
        keyless = (one.partition(" --event-id ")[0] for one in refusals.commands)
    return shown._replace(commands=tuple(dict.fromkeys(keyless)))


def _without_message(sentence: str) -> str:
    """Return a sentence without the message after its colon, which may contain values."""
    return sentence.partition(": ")[0]


# --- running --------------------------------------------------------------------------------------


class _Server(uvicorn.Server):
    """A server in a thread; the publisher handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.is_ssl:
            # asyncio would wait a minute for a handshake, and a connection that can be limited
            # exists only after it.
            loop = asyncio.get_running_loop()
            listen = partial(loop.create_server, ssl_handshake_timeout=_HANDSHAKE_SECONDS)
            setattr(loop, "create_server", listen)  # noqa: B010 - uvicorn hands nothing on to it
        await super().startup(sockets)


def _listener(address: Address, settings: MonitorSettings) -> socket.socket | None:
    """Return a socket that listens on the address; None, with a warning, if that is impossible."""
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listener = socket.create_server(address, family=family)
    except OSError as error:
        _log.warning(
            "cannot listen on monitor.listen = %s: %s; work continues without the monitor",
            address,
            error.strerror or error,
            extra={"code": ConfigError.code},
        )
        return None
    if address.host in _EVERY_ADDRESS and not settings.allowed_hosts:
        _log.warning(
            "monitor.listen = %s accepts connections on every address, but answers only requests "
            "for the host %s; all others get HTTP 421, except for /livez and /readyz. Name the "
            "hosts that clients use in monitor.allowed_hosts",
            address,
            address.host,
            extra={"code": ConfigError.code},
        )
    return listener


def _server(monitor: Monitor, address: Address, connections: Connections) -> _Server:
    certificate, key = monitor.settings.certificate, monitor.settings.private_key
    return _Server(
        uvicorn.Config(
            application(monitor, address.host),
            http=connections,  # type: ignore[arg-type] # it is called as a class is
            loop="asyncio",
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
            ssl_certfile=None if certificate is None else str(certificate),
            ssl_keyfile=None if key is None else str(key),
        )
    )


@contextlib.contextmanager
def serving(monitor: Monitor, connections: Connections | None = None) -> Iterator[Address]:
    """Serve while the block runs, and yield the address, with the actual port if 0 was given.

    ``connections`` limits the connections, None = the limits of ``Connections``. If the server
    cannot listen on the address, it logs a warning, and the block runs without a server: the work
    is more important than the monitor. Raises ConfigError if other machines could read the monitor
    without a token.
    """
    address, settings = parse_address(monitor.listen), monitor.settings
    if not settings.has_token and not is_loopback(address.host):
        raise ConfigError(
            f"monitor.listen = {address} can be reached from other machines: set a token in "
            "EVENTLOG_MONITOR_TOKEN or EVENTLOG_MONITOR_TOKEN_FILE, or listen on 127.0.0.1"
        )
    if settings.certificate is not None and not settings.certificate.is_file():
        raise ConfigError(f"monitor.certificate {settings.certificate} is not a file")
    listener = _listener(address, settings)
    if listener is None:
        yield address
        return
    address = Address(address.host, listener.getsockname()[1])
    server = _server(monitor, address, connections or Connections())
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(monitor.activity.interval):
            monitor.activity.add_sample()

    threads = [
        start_thread(partial(server.run, [listener]), "eventlog-monitor"),
        start_thread(sample, "eventlog-monitor-samples"),
    ]
    scheme = "http" if settings.certificate is None else "https"
    _log.info("the monitor listens on %s://%s/", scheme, address)
    try:
        yield address
    finally:
        ended.set()
        server.should_exit = True
        for thread in threads:
            thread.join(_ENDED_WITHIN)
        listener.close()
