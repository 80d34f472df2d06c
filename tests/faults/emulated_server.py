"""An emulated CDC server that always has the same log, for a source that is followed through a
session.
"""

from __future__ import annotations

from typing import Any, Final

from eventlog.testing.gbase_emulator import CdcServer, EmulatorConnection
from eventlog.testing.gbase_workload import T1, drain, new_server, open_session

ROWS: Final = 60


def filled() -> tuple[CdcServer, bytes]:
    """The server, and its stream: interleaved transactions, the longest of which ends last."""
    server = new_server()
    session = open_session(server)
    long = server.begin(1)
    for number in range(ROWS):
        long.insert(T1, {"c1": 1000 + number, "c2": "long"})
        work = server.begin(2)
        work.insert(T1, {"c1": number, "c2": "new"})
        work.update(T1, {"c1": number % 7, "c2": "a"}, {"c1": number % 7, "c2": f"b{number}"})
        (work.rollback if number % 10 == 3 else work.commit)()
    long.commit()
    data = b"".join(drain(server, session))
    server.cdc_closesess(session)
    return server, data


def connect() -> tuple[Any, Any]:
    """As ``source.connect`` has it."""
    connection = EmulatorConnection(filled()[0])
    return connection, connection.read
