"""The emulated server behind the interface of a DB-API connection, as ``session`` uses a real one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from eventlog.errors import DatabaseError
from eventlog.gbase.emulator import CdcServer

_CALL: Final = re.compile(r"EXECUTE FUNCTION (cdc_[a-z_]+)\(([?, ]*)\)")
_FUNCTIONS: Final = frozenset((
    "cdc_opensess", "cdc_set_fullrowlogging", "cdc_startcapture", "cdc_activatesess", "cdc_recboundary",
    "cdc_deactivatesess", "cdc_endcapture", "cdc_closesess",
))  # fmt: skip


class EmulatorConnection:
    """A connection to ``syscdcv1`` of the emulated server, and the transport that reads its sessions."""

    def __init__(self, server: CdcServer) -> None:
        self._server = server
        self._buffer = bytearray()

    def cursor(self) -> EmulatorCursor:
        """A new cursor."""
        return EmulatorCursor(self._server)

    def read(self, session: int, size: int) -> bytes | int:
        """At most ``size`` bytes of a session, or a negative error."""
        if len(self._buffer) != size:
            self._buffer = bytearray(size)
        answer = self._server.cdc_read(session, self._buffer)
        return bytes(self._buffer[:answer]) if answer > 0 else answer


class EmulatorCursor:
    """A cursor that knows the calls of the CDC interface and no other statement."""

    def __init__(self, server: CdcServer) -> None:
        self._server = server
        self._answer: int | None = None

    def execute(self, operation: str, parameters: Sequence[Any] = (), /) -> None:
        """Run a call. Raises DatabaseError for any other statement."""
        match = _CALL.fullmatch(operation)
        if match is None or match[1] not in _FUNCTIONS or match[2].count("?") != len(parameters):
            raise DatabaseError(f"the emulator knows calls of the CDC interface only, not {operation!r}")
        self._answer = getattr(self._server, match[1])(*parameters)

    def fetchone(self) -> tuple[int] | None:
        """The answer of the call."""
        return None if self._answer is None else (self._answer,)

    def close(self) -> None:
        """Give it back."""
