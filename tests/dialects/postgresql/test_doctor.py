"""``eventlog doctor`` on a real PostgreSQL (spec/event-log.md 11, spec/triggers.md 7)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import sqlalchemy as sa
from examinations import GOOD, LOG, Doctor, rows
from shared import execute, opened_log

from eventlog import cli
from eventlog.exit_codes import ExitCode
from eventlog.publisher.inspect import doctor as publisher_doctor
from eventlog.sql import migrations
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.doctor import HeldSnapshot
from eventlog.sql.doctor.log import judge_revision
from eventlog.sql.port.questions import ask


def test_a_healthy_log_has_no_finding_that_counts(doctor: Doctor) -> None:
    code, found = doctor()
    assert {one: found[one] for one in found if one != "not_captured"} == {}
    assert code == 0


def test_every_finding_shows_what_fixes_it_and_changes_nothing(
    examined: sa.Engine, doctor: Doctor
) -> None:
    rows(examined, GOOD, "'n', 9, 'usr', 'x', NULL, NULL, NULL, now()".replace("9", "1"))
    execute(examined, "DROP INDEX hr.idx_eventlog_1; ALTER TABLE hr.usr DISABLE TRIGGER ALL")
    _, found = doctor()
    findings = [finding for of_code in found.values() for finding in of_code]
    assert all(finding["fix"] for finding in findings if finding["severity"] != "info")
    assert all(set(finding) == {"code", "severity", "text", "fix"} for finding in findings)
    order = [finding["severity"] for finding in findings]
    assert order == sorted(order, key=("error", "warning", "info").index)
    assert set(doctor()[1]) == set(found)


def test_for_people_it_writes_sentences_and_commands_to_standard_output(
    examined: sa.Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    execute(examined, "DROP INDEX hr.idx_eventlog_1")
    assert cli.run(["doctor"]) == ExitCode.NO
    out, err = capfd.readouterr()
    assert err == ""
    assert "warning: the log has no valid index of the rows with status N" in out
    assert (
        'CREATE INDEX CONCURRENTLY "idx_eventlog_1" ON "hr"."eventlog" ("record_id") WHERE '
        "\"status\" = 'N'"
    ) in out
    assert "database.schema_name" in out  # the settings in effect
    assert "errors: 0, warnings: 1" in out
    assert cli.run(["doctor", "--ignore", "index_missing"]) == 0
    assert "Nothing is wrong." in capfd.readouterr().out


def test_settings_in_effect_are_shown_without_secrets(
    examined: sa.Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    cli.run(["doctor", "--json"])
    settings = json.loads(capfd.readouterr().out)["settings"]
    assert {
        "section": "publisher",
        "key": "fold_span",
        "value": 10000,
        "source": "default",
    } in settings


# --- the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ddl", "codes"),
    [
        ("DROP INDEX hr.idx_eventlog_1", ["index_missing"]),
        ("ALTER TABLE hr.eventlog DROP CONSTRAINT eventlog_pkey", ["index_missing"]),
        (
            "DROP INDEX hr.idx_eventlog_1; CREATE INDEX ON hr.eventlog (record_id) WHERE status = "
            "'S'",
            ["index_missing"],
        ),
        (
            "DROP INDEX hr.idx_eventlog_1; CREATE INDEX ON hr.eventlog (record_id) WHERE 'N' = "
            "status",
            ["index_missing"],
        ),
        ("DROP INDEX hr.idx_eventlog_1; CREATE INDEX ON hr.eventlog (status, record_id)", []),
        (
            "DROP INDEX hr.idx_eventlog_1; CREATE INDEX ON hr.eventlog (record_id) WHERE status = "
            "'N'",
            [],
        ),
        (
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = "
            "'hr.idx_eventlog_1'::regclass",
            ["index_missing"],
        ),
    ],
)
def test_the_indexes_that_reading_needs_are_looked_for(
    examined: sa.Engine, doctor: Doctor, ddl: str, codes: list[str]
) -> None:
    execute(examined, ddl)
    assert [code for code in doctor()[1] if code == "index_missing"] == codes


def test_the_index_that_is_proposed_is_the_one_that_is_needed(
    examined: sa.Engine, doctor: Doctor
) -> None:
    execute(
        examined,
        "DROP INDEX hr.idx_eventlog_1; ALTER TABLE hr.eventlog DROP CONSTRAINT eventlog_pkey",
    )
    _, found = doctor()
    assert len(found["index_missing"]) == 2
    with examined.execution_options(isolation_level="AUTOCOMMIT").connect() as conn:
        for one in found["index_missing"]:
            conn.exec_driver_sql(one["fix"][0])
    assert "index_missing" not in doctor()[1]


def test_a_statement_that_empties_the_log_is_an_error(examined: sa.Engine, doctor: Doctor) -> None:
    found = doctor("--set", 'publisher.post_poll_statements=["DELETE FROM eventlog"]')[1]
    assert "`publish` refuses to start" in found["post_poll"][0]["text"]


def test_a_sequence_with_a_cache_is_an_error(examined: sa.Engine, doctor: Doctor) -> None:
    execute(examined, "ALTER TABLE hr.eventlog ALTER record_id SET CACHE 50")
    (finding,) = doctor()[1]["sequence_cache"]
    assert finding["severity"] == "error"
    execute(examined, finding["fix"][0])
    assert doctor()[0] == 0


def test_a_sequence_that_is_only_a_default_is_found(examined: sa.Engine, doctor: Doctor) -> None:
    execute(
        examined,
        "CREATE SEQUENCE hr.ids CACHE 20 INCREMENT -1; ALTER TABLE hr.eventlog ALTER record_id "
        "DROP IDENTITY, ALTER record_id SET DEFAULT nextval('hr.ids')",
    )
    _, found = doctor()
    assert "hr.ids" in found["sequence_cache"][0]["text"]
    assert "descends" in found["sequence_order"][0]["text"]


def test_a_log_without_autovacuum_is_named(examined: sa.Engine, doctor: Doctor) -> None:
    execute(examined, "ALTER TABLE hr.eventlog SET (autovacuum_enabled = off)")
    (finding,) = doctor()[1]["autovacuum_off"]
    execute(examined, finding["fix"][0])
    assert doctor()[0] == 0


def test_without_a_log_it_explains_how_to_make_one(examined: sa.Engine, doctor: Doctor) -> None:
    code, found = doctor("--log-table", "nolog")
    assert (code, found["log_table"][0]["fix"][0]) == (ExitCode.NO, "eventlog db upgrade")


def test_a_missing_internal_table_is_a_finding(examined: sa.Engine, doctor: Doctor) -> None:
    execute(examined, "DROP TABLE hr.eventlog_error")
    assert "hr.eventlog_error" in doctor()[1]["log_table"][0]["text"]


def test_a_revision_of_another_eventlog_is_named(examined: sa.Engine, doctor: Doctor) -> None:
    execute(
        examined, "UPDATE hr.eventlog_version SET version_num = '0011' WHERE version_num = 'log_1'"
    )
    (found,) = doctor()[1]["migration"]
    assert "revision 0011, which this version of eventlog does not support" in found["text"]
    assert "install that version" in found["fix"][0]


def test_a_log_of_somebody_else_is_upgraded_by_its_internal_tables() -> None:
    assert migrations.upgrade_command(["internal_3"]).endswith(" --existing-log")
    assert migrations.upgrade_command(["internal_2", "log_1"]) == "eventlog db upgrade"


def test_an_older_revision_is_named() -> None:
    (found,) = judge_revision(["log_1"], ["internal_2", "log_2"], [], "", "eventlog db upgrade")
    assert found.text == "the log is at revision log_1; newer revisions exist: internal_2, log_2"
    assert found.fix == ("eventlog db upgrade",)


# --- other sessions -------------------------------------------------------------------------------


def test_an_old_transaction_that_has_written_to_the_log_is_named(examined: sa.Engine) -> None:
    from eventlog.config.load import load
    from eventlog.publisher.declared.trigger_plan import planned_triggers
    from eventlog.publisher.inspect.doctor import examine
    from eventlog.sql.doctor import Limits

    config = load(Path("eventlog.toml"), os.environ)
    with examined.connect() as writer, examined.connect() as reader:
        writer.exec_driver_sql("INSERT INTO hr.usr VALUES (1, 'Ada', NULL)")
        reader.exec_driver_sql("SELECT 1 FROM hr.usr")
        pid = writer.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        found = examine(config, planned_triggers, Limits(writing=0.0))
        (finding,) = [one for one in found if one.code == "open_transaction"]
        assert (
            "the rows that it has written to the log are published only after it commits"
            in finding.text
        )
        assert finding.fix == (f"SELECT pg_terminate_backend({pid})",)
        assert not [one for one in found if one.code == "old_snapshot"]  # none is an hour old


def test_what_holds_back_dead_rows_is_reported_oldest_first_with_what_ends_it(
    examined: sa.Engine,
) -> None:
    with (
        examined.connect().execution_options(isolation_level="REPEATABLE READ") as old,
        examined.connect() as moving,
        examined.connect() as asking,
    ):
        old.exec_driver_sql("SET application_name = 'report'; SELECT 1 FROM hr.usr")
        moving.exec_driver_sql("SELECT 1 FROM hr.usr")  # each statement has its own snapshot
        execute(examined, "INSERT INTO hr.usr VALUES (1, 'Ada', NULL)", "UPDATE hr.usr SET idu = 2")
        pid = old.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        (one,) = ask(opened_log(asking, LOG), "snapshots", HeldSnapshot, limit=5)
        assert (one.kind, one.pid, one.application) == ("session", pid, "report")
        assert one.transactions >= 1  # autovacuum may take a number of its own meanwhile
        assert one.fix == f"SELECT pg_terminate_backend({pid})"
        asking.exec_driver_sql("CREATE ROLE reporter; SET ROLE reporter")
        (unseen,) = ask(opened_log(asking, LOG), "snapshots", HeldSnapshot, limit=5)
        assert unseen[:5] == one[:5]
        assert unseen.seconds is None  # for want of pg_read_all_stats
        asking.rollback()
    with examined.connect() as asking:
        assert ask(opened_log(asking, LOG), "snapshots", HeldSnapshot, limit=5) == []


def test_a_pool_in_transaction_mode_is_an_error(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_doctor, "is_pooled", lambda *_: True)
    code, found = doctor()
    assert (code, found["pooling"][0]["severity"]) == (ExitCode.NO, "error")


def test_a_notification_that_is_missing_is_named(examined: sa.Engine, doctor: Doctor) -> None:
    wake = DIALECT.wake
    assert wake is not None
    for statement in wake.drop(LOG):
        execute(examined, statement)
    assert doctor()[1]["wake_missing"][0]["fix"][0] == "eventlog db upgrade"
    assert "wake_missing" not in doctor("--set", "publisher.notify=no")[1]


def test_whether_a_publisher_runs_is_asked_without_being_in_its_way(examined: sa.Engine) -> None:
    with examined.connect() as asking, examined.connect() as publisher:
        assert not DIALECT.open(asking).log(LOG).is_locked()
        # Not committed, not closed: the one who asked holds nothing.
        assert DIALECT.open(publisher).log(LOG).try_lock()
        assert DIALECT.open(asking).log(LOG).is_locked()
        assert DIALECT.open(publisher).log(LOG).is_locked()
        DIALECT.open(publisher).log(LOG).unlock()
        assert not DIALECT.open(asking).log(LOG).is_locked()


def test_a_log_with_its_own_names_is_examined(examined: sa.Engine, doctor: Doctor) -> None:
    execute(
        examined,
        """ALTER TABLE hr.eventlog RENAME record_id TO "Id: 100%"; ALTER TABLE hr.eventlog RENAME
        status TO ":st{at}us"; ALTER TABLE hr.eventlog RENAME event_time TO "when?" """,
    )
    rows_of = 'INSERT INTO hr.eventlog (":st{at}us", event_type, table_name, table_key) VALUES '
    execute(examined, rows_of + "('x', 4, 'usr', 'idu=1'), ('N', 4, 'usr', 'idu=01')")
    _, found = doctor()
    assert "check_failed" not in found
    assert found["status_reserved"][0]["fix"][0].startswith(
        'UPDATE "hr"."eventlog" SET ":st{at}us" = '
    )
    assert {"key_not_canonical", "status_reserved"} <= set(found)
    assert "index_missing" not in found
