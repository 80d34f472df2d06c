"""What base tables log for a view, on every database (spec/triggers.md 3)."""

from __future__ import annotations

from typing import Any

import pytest
from platforms import Logged, Platform

BASE: dict[str, Any] = {
    "emp": {"empno": "pk_empno", "fname": "sv_fname"},
    "phone": {"empno": "pk_empno", "no": "mv_phoneno"},
}


@pytest.fixture
def view(platform: Platform) -> Platform:
    platform.run(
        "CREATE TABLE emp (empno {integer} PRIMARY KEY, fname {string}, salary {integer})",
        "CREATE TABLE phone (empno {integer} REFERENCES emp ON DELETE CASCADE, no {string}, "
        "UNIQUE (empno, no))",
        "CREATE VIEW view_usr AS SELECT emp.empno AS pk_empno, emp.fname AS sv_fname, phone.no AS "
        "mv_phoneno FROM emp LEFT JOIN phone ON phone.empno = emp.empno",
    )
    return platform


def watch(view: Platform, row_style: str, base: dict[str, Any]) -> None:
    view.apply(view.plan({"view": "view_usr", "row_style": row_style, "base": base}))


def shown(rows: list[Logged]) -> list[Logged]:
    return [(row[0], row[1].lower(), row[2], row[3], row[4]) for row in rows]


def test_the_example_of_the_specification(view: Platform) -> None:
    view.run("INSERT INTO emp VALUES (1, 'Jack', 1)")
    watch(view, "field", BASE)
    assert view.logged("UPDATE emp SET fname = 'John' WHERE empno = 1") == [
        (2, "pk_empno=1", "sv_fname", "Jack", "John")
    ]


@pytest.mark.parametrize(
    ("row_style", "insert", "update", "value"),
    [
        ("field", 1, 2, 2),
        ("remove_all", 1, 3, 2),
        ("field_query_back", 7, 8, 8),
        ("row_query_back", 5, 6, 8),
    ],
)
def test_base_tables_log_rows_of_the_view(
    view: Platform, row_style: str, insert: int, update: int, value: int
) -> None:
    watch(view, row_style, BASE)

    def row(event_type: int, column: str, old: str | None, new: str | None) -> Logged:
        texts = (old, new) if event_type in (1, 2, 3) else (None, None)
        return (event_type, "pk_empno=1", column if event_type not in (5, 6) else None, *texts)

    assert view.logged("INSERT INTO emp VALUES (1, 'Jack', 9)") == [
        row(insert, "sv_fname", None, "Jack")
    ]
    assert view.logged("UPDATE emp SET fname = 'John'") == [row(update, "sv_fname", "Jack", "John")]
    assert view.logged("UPDATE emp SET salary = 10") == []
    assert view.logged("INSERT INTO phone VALUES (1, '5')") == [row(value, "mv_phoneno", None, "5")]
    assert view.logged("UPDATE phone SET no = '6'") == [row(value, "mv_phoneno", "5", "6")]
    assert view.logged("DELETE FROM phone") == [row(value, "mv_phoneno", "6", None)]
    assert view.logged("DELETE FROM emp") == [(4, "pk_empno=1", None, None, None)]


def test_a_table_that_decides_whether_a_row_is_in_the_view(view: Platform) -> None:
    view.run("CREATE TABLE active (empno {integer} PRIMARY KEY, since {string})")
    watch(view, "row_query_back", {**BASE, "active": {"empno": "pk_empno"}})
    assert view.logged("INSERT INTO active VALUES (1, 'a')") == [
        (5, "pk_empno=1", None, None, None)
    ]
    assert view.logged("UPDATE active SET since = 'b'") == [(6, "pk_empno=1", None, None, None)]
    assert view.logged("DELETE FROM active") == [(4, "pk_empno=1", None, None, None)]


def test_objects_of_a_view_are_read_back_row_by_row(view: Platform) -> None:
    view.run("INSERT INTO emp VALUES (1, 'Jack', 1)", "INSERT INTO emp VALUES (2, 'Max', 1)")
    view.run("INSERT INTO phone VALUES (1, 'a')", "INSERT INTO phone VALUES (1, 'b')")
    watch(view, "field", BASE)
    catalog = view.catalog()
    (cls,) = catalog.classes
    name = cls.key[0].name
    with view.session() as (conn, _):
        attributes = [one for one in cls.attributes if not one.is_key]
        found = view.dialect.open(conn).query_back(
            catalog.schema, cls, [f"{name}={n}" for n in (1, 2, 3)], attributes
        )
    phones = {
        key: sorted(map(str, values["phoneno" if name == "pk_empno" else "PHONENO"]))
        for key, values in found.items()
    }
    assert phones == {f"{name}=1": ["a", "b"], f"{name}=2": ["None"]}
