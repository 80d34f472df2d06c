"""Trigger functions and functions of the log never keep the rights of a superuser who made them
(spec/triggers.md 7.7).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from shared import execute, fetch, url_of

from eventlog import cli
from eventlog.sql.migrations.operations import compile_definition, from_literals, with_tables
from eventlog.sql.port.driver_errors import open_database

CONFIG = """
[database]
schema_name = "hr"
[[watch]]
table = "usr"
[[watch]]
table = "sale"
[[watch]]
table = "bulk"
trigger_level = "statement"
"""
TABLES = """
CREATE TABLE hr.usr (idu bigint PRIMARY KEY, login text);
CREATE TABLE hr.usr_phone (idu bigint NOT NULL REFERENCES hr.usr ON DELETE CASCADE ON UPDATE CASCADE,
    phone text NOT NULL, UNIQUE (idu, phone));
CREATE TABLE hr.sale (region text, id integer, price numeric, PRIMARY KEY (region, id))
    PARTITION BY LIST (region);
CREATE TABLE hr.sale_n PARTITION OF hr.sale FOR VALUES IN ('n');
CREATE TABLE hr.sale_s PARTITION OF hr.sale FOR VALUES IN ('s');
CREATE TABLE hr.sale_note (region text, id integer, note text,
    FOREIGN KEY (region, id) REFERENCES hr.sale ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE hr.bulk (code text PRIMARY KEY, note text);
CREATE TABLE hr.bulk_tag (code text REFERENCES hr.bulk ON DELETE CASCADE, tag text);
"""
WRITES = """
INSERT INTO hr.usr VALUES (1, 'ada'), (2, 'bob');
INSERT INTO hr.usr_phone VALUES (1, '11'), (2, '22');
UPDATE hr.usr SET idu = 3 WHERE idu = 1;
UPDATE hr.usr_phone SET phone = '23' WHERE idu = 2;
DELETE FROM hr.usr WHERE idu = 2;
INSERT INTO hr.sale VALUES ('n', 1, 2.5), ('s', 2, 3);
INSERT INTO hr.sale_note VALUES ('n', 1, 'x');
UPDATE hr.sale SET region = 's' WHERE id = 1;
TRUNCATE hr.sale_n, hr.sale_note;
DELETE FROM hr.sale;
INSERT INTO hr.bulk VALUES ('a+b', 'x'), ('c', 'y');
INSERT INTO hr.bulk_tag VALUES ('a+b', 't'), ('c', 'u');
UPDATE hr.bulk SET note = 'z';
DELETE FROM hr.bulk WHERE code = 'c';
TRUNCATE hr.bulk CASCADE;
TRUNCATE hr.usr CASCADE;
"""
STEAL = """
CREATE FUNCTION {schema}.steal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        EXECUTE 'ALTER ROLE {thief} SUPERUSER';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER steal BEFORE INSERT ON {schema}.eventlog FOR EACH ROW EXECUTE FUNCTION {schema}.steal();
"""


@dataclass(frozen=True)
class Hr:
    """A database whose tables belong to ``owner``. ``app`` writes them; ``keeper`` owns a schema
    ``audit``, and has no rights on the tables. ``superuser`` made all of them.
    """

    superuser: sa.Engine
    owner: str
    app: str
    keeper: str

    def by(self, role: str) -> sa.Engine:
        url = self.superuser.url.set(username=role)
        return sa.create_engine(url, poolclass=sa.NullPool)

    def command(self, role: str | None, *arguments: str) -> int:
        """Run a command as a role, None = the superuser."""
        url = url_of(self.superuser if role is None else self.by(role))
        return cli.run(["--quiet", "--database-url", url, *arguments])

    def write(self) -> None:
        execute(self.by(self.app), WRITES)

    def logged(self, log: str = "hr.eventlog") -> list[tuple[Any, ...]]:
        """Return what the log has, and empty it."""
        columns = "event_type, table_name, table_key, column_name, old_value, new_value"
        rows = fetch(self.superuser, f"SELECT {columns} FROM {log} ORDER BY record_id")
        execute(self.superuser, f"DELETE FROM {log}")
        return rows

    def owners(self, like: str = "proc%") -> dict[str, str]:
        """Return the owner of each function of eventlog, by its name."""
        return dict(
            fetch(
                self.superuser,
                "SELECT p.proname, r.rolname FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner"
                f" WHERE p.proname LIKE '{like}'",
            )
        )

    def is_super(self, role: str) -> bool:
        statement = f"SELECT rolsuper FROM pg_roles WHERE rolname = '{role}'"
        return bool(fetch(self.superuser, statement)[0][0])


@pytest.fixture
def hr(new_database: Any, postgres_url: str, empty_home: Path) -> Iterator[Hr]:
    roles = [f"{name}_{os.getpid()}" for name in ("hr_owner", "hr_app", "log_keeper")]
    owner, app, keeper = roles
    Path("eventlog.toml").write_text(CONFIG)
    try:
        with new_database() as database:
            execute(
                database,
                *(f"CREATE ROLE {role} LOGIN" for role in roles),
                f"CREATE SCHEMA hr AUTHORIZATION {owner}",
                f"CREATE SCHEMA audit AUTHORIZATION {keeper}",
            )
            hr = Hr(database, owner, app, keeper)
            execute(
                hr.by(owner),
                TABLES,
                f"GRANT USAGE ON SCHEMA hr TO {app}",
                f"GRANT ALL ON ALL TABLES IN SCHEMA hr TO {app}",
            )
            yield hr
    finally:
        admin = sa.create_engine(postgres_url, poolclass=sa.NullPool)
        execute(admin, *(f"DROP ROLE IF EXISTS {role}" for role in roles))


def test_the_owner_of_the_log_gets_nothing_from_a_superuser_who_applies(hr: Hr) -> None:
    assert hr.command(hr.owner, "db", "upgrade") == 0
    assert hr.command(None, "triggers", "apply") == 0
    execute(hr.by(hr.owner), STEAL.format(schema="hr", thief=hr.owner))
    hr.write()
    assert not hr.is_super(hr.owner)
    assert set(hr.owners().values()) == {hr.owner}


def test_no_write_fails_and_the_same_is_logged_as_if_the_owner_had_applied(hr: Hr) -> None:
    hr.command(hr.owner, "db", "upgrade")
    hr.command(hr.owner, "triggers", "apply")
    hr.write()
    by_owner = hr.logged()
    hr.command(hr.owner, "triggers", "drop", "--yes")
    assert hr.command(None, "triggers", "apply") == 0
    hr.write()
    assert set(hr.owners().values()) == {hr.owner}
    assert hr.logged() == by_owner
    assert len(by_owner) > 20
    assert hr.command(hr.owner, "triggers", "plan", "--check") == 0


def test_the_functions_of_a_superusers_own_table_are_the_superusers(hr: Hr) -> None:
    hr.command(hr.owner, "db", "upgrade")
    me = hr.superuser.url.username
    execute(hr.superuser, f"ALTER TABLE hr.usr OWNER TO {me}")
    execute(hr.superuser, f"GRANT SELECT ON hr.usr TO {hr.owner}")
    assert hr.command(None, "triggers", "apply") == 0
    hr.write()
    owners = hr.owners()
    assert (owners["proc_usr_1"], owners["proc_usr_1_fits"]) == (me, me)
    assert owners["proc_usr_phone_1"] == hr.owner


def audit(hr: Hr) -> None:
    """A log of another owner."""
    Path("eventlog.toml").write_text(
        CONFIG.replace("[database]", '[database]\nlog_table = "audit.eventlog"')
    )
    assert hr.command(hr.keeper, "db", "upgrade") == 0


def without_read(hr: Hr) -> None:
    """A table of another owner, whose rows own the rows of a child table."""
    assert hr.command(hr.owner, "db", "upgrade") == 0
    execute(
        hr.superuser,
        f"GRANT USAGE ON SCHEMA hr TO {hr.keeper}",
        f"ALTER TABLE hr.usr_phone OWNER TO {hr.keeper}",
        f"REVOKE ALL ON hr.usr FROM {hr.keeper}",
        f"GRANT INSERT ON hr.eventlog TO {hr.keeper}",
    )


def without_lock(hr: Hr) -> None:
    """A child table of another owner, whose rows move with a row to another partition."""
    assert hr.command(hr.owner, "db", "upgrade") == 0
    execute(
        hr.superuser,
        f"GRANT USAGE ON SCHEMA hr TO {hr.keeper}",
        f"ALTER TABLE hr.sale_note OWNER TO {hr.keeper}",
        f"GRANT SELECT ON hr.sale TO {hr.keeper}",
        f"GRANT INSERT ON hr.eventlog TO {hr.keeper}",
    )


def forced(hr: Hr) -> None:
    """A table whose row security filters its owner, too."""
    assert hr.command(hr.owner, "db", "upgrade") == 0
    execute(
        hr.superuser,
        "ALTER TABLE hr.bulk ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE hr.bulk FORCE ROW LEVEL SECURITY",
        f"CREATE POLICY all_rows ON hr.bulk TO {hr.app} USING (true)",
    )


def filtered_log(hr: Hr) -> None:
    """A log of another owner with row security."""
    audit(hr)
    execute(
        hr.superuser,
        f"GRANT USAGE ON SCHEMA audit TO {hr.owner}",
        f"GRANT INSERT ON audit.eventlog TO {hr.owner}",
        "ALTER TABLE audit.eventlog ENABLE ROW LEVEL SECURITY",
    )


def without_execute(hr: Hr) -> None:
    """A log of another owner, whose index calls a function that PUBLIC may not call."""
    audit(hr)
    execute(
        hr.superuser,
        f"GRANT USAGE ON SCHEMA audit TO {hr.owner}",
        f"GRANT INSERT ON audit.eventlog TO {hr.owner}",
        "REVOKE EXECUTE ON FUNCTION audit.proc_eventlog_status(bpchar) FROM PUBLIC",
    )


def with_sequence(hr: Hr) -> None:
    """A log that another program has made, numbered by the default of a column."""
    Path("eventlog.toml").write_text(
        CONFIG.replace("[database]", '[database]\nlog_table = "audit.eventlog"')
    )
    execute(
        hr.by(hr.keeper),
        "CREATE TABLE audit.eventlog (record_id bigserial PRIMARY KEY, status char(1) DEFAULT 'N',"
        " event_type smallint, event_time timestamp, perpetrator text, table_name text,"
        " table_key text, column_name text, old_value text, new_value text)",
        f"GRANT USAGE ON SCHEMA audit TO {hr.owner}",
        f"GRANT INSERT ON audit.eventlog TO {hr.owner}",
    )
    assert hr.command(hr.keeper, "db", "upgrade", "--existing-log") == 0


def without_partition(hr: Hr) -> None:
    """A partition of another owner, whose TRUNCATE is captured."""
    assert hr.command(hr.owner, "db", "upgrade") == 0
    execute(hr.superuser, f"ALTER TABLE hr.sale_s OWNER TO {hr.keeper}")
    execute(hr.superuser, f"REVOKE ALL ON hr.sale_s FROM {hr.owner}")


MISSING: list[tuple[Callable[[Hr], None], tuple[str, ...]]] = [
    (
        audit,
        (
            "GRANT USAGE ON SCHEMA audit TO {owner}",
            "GRANT INSERT ON audit.eventlog TO {owner}",
        ),
    ),
    (without_read, ("GRANT SELECT ON hr.usr TO {keeper}",)),
    (
        without_lock,
        ("GRANT SELECT ON hr.sale_note TO {owner}", "GRANT UPDATE ON hr.sale_note TO {owner}"),
    ),
    (forced, ("ALTER TABLE hr.bulk NO FORCE ROW LEVEL SECURITY",)),
    (filtered_log, ("ALTER ROLE {owner} BYPASSRLS",)),
    (
        without_execute,
        ("GRANT EXECUTE ON FUNCTION audit.proc_eventlog_status(status character) TO {owner}",),
    ),
    (with_sequence, ("GRANT USAGE ON SEQUENCE audit.eventlog_record_id_seq TO {owner}",)),
    (without_partition, ("GRANT SELECT ON hr.sale_s TO {owner}",)),
]


@pytest.mark.parametrize(
    ("without", "statements"), MISSING, ids=lambda one: getattr(one, "__name__", "")
)
@pytest.mark.parametrize("way", ["command", "script"])
def test_a_missing_right_is_refused_with_the_statement_that_grants_it(
    hr: Hr, capfd: pytest.CaptureFixture[str], without: Callable[[Hr], None],
    statements: tuple[str, ...], way: str,
) -> None:  # fmt: skip
    without(hr)
    needed = [one.format(owner=hr.owner, keeper=hr.keeper) for one in statements]
    before = hr.owners()
    if way == "script":
        # With all rights the script is made; they are gone when it runs.
        execute(
            hr.superuser, f"ALTER ROLE {hr.owner} SUPERUSER", f"ALTER ROLE {hr.keeper} SUPERUSER"
        )
        capfd.readouterr()
        assert hr.command(None, "triggers", "apply", "--sql") == 0
        script = capfd.readouterr().out
        execute(
            hr.superuser,
            f"ALTER ROLE {hr.owner} NOSUPERUSER",
            f"ALTER ROLE {hr.keeper} NOSUPERUSER",
        )
        with pytest.raises(sa.exc.DBAPIError) as refused:
            execute(hr.superuser, script)
        message = str(refused.value.orig)
    else:
        capfd.readouterr()
        assert hr.command(None, "triggers", "apply") == 1
        message = capfd.readouterr().err
    for statement in needed:
        assert statement in " ".join(message.split())
    assert hr.owners() == before
    execute(hr.superuser, *needed)
    if way == "script":
        execute(hr.superuser, script)
    else:
        assert hr.command(None, "triggers", "apply") == 0
    hr.write()
    assert {owner for name, owner in hr.owners().items() if "eventlog" not in name} <= {
        hr.owner,
        hr.keeper,
    }


def test_what_a_trigger_of_another_program_on_the_log_needs_cannot_be_checked(
    hr: Hr, capfd: pytest.CaptureFixture[str]
) -> None:
    with_sequence(hr)
    execute(
        hr.by(hr.keeper),
        f"GRANT USAGE ON SEQUENCE audit.eventlog_record_id_seq TO {hr.owner}",
        "CREATE FUNCTION audit.theirs() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RETURN NEW; END $$",
        "CREATE TRIGGER theirs BEFORE INSERT ON audit.eventlog FOR EACH ROW"
        " EXECUTE FUNCTION audit.theirs()",
    )
    capfd.readouterr()
    assert hr.command(None, "triggers", "apply") == 1
    assert "trigger theirs of audit.eventlog, which another program made" in capfd.readouterr().err
    assert hr.command(hr.owner, "triggers", "apply") == 0


def test_a_script_of_the_owner_gives_the_owner_the_functions_if_a_superuser_runs_it(
    hr: Hr, capfd: pytest.CaptureFixture[str]
) -> None:
    hr.command(hr.owner, "db", "upgrade")
    capfd.readouterr()
    hr.command(hr.owner, "triggers", "apply", "--sql")
    execute(hr.superuser, capfd.readouterr().out)
    hr.write()
    assert set(hr.owners().values()) == {hr.owner}
    assert hr.command(hr.owner, "triggers", "plan", "--check") == 0


def test_a_migration_that_a_superuser_runs_gives_the_functions_to_the_owner(hr: Hr) -> None:
    hr.command(hr.owner, "db", "upgrade")
    with hr.superuser.connect() as conn:
        reflected = open_database(conn).reflect("hr")
    for table in ("usr", "sale"):
        watch = with_tables(from_literals(table, {"schema": "hr"}), reflected)
        compiled = compile_definition(watch, "postgresql")
        execute(hr.superuser, *(statement for one in compiled for statement in one.create))
    hr.write()
    assert len(hr.owners("proc_sale%")) == 4
    assert set(hr.owners().values()) == {hr.owner}


def as_before(hr: Hr) -> str:
    """Let a superuser own all functions, as before this rule; return the superuser."""
    me = str(hr.superuser.url.username)
    signatures = fetch(
        hr.superuser, "SELECT p.oid::regprocedure FROM pg_proc p WHERE p.proname LIKE 'proc%'"
    )
    execute(hr.superuser, *(f"ALTER FUNCTION {one} OWNER TO {me}" for (one,) in signatures))
    assert set(hr.owners().values()) == {me}
    return me


def found(
    hr: Hr, capfd: pytest.CaptureFixture[str], role: str | None, code: str
) -> list[dict[str, Any]]:
    capfd.readouterr()
    hr.command(role, "doctor", "--json")
    findings = json.loads(capfd.readouterr().out)["findings"]
    return [one for one in findings if one["code"] == code]


@pytest.mark.parametrize("examines", ["owner", "superuser"])
def test_doctor_names_functions_of_before_and_the_transaction_that_gives_them_away(
    hr: Hr, capfd: pytest.CaptureFixture[str], examines: str
) -> None:
    audit(hr)
    execute(hr.superuser, *(one.format(owner=hr.owner) for one in MISSING[0][1]))
    assert hr.command(hr.owner, "triggers", "apply") == 0
    role = hr.owner if examines == "owner" else None
    assert found(hr, capfd, role, "superuser_function") == []
    as_before(hr)
    execute(hr.superuser, f"REVOKE INSERT ON audit.eventlog FROM {hr.owner}")
    execute(hr.superuser, f"GRANT SELECT ON audit.eventlog TO {hr.owner}")
    (finding,) = found(hr, capfd, role, "superuser_function")
    assert "hr.bulk, hr.bulk_tag, hr.sale, hr.sale_note, hr.usr, hr.usr_phone" in finding["text"]
    assert finding["severity"] == "warning"
    first, grant, *changes, last = finding["fix"]
    assert (first, last) == ("BEGIN;", "COMMIT;")
    assert grant == f"GRANT INSERT ON audit.eventlog TO {hr.owner};"
    # Two functions of each table, the one that wakes a publisher, and the one that logs at the commit.
    assert len(changes) == 14
    execute(hr.superuser, "\n".join([grant, *changes]))
    hr.write()
    owners = hr.owners()
    assert owners.pop("proc_eventlog_wake") == owners.pop("proc_eventlog_deferred") == hr.keeper
    assert set(owners.values()) == {hr.owner, hr.superuser.url.username}
    assert [name for name, owner in owners.items() if owner != hr.owner] == ["proc_eventlog_status"]
    assert found(hr, capfd, role, "superuser_function") == []


def test_a_superuser_who_applies_again_gives_functions_of_before_away(hr: Hr) -> None:
    hr.command(hr.owner, "db", "upgrade")
    hr.command(hr.owner, "triggers", "apply")
    me = as_before(hr)
    assert hr.command(hr.owner, "triggers", "plan", "--check") == 0
    assert hr.command(None, "triggers", "plan", "--check") == 4
    assert hr.command(None, "triggers", "apply") == 0
    hr.write()
    assert {name for name, owner in hr.owners().items() if owner == me} == {
        "proc_eventlog_deferred",
        "proc_eventlog_status",
        "proc_eventlog_wake",
    }
    assert hr.command(None, "triggers", "plan", "--check") == 0


@pytest.mark.parametrize("way", ["command", "script"])
def test_what_a_superuser_makes_for_a_log_belongs_to_the_owner_of_the_log(
    hr: Hr, capfd: pytest.CaptureFixture[str], way: str
) -> None:
    execute(
        hr.by(hr.owner),
        "CREATE TABLE hr.eventlog (record_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        " status char(1) DEFAULT 'N', event_type smallint, event_time timestamp, perpetrator text,"
        " table_name text, table_key text, column_name text, old_value text, new_value text)",
    )
    if way == "command":
        assert hr.command(None, "db", "upgrade", "--existing-log") == 0
    else:
        capfd.readouterr()
        assert hr.command(hr.owner, "db", "upgrade", "--existing-log", "--sql") == 0
        execute(hr.superuser, capfd.readouterr().out)
    made = fetch(
        hr.superuser,
        "SELECT c.relname, r.rolname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner"
        " WHERE c.relkind IN ('r', 'S') AND c.relname LIKE 'eventlog%'",
    )
    assert len(made) > 9
    assert {owner for _, owner in made} == {hr.owner}
    assert set(hr.owners().values()) <= {hr.owner}
    hr.command(hr.owner, "triggers", "apply")
    hr.write()


def test_an_upgrade_by_a_superuser_gives_the_functions_of_the_log_away(hr: Hr) -> None:
    hr.command(hr.owner, "db", "upgrade")
    as_before(hr)
    assert hr.command(None, "db", "upgrade") == 0
    functions = ("proc_eventlog_wake", "proc_eventlog_status", "proc_eventlog_deferred")
    assert hr.owners() == dict.fromkeys(functions, hr.owner)


def test_a_superuser_who_creates_a_log_learns_how_to_give_it_to_the_owner_of_its_schema(
    hr: Hr, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    url = url_of(hr.superuser)
    assert cli.run(["--database-url", url, "db", "upgrade"]) == 0
    statement = f"ALTER TABLE hr.eventlog OWNER TO {hr.owner}"
    assert f"run `{statement}`, and then `eventlog db upgrade` again" in capfd.readouterr().err
    execute(hr.superuser, statement)
    assert cli.run(["--database-url", url, "db", "upgrade"]) == 0
    assert "superuser" not in capfd.readouterr().err
    assert set(hr.owners().values()) == {hr.owner}
    assert hr.command(hr.owner, "triggers", "apply") == 0
    hr.write()


def test_the_owner_of_a_schema_may_write_the_log_that_a_superuser_makes_there(hr: Hr) -> None:
    """The triggers of the owner's tables write it (spec/triggers.md 7.7)."""
    url = url_of(hr.superuser)
    assert cli.run(["--database-url", url, "db", "upgrade"]) == 0
    may = f"SELECT has_table_privilege('{hr.owner}', 'hr.eventlog', 'INSERT')"
    assert fetch(hr.superuser, may) == [(True,)]
    assert cli.run(["--database-url", url, "triggers", "apply"]) == 0
    hr.write()
