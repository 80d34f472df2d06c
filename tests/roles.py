"""Roles that work with a log by the rights that `eventlog grants` prints, on each database
(spec/event-log.md 11.1).

``role_of_postgresql`` and ``role_of_family`` make a log of an owner and a role without rights,
``granted`` grants it what is printed, and ``superfluous`` tries its whole work without each single
right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import mysql_servers
import sqlalchemy as sa
from shared import Run, execute, fetch, url_of

from eventlog import cli
from eventlog.sql.connect.connection import connect
from eventlog.sql.dialects.mysql_family import Family, writers
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.port.rights import Purpose

TABLES: Final = (
    "CREATE TABLE usr (idu integer PRIMARY KEY, fname varchar(40))",
    "CREATE TABLE usr_phone (idu integer, phoneno varchar(40), UNIQUE (idu, phoneno),"
    " FOREIGN KEY (idu) REFERENCES usr (idu) ON DELETE CASCADE)",
)
CONFIG: Final = """
[publisher]
loopback_action = "mark"
[[watch]]
table = "usr"
"""


class Words(NamedTuple):
    """What differs between the databases."""

    schema: str
    """The schema of the log, as the settings name it."""
    no_right: frozenset[object]
    """The codes of errors for a missing right."""
    probes: re.Pattern[str]
    """The statements by which eventlog asks for a right; it goes on if they are refused."""
    owning: tuple[str, ...]
    """The statements that make ``{role}`` the owner of the tables."""
    only_elsewhere: Mapping[Purpose, frozenset[str]]
    """By purpose, the rights that only other databases need, as in a REVOKE from ``worker``."""
    use: tuple[str, ...] = ()
    """The statements by which a session finds the tables by their names alone."""


def _revoked(*rights: str) -> frozenset[str]:
    return frozenset(f"REVOKE {right} FROM `worker`" for right in rights)


_FAMILY: Final = Words(
    schema="",
    # 1401: MySQL's XA RECOVER.
    no_right=frozenset({1044, 1045, 1142, 1143, 1227, 1370, 1401}),
    probes=re.compile(r"EXPLAIN |DESCRIBE |.*\bFROM information_schema\.innodb_cmp\b"),
    owning=tuple(
        f"GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON {table} TO {{role}}"
        for table in ("usr", "usr_phone")
    ),
    # A role without TRIGGER on the database sees no triggers, which `doctor` and `triggers plan`
    # would compare with what is recorded.
    only_elsewhere={
        Purpose.PUBLISHER: _revoked("SELECT ON `eventlog_captured`"),
        Purpose.MONITOR: _revoked(
            "SELECT ON `eventlog_captured`",
            "SELECT ON `eventlog_resync`",
            "SELECT ON `usr`",
            "SELECT ON `usr_phone`",
        ),
    },
)
WORDS: Final[Mapping[str, Words]] = {
    "postgresql": Words(
        schema="hr",
        no_right=frozenset({"42501"}),
        probes=re.compile("$."),
        owning=(
            "ALTER TABLE usr OWNER TO {role}",
            "ALTER TABLE usr_phone OWNER TO {role}",
            # A REVOKE takes the rights of an owner, too.
            "GRANT ALL ON usr, usr_phone TO {role}",
            "GRANT CREATE ON SCHEMA hr TO {role}",
        ),
        # Oracle and MySQL show no table on which a role has no right.
        only_elsewhere={
            Purpose.EPOCH: frozenset({'REVOKE SELECT ON "hr"."eventlog" FROM "worker"'})
        },
        use=("SET LOCAL search_path = hr",),
    ),
    "mariadb": _FAMILY,
    "mysql": _FAMILY,
}

_OF_TRANSACTIONS: Final = re.compile(r"\s*(SAVEPOINT|ROLLBACK|RELEASE|COMMIT|BEGIN)\b")


@dataclass
class Worker:
    """A role that works with the log of an owner.

    ``admin`` may grant and revoke; ``url`` is the role's; ``used`` are the statements that it has
    run, with the parameters of their first run; ``codes`` are the exit codes of commands.
    """

    owner: sa.Engine
    admin: sa.Engine
    url: sa.URL
    used: dict[str, Any] = field(default_factory=dict)
    number: int = 0
    codes: dict[tuple[str, ...], int] = field(default_factory=dict)

    @property
    def role(self) -> str:
        return str(self.url.username)

    @property
    def has_consumers(self) -> bool:
        """Whether the log can have consumers."""
        return "consumers" in load_dialect(self.owner.dialect.name).capabilities

    @property
    def words(self) -> Words:
        return WORDS[self.owner.dialect.name]

    def prepare(self, *arguments: str) -> None:
        """Run a command as the owner."""
        command(self.owner, *arguments)

    def execute(self, *statements: str) -> None:
        """Run statements as the owner."""
        execute(self.owner, *self.words.use, *statements)

    def grant(self, *statements: str) -> None:
        """Run statements as a user that may grant."""
        execute(self.admin, *self.words.use, *statements)

    def value(self, expression: str) -> int:
        """Return the value of an expression over the log, as the owner sees it."""
        schema = f"{self.words.schema}." if self.words.schema else ""
        ((found,),) = fetch(self.owner, f"SELECT {expression} FROM {schema}eventlog")
        return int(found or 0)

    def write(self, count: int = 1) -> list[int]:
        """Change objects as the owner, and return their keys."""
        keys = [self.number + n for n in range(1, count + 1)]
        self.number += count
        for key in keys:
            self.execute(
                f"INSERT INTO usr VALUES ({key}, 'Ada')",
                f"INSERT INTO usr_phone VALUES ({key}, '1')",
            )
        return keys

    def write_bad(self) -> None:
        """Write a row that no publisher can read."""
        self.execute(
            "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value)"
            " VALUES (1, 'usr', 'other=1', 'fname', 'x')"
        )

    def move_server(self) -> None:
        """Let the log look as if another server had published it."""
        self.execute("""UPDATE eventlog_epoch SET server = '{"database": "none"}'""")

    def own_tables(self) -> None:
        """Make the role the owner of the watched tables."""
        self.grant(*(statement.format(role=self.role) for statement in self.words.owning))

    def run(self, *arguments: str, code: int = 0) -> None:
        """Run a command as the role, which ends with this exit code."""
        with self.recording():
            url = self.url.render_as_string(hide_password=False)
            assert cli.run(["--quiet", "--database-url", url, *arguments]) == code, arguments

    def run_alike(self, *arguments: str) -> None:
        """Run a command as the role, which ends with the same exit code each time."""
        with self.recording():
            url = self.url.render_as_string(hide_password=False)
            code = cli.run(["--quiet", "--database-url", url, *arguments])
        assert code == self.codes.setdefault(arguments, code), arguments

    def run_sql(self, *statements: str) -> None:
        """Run statements as the role."""
        with self.recording():
            execute(sa.create_engine(self.url, poolclass=sa.NullPool), *self.words.use, *statements)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the statements that the role runs."""

        def record(
            conn: sa.Connection,
            _cursor: object,
            statement: str,
            parameters: Any,
            _context: object,
            _executemany: bool,
        ) -> None:
            if conn.engine.url.username == self.role and not _OF_TRANSACTIONS.match(statement):
                self.used.setdefault(statement, parameters)

        sa.event.listen(sa.Engine, "before_cursor_execute", record)
        try:
            yield
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", record)

    def refused(self, revoke: str = "") -> Iterator[str]:
        """Yield the statements of the role's work that it may not run; nothing of them stays. Those
        with most words of ``revoke`` come first.
        """
        words = set(re.findall(r"\w+", revoke.upper()))

        def distance(used: tuple[str, Any]) -> int:
            return -len(words.intersection(re.findall(r"\w+", used[0].upper())))

        with connect(self.url).connect() as conn:
            for statement, parameters in sorted(self.used.items(), key=distance):
                if self.words.probes.match(statement):
                    continue
                try:
                    for use in self.words.use:
                        conn.exec_driver_sql(use)
                    conn.exec_driver_sql(statement, parameters or None)
                except sa.exc.DBAPIError as error:
                    if _code(error) in self.words.no_right:
                        yield statement
                conn.rollback()


def _code(error: sa.exc.DBAPIError) -> object:
    """Return the code of a database's error: PyMySQL gives a number, and newer ones the state
    too.
    """
    first = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return first if isinstance(first, int) else getattr(error.orig, "sqlstate", None)


def command(owner: sa.Engine, *arguments: str) -> None:
    """Run a command as the owner of the log."""
    assert cli.run(["--quiet", "--database-url", url_of(owner), *arguments]) == 0


def write_config(owner: sa.Engine) -> None:
    """Write the settings to the current directory, without the URL."""
    schema = WORDS[owner.dialect.name].schema
    database = f'[database]\nschema_name = "{schema}"\n' if schema else ""
    Path("eventlog.toml").write_text(database + CONFIG)


def fill(owner: sa.Engine) -> None:
    """The tables, the log, and the triggers."""
    words = WORDS[owner.dialect.name]
    schema = [f"CREATE SCHEMA {words.schema}"] if words.schema else []
    execute(owner, *schema, *words.use, *TABLES)
    write_config(owner)
    for arguments in (("db", "upgrade"), ("triggers", "apply")):
        command(owner, *arguments)


@contextmanager
def role_of_postgresql(filled_database: Any) -> Iterator[Worker]:
    """Return a role without rights on the log of a new database of PostgreSQL."""
    with filled_database(fill) as owner:
        write_config(owner)
        role = f"worker_{os.getpid()}"
        execute(owner, f"CREATE ROLE {role} LOGIN")
        try:
            yield Worker(owner, owner, owner.url.set(username=role))
        finally:
            execute(owner, f"DROP OWNED BY {role}; DROP ROLE {role}")


@contextmanager
def role_of_family(server: mysql_servers.Server) -> Iterator[Worker]:
    """Return a role without rights on the log of a new database of MariaDB or MySQL."""
    with server.database() as url:
        owner = sa.create_engine(url, poolclass=sa.NullPool)
        admin = sa.create_engine(server.url.set(database=url.database), poolclass=sa.NullPool)
        fill(owner)
        # The owner runs consumers, too. No user has these rights on single databases.
        dialect = load_dialect(owner.dialect.name)
        assert isinstance(dialect, Family)
        execute(admin, *writers.grants(dialect, "app@localhost"))
        execute(admin, "CREATE USER worker IDENTIFIED BY 'worker'")
        try:
            yield Worker(owner, admin, url.set(username="worker", password="worker"))
        finally:
            execute(admin, "DROP USER worker")


Work = Callable[[Worker], None]


def granted(worker: Worker, run: Run, purpose: Purpose) -> list[str]:
    """Grant a role what `eventlog grants` prints for a purpose, and return these statements."""
    printed = run(
        "--database-url", url_of(worker.owner), "grants", worker.role, "--purpose", purpose.value
    )[1]
    statements = [line.rstrip(";") for line in printed.splitlines()]
    worker.grant(*statements)
    return statements


def superfluous(worker: Worker, purpose: Purpose, statements: list[str], work: Work) -> list[str]:
    """Return, each as its REVOKE, the rights of GRANTs without which a role does its whole work,
    except those that only other databases need. It has done the work before.
    """
    only_elsewhere = worker.words.only_elsewhere.get(purpose, frozenset())
    return [
        one
        for one in each_right(statements)
        if one.replace(worker.role, "worker") not in only_elsewhere
        and _works_without(worker, one, statements, work)
    ]


def _works_without(worker: Worker, revoke: str, statements: list[str], work: Work) -> bool:
    """Return True if a role does its work without a right, which it has again afterwards."""
    worker.grant(revoke)
    try:
        # Its statements show it fast. Some databases only hide what a role has no right on.
        return next(worker.refused(revoke), None) is None and _is_done(worker, work)
    finally:
        worker.grant(*statements)


def _is_done(worker: Worker, work: Work) -> bool:
    try:
        work(worker)
    except AssertionError:
        return False
    return True


def each_right(statements: list[str]) -> Iterator[str]:
    """Yield a REVOKE for each single right of GRANTs."""
    for statement in statements:
        granted, on = statement.removeprefix("GRANT ").split(" ON ", 1)
        tables, role = on.split(" TO ")
        for right in _single(granted):
            for name in tables.split(", "):
                yield f"REVOKE {right} ON {name} FROM {role}"


def _single(granted: str) -> Iterator[str]:
    """Yield the rights of a GRANT, those on columns one by one."""
    for verb, columns in re.findall(r"(\w+)(?: \(([^)]*)\))?", granted):
        yield from (f"{verb} ({column})" for column in columns.split(", ")) if columns else [verb]
