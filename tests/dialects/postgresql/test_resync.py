"""``eventlog resync`` on a real PostgreSQL: repair and first load (spec/event-log.md 11, line
`resync CLASS`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from resyncs import LOG, Receiver, class_named, keys, positions, rows, stopped, users
from shared import Run, execute, opened_log

from eventlog.cli.repair.runs.resync import batch_size, read_lines
from eventlog.errors import BadTableKey
from eventlog.model import LOG_COLUMNS, EventType
from eventlog.sql import resync as batches
from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.log_table import LogTable
from eventlog.sql.port.log_operations import Selection
from eventlog.sql.port.rights import Addition, Purpose
from eventlog.sql.resync import pause


class TestWholeClass:
    def test_it_arrives_at_a_new_receiver_as_it_is(
        self, run: Run, publish: Callable[[], Receiver], hr: sa.Engine
    ) -> None:
        users(hr, 25)
        execute(hr, "INSERT INTO hr.usr_phone VALUES (1, '555-1'), (1, '555-2'), (7, '555-7')")
        code, out, err = run("resync", "usr", "--batch", "10")
        assert (code, err) == (0, "")
        assert out.startswith("25 rows of type 5 written for usr in ")
        receiver = publish()
        assert receiver.events == 25
        assert set(receiver.objects) == {f"idu={n}" for n in range(1, 26)}
        assert receiver.objects["idu=1"] == {
            "fname": {"f1"},
            "lname": {"l1"},
            "usr_phone.phoneno": {"555-1", "555-2"},
        }
        assert positions(hr) == []
        assert {status for (status,) in rows(hr, "status")} == {"S"}

    def test_its_rows_are_new_in_key_order_and_of_nobody(self, run: Run, hr: sa.Engine) -> None:
        users(hr, 3)
        assert run("resync", "usr")[0] == 0
        columns = (
            "status, event_type, perpetrator, table_name, table_key, column_name, old_value, "
            "new_value"
        )
        assert rows(hr, columns) == [
            ("N", 5, None, "usr", f"idu={n}", None, None, None) for n in (1, 2, 3)
        ]
        recent = "(now() AT TIME ZONE 'UTC') - event_time BETWEEN '0' AND interval '1 hour'"
        assert rows(hr, recent) == [(True,)] * 3

    def test_as_update_its_rows_are_of_type_6(self, run: Run, hr: sa.Engine) -> None:
        users(hr, 2)
        assert json.loads(run("resync", "usr", "--as-update", "--json")[1])["event_type"] == 6
        assert rows(hr, "event_type") == [(6,), (6,)]

    def test_an_empty_class_writes_nothing(self, run: Run, hr: sa.Engine) -> None:
        code, out, err = run("resync", "usr", "--json")
        assert (code, json.loads(out)["rows"], err) == (0, 0, "")
        assert (keys(hr), positions(hr)) == ([], [])

    @pytest.mark.parametrize("size", [1, 3, 4, 12, 100])
    def test_composite_keys_with_special_characters_are_written_once_each(
        self, run: Run, publish: Callable[[], Receiver], hr: sa.Engine, size: int
    ) -> None:
        branches = [
            "",
            " x",
            "a",
            "a+b=c",
            'q"\\',
            "Köln",
            "100 %",
            "O'Brien",
            "a:b",
            "\t",
            "x;y,z<>",
            "\u00a0",
        ]
        with hr.begin() as conn:
            for number, branch in enumerate(branches):
                conn.execute(
                    sa.text("INSERT INTO hr.desk VALUES (:b, :n, 'x'), (:b, -:n - 1, 'y')"),
                    {"b": branch, "n": number},
                )
        assert run("resync", "DESK", "--batch", str(size))[0] == 0
        written = keys(hr)
        cls = class_named(hr, "desk")
        assert [cls.canonical_key(key) for key in written] == written
        assert len(set(written)) == len(written) == 2 * len(branches)
        assert len(publish().objects) == 2 * len(branches)

    def test_the_tables_of_the_log_are_no_classes(self, run: Run, hr: sa.Engine) -> None:
        code, _, err = run("resync", "eventlog_resync")
        assert code == 2
        assert err.endswith("the classes are: desk, usr, view_usr [config]\n")

    @pytest.mark.parametrize(
        ("name", "part"),
        [
            ("nobody", "'nobody' is not a class"),
            ("usr_phone", "'usr_phone' is a child table of usr"),
        ],
    )
    @pytest.mark.usefixtures("hr")
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
    (
        "date",
        [
            "0044-03-15 BC",
            "0001-01-01",
            "2024-02-29",
            "9999-12-31",
            "20000-01-01",
            "infinity",
            "-infinity",
        ],
    ),
    ("time", ["00:00", "12:30:15.000001", "23:59:59"]),
    (
        "timestamp",
        ["0044-03-15 01:02:03 BC", "2024-05-06 07:08:09.000001", "2024-05-06 07:08:09", "infinity"],
    ),
    ("timestamptz", ["2024-05-06 07:08:09+09", "2024-05-06 07:08:09Z", "-infinity"]),
    ("uuid", ["00000000-0000-0000-0000-000000000001", "F0000000-0000-0000-0000-000000000000"]),
    ("interval", ["1 day", "25:00", "-1 mon", "1 year"]),
    ("inet", ["10.0.0.1", "10.0.0.0/8", "::1"]),
    ("integer[]", ["{1,2}", "{1}", "{}", "{10}"]),
    ("mood", ["sad", "happy"]),
    ("word", ["a", "b", "Z"]),
]


def test_keys_of_every_type_are_walked_without_gap_in_batches_of_one(
    run: Run, hr: sa.Engine
) -> None:
    """A table of keys of each type."""
    execute(
        hr, "CREATE TYPE public.mood AS ENUM ('sad', 'happy'); CREATE DOMAIN public.word AS text"
    )
    by_table = {f"k{number}": values for number, (_, values) in enumerate(KEY_TYPES)}
    with hr.begin() as conn:
        for table, (key_type, values) in zip(by_table, KEY_TYPES, strict=True):
            conn.exec_driver_sql(f"CREATE TABLE hr.{table} (id {key_type} PRIMARY KEY, x integer)")
            for value in values:
                conn.exec_driver_sql(
                    f"INSERT INTO hr.{table} VALUES (%(value)s, 1)", {"value": value}
                )
    # What the triggers would write of the same rows.
    watches = "".join(
        f"[[watch]]\ntable = '{table}'\nrow_style = 'row_query_back'\n" for table in by_table
    )
    Path("eventlog.toml").write_text(watches)
    assert run("triggers", "apply")[0] == 0
    for table, values in by_table.items():
        before = len(keys(hr))
        execute(hr, f"UPDATE hr.{table} SET x = 2")
        by_triggers = keys(hr)[before:]
        assert run("resync", table, "--batch", "1")[0] == 0
        assert sorted(keys(hr)[before + len(values) :]) == sorted(by_triggers), table
        assert len(set(by_triggers)) == len(values), table


def test_objects_that_a_collation_takes_for_one_are_both_written(run: Run, hr: sa.Engine) -> None:
    try:
        execute(
            hr,
            "CREATE COLLATION hr.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = "
            "false)",
        )
    except sa.exc.DBAPIError:
        pytest.skip("the server was built without ICU")
    execute(
        hr,
        "CREATE TABLE hr.w (id text COLLATE hr.ci PRIMARY KEY); INSERT INTO hr.w VALUES ('a'), "
        "('B'), ('c')",
    )
    execute(
        hr, "CREATE VIEW hr.v AS SELECT upper(id) AS pk_id FROM hr.w UNION ALL SELECT id FROM hr.w"
    )
    assert run("resync", "w", "--batch", "1")[0] == 0
    assert sorted(keys(hr)) == ["id=B", "id=a", "id=c"]
    assert run("resync", "v", "--batch", "1")[0] == 0
    assert sorted(keys(hr)[3:]) == ["pk_id=A", "pk_id=B", "pk_id=C", "pk_id=a", "pk_id=c"]


class TestView:
    def test_its_objects_are_written_once_whatever_their_rows(
        self, run: Run, publish: Callable[[], Receiver], hr: sa.Engine
    ) -> None:
        users(hr, 5)
        execute(
            hr, "INSERT INTO hr.usr_phone SELECT 3, '555-' || n FROM generate_series(1, 7) AS n"
        )
        assert run("resync", "view_usr", "--batch", "2")[0] == 0
        assert keys(hr) == [f"pk_idu={n}" for n in range(1, 6)]
        assert rows(hr, "DISTINCT table_name, 1 AS record_id") == [("view_usr", 1)]
        receiver = publish()
        assert receiver.objects["pk_idu=3"]["phone"] == {f"555-{n}" for n in range(1, 8)}

    def test_rows_without_key_are_no_objects(self, run: Run, hr: sa.Engine) -> None:
        execute(
            hr,
            "CREATE VIEW hr.v AS SELECT * FROM (VALUES (1, 'a'), (NULL, 'b'), (2, NULL)) AS t "
            "(pk_a, pk_b)",
        )
        assert run("resync", "v")[0] == 0
        assert keys(hr) == ["pk_a=1+pk_b=a"]


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
        self, run: Run, hr: sa.Engine, where: str, found: list[int]
    ) -> None:
        users(hr, 5)
        execute(hr, "INSERT INTO hr.usr_phone VALUES (3, '555')")
        assert run("resync", "usr", "--where", where, "--batch", "1")[0] == 0
        assert keys(hr) == [f"idu={n}" for n in found]

    @pytest.mark.parametrize(
        "where",
        [
            "nonsense = 1",
            "idu = ",
            "idu",
            "idu = 1; DROP TABLE hr.usr_phone",
            "true); DELETE FROM hr.usr; --",
        ],
    )
    def test_what_the_database_does_not_take_is_refused_and_leaves_nothing(
        self, run: Run, hr: sa.Engine, where: str
    ) -> None:
        users(hr, 1)
        code, out, err = run("resync", "usr", "--where", where)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"eventlog: --where {where}")
        assert (keys(hr), positions(hr)) == ([], [])
        with hr.connect() as conn:
            assert sa.inspect(conn).has_table("usr_phone", "hr")
            assert conn.exec_driver_sql("SELECT count(*) FROM hr.usr").scalar() == 1


class TestKey:
    def test_any_spelling_of_a_key_names_the_object(self, run: Run, hr: sa.Engine) -> None:
        users(hr, 3)
        execute(hr, "INSERT INTO hr.desk VALUES ('a+b', 7, 'x')")
        assert (
            run("resync", "usr", "--key", ' IDU = "+002" ', "--key", "idu=2", "--key", "idu=1")[0]
            == 0
        )
        assert run("resync", "desk", "--key", 'num=07+branch="a+b"', "--as-update")[0] == 0
        assert rows(hr, "event_type, table_key") == [
            (5, "idu=2"),
            (5, "idu=1"),
            (6, 'branch="a+b"+num=7'),
        ]

    def test_an_object_that_is_not_there_is_named(self, run: Run, hr: sa.Engine) -> None:
        users(hr, 1)
        code, _, err = run("resync", "usr", "--key", "idu=1", "--key", "idu=2")
        assert code == 1
        assert "idu=2: there is no such object\n" in err
        assert keys(hr) == ["idu=1"]

    @pytest.mark.parametrize("key", ["", "idu", "idu=x", "id=1", "idu=1+idu=1"])
    def test_what_is_no_key_is_refused(self, run: Run, hr: sa.Engine, key: str) -> None:
        users(hr, 1)
        code, _, err = run("resync", "usr", "--key", "idu=1", "--key", key)
        assert (code, err.count("\n"), "at offset" in err) == (2, 1, True)
        assert keys(hr) == []

    def test_an_object_of_a_view_can_be_named(self, run: Run, hr: sa.Engine) -> None:
        users(hr, 2)
        assert run("resync", "view_usr", "--key", "pk_idu=2")[0] == 0
        assert keys(hr) == ["pk_idu=2"]


class TestKeysFile:
    def test_bad_lines_are_named_by_number_and_skipped(self, run: Run, hr: sa.Engine) -> None:
        users(hr, 5)
        Path("keys").write_bytes(
            b"\xef\xbb\xbfidu=1\r\n\n  \nidu=x\n idu = 02 "
            b"\nidu=9\n\xff\nidu=5\nidu=5\nidu=1+a=2\nidu=4"
        )
        code, out, err = run("resync", "usr", "--keys", "keys", "--json")
        report = json.loads(out)
        assert code == 1
        assert (report["rows"], report["missing"], report["invalid_lines"]) == (4, 1, 3)
        assert keys(hr) == ["idu=1", "idu=2", "idu=5", "idu=4"]
        assert err.splitlines() == [
            "keys, line 4: bad_value at offset 4 of table_key 'idu=x': idu: 'x' is not an integer",
            "keys, line 7: not UTF-8 at byte 0",
            "keys, line 10: unknown_column at offset 6 of table_key 'idu=1+a=2': the key is idu",
            "idu=9: there is no such object",
        ]

    @pytest.mark.usefixtures("hr")
    def test_many_bad_lines_are_counted(self, run: Run) -> None:
        Path("keys").write_text("nonsense\n" * 50)
        code, _, err = run("resync", "usr", "--keys", "keys", "--batch", "7")
        assert code == 1
        assert err.count("keys, line ") == 20
        assert "... and 30 more" in err

    @pytest.mark.parametrize("size", [1, 2, 3, 100])
    def test_batches_cover_the_file(self, run: Run, hr: sa.Engine, size: int) -> None:
        users(hr, 6)
        Path("keys").write_text("".join(f"idu={n}\n\n" for n in range(6, 0, -1)))
        assert run("resync", "usr", "--keys", "keys", "--batch", str(size))[0] == 0
        assert keys(hr) == [f"idu={n}" for n in range(6, 0, -1)]
        assert positions(hr) == []

    @pytest.mark.usefixtures("hr")
    def test_a_file_that_is_not_there_is_a_usage_error(self, run: Run) -> None:
        assert run("resync", "usr", "--keys", "nowhere")[0] == 2

    def test_another_content_is_another_resync(self, run: Run, hr: sa.Engine) -> None:
        users(hr, 3)
        Path("keys").write_text("idu=1\nidu=2\nidu=3\n")
        stopped(hr, "usr", keys_file="keys", after=1)
        assert "not finished" in run("resync", "usr", "--keys", "keys")[2]
        Path("keys").write_text("idu=3\n")
        code, _, err = run("resync", "usr", "--keys", "keys", "--resume")
        assert (code, "again, with --resume" in err) == (2, True)
        Path("keys").write_text("idu=1\nidu=2\nidu=3\n")
        assert run("resync", "usr", "--keys", "keys", "--resume")[0] == 0
        assert keys(hr) == ["idu=1", "idu=2", "idu=3"]

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


class TestLogs:
    def test_a_log_of_somebody_else_with_its_own_names_is_written_too(
        self, run: Run, publish: Callable[[], Receiver], hr: sa.Engine
    ) -> None:
        execute(
            hr,
            """CREATE SEQUENCE hr.theirs_ids;
            CREATE TABLE hr.theirs (
                rid numeric(20) DEFAULT nextval('hr.theirs_ids'), tkey varchar(200), st char(1), typ
                numeric(2), tim timestamptz, who varchar(30), tab varchar(60), col varchar(60), o
                text, n text);
            INSERT INTO hr.desk VALUES ('a+b', 1, 'x'), ('c', 2, 'y')""",
        )
        Path("eventlog.toml").write_text(
            "[database]\nlog_table = 'theirs'\n[publisher]\nlayout = '3.5'\n"
        )
        assert run("db", "upgrade", "--existing-log")[0] == 0
        assert run("resync", "desk", "--batch", "1")[0] == 0
        with hr.connect() as conn:
            found = conn.exec_driver_sql(
                "SELECT rid, tkey, st, typ, who, tab, now() - tim BETWEEN '0' AND interval '1 hour'"
                " FROM hr.theirs ORDER BY rid"
            )
            assert [tuple(row) for row in found] == [
                (1, 'branch="a+b"+num=1', "N", 5, None, "desk", True),
                (2, "branch=c+num=2", "N", 5, None, "desk", True),
            ]
        assert set(publish().objects) == {'branch="a+b"+num=1', "branch=c+num=2"}

    def test_a_log_that_is_older_than_the_table_of_positions_explains_how_to_get_it(
        self, run: Run, hr: sa.Engine
    ) -> None:
        users(hr, 1)
        execute(hr, "DROP TABLE hr.eventlog_resync")
        code, _, err = run("resync", "usr")
        assert (code, err.count("\n"), "`eventlog db upgrade`" in err) == (1, 1, True)
        assert run("resync", "usr", "--key", "idu=1")[0] == 0

    def test_rights_that_are_missing_are_named(
        self, run: Run, hr: sa.Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user = f"clerk_{os.getpid()}"
        execute(
            hr,
            f"""CREATE ROLE {user} LOGIN; GRANT USAGE ON SCHEMA hr TO {user};
            GRANT SELECT, UPDATE ON hr.eventlog TO {user}; GRANT SELECT ON hr.usr TO {user};
            GRANT SELECT, INSERT, UPDATE, DELETE ON hr.eventlog_inflight, hr.eventlog_state, hr.eventlog_error
                TO {user};
            GRANT SELECT, INSERT, UPDATE ON hr.eventlog_epoch TO {user};
            GRANT SELECT ON hr.eventlog_consumer TO {user};
            GRANT USAGE ON SEQUENCE hr.eventlog_delivery TO {user}""",
        )
        try:
            with hr.connect() as conn:
                conn.exec_driver_sql(f"SET ROLE {user}")
                log = opened_log(conn, LogTable("hr", "eventlog", LOG_COLUMNS))
                assert log.missing_rights(Purpose.RESYNC) == ["INSERT on table eventlog"]
                assert log.missing_rights(Purpose.RESYNC, Addition.POSITION) == [
                    "INSERT on table eventlog",
                    *(
                        f"{right} on table eventlog_resync"
                        for right in ("SELECT", "INSERT", "UPDATE", "DELETE")
                    ),
                ]
        finally:
            execute(hr, f"DROP OWNED BY {user}; DROP ROLE {user}")

    def test_positions_can_be_replicated_and_are_described(self, run: Run, hr: sa.Engine) -> None:
        with hr.connect() as conn:
            identity = conn.exec_driver_sql(
                "SELECT relreplident FROM pg_class WHERE oid = 'hr.eventlog_resync'::regclass"
            )
            assert identity.scalar() in ("i", b"i")
            inspector = sa.inspect(conn)
            assert inspector.get_table_comment("eventlog_resync", "hr")["text"]
            columns = inspector.get_columns("eventlog_resync", "hr")
            assert tuple(column["name"] for column in columns) == batches.COLUMNS
            assert all(column["comment"] for column in columns)


def test_a_batch_reads_no_more_than_its_keys(run: Run, hr: sa.Engine) -> None:
    execute(
        hr,
        "INSERT INTO hr.desk SELECT 'b' || n % 9, n, 'x' FROM generate_series(1, 20000) AS n; "
        "ANALYZE hr.desk",
    )
    cls = class_named(hr, "desk")
    selection = Selection("desk", EventType.INSERT_ROW_QUERY_BACK, where="num > 0")
    with hr.connect() as conn:
        walk = DIALECT.open(conn).log(LOG).start_walk("hr", cls, selection)
        statement = "EXPLAIN (FORMAT JSON) " + DIALECT.batch_statement(walk, continues=True)
        parameters = {"limit": 100, "event_type": 5, "class_name": "desk", "k0": "b3", "k1": "7"}
        plan = json.dumps(conn.exec_driver_sql(statement, parameters).scalar())
        assert '"Index Name": "desk_pkey"' in plan
        assert "Seq Scan" not in plan


@pytest.mark.parametrize(
    ("rows", "rate", "elapsed", "seconds"),
    [
        (100, None, 0.0, 0.0),
        (100, 50.0, 0.5, 1.5),
        (100, 50.0, 2.0, 0.0),
        (100, 50.0, 9.0, 0.0),
        (1, 0.5, 0.0, 2.0),
    ],
)
def test_the_rate_is_kept_over_the_whole_run(
    rows: int, rate: float | None, elapsed: float, seconds: float
) -> None:
    assert pause(rows, rate, elapsed) == seconds


@pytest.mark.parametrize(
    ("size", "rate", "rows"), [(1000, None, 1000), (1000, 50.5, 50), (10, 50.0, 10), (1000, 0.5, 1)]
)
def test_a_slow_rate_makes_small_batches(size: int, rate: float | None, rows: int) -> None:
    assert batch_size(size, rate) == rows
