"""Receives signed CloudEvents with FastAPI, and keeps each event once, by its id, in SQLite.

    pip install fastapi standardwebhooks uvicorn
    export EVENTLOG_SINK_SIGNING_SECRET=whsec_...     # for the publisher as well
    python receiver.py events.sqlite 8080 20

20 is the number of seconds after which a request is dropped: less than sink.timeout, after which
the publisher sends its events again.

In eventlog.toml:

    [sink]
    type = "http"
    url = "http://localhost:8080/events"

    [format]
    type = "cloudevents"
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from time import monotonic
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from standardwebhooks import Webhook, WebhookVerificationError

LIMIT = 16 * 2**20
"""The most bytes of a request; the publisher divides one that is refused for its size."""

webhook = Webhook(os.environ["EVENTLOG_SINK_SIGNING_SECRET"])
file, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
app = FastAPI()

with closing(sqlite3.connect(file)) as made:
    made.execute(
        "CREATE TABLE IF NOT EXISTS event"
        " (source TEXT, id TEXT, type TEXT, subject TEXT, data TEXT, PRIMARY KEY (source, id))"
    )


@app.post("/events")
async def receive(request: Request) -> Response:
    """204: all of it is kept. 422: nothing of it is; the publisher finds out which event it is, and
    sends the rest. 503: nothing of it is, and all of it comes again. 401: it has no signature.
    """
    until = monotonic() + seconds
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LIMIT:
            return Response(status_code=413)
    try:
        webhook.verify(body, dict(request.headers), json_parse=False)
    except (WebhookVerificationError, ValueError) as error:
        return Response(f"refused: {error}", 401)
    try:
        content = json.loads(body)
        await run_in_threadpool(keep, content if isinstance(content, list) else [content], until)
    except (TimeoutError, sqlite3.OperationalError) as error:
        return Response(f"too late: {error}", 503)
    except (ValueError, KeyError) as error:
        return Response(f"cannot be applied: {error!r}", 422)
    return Response(status_code=204)


def keep(events: list[dict[str, Any]], until: float) -> None:
    """Look the id up and apply the event in one transaction, or a crash between the two loses or
    doubles it. Raises TimeoutError at the time ``until``, because the publisher may have sent newer
    events of the same objects by then.
    """
    with (
        closing(sqlite3.connect(file, timeout=max(0, until - monotonic()))) as db,
        db,
    ):  # commits at the end, or takes all of it back
        for event in events:
            row = (
                event["source"],
                event["id"],
                event["type"],
                event["subject"],
                json.dumps(event.get("data")),
            )
            if db.execute("INSERT OR IGNORE INTO event VALUES (?, ?, ?, ?, ?)", row).rowcount:
                apply(db, event)
        if monotonic() >= until:
            raise TimeoutError(f"{seconds:g} s have passed")


def apply(db: sqlite3.Connection, event: dict[str, Any]) -> None:
    """Apply an event through the same connection.

    Raises ValueError to refuse it.
    """


if __name__ == "__main__":
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning")
    socket = config.bind_socket()
    socket.listen()
    print("listening on port", socket.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[socket])
