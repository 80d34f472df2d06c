"""Views of the direct model, captured by triggers on their base tables (spec/triggers.md 3)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from trigger_log import STYLES, Logged, Watched, drop_triggers, fields, run

from eventlog.errors import TriggerError
from eventlog.sql.triggers.watch import Capture, Style, WatchedTable

Base = Mapping[str, Mapping[str, str]]

EMP = {"empno": "pk_empno", "fname": "sv_fname", "boss": "fk__empno__boss"}
PHONE = {"empno": "pk_empno", "no": "mv_phoneno"}
MEMBER = {"empno": "pk_empno", "grp": "fk_mv__idg__mbr_of"}
BASE: Base = {"emp": EMP, "phone": PHONE, "member": MEMBER}


@pytest.fixture(params=["row", "statement"])
def direct(empty: Watched, request: pytest.FixtureRequest) -> Watched:
    run(
        empty.conn,
        "CREATE TABLE emp (empno integer PRIMARY KEY, fname text, boss integer REFERENCES emp, "
        "salary numeric)",
        "CREATE TABLE phone (id serial PRIMARY KEY, empno integer REFERENCES emp ON UPDATE "
        "CASCADE ON DELETE CASCADE, no text, UNIQUE (empno, no))",
        "CREATE TABLE member (empno integer, grp integer)",
        "CREATE TABLE active (since date, empno integer PRIMARY KEY REFERENCES emp ON UPDATE "
        "CASCADE)",
        "CREATE VIEW view_emp AS SELECT e.empno AS pk_empno, e.fname AS sv_fname, e.boss AS "
        "fk__empno__boss, p.no AS mv_phoneno, m.grp AS fk_mv__idg__mbr_of FROM emp e LEFT JOIN "
        "phone p USING (empno) LEFT JOIN member m USING (empno)",
        "CREATE VIEW view_active AS SELECT empno AS pk_empno, fname AS sv_fname FROM emp JOIN "
        "active USING (empno)",
        "INSERT INTO emp VALUES (1, 'Jack'), (2, 'Eve')",
    )
    trigger_level: Capture = request.param
    return Watched(empty.conn, trigger_level=trigger_level)


def view(row_style: Style = "field", base: Base = BASE, **more: tuple[str, ...]) -> WatchedTable:
    return WatchedTable("view_emp", row_style, base=base, **more)  # type: ignore[arg-type]


def test_the_statement_of_the_specification(direct: Watched) -> None:
    direct.watch(view())
    direct.rows()
    run(direct.conn, "update emp set fname='John' where empno=1")
    (row,) = direct.rows()
    assert (row.event_type, row.table_name, row.table_key, row.column_name, row.old_value,
        row.new_value) == (
        2, "view_emp", "pk_empno=1", "sv_fname", "Jack", "John",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("row_style", "insert", "update"),
    [("field", 1, 2), ("remove_all", 1, 3), ("field_query_back", 7, 8), ("row_query_back", 5, 6)],
)
def test_the_table_with_the_key_makes_the_objects(
    direct: Watched, row_style: Style, insert: int, update: int
) -> None:
    direct.watch(view(row_style))

    def value(event_type: int, key: int, column: str, old: str | None, new: str | None) -> Logged:
        by_row, by_value = row_style == "row_query_back", row_style in ("field", "remove_all")
        shown = (old, new) if by_value else (None, None)
        return (event_type, f"pk_empno={key}", None if by_row else column, *shown)

    assert direct.logged("INSERT INTO emp VALUES (3, 'Max')") == [
        value(insert, 3, "sv_fname", None, "Max")
    ]
    assert direct.logged("INSERT INTO emp VALUES (4)") == [value(insert, 4, "sv_fname", None, None)]
    assert direct.logged("UPDATE emp SET boss = 1 WHERE empno = 3") == [
        value(update, 3, "fk__empno__boss", None, "1")
    ]
    assert direct.logged("UPDATE emp SET salary = 1", "UPDATE emp SET fname = fname") == []
    assert direct.logged("UPDATE emp SET empno = 5 WHERE empno = 4") == [
        (4, "pk_empno=4", None, None, None),
        value(insert, 5, "sv_fname", None, None),
    ]
    assert direct.logged("DELETE FROM emp WHERE empno = 5") == [(4, "pk_empno=5", None, None, None)]
    assert direct.logged("TRUNCATE emp CASCADE") == [
        (4, f"pk_empno={key}", None, None, None) for key in (1, 2, 3)
    ]


@pytest.mark.parametrize("row_style", STYLES)
def test_a_table_that_feeds_a_multi_valued_column_is_like_a_child_table(
    direct: Watched, row_style: Style
) -> None:
    direct.watch(view(row_style))
    event_type = 2 if row_style in ("field", "remove_all") else 8

    def value(key: int, old: str | None, new: str | None) -> Logged:
        return (
            event_type,
            f"pk_empno={key}",
            "mv_phoneno",
            *((old, new) if event_type == 2 else (None, None)),
        )

    assert direct.logged("INSERT INTO phone (empno, no) VALUES (1, 'a')") == [value(1, None, "a")]
    assert direct.logged("UPDATE phone SET no = 'b'") == [value(1, "a", "b")]
    assert direct.logged("UPDATE phone SET empno = 2") == [value(1, "b", None), value(2, None, "b")]
    assert direct.logged("UPDATE phone SET empno = NULL") == [value(2, "b", None)]
    assert direct.logged("UPDATE phone SET empno = 1") == [value(1, None, "b")]
    assert direct.logged("DELETE FROM phone") == [value(1, "b", None)]
    assert direct.logged("INSERT INTO phone (empno, no) VALUES (1, 'c')", "TRUNCATE phone")[1:] == [
        (8, "pk_empno=1", "mv_phoneno", None, None)
    ]


def test_a_reference_without_a_unique_key_is_read_back(direct: Watched) -> None:
    direct.watch(view())
    row = (8, "pk_empno=1", "fk_mv__idg__mbr_of", None, None)
    assert direct.logged("INSERT INTO member VALUES (1, 7)", "DELETE FROM member") == [row, row]
    # The owner need not be there: no foreign key requires it.
    assert direct.logged("INSERT INTO member VALUES (9, 7)") == [(8, "pk_empno=9", *row[2:])]
    assert direct.logged("DELETE FROM member") == []


def test_what_follows_the_key_of_its_owner(direct: Watched) -> None:
    direct.watch(view())
    run(direct.conn, "INSERT INTO phone (empno, no) VALUES (1, 'a')")
    assert direct.logged("UPDATE emp SET empno = 7 WHERE empno = 1") == [
        (4, "pk_empno=1", None, None, None),
        *fields(1, "pk_empno=7", ("sv_fname", None, "Jack")),
        (2, "pk_empno=7", "mv_phoneno", None, "a"),
    ]
    assert direct.logged("DELETE FROM emp WHERE empno = 7") == [(4, "pk_empno=7", None, None, None)]


def active(row_style: Style) -> WatchedTable:
    base = {"emp": {"empno": "pk_empno", "fname": "sv_fname"}, "active": {"empno": "pk_empno"}}
    return WatchedTable("view_active", row_style, base=base)


@pytest.mark.parametrize("row_style", STYLES)
def test_a_table_that_decides_which_rows_are_in_the_view(direct: Watched, row_style: Style) -> None:
    direct.watch(active(row_style))
    assert direct.logged("INSERT INTO active VALUES ('2024-01-01', 1)") == [
        (5, "pk_empno=1", None, None, None)
    ]
    assert direct.logged("UPDATE active SET since = '2024-01-02'") == [
        (6, "pk_empno=1", None, None, None)
    ]
    assert direct.logged("UPDATE active SET since = since") == []
    assert direct.logged("UPDATE active SET empno = 2") == [
        (4, "pk_empno=1", None, None, None),
        (5, "pk_empno=2", None, None, None),
    ]
    assert direct.logged("DELETE FROM active") == [(4, "pk_empno=2", None, None, None)]
    assert direct.logged("INSERT INTO active VALUES (NULL, 1)", "TRUNCATE active")[1:] == [
        (4, "pk_empno=1", None, None, None)
    ]


def test_an_object_stays_while_one_row_that_decides_stands(direct: Watched) -> None:
    run(
        direct.conn,
        "CREATE TABLE grant_ (empno integer, what text)",
        "CREATE VIEW view_granted AS SELECT DISTINCT empno AS pk_empno, fname AS sv_fname"
        " FROM emp JOIN grant_ USING (empno)",
    )
    base = {"emp": {"empno": "pk_empno", "fname": "sv_fname"}, "grant_": {"empno": "pk_empno"}}
    direct.watch(WatchedTable("view_granted", "row_query_back", base=base))
    five, six, four = ((number, "pk_empno=1", None, None, None) for number in (5, 6, 4))
    assert direct.logged("INSERT INTO grant_ VALUES (1, 'a'), (1, 'b'), (NULL, 'c')") == [
        five,
        five,
    ]
    assert direct.logged("UPDATE grant_ SET what = 'd' WHERE what = 'b'") == [six]
    assert direct.logged("UPDATE grant_ SET what = 'e' WHERE what = 'c'") == []
    assert direct.logged("DELETE FROM grant_ WHERE what = 'a'") == [six]
    assert direct.logged("UPDATE grant_ SET empno = NULL WHERE what = 'd'") == [four]
    assert direct.logged("UPDATE grant_ SET empno = 1 WHERE what = 'd'") == [five]
    assert direct.logged("DELETE FROM grant_") == [four]
    assert direct.logged(
        "INSERT INTO grant_ VALUES (1, 'a'), (1, 'b'), (NULL, 'c')", "TRUNCATE grant_"
    )[2:] == [four]


def test_rows_that_may_not_be_in_the_view_are_warned_of(direct: Watched) -> None:
    *_, warning = direct.plan(active("field_query_back")).warnings
    assert "active decides which rows are in view_active" in warning
    (of_values,) = [one for one in direct.plan(active("field")).warnings if "values" in one]
    assert "rows that are not in the view: use row_style = row_query_back" in of_values
    (leaves,) = direct.plan(active("row_query_back")).warnings
    assert "run `eventlog resync view_active --deletes` every day" in leaves


def test_a_single_value_of_another_table_is_read_back(direct: Watched) -> None:
    run(
        direct.conn,
        "CREATE TABLE title (empno integer PRIMARY KEY REFERENCES emp, title text)",
        "CREATE VIEW view_titled AS SELECT empno AS pk_empno, fname AS sv_fname, title AS sv_title"
        " FROM emp LEFT JOIN title USING (empno)",
    )
    base = {
        "title": {"title": "sv_title", "empno": "PK_EMPNO"},
        "EMP": {"empno": "pk_empno", "fname": "sv_fname"},
    }
    direct.watch(WatchedTable("view_titled", base={"EMP": base["EMP"], "title": base["title"]}))
    assert (
        direct.logged("INSERT INTO title VALUES (1, 'Dr')", "DELETE FROM title")
        == [(8, "pk_empno=1", "sv_title", None, None)] * 2
    )


def test_keys_of_several_columns_stand_in_the_order_of_the_view(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE TABLE acc (num integer, branch varchar(9), v text, PRIMARY KEY (num, branch))",
        "CREATE TABLE tag (t text, n numeric, b text, UNIQUE (n, b, t))",
        "CREATE VIEW view_acc AS SELECT branch AS pk_branch, num AS pk_num, v, t AS mv_t FROM acc"
        " LEFT JOIN tag ON n = num AND b = branch",
    )
    base = {
        "acc": {"num": "pk_num", "branch": "pk_branch", "v": "v"},
        "tag": {"n": "pk_num", "b": "pk_branch", "t": "mv_t"},
    }
    empty.watch(WatchedTable("view_acc", base=base))
    key = 'pk_branch="N+W"+pk_num=7'
    assert empty.logged("INSERT INTO acc VALUES (7, 'N+W', 'x')") == [(1, key, "v", None, "x")]
    # Types that differ: the owner's spelling counts.
    assert empty.logged("INSERT INTO tag VALUES ('a', 7.0, 'N+W')") == [(2, key, "mv_t", None, "a")]
    assert empty.logged("DELETE FROM tag") == [(2, key, "mv_t", "a", None)]
    assert empty.logged("DELETE FROM acc") == [(4, key, None, None, None)]


def test_base_tables_of_another_schema(empty: Watched) -> None:
    run(
        empty.conn,
        "CREATE SCHEMA hr",
        'CREATE TABLE hr."Emp.x" (id integer PRIMARY KEY, v text)',
        'CREATE TABLE hr.phone (id integer REFERENCES hr."Emp.x" ON DELETE CASCADE, no text, '
        "UNIQUE (id, no))",
        'CREATE VIEW view_emp AS SELECT id AS pk_id, v, no AS mv_no FROM hr."Emp.x" LEFT JOIN '
        "hr.phone USING (id)",
    )
    base = {'hr."Emp.x"': {"id": "pk_id", "v": "v"}, "hr.phone": {"id": "pk_id", "no": "mv_no"}}
    plan = empty.watch(WatchedTable("view_emp", base=base))
    assert [(action.kind, action.table) for action in plan.actions] == [
        ("create", "hr.Emp.x"),
        ("create", "hr.phone"),
    ]
    assert empty.plan(WatchedTable("view_emp", base=base)).changes == ()
    rows = empty.logged(
        "INSERT INTO hr.\"Emp.x\" VALUES (1, 'x')", "INSERT INTO hr.phone VALUES (1, 'a')"
    )
    assert rows == [(1, "pk_id=1", "v", None, "x"), (2, "pk_id=1", "mv_no", None, "a")]
    assert empty.logged('DELETE FROM hr."Emp.x"') == [(4, "pk_id=1", None, None, None)]


# --- several purposes of one table ----------------------------------------------------------------


def names_on(direct: Watched, table: str) -> list[tuple[str, str]]:
    found = direct.conn.exec_driver_sql(
        f"SELECT t.tgname, p.proname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid"
        f" WHERE NOT tgisinternal AND tgrelid = '{table}'::regclass ORDER BY 1"
    )
    return [(row[0], row[1]) for row in found]


def test_one_table_serves_several_views_and_is_watched_itself(direct: Watched) -> None:
    watches = (WatchedTable("emp"), view("field_query_back"), active("row_query_back"))
    plan = direct.watch(*watches)
    # A child table of emp, with one column next to its reference, and what decides of view_active.
    assert sorted(action.table for action in plan.actions) == [
        f"public.{table}" for table in ("active", "emp", "member", "phone")
    ]
    assert len(names_on(direct, "active")) == 8
    assert names_on(direct, "emp") == [
        (f"_tgr_emp_{operation}_{number}", f"proc_emp_{number}")
        for operation in "ditu"
        for number in (1, 2, 3)
    ]
    assert direct.plan(*watches).changes == ()
    rows = direct.logged("UPDATE emp SET fname = 'Max' WHERE empno = 1")
    assert rows == [
        (2, "empno=1", "fname", "Jack", "Max"),
        (8, "pk_empno=1", "sv_fname", None, None),
        (6, "pk_empno=1", None, None, None),
    ]
    plan = direct.watch(WatchedTable("emp"), active("row_query_back"))
    assert {action.table: action.kind for action in plan.actions} == {
        "public.emp": "replace",
        "public.active": "unchanged",
        "public.member": "drop",
        "public.phone": "drop",
    }
    assert len(names_on(direct, "emp")) == 8
    plan = direct.watch(WatchedTable("emp"))
    assert {action.kind for action in direct.plan(WatchedTable("emp")).actions} == {"unchanged"}
    drop_triggers(direct.conn, direct.log)
    assert names_on(direct, "emp") == []
    assert (
        direct.conn.exec_driver_sql("SELECT count(*) FROM pg_proc WHERE prosecdef").scalar_one()
        == 0
    )


def test_a_table_that_feeds_two_columns_has_triggers_for_each(direct: Watched) -> None:
    run(
        direct.conn,
        "CREATE TABLE address (empno integer REFERENCES emp, street text, town text)",
        "CREATE VIEW view_home AS SELECT empno AS pk_empno, fname AS sv_fname, street AS "
        "mv_street, town AS mv_town FROM emp LEFT JOIN address USING (empno)",
    )
    base = {
        "emp": {"empno": "pk_empno", "fname": "sv_fname"},
        "address": {"empno": "pk_empno", "street": "mv_street", "town": "mv_town"},
    }
    direct.watch(WatchedTable("view_home", base=base))
    assert direct.logged("INSERT INTO address VALUES (1, 'Elm St', 'Ulm')") == [
        (8, "pk_empno=1", "mv_street", None, None),
        (8, "pk_empno=1", "mv_town", None, None),
    ]
    assert direct.logged("UPDATE address SET town = 'Bonn'") == [
        (8, "pk_empno=1", "mv_town", None, None)
    ]


# --- columns --------------------------------------------------------------------------------------


def test_columns_of_the_view_are_left_out_by_their_names_there(direct: Watched) -> None:
    direct.watch(view(exclude=("sv_fname", "mv_phoneno")))
    assert direct.logged("INSERT INTO emp VALUES (3, 'Max', 1)") == [
        (1, "pk_empno=3", "fk__empno__boss", None, "1")
    ]
    assert (
        direct.logged("UPDATE emp SET fname = 'x'", "INSERT INTO phone (empno, no) VALUES (1, 'a')")
        == []
    )
    direct.watch(view(columns=("sv_fname",)))
    assert direct.logged("UPDATE emp SET fname = 'y', boss = 2 WHERE empno = 3") == [
        (2, "pk_empno=3", "sv_fname", "x", "y")
    ]


def test_secrets_are_named_by_the_column_or_by_that_of_the_view(direct: Watched) -> None:
    run(
        direct.conn,
        "CREATE TABLE acc (id integer PRIMARY KEY, code text, password_hash text)",
        "CREATE VIEW view_acc AS SELECT id AS pk_id, code AS token, password_hash AS h FROM acc",
    )
    base = {"acc": {"id": "pk_id", "code": "token", "password_hash": "h"}}
    *_, code, hash_ = direct.plan(WatchedTable("view_acc", base=base)).warnings
    assert "acc.code looks like a secret" in code
    assert "acc.password_hash looks like a secret" in hash_


def test_columns_that_nothing_feeds_are_named(direct: Watched) -> None:
    *_, warning = direct.plan(view(base={"emp": EMP, "phone": PHONE})).warnings
    assert warning.startswith("no base table feeds view_emp.fk_mv__idg__mbr_of")


WRONG: list[tuple[Base | None, str]] = [
    (None, "view_emp is a view: name its base tables"),
    (
        {"nobody": EMP},
        "there is no base table 'nobody' in schema public; a table of another schema",
    ),
    ({"view_active": EMP}, "there is no base table 'view_active'"),
    ({"other.emp": EMP}, "there is no schema 'other'"),
    (
        {"emp": {**EMP, "age": "sv_age"}},
        "base emp: the table has no column 'age'; it has empno, fname",
    ),
    ({"emp": {**EMP, "salary": "sv_salary"}}, "base emp: the view has no column 'sv_salary'"),
    (
        {"emp": EMP, "phone": {"no": "mv_phoneno"}},
        "base phone: no column is mapped to 'pk_empno'.* every key column of the view",
    ),
    ({"emp": {**EMP, "boss": "sv_fname"}}, "base emp: two columns are mapped to 'sv_fname'"),
    (
        {"phone": PHONE, "member": MEMBER},
        "the key columns .pk_empno. are not a primary or unique key of any base table",
    ),
]


@pytest.mark.parametrize(("base", "message"), WRONG)
def test_base_tables_that_cannot_be_are_refused(
    direct: Watched, base: Base | None, message: str
) -> None:
    with pytest.raises(Exception, match=message):
        direct.plan(WatchedTable("view_emp", base=base))


def test_a_table_has_no_base_and_a_key_is_not_left_out(direct: Watched) -> None:
    with pytest.raises(TriggerError, match="emp is a table, and only a view can have `base`"):
        direct.plan(WatchedTable("emp", base={"emp": EMP}))
    with pytest.raises(TriggerError, match="'pk_empno' is a key column"):
        direct.plan(view(exclude=("pk_empno",)))


def test_a_mapped_column_that_no_foreign_key_joins_is_warned_of(direct: Watched) -> None:
    base = {"emp": EMP, "phone": PHONE}
    assert not [one for one in direct.plan(view(base=base)).warnings if "foreign key" in one]
    run(direct.conn, "CREATE TABLE nick (empno integer, nick text, UNIQUE (empno, nick))")
    (warning,) = (
        one
        for one in direct.plan(
            view(base={**base, "nick": {"empno": "pk_empno", "nick": "fk_mv__idg__mbr_of"}})
        ).warnings
        if "foreign key" in one
    )
    assert warning.startswith(
        "no foreign key joins nick.empno to emp: if a row has no owner there, its changes are logged"
    )
