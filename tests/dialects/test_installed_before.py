"""Triggers that the code of an earlier commit has made.

``installed_before/<database>.txt`` has the statements that it planned for the tables below; they are
run here as a DBA runs a script. Record them again when a template changes, and write into
CHANGELOG that `triggers apply` replaces triggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from platforms import Platform
from shared import opened_log

from eventlog.sql.triggers import triggers_of

RECORDED = Path(__file__).parent / "installed_before"
NEXT = "\n$next$\n"
"""What stands between two statements of a recorded script."""
DECLARED: list[dict[str, Any]] = [
    {"table": "usr"},
    {"table": "keyed", "row_style": "row_query_back"},
]
PARTITIONED = (
    "CREATE TABLE sale (region text, id integer, price numeric, PRIMARY KEY (region, id)) "
    "PARTITION BY LIST (region)",
    "CREATE TABLE sale_n PARTITION OF sale FOR VALUES IN ('n')",
    "CREATE TABLE sale_s PARTITION OF sale FOR VALUES IN ('s')",
    "CREATE TABLE shifting (k integer PRIMARY KEY DEFERRABLE, note text)",
)


def declared(platform: Platform) -> list[dict[str, Any]]:
    """Create the tables that only one database has, and return the watches."""
    if platform.name != "postgresql":
        return DECLARED
    platform.run(*PARTITIONED)
    always = {"capture_replicated": True}
    return [*DECLARED, {"table": "sale", **always}, {"table": "shifting", **always}]


def recorded(platform: Platform) -> Sequence[str]:
    script = RECORDED / f"{platform.name}.txt"
    if not script.exists():
        pytest.skip(f"no triggers of an earlier commit are recorded for {platform.name}")
    return script.read_text(encoding="utf-8").rstrip("\n").split(NEXT)


def run_as_it_stands(platform: Platform, statements: Sequence[str]) -> None:
    """Run statements in one session: those of one table may set what the next need."""
    with platform.engine.begin() as conn:
        for statement in statements:
            conn.exec_driver_sql(statement, execution_options={"no_parameters": True})


def test_triggers_of_the_commit_before_are_as_declared_and_nothing_is_replaced(
    usr_platform: Platform,
) -> None:
    script, watches = recorded(usr_platform), declared(usr_platform)
    run_as_it_stands(usr_platform, script)
    plan = usr_platform.plan(*watches)
    assert {(action.kind, action.reason) for action in plan.actions} == {
        ("unchanged", "as declared")
    }
    with usr_platform.session() as (conn, log):
        installed = triggers_of(usr_platform.dialect).digests(opened_log(conn, log))
    assert installed == {one.name: one.digest for one in plan.captured}
