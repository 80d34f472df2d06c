"""Keys that may shift: DEFERRABLE primary keys (spec/triggers.md 7.1)."""

from __future__ import annotations

import pytest
from trigger_log import STYLES, Logged, Watched, fields, run

from eventlog.sql.triggers.watch import Capture, Style, WatchedTable


@pytest.fixture(params=["row", "statement"])
def shifting(empty: Watched, request: pytest.FixtureRequest) -> Watched:
    run(
        empty.conn,
        "CREATE TABLE t (id integer PRIMARY KEY DEFERRABLE INITIALLY IMMEDIATE, name text)",
    )
    trigger_level: Capture = request.param
    return Watched(empty.conn, trigger_level=trigger_level)


def four(key: int) -> Logged:
    return (4, f"id={key}", None, None, None)


def six(key: int) -> Logged:
    return (6, f"id={key}", None, None, None)


def test_an_update_that_shifts_all_keys(shifting: Watched) -> None:
    shifting.watch(WatchedTable("t"))
    run(shifting.conn, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    assert shifting.logged("UPDATE t SET id = id + 1") == [
        four(1),
        *fields(2, "id=2", ("name", "b", "a")),
        *fields(2, "id=3", ("name", "c", "b")),
        *fields(1, "id=4", ("name", None, "c")),
    ]


@pytest.mark.parametrize("row_style", STYLES)
def test_a_swap_changes_both_objects_and_deletes_none(shifting: Watched, row_style: Style) -> None:
    shifting.watch(WatchedTable("t", row_style))
    run(shifting.conn, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    rows = shifting.logged("UPDATE t SET id = 3 - id")
    assert [(row[1], row[3], row[4]) for row in rows] == [
        ("id=2", *(("b", "a") if row_style in ("field", "remove_all") else (None, None))),
        ("id=1", *(("a", "b") if row_style in ("field", "remove_all") else (None, None))),
    ]
    assert {row[0] for row in rows} <= {2, 3, 6, 8}


def test_a_rotation_of_equal_rows_logs_nothing(shifting: Watched) -> None:
    shifting.watch(WatchedTable("t"))
    run(shifting.conn, "INSERT INTO t VALUES (1, 'a'), (2, 'a'), (3, 'a')")
    assert shifting.logged("UPDATE t SET id = id % 3 + 1") == []


def test_a_key_that_another_row_has_by_now_is_not_deleted(shifting: Watched) -> None:
    shifting.watch(WatchedTable("t"))
    run(shifting.conn, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    run(shifting.conn, "SET CONSTRAINTS ALL DEFERRED")
    assert shifting.logged("UPDATE t SET id = 2 WHERE id = 1") == [
        four(1),
        *fields(1, "id=2", ("name", None, "a")),
    ]
    assert shifting.logged("UPDATE t SET id = 1 WHERE name = 'b'") == [
        six(2),
        *fields(1, "id=1", ("name", None, "b")),
    ]
    assert shifting.logged("INSERT INTO t VALUES (1, 'c')") == fields(
        1, "id=1", ("name", None, "c")
    )
    assert shifting.logged("DELETE FROM t WHERE name = 'b'") == [six(1)]
    assert shifting.logged("DELETE FROM t") == [four(2), four(1)]
    run(shifting.conn, "SET CONSTRAINTS ALL IMMEDIATE")


def test_keys_that_are_equal_for_a_while_are_paired_one_by_one(shifting: Watched) -> None:
    shifting.watch(WatchedTable("t", "row_query_back"))
    run(
        shifting.conn,
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "SET CONSTRAINTS ALL DEFERRED",
    )
    assert shifting.logged("UPDATE t SET id = 5") == [
        *(four(key) for key in (1, 2, 3)),
        *[(5, "id=5", None, None, None)] * 3,
    ]
    # Three rows of one key, and none of them a pair with all the others.
    assert shifting.logged("UPDATE t SET name = name || '+'") == [six(5)] * 3
    rows = shifting.logged("UPDATE t SET id = ascii(name)")
    assert rows == [*[four(5)] * 3, *((5, f"id={key}", None, None, None) for key in (97, 98, 99))]
    run(shifting.conn, "SET CONSTRAINTS ALL IMMEDIATE")


def test_inserts_and_deletes_stay_by_row_and_updates_do_not(empty: Watched) -> None:
    run(empty.conn, "CREATE TABLE t (id integer PRIMARY KEY DEFERRABLE, name text)")
    empty.watch(WatchedTable("t"))
    shown = empty.conn.exec_driver_sql(
        "SELECT tgname, tgtype & 1 FROM pg_trigger WHERE tgname LIKE '\\_tgr%' ORDER BY 1",
        execution_options={"no_parameters": True},
    )
    assert [tuple(row) for row in shown] == [
        ("_tgr_t_d_1", 1),
        ("_tgr_t_i_1", 1),
        ("_tgr_t_t_1", 0),
        ("_tgr_t_u_1", 0),
    ]
    assert empty.plan(WatchedTable("t")).changes == ()


def test_a_key_that_is_unique_at_every_moment_too_cannot_shift(empty: Watched) -> None:
    run(empty.conn, "CREATE TABLE t (id integer PRIMARY KEY DEFERRABLE, name text, UNIQUE (id))")
    plan = empty.watch(WatchedTable("t"))
    assert plan.warnings == ()
    assert "REFERENCING" not in "".join(plan.actions[0].statements)


@pytest.mark.parametrize(
    ("type", "first", "other", "key"),
    [
        ("numeric", "1.0", "2.00", "id=1"),
        ("text", "'a+b'", "'c'", 'id="a+b"'),
        ("char(4)", "'a'", "'b'", "id=a"),
        ("bytea", "'\\xAA'", "'\\xBB'", 'id="qg=="'),
        ("text[]", "'{a}'", "'{b}'", "id={a}"),
        ("double precision", "0", "1.5", "id=0"),
    ],
)
def test_rows_that_stand_are_found_whatever_the_type_of_the_key(
    shifting: Watched, type: str, first: str, other: str, key: str
) -> None:
    run(
        shifting.conn,
        "DROP TABLE t",
        f"CREATE TABLE t (id {type} PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, name text)",
    )
    shifting.watch(WatchedTable("t"))
    run(
        shifting.conn,
        f"INSERT INTO t VALUES ({first}, 'old'), ({other}, 'other')",
        f"INSERT INTO t VALUES ({first})",
    )
    assert shifting.logged("DELETE FROM t WHERE name = 'old'") == [(6, key, None, None, None)]
    assert shifting.logged("DELETE FROM t WHERE name IS NULL") == [(4, key, None, None, None)]


def test_only_a_row_of_the_same_spelling_is_the_same_object(shifting: Watched) -> None:
    run(
        shifting.conn,
        "DROP TABLE t",
        "CREATE TABLE t (id double precision PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, name text)",
    )
    shifting.watch(WatchedTable("t"))
    run(shifting.conn, "INSERT INTO t VALUES ('-0', 'a'), ('0', 'b')")
    assert shifting.logged("DELETE FROM t WHERE name = 'a'") == [(4, "id=-0", None, None, None)]


def test_partitioned_tables_stay_by_row_and_plan_reports_it(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TABLE t (id integer PRIMARY KEY DEFERRABLE, name text) PARTITION BY LIST (id)",
        "CREATE TABLE every PARTITION OF t DEFAULT",
    )
    (warning,) = empty.watch(WatchedTable("t")).warnings
    assert (
        "DEFERRABLE: an UPDATE is still logged row by row, since the table is partitioned"
        in warning
    )
    run(empty.conn, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    # The rows of the end state: what still stands is read back.
    assert empty.logged("UPDATE t SET id = id + 1") == [
        four(1),
        *fields(1, "id=2", ("name", None, "a")),
        six(2),
        *fields(1, "id=3", ("name", None, "b")),
    ]


def test_plan_shows_what_is_not_promised_and_what_comes_before(shifting: Watched) -> None:
    run(
        shifting.conn,
        "CREATE FUNCTION app() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER behind AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION app()",
    )
    key, order = shifting.plan(WatchedTable("t")).warnings
    assert "DEFERRABLE: an UPDATE is logged by statement" in key
    assert "two sessions' changes of one key may be sent in the wrong order" in key
    assert (
        "trigger behind of t fires for each row, before eventlog's trigger fires for the statement"
        in order
    )
