"""Work for the emulated server: scripts and random work (formats/gbase-cdc.md 6). Each script has
the result that a reader must return. The random work has a seed, so that a stream can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Final

from eventlog.gbase.layout import Column, parse_type
from eventlog.gbase.packed import (
    DAY,
    FIELDS,
    FRACTION,
    MONTH,
    SECOND,
    Fields,
    Qualifier,
    holds,
    text_of_fields,
)
from eventlog.gbase.values import Encoding
from eventlog.model import ChangeOp, Row, Value
from eventlog.testing.gbase_emulator import CdcServer, Switches, Work

# --- scripts --------------------------------------------------------------------------------------

T1: Final = "shop:app.t1"
ALL: Final = "shop:app.all_types"
LABELS: Final = {111: T1, 112: ALL}
_BUFFER: Final = 4096

_Script = Callable[[CdcServer], None]


def _row(number: int, text: str | None) -> Row:
    return {"c1": number, "c2": text}


def interleaving(server: CdcServer) -> None:
    """Write BEGIN A, BEGIN B, INSERT A1, INSERT B1, COMMIT B, COMMIT A. Readers return B1, A1."""
    a, b = server.begin(1001), server.begin(1002)
    a.insert(T1, _row(1, "a"))
    b.insert(T1, _row(2, "b"))
    b.commit()
    a.commit()


def savepoint(server: CdcServer) -> None:
    """Write BEGIN, INSERT s1, INSERT s2, DISCARD(s1), INSERT s3, COMMIT. Readers return s3."""
    work = server.begin(1001)
    start = work.savepoint()
    work.insert(T1, _row(1, "a"))
    work.insert(T1, _row(2, "b"))
    work.rollback_to(start)
    work.insert(T1, _row(3, "c"))
    work.commit()


def rollback(server: CdcServer) -> None:
    """Write BEGIN, INSERT, ROLLBACK. Readers return nothing."""
    work = server.begin(1001)
    work.insert(T1, _row(1, "a"))
    work.rollback()


def truncate(server: CdcServer) -> None:
    """Write BEGIN, TRUNCATE, COMMIT. Readers return the TRUNCATE."""
    work = server.begin(1001)
    work.truncate(T1)
    work.commit()


def update_pair(server: CdcServer) -> None:
    """Write an update whose two records enclose a record of another transaction, and an update that
    changes nothing.
    """
    work, other = server.begin(1001), server.begin(1002)
    work.update(T1, _row(1, "a"), _row(1, None))
    other.delete(T1, _row(9, "z"))
    work.update(T1, _row(2, "b"), _row(2, "b"))
    work.commit()
    other.commit()


def key_update(server: CdcServer) -> None:
    """Write an update of the key as DELETE and INSERT."""
    work = server.begin(1001)
    work.delete(T1, _row(1, "a"))
    work.insert(T1, _row(2, "a"))
    work.commit()


def fragment_move(server: CdcServer) -> None:
    """Write an update that moves its row to another fragment, as UPDBEF and INSERT.

    Readers return one UPDATE.
    """
    work = server.begin(1001)
    work.move(T1, _row(1, "a"), _row(1, "b"))
    work.commit()


def long_transaction(server: CdcServer) -> None:
    """Write a transaction that stays open while other transactions begin and end.

    A restart begins at the transaction's BEGINTX.
    """
    long = server.begin(1001)
    long.insert(T1, _row(0, "first"))
    for number in range(1, 20):
        work = server.begin(1002)
        work.insert(T1, _row(number, f"short {number}"))
        work.commit()
        long.insert(T1, _row(100 + number, "long"))
    long.commit()


def reused_ids(server: CdcServer) -> None:
    """Write two transactions with the same id, the second after the first."""
    for text in ("a", "b"):
        work = server.begin(1001)
        work.insert(T1, _row(1, text))
        work.commit()


def error(server: CdcServer) -> None:
    """Write a committed transaction, then an ERROR record that ends the session."""
    reused_ids(server)
    server.fail("LSN")


def all_types(server: CdcServer) -> None:
    """Write a row of every column type with the greatest values, a row with the lowest values, and
    a row with NULLs.
    """
    work = server.begin(1001)
    work.insert(ALL, extreme_row(highest=True))
    work.insert(ALL, extreme_row(highest=False))
    work.insert(ALL, null_row())
    work.commit()


SCENARIOS: Final[dict[str, _Script]] = {
    script.__name__: script
    for script in (
        interleaving, savepoint, rollback, truncate, update_pair, key_update, fragment_move,
        long_transaction, reused_ids, error, all_types,
    )
}  # fmt: skip
"""The scripts by name."""


def new_server(switches: Switches | None = None) -> CdcServer:
    """Return a server that has the tables of the scripts, with full-row logging."""
    return _server_with({T1: "c1 integer, c2 varchar(20)", ALL: ALL_TYPES}, switches)


def _server_with(tables: Mapping[str, str], switches: Switches | None) -> CdcServer:
    server = CdcServer(switches)
    for table, columns in tables.items():
        server.create_table(table, columns)
        server.cdc_set_fullrowlogging(table, 1)
    return server


def open_session(server: CdcServer, position: int = 0, max_recs: int = 0) -> int:
    """Open a session that captures all tables of the server, with labels from 111 on, and activate
    it at the position.

    ``max_recs`` is the maximum number of records of a read; 0 = the limit set by the switch.
    """
    session = server.cdc_opensess("emulator", 0, 0, max_recs, 1, 1)
    for label, table in enumerate(server.tables, 111):
        server.cdc_startcapture(session, 0, table, ", ".join(server.tables[table]), label)
    server.cdc_activatesess(session, position)
    return session


def drain(server: CdcServer, session: int, size: int = _BUFFER) -> Iterator[bytes]:
    """Yield all bytes that the session has, in reads of ``size`` bytes into one buffer, without a
    TIMEOUT at the end.
    """
    buffer = bytearray(size)
    while server.has_data(session):
        yield bytes(buffer[: server.cdc_read(session, buffer)])


def play(name: str, switches: Switches | None = None) -> bytes:
    """Return the whole stream of a script."""
    server = new_server(switches)
    session = open_session(server)
    SCENARIOS[name](server)
    return b"".join(drain(server, session))


# --- sample values --------------------------------------------------------------------------------

_TYPES: Final[Mapping[str, tuple[str, Value, Value]]] = {
    "s": ("smallint", 1 - 2**15, 2**15 - 1),
    "i": ("integer", 1 - 2**31, 2**31 - 1),
    "b": ("bigint", 1 - 2**63, 2**63 - 1),
    "q": ("int8", 1 - 2**63, 2**63 - 1),
    "se": ("serial", 1 - 2**31, 2**31 - 1),
    "f": ("float", -1.7976931348623157e308, 1.7976931348623157e308),
    "sf": ("smallfloat", -3.4028234663852886e38, 3.4028234663852886e38),
    "de": ("decimal(10,2)", Decimal("-99999999.99"), Decimal("99999999.99")),
    "dn": ("decimal(16)", Decimal("-9999999999999999"), Decimal("9999999999999999")),
    "od": ("decimal(5,1)", Decimal("-9999.9"), Decimal("9999.9")),
    "mo": ("money", Decimal("-99999999999999.99"), Decimal("99999999999999.99")),
    "dt": ("date", date.min, date.max),
    "ys": ("datetime year to second", datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)),
    "yf": (
        "datetime year to fraction(5)",
        datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999990),
    ),
    "hf": ("datetime hour to fraction(3)", time(), time(23, 59, 59, 999000)),
    "yd": ("datetime year to day", date.min, date.max),
    "md": ("datetime month to day", "01-01", "12-31"),
    "ds": ("interval day(3) to second", "-999 23:59:59", "999 23:59:59"),
    "ym": ("interval year to month", "-9999-11", "9999-11"),
    "ff": ("interval fraction to fraction(3)", "-.999", ".999"),
    "ch": ("char(6)", "", "z" * 6),
    "bo": ("boolean", False, True),
    "v": ("varchar(30)", "", "z" * 30),
    "nv": ("nvarchar(30)", "", "z" * 30),
    "lv": ("lvarchar(200)", "", "z" * 200),
}
"""A column of every type that stores a value, with its lowest and highest value."""

ALL_TYPES: Final = ", ".join(f"{name} {spelled}" for name, (spelled, _, _) in _TYPES.items())

_BITS: Final = {Encoding.SMALLINT: 15, Encoding.INTEGER: 31, Encoding.BIGINT: 63, Encoding.INT8: 63}
_TEXTS: Final = ("", "a", "Zoë", "数据变更", 'it\'s, "quoted"', " leading", "x" * 29)
_SECONDS: Final = 3_000_000_000
_MOMENT: Final = datetime(1930, 1, 1)


def random_value(rnd: random.Random, column: Column) -> Value:
    """Return a value of the column's type, sometimes NULL, that is read back unchanged."""
    if rnd.random() < 0.1:
        return None
    type = column.type
    match type.kind:
        case Encoding.SMALLINT | Encoding.INTEGER | Encoding.BIGINT | Encoding.INT8:
            bits = _BITS[type.kind]
            return rnd.randrange(-(1 << bits) + 1, 1 << bits) >> rnd.randrange(bits)
        case Encoding.FLOAT:
            return rnd.uniform(-1e9, 1e9)
        case Encoding.SMALLFLOAT:
            return rnd.randrange(-(1 << 20), 1 << 20) / 16
        case Encoding.DECIMAL:
            assert type.size is not None
            number = rnd.randrange(-(10**type.size) + 1, 10**type.size) // 10 ** rnd.randrange(
                type.size
            )
            if type.scale is not None:
                return Decimal(f"{number}E-{type.scale}")
            return Decimal(f"{Decimal(f'{number}E-{rnd.randrange(type.size)}').normalize():f}")
        case Encoding.DATE:
            return (_MOMENT + timedelta(seconds=rnd.randrange(_SECONDS))).date()
        case Encoding.BOOLEAN:
            return rnd.random() < 0.5
        case Encoding.DATETIME:
            assert type.qualifier is not None
            return _random_datetime(rnd, type.qualifier)
        case Encoding.CHAR:
            return f"{rnd.randrange(10**5)}"[: type.size]
        case _:
            text = rnd.choice(_TEXTS) if rnd.random() < 0.3 else f"text {rnd.randrange(10**9)}"
            return text.encode()[: type.size].decode(errors="ignore")


def _random_datetime(rnd: random.Random, qualifier: Qualifier) -> Value:
    step = 10 ** (6 - qualifier.fraction)
    moment = _MOMENT + timedelta(
        seconds=rnd.randrange(_SECONDS),
        microseconds=rnd.randrange(10**6) // step * step if qualifier.fraction else 0,
    )
    kind = holds(qualifier)
    if kind is date:
        return moment.date()
    if kind is not None:
        for name in FIELDS[qualifier.last + 1 : FRACTION]:
            moment = moment.replace(**{name: 0})  # type: ignore[arg-type]
        return moment if kind is datetime else moment.time()
    if not qualifier.interval:
        return f"{moment:%m-%d}" if (qualifier.first, qualifier.last) == (MONTH, DAY) else None
    # Zero is left out, since it has no sign.
    whole = [rnd.randrange(1, 10**qualifier.precision), *(rnd.randrange(1, 12) for _ in range(5))]
    fraction = f"{rnd.randrange(1, 10):0{qualifier.fraction}}" if qualifier.fraction else ""
    numbers = min(qualifier.last, SECOND) + 1 - qualifier.first
    return text_of_fields(Fields(rnd.random() < 0.5, tuple(whole[:numbers]), fraction), qualifier)


def extreme_row(highest: bool) -> dict[str, Value]:
    """Return a row with the highest or the lowest values of ALL_TYPES."""
    return {name: values[highest] for name, (_, *values) in _TYPES.items()}


def null_row() -> dict[str, Value]:
    """Return a row of ALL_TYPES that is NULL in every column."""
    return dict.fromkeys(_TYPES)


# --- random work ----------------------------------------------------------------------------------

_AT_ONCE: Final = 4
_ROWS_MADE: Final = 1000


class Workload:
    """Random transactions on the tables of a server: up to four at the same time, with savepoints,
    rollbacks, truncates, rows moved between fragments, and sometimes a long transaction.
    """

    def __init__(self, server: CdcServer, seed: int) -> None:
        self._server = server
        self._rnd = random.Random(seed)  # nothing secret  # noqa: S311
        self._columns = {
            table: [Column(name, parse_type(spelled, name)) for name, spelled in columns.items()]
            for table, columns in server.tables.items()
        }
        self._rows: dict[str, list[Row]] = {table: [] for table in server.tables}
        self._open: list[tuple[Work, int]] = []

    def step(self) -> None:
        """Run one statement of one transaction, or begin or end a transaction."""
        rnd = self._rnd
        if len(self._open) < _AT_ONCE and rnd.random() < 0.3:
            self._open.append(
                (self._server.begin(rnd.randrange(1000, 1010)), rnd.choice((0, 1, 3, 8, 8, 200)))
            )
        if not self._open:
            return
        place = rnd.randrange(len(self._open))
        work, left = self._open[place]
        if left <= 0:
            del self._open[place]
            (work.commit if rnd.random() < 0.85 else work.rollback)()
            return
        self._open[place] = (work, left - 1)
        self._statement(work)

    def finish(self) -> None:
        """Commit the open transactions."""
        for work, _ in self._open:
            work.commit()
        self._open.clear()

    def row(self, table: str) -> Row:
        """Return a row of a table. The first rows are random; later rows repeat earlier rows, which
        is many times as fast.
        """
        rows = self._rows[table]
        if len(rows) >= _ROWS_MADE:
            return self._rnd.choice(rows)
        rows.append(
            {column.name: random_value(self._rnd, column) for column in self._columns[table]}
        )
        return rows[-1]

    def _statement(self, work: Work) -> None:
        rnd = self._rnd
        table = rnd.choice(list(self._columns))
        act: Callable[[], None] = rnd.choices(
            (
                lambda: work.insert(table, self.row(table)),
                lambda: work.update(table, *self._changed(table)),
                lambda: work.delete(table, self.row(table)),
                lambda: self._moved(work, table),
                lambda: work.truncate(table),
                lambda: self._undone(work),
            ),
            (50, 30, 12, 3, 1, 4),
        )[0]
        act()

    def _moved(self, work: Work, table: str) -> None:
        # Directly after an INSERT into the table, a move would look like an update of that row
        # (formats/gbase-cdc.md 4).
        if not work.done or work.done[-1][1][:2] != (ChangeOp.INSERT, table):
            work.move(table, *self._changed(table))

    def _changed(self, table: str) -> tuple[Row, Row]:
        before = self.row(table)
        column = self._rnd.choice(self._columns[table])
        return before, {**before, column.name: random_value(self._rnd, column)}

    def _undone(self, work: Work) -> None:
        savepoint = work.savepoint()
        for _ in range(self._rnd.randrange(4)):
            table = self._rnd.choice(list(self._columns))
            work.insert(table, self.row(table))
            work.update(table, *self._changed(table))
        work.rollback_to(savepoint)


ITEM: Final = (
    "id serial, big bigint, price decimal(10,2), day date, made datetime year to fraction(5), "
    "code char(10), name varchar(40), note varchar(80)"
)
_STEPS: Final = 200


def stream(seed: int, size: int, switches: Switches | None = None) -> Iterator[bytes]:
    """Yield a stream of about ``size`` bytes of random work in reads of 64 KiB. The work is
    generated while the stream is read.
    """
    # The log files are small, so that the server drops records that have been read.
    server = _server_with(
        {"shop:app.item": ITEM, ALL: ALL_TYPES}, switches or Switches(log_size=1 << 20)
    )
    session = open_session(server, max_recs=1 << 20)
    workload = Workload(server, seed)
    written = 0
    while True:
        done = written >= size
        if done:
            workload.finish()
        else:
            for _ in range(_STEPS):
                workload.step()
        for fragment in drain(server, session, server.switches.read_bytes):
            written += len(fragment)
            yield fragment
        if done:
            return
