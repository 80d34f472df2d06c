"""What the benchmarks share: a server, a log full of rows, the real command line, and what a run
cost.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import sqlalchemy as sa

from eventlog import __version__
from eventlog.sql import embedded, migrations
from eventlog.sql.connect.locate import locate_log
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.port.leaves import Partitioning
from eventlog.sql.port.open_log import OpenLog

sys.path.append(
    str(Path(__file__).resolve().parents[1] / "tests")
)  # the mock cluster is that of the tests

SCHEMA = "bench"
LOG = f"{SCHEMA}.eventlog"
COLUMNS = (
    "record_id, status, event_type, event_time, perpetrator, table_name, table_key, column_name, "
    "old_value, new_value"
)

_TABLE = f"""
CREATE TABLE {SCHEMA}.usr (
    idu integer PRIMARY KEY,
    fname varchar(40),
    lname varchar(40),
    mail varchar(80),
    salary numeric(10, 2),
    hired date
)"""

# Of ten changes three insert a user (3 rows each), three update one column, three update two, one
# deletes: 19 rows that make 10 events. Users that are changed lie scattered, as they do when many
# sessions write.
_FILL = f"""
INSERT INTO {LOG} (event_type, event_time, perpetrator, table_name, table_key, column_name, old_value, new_value)
SELECT event_type, timestamp '2026-01-01' + change * interval '1 ms', 'hr_app', 'usr', 'idu=' || idu, column_name,
       CASE WHEN event_type = 2 THEN value || ' before' END,
       CASE WHEN event_type <> 4 THEN value END
FROM (SELECT change, CASE WHEN change % 10 < 3 THEN 1000000 + change ELSE change * 7919 % 199999 + 1 END AS idu
      FROM generate_series(1, CAST(:rows AS bigint) * 10 / 19 + 10) AS change) AS changes
JOIN (VALUES (0, 2, 1, 1, 'fname'), (0, 2, 1, 2, 'lname'), (0, 2, 1, 3, 'mail'),
             (3, 5, 2, 1, 'mail'),
             (6, 8, 2, 1, 'lname'), (6, 8, 2, 2, 'mail'),
             (9, 9, 4, 1, NULL)) AS shapes (lowest, highest, event_type, place, column_name)
    ON change % 10 BETWEEN lowest AND highest
CROSS JOIN LATERAL (
    SELECT CASE column_name
        WHEN 'fname' THEN (ARRAY['Ann', 'Béla', 'Chloë', 'Dmitri', 'Fatima', 'Grace', 'Hiro', 'Joan'])[idu % 8 + 1]
        WHEN 'lname' THEN (ARRAY['O''Brien', 'Smith & Sons', 'García', 'Müller', 'Ivanov'])[idu % 5 + 1] || change
        ELSE 'user.' || idu || '.' || change || '@example.org'
    END) AS vals (value)
ORDER BY change, place
LIMIT :rows"""


@dataclass(frozen=True, slots=True)
class Server:
    """A database of its own for the benchmark. ``url`` as the command line takes it."""

    url: str
    engine: sa.Engine
    place: str

    def run(self, *statements: str, **parameters: object) -> None:
        """Each statement in a transaction of its own."""
        with self.engine.connect() as connection:
            for statement in statements:
                connection.execute(sa.text(statement), parameters if ":" in statement else {})

    def value(self, statement: str) -> Any:
        with self.engine.connect() as connection:
            return connection.execute(sa.text(statement)).scalar_one()


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run cost, in seconds: by the clock, CPU of the client process, CPU of the server
    (None: not seen).
    """

    wall: float
    client: float
    server: float | None


@contextmanager
def server(place: str = "/tmp") -> Iterator[Server]:
    """EVENTLOG_BENCH_POSTGRES_URL (of a superuser), else the embedded PostgreSQL with its settings
    as installed. Its data is in a new directory of ``place``, whose path must be short.
    """
    given = os.environ.get("EVENTLOG_BENCH_POSTGRES_URL")
    if given:
        with _database(given, "a server of its own") as made:
            yield made
        return
    directory = Path(
        tempfile.mkdtemp(prefix="el-bench-", dir=place)
    )  # a socket's path must be short
    try:
        with embedded.running(directory / "pg") as url, _database(url, "embedded") as made:
            yield made
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _database(server_url: str, place: str) -> Iterator[Server]:
    url = sa.make_url(server_url).set(drivername="postgresql+psycopg")
    admin = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    name = f"eventlog_bench_{os.getpid()}"
    with admin.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"))
    own = url.set(database=name)
    engine = sa.create_engine(own, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    try:
        yield Server(own.render_as_string(hide_password=False), engine, place)
    finally:
        engine.dispose()
        with admin.connect() as connection:
            connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))


def install(bench: Server) -> None:
    """The watched class, and the log as ``eventlog db upgrade`` makes it."""
    bench.run(f"CREATE SCHEMA {SCHEMA}", _TABLE)
    with bench.engine.execution_options(isolation_level="READ COMMITTED").connect() as connection:
        migrations.upgrade(connection, log_table="eventlog", schema=SCHEMA)
        connection.commit()


def fill(bench: Server, rows: int) -> None:
    """``rows`` new rows of types 1, 2 and 4 in the log, in place of what it holds."""
    bench.run(f"TRUNCATE {LOG}")
    bench.run(_FILL, rows=rows)
    bench.run(f"VACUUM (ANALYZE) {LOG}", "CHECKPOINT")


@contextmanager
def owner(bench: Server) -> Iterator[tuple[OpenLog, Partitioning]]:
    """The log in the session of its owner, and what divides it into leaves."""
    engine = sa.create_engine(bench.url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        db = DIALECT.open(connection)
        log = db.log(locate_log(db, name="eventlog", schema=SCHEMA))
        connection.commit()
        yield log, DIALECT.partitioning
        connection.rollback()


def configuration(directory: Path, *, delete: bool = False) -> Path:
    """The file that ``eventlog`` is run with: files sink, one document a line; everything else as
    by default.
    """
    file = directory / "eventlog.toml"
    file.write_text(
        f'[database]\nschema_name = "{SCHEMA}"\n'
        f"[publisher]\ndelete_from_log = {'true' if delete else 'false'}\n"
        '[sink]\ntype = "files"\ndirectory = "documents"\n'
        '[[watch]]\ntable = "usr"\n'
    )
    return file


@contextmanager
def kafka_brokers() -> Iterator[str]:
    """The address of a mock cluster of its own, which holds nothing of the runs before
    (``tests/kafka_cluster.py``).
    """
    from kafka_cluster import cluster

    with cluster() as made:
        yield made.brokers


def start_publisher(bench: Server, file: Path) -> subprocess.Popen[bytes]:
    """``eventlog publish --once`` as a process of its own."""
    command = [
        sys.executable,
        "-m",
        "eventlog",
        "--quiet",
        "--config",
        str(file),
        "publish",
        "--once",
    ]
    return subprocess.Popen(command, env=os.environ | {"EVENTLOG_DATABASE_URL": bench.url})


class Meter:
    """Clock and CPU from ``start`` to ``stop``; the client's CPU is that of the processes waited
    for in between.
    """

    def __init__(self, bench: Server) -> None:
        self._postmaster = _postmaster(bench)
        self._begin = time.perf_counter(), self._client(), self._server()

    def stop(self) -> Cost:
        wall = time.perf_counter() - self._begin[0]
        server = self._server()
        client = self._client() - self._begin[1]
        return Cost(
            wall,
            client,
            None if server is None or self._begin[2] is None else server - self._begin[2],
        )

    @staticmethod
    def _client() -> float:
        times = os.times()
        return times.children_user + times.children_system

    def _server(self) -> float | None:
        if self._postmaster is None:
            return None
        while True:
            children = self._postmaster.children()
            try:
                used = sum(
                    process.cpu_times().user + process.cpu_times().system for process in children
                )
            except psutil.NoSuchProcess:
                continue
            times = self._postmaster.cpu_times()  # the children's: of sessions that have ended
            # A session that ended meanwhile would be counted twice or not at all.
            if children == self._postmaster.children():
                return float(
                    used + times.user + times.system + times.children_user + times.children_system
                )


def _postmaster(bench: Server) -> psutil.Process | None:
    """The server's main process, if it runs on this machine."""
    try:
        with bench.engine.connect() as connection:
            session = psutil.Process(
                connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
            )
            return session.parent() if session.name().startswith("postgres") else None
    except psutil.Error:
        return None


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median, least and greatest."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def machine(bench: Server) -> str:
    """What the figures were measured on, as lines of a Markdown table."""
    settings = (
        "fsync",
        "synchronous_commit",
        "full_page_writes",
        "shared_buffers",
        "max_wal_size",
        "autovacuum",
    )
    shown = ", ".join(f"{name} {bench.value(f'SHOW {name}')}" for name in settings)
    facts = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "CPU": (
            f"{_cpu_model()}, {os.cpu_count()} cores, "
            f"{psutil.virtual_memory().total / 2**30:.0f} GiB memory"
        ),
        "PostgreSQL": f"{bench.value('SHOW server_version')} ({bench.place}), {shown}",
        "client": (
            f"{python()}, eventlog {__version__}, psycopg binary, Unix socket or as the URL says"
        ),
    }
    return "\n".join(
        ["| machine | |", "|---|---|", *(f"| {what} | {value} |" for what, value in facts.items())]
    )


def python(options: str | None = None) -> str:
    """This interpreter and how it was built, which decides a fifth of what Python code costs.

    ``options``: what its ``configure`` was given, by default what it says of itself.
    """
    given = (sysconfig.get_config_var("CONFIG_ARGS") or "") if options is None else options
    words = {word.strip("'\"") for word in given.split()}
    optimized = "with" if "--enable-optimizations" in words else "without"
    linked = (
        "with"
        if any(word == "--with-lto" or word.startswith("--with-lto=") for word in words)
        else "without"
    )
    version = ".".join(map(str, sys.version_info[:3]))
    if "--prefix=/usr" in words and optimized == "without":
        # Debian optimizes by make, not by configure.
        return f"Python {version} of the distribution, whose configure does not say how it is built"
    return f"Python {version}, built {optimized} --enable-optimizations and {linked} LTO"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"
