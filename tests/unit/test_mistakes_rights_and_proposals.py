"""What a new user did wrong, and the answer: commands that are proposed are accepted, and a missing
right leads to the command that prints it (spec/event-log.md 11, 11.1).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from printed_commands import arguments_of, printed_in
from shared import Run, execute, url_of

from eventlog.exit_codes import ExitCode
from eventlog.sql import migrations

pytestmark = pytest.mark.usefixtures("database")
CONFIG = """
[database]
schema_name = "hr"
[[watch]]
table = "usr"
[sink]
type = "files"
directory = "documents"
"""


def fill(database: sa.Engine) -> None:
    execute(
        database,
        "CREATE SCHEMA hr",
        "CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text, lname text)",
    )
    migrations.upgrade(database, log_table="eventlog", schema="hr")


@pytest.fixture
def database(
    filled_database: Any, empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sa.Engine]:
    """A log of the class usr, and a directory with its configuration."""
    Path("eventlog.toml").write_text(CONFIG)
    with filled_database(fill) as made:
        monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(made))
        yield made


Log = Callable[..., None]


@pytest.fixture
def log(database: sa.Engine) -> Log:
    """Write rows of class usr: record_id, status, key, type, column and new value."""

    def log(*rows: tuple[object, ...]) -> None:
        with database.begin() as conn:
            for record_id, status, key, *rest in rows:
                event_type, column, new = (*rest, *(2, "fname", "a")[len(rest) :])
                conn.exec_driver_sql(
                    "INSERT INTO hr.eventlog (record_id, status, table_name, table_key, "
                    "event_type, column_name, new_value, perpetrator) "
                    "VALUES (%s, %s, 'usr', %s, %s, %s, %s, 'app')",
                    (record_id, status, key, event_type, column, new),
                )
            conn.exec_driver_sql(
                "SELECT setval(pg_get_serial_sequence('hr.eventlog', 'record_id'), "
                "max(record_id)) FROM hr.eventlog"
            )

    return log


def refuse(database: sa.Engine, record_id: int, code: str, message: str) -> None:
    execute(
        database,
        "INSERT INTO hr.eventlog_error (record_id, code, message) "
        f"VALUES ({record_id}, '{code}', '{message}')",
    )


def groups(run: Run, *flags: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("errors", *flags, "--json")[1])["errors"]
    return found


def run_line(run: Run, line: str, *more: str) -> tuple[int, str, str]:
    """Run a command as it is proposed."""
    program, *arguments = shlex.split(line)
    assert program == "eventlog"
    return run(*arguments, *more)


# --- proposals that are accepted ------------------------------------------------------------------


def test_rows_without_an_error_row_are_listed(run: Run, log: Log) -> None:
    log((1, "E", "idu=1"), (2, "E", "idu=2"), (3, "S", "idu=3"))
    (group,) = groups(run)
    assert (group["code"], group["rows"], group["newest"]) == ("not_recorded", 2, None)
    assert group["commands"] == ["eventlog requeue --status E --ids 1-2"]


@pytest.mark.promise("option skip--refused")
def test_every_proposed_command_is_accepted(run: Run, log: Log, database: sa.Engine) -> None:
    """A row whose object has gone on is proposed as a resync, or as a search for deletions."""
    execute(database, "INSERT INTO hr.usr VALUES (1, 'a', 'b'), (2, 'c', 'd')")
    log((1, "E", "idu=1"), (2, "S", "idu=1"), (3, "E", "idu=2"), (4, "E", "idu=7"),
        (5, "S", "idu=7"), (6, "E", "idu=8"), (7, "S", "idu=8", 4, None, None))  # fmt: skip
    (group,) = groups(run)
    assert group["commands"] == [
        "eventlog requeue --status E --ids 3",
        "eventlog resync usr --key idu=1",
        "eventlog resync usr --deletes",
        "eventlog skip --refused --ids 1,4 --reason 'sent again'",
        "eventlog skip --refused --ids 6 --reason 'deleted since'",
    ]
    for command in group["commands"]:
        code, out, err = run_line(run, command)
        assert (code, "refused:" in err) == (0, False), (command, out, err)


def test_a_refusal_of_requeue_names_the_commands_that_are_accepted(
    run: Run, log: Log, database: sa.Engine
) -> None:
    execute(database, "INSERT INTO hr.usr VALUES (1, 'a', 'b')")
    log((1, "E", "idu=1"), (2, "S", "idu=1"))
    code, _, err = run("requeue", "--ids", "1")
    assert code == 1
    assert "eventlog resync usr --key idu=1" in err
    assert "CLASS" not in err


def test_different_reasons_of_one_code_are_not_merged(
    run: Run, log: Log, database: sa.Engine
) -> None:
    log(*((number, "E", f"idu={number}") for number in range(1, 5)))
    for number, reason in enumerate(("'a'' is none", "'b'' is none", "unknown_column", "unknown_column"), 1):  # fmt: skip
        refuse(database, number, "bad_table_key", f"idu is an integer, '{reason}" if "'" in reason else reason)  # fmt: skip
    assert [(one["rows"], one["message"]) for one in groups(run)] == [
        (2, "idu is an integer, 'b' is none"),
        (2, "unknown_column"),
    ]


def test_reasons_without_end_are_one_group(run: Run, log: Log, database: sa.Engine) -> None:
    log(*((number, "E", f"idu={number}") for number in range(1, 21)))
    for number in range(1, 21):
        refuse(database, number, "receiver", f"order {number} is closed")
    (group,) = groups(run)
    assert (group["rows"], group["commands"]) == (20, ["eventlog requeue --status E --ids 1-20"])


@pytest.mark.promise("command resync", "option resync--key")
def test_a_wrong_key_is_answered_with_what_the_class_expects(run: Run) -> None:
    assert "the key is idu" in run("resync", "usr", "--key", "foo=1")[2]
    told = run("resync", "usr", "--key", "idu=two")[2]
    assert "bad_value at offset 4 of table_key 'idu=two': idu: 'two' " in told


@pytest.mark.promise("option requeue--ids")
def test_requeue_of_rows_with_another_status_names_the_option(run: Run, log: Log) -> None:
    log((1, "S", "idu=1"), (2, "S", "idu=2"))
    code, out, err = run("requeue", "--ids", "1-2", "--dry-run")
    assert (code, out) == (0, "0 rows would be set back to N, 0 would be logged again\n")
    assert "2 rows of --ids have status S: give --status S" in err


# --- skip -----------------------------------------------------------------------------------------


def test_refused_rows_that_were_skipped_are_no_alarm_and_can_still_be_sent(
    run: Run, log: Log, database: sa.Engine
) -> None:
    log((1, "E", "idu=1"), (2, "E", "idu=2"))
    refuse(database, 1, "receiver", "no such user")
    refuse(database, 2, "bad_value", "no date")

    def conditions() -> set[str]:
        health = json.loads(run("status", "--json")[1])["health"]
        return {one["name"] for one in health["conditions"]}

    assert {"refused_rows", "invalid_rows"} <= conditions()
    code, out, _ = run("skip", "--refused", "--reason", "seen", "--dry-run")
    assert (code, out) == (0, "2 refused rows would be skipped\n")
    assert {"refused_rows", "invalid_rows"} <= conditions()
    assert run("skip", "--refused", "--reason", "seen", "--yes")[:2] == (
        0,
        "2 refused rows skipped\n",
    )
    assert not {"refused_rows", "invalid_rows"} & conditions()
    assert "rows_failed" not in run("doctor")[1]
    (first, second) = groups(run)
    assert {first["code"], second["code"]} == {"skipped"}
    assert "seen; it was refused before: " in first["message"]
    assert run_line(run, first["commands"][0])[0] == 0
    assert "skipped: given up by hand" in run("explain", str(second["example"]))[1]


@pytest.mark.promise("option skip--ids")
def test_only_some_refused_rows_are_skipped(run: Run, log: Log) -> None:
    log((1, "E", "idu=1"), (2, "E", "idu=2"), (3, "E", "idu=3"))
    assert "2 refused rows skipped" in run("skip", "--refused", "--ids", "1-2", "--reason", "x")[1]
    assert "skipped before" in run("skip", "--refused", "--ids", "1", "--reason", "x")[2]
    assert "1 refused row skipped" in run("skip", "--refused", "--class", "USR", "--reason", "x")[1]
    assert (
        "no row of --ids is refused" in run("skip", "--refused", "--ids", "9", "--reason", "x")[2]
    )


@pytest.fixture
def parked(log: Log, database: sa.Engine) -> None:
    """Three events in flight, of which the receiver wants the first two later."""
    log((1, "N", "idu=1"), (2, "N", "idu=2"), (3, "N", "idu=3"))
    tried = '{"parked": {"tries": 2, "answer": "locked"}}'
    content = (
        '{"line_format": 1, "documents": [{"number": 1, "rows": [[1, 3]], "counts": [1, 1, 1], '
        f'"events": {{"0": {tried}, "1": {tried}}}}}]}}'
    )
    with database.begin() as conn:
        conn.exec_driver_sql(
            "INSERT INTO hr.eventlog_inflight (entry_no, kind, content) VALUES (7, 'delivery', %s)",
            (content,),
        )


@pytest.mark.usefixtures("parked")
def test_all_parked_events_are_given_up_at_once(run: Run, database: sa.Engine) -> None:
    dry = ("skip", "--parked", "--reason", "x", "--dry-run", "--json")
    assert [one["event_id"] for one in json.loads(run(*dry)[1])["skipped"]] == ["1", "2"]
    assert run("skip", "--parked", "--class", "usr", "--reason", "x", "--yes")[:2] == (
        0,
        "event 1 is given up: 1 row set to E\nevent 2 is given up: 1 row set to E\n",
    )
    with database.connect() as conn:
        rows = conn.exec_driver_sql("SELECT record_id, status FROM hr.eventlog ORDER BY 1").all()
    assert [tuple(row) for row in rows] == [(1, "E"), (2, "E"), (3, "N")]
    assert "; the last answer: locked" in groups(run)[0]["message"]


@pytest.mark.usefixtures("parked")
def test_several_events_are_given_up_and_skip_names_what_sends_them_later(
    run: Run, database: sa.Engine
) -> None:
    execute(database, "INSERT INTO hr.usr VALUES (1, 'a', 'b'), (3, 'e', 'f')")
    code, _, err = run("skip", "1", "3", "--reason", "x")
    assert (code, "eventlog resync usr --key idu=1 --key idu=3" in err) == (0, True)
    assert run("resync", "usr", "--key", "idu=1", "--key", "idu=3")[0] == 0


@pytest.mark.promise("option skip--class")
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "give either EVENT_ID, --parked or --refused"),
        (("7", "--parked"), "give either EVENT_ID, --parked or --refused"),
        (("7", "--ids", "7"), "give --refused too"),
        (("7", "--class", "usr"), "leave EVENT_ID out"),
    ],
)
def test_skip_takes_one_kind_of_thing(run: Run, arguments: tuple[str, ...], part: str) -> None:
    code, _, err = run("skip", *arguments, "--reason", "x")
    assert (code, part in err) == (2, True)


# --- rights ---------------------------------------------------------------------------------------


def without_rights(database: sa.Engine, *rights: str) -> str:
    """Make a role that may connect and has these rights in the schema hr; return its URL."""
    role = f"nobody_{database.url.database}"
    execute(
        database,
        f"CREATE ROLE {role} LOGIN PASSWORD 'x'",
        f"GRANT USAGE ON SCHEMA hr TO {role}",
        *(f"GRANT {right} TO {role}" for right in rights),
    )
    return database.url.set(username=role, password="x").render_as_string(hide_password=False)


@pytest.fixture
def poor(database: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A role that may read the log and nothing else, which the commands run as."""
    url = without_rights(database, "SELECT ON hr.eventlog", "SELECT ON hr.usr")
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url)
    role = str(sa.make_url(url).username)
    yield role
    execute(database, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize(
    ("purpose", "command"),
    [
        ("publisher", ["publish", "--once"]),
        ("consumer", ["--set", "source.consumer=search", "--set", "source.type=eventlog",
                      "--set", "sink.type=stdout", "publish", "--once"]),
        ("monitor", ["errors"]),
        ("monitor", ["status"]),
        ("monitor", ["explain", "1"]),
        ("monitor", ["consumers", "list"]),
        ("requeue", ["requeue"]),
        ("skip", ["skip", "7", "--reason", "x"]),
        ("skip", ["skip", "--refused", "--reason", "x"]),
        ("purge", ["purge", "--older-than", "1d"]),
        ("resync", ["resync", "usr", "--key", "idu=1"]),
        ("reset", ["consumers", "reset", "search"]),
        ("reset", ["consumers", "drop", "search"]),
        ("epoch", ["db", "start-epoch"]),
        ("verify", ["verify", "--target", "lake"]),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one[-3:]),
)  # fmt: skip
def test_every_refused_right_leads_to_one_sentence(
    run: Run, poor: str, purpose: str, command: list[str]
) -> None:
    code, out, err = run(*command)
    sentence = f"`eventlog grants {poor} --purpose {purpose}`, run by the owner, prints the rights"
    assert (code != 0, sentence in err) == (True, True), out + err


def test_requeue_by_the_publishers_role_reports_that_the_publisher_finds_the_rows_later(
    run: Run, log: Log, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may set the status, and may not write the request that a running publisher polls."""
    execute(database, "INSERT INTO hr.usr VALUES (1, 'a', 'b')")
    log((1, "E", "idu=1"))
    url = without_rights(
        database, "SELECT, UPDATE (status) ON hr.eventlog", "SELECT ON hr.usr",
        *(f"SELECT ON hr.eventlog_{one}" for one in ("inflight", "state", "epoch", "consumer")),
    )  # fmt: skip
    role = str(sa.make_url(url).username)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url)
    code, out, err = run("requeue")
    assert (code, out) == (0, "1 row set back to N, 0 logged again\n"), err
    assert "a running publisher finds these rows within about a minute: user " in err
    assert f"`eventlog grants {role} --purpose requeue`, run by the owner, prints the rights" in err
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(database))
    execute(database, "UPDATE hr.eventlog SET status = 'E'")
    assert "about a minute" not in run("requeue")[2]
    execute(database, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_resync_without_the_right_to_settle_refusals_ends_with_one_warning(
    run: Run, log: Log, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(database, "INSERT INTO hr.usr VALUES (1, 'a', 'b'), (2, 'c', 'd')")
    log((1, "E", "idu=1"), (2, "S", "idu=1"))
    refuse(database, 1, "receiver", "no such user")
    url = without_rights(
        database, "SELECT, INSERT ON hr.eventlog", "SELECT ON hr.usr", "SELECT ON hr.eventlog_error"
    )
    role = str(sa.make_url(url).username)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url)
    code, _, err = run("resync", "usr", "--key", "idu=1", "--key", "idu=2")
    assert code == 0
    (warning,) = err.splitlines()
    assert warning.startswith("warning: `eventlog errors` still lists 1 row that ")
    assert "eventlog_error" in warning.partition("lacks rights")[2]
    advice = f"`eventlog grants {role} --purpose resync`, run by the owner, prints the rights"
    assert warning.endswith(advice)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(database))
    execute(database, *run("grants", role, "--purpose", "resync")[1].split(";\n")[:-1])
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url)
    assert "goes on" not in run("resync", "usr", "--key", "idu=1")[2]
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(database))
    assert [one["code"] for one in groups(run)] == ["superseded"]
    execute(database, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.promise("code finding-rights_publish")
def test_doctor_names_the_grants_and_then_the_sentence(run: Run, poor: str) -> None:
    found = json.loads(run("doctor", "--json")[1])["findings"]
    (rights,) = [one for one in found if one["code"] == "rights_publish"]
    assert rights["fix"][-1] == (
        f"`eventlog grants {poor} --purpose publisher`, run by the owner, prints the rights"
    )


@pytest.mark.promise("command grants")
def test_grants_for_a_role_that_does_not_exist_are_printed_with_a_remark(
    run: Run, poor: str, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(database))
    remark = "the database has no role 'x; drop': create it before you run these statements"
    code, out, err = run("grants", "x; drop")
    assert (code, '"x; drop"' in out, remark in err) == (0, True, True)
    assert run("grants", poor)[2] == ""


def test_init_warns_that_the_file_has_the_url_of_the_user_that_ran_it(
    run: Run, database: sa.Engine
) -> None:
    code, _, err = run("--database-url", url_of(database), "--schema", "hr", "-c", "new.toml",
                       "init", "--tables")  # fmt: skip
    assert code == 0
    user = database.url.username
    assert f"new.toml has the URL of {user}. A publisher with this URL does not send" in err
    assert f"If {user} changes the tables, set url in [database] to a role that only pub" in err
    assert "`eventlog grants ROLE` prints its rights" in err


@pytest.mark.promise("option grants--purpose")
def test_what_the_sentence_names_prints_what_is_missing(
    run: Run, poor: str, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(database))
    for purpose in ("publisher", "requeue", "skip", "purge", "resync", "reset"):
        code, out, _ = run("grants", poor, "--purpose", purpose)
        assert code == 0
        execute(database, *filter(None, map(str.strip, out.split(";"))))
    url = database.url.set(username=poor, password="x").render_as_string(hide_password=False)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url)
    assert run("requeue")[0] == 0
    assert run("purge", "--older-than", "1d")[0] == 0


def test_the_owner_can_run_each_grants_that_is_printed(
    run: Run, poor: str, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = set()
    for command in (["publish", "--once"], ["explain", "database"], ["explain", "check_failed"]):
        _, out, err = run(*command)
        printed |= {one for one in printed_in(f"{out}\n{err}") if " grants " in one}
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(database))
    _, _, err = run("--schema", "hr", "-c", "new.toml", "init", "--tables")
    printed |= {one for one in printed_in(err) if " grants " in one}
    assert printed == {
        f"eventlog grants {poor} --purpose publisher",
        "eventlog grants ROLE --purpose PURPOSE",
        "eventlog grants ROLE --purpose monitor",
        "eventlog grants ROLE",
    }
    for one in printed:
        code, out, err = run(*arguments_of(one))
        assert (code, "GRANT" in out) == (0, True), err


@pytest.mark.promise("code finding-rights_resync")
def test_doctor_reports_that_a_publisher_does_not_see_due_resyncs(
    run: Run, poor: str, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url_of(database))
    out = run("grants", poor)[1]
    execute(database, *filter(None, map(str.strip, out.split(";"))))
    url = database.url.set(username=poor, password="x").render_as_string(hide_password=False)
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", url)
    found = json.loads(run("doctor", "--json")[1])["findings"]
    (unseen,) = [one for one in found if one["code"] == "rights_resync"]
    assert unseen["severity"] == "info"
    assert unseen["fix"][-2].startswith('GRANT SELECT ON "hr"."eventlog_resync"')


# --- nearest names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (["--schema", "HR", "status"], "there is no schema 'HR', where the log table 'eventlog' "
         "should be; the nearest one is hr"),
        (["--schema", "accounting", "status"], "should be: correct schema_name"),
        (["resync", "usrs"], "'usrs' is not a class; the nearest one is usr"),
        (["resync", "warehouse"], "'warehouse' is not a class; the classes are: usr"),
        (["skip", "--parked", "--class", "usrs", "--reason", "x"], "the nearest one is usr"),
        (["errors", "--consumer", "serch"], "has no consumer 'serch'; the nearest one is search"),
        (["consumers", "drop", "SEARCH"], "the nearest one is search"),
        (["consumers", "drop", "lake"], "has no consumer 'lake'; the consumers are: search"),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)  # fmt: skip
def test_a_misspelled_name_gets_the_nearest_one_and_no_unrelated_one(
    run: Run, database: sa.Engine, command: list[str], part: str
) -> None:
    execute(
        database,
        "INSERT INTO hr.eventlog_consumer (name, begins, done) VALUES ('search', 'latest', '[1]')",
    )
    assert part in run(*command)[2]


# --- doctor ---------------------------------------------------------------------------------------


@pytest.mark.promise("option sink.directory")
def test_doctor_tries_to_write_where_the_directory_will_be(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("--set", "sink.directory=/proc/x/y", "doctor", "--receiver")
    assert (code, "/proc" in out) == (ExitCode.NO, True)
    code, out, _ = run("--set", f"sink.directory={tmp_path}/new/one", "doctor", "--receiver")
    assert (code, f"will create it in {tmp_path}, which can be written" in out) == (0, True)
    assert not (tmp_path / "new").exists()
    assert [one for one in tmp_path.iterdir() if "trial" in one.name] == []


def test_doctor_proposes_to_try_the_receiver_where_there_is_one(run: Run) -> None:
    assert "`eventlog doctor --receiver` tries the sink files" in run("doctor")[1]
    assert "doctor --receiver" not in run("--set", "sink.type=stdout", "doctor")[1]


@pytest.mark.promise("option database.record_id_sequence", "code finding-log_table")
def test_a_wrong_sequence_is_not_answered_with_an_upgrade(run: Run) -> None:
    out = run("--set", "database.record_id_sequence=nowhere", "doctor", "--json")[1]
    (found,) = [one for one in json.loads(out)["findings"] if one["code"] == "log_table"]
    assert found["fix"] == ["eventlog config"]
