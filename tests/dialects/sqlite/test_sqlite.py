"""What SQLite does in its own way (spec/triggers.md 7.5, spec/event-log.md 12)."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from platforms import Platform, opened
from shared import opened_log
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from eventlog.cli import run
from eventlog.cli.context import transaction
from eventlog.config.load import load
from eventlog.core.catalog.builder import build_catalog
from eventlog.core.values import Kind
from eventlog.errors import (
    ConfigError,
    DatabaseError,
    DatabaseUnavailable,
    LogTableError,
    TriggerError,
)
from eventlog.exit_codes import ExitCode
from eventlog.model import EventType
from eventlog.publisher.context.context import Context, Counters
from eventlog.publisher.declared.opening import find_log, open_context
from eventlog.publisher.inspect.refusals import refused
from eventlog.sql.connect.connection import connect, will_write
from eventlog.sql.dialects.sqlite import DIALECT
from eventlog.sql.dialects.sqlite.objects import column_type
from eventlog.sql.dialects.sqlite.text import base64 as base64_sql
from eventlog.sql.dialects.sqlite.text import with_strict_names
from eventlog.sql.log.errors import PUT_BACK, add_errors, newest_errors_of, read_errors
from eventlog.sql.port.filtered import read_for_reader, why_refused
from eventlog.sql.port.log_operations import Selection
from eventlog.sql.triggers import triggers_of


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Platform]:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/app.db", poolclass=sa.NullPool)
    with opened(DIALECT, engine, tmp_path) as made:
        made.install()
        yield made


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("BOOLEAN", Kind.BOOLEAN), ("DATETIME", Kind.TIMESTAMP), ("timestamp", Kind.TIMESTAMP),
        ("DATE", Kind.DATE), ("time", Kind.TIME), ("BIGINT", Kind.INTEGER), ("INTEGER",
        Kind.INTEGER), ("varchar(9)", Kind.CHARACTER), ("CHAR(4)", Kind.CHARACTER), ("CLOB",
        Kind.CHARACTER), ("BLOB", Kind.BINARY), ("", Kind.BINARY), ("REAL", Kind.APPROXIMATE),
        ("FLOAT", Kind.APPROXIMATE), ("DOUBLE "
"PRECISION", Kind.APPROXIMATE),
        ("DECIMAL(9,2)", Kind.EXACT), ("NUMERIC", Kind.EXACT), ("STRING", Kind.EXACT), ("POINT",
        Kind.INTEGER), ("decimal(38,0)", Kind.INTEGER), ("NUMERIC ( "
"9 )", Kind.INTEGER), ("DECIMAL(9)", Kind.INTEGER),
        ("NUMERIC(9, 00)", Kind.INTEGER), ("DECIMAL", Kind.EXACT), ("NUMERIC(9,10)", Kind.EXACT),
        ("DEC(9,0)", Kind.EXACT), ("MY_DECIMAL(9)", Kind.EXACT),
    ],
)  # fmt: skip
def test_the_declared_type_decides(declared: str, kind: Kind) -> None:
    assert column_type(declared).kind is kind


def test_a_log_of_somebody_else_that_cannot_be_read_is_reported_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db")) as database, database:
        database.execute(
            "CREATE TABLE eventlog (record_id NUMERIC, status TEXT, event_type INTEGER, event_time "
            "TEXT, perpetrator TEXT, table_name TEXT, table_key TEXT, column_name TEXT, old_value "
            "TEXT, new_value TEXT)"
        )
    url = f"sqlite:///{tmp_path}/app.db"
    assert run(["--database-url", url, "db", "upgrade", "--existing-log"]) != 0
    assert 'column "record_id" cannot be record_id' in capsys.readouterr().err
    with closing(sqlite3.connect(tmp_path / "app.db")) as database, database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("eventlog",)]


@pytest.mark.parametrize("length", range(20))
def test_base64_of_plain_sql(length: int) -> None:
    value = os.urandom(length)
    conn = sqlite3.connect(":memory:")
    found = conn.execute(f"SELECT {base64_sql('v')} FROM (SELECT ? AS v)", (value,)).fetchone()[0]
    assert found == base64.b64encode(value).decode()
    assert conn.execute(f"SELECT {base64_sql('v')} FROM (SELECT NULL AS v)").fetchone() == (None,)
    conn.close()


def test_a_binary_column_is_read_back_whatever_it_holds(file: Platform) -> None:
    file.run(
        "CREATE TABLE t (k INTEGER PRIMARY KEY, b BLOB)",
        "INSERT INTO t VALUES (1, 5), (2, 'a'), (3, x'00FF')",
    )
    with file.engine.connect() as conn:
        cls = build_catalog(DIALECT.open(conn).reflect(None)).class_named("t")
        rows = DIALECT.open(conn).query_back(None, cls, ["k=1", "k=2", "k=3"], cls.attributes[1:])
    found = [base64.b64decode(row["b"][0] or "") for row in rows.values()]
    assert found == [b"5", b"a", b"\x00\xff"]


def test_what_the_publisher_itself_writes_feeds_no_view(file: Platform) -> None:
    file.run(
        "CREATE VIEW deliveries AS SELECT entry_no AS pk_entry_no, started AS sv_started FROM "
        "eventlog_inflight"
    )
    base = {"eventlog_inflight": {"entry_no": "pk_entry_no", "started": "sv_started"}}
    with pytest.raises(
        TriggerError, match="eventlog_inflight is the log or one of its internal tables"
    ):
        file.plan({"view": "deliveries", "base": base})


def test_a_row_that_replace_takes_away_is_logged_with_recursive_triggers(file: Platform) -> None:
    file.run(
        "CREATE TABLE t (k INTEGER PRIMARY KEY, u TEXT UNIQUE)", "INSERT INTO t VALUES (1, 'a')"
    )
    file.watch("t")
    replaced = "INSERT OR REPLACE INTO t VALUES (2, 'a')"
    with file.engine.begin() as conn:
        conn.exec_driver_sql("PRAGMA recursive_triggers = ON")
        conn.exec_driver_sql(replaced)
    assert [(row.event_type, row.table_key) for row in file.rows()] == [(4, "k=1"), (1, "k=2")]
    with file.engine.begin() as conn:
        conn.exec_driver_sql(replaced.replace("2", "3"))
    assert [(row.event_type, row.table_key) for row in file.rows()] == [(1, "k=3")]
    assert any("REPLACE" in sentence for sentence in file.plan({"table": "t"}).not_captured)


def test_a_table_without_rowid_and_a_key_of_several_types(file: Platform) -> None:
    file.run("CREATE TABLE t (a TEXT, b BLOB, c NUMERIC, PRIMARY KEY (c, a, b)) WITHOUT ROWID")
    file.watch("t")
    assert file.logged("INSERT INTO t VALUES ('x,y', x'00', 1e20)") == [
        (5, 'c=100000000000000000000+a="x,y"+b="AA=="', None, None, None)
    ]


def test_whole_decimals_are_integers_of_any_size(file: Platform) -> None:
    file.run("CREATE TABLE t (k DECIMAL(38,0) PRIMARY KEY, v NUMERIC(38))")
    file.watch("t")
    assert file.logged("INSERT INTO t VALUES (1e20, 7)", "UPDATE t SET v = 1e21") == [
        (1, "k=100000000000000000000", "v", None, "7"),
        (2, "k=100000000000000000000", "v", "7", "1000000000000000000000"),
    ]
    (attribute,) = [one for one in file.catalog().class_named("t").attributes if one.name == "v"]
    assert (attribute.value_type, attribute.convert("007")) == ("int", "7")


def test_a_key_that_is_null_is_no_object(file: Platform) -> None:
    file.run("CREATE TABLE t (k TEXT PRIMARY KEY, v TEXT)")
    file.watch("t")
    assert (
        file.logged("INSERT INTO t VALUES (NULL, 'x')", "UPDATE t SET v = 'y'", "DELETE FROM t")
        == []
    )
    file.run("INSERT INTO t VALUES (NULL, 'x')")
    assert file.logged("UPDATE t SET k = 'a'") == [(1, "k=a", "v", None, "x")]
    assert file.logged("UPDATE t SET k = NULL") == [(4, "k=a", None, None, None)]


def test_an_owner_that_is_spelled_otherwise_is_meant_as_it_is_spelled(file: Platform) -> None:
    file.run(
        "CREATE TABLE f (k TEXT COLLATE NOCASE PRIMARY KEY, v TEXT)",
        "CREATE TABLE f_tag (k TEXT REFERENCES f, tag TEXT, UNIQUE (k, tag))",
        "INSERT INTO f VALUES ('ABC', NULL)",
    )
    file.watch("f")
    assert file.logged("INSERT INTO f_tag VALUES ('abc', 'x')") == [
        (2, "k=ABC", "f_tag.tag", None, "x")
    ]
    assert file.logged("UPDATE f_tag SET k = 'Abc'") == []
    assert file.logged("DELETE FROM f_tag") == [(2, "k=ABC", "f_tag.tag", "x", None)]
    cls = file.catalog().class_named("f")
    with file.session() as (conn, _):
        assert list(DIALECT.open(conn).query_back(None, cls, ["k=abc", "k=ABC"], ())) == ["k=ABC"]


def test_a_change_of_case_in_a_column_without_case_is_a_change(file: Platform) -> None:
    file.run(
        "CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT COLLATE NOCASE)",
        "INSERT INTO t VALUES (1, 'a')",
    )
    file.watch("t")
    assert file.logged("UPDATE t SET v = 'A'") == [(2, "k=1", "v", "a", "A")]


def test_values_of_other_types_than_their_columns(file: Platform) -> None:
    file.run("CREATE TABLE t (k INTEGER PRIMARY KEY, i INTEGER, r REAL, x TEXT)")
    file.watch("t")
    assert file.logged("INSERT INTO t VALUES (1, 'five', 'pi', 7)") == [
        (1, "k=1", "i", None, "five"),
        (1, "k=1", "r", None, "pi"),
        (1, "k=1", "x", None, "7"),
    ]


def test_a_text_that_is_no_utf_8_is_one_invalid_row_and_no_more(
    file: Platform, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.run("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)")
    file.watch("t")
    file.run(
        "INSERT INTO t VALUES (1, CAST(x'FFFE41' AS TEXT))", "INSERT INTO t VALUES (2, 'good')"
    )
    file.watches = [{"table": "t"}]
    file.config()
    monkeypatch.chdir(file.place)
    assert run(["publish", "--once", "--allow-refused"]) == 0
    assert "good" in capsys.readouterr().out
    with file.engine.connect() as conn:
        assert conn.exec_driver_sql(
            "SELECT status FROM eventlog ORDER BY record_id"
        ).scalars().all() == ["E", "S"]
        assert conn.exec_driver_sql("SELECT code FROM eventlog_error").scalars().all() == [
            "bad_xml_char"
        ]


@pytest.mark.parametrize("is_refused_again", [False, True])
def test_of_error_rows_of_one_millisecond_the_one_written_last_is_the_newest(
    file: Platform, is_refused_again: bool
) -> None:
    """Row 1 is refused and put back in one millisecond. Row 2 is refused then too, so that the
    numbers of rows do not decide."""
    with file.engine.begin() as conn:
        log = find_log(DIALECT.open(conn), file.config())
        add_errors(log, [(1, "receiver", "no"), (2, "receiver", "no")])
        add_errors(log, [(1, PUT_BACK, "again")])
        if is_refused_again:
            add_errors(log, [(1, "receiver", "still no")])
        conn.exec_driver_sql("UPDATE eventlog_error SET error_time = '2026-01-01 00:00:00.000'")
        refused_rows, _ = refused(log)
        newest = newest_errors_of(log, [1])[1]
        assert read_errors(log, 1)[-1] == newest
        assert newest.code == ("receiver" if is_refused_again else PUT_BACK)
        assert sorted(refused_rows) == ([1, 2] if is_refused_again else [2])


def test_record_ids_are_never_given_twice(file: Platform) -> None:
    file.run("CREATE TABLE t (k INTEGER PRIMARY KEY)")
    file.watch("t")
    file.run("INSERT INTO t VALUES (1)")
    (row,) = file.rows()
    file.run("DELETE FROM eventlog", "INSERT INTO t VALUES (2)")
    assert [one.record_id for one in file.rows()] == [row.record_id + 1]


@pytest.mark.parametrize(
    ("event_time", "record_id", "refused"),
    [
        ("DATETIME2", "BIGINT", None), ("TEXT", "UNSIGNED INT", None), ("DATE", "INTEGER", None),
        ("NUMERIC", "INTEGER", "event_time"), ("TEXT", "NUMERIC", "record_id"),
    ],
)  # fmt: skip
def test_the_columns_of_a_log_are_what_they_are_declared(
    file: Platform, event_time: str, record_id: str, refused: str | None
) -> None:
    columns = f"record_id {record_id}, status CHAR, event_type TINYINT, event_time {event_time}"
    rest = (
        "perpetrator TEXT, table_name TEXT, table_key TEXT, column_name TEXT, old_value CLOB, "
        "new_value NVARCHAR(9)"
    )
    file.run("DROP TABLE eventlog", f"CREATE TABLE eventlog ({columns}, {rest})")
    if refused is None:
        with file.session() as (_, log):
            assert log.columns[3] == "event_time"
        return
    with pytest.raises(LogTableError, match=f"cannot be {refused}"), file.session():
        pass


def test_the_file_is_in_wal_mode(file: Platform) -> None:
    with file.engine.connect() as conn:
        assert conn.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?uri=true"])
def test_a_database_that_is_no_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="names no file"):
        connect(url)


def test_a_file_that_is_missing_is_not_made_by_a_look_at_it(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="no database file"):
        connect(f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "none.db").exists()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(DatabaseError, match="not a database"):
        DIALECT.prepare(make_url(f"sqlite:///{tmp_path}/x.db"))


def test_writers_take_turns_and_readers_do_not_wait(file: Platform) -> None:
    file.run("CREATE TABLE t (k INTEGER PRIMARY KEY)")
    engine = connect(file.engine.url, connect_timeout=1)
    with file.engine.connect() as other, engine.connect() as reader, engine.connect() as writer:
        other.exec_driver_sql("BEGIN IMMEDIATE")
        assert reader.exec_driver_sql("SELECT count(*) FROM t").scalar() == 0
        will_write(writer)
        with pytest.raises(sa.exc.OperationalError, match="locked"):
            writer.exec_driver_sql("INSERT INTO t VALUES (1)")
        other.rollback()
        writer.rollback()
        writer.exec_driver_sql("INSERT INTO t VALUES (1)")
        writer.commit()


def test_a_busy_file_is_worth_trying_again_and_a_wrong_statement_is_not(file: Platform) -> None:
    with pytest.raises(DatabaseError) as refused, transaction(file.config()) as db:
        db.connection.exec_driver_sql("SELECT nonsense")
    assert not isinstance(refused.value, DatabaseUnavailable)


def test_after_a_begin_that_failed_the_connection_begins_transactions_as_before(
    file: Platform,
) -> None:
    file.run("CREATE TABLE t (k INTEGER PRIMARY KEY)")
    engine = connect(file.engine.url, connect_timeout=0)
    with file.engine.connect() as other, engine.connect() as writer:
        other.exec_driver_sql("BEGIN IMMEDIATE")
        will_write(writer)
        with pytest.raises(sa.exc.OperationalError, match="locked"):
            writer.exec_driver_sql("INSERT INTO t VALUES (1)")
        other.rollback()
        writer.exec_driver_sql("INSERT INTO t VALUES (1)")
        writer.rollback()
        assert writer.exec_driver_sql("SELECT count(*) FROM t").scalar() == 0


def test_a_publisher_that_was_killed_leaves_no_lock(file: Platform) -> None:
    file.run("CREATE TABLE t (k INTEGER PRIMARY KEY)")
    file.config()
    script = (
        "import os, signal\nfrom pathlib import Path\nfrom eventlog.config.load import load\nfrom "
        "eventlog.publisher.context.context import Counters\nfrom eventlog.publisher.declared.opening import "
        f"open_context\nwith open_context(load(Path({str(file.place / 'eventlog.toml')!r}), {{}}, "
        "{}), Counters()):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert list(file.place.glob("*.lock"))
    with file.session() as (conn, log):
        assert not DIALECT.open(conn).log(log).is_locked()
    with open_context(file.config(), Counters()) as context:
        assert context.log.holds_lock()
    assert not list(file.place.glob("*.lock"))


def test_a_lock_file_that_somebody_removes_is_lost(file: Platform) -> None:
    file.run("CREATE TABLE t (k INTEGER PRIMARY KEY)")
    with open_context(file.config(), Counters()) as context:
        (lock,) = file.place.glob("*.lock")
        lock.unlink()
        assert not context.log.holds_lock()


def test_triggers_of_others_are_warned_of(file: Platform) -> None:
    file.run(
        "CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)",
        "CREATE TRIGGER tgr_t_i_1 AFTER INSERT ON t BEGIN UPDATE t SET v = 'x' WHERE k = NEW.k; "
        "END",
    )
    plan = file.watch("t")
    assert any(
        "tgr_t_i_1 of t may fire before eventlog's trigger" in warning for warning in plan.warnings
    )
    with file.session() as (conn, log):
        names = [one.trigger for one in triggers_of(DIALECT).installed(opened_log(conn, log))]
    assert "tgr_t_i_2" in names


def test_a_renamed_column_and_a_changed_trigger_show(file: Platform) -> None:
    file.run("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)")
    file.watch("t")
    with file.session() as (conn, log):
        one = triggers_of(DIALECT).installed(opened_log(conn, log))[0]
    file.run(f'DROP TRIGGER "{one.trigger}"', one.trigger_sql.replace("BEGIN", "BEGIN SELECT 1;"))
    (action,) = file.plan({"table": "t"}).actions
    assert (action.kind, "by hand" in action.reason) == ("replace", True)


# --- names that are no columns (SQLite would take them for texts) ---------------------------------


@pytest.fixture
def renamed(file: Platform) -> Iterator[Context]:
    """A class with a filter. Its columns are renamed after its catalogue was read."""
    file.run(
        "CREATE TABLE t (k TEXT PRIMARY KEY, state TEXT, v TEXT)",
        "INSERT INTO t VALUES ('a', 'draft', 'x')",
    )
    file.watch("t")
    toml = file.place / "eventlog.toml"
    file.config()
    with toml.open("a") as configuration:
        configuration.write("\n[[filter]]\ntable = 't'\nwhere = \"state <> 'draft'\"\n")
    assert run(["--quiet", "--config", str(toml), "filter", "accept"]) == 0
    with open_context(load(toml, {}, {}), Counters()) as context:
        yield context


def test_a_resync_takes_no_name_of_a_column_for_a_key(renamed: Context, file: Platform) -> None:
    file.run("ALTER TABLE t RENAME COLUMN k TO code")
    (cls,) = renamed.catalog.classes
    selection = Selection("t", EventType.INSERT_ROW_QUERY_BACK)
    walk = renamed.log.start_walk(None, cls, selection)
    with pytest.raises(DBAPIError, match="no such column: k"):
        renamed.log.write_batch(walk, None, 10)


def test_a_filter_takes_no_name_of_a_column_for_its_value(renamed: Context, file: Platform) -> None:
    file.run("ALTER TABLE t RENAME COLUMN state TO condition")
    (cls,) = renamed.catalog.classes
    with pytest.raises(DBAPIError, match="no such column: state"):
        read_for_reader(renamed.log.db, None, cls, ["k=a"], cls.attributes)


def test_a_condition_takes_no_unknown_name_for_a_text(renamed: Context, file: Platform) -> None:
    toml = file.place / "eventlog.toml"
    resync = ["--quiet", "--config", str(toml), "resync", "t", "--where", "\"stat\" <> 'draft'"]
    assert run(resync) == ExitCode.USAGE
    (cls,) = renamed.catalog.classes
    assert cls.condition is not None
    quoted = replace(cls, condition=replace(cls.condition, where="\"stat\" <> 'draft'"))
    refused = why_refused(renamed.log.db, None, quoted)
    assert refused == "no such column: stat"


@pytest.mark.parametrize(
    ("sql", "strict"),
    [
        ('"a" = \'"b"\'', "`a` = '\"b\"'"),
        ('"a""`b" <> "c"', '`a"``b` <> `c`'),
        ('\'it\'\'s "a"\' = ["b] -- "c"\n', '\'it\'\'s "a"\' = ["b] -- "c"\n'),
        ('/* "a" */ "b" /* "c"', '/* "a" */ `b` /* "c"'),
    ],
)
def test_only_names_in_double_quotes_are_written_otherwise(sql: str, strict: str) -> None:
    assert with_strict_names(sql) == strict


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def home(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a configuration of a file next to it and a row that waits; commands run in
    another one.
    """
    made, elsewhere = empty_home / "app", empty_home / "elsewhere"
    made.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (made / "eventlog.toml").write_text(
        '[database]\nurl = "sqlite:///app.db"\n[[watch]]\ntable = "usr"\n'
    )
    conn = sqlite3.connect(made / "app.db")
    conn.execute("CREATE TABLE usr (idu INTEGER PRIMARY KEY, fname TEXT)")
    for command in (("db", "upgrade"), ("triggers", "apply")):
        assert run(["--quiet", "--config", str(made / "eventlog.toml"), *command]) == 0
    conn.execute("INSERT INTO usr VALUES (1, 'Jack')")
    conn.commit()
    conn.close()
    return made


def test_a_file_is_found_next_to_its_configuration_wherever_a_command_is_run(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["--config", "../app/eventlog.toml", "publish", "--once"]) == 0
    assert "Jack" in capfd.readouterr().out
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            "[format.xds]\nindent = 2\n",
            'format.xds.indent has no effect with file_layout = "lines"',
        ),
        ('[sink]\nfile_layout = "documents"\n[format.xds]\nindent = 2\n', None),
        ("[format.xds]\nindent = 0\n", None),
    ],
)
def test_an_indent_that_has_no_effect_is_reported(
    home: Path, caplog: pytest.LogCaptureFixture, settings: str, told: str | None
) -> None:
    file = home / "eventlog.toml"
    file.write_text(file.read_text().replace("[[watch]]", f"{settings}[[watch]]"))
    for command in (["publish", "--dry-run"], ["publish", "--once"]):
        caplog.clear()
        assert run(["--config", str(file), *command]) == 0
        warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
        assert len(warnings) == (0 if told is None else 1)
        assert all(told in warning for warning in warnings if told is not None)


# --- collations that the application registers ----------------------------------------------------


def unicase(left: str, right: str) -> int:
    return (left.lower() > right.lower()) - (left.lower() < right.lower())


@pytest.fixture
def collated(tmp_path: Path) -> Iterator[Platform]:
    """An application that registers its own collation, and a key that has it."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/app.db", poolclass=sa.NullPool)
    sa.event.listen(
        engine, "connect", lambda driver, _: driver.create_collation("unicase", unicase)
    )
    with opened(DIALECT, engine, tmp_path) as made:
        made.install()
        made.run(
            "CREATE TABLE tag (name TEXT COLLATE unicase PRIMARY KEY, what TEXT, icon BLOB)",
            "CREATE TABLE alias (name TEXT REFERENCES tag (name), other TEXT, PRIMARY KEY (name, "
            "other))",
            "CREATE TABLE note (id INTEGER PRIMARY KEY, body BLOB)",
        )
        yield made


def test_a_key_of_an_applications_collation_is_read_back_exactly(collated: Platform) -> None:
    collated.run("INSERT INTO tag VALUES ('Ada', 'a', x'00'), ('bob', 'b', x'01')")
    with collated.ours.connect() as conn:
        cls = build_catalog(DIALECT.open(conn).reflect(None), tables=["tag"]).class_named("tag")
        single = [one for one in cls.attributes if not one.multi_valued]
        rows = DIALECT.open(conn).query_back(
            None, cls, ["name=Ada", "name=ada", "name=bob"], single
        )
    assert {key: row["what"] for key, row in rows.items()} == {"name=Ada": ["a"], "name=bob": ["b"]}


def test_a_class_that_cannot_be_read_back_stops_none_but_itself(collated: Platform) -> None:
    collated.watches = [
        {"table": "tag", "row_style": "row_query_back"},
        {"table": "note", "row_style": "row_query_back"},
    ]
    config = collated.config(sink={"type": "files", "directory": str(collated.place / "out")})
    assert (
        run(["--config", str(collated.place / "eventlog.toml"), "--quiet", "triggers", "apply"])
        == 0
    )
    collated.run(
        "INSERT INTO tag VALUES ('Ada', 'a', x'00')",
        "INSERT INTO alias VALUES ('ada', 'countess')",
        "INSERT INTO note VALUES (1, x'02')",
    )
    assert (
        run(["--config", str(collated.place / "eventlog.toml"), "--quiet", "publish", "--once"])
        == 1
    )
    with transaction(config) as db:
        conn = db.connection
        found = conn.exec_driver_sql(
            "SELECT DISTINCT table_name, status FROM eventlog ORDER BY 1"
        ).all()
        (reason,) = conn.exec_driver_sql("SELECT DISTINCT message FROM eventlog_error").scalars()
    assert [tuple(one) for one in found] == [("note", "S"), ("tag", "E")]
    assert "no such collation sequence: unicase" in reason


def test_a_plan_names_which_key_only_the_application_can_compare(collated: Platform) -> None:
    (warning,) = [
        one
        for one in collated.plan({"table": "tag"}, {"table": "note"}).warnings
        if "collation" in one
    ]
    assert warning.startswith(
        "tag.name has the collation unicase, which only the application registers"
    )
    assert "values of alias cannot be read back" in warning


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", ["JSON", "UUID", "json", "ANY"])
def test_types_of_texts_are_no_numbers(declared: str) -> None:
    assert column_type(declared).kind is Kind.CHARACTER


def test_json_and_uuid_are_logged_as_they_stand(file: Platform) -> None:
    file.run("CREATE TABLE t (k UUID PRIMARY KEY, v JSON)")
    file.apply(file.plan({"table": "t"}))
    assert file.logged("""INSERT INTO t VALUES ('7d44-a', '{"a": [1]}')""") == [
        (1, "k=7d44-a", "v", None, '{"a": [1]}')
    ]


def test_a_plan_shows_what_an_unknown_type_is_taken_for(file: Platform) -> None:
    file.run(
        "CREATE TABLE t (k INTEGER PRIMARY KEY, a STRING, b POINT, c VARCHAR(9), d DOUBLE "
        "PRECISION, e)"
    )
    told = [one for one in file.plan({"table": "t"}).warnings if "not a standard type" in one]
    assert told == [
        "t.a is declared STRING, which is not a standard type: eventlog treats its values as an exact "
        "number",
        "t.b is declared POINT, which is not a standard type: eventlog treats its values as an integer",
    ]


@pytest.mark.parametrize("columns", [998, pytest.param(1990, marks=pytest.mark.night)])
def test_a_table_of_as_many_columns_as_sqlite_takes_is_watched(
    file: Platform, columns: int
) -> None:
    names = [f"c{number}" for number in range(columns)]
    file.run(
        f"CREATE TABLE wide (k INTEGER PRIMARY KEY, {', '.join(f'{name} TEXT' for name in names)})"
    )
    file.apply(file.plan({"table": "wide"}))
    changes = (
        f"INSERT INTO wide (k, {names[-1]}) VALUES (1, 'x')",
        f"UPDATE wide SET {names[-2]} = 'y'",
    )
    logged = file.logged(*changes)
    assert (1, "k=1", names[-1], None, "x") in logged
    assert logged[-1] == (2, "k=1", names[-2], None, "y")


def test_a_refused_trigger_is_reported_with_its_table_and_nothing_is_changed(
    file: Platform,
) -> None:
    file.run(
        "CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)",
        "CREATE TABLE u (k INTEGER PRIMARY KEY, v TEXT)",
    )
    plan = file.plan({"table": "t"}, {"table": "u"})
    refused = replace(plan.actions[-1], statements=("CREATE TRIGGER nonsense",))
    with pytest.raises(
        DatabaseError,
        match=r"^the triggers of u: the database refused a statement: incomplete input",
    ):
        file.apply(replace(plan, actions=(*plan.actions[:-1], refused)))
    assert file.logged("INSERT INTO t VALUES (1, 'x')") == []


# --- tables that are made again
# --------------------------------------------------------------------


@pytest.fixture
def owned(file: Platform) -> Platform:
    file.run(
        "CREATE TABLE usr (id INTEGER PRIMARY KEY, login TEXT COLLATE NOCASE UNIQUE, name TEXT)",
        "CREATE TABLE phone (id INTEGER REFERENCES usr (id), no TEXT, PRIMARY KEY (id, no))",
        "CREATE TABLE other (id INTEGER PRIMARY KEY)",
        "INSERT INTO usr VALUES (1, 'ada', 'Ada')", "INSERT INTO phone VALUES (1, '555')",
    )  # fmt: skip
    file.watches = [{"table": "usr"}]
    file.config()
    command(file, "triggers", "apply")
    return file


def command(file: Platform, *words: str) -> int:
    return run(["--config", str(file.place / "eventlog.toml"), "--quiet", *words])


REBUILD = (
    "CREATE TABLE new_usr (id INTEGER PRIMARY KEY, login TEXT, name TEXT NOT NULL)",
    "INSERT INTO new_usr SELECT * FROM usr",
    "DROP TABLE usr",
    "ALTER TABLE new_usr RENAME TO usr",
)


def rebuild(file: Platform, *settings: str) -> None:
    with closing(sqlite3.connect(file.place / "app.db", isolation_level=None)) as conn, conn:
        for statement in (*settings, "BEGIN", *REBUILD, "COMMIT"):
            conn.execute(statement)
    conn.close()


def test_a_rebuild_fails_at_the_rename_while_a_child_tables_triggers_stand(owned: Platform) -> None:
    with pytest.raises(
        sqlite3.OperationalError, match=r"error in trigger .*: no such table: main\.usr"
    ):
        rebuild(owned)


def test_a_rebuild_works_once_the_triggers_are_dropped_and_they_are_applied_again(
    owned: Platform,
) -> None:
    assert command(owned, "triggers", "drop", "--yes") == 0
    rebuild(owned)
    assert command(owned, "triggers", "apply") == 0
    _logs_again(owned)


def test_a_rebuild_works_with_legacy_alter_table(owned: Platform) -> None:
    rebuild(owned, "PRAGMA legacy_alter_table = ON")
    assert command(owned, "triggers", "apply") == 0
    _logs_again(owned)


def _logs_again(file: Platform) -> None:
    changes = "UPDATE usr SET name = 'Countess' WHERE id = 1", "INSERT INTO phone VALUES (1, '556')"
    assert [(kind, column) for kind, _, column, _, _ in file.logged(*changes)] == [
        (2, "name"),
        (2, "phone.no"),
    ]


def test_doctor_finds_the_triggers_of_a_watched_table_whose_plan_is_refused(
    owned: Platform, capsys: pytest.CaptureFixture[str]
) -> None:
    owned.watches = [{"table": "usr", "trigger_level": "statement"}]
    owned.config()
    command(owned, "doctor", "--json")
    codes = [one["code"] for one in json.loads(capsys.readouterr().out)["findings"]]
    assert "triggers_not_compared" in codes
    assert "trigger_missing" not in codes


def test_doctor_names_the_triggers_of_a_table_that_is_gone(
    owned: Platform, capsys: pytest.CaptureFixture[str]
) -> None:
    owned.run("DROP TABLE usr")
    with pytest.raises(sa.exc.OperationalError, match="no such table"):
        owned.run("ALTER TABLE other RENAME TO another")
    assert command(owned, "doctor", "--json") == ExitCode.NO
    (finding,) = [
        one
        for one in json.loads(capsys.readouterr().out)["findings"]
        if one["code"] == "trigger_broken"
    ]
    assert finding["text"].startswith("triggers on phone refer to usr, which does not exist")
    for statement in finding["fix"][1].removeprefix("or ").split("; "):
        owned.run(statement)
    owned.run("ALTER TABLE other RENAME TO another", "DELETE FROM phone")


def test_a_pattern_finds_a_table_whose_name_ends_with_a_blank(tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as conn:
        conn.execute('CREATE TABLE "ends with a blank " (id integer PRIMARY KEY)')
    toml = tmp_path / "eventlog.toml"
    toml.write_text(f'[database]\nurl = "sqlite:///{file}"\n[[watch]]\ntables = ["*"]\n')
    command = ["--quiet", "--config", str(toml)]
    assert run([*command, "db", "upgrade"]) == 0
    assert run([*command, "triggers", "apply"]) == 0
    with closing(sqlite3.connect(file)) as conn:
        conn.execute('INSERT INTO "ends with a blank " VALUES (1)')
        conn.commit()
        found = conn.execute("SELECT DISTINCT table_name FROM eventlog").fetchall()
    assert found == [("ends with a blank ",)]
