"""docs/guides/install.md: its commands and its SQL, run by the roles that it names on a database as it
describes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from documents import ROOT, Scenario, fenced, scenarios
from role_site import Site, at_home_in

from eventlog.exit_codes import ExitCode
from eventlog.xds.reader import read_events

PAGE = ROOT / "docs" / "guides" / "install.md"
SCENARIOS = scenarios(PAGE)
SAMPLE = (ROOT / "eventlog" / "cli" / "demo.sql").read_text(encoding="utf-8")
OWNERSHIP = "\n".join(
    line
    for line in (ROOT / "docker" / "roles.sql").read_text(encoding="utf-8").splitlines()
    if line.startswith("ALTER")
)
CHANGES = """
INSERT INTO hr.usr (idu, login, fname, lname) VALUES (1, 'ada', 'Ada', 'Lovelace');
INSERT INTO hr.usr_phone VALUES (1, '555-1');
INSERT INTO hr.grp (idg, name) VALUES (1, 'analysts');
"""
CATALOGUE = """
SELECT 'class', n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname !~ '^(pg_|information_schema)'
UNION ALL SELECT 'function', p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname !~ '^(pg_|information_schema)'
UNION ALL SELECT 'trigger', t.tgrelid::regclass || ' ' || t.tgname FROM pg_trigger t WHERE NOT t.tgisinternal
UNION ALL SELECT 'rights', c.relname || ' ' || coalesce(c.relacl::text, '') FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'hr'
ORDER BY 1, 2
"""


@pytest.fixture
def site(
    database: sa.Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Site]:
    at_home_in(tmp_path, monkeypatch)
    (config,) = (text for text in fenced(PAGE, "toml") if "[database]" in text)
    (tmp_path / "eventlog.toml").write_text(re.sub("(?m)^url =.*$", "", config), encoding="utf-8")
    site = Site(database, tmp_path, f"_{os.getpid()}")
    with site.roles("hr_owner", "hr_app", "publisher", "log_owner"):
        site.sql("postgres", f"CREATE ROLE hr_owner LOGIN; {SAMPLE}; {OWNERSHIP}")
        yield site


@pytest.fixture
def play(site: Site, capfd: pytest.CaptureFixture[str]) -> Callable[[str], Site]:
    """Run a scenario of the page, before it the one that it comes after, if that has not been
    run.
    """
    played = []

    def play(name: str) -> Site:
        scenario = SCENARIOS[name]
        if scenario.after is not None and scenario.after not in played:
            play(scenario.after)
        if not played and not any(
            "CREATE ROLE publisher" in block.text for block in scenario.blocks
        ):
            site.sql("postgres", "CREATE ROLE publisher LOGIN")
        played.append(name)
        for block in scenario.blocks:
            site.run(block, capfd)
        return site

    return play


def published(site: Site) -> list[tuple[str, str]]:
    """Operation and association of what was written to files, in order."""
    events = []
    for path in sorted((site.directory / "documents").glob("*.xmll")):
        with path.open("rb") as file:
            events += [
                (event.operation, event.association.partition(",")[0])
                for line in file
                for event in read_events(line).events
            ]
    return events


ALL = [("add", "idu=1"), ("modify", "idu=1"), ("modify", "idg=1")]


def test_every_scenario_of_the_page_is_run_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert {name for name in SCENARIOS if f'play("{name}")' not in source} == set()
    assert all(
        isinstance(scenario, Scenario) and scenario.blocks for scenario in SCENARIOS.values()
    )


def test_one_owner_the_application_has_no_right_and_the_publisher_publishes(
    play: Callable[[str], Site],
) -> None:
    site = play("one owner")
    site.sql("hr_app", CHANGES)
    for relation in ("eventlog", "eventlog_error", "eventlog_inflight", "eventlog_resync"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            site.sql("hr_app", f"SELECT * FROM hr.{relation}")
    assert site.command("publisher", "eventlog publish --once") == 0
    assert published(site) == ALL
    assert site.rows("SELECT DISTINCT status, perpetrator FROM hr.eventlog") == [
        ("S", site.named("hr_app"))
    ]
    assert site.command("publisher", "eventlog doctor") == 0


def test_the_grants_of_the_page_are_enough_for_each_command_that_it_names(
    play: Callable[[str], Site],
) -> None:
    site = play("one owner")
    site.sql("hr_app", CHANGES)
    for command in (
        "publish --once",
        "status",
        "explain 1",
        "requeue --status S --ids 1-2 --force",
        "resync grp",
        "--set publisher.delete_from_log=yes publish --once",
        "purge --older-than 1d",
    ):
        assert site.command("publisher", f"eventlog {command}") == 0, command
    # The two rows logged again and the one of the resync were deleted, not marked.
    assert site.rows("SELECT DISTINCT status FROM hr.eventlog") == [("S",)]


def test_without_the_further_grants_the_further_commands_are_refused(
    play: Callable[[str], Site],
) -> None:
    site = play("one owner")
    site.sql(
        "hr_owner",
        "REVOKE DELETE, INSERT ON hr.eventlog FROM publisher; REVOKE ALL ON hr.eventlog_resync "
        "FROM publisher;REVOKE DELETE ON hr.eventlog_error FROM publisher",
    )
    site.sql("hr_app", CHANGES)
    assert site.command("publisher", "eventlog publish --once") == 0
    for command in (
        "requeue --status S --ids 1-2 --force",
        "resync grp",
        "--set publisher.delete_from_log=yes publish --once",
        "purge --older-than 1d",
    ):
        assert site.command("publisher", f"eventlog {command}") == ExitCode.FAILED, command


def test_by_sql_that_a_dba_runs_the_database_is_as_declared(
    play: Callable[[str], Site], capfd: pytest.CaptureFixture[str]
) -> None:
    site = play("by SQL")
    site.sql("hr_app", CHANGES)
    assert site.rows("SELECT count(*) > 0 FROM hr.eventlog WHERE status = 'N'") == [(True,)]
    capfd.readouterr()
    assert site.command("hr_owner", "eventlog db upgrade") == 0
    assert "nothing to do" in capfd.readouterr().out


def test_a_log_of_another_owner_takes_the_rows_of_triggers_that_may_only_insert(
    play: Callable[[str], Site],
) -> None:
    site = play("a log of another owner")
    site.sql("hr_app", CHANGES)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        site.sql("hr_owner", "SELECT * FROM audit.eventlog")
    assert site.command("publisher", "eventlog --log-table audit.eventlog publish --once") == 0
    assert published(site) == ALL


def test_a_log_that_somebody_else_made_keeps_its_form_and_its_rows(
    play: Callable[[str], Site],
) -> None:
    site = play("somebody else's log")
    site.sql(
        "hr_owner",
        "INSERT INTO hr.indirectlog (event_type, perpetrator, table_name, table_key) VALUES (4, "
        "'x', 'usr', 'idu=7')",
    )
    assert site.command("hr_owner", "eventlog --log-table indirectlog publish --once") == 0
    assert published(site) == [("delete", "idu=7")]
    assert site.command("hr_owner", "eventlog --log-table indirectlog db downgrade base") == 0
    assert site.rows("SELECT record_id, status FROM hr.indirectlog") == [(1, "S")]
    left = (
        "SELECT relname FROM pg_class WHERE starts_with(relname, 'indirectlog') AND relkind IN "
        "('r', 'S') ORDER BY 1"
    )
    assert site.rows(left) == [("indirectlog",), ("indirectlog_record_id_seq",)]


def test_an_upgrade_of_what_is_up_to_date_changes_nothing(play: Callable[[str], Site]) -> None:
    before = play("one owner").rows(CATALOGUE)
    assert play("upgrade").rows(CATALOGUE) == before


def test_two_logs_in_one_database_do_not_touch_each_other(play: Callable[[str], Site]) -> None:
    site = play("two logs")
    for command in (
        "second triggers drop",
        "second db downgrade base",
        "first triggers plan --check",
    ):
        assert site.command("hr_owner", f"eventlog --log-table {command}") == 0, command
    site.sql("hr_app", CHANGES)
    assert site.rows("SELECT count(*) > 0 FROM hr.first") == [(True,)]
    assert site.rows("SELECT to_regclass('hr.second')::text") == [(None,)]


def test_uninstalling_leaves_the_catalogue_as_it_was(
    play: Callable[[str], Site], site: Site
) -> None:
    before = site.rows(CATALOGUE)
    play("uninstall")
    assert [row for row in site.rows(CATALOGUE) if row[0] != "rights"] == [
        row for row in before if row[0] != "rights"
    ]
    site.sql("hr_app", CHANGES)


def grants_of(text: str) -> list[str]:
    return re.findall(r"(?m)^GRANT [^;]*;", text)


def test_the_page_shows_the_grants_that_the_command_prints(play: Callable[[str], Site]) -> None:
    site = play("one owner")
    printed = (site.directory / "grants.sql").read_text(encoding="utf-8").replace('"', "")
    shown = next(text for text in fenced(PAGE, "sql") if "ON SCHEMA" in text)
    assert grants_of(printed) == grants_of(site.named(shown))


def test_the_grants_of_the_compose_file_are_those_of_the_page() -> None:
    shown = next(text for text in fenced(PAGE, "sql") if "ON SCHEMA" in text)
    composed = (ROOT / "docker" / "grants.sql").read_text(encoding="utf-8")
    assert grants_of(composed) == grants_of(shown)
