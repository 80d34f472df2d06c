"""Every statement for Oracle is a golden file, passes two grammars, and what no grammar sees.

EVENTLOG_UPDATE_GOLDEN=1 writes the golden files anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from oracle_catalogue import Cases, cases, downgrade_script, migration_script, of_scripts
from oracle_lints import lint

from eventlog.sql.dialects.oracle.script import script, terminated
from eventlog.sql.triggers.plan import Action, TriggerPlan

GOLDEN = Path(__file__).parent / "golden"
CASES: Cases = cases()
STATEMENTS = {
    f"{name}:{place}": text for name, texts in {**CASES, **of_scripts()}.items() for place, text in enumerate(texts)
}


def check_golden(name: str, text: str) -> None:
    file = GOLDEN / f"{name}.sql"
    if os.environ.get("EVENTLOG_UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert file.exists(), f"{file} is missing: run with EVENTLOG_UPDATE_GOLDEN=1 and read what it wrote"
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_the_statements_are_those_of_the_golden_file(name: str) -> None:
    check_golden(name, "\n".join(terminated(CASES[name])) + "\n")


def test_the_script_of_a_plan_is_that_of_the_golden_file() -> None:
    plan = TriggerPlan(
        (
            Action("create", "APP.LINK", "watched, and not captured yet", CASES["trigger_key_only"]),
            Action("drop", "APP.OLD\nONE", "no longer watched", ('DROP TRIGGER "APP"."TGR_OLD_I_1"',)),
            Action("unchanged", "APP.SAME", "as declared"),
        )
    )
    check_golden("script", script(plan, 5.0))


def test_the_script_of_the_migrations_is_that_of_the_golden_file() -> None:
    check_golden("migrations", migration_script())
    check_golden("migrations_down", downgrade_script())


def test_no_golden_file_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.glob("*.sql")} == {*CASES, "script", "migrations", "migrations_down"}


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_statement_passes_the_lints(name: str) -> None:
    assert lint(STATEMENTS[name]) == []
