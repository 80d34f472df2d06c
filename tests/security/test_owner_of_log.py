"""What the owner of a log can do with the rights of the owner of the tables, where they differ
(docs/guides/install.md, spec/triggers.md 7.7).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from shared import execute, fetch, url_of

from eventlog import cli

CONFIG = """
[database]
log_table = "audit.eventlog"
schema_name = "hr"
[[watch]]
table = "usr"
[[watch]]
table = "bulk"
trigger_level = "statement"
"""
TABLES = """
CREATE TABLE hr.usr (login text PRIMARY KEY, salary text);
CREATE TABLE hr.usr_phone (login text REFERENCES hr.usr ON DELETE CASCADE, phone text, UNIQUE (login, phone));
CREATE TABLE hr.bulk (code text PRIMARY KEY, note text);
"""
TAKES_RIGHTS = """
CREATE OR REPLACE FUNCTION audit.proc_eventlog_quote(value pg_catalog.text) RETURNS pg_catalog.text
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'GRANT USAGE ON SCHEMA hr TO {keeper}';
    EXECUTE 'GRANT ALL ON hr.usr TO {keeper}';
    RETURN value;
EXCEPTION WHEN OTHERS THEN
    RETURN value;
END $$;
"""
WRITES = """
INSERT INTO hr.usr VALUES ('a=1', '10'), ('b', '20');
INSERT INTO hr.usr_phone VALUES ('a=1', '11');
UPDATE hr.usr SET login = 'c,d' WHERE login = 'b';
INSERT INTO hr.bulk VALUES ('x"y', 'z');
UPDATE hr.bulk SET note = 'n';
DELETE FROM hr.bulk;
TRUNCATE hr.usr CASCADE;
"""


class Roles(NamedTuple):
    superuser: sa.Engine
    owner: str
    keeper: str
    """The owner of the log, who has no right on the tables."""

    def by(self, role: str) -> sa.Engine:
        url = self.superuser.url.set(username=role)
        return sa.create_engine(url, poolclass=sa.NullPool)

    def command(self, role: str, *arguments: str) -> None:
        assert cli.run(["--quiet", "--database-url", url_of(self.by(role)), *arguments]) == 0

    def keeper_may(self) -> bool:
        asked = f"SELECT has_schema_privilege('{self.keeper}', 'hr', 'USAGE')"
        return bool(fetch(self.superuser, asked)[0][0])


@pytest.fixture
def roles(new_database: Any, postgres_url: str, empty_home: Path) -> Iterator[Roles]:
    owner, keeper = (f"{name}_{os.getpid()}" for name in ("tables_owner", "log_owner"))
    Path("eventlog.toml").write_text(CONFIG)
    try:
        with new_database() as database:
            execute(
                database,
                *(f"CREATE ROLE {role} LOGIN" for role in (owner, keeper)),
                f"CREATE SCHEMA hr AUTHORIZATION {owner}",
                f"CREATE SCHEMA audit AUTHORIZATION {keeper}",
            )
            roles = Roles(database, owner, keeper)
            execute(roles.by(owner), TABLES)
            roles.command(keeper, "db", "upgrade")
            execute(
                roles.by(keeper),
                f"GRANT USAGE ON SCHEMA audit TO {owner}",
                f"GRANT SELECT, INSERT ON audit.eventlog TO {owner}",
                f"GRANT SELECT ON audit.eventlog_resync, audit.eventlog_consumer TO {owner}",
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON audit.eventlog_captured TO {owner}",
                TAKES_RIGHTS.format(keeper=keeper),
            )
            yield roles
    finally:
        admin = sa.create_engine(postgres_url, poolclass=sa.NullPool)
        execute(admin, f"DROP ROLE IF EXISTS {owner}", f"DROP ROLE IF EXISTS {keeper}")


def test_no_function_of_the_logs_owner_quotes_keys_with_the_rights_of_the_tables_owner(
    roles: Roles,
) -> None:
    roles.command(roles.owner, "triggers", "apply")
    execute(roles.by(roles.owner), WRITES)
    keys = fetch(roles.superuser, "SELECT DISTINCT table_key FROM audit.eventlog ORDER BY 1")
    assert {'login="a=1"', 'login="c,d"', 'code="x\\"y"'} <= {key for (key,) in keys}
    assert not roles.keeper_may()


def test_no_function_of_the_logs_owner_quotes_keys_in_a_resync(roles: Roles) -> None:
    execute(roles.by(roles.owner), "INSERT INTO hr.usr VALUES ('a=1', '10')")
    execute(
        roles.superuser,
        f"GRANT ALL ON ALL TABLES IN SCHEMA audit TO {roles.owner}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA audit TO {roles.owner}",
    )
    roles.command(roles.owner, "resync", "usr")
    ((key,),) = fetch(roles.superuser, "SELECT table_key FROM audit.eventlog")
    assert key == 'login="a=1"'
    assert not roles.keeper_may()
