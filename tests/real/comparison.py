"""A receiver of CloudEvents that keeps objects, and the comparison of its objects with the tables.

It uses nothing of the product: it is what somebody writes who has read
``docs/formats/cloudevents.md`` and ``docs/guides/receivers.md``.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

Key = tuple[Any, ...]
Values = dict[str, Any]
"""The values of an object by column; those of a child table are a Counter at ``child.column``."""

_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET IntervalStyle = 'postgres'",
    "SET extra_float_digits = 1",
)
_COLUMNS = """
SELECT attname, format_type(atttypid, NULL), array_position(conkey, attnum)
FROM pg_attribute LEFT JOIN pg_constraint ON conrelid = attrelid AND contype = 'p'
WHERE attrelid = quote_ident(%s)::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_FOREIGN_KEY = """
SELECT attname FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
WHERE contype = 'f' AND conrelid = quote_ident(%s)::regclass AND confrelid = quote_ident(%s)::regclass
"""


class Table(NamedTuple):
    types: dict[str, str]
    """By column."""
    key: list[str]


class State(NamedTuple):
    """What the tables of the classes have."""

    tables: dict[str, Table]
    objects: dict[str, dict[Key, Values]]
    attributes: frozenset[str]
    """``child.column`` of each child table."""


def state_of(
    session: psycopg.Connection[Any], classes: list[str], children: Mapping[str, str]
) -> State:
    """Read each row of the classes, with the values of their child tables. ``children``: the owner
    of each child table.
    """
    for setting in _SETTINGS:
        session.execute(setting.encode())
    tables = {name: _table(session, name) for name in classes}
    objects: dict[str, dict[Key, Values]] = {name: {} for name in classes}
    for name, table in tables.items():
        for row in _rows(session, name, table.types):
            key = tuple(row.pop(column) for column in table.key)
            objects[name][key] = row
    attributes = set()
    for child, owner in children.items():
        types = _table(session, child).types
        ((reference,),) = session.execute(_FOREIGN_KEY, (child, owner)).fetchall()
        (value,) = types.keys() - {reference}
        attributes.add(f"{child}.{value}")
        for row in _rows(session, child, types):
            if row[reference] is not None and row[value] is not None:
                values = objects[owner][(row[reference],)]
                values.setdefault(f"{child}.{value}", Counter())[row[value]] += 1
    return State(tables, objects, frozenset(attributes))


def _table(session: psycopg.Connection[Any], name: str) -> Table:
    columns = session.execute(_COLUMNS, (name,)).fetchall()
    key = sorted((place, column) for column, _, place in columns if place is not None)
    return Table({column: kind for column, kind, _ in columns}, [column for _, column in key])


def _rows(session: psycopg.Connection[Any], name: str, types: dict[str, str]) -> Iterator[Values]:
    chosen = sql.SQL(", ").join(_as_text(column, kind) for column, kind in types.items())
    query = sql.SQL("SELECT {} FROM {} t").format(chosen, sql.Identifier(name))
    for row in session.execute(query):
        yield {
            column: _from_text(text, kind)
            for (column, kind), text in zip(types.items(), row, strict=True)
        }


def _as_text(column: str, kind: str) -> sql.Composed:
    if kind.endswith("[]"):
        form = "array_to_json(t.{}::text[])::text"
    else:
        form = {
            "bytea": "replace(encode(t.{}, 'base64'), chr(10), '')",
            "character": "rtrim(t.{}::text)",
        }.get(kind, "t.{}::text")
    return sql.SQL(form).format(sql.Identifier(column))


def _from_text(text: str | None, kind: str) -> Any:
    if text is not None and (kind in ("json", "jsonb", "boolean") or kind.endswith("[]")):
        return json.loads(text)
    return canonical(text, kind)


def canonical(value: Any, kind: str) -> Any:
    """The value of a document, or of a table, as values of this type are compared."""
    if value is None or kind in ("json", "jsonb", "boolean"):
        return value
    if kind.endswith("[]"):
        return _leaves_as_text(value)
    if kind in ("smallint", "integer", "bigint"):
        return int(value)
    if kind in ("real", "double precision"):
        return str(float(value))
    if kind.startswith("timestamp") and isinstance(value, str):
        with suppress(ValueError):  # infinity, or a year that Python does not have
            return datetime.datetime.fromisoformat(value)
    return str(value) if isinstance(value, int | float) else value


def _leaves_as_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_leaves_as_text(element) for element in value]
    return value if value is None or isinstance(value, str) else json.dumps(value)


@dataclass
class Receiver:
    """The objects of each class, and what was wrong about an event when it was applied."""

    objects: dict[str, dict[Key, Values]]
    events: int = 0
    wrong: list[str] = field(default_factory=list)
    _read: set[Path] = field(default_factory=set)
    _applied: set[tuple[str, str]] = field(default_factory=set)

    def rename(self, old: str, new: str) -> None:
        """As the guide asks of a receiver when a table has been renamed."""
        self.objects[new] = self.objects.pop(old, {})

    def read(self, directory: Path, tables: Mapping[str, Table], *, is_strict: bool) -> None:
        """Apply the events of the files that have not been read, each event once. ``is_strict``: an
        update or a delete of an unknown object, or an old value other than the receiver's, is
        wrong. It is not while a schema changes: that is what the printed resyncs are for.
        """
        for file in sorted(set(directory.glob("*.json*")) - self._read):
            self._read.add(file)
            for line in file.read_text(encoding="utf-8").split("\n"):
                event = json.loads(line or "null")
                if event is not None and (event["source"], event["id"]) not in self._applied:
                    self._applied.add((event["source"], event["id"]))
                    self.events += 1
                    wrong = self._apply(event["data"], tables)
                    if is_strict:
                        self.wrong += (f"event {event['id']}: {what}" for what in wrong)

    def _apply(self, data: dict[str, Any], tables: Mapping[str, Table]) -> list[str]:
        name, operation = data["class"], data["operation"]
        table = tables.get(name, Table({}, list(data["key"])))
        key = tuple(canonical(data["key"][c], table.types.get(c, "text")) for c in data["key"])
        known = self.objects.setdefault(name, {})
        before = known.get(key)
        if operation == "delete":
            known.pop(key, None)
            return [] if before is not None else [f"delete of an unknown {name} {key}"]
        wrong = []
        if operation == "update" and before is None:
            wrong.append(f"update of an unknown {name} {key}")
        values = dict(before or {}) if operation == "update" else {}
        for column, change in data["columns"].items():
            kind = table.types.get(column, "text")
            if isinstance(change.get("new", change.get("old")), list) and "." in column:
                values[column] = _several(values.get(column, Counter()), change)
                continue
            if "old" in change and values.get(column) != canonical(change["old"], kind):
                wrong.append(
                    f"{name} {key} {column}: old {change['old']!r}, had {values.get(column)!r}"
                )
            values[column] = canonical(change.get("new"), kind)
        known[key] = values
        return wrong


def _several(values: Counter[Any], change: Mapping[str, Any]) -> Counter[Any]:
    """The values of a child table after a change."""
    if change.get("whole"):
        return Counter(change.get("new", ()))
    return values - Counter(change.get("old", ())) + Counter(change.get("new", ()))


class Compared(NamedTuple):
    objects: int
    values: int
    differences: list[str]


def compare(state: State, receiver: Receiver) -> Compared:
    """Compare each object and each value of the tables with the receiver's. A column that a table
    has lost is none of the table's: the receiver keeps its values (`docs/guides/change-a-schema.md`).
    """
    differences, values = [], 0
    for name, (types, _) in state.tables.items():
        of_tables, of_receiver = state.objects[name], receiver.objects.get(name, {})
        for key, row in of_tables.items():
            values += len(row)
            if key not in of_receiver:
                differences.append(f"{name} {key}: the receiver has no such object")
                continue
            received = of_receiver[key]
            for column in row.keys() | (received.keys() & state.attributes):
                if column in state.attributes:
                    have, is_there = received.get(column, Counter()), row.get(column, Counter())
                else:
                    have, is_there = canonical(received.get(column), types[column]), row[column]
                if have != is_there:
                    differences.append(f"{name} {key} {column}: {have!r}, but is {is_there!r}")
        differences += (
            f"{name} {key}: no such row" for key in of_receiver.keys() - of_tables.keys()
        )
    return Compared(sum(map(len, state.objects.values())), values, differences)
