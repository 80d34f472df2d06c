"""The connections of the monitor's server. A client that sends nothing, sends slowly, or never
reads does not affect the other clients.

uvicorn waits for a request without a limit, and its own limit counts all connections, health probes
among them. With this module a request must arrive, and the client must read the answer, within
``REQUEST_SECONDS``. If more than ``MAX_CONNECTIONS`` connections wait for a request, the connection
that has waited longest is closed, so that a probe can always connect. The application limits the
number of parallel requests; it answers probes in any case.

A client that sends further requests before it has its answer (pipelining) gets this answer, and
then its connection is closed: thousands of requests in one packet would make the server produce
answers that nobody reads. No browser, scraper or probe does so, and HTTP lets a server close (RFC
9112, 9.3.2).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS: Final = 10.0
"""The seconds from a connection, or from the first byte of a further request on it, to the last
byte of the request; and the seconds in which a client must read an answer that does not fit into
the connection's buffer.
"""
MAX_CONNECTIONS: Final = 256
"""The maximum number of connections that wait for a request. The number is far below 1,024, the
usual limit of open files, since the publisher opens files too.
"""


class Connections:
    """The connections of one server; uvicorn calls this object for each connection."""

    def __init__(
        self, request_seconds: float = REQUEST_SECONDS, most: int = MAX_CONNECTIONS
    ) -> None:
        self.request_seconds, self._most = request_seconds, most
        self._waiting: dict[_Connection, None] = {}  # those that have waited longest come first

    def __call__(self, *arguments: Any, **named: Any) -> asyncio.Protocol:
        return _Connection(self, *arguments, **named)

    def add(self, connection: _Connection) -> None:
        """Add a connection that waits for a request from now on."""
        self.remove(connection)
        self._waiting[connection] = None
        if len(self._waiting) > self._most:
            next(iter(self._waiting)).abort()

    def remove(self, connection: _Connection) -> None:
        """Remove a connection whose request has arrived, or that is closed."""
        self._waiting.pop(connection, None)


class _Connection(H11Protocol):
    """A connection that is closed if a request does not arrive in time, if the client does not read
    an answer in time, or after the answer to a client that pipelines.
    """

    def __init__(self, connections: Connections, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._connections = connections
        self._deadline: asyncio.TimerHandle | None = None
        self._untaken: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_request()
        self._end_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Incoming data end uvicorn's own time limit between two requests.
        if self._deadline is None:
            self._begin_request()
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._end_request()

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:
            self._wait_for_client()
            self.transport.close()  # unsent data are sent first
            return
        self._connections.add(self)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_client()

    def resume_writing(self) -> None:
        if not self.transport.is_closing():
            self._end_waiting()
        super().resume_writing()

    def abort(self) -> None:
        """Close the connection immediately, and discard unsent data."""
        self._end_request()
        self.transport.abort()

    def _wait_for_client(self) -> None:
        """Start the time limit within which the client must read the unsent data."""
        self._end_waiting()
        self._untaken = self.loop.call_later(self._connections.request_seconds, self.abort)

    def _end_waiting(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def _begin_request(self) -> None:
        """Start the time limit of a request."""
        self._end_request()
        self._connections.add(self)
        self._deadline = self.loop.call_later(self._connections.request_seconds, self.abort)

    def _end_request(self) -> None:
        self._connections.remove(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
