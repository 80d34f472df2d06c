"""Partitioned tables and inheritance, and what no trigger sees of them (spec/triggers.md 7.1)."""

from __future__ import annotations

import pytest
from watched import STYLES, Watched, fields, run

from eventlog.sql.dialects.postgresql import triggers
from eventlog.sql.watches import Style, Watch


@pytest.fixture
def sales(empty: Watched) -> Watched:
    run(
        empty.conn,
        "CREATE TABLE sale (region text, id integer, amount integer, PRIMARY KEY (region, id))"
        " PARTITION BY LIST (region)",
        # Columns in another order, and partitions of partitions.
        "CREATE TABLE sale_n (amount integer, id integer NOT NULL, region text NOT NULL)",
        "ALTER TABLE sale ATTACH PARTITION sale_n FOR VALUES IN ('n')",
        "CREATE TABLE sale_s PARTITION OF sale FOR VALUES IN ('s') PARTITION BY RANGE (id)",
        "CREATE TABLE sale_s1 PARTITION OF sale_s FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE sale_s2 PARTITION OF sale_s FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE note (region text, id integer, txt text, FOREIGN KEY (region, id) REFERENCES sale"
        " ON DELETE CASCADE ON UPDATE CASCADE, UNIQUE (region, id, txt))",
    )
    return empty


def test_writes_to_the_root_and_to_partitions_are_rows_of_the_root(sales: Watched) -> None:
    sales.watch(Watch("sale"))
    for table in ("sale", "sale_n"):
        assert sales.logged(f"INSERT INTO {table} (region, id, amount) VALUES ('n', 1, 5)") == [
            (1, "region=n+id=1", "amount", None, "5")
        ]
        assert sales.logged(f"UPDATE {table} SET amount = 6") == [(2, "region=n+id=1", "amount", "5", "6")]
        assert sales.logged(f"DELETE FROM {table}") == [(4, "region=n+id=1", None, None, None)]
    run(sales.conn, "INSERT INTO sale_s1 VALUES ('s', 1, 5)")
    assert {row.table_name for row in sales.rows()} == {"sale"}


@pytest.mark.parametrize("style", STYLES)
def test_a_row_that_moves_is_deleted_and_inserted(sales: Watched, style: Style) -> None:
    sales.watch(Watch("sale", style))
    run(sales.conn, "INSERT INTO sale VALUES ('s', 1, 5)")
    first, *rest = sales.logged("UPDATE sale SET id = 11")
    assert first == (4, "region=s+id=1", None, None, None)
    assert [(row[0], row[1]) for row in rest] == [
        ({"field_query_back": 7, "row_query_back": 5}.get(style, 1), "region=s+id=11")
    ]


def test_values_of_a_row_that_moves_follow_it(sales: Watched) -> None:
    sales.watch(Watch("sale"))
    run(sales.conn, "INSERT INTO sale VALUES ('s', 1, 5)", "INSERT INTO note VALUES ('s', 1, 'x')")
    assert sales.logged("UPDATE sale SET region = 'n'") == [
        (4, "region=s+id=1", None, None, None),
        *fields(1, "region=n+id=1", ("amount", None, "5")),
        (2, "region=n+id=1", "note.txt", None, "x"),
    ]
    assert sales.logged("DELETE FROM sale") == [(4, "region=n+id=1", None, None, None)]


def test_partitions_that_come_later_are_captured_and_change_no_plan(sales: Watched) -> None:
    sales.watch(Watch("sale"))
    run(
        sales.conn,
        "CREATE TABLE sale_w PARTITION OF sale FOR VALUES IN ('w')",
        "CREATE TABLE sale_e (region text NOT NULL, id integer NOT NULL, amount integer)",
        "INSERT INTO sale_e VALUES ('e', 1, 1)",
        "ALTER TABLE sale ATTACH PARTITION sale_e FOR VALUES IN ('e')",
    )
    assert sales.plan(Watch("sale")).changes == ()
    assert sales.logged("INSERT INTO sale_w VALUES ('w', 1, 1)", "UPDATE sale_e SET amount = 2") == [
        (1, "region=w+id=1", "amount", None, "1"),
        (2, "region=e+id=1", "amount", "1", "2"),
    ]
    triggers.drop(sales.conn, sales.log)
    assert sales.logged("INSERT INTO sale_w VALUES ('w', 2, 1)") == []


def test_truncate_of_the_root_logs_every_row_and_of_a_partition_none(sales: Watched) -> None:
    plan = sales.watch(Watch("sale"))
    run(sales.conn, "INSERT INTO sale VALUES ('n', 1, 1), ('s', 1, 1), ('s', 12, 1)")
    assert sales.logged("TRUNCATE sale_n CASCADE") == []
    assert sales.logged("TRUNCATE sale CASCADE") == [
        (4, "region=s+id=1", None, None, None),
        (4, "region=s+id=12", None, None, None),
    ]
    assert plan.not_captured[0].startswith("sale: TRUNCATE of a single partition, DETACH and DROP of a partition")


def test_a_child_table_may_be_partitioned_too(sales: Watched) -> None:
    run(
        sales.conn,
        "CREATE TABLE tag (region text, id integer, tag text, FOREIGN KEY (region, id) REFERENCES sale,"
        " UNIQUE (region, id, tag)) PARTITION BY LIST (region)",
        "CREATE TABLE tag_any PARTITION OF tag DEFAULT",
    )
    sales.watch(Watch("sale"))
    run(sales.conn, "INSERT INTO sale VALUES ('n', 1, 1)")
    assert sales.logged("INSERT INTO tag VALUES ('n', 1, 'a')", "UPDATE tag_any SET tag = 'b'", "DELETE FROM tag") == [
        (2, "region=n+id=1", "tag.tag", None, "a"),
        (2, "region=n+id=1", "tag.tag", "a", "b"),
        (2, "region=n+id=1", "tag.tag", "b", None),
    ]


def test_a_partitioned_base_table_of_a_view(sales: Watched) -> None:
    run(
        sales.conn,
        "CREATE VIEW view_sale AS SELECT region AS pk_region, id AS pk_id, amount AS sv_amount FROM sale",
    )
    base = {"sale": {"id": "pk_id", "region": "pk_region", "amount": "sv_amount"}}
    sales.watch(Watch("view_sale", base=base))
    run(sales.conn, "INSERT INTO sale VALUES ('s', 1, 5)")
    assert sales.logged("UPDATE sale SET region = 'n'") == [
        (4, "pk_region=s+pk_id=1", None, None, None),
        (1, "pk_region=n+pk_id=1", "sv_amount", None, "5"),
    ]


def test_a_replication_apply_worker_is_captured_on_partitions_with_always(sales: Watched) -> None:
    sales.watch(Watch("sale", always=True))
    run(sales.conn, "CREATE TABLE sale_w PARTITION OF sale FOR VALUES IN ('w')")
    assert sales.plan(Watch("sale", always=True)).changes == ()
    run(sales.conn, "SET session_replication_role = replica")
    rows = sales.logged("INSERT INTO sale VALUES ('n', 1, 1), ('w', 1, 1)")
    run(sales.conn, "SET session_replication_role = origin")
    assert [row[1] for row in rows] == ["region=n+id=1", "region=w+id=1"]


def test_rows_of_tables_that_inherit_are_no_objects(empty: Watched) -> None:
    run(empty.conn, "CREATE TABLE base (k integer PRIMARY KEY, v text)", "CREATE TABLE heir () INHERITS (base)")
    plan = empty.watch(Watch("base"))
    assert plan.not_captured[0] == "base: writes to the tables that inherit from it"
    run(empty.conn, "INSERT INTO heir VALUES (1, 'x')")
    assert empty.logged("UPDATE base SET v = 'y'", "TRUNCATE base") == []
