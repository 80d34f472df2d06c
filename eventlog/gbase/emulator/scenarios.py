"""Ready-made scripts for the emulated server (spec/gbase-cdc.md 6), each with what a reader has to make of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from eventlog.gbase.emulator.server import CdcServer
from eventlog.gbase.emulator.session import Switches
from eventlog.gbase.emulator.workload import ALL_TYPES, extreme_row, null_row
from eventlog.model import Row

T1: Final = "shop:app.t1"
ALL: Final = "shop:app.all_types"
LABELS: Final = {111: T1, 112: ALL}
BUFFER: Final = 4096

Script = Callable[[CdcServer], None]


def _row(number: int, text: str | None) -> Row:
    return {"c1": number, "c2": text}


def interleaving(server: CdcServer) -> None:
    """BEGIN A, BEGIN B, INSERT A1, INSERT B1, COMMIT B, COMMIT A: gives B1, A1."""
    a, b = server.begin(1001), server.begin(1002)
    a.insert(T1, _row(1, "a"))
    b.insert(T1, _row(2, "b"))
    b.commit()
    a.commit()


def savepoint(server: CdcServer) -> None:
    """BEGIN, INSERT s1, INSERT s2, DISCARD(s1), INSERT s3, COMMIT: gives s3."""
    work = server.begin(1001)
    start = work.savepoint()
    work.insert(T1, _row(1, "a"))
    work.insert(T1, _row(2, "b"))
    work.rollback_to(start)
    work.insert(T1, _row(3, "c"))
    work.commit()


def rollback(server: CdcServer) -> None:
    """BEGIN, INSERT, ROLLBACK: gives nothing."""
    work = server.begin(1001)
    work.insert(T1, _row(1, "a"))
    work.rollback()


def truncate(server: CdcServer) -> None:
    """BEGIN, TRUNCATE, COMMIT: gives the TRUNCATE."""
    work = server.begin(1001)
    work.truncate(T1)
    work.commit()


def update_pair(server: CdcServer) -> None:
    """An update whose two records stand around a record of another transaction; one that changes nothing."""
    work, other = server.begin(1001), server.begin(1002)
    work.update(T1, _row(1, "a"), _row(1, None))
    other.delete(T1, _row(9, "z"))
    work.update(T1, _row(2, "b"), _row(2, "b"))
    work.commit()
    other.commit()


def key_update(server: CdcServer) -> None:
    """An update of the key, as DELETE and INSERT."""
    work = server.begin(1001)
    work.delete(T1, _row(1, "a"))
    work.insert(T1, _row(2, "a"))
    work.commit()


def fragment_move(server: CdcServer) -> None:
    """An update that moves its row to another fragment: UPDBEF and INSERT, gives one UPDATE."""
    work = server.begin(1001)
    work.move(T1, _row(1, "a"), _row(1, "b"))
    work.commit()


def long_transaction(server: CdcServer) -> None:
    """A transaction that is open while others come and go: whoever reads again begins at its BEGINTX."""
    long = server.begin(1001)
    long.insert(T1, _row(0, "first"))
    for number in range(1, 20):
        work = server.begin(1002)
        work.insert(T1, _row(number, f"short {number}"))
        work.commit()
        long.insert(T1, _row(100 + number, "long"))
    long.commit()


def reused_ids(server: CdcServer) -> None:
    """Two transactions of one id, one after the other."""
    for text in ("a", "b"):
        work = server.begin(1001)
        work.insert(T1, _row(1, text))
        work.commit()


def error(server: CdcServer) -> None:
    """A committed transaction, then an ERROR record that ends the session."""
    reused_ids(server)
    server.fail("LSN")


def all_types(server: CdcServer) -> None:
    """Every column type: greatest and lowest values, then NULLs."""
    work = server.begin(1001)
    work.insert(ALL, extreme_row(highest=True))
    work.insert(ALL, extreme_row(highest=False))
    work.insert(ALL, null_row())
    work.commit()


SCENARIOS: Final[dict[str, Script]] = {
    "interleaving": interleaving,
    "savepoint": savepoint,
    "rollback": rollback,
    "truncate": truncate,
    "update_pair": update_pair,
    "key_update": key_update,
    "fragment_move": fragment_move,
    "long_transaction": long_transaction,
    "reused_ids": reused_ids,
    "error": error,
    "all_types": all_types,
}
"""The scripts by name."""


def new_server(switches: Switches | None = None) -> CdcServer:
    """A server with the tables of the scripts, full-row logging on."""
    server = CdcServer(switches)
    server.create_table(T1, "c1 integer, c2 varchar(20)")
    server.create_table(ALL, ALL_TYPES)
    for table in LABELS.values():
        server.cdc_set_fullrowlogging(table, 1)
    return server


def open_session(server: CdcServer, position: int = 0) -> int:
    """A session that captures all tables of the server under their places from 111 on, active at the position."""
    session = server.cdc_opensess("emulator", 0, 0, 0, 1, 1)
    for label, table in enumerate(server.tables, 111):
        server.cdc_startcapture(session, 0, table, ", ".join(server.tables[table].columns), label)
    server.cdc_activatesess(session, position)
    return session


def drain(server: CdcServer, session: int, size: int = BUFFER) -> Iterator[bytes]:
    """What the session has to give, in reads of ``size`` bytes from one buffer, without a TIMEOUT at the end."""
    buffer = bytearray(size)
    while server.has_data(session):
        yield bytes(buffer[: server.cdc_read(session, buffer)])


def play(name: str, switches: Switches | None = None) -> bytes:
    """The stream of a script, whole."""
    server = new_server(switches)
    session = open_session(server)
    SCENARIOS[name](server)
    return b"".join(drain(server, session))
