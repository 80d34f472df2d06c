"""A plan one step after the other, on two databases: no interleaving, no kills, no limits of a
window.

The same statements and commands run on SQLite and on PostgreSQL, and after each of them the
publisher and the consumers publish once. Answers are drawn by the object and the number of its
event, so that they are the same although record_ids may differ: what one statement writes to
several objects is in no order. ``differences`` compares the tables, the rows of the log with their
statuses, the events and documents that each receiver got, object by object, and what the receivers
have in the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import re
import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psycopg
from application import BURST, KEYS, SCHEMA, WATCHES, statement
from plans import Plan
from replicas import MOODS, Replica
from sqlalchemy import URL, make_url

from eventlog import cli
from eventlog.core.options import toml
from eventlog.errors import FatalAnswer, ReceiverUnavailable
from eventlog.model import Answer, Event, EventResult, Level
from eventlog.publisher.publisher import Publisher

_MOODS = ("good", "retry", "errors", "busy", "poisoned", "fatal")
"""The moods that answer event by event, or all alike."""
_OPTIONS = {"allow_loopback": True, "query_limit": 10_000, "delivery_rows": 10_000}


class Side(NamedTuple):
    """A database: its URL for the product, and a session of the application that commits at
    once.
    """

    name: str
    url: str
    session: Any
    refusals: type[Exception]

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement with ``?`` for values, and return its rows."""
        if self.name == "postgresql":
            sql = sql.replace("%", "%%").replace("?", "%s")
        cursor = self.session.execute(sql, values)
        return cursor.fetchall() if cursor.description else []


class _Receiver:
    """A replica that answers by the object and the number of its event."""

    def __init__(self) -> None:
        self.replica = Replica()
        self.mood: dict[str, float] = {}
        self.seed = 0
        self.got: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        """What came of each object: its events, or the documents that have one."""
        self._tries: Counter[str] = Counter()
        self._numbers: dict[str, int] = {}

    def receive(self, body: bytes, events: Sequence[Event]) -> Answer | None:
        verdicts: dict[str, EventResult] = {}
        for event in events:
            key = event.class_name, event.association.partition(",table=")[0]
            self.got[key].append(_told(event) + _plain(body, len(events)))
            one, verdict = event.event_id, self._verdict(event, key)
            if verdict is not None:
                verdicts[one] = verdict
            if verdict is None or verdict.level is Level.WARNING:
                self.replica.apply(event)
        if "general retry" in self.mood and any(
            verdict.level is Level.RETRY for verdict in verdicts.values()
        ):
            return Answer(general=EventResult(Level.RETRY, "busy"), results=verdicts)
        return Answer(results=verdicts) if verdicts else None

    def _verdict(self, event: Event, key: tuple[str, str]) -> EventResult | None:
        meaning = event.event_id.partition(".")[0]
        number = self._numbers.setdefault(meaning, len(self.got[key]))
        self._tries[event.event_id] += 1

        def draws(what: str) -> bool:
            told = f"{self.seed}/{what}/{key}/{number}/{self._tries[event.event_id]}"
            drawn = int.from_bytes(hashlib.blake2b(told.encode(), digest_size=4).digest(), "big")
            return drawn / 2**32 < self.mood.get(what, 0.0)

        for level in (Level.RETRY, Level.ERROR, Level.FATAL, Level.WARNING):
            if draws(level.name.lower()):
                return EventResult(level, "drawn")
        return None


def _told(event: Event) -> str:
    attributes = sorted(
        f"{one.name}: {' '.join(f'{step.op.value}{sorted(step.values)}' for step in one.steps)}"
        for one in event.attributes
    )
    return f"{event.operation.value} {'; '.join(attributes)}"


def _plain(body: bytes, events: int) -> str:
    """Return the document of one event without its number, and without what it says of its
    database; empty for several events.
    """
    if events > 1:
        return ""
    text = body.decode()
    if text.startswith("<"):
        return re.sub(r' (timestamp|event-id)="[^"]*"|,schema=public', "", text)
    told = json.loads(text)
    one = told[0] if isinstance(told, list) else told
    one.pop("id", None)
    return json.dumps(_without_origin(one.get("payload", one)))


def _without_origin(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_origin(one) for name, one in value.items() if name not in _OF_ORIGIN}
    return value.replace(",schema=public", "") if isinstance(value, str) else value


_OF_ORIGIN = ("source", "schema", "user", "time", "recordid", "ts_ms", "ts_us", "ts_ns")


class Serial:
    """A plan on one side."""

    def __init__(self, plan: Plan, side: Side, directory: Path) -> None:
        self._plan, self._side, self._directory = plan, side, directory
        self._receivers = {"": _Receiver()}
        self._begins: dict[str, str] = {}
        self._columns: list[str] = []
        self._hidden: set[str] = set()
        self.logged: list[Any] = []
        """The rows of each statement, those of an object without the order of the statement."""

    def run(self) -> None:
        """Take the steps of the plan, then let all be delivered."""
        acts: dict[str, Callable[[Random], None]] = {
            "commit": self._commit, "begin_late": self._commit, "burst": self._burst, "mood": self._mood,
            "rename_away": self._rename_away, "rename_back": self._rename_back, "add_column": self._add_column,
            "requeue": lambda _: self.command("requeue", "--status", "E,F"),
            "resync": lambda chance: self.command("resync", chance.choice(sorted(KEYS)), "--restart"),
            "deleted": lambda chance: self.command("resync", chance.choice(sorted(KEYS)), "--deletes", "--restart"),
            "purge": lambda _: self.command("purge", "--older-than", "0s"),
            "consumer": self._consumer,
        }  # fmt: skip
        for _, kind, seed in self._plan["steps"]:
            if kind in acts:
                acts[kind](Random(seed))
                if seed % 3 == 0:
                    self._publish()
        for table in sorted(self._hidden):
            self._rename(f"{table}_away", table)
        for receiver in self._receivers.values():
            receiver.mood = {}
        for _ in range(3):
            self._publish()

    # --- what happens ---

    def _commit(self, chance: Random) -> None:
        tables = [table for table in KEYS if table not in self._hidden]
        for _ in range(chance.randint(1, 4)):
            one = statement(chance, tables, self._plan["size"], self._columns)
            if not ("*" in one.touches and "orders" in self._hidden):
                self._write(one.sql, one.values)

    def _burst(self, chance: Random) -> None:
        if "part" in self._hidden:
            return
        last = BURST + chance.choice([30, 60, 200])
        sql = chance.choice([
            "INSERT INTO part (id, name, weight) WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "SELECT i, 'n' || i, i FROM n",
            "UPDATE part SET weight = weight + 1 WHERE id BETWEEN ? AND ?",
            "DELETE FROM part WHERE id BETWEEN ? AND ?",
        ])  # fmt: skip
        self._write(sql, (BURST, last))

    def _write(self, sql: str, values: Sequence[Any]) -> None:
        """Run a statement of the application; one that a key refuses does nothing."""
        if (
            "OR REPLACE INTO doc" in sql
        ):  # an update on one side, a delete and an insert on the other
            self._write("DELETE FROM doc WHERE code = ?", values[:1])
        if sql.startswith("UPDATE OR IGNORE customer SET id") and not self._side.ask(
            "SELECT 1 FROM customer_tag WHERE customer_id = ?", values[1:]
        ):
            return  # SQLite alone logs an 8 for a child without rows (spec/triggers.md 2)
        plain = re.sub(" OR (IGNORE|REPLACE)", "", sql)
        top = self._side.ask("SELECT max(record_id) FROM eventlog")[0][0] or 0
        with contextlib.suppress(self._side.refusals):
            self._side.ask(plain, values)
        rows = self._side.ask(
            "SELECT table_name, table_key, event_type, column_name, old_value, new_value FROM eventlog WHERE record_id > ? ORDER BY record_id",
            (top,),
        )
        self.logged.append((sql, values, sorted(rows, key=repr)))

    def _mood(self, chance: Random) -> None:
        receiver = self._receivers[chance.choice(sorted(self._receivers))]
        receiver.mood, receiver.seed = dict(MOODS[chance.choice(_MOODS)]), chance.randrange(2**31)

    def _rename_away(self, chance: Random) -> None:
        table = chance.choice([name for name in sorted(KEYS) if name != "customer"])
        if table not in self._hidden:
            self._rename(table, f"{table}_away")
            self._hidden.add(table)

    def _rename_back(self, chance: Random) -> None:
        for table in sorted(self._hidden)[:1]:
            self._rename(f"{table}_away", table)
            self._hidden.discard(table)

    def _rename(self, name: str, to: str) -> None:
        if self._side.name == "sqlite":
            self._side.ask("PRAGMA legacy_alter_table = ON")
        self._side.ask(f"ALTER TABLE {name} RENAME TO {to}")

    def _add_column(self, _: Random) -> None:
        if "part" not in self._hidden and len(self._columns) < 2:
            self._columns.append(f"extra{len(self._columns) + 1}")
            self._side.ask(f"ALTER TABLE part ADD COLUMN {self._columns[-1]} text")
            self.command("triggers", "apply")
            self.command("resync", "part", "--as-update", "--restart")

    def _consumer(self, chance: Random) -> None:
        name = f"cons{len(self._begins) + 1}"
        if len(self._begins) < 2:
            has_removed = bool(
                self._side.ask("SELECT removed FROM eventlog_epoch WHERE removed > 0")
            )
            self._begins[name] = "snapshot" if has_removed or chance.random() < 0.5 else "earliest"
            self._receivers[name] = _Receiver()

    # --- the product ---

    def _config(self, consumer: str) -> dict[str, Any]:
        size = [1, 5, 128][self._plan["first"] % 3]
        config: dict[str, Any] = {
            "database": {"url": self._side.url},
            "publisher": {**_OPTIONS, "batch_size": size},
            "watch": [dict(watch) for watch in WATCHES],
        }
        if consumer:
            config["source"] = {"type": "eventlog", "consumer": consumer, "start_from": self._begins[consumer]}  # fmt: skip
        if self._plan["format"] not in ("xds", "qlik-messages"):  # whose sink the machine makes
            config["format"] = {"type": self._plan["format"]}
        return config

    def _publish(self) -> None:
        for name, receiver in sorted(self._receivers.items()):
            publisher = Publisher.from_config(self._config(name), sink=receiver.receive, environ={})
            with contextlib.suppress(ReceiverUnavailable, FatalAnswer):
                publisher.run_once()

    def command(self, *words: str) -> None:
        """Run a command of an operator."""
        path = self._directory / f"{self._side.name}.toml"
        path.write_text(_as_toml(self._config("")))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            cli.run(["--config", str(path), *words])

    # --- what is left ---

    def state(self) -> dict[str, Any]:
        """Return all that must be the same on both sides."""
        ask = self._side.ask
        letters = defaultdict(list)
        for table, key, letter in ask("SELECT table_name, table_key, status FROM eventlog ORDER BY record_id"):  # fmt: skip
            letters[table, key].append(letter.rstrip())
        told: dict[str, Any] = {
            f"table {table}": sorted(ask(f"SELECT * FROM {table}"), key=repr)
            for table in (*KEYS, "customer_tag")
        }
        told["letters"] = {key: sorted(several) for key, several in letters.items()}
        told["deliveries"] = len(ask("SELECT * FROM eventlog_inflight"))
        told["errors"] = sorted(ask("SELECT code, consumer, count(*) FROM eventlog_error GROUP BY code, consumer"), key=repr)  # fmt: skip
        for name, receiver in self._receivers.items():
            told[f"events of {name or 'the publisher'}"] = dict(receiver.got)
            told[f"objects of {name or 'the receiver'}"] = {
                (key[0], key[1].partition(",table=")[0]): {
                    name: sorted(values) for name, values in state.items()
                }
                for key, state in receiver.replica.objects.items()
            }
        return told


def _as_toml(config: dict[str, Any]) -> str:
    parts = []
    for name, sections in config.items():
        for section in sections if isinstance(sections, list) else [sections]:
            head = f"[[{name}]]" if isinstance(sections, list) else f"[{name}]"
            parts.append("\n".join([head, *(f"{key} = {toml(value)}" for key, value in section.items())]))  # fmt: skip
    return "\n".join(parts)


# --- the two sides --------------------------------------------------------------------------------


@contextmanager
def two_sides(postgres: str, directory: Path) -> Iterator[Callable[[Plan], list[str]]]:
    """Yield a function that runs a plan on both databases, and returns where they differ.

    ``postgres`` is the URL of a server where databases may be made; each plan has one from a
    template.
    """
    logging.disable(logging.CRITICAL)
    url, own = make_url(postgres), f"eventlog_serial_{os.getpid()}"
    with closing(psycopg.connect(_conninfo(url), autocommit=True)) as admin, ExitStack() as kept:
        # Files are copied, not written through the log; older servers know no other way.
        copying = " STRATEGY FILE_COPY" if admin.info.server_version >= 150_000 else ""

        @contextmanager
        def database(name: str, template: str) -> Iterator[URL]:
            admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} ENCODING 'UTF8'{copying}")
            try:
                yield url.set(database=name)
            finally:
                admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

        template = kept.enter_context(database(own, "template0"))
        for opened in (_sqlite(directory / "template.db"), _postgres(template)):
            with opened as side:
                for one in filter(str.strip, SCHEMA.split(";")):
                    side.ask(one)
                made = Serial({"first": 0, "format": "xds"}, side, directory)
                made.command("db", "upgrade")
                made.command("triggers", "apply")

        def run(plan: Plan) -> list[str]:
            shutil.copy(directory / "template.db", directory / "serial.db")
            ended = []
            with database(f"{own}_plan", own) as copied:
                for opened in (_sqlite(directory / "serial.db"), _postgres(copied)):
                    with opened as side:
                        serial = Serial(plan, side, directory)
                        serial.run()
                        ended.append((serial.logged, serial.state()))
            return list(differences(*ended))

        yield run
    logging.disable(logging.NOTSET)


def differences(one: tuple[Any, Any], other: tuple[Any, Any]) -> Iterator[str]:
    """Yield where two sides differ, the first rows of the log first."""
    for (sql, values, rows), (_, _, others) in zip(one[0], other[0], strict=True):
        if rows != others:
            yield f"{sql} {values}: {rows} and {others}"
            break
    for name in sorted(one[1].keys() | other[1].keys()):
        told, there = one[1].get(name), other[1].get(name)
        if told == there:
            continue
        if isinstance(told, dict) and isinstance(there, dict):
            key = min((key for key in told.keys() | there.keys() if told.get(key) != there.get(key)), key=repr)  # fmt: skip
            name, told, there = f"{name}, {key}", told.get(key), there.get(key)
        yield f"{name}: {told} and {there}"


@contextmanager
def _sqlite(path: Path) -> Iterator[Side]:
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as session:
        session.execute("PRAGMA journal_mode = WAL")
        session.execute("PRAGMA foreign_keys = ON")
        session.execute("PRAGMA synchronous = OFF")
        yield Side("sqlite", f"sqlite:///{path}", session, sqlite3.IntegrityError)


@contextmanager
def _postgres(url: URL) -> Iterator[Side]:
    told = url.render_as_string(hide_password=False)
    with closing(psycopg.connect(_conninfo(url), autocommit=True, cursor_factory=psycopg.ClientCursor)) as session:  # fmt: skip
        yield Side("postgresql", told, session, psycopg.IntegrityError)


def _conninfo(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)
