"""What statements of PostgreSQL log beyond what all databases do (spec/triggers.md 2, 7.1)."""

from __future__ import annotations

import pytest
from trigger_log import JACK, LOG, PHONE, STYLES, Watched, drop_triggers, run

from eventlog.sql.triggers.watch import Style, WatchedTable


@pytest.mark.parametrize("row_style", STYLES)
def test_delete_and_truncate(usr: Watched, row_style: Style) -> None:
    usr.watch(WatchedTable("usr", row_style))
    run(usr.conn, JACK, "INSERT INTO usr (idu) VALUES (2), (3)")
    assert usr.logged("DELETE FROM usr WHERE idu = 1") == [(4, "idu=1", None, None, None)]
    assert usr.logged("TRUNCATE usr CASCADE") == [
        (4, f"idu={key}", None, None, None) for key in (2, 3)
    ]
    assert usr.logged("TRUNCATE usr CASCADE") == []


def test_the_other_fields_of_a_row(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"))
    before = usr.conn.exec_driver_sql("SELECT clock_timestamp() AT TIME ZONE 'UTC'").scalar_one()
    run(usr.conn, "SET TimeZone = 'Asia/Tokyo'", JACK, "INSERT INTO usr_phone VALUES (1, '555-1')")
    after = usr.conn.exec_driver_sql("SELECT clock_timestamp() AT TIME ZONE 'UTC'").scalar_one()
    rows = usr.rows()
    assert [row.table_name for row in rows] == ["usr"] * 3
    assert {row.status for row in rows} == {"N"}
    assert {row.perpetrator for row in rows} == {
        usr.conn.exec_driver_sql("SELECT session_user").scalar_one()
    }
    assert all(before <= row.event_time <= after for row in rows)


def test_upserts_merges_and_copies_are_captured(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"))
    upsert = (
        "INSERT INTO usr VALUES (1, '{}') ON CONFLICT (idu) DO UPDATE SET fname = excluded.fname"
    )
    assert usr.logged(upsert.format("Jack")) == [(1, "idu=1", "fname", None, "Jack")]
    assert usr.logged(upsert.format("John")) == [(2, "idu=1", "fname", "Jack", "John")]
    assert usr.logged("INSERT INTO usr VALUES (1) ON CONFLICT DO NOTHING") == []
    cursor = usr.conn.connection.cursor()
    with cursor.copy("COPY usr (idu, fname) FROM STDIN") as copy:
        copy.write("7\tx\n")
    assert [(row.event_type, row.table_key) for row in usr.rows()] == [(1, "idu=7")]
    merge = (
        "MERGE INTO usr USING (VALUES (1, 'Max'), (9, 'New')) AS v (k, n) ON idu = k WHEN MATCHED "
        "THEN UPDATE SET fname = n WHEN NOT MATCHED THEN INSERT (idu, fname) VALUES (k, n)"
    )
    assert usr.logged(merge) == [
        (2, "idu=1", "fname", "John", "Max"),
        (1, "idu=9", "fname", None, "New"),
    ]


def test_a_child_row_may_come_before_its_owner(usr: Watched) -> None:
    run(
        usr.conn,
        "ALTER TABLE usr_phone ALTER CONSTRAINT usr_phone_idu_fkey DEFERRABLE INITIALLY DEFERRED",
    )
    usr.watch(WatchedTable("usr"))
    assert usr.logged("INSERT INTO usr_phone VALUES (1, 'a')", "INSERT INTO usr VALUES (1)") == [
        (2, "idu=1", PHONE, None, "a"),
        (1, "idu=1", "fname", None, None),
    ]


def test_a_composite_owner_and_types_that_differ(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TABLE acc (branch char(6), num integer, n numeric, PRIMARY KEY (num, branch, n))",
        "CREATE TABLE acc_tag (tag text, b varchar(9), amount numeric, num bigint, FOREIGN KEY "
        "(b, num, amount) REFERENCES acc (branch, num, n), PRIMARY KEY (b, num, amount, tag))",
    )
    empty.watch(WatchedTable("acc"))
    run(empty.conn, "INSERT INTO acc VALUES ('N+W', 7, 1.50)")
    key = 'num=7+branch="N+W"+n=1.5'
    assert empty.logged("INSERT INTO acc_tag VALUES ('x', 'N+W', 1.500, 7)") == [
        (2, key, "acc_tag.tag", None, "x")
    ]
    assert empty.logged("UPDATE acc_tag SET amount = 1.5") == []
    assert empty.logged("DELETE FROM acc_tag") == [(2, key, "acc_tag.tag", "x", None)]


def test_equal_keys_of_other_spelling_mean_the_owner_as_it_is_spelled(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TABLE f (k double precision PRIMARY KEY, v text)",
        "CREATE TABLE f_tag (k double precision REFERENCES f ON DELETE CASCADE, tag text, UNIQUE "
        "(k, tag))",
    )
    empty.watch(WatchedTable("f"))
    run(empty.conn, "INSERT INTO f VALUES ('-0'), (1)")
    assert empty.logged("INSERT INTO f_tag VALUES ('0', 'x')") == [
        (2, "k=-0", "f_tag.tag", None, "x")
    ]
    assert empty.logged("UPDATE f_tag SET k = '-0'") == []
    assert empty.logged("UPDATE f_tag SET k = 1") == [
        (2, "k=-0", "f_tag.tag", "x", None),
        (2, "k=1", "f_tag.tag", None, "x"),
    ]
    assert empty.logged("DELETE FROM f WHERE k = 1") == [(4, "k=1", None, None, None)]


def test_rows_of_partitions_are_rows_of_their_root(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TABLE p (k integer, v text, PRIMARY KEY (k)) PARTITION BY RANGE (k)",
        "CREATE TABLE low (v text, k integer NOT NULL)",
        "ALTER TABLE p ATTACH PARTITION low FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE tag (k integer REFERENCES p ON DELETE CASCADE, tag text, UNIQUE (k, tag))",
    )
    empty.watch(WatchedTable("p"))
    run(empty.conn, "CREATE TABLE high PARTITION OF p FOR VALUES FROM (10) TO (20)")
    assert [action.reason for action in empty.plan(WatchedTable("p")).changes] == [
        "TRUNCATE of partition high is not captured yet"
    ]
    assert empty.logged("INSERT INTO p VALUES (1, 'x')") == [(1, "k=1", "v", None, "x")]
    assert empty.logged("UPDATE low SET v = 'y'", "UPDATE low SET v = v") == [
        (2, "k=1", "v", "x", "y")
    ]
    assert empty.logged("UPDATE p SET k = 11") == [
        (4, "k=1", None, None, None),
        (1, "k=11", "v", None, "y"),
    ]
    assert empty.logged("INSERT INTO tag VALUES (11, 'a')", "DELETE FROM tag")[1] == (
        2,
        "k=11",
        "tag.tag",
        "a",
        None,
    )
    assert empty.logged("TRUNCATE p CASCADE") == [(4, "k=11", None, None, None)]
    drop_triggers(empty.conn, LOG)
    assert empty.logged("INSERT INTO p VALUES (1, 'x')") == []
