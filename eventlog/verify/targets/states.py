"""Keep the states of objects in a temporary SQLite database, so that memory does not grow with the
number of objects (spec/verify.md 4.2).

Every object of a target passes through this database, so a state is a tuple in Python's own binary
form (``marshal``): JSON would take three times as long. The objects of a class whose keys are
ordered are read by ranges of keys, which needs no search for each object.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from eventlog.core.catalog import ObjectClass
from eventlog.sql.port.log_operations import KeyValues, RangeReader
from eventlog.verify.comparison import SEVERAL, Entry, RangeRow, TargetRow, row_of_entries
from eventlog.verify.ordered_keys import OrderedKeys, ordered_keys
from eventlog.verify.private_database import private_database, write_rows
from eventlog.verify.targets import KeyLists, Target

KEPT: Final = 20_000
"""The maximum number of states in memory. More states are written to the database."""
FEW: Final = 50
"""The minimum number of rows that are written separately."""
_ASKED: Final = 500
"""The maximum number of keys in one statement."""
_TABLE: Final = (
    "CREATE TABLE state (class INTEGER, key, content BLOB, seen INTEGER DEFAULT 0, "
    "PRIMARY KEY (class, key)) WITHOUT ROWID"
)
_PUT: Final = (
    "INSERT INTO state (class, key, content) VALUES (?, ?, ?) "
    "ON CONFLICT (class, key) DO UPDATE SET content = excluded.content"
)
_ADD: Final = (
    "INSERT INTO state (class, key, content) VALUES (?, ?, ?) "
    "ON CONFLICT (class, key) DO UPDATE SET content = ?"
)
# The database is a private file of this process, so its content can be trusted.
_loads: Final[Callable[[bytes], Any]] = marshal.loads

State: TypeAlias = list[Entry]
"""The values of an object, in the order of the attributes of its class."""


class _Form(NamedTuple):
    """How the states of a class are stored. ``ordered`` is None if the keys of the class have no
    order.
    """

    number: int
    names: Sequence[str]
    ordered: OrderedKeys | None

    @property
    def width(self) -> int:
        """The number of key values at the beginning of a stored state."""
        return 0 if self.ordered is None else self.ordered.width

    def place_of(self, key: str) -> Any:
        """Return the value by which the database sorts the object with this key."""
        return key if self.ordered is None else self.ordered.place_of(self.ordered.values_of(key))


class States:
    """The states of objects by class and canonical key. ``attributes`` are the names of the
    attributes of each class. The column ``seen`` marks the objects that ``rows`` was called with.
    """

    def __init__(self, attributes: Mapping[ObjectClass, Sequence[str]]) -> None:
        self._forms = {
            cls.name: _Form(number, names, ordered_keys(cls))
            for number, (cls, names) in enumerate(attributes.items())
        }
        self._changed: dict[tuple[str, str], State | None] = {}
        self._rows: list[tuple[int, Any, bytes]] = []
        """Changed states in the form of the database, older than the states in ``_changed``."""
        self._read: dict[tuple[str, str], State | None] = {}
        """States that ``read`` found in the database."""
        self._database = private_database(65_536, _TABLE)

    def read(self, names: Iterable[tuple[str, str]]) -> None:
        """Read the states of the objects for which ``get`` will be called, with one statement for
        many objects. An object is given as class and key.
        """
        self._write_rows()
        wanted: dict[str, list[str]] = {}
        for name in names:
            if name not in self._changed:
                wanted.setdefault(name[0], []).append(name[1])
        self._read = {}
        for class_name, keys in wanted.items():
            found = self._stored(class_name, keys)
            self._read |= {(class_name, key): found.get(key) for key in keys}

    def get(self, class_name: str, key: str) -> State | None:
        """Return the state of an object, None if the object has no state."""
        name = class_name, key
        if name in self._changed:
            return self._changed[name]
        self._write_rows()
        if name not in self._read:
            self._read[name] = self._stored(class_name, [key]).get(key)
        state = self._read[name]
        return None if state is None else list(state)

    def put(self, class_name: str, key: str, state: State | None) -> None:
        """Set the state of an object; None = the object does not exist."""
        self._changed[class_name, key] = state
        if len(self._changed) > KEPT:
            self.write()

    def put_all(
        self, class_name: str, keys: Sequence[str], rows: Sequence[Sequence[Entry]]
    ) -> None:
        """Set the states of objects that exist."""
        if len(keys) < FEW:
            for key, row in zip(keys, rows, strict=True):
                self.put(class_name, key, list(row))
            return
        if self._changed:
            self.write()
        number, _, ordered = self._forms[class_name]
        if ordered is None:
            self._rows += [
                (number, key, marshal.dumps(tuple(row)))
                for key, row in zip(keys, rows, strict=True)
            ]
        else:
            self._rows += [
                (number, ordered.place_of(values), marshal.dumps((*values, *row)))
                for values, row in zip(map(ordered.values_of, keys), rows, strict=True)
            ]
        if len(self._rows) > KEPT:
            self._write_rows()

    def add_all(self, class_name: str, rows: Iterable[tuple[str, State]]) -> None:
        """Add rows of a table. Each row is a key and a state. An object with several rows gets
        ``SEVERAL`` as its only entry.
        """
        self.write()
        number, _, ordered = self._forms[class_name]

        def added() -> Iterator[tuple[int, Any, bytes, bytes]]:
            for key, state in rows:
                values = () if ordered is None else ordered.values_of(key)
                place = key if ordered is None else ordered.place_of(values)
                content = marshal.dumps((*values, *state))
                yield number, place, content, marshal.dumps((*values, SEVERAL))

        write_rows(self._database, _ADD, added())

    def clear(self, class_name: str) -> None:
        """Remove all objects of a class."""
        self.write()
        number = self._forms[class_name].number
        self._database.execute("DELETE FROM state WHERE class = ?", (number,))

    def write(self) -> None:
        """Write the changed states to the database. Call this function before ``rows``,
        ``other_keys`` and ``range``.
        """
        self._write_rows()
        gone: list[tuple[int, Any]] = []
        there: list[tuple[int, Any, bytes]] = []
        for (class_name, key), state in self._changed.items():
            number, _, ordered = self._forms[class_name]
            place, values = key, ()
            if ordered is not None:
                values = ordered.values_of(key)
                place = ordered.place_of(values)
            if state is None:
                gone.append((number, place))
            else:
                there.append((number, place, marshal.dumps((*values, *state))))
        write_rows(self._database, "DELETE FROM state WHERE class = ? AND key = ?", gone)
        write_rows(self._database, _PUT, there)
        self._changed, self._read = {}, {}

    def _write_rows(self) -> None:
        if self._rows:
            write_rows(self._database, _PUT, self._rows)
            self._rows, self._read = [], {}

    def rows(self, class_name: str, keys: Sequence[str]) -> Mapping[str, TargetRow]:
        """Return the states of objects by key; objects without a state are left out."""
        form = self._forms[class_name]
        for start in range(0, len(keys), _ASKED):
            places = [form.place_of(key) for key in keys[start : start + _ASKED]]
            self._database.execute(
                f"UPDATE state SET seen = 1 WHERE {_among(places)}",  # noqa: S608 - marks alone
                (form.number, *places),
            )
        return {
            key: row_of_entries(form.names, state)
            for key, state in self._stored(class_name, keys).items()
        }

    def other_keys(self, class_name: str, size: int) -> KeyLists:
        """Yield the keys of objects that ``rows`` was never called with, in lists of ``size``."""
        form = self._forms[class_name]
        reached = None
        while True:
            behind = "" if reached is None else "AND key > ?"
            rows = self._database.execute(
                f"SELECT key, content FROM state WHERE class = ? {behind} AND seen = 0 "  # noqa: S608
                "ORDER BY key LIMIT ?",
                (form.number, *(() if reached is None else (reached,)), size),
            ).fetchall()
            if not rows:
                return
            reached = rows[-1][0]
            yield [
                place if form.ordered is None else form.ordered.text_of(_loads(content))
                for place, content in rows
            ]

    def range(
        self, class_name: str, behind: KeyValues | None, last: KeyValues | None, limit: int
    ) -> list[RangeRow]:
        """Return the first objects of a class whose keys are after ``behind`` and not after
        ``last``, as a ``RangeReader`` does, but with an ``Entry`` in place of each text.
        """
        number, _, ordered = self._forms[class_name]
        assert ordered is not None
        conditions, binds = ["class = ?"], [number]
        for bound, operator in ((behind, ">"), (last, "<=")):
            if bound is not None:
                conditions.append(f"key {operator} ?")
                binds.append(ordered.place_of(bound))
        rows = self._database.execute(
            f"SELECT content FROM state WHERE {' AND '.join(conditions)} "  # noqa: S608
            "ORDER BY key LIMIT ?",
            (*binds, limit),
        )
        return [_loads(content) for (content,) in rows]

    def present(self, class_name: str, keys: Sequence[KeyValues]) -> Collection[KeyValues]:
        """Return the given keys whose objects exist."""
        ordered = self._forms[class_name].ordered
        assert ordered is not None
        places = list(map(ordered.place_of, keys))
        found = {place for (place,) in self._stored_at(class_name, places, "key")}
        return {key for key, place in zip(keys, places, strict=True) if place in found}

    def close(self) -> None:
        """Remove the database."""
        self._database.close()

    def _stored_at(
        self, class_name: str, places: Sequence[Any], columns: str
    ) -> Iterator[tuple[Any, ...]]:
        """Yield columns of the stored objects at these places."""
        number = self._forms[class_name].number
        for start in range(0, len(places), _ASKED):
            part = places[start : start + _ASKED]
            yield from self._database.execute(
                f"SELECT {columns} FROM state WHERE {_among(part)}",  # noqa: S608 - marks alone
                (number, *part),
            )

    def _stored(self, class_name: str, keys: Sequence[str]) -> dict[str, State]:
        """Return the states that the database has for these keys, by key."""
        form = self._forms[class_name]
        names = {form.place_of(key): key for key in keys}
        return {
            names[place]: list(_loads(content)[form.width :])
            for place, content in self._stored_at(class_name, list(names), "key, content")
        }


class StatesTarget(Target):
    """A target that is read as a whole: ``pin`` puts the states of its objects into ``states``."""

    is_pinned = True
    states: States | None = None

    def rows(self, cls: ObjectClass, keys: Sequence[str]) -> Mapping[str, TargetRow]:
        return self.kept.rows(cls.name, keys)

    def other_keys(self, cls: ObjectClass, size: int) -> KeyLists:
        return self.kept.other_keys(cls.name, size)

    def range_reader(self, cls: ObjectClass) -> RangeReader | None:
        keys = ordered_keys(cls)
        if keys is None:
            return None
        return RangeReader(
            keys.orders,
            lambda behind, last, limit: self.kept.range(cls.name, behind, last, limit),
            present=lambda keys: self.kept.present(cls.name, keys),
        )

    def close(self) -> None:
        if self.states is not None:
            self.states.close()

    @property
    def kept(self) -> States:
        """The states, once ``pin`` was called."""
        assert self.states is not None
        return self.states


def _among(places: Sequence[Any]) -> str:
    """Return the condition that selects these objects of a class, with a question mark for each
    value.
    """
    return f"class = ? AND key IN ({', '.join('?' * len(places))})"
