"""A real Oracle for the compliance suite, where Docker is: Oracle Free, with a user that has the rights it needs."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import URL, make_url

IMAGE = "gvenzl/oracle-free:23-slim-faststart"
USER = PASSWORD = "eventlog_test"
RIGHTS = (
    *("CREATE SESSION", "CREATE TABLE", "CREATE VIEW", "CREATE SEQUENCE", "CREATE PROCEDURE", "CREATE TRIGGER"),
    "UNLIMITED TABLESPACE",
)
PACKAGES = ("SYS.DBMS_LOCK", "SYS.DBMS_FLASHBACK")


class NoServerError(Exception):
    """There is no Docker to run Oracle with, and why."""


@contextmanager
def container() -> Iterator[str]:
    """The URL of a user of a new Oracle Free, which ends with the block. Raises NoServerError."""
    if not _docker_answers():
        raise NoServerError(f"there is no Docker to run {IMAGE} with")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's own
            from testcontainers.oracle import OracleDbContainer

            made: Any = OracleDbContainer(IMAGE)
            made.start()
    except Exception as error:
        raise NoServerError(f"Docker does not run {IMAGE}: {error}") from error
    try:
        system = make_url(made.get_connection_url()).set(drivername="oracle+oracledb")
        yield _with_user(system).render_as_string(hide_password=False)
    finally:
        made.stop()


def _docker_answers() -> bool:
    # Asked by its own program: the library leaves a socket behind where nobody answers.
    docker = shutil.which("docker")
    return docker is not None and not subprocess.run([docker, "info"], capture_output=True, timeout=30).returncode


def _with_user(system: URL) -> URL:
    """Make the user. The packages are SYS's to grant; the image gives SYSTEM and SYS one password."""
    engine = sa.create_engine(system, poolclass=sa.NullPool)
    with engine.connect() as conn:
        conn.exec_driver_sql(f'CREATE USER {USER} IDENTIFIED BY "{PASSWORD}"')
        conn.exec_driver_sql(f"GRANT {', '.join(RIGHTS)} TO {USER}")
    as_sys = sa.create_engine(system.set(username="sys"), poolclass=sa.NullPool, connect_args={"mode": _sysdba()})
    with as_sys.connect() as conn:
        for package in PACKAGES:
            conn.exec_driver_sql(f"GRANT EXECUTE ON {package} TO {USER}")
    return system.set(username=USER, password=PASSWORD)


def _sysdba() -> Any:
    import oracledb

    return oracledb.AUTH_MODE_SYSDBA
