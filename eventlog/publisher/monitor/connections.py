"""The connections of the monitor's server, so that who says nothing, or says it slowly, takes nothing from the others.

uvicorn waits for a request as long as the client likes, and its own limit counts connections, those of health probes
too. Here a request has to come within ``REQUEST_SECONDS``. Of more than ``MOST_CONNECTIONS`` the one that has waited
longest is closed for the new one, so that a probe always gets in. How many requests are worked on at once is the
application's matter, which answers probes whatever else it does.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS: Final = 10.0
"""From a connection, or the first byte of a further request on it, to the last byte of the request."""
MOST_CONNECTIONS: Final = 256
"""A fraction of the files that a process may open: the publisher's own are among them."""


class Connections:
    """The connections of one server; uvicorn calls it for each of them."""

    def __init__(self, request_seconds: float = REQUEST_SECONDS, most: int = MOST_CONNECTIONS) -> None:
        self.request_seconds, self._most = request_seconds, most
        self._waiting: dict[_Connection, None] = {}  # those that have waited longest first

    def __call__(self, *arguments: Any, **named: Any) -> asyncio.Protocol:
        return _Connection(self, *arguments, **named)

    def add(self, connection: _Connection) -> None:
        """A connection waits for a request from now on."""
        self.remove(connection)
        self._waiting[connection] = None
        if len(self._waiting) > self._most:
            next(iter(self._waiting)).abort()

    def remove(self, connection: _Connection) -> None:
        """It has a request, or is closed."""
        self._waiting.pop(connection, None)


class _Connection(H11Protocol):
    """A connection whose requests have to come in time."""

    def __init__(self, connections: Connections, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._connections = connections
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_request()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Data end uvicorn's own time limit, that of connections between two requests.
        if self._deadline is None:
            self._begin_request()
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._end_request()

    def on_response_complete(self) -> None:
        self._connections.add(self)
        super().on_response_complete()

    def abort(self) -> None:
        """Close it at once, whatever is left to be written."""
        self._end_request()
        self.transport.abort()

    def _begin_request(self) -> None:
        """A whole request is to come in time."""
        self._end_request()
        self._connections.add(self)
        self._deadline = self.loop.call_later(self._connections.request_seconds, self.abort)

    def _end_request(self) -> None:
        self._connections.remove(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
