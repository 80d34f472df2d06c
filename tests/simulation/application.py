"""The application: its tables, and what its transactions do to them.

Each class has another style. Values are small and few, so that the same objects are met repeatedly;
now and then one is long, NULL or hard to quote. A *late* transaction draws its record_ids, stays
open while others commit, and commits with the lower numbers: SQLite has one writer at a time, so it
is rolled back, its numbers are left out, its objects stay locked, and it runs again.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from machine import with_virtual_time

if TYPE_CHECKING:
    from world import World

KEYS = {
    "customer": ("id",),
    "orders": ("id",),
    "item": ("order_id", "pos"),
    "doc": ("code",),
    "part": ("id",),
}
SCHEMA = """
    CREATE TABLE customer (id integer PRIMARY KEY, name text, email text, level integer);
    CREATE TABLE customer_tag (customer_id integer REFERENCES customer (id) ON UPDATE CASCADE ON DELETE CASCADE, tag text);
    CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer REFERENCES customer (id) ON UPDATE CASCADE ON DELETE CASCADE,
                         total integer, note text);
    CREATE TABLE item (order_id integer, pos integer, sku text, qty integer, PRIMARY KEY (order_id, pos));
    CREATE TABLE doc (code text PRIMARY KEY, body text, rev integer);
    CREATE TABLE part (id integer PRIMARY KEY, name text, weight integer);
    CREATE TABLE polled (times integer);
    INSERT INTO polled VALUES (0);
"""
WATCHES: tuple[dict[str, Any], ...] = (
    {"table": "customer"},
    {"table": "orders", "row_style": "remove_all"},
    {"table": "item", "row_style": "field_query_back"},
    {"table": "doc", "row_style": "row_query_back"},
    {"table": "part", "row_style": "field"},
)
VIEW = "view_box"
VIEW_SCHEMA = """
    CREATE TABLE box (num integer PRIMARY KEY, label text, weight integer);
    CREATE TABLE box_mark (num integer REFERENCES box (num) ON UPDATE CASCADE ON DELETE CASCADE, mark text, UNIQUE (num, mark));
    CREATE VIEW view_box AS SELECT box.num AS pk_num, box.label AS sv_label, box_mark.mark AS mv_mark
                            FROM box LEFT JOIN box_mark ON box_mark.num = box.num;
"""
VIEW_WATCH: dict[str, Any] = {
    "view": VIEW,
    "base": {
        "box": {"num": "pk_num", "label": "sv_label"},
        "box_mark": {"num": "pk_num", "mark": "mv_mark"},
    },
}
"""A class that is a view: some plans have it."""
OWN_USER = "driver"
"""The user whose changes are the publisher's own."""
BURST = 1000
"""The first key of a burst."""


@dataclass(frozen=True)
class Shape:
    """What the tables are like, and what the configuration says of it.

    ``columns`` are those that ``part`` has got. ``part`` may be renamed: ``names`` are those that
    it has had, the last one is that of now. So may the key of ``doc``: ``keys``. ``weight`` is the
    type of that column of ``part``, and ``row_style`` the style of its triggers.
    """

    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ("part",)
    keys: tuple[str, ...] = ("code",)
    weight: str = "integer"
    row_style: str = "field"
    has_view: bool = False

    @property
    def has_changed(self) -> bool:
        """True if the tables are not as they were at the beginning."""
        return self != Shape(row_style=self.row_style, has_view=self.has_view)

    def table(self, name: str) -> str:
        """Return the name that a table has now."""
        return self.names[-1] if name == "part" else name

    def sql(self, text: str) -> str:
        """Return a statement with the names of now."""
        text = re.sub(r"\bpart\b", self.names[-1], text)
        return re.sub(r"\bcode\b", self.keys[-1], text)

    @property
    def watches(self) -> list[dict[str, Any]]:
        """The ``[[watch]]`` of the configuration."""
        watches: list[dict[str, Any]] = [
            {**watch, "table": self.table(watch["table"])} for watch in WATCHES
        ]
        for watch in watches:
            if watch["table"] == self.names[-1]:
                watch["row_style"] = self.row_style
                if len(self.names) > 1:
                    watch["renamed_from"] = list(self.names[:-1])
            if watch["table"] == "doc" and len(self.keys) > 1:
                watch["previous_key"] = self.keys[-2]
        return [*watches, VIEW_WATCH] if self.has_view else watches


Object = tuple[str, Any]
"""A table and a key: what a transaction locks."""


class Statement(NamedTuple):
    """A statement of the application, and the objects that it may touch. ``*`` is every customer
    and order."""

    sql: str
    values: tuple[Any, ...]
    touches: frozenset[Object | str]


class Late(NamedTuple):
    """A transaction that is open: its statements, the record_ids that it drew, and when."""

    statements: Sequence[Statement]
    record_ids: Sequence[int]
    times: Sequence[str]
    """The event_time of each row: it is written when its record_id is drawn."""
    touches: frozenset[Object | str]


def text(chance: Random) -> str | None:
    """Draw a value."""
    kind = chance.random()
    if kind < 0.2:
        return None
    if kind < 0.25:
        return f"{chance.randrange(100)}" + "x" * chance.choice([900, 1500, 4096])
    return chance.choice(["", "a<b", "é", 'q"uote', "  ", "plus+eq="]) + str(chance.randrange(100))


def statement(
    chance: Random, tables: Sequence[str], size: int, columns: Iterable[str]
) -> Statement:
    """Draw a statement that writes one of these tables. ``size`` is the number of keys in use;
    ``columns`` are those of ``part`` beyond the first."""
    table, key = chance.choice(tables), chance.randrange(size)
    act = chance.choices(
        ["insert", "update", "delete", "key", "many", "child"], [5, 6, 2, 1, 1, 2]
    )[0]
    return _OF_TABLE[table](chance, act, key, size, tuple(columns))


def _touches(table: str, keys: Iterable[Any]) -> frozenset[Object | str]:
    return frozenset((table, key) for key in keys)


_EVERY: frozenset[Object | str] = frozenset({"*"})


def _of_customer(chance: Random, act: str, key: int, size: int, _: object) -> Statement:
    one = _touches("customer", [key])
    match act:
        case "child":
            tag = chance.choice("xyz")
            return chance.choice(
                [
                    Statement(
                        "INSERT INTO customer_tag SELECT id, ? FROM customer WHERE id = ?",
                        (tag, key),
                        one,
                    ),
                    Statement(
                        "DELETE FROM customer_tag WHERE customer_id = ? AND tag = ?",
                        (key, tag),
                        one,
                    ),
                    Statement(
                        "UPDATE customer_tag SET tag = ? WHERE customer_id = ?", (tag, key), one
                    ),
                ]
            )
        case "insert":
            row = (key, text(chance), text(chance), chance.randrange(5))
            return Statement("INSERT OR IGNORE INTO customer VALUES (?, ?, ?, ?)", row, one)
        case "delete":
            return Statement("DELETE FROM customer WHERE id = ?", (key,), _EVERY)
        case "key":
            moved = (chance.randrange(size), key)
            return Statement("UPDATE OR IGNORE customer SET id = ? WHERE id = ?", moved, _EVERY)
        case "many":
            return Statement(
                "UPDATE customer SET level = level + 1 WHERE id <= ?",
                (key,),
                _touches("customer", range(key + 1)),
            )
    column = chance.choice(["name", "email"])
    return Statement(f"UPDATE customer SET {column} = ? WHERE id = ?", (text(chance), key), one)


def _of_orders(chance: Random, act: str, key: int, size: int, _: object) -> Statement:
    one = _touches("orders", [key])
    match act:
        case "insert":
            return Statement(
                "INSERT OR IGNORE INTO orders SELECT ?, max(id), ?, ? FROM customer WHERE id <= ?",
                (key, chance.randrange(100), text(chance), chance.randrange(size)),
                _EVERY,
            )
        case "delete":
            return Statement("DELETE FROM orders WHERE id = ?", (key,), one)
        case "many" | "key":
            return Statement(
                "UPDATE orders SET total = total + 1, note = ? WHERE id >= ?",
                (text(chance), key),
                _touches("orders", range(key, size)),
            )
    values = (chance.randrange(100), text(chance), key)
    return Statement("UPDATE orders SET total = ?, note = ? WHERE id = ?", values, one)


def _of_item(chance: Random, act: str, key: int, _: int, __: object) -> Statement:
    place, all_of = chance.randrange(3), _touches("item", [(key, place) for place in range(3)])
    match act:
        case "insert":
            row = (key, place, text(chance), chance.randrange(9))
            return Statement("INSERT OR IGNORE INTO item VALUES (?, ?, ?, ?)", row, all_of)
        case "delete":
            return Statement("DELETE FROM item WHERE order_id = ?", (key,), all_of)
        case "key":
            moved = (chance.randrange(3), key, place)
            return Statement(
                "UPDATE OR IGNORE item SET pos = ? WHERE order_id = ? AND pos = ?", moved, all_of
            )
        case "many":
            return Statement("UPDATE item SET qty = qty + 1 WHERE order_id = ?", (key,), all_of)
    values = (text(chance), chance.randrange(9), key, place)
    return Statement(
        "UPDATE item SET sku = ?, qty = ? WHERE order_id = ? AND pos = ?", values, all_of
    )


def _of_doc(chance: Random, act: str, key: int, _: int, __: object) -> Statement:
    code, one = chance.choice(["a", "B c", "d+e=f"]) + str(key), _touches("doc", [key])
    match act:
        case "insert":
            row = (code, text(chance), chance.randrange(9))
            return Statement("INSERT OR REPLACE INTO doc VALUES (?, ?, ?)", row, one)
        case "delete":
            return Statement("DELETE FROM doc WHERE code = ?", (code,), one)
    return Statement(
        "UPDATE doc SET body = ?, rev = rev + 1 WHERE code = ?", (text(chance), code), one
    )


def _of_part(chance: Random, act: str, key: int, size: int, columns: Sequence[str]) -> Statement:
    one = _touches("part", [key])
    match act:
        case "insert" | "child":
            row = (key, text(chance), chance.randrange(9))
            return Statement(
                "INSERT OR IGNORE INTO part (id, name, weight) VALUES (?, ?, ?)", row, one
            )
        case "delete":
            return Statement("DELETE FROM part WHERE id = ?", (key,), one)
        case "key":
            other = chance.randrange(size)
            return Statement(
                "UPDATE OR IGNORE part SET id = ? WHERE id = ?",
                (other, key),
                one | _touches("part", [other]),
            )
    if columns and chance.random() < 0.5:
        column = chance.choice(columns)
        return Statement(f"UPDATE part SET {column} = ? WHERE id = ?", (text(chance), key), one)
    return Statement("UPDATE part SET weight = ? WHERE id = ?", (chance.randrange(9), key), one)


def _of_view(chance: Random, act: str, key: int, size: int, _: object) -> Statement:
    one = _touches(VIEW, [key])
    mark = chance.choice("uvw")
    match act:
        case "insert":
            row = (key, text(chance), chance.randrange(5))
            return Statement("INSERT OR IGNORE INTO box VALUES (?, ?, ?)", row, one)
        case "delete":
            return Statement("DELETE FROM box WHERE num = ?", (key,), one)
        case "key":
            other = chance.randrange(size)
            both = one | _touches(VIEW, [other])
            return Statement("UPDATE OR IGNORE box SET num = ? WHERE num = ?", (other, key), both)
        case "many":
            return Statement("DELETE FROM box_mark WHERE num = ? AND mark = ?", (key, mark), one)
        case "child":
            sql = "INSERT OR IGNORE INTO box_mark SELECT num, ? FROM box WHERE num = ?"
            return Statement(sql, (mark, key), one)
    return Statement("UPDATE box SET label = ? WHERE num = ?", (text(chance), key), one)


_OF_TABLE: dict[str, Callable[[Random, str, int, int, Sequence[str]], Statement]] = {
    "customer": _of_customer,
    "orders": _of_orders,
    "item": _of_item,
    "doc": _of_doc,
    "part": _of_part,
    VIEW: _of_view,
}


def _insert_parts(first: int, last: int) -> Statement:
    sql = (
        "INSERT OR IGNORE INTO part (id, name, weight) WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n "
        "WHERE i < ?) SELECT i, 'n' || i, i FROM n"
    )
    return Statement(sql, (first, last), _touches("part", [BURST]))


def _update_parts(first: int, last: int) -> Statement:
    sql = "UPDATE part SET weight = weight + 1 WHERE id BETWEEN ? AND ?"
    return Statement(sql, (first, last), _touches("part", [BURST]))


def _delete_parts(first: int, last: int) -> Statement:
    sql = "DELETE FROM part WHERE id BETWEEN ? AND ?"
    return Statement(sql, (first, last), _touches("part", [BURST]))


_HELD = BURST - 1
"""The key of an object that a transaction holds for long."""
_CHANGE_HELD = Statement(
    "UPDATE part SET weight = weight + 1 WHERE id = ?", (_HELD,), _touches("part", [_HELD])
)
_MAX_BURST_ROWS = 4000
"""The changes by bursts from which on they are small: a schedule takes a minute otherwise."""
_FURTHER = 100_000
"""The keys of objects that are written once begin behind it."""


class Application:
    """What writes the tables: one session that commits at once, and late transactions."""

    def __init__(self, world: World, path: Path, size: int, shape: Shape) -> None:
        self._world, self.path, self._size = world, path, size
        self.connect()
        self.late: dict[str, Late] = {}
        self.hidden: set[str] = set()
        """The tables that are renamed away."""
        self.shape = self.configured = shape
        self.former_columns: list[str] = []
        """What the tables are like, and what the configuration says that they are like."""
        self.written: set[int] = set()
        """The record_ids of rows that its transactions have committed. Those of commands are
        others.
        """
        self.committed_late: set[int] = set()
        """Those of them that were committed behind others with higher numbers."""
        self.unlogged: set[tuple[str, str]] = set()
        """The objects that were deleted while their table had no triggers."""
        self.has_cleared = False
        """True if a value became NULL in a column that no trigger captured: a receiver may have the
        value by reading back, and a resync of the objects with a value leaves the object out.
        """
        self.own: set[int] = set()
        """Those of them that are the publisher's own changes."""
        self._lates = self._columns = self._further = self._burst_rows = 0

    def connect(self) -> None:
        """Open the session. It waits for nobody: the scheduler does."""
        self.session = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        self.session.execute("PRAGMA foreign_keys = ON")
        self.session.execute("PRAGMA synchronous = OFF")
        with_virtual_time(self.session, self._world.scheduler)

    # --- transactions ---

    def commit(self, chance: Random) -> None:
        """Run a transaction of up to four statements; one of ten is rolled back."""
        statements = self._draw(chance, 4)
        self._transact(statements, "ROLLBACK" if chance.random() < 0.1 else "COMMIT")

    def commit_own(self, chance: Random) -> None:
        """Run a transaction of the publisher's own user, such as one of a driver that writes what
        comes from the other side."""
        self._transact(self._draw(chance, 2), "COMMIT", is_own=True)

    def burst(self, chance: Random) -> None:
        """Write hundreds or thousands of rows of the log at once."""
        if "part" in self.hidden:
            return
        most = self._world.plan.get("burst", 60)
        count = chance.choice([10, most // 2, most])
        if self._burst_rows > _MAX_BURST_ROWS:
            count = 10
        last = BURST + count
        insert = _insert_parts(BURST, last)
        update = _update_parts(BURST, last)
        delete = _delete_parts(BURST, last)
        # Twice: while an object is parked, windows with its later rows are read.
        several = chance.choice([[insert], [insert, update], [update], [update, update], [delete]])
        self._burst_rows += count * len(several)
        self._transact(several, "COMMIT")

    def burst_of(self, count: int, *, is_own: bool = False) -> None:
        """Insert so many objects, and update those that are there already. It may be a transaction
        of the publisher's own user.
        """
        if "part" not in self.hidden:
            last = BURST + count
            several = [_insert_parts(BURST, last), _update_parts(BURST, last)]
            self._transact(several, "COMMIT", is_own=is_own)

    def delete_burst(self) -> None:
        """Delete the objects of bursts."""
        if "part" not in self.hidden:
            self._transact([_delete_parts(BURST, _FURTHER - 1)], "COMMIT")

    def write_all_classes(self) -> None:
        """Insert an object of each of four classes, and two more, in the order in which documents
        of three have a part of each class."""
        self._further += 1
        key = _FURTHER + self._further
        insert = "INSERT INTO"
        statements = [
            *((f"{insert} item VALUES (?, 0, 'i', 1)", (key,)),),
            *((f"{insert} doc VALUES (?, 'b', 1)", (f"d{key}",)),),
            *((f"{insert} part (id, name, weight) VALUES (?, 'p', 1)", (key,)),),
            *((f"{insert} item VALUES (?, ?, 'i', 1)", (key, place)) for place in (1, 2)),
            *((f"{insert} orders SELECT ?, max(id), 1, 'o' FROM customer", (key,)),),
        ]
        self._transact([Statement(*one, frozenset()) for one in statements], "COMMIT")

    def delete_some(self, chance: Random) -> None:
        """Delete half of the objects of two classes that no transaction holds."""
        held = {one[0] for late in self.late.values() for one in late.touches}
        where = {"doc": "rowid", "part": f"id < {BURST} AND id"}
        half = chance.randrange(2)
        statements = [
            Statement(f"DELETE FROM {table} WHERE {number} % 2 = ?", (half,), frozenset())
            for table, number in where.items()
            if table not in self.hidden | held
        ]
        self._transact(statements, "COMMIT")

    def begin_late(self, chance: Random) -> None:
        """Begin a transaction that draws its numbers now and commits later."""
        if statements := self._draw(chance, 3):
            self._stay_open(statements)

    def begin_late_of_one(self) -> None:
        """Begin a transaction that changes one object, and stays open."""
        self._transact([_insert_parts(_HELD, _HELD)], "COMMIT")
        self._stay_open([_CHANGE_HELD])

    def _stay_open(self, statements: Sequence[Statement]) -> None:
        def act() -> None:
            run = self.session.execute
            run("BEGIN IMMEDIATE")
            top = self.top()
            self._run(statements)
            drawn, now = self._rows_above(top), self.top()
            run("ROLLBACK")
            if not drawn:
                return
            if not run(
                "UPDATE sqlite_sequence SET seq = ? WHERE name = 'eventlog'", (now,)
            ).rowcount:
                run("INSERT INTO sqlite_sequence VALUES ('eventlog', ?)", (now,))
            self._lates += 1
            name, record_ids = f"late{self._lates}", [row[0] for row in drawn]
            times = [row[-1] for row in drawn]
            self.late[name] = Late(statements, record_ids, times, _all_touched(statements))
            self._world.tell(f"{name} draws {record_ids} and stays open: {_told(statements)}")

        self.when_free(act)

    def go_on_late(self, chance: Random) -> None:
        """Let a late transaction write more of its objects, behind what others have written."""
        if not self.late or self.hidden:
            return
        name = chance.choice(sorted(self.late))
        touches = self.late[name].touches
        several = (
            statement(chance, self._classes, self._size, self.shape.columns) for _ in range(30)
        )
        if more := next((one for one in several if one.touches <= touches), None):
            self._go_on(name, more)

    def change_held(self) -> None:
        """Let a transaction of ``begin_late_of_one`` change its object again."""
        for name in sorted(self.late):
            if self.late[name].touches == _CHANGE_HELD.touches:
                self._go_on(name, _CHANGE_HELD)

    def _go_on(self, name: str, more: Statement) -> None:
        late = self.late[name]

        def act() -> None:
            run = self.session.execute
            run("BEGIN IMMEDIATE")
            top = self.top()
            self._run(late.statements)
            before = len(self._rows_above(top))
            self._run([more])
            times = [*late.times, *(row[-1] for row in self._rows_above(top)[before:])]
            added = len(times) - before
            run("ROLLBACK")
            if not added or before != len(late.record_ids):
                return
            run("UPDATE sqlite_sequence SET seq = ? WHERE name = 'eventlog'", (top + added,))
            drawn = [*late.record_ids, *range(top + 1, top + added + 1)]
            statements = [*late.statements, more]
            self.late[name] = Late(statements, drawn, times, late.touches)
            self._world.tell(f"{name} goes on, and draws {drawn[-added:]}: {_told([more])}")

        self.when_free(act)

    def end_late(self, chance: Random) -> None:
        """Commit a late transaction, or roll it back."""
        if not self.late or self.hidden:
            return
        name = chance.choice(sorted(self.late))

        def act() -> None:
            run, late = self.session.execute, self.late[name]
            run("BEGIN IMMEDIATE")
            top = self.top()
            self._run(late.statements)
            written = [row[0] for row in self._rows_above(top)]
            if chance.random() < 0.15 or len(written) > len(late.record_ids):
                run("ROLLBACK")
                self._world.tell(f"{name} rolls back")
            else:
                for number, drawn, time in zip(written, late.record_ids, late.times, strict=False):
                    run(
                        "UPDATE eventlog SET record_id = ?, event_time = ? WHERE record_id = ?",
                        (drawn, time, number),
                    )
                run("UPDATE sqlite_sequence SET seq = ? WHERE name = 'eventlog'", (top,))
                run("COMMIT")
                self.written.update(late.record_ids[: len(written)])
                self.committed_late.update(late.record_ids)
                self._world.tell(f"{name} commits {late.record_ids[: len(written)]}")
            del self.late[name]

        self.when_free(act)

    def _draw(self, chance: Random, most: int) -> list[Statement]:
        """Draw statements that touch no object of a late transaction, and no table that is
        unavailable.
        """
        tables = [table for table in self._classes if table not in self.hidden]
        locked = frozenset().union(*(late.touches for late in self.late.values()))
        drawn: list[Statement] = []
        for _ in range(chance.randint(1, most)):
            one = statement(chance, tables, self._size, self.shape.columns)
            touched = _all_touched([one])
            is_away = "*" in one.touches and self.hidden & {"customer", "orders"}
            if not is_away and not _meet(touched, locked):
                drawn.append(one)
        return drawn

    @property
    def _classes(self) -> tuple[str, ...]:
        return (*KEYS, VIEW) if self.shape.has_view else tuple(KEYS)

    def _transact(self, statements: Sequence[Statement], end: str, *, is_own: bool = False) -> None:
        if not statements:
            return

        def act() -> None:
            self.session.execute("BEGIN IMMEDIATE")
            top = self.top()
            self._run(statements)
            written = self._rows_above(top)
            if is_own:
                self.session.execute(
                    "UPDATE eventlog SET perpetrator = ? WHERE record_id > ?", (OWN_USER, top)
                )
            self.session.execute(end)
            if end == "COMMIT":
                self.written.update(row[0] for row in written)
                if is_own:
                    self.own.update(row[0] for row in written)
                    self._world.auditor.own_changes((row[2], row[3]) for row in written)
                self._world.tell(f"{'own ' if is_own else ''}commit: {_told(statements)}")
                self._world.tell(f"  rows {_rows_told(written)}")

        self.when_free(act)

    def _run(self, statements: Iterable[Statement]) -> None:
        before, filled = self.without_triggers(), self._filled()
        for sql, values, _ in statements:
            with suppress(sqlite3.IntegrityError):
                self.session.execute(self.shape.sql(sql), values)
        self.unlogged |= before - self.without_triggers()
        self.has_cleared = self.has_cleared or bool(filled - self._filled())

    def without_triggers(self) -> set[tuple[str, str]]:
        """Return the objects of ``part`` if it has no trigger, since its statements log nothing."""
        if "part" in self.hidden or self._drops():
            return set()
        return {
            ("part", f"id={key}")
            for (key,) in self.session.execute(self.shape.sql("SELECT id FROM part"))
        }

    def _filled(self) -> set[tuple[str, int]]:
        """Return the columns of ``part`` that no trigger captures, and the keys with values there."""
        if "part" in self.hidden or not self.shape.columns:
            return set()
        triggers = self.session.execute(
            "SELECT group_concat(sql) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?",
            (self.shape.names[-1],),
        ).fetchone()[0]
        return {
            (column, key)
            for column in self.shape.columns
            if column not in (triggers or "")
            for (key,) in self.session.execute(
                self.shape.sql(f"SELECT id FROM part WHERE {column} IS NOT NULL")
            )
        }

    # --- the schema ---

    def rename_away(self, table: str) -> None:
        """Take a table away: its name is another one for a while, and its triggers speak of it."""
        self._rename(self.shape.table(table), f"{table}_away", legacy="ON")
        self.hidden.add(table)

    def rename_back(self, table: str) -> None:
        self._rename(f"{table}_away", self.shape.table(table), legacy="ON")
        self.hidden.discard(table)

    def rename_part(self) -> None:
        """Rename ``part`` for good. SQLite writes the new name into the triggers."""
        names = (*self.shape.names, f"part{len(self.shape.names) + 1}")
        self._rename(self.shape.names[-1], names[-1], legacy="OFF")
        self.shape = replace(self.shape, names=names)

    def rename_key(self) -> None:
        """Rename the key of ``doc``."""
        keys = (*self.shape.keys, f"code{len(self.shape.keys) + 1}")
        self._change(f"ALTER TABLE doc RENAME COLUMN {self.shape.keys[-1]} TO {keys[-1]}")
        self.shape = replace(self.shape, keys=keys)

    def _rename(self, name: str, to: str, legacy: str) -> None:
        self._change(f"PRAGMA legacy_alter_table = {legacy}", f"ALTER TABLE {name} RENAME TO {to}")

    def add_column(self) -> None:
        """Give ``part`` a further column."""
        name = self._new_column()
        self._change(f"ALTER TABLE part ADD COLUMN {name} text")
        self.shape = replace(self.shape, columns=(*self.shape.columns, name))

    def fill_column(self, chance: Random) -> None:
        """Write values into the newest column of ``part``."""
        column = self.shape.columns[-1]
        touches = _touches("part", [*range(self._size), BURST])
        sql = f"UPDATE part SET {column} = 'v' || id || ? WHERE id < ? OR id BETWEEN {BURST} AND {BURST + 3}"
        values = (chance.randrange(9), self._size)
        if not any(_meet(touches, late.touches) for late in self.late.values()):
            self._transact([Statement(sql, values, touches)], "COMMIT")

    def rename_column(self, column: str) -> None:
        """Rename a column of ``part``."""
        name = self._new_column()
        self._change(f"ALTER TABLE part RENAME COLUMN {column} TO {name}")
        self.former_columns.append(column)
        columns = tuple(name if one == column else one for one in self.shape.columns)
        self.shape = replace(self.shape, columns=columns)

    def drop_column(self, column: str) -> None:
        """Drop a column of ``part``, and its triggers before, since SQLite refuses it otherwise."""
        self._change("BEGIN", *self._drops(), f"ALTER TABLE part DROP COLUMN {column}", "COMMIT")
        self.former_columns.append(column)
        columns = tuple(one for one in self.shape.columns if one != column)
        self.shape = replace(self.shape, columns=columns)

    def change_type(self) -> None:
        """Give ``part.weight`` another type, as SQLite does it: by a new table of the old name."""
        weight = "text" if self.shape.weight == "integer" else "integer"
        columns = "".join(f", {one} text" for one in self.shape.columns)
        self._change(
            "BEGIN",
            f"CREATE TABLE made (id integer PRIMARY KEY, name text, weight {weight}{columns})",
            "INSERT INTO made SELECT * FROM part",
            "DROP TABLE part",
            f"ALTER TABLE made RENAME TO {self.shape.names[-1]}",
            "COMMIT",
        )
        self.shape = replace(self.shape, weight=weight)

    def _new_column(self) -> str:
        self._columns += 1
        return f"extra{self._columns}"

    def _drops(self) -> list[str]:
        """Return what drops the triggers of ``part``."""
        found = self.session.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? ORDER BY 1",
            (self.shape.names[-1],),
        )
        return [f'DROP TRIGGER "{name}"' for (name,) in found]

    def _change(self, *statements: str) -> None:
        def act() -> None:
            for one in statements:
                self.session.execute(self.shape.sql(one))
            self._world.stats["schema changes"] += 1
            self._world.tell(f"the schema changes: {'; '.join(map(self.shape.sql, statements))}")

        self.when_free(act)

    # --- what there is ---

    def objects(self) -> dict[tuple[str, str], dict[str, list[str]]]:
        """Return the objects of all classes as a receiver has them: class and key -> values."""
        objects: dict[tuple[str, str], dict[str, list[str]]] = {}
        for table, key in KEYS.items():
            cursor = self.session.execute(f"SELECT * FROM {self.shape.table(table)}")
            columns = [column[0] for column in cursor.description]
            key = tuple(map(self.shape.sql, key))
            for row in cursor:
                values = dict(zip(columns, row, strict=True))
                text_of_key = "+".join(f"{column}={_quoted(values[column])}" for column in key)
                objects[table, text_of_key] = {
                    column: [str(value)]
                    for column, value in values.items()
                    if column not in key and value is not None
                }
        for owner, tag in self.session.execute("SELECT customer_id, tag FROM customer_tag"):
            objects["customer", f"id={owner}"].setdefault("customer_tag.tag", []).append(tag)
        if self.shape.has_view:
            for num, label, mark in self.session.execute(
                f"SELECT pk_num, sv_label, mv_mark FROM {VIEW}"
            ):
                values = objects.setdefault((VIEW, f"pk_num={num}"), {})
                if label is not None:
                    values["label"] = [label]
                if mark is not None:
                    values.setdefault("mark", []).append(mark)
        return objects

    def logged_tables(self) -> set[str]:
        """Return the tables that have a row in the log."""
        named = self.session.execute("SELECT DISTINCT table_name FROM eventlog")
        return {str(name) for (name,) in named}

    def top(self) -> int:
        """Return the highest record_id that was ever drawn."""
        found = self.session.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'eventlog'")
        return found.fetchone()[0] or 0

    def epoch(self) -> tuple[str | None]:
        """Return the epoch of the log, as its table has it."""
        found: tuple[str | None] = self.session.execute(
            "SELECT epoch FROM eventlog_epoch"
        ).fetchone()
        return found

    def newest_delivery(self) -> int:
        """Return the highest number of a delivery that was ever drawn."""
        found = self.session.execute(
            "SELECT max(seq) FROM sqlite_sequence WHERE name = 'eventlog_delivery'"
        )
        return found.fetchone()[0] or 0

    def _rows_above(self, record_id: int) -> list[tuple[Any, ...]]:
        return self.session.execute(
            "SELECT record_id, event_type, table_name, table_key, column_name, event_time FROM eventlog "
            "WHERE record_id > ? ORDER BY 1",
            (record_id,),
        ).fetchall()

    def when_free(self, act: Callable[[], None]) -> None:
        """Act as soon as nobody else has the lock of the file."""
        for _ in range(50_000):  # a command may wait for a late transaction for a minute
            try:
                return act()
            except sqlite3.OperationalError as error:
                if self.session.in_transaction:
                    self.session.execute("ROLLBACK")
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
            self._world.scheduler.run(1)
        raise AssertionError("the lock of the file is never free")


def _all_touched(statements: Iterable[Statement]) -> frozenset[Object | str]:
    return frozenset().union(*(one.touches for one in statements))


def _meet(some: frozenset[Object | str], others: frozenset[Object | str]) -> bool:
    """Return True if two sets of objects have one in common."""
    if some & others:
        return True
    return any(
        "*" in one and {entry[0] for entry in other} & {"customer", "orders", "*"}
        for one, other in ((some, others), (others, some))
    )


def _told(statements: Iterable[Statement]) -> str:
    return "; ".join(f"{one.sql} {one.values}" for one in statements)


def _rows_told(rows: Sequence[tuple[Any, ...]]) -> str:
    told = " ".join(
        f"{i}:{kind} {table[:4]} {key}{'.' + column if column else ''}"
        for i, kind, table, key, column, _ in rows[:20]
    )
    return f"{told} and {len(rows) - 20} more" if len(rows) > 20 else told or "none"


def _quoted(value: Any) -> str:
    text = str(value)
    return f'"{text}"' if any(one in ",;'+\"=\\<>" for one in text) else text
