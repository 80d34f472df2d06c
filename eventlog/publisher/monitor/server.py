"""The server of the monitor: metrics, health, the status page (``[monitor]``).

The server runs in a thread of the publisher's process, reads the publisher's reports
(``Activity``), and changes nothing by itself. ``access`` decides who may read, ``questions`` asks
the database, ``actions`` changes the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import uvicorn
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from eventlog.config.settings import MonitorSettings
from eventlog.core.clock import start_thread
from eventlog.core.rows.event_ids import row_or_object
from eventlog.core.secrets import is_loopback
from eventlog.errors import BadQuestion, ConfigError, EventlogError, NoSuchRow, visible
from eventlog.publisher.context.observer import Seen
from eventlog.publisher.inspect.listing import Wanted
from eventlog.publisher.monitor.access import HEADERS, MAY_READ, Guard, json_answer, page_file
from eventlog.publisher.monitor.actions import ActionPages, Actions
from eventlog.publisher.monitor.activity import Monitored
from eventlog.publisher.monitor.connections import Connections
from eventlog.publisher.monitor.openmetrics import exposition
from eventlog.publisher.monitor.questions import Questions, SourceQuestions

_log = logging.getLogger("eventlog.publisher")

_HANDSHAKE_SECONDS: Final = 10.0
_QUEUED_SECONDS: Final = 30.0
"""The maximum time in seconds that a question waits for earlier questions."""
_ENDED_WITHIN: Final = 10.0
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared, not listened on
_PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/actions.js": ("actions.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
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
    questions: Questions | SourceQuestions
    """The questions to the database, which are answered one at a time."""
    settings: MonitorSettings
    """The settings. Without a token, every client that reaches the server may read everything."""
    seen: Callable[[str], Seen] = lambda _: Seen()
    """A function that returns what the process has seen of an event."""
    documents: Callable[[str, float], dict[str, Any]] = lambda *_: {"documents": [], "older": None}
    """A function of a level and a time in seconds since 1970. The function returns the newest
    documents before this time with an answer of this level; an empty level = all documents.
    """
    actions: Actions | None = None
    """What a client with a named token may ask for, None = nothing."""


# --- answers --------------------------------------------------------------------------------------


class _Pages:
    """The answers of the server, one method for each kind of page."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor, self._activity = monitor, monitor.activity
        self._asking = asyncio.Lock()

    async def liveness(self, _: Request) -> Response:
        text, status = ("ok", 200) if self._activity.liveness.is_alive else ("stuck", 503)
        return PlainTextResponse(f"{text}\n", status, HEADERS)

    async def readiness(self, request: Request) -> Response:
        is_ready = self._activity.is_ready
        lines = ["ready" if is_ready else "connecting"]
        if request.scope[MAY_READ]:
            health = self._activity.health(quotes=self._monitor.settings.show_values)
            lines += [f"{one.severity.value}: {one.text}" for one in health.conditions]
        text = "".join(f"{visible(line)}\n" for line in lines)
        return PlainTextResponse(text, 200 if is_ready else 503, HEADERS)

    async def metrics(self, request: Request) -> Response:
        text, media_type = exposition(self._monitor.metrics, request.headers.get("accept", ""))
        return Response(text, 200, {**HEADERS, "Vary": "Accept", "Content-Type": media_type})

    async def status(self, _: Request) -> Response:
        return json_answer(self._monitor.status())

    async def history(self, request: Request) -> Response:
        try:
            since = float(request.query_params.get("since", "0"))
        except ValueError:
            return json_answer({"error": "since is not a number"}, 400)
        activity = self._activity
        samples = [
            {**sample._asdict(), "consumers": dict(sample.consumers)}
            for sample in list(activity.history)
            if sample.at > since
        ]
        return json_answer({"interval": activity.interval, "samples": samples})

    async def question(self, request: Request) -> Response:
        """Return the answer of the database to the question that the path names."""
        return await self._ask(request.scope["path"].strip("/").removesuffix(".json"))

    async def row(self, request: Request) -> Response:
        return await self._ask("explain", request.path_params["row"])

    async def seen(self, request: Request) -> Response:
        """Return what the process has seen of an event, which needs no query of the database."""
        seen = self._monitor.seen(request.path_params["event"])
        return json_answer(seen.as_data())

    async def rows(self, request: Request) -> Response:
        """Return a page of the rows of the log."""
        asked = request.query_params
        before = asked.get("before", "")
        last = row_or_object(before) if before else None
        if isinstance(last, str) or (before and last is None):
            return json_answer({"error": "before is not a record_id"}, 400)
        name, status, since, until = (
            asked.get(one, "") for one in ("class", "status", "since", "until")
        )
        return await self._ask("rows", Wanted(name, status, since, until, last))

    async def documents(self, request: Request) -> Response:
        """Return a page of the newest documents."""
        try:
            before = float(request.query_params.get("before", "inf"))
        except ValueError:
            return json_answer({"error": "before is not a number"}, 400)
        found = self._monitor.documents(request.query_params.get("answer", ""), before)
        return json_answer(found)

    async def search(self, request: Request) -> Response:
        return await self._ask("search", request.query_params.get("key", ""))

    async def file(self, request: Request) -> Response:
        name, media_type = _PAGE[request.scope["path"]]
        return Response(page_file(name), 200, HEADERS, media_type)

    async def _ask(self, name: str, *asked: Any) -> Response:
        """Return the answer to the question of this name, once earlier questions are answered."""
        try:
            await asyncio.wait_for(self._asking.acquire(), _QUEUED_SECONDS)
        except TimeoutError:
            return json_answer({"error": "other questions are being answered: ask again"}, 503)
        try:
            return await run_in_threadpool(self._answer, name, *asked)
        finally:
            self._asking.release()

    def _answer(self, name: str, *asked: Any) -> Response:
        try:
            ask = getattr(self._monitor.questions, name, None)
            if ask is None:
                why = "this publisher follows a source and has no log; run `eventlog status --from`"
                return json_answer({"error": why}, 404)
            return json_answer(ask(*asked))
        except BadQuestion as error:
            return json_answer({"error": str(error)}, 400)
        except NoSuchRow as error:
            return json_answer({"error": str(error)}, 404)
        except EventlogError as error:
            return json_answer({"error": str(error), "code": error.code}, 502)


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
    routes += ActionPages(monitor.actions).routes()
    return Guard(Starlette(routes=routes), host, monitor.settings)


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
    cannot listen on the address, a warning is logged, and the block runs without a server: the work
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
