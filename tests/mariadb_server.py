"""A real MariaDB for the compliance suite: Debian's server, in a directory and on a socket of its
own.

Nothing of an installed server is used but its programs: the tests begin a server of their own, and
end it.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import pytest
import sqlalchemy as sa
from sqlalchemy import URL

REQUIRED_VARIABLE: Final = "EVENTLOG_TEST_MARIADB_REQUIRED"
"""Set to 1, it turns what would be skipped for want of a server into a failure: for continuous
integration.
"""
START: Final = 120
"""Seconds that the server has to be ready."""
SETTINGS: Final = (
    "--skip-networking",
    "--character-set-server=utf8mb4",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    "--performance-schema=off",
    "--max-allowed-packet=16M",
    "--lower-case-table-names=0",
)


def give_up(reason: str) -> NoReturn:
    """Skip the test, or fail it if a MariaDB is required."""
    if os.environ.get(REQUIRED_VARIABLE) == "1":
        pytest.fail(f"{reason} ({REQUIRED_VARIABLE} is 1)")
    pytest.skip(reason)


class Server:
    """A server of a directory. ``url``: its superuser, in no database."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.socket = place / "mariadb.sock"
        self.url = URL.create(
            "mariadb+pymysql",
            "root",
            host="localhost",
            # The certificates of the system are not read for each session of a socket.
            query={"unix_socket": str(self.socket), "charset": "utf8mb4", "ssl_disabled": "1"},
        )
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Make the system's own tables."""
        program = _program("mariadb-install-db", "mysql_install_db")
        subprocess.run(
            [
                program,
                "--no-defaults",
                *self._place(),
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            check=True,
            capture_output=True,
            timeout=START,
        )

    def start(self, *settings: str) -> None:
        """Start the server, and wait until it answers."""
        program = _program("mariadbd", "mysqld")
        arguments = [
            f"--socket={self.socket}",
            f"--pid-file={self.place / 'pid'}",
            *SETTINGS,
            *settings,
        ]
        with (self.place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, "--no-defaults", *self._place(), *arguments], stderr=log
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
    def database(self) -> Iterator[URL]:
        """Return the URL of a database of its own. Its user has all rights on it, and none on
        others.
        """
        self.run(
            "CREATE DATABASE app CHARACTER SET utf8mb4",
            "CREATE USER IF NOT EXISTS app@localhost IDENTIFIED BY 'app'",
            "GRANT ALL PRIVILEGES ON app.* TO app@localhost",
        )
        try:
            yield self.url.set(username="app", password="app", database="app")
        finally:
            self.run("DROP DATABASE app")

    def _place(self) -> list[str]:
        # A server that starts removes the temporary tables of others that share its directory for
        # them. One that root starts wants to be told that it is meant.
        temporary = self.place / "tmp"
        temporary.mkdir(exist_ok=True)
        return [
            f"--datadir={self.place / 'data'}",
            f"--tmpdir={temporary}",
            f"--user={getpass.getuser()}",
        ]


@contextmanager
def server(*settings: str) -> Iterator[Server]:
    """Return a server of its own, which ends with the block. The place is short, since a socket's
    path is.
    """
    try:
        _program("mariadb-install-db", "mysql_install_db")
        _program("mariadbd", "mysqld")
        import pymysql  # noqa: F401
    except (FileNotFoundError, ImportError) as error:
        give_up(f"no MariaDB: {error}; install mariadb-server, and the extra mariadb")
    # In memory where there is such a place: each statement of DDL waits for the disk.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    place = Path(tempfile.mkdtemp(prefix="eventlog-mariadb-", dir=memory))
    made = Server(place)
    try:
        made.make()
        made.start(*settings)
        yield made
    finally:
        made.stop()
        shutil.rmtree(place, ignore_errors=True)


def _program(*names: str) -> str:
    """Return where a program is; Debian has the server beside the programs of the system."""
    path = os.pathsep.join(
        [os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/usr/libexec"]
    )
    for name in names:
        found = shutil.which(name, path=path)
        if found is not None:
            return found
    raise FileNotFoundError(f"there is no {names[0]} here")
