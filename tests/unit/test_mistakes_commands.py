"""Mistakes of a new user at the commands, each with the answer that names what to do. The mistakes
of packages and of the Python API are in test_borders.py and test_arguments.py, those of signals in
test_stopped_commands.py.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from shared import Run, wait_until

from eventlog.config.load import load
from eventlog.core.values import ColumnType, Kind
from eventlog.errors import ConsumerRuns
from eventlog.exit_codes import ExitCode
from eventlog.publisher.context.observer import SILENT
from eventlog.publisher.run.waiting import keep_connected


def change(statement: str) -> list[Any]:
    with closing(sqlite3.connect("shop.db")) as db, db:
        return db.execute(statement).fetchall()


@pytest.fixture
def shop(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a watched table and its log."""
    monkeypatch.chdir(tmp_path)
    Path("eventlog.toml").write_text(
        '[database]\nurl = "sqlite:///shop.db"\n[[watch]]\ntable = "item"\n[sink]\ntype = "stdout"\n'
    )
    change("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
    assert run("db", "upgrade")[0] == 0
    assert run("triggers", "apply")[0] == 0
    return tmp_path


# --- the configuration ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('[database]\nwatch = ["orders"]\n',
         "database.watch is not known; write a section [[watch]] with `table` for each table"),
        ('[watch]\ntable = "a"\n[watch]\ntable = "b"\n',
         "Cannot declare ('watch',) twice (at line 3, column 7); write [[watch]], with two "
         "brackets, once for each table"),
        ('[watch]\ntable = "a"\n', "watch must be written [[watch]], once per table or view"),
        ('[[watch]]\ntable = "a"\nchildren = ["b"]\n',
         "watch 1: children is not known; child tables are found by their foreign keys. Leave one "
         'out by exclude = ["TABLE.COLUMN"], and see them in `eventlog triggers plan`'),
    ],
)  # fmt: skip
def test_a_watch_that_is_written_wrongly_is_answered_with_its_form(
    run: Run, tmp_path: Path, text: str, answer: str
) -> None:
    (tmp_path / "eventlog.toml").write_text(text)
    code, _, err = run("-c", str(tmp_path / "eventlog.toml"), "status")
    assert (code, err.count("\n")) == (2, 1)
    assert answer in err


@pytest.mark.parametrize(
    ("setting", "answer"),
    [
        ("sink.headers=x", "the value of flag sink.headers is not allowed (the value of x is empty"),
        ("publisher.post_poll_statements=select 1",
         'legal: a list of texts, such as ["one", "two"]'),
    ],
)  # fmt: skip
def test_a_setting_of_the_wrong_form_is_answered_with_an_example(
    run: Run, setting: str, answer: str
) -> None:
    code, _, err = run("--set", "sink.type=http", "--set", setting, "status")
    assert (code, answer in err) == (2, True), err


def test_doctor_prints_its_findings_first(shop: Path, run: Run) -> None:
    ((trigger,), *_) = change("SELECT name FROM sqlite_master WHERE type = 'trigger'")
    change(f'DROP TRIGGER "{trigger}"')
    code, out, _ = run("doctor")
    lines = out.splitlines()
    (settings,) = [at for at, line in enumerate(lines) if line.startswith("Settings in effect")]
    found = [at for at, line in enumerate(lines) if line.startswith(("error: ", "warning: "))]
    assert (code, found[-1] < settings) == (ExitCode.NO, True), out
    assert lines[-1].startswith("errors: ")


def test_plan_has_one_line_about_what_is_not_captured(shop: Path, run: Run) -> None:
    (line,) = [one for one in run("triggers", "plan")[1].splitlines() if "aptured" in one]
    assert line.startswith("Not captured: rows that INSERT OR REPLACE and UPDATE OR REPLACE delete")
    assert "; who made a change: SQLite has no users; writes by a connection" in line


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("itm.id=1", "there is no class 'itm'; the nearest one is item"),
        ("zzz.id=1", "there is no class 'zzz'; the classes are: item"),
        ("item.idd=1", "the key of item is id"),
        ("idd=1", "the classes are: item"),
    ],
)
def test_explain_names_the_class_or_the_key_that_was_meant(
    shop: Path, run: Run, key: str, hint: str
) -> None:
    code, _, err = run("explain", "--key", key)
    assert (code, f"{key!r} is not a key of any class" in err, hint in err) == (2, True, True), err


def test_a_file_that_begins_with_a_byte_order_mark_is_read(shop: Path, run: Run) -> None:
    file = shop / "eventlog.toml"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert run("status")[0] == 0


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ('[sink]\ntype = "stdout"\n[sink]\n', "write this table once, with all its options"),
        ('[sink]\ntype = "stdout\n', "close the text with a quote on its line"),
        ('[sink]\ntype = "stdout"\ntype = "files"\n', "write this option once"),
        ("[sink]\ntype = stdout\n", "write text in quotes"),
        ('[watch]\ntable = "a"\n[watch]\ntable = "b"\n', "write [[watch]], with two brackets"),
    ],
)
def test_a_file_that_is_not_toml_is_answered_with_what_to_write(
    run: Run, text: str, advice: str
) -> None:
    Path("eventlog.toml").write_text(text)
    code, _, err = run("config")
    assert (code, advice in err, "line" in err) == (2, True, True), err


@pytest.mark.parametrize(
    ("name", "legal"),
    [("URL", "postgresql+psycopg://user@host:5432/database or the like"), ("URL_FILE", "")],
)
def test_an_empty_environment_variable_is_named_as_empty(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str, legal: str
) -> None:
    monkeypatch.setenv(f"EVENTLOG_DATABASE_{name}", "")
    code, _, err = run("status")
    assert code == 2
    assert (
        f"environment variable EVENTLOG_DATABASE_{name} is empty: set or remove it; legal: {legal}"
    ) in err


@pytest.mark.parametrize("tag", ["value", "ds-value"])
def test_an_export_with_the_names_of_the_directory_gives_the_user_and_what_is_missing(
    run: Run, tmp_path: Path, tag: str
) -> None:
    export = tmp_path / "driver.xml"
    export.write_text(
        "<driver><attributes>"
        f'<ds-attribute ds-attr-name="DirXML-ShimAuthID"><{tag}>idm</{tag}></ds-attribute>'
        '<ds-attribute ds-attr-name="DirXML-ShimAuthServer">'
        f"<{tag}>jdbc:postgresql://db:5432/shop</{tag}></ds-attribute></attributes></driver>"
    )
    made = tmp_path / "made.toml"
    code, _, err = run("-c", str(made), "init", "--from-driver", str(export))
    assert code == 0
    assert load(made, {}).database.url == "postgresql+psycopg://idm@db:5432/shop"
    assert "Review it, then run: eventlog db upgrade --existing-log" in err
    export.write_text(export.read_text().replace("jdbc:postgresql", "jdbc:db2"))
    code, _, err = run("-c", str(made), "init", "--force", "--from-driver", str(export))
    assert code == 0
    assert "Set url in [database] first and review the rest, then run: eventlog db upgrade" in err


def test_init_lists_the_tables_that_it_leaves_out(shop: Path, run: Run) -> None:
    change("CREATE TABLE nokey (name TEXT)")
    change("CREATE VIEW v_open AS SELECT * FROM item")
    url = ("--database-url", "sqlite:///shop.db")
    code, _, err = run(*url, "-c", "new.toml", "init", "--tables")
    assert code == 0
    assert err.splitlines() == [
        "new.toml: 1 [[watch]] written",
        "2 not watched: nokey (no primary key), v_open (a view: see `view` and `base`)",
        "Review them, then run: eventlog db upgrade, eventlog triggers plan",
    ]
    assert '# not watched: "nokey", no primary key' in Path("new.toml").read_text().splitlines()


# --- formats --------------------------------------------------------------------------------------


@pytest.mark.promise("option publish--format")
@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("parquet", "`eventlog backlog run --file-layout parquet` writes it"),
        ("csv", "--format qlik-change-table --file-layout csv"),
        ("delta", "live_copy of eventlog.spark writes Delta tables"),
        ("iceberg", "live_copy of eventlog.spark writes Iceberg tables"),
    ],
)
def test_a_layout_of_files_that_is_taken_for_a_format_is_answered_with_what_writes_it(
    run: Run, name: str, answer: str
) -> None:
    code, _, err = run("publish", "--format", name)
    assert (code, answer in err) == (2, True), err


@pytest.mark.parametrize("format", ["xds", "jsonl", "gbase"])
def test_a_file_that_holds_nothing_of_its_format_is_a_failure_of_decode(
    run: Run, tmp_path: Path, format: str
) -> None:
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00noise\n" * 20)
    code, out, err = run("decode", "--from", format, str(tmp_path / "noise"))
    assert code == 1
    assert "Traceback" not in out + err
    assert err.splitlines()[-1].startswith("eventlog: ")


@pytest.mark.promise("command backlog run", "option several--master", "option backlog-run--out")
@pytest.mark.parametrize(
    ("master", "answer"),
    [
        ("here", "'here' is not a Spark master; write local[*] (this machine), spark://HOST:PORT, "),
        ("spark://here", "'spark://here' is not a Spark master"),
        ("local[2", "'local[2' is not a Spark master"),
        ("spark://127.0.0.1:1",
         "the Spark master spark://127.0.0.1:1 cannot be reached (127.0.0.1:1: Connection refused): "
         "start it, or correct --master; local[*] runs the job on this machine"),
    ],
)  # fmt: skip
def test_a_wrong_spark_master_is_refused_before_spark_starts(
    shop: Path, run: Run, master: str, answer: str
) -> None:
    pytest.importorskip("pyspark")
    change("INSERT INTO item VALUES (1, 'a')")
    code, _, err = run("backlog", "run", "--out", "documents", "--master", master)
    assert (code, "Traceback" in err) == (2, False)
    assert err.splitlines()[-1].startswith(f"eventlog: {answer}")


# --- a monitor ------------------------------------------------------------------------------------


@pytest.mark.promise(
    "command tail",
    "option top--url",
    "option tail--url",
    "code error-monitor_unavailable",
)
@pytest.mark.parametrize("command", ["top", "tail"])
def test_a_monitor_that_does_not_answer_is_no_error_of_the_database(
    shop: Path, run: Run, command: str
) -> None:
    code, _, err = run(command, "--url", "http://127.0.0.1:1/")
    assert code == 1
    assert err == (
        "eventlog: http://127.0.0.1:1/ does not answer: no connection: Connection refused; check "
        "that the publisher runs [monitor_unavailable]\n"
    )


# --- the log --------------------------------------------------------------------------------------


def test_a_downgrade_in_a_script_names_what_it_removes(shop: Path, run: Run) -> None:
    assert run("triggers", "drop", "--yes")[0] == 0
    code, out, err = run("db", "downgrade", "base")
    assert code == 0
    assert "This drops the log eventlog with all its rows, and its internal tables" in err
    assert "now at base (nothing)" in out


@pytest.mark.promise("command consumers reset", "option consumers-reset--start-from")
def test_a_consumer_that_cannot_begin_there_is_refused_in_a_dry_run_too(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as environment:
        environment.setenv("EVENTLOG_SOURCE_CONSUMER", "search")
        assert run("publish", "--once")[0] == 0
    code, _, err = run("consumers", "reset", "search", "--start-from", "999999999", "--dry-run")
    assert (code, "999999999" in err) == (2, True)


def test_a_process_that_takes_over_from_another_one_logs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop, tries = threading.Event(), 0

    def work(connected: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConsumerRuns("consumer 'search' of the log eventlog is running")
        connected()
        stop.set()

    with caplog.at_level(logging.INFO, "eventlog.publisher"):
        keep_connected(work, stop, (), 0.01, 0.01, SILENT, ConsumerRuns)
    assert [record.getMessage() for record in caplog.records] == [
        "consumer 'search' of the log eventlog is running; waiting as its standby until it ends",
        "the other process has ended, and this one takes over",
    ]


def test_a_command_for_another_consumer_needs_no_other_file(
    shop: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as environment:
        environment.setenv("EVENTLOG_SOURCE_CONSUMER", "search")
        assert run("publish", "--once")[0] == 0
    change("INSERT INTO item VALUES (1, 'a')")
    wait_until(lambda: change("SELECT count(*) FROM eventlog") == [(1,)])
    known = json.loads(run("status", "--consumer", "search", "--json")[1])
    assert known["queue_rows"] == 1


def test_the_key_of_an_object_is_no_option_of_doctor(shop: Path, run: Run) -> None:
    code, _, err = run("doctor", "--receiver", "--key", "id=1")
    assert (code, "No such option '--key'" in err) == (2, True)
    assert run("explain", "--key", "id=1")[0] == 0


# --- the guides -----------------------------------------------------------------------------------

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def test_the_guide_of_spark_names_arrays_among_the_types_that_become_text() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import StringType

    from eventlog.spark.changes.change_rows import spark_type

    assert spark_type(ColumnType(Kind.OTHER, sql="text[]")) == StringType()
    guide = " ".join((GUIDES / "spark.md").read_text(encoding="utf-8").split())
    assert "an array (`{a,NULL}`, as the database writes it) are text" in guide


@pytest.mark.promise("option source.consumer")
def test_the_guide_of_consumers_shows_how_they_run_in_kubernetes(tmp_path: Path) -> None:
    guide = " ".join((GUIDES / "consumers.md").read_text(encoding="utf-8").split())
    (sentence,) = (one for one in guide.split(". ") if "In Kubernetes each consumer" in one)
    named = re.findall(r"`(EVENTLOG_\w+)=(\w+)`", sentence)
    assert (GUIDES.parents[1] / "deploy" / "kubernetes" / "publisher.yaml").exists()
    assert load(None, dict(named)).of_log.consumer == "search"


@pytest.mark.parametrize(
    ("page", "named"),
    [
        ("operate/maintain.md", "spark.md#after-a-failover"),
        ("guides/spark.md", "`eventlog db start-epoch`"),
        ("guides/spark.md", 'on_epoch="reload"'),
        ("guides/leave-the-jdbc-driver.md", "jqlang.org"),
        ("guides/leave-the-jdbc-driver.md", "eventlog catalog > catalog.json"),
        ("operate/deploy.md", "exit codes 2 and 3"),
        ("operate/deploy.md", "For the sink `objects`"),
        ("operate/deploy.md", "systemctl restart eventlog-publisher"),
        ("guides/consumers.md", "Only a consumer has a replay"),
        ("developers/extend.md", "`try_out(cls, options, opening)`"),
    ],
)
def test_a_page_names_what_its_readers_had_to_find_out(page: str, named: str) -> None:
    text = " ".join((GUIDES.parent / page).read_text(encoding="utf-8").split())
    assert named in text
