"""A database with the roles of an installation: an owner of the tables and the log, an application,
a publisher and a backup. None of them is a superuser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from shared import execute, fetch, url_of

from eventlog import cli

ROLES: Final = ("owner", "app", "publisher", "backup", "other")

CONFIG: Final = """
[database]
schema_name = "hr"
[publisher]
loopback_action = "mark"
[[watch]]
table = "usr"
"""


@dataclass(frozen=True)
class Site:
    """``admin`` is an engine of a superuser."""

    admin: sa.Engine

    def named(self, text: str) -> str:
        """Return a text with the names of this database's roles in place of ``{app}`` and others.
        All databases of a server share their roles.
        """
        for role in ROLES:
            text = text.replace(f"{{{role}}}", f"{role}_{self.admin.url.database}")
        return text

    def unnamed(self, text: str) -> str:
        """Return a text of a program, with ``{app}`` in place of the name of the role."""
        return re.sub(rf"\b({'|'.join(ROLES)})_{self.admin.url.database}\b", r"{\1}", text)

    def engine(self, role: str) -> sa.Engine:
        """Return an engine of a role; empty = the superuser."""
        url = self.admin.url.set(username=self.named(f"{{{role}}}")) if role else self.admin.url
        return sa.create_engine(url, poolclass=sa.NullPool)

    def sql(self, role: str, *statements: str) -> None:
        """Run statements as a role."""
        execute(self.engine(role), *map(self.named, statements))

    def fetch(self, role: str, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement that a role runs."""
        return fetch(self.engine(role), self.named(statement))

    def run(self, role: str, *arguments: str, code: int = 0) -> None:
        """Run a command as a role; it ends with this exit code."""
        url = url_of(self.engine(role))
        flags = map(self.named, arguments)
        assert cli.run(["--database-url", url, *flags]) == code, arguments

    def rights_of_others(self) -> Sequence[tuple[str, str, str]]:
        """Return the rights of all roles but the owner on relations and functions of the schema,
        except the tables of the application: object, role, right.
        """
        rows = self.fetch(
            "",
            "SELECT o.name, coalesce(r.rolname::text, 'PUBLIC'), a.privilege_type FROM ("
            " SELECT relname::text, relowner, relacl FROM pg_class"
            " WHERE relnamespace = 'hr'::regnamespace AND relname !~ '^usr'"
            " UNION ALL SELECT proname::text, proowner, proacl FROM pg_proc"
            " WHERE pronamespace = 'hr'::regnamespace) AS o (name, owner, acl)"
            " CROSS JOIN aclexplode(o.acl) AS a LEFT JOIN pg_roles r ON r.oid = a.grantee"
            " WHERE a.grantee <> o.owner ORDER BY 1, 2, 3",
        )
        return [(name, self.unnamed(role), right) for name, role, right in rows]


@contextmanager
def new_site(database: sa.Engine) -> Iterator[Site]:
    """Make the roles, a schema and a table in an empty database, and write the settings to the
    current directory.
    """
    Path("eventlog.toml").write_text(CONFIG)
    site = Site(database)
    site.sql("", *(f"CREATE ROLE {{{role}}} LOGIN" for role in ROLES))
    try:
        site.sql(
            "",
            "CREATE SCHEMA hr AUTHORIZATION {owner}",
            "GRANT USAGE ON SCHEMA hr TO {app}, {publisher}, {backup}, {other}",
        )
        site.sql("owner", "CREATE TABLE hr.usr (idu integer PRIMARY KEY, salary text)")
        site.sql("owner", "GRANT ALL ON hr.usr TO {app}")
        yield site
    finally:
        for role in ROLES:
            site.sql("", f"DROP OWNED BY {{{role}}} CASCADE", f"DROP ROLE {{{role}}}")
