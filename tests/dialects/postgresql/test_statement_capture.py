"""``trigger_level = "statement"`` logs the same rows as ``row`` does (spec/triggers.md 7.1)."""

from __future__ import annotations

import pytest
from test_statements import (  # noqa: F401 - tests that hold for both kinds of capture
    test_a_child_row_may_come_before_its_owner,
    test_a_composite_owner_and_types_that_differ,
    test_delete_and_truncate,
    test_equal_keys_of_other_spelling_mean_the_owner_as_it_is_spelled,
    test_the_other_fields_of_a_row,
    test_upserts_merges_and_copies_are_captured,
)
from test_trigger_identifiers import (  # noqa: F401 - tests that hold for both kinds of capture
    test_any_identifier_is_a_name_and_nothing_else,
)
from test_trigger_keys import (  # noqa: F401 - tests that hold for both kinds of capture
    test_a_change_is_a_change_of_bytes,
    test_a_type_with_its_own_equality_is_compared_by_it_and_logged_by_bytes,
    test_every_text_is_a_canonical_key,
    test_keys_of_every_type_are_canonical,
    test_text_of_a_coarse_collation_is_compared_and_quoted_by_bytes,
    test_the_key_has_changed_if_its_text_has,
)
from test_trigger_plan import (  # noqa: F401 - tests that hold for both kinds of capture
    test_applying_twice_changes_nothing,
    test_drop_leaves_the_catalogue_as_it_was,
)
from test_trigger_rights import (  # noqa: F401 - tests that hold for both kinds of capture
    test_hostile_functions_and_operators_are_not_called,
)
from test_trigger_values import (  # noqa: F401 - tests that hold for both kinds of capture
    test_a_column_more_is_noticed_and_one_less_too,
    test_columns_that_are_excluded_are_not_even_looked_at,
    test_generated_columns_are_logged_if_they_are_stored,
    test_values_are_one_text_whatever_the_session,
)
from trigger_log import PHONE, STYLES, Logged, Watched, fields, run

from eventlog.errors import TriggerError
from eventlog.sql.triggers.watch import Style, WatchedTable


@pytest.fixture
def empty(empty: Watched) -> Watched:
    return Watched(empty.conn, trigger_level="statement")


@pytest.fixture
def usr(usr: Watched) -> Watched:
    return Watched(usr.conn, trigger_level="statement")


# --- order ----------------------------------------------------------------------------------------


def test_the_rows_of_an_object_stand_together_and_objects_in_the_order_of_the_statement(
    usr: Watched,
) -> None:
    usr.watch(WatchedTable("usr"))
    assert usr.logged("INSERT INTO usr VALUES (2, 'b', 'B'), (1, 'a', 'A')") == [
        *fields(1, "idu=2", ("fname", None, "b"), ("lname", None, "B")),
        *fields(1, "idu=1", ("fname", None, "a"), ("lname", None, "A")),
    ]
    assert usr.logged("INSERT INTO usr_phone VALUES (2, 'x'), (1, 'x'), (2, 'y'), (1, 'y')") == [
        (2, key, PHONE, None, value) for key in ("idu=2", "idu=1") for value in ("x", "y")
    ]
    assert usr.logged("UPDATE usr_phone SET phoneno = phoneno || '+'") == [
        (2, key, PHONE, value, value + "+") for key in ("idu=2", "idu=1") for value in ("x", "y")
    ]
    assert usr.logged("DELETE FROM usr_phone") == [
        (2, key, PHONE, value, None) for key in ("idu=2", "idu=1") for value in ("x+", "y+")
    ]


@pytest.mark.parametrize(
    ("row_style", "changed", "new"),
    [
        (
            "field",
            fields(2, "idu=2", ("fname", "b", "a")),
            fields(1, "idu=3", ("fname", None, "b")),
        ),
        (
            "remove_all",
            fields(3, "idu=2", ("fname", "b", "a")),
            fields(1, "idu=3", ("fname", None, "b")),
        ),
        (
            "field_query_back",
            fields(8, "idu=2", ("fname", None, None)),
            fields(7, "idu=3", ("fname", None, None)),
        ),
        ("row_query_back", [(6, "idu=2", None, None, None)], [(5, "idu=3", None, None, None)]),
    ],
)
def test_a_key_that_a_statement_frees_and_takes_again_is_one_object_that_changed(
    usr: Watched, row_style: Style, changed: list[Logged], new: list[Logged]
) -> None:
    usr.watch(WatchedTable("usr", row_style))
    # In this order no row meets the old key of another, so that no check fails.
    run(usr.conn, "INSERT INTO usr VALUES (2, 'b'), (1, 'a')")
    assert usr.logged("UPDATE usr SET idu = idu + 1") == [
        (4, "idu=1", None, None, None),
        *new,
        *changed,
    ]


def test_type_4_rows_stand_before_all_others(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"))
    run(usr.conn, "INSERT INTO usr VALUES (1, 'a'), (2, 'b')")
    assert usr.logged("UPDATE usr SET idu = idu + 10") == [
        (4, "idu=1", None, None, None),
        (4, "idu=2", None, None, None),
        (1, "idu=11", "fname", None, "a"),
        (1, "idu=12", "fname", None, "b"),
    ]


def test_what_follows_a_changed_key_is_logged_after_the_new_object(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"))
    run(
        usr.conn,
        "INSERT INTO usr VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO usr_phone VALUES (1, 'x')",
    )
    assert usr.logged("UPDATE usr SET idu = idu + 10") == [
        (4, "idu=1", None, None, None),
        (4, "idu=2", None, None, None),
        (1, "idu=11", "fname", None, "a"),
        (1, "idu=12", "fname", None, "b"),
        (2, "idu=11", PHONE, None, "x"),
    ]


def test_a_merge_that_deletes_and_inserts_one_key_leaves_the_object(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"))
    run(usr.conn, "INSERT INTO usr VALUES (1, 'old')", "INSERT INTO usr_phone VALUES (1, 'x')")
    merge = (
        "MERGE INTO {t} USING (VALUES (1, 'x', 1), (1, 'x', 2)) AS v (k, n, w) ON idu = k AND w = 1"
        " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (idu, {c}) VALUES (k, n)"
    )
    assert usr.logged(merge.format(t="usr_phone", c="phoneno")) == [
        (2, "idu=1", PHONE, "x", None),
        (2, "idu=1", PHONE, None, "x"),
    ]
    run(usr.conn, "DELETE FROM usr_phone")
    assert usr.logged(merge.format(t="usr", c="fname")) == [
        (4, "idu=1", None, None, None),
        (1, "idu=1", "fname", None, "x"),
    ]


def test_a_row_that_is_deleted_and_inserted_in_one_statement_is_there(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"))
    run(usr.conn, "INSERT INTO usr VALUES (1, 'old')")
    moved = (
        "WITH gone AS (DELETE FROM usr RETURNING idu) INSERT INTO usr SELECT idu, 'new' FROM gone"
    )
    assert usr.logged(moved) == [(4, "idu=1", None, None, None), (1, "idu=1", "fname", None, "new")]


def test_a_statement_without_rows_logs_nothing(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"))
    assert (
        usr.logged(
            "UPDATE usr SET fname = 'x'", "DELETE FROM usr", "INSERT INTO usr SELECT 1 WHERE false"
        )
        == []
    )


def test_columns_may_have_the_names_that_the_functions_use(empty: Watched) -> None:
    names = (
        "k",
        "r",
        "c",
        "o",
        "n",
        "t",
        "d",
        "q1",
        "c1",
        "x",
        "s",
        "event_time",
        "perpetrator",
        "new_rows",
        "w",
    )
    run(
        empty.conn,
        "CREATE TABLE t (x integer PRIMARY KEY, "
        f"{', '.join(f'{n} text' for n in names if n != 'x')})",
    )
    run(
        empty.conn,
        "CREATE TABLE o (r integer REFERENCES t ON DELETE CASCADE, event_time text, UNIQUE (r, "
        "event_time))",
    )
    for row_style in STYLES:
        empty.watch(WatchedTable("t", row_style))
        assert len(empty.logged("INSERT INTO t (x, k) VALUES (1, 'a')")) == 1
        assert len(empty.logged("UPDATE t SET event_time = 'b', x = 2")) == (
            2 if row_style == "row_query_back" else 3
        )
        assert (
            len(
                empty.logged(
                    "INSERT INTO o VALUES (2, 'a')",
                    "UPDATE o SET event_time = 'b'",
                    "DELETE FROM o",
                )
            )
            == 3
        )
        assert len(empty.logged("DELETE FROM t")) == 1


# --- plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row_style", ["field", "row_query_back"])
def test_a_plan_that_was_made_for_one_row_serves_many(empty: Watched, row_style: Style) -> None:
    run(
        empty.conn,
        "CREATE TABLE t (k integer PRIMARY KEY, v text)",
        "CREATE TABLE tag (k integer REFERENCES t ON DELETE CASCADE ON UPDATE CASCADE, v text, "
        "UNIQUE (k, v))",
        "INSERT INTO t VALUES (0, 'x')",
        "INSERT INTO tag VALUES (0, 'x')",
        "ANALYZE",
    )
    empty.watch(WatchedTable("t", row_style))
    # Nested loops or sequential look-ups would take minutes.
    run(empty.conn, "SET statement_timeout = '15s'")
    changes = (
        "INSERT INTO t SELECT g, 'x' FROM generate_series({first}, {last}) AS g",
        "INSERT INTO tag SELECT g, 'x' FROM generate_series({first}, {last}) AS g",
        "UPDATE tag SET v = 'y' WHERE k BETWEEN {first} AND {last}",
        "UPDATE t SET v = 'y' WHERE k BETWEEN {first} AND {last}",
        "DELETE FROM tag WHERE k BETWEEN {first} AND {last}",
        "DELETE FROM t WHERE k BETWEEN {first} AND {last}",
    )
    for first, last in ((1, 1), (1, 10000)):
        rows = empty.logged(*(change.format(first=first, last=last) for change in changes))
        assert len(rows) == 6 * (last - first + 1)


# --- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        (
            ("CREATE TABLE t (k integer PRIMARY KEY) PARTITION BY LIST (k)",),
            "t is partitioned.*use trigger_level = row",
        ),
        (
            ("CREATE TABLE t (k integer PRIMARY KEY)", "CREATE TABLE heir () INHERITS (t)"),
            "t is in an inheritance tree",
        ),
        (
            ("CREATE TABLE base (k integer)", "CREATE TABLE t (PRIMARY KEY (k)) INHERITS (base)"),
            "t is in an inheritance tree",
        ),
        (
            (
                "CREATE TABLE t (k integer PRIMARY KEY)",
                "CREATE TABLE tag (k integer REFERENCES t, v text) PARTITION BY LIST (v)",
            ),
            "watch t: tag is partitioned",
        ),
    ],
)
def test_tables_whose_rows_a_statement_would_not_see_are_refused(
    empty: Watched, ddl: tuple[str, ...], message: str
) -> None:
    run(empty.conn, *ddl)
    with pytest.raises(TriggerError, match=message):
        empty.plan(WatchedTable("t"))


def test_triggers_of_others_that_fire_before_the_end_of_the_statement_are_named(
    empty: Watched,
) -> None:
    run(
        empty.conn,
        "CREATE TABLE t (k integer PRIMARY KEY, v text)",
        "CREATE TABLE tag (k integer REFERENCES t ON DELETE CASCADE, v text, UNIQUE (k, v))",
        "CREATE FUNCTION app() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER zz_row AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION app()",
        'CREATE TRIGGER "A statement" AFTER UPDATE ON t EXECUTE FUNCTION app()',
        "CREATE TRIGGER zz_statement AFTER UPDATE ON t EXECUTE FUNCTION app()",
        'CREATE TRIGGER "A before" BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION app()',
        'CREATE TRIGGER "A truncate" AFTER TRUNCATE ON t EXECUTE FUNCTION app()',
    )
    statement, row = empty.plan(WatchedTable("t"), tables=["t"]).warnings
    assert "trigger A statement of t fires before eventlog's trigger" in statement
    assert "trigger zz_row of t fires for each row" in row


def test_a_trigger_whose_rows_were_renamed_is_replaced(usr: Watched) -> None:
    usr.watch(WatchedTable("usr"))
    run(
        usr.conn,
        "CREATE OR REPLACE TRIGGER _tgr_usr_i_1 AFTER INSERT ON usr REFERENCING NEW TABLE AS others"
        " EXECUTE FUNCTION proc_usr_1()",
    )
    (change,) = usr.watch(WatchedTable("usr")).changes
    assert change.reason == "trigger _tgr_usr_i_1 was changed by hand"
    assert usr.plan(WatchedTable("usr")).changes == ()


def test_capture_of_another_kind_replaces_the_triggers(usr: Watched) -> None:
    row = Watched(usr.conn)
    row.watch(WatchedTable("usr"))
    assert [action.kind for action in usr.watch(WatchedTable("usr")).actions] == [
        "replace",
        "replace",
    ]
    assert [action.kind for action in row.watch(WatchedTable("usr")).actions] == [
        "replace",
        "replace",
    ]


def test_a_writer_of_another_role_writes_the_log_by_statement(usr: Watched, writer: str) -> None:
    usr.watch(WatchedTable("usr"))
    run(
        usr.conn, f"SET SESSION AUTHORIZATION {writer}", "SET jit = on", "SET enable_hashjoin = off"
    )
    assert usr.conn.exec_driver_sql("SHOW enable_seqscan").scalar_one() == "on"
    run(
        usr.conn,
        "INSERT INTO usr VALUES (1, 'a')",
        "UPDATE usr SET fname = 'b'",
        "RESET SESSION AUTHORIZATION",
    )
    assert usr.conn.exec_driver_sql("SHOW enable_seqscan").scalar_one() == "on"
    assert [(row.event_type, row.perpetrator) for row in usr.rows()] == [(1, writer), (2, writer)]
