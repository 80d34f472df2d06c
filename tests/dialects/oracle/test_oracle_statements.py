"""Every statement for Oracle is a golden file, passes two grammars, and what no grammar sees.

EVENTLOG_UPDATE_GOLDEN=1 writes the golden files again, as ``golden_files.py`` does.
"""

from __future__ import annotations

import inspect
import os
from types import ModuleType
from typing import get_args

import pytest
from golden_files import CHECK, GOLDEN, WHOLE, expected, texts, write_all
from oracle_catalogue import WATCHES, cases, of_scripts
from oracle_core import MODULES, core_cases
from oracle_driver import VERSIONS
from oracle_lints import lint

from eventlog.sql import resync
from eventlog.sql.log import epoch, errors, purge, requests, requeue, rows
from eventlog.sql.triggers.watch import Capture, Style

CORE = {version: core_cases(version) for version in VERSIONS}
STATEMENTS = {
    f"{name}:{place}": text
    for name, texts in {**cases(), **of_scripts(), **CORE[VERSIONS[-1]]}.items()
    for place, text in enumerate(texts)
}
TEXTS = texts()

if os.environ.get("EVENTLOG_UPDATE_GOLDEN"):
    write_all()


@pytest.mark.parametrize("name", TEXTS)
def test_the_statements_are_those_of_the_golden_file(name: str) -> None:
    assert TEXTS[name] == expected(name)


def test_no_golden_file_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.glob("*.sql")} == {*TEXTS, CHECK}


def test_every_style_and_every_capture_can_be_read_whole() -> None:
    watches = [
        WATCHES[name.removeprefix("trigger_")][1] for name in WHOLE if name.startswith("trigger_")
    ]
    assert {watch.row_style for watch in watches} == set(get_args(Style))
    assert {watch.trigger_level for watch in watches} == set(get_args(Capture))
    assert "-- lines " not in "".join(
        (GOLDEN / f"{name}.sql").read_text(encoding="utf-8") for name in WHOLE
    )


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_statement_passes_the_lints(name: str) -> None:
    assert lint(STATEMENTS[name]) == []


def test_servers_of_all_versions_are_sent_the_same() -> None:
    assert CORE["12.2.0.1.0"] == CORE["19.3.0.0.0"] == CORE["23.4.0.0.0"]


@pytest.mark.parametrize(
    ("module", "case"),
    [
        *((each, "core_rows") for each in (rows, requeue, errors, requests)),
        *((resync, "core_resync"), (epoch, "core_epoch"), (purge, "core_purge")),
    ],
)
def test_no_function_that_sends_a_statement_is_forgotten(module: ModuleType, case: str) -> None:
    sends = {
        name
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and {"Connection", "OpenLog"} & set(list(inspect.get_annotations(function).values())[:1])
        and not name.startswith("_")
    }
    asks_sqlalchemy = {"check_table", "check_purge_rights", "has_columns", "records_new_rows"}
    sent_by_requeue = {"judge_all"}
    assert sends - asks_sqlalchemy - sent_by_requeue <= MODULES[case]().keys()
