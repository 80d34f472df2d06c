"""What ``eventlog doctor`` says of rows, keys and classes, on a real PostgreSQL (spec/event-log.md
2, 4.3, 5, 11).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from examinations import CONFIG, GOOD, LOG, NOW, Doctor, rows
from shared import Run, execute

from eventlog import cli
from eventlog.exit_codes import ExitCode
from eventlog.sql.dialects.postgresql import DIALECT

# --- rows N that are not picked up ----------------------------------------------------------------


def test_reserved_statuses_are_named_with_their_rows(examined: sa.Engine, doctor: Doctor) -> None:
    rows(
        examined, GOOD.replace("'N'", "'n'"), GOOD.replace("'N'", "'x'"), GOOD.replace("'N'", "'S'")
    )
    code, found = doctor()
    texts = [one["text"] for one in found["status_reserved"]]
    assert code == ExitCode.NO
    assert [text[:40] for text in texts] == [
        "1 row of status 'n' (record_id 1): the p",
        "1 row of status 'x' (record_id 2): the p",
    ]
    for one in found["status_reserved"]:
        execute(examined, one["fix"][0])
    assert "status_reserved" not in doctor()[1]


def test_failed_rows_are_named_until_they_are_requeued(examined: sa.Engine, doctor: Doctor) -> None:
    rows(examined, GOOD.replace("'N'", "'E'"), GOOD.replace("'N'", "'F'"))
    _, found = doctor()
    assert [one["fix"] for one in found["rows_failed"]] == [
        ["eventlog explain 1", "eventlog errors"],
        ["eventlog explain 2", "eventlog errors"],
    ]


def test_loopback_rows_are_named(examined: sa.Engine, doctor: Doctor) -> None:
    user = "session_user"
    rows(examined, GOOD.replace("'app'", user), GOOD)
    assert doctor()[1]["loopback"][0]["severity"] == "info"
    _, found = doctor("--set", "publisher.loopback_action=keep")
    (finding,) = found["loopback"]
    assert finding["severity"] == "warning"
    assert finding["text"].startswith("1 row of status N (from record_id 1 on) made by ")
    assert "loopback" not in doctor("--set", "publisher.allow_loopback=yes")[1]


def test_rows_that_are_not_due_are_named_with_the_next_time(
    examined: sa.Engine, doctor: Doctor
) -> None:
    rows(examined, GOOD, GOOD.replace(NOW, f"{NOW} + interval '3 days'"))
    _, found = doctor("--set", "publisher.handle_future_events=yes")
    (finding,) = found["not_due"]
    assert finding["text"].startswith("handle_future_events = true postpones 1 row of status N")
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
    examined: sa.Engine, doctor: Doctor, value: str, code: str
) -> None:
    rows(examined, GOOD, f"{value}, {NOW}")
    (finding,) = doctor()[1]["invalid_rows"]
    assert finding["text"].startswith(
        f"1 row of status N is invalid ({code}): record_id 2; the next cycle will mark them E."
    )
    assert finding["fix"][0] == "eventlog explain 2"


def test_rows_without_a_positive_record_id_are_named(examined: sa.Engine, doctor: Doctor) -> None:
    execute(
        examined,
        "INSERT INTO hr.eventlog (record_id, event_type, table_name, table_key) VALUES (0, 4, "
        "'usr', 'idu=1'), (-5, 4, 'usr', 'idu=1')",
    )
    code, found = doctor()
    assert code == ExitCode.NO
    assert found["record_id"][0]["text"].startswith(
        '2 rows of status N whose "record_id" is NULL or not positive'
    )
    execute(examined, found["record_id"][0]["fix"][0])
    assert "record_id" not in doctor()[1]


def test_what_is_in_delivery_is_no_fault_while_a_publisher_runs(
    examined: sa.Engine, doctor: Doctor
) -> None:
    rows(examined, GOOD, GOOD)
    execute(
        examined,
        """INSERT INTO hr.eventlog_inflight (entry_no, kind, content)
        VALUES (7, 'delivery',
        '{"line_format":1,"documents":[{"number":1,"rows":[[1,2]],"counts":[2]}]}')""",
    )
    _, found = doctor()
    assert found["in_flight_left"][0]["text"].startswith("1 event of 2 rows in flight")
    assert found["no_publisher"][0]["fix"] == ["eventlog publish"]
    with examined.connect() as publisher:
        publisher.exec_driver_sql("SET application_name = 'eventlog'")
        assert DIALECT.open(publisher).log(LOG).try_lock()
        code, found = doctor()
        assert (code, found["in_flight"][0]["severity"], found["queue"][0]["severity"]) == (
            0,
            "info",
            "info",
        )
        execute(examined, "UPDATE hr.eventlog_inflight SET started = started - interval '1 hour'")
        code, found = doctor()
        assert (code, found["in_flight"][0]["severity"]) == (ExitCode.NO, "warning")


def test_a_disabled_publisher_is_named(doctor: Doctor) -> None:
    assert "publisher_disabled" in doctor("--set", "publisher.publisher_disabled=yes")[1]


# --- keys, classes --------------------------------------------------------------------------------


def test_keys_that_are_not_canonical_are_named_with_their_canonical_text(
    examined: sa.Engine, doctor: Doctor
) -> None:
    rows(
        examined,
        GOOD,
        GOOD.replace("idu=1", ' IDU = "01" '),
        GOOD.replace("'usr'", "'usr_phone'").replace("idu=1", '"idu"=1'),
    )
    (finding,) = doctor()[1]["key_not_canonical"]
    assert finding["text"].startswith(
        "class usr has 2 rows whose table_key is not spelled canonically: ' IDU = \"01\" ' for 'idu=1'"
    )


def test_a_watched_table_without_key_is_named_and_the_others_are_examined(
    examined: sa.Engine, doctor: Doctor
) -> None:
    execute(examined, "CREATE TABLE hr.bare (a integer NOT NULL UNIQUE, b text)")
    Path("eventlog.toml").write_text(
        CONFIG + '[[watch]]\ntable = "bare"\n[[watch]]\ntable = "nowhere"\n'
    )
    rows(examined, GOOD.replace("idu=1", "idu=01"))
    code, found = doctor()
    assert code == ExitCode.NO
    assert found["class_without_key"][0]["fix"] == ['ALTER TABLE "hr"."bare" ADD PRIMARY KEY ("a")']
    assert "nowhere" in found["class_missing"][0]["text"]
    assert "key_not_canonical" in found


def test_tables_without_key_of_a_whole_schema_are_mentioned_only(
    examined: sa.Engine, doctor: Doctor
) -> None:
    execute(
        examined,
        "CREATE TABLE hr.bare (a integer, b text); CREATE TABLE hr.other (a integer PRIMARY KEY)",
    )
    Path("eventlog.toml").write_text(CONFIG.split("[[watch]]")[0])
    _, found = doctor()
    assert [one["severity"] for one in found["class_without_key"]] == ["info"]
    assert [one["text"][:34] for one in found["trigger_missing"]] == [
        "class other has no trigger of any k"[:34]
    ]


def test_deferrable_keys_are_named(examined: sa.Engine, doctor: Doctor) -> None:
    execute(
        examined,
        "CREATE TABLE hr.seat (id integer PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, who text)",
    )
    Path("eventlog.toml").write_text(CONFIG + '[[watch]]\ntable = "seat"\n')
    cli.run(["--quiet", "triggers", "apply"])
    (finding,) = doctor()[1]["deferrable_key"]
    assert "seat" in finding["text"]


# --- one object -----------------------------------------------------------------------------------


def test_why_an_objects_change_is_not_out_is_reported_in_sentences(
    examined: sa.Engine, run: Run
) -> None:
    Path("eventlog.toml").write_text(CONFIG)

    def why(key: str) -> str:
        code, out, error = run("explain", "--key", key)
        assert code == 0, error
        return out

    def gets(key: str, *sentences: str) -> None:
        out = why(key)
        assert all(sentence in out for sentence in sentences), out

    rows(
        examined,
        GOOD,
        GOOD.replace("'idu=1', 'fname'", "'idu=2', 'none'"),
        GOOD.replace("idu=1", "idu=3").replace("'N'", "'E'"),
        GOOD.replace("idu=1", "idu=4").replace("'app'", "session_user"),
    )
    gets("idu=1", "row 1 of idu=1 of class usr, status N, written by 'app' at ", "no publisher")
    gets("usr.idu=2", "row 2 of ", "will become E (unknown_column)")
    gets("idu=3", "status E", "failed (E); the reason is not recorded")
    gets("idu=4", "row 4 of ", "the publisher's own user")
    gets("idu=9", "the log has no row of idu=9", "the table has no such object now")
    execute(examined, "INSERT INTO hr.usr VALUES (9, 'Ada', NULL)")
    with examined.connect() as writing:
        writing.execute(sa.text("UPDATE hr.usr SET fname = 'Eva' WHERE idu = 9"))
        gets("idu=9", "row 5 of ", "1 open transaction wrote rows that become visible")
    execute(examined, "DROP TRIGGER _tgr_usr_i_1 ON hr.usr; INSERT INTO hr.usr VALUES (10, 'x')")
    gets("idu=10", "its triggers are not as declared", "eventlog triggers plan")
    code, _, error = run("explain", "--key", "nobody")
    assert (code, "is not a key of any class" in error) == (2, True)
    _, out, _ = run("explain", "--key", "idu=1", "--json")
    (told,) = json.loads(out)["objects"]
    assert (told["class_name"], told["key"], told["record_id"]) == ("usr", "idu=1", 1)
