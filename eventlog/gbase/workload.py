"""Random work for the emulated server: seeded, so that a stream can be made again (spec/gbase-cdc.md 6)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from eventlog.gbase.column_types import Column, parse_type
from eventlog.gbase.emulator import CdcServer, Switches, Work
from eventlog.gbase.sample_values import ALL_TYPES, random_value
from eventlog.model import ChangeOp, Row

_ROWS_MADE: Final = 1000


@dataclass(slots=True)
class Workload:
    """Random transactions on the tables of a server: up to ``width`` at once, with savepoints, rollbacks, truncates,
    rows moved between fragments, and now and then a long one.
    """

    server: CdcServer
    seed: int
    width: int = 4
    _rnd: random.Random = field(init=False)
    _columns: dict[str, list[Column]] = field(init=False)
    _rows: dict[str, list[Row]] = field(init=False)
    _open: list[tuple[Work, int]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._rnd = random.Random(self.seed)  # noqa: S311  # nothing secret
        self._columns = {
            table: [Column(name, parse_type(spelled, name)) for name, spelled in known.columns.items()]
            for table, known in self.server.tables.items()
        }
        self._rows = {table: [] for table in self._columns}

    def step(self) -> None:
        """One statement of one transaction; begins and ends them."""
        rnd = self._rnd
        if len(self._open) < self.width and rnd.random() < 0.3:
            self._open.append((self.server.begin(rnd.randrange(1000, 1010)), rnd.choice((0, 1, 3, 8, 8, 200))))
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
        """Commit what is open."""
        for work, _ in self._open:
            work.commit()
        self._open.clear()

    def row(self, table: str) -> Row:
        """A row of a table: random at first, later one of those made before, which is many times as fast."""
        made = self._rows[table]
        if len(made) >= _ROWS_MADE:
            return self._rnd.choice(made)
        made.append({column.name: random_value(self._rnd, column) for column in self._columns[table]})
        return made[-1]

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
        # Directly behind an INSERT of the table it could not be told from an update of that row (spec/gbase-cdc.md 4).
        last = work.done[-1][1] if work.done else None
        if last is None or (last.op, last.table) != (ChangeOp.INSERT, table):
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
    "id serial, big bigint, price decimal(10,2), day date, made datetime year to fraction(5), code char(10), "
    "name varchar(40), note varchar(80)"
)
_STEPS: Final = 200


def stream(seed: int, size: int, switches: Switches | None = None) -> Iterator[bytes]:
    """A stream of about ``size`` bytes of random work, made while it is read: reads of 64 KiB."""
    # Small logs, so that what was read is forgotten.
    server = CdcServer(switches or Switches(log_size=1 << 20))
    server.create_table("shop:app.item", ITEM)
    server.create_table("shop:app.all_types", ALL_TYPES)
    session = server.cdc_opensess("emulator", 0, 0, 1 << 20, 1, 1)
    for label, table in enumerate(server.tables, 111):
        server.cdc_set_fullrowlogging(table, 1)
        server.cdc_startcapture(session, 0, table, ", ".join(server.tables[table].columns), label)
    server.cdc_activatesess(session, 0)
    workload = Workload(server, seed)
    buffer = bytearray(server.switches.read_bytes)
    made = 0
    while True:
        done = made >= size
        if done:
            workload.finish()
        else:
            for _ in range(_STEPS):
                workload.step()
        while server.has_data(session):
            piece = bytes(buffer[: server.cdc_read(session, buffer)])
            made += len(piece)
            yield piece
        if done:
            return
