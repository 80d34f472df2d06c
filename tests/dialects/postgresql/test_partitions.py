"""Partitioned tables and inheritance, and what no trigger sees of them (spec/triggers.md 7.1)."""

from __future__ import annotations

import pytest
from shared import opened_log
from trigger_log import STYLES, Logged, Watched, catalogue, drop_triggers, fields, run

from eventlog.sql.dialects.postgresql import DIALECT
from eventlog.sql.triggers import triggers_of
from eventlog.sql.triggers.watch import Style, WatchedTable


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
        "CREATE TABLE note (region text, id integer, txt text, FOREIGN KEY (region, id) "
        "REFERENCES sale ON DELETE CASCADE ON UPDATE CASCADE, UNIQUE (region, id, txt))",
    )
    return empty


def test_writes_to_the_root_and_to_partitions_are_rows_of_the_root(sales: Watched) -> None:
    sales.watch(WatchedTable("sale"))
    for table in ("sale", "sale_n"):
        assert sales.logged(f"INSERT INTO {table} (region, id, amount) VALUES ('n', 1, 5)") == [
            (1, "region=n+id=1", "amount", None, "5")
        ]
        assert sales.logged(f"UPDATE {table} SET amount = 6") == [
            (2, "region=n+id=1", "amount", "5", "6")
        ]
        assert sales.logged(f"DELETE FROM {table}") == [(4, "region=n+id=1", None, None, None)]
    run(sales.conn, "INSERT INTO sale_s1 VALUES ('s', 1, 5)")
    assert {row.table_name for row in sales.rows()} == {"sale"}


@pytest.mark.parametrize("row_style", STYLES)
def test_a_row_that_moves_is_deleted_and_inserted(sales: Watched, row_style: Style) -> None:
    sales.watch(WatchedTable("sale", row_style))
    run(sales.conn, "INSERT INTO sale VALUES ('s', 1, 5)")
    first, *rest = sales.logged("UPDATE sale SET id = 11")
    assert first == (4, "region=s+id=1", None, None, None)
    assert [(row[0], row[1]) for row in rest] == [
        ({"field_query_back": 7, "row_query_back": 5}.get(row_style, 1), "region=s+id=11")
    ]


def test_values_of_a_row_that_moves_follow_it(sales: Watched) -> None:
    sales.watch(WatchedTable("sale"))
    run(sales.conn, "INSERT INTO sale VALUES ('s', 1, 5)", "INSERT INTO note VALUES ('s', 1, 'x')")
    assert sales.logged("UPDATE sale SET region = 'n'") == [
        (4, "region=s+id=1", None, None, None),
        *fields(1, "region=n+id=1", ("amount", None, "5")),
        (2, "region=n+id=1", "note.txt", None, "x"),
    ]
    assert sales.logged("DELETE FROM sale") == [(4, "region=n+id=1", None, None, None)]


def gone(*keys: str) -> list[Logged]:
    return [(4, key, None, None, None) for key in keys]


def test_partitions_that_come_later_are_captured_and_the_plan_names_them(sales: Watched) -> None:
    sales.watch(WatchedTable("sale"))
    run(
        sales.conn,
        "CREATE TABLE sale_w PARTITION OF sale FOR VALUES IN ('w')",
        "CREATE TABLE sale_e (region text NOT NULL, id integer NOT NULL, amount integer)",
        "INSERT INTO sale_e VALUES ('e', 1, 1)",
        "ALTER TABLE sale ATTACH PARTITION sale_e FOR VALUES IN ('e')",
    )
    assert sales.logged(
        "INSERT INTO sale_w VALUES ('w', 1, 1)", "UPDATE sale_e SET amount = 2"
    ) == [
        (1, "region=w+id=1", "amount", None, "1"),
        (2, "region=e+id=1", "amount", "1", "2"),
    ]
    assert sales.logged("SAVEPOINT s", "TRUNCATE sale CASCADE") == gone(
        "region=e+id=1", "region=w+id=1"
    )
    run(sales.conn, "ROLLBACK TO s")
    (change,) = sales.plan(WatchedTable("sale")).changes
    assert change.reason == "TRUNCATE of partitions sale_e, sale_w is not captured yet"
    # Nothing but the new partitions is locked; functions change their owner, if that, without a lock
    # of a table.
    *of_partitions, hand_over = change.statements
    assert all('"sale_e"' in statement or '"sale_w"' in statement for statement in of_partitions)
    assert hand_over.startswith("DO ")
    sales.watch(WatchedTable("sale"))
    assert sales.plan(WatchedTable("sale")).changes == ()
    assert sales.logged("TRUNCATE sale_e CASCADE") == gone("region=e+id=1")
    assert sales.logged("TRUNCATE sale CASCADE") == gone("region=w+id=1")
    drop_triggers(sales.conn, sales.log)
    assert sales.logged("INSERT INTO sale_w VALUES ('w', 2, 1)", "TRUNCATE sale_w CASCADE") == []


def test_truncate_of_the_root_or_of_a_partition_logs_every_row_once(sales: Watched) -> None:
    plan = sales.watch(WatchedTable("sale"))
    assert plan.not_captured[0].startswith(
        "sale: DETACH and DROP of a partition; for partitions that were created after "
    )
    rows = "INSERT INTO sale VALUES ('n', 1, 1), ('s', 1, 1), ('s', 12, 1)"
    n, s1, s2 = "region=n+id=1", "region=s+id=1", "region=s+id=12"
    for tables, keys in [
        ("sale", (n, s1, s2)),
        ("sale_n", (n,)),
        ("sale_s", (s1, s2)),
        ("sale_s2", (s2,)),
        ("sale, sale_n, sale_s1", (n, s1, s2)),
        ("sale_s, sale_s2", (s1, s2)),
    ]:
        run(sales.conn, "SAVEPOINT s", rows)
        assert sorted(sales.logged(f"TRUNCATE {tables} CASCADE")) == gone(*keys)
        run(sales.conn, "ROLLBACK TO s")
    # A partition whose trigger does not fire is logged by the next above it that has one.
    for statement in (
        "ALTER TABLE sale_s1 DISABLE TRIGGER ALL",
        "DROP TRIGGER _tgr_sale_s1_t_1 ON sale_s1",
    ):
        for tables, keys in [("sale", (n, s1, s2)), ("sale_s", (s1, s2)), ("sale_s1", ())]:
            run(sales.conn, "SAVEPOINT s", rows, statement)
            assert sorted(sales.logged(f"TRUNCATE {tables} CASCADE")) == gone(*keys)
            run(sales.conn, "ROLLBACK TO s")


def test_a_cascade_through_foreign_keys_of_partitions_is_captured(empty: Watched) -> None:
    # As in Pagila: the root has no foreign key, so that a cascade reaches the partitions and never
    # the root.
    run(
        empty.conn,
        "CREATE TABLE customer (id integer PRIMARY KEY, name text)",
        "CREATE TABLE payment (id integer, customer_id integer NOT NULL, paid date, PRIMARY KEY "
        "(paid, id)) PARTITION BY RANGE (paid)",
    )
    for month in (1, 2, 3):
        run(
            empty.conn,
            f"CREATE TABLE payment_{month} PARTITION OF payment FOR VALUES FROM "
            f"('2022-0{month}-01') TO ('2022-0{month + 1}-01')",
            f"ALTER TABLE payment_{month} ADD FOREIGN KEY (customer_id) REFERENCES customer",
        )
    empty.watch(WatchedTable("customer"), WatchedTable("payment"))
    run(
        empty.conn,
        "INSERT INTO customer VALUES (1, 'a')",
        "INSERT INTO payment SELECT n, 1, date '2022-01-01' + n FROM generate_series(1, 80, 30) "
        "AS n",
    )
    assert empty.logged("TRUNCATE customer CASCADE") == gone(
        "id=1", "paid=2022-01-02+id=1", "paid=2022-02-01+id=31", "paid=2022-03-03+id=61"
    )


def test_triggers_of_partitions_come_and_go_with_them(sales: Watched) -> None:
    run(sales.conn, "DROP TABLE note")
    before = catalogue(sales.conn)
    sales.watch(WatchedTable("sale"))
    installed = triggers_of(DIALECT).digests(opened_log(sales.conn, sales.log))
    assert set(installed) == {"public.sale"}
    run(
        sales.conn,
        "ALTER TABLE sale DETACH PARTITION sale_n",
        "INSERT INTO sale_n VALUES (1, 1, 'n')",
    )
    assert sales.logged("SAVEPOINT s", "TRUNCATE sale_n") == []
    run(sales.conn, "ROLLBACK TO s")
    (change,) = sales.plan(WatchedTable("sale")).changes
    assert (change.kind, change.table, change.statements) == (
        "drop", "public.sale_n", ('DROP TRIGGER "_tgr_sale_n_t_1" ON "public"."sale_n"',)
    )  # fmt: skip
    assert triggers_of(DIALECT).digests(opened_log(sales.conn, sales.log)) == installed
    # Left there or taken away, it is not an obstacle to the partition's coming back.
    run(sales.conn, "SAVEPOINT s")
    sales.watch(WatchedTable("sale"))
    for _ in range(2):
        run(sales.conn, "ALTER TABLE sale ATTACH PARTITION sale_n FOR VALUES IN ('n')")
        sales.watch(WatchedTable("sale"))
        assert sales.plan(WatchedTable("sale")).changes == ()
        assert sales.logged("TRUNCATE sale_n CASCADE") == gone("region=n+id=1")
        run(sales.conn, "ROLLBACK TO s")
    run(sales.conn, "DROP TABLE sale_s2")
    assert [one.table for one in sales.plan(WatchedTable("sale")).changes] == ["public.sale_n"]
    run(sales.conn, "ROLLBACK TO s", "ALTER TABLE sale ATTACH PARTITION sale_n FOR VALUES IN ('n')")
    drop_triggers(sales.conn, sales.log)
    assert [row for row in catalogue(sales.conn) if row[0] != "trigger"] == [
        r for r in before if r[0] != "trigger"
    ]
    left = sales.conn.exec_driver_sql("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal").all()
    assert left == []


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (
            "ALTER TABLE sale_n DISABLE TRIGGER _tgr_sale_n_t_1",
            "trigger _tgr_sale_n_t_1 of partition sale_n is disabled",
        ),
        (
            "ALTER TABLE sale_n ENABLE ALWAYS TRIGGER _tgr_sale_n_t_1",
            "trigger _tgr_sale_n_t_1 of partition sale_n was changed by hand",
        ),
        (
            "CREATE TRIGGER more BEFORE TRUNCATE ON sale_n EXECUTE FUNCTION proc_sale_1()",
            "trigger more of partition sale_n is superfluous",
        ),
        (
            "DROP TRIGGER _tgr_sale_n_t_1 ON sale_n",
            "TRUNCATE of partition sale_n is not captured yet",
        ),
        (
            "COMMENT ON FUNCTION proc_sale_1() IS 'eventlog sha256:"
            + "0" * 64
            + ' log "log"."eventlog"\'',
            "the watch, its table or the templates have changed",
        ),
    ],
)
def test_what_is_otherwise_on_a_partition_is_brought_back(
    sales: Watched, statement: str, reason: str
) -> None:
    sales.watch(WatchedTable("sale"))
    before = [row[2] for row in catalogue(sales.conn)]
    run(sales.conn, statement)
    (change,) = sales.watch(WatchedTable("sale")).changes
    assert (change.kind, change.table, change.reason) == ("replace", "public.sale", reason)
    assert sales.plan(WatchedTable("sale")).changes == ()
    assert sorted(map(str, before)) == sorted(str(row[2]) for row in catalogue(sales.conn))


def test_triggers_of_before_are_replaced_with_those_of_partitions(sales: Watched) -> None:
    sales.watch(WatchedTable("sale"))
    run(
        sales.conn,
        *(
            f"DROP TRIGGER _tgr_{name}_t_1 ON {name}"
            for name in ("sale_n", "sale_s", "sale_s1", "sale_s2")
        ),
        "CREATE OR REPLACE FUNCTION proc_sale_1() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN "
        "RETURN NULL; END'",
        "COMMENT ON FUNCTION proc_sale_1() IS 'eventlog sha256:"
        + "0" * 64
        + ' log "log"."eventlog"\'',
    )
    (change,) = sales.plan(WatchedTable("sale")).changes
    assert (change.kind, change.table) == ("replace", "public.sale")
    sales.watch(WatchedTable("sale"))
    assert sales.plan(WatchedTable("sale")).changes == ()
    run(sales.conn, "INSERT INTO sale VALUES ('n', 1, 1)")
    assert sales.logged("TRUNCATE sale_n CASCADE") == gone("region=n+id=1")


def test_a_script_and_a_migration_make_the_triggers_of_the_partitions_that_are_there(
    sales: Watched,
) -> None:
    run(
        sales.conn,
        f"CREATE TABLE \"{'d' * 54}ä\" PARTITION OF sale FOR VALUES IN ('long')",
        f'CREATE TABLE "a\'""%ä{"ü" * 27}" PARTITION OF sale FOR VALUES IN (\'odd\')',
        "CREATE FUNCTION app() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER _tgr_sale_n_t_1 BEFORE TRUNCATE ON sale_n EXECUTE FUNCTION app()",
        "INSERT INTO sale VALUES ('n', 1, 1), ('odd', 1, 1)",
    )
    database = DIALECT.open(sales.conn).reflect(None)
    before = catalogue(sales.conn)
    for capture_replicated in (False, True):
        run(sales.conn, "SAVEPOINT s")
        watches = (WatchedTable("sale", capture_replicated=capture_replicated),)
        made = triggers_of(DIALECT).compile(database, sales.catalog("sale"), sales.log, watches)
        run(sales.conn, *(statement for one in made for statement in one.create))
        assert sales.plan(*watches).changes == ()
        assert triggers_of(DIALECT).digests(opened_log(sales.conn, sales.log)) == {
            one.table: one.digest for one in made
        }
        run(sales.conn, "SAVEPOINT t")
        assert sales.logged("TRUNCATE sale_n CASCADE") == gone("region=n+id=1")
        run(sales.conn, "ROLLBACK TO t", *(statement for one in made for statement in one.drop))
        assert catalogue(sales.conn) == before
        run(sales.conn, "ROLLBACK TO s")


def test_partitions_of_another_role_are_warned_of_and_the_root_still_logs_their_rows(
    usr: Watched, writer: str
) -> None:
    sales = usr
    run(
        sales.conn,
        "CREATE SCHEMA own",
        "CREATE TABLE own.sale (region text, id integer, PRIMARY KEY (region, id)) PARTITION BY "
        "LIST (region)",
        "CREATE TABLE own.sale_n PARTITION OF own.sale FOR VALUES IN ('n')",
        "CREATE TABLE own.sale_s PARTITION OF own.sale FOR VALUES IN ('s')",
        f"GRANT ALL ON SCHEMA own TO {writer}",
        f"GRANT USAGE ON SCHEMA log TO {writer}",
        f"GRANT INSERT ON log.eventlog TO {writer}",
        f"ALTER TABLE own.sale OWNER TO {writer}",
        f"ALTER TABLE own.sale_n OWNER TO {writer}",
        # Without it the root's own triggers are refused.
        f"GRANT TRIGGER ON own.sale_s TO {writer}",
        # The function of the root reads the keys of a partition that is truncated.
        f"GRANT SELECT ON own.sale_s TO {writer}",
        "INSERT INTO own.sale VALUES ('n', 1), ('s', 1)",
        "SET search_path = own",
        f"SET SESSION AUTHORIZATION {writer}",
    )
    (warning,) = sales.watch(WatchedTable("sale")).warnings
    assert warning.startswith("TRUNCATE of partition own.sale_s of sale is not captured: the role")
    assert sales.plan(WatchedTable("sale")).changes == ()
    run(sales.conn, "RESET SESSION AUTHORIZATION", "SAVEPOINT s")
    assert sales.logged("TRUNCATE own.sale_s") == []
    run(sales.conn, "ROLLBACK TO s")
    assert sorted(sales.logged("TRUNCATE own.sale")) == gone("region=n+id=1", "region=s+id=1")
    # Who may makes it; and who may not leaves it alone.
    run(sales.conn, f"GRANT {writer} TO CURRENT_USER")
    assert sales.watch(WatchedTable("sale")).changes
    run(sales.conn, f"SET SESSION AUTHORIZATION {writer}")
    plan = sales.plan(WatchedTable("sale"))
    assert (plan.changes, plan.warnings) == ((), ())
    run(sales.conn, "RESET SESSION AUTHORIZATION")


def test_a_row_of_another_partition_that_has_the_key_keeps_the_object(sales: Watched) -> None:
    run(
        sales.conn,
        "CREATE TABLE usr (id integer PRIMARY KEY, name text)",
        "CREATE TABLE member (id integer, team integer, PRIMARY KEY (id, team)) PARTITION BY LIST "
        "(team)",
        "CREATE TABLE member_1 PARTITION OF member FOR VALUES IN (1)",
        "CREATE TABLE member_2 PARTITION OF member FOR VALUES IN (2)",
        "CREATE VIEW view_usr AS SELECT u.id AS pk_id, u.name AS sv_name FROM usr u WHERE EXISTS"
        " (SELECT FROM member m WHERE m.id = u.id)",
        "INSERT INTO usr VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO member VALUES (1, 1), (1, 2), (2, 1)",
    )
    base = {"usr": {"id": "pk_id", "name": "sv_name"}, "member": {"id": "pk_id"}}
    sales.watch(WatchedTable("view_usr", "row_query_back", base=base))
    back = (5, "pk_id=1", None, None, None)
    assert sorted(sales.logged("TRUNCATE member_1")) == [*gone("pk_id=1", "pk_id=2"), back]
    assert sales.logged("TRUNCATE member") == gone("pk_id=1")


def test_a_child_table_may_be_partitioned_too(sales: Watched) -> None:
    run(
        sales.conn,
        "CREATE TABLE tag (region text, id integer, tag text, FOREIGN KEY (region, id) REFERENCES "
        "sale, UNIQUE (region, id, tag)) PARTITION BY LIST (region)",
        "CREATE TABLE tag_any PARTITION OF tag DEFAULT",
    )
    sales.watch(WatchedTable("sale"))
    run(sales.conn, "INSERT INTO sale VALUES ('n', 1, 1)")
    assert sales.logged(
        "INSERT INTO tag VALUES ('n', 1, 'a')", "UPDATE tag_any SET tag = 'b'", "DELETE FROM tag"
    ) == [
        (2, "region=n+id=1", "tag.tag", None, "a"),
        (2, "region=n+id=1", "tag.tag", "a", "b"),
        (2, "region=n+id=1", "tag.tag", "b", None),
    ]
    run(sales.conn, "INSERT INTO tag VALUES ('n', 1, 'a'), ('n', 1, 'b')")
    for table in ("tag", "tag_any"):
        assert sales.logged("SAVEPOINT s", f"TRUNCATE {table}") == [
            (8, "region=n+id=1", "tag.tag", None, None)
        ]
        run(sales.conn, "ROLLBACK TO s")


def test_a_partitioned_base_table_of_a_view(sales: Watched) -> None:
    run(
        sales.conn,
        "CREATE VIEW view_sale AS SELECT region AS pk_region, id AS pk_id, amount AS sv_amount "
        "FROM sale",
    )
    base = {"sale": {"id": "pk_id", "region": "pk_region", "amount": "sv_amount"}}
    sales.watch(WatchedTable("view_sale", base=base))
    run(sales.conn, "INSERT INTO sale VALUES ('s', 1, 5)")
    assert sales.logged("UPDATE sale SET region = 'n'") == [
        (4, "pk_region=s+pk_id=1", None, None, None),
        (1, "pk_region=n+pk_id=1", "sv_amount", None, "5"),
    ]


def test_a_replication_apply_worker_is_captured_on_partitions_with_always(sales: Watched) -> None:
    sales.watch(WatchedTable("sale", capture_replicated=True))
    run(sales.conn, "CREATE TABLE sale_w PARTITION OF sale FOR VALUES IN ('w')")
    run(sales.conn, "SET session_replication_role = replica")
    rows = sales.logged("INSERT INTO sale VALUES ('n', 1, 1), ('w', 1, 1)")
    assert sorted(sales.logged("TRUNCATE sale CASCADE")) == gone("region=n+id=1", "region=w+id=1")
    run(sales.conn, "SET session_replication_role = origin")
    assert [row[1] for row in rows] == ["region=n+id=1", "region=w+id=1"]


def test_rows_of_tables_that_inherit_are_no_objects(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TABLE base (k integer PRIMARY KEY, v text)",
        "CREATE TABLE heir () INHERITS (base)",
    )
    plan = empty.watch(WatchedTable("base"))
    assert plan.not_captured[0] == "base: writes to the tables that inherit from it"
    run(empty.conn, "INSERT INTO heir VALUES (1, 'x')")
    assert empty.logged("UPDATE base SET v = 'y'", "TRUNCATE base") == []


def test_a_partition_of_a_table_with_two_functions_is_replaced_once(sales: Watched) -> None:
    view = (
        "CREATE VIEW sold AS SELECT region AS pk_region, id AS pk_id, amount AS sv_amount FROM sale"
    )
    run(sales.conn, view)
    base = {"sale": {"region": "pk_region", "id": "pk_id", "amount": "sv_amount"}}
    watches = (WatchedTable("sale"), WatchedTable("sold", base=base))
    sales.watch(*watches)
    run(sales.conn, "DROP TRIGGER _tgr_sale_i_1 ON sale")
    (change,) = sales.watch(*watches).changes
    assert change.kind == "replace"
    assert len(change.statements) == len(set(change.statements))
    assert sales.plan(*watches).changes == ()
