"""``eventlog doctor`` on a real PostgreSQL (spec/event-log.md 11, spec/triggers.md 7, 7.1)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sqlalchemy as sa
from shared import execute

from eventlog import cli
from eventlog.model import LogRow
from eventlog.publisher import doctor as publisher_doctor
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable

SCHEMA = """
CREATE SCHEMA hr;
CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text, lname text);
CREATE TABLE hr.usr_phone (idu integer REFERENCES hr.usr ON DELETE CASCADE, phoneno text, UNIQUE (idu, phoneno));
"""
CONFIG = """
[database]
schema_name = "hr"
[publisher]
loopback_rows = "consume"   # one user does all here
[[watch]]
table = "usr"
"""
LOG = LogTable("hr", "eventlog", LogRow._fields)

Doctor = Callable[..., tuple[int, dict[str, list[dict[str, Any]]]]]


def fill(database: sa.Engine) -> None:
    execute(database, SCHEMA)
    url = database.url.render_as_string(hide_password=False)
    with TemporaryDirectory() as directory:
        file = Path(directory, "eventlog.toml")
        file.write_text(CONFIG)
        for command in (("db", "upgrade"), ("triggers", "apply")):
            assert cli.run(["--quiet", "--config", str(file), "--database-url", url, *command]) == 0


@pytest.fixture
def home(filled_database: Any, empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    """A database with the schema above, a log and its triggers, and a directory with its configuration."""
    Path("eventlog.toml").write_text(CONFIG)
    with filled_database(fill) as database:
        monkeypatch.setenv("EVENTLOG_DATABASE_URL", database.url.render_as_string(hide_password=False))
        yield database


@pytest.fixture
def doctor(home: sa.Engine, capfd: pytest.CaptureFixture[str]) -> Doctor:
    """Run ``eventlog doctor --json``: its exit code, and its findings by code."""

    def doctor(*arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
        capfd.readouterr()
        code = cli.run([*arguments, "doctor", "--json"])
        found: dict[str, list[dict[str, Any]]] = {}
        for finding in json.loads(capfd.readouterr().out)["findings"]:
            found.setdefault(finding["code"], []).append(finding)
        return code, found

    return doctor


def rows(database: sa.Engine, *values: str) -> None:
    """Rows of the log: status, type, table, key, column, new value, then perpetrator and event_time."""
    for value in values:
        execute(
            database,
            "INSERT INTO hr.eventlog (status, event_type, table_name, table_key, column_name, new_value, perpetrator,"
            f" event_time) VALUES ({value})",
        )


NOW = "now() AT TIME ZONE 'UTC'"
GOOD = f"'N', 2, 'usr', 'idu=1', 'fname', 'Ada', 'app', {NOW}"


def test_a_healthy_log_has_no_finding_that_counts(doctor: Doctor) -> None:
    code, found = doctor()
    assert {one: found[one] for one in found if one != "not_captured"} == {}
    assert code == 0


def test_every_finding_says_what_mends_it_and_changes_nothing(home: sa.Engine, doctor: Doctor) -> None:
    rows(home, GOOD, "'n', 9, 'usr', 'x', NULL, NULL, NULL, now()".replace("9", "1"))
    execute(home, "DROP INDEX hr.idx_eventlog_1; ALTER TABLE hr.usr DISABLE TRIGGER ALL")
    _, found = doctor()
    findings = [finding for of_code in found.values() for finding in of_code]
    assert all(finding["mend"] for finding in findings if finding["severity"] != "info")
    assert all(set(finding) == {"code", "severity", "text", "mend"} for finding in findings)
    order = [finding["severity"] for finding in findings]
    assert order == sorted(order, key=("error", "warning", "info").index)
    assert set(doctor()[1]) == set(found)


def test_for_people_it_writes_sentences_and_commands_to_standard_output(
    home: sa.Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    execute(home, "DROP INDEX hr.idx_eventlog_1")
    assert cli.run(["doctor"]) == 1
    out, err = capfd.readouterr()
    assert err == ""
    assert "warning: the log has no valid index of the rows N" in out
    assert 'CREATE INDEX CONCURRENTLY "idx_eventlog_1" ON "hr"."eventlog" ("record_id") WHERE "status" = \'N\'' in out
    assert "database.schema_name" in out  # the settings in effect
    assert "errors: 0, warnings: 1" in out
    assert cli.run(["doctor", "--ignore", "index_missing"]) == 0
    assert "Nothing is wrong." in capfd.readouterr().out


def test_settings_in_effect_are_shown_without_secrets(home: sa.Engine, capfd: pytest.CaptureFixture[str]) -> None:
    cli.run(["doctor", "--json"])
    settings = json.loads(capfd.readouterr().out)["settings"]
    assert {"section": "publisher", "key": "fold_span", "value": 10000, "source": "default"} in settings


# --- rows N that are not picked up ------------------------------------------------------------------------------------


def test_reserved_letters_are_named_with_their_rows(home: sa.Engine, doctor: Doctor) -> None:
    rows(home, GOOD.replace("'N'", "'n'"), GOOD.replace("'N'", "'x'"), GOOD.replace("'N'", "'S'"))
    code, found = doctor()
    texts = [one["text"] for one in found["status_reserved"]]
    assert code == 1
    assert [text[:40] for text in texts] == [
        "1 row of status 'n' (record_id 1): not l",
        "1 row of status 'x' (record_id 2): not l",
    ]
    for one in found["status_reserved"]:
        execute(home, one["mend"][0])
    assert "status_reserved" not in doctor()[1]


def test_failed_rows_are_named_until_they_are_requeued(home: sa.Engine, doctor: Doctor) -> None:
    rows(home, GOOD.replace("'N'", "'E'"), GOOD.replace("'N'", "'F'"))
    _, found = doctor()
    assert [one["mend"] for one in found["rows_failed"]] == [
        ["eventlog show 1", "eventlog requeue --status E"],
        ["eventlog show 2", "eventlog requeue --status F"],
    ]


def test_loopback_rows_are_named(home: sa.Engine, doctor: Doctor) -> None:
    user = "session_user"
    rows(home, GOOD.replace("'app'", user), GOOD)
    assert doctor()[1]["loopback"][0]["severity"] == "info"
    _, found = doctor("--set", "publisher.loopback_rows=leave")
    (finding,) = found["loopback"]
    assert finding["severity"] == "warning"
    assert finding["text"].startswith("1 row of status N (from record_id 1 on) made by ")
    assert "loopback" not in doctor("--set", "publisher.allow_loopback=yes")[1]


def test_rows_that_are_not_due_are_named_with_the_next_time(home: sa.Engine, doctor: Doctor) -> None:
    rows(home, GOOD, GOOD.replace(NOW, f"{NOW} + interval '3 days'"))
    _, found = doctor("--set", "publisher.handle_future_events=yes")
    (finding,) = found["not_due"]
    assert finding["text"].startswith("1 row of status N not due yet")
    assert "(in 3 days)" in finding["text"]
    assert "event_time" not in found
    # Without that option they are published now, and the clock that they were written by is wrong.
    _, found = doctor()
    assert "not_due" not in found
    assert found["event_time"][0]["text"].startswith("row 2 has event_time ")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("'N', 4, 'usr_phone', 'idu=1', NULL, NULL, NULL", "bad_event_type"),
        ("'N', 2, 'nobody', 'idu=1', 'fname', 'Ada', NULL", "unknown_table"),
        ("'N', 2, 'usr', 'idu=x', 'fname', 'Ada', NULL", "bad_table_key"),
        ("'N', 2, 'usr', 'idu=1', 'gone', 'Ada', NULL", "unknown_column"),
        ("'N', 2, 'usr', 'idu=1', 'fname', chr(7), NULL", "bad_xml_char"),
    ],
)
def test_rows_that_would_become_e_are_named_by_what_they_fail(
    home: sa.Engine, doctor: Doctor, value: str, code: str
) -> None:
    rows(home, GOOD, f"{value}, {NOW}")
    (finding,) = doctor()[1]["bad_rows"]
    assert finding["text"].startswith(f"1 row of status N bad ({code}): record_id 2; they would become E.")
    assert finding["mend"][0] == "eventlog show 2"


def test_rows_without_a_positive_record_id_are_named(home: sa.Engine, doctor: Doctor) -> None:
    execute(
        home,
        "INSERT INTO hr.eventlog (record_id, event_type, table_name, table_key) VALUES (0, 4, 'usr', 'idu=1'),"
        " (-5, 4, 'usr', 'idu=1')",
    )
    code, found = doctor()
    assert code == 1
    assert found["record_id"][0]["text"].startswith('2 rows of status N whose "record_id" is NULL or not positive')
    execute(home, found["record_id"][0]["mend"][0])
    assert "record_id" not in doctor()[1]


def test_what_is_in_flight_is_no_fault_while_a_publisher_runs(home: sa.Engine, doctor: Doctor) -> None:
    rows(home, GOOD, GOOD)
    execute(home, """INSERT INTO hr.eventlog_inflight (flight_no, composition) VALUES (7, '[[1,[["1",[[1,2]]]]]]')""")
    _, found = doctor()
    assert found["in_flight_left"][0]["text"].startswith("1 event of 2 rows in flight")
    assert found["no_publisher"][0]["mend"] == ["eventlog publish"]
    with home.connect() as publisher:
        assert DIALECT.try_lock(publisher, LOG)
        code, found = doctor()
        assert (code, found["in_flight"][0]["severity"], found["queue"][0]["severity"]) == (0, "info", "info")
        execute(home, "UPDATE hr.eventlog_inflight SET started = started - interval '1 hour'")
        code, found = doctor()
        assert (code, found["in_flight"][0]["severity"]) == (1, "warning")


def test_a_disabled_publisher_is_named(doctor: Doctor) -> None:
    assert "publisher_disabled" in doctor("--set", "publisher.publisher_disabled=yes")[1]


# --- keys, classes ----------------------------------------------------------------------------------------------------


def test_keys_that_are_not_canonical_are_named_with_their_canonical_text(home: sa.Engine, doctor: Doctor) -> None:
    rows(
        home,
        GOOD,
        GOOD.replace("idu=1", ' IDU = "01" '),
        GOOD.replace("'usr'", "'usr_phone'").replace("idu=1", '"idu"=1'),
    )
    (finding,) = doctor()[1]["key_not_canonical"]
    assert finding["text"].startswith(
        "2 rows of class usr spell table_key other than canonically: ' IDU = \"01\" ' for 'idu=1'"
    )


def test_a_watched_table_without_key_is_named_and_the_others_are_examined(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "CREATE TABLE hr.bare (a integer NOT NULL UNIQUE, b text)")
    Path("eventlog.toml").write_text(CONFIG + '[[watch]]\ntable = "bare"\n[[watch]]\ntable = "nowhere"\n')
    rows(home, GOOD.replace("idu=1", "idu=01"))
    code, found = doctor()
    assert code == 1
    assert found["class_without_key"][0]["mend"] == ['ALTER TABLE "hr"."bare" ADD PRIMARY KEY ("a")']
    assert "nowhere" in found["class_missing"][0]["text"]
    assert "key_not_canonical" in found


def test_tables_without_key_of_a_whole_schema_are_mentioned_only(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "CREATE TABLE hr.bare (a integer, b text); CREATE TABLE hr.other (a integer PRIMARY KEY)")
    Path("eventlog.toml").write_text(CONFIG.split("[[watch]]")[0])
    _, found = doctor()
    assert [one["severity"] for one in found["class_without_key"]] == ["info"]
    assert [one["text"][:34] for one in found["trigger_missing"]] == ["class other has no trigger of any k"[:34]]


def test_deferrable_keys_are_named(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "CREATE TABLE hr.seat (id integer PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, who text)")
    Path("eventlog.toml").write_text(CONFIG + '[[watch]]\ntable = "seat"\n')
    cli.run(["--quiet", "triggers", "apply"])
    (finding,) = doctor()[1]["deferrable_key"]
    assert "seat" in finding["text"]


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ddl", "codes"),
    [
        ("DROP INDEX hr.idx_eventlog_1", ["index_missing"]),
        ("ALTER TABLE hr.eventlog DROP CONSTRAINT eventlog_pkey", ["index_missing"]),
        ("DROP INDEX hr.idx_eventlog_1; CREATE INDEX ON hr.eventlog (record_id) WHERE status = 'S'", ["index_missing"]),
        ("DROP INDEX hr.idx_eventlog_1; CREATE INDEX ON hr.eventlog (record_id) WHERE 'N' = status", ["index_missing"]),
        ("DROP INDEX hr.idx_eventlog_1; CREATE INDEX ON hr.eventlog (status, record_id)", []),
        ("DROP INDEX hr.idx_eventlog_1; CREATE INDEX ON hr.eventlog (record_id) WHERE status = 'N'", []),
        ("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'hr.idx_eventlog_1'::regclass", ["index_missing"]),
    ],
)
def test_the_indexes_that_reading_needs_are_looked_for(
    home: sa.Engine, doctor: Doctor, ddl: str, codes: list[str]
) -> None:
    execute(home, ddl)
    assert [code for code in doctor()[1] if code == "index_missing"] == codes


def test_the_index_that_is_proposed_is_the_one_that_is_needed(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "DROP INDEX hr.idx_eventlog_1; ALTER TABLE hr.eventlog DROP CONSTRAINT eventlog_pkey")
    _, found = doctor()
    assert len(found["index_missing"]) == 2
    with home.execution_options(isolation_level="AUTOCOMMIT").connect() as conn:
        for one in found["index_missing"]:
            conn.exec_driver_sql(one["mend"][0])
    assert "index_missing" not in doctor()[1]


def test_a_sequence_with_a_cache_is_an_error(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "ALTER TABLE hr.eventlog ALTER record_id SET CACHE 50")
    (finding,) = doctor()[1]["sequence_cache"]
    assert finding["severity"] == "error"
    execute(home, finding["mend"][0])
    assert doctor()[0] == 0


def test_a_sequence_that_is_only_a_default_is_found(home: sa.Engine, doctor: Doctor) -> None:
    execute(
        home,
        "CREATE SEQUENCE hr.ids CACHE 20 INCREMENT -1; ALTER TABLE hr.eventlog ALTER record_id DROP IDENTITY,"
        " ALTER record_id SET DEFAULT nextval('hr.ids')",
    )
    _, found = doctor()
    assert "hr.ids" in found["sequence_cache"][0]["text"]
    assert "descends" in found["sequence_order"][0]["text"]


def test_a_log_without_autovacuum_is_named(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "ALTER TABLE hr.eventlog SET (autovacuum_enabled = off)")
    (finding,) = doctor()[1]["autovacuum_off"]
    execute(home, finding["mend"][0])
    assert doctor()[0] == 0


def test_without_a_log_it_says_how_to_make_one(home: sa.Engine, doctor: Doctor) -> None:
    code, found = doctor("--log-table", "nolog")
    assert (code, found["log_table"][0]["mend"][0]) == (1, "eventlog db upgrade")


def test_a_missing_companion_is_a_finding(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "DROP TABLE hr.eventlog_error")
    assert "hr.eventlog_error" in doctor()[1]["log_table"][0]["text"]


def test_an_older_revision_is_named(home: sa.Engine, doctor: Doctor) -> None:
    older = (
        "DELETE FROM hr.eventlog_version WHERE version_num <> '0001'; INSERT INTO hr.eventlog_version VALUES ('0002x')"
    )
    execute(home, older)
    assert doctor()[1]["migration"][0]["mend"] == ["eventlog db upgrade"]


# --- triggers ---------------------------------------------------------------------------------------------------------


def test_missing_triggers_are_an_error(home: sa.Engine, doctor: Doctor) -> None:
    cli.run(["--quiet", "triggers", "drop"])
    code, found = doctor()
    assert code == 1
    assert {one["text"].split(":")[0] for one in found["trigger_missing"]} == {"hr.usr", "hr.usr_phone"}


def test_one_missing_trigger_is_an_error_too(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "DROP TRIGGER _tgr_usr_u_1 ON hr.usr")
    (finding,) = doctor()[1]["trigger_drifted"]
    assert (finding["severity"], "_tgr_usr_u_1" in finding["text"]) == ("error", True)


def test_disabled_triggers_are_named_with_the_statement_that_enables_them(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "ALTER TABLE hr.usr DISABLE TRIGGER _tgr_usr_u_1")
    code, found = doctor()
    (finding,) = found["trigger_disabled"]
    assert (code, "trigger_drifted" in found) == (1, False)
    execute(home, finding["mend"][0])
    assert doctor()[0] == 0


def test_drift_is_named_with_its_reason(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "ALTER TABLE hr.usr ADD COLUMN mail text")
    (finding,) = doctor()[1]["trigger_drifted"]
    assert finding["mend"] == ["eventlog triggers plan", "eventlog triggers apply"]


def test_triggers_that_are_no_longer_watched_are_named(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "CREATE TABLE hr.grp (idg integer PRIMARY KEY, name text)")
    Path("eventlog.toml").write_text(CONFIG.replace('"usr"', '"grp"'))
    _, found = doctor()
    assert [one["severity"] for one in found["trigger_orphaned"]] == ["warning", "warning"]


def test_triggers_whose_log_is_gone_are_an_error(home: sa.Engine, doctor: Doctor) -> None:
    execute(home, "DROP TABLE hr.eventlog CASCADE")
    code, found = doctor()
    # One cause, one finding: all its triggers, a line of SQL a table, and no second one that there is no log.
    assert (code, set(found)) == (1, {"trigger_orphaned"})
    (finding,) = found["trigger_orphaned"]
    assert finding["text"] == (
        'the log "hr"."eventlog" is gone, and 8 triggers still write it: every change of hr.usr, hr.usr_phone fails'
    )
    assert finding["mend"][0].startswith("eventlog db upgrade")
    with pytest.raises(sa.exc.DBAPIError):
        execute(home, "INSERT INTO hr.usr VALUES (1, 'Ada', NULL)")
    for line in finding["mend"][1:]:
        execute(home, line.removeprefix("or "))
    execute(home, "INSERT INTO hr.usr VALUES (1, 'Ada', NULL)")


def test_partitions_whose_trigger_is_disabled_are_named(home: sa.Engine, doctor: Doctor) -> None:
    execute(
        home,
        "CREATE TABLE hr.sale (id integer PRIMARY KEY, what text) PARTITION BY RANGE (id);"
        "CREATE TABLE hr.sale_1 PARTITION OF hr.sale FOR VALUES FROM (1) TO (100);"
        "CREATE TABLE hr.sale_2 PARTITION OF hr.sale FOR VALUES FROM (100) TO (200)",
    )
    Path("eventlog.toml").write_text(CONFIG.replace('"usr"', '"sale"'))
    cli.run(["--quiet", "triggers", "apply"])
    assert "partition_trigger" not in doctor()[1]
    execute(home, "ALTER TABLE hr.sale_2 DISABLE TRIGGER _tgr_sale_u_1")
    (finding,) = doctor()[1]["partition_trigger"]
    assert "hr.sale_2" in finding["text"]
    execute(home, finding["mend"][0])
    assert "partition_trigger" not in doctor()[1]


# --- rights -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def nobody(home: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A user without any right, who is who connects."""
    name = f"nobody_{home.url.database}"
    execute(home, f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    monkeypatch.setenv(
        "EVENTLOG_DATABASE_URL", home.url.set(username=name, password="x").render_as_string(hide_password=False)
    )
    yield name
    execute(home, f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_rights_that_are_missing_come_with_their_grants(home: sa.Engine, doctor: Doctor, nobody: str) -> None:
    code, found = doctor()
    assert code == 1
    grants = found["rights_publish"][0]["mend"]
    assert grants[0] == f'GRANT USAGE ON SCHEMA "hr" TO "{nobody}"'
    execute(home, ";".join(grants))
    _, found = doctor()
    assert "rights_publish" not in found
    assert {one["text"].split(" (")[0] for one in found["rights_read"]} == {
        f"user {nobody} may not read usr",
        f"user {nobody} may not read usr_phone",
    }
    execute(home, ";".join(one["mend"][0] for one in found["rights_read"]))
    _, found = doctor()
    assert "rights_read" not in found
    # What a publisher's user need not be able to do is no fault.
    assert found["rights_triggers"][0]["severity"] == "info"
    assert found["triggers_not_compared"][0]["severity"] == "info"
    assert doctor()[0] == 0


def test_a_publishers_user_sees_missing_and_disabled_triggers(home: sa.Engine, doctor: Doctor, nobody: str) -> None:
    grants = doctor()[1]["rights_publish"][0]["mend"]
    execute(home, ";".join(grants) + f";GRANT SELECT ON ALL TABLES IN SCHEMA hr TO {nobody}")
    execute(home, "ALTER TABLE hr.usr DISABLE TRIGGER _tgr_usr_d_1; DROP TRIGGER _tgr_usr_phone_i_1 ON hr.usr_phone;"
                  "DROP TRIGGER _tgr_usr_phone_u_1 ON hr.usr_phone; DROP TRIGGER _tgr_usr_phone_d_1 ON hr.usr_phone;"
                  "DROP TRIGGER _tgr_usr_phone_t_1 ON hr.usr_phone")  # fmt: skip
    _, found = doctor()
    assert "_tgr_usr_d_1" in found["trigger_disabled"][0]["text"]
    assert found["trigger_missing"][0]["text"].startswith("hr.usr_phone: ")


def test_a_right_that_one_check_needs_is_a_finding_and_not_the_end(
    home: sa.Engine, doctor: Doctor, nobody: str
) -> None:
    execute(home, ";".join(doctor()[1]["rights_publish"][0]["mend"]))
    execute(home, f"REVOKE SELECT ON hr.eventlog_inflight FROM {nobody}")
    rows(home, GOOD.replace("'N'", "'x'"))
    _, found = doctor()
    assert "SELECT on table eventlog_inflight" in found["rights_publish"][0]["text"]


# --- other sessions ---------------------------------------------------------------------------------------------------


def test_an_old_transaction_that_has_written_to_the_log_is_named(home: sa.Engine) -> None:
    from eventlog.cli.triggers import planned_triggers
    from eventlog.config.load import load
    from eventlog.publisher.doctor import examine
    from eventlog.sql.doctor import Limits

    config = load(Path("eventlog.toml"), os.environ)
    with home.connect() as writer, home.connect() as reader:
        writer.exec_driver_sql("INSERT INTO hr.usr VALUES (1, 'Ada', NULL)")
        reader.exec_driver_sql("SELECT 1 FROM hr.usr")
        pid = writer.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        found = examine(config, planned_triggers, Limits(writing=0.0, reading=1e9))
        (finding,) = [one for one in found if one.code == "open_transaction"]
        assert "rows that it has written to the log are not published before it commits" in finding.text
        assert finding.mend == (f"SELECT pg_terminate_backend({pid})",)
        found = examine(config, planned_triggers, Limits(writing=1e9, reading=0.0))
        assert sum("no dead row of the log can be removed" in one.text for one in found) == 2


def test_a_pool_in_transaction_mode_is_an_error(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_doctor, "is_pooled", lambda *_: True)
    code, found = doctor()
    assert (code, found["pooling"][0]["severity"]) == (1, "error")


def test_a_notification_that_is_missing_is_named(home: sa.Engine, doctor: Doctor) -> None:
    wake = DIALECT.wake
    assert wake is not None
    for statement in wake.drop(LOG):
        execute(home, statement)
    assert doctor()[1]["wake_missing"][0]["mend"][0] == "eventlog db upgrade"
    assert "wake_missing" not in doctor("--set", "publisher.notify=no")[1]


def test_whether_a_publisher_runs_is_asked_without_being_in_its_way(home: sa.Engine) -> None:
    with home.connect() as asking, home.connect() as publisher:
        assert not DIALECT.is_locked(asking, LOG)
        # Not committed, not closed: the one who asked holds nothing.
        assert DIALECT.try_lock(publisher, LOG)
        assert DIALECT.is_locked(asking, LOG)
        assert DIALECT.is_locked(publisher, LOG)
        DIALECT.unlock(publisher, LOG)
        assert not DIALECT.is_locked(asking, LOG)


def test_a_log_with_names_of_its_own_is_examined(home: sa.Engine, doctor: Doctor) -> None:
    execute(
        home,
        """ALTER TABLE hr.eventlog RENAME record_id TO "Id: 100%"; ALTER TABLE hr.eventlog RENAME status TO ":st{at}us";
        ALTER TABLE hr.eventlog RENAME event_time TO "when?" """,
    )
    rows_of = 'INSERT INTO hr.eventlog (":st{at}us", event_type, table_name, table_key) VALUES '
    execute(home, rows_of + "('x', 4, 'usr', 'idu=1'), ('N', 4, 'usr', 'idu=01')")
    _, found = doctor()
    assert "check_failed" not in found
    assert found["status_reserved"][0]["mend"][0].startswith('UPDATE "hr"."eventlog" SET ":st{at}us" = ')
    assert {"key_not_canonical", "status_reserved"} <= set(found)
    assert "index_missing" not in found
