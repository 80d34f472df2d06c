"""Rows that foreign keys take along fire no triggers: the table that the statement names logs them
(7.4).
"""

from __future__ import annotations

import pytest
from platforms import Logged, Platform
from shared import Run

from eventlog.errors import TriggerError


def gone(key: str) -> Logged:
    return (4, key, None, None, None)


def read_back(key: str, column: str) -> Logged:
    return (8, key, column, None, None)


@pytest.fixture
def staff(family: Platform) -> Platform:
    family.run(
        "CREATE TABLE site (id int PRIMARY KEY, name varchar(20))",
        "CREATE TABLE dept (id int PRIMARY KEY, site int REFERENCES site (id) ON DELETE CASCADE, "
        "name varchar(20))",
        "CREATE TABLE emp (id int PRIMARY KEY, dept int REFERENCES dept (id) ON DELETE CASCADE ON "
        "UPDATE CASCADE, mentor int REFERENCES dept (id) ON DELETE SET NULL, name varchar(20))",
        "CREATE TABLE role (rid varchar(10) PRIMARY KEY)",
        "CREATE TABLE emp_role (emp int REFERENCES emp (id) ON DELETE CASCADE, rid varchar(10) "
        "REFERENCES role (rid) ON DELETE CASCADE ON UPDATE CASCADE, UNIQUE (emp, rid))",
        "INSERT INTO site VALUES (100, 'north'), (200, 'south')",
        "INSERT INTO dept VALUES (1, 100, 'a'), (2, 200, 'b'), (3, NULL, 'c')",
        "INSERT INTO emp VALUES (10, 1, NULL, 'x'), (11, 1, 3, 'y'), (12, 2, NULL, 'z')",
        "INSERT INTO role VALUES ('r'), ('s')",
        "INSERT INTO emp_role VALUES (10, 'r'), (11, 'r'), (12, 's')",
    )
    family.watch("emp")
    return family


def test_a_row_that_goes_with_its_parent_is_logged_as_gone(staff: Platform) -> None:
    assert staff.logged("DELETE FROM dept WHERE id = 1") == [gone("id=10"), gone("id=11")]


def test_a_row_that_goes_with_its_parents_parent_is_logged_as_gone(staff: Platform) -> None:
    assert staff.logged("DELETE FROM site WHERE id = 200") == [gone("id=12")]


def test_a_column_that_follows_a_new_key_is_read_back(staff: Platform) -> None:
    rows = staff.logged("UPDATE dept SET id = 5 WHERE id = 1")
    assert rows == [read_back("id=10", "dept"), read_back("id=11", "dept")]


def test_a_column_that_is_set_to_null_is_read_back(staff: Platform) -> None:
    assert staff.logged("DELETE FROM dept WHERE id = 3") == [read_back("id=11", "mentor")]


def test_an_update_of_another_column_of_the_parent_logs_nothing(staff: Platform) -> None:
    assert staff.logged("UPDATE dept SET name = 'new'", "UPDATE dept SET id = id") == []


def test_the_value_of_a_child_row_that_goes_with_what_it_names_is_read_back(
    staff: Platform,
) -> None:
    value = "emp_role.rid"
    assert staff.logged("UPDATE role SET rid = 'R' WHERE rid = 'r'") == [
        read_back("id=10", value),
        read_back("id=11", value),
    ]
    assert staff.logged("DELETE FROM role WHERE rid = 's'") == [read_back("id=12", value)]


def test_a_replaced_parent_takes_its_rows_along(staff: Platform) -> None:
    """MySQL keeps them, and they come back."""
    kept = [(5, "id=12", None, None, None)] if staff.name == "mysql" else []
    assert staff.logged("REPLACE INTO dept VALUES (2, NULL, 'again')") == [gone("id=12"), *kept]


def test_what_is_rolled_back_with_the_parent_is_not_logged(staff: Platform) -> None:
    staff.rows()
    with staff.engine.connect() as conn:
        conn.exec_driver_sql("DELETE FROM dept WHERE id = 1")
        conn.rollback()
    assert staff.rows() == []


def test_a_row_that_another_session_added_after_the_snapshot_is_logged_too(staff: Platform) -> None:
    staff.rows()
    with staff.engine.connect() as conn:
        conn.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if conn.exec_driver_sql("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'").first():
            # ON, as in MariaDB 11.8, it refuses such a DELETE (1020), with triggers and without.
            conn.exec_driver_sql("SET SESSION innodb_snapshot_isolation = OFF")
        conn.commit()
        assert conn.exec_driver_sql("SELECT COUNT(*) FROM emp").scalar() == 3
        staff.run("INSERT INTO emp VALUES (13, 2, NULL, 'late')")
        staff.rows()
        conn.exec_driver_sql("DELETE FROM dept WHERE id = 2")
        conn.commit()
    assert {row.table_key for row in staff.rows()} == {"id=12", "id=13"}


def test_a_row_is_read_back_whole_in_that_style(staff: Platform) -> None:
    staff.watch("emp", "row_query_back")
    assert staff.logged("UPDATE dept SET id = 5 WHERE id = 2") == [(6, "id=12", None, None, None)]


def test_a_column_that_is_not_watched_logs_nothing(staff: Platform) -> None:
    staff.watch("emp", columns=["name"])
    assert (
        staff.logged("UPDATE dept SET id = 5 WHERE id = 2", "DELETE FROM dept WHERE id = 3") == []
    )
    assert staff.logged("DELETE FROM dept WHERE id = 5") == [gone("id=12")]


def test_a_key_that_follows_its_parents_is_another_object(family: Platform) -> None:
    family.run(
        "CREATE TABLE bill (no varchar(10) PRIMARY KEY)",
        "CREATE TABLE line (no varchar(10), pos int, text varchar(20), PRIMARY KEY (no, pos),"
        " FOREIGN KEY (no) REFERENCES bill (no) ON UPDATE CASCADE ON DELETE CASCADE)",
        "CREATE TABLE part (no varchar(10), pos int, part int, text varchar(20), PRIMARY KEY (no, "
        "pos, part), FOREIGN KEY (no, pos) REFERENCES line (no, pos) ON UPDATE CASCADE ON DELETE "
        "CASCADE)",
        "INSERT INTO bill VALUES ('a')",
        "INSERT INTO line VALUES ('a', 1, 'x')",
        "INSERT INTO part VALUES ('a', 1, 7, 'y')",
    )
    family.apply(family.plan({"table": "line"}, {"table": "part"}))
    assert sorted(family.logged("UPDATE bill SET no = 'A+' WHERE no = 'a'"), key=str) == sorted(
        [
            gone("no=a+pos=1"),
            (5, 'no="A+"+pos=1', None, None, None),
            gone("no=a+pos=1+part=7"),
            (5, 'no="A+"+pos=1+part=7', None, None, None),
        ],
        key=str,
    )
    assert sorted(family.logged("DELETE FROM bill"), key=str) == sorted(
        [gone('no="A+"+pos=1'), gone('no="A+"+pos=1+part=7')], key=str
    )


def test_the_triggers_of_a_parent_go_with_the_watch(staff: Platform) -> None:
    staff.apply(staff.plan({"table": "role"}))
    assert staff.logged("DELETE FROM dept WHERE id = 1") == []
    assert staff.plan({"table": "role"}).changes == ()


@pytest.fixture
def pairs(family: Platform) -> Platform:
    """Rows that two keys lead to, one of them by way of another table."""
    family.run(
        "CREATE TABLE role (id varchar(10) PRIMARY KEY)",
        "CREATE TABLE implied (prior varchar(10), implied varchar(10), note int, PRIMARY KEY "
        "(prior, implied), FOREIGN KEY (prior) REFERENCES role (id) ON DELETE CASCADE ON UPDATE "
        "CASCADE, FOREIGN KEY (implied) REFERENCES role (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE part (prior varchar(10), implied varchar(10), own varchar(10), PRIMARY KEY "
        "(prior, implied, own), FOREIGN KEY (prior, implied) REFERENCES implied (prior, implied) "
        "ON DELETE CASCADE ON UPDATE CASCADE, FOREIGN KEY (own) REFERENCES role (id) ON DELETE "
        "CASCADE ON UPDATE CASCADE)",
        "INSERT INTO role VALUES ('a'), ('b')",
        "INSERT INTO implied VALUES ('a', 'a', 1), ('a', 'b', 2), ('b', 'a', 3)",
        "INSERT INTO part VALUES ('a', 'b', 'a'), ('b', 'a', 'b')",
    )
    family.apply(family.plan({"table": "implied"}, {"table": "part"}))
    return family


def test_a_row_that_several_keys_take_along_is_logged_once(pairs: Platform) -> None:
    assert sorted(pairs.logged("DELETE FROM role WHERE id = 'a'"), key=str) == [
        gone("prior=a+implied=a"),
        gone("prior=a+implied=b"),
        gone("prior=a+implied=b+own=a"),
        gone("prior=b+implied=a"),
        gone("prior=b+implied=a+own=b"),
    ]


def test_a_key_whose_columns_follow_by_several_keys_is_logged_as_it_will_be(
    family: Platform,
) -> None:
    """Of one column that two keys follow the server itself refuses the change (1452), and MySQL of
    several columns too.
    """
    if family.name == "mysql":
        pytest.skip("MySQL refuses such a change (1452)")
    follows = "ON DELETE CASCADE ON UPDATE CASCADE"
    family.run(
        "CREATE TABLE role (id varchar(10) PRIMARY KEY, code int UNIQUE)",
        "CREATE TABLE two (id varchar(10), code int, PRIMARY KEY (id, code), FOREIGN KEY (id) "
        f"REFERENCES role (id) {follows}, FOREIGN KEY (code) REFERENCES role (code) {follows})",
        "CREATE TABLE three (id varchar(10), code int, n int, PRIMARY KEY (id, code, n),"
        f" FOREIGN KEY (id, code) REFERENCES two (id, code) {follows})",
        "INSERT INTO role VALUES ('d', 4), ('e', 5)",
        "INSERT INTO two VALUES ('d', 4), ('e', 4), ('d', 5)",
        "INSERT INTO three VALUES ('d', 4, 1), ('e', 4, 2), ('d', 5, 3)",
    )
    family.apply(family.plan({"table": "two"}, {"table": "three"}))
    logged = family.logged("UPDATE role SET id = 'x', code = 9 WHERE id = 'd'")
    there = ["id=e+code=9", "id=x+code=5", "id=x+code=9"]
    there += ["id=e+code=9+n=2", "id=x+code=5+n=3", "id=x+code=9+n=1"]
    assert sorted(row[1] for row in logged if row[0] == 5) == sorted(there)
    went = [
        "id=d+code=4",
        "id=e+code=4",
        "id=d+code=5",
        "id=d+code=4+n=1",
        "id=e+code=4+n=2",
        "id=d+code=5+n=3",
    ]
    assert sorted(row[1] for row in logged if row[0] == 4) == sorted(went)
    assert [
        row[1] for row in family.logged("UPDATE role SET code = 8 WHERE id = 'x'") if row[0] == 5
    ] == [
        "id=e+code=8",
        "id=x+code=8",
        "id=e+code=8+n=2",
        "id=x+code=8+n=1",
    ]


@pytest.fixture
def tree(family: Platform) -> Platform:
    family.run(
        "CREATE TABLE shop (id int PRIMARY KEY)",
        "CREATE TABLE node (id int PRIMARY KEY, up int REFERENCES node (id) ON DELETE CASCADE,"
        " shop int REFERENCES shop (id) ON DELETE CASCADE)",
        "CREATE TABLE leaf (id int PRIMARY KEY, node int REFERENCES node (id) ON DELETE CASCADE)",
        "CREATE TABLE leaf_tag (leaf int REFERENCES leaf (id) ON DELETE CASCADE, tag varchar(10), "
        "UNIQUE (leaf, tag))",
        "INSERT INTO shop VALUES (1), (2)",
        "INSERT INTO node VALUES (1, NULL, 1), (2, 1, NULL), (3, 2, NULL), (4, NULL, 2)",
        "INSERT INTO leaf VALUES (10, 1), (30, 3), (40, 4)",
        "INSERT INTO leaf_tag VALUES (30, 'x')",
    )
    family.apply(family.plan({"table": "node"}, {"table": "leaf"}))
    return family


def gone_of(platform: Platform, statement: str) -> set[tuple[str, str]]:
    platform.rows()
    platform.run(statement)
    rows = platform.rows()
    assert {row.event_type for row in rows} <= {4}
    return {(str(row.table_name), str(row.table_key)) for row in rows}


def test_a_tree_that_goes_with_its_root_is_logged_with_all_that_hangs_on_it(tree: Platform) -> None:
    assert gone_of(tree, "DELETE FROM node WHERE id = 1") == {
        *(("node", f"id={n}") for n in (1, 2, 3)),
        *(("leaf", f"id={n}") for n in (10, 30)),
    }


def test_a_tree_that_goes_with_what_its_root_belongs_to_is_logged_too(tree: Platform) -> None:
    assert gone_of(tree, "DELETE FROM shop WHERE id = 1") == {
        *(("node", f"id={n}") for n in (1, 2, 3)),
        *(("leaf", f"id={n}") for n in (10, 30)),
    }
    assert gone_of(tree, "DELETE FROM shop") == {("node", "id=4"), ("leaf", "id=40")}


def test_a_branch_that_goes_leaves_the_rest(tree: Platform) -> None:
    assert gone_of(tree, "DELETE FROM node WHERE id = 3") == {("node", "id=3"), ("leaf", "id=30")}


def test_a_statement_that_reads_the_other_table_too_still_runs(staff: Platform) -> None:
    """The server refuses a trigger that would write a table of its statement (1442)."""
    assert staff.logged(
        "DELETE dept FROM dept LEFT JOIN emp ON emp.dept = dept.id WHERE emp.id = 12"
    ) == [gone("id=12")]
    assert staff.logged("DELETE FROM dept WHERE id IN (SELECT dept FROM emp WHERE id = 10)") == [
        gone("id=10"),
        gone("id=11"),
    ]


REFUSED = [
    (
        (
            "CREATE TABLE u (id int PRIMARY KEY, t int)",
            "CREATE TABLE t (id int PRIMARY KEY, u int REFERENCES u (id) ON DELETE CASCADE)",
            "ALTER TABLE u ADD FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE",
        ),
        "in a circle",
    ),
]


@pytest.mark.parametrize(("tables", "reason"), REFUSED)
def test_a_watch_is_refused_where_nobody_can_tell_the_rows(
    family: Platform, tables: tuple[str, ...], reason: str
) -> None:
    family.run(*tables)
    with pytest.raises(TriggerError, match=reason):
        family.plan({"table": "t"})


def test_objects_that_are_there_although_their_last_row_is_a_delete_are_reported_by_doctor(
    staff: Platform, run: Run
) -> None:
    if staff.name == "mysql":
        pytest.skip("MySQL deletes what goes with a parent that DELETE IGNORE keeps")
    staff.run("CREATE TABLE badge (dept int REFERENCES dept (id))", "INSERT INTO badge VALUES (1)")
    assert staff.logged("DELETE IGNORE FROM dept WHERE id = 1") == [gone("id=10"), gone("id=11")]
    file = str(staff.place / "eventlog.toml")
    _, out, _ = run("-c", file, "doctor")
    assert "2 objects of class emp" in out
    assert "[false_delete]" in out
    code, _, error = run("-c", file, "resync", "emp")
    assert code == 0, error
    assert {row.table_key for row in staff.rows()} == {"id=10", "id=11", "id=12"}


def test_a_session_without_foreign_keys_takes_nothing_along(staff: Platform) -> None:
    with staff.engine.begin() as conn:
        conn.exec_driver_sql("SET foreign_key_checks = 0")
        conn.exec_driver_sql("DELETE FROM dept")
    assert staff.rows() == []


def test_a_key_that_restricts_is_no_reason_for_triggers(family: Platform) -> None:
    family.run(
        "CREATE TABLE u (id int PRIMARY KEY)",
        "CREATE TABLE t (id int PRIMARY KEY, u int REFERENCES u (id), up int REFERENCES t (id))",
    )
    assert [action.table for action in family.plan({"table": "t"}).actions] == ["t"]
