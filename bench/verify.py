"""Verify a table: what one comparison costs, against the first load of the same objects.

    python bench/verify.py [OBJECTS]        1,000,000 by default; 10,000,000 is the long form

The targets are tables in another database of the same server, and the files of the first load. A
table is compared by ranges of its integer key, as a view, and by a text key, of the same collation
and of another one. The first load is `eventlog resync` and a publisher that sends each object once,
to files.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import sqlalchemy as sa
from common import LOG, SCHEMA, Cost, Meter, Server, configuration, install, server

from eventlog.config.load import load
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.configured_sink import open_sink
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.verify import VerifyOptions
from eventlog.verify.session import open_target, run_verification

OBJECTS = 1_000_000
_COLUMNS = (
    "fname varchar(40), lname varchar(40), mail varchar(80), salary numeric(10, 2), hired date"
)
_VALUES = (
    "'first ' || n, 'last ' || n, 'user.' || n || '@example.org', n * 0.25, "
    "date '2020-01-01' + CAST(n % 2000 AS integer) "
    "FROM generate_series(1, CAST(:objects AS bigint)) AS n"
)
_CODED = (
    f"CREATE TABLE {{}}coded (code varchar(40) PRIMARY KEY, {_COLUMNS})",
    f"INSERT INTO {{}}coded SELECT 'user ' || n, {_VALUES}",
    "VACUUM (ANALYZE) {}coded",
)
_USERS = (f"INSERT INTO {{}}usr SELECT n, {_VALUES}", "VACUUM (ANALYZE) {}usr")
_VIEW = (
    f"CREATE VIEW {SCHEMA}.usr_view AS SELECT idu AS pk_idu, fname AS sv_fname, lname AS sv_lname, "
    f"mail AS sv_mail, salary AS sv_salary, hired AS sv_hired FROM {SCHEMA}.usr"
)
_OF_VIEW = (
    "CREATE TABLE usr_view AS SELECT idu AS pk_idu, fname, lname, mail, salary, hired FROM usr",
    "ALTER TABLE usr_view ADD PRIMARY KEY (pk_idu)",
    "VACUUM (ANALYZE) usr_view",
)


@contextmanager
def measured(bench: Server) -> Iterator[list[Cost]]:
    """Yield a list that has the cost of the block after it: CPU of this process and the server."""
    costs: list[Cost] = []
    meter, cpu = Meter(bench), time.process_time()
    yield costs
    cost = meter.stop()
    costs.append(Cost(cost.wall, time.process_time() - cpu, cost.server))


def first_load(bench: Server, file: Path) -> Cost:
    """Load all objects into files."""
    config = load(file, {"EVENTLOG_DATABASE_URL": bench.url})
    with measured(bench) as costs:
        bench.run(
            f"INSERT INTO {LOG} (event_type, table_name, table_key) "
            f"SELECT 5, 'usr', 'idu=' || idu FROM {SCHEMA}.usr ORDER BY idu"
        )
        with (
            open_context(config, Counters()) as context,
            closing(open_sink(config, sys.stdout)) as sink,
        ):
            publish_once(context, sink)
    return costs[0]


def compare(bench: Server, file: Path, target: str, name: str = "usr") -> Cost:
    """Compare a whole class with a target, which is equal."""
    config = load(file, {"EVENTLOG_DATABASE_URL": bench.url})
    with measured(bench) as costs, closing(open_target(config, target)) as opened:
        report = run_verification(config, opened, [name], VerifyOptions(wait=0))
    assert report.result == "equal", report.differences[:5]
    return costs[0]


def tell(what: str, objects: int, cost: Cost, whole: Cost | None = None) -> None:
    server = cost.server or 0.0
    cpu = cost.client + server
    share = "" if whole is None else f", {cpu / (whole.client + (whole.server or 0.0)):.0%} of it"
    print(
        f"{what}: {cost.wall:.1f} s; CPU of the client {cost.client:.1f} s, of the server "
        f"{server:.1f} s, {cpu / objects * 1e6:.1f} us an object{share}",
        flush=True,
    )


def fill(server: Server, prefix: str, objects: int) -> None:
    """Make the rows of the tables; ``prefix`` is the schema."""
    for statement in (*_USERS, *_CODED):
        server.run(statement.replace("{}", prefix), objects=objects)


def main() -> None:
    objects = int(sys.argv[1]) if len(sys.argv) > 1 else OBJECTS
    with server() as bench, tempfile.TemporaryDirectory() as name:
        file = configuration(Path(name))
        with file.open("a") as config:
            config.writelines(f'[[watch]]\ntable = "{one}"\n' for one in ("usr_view", "coded"))
        install(bench)
        fill(bench, f"{SCHEMA}.", objects)
        bench.run(_VIEW)
        bench.run("CREATE DATABASE verify_copy")
        url = sa.make_url(bench.url).set(database="verify_copy")
        copy = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        table = Server(url.render_as_string(hide_password=False), copy, bench.place)
        table.run(f"CREATE TABLE usr (idu integer PRIMARY KEY, {_COLUMNS})")
        fill(table, "", objects)
        table.run(*_OF_VIEW)
        whole = first_load(bench, file)
        tell("first load", objects, whole)
        documents = str(Path(name) / "documents")
        for what, one, target in (
            ("a table", "usr", table.url),
            ("a view", "usr_view", table.url),
            ("files", "usr", documents),
            ("a table with a text key", "coded", table.url),
        ):
            tell(f"verify of {what}", objects, compare(bench, file, target, one), whole)
            print(f"  memory at most {getrusage(RUSAGE_SELF).ru_maxrss >> 10} MB", flush=True)
        # Now its texts are sorted differently, as far as anyone can know.
        table.run(
            'ALTER TABLE coded ALTER code TYPE varchar(40) COLLATE "C"', "VACUUM (ANALYZE) coded"
        )
        cost = compare(bench, file, table.url, "coded")
        tell("verify of a table with a text key of another collation", objects, cost, whole)
        copy.dispose()
        bench.run("DROP DATABASE verify_copy WITH (FORCE)")


if __name__ == "__main__":
    main()
