"""A session with a server: the documented sequence of calls over a DB-API connection, and the
errors of these calls (formats/gbase-cdc.md 1).

No driver is shipped. Use any DB-API connection to the database ``syscdcv1`` that accepts ``?`` for
parameters. The caller provides the function that reads captured bytes, since DB-API has no function
for this. In that function, the session id serves as the descriptor of a large object
(``ifx_lo_read`` of ESQL/C, or what a driver offers in its place).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

from eventlog.errors import DatabaseError, FormatError

_log = logging.getLogger(__name__)

_VERSION: Final = (1, 1)  # major and minor version of the interface


class Connection(Protocol):
    """The methods of a DB-API connection to ``syscdcv1`` that a session uses."""

    def cursor(self) -> Any:
        """Return a new cursor. A session calls its ``execute``, ``fetchone`` and ``close``."""
        ...


Transport = Callable[[int, int], bytes | int]
"""A function ``read(session, n)`` that returns at most n valid bytes of a session. In place of
bytes, it may return 0 or a negative error number.
"""


class Capture(NamedTuple):
    """A table to capture: ``db:owner.table``, its columns, and the label of its records."""

    table: str
    columns: Sequence[str]
    label: int


class CaptureSession(NamedTuple):
    """An active session.

    ``read()`` returns the next bytes, which include TIMEOUT records. ``read()`` raises CdcError.
    """

    id: int
    read: Callable[[], bytes]


@contextmanager
def capture_session(
    connection: Connection,
    transport: Transport,
    captures: Sequence[Capture],
    *,
    server: str,
    position: int = 0,
    timeout: int = 5,
    max_recs: int = 1000,
    read_bytes: int = 1 << 16,
) -> Iterator[CaptureSession]:
    """Open a session that captures these tables from ``position`` on. A position is 0 for now, or a
    sequence (``restart`` of a token).

    ``server`` is the name of the server as its clients know it. ``timeout`` is the timeout of
    ``cdc_opensess``, in seconds; ``max_recs`` and ``read_bytes`` limit a single read. Full-row
    logging is switched on for the tables for which it is off, and switched off again at the end.
    The session is always closed. Raises CdcError with the name of the error. The error LSN means
    that the position is older than the oldest log. After this error no session is opened, since
    starting at the present position would lose changes.
    """
    session = _call(connection, "cdc_opensess", server, 0, timeout, max_recs, *_VERSION)
    switched_on: list[str] = []
    started: list[str] = []
    failed = True
    try:
        for capture in captures:
            if _start(connection, session, capture):
                switched_on.append(capture.table)
            started.append(capture.table)
        _call(connection, "cdc_activatesess", session, position)
        yield CaptureSession(session, lambda: _read(transport, session, read_bytes))
        failed = False
    finally:
        closing: list[tuple[object, ...]] = [
            ("cdc_endcapture", session, 0, table) for table in started
        ]
        closing += [("cdc_set_fullrowlogging", table, 0) for table in switched_on]
        _close(connection, [*closing, ("cdc_closesess", session)], failed)


def _start(connection: Connection, session: int, capture: Capture) -> bool:
    """Start a capture.

    Returns True if full-row logging had to be switched on. Only the refusal of the first call shows
    that this is needed.
    """
    arguments = (
        "cdc_startcapture",
        session,
        0,
        capture.table,
        ",".join(capture.columns),
        capture.label,
    )
    try:
        _call(connection, *arguments, about=capture.table)
    except CdcError as error:
        if error.name != "TABPROPERTIES":
            raise
    else:
        return False
    _call(connection, "cdc_set_fullrowlogging", capture.table, 1, about=capture.table)
    try:
        _call(connection, *arguments, about=capture.table)
    except BaseException:
        # The logging was off before and does not help:
        # the table cannot be captured for another reason.
        _close(connection, [("cdc_set_fullrowlogging", capture.table, 0)], failed=True)
        raise
    return True


def _close(connection: Connection, calls: Sequence[tuple[Any, ...]], failed: bool) -> None:
    """Make all these calls, even if some of them fail.

    Raises the first error unless the session has ``failed`` already.
    """
    first: Exception | None = None
    for call in calls:
        try:
            _call(connection, *call)
        except Exception as error:  # errors of the driver, too: make the remaining calls
            if isinstance(error, CdcError) and error.number == LOGGING_IN_USE:
                _log.info("full-row logging stays on: another session captures %s", call[1])
                continue
            _log.warning("error while closing the session: %s", error)
            first = first or error
    if first is not None and not failed:
        raise first


def _read(transport: Transport, session: int, size: int) -> bytes:
    data = transport(session, size)
    if isinstance(data, int) or not data:
        raise CdcError("read", data if isinstance(data, int) else 0)
    return data


def _call(connection: Connection, function: str, *arguments: object, about: str = "") -> int:
    """Call a function of the interface and return its answer.

    Raises CdcError for a negative answer.
    """
    marks = ", ".join("?" * len(arguments))
    cursor = connection.cursor()
    try:
        # Our own names, all values bound.
        cursor.execute(f"EXECUTE FUNCTION {function}({marks})", arguments)
        row = cursor.fetchone()
    finally:
        cursor.close()
    answer = int(row[0]) if row else 0
    if answer < 0:
        raise CdcError(function, answer, about)
    return answer


# --- the answers of the server --------------------------------------------------------------------

_ERROR_NAMES: Final = {
    -83701: "NOCDCDB",
    -83702: "APIVERS",
    -83703: "NODB",
    -83704: "DBNOTLOGGED",
    -83705: "NOTAB",
    -83706: "TABPROPERTIES",
    -83707: "NOCOL",
    -83708: "NOSESS",
    -83709: "NOREOPEN",
    -83710: "TABCAPTURED",
    -83711: "TABNOTCAPTURED",
    -83712: "ARGNULL",
    -83713: "LSN",
    -83714: "DIRECTION",
}
"""The names of the error codes of CDC calls (formats/gbase-cdc.md 1). The codes may differ between
servers; the names do not.
"""

ERROR_NUMBERS: Final = {name: number for number, name in _ERROR_NAMES.items()}

LOGGING_IN_USE: Final = -19816
"""The error code of a call that switches full-row logging off while the table is captured
(formats/gbase-cdc.md 6).
"""


def error_name(number: int) -> str:
    """Return the name of an error code, or ``unknown``."""
    return _ERROR_NAMES.get(number, "unknown")


_HINTS: Final = {
    "NOCDCDB": (
        "create the database syscdcv1 as gbasedbt: cd $GBASEDBTDIR/etc; dbaccess - syscdcv1.sql"
    ),
    "DBNOTLOGGED": "the database must have logging",
    "TABPROPERTIES": (
        "full-row logging is off, or the table is a view, a temporary table or of a type that "
        "cannot be captured"
    ),
    "LSN": "the position is older than the oldest log that the server has: load the tables again",
}


class CdcError(DatabaseError):
    """An error that a call of the CDC interface returned: ``number`` and ``name``
    (formats/gbase-cdc.md 1).
    """

    code = "cdc"

    def __init__(self, call: str, number: int, about: str = "") -> None:
        name = error_name(number)
        hint = f": {_HINTS[name]}" if name in _HINTS else ""
        super().__init__(
            f"{call}{' of ' + about if about else ''} returned {number} ({name}){hint}"
        )
        self.call = call
        self.number = number
        self.name = name


class SessionDead(FormatError):
    """The server has ended the session; ``error`` is the code that it sent."""

    code = "session_dead"

    def __init__(self, error: int) -> None:
        super().__init__(
            f"the server ended the session with error {error} ({error_name(error)}); open another "
            "session"
        )
        self.error = error
