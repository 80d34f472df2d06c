"""A real Oracle for the compliance suite: one that a variable names, or one in Docker, with a user
that has its rights.

The image is a variable too, so that the same suite runs on several versions; it is to be pulled
before, since no test should wait for that (docs/databases/oracle.md has the command).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import pytest
import sqlalchemy as sa
from sqlalchemy import URL, make_url

REQUIRED_VARIABLE: Final = "EVENTLOG_TEST_ORACLE_REQUIRED"
"""Set to 1, it turns what would be skipped for want of a server into a failure: for continuous
integration.
"""
URL_VARIABLE: Final = "EVENTLOG_TEST_ORACLE_URL"
IMAGE_VARIABLE: Final = "EVENTLOG_TEST_ORACLE_IMAGE"
IMAGE: Final = "gvenzl/oracle-free:23-slim-faststart"
START: Final = 900
"""Seconds that a container has to be ready: images without ``faststart`` make their database first.
"""
USER = PASSWORD = "eventlog_test"
RIGHTS = (
    *(
        "CREATE SESSION",
        "CREATE TABLE",
        "CREATE VIEW",
        "CREATE SEQUENCE",
        "CREATE PROCEDURE",
        "CREATE TRIGGER",
    ),
    "UNLIMITED TABLESPACE",
    "ALTER SYSTEM",  # to kill a session
)
PACKAGES = ("SYS.DBMS_LOCK", "SYS.DBMS_FLASHBACK")


# Not an error: a user of that name that an earlier run has left behind, or none.
_DROP_USER: Final = f"""\
BEGIN
    EXECUTE IMMEDIATE 'DROP USER {USER} CASCADE';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -1918 THEN
            RAISE;
        END IF;
END;"""


class NoServerError(Exception):
    """There is no Oracle to run the tests on, and why."""


def give_up(reason: str) -> NoReturn:
    """Skip the test, or fail it if an Oracle is required."""
    if os.environ.get(REQUIRED_VARIABLE) == "1":
        pytest.fail(f"{reason} ({REQUIRED_VARIABLE} is 1)")
    pytest.skip(reason)


@dataclass(frozen=True)
class Server:
    """A server and the user of the tests. ``container``: the one it runs in, None = somebody else's
    server.
    """

    url: URL
    container: str | None = None

    def sqlplus(self) -> Sequence[str]:
        """The command that runs a script of its standard input as the user, as the manuals say it
        is run.

        It asks for the password there, in the first line (``with_password``): every user of the
        machine can read what stands in a command. Raises NoServerError where there is no SQL*Plus.
        """
        url, local = self.url, shutil.which("sqlplus")
        service = url.query.get("service_name") or url.database
        if self.container is not None:
            place = f"{url.username}@//localhost:1521/{service}"
            return ["docker", "exec", "-i", self.container, "sqlplus", "-S", "-L", place]
        if local is None:
            raise NoServerError("there is no sqlplus here")
        return [local, "-S", "-L", f"{url.username}@//{url.host}:{url.port or 1521}/{service}"]

    def with_password(self, script: str) -> str:
        """The standard input of ``sqlplus`` that runs a script."""
        return f"{self.url.password}\n{script}"


@contextmanager
def server() -> Iterator[Server]:
    """The server of the variable, else a new container that ends with the block. Raises
    NoServerError.
    """
    given = os.environ.get(URL_VARIABLE)
    if given is not None:
        # Before 2.1 SQLAlchemy would take another driver.
        yield Server(make_url(given).set(drivername="oracle+oracledb"))
        return
    image = os.environ.get(IMAGE_VARIABLE, IMAGE)
    if not _docker("info"):
        raise NoServerError(
            f"there is no Docker to run {image} with, and {URL_VARIABLE} names no server"
        )
    if not _docker("image", "inspect", image):
        raise NoServerError(f"the image is not here: docker pull {image}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's own
            made = _container(image)
            made.start()
    except Exception as error:
        raise NoServerError(f"Docker does not run {image}: {error}") from error
    try:
        system = make_url(made.get_connection_url()).set(query={"service_name": service_of(image)})
        yield Server(_with_user(system), made.get_wrapped_container().id)
    finally:
        made.stop()


def service_of(image: str) -> str:
    """The database that an image makes by itself."""
    return "XEPDB1" if "oracle-xe" in image else "FREEPDB1"


def _container(image: str) -> Any:
    from testcontainers.core.waiting_utils import wait_for_logs
    from testcontainers.oracle import OracleDbContainer

    class Patient(OracleDbContainer):  # type: ignore[misc]
        def _connect(self) -> None:
            wait_for_logs(self, "DATABASE IS READY TO USE!", timeout=START)

    return Patient(image)


def _docker(*arguments: str) -> bool:
    # Asked by its own program: the library leaves a socket behind where nobody answers.
    docker = shutil.which("docker")
    return (
        docker is not None
        and not subprocess.run([docker, *arguments], capture_output=True, timeout=30).returncode
    )


def _with_user(system: URL) -> URL:
    """Make the user. The packages are SYS's to grant; the image gives SYSTEM and SYS one
    password.
    """
    engine = sa.create_engine(system, poolclass=sa.NullPool)
    with engine.connect() as conn:
        conn.exec_driver_sql(_DROP_USER)
        conn.exec_driver_sql(f'CREATE USER {USER} IDENTIFIED BY "{PASSWORD}"')
        conn.exec_driver_sql(f"GRANT {', '.join(RIGHTS)} TO {USER}")
    as_sys = sa.create_engine(
        system.set(username="sys"), poolclass=sa.NullPool, connect_args={"mode": _sysdba()}
    )
    with as_sys.connect() as conn:
        for package in PACKAGES:
            conn.exec_driver_sql(f"GRANT EXECUTE ON {package} TO {USER}")
    return system.set(username=USER, password=PASSWORD)


def _sysdba() -> Any:
    import oracledb

    return oracledb.AUTH_MODE_SYSDBA
