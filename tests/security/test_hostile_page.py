"""Requests to the monitor: each has a response, and only a question that the database refuses has one
of 502.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import quote, unquote

import hostile
from fuzzing import ODD, damaged
from hostile import Border

from eventlog.cli.context import transaction
from eventlog.cli.install.runs.db import names
from eventlog.config.load import load
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.trigger_plan import planned_triggers
from eventlog.publisher.monitor.actions import FORGERY, Actions
from eventlog.publisher.monitor.activity import Activity
from eventlog.publisher.monitor.openmetrics import PublisherMetrics
from eventlog.publisher.monitor.questions import Questions
from eventlog.publisher.monitor.server import Monitor, application
from eventlog.publisher.monitor.status import documents_data, process_status, seen_of
from eventlog.publisher.run.liveness import LivenessClock
from eventlog.sql import migrations

TOKEN: Final = "a-secret-of-anna"
PATHS: Final = (
    "/livez", "/readyz", "/metrics", "/status.json", "/history.json", "/rows.json", "/documents.json",
    "/search.json", "/rows/{}.json", "/seen/{}.json", "/login", "/actions.json", "/actions/{}", "/{}",
)  # fmt: skip
QUERY: Final = ("since", "before", "class", "status", "until", "answer", "key", "x")
TEXTS: Final = (
    "1", "usr.id=1", "nan", "inf", "-1", "1e400", "9" * 5000, "id=%00", "snapshot.1", "[", "\ud800", "ſ",
    "2026-11-30 00:00:00", "N", "error", "requeue", "skip", "pause", "resume",
)  # fmt: skip
HEADERS: Final = (
    "host", "origin", "authorization", "cookie", "content-type", "accept", "sec-fetch-site", FORGERY.lower(),
)  # fmt: skip
VALUES: Final = (
    "127.0.0.1", "http://127.0.0.1", "http://[", "//[::1", "127.0.0.1:x", "a@127.0.0.1", f"Bearer {TOKEN}",
    "Bearer \xff", "eventlog_monitor=x", "application/json", "application/x-www-form-urlencoded", "\xff" * 9,
    "*/*;q=x",
)  # fmt: skip
BODIES: Final = (
    b"{}", b"[" * 60_000, b'{"ids": "1-9"}', b'{"ids": "9-"}', b'{"event": "\\ud800"}', b'{"reason": 1}',
    b'{"key": "usr.id=1"}', b"token=" + TOKEN.encode(), b"token=%ff", b"\xff", b'{"ids": 1e999}', b"",
)  # fmt: skip


def request_of(rnd: Random) -> bytes:
    def text() -> str:
        return str(rnd.choice(ODD) if rnd.random() < 0.3 else rnd.choice(TEXTS))

    path = rnd.choice(PATHS).format(text())
    path = quote(path, safe="/%", errors="surrogatepass") if rnd.random() < 0.8 else path
    asked = "&".join(
        f"{rnd.choice(QUERY)}={quote(text(), errors='surrogatepass')}"
        for _ in range(rnd.randrange(3))
    )
    headers = {}
    if rnd.random() < 0.8:
        headers |= {"host": "127.0.0.1", "authorization": f"Bearer {TOKEN}"}
    if rnd.random() < 0.7:
        headers |= {"origin": "http://127.0.0.1", "content-type": "application/json"}
        headers |= {FORGERY.lower(): "valid"}
    headers |= {rnd.choice(HEADERS): rnd.choice(VALUES) for _ in range(rnd.randrange(3))}
    body = rnd.choice(BODIES)
    made = {
        "method": rnd.choice(("GET", "GET", "POST", "POST", "HEAD")),
        "path": path,
        "query": asked,
        "headers": headers,
        "body": (damaged(rnd, body) if body and rnd.random() < 0.3 else body).decode("latin-1"),
    }
    return json.dumps(made).encode()


@cache
def app() -> Any:
    """The application, with a log in a file of SQLite."""
    directory = Path(tempfile.mkdtemp())
    (directory / "app.db").touch()
    url = f"sqlite:///{directory / 'app.db'}"
    environ = {"EVENTLOG_MONITOR_TOKENS": f"anna:{TOKEN}"}
    flags = {"database.url": url, "monitor.listen": "127.0.0.1:9464", "monitor.database_url": url}
    config = load(None, environ, flags)
    with transaction(config) as db:
        migrations.upgrade(db.connection, **names(config))
        db.connection.exec_driver_sql("CREATE TABLE usr (id INTEGER PRIMARY KEY, name TEXT)")
        db.connection.exec_driver_sql(
            "INSERT INTO eventlog (event_type, table_name, table_key) VALUES (5, 'usr', 'id=1')"
        )
    activity = Activity(Counters(), 10.0, LivenessClock(60), has_times=False)
    shows = {"shows_values": True}
    seen = partial(seen_of, activity, **shows)
    status = partial(process_status, activity, "eventlog", "stdout", "xds", **shows)
    monitor = Monitor(
        "127.0.0.1:9464",
        activity,
        PublisherMetrics(activity, {"log": "eventlog", "sink": "stdout"}),
        status,
        Questions(config, planned_triggers, seen),
        config.monitor,
        seen,
        partial(documents_data, activity, **shows),
        Actions(config),
    )
    return application(monitor, "127.0.0.1")


async def answered(made: dict[str, Any]) -> tuple[int, bytes]:
    """The status and the body of the response to a request."""
    sent, got = [made["body"].encode("latin-1")], [0, b""]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": made["method"],
        "path": unquote(made["path"]),
        "raw_path": made["path"].encode("utf-8", "surrogatepass"),
        "query_string": made["query"].encode("utf-8", "surrogatepass"),
        "root_path": "",
        "headers": [
            (name.encode(), value.encode("latin-1")) for name, value in made["headers"].items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 9464),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": sent.pop() if sent else b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        got[0] = message.get("status", got[0])
        got[1] += message.get("body", b"")

    await app()(scope, receive, send)
    return got[0], got[1]


@cache
def forgery_token() -> str:
    headers = {"host": "127.0.0.1", "authorization": f"Bearer {TOKEN}"}
    asked = {"method": "GET", "path": "/actions.json", "query": "", "headers": headers, "body": ""}
    _, body = asyncio.run(answered(asked))
    token: str = json.loads(body)["forgery_token"]
    return token


def read(data: bytes) -> None:
    made = json.loads(data)
    if made["headers"].get(FORGERY.lower()) == "valid":
        made["headers"][FORGERY.lower()] = forgery_token()
    status, _ = asyncio.run(answered(made))
    assert status < 500 or status in (502, 503), status  # 502: the database refuses the question


def action(**headers: str) -> bytes:
    """A request for an action, by a user who may act."""
    valid = {"host": "127.0.0.1", "authorization": f"Bearer {TOKEN}", FORGERY.lower(): "valid"}
    sent = {**valid, "content-type": "application/json", **headers}
    made = {"method": "POST", "path": "/actions/pause", "query": "", "headers": sent, "body": "{}"}
    return json.dumps(made).encode()


REQUESTS: Final = Border(
    request_of,
    read,
    limit=48 << 20,
    factor=60,
    seconds=4.0,
    least=0.5,
    known={"an origin that is no URL": lambda: action(origin="http://[")},
    prepare=forgery_token,
)


def test_no_request_ends_the_process() -> None:
    hostile.generate(f"{__name__}.REQUESTS")
