"""What capturing and publishing cost on MariaDB and MySQL, beside the least that each server itself
needs for the same rows. Servers that this machine has not come from newer suites of Debian, as for
`make nightly`; what cannot be had is named.

Capture: one INSERT, UPDATE and DELETE of every row of a table; CPU seconds of the server, less
those of the same statement without a trigger, a changed row. The floor is a trigger of one INSERT
of constants into the log.

Drain: `eventlog publish --once` to files. The floor: SELECT ... INTO OUTFILE of the ten columns in
record_id order, and one UPDATE of their status. Then the parts of a Spark job are made, by one
statement. All is run in turn, round after round, one server after the other, each in a directory of
its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common
import psutil
import pytest
import sqlalchemy as sa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import mysql_servers

from eventlog.core.catalog.builder import build_catalog
from eventlog.sql import migrations
from eventlog.sql.connect.connection import connect
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.triggers import triggers_of
from eventlog.sql.triggers.watch import Style, WatchedTable

STYLES: tuple[Style, ...] = ("field", "remove_all", "field_query_back", "row_query_back")
TABLE = """CREATE TABLE usr (id int PRIMARY KEY, fname text, lname varchar(40), mail varchar(60),
    salary decimal(10, 2), hired date, active tinyint)"""
FILL = """INSERT INTO usr
SELECT seq, CONCAT('Name ', seq), CONCAT('Last ', seq), CONCAT('user', seq, '@example.org'), seq * 1.01,
    DATE '2020-01-01' + INTERVAL seq % 1000 DAY, seq % 2 FROM numbers WHERE seq <= {rows}"""
OPERATIONS = {
    "insert of 7 columns": FILL,
    "update of 2 columns": "UPDATE usr SET lname = CONCAT(lname, 'x'), salary = salary + 1",
    "delete": "DELETE FROM usr",
}
FLOOR = """CREATE TRIGGER floor_{0} AFTER {0} ON usr FOR EACH ROW INSERT INTO eventlog
    (status, event_type, event_time, perpetrator, table_name, table_key)
    VALUES ('N', 6, UTC_TIMESTAMP(6), NULL, 'usr', CONCAT('id=', {1}.id))"""
COLUMNS = (
    "record_id, status, event_type, event_time, perpetrator, table_name, table_key, column_name, "
    "old_value, new_value"
)


class Bench:
    """The server, its CPU, and a database with a log."""

    def __init__(self, server: mysql_servers.Server, url: sa.URL, rows: int) -> None:
        self.server = server
        self.dialect = load_dialect(server.build.dialect)
        self.engine = connect(url)
        root = server.url.set(database=url.database)
        self.root = sa.create_engine(root, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        self.process = psutil.Process(int((server.place / "pid").read_text()))
        self.url = url
        with self.engine.begin() as conn:
            migrations.upgrade(conn, log_table="eventlog")
        numbers = ", ".join(f"({number})" for number in range(1, rows + 1))
        self.run(
            TABLE,
            "CREATE TABLE numbers (seq int PRIMARY KEY)",
            f"INSERT INTO numbers VALUES {numbers}",
        )

    def run(self, *statements: str) -> float:
        """The CPU seconds that the server takes for statements."""
        with self.root.connect() as conn:
            before = self.cpu()
            for statement in statements:
                conn.exec_driver_sql(statement, execution_options={"no_parameters": True})
            return self.cpu() - before

    def cpu(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def watch(self, row_style: Style | None) -> None:
        with self.engine.begin() as conn:
            log = locate_log(self.dialect.open(conn), name="eventlog")
            database = self.dialect.open(conn).reflect(None)
            watches = () if row_style is None else (WatchedTable("usr", row_style=row_style),)
            catalog = build_catalog(database, tables=["usr"])
            triggers = triggers_of(self.dialect)
            triggers.apply(
                conn, triggers.plan(self.dialect.open(conn).log(log), database, catalog, watches)
            )


def capture(bench: Bench, rows: int, rounds: int) -> None:
    taken: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for way in ("no trigger", "floor", *STYLES):
            bench.watch(next((style for style in STYLES if style == way), None))
            for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                bench.run(f"DROP TRIGGER IF EXISTS floor_{event}")
                if way == "floor":
                    bench.run(FLOOR.format(event, row))
            for name, statement in OPERATIONS.items():
                bench.run("TRUNCATE eventlog")
                taken.setdefault((way, name), []).append(
                    bench.run(statement.format(rows=rows)) / rows * 1e6
                )
        bench.run("DROP TRIGGER IF EXISTS floor_INSERT")
    print(
        f"\n| CPU of the server, us a row ({rows} rows, {rounds} rounds) | "
        f"{' | '.join(OPERATIONS)} |"
    )
    print("|---" * (len(OPERATIONS) + 1) + "|")
    for way in ("no trigger", "floor", *STYLES):
        cells = []
        for name in OPERATIONS:
            own = taken[way, name]
            if way != "no trigger":
                own = [
                    cost - bare for cost, bare in zip(own, taken["no trigger", name], strict=True)
                ]
            cells.append(f"{'' if way == 'no trigger' else '+'}{common.spread(own, 1)}")
        print(f"| {way} | {' | '.join(cells)} |")


def drain(bench: Bench, rows: int, rounds: int) -> None:
    bench.watch("field")
    bench.run("DELETE FROM usr", "TRUNCATE eventlog", FILL.format(rows=rows // 6))
    bench.run("CREATE TABLE kept SELECT * FROM eventlog")
    with bench.root.connect() as conn:
        total = int(conn.exec_driver_sql("SELECT COUNT(*) FROM kept").scalar_one())
    print(
        "\n| round | floor: server CPU s | publish: client CPU s | server CPU s | ratio |  "
        f"({total} rows)"
    )
    print("|---|---|---|---|---|")
    ratios = []
    for number in range(1, rounds + 1):
        with tempfile.TemporaryDirectory(prefix="eventlog-bench-") as place:
            bench.run("TRUNCATE eventlog", "INSERT INTO eventlog SELECT * FROM kept")
            floor = bench.run(
                f"SELECT {COLUMNS} FROM eventlog ORDER BY record_id INTO OUTFILE 'floor.rows'",
                "UPDATE eventlog SET status = 'S' WHERE status = 'N'",
            )
            # A file without a directory stands beside the tables.
            (bench.server.place / "data" / str(bench.url.database) / "floor.rows").unlink()
            bench.run("TRUNCATE eventlog", "INSERT INTO eventlog SELECT * FROM kept")
            file = Path(place) / "eventlog.toml"
            url = bench.url.render_as_string(hide_password=False)
            file.write_text(
                f'[database]\nurl = "{url}"\n[[watch]]\ntable = '
                '"usr"\n[publisher]\nallow_loopback = true\n[sink]\ntype = "files"\ndirectory = '
                '"documents"\n'
            )
            before, client = bench.cpu(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [
                str(Path(sys.executable).with_name("eventlog")),
                "-c",
                str(file),
                "-q",
                "publish",
                "--once",
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            server = bench.cpu() - before
            spent = after.ru_utime + after.ru_stime - client.ru_utime - client.ru_stime
            ratios.append((spent + server) / floor)
            print(
                f"| {number} | {floor:.2f} | {spent:.2f} | {server:.2f} | {ratios[-1]:.2f} |",
                flush=True,
            )
    print(f"\nCPU ratio, client and server: {common.spread(ratios)}")


def parts(bench: Bench) -> None:
    """What a Spark job's first session takes to tell the others which rows N there are."""
    with bench.engine.connect() as conn:
        log = locate_log(bench.dialect.open(conn), name="eventlog")
        conn.rollback()
        bench.dialect.open(conn).export_snapshot()
        before, begun = bench.cpu(), time.perf_counter()
        found = bench.dialect.open(conn).log(log).log_parts(None, 1, 2**63 - 1, 200_000, 4)
        seconds, cpu = time.perf_counter() - begun, bench.cpu() - before
        conn.rollback()
    rows, runs = sum(part.rows for part in found), sum(len(part.ids or ()) for part in found)
    print(
        f"\nParts of {rows} rows ({len(found)}, of {runs} runs): {seconds:.2f} s, {cpu:.2f} s of "
        "the server's CPU"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=20_000, help="rows of a bulk statement (default %(default)s)"
    )
    parser.add_argument(
        "--drained", type=int, default=200_000, help="rows of the log (%(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="times that everything is run (%(default)s)"
    )
    parser.add_argument(
        "--servers",
        nargs="*",
        choices=list(mysql_servers.BUILDS),
        default=list(mysql_servers.BUILDS),
        help="the servers (all)",
    )
    options = parser.parse_args()
    for name in options.servers:
        try:
            run(name, options.rows, options.drained, options.rounds)
        except pytest.skip.Exception as reason:
            print(f"\n{name}: {reason}")


def run(name: str, rows: int, drained: int, rounds: int) -> None:
    """Print what a server takes."""
    build = mysql_servers.BUILDS[name]
    with mysql_servers.server(build=build) as server, server.database() as url:
        bench = Bench(server, url, max(rows, drained // 6))
        with bench.root.connect() as conn:
            version = conn.exec_driver_sql("SELECT VERSION()").scalar_one()
        print(f"\n{name} {version}, {common.python()}", flush=True)
        capture(bench, rows, rounds)
        drain(bench, drained, rounds)
        parts(bench)
        bench.engine.dispose()


if __name__ == "__main__":
    main()
