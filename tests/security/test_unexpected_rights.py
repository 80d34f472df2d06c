"""``doctor`` reports who has rights on the log that no purpose explains (spec/event-log.md 11.1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hr_site import CONFIG, Site

from eventlog import cli
from eventlog.publisher.inspect import doctor as publisher_doctor
from eventlog.sql.port.rights import Purpose

Finding = Mapping[str, Any]


SUBJECT = "the rights of others on the log"


@pytest.fixture(autouse=True)
def _nothing_else_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for checks in ("SESSION_CHECKS", "LOG_CHECKS", "ROW_CHECKS"):
        present = getattr(publisher_doctor, checks)
        monkeypatch.setattr(
            publisher_doctor, checks, {one: present[one] for one in present if one == SUBJECT}
        )


@pytest.fixture
def installed(site: Site) -> Site:
    """An installation with a log and triggers."""
    site.run("owner", "db", "upgrade")
    site.run("owner", "triggers", "apply")
    return site


@pytest.fixture
def unexpected(
    installed: Site, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Sequence[Finding]]:
    """Return the findings about rights that ``doctor`` of a role has."""

    def asked(role: str = "owner", *flags: str) -> Sequence[Finding]:
        capfd.readouterr()
        url = installed.engine(role).url.render_as_string(hide_password=False)
        cli.run(["--database-url", url, *flags, "doctor", "--json"])
        text = installed.unnamed(capfd.readouterr().out)
        return [one for one in json.loads(text)["findings"] if one["code"] == "unexpected_rights"]

    return asked


def test_a_new_log_has_no_unexpected_right(unexpected: Callable[..., Sequence[Finding]]) -> None:
    assert unexpected() == []
    assert unexpected("publisher") == []


@pytest.mark.parametrize("asking", ["owner", "publisher", ""])
def test_an_application_with_rights_on_all_tables_is_reported(
    installed: Site, unexpected: Callable[..., Sequence[Finding]], asking: str
) -> None:
    installed.sql("owner", "GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA hr TO {app}")
    (found,) = unexpected(asking)
    assert found["severity"] == "warning"
    assert found["text"] == (
        "the role {app} has rights on the log that its work with eventlog does not need: reads all "
        "values, forges events, changes the state of the publisher and the consumers"
    )
    installed.sql("owner", *(one for one in found["fix"] if one.startswith("REVOKE ")))
    assert unexpected(asking) == []
    assert {role for _, role, _ in installed.rights_of_others()} <= {"PUBLIC"}


ALLOWED = [
    ("SELECT ON hr.eventlog", "reads all values"),
    ("SELECT (new_value) ON hr.eventlog", "reads all values"),
    ("SELECT ON hr.eventlog_1", "reads all values"),
    ("INSERT ON hr.eventlog", "forges events"),
    ("INSERT ON hr.eventlog_deferred", "forges events"),
    ("UPDATE (status) ON hr.eventlog", "hides changes"),
    ("DELETE ON hr.eventlog", "hides changes"),
    ("TRUNCATE ON hr.eventlog", "hides changes"),
    (
        "TRIGGER ON hr.eventlog",
        "lets its own code run with the rights of the triggers' owner",
    ),
    ("REFERENCES ON hr.eventlog", "has REFERENCES"),
    ("INSERT ON hr.eventlog_state", "changes the state of the publisher and the consumers"),
    ("SELECT ON hr.eventlog_error", "reads error messages and the state of the publisher"),
    (
        "UPDATE ON SEQUENCE hr.eventlog_record_id_seq",
        "changes the state of the publisher and the consumers",
    ),
    ("EXECUTE ON FUNCTION hr.proc_eventlog_wake()", "keeps the publisher asleep"),
    (
        "EXECUTE ON FUNCTION hr.proc_usr_1()",
        "uses the functions of the triggers in its own triggers",
    ),
    (
        "EXECUTE ON FUNCTION hr.proc_eventlog_deferred()",
        "uses the functions of the triggers in its own triggers",
    ),
]
"""Rights, each with what it lets a role do."""


@pytest.mark.parametrize("role", ["{app}", "PUBLIC"])
def test_each_right_is_reported_with_what_it_allows(
    installed: Site, unexpected: Callable[..., Sequence[Finding]], role: str
) -> None:
    installed.run("owner", "db", "partition")
    who = "every role (PUBLIC)" if role == "PUBLIC" else f"the role {role}"
    for right, deed in ALLOWED:
        installed.sql("owner", f"GRANT {right} TO {role}")
        (found,) = unexpected()
        assert found["text"].startswith(who)
        assert (right, found["text"].partition(" does not need: ")[2]) == (right, deed)
        installed.sql("owner", *(one for one in found["fix"] if one.startswith("REVOKE ")))
    assert unexpected() == []


def test_the_rights_of_each_purpose_are_expected(
    installed: Site,
    unexpected: Callable[..., Sequence[Finding]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    for purpose in Purpose:
        capfd.readouterr()
        installed.run("owner", "grants", "{other}", "--purpose", purpose)
        installed.sql("owner", capfd.readouterr().out)
        assert (purpose, unexpected()) == (purpose, [])
        installed.sql("", "DROP OWNED BY {other}")
    installed.run("owner", "grants", "{other}")
    installed.run("owner", "grants", "{other}", "--purpose", "purge")
    installed.sql("owner", capfd.readouterr().out)
    assert unexpected() == []


def test_for_a_publisher_with_one_more_right_the_way_to_keep_its_own_is_shown(
    installed: Site,
    unexpected: Callable[..., Sequence[Finding]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    capfd.readouterr()
    installed.run("owner", "grants", "{publisher}")
    installed.sql("owner", capfd.readouterr().out, "GRANT TRUNCATE ON hr.eventlog TO {publisher}")
    (found,) = unexpected()
    assert "afterwards; it has the rights of publisher" in found["fix"][-1]


def test_a_publisher_may_also_be_a_reader(
    installed: Site,
    unexpected: Callable[..., Sequence[Finding]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    capfd.readouterr()
    installed.run("owner", "grants", "{publisher}")
    reading = "GRANT SELECT ON ALL SEQUENCES IN SCHEMA hr TO {publisher}"
    installed.sql("owner", capfd.readouterr().out, reading)
    assert len(unexpected()) == 1
    text = CONFIG.replace("[database]", '[database]\nreaders = ["{publisher}"]')
    Path("readers.toml").write_text(installed.named(text))
    assert unexpected("owner", "--config", "readers.toml") == []


def test_a_role_that_reads_all_tables_is_reported_until_it_is_a_reader(
    installed: Site, unexpected: Callable[..., Sequence[Finding]]
) -> None:
    installed.sql("owner", "GRANT SELECT ON ALL TABLES IN SCHEMA hr TO {backup}")
    (found,) = unexpected()
    assert (
        "if {backup} only reads, as for a backup, name it in `readers` of [database]"
        in (found["fix"])
    )
    text = CONFIG.replace("[database]", '[database]\nreaders = ["{backup}"]')
    Path("readers.toml").write_text(installed.named(text))
    assert unexpected("owner", "--config", "readers.toml") == []
    installed.sql("owner", "GRANT DELETE ON hr.eventlog TO {backup}")
    (found,) = unexpected("owner", "--config", "readers.toml")
    assert found["text"].endswith(" does not need: hides changes")
    installed.sql("owner", *(one for one in found["fix"] if one.startswith(("REVOKE", "GRANT"))))
    assert unexpected("owner", "--config", "readers.toml") == []
    assert ("eventlog", "{backup}", "SELECT") in installed.rights_of_others()


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER ROLE {other} SUPERUSER",
        "GRANT {owner} TO {other}",
        "GRANT pg_read_all_data TO {other}",
    ],
)
def test_roles_that_may_read_everything_anyway_are_left_out(
    installed: Site, unexpected: Callable[..., Sequence[Finding]], ddl: str
) -> None:
    installed.sql("owner", "GRANT SELECT ON hr.eventlog TO {other}")
    assert len(unexpected()) == 1
    installed.sql("", ddl)
    assert unexpected() == []
    installed.sql("", "ALTER ROLE {other} NOSUPERUSER")


def test_another_program_may_let_every_writer_insert(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    columns = ("record_id bigint PRIMARY KEY, status char, event_type int, event_time timestamp, "
               "perpetrator text, table_name text, table_key text, column_name text, "
               "old_value text, new_value text")  # fmt: skip
    site.sql(
        "owner", f"CREATE TABLE hr.eventlog ({columns})", "GRANT INSERT ON hr.eventlog TO {app}"
    )
    site.run("owner", "db", "upgrade", "--existing-log")
    for right, number in (("INSERT", 0), ("SELECT", 1)):
        site.sql("owner", f"GRANT {right} ON hr.eventlog TO {{app}}")
        capfd.readouterr()
        cli.run(["--database-url", site.engine("owner").url.render_as_string(), "doctor", "--json"])
        findings = json.loads(capfd.readouterr().out)["findings"]
        assert len([one for one in findings if one["code"] == "unexpected_rights"]) == number


def test_the_owner_of_triggers_may_write_the_log_of_another_owner(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    site.sql("", "CREATE SCHEMA audit AUTHORIZATION {other}")
    site.run("other", "--log-table", "audit.eventlog", "db", "upgrade")
    capfd.readouterr()
    site.run("other", "--log-table", "audit.eventlog", "grants", "{owner}", "--purpose", "triggers")
    site.sql("", capfd.readouterr().out)
    site.run("owner", "--log-table", "audit.eventlog", "triggers", "apply")
    site.sql("other", "REVOKE ALL ON audit.eventlog_captured FROM {owner}")
    capfd.readouterr()
    url = site.engine("other").url.render_as_string()
    cli.run(["--database-url", url, "--log-table", "audit.eventlog", "doctor", "--json"])
    findings = json.loads(capfd.readouterr().out)["findings"]
    assert [one for one in findings if one["code"] == "unexpected_rights"] == []
