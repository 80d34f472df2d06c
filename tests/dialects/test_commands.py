"""The command line over a whole life of a log, on every database."""

from __future__ import annotations

import json
import shlex
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
import sqlalchemy as sa
from lxml import etree
from platforms import Platform

from eventlog.cli import run
from eventlog.errors import LogTableError
from eventlog.exit_codes import ExitCode
from eventlog.publisher.context.context import Counters
from eventlog.publisher.declared.opening import open_context
from eventlog.publisher.run.daemon import publish_once
from eventlog.sql import SUPPORTED
from eventlog.sql.port.log_parts import LogPart


@pytest.fixture
def command(
    usr_platform: Platform, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):  # type: ignore[no-untyped-def]
    """Runs a command in the directory of its configuration; its exit code and what it wrote to
    standard output.
    """
    usr_platform.watches = [{"table": "usr"}, {"table": "keyed"}]
    usr_platform.settings = {"publisher": {"allow_loopback": True}}
    usr_platform.config()
    monkeypatch.chdir(usr_platform.place)

    def call(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run(list(arguments))
        return code, capsys.readouterr().out

    return call


def test_a_log_from_its_making_to_its_end(usr_platform: Platform, command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert command("db", "upgrade")[0] == 0
    assert json.loads(command("db", "current", "--json")[1])["current"]
    assert command("triggers", "plan", "--check")[0] == ExitCode.NO
    assert command("triggers", "apply")[0] == 0
    assert command("triggers", "plan", "--check")[0] == 0
    usr_platform.run(
        "INSERT INTO usr VALUES (1, 'Jack', NULL, {aaaa})",
        "INSERT INTO usr_phone VALUES (1, '555')",
        "UPDATE usr SET fname = 'John'",
        "INSERT INTO keyed VALUES (1, 'x')",
    )
    status = json.loads(command("status", "--json")[1])
    assert status["queue_rows"] >= 5
    assert not status["publisher_runs"]
    code, found = command("doctor", "--json")
    assert json.loads(found)["errors"] == 0, found
    rows = usr_platform.rows()
    shown = json.loads(command("explain", str(rows[0].record_id), "--json")[1])
    assert shown["row"]["record_id"] == rows[0].record_id
    code, dry = command("publish", "--once", "--dry-run")
    assert code == 0
    code, documents = command("publish", "--once")
    assert code == 0
    assert documents == dry
    (line,) = documents.splitlines()
    events = etree.fromstring(line.encode()).find("input")
    assert events is not None
    assert [event.tag for event in events] == ["add", "modify", "add"]
    photo = [value.text for value in events[0].findall("add-attr[@attr-name='photo']/value")]
    photo += [value.text for value in events[0].findall("add-attr[@attr-name='PHOTO']/value")]
    assert photo == ["qqo="]
    assert json.loads(command("status", "--json")[1])["queue_rows"] == 0
    assert command("resync", "usr")[0] == 0
    assert command("resync", "usr", "--where", "nonsense here")[0] != 0
    assert json.loads(command("status", "--json")[1])["queue_rows"] == 1
    assert command("publish", "--once")[0] == 0
    assert command("requeue", "--status", "S", "--force")[0] == 0
    assert command("publish", "--once")[0] == 0
    assert command("purge", "--older-than", "0s")[0] == 0
    assert json.loads(command("triggers", "list", "--json")[1])
    assert command("triggers", "drop", "--drop-log")[0] == 0
    assert command("status")[0] != 0


def test_a_resync_that_apply_names_is_due_until_it_has_run(usr_platform: Platform, command) -> None:  # type: ignore[no-untyped-def]
    assert command("db", "upgrade")[0] == 0
    for watch in ({"table": "usr", "exclude": ["fname"]}, {"table": "usr"}):
        usr_platform.watches = [watch]
        usr_platform.config()
        code, told = command("triggers", "apply", "--json")
        assert code == 0
        usr_platform.run("INSERT INTO usr VALUES (1, 'Jack', NULL, {aaaa})")
        usr_platform.run("DELETE FROM usr")

    def due() -> int:
        with usr_platform.engine.connect() as conn:
            return int(conn.exec_driver_sql("SELECT COUNT(*) FROM eventlog_resync").scalar_one())

    (named,) = json.loads(told)["due"]
    assert due() == 1
    assert command(*shlex.split(named["command"])[1:])[0] == 0
    assert due() == 0


def test_requeue_takes_rows_under_the_old_and_the_new_name_of_a_table_as_one_object(  # type: ignore[no-untyped-def]
    usr_platform: Platform, command
) -> None:
    """Row 1 was refused, and a later row of the object, under the new name, was published."""
    usr_platform.watches = [{"table": "usr", "renamed_from": "person"}]
    usr_platform.config()
    assert command("db", "upgrade")[0] == 0
    usr_platform.run(
        *(
            "INSERT INTO eventlog (status, event_type, table_name, table_key, column_name, "
            f"new_value) VALUES ('{status}', 2, '{table}', '{key}', 'fname', 'x')"
            for status, table, key in (
                ("E", "Person", "idu=1"),
                ("S", "usr", "idu=1"),
                ("E", "person", "idu=2"),
                ("S", "other", "idu=2"),
            )
        )
    )
    code, told = command("requeue", "--json")
    done = json.loads(told)
    assert (code, done["set_back"]) == (1, 1)
    assert [row["table_key"] for row in done["refused"]] == ["idu=1"]


def test_a_log_whose_triggers_number_its_rows_is_read_and_written(  # type: ignore[no-untyped-def]
    usr_platform: Platform, command
) -> None:
    """The layout 3.5 of the vendor, with numeric columns and its own names."""
    usr_platform.needs("sequences")
    usr_platform.run(
        "CREATE SEQUENCE ids START WITH 7",
        "CREATE TABLE theirs (rid decimal(20) NOT NULL PRIMARY KEY, tkey {string}, st char(1), "
        "typ decimal(4), tim {timestamp}, who {string}, tab {string}, col {string}, o {text}, "
        "n {text})",
        "INSERT INTO usr VALUES (1, 'Jack', NULL, {aaaa})",
        "INSERT INTO theirs (rid, tkey, st, typ, tab) VALUES (5, 'idu=1', 'N', 6, 'usr')",
        "INSERT INTO theirs (rid, tkey, st, typ, tab, who) VALUES (6, 'idu=1', 'S', 6, 'usr', 'me')",
    )
    url = usr_platform.engine.url.render_as_string(hide_password=False)
    place = {"url": url, "log_table": "theirs"}
    usr_platform.settings = {
        "database": place,
        "publisher": {"layout": "3.5", "allow_loopback": True, "driver_user": "me"},
    }
    usr_platform.config()
    assert command("db", "upgrade", "--existing-log")[0] == 0
    assert command("resync", "usr")[0] != 0
    usr_platform.settings["database"] = {**place, "record_id_sequence": "ids"}
    usr_platform.config()
    assert json.loads(command("explain", "5", "--json")[1])["row"]["event_type"] == 6
    code, documents = command("publish", "--once")
    assert (code, 'event-id="5"' in documents) == (0, True)
    assert command("resync", "usr", "--resume")[0] == 0
    assert command("requeue", "--ids", "5", "--status", "S")[0] == 0
    assert command("requeue", "--loopback")[0] == 0
    with usr_platform.engine.connect() as conn:
        rows = conn.exec_driver_sql("SELECT rid, typ, st FROM theirs ORDER BY rid").all()
    assert [(int(rid), int(typ), st) for rid, typ, st in rows] == [
        (5, 6, "S"), (6, 6, "S"), (7, 5, "N"), (8, 6, "N"), (9, 6, "N"),
    ]  # fmt: skip
    told = json.loads(command("doctor", "--json")[1])["findings"]
    assert "eventlog db upgrade" not in [fix for one in told for fix in one["fix"]]
    if usr_platform.name != "oracle":  # whose numbers are as large as any NUMBER
        with open_context(usr_platform.config(), Counters()) as context:
            usr_platform.run(
                "INSERT INTO theirs (rid, tkey, st, typ, tab) VALUES "
                "(9223372036854775808, 'idu=1', 'N', 6, 'usr')"
            )
            with pytest.raises(
                LogTableError, match=r"rid = 9223372036854775808, above .*2\^63 - 1"
            ):
                publish_once(context, cast("Any", None))
        assert command("publish", "--once")[0] != 0
        assert command("explain", "5")[0] != 0
        assert "record_id_range" in command("doctor", "--json")[1]


def test_a_resync_goes_on_where_it_stopped(usr_platform: Platform, command) -> None:  # type: ignore[no-untyped-def]
    usr_platform.run(*(f"INSERT INTO keyed VALUES ({n}, 'k{n % 3}')" for n in range(7)))
    usr_platform.rows()
    assert command("resync", "keyed", "--batch", "2")[0] == 0
    assert sorted(str(row.table_key).lower() for row in usr_platform.rows()) == sorted(
        f"b=k{n % 3}+a={n}" for n in range(7)
    )
    assert command("resync", "keyed", "--where", "a > 4", "--as-update", "--batch", "1")[0] == 0
    assert [(row.event_type, str(row.table_key).lower()) for row in usr_platform.rows()] == [
        (6, "b=k0+a=6"),
        (6, "b=k2+a=5"),
    ]
    name = ("B", "A") if usr_platform.name == "oracle" else ("b", "a")
    key = f"{name[0]}=k1+{name[1]}=1"
    assert command("resync", "keyed", "--key", key, "--key", f"{name[0]}=no+{name[1]}=1")[0] == 1
    assert [row.table_key for row in usr_platform.rows()] == [key]


def test_a_resync_deletes_what_is_gone(usr_platform: Platform, command) -> None:  # type: ignore[no-untyped-def]
    name = ("B", "A", "KEYED") if usr_platform.name == "oracle" else ("b", "a", "keyed")
    assert command("resync", "keyed", "--deletes")[0] == 0  # no history
    usr_platform.run(*(f"INSERT INTO keyed VALUES ({n}, 'k')" for n in (1, 4)))
    assert command("resync", "keyed")[0] == 0
    usr_platform.run("DELETE FROM keyed WHERE a = 4", "INSERT INTO keyed VALUES (5, 'k')")
    usr_platform.rows()
    assert command("resync", "keyed", "--deletes", "--dry-run")[1].startswith(
        "1 row of type 4 would be written"
    )
    assert usr_platform.rows() == []
    assert command("resync", "keyed", "--deletes")[1].startswith("1 row of type 4 written")
    row, *again = usr_platform.rows()
    assert (row.event_type, row.table_name, row.table_key) == (
        4,
        name[2],
        f"{name[0]}=k+{name[1]}=4",
    )
    # Oracle and the user of a server of MySQL's family do not show the open transactions that wrote
    # to the log.
    if usr_platform.name == "oracle" or usr_platform.is_of_family:
        assert [one.event_type for one in again] == [5]
    else:
        assert again == []
        assert command("resync", "keyed", "--deletes")[1].startswith("0 rows of type 4 written")


def test_a_dry_run_of_a_resync_counts_and_writes_nothing(usr_platform: Platform, command) -> None:  # type: ignore[no-untyped-def]
    usr_platform.run(*(f"INSERT INTO keyed VALUES ({n}, 'k{n % 3}')" for n in range(7)))
    usr_platform.rows()
    name = ("B", "A") if usr_platform.name == "oracle" else ("b", "a")
    file = usr_platform.place / "keys.txt"
    file.write_text(
        "".join(
            f"{name[0]}={b}+{name[1]}={a}\n"
            for b, a in (("k1", 1), ("k2", 2), ("no", 1), ("k0", 3))
        )
    )
    for selection, rows, missing in (
        ([], 7, 0),
        (["--where", "a > 4"], 2, 0),
        (["--key", f"{name[0]}=k1+{name[1]}=1"], 1, 0),
        (["--keys", str(file), "--batch", "2"], 3, 1),
    ):
        for resumes in ([], ["--restart"]) if selection[:1] != ["--key"] else ([],):
            code, out = command("resync", "keyed", *selection, *resumes, "--dry-run", "--json")
            report = json.loads(out)
            assert (code, report["rows"], report["missing"], report["dry_run"]) == (
                int(missing > 0),
                rows,
                missing,
                True,
            )
    assert usr_platform.rows() == []
    assert command("resync", "keyed", "--resume")[0] == 2  # no line of a resync was left
    assert command("resync", "keyed", "--dry-run")[1].startswith(
        "7 rows of type 5 would be written for keyed"
    )


def can_look_back(conn: sa.Connection, table: str) -> None:
    """Wait until a table that was made just now can be read AS OF a moment, which Oracle tells by a
    few seconds.
    """
    for _ in range(30):
        with suppress(sa.exc.DBAPIError):  # ORA-01466
            scn = conn.exec_driver_sql(
                "SELECT SYS.DBMS_FLASHBACK.GET_SYSTEM_CHANGE_NUMBER FROM DUAL"
            ).scalar_one()
            conn.exec_driver_sql(
                f'SELECT COUNT(*) FROM "{table}" AS OF SCN {int(scn)}'
            ).scalar_one()
            return
        conn.rollback()
        time.sleep(1)
    raise AssertionError(f"{table} cannot be read AS OF SCN")


def test_a_bulk_job_sees_every_row_once(usr_platform: Platform) -> None:
    pytest.importorskip("pyarrow")
    usr_platform.watch("keyed")
    usr_platform.run(*(f"INSERT INTO keyed VALUES ({n}, 'x')" for n in range(30)))
    dialect = usr_platform.dialect
    fields = ("record_id", "status", "event_type", "event_time", "table_key", "new_value")
    with usr_platform.session() as (conn, log):
        conn.rollback()
        if usr_platform.name == "oracle":
            can_look_back(conn, "EVENTLOG")
        conn = conn.execution_options(**dialect.snapshot_options)
        snapshot = dialect.open(conn).export_snapshot()
        parts = dialect.open(conn).log(log).log_parts("N", 1, 2**62, 7, 1)
        assert [part.rows for part in parts] == [6] * 5 or sum(part.rows for part in parts) == 30
        usr_platform.run("INSERT INTO keyed VALUES (99, 'later')")
        url = usr_platform.engine.url
        found = [
            row
            for part in parts
            for batch in dialect.read_part(url, log, snapshot, "N", LogPart(*part), fields)
            for row in batch.to_pylist()
        ]
        assert [row["record_id"] for row in found] == sorted({row["record_id"] for row in found})
        assert len(found) == 30
        assert {row["event_type"] for row in found} == {5}
        assert all(row["event_time"] is not None for row in found)


@pytest.mark.parametrize("name", SUPPORTED)
def test_no_database_is_needed_to_print_sql(
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is printed for a database runs on it."""
    monkeypatch.chdir(tmp_path)
    column = {"name": "id", "type": "integer"}
    catalog = {"dialect": name, "schema": None, "tables": [
        {"name": "t", "kind": "table", "columns": [column, {"name": "v", "type": "varchar(40)"}],
         "primary_key": ["id"]}
    ]}  # fmt: skip
    (tmp_path / "catalog.json").write_text(json.dumps(catalog))
    assert run(["db", "upgrade", "--sql", "--dialect", name]) == 0
    log = capsys.readouterr().out
    asked = ["triggers", "list", "--sql", "--dialect", name, "--catalog", "catalog.json"]
    assert run(asked) == 0
    triggers = capsys.readouterr().out
    assert "eventlog" in log.lower()
    assert "tgr_t_i_1" in triggers.lower()
    if name == "sqlite":
        with closing(sqlite3.connect(tmp_path / "app.db")) as conn, conn:
            conn.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, v VARCHAR(40))")
            conn.executescript(log)
            conn.executescript(triggers)
            conn.execute("INSERT INTO t VALUES (1, 'x')")
            assert conn.execute("SELECT event_type, table_key FROM eventlog").fetchall() == [
                (1, "id=1")
            ]
        conn.close()
    elif name == "postgresql":
        url = request.getfixturevalue("database").url.set(drivername="postgresql")
        with psycopg.connect(url.render_as_string(hide_password=False)) as conn:
            conn.execute("CREATE TABLE t (id integer PRIMARY KEY, v varchar(40))")
            conn.execute(log)  # type: ignore[arg-type]
            conn.commit()
            conn.execute(triggers)  # type: ignore[arg-type]
            conn.execute("INSERT INTO public.t VALUES (1, 'x')")
            assert conn.execute("SELECT event_type, table_key FROM eventlog").fetchall() == [
                (1, "id=1")
            ]


@pytest.mark.parametrize("arguments", [
    ["db", "upgrade", "--dialect", "sqlite"],
    ["triggers", "list", "--dialect", "sqlite"],
    ["triggers", "list", "--sql", "--dialect", "sqlite"],
    ["triggers", "list", "--sql", "--catalog", "x.json"],
    ["triggers", "list", "--sql", "--dialect", "sqlite", "--catalog", "missing.json"],
])  # fmt: skip
def test_options_that_go_together_are_asked_for(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
