"""What MariaDB and MySQL do in their own way (spec/triggers.md 7.4, docs/databases/mysql-and-mariadb.md)."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mysql_servers
import pytest
import sqlalchemy as sa
from platforms import Logged, Platform
from shared import Run, opened_log

from eventlog.errors import ConfigError
from eventlog.sql import migrations
from eventlog.sql.connect.connection import connect
from eventlog.sql.dialects.mariadb.triggers import MariaDBTriggers
from eventlog.sql.dialects.mysql_family import Family
from eventlog.sql.dialects.mysql_family.session import error_code
from eventlog.sql.doctor import HeldSnapshot, TableStorage
from eventlog.sql.port.driver_errors import load_dialect
from eventlog.sql.port.questions import ask
from eventlog.sql.triggers import triggers_of

KEY = "k=1"

VALUES = [
    ("tinyint unsigned", "255", "255"),
    ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
    ("int(6) zerofill", "42", "42"),
    ("year", "2024", "2024"),
    (
        "decimal(65,30)",
        "12345678901234567890123456789012345.5",
        "12345678901234567890123456789012345.5" + "0" * 29,
    ),
    ("decimal(65)", "9" * 65, "9" * 65),
    ("float", "16777216", "16777216"),
    ("float", "0.1", "0.10000000149011612"),
    ("double", "1e300", "1e300"),
    ("bit(1)", "b'1'", "1"),
    ("bit(12)", "b'101010101010'", "Cqo="),
    ("char(5)", "'ab '", "ab"),
    ("varchar(5) character set latin1", "'ä€ '", "ä€ "),
    ("enum('x','it''s')", "'it''s'", "it's"),
    ("set('a','b','c')", "'c,a'", "a,c"),
    ("binary(4)", "x'01'", "AQAAAA=="),
    ("tinyblob", "x'AAAA'", "qqo="),
    ("point", "POINT(1.5, 2)", "POINT(1.5 2)"),
    ("date", "'2024-02-29'", "2024-02-29"),
    ("date", "'0000-00-00'", "0000-00-00"),
    ("time(3)", "'-838:59:58.5'", "-838:59:58.500"),
    ("datetime", "'2024-02-29 01:02:03'", "2024-02-29 01:02:03"),
    ("datetime(6)", "'2024-02-29 01:02:03.5'", "2024-02-29 01:02:03.500000"),
    ("datetime", "'2024-02-00 00:00:00'", "2024-02-00 00:00:00"),
    ("timestamp(6) null", "'2024-02-29 03:02:03.25'", "2024-02-29 01:02:03.250000Z"),
    ("timestamp null", "'0000-00-00'", "0000-00-00 00:00:00Z"),
]
VALUES_OF_MARIADB = [
    ("json", "'{\"a\":  1}'", '{"a":  1}'),
    ("uuid", "'0123ABCD-0000-0000-0000-000000000000'", "0123abcd-0000-0000-0000-000000000000"),
    ("inet6", "'::1'", "::1"),
]
VALUES_OF_MYSQL = [
    ("json", '\'{"b":2,"a":  1}\'', '{"a": 1, "b": 2}'),
    (
        "geomcollection",
        "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 2))')",
        "GEOMETRYCOLLECTION(POINT(1 2))",
    ),
]


def in_mode(
    platform: Platform, *statements: str, mode: str = "", zone: str = "+02:00"
) -> list[Logged]:
    """What the statements of a session of another kind log."""
    platform.rows()
    with platform.engine.connect() as conn:
        for statement in (f"SET sql_mode = '{mode}', time_zone = '{zone}'", *statements):
            conn.exec_driver_sql(statement, execution_options={"no_parameters": True})
        conn.commit()
        conn.invalidate()  # nobody else has its settings
    return [(int(row.event_type or 0), str(row.table_key), *row[7:10]) for row in platform.rows()]


def test_each_value_is_one_text_logged_and_read_back(family: Platform) -> None:
    own = VALUES_OF_MYSQL if family.name == "mysql" else VALUES_OF_MARIADB
    tables = {f"t{number}": one for number, one in enumerate([*VALUES, *own])}
    family.run(
        *(f"CREATE TABLE {table} (k int PRIMARY KEY, v {one[0]})" for table, one in tables.items())
    )
    family.apply(family.plan(*({"table": table} for table in tables)))
    catalog = family.catalog()
    for table, (type, value, text) in tables.items():
        what = f"{type}: {value}"
        insert, update = f"INSERT INTO {table} VALUES (1, {value})", f"UPDATE {table} SET v ="
        assert in_mode(family, insert) == [(1, KEY, "v", None, text)], what
        assert in_mode(family, f"{update} v") == [], what
        assert in_mode(family, f"{update} NULL") == [(2, KEY, "v", text, None)], what
        in_mode(family, f"{update} {value}")
        cls = catalog.class_named(table)
        with family.session() as (conn, _):
            found = family.dialect.open(conn).query_back(
                None, cls, [KEY], [a for a in cls.attributes if not a.is_key]
            )
        assert list(found[KEY].values()) == [[text]], what


MODES_OF_MARIADB = ("EMPTY_STRING_IS_NULL", "ORACLE")
MODES = (
    "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT",
    "PAD_CHAR_TO_FULL_LENGTH",
    *MODES_OF_MARIADB,
    "TRADITIONAL",
    "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE",
    "NO_AUTO_VALUE_ON_ZERO,HIGH_NOT_PRECEDENCE",
)


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_of_the_writers_session_changes_nothing(family: Platform, mode: str) -> None:
    if family.name == "mysql" and mode in MODES_OF_MARIADB:
        pytest.skip("MySQL has no such mode")
    family.run("CREATE TABLE t (k char(10) PRIMARY KEY, v char(10), e varchar(10))")
    family.watch("t")
    rows = in_mode(
        family,
        "INSERT INTO t VALUES ('a=b', 'x', 'y')",
        "UPDATE t SET v = 'z'",
        "DELETE FROM t",
        mode=mode,
    )
    key = 'k="a=b"'
    assert rows == [
        (1, key, "v", None, "x"),
        (1, key, "e", None, "y"),
        (2, key, "v", "x", "z"),
        (4, key, *[None] * 3),
    ]


def test_two_moments_of_one_local_time_are_a_change(family: Platform) -> None:
    family.run(
        "CREATE TABLE t (k int PRIMARY KEY, v timestamp NULL)", "INSERT INTO t VALUES (1, NULL)"
    )
    family.watch("t")
    first = in_mode(family, "UPDATE t SET v = '2024-10-27 00:30:00'", zone="+00:00")
    second = in_mode(family, "UPDATE t SET v = '2024-10-27 01:30:00'", zone="+00:00")
    assert first == [(2, KEY, "v", None, "2024-10-27 00:30:00Z")]
    assert second == [(2, KEY, "v", "2024-10-27 00:30:00Z", "2024-10-27 01:30:00Z")]


def test_null_and_a_zero_date_are_two_values(family: Platform) -> None:
    family.run(
        "CREATE TABLE t (k int PRIMARY KEY, v timestamp NULL)", "INSERT INTO t VALUES (1, NULL)"
    )
    family.watch("t")
    assert in_mode(family, "UPDATE t SET v = 0") == [(2, KEY, "v", None, "0000-00-00 00:00:00Z")]


def test_a_zero_date_of_a_column_that_is_never_null_is_logged(family: Platform) -> None:
    family.run("CREATE TABLE t (k int PRIMARY KEY, v date NOT NULL, w datetime NOT NULL)")
    family.watch("t")
    rows = in_mode(family, "INSERT INTO t VALUES (1, 0, 0)")
    assert [row[4] for row in rows] == ["0000-00-00", "0000-00-00 00:00:00"]


def test_zero_dates_that_are_there_hinder_no_writer_that_is_strict(family: Platform) -> None:
    family.run("CREATE TABLE t (k int PRIMARY KEY, v date, w int)")
    family.watch("t")
    in_mode(family, "INSERT INTO t VALUES (1, 0, 1), (2, '2024-02-00', 1)")
    strict = "TRADITIONAL"
    assert in_mode(family, "UPDATE t SET w = 2 WHERE k = 1", mode=strict) == [
        (2, KEY, "w", "1", "2")
    ]
    assert in_mode(family, "UPDATE t SET v = NULL WHERE k = 1", mode=strict) == [
        (2, KEY, "v", "0000-00-00", None)
    ]
    (changed,) = in_mode(family, "UPDATE t SET v = '2024-03-01' WHERE k = 2", mode=strict)
    assert changed == (2, "k=2", "v", "2024-02-00", "2024-03-01")


def test_columns_that_are_stored_are_logged_and_virtual_ones_are_not(family: Platform) -> None:
    family.run(
        "CREATE TABLE t (k int PRIMARY KEY, a int, b int AS (a + 1) STORED, c int AS (a + 2) "
        "VIRTUAL, d int INVISIBLE)"
    )
    family.watch("t")
    assert [row[2] for row in family.logged("INSERT INTO t (k, a, d) VALUES (1, 1, 1)")] == [
        "a",
        "b",
        "d",
    ]


# --- statements -----------------------------------------------------------------------------------


@pytest.fixture
def names(family: Platform) -> Platform:
    family.run(
        "CREATE TABLE t (k int PRIMARY KEY, v varchar(20))",
        "CREATE TABLE u (k int PRIMARY KEY, v varchar(20))",
    )
    family.apply(family.plan({"table": "t"}, {"table": "u"}))
    return family


def test_replace_is_a_delete_and_an_insert(names: Platform) -> None:
    names.run("INSERT INTO t VALUES (1, 'a')")
    assert names.logged("REPLACE INTO t VALUES (1, 'b')") == [
        (4, KEY, None, None, None),
        (1, KEY, "v", None, "b"),
    ]


def test_on_duplicate_key_update_is_the_update_that_it_becomes(names: Platform) -> None:
    statement = "INSERT INTO t VALUES (1, 'a') ON DUPLICATE KEY UPDATE v = 'b'"
    assert names.logged(statement) == [(1, KEY, "v", None, "a")]
    assert names.logged(statement) == [(2, KEY, "v", "a", "b")]
    assert names.logged(statement) == []


IGNORED = (
    # A key, a unique column, its prefix, a virtual one, and both ends of a foreign key.
    "UPDATE IGNORE t SET k = 2, v = 'z' WHERE k = 1",
    "UPDATE IGNORE t SET u = 20, v = 'z' WHERE k = 1",
    "UPDATE IGNORE t SET p = 'abcdz', v = 'z' WHERE k = 2",
    "UPDATE IGNORE t SET n = 11, v = 'z' WHERE k = 2",
    "UPDATE IGNORE t SET f = 99, v = 'z' WHERE k = 1",
    "UPDATE IGNORE t SET u = 11, v = 'z' WHERE k = 1",
    "UPDATE IGNORE t JOIN o ON o.k = t.k SET t.u = 20, t.v = 'z' WHERE t.k = 1",
    "INSERT IGNORE INTO t (k, u, v) VALUES (1, 90, 'z'), (9, 20, 'z')",
    "INSERT IGNORE INTO t (k, u, v) VALUES (1, 90, 'z') ON DUPLICATE KEY UPDATE u = 20, v = 'z'",
    "UPDATE IGNORE c SET x = 'b'",
    "UPDATE IGNORE c SET t = 99",
)


@pytest.fixture
def refusing(family: Platform) -> Platform:
    """Tables whose rows the server refuses for many reasons."""
    family.run(
        "CREATE TABLE o (k int PRIMARY KEY)",
        "CREATE TABLE t (k int PRIMARY KEY, u int UNIQUE, p varchar(20), n int, v varchar(20), f int,"
        " g int GENERATED ALWAYS AS (n % 10) VIRTUAL, UNIQUE (g), UNIQUE (p(4)),"
        " FOREIGN KEY (f) REFERENCES o (k))",
        "CREATE TABLE c (t int, x varchar(20), UNIQUE (t, x), FOREIGN KEY (t) REFERENCES t (k))",
        "CREATE TABLE r (u int PRIMARY KEY REFERENCES t (u), FOREIGN KEY (u) REFERENCES t (u))",
        "INSERT INTO o VALUES (1), (2)",
        "INSERT INTO t (k, u, p, n, v, f) VALUES (1, 10, 'abcde', 1, 'a', 1), (2, 20, 'fghij', 2, 'b', 2)",
        "INSERT INTO c VALUES (1, 'a'), (1, 'b')",
        "INSERT INTO r VALUES (10)",
    )
    return family


@pytest.mark.parametrize("row_style", ["field", "row_query_back"])
def test_what_the_server_refuses_to_ignore_is_not_logged(
    refusing: Platform, row_style: str
) -> None:
    refusing.watch("t", row_style)
    logged = [row for statement in IGNORED for row in refusing.logged(statement)]
    # What is read back is right in any case; a deleted object would not come back.
    assert [row for row in logged if row[0] not in (6, 8)] == []
    assert row_style == "row_query_back" or logged == []


def test_what_an_update_ignore_does_change_is_logged_as_any_update(refusing: Platform) -> None:
    refusing.watch("t")
    assert refusing.logged(
        "DELETE FROM r",
        "UPDATE IGNORE t SET u = u + 10 ORDER BY k",
        "UPDATE IGNORE t SET k = k + 7, f = NULL WHERE k = 2",
        "UPDATE IGNORE c SET x = CONCAT(x, '2')",
    ) == [
        (2, "k=2", "u", "20", "30"),
        (4, "k=2", None, None, None),
        *(
            (1, "k=9", column, None, value)
            for column, value in (("u", "30"), ("p", "fghij"), ("n", "2"), ("v", "b"))
        ),
        *((8, "k=9", "c.x", None, None),),
        (2, KEY, "c.x", "a", "a2"),
        (2, KEY, "c.x", "b", "b2"),
    ]


def test_triggers_that_log_refused_changes_go_on_until_the_plan_replaces_them(
    refusing: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    if refusing.name == "mysql":
        pytest.skip("MySQL fires no trigger for a refused row")
    with monkeypatch.context() as before:
        before.setattr(MariaDBTriggers, "fires_for_refused", False)
        refusing.watch("t")
    plan = refusing.plan({"table": "t"})
    assert [(one.kind, one.table, one.reason) for one in plan.changes] == [
        (
            "replace",
            table,
            f"trigger tgr_{table}_u_1 logs changes of UPDATE IGNORE that the server has refused",
        )
        for table in ("t", "c")
    ]
    assert refusing.logged("UPDATE t SET v = 'y' WHERE k = 1") == [(2, KEY, "v", "a", "y")]
    refusing.apply(plan)
    assert refusing.plan({"table": "t"}).changes == ()


def test_a_refused_parent_of_rows_that_follow_it_is_named_in_the_plan(family: Platform) -> None:
    family.run(
        "CREATE TABLE t (k int PRIMARY KEY)",
        "CREATE TABLE u (k int PRIMARY KEY, t int, FOREIGN KEY (t) REFERENCES t (k) ON DELETE CASCADE)",
    )
    assert not any("IGNORE" in said for said in family.plan({"table": "t"}).not_captured)
    assert any("IGNORE" in said for said in family.plan({"table": "u"}).not_captured)


def test_statements_of_several_tables_are_logged_row_by_row(names: Platform) -> None:
    names.run("INSERT INTO t VALUES (1, 'a')", "INSERT INTO u VALUES (1, 'a')")
    update = "UPDATE t JOIN u ON t.k = u.k SET t.v = 'b', u.v = 'c'"
    assert sorted(names.logged(update)) == [(2, KEY, "v", "a", "b"), (2, KEY, "v", "a", "c")]
    assert (
        names.logged("DELETE t, u FROM t JOIN u ON t.k = u.k") == [(4, KEY, None, None, None)] * 2
    )


def test_loaded_rows_are_logged(
    names: Platform, family_server: mysql_servers.Server, tmp_path: Path
) -> None:
    family_server.run("SET GLOBAL local_infile = 1")
    file = tmp_path / "rows.csv"
    file.write_text("1,a\n2,b\n")
    loading = sa.create_engine(
        names.engine.url, poolclass=sa.NullPool, connect_args={"local_infile": True}
    )
    with loading.begin() as conn:
        conn.exec_driver_sql(
            f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE t FIELDS TERMINATED BY ','"
        )
    assert [row.table_key for row in names.rows()] == ["k=1", "k=2"]


def test_the_last_insert_id_of_the_application_stays_its_own(family: Platform) -> None:
    family.run("CREATE TABLE t (k int AUTO_INCREMENT PRIMARY KEY, v int) AUTO_INCREMENT = 500")
    family.watch("t")
    with family.engine.begin() as conn:
        conn.exec_driver_sql("INSERT INTO t (v) VALUES (1)")
        assert conn.exec_driver_sql("SELECT LAST_INSERT_ID()").scalar() == 500


def test_a_user_without_a_right_on_the_log_writes_and_is_logged(
    names: Platform, family_server: mysql_servers.Server
) -> None:
    family_server.run(
        "CREATE USER IF NOT EXISTS clerk@localhost IDENTIFIED BY 'clerk'",
        "GRANT INSERT ON app.t TO clerk@localhost",
    )
    url = names.engine.url.set(username="clerk", password="clerk")
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as conn:
        conn.exec_driver_sql("INSERT INTO t VALUES (1, 'a')")
    assert [row.perpetrator for row in names.rows()] == ["clerk"]


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE t",
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE other",
        "ALTER TABLE t DROP PARTITION p",
    ],
)
def test_what_fires_no_trigger_is_fixed_by_resync(
    family: Platform, run: Run, statement: str
) -> None:
    family.run(
        "CREATE TABLE t (k int PRIMARY KEY, v int) PARTITION BY RANGE (k)"
        " (PARTITION p VALUES LESS THAN (10), PARTITION q VALUES LESS THAN MAXVALUE)",
        "CREATE TABLE other (k int PRIMARY KEY, v int)",
        "INSERT INTO other VALUES (3, 3)",
    )
    plan = family.watch("t")
    assert any("TRUNCATE" in said for said in plan.not_captured)
    family.run("INSERT INTO t VALUES (1, 1), (2, 2), (20, 20)")
    family.rows()
    # By itself: in a transaction of several statements the server waits for itself.
    with family.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql(statement)
    assert family.rows() == []
    family.config()
    with family.engine.connect() as conn:
        there = {f"k={k}" for (k,) in conn.exec_driver_sql("SELECT k FROM t")}
    file = str(family.place / "eventlog.toml")
    gone = {"k=1", "k=2", "k=20"} - there

    def found() -> list[str]:
        told = json.loads(run("-c", file, "doctor", "--json")[1])["findings"]
        return [finding["text"] for finding in told if finding["code"] == "missed_delete"]

    (text,) = found()
    assert text.startswith(f"the log has no delete of {len(gone)} object")
    assert all(key in text for key in gone)
    for command in (["t", "--deletes"], ["t"]):
        code, _, error = run("-c", file, "resync", *command)
        assert code == 0, error
    rows = family.rows()
    assert {str(row.table_key) for row in rows if row.event_type == 4} == gone
    assert {str(row.table_key) for row in rows if row.event_type != 4} >= there
    assert found() == []


# --- LOCK TABLES ----------------------------------------------------------------------------------


def under_lock_tables(family: Platform, *statements: str) -> int | None:
    """Run statements on the table ``t`` that a session has locked, after another one has read the
    log. Returns the code of the error that ends them.
    """
    family.run("SELECT count(*) FROM eventlog AS a, eventlog AS b, eventlog AS c")
    with family.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql("LOCK TABLES t WRITE")
        try:
            for statement in statements:
                conn.exec_driver_sql(statement)
        except sa.exc.OperationalError as error:
            return error_code(error)
        finally:
            conn.exec_driver_sql("UNLOCK TABLES")
    return None


def test_a_write_under_lock_tables_is_logged_or_refused_as_the_plan_specifies(
    family: Platform,
) -> None:
    """MariaDB takes tables from its cache as their last user has left them, and refuses a write by
    a trigger when a second one of the log looks as if it were in use.
    """
    family.run("CREATE TABLE t (k int PRIMARY KEY, v int)")
    plan = family.watch("t")
    refused = [limit for limit in plan.not_captured if "LOCK TABLES" in limit]
    assert len(refused) == (family.name == "mariadb")
    for write in (
        "INSERT INTO t VALUES (1, 1)",
        "UPDATE t SET v = 2",
        "REPLACE INTO t VALUES (1, 3)",
        "DELETE FROM t",
    ):
        family.rows()
        error = under_lock_tables(family, write)
        assert error == (1442 if refused else None)
        assert bool(family.rows()) == (error is None)
        if error is not None:
            family.run(write)
            assert family.rows() != []


def test_a_dump_is_loaded_into_a_watched_table_without_locks(family: Platform) -> None:
    """As the text of ``mysqldump --no-create-info`` has it, with and without
    ``--skip-add-locks``.
    """
    family.run("CREATE TABLE t (k int PRIMARY KEY, v int)")
    family.watch("t")
    insert = "INSERT INTO t VALUES (1, 1), (2, 2)"
    keys_off, keys_on = (f"/*!40000 ALTER TABLE t {word} KEYS */" for word in ("DISABLE", "ENABLE"))
    with_locks = under_lock_tables(family, keys_off, insert, keys_on)
    assert with_locks == (1442 if family.name == "mariadb" else None)
    family.run("DELETE FROM t")
    family.rows()
    family.run(keys_off, insert, keys_on)
    assert {str(row.table_key) for row in family.rows()} == {"k=1", "k=2"}


# --- keys -----------------------------------------------------------------------------------------


def test_a_key_is_read_back_exactly_whatever_the_collation(family: Platform) -> None:
    family.run(
        "CREATE TABLE t (k varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY, v int)",
        "INSERT INTO t VALUES ('Ab', 1)",
    )
    cls = family.catalog().class_named("t")
    with family.session() as (conn, _):
        assert list(
            family.dialect.open(conn).query_back(None, cls, ["k=ab", "k=Ab", 'k="Ab "'], ())
        ) == ["k=Ab"]


def test_a_change_of_case_in_a_key_is_another_object(family: Platform) -> None:
    family.run("CREATE TABLE t (k varchar(20) PRIMARY KEY, v int)", "INSERT INTO t VALUES ('a', 1)")
    family.watch("t")
    assert family.logged("UPDATE t SET k = 'A'") == [
        (4, "k=a", None, None, None),
        (1, "k=A", "v", None, "1"),
    ]


def test_a_child_row_has_the_key_that_its_owner_spells(family: Platform) -> None:
    family.run(
        "CREATE TABLE usr (k varchar(20) PRIMARY KEY)",
        "CREATE TABLE usr_tag (k varchar(20) REFERENCES usr (k), tag varchar(20), UNIQUE (k, tag))",
        "INSERT INTO usr VALUES ('Ab')",
    )
    family.watch("usr")
    assert family.logged("INSERT INTO usr_tag VALUES ('aB', 'x')") == [
        (2, "k=Ab", "usr_tag.tag", None, "x")
    ]
    assert family.logged("UPDATE usr_tag SET k = 'AB'") == []
    assert family.logged("DELETE FROM usr_tag") == [(2, "k=Ab", "usr_tag.tag", "x", None)]


def test_a_key_of_a_prefix_is_none(family: Platform) -> None:
    family.run("CREATE TABLE t (k text, v int, PRIMARY KEY (k(5)))")
    with pytest.raises(ConfigError, match="no primary key"):
        family.plan({"table": "t"}, tables=["t"])


DECLARED_VALIDITY = (
    ", s timestamp(6) GENERATED ALWAYS AS ROW START, e timestamp(6) GENERATED ALWAYS AS ROW END,"
    " PERIOD FOR SYSTEM_TIME (s, e)"
)


@pytest.mark.parametrize("validity", ["", DECLARED_VALIDITY], ids=["implied", "declared"])
def test_a_table_with_system_versioning_is_a_class_with_its_own_columns_and_key(
    family: Platform, validity: str
) -> None:
    if family.name == "mysql":
        pytest.skip("MySQL has no system versioning")
    family.run(f"CREATE TABLE t (k int PRIMARY KEY, v int UNIQUE{validity}) WITH SYSTEM VERSIONING")
    family.watch("t")
    assert family.logged(
        "INSERT INTO t (k, v) VALUES (1, 1), (2, 2)",
        "UPDATE t SET v = 3 WHERE k = 1",
        "REPLACE INTO t (k, v) VALUES (2, 4)",
        "DELETE FROM t WHERE k = 1",
        "DELETE HISTORY FROM t",
    ) == [
        (1, KEY, "v", None, "1"),
        (1, "k=2", "v", None, "2"),
        (2, KEY, "v", "1", "3"),
        (4, "k=2", None, None, None),
        (1, "k=2", "v", None, "4"),
        (4, KEY, None, None, None),
    ]
    (cls,) = family.catalog().classes
    assert ([one.name for one in cls.key], cls.table.unique_keys) == (["k"], (("k",), ("v",)))
    with family.session() as (conn, _):
        found = family.dialect.open(conn).query_back(
            None, cls, [KEY, "k=2"], [a for a in cls.attributes if not a.is_key]
        )
    assert {key: list(values.values()) for key, values in found.items()} == {"k=2": [["4"]]}


@pytest.mark.parametrize(
    ("columns", "without"),
    [
        ("", ""),
        (
            "ADD s timestamp(6) GENERATED ALWAYS AS ROW START, "
            "ADD e timestamp(6) GENERATED ALWAYS AS ROW END, ADD PERIOD FOR SYSTEM_TIME (s, e), ",
            "DROP PERIOD FOR SYSTEM_TIME, DROP s, DROP e, ",
        ),
    ],
    ids=["implied", "declared"],
)
def test_a_published_table_gains_and_loses_system_versioning_with_the_same_triggers(
    family: Platform, columns: str, without: str
) -> None:
    if family.name == "mysql":
        pytest.skip("MySQL has no system versioning")
    family.run("CREATE TABLE t (k int PRIMARY KEY, v int)")
    family.watch("t")
    family.run(f"ALTER TABLE t {columns}ADD SYSTEM VERSIONING")
    assert family.logged("INSERT INTO t (k, v) VALUES (1, 1)") == [(1, KEY, "v", None, "1")]
    assert family.plan({"table": "t"}).changes == ()
    family.run(
        "SET STATEMENT system_versioning_alter_history = KEEP FOR "
        f"ALTER TABLE t {without}DROP SYSTEM VERSIONING"
    )
    assert family.logged("UPDATE t SET v = 2") == [(2, KEY, "v", "1", "2")]
    assert family.plan({"table": "t"}).changes == ()


def test_doctor_names_what_a_role_may_not_read_in_a_database_without_schemas(
    family: Platform, family_server: mysql_servers.Server, run: Run
) -> None:
    family.run("CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE TABLE bare (v int UNIQUE)")
    family.watch("t", row_style="row_query_back")
    family.watches += [{"table": "bare"}, {"table": "nowhere"}]
    family_server.run(
        "CREATE USER IF NOT EXISTS looker@localhost IDENTIFIED BY 'looker'",
        "GRANT INSERT ON app.t TO looker@localhost",
        "GRANT INSERT ON app.bare TO looker@localhost",
        *(
            f"GRANT SELECT ON app.eventlog{part} TO looker@localhost"
            for part in ("", *(f"_{name}" for name in ("error", "inflight", "state", "epoch")))
        ),
    )
    family.engine = sa.create_engine(
        family.engine.url.set(username="looker", password="looker"), poolclass=sa.NullPool
    )
    family.config()
    told = run("-c", str(family.place / "eventlog.toml"), "doctor", "--json")[1]
    family_server.run("DROP USER looker@localhost")
    found = {one["code"]: one for one in json.loads(told)["findings"]}
    assert "t (k, v)" in found["rights_read"]["text"]
    assert found["rights_read"]["fix"][0] == "GRANT SELECT ON `t` TO `looker`"
    assert found["class_without_key"]["fix"] == ["ALTER TABLE `bare` ADD PRIMARY KEY (`v`)"]
    assert "no table or view 'nowhere' in the database" in found["class_missing"]["text"]


# --- the log --------------------------------------------------------------------------------------


def test_values_that_no_packet_holds_are_read_back(
    family: Platform, family_server: mysql_servers.Server
) -> None:
    family.run("CREATE TABLE t (k int PRIMARY KEY, v longtext, b longblob)")
    family.watch("t")
    most = 16 * 2**20 // 4
    assert [
        row[:3] for row in family.logged(f"INSERT INTO t VALUES (1, REPEAT('x', {most}), NULL)")
    ] == [(1, KEY, "v")]
    (row,) = family.logged(f"INSERT INTO t VALUES (2, REPEAT('x', {most + 1}), NULL)")
    assert row == (7, "k=2", "v", None, None)
    (row,) = family.logged("UPDATE t SET v = 'y' WHERE k = 2")
    assert row == (8, "k=2", "v", None, None)


def test_record_ids_go_on_after_a_crash_although_the_newest_rows_are_gone(
    names: Platform, family_server: mysql_servers.Server
) -> None:
    durable = "SET GLOBAL innodb_flush_log_at_trx_commit = 1"
    family_server.run(durable)
    names.run("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'a')")
    last = max(row.record_id for row in names.rows())
    names.run("DELETE FROM eventlog")
    family_server.stop(kill=True)
    family_server.start()
    names.close()
    names.run("INSERT INTO t VALUES (3, 'a')")
    assert [row.record_id > last for row in names.rows()] == [True]


def test_a_session_is_read_committed_in_utc_regardless_of_the_servers_settings(
    family: Platform, family_server: mysql_servers.Server
) -> None:
    family_server.run(
        "SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET GLOBAL time_zone = '+05:00'"
    )
    try:
        with family.session() as (conn, _):
            assert conn.get_isolation_level() == "READ COMMITTED"
            asked = "SELECT @@time_zone, @@character_set_client, @@default_storage_engine"
            assert tuple(conn.exec_driver_sql(asked).one()) == ("+00:00", "utf8mb4", "InnoDB")
    finally:
        family_server.run(
            "SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "SET GLOBAL time_zone = 'SYSTEM'",
        )


def test_a_table_without_transactions_is_warned_of(family: Platform) -> None:
    family.run("CREATE TABLE t (k int PRIMARY KEY, v int) ENGINE = MyISAM")
    assert any(
        "t uses the engine MyISAM" in warning for warning in family.plan({"table": "t"}).warnings
    )


def test_a_trigger_of_others_that_is_older_is_warned_of(family: Platform) -> None:
    family.run(
        "CREATE TABLE t (k int PRIMARY KEY, v int)",
        "CREATE TRIGGER theirs AFTER INSERT ON t FOR EACH ROW SET @x = 1",
    )
    assert any("theirs" in warning for warning in family.plan({"table": "t"}).warnings)


def test_scripts_run_in_the_servers_own_client(family: Platform) -> None:
    """It takes comments out of what it sends, so none may count."""
    client = shutil.which("mariadb")
    if client is None:
        pytest.skip("the client mariadb is not installed")
    family.run("CREATE TABLE t (k int PRIMARY KEY, v enum('a','it''s'), `b\\c` int)")
    with family.ours.begin() as conn:
        migrations.downgrade(conn, log_table="eventlog")
    printed = io.StringIO()
    migrations.upgrade(None, log_table="eventlog", sql=printed, dialect_name=family.name)

    def run(script: str) -> None:
        socket = family.engine.url.query["unix_socket"]
        command = [
            client,
            "--no-defaults",
            f"--socket={socket}",
            "--user=app",
            "--password=app",
            "app",
        ]
        subprocess.run(command, input=script.encode(), check=True, capture_output=True, timeout=60)

    run(printed.getvalue())
    plan = family.plan({"table": "t"})
    run(triggers_of(family.dialect).script(plan))
    assert family.plan({"table": "t"}).changes == ()
    assert [row[0] for row in family.logged("INSERT INTO t VALUES (1, 'a', 1)")] == [1, 1]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "version", "reason"),
    [
        ("mariadb", "8.4.3", r"is MySQL 8\.4\.3: write mysql://"),
        ("mariadb", "5.5.5-10.6.18-MariaDB-log", r"10\.6 is too old"),
        ("mariadb", "10.3.2-MariaDB", "too old"),
        ("mysql", "11.8.6-MariaDB-0+deb13u1", "is MariaDB 11.8.6.*: write mariadb://"),
        ("mysql", "8.0.36", r"8\.0 is too old: upgrade the server to 8\.4"),
    ],
)
def test_a_server_that_is_another_one_is_refused(dialect: str, version: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        family_dialect(dialect).check_server(version)


@pytest.mark.parametrize(
    ("dialect", "version"),
    [
        ("mariadb", "10.11.19-MariaDB-0+deb12u1"),
        ("mariadb", "11.8.6-MariaDB-0+deb13u1"),
        ("mariadb", "5.5.5-10.11.6-MariaDB"),
        ("mysql", "9.7.4-2"),
    ],
)
def test_a_server_that_is_supported_is_let_in(
    dialect: str, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    family_dialect(dialect).check_server(version)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("dialect", "version", "said"),
    [
        ("mysql", "12.1.0-cloud", "MySQL 12.1.0-cloud, only on 9.7"),
        ("mysql", "8.4.3", "MySQL 8.4.3, only on 9.7"),
        (
            "mariadb",
            "11.4.2-MariaDB-ubu2404",
            "MariaDB 11.4.2-MariaDB-ubu2404, only on 10.11 and 11.8",
        ),
        (
            "mariadb",
            "5.5.5-12.0.1-MariaDB",
            "MariaDB 5.5.5-12.0.1-MariaDB, only on 10.11 and 11.8",
        ),
    ],
)
def test_a_release_that_the_tests_have_never_run_on_is_warned_of_once(
    dialect: str, version: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        family_dialect(dialect).check_server(version)
    assert caplog.messages == [f"eventlog has never been tested on {said}; try it on a copy first"]


def family_dialect(name: str) -> Family:
    dialect = load_dialect(name)
    assert isinstance(dialect, Family)
    return dialect


def test_a_url_without_a_database_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no database"):
        connect("mariadb://u@h")


# --- what breaks off ------------------------------------------------------------------------------


def test_triggers_that_were_applied_by_half_are_completed_by_the_next_run(
    family: Platform,
) -> None:
    family.run(
        "CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE TABLE u (k int PRIMARY KEY, v int)"
    )
    plan = family.plan({"table": "t"}, {"table": "u"})
    after = 0
    while (
        family.broken_off(after, lambda conn: triggers_of(family.dialect).apply(conn, plan, 5.0))
        is None
    ):
        again = family.plan({"table": "t"}, {"table": "u"})
        family.apply(again)
        assert family.plan({"table": "t"}, {"table": "u"}).changes == ()
        family.apply(family.plan())
        after += 1
    assert after > 5
    assert (
        family.logged("INSERT INTO t VALUES (1, 1)", "INSERT INTO u VALUES (1, 1)")
        == [(1, KEY, "v", None, "1")] * 2
    )


# --- what holds old versions of rows back ---------------------------------------------------------


def test_the_oldest_reader_is_reported_to_privileged_users_and_the_size_of_the_log_to_everybody(
    family: Platform, family_server: mysql_servers.Server
) -> None:
    family.run("CREATE TABLE t (k int PRIMARY KEY)")

    def told() -> tuple[list[HeldSnapshot], list[TableStorage]]:
        with family.session() as (conn, log):
            return (
                ask(opened_log(conn, log), "snapshots", HeldSnapshot, limit=5),
                ask(opened_log(conn, log), "storage", TableStorage),
            )

    with family.engine.connect() as reader:
        reader.exec_driver_sql("SELECT * FROM t")
        pid = reader.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
        held, tables = told()
        assert held == []
        assert {"log", "error", "inflight"} <= {table.part for table in tables if table.bytes > 0}
        family_server.run("GRANT PROCESS ON *.* TO app@localhost")
        try:
            family.ours.dispose()
            (one,) = told()[0]
        finally:
            family_server.run("REVOKE PROCESS ON *.* FROM app@localhost")
        assert (one.pid, one.user, one.state, one.fix) == (pid, "app", "sleep", f"KILL {pid}")
        assert (one.seconds or 0) >= 0
        assert one.transactions >= 0


@contextmanager
def over_tcp(path: str) -> Iterator[int]:
    """A port that leads to a server's socket, for one connection."""

    def forward(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        client = listening.accept()[0]
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(path)
            back = threading.Thread(target=forward, args=(server, client))
            back.start()
            forward(client, server)
            back.join()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve)
        serving.start()
        yield listening.getsockname()[1]
        serving.join()


def test_a_session_over_tcp_notices_after_25_seconds_that_the_server_is_gone(
    family: Platform,
) -> None:
    url = family.engine.url
    with over_tcp(str(url.query["unix_socket"])) as port:
        tcp = url.difference_update_query(["unix_socket"]).set(host="127.0.0.1", port=port)
        with connect(tcp).connect() as conn:
            end: socket.socket = conn.connection.driver_connection._sock  # type: ignore[union-attr]
            found = [
                end.getsockopt(socket.IPPROTO_TCP, option)
                for option in (
                    socket.TCP_KEEPIDLE,
                    socket.TCP_KEEPINTVL,
                    socket.TCP_KEEPCNT,
                    socket.TCP_USER_TIMEOUT,
                )
            ]
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert found == [10, 5, 3, 25_000]
