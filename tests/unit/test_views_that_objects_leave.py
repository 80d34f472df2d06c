"""A view whose objects leave it: the warnings, and the command that repairs the receiver."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from shared import Run

View = Callable[..., Run]
IDM = '[publisher]\nprofile = "idm"\n'
LEAVES = "eventlog resync tenants_a --deletes"


@pytest.fixture
def view(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> View:
    """Make the class of a view with the rows of one tenant, in a row style."""
    monkeypatch.chdir(tmp_path)

    def made(row_style: str, settings: str = "", watch: str = "") -> Run:
        Path("eventlog.toml").write_text(
            f'{settings}[database]\nurl = "sqlite:///shop.db"\n[[watch]]\nview = "tenants_a"\n'
            f'row_style = "{row_style}"\n{watch}'
            'base = { customer = { id = "pk_id", name = "sv_name" } }\n'
        )
        change("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, tenant TEXT)")
        change(
            "CREATE VIEW tenants_a AS SELECT id AS pk_id, name AS sv_name FROM customer"
            " WHERE tenant = 'a'"
        )
        assert run("db", "upgrade")[0] == 0
        assert run("triggers", "apply", "--yes")[0] == 0
        return run

    return made


def change(statement: str) -> list[Any]:
    with closing(sqlite3.connect("shop.db")) as db, db:
        return db.execute(statement).fetchall()


def warnings(run: Run) -> list[str]:
    return list(json.loads(run("triggers", "plan", "--json")[1])["warnings"])


@pytest.mark.parametrize("row_style", ["field", "field_query_back", "row_query_back"])
def test_plan_warns_of_objects_that_leave_a_view_and_succeeds(view: View, row_style: str) -> None:
    run = view(row_style)
    (leaves,) = [one for one in warnings(run) if "stays at the receiver" in one]
    assert leaves.startswith(
        "tenants_a is a view, and an UPDATE of tenant of customer is not logged"
    )
    assert leaves.endswith(f"run `{LEAVES}` every day")
    code, out, _ = run("triggers", "plan", "--check")
    assert (code, f"warning: {leaves}" in out) == (0, True)


@pytest.mark.parametrize(("row_style", "warns"), [("remove_all", True), ("row_query_back", False)])
def test_plan_warns_of_values_of_rows_outside_a_view_only_where_they_are_sent(
    view: View, row_style: str, warns: bool
) -> None:
    values = [
        one for one in warnings(view(row_style, IDM)) if "rows that are not in the view" in one
    ]
    assert bool(values) is warns


def test_plan_does_not_warn_of_values_that_no_receiver_gets(view: View) -> None:
    assert not [one for one in warnings(view("field")) if "rows that are not in the view" in one]


def test_plan_proposes_row_query_back_or_membership_for_objects_that_enter(view: View) -> None:
    run = view("field")
    (enters,) = [one for one in warnings(run) if "that enters the view by an UPDATE is sent" in one]
    assert "membership" in enters
    assert "row_query_back" in enters


@pytest.mark.promise("option watch.view", "option watch.membership")
def test_plan_does_not_warn_of_a_view_whose_membership_is_named(view: View) -> None:
    assert warnings(view("field", watch='membership = ["tenant"]\n')) == []


@pytest.mark.promise("code finding-view_deletes")
def test_doctor_names_the_command_that_repairs_the_receiver(view: View) -> None:
    run = view("field")
    findings = json.loads(run("doctor", "--json")[1])["findings"]
    (leaves,) = [one for one in findings if one["code"] == "view_deletes"]
    assert (leaves["severity"], leaves["fix"]) == ("warning", [LEAVES])
    assert not [one for one in findings if "rows that are not in the view" in one["text"]]


@pytest.mark.parametrize("row_style", ["field", "row_query_back"])
def test_the_command_deletes_at_the_receiver_what_has_left_the_view(
    view: View, row_style: str
) -> None:
    run = view(row_style)
    change("INSERT INTO customer VALUES (1, 'Ann', 'a'), (2, 'Bob', 'a')")
    assert run("publish", "--once")[0] == 0
    change("UPDATE customer SET tenant = 'b' WHERE id = 1")
    assert "<delete" not in run("publish", "--once")[1]
    assert run(*shlex.split(LEAVES)[1:])[0] == 0
    out = run("publish", "--once")[1]
    assert (out.count("<delete"), "pk_id=1" in out) == (1, True)
