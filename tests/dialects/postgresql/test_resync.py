"""``eventlog resync`` on a real PostgreSQL: repair and first load (spec/event-log.md 11, line `resync CLASS`)."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import sqlalchemy as sa
from shared import Objects, Run, apply_event, execute

from eventlog.cli.resync import batch_size, fingerprint, read_lines
from eventlog.core.catalog import ObjectClass, build_catalog
from eventlog.errors import BadTableKey
from eventlog.model import EventType, LogRow
from eventlog.sql import migrations
from eventlog.sql import resync as batches
from eventlog.sql.connection import connect
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable
from eventlog.sql.resync import pause
from eventlog.sql.windows import Batch, Selection
from eventlog.xds import reader

SCHEMA = """
CREATE SCHEMA hr;
CREATE TABLE hr.usr (idu integer PRIMARY KEY, fname text, lname text);
CREATE TABLE hr.usr_phone (idu integer REFERENCES hr.usr ON DELETE CASCADE, phoneno text, UNIQUE (idu, phoneno));
CREATE TABLE hr.desk (branch varchar(40), num integer, label text, PRIMARY KEY (branch, num));
CREATE VIEW hr.view_usr AS
    SELECT u.idu AS pk_idu, u.fname AS sv_fname, p.phoneno AS mv_phone
    FROM hr.usr u LEFT JOIN hr.usr_phone p USING (idu);
"""


def fill(database: sa.Engine) -> None:
    execute(database, SCHEMA)
    migrations.upgrade(database, log_table="eventlog", schema="hr")


@pytest.fixture
def database(filled_database: Any) -> Iterator[sa.Engine]:
    with filled_database(fill) as engine:
        yield engine


@pytest.fixture
def run(database: sa.Engine, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line on a database with the schema above and its log."""
    monkeypatch.setenv("EVENTLOG_DATABASE_URL", database.url.render_as_string(hide_password=False))
    monkeypatch.setenv("EVENTLOG_DATABASE_SCHEMA_NAME", "hr")
    return run


def rows(database: sa.Engine, columns: str = "table_key", log: str = "hr.eventlog") -> list[tuple[object, ...]]:
    with database.connect() as conn:
        return [tuple(row) for row in conn.exec_driver_sql(f"SELECT {columns} FROM {log} ORDER BY record_id")]


def keys(database: sa.Engine) -> list[str]:
    return [str(key) for (key,) in rows(database)]


def positions(database: sa.Engine) -> list[tuple[object, ...]]:
    with database.connect() as conn:
        return [
            tuple(row)
            for row in conn.exec_driver_sql("SELECT class_name, position, rows_written FROM hr.eventlog_resync")
        ]


def others(database: sa.Engine) -> int:
    """How many sessions others have."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'eventlog'"
    with database.connect() as conn:
        return int(conn.exec_driver_sql(asked).scalar_one())


def users(database: sa.Engine, count: int) -> None:
    execute(database, f"INSERT INTO hr.usr SELECT n, 'f' || n, 'l' || n FROM generate_series(1, {count}) AS n")


class Receiver:
    """Applies events to objects by association; what is not there is made, as a directory does."""

    def __init__(self) -> None:
        self.objects: Objects = {}
        self.events = 0

    def take(self, documents: str) -> None:
        for document in reader.read_lines(io.BytesIO(documents.encode())):
            for event in document.events:
                self.events += 1
                apply_event(self.objects, event, event.association.split(",table=")[0])


@pytest.fixture
def publish(run: Run) -> Callable[[], Receiver]:
    """Publish what is queued to a receiver that is kept."""
    receiver = Receiver()

    def publish() -> Receiver:
        code, out, _ = run("--quiet", "publish", "--once")
        assert code == 0
        receiver.take(out)
        return receiver

    return publish


class TestWholeClass:
    def test_it_arrives_at_a_new_receiver_as_it_is(
        self, run: Run, publish: Callable[[], Receiver], database: sa.Engine
    ) -> None:
        users(database, 25)
        execute(database, "INSERT INTO hr.usr_phone VALUES (1, '555-1'), (1, '555-2'), (7, '555-7')")
        code, out, err = run("resync", "usr", "--batch", "10")
        assert (code, err) == (0, "")
        assert out.startswith("25 rows of type 5 written for usr in ")
        receiver = publish()
        assert receiver.events == 25
        assert set(receiver.objects) == {f"idu={n}" for n in range(1, 26)}
        assert receiver.objects["idu=1"] == {"fname": {"f1"}, "lname": {"l1"}, "usr_phone.phoneno": {"555-1", "555-2"}}
        assert positions(database) == []
        assert {status for (status,) in rows(database, "status")} == {"S"}

    def test_its_rows_are_new_in_key_order_and_of_nobody(self, run: Run, database: sa.Engine) -> None:
        users(database, 3)
        assert run("resync", "usr")[0] == 0
        columns = "status, event_type, perpetrator, table_name, table_key, column_name, old_value, new_value"
        assert rows(database, columns) == [("N", 5, None, "usr", f"idu={n}", None, None, None) for n in (1, 2, 3)]
        recent = "(now() AT TIME ZONE 'UTC') - event_time BETWEEN '0' AND interval '1 hour'"
        assert rows(database, recent) == [(True,)] * 3

    def test_as_update_its_rows_are_of_type_6(self, run: Run, database: sa.Engine) -> None:
        users(database, 2)
        assert json.loads(run("resync", "usr", "--as-update", "--json")[1])["event_type"] == 6
        assert rows(database, "event_type") == [(6,), (6,)]

    def test_an_empty_class_writes_nothing(self, run: Run, database: sa.Engine) -> None:
        code, out, err = run("resync", "usr", "--json")
        assert (code, json.loads(out)["rows"], err) == (0, 0, "")
        assert (keys(database), positions(database)) == ([], [])

    @pytest.mark.parametrize("size", [1, 3, 4, 12, 100])
    def test_composite_keys_with_special_characters_are_written_once_each(
        self, run: Run, publish: Callable[[], Receiver], database: sa.Engine, size: int
    ) -> None:
        branches = ["", " x", "a", "a+b=c", 'q"\\', "Köln", "100 %", "O'Brien", "a:b", "\t", "x;y,z<>", "\u00a0"]
        with database.begin() as conn:
            for number, branch in enumerate(branches):
                conn.execute(
                    sa.text("INSERT INTO hr.desk VALUES (:b, :n, 'x'), (:b, -:n - 1, 'y')"), {"b": branch, "n": number}
                )
        assert run("resync", "DESK", "--batch", str(size))[0] == 0
        written = keys(database)
        cls = class_named(database, "desk")
        assert [cls.canonical_key(key) for key in written] == written
        assert len(set(written)) == len(written) == 2 * len(branches)
        assert len(publish().objects) == 2 * len(branches)

    def test_the_tables_of_the_log_are_no_classes(self, run: Run, database: sa.Engine) -> None:
        code, _, err = run("resync", "eventlog_resync")
        assert code == 2
        assert err.endswith("the classes are: desk, usr, view_usr [config]\n")

    @pytest.mark.parametrize(
        ("name", "part"),
        [("nobody", "'nobody' is no class"), ("usr_phone", "'usr_phone' is a child table of usr")],
    )
    def test_what_is_no_class_is_refused(self, run: Run, name: str, part: str) -> None:
        code, out, err = run("resync", name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert part in err


KEY_TYPES = [
    ("smallint", ["-32768", "-1", "0", "7", "32767"]),
    ("bigint", ["-9223372036854775808", "9223372036854775807", "12"]),
    ("numeric(12,3)", ["-1.5", "0", "0.125", "100", "99999999.999"]),
    ("numeric(38)", ["-12345678901234567890123", "5", "60"]),
    ("double precision", ["-1e300", "-0.1", "0", "3", "20", "1e-7"]),
    ("boolean", ["false", "true"]),
    ("char(3)", ["", "a", "ab", "abc", "ABC", "b c"]),
    ("varchar(9)", ["a", "A", "b", "Z", "ä", "z z"]),
    ('text COLLATE "C"', ["a", "A", "b", "Z", "ä", "z z"]),
    ("bytea", ["\\x", "\\x00", "\\xaaaa", "\\xff", "\\x0aff"]),
    ("date", ["0044-03-15 BC", "0001-01-01", "2024-02-29", "9999-12-31", "20000-01-01", "infinity", "-infinity"]),
    ("time", ["00:00", "12:30:15.000001", "23:59:59"]),
    ("timestamp", ["0044-03-15 01:02:03 BC", "2024-05-06 07:08:09.000001", "2024-05-06 07:08:09", "infinity"]),
    ("timestamptz", ["2024-05-06 07:08:09+09", "2024-05-06 07:08:09Z", "-infinity"]),
    ("uuid", ["00000000-0000-0000-0000-000000000001", "F0000000-0000-0000-0000-000000000000"]),
    ("interval", ["1 day", "25:00", "-1 mon", "1 year"]),
    ("inet", ["10.0.0.1", "10.0.0.0/8", "::1"]),
    ("integer[]", ["{1,2}", "{1}", "{}", "{10}"]),
    ("mood", ["sad", "happy"]),
    ("word", ["a", "b", "Z"]),
]  # fmt: skip


@pytest.mark.parametrize(("key_type", "values"), KEY_TYPES, ids=[name for name, _ in KEY_TYPES])
def test_keys_of_every_type_are_walked_without_gap_in_batches_of_one(
    run: Run, database: sa.Engine, key_type: str, values: list[str]
) -> None:
    execute(database, "CREATE TYPE public.mood AS ENUM ('sad', 'happy'); CREATE DOMAIN public.word AS text")
    execute(database, f"CREATE TABLE hr.k (id {key_type} PRIMARY KEY, x integer)")
    with database.begin() as conn:
        for value in values:
            conn.exec_driver_sql("INSERT INTO hr.k VALUES (%(value)s, 1)", {"value": value})
    # What the triggers would write of the same rows.
    Path("eventlog.toml").write_text("[[watch]]\ntable = 'k'\nstyle = 'row_query_back'\n")
    assert run("triggers", "apply")[0] == 0
    execute(database, "UPDATE hr.k SET x = 2")
    by_triggers = keys(database)
    assert run("resync", "k", "--batch", "1")[0] == 0
    assert sorted(keys(database)[len(values) :]) == sorted(by_triggers)
    assert len(set(by_triggers)) == len(values)


def test_objects_that_a_collation_takes_for_one_are_both_written(run: Run, database: sa.Engine) -> None:
    try:
        execute(database, "CREATE COLLATION hr.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    except sa.exc.DBAPIError:
        pytest.skip("the server was built without ICU")
    execute(
        database, "CREATE TABLE hr.w (id text COLLATE hr.ci PRIMARY KEY); INSERT INTO hr.w VALUES ('a'), ('B'), ('c')"
    )
    execute(database, "CREATE VIEW hr.v AS SELECT upper(id) AS pk_id FROM hr.w UNION ALL SELECT id FROM hr.w")
    assert run("resync", "w", "--batch", "1")[0] == 0
    assert sorted(keys(database)) == ["id=B", "id=a", "id=c"]
    assert run("resync", "v", "--batch", "1")[0] == 0
    assert sorted(keys(database)[3:]) == ["pk_id=A", "pk_id=B", "pk_id=C", "pk_id=a", "pk_id=c"]


class TestView:
    def test_its_objects_are_written_once_whatever_their_rows(
        self, run: Run, publish: Callable[[], Receiver], database: sa.Engine
    ) -> None:
        users(database, 5)
        execute(database, "INSERT INTO hr.usr_phone SELECT 3, '555-' || n FROM generate_series(1, 7) AS n")
        assert run("resync", "view_usr", "--batch", "2")[0] == 0
        assert keys(database) == [f"pk_idu={n}" for n in range(1, 6)]
        assert rows(database, "DISTINCT table_name, 1 AS record_id") == [("view_usr", 1)]
        receiver = publish()
        assert receiver.objects["pk_idu=3"]["phone"] == {f"555-{n}" for n in range(1, 8)}

    def test_rows_without_key_are_no_objects(self, run: Run, database: sa.Engine) -> None:
        execute(
            database, "CREATE VIEW hr.v AS SELECT * FROM (VALUES (1, 'a'), (NULL, 'b'), (2, NULL)) AS t (pk_a, pk_b)"
        )
        assert run("resync", "v")[0] == 0
        assert keys(database) == ["pk_a=1+pk_b=a"]


class TestWhere:
    @pytest.mark.parametrize(
        ("where", "found"),
        [
            ("idu > 3", [4, 5]),
            ("fname LIKE 'f%' AND idu % 2 = 0", [2, 4]),
            ("idu = 1 OR idu = 5", [1, 5]),
            ("usr.idu = 2 -- the second", [2]),
            ("fname = 'f1'::text AND lname <> ':x'", [1]),
            ("idu IN (SELECT idu FROM hr.usr_phone)", [3]),
            ("false", []),
        ],
    )
    def test_it_is_sql_about_rows_of_the_class(
        self, run: Run, database: sa.Engine, where: str, found: list[int]
    ) -> None:
        users(database, 5)
        execute(database, "INSERT INTO hr.usr_phone VALUES (3, '555')")
        assert run("resync", "usr", "--where", where, "--batch", "1")[0] == 0
        assert keys(database) == [f"idu={n}" for n in found]

    @pytest.mark.parametrize(
        "where", ["nonsense = 1", "idu = ", "idu", "idu = 1; DROP TABLE hr.usr_phone", "true); DELETE FROM hr.usr; --"]
    )
    def test_what_the_database_does_not_take_is_refused_and_leaves_nothing(
        self, run: Run, database: sa.Engine, where: str
    ) -> None:
        users(database, 1)
        code, out, err = run("resync", "usr", "--where", where)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"eventlog: --where {where}: ")
        assert (keys(database), positions(database)) == ([], [])
        with database.connect() as conn:
            assert sa.inspect(conn).has_table("usr_phone", "hr")
            assert conn.exec_driver_sql("SELECT count(*) FROM hr.usr").scalar() == 1


class TestKey:
    def test_any_spelling_of_a_key_names_the_object(self, run: Run, database: sa.Engine) -> None:
        users(database, 3)
        execute(database, "INSERT INTO hr.desk VALUES ('a+b', 7, 'x')")
        assert run("resync", "usr", "--key", ' IDU = "+002" ', "--key", "idu=2", "--key", "idu=1")[0] == 0
        assert run("resync", "desk", "--key", 'num=07+branch="a+b"', "--as-update")[0] == 0
        assert rows(database, "event_type, table_key") == [(5, "idu=2"), (5, "idu=1"), (6, 'branch="a+b"+num=7')]

    def test_an_object_that_is_not_there_is_named(self, run: Run, database: sa.Engine) -> None:
        users(database, 1)
        code, _, err = run("resync", "usr", "--key", "idu=1", "--key", "idu=2")
        assert code == 1
        assert "idu=2: there is no such object\n" in err
        assert keys(database) == ["idu=1"]

    @pytest.mark.parametrize("key", ["", "idu", "idu=x", "id=1", "idu=1+idu=1"])
    def test_what_is_no_key_is_refused(self, run: Run, database: sa.Engine, key: str) -> None:
        users(database, 1)
        code, _, err = run("resync", "usr", "--key", "idu=1", "--key", key)
        assert (code, err.count("\n"), "at offset" in err) == (2, 1, True)
        assert keys(database) == []

    def test_an_object_of_a_view_can_be_named(self, run: Run, database: sa.Engine) -> None:
        users(database, 2)
        assert run("resync", "view_usr", "--key", "pk_idu=2")[0] == 0
        assert keys(database) == ["pk_idu=2"]


class TestKeysFile:
    def test_bad_lines_are_named_by_number_and_skipped(self, run: Run, database: sa.Engine) -> None:
        users(database, 5)
        Path("keys").write_bytes(
            b"\xef\xbb\xbfidu=1\r\n\n  \nidu=x\n idu = 02 \nidu=9\n\xff\nidu=5\nidu=5\nidu=1+a=2\nidu=4"
        )
        code, out, err = run("resync", "usr", "--keys", "keys", "--json")
        report = json.loads(out)
        assert code == 1
        assert (report["rows"], report["missing"], report["bad_lines"]) == (4, 1, 3)
        assert keys(database) == ["idu=1", "idu=2", "idu=5", "idu=4"]
        assert err.splitlines() == [
            "keys, line 4: bad_value at offset 4 of table_key 'idu=x'",
            "keys, line 7: not UTF-8 at byte 0",
            "keys, line 10: unknown_column at offset 6 of table_key 'idu=1+a=2'",
            "idu=9: there is no such object",
        ]

    def test_many_bad_lines_are_counted(self, run: Run) -> None:
        Path("keys").write_text("nonsense\n" * 50)
        code, _, err = run("resync", "usr", "--keys", "keys", "--batch", "7")
        assert code == 1
        assert err.count("keys, line ") == 20
        assert "... and 30 more" in err

    @pytest.mark.parametrize("size", [1, 2, 3, 100])
    def test_batches_cover_the_file(self, run: Run, database: sa.Engine, size: int) -> None:
        users(database, 6)
        Path("keys").write_text("".join(f"idu={n}\n\n" for n in range(6, 0, -1)))
        assert run("resync", "usr", "--keys", "keys", "--batch", str(size))[0] == 0
        assert keys(database) == [f"idu={n}" for n in range(6, 0, -1)]
        assert positions(database) == []

    def test_a_file_that_is_not_there_is_a_usage_error(self, run: Run) -> None:
        assert run("resync", "usr", "--keys", "nowhere")[0] == 2

    def test_another_content_is_another_resync(self, run: Run, database: sa.Engine) -> None:
        users(database, 3)
        Path("keys").write_text("idu=1\nidu=2\nidu=3\n")
        stopped(database, "usr", keys_file="keys", after=1)
        assert "not finished" in run("resync", "usr", "--keys", "keys")[2]
        Path("keys").write_text("idu=3\n")
        code, _, err = run("resync", "usr", "--keys", "keys", "--resume")
        assert (code, "Repeat its own command" in err) == (2, True)
        Path("keys").write_text("idu=1\nidu=2\nidu=3\n")
        assert run("resync", "usr", "--keys", "keys", "--resume")[0] == 0
        assert keys(database) == ["idu=1", "idu=2", "idu=3"]

    def test_lines_are_read_one_by_one(self, tmp_path: Path) -> None:
        (tmp_path / "keys").write_bytes(b"a\n\nb")

        def read(text: str | None) -> str:
            if text == "b":
                raise BadTableKey("missing_equals", 1, "b")
            return str(text).upper()

        assert list(read_lines(tmp_path / "keys", read)) == [
            (1, "A", None),
            (2, None, None),
            (3, None, "missing_equals at offset 1 of table_key 'b'"),
        ]


LOG = LogTable("hr", "eventlog", LogRow._fields)


def class_named(database: sa.Engine, name: str) -> ObjectClass:
    with database.connect() as conn:
        return build_catalog(DIALECT.reflect(conn, "hr"), tables=[name]).class_named(name)


def stopped(database: sa.Engine, name: str, *, after: int, keys_file: str | None = None, size: int = 1) -> None:
    """A resync that stops after some batches, as one that is killed between them does."""
    cls = class_named(database, name)
    digest = None if keys_file is None else fingerprint(Path(keys_file))
    selection = Selection(cls.name, EventType.INSERT_ROW_QUERY_BACK, keys=digest)
    engine = connect(database.url)
    with engine.connect() as conn:
        batches.begin(conn, LOG, selection, resume=False, restart=False)
        walk = DIALECT.start_walk(conn, LOG, "hr", cls, selection)
        conn.commit()
        if keys_file is None:
            steps = batches.run(
                conn, LOG, selection, lambda conn, position: DIALECT.write_batch(conn, walk, position, size)
            )
        else:
            lines = Path(keys_file).read_text().splitlines()

            def write(conn: sa.Connection, position: str | None) -> Batch:
                done = int(position or 0)
                DIALECT.write_keys(conn, LOG, selection, lines[done : done + size])
                return Batch(size, 0, str(done + size), is_last=False)

            steps = batches.run(conn, LOG, selection, write)
        for _ in range(after):
            next(steps)
        steps.close()
    engine.dispose()


class TestResume:
    # At most 2000 rows a second, so that there are seconds between what is waited for and the end.
    @pytest.mark.parametrize(("size", "rate", "wait_for"), [("1", "4", 2), ("1", "2000", 40), ("7", "2000", 70)])
    def test_after_kill_9_every_object_is_written_exactly_once(
        self, run: Run, database: sa.Engine, size: str, rate: str, wait_for: int
    ) -> None:
        users(database, 3000)
        command = ["resync", "usr", "--batch", size, "--rate", rate]
        program = [sys.executable, "-c", "from eventlog.cli import main; main()", *command]
        with subprocess.Popen(program, stderr=subprocess.PIPE) as process:
            try:
                while len(keys(database)) < wait_for:
                    assert process.poll() is None, process.stderr.read() if process.stderr else ""
            finally:
                process.kill()
        while others(database):  # the server may still be at the last thing that it was told
            sleep(0.01)
        written = len(keys(database))
        assert wait_for <= written < 3000
        ((_, position, count),) = positions(database)
        assert (position, count) == (f"idu={written}", written)
        code, out, _ = run("resync", "usr", "--resume", "--json")
        report = json.loads(out)
        assert (code, report["rows"], report["resumed_at"]) == (0, 3000 - written, f"idu={written}")
        assert keys(database) == [f"idu={n}" for n in range(1, 3001)]
        assert positions(database) == []

    def test_a_batch_that_fails_leaves_neither_rows_nor_position(self, run: Run, database: sa.Engine) -> None:
        users(database, 6)
        execute(database, "ALTER TABLE hr.eventlog ADD CHECK (table_key <> 'idu=4')")
        code, _, err = run("resync", "usr", "--batch", "2")
        assert code == 1
        assert "stopped after 2 rows; the same command with --resume goes on from there\n" in err
        assert keys(database) == ["idu=1", "idu=2"]
        assert positions(database) == [("usr", "idu=2", 2)]
        execute(database, "ALTER TABLE hr.eventlog DROP CONSTRAINT eventlog_table_key_check")
        assert run("resync", "usr", "--batch", "2", "--resume")[0] == 0
        assert keys(database) == [f"idu={n}" for n in range(1, 7)]

    def test_an_unfinished_one_is_neither_forgotten_nor_begun_again_unasked(
        self, run: Run, database: sa.Engine
    ) -> None:
        users(database, 5)
        stopped(database, "usr", after=2)
        code, _, err = run("resync", "usr")
        assert (code, err.count("\n")) == (2, 1)
        assert "2 rows are written, up to idu=2; --resume goes on from there, --restart begins again" in err
        assert run("resync", "usr", "--as-update", "--where", "idu = 5")[0] == 0
        assert run("resync", "usr", "--restart")[0] == 0
        assert keys(database) == ["idu=1", "idu=2", "idu=5", *(f"idu={n}" for n in range(1, 6))]
        assert positions(database) == []

    def test_without_one_there_is_nothing_to_resume(self, run: Run, database: sa.Engine) -> None:
        code, _, err = run("resync", "usr", "--resume")
        assert (code, "there is no unfinished resync of usr: leave --resume out" in err) == (2, True)
        users(database, 5)
        stopped(database, "usr", after=1)
        code, _, err = run("resync", "usr", "--where", "idu > 1", "--resume")
        assert (code, err.count("\n")) == (2, 1)
        assert "there is: whole class, as type 5 (1 rows, up to idu=1)" in err

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--resume", "--restart"),
            ("--key", "idu=1", "--resume"),
            ("--key", "idu=1", "--where", "true"),
            ("--where", "true", "--keys", "keys"),
            ("--deleted", "--where", "true"),
            ("--deleted", "--as-update"),
            ("--rate", "0"),
            ("--batch", "0"),
        ],
    )
    def test_what_contradicts_itself_is_refused(self, run: Run, arguments: tuple[str, ...]) -> None:
        code, out, err = run("resync", "usr", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)

    def test_two_processes_on_one_share_the_work(self, run: Run, database: sa.Engine) -> None:
        users(database, 7)
        cls = class_named(database, "usr")
        selection = Selection("usr", EventType.INSERT_ROW_QUERY_BACK)
        first, second = connect(database.url), connect(database.url)
        with first.connect() as one, second.connect() as two:
            batches.begin(one, LOG, selection, resume=False, restart=False)
            walk = DIALECT.start_walk(one, LOG, "hr", cls, selection)
            one.commit()
            runs = [
                batches.run(conn, LOG, selection, lambda conn, position: DIALECT.write_batch(conn, walk, position, 2))
                for conn in (one, two)
            ]
            done = [next(runs[turn]).rows for turn in (0, 1, 1, 0)]
            assert list(runs[1]) == []
        first.dispose()
        second.dispose()
        assert done == [2, 2, 2, 1]
        assert keys(database) == [f"idu={n}" for n in range(1, 8)]


class TestDeleted:
    """What no trigger saw go: the log knows it, the table has it no more (spec/event-log.md 11)."""

    @pytest.fixture
    def lost(self, run: Run, database: sa.Engine) -> None:
        """Six users that the log knows; 1 is deleted, and 2, 4 and 5 are gone without a word."""
        Path("eventlog.toml").write_text("[publisher]\nallow_loopback = true\n[[watch]]\ntable = 'usr'\n")
        assert run("triggers", "apply")[0] == 0
        users(database, 6)
        execute(database, "DELETE FROM hr.usr WHERE idu = 1")
        unseen(database, "DELETE FROM hr.usr WHERE idu IN (2, 4, 5)")

    @pytest.mark.usefixtures("lost")
    def test_what_is_gone_is_deleted_at_the_receiver_and_nothing_else(
        self, run: Run, publish: Callable[[], Receiver], database: sa.Engine
    ) -> None:
        assert set(publish().objects) == {f"idu={n}" for n in range(2, 7)}
        before = len(keys(database))
        code, out, err = run("resync", "usr", "--deleted", "--batch", "2")
        assert (code, out.startswith("3 rows of type 4 written for usr in ")) == (0, True)
        assert "5 keys were looked for, which the log knows by rows since 20" in err
        written = rows(database, "event_type, table_name, table_key, column_name, perpetrator")[before:]
        assert written == [(4, "usr", f"idu={n}", None, None) for n in (2, 4, 5)]
        assert set(publish().objects) == {"idu=3", "idu=6"}
        # What was logged as deleted by now is known to be gone.
        code, out, _ = run("resync", "usr", "--deleted", "--json")
        assert (code, json.loads(out)["rows"], json.loads(out)["compared"]) == (0, 0, 2)

    @pytest.mark.usefixtures("lost")
    def test_a_dry_run_counts_them(self, run: Run, database: sa.Engine) -> None:
        before = keys(database)
        code, out, _ = run("resync", "usr", "--deleted", "--dry-run", "--batch", "2")
        assert (code, out.startswith("3 rows of type 4 would be written for usr")) == (0, True)
        assert (keys(database), positions(database)) == (before, [])

    @pytest.mark.usefixtures("lost")
    def test_what_was_stopped_goes_on_and_leaves_nothing_out(self, run: Run, database: sa.Engine) -> None:
        before = len(keys(database))
        execute(database, "ALTER TABLE hr.eventlog ADD CHECK (event_type <> 4 OR table_key <> 'idu=4') NOT VALID")
        assert run("resync", "usr", "--deleted", "--batch", "1")[0] == 1
        assert keys(database)[before:] == ["idu=2"]
        ((_, position, written),) = positions(database)
        execute(database, "ALTER TABLE hr.eventlog DROP CONSTRAINT eventlog_check")
        code, _, err = run("resync", "usr", "--deleted")
        assert code == 2
        assert "a resync of usr (objects that are gone, as type 4) is not finished: 1 rows are written" in err
        code, out, _ = run("resync", "usr", "--deleted", "--resume", "--json")
        assert (code, written, json.loads(out)["rows"], json.loads(out)["resumed_at"]) == (0, 1, 2, position)
        assert keys(database)[before:] == ["idu=2", "idu=4", "idu=5"]

    def test_without_history_it_says_that_nothing_can_be_known(self, run: Run, database: sa.Engine) -> None:
        users(database, 2)
        code, out, err = run("resync", "usr", "--deleted")
        assert (code, out.startswith("0 rows of type 4 written")) == (1, True)
        assert "the log has no rows of usr, so it cannot be told from it which objects a receiver has" in err
        code, out, _ = run("resync", "usr", "--deleted", "--json")
        assert (code, json.loads(out)["known_since"]) == (1, None)

    def test_keys_of_any_spelling_and_of_no_class_in_a_log_that_others_fill(
        self, run: Run, database: sa.Engine
    ) -> None:
        users(database, 2)
        logged = [("usr", "idu=1"), ("USR", "idu=02"), ("usr", 'idu="3"'), ("hr.usr", "idu=4"), ("usr", "nonsense")]
        logged += [("usr_phone", "idu=5"), ("desk", "branch=x+num=1"), ("nobody", "idu=6")]
        for name, key in logged:
            row = f"6, '{name}', '{key}'"
            execute(database, f"INSERT INTO hr.eventlog (event_type, table_name, table_key) VALUES ({row})")
        code, _, err = run("resync", "usr", "--deleted")
        assert (code, "the log, row 5: " in err) == (1, True)
        assert keys(database)[len(logged) :] == ["idu=3", "idu=4", "idu=5"]

    @pytest.mark.usefixtures("lost")
    def test_an_object_that_comes_back_meanwhile_is_not_deleted(
        self, run: Run, publish: Callable[[], Receiver], database: sa.Engine
    ) -> None:
        before = len(keys(database))
        with database.connect() as application, ThreadPoolExecutor(1) as pool:
            # Logged by now, and seen by nobody yet.
            application.exec_driver_sql("INSERT INTO hr.usr VALUES (4, 'back')")
            resync = pool.submit(run, "resync", "usr", "--deleted")
            sleep(0.5)
            assert not resync.done()
            application.commit()
            code, out, _ = resync.result()
        assert (code, out.startswith("2 rows of type 4")) == (0, True)
        assert keys(database)[before:] == ["idu=4", "idu=2", "idu=5"]
        assert set(publish().objects) == {"idu=3", "idu=4", "idu=6"}

    @pytest.mark.usefixtures("lost")
    def test_a_writer_that_does_not_end_stops_it_with_its_position(
        self, run: Run, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batches, "PATIENCE", 0.1)
        before = keys(database)
        with database.connect() as application:
            application.exec_driver_sql("INSERT INTO hr.usr VALUES (4, 'back')")
            code, _, err = run("resync", "usr", "--deleted")
        assert code == 1
        assert "is open for more than 0.1 s, and what it inserts may not be taken for deleted" in err
        assert keys(database) == before
        assert run("resync", "usr", "--deleted", "--resume")[0] == 0
        assert keys(database)[len(before) :] == ["idu=2", "idu=4", "idu=5"]

    @pytest.mark.usefixtures("lost")
    def test_where_commits_of_others_are_not_seen_what_is_there_is_sent_again(
        self, run: Run, publish: Callable[[], Receiver], database: sa.Engine
    ) -> None:
        name = database.url.database
        execute(database, f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
        before = len(keys(database))
        assert run("resync", "usr", "--deleted")[0] == 0
        assert rows(database, "event_type, table_key")[before:] == [
            *((4, f"idu={n}") for n in (2, 4, 5)),
            *((5, f"idu={n}") for n in (2, 4, 5)),
        ]
        execute(database, "INSERT INTO hr.usr VALUES (4, 'back')")
        assert set(publish().objects) == {"idu=3", "idu=4", "idu=6"}


def unseen(database: sa.Engine, statement: str) -> None:
    """A change that no trigger sees."""
    execute(database, f"SET session_replication_role = replica; {statement}; SET session_replication_role = origin")


class TestConcurrentChanges:
    def test_deletes_inserts_and_new_keys_while_it_runs_leave_the_receiver_with_what_is_there(
        self, run: Run, publish: Callable[[], Receiver], database: sa.Engine
    ) -> None:
        users(database, 40)
        Path("eventlog.toml").write_text("[publisher]\nallow_loopback = true\n[[watch]]\ntable = 'usr'\n")
        assert run("triggers", "apply")[0] == 0
        cls = class_named(database, "usr")
        selection = Selection("usr", EventType.INSERT_ROW_QUERY_BACK)
        engine = connect(database.url)
        with engine.connect() as conn, database.connect() as pending:
            batches.begin(conn, LOG, selection, resume=False, restart=False)
            walk = DIALECT.start_walk(conn, LOG, "hr", cls, selection)
            conn.commit()
            for number, _ in enumerate(
                batches.run(conn, LOG, selection, lambda conn, position: DIALECT.write_batch(conn, walk, position, 10))
            ):
                if number == 0:
                    # Behind the position and before it; one that is published in between, and one that comes back.
                    execute(database, "DELETE FROM hr.usr WHERE idu IN (3, 4, 25)")
                    execute(database, "INSERT INTO hr.usr VALUES (4, 'again', NULL), (0, 'new', 'before')")
                    publish()
                if number == 1:
                    execute(database, "UPDATE hr.usr SET idu = idu + 100 WHERE idu IN (7, 38)")
                    execute(database, "UPDATE hr.usr SET idu = -39 WHERE idu = 39")
                    # Not committed while its object is written and published.
                    pending.exec_driver_sql("DELETE FROM hr.usr WHERE idu = 31")
                    pending.exec_driver_sql("UPDATE hr.usr SET fname = 'late' WHERE idu = 32")
                if number == 3:
                    publish()
                    pending.commit()
        engine.dispose()
        receiver = publish()
        with database.connect() as conn:
            there = {
                f"idu={row.idu}": {
                    name: {value} for name, value in (("fname", row.fname), ("lname", row.lname)) if value is not None
                }
                for row in conn.exec_driver_sql("SELECT * FROM hr.usr")
            }
        held = {
            key: {name: value for name, value in values.items() if value} for key, values in receiver.objects.items()
        }
        assert held == there
        assert rows(database, "DISTINCT status, 1 AS record_id") == [("S", 1)]


class TestLogs:
    def test_a_log_of_somebody_else_with_names_of_its_own_is_written_too(
        self, run: Run, publish: Callable[[], Receiver], database: sa.Engine
    ) -> None:
        execute(
            database,
            """CREATE SEQUENCE hr.theirs_ids;
            CREATE TABLE hr.theirs (
                rid numeric(20) DEFAULT nextval('hr.theirs_ids'), tkey varchar(200), st char(1), typ numeric(2),
                tim timestamptz, who varchar(30), tab varchar(60), col varchar(60), o text, n text);
            INSERT INTO hr.desk VALUES ('a+b', 1, 'x'), ('c', 2, 'y')""",
        )
        Path("eventlog.toml").write_text("[database]\nlog_table = 'theirs'\n[publisher]\nlayout = '3.5'\n")
        assert run("db", "upgrade", "--companions-only")[0] == 0
        assert run("resync", "desk", "--batch", "1")[0] == 0
        with database.connect() as conn:
            found = conn.exec_driver_sql(
                "SELECT rid, tkey, st, typ, who, tab, now() - tim BETWEEN '0' AND interval '1 hour'"
                " FROM hr.theirs ORDER BY rid"
            )
            assert [tuple(row) for row in found] == [
                (1, 'branch="a+b"+num=1', "N", 5, None, "desk", True),
                (2, "branch=c+num=2", "N", 5, None, "desk", True),
            ]
        assert set(publish().objects) == {'branch="a+b"+num=1', "branch=c+num=2"}

    def test_a_log_that_is_older_than_the_table_of_positions_says_how_to_get_it(
        self, run: Run, database: sa.Engine
    ) -> None:
        users(database, 1)
        execute(database, "DROP TABLE hr.eventlog_resync")
        code, _, err = run("resync", "usr")
        assert (code, err.count("\n"), "`eventlog db upgrade`" in err) == (1, 1, True)
        assert run("resync", "usr", "--key", "idu=1")[0] == 0

    def test_rights_that_are_missing_are_named(
        self, run: Run, database: sa.Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user = f"clerk_{os.getpid()}"
        execute(
            database,
            f"""CREATE ROLE {user} LOGIN; GRANT USAGE ON SCHEMA hr TO {user};
            GRANT SELECT, UPDATE ON hr.eventlog TO {user}; GRANT SELECT ON hr.usr TO {user};
            GRANT SELECT, INSERT, UPDATE, DELETE ON hr.eventlog_inflight, hr.eventlog_error TO {user};
            GRANT USAGE ON SEQUENCE hr.eventlog_flight TO {user}""",
        )
        try:
            with database.connect() as conn:
                conn.exec_driver_sql(f"SET ROLE {user}")
                log = LogTable("hr", "eventlog", LogRow._fields)
                assert DIALECT.missing_resync_rights(conn, log, resumable=False) == ["INSERT on table eventlog"]
                assert DIALECT.missing_resync_rights(conn, log, resumable=True) == [
                    "INSERT on table eventlog",
                    *(f"{right} on table eventlog_resync" for right in ("SELECT", "INSERT", "UPDATE", "DELETE")),
                ]
        finally:
            execute(database, f"DROP OWNED BY {user}; DROP ROLE {user}")

    def test_positions_can_be_replicated_and_are_described(self, run: Run, database: sa.Engine) -> None:
        with database.connect() as conn:
            identity = conn.exec_driver_sql(
                "SELECT relreplident FROM pg_class WHERE oid = 'hr.eventlog_resync'::regclass"
            )
            assert identity.scalar() in ("i", b"i")
            inspector = sa.inspect(conn)
            assert inspector.get_table_comment("eventlog_resync", "hr")["text"]
            columns = inspector.get_columns("eventlog_resync", "hr")
            assert tuple(column["name"] for column in columns) == batches.COLUMNS
            assert all(column["comment"] for column in columns)


def test_a_batch_reads_no_more_than_its_keys(run: Run, database: sa.Engine) -> None:
    execute(
        database, "INSERT INTO hr.desk SELECT 'b' || n % 9, n, 'x' FROM generate_series(1, 20000) AS n; ANALYZE hr.desk"
    )
    cls = class_named(database, "desk")
    selection = Selection("desk", EventType.INSERT_ROW_QUERY_BACK, where="num > 0")
    with database.connect() as conn:
        walk = DIALECT.start_walk(conn, LOG, "hr", cls, selection)
        statement = "EXPLAIN (FORMAT JSON) " + DIALECT.batch_statement(walk, goes_on=True)
        parameters = {"limit": 100, "event_type": 5, "class_name": "desk", "k0": "b3", "k1": "7"}
        plan = json.dumps(conn.exec_driver_sql(statement, parameters).scalar())
        assert '"Index Name": "desk_pkey"' in plan
        assert "Seq Scan" not in plan


@pytest.mark.parametrize(
    ("rows", "rate", "elapsed", "seconds"),
    [(100, None, 0.0, 0.0), (100, 50.0, 0.5, 1.5), (100, 50.0, 2.0, 0.0), (100, 50.0, 9.0, 0.0), (1, 0.5, 0.0, 2.0)],
)
def test_the_rate_is_kept_over_the_whole_run(rows: int, rate: float | None, elapsed: float, seconds: float) -> None:
    assert pause(rows, rate, elapsed) == seconds


@pytest.mark.parametrize(
    ("size", "rate", "rows"), [(1000, None, 1000), (1000, 50.5, 50), (10, 50.0, 10), (1000, 0.5, 1)]
)
def test_a_slow_rate_makes_small_batches(size: int, rate: float | None, rows: int) -> None:
    assert batch_size(size, rate) == rows
