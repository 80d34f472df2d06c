"""What ``eventlog doctor`` says of triggers and rights, on a real PostgreSQL (spec/triggers.md 7,
7.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from examinations import CONFIG, GOOD, Doctor, rows
from shared import execute, fetch

from eventlog import cli
from eventlog.exit_codes import ExitCode

# --- triggers -------------------------------------------------------------------------------------


def test_missing_triggers_are_an_error(examined: sa.Engine, doctor: Doctor) -> None:
    cli.run(["--quiet", "triggers", "drop"])
    code, found = doctor()
    assert code == ExitCode.NO
    assert {one["text"].split(":")[0] for one in found["trigger_missing"]} == {
        "hr.usr",
        "hr.usr_phone",
    }


def test_one_missing_trigger_is_an_error_too(examined: sa.Engine, doctor: Doctor) -> None:
    execute(examined, "DROP TRIGGER _tgr_usr_u_1 ON hr.usr")
    (finding,) = doctor()[1]["trigger_drifted"]
    assert (finding["severity"], "_tgr_usr_u_1" in finding["text"]) == ("error", True)


def test_disabled_triggers_are_named_with_the_statement_that_enables_them(
    examined: sa.Engine, doctor: Doctor
) -> None:
    execute(examined, "ALTER TABLE hr.usr DISABLE TRIGGER _tgr_usr_u_1")
    code, found = doctor()
    (finding,) = found["trigger_disabled"]
    assert (code, "trigger_drifted" in found) == (ExitCode.NO, False)
    execute(examined, finding["fix"][0])
    assert doctor()[0] == 0


def test_drift_is_named_with_its_reason(examined: sa.Engine, doctor: Doctor) -> None:
    execute(examined, "ALTER TABLE hr.usr ADD COLUMN mail text")
    (finding,) = doctor()[1]["trigger_drifted"]
    assert finding["fix"] == ["eventlog triggers plan", "eventlog triggers apply"]


def test_child_rows_that_are_logged_before_their_owners_are_named(
    examined: sa.Engine, doctor: Doctor
) -> None:
    def found() -> list[str]:
        said = [one["text"] for one in doctor()[1].get("trigger_warning", ())]
        return [text.rpartition(": ")[2] for text in said if "before their owners" in text]

    key = "ALTER TABLE hr.usr_phone ALTER CONSTRAINT usr_phone_idu_fkey DEFERRABLE"
    execute(examined, key)
    assert cli.run(["--quiet", "triggers", "apply", "-y"]) == 0
    assert found() == []
    role = f"capturer_{examined.url.database}"
    execute(
        examined,
        f"CREATE ROLE {role}; GRANT CREATE, USAGE ON SCHEMA hr TO {role}",
        f"ALTER FUNCTION hr.proc_usr_phone_1() OWNER TO {role}",
    )
    assert found() == [f'GRANT INSERT ON "hr"."eventlog_deferred" TO {role}']
    execute(examined, f"GRANT INSERT ON hr.eventlog_deferred TO {role}")
    assert found() == []
    execute(examined, "DROP TABLE hr.eventlog_deferred")
    assert found() == ["eventlog db upgrade"]
    execute(examined, f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_triggers_that_are_no_longer_watched_are_named(examined: sa.Engine, doctor: Doctor) -> None:
    execute(examined, "CREATE TABLE hr.grp (idg integer PRIMARY KEY, name text)")
    Path("eventlog.toml").write_text(CONFIG.replace('"usr"', '"grp"'))
    _, found = doctor()
    assert [one["severity"] for one in found["trigger_orphaned"]] == ["warning", "warning"]


def test_triggers_whose_log_is_gone_are_an_error(examined: sa.Engine, doctor: Doctor) -> None:
    execute(examined, "DROP TABLE hr.eventlog CASCADE")
    code, found = doctor()
    # One cause, one finding: all its triggers, a line of SQL a table, and no second one that there
    # is no log.
    assert (code, set(found)) == (ExitCode.NO, {"trigger_orphaned"})
    (finding,) = found["trigger_orphaned"]
    assert finding["text"] == (
        'the log "hr"."eventlog" does not exist, but 8 triggers still write to it: '
        "every write to hr.usr, hr.usr_phone fails"
    )
    assert finding["fix"][0].startswith("eventlog db upgrade")
    with pytest.raises(sa.exc.DBAPIError):
        execute(examined, "INSERT INTO hr.usr VALUES (1, 'Ada', NULL)")
    for line in finding["fix"][1:]:
        execute(examined, line.removeprefix("or "))
    execute(examined, "INSERT INTO hr.usr VALUES (1, 'Ada', NULL)")


def test_partitions_whose_trigger_is_disabled_are_named(
    examined: sa.Engine, doctor: Doctor
) -> None:
    execute(
        examined,
        "CREATE TABLE hr.sale (id integer PRIMARY KEY, what text) PARTITION BY RANGE (id);"
        "CREATE TABLE hr.sale_1 PARTITION OF hr.sale FOR VALUES FROM (1) TO (100);"
        "CREATE TABLE hr.sale_2 PARTITION OF hr.sale FOR VALUES FROM (100) TO (200)",
    )
    Path("eventlog.toml").write_text(CONFIG.replace('"usr"', '"sale"'))
    cli.run(["--quiet", "triggers", "apply"])
    assert "partition_trigger" not in doctor()[1]
    execute(examined, "ALTER TABLE hr.sale_2 DISABLE TRIGGER _tgr_sale_u_1")
    (finding,) = doctor()[1]["partition_trigger"]
    assert "hr.sale_2" in finding["text"]
    execute(examined, finding["fix"][0])
    assert "partition_trigger" not in doctor()[1]


# --- rights ---------------------------------------------------------------------------------------


@pytest.fixture
def nobody(examined: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A user without any right, who is who connects."""
    name = f"nobody_{examined.url.database}"
    execute(examined, f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    monkeypatch.setenv(
        "EVENTLOG_DATABASE_URL",
        examined.url.set(username=name, password="x").render_as_string(hide_password=False),
    )
    yield name
    execute(examined, f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_rights_that_are_missing_come_with_their_grants(
    examined: sa.Engine, doctor: Doctor, nobody: str
) -> None:
    code, found = doctor()
    assert code == ExitCode.NO
    # Without USAGE it is unknown whether there is a log.
    assert "log_table" not in found
    *grants, command = found["rights_publish"][0]["fix"]
    assert grants[0] == f'GRANT USAGE ON SCHEMA "hr" TO "{nobody}"'
    assert command == (
        f"`eventlog grants {nobody} --purpose publisher`, run by the owner, prints the rights"
    )
    execute(examined, ";".join(grants))
    _, found = doctor()
    assert "rights_publish" not in found
    (finding,) = found["rights_read"]
    assert "may not read usr (idu), usr_phone (idu, phoneno)" in finding["text"]
    assert finding["fix"][1] == f'GRANT SELECT ON "hr"."usr", "hr"."usr_phone" TO "{nobody}"'
    execute(examined, ";".join(finding["fix"][:-1]))
    _, found = doctor()
    assert "rights_read" not in found
    # What a publisher's user need not be able to do is not a fault.
    assert found["rights_triggers"][0]["severity"] == "info"
    assert "triggers_not_compared" not in found
    assert doctor()[0] == 0


def test_a_publishers_user_sees_missing_and_disabled_triggers(
    examined: sa.Engine, doctor: Doctor, nobody: str
) -> None:
    granted(examined, nobody, doctor)
    execute(examined, f"GRANT SELECT ON ALL TABLES IN SCHEMA hr TO {nobody}")
    execute(examined, "ALTER TABLE hr.usr DISABLE TRIGGER _tgr_usr_d_1")
    for letter in "iudt":
        execute(examined, f"DROP TRIGGER _tgr_usr_phone_{letter}_1 ON hr.usr_phone")
    _, found = doctor()
    assert "_tgr_usr_d_1" in found["trigger_disabled"][0]["text"]
    assert found["trigger_missing"][0]["text"].startswith("hr.usr_phone: ")


def test_a_right_that_one_check_needs_is_a_finding_and_not_the_end(
    examined: sa.Engine, doctor: Doctor, nobody: str
) -> None:
    granted(examined, nobody, doctor)
    execute(examined, f"REVOKE SELECT ON hr.eventlog_inflight FROM {nobody}")
    rows(examined, GOOD.replace("'N'", "'x'"))
    _, found = doctor()
    assert "SELECT on table eventlog_inflight" in found["rights_publish"][0]["text"]


def granted(database: sa.Engine, user: str, doctor: Doctor) -> None:
    """Give a user all that publishing needs but reading back."""
    execute(database, ";".join(doctor()[1]["rights_publish"][0]["fix"][:-1]))


def test_a_class_whose_values_are_logged_needs_no_right_to_read(
    examined: sa.Engine, doctor: Doctor, nobody: str
) -> None:
    granted(examined, nobody, doctor)
    execute(examined, "DROP TABLE hr.usr_phone")
    for row_style, is_read in (
        ("field", False),
        ("remove_all", False),
        ("field_query_back", True),
        ("row_query_back", True),
    ):
        Path("eventlog.toml").write_text(f'{CONFIG}row_style = "{row_style}"\n')
        assert ("rights_read" in doctor()[1]) is is_read, row_style


def test_a_class_whose_values_are_logged_needs_the_right_once_its_table_was_altered(
    examined: sa.Engine, doctor: Doctor, nobody: str
) -> None:
    granted(examined, nobody, doctor)
    execute(examined, "DROP TABLE hr.usr_phone")
    Path("eventlog.toml").write_text(f'{CONFIG}row_style = "field"\n')
    (finding,) = doctor()[1]["rights_read_later"]
    assert (finding["severity"], "usr (fname, idu, lname)" in finding["text"]) == ("warning", True)
    execute(examined, finding["fix"][1])
    assert "rights_read_later" not in doctor()[1]


def test_a_child_table_is_read_with_the_key_of_its_owner(
    examined: sa.Engine, doctor: Doctor, nobody: str
) -> None:
    granted(examined, nobody, doctor)
    (finding,) = doctor()[1]["rights_read"]
    assert " may not read usr (idu), usr_phone (idu, phoneno): " in finding["text"]
    execute(
        examined,
        f'GRANT SELECT (idu) ON hr.usr TO "{nobody}"; GRANT SELECT ON hr.usr_phone TO "{nobody}"',
    )
    assert "rights_read" not in doctor()[1]


def test_a_format_that_sends_whole_rows_needs_the_right_to_read_them(
    examined: sa.Engine, doctor: Doctor, nobody: str
) -> None:
    granted(examined, nobody, doctor)
    execute(examined, "DROP TABLE hr.usr_phone")
    Path("eventlog.toml").write_text(f'{CONFIG}[format]\ntype = "debezium"\n')
    (finding,) = doctor()[1]["rights_read"]
    assert (finding["severity"], "usr (fname, idu, lname)" in finding["text"]) == ("error", True)
    execute(examined, finding["fix"][1])
    assert "rights_read" not in doctor()[1]


def test_a_class_that_nobody_declared_may_be_logged_in_any_style(
    examined: sa.Engine, doctor: Doctor, nobody: str
) -> None:
    granted(examined, nobody, doctor)
    execute(examined, "DROP TABLE hr.usr_phone")
    Path("eventlog.toml").write_text(CONFIG.partition("[[watch]]")[0])
    assert "rights_read" in doctor()[1]


def test_a_snapshot_of_a_consumer_needs_the_right_to_read_now(
    examined: sa.Engine, doctor: Doctor, nobody: str
) -> None:
    execute(examined, "DROP TABLE hr.usr_phone")
    reading = f'{CONFIG}row_style = "field"\n[source]\nconsumer = "search"\nstart_from = "%s"\n'
    Path("eventlog.toml").write_text(reading % "latest")
    granted(examined, nobody, doctor)
    execute(examined, f"REVOKE DELETE ON hr.eventlog_consumer FROM {nobody}")
    found = doctor()[1]
    assert "rights_read_later" in found
    (finding,) = found["rights_reset"]
    assert "DELETE on table eventlog_consumer" in finding["text"]
    Path("eventlog.toml").write_text(reading % "snapshot")
    (finding,) = doctor()[1]["rights_read"]
    # The consumer is registered, and has sent no object yet.
    execute(
        examined,
        "INSERT INTO hr.eventlog_consumer (name, begins, done, loaded) "
        "VALUES ('search', 'snapshot', '[0]', '{}')",
    )
    Path("eventlog.toml").write_text(reading % "latest")
    assert [finding] == doctor()[1]["rights_read"]


def test_the_grants_that_are_printed_are_all_that_a_role_needs(
    examined: sa.Engine, doctor: Doctor, nobody: str, capfd: pytest.CaptureFixture[str]
) -> None:
    owner = examined.url.render_as_string(hide_password=False)

    def grant(purpose: str) -> None:
        command = ["--database-url", owner, "grants", nobody, "--purpose", purpose]
        capfd.readouterr()
        assert cli.run(command) == 0
        execute(examined, capfd.readouterr().out)

    def lacks() -> set[str]:
        return {code for code in doctor()[1] if code.startswith("rights_")} - {"rights_triggers"}

    grant("monitor")
    for command in (["status"], ["errors"], ["consumers", "list"], ["triggers", "plan"]):
        assert cli.run(["--quiet", *command]) == 0, command
    assert lacks() == {"rights_publish"}
    grant("publisher")
    assert lacks() == set()
    assert cli.run(["--quiet", "publish", "--once"]) == 0
    execute(examined, f"DROP OWNED BY {nobody}")
    Path("eventlog.toml").write_text(
        CONFIG + '[source]\nconsumer = "search"\nstart_from = "snapshot"\n'
    )
    grant("stream")
    assert "SELECT on table eventlog;" not in doctor()[1]["rights_publish"][0]["text"]
    grant("consumer")
    assert lacks() == {"rights_reset"}
    assert cli.run(["--quiet", "publish", "--once"]) == 0
    grant("reset")
    assert lacks() == set()
    assert cli.run(["--quiet", "consumers", "reset", "search", "--yes"]) == 0


COLOURED = "\x1b[31m"
"""The beginning of red text in a terminal: a part of a name here."""


def test_grants_into_a_pipe_name_a_table_and_a_role_with_control_characters(
    examined: sa.Engine, nobody: str, capfd: pytest.CaptureFixture[str]
) -> None:
    execute(
        examined,
        "CREATE TABLE hr.plain (id integer PRIMARY KEY)",
        f'CREATE TABLE hr."plain{COLOURED}" (id integer PRIMARY KEY)',
        f'CREATE ROLE "{nobody}{COLOURED}"',
    )
    Path("eventlog.toml").write_text(
        CONFIG.replace('"usr"', '"plain\\u001b[31m"') + '[format]\ntype = "cloudevents"\n'
    )
    owner = examined.url.render_as_string(hide_password=False)
    try:
        assert cli.run(["--database-url", owner, "grants", f"{nobody}{COLOURED}"]) == 0
        execute(examined, capfd.readouterr().out)
        granted = fetch(
            examined,
            "SELECT grantee, table_name FROM information_schema.role_table_grants "
            "WHERE table_name LIKE 'plain%' AND grantee LIKE 'nobody%'",
        )
        assert granted == [(f"{nobody}{COLOURED}", f"plain{COLOURED}")]
    finally:
        owned = f'"{nobody}{COLOURED}"'
        execute(examined, f"DROP OWNED BY {owned}; DROP ROLE {owned}")


@pytest.mark.parametrize("role", ["", " "])
def test_grants_to_a_role_without_a_name_are_refused(
    examined: sa.Engine, role: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["grants", role]) == 2
    output = capfd.readouterr()
    assert output.out == ""
    assert "ROLE" in output.err
