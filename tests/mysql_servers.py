"""Real servers of MySQL's family for the compliance suite, each in a directory and on its own
socket.

``MARIADB`` is the server of this machine: nothing of it is used but its programs. The others are of
a newer Debian suite in a folder (``suites``), for the night: their programs see that folder alone,
in which the directory of the server is mounted.
"""

from __future__ import annotations

import atexit
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
import sqlalchemy as sa
from sqlalchemy import URL
from suites import suite

REQUIRED_VARIABLE: Final = "EVENTLOG_TEST_MARIADB_REQUIRED"
"""Set to 1, it turns what would be skipped for want of this machine's server into a failure: for
continuous integration.
"""
START: Final = 120
"""Seconds that the server has to be ready."""
SETTINGS: Final = (
    "--skip-networking",
    "--character-set-server=utf8mb4",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    # Shows the open writers of a log (spec/event-log.md 13.6).
    "--performance-schema=on",
    "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON",
    "--max-allowed-packet=16M",
    "--lower-case-table-names=0",
)
_MOUNTED: Final = Path("/srv/server")
"""Where a suite sees the directory of a server."""


@dataclass(frozen=True)
class Build:
    """A server's programs.

    ``dialect`` is its name for eventlog; ``install`` and ``serve`` are the names that its programs
    may have, with the arguments that make the system's own tables. ``suite`` is the Debian suite
    that has it, with the packages to install; None = this machine.
    """

    dialect: str
    install: tuple[str, ...]
    install_arguments: tuple[str, ...]
    serve: tuple[str, ...]
    settings: tuple[str, ...] = SETTINGS
    suite: tuple[str, str] | None = None


_INSTALL_MARIADB: Final = (
    ("mariadb-install-db", "mysql_install_db"),
    # By force: a host whose name nobody can look up is good enough for a socket.
    ("--auth-root-authentication-method=normal", "--skip-test-db", "--force"),
)
MARIADB: Final = Build("mariadb", *_INSTALL_MARIADB, ("mariadbd", "mysqld"))
MARIADB_11_8: Final = Build(
    "mariadb",
    *_INSTALL_MARIADB,
    ("mariadbd",),
    suite=("trixie", "mariadb-server-core,mariadb-client-core"),
)
MYSQL: Final = Build(
    "mysql",
    ("mysqld",),
    ("--initialize-insecure",),
    ("mysqld",),
    # Its own folder for LOAD DATA is not there.
    settings=(
        *SETTINGS,
        "--mysqlx=OFF",
        "--secure-file-priv=",
        "--log-bin-trust-function-creators=1",
    ),
    suite=("sid", "mysql-server-core"),
)
BUILDS: Final = {"mariadb": MARIADB, "mariadb-11.8": MARIADB_11_8, "mysql": MYSQL}
"""The servers by the names that tests have."""
_SOAKED: Final = ("mariadb-11.8", "mysql")
"""Those that are for the night."""


def params(*names: str) -> list[Any]:
    """Return the servers of these names, or all, as parameters: those of newer suites are for the
    night.
    """
    return [
        pytest.param(name, marks=[pytest.mark.night] if name in _SOAKED else [])
        for name in names or BUILDS
    ]


def give_up(reason: str) -> NoReturn:
    """Skip the test, or fail it if a MariaDB is required."""
    if os.environ.get(REQUIRED_VARIABLE) == "1":
        pytest.fail(f"{reason} ({REQUIRED_VARIABLE} is 1)")
    pytest.skip(reason)


class Server:
    """A server of a directory. ``url``: its superuser, in no database."""

    def __init__(self, place: Path, build: Build = MARIADB, root: Path | None = None) -> None:
        self.place = place
        self.build = build
        self.socket = place / "server.sock"
        self._root = root
        self.url = URL.create(
            f"{build.dialect}+pymysql",
            "root",
            host="localhost",
            # The certificates of the system are not read for each session of a socket.
            query={"unix_socket": str(self.socket), "charset": "utf8mb4", "ssl_disabled": "1"},
        )
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Make the system's own tables."""
        try:
            subprocess.run(
                self._command(self.build.install, self.build.install_arguments),
                check=True,
                capture_output=True,
                timeout=START,
            )
        except subprocess.CalledProcessError as error:
            told = error.stdout + error.stderr
            raise RuntimeError(told.decode(errors="replace")[-3000:]) from error

    def start(self, *settings: str) -> None:
        """Start the server, and wait until it answers."""
        arguments = [
            f"--socket={self._seen / self.socket.name}",
            f"--pid-file={self._seen / 'pid'}",
            *self.build.settings,
            *settings,
        ]
        with (self.place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(self.build.serve, arguments), stdout=log, stderr=log
            )
        end = time.monotonic() + START
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((self.place / "log").read_text(errors="replace")[-3000:])
            time.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as asked:
            return asked.connect_ex(str(self.socket)) == 0

    def stop(self, *, kill: bool = False) -> None:
        """End the server, or take its process away as a crash does."""
        if self._process is not None:
            (self._process.kill if kill else self._process.terminate)()
            self._process.wait(START)
            self._process = None

    def run(self, *statements: str) -> None:
        """Run statements as the superuser."""
        with sa.create_engine(self.url, poolclass=sa.NullPool).connect() as conn:
            for statement in statements:
                conn.exec_driver_sql(statement, execution_options={"no_parameters": True})

    @contextmanager
    def database(self, name: str = "app") -> Iterator[URL]:
        """Return the URL of a database of its own. Its user has all rights on it, and none on
        others.
        """
        self.run(
            f"CREATE DATABASE {name} CHARACTER SET utf8mb4",
            f"CREATE USER {name}@localhost IDENTIFIED BY 'app'",
            f"GRANT ALL PRIVILEGES ON {name}.* TO {name}@localhost",
        )
        try:
            yield self.url.set(username=name, password="app", database=name)
        finally:
            # With what the user was granted beyond it: the next one of this name has none of it.
            self.run(f"DROP DATABASE {name}", f"DROP USER {name}@localhost")

    @property
    def _seen(self) -> Path:
        """The directory of the server as its programs see it."""
        return self.place if self._root is None else _MOUNTED

    def _command(self, names: Sequence[str], arguments: Sequence[str]) -> list[str]:
        # A server that starts removes the temporary tables of others that share its directory for
        # them. One that root starts wants to be told that it is meant.
        (self.place / "tmp").mkdir(exist_ok=True)
        command = [
            program(*names) if self._root is None else names[0],
            "--no-defaults",
            f"--datadir={self._seen / 'data'}",
            f"--tmpdir={self._seen / 'tmp'}",
            f"--user={getpass.getuser()}",
            *arguments,
        ]
        return command if self._root is None else self._entered(self._root, command)

    def _entered(self, root: Path, command: Sequence[str]) -> list[str]:
        """Return the command in the folder of a suite. The mount is seen by this process alone, and
        ends with it.
        """
        place = root / _MOUNTED.relative_to("/")
        place.mkdir(exist_ok=True)
        enter = 'mount --bind "$0" "$1" && shift 1 && exec chroot "$@"'
        return [
            *("unshare", "--mount", "sh", "-c", enter),
            *(str(self.place), str(place), str(root), *command),
        ]


def _new_place() -> Path:
    # In memory where there is such a place: each statement of DDL waits for the disk.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="eventlog-mysql-", dir=memory))


@cache
def _system_tables(build: Build) -> Path:
    """The files of a server of this machine with the system's own tables, made once in a process."""
    place = _new_place()
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    Server(place, build).make()
    return place / "data"


@contextmanager
def server(*settings: str, build: Build = MARIADB) -> Iterator[Server]:
    """Return a separate server, which ends with the block. The place is short, since a socket's
    path is.
    """
    root = None
    try:
        import pymysql  # noqa: F401

        if build.suite is None:
            program(*build.install)
            program(*build.serve)
    except (FileNotFoundError, ImportError) as error:
        give_up(f"no MariaDB: {error}; install mariadb-server, and the extra mariadb")
    if build.suite is not None:
        root = suite(build.suite[0], build.dialect, build.suite[1])
    place = _new_place()
    made = Server(place, build, root)
    try:
        if root is None:
            shutil.copytree(_system_tables(build), place / "data")
        else:
            made.make()
        made.start(*settings)
        yield made
    finally:
        made.stop()
        shutil.rmtree(place, ignore_errors=True)


def program(*names: str) -> str:
    """Return where a program is; Debian has the server next to the programs of the system."""
    path = os.pathsep.join(
        [os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/usr/libexec"]
    )
    for name in names:
        found = shutil.which(name, path=path)
        if found is not None:
            return found
    raise FileNotFoundError(f"there is no {names[0]} here")
